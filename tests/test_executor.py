"""Executors: one result whatever the workers, what was kept is found again and checked, kills at several moments.

Everything is exact, nothing samples.
"""

import copy
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from executor_jobs import Failing, Fragile, Powers
from tests_support import changed

from fuaudit import load_run, unlearn, verify, workers
from fuaudit.audits.model_law.audit import ModelLaw
from fuaudit.audits.model_law.measure import Statistics
from fuaudit.data.images import Digits
from fuaudit.draws import Address, Keyed, Purpose
from fuaudit.errors import PluginError, UsageError
from fuaudit.formats import files
from fuaudit.plans import Request, stacked
from fuaudit.plans.stacked import expand_many
from fuaudit.replicas import pairs as pairs_module
from fuaudit.replicas.pairs import PAIRS_A_SHARD, Pairs
from fuaudit.verification.case import Case
from fuaudit.verification.effort import Effort
from fuaudit.verification.evidence import Evidence
from fuaudit.verification.spec import read_spec
from fuaudit.workers import CachedJob, InProcess, Processes, address, digest_of_code, executor

KEY = bytes(range(100, 132))


SHARDS = [(i,) for i in range(7)]


def computed(job):
    return sorted(int(line.split()[0]) for line in job.log.read_text().splitlines()) if job.log.exists() else []


def same(one, other):
    return len(one) == len(other) and all(
        a.keys() == b.keys() and all(np.array_equal(a[k], b[k], equal_nan=a[k].dtype.kind == "f") for k in a)
        for a, b in zip(one, other, strict=True)
    )


# --- back ends ----------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_workers_give_the_results_of_this_process_in_the_order_of_the_parts(tmp_path):
    here = list(InProcess().map(Powers(tmp_path / "here"), SHARDS))
    assert [int(result["values"][0]) for result in here] == list(range(7))
    job = Powers(tmp_path / "there", slow=True)  # later parts finish before earlier ones
    assert same(list(Processes(2).map(job, SHARDS)), here)
    pids = {line.split()[1] for line in job.log.read_text().splitlines()}
    assert len(pids) == 2
    assert str(os.getpid()) not in pids
    assert list(Processes(2).map(job, [])) == []


@pytest.mark.thorough
def test_what_a_dead_worker_owed_is_computed_here(tmp_path):
    found = list(Processes(1).map(Fragile(tmp_path / "log"), SHARDS))
    assert same(found, list(InProcess().map(Powers(tmp_path / "here"), SHARDS)))


@pytest.mark.thorough
def test_errors_of_workers_reach_the_caller_whole(tmp_path):
    with pytest.raises(PluginError) as caught:
        list(Processes(1).map(Failing(tmp_path / "log"), SHARDS))
    assert str(caught.value) == "it cannot be done\n  Do something else."


@pytest.mark.thorough
@pytest.mark.parametrize("back_end", [InProcess(), Processes(1)])
def test_closing_gives_up_the_rest(tmp_path, back_end):
    job = Powers(tmp_path / "log", slow=True)
    with closing(back_end.map(job, SHARDS * 20)) as results:
        next(results)
    time.sleep(1)
    assert len(computed(job)) <= 4  # a pool hands some parts out in advance


def test_the_number_of_workers_chooses_the_back_end():
    assert executor(1) == InProcess()
    assert executor(3) == Processes(3)
    with pytest.raises(UsageError, match="at least one worker"):
        executor(0)


# --- kept results -------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_what_is_kept_is_not_computed_again(tmp_path):
    job = Powers(tmp_path / "log")
    kept = CachedJob(job, tmp_path / "kept")
    first = list(InProcess().map(kept, SHARDS[:4]))
    assert same(first, list(InProcess().map(Powers(tmp_path / "other"), SHARDS[:4])))
    assert same(list(Processes(1).map(kept, SHARDS))[:4], first)
    assert computed(job) == list(range(7))
    names = {path.name for path in (tmp_path / "kept").iterdir()}
    assert names == {f"{address(job, shard)}.safetensors" for shard in SHARDS}


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "exchange", "rename"])
def test_damaged_results_are_computed_again(tmp_path, damage):
    job = Powers(tmp_path / "log")
    kept = CachedJob(job, tmp_path / "kept")
    right = list(InProcess().map(kept, SHARDS[:3]))
    paths = [tmp_path / "kept" / f"{address(job, shard)}.safetensors" for shard in SHARDS[:3]]
    content = [path.read_bytes() for path in paths]
    wrong = {
        "flip": content[1][:-40] + bytes([content[1][-40] ^ 1]) + content[1][-39:],
        "cut": content[1][:-1],
        "empty": b"",
        "exchange": content[2],  # whole, but the result of another task
        "rename": content[1].replace(b"values", b"valuez"),
    }[damage]
    assert wrong != content[1]
    paths[1].write_bytes(wrong)
    assert same(list(InProcess().map(kept, SHARDS[:3])), right)
    assert computed(job) == [0, 1, 1, 2]
    assert [path.read_bytes() for path in paths] == content


def test_other_work_finds_nothing(tmp_path):
    job = Powers(tmp_path / "log")
    list(InProcess().map(CachedJob(job, tmp_path / "kept"), SHARDS[:2]))
    list(InProcess().map(CachedJob(replace(job, digest="others"), tmp_path / "kept"), SHARDS[:2]))
    assert computed(job) == [0, 0, 1, 1]
    assert len({address(w, p) for w in (job, replace(job, digest="others")) for p in [(0,), (1,), (0, 1)]}) == 6


def test_the_digest_of_code_follows_the_sources(tmp_path, monkeypatch):
    package = tmp_path / "digested_package"
    package.mkdir()
    for name in ("__init__", "inner"):
        (package / f"{name}.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    import digested_package.inner  # noqa: F401

    before = digest_of_code(["digested_package"])
    assert digest_of_code(["digested_package.inner"]) == before != digest_of_code([])
    (package / "inner.py").write_text("x = 2\n")
    assert digest_of_code(["digested_package"]) != before


# --- pairs of runs ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def case(child):
    return Case(Evidence(child, None, Digits().load(None)), Keyed(KEY))


def test_the_digest_of_pairs_covers_what_they_depend_on(case, untouched):
    pairs = Pairs.of(case, Statistics(100))
    assert Pairs.of(replace(case), Statistics(100)).digest == pairs.digest
    data = case.dataset
    inputs = data.inputs.clone()
    inputs[5, 0] += 1
    others = [
        Pairs.of(case, Statistics(101)),
        Pairs.of(replace(case, key=Keyed(KEY[::-1])), Statistics(100)),
        Pairs.of(changed(case, dataset=replace(data, inputs=inputs)), Statistics(100)),
        Pairs.of(changed(case, dataset=replace(data, test_targets=data.test_targets.flip(0))), Statistics(100)),
        Pairs.of(changed(case, dataset=replace(data, absent=frozenset({7}))), Statistics(100)),
        Pairs.of(changed(case, run=untouched), Statistics(100)),
    ]
    assert len({pairs.digest, *(other.digest for other in others)}) == 7


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "back_end"), [("fats", InProcess()), ("finetune", Processes(1))])
def test_parts_do_not_know_each_other(trained, target, tmp_path, name, back_end):
    """Cut otherwise, in another order, with other threads and in another process: the same bits."""
    run = unlearn(trained, name, Request.of([target]), tmp_path / name)
    pairs = Pairs.of(Case(Evidence(run, None, Digits().load(None)), Keyed(KEY)), Statistics(100))
    [whole] = InProcess().map(pairs, [(0, 6)])
    pieces = list(back_end.map(pairs, [(4, 2), (0, 1), (1, 3)]))
    assert set(whole) == {"subject", "untouched", "retrained", "second"} | (
        {"without"} if name == "finetune" else set()
    )
    for arm, values in whole.items():
        assert values.shape == (6, 10)
        assert np.array_equal(np.concatenate([pieces[at][arm] for at in (1, 2, 0)]), values), arm
        assert np.array_equal(pairs.compute((0, 6), 1)[arm], values)


def test_more_pairs_abreast_have_the_same_bits(case):
    """As many as fill a chunk of the engine: the chunks are larger then, and work of another size is kept apart."""
    small, large = (Pairs.of(case, Statistics(100), most) for most in (PAIRS_A_SHARD, 70))
    assert large.shards(70) == [(0, 70)]
    assert small.digest != large.digest
    (whole,) = InProcess().map(large, [(0, 70)])
    pieces = list(InProcess().map(small, small.shards(70)))
    for arm, values in whole.items():
        assert np.array_equal(np.concatenate([piece[arm] for piece in pieces]), values), arm


def test_parts_have_one_size_and_cover_the_pairs(case):
    pairs = Pairs.of(case, Statistics(100))
    assert pairs.shards(70) == [(0, PAIRS_A_SHARD), (32, 32), (64, 6)]
    assert pairs.shards(1000)[:2] == pairs.shards(70)[:2]


def test_no_part_holds_more_than_some_rounds_of_its_plans(case, monkeypatch):
    """Where rounds are large, one at a time and fewer pairs: a round of the small run reads 2 x 2 x 4 samples."""
    pairs = Pairs.of(case, Statistics(100))
    expected, drawn = pairs.compute((0, 6), 1), []

    def recorded(plans, rounds):
        drawn.append((len(plans), len(rounds)))
        return expand_many(plans, rounds)

    monkeypatch.setattr(stacked, "expand_many", recorded)
    for module in (stacked, pairs_module):
        monkeypatch.setattr(module, "IDS_AT_ONCE", 6 * 16)
    assert pairs.shards(70)[:2] == [(0, 6), (6, 6)]
    found = pairs.compute((0, 6), 1)
    assert set(drawn) == {(6, 1)}
    for arm, values in expected.items():
        assert np.array_equal(found[arm], values), arm


# --- Ctrl-C ---


LONG = """
import sys, time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fuaudit.workers import CachedJob, Processes


@dataclass(frozen=True)
class Long:
    folder: Path
    digest: str = "long"

    def compute(self, shard, threads):
        (self.folder / f"begun {shard[0]}").touch()
        if shard[0] > 1:
            time.sleep(60)
        return {"values": np.arange(3)}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    try:
        for _ in Processes(2).map(CachedJob(Long(folder), folder / "kept"), [(i,) for i in range(6)]):
            pass
    except KeyboardInterrupt:
        sys.exit(130)
"""


def interrupted(process, moment):
    """Ctrl-C, as a terminal sends it, when a file is there: to the whole group. What is left of the group."""
    deadline = time.monotonic() + 120
    while not moment.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    assert moment.exists(), process.communicate()
    os.killpg(process.pid, signal.SIGINT)
    sent = time.monotonic()
    _, err = process.communicate(timeout=60)
    took = time.monotonic() - sent
    while (left := group_of(process.pid)) and time.monotonic() < sent + took + 5:  # what ends may take a moment
        time.sleep(0.05)
    return err, took, left


def group_of(pid):
    """The processes of a group that live."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, group = path.read_text().rsplit(")", 1)[1].split()[:3]
            found += [path.parent.name] if int(group) == pid and state != "Z" else []
    return found


def in_a_group(*command):
    """A process of a group of its own, on which Ctrl-C works as in a terminal, whatever it works as here."""
    usual = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*map(str, command)], **pipes, text=True, process_group=0, preexec_fn=usual)


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("moment", ["begun 0", "begun 3"])
def test_ctrl_c_ends_workers_at_once_without_a_word_of_theirs(tmp_path, moment):
    """Also in the middle of a part that takes a minute, and while other workers are still starting."""
    (tmp_path / "long.py").write_text(LONG)
    process = in_a_group(sys.executable, tmp_path / "long.py", tmp_path)
    err, took, left = interrupted(process, tmp_path / moment)
    assert (process.returncode, err, left) == (130, "", [])
    assert took < 20
    assert all(path.suffix == ".safetensors" for path in (tmp_path / "kept").glob("*"))


def test_a_part_that_is_given_up_leaves_nothing_half_written(tmp_path, monkeypatch):
    def stopped(handle, content):
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(files, "_write_all", stopped)
    monkeypatch.setattr(workers, "_own", [CachedJob(Powers(tmp_path / "log"), tmp_path / "kept")])
    left = []

    def leaves(code):
        left.append((code, sorted((tmp_path / "kept").glob("*"))))
        raise SystemExit

    monkeypatch.setattr(os, "_exit", leaves)
    usual = signal.signal(signal.SIGTERM, workers._give_up)
    try:
        with pytest.raises(SystemExit):
            workers._compute((1,))
    finally:
        signal.signal(signal.SIGTERM, usual)
    assert left == [(143, [])]


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc")
def test_ctrl_c_in_a_verification_with_workers(child, tmp_path):
    table = copy.deepcopy(TABLE)
    table["check"][0]["audit"]["pairs"] = 100_000
    (tmp_path / "spec.toml").write_text(tomli_w.dumps(table))
    shutil.copytree(child.path, tmp_path / "run")
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    command = (sys.executable, "-c", "from fuaudit.cli import main; main()", "verify", tmp_path / "run", "--quiet")
    command += ("--spec", tmp_path / "spec.toml", "--key", KEY.hex(), "--workers", 2, "--cache", tmp_path / "kept")
    err, _, left = interrupted(in_a_group(*command), tmp_path / "kept")
    assert left == []
    assert "Traceback" not in err
    assert err.lstrip().startswith("interrupted; there are no findings")
    written = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    assert {path.name if path.suffix != ".safetensors" else "" for path in written} <= {"", "log.jsonl"}


def test_ctrl_c_while_the_commands_are_imported():
    """A module of the library that sends the signal itself, as if the key were pressed then."""
    script = (
        "import os, signal, sys, importlib.abc\n"
        "class Press(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'fuaudit.cli.audits':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Press())\n"
        "from fuaudit.cli import main\n"
        "main()\n"
    )
    process = in_a_group(sys.executable, "-c", script)
    assert process.communicate() == ("", "\ninterrupted before anything was begun\n")
    assert process.returncode == 130


# --- whole audits -------------------------------------------------------------------------------------------------

TABLE = {
    "id": "sampling",
    "asks": "bound",
    "out_of_scope": ["everything else"],
    "check": [
        {"claim": "no difference", "audit": {"use": "model-law", "pairs": 64, "alpha": 0.01, "test_rows": 100}},
        {"claim": "files", "audit": {"use": "integrity"}},
        {"claim": "provenance", "audit": {"use": "provenance"}},
        {"claim": "models", "audit": {"use": "replay"}},
        {"claim": "all files", "audit": {"use": "lineage"}},
    ],
}


def children_of(pid):
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc")
def test_findings_are_the_same_bytes_for_any_workers_and_after_kills(child, tmp_path):
    """By one worker; by two, with SIGKILL when a part is kept; and gone on with by two."""
    (tmp_path / "spec.toml").write_text(tomli_w.dumps(TABLE))
    spec = read_spec(tmp_path / "spec.toml")
    expected = verify(child, spec, key=KEY, workers=1, out=tmp_path / "by 1").path.read_bytes()
    kept = tmp_path / "kept"
    command = [sys.executable, "-c", "from fuaudit.cli import main; main()", "verify", child.path, "--quiet"]
    command += ["--spec", tmp_path / "spec.toml", "--key", KEY.hex(), "--cache", kept, "--workers", 2]
    process = subprocess.Popen([*map(str, command)])
    while not list(kept.glob("*.safetensors")) and process.poll() is None:
        time.sleep(0.002)
    ours = children_of(process.pid)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 20
    while any(map(alive, ours)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, ours)), "workers outlive their parent"
    again = verify(child, spec, key=KEY, workers=2, cache=kept, out=tmp_path / "by 2")
    assert len(list(kept.glob("*.safetensors"))) == 2
    assert again.path.read_bytes() == expected
    figures = json.loads(expected)["checks"][0]["finding"]["figures"]
    assert [figure["value"] for figure in figures if figure["key"] == "pairs"] == [64]


AUDITS = """
import os, sys
from pathlib import Path

import sklearn.datasets
from fuaudit import load_run, verify
from fuaudit.audits.model_law import audit
from fuaudit.replicas import pairs
from fuaudit.verification.spec import read_spec

run, spec, key = sys.argv[1:]
run, spec = load_run(run), read_spec(spec)
for line in sys.stdin:  # each asks for one audit: which folder keeps parts, and which the findings
    kept, out = map(Path, line.split())
    child = os.fork()
    if child == 0:
        verify(run, spec, key=bytes.fromhex(key), cache=kept, out=out)
        os._exit(0)
    print(child, flush=True)
    print(os.waitpid(child, 0)[1], flush=True)
"""
"""Imports once, which takes longer than an audit here. Forks before torch has threads, and computes nothing itself."""


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_findings_are_the_same_bytes_after_a_kill_at_a_random_instant(child, tmp_path):
    """One audit, killed at an instant from a fixed key, within half the time that it takes.

    A busy machine may have taken longer the first time, so that the instant comes when the audit has ended; then
    another one is killed after half of that. Wherever a kill falls, in a file half written or between the last part
    and the findings, the bytes must be the same: which instant that is changes no expected value.
    """
    instant = Keyed(bytes(range(32))).uniform(Address(Purpose.AUDIT), 1)[0]
    (tmp_path / "spec.toml").write_text(tomli_w.dumps(TABLE))
    command = [sys.executable, "-c", AUDITS, child.path, tmp_path / "spec.toml", KEY.hex()]
    server = subprocess.Popen([*map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    def ended(name, limit=None):
        """Whether an audit ended by itself within a limit; else it is killed."""
        server.stdin.write(f"{tmp_path / name / 'kept'} {tmp_path / name / 'out'}\n".encode())
        process = int(server.stdout.readline())
        if limit is not None and not select.select([server.stdout], [], [], limit)[0]:
            os.kill(process, signal.SIGKILL)
        status = int(server.stdout.readline())
        assert status in (0, signal.SIGKILL)
        return status == 0

    with server:
        since = time.monotonic()
        assert ended("whole")
        whole = time.monotonic() - since
        tries = ((f"killed-{n}", instant * whole / 2**n) for n in range(1, 8))
        killed = next((name for name, limit in tries if not ended(name, limit)), None)
        assert killed, "no kill came before the end"
        assert ended(killed)
        server.stdin.close()
    shards = sorted(path.name for path in (tmp_path / "whole" / "kept").iterdir())
    assert len(shards) == 2
    for name in shards:
        assert (tmp_path / killed / "kept" / name).read_bytes() == (tmp_path / "whole" / "kept" / name).read_bytes()
    ended_by_itself = {max((tmp_path / name / "out").glob("findings-*.json")) for name in (killed, "whole")}
    assert len({path.read_bytes() for path in ended_by_itself}) == 1


def test_kept_results_need_a_key(child, tmp_path, quick):
    with pytest.raises(UsageError, match="belong to a key"):
        verify(child, quick, cache=tmp_path, save=False)


def test_a_run_that_changes_during_its_audit_is_no_evidence(child, untouched, tmp_path):
    from fuaudit.errors import EvidenceError

    pairs = Pairs.of(Case(Evidence(load_run(child.path), None, Digits().load(None)), Keyed(KEY)), Statistics(100))
    with pytest.raises(EvidenceError, match="has changed during its audit"):
        replace(pairs, run=untouched.path).compute((0, 1), 1)


def test_until_decided_stops_after_the_part_that_decides(untouched, child):
    """The untouched model is caught early; nothing is caught at the budget for the exact one."""
    data = Digits().load(None)
    audit = ModelLaw(pairs=64, alpha=0.4, test_rows=100)  # a coarse level, so that the tiny federation decides
    found = audit.examine(Case(Evidence(untouched, None, data), Keyed(KEY), Effort(budget=4 * 640, stopping="decided")))
    pairs = found.values["pairs"]
    assert pairs % PAIRS_A_SHARD == 0
    if found.verdict == "FAIL":
        assert pairs - PAIRS_A_SHARD < found.values["rejected_at"] <= pairs or pairs >= 64
    fixed = audit.examine(Case(Evidence(untouched, None, data), Keyed(KEY), Effort(budget=4 * pairs)))
    length = min(pairs, 64)
    key = "log wealth, subject"
    assert fixed.series[key][:length] == found.series[key][:length]
