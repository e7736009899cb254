"""Parties that are processes: the sums and refusals of objects; whoever dies or hangs costs a buffer, and stays not."""

import gc
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from secure_parties import rows_of
from test_adder import LINUX, alive, children, status
from test_secured_runs import FEDAVG, FEDREP, trained
from tests_support import AUDIT_KEY

from fuaudit import load_run, verify
from fuaudit.audits.transcript.audit import Transcript
from fuaudit.cli.options import resumable
from fuaudit.draws import Keyed
from fuaudit.errors import EvidenceError, FuauditError, UsageError
from fuaudit.runs.layout import CHAIN
from fuaudit.runs.ledger import suite_of
from fuaudit.runs.transcripts import chain_of, given_up
from fuaudit.secure import apart, roles
from fuaudit.secure.apart import Apart
from fuaudit.secure.lines import Line
from fuaudit.secure.messages import Identity, Signers
from fuaudit.secure.names import EXACT, HOLDER, SCARY, WITNESS
from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.silence import STEPS
from fuaudit.secure.suites import Books, Suite, remembered
from fuaudit.testing.tiny import tiny_dataset
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence, Known
from fuaudit.workflow.resume import resume
from fuaudit.workflow.transcripts import Keeper, begun_in

ROUNDS = count(1000)
"""Each opening is of another round, where nothing is to be opened twice."""


@pytest.fixture(scope="module")
def books():
    made = Books()
    yield made
    made.end()


@dataclass
class Outcome:
    """What an opening gives, whoever plays it."""

    told: object
    recorded: list


def outcome(made, rows, *, at, books=None, **others):
    recorded = []
    try:
        opened = made.opened(rows, 12, at=at, books=books, record=recorded.append, **others)
        told = (opened.members, opened.sums.tolist(), opened.liars)
    except FuauditError as error:
        told = (type(error).__name__, error.args[0], error.hint, getattr(error, "blamed", None))
    return Outcome(told, [(one.step, one.sender, len(one.body) if one.step != "send" else 0) for one in recorded])


def alike(suite, rows, books, **others):
    """The same by objects and by processes; what objects told."""
    at = (next(ROUNDS), 0)
    due = outcome(Suite(suite), rows, at=at, books=Books(), **others)
    found = outcome(Suite(suite, apart=True), rows, at=at, books=books, **others)
    assert found.told == due.told
    return due, found


@pytest.mark.parametrize("suite", EXACT)
@pytest.mark.parametrize("clients", [2, 3, 8])
def test_processes_give_the_sums_and_messages_of_objects(books, suite, clients):
    rows = rows_of(clients, 13_000)
    due, found = alike(suite, rows, books, clients=[7 * number + 3 for number in range(clients)])
    assert found.told[1] == rows.sum(axis=0).tolist()
    assert found.recorded == due.recorded
    assert "handout" not in {step for step, *_ in found.recorded}


@pytest.mark.parametrize("suite", EXACT)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("gone", "smallest"), [((5,), 6), ((0, 5), 3), ((0, 1, 2), 3)])
def test_who_is_silent_is_so_in_processes_too(books, suite, step, gone, smallest):
    alike(suite, rows_of(6, 9), books, absent=dict.fromkeys(gone, step), smallest=smallest)


@pytest.mark.parametrize("suite", ["bfv", "bfv+mask"])
@pytest.mark.parametrize("party", [WITNESS, HOLDER])
@pytest.mark.parametrize("step", ["announce", "witness", "receipt"])
def test_a_witness_or_key_holder_that_vanishes_opens_nothing(books, suite, party, step):
    due, _ = alike(suite, rows_of(3, 9), books, absent={party: step})
    assert due.told[0] == ("RefusedError" if (party, step) != (WITNESS, "receipt") else (0, 1, 2))


@pytest.mark.parametrize("suite", EXACT)
def test_a_value_outside_its_field_stops_its_client(books, suite):
    """As it stops one that is an object; the processes go on with the next buffer."""
    rows = rows_of(3, 7)
    rows[1, 4] = 2048
    due, _ = alike(suite, rows, books)
    assert due.told[:2] == ("UsageError", due.told[1])
    alike(suite, rows_of(3, 7).astype(np.int32), books)
    assert alike(suite, rows_of(3, 7), books)[0].told[0] == (0, 1, 2)


@pytest.mark.parametrize("suite", ["bfv+mask", "bfv", "mask"])
def test_no_buffer_is_opened_twice(books, suite):
    """The processes remember it."""
    rows, at = rows_of(4, 5), (next(ROUNDS), 1)
    made = Suite(suite, apart=True)
    assert np.array_equal(made.opened(rows, 12, at=at, books=books).sums, rows.sum(axis=0))
    for other in (rows, rows_of(4, 5, seed=2)):
        with pytest.raises(RefusedError, match="answered already"):
            made.opened(other, 12, at=at, books=books)
    assert made.opened(rows, 12, at=(next(ROUNDS), 1), books=books).members == (0, 1, 2, 3)


@pytest.mark.thorough
@pytest.mark.parametrize("suite", EXACT)
def test_what_was_answered_before_the_processes_were_started_is_remembered(suite):
    """Of a run that goes on after a break, from its messages."""
    rows, said = rows_of(3, 5), []
    Suite(suite).opened(rows, 12, at=(3, 1), record=said.append)
    books = remembered(said)
    made = Suite(suite, apart=True)
    with pytest.raises(RefusedError, match="answered already in round 3"):
        made.opened(rows, 12, at=(3, 1), books=books)
    assert made.opened(rows, 12, at=(4, 1), books=books).members == (0, 1, 2)
    books.end()


def test_identities_of_a_run_sign_in_the_processes(books):
    rows, made = rows_of(3, 9), [Identity() for _ in range(5)]
    signers, seen = Signers(dict(enumerate(made[:3])), *made[3:]), []
    Suite("bfv+mask", apart=True).opened(
        rows, 12, at=(next(ROUNDS), 0), books=books, signers=signers, record=seen.append
    )
    assert {one.sender for one in seen} == {-1, 0, 1, 2, WITNESS, HOLDER}


def test_the_demo_of_ckks_has_no_processes():
    with pytest.raises(UsageError, match="no parties that could be processes"):
        Suite(SCARY, apart=True)


@pytest.mark.parametrize("suite", EXACT)
def test_a_process_is_sent_no_secret_of_another(monkeypatch, suite):
    """Of seeds and rows, by all bytes that the one who starts them sends; others send envelopes, which are recorded."""
    sent, send = {}, Line.send

    def noting(self, parts, within=None):
        sent.setdefault(self._peer, []).extend(parts)
        return send(self, parts, within)

    monkeypatch.setattr(Line, "send", noting)
    rows, made, books = rows_of(4, 50), [Identity() for _ in range(6)], Books()
    signers = Signers(dict(enumerate(made[:4])), *made[4:])
    Suite(suite, apart=True).opened(rows, 12, books=books, signers=signers)
    books.end()
    keyed = suite.startswith("bfv")
    held = {
        "server": set(),
        "witness": {4} if keyed else set(),
        "holder": {5} if keyed else set(),
        "clients-0": {0, 2},
        "clients-1": {1, 3},
    }
    for name, own in held.items():
        content = b"\0".join(sent[f"the process {name}"])
        assert {number for number, one in enumerate(made) if one.private in content} == own, name
        assert {number for number, row in enumerate(rows) if row.tobytes() in content} == own & {0, 1, 2, 3}, name


# who dies or hangs

DYING = """
import os, sys
from fuaudit.secure import roles

class Dying(roles.Line):
    count = 0

    def _tick(self, parts):
        if parts != [roles.BEAT]:
            Dying.count += 1
            if sys.argv[1] == {role!r} and Dying.count == {number}:
                os.kill(os.getpid(), {signal})

    def send(self, parts, within=None):
        self._tick(parts)
        super().send(parts, within)

    def receive(self, *others):
        self._tick(())
        return super().receive(*others)

roles.Line = Dying
if __name__ == "__main__":
    roles.main(*sys.argv[1:])
"""


class Dying:
    """Parties of whom one is killed, or stopped, before it speaks or hears for the n-th time."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.monkeypatch = folder, monkeypatch
        monkeypatch.syspath_prepend(str(folder))

    def armed(self, role, number, how=signal.SIGKILL):
        name = re.sub(r"\W", "_", f"dying_{role}_{number}_{int(how)}")
        (self.folder / f"{name}.py").write_text(DYING.format(role=role, number=number, signal=int(how)))
        self.monkeypatch.setattr(apart, "PROCESS", name)

    def opened(self, role, number, suite="bfv+mask", how=signal.SIGKILL, patience=120.0):
        self.armed(role, number, how)
        books, rows = Books(), rows_of(3, 9)
        vars(books)["apart"] = parties = Apart(processes=1, patience=patience)
        try:
            opened = Suite(suite, apart=True).opened(rows, 12, books=books)
        except RefusedError:
            assert not parties.pids
            with pytest.raises(RefusedError, match="the parties of this run have ended"):
                Suite(suite, apart=True).opened(rows, 12, at=(1, 0), books=books)
            raise
        finally:
            books.end()
        assert np.array_equal(opened.sums, rows.sum(axis=0))


@pytest.fixture
def dying(tmp_path, monkeypatch):
    return Dying(tmp_path, monkeypatch)


def times(role):
    """How often a party hears or speaks in an opening of bfv+mask, its task and its report with it."""
    return {"server": 10, "witness": 4, "holder": 6, "clients-0": 6}[role]


@pytest.mark.thorough
@LINUX
@pytest.mark.parametrize("role", ["server", "witness", "holder", "clients-0"])
def test_a_process_that_is_killed_at_any_step_costs_the_buffer(dying, role):
    """From its task to its report; no process stays, and none waits."""
    gc.collect()
    before = children(), set(os.listdir("/proc/self/fd"))
    for number in range(1, 1 + times(role)):
        with pytest.raises(RefusedError, match=f"the process {role} is gone"):
            dying.opened(role, number)
        assert (children(), set(os.listdir("/proc/self/fd"))) == before
    dying.opened(role, 1 + times(role))


FLOODING = """
import sys
from fuaudit.secure import roles

class Flooding(roles.Line):
    sent = 0

    def send(self, parts, within=None):
        super().send(parts, within)
        if sys.argv[1] == "clients-0" and self._peer == "server":
            Flooding.sent += 1
            if Flooding.sent == 1:
                super().send({more}, within)

roles.Line = Flooding
if __name__ == "__main__":
    roles.main(*sys.argv[1:])
"""

FRAMES = {
    "parts": "[b'x'] * 5000",
    "bytes": "[b'here', bytes(20_000)]",
    "a frame again": "parts",
    "an empty frame": "parts[:1]",
    "another word": "[b'hello']",
    "breaking off": "[b'broke' + parts[0][4:]]",
}
"""What is sent once, and is not due."""


@pytest.mark.parametrize("what", FRAMES)
@pytest.mark.parametrize("suite", ["plain", "mask"])
def test_who_sends_a_frame_that_is_not_due_is_named_in_every_buffer_that_it_costs(tmp_path, monkeypatch, suite, what):
    """In `plain` the buffer itself comes through: one frame of each is heard."""
    monkeypatch.syspath_prepend(str(tmp_path))
    name = re.sub(r"\W", "_", f"flooding_{what}")
    (tmp_path / f"{name}.py").write_text(FLOODING.format(more=FRAMES[what]))
    monkeypatch.setattr(apart, "PROCESS", name)
    books, told = Books(), []
    for number in range(1, 4):
        try:
            Suite(suite, apart=True).opened(rows_of(4, 9), 12, at=(number, 0), books=books)
        except RefusedError as error:
            told.append(error.args[0])
    books.end()
    assert len(told) == (2 if suite == "plain" else 3)
    if suite == "mask" and what == "an empty frame":
        assert told.pop(0).startswith("2 of 4 clients"), "in its own opening it is silence"
    assert all(re.search(r"clients-0 (sends|broke off)", text) for text in told), told


@pytest.mark.thorough
@LINUX
@pytest.mark.parametrize("role", ["server", "clients-0"])
def test_a_process_that_hangs_costs_the_buffer(dying, role):
    before, begun = children(), time.monotonic()
    with pytest.raises(RefusedError, match="nothing happens among the processes"):
        dying.opened(role, 3, "mask", signal.SIGSTOP, patience=5.0)
    assert time.monotonic() - begun < 90
    assert children() == before


@LINUX
def test_an_interrupt_ends_all_of_them():
    books, before = Books(), children()

    def interrupted(message):
        if message.step == "send":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Suite("mask", apart=True).opened(rows_of(3, 9), 12, books=books, record=interrupted)
    assert children() == before
    with pytest.raises(RefusedError, match="an opening was interrupted"):
        Suite("mask", apart=True).opened(rows_of(3, 9), 12, at=(1, 0), books=books)


@pytest.mark.thorough
@LINUX
def test_nothing_is_left_behind_where_nobody_ends_them():
    gc.collect()
    before = children(), set(os.listdir("/proc/self/fd"))
    books = Books()
    Suite("mask", apart=True).opened(rows_of(3, 9), 12, books=books)
    pids = books.apart.pids
    assert len(pids) == 5
    del books
    gc.collect()
    assert not any(map(alive, pids.values()))
    Suite("plain", apart=True).sums(rows_of(3, 9), 12)
    assert (children(), set(os.listdir("/proc/self/fd"))) == before


@LINUX
def test_processes_end_with_who_started_them():
    script = (
        "import sys, numpy as np\nfrom fuaudit.secure.suites import Books, Suite\nbooks = Books()\n"
        "Suite('bfv', apart=True).opened(np.ones((3, 9), dtype=np.int64), 12, books=books)\n"
        "print(*books.apart.pids.values(), flush=True)\nsys.stdin.read()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    pids = [int(one) for one in parent.stdout.readline().split()]
    started = [int(one) for pid in pids for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    assert len(pids) == 5
    assert len(started) == 2  # what adds for the server and for the witness
    for pid in pids:
        assert status(pid, "NoNewPrivs") == {"1"}
        assert "Max core file size        0                    0" in Path(f"/proc/{pid}/limits").read_text()
    parent.kill()
    parent.communicate()
    until = time.monotonic() + 60
    while any(map(alive, pids + started)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(alive, pids + started))


def test_a_report_that_is_none_opens_nothing():
    for wrong in ([b""], [b"done", b"x"], [roles.REFUSED, b"x"], [roles.DONE, b"", b"", b""]):
        reports = {name: [roles.DONE] for name in ("clients-0", "holder", "witness")}
        with pytest.raises(RefusedError):
            apart._result({**reports, "server": wrong}, None)


# training


@pytest.mark.thorough
@LINUX
@pytest.mark.parametrize(("tables", "suite"), [(FEDREP, "bfv+mask"), (FEDAVG, "mask")], ids=["fedrep", "fedavg"])
def test_a_training_is_the_same_with_parties_apart(tmp_path, tables, suite):
    """In every byte that a digest is of; it leaves no process."""
    gc.collect()
    before = children()
    objects = trained(tmp_path / "objects", tables, suite)
    between = children()
    processes = trained(tmp_path / "processes", tables, suite, apart=True)
    assert processes.digest == objects.digest
    assert suite_of(processes.ledger) == suite
    assert children() == between
    assert len(between - before) <= 2  # what adds for objects stays


def test_a_run_goes_on_with_parties_of_another_kind(tmp_path):
    whole = trained(tmp_path / "whole")

    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "run", apart=True, progress=stopping)
    assert resume(tmp_path / "run", tiny_dataset()).digest == whole.digest


@pytest.fixture(scope="module")
def of_objects(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("objects") / "run", FEDREP, "bfv+mask")


GONE = {
    "the witness, when rows were sent": ("witness", 11, "discard"),
    "the key holder, when the witness signed": ("holder", 19, "discard"),
    "the key holder, when it opened": ("holder", 20, "discard"),
    "the server, when it told the sum": ("server", 63, "receipt"),
}
"""Who dies when it hears or speaks for the how manieth time, all in the third opening, and what is told last of it."""


@pytest.mark.thorough
@LINUX
@pytest.mark.parametrize("case", GONE)
def test_a_training_of_which_a_party_died_is_finished_by_new_ones(of_objects, tmp_path, dying, monkeypatch, case):
    """As one that was killed as a whole. What was told stays, what broke off goes, and every text says so."""
    role, number, last = GONE[case]
    dying.armed(role, number)
    folder = tmp_path / "run"
    with pytest.raises(RefusedError, match=f"the process {role} is gone") as refused, resumable(folder, None):
        trained(folder, FEDREP, "bfv+mask", apart=True)
    assert "go on with: fuaudit resume" in str(refused.value)
    assert "Remove it" not in str(refused.value), "another run over the same rows"
    with pytest.raises(EvidenceError, match="Finish it with: fuaudit resume"):
        load_run(folder)
    chain = chain_of(folder)
    assert (chain.entries[-1].step, chain.entries[-1].round) == (last, 2)
    told = [one for one in chain.entries if one.step == "receipt"]
    assert len(told) == (3 if last == "receipt" else 2)
    assert [*begun_in(folder, 1)] == [(2, 0)]
    monkeypatch.setattr(apart, "PROCESS", "fuaudit.secure.roles")
    run = resume(folder, tiny_dataset())
    assert run.digest == of_objects.digest
    now = chain_of(folder).entries
    assert [one for one in now if one.step == "receipt"][: len(told)] == told
    assert [(one.round, one.buffer) for one in now if one.step == "receipt"] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert not [one for one in now if one.step == "discard"]
    assert transcript_of(run) == "PASS"


@pytest.mark.parametrize(
    ("suite", "reason", "step", "ends"),
    [
        ("bfv+mask", "wrong", "witness", True),
        ("bfv+mask", "again", "receipt", True),
        ("bfv+mask", "broke", "witness", False),
        ("bfv+mask", "silent", "context", False),
        ("mask", "wrong", "opened", True),
        ("mask", "broke", "opened", False),
        ("plain", "few", "opened", True),
    ],
)
def test_a_training_whose_buffer_was_discarded_says_whether_it_can_be_finished(
    of_objects, tmp_path, monkeypatch, suite, reason, step, ends
):
    """It ends where clients answered, unless a party was gone; four texts say the same, and nothing is written."""
    record, folder = Keeper.record, tmp_path / "run"

    def refusing(self, message):
        if (message.step, message.round, message.buffer) == (step, 2, 0):
            raise RefusedError("it does not come", reason=reason)
        record(self, message)

    with monkeypatch.context() as patch:
        patch.setattr(Keeper, "record", refusing)
        if reason == "again":  # the run broke off before
            with pytest.raises(KeyboardInterrupt):
                trained(folder, FEDREP, suite, progress=stopping)
        with pytest.raises(RefusedError) as refused, resumable(folder, None):
            resume(folder, tiny_dataset()) if folder.exists() else trained(folder, FEDREP, suite)
    assert ("ends here: buffer 0 of round 2 was discarded" in str(refused.value)) == ends
    assert ("go on with: fuaudit resume" in str(refused.value)) != ends
    before = (folder / CHAIN).read_bytes()
    assert bool(given_up(folder)) == ends
    if ends:
        for act in (resume, load_run, resume, verify):
            with pytest.raises(
                EvidenceError, match=rf"cannot be finished: buffer 0 of round 2 .*\({reason}\)"
            ) as found:
                act(folder)
            assert "fuaudit resume" not in str(found.value)
        assert (folder / CHAIN).read_bytes() == before
        return
    with pytest.raises(EvidenceError, match="Finish it with: fuaudit resume"):
        load_run(folder)
    run = resume(folder, tiny_dataset())
    assert run.digest == of_objects.digest
    tried = [one.step for one in chain_of(folder).entries].count("discard")
    assert tried == (1 if reason == "silent" else 0), "an attempt that broke off goes, and others stay"
    assert transcript_of(run) == "PASS"


def stopping(_, number, __):
    if number == 1:
        raise KeyboardInterrupt


def transcript_of(run):
    return Transcript().examine(Case(Evidence(run, None, tiny_dataset(), Known()), Keyed(AUDIT_KEY))).verdict


def test_parties_apart_are_those_of_a_suite(tmp_path):
    with pytest.raises(UsageError, match="parties apart are those of a suite"):
        trained(tmp_path / "run", suite=None, apart=True)
    assert not (tmp_path / "run").exists()


def test_the_command_trains_with_parties_apart(fuaudit, tmp_path):
    (tmp_path / "c.toml").write_text(
        'scaling = "none"\n[data]\nuse = "digits"\n[partition]\nuse = "iid"\nclients = 3\n[model]\nuse = "linear"\n'
        '[learner]\nuse = "fedavg"\nrounds = 1\ncohort = 3\nsteps = 1\nbatch = 4\nstep_size = 0.1\n'
        '[[client]]\nuse = "quantise"\n[transport]\nuse = "secure-sum"\nsize = 3\n[[server]]\nuse = "mean"\n'
        "[run]\ncheckpoint_every = 1\n"
    )
    code, _, err = fuaudit("train", tmp_path / "c.toml", "--out", tmp_path / "run", "--secure", "mask", "--apart")
    assert code == 0, err
    assert suite_of(load_run(tmp_path / "run").ledger) == "mask"
    assert fuaudit("train", tmp_path / "c.toml", "--out", tmp_path / "no", "--apart")[0] == 2
