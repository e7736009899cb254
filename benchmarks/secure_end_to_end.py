"""FedREP by secure sums from end to end, on Fashion-MNIST: ``python benchmarks/secure_end_to_end.py --data D --out O``.

``--report docs/results/secure-end-to-end.md`` writes the page. The command can be killed and given again: it goes on
with the run that broke off, and with what was not done. ``--rounds 2`` tries it; give it a folder of its own.

32 clients, the CNN of benchmarks/fedrep.py with its batches, local steps and rule, and the client stages and the
transport of examples/fedrep-secure.toml; the number of coordinates that a client proposes is such that all together
send at most 5 % of the model. Four parts, one after the other:

1. How large the transcript will be is computed, from what each message may hold at most.
2. The training is made by `bfv+mask`, with parties that are processes (``--apart``).
3. The same training is made by `plain`, and without a suite. Digests of runs and models must be the same.
4. The run is verified by the spec `secure-aggregation`, with the commitment, the head of its ledger and the list of its
   parties as they were kept when it ended.

Seconds of a party are processor time of its process, with that of the one that adds for it. Training takes what this
process takes: the clients' local steps, rounding, the server's rule, measuring. Bytes are those of the transcript, what
each party sent; what the key holder hands to single clients is not recorded, and is counted by its size. Of a session
that was killed the seconds since its last round are lost.
"""

from __future__ import annotations

import argparse
import json
import time
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedrep import BATCH, CLIENTS, RULES, key
from machine import hardware
from secure import clock_of

from fuaudit.formats.files import write_bytes
from fuaudit.runs.encoding import digest_of_vector
from fuaudit.runs.layout import TRANSCRIPT_FOLDER
from fuaudit.runs.roster import lines_of
from fuaudit.runs.run import Run, load_run
from fuaudit.runs.transcripts import chain_of
from fuaudit.secure.envelope import FRONT_BYTES
from fuaudit.secure.messages import named
from fuaudit.secure.sizes import ENTRY_BYTES, lot_bytes, recorded, sent
from fuaudit.secure.terms import LIBRARY
from fuaudit.verification.verify import verify
from fuaudit.workflow.resume import resume
from fuaudit.workflow.train import train

ROOT = Path(__file__).parents[1]
SUITE, STEPS, SHARE, DIMENSION = "bfv+mask", 5, 0.05, 21_840
PER_CLIENT = round(SHARE * DIMENSION / CLIENTS)
PARTIES = ("clients-0", "clients-1", "server", "witness", "holder")
RUNS = {SUITE: (SUITE, True), "plain": ("plain", False), "none": (None, False)}
"""Name of a run -> its suite, and whether its parties are processes."""


def config(rounds: int) -> dict[str, Any]:
    """The tables: those of the example where the sums are made, those of the studies where it is trained."""
    example = tomllib.loads((ROOT / "examples" / "fedrep-secure.toml").read_text())
    agreed = [one | ({"per_client": PER_CLIENT} if one["use"] == "consensus" else {}) for one in example["client"]]
    return {
        "scaling": "none",
        "data": {"use": "fashion-mnist"},
        "partition": {"use": "iid", "clients": CLIENTS},
        "model": {"use": "cnn"},
        "learner": {
            **{"use": "fedrep", "rounds": rounds, "cohort": CLIENTS, "steps": STEPS, "batch": BATCH},
            "step_size": 0.1,
        },
        "solver": {"use": "local-momentum", "momentum": 0.9},
        "client": agreed,
        "transport": example["transport"],
        "server": [RULES["geomed"]],
        "run": {"checkpoint_every": 1, "engine": "threads"},
    }


def estimated(tables: Mapping[str, Any]) -> int:
    """Bytes of the transcript at most: every coordinate is another one, and nothing in a message is compressed."""
    size, bits = tables["transport"]["size"], tables["client"][-1]["bits"]
    one = recorded(SUITE, size, PER_CLIENT * CLIENTS, bits, 2 * size - 1)
    rounds: int = tables["learner"]["rounds"]
    columns = FRONT_BYTES + ENTRY_BYTES + 4 * PER_CLIENT * CLIENTS
    most: int = rounds * (CLIENTS // size * one + lot_bytes(CLIENTS) + columns)
    return most


class Notes:
    """What was found so far, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def keep(self, name: str, value: object) -> None:
        self.found[name] = value
        write_bytes(self._path, (json.dumps(self.found, indent=1, sort_keys=True) + "\n").encode())


def parties() -> dict[str, float]:
    """Processor seconds of the parties that are processes of this one, and of those that add for them."""
    found = dict[str, float]()
    for pid in children("self"):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        if "fuaudit.secure.roles" in words:
            name = words[words.index("fuaudit.secure.roles") + 1]
            found[name] = clock_of(pid) + sum(map(clock_of, children(str(pid))))
    return found


def children(pid: str) -> list[int]:
    return [int(one) for task in Path(f"/proc/{pid}/task").iterdir() for one in (task / "children").read_text().split()]


def trained(name: str, tables: Mapping[str, Any], given: argparse.Namespace, notes: Notes) -> Run:
    """A run, trained or gone on with; its seconds by session are kept after every round."""
    suite, apart = RUNS[name]
    folder = given.out / name.replace("+", "-")
    if (folder / "manifest.json").exists():
        return load_run(folder)
    before: list[dict[str, float]] = notes.found.get(f"seconds {name}", [])
    begun, own, session = time.perf_counter(), time.process_time(), dict[str, float]()

    def progress(what: str, done: int, total: int) -> None:
        session.update(parties())  # they end before the run does
        session.update({"training": time.process_time() - own, "by the clock": time.perf_counter() - begun})
        if what != "measured" or done == total:  # each writes a file
            notes.keep(f"seconds {name}", [*before, session])
            print(f"{name}: {what} {done} of {total}, {time.perf_counter() - begun:.1f} s", flush=True)

    if (folder / "run.json").exists():
        run = resume(folder, given.data, progress=progress, apart=apart)
    else:
        run = train(dict(tables), folder, given.data, key(1), progress=progress, secure=suite, apart=apart)
    progress("ended", run.rounds_executed, run.rounds_executed)
    notes.keep(f"kept {name}", {"commitment": run.commitment, "head": run.ledger.head, "roster": lines_of(run)})
    return run


def checked(run: Run, given: argparse.Namespace, notes: Notes) -> None:
    """Verify the run against what was kept when its training ended."""
    kept, roster = notes.found[f"kept {SUITE}"], given.out / "roster.txt"
    roster.write_text("\n".join(kept["roster"]) + "\n")
    begun, own = time.perf_counter(), time.process_time()

    def progress(what: str, done: int, total: int) -> None:
        if what != "measured" or done == total:
            print(f"verify: {what} {done} of {total}", flush=True)

    result = verify(
        run, "secure-aggregation", bytes(32), data=given.data, progress=progress, roster=roster,
        commitment=kept["commitment"], ledger_head=kept["head"],
    )  # fmt: skip
    verdicts = {found.audit: str(found.verdict) for found in result.findings}
    transcript = next(found for found in result.findings if found.audit == "transcript")
    notes.keep(
        "verified",
        {
            "verdict": str(result.verdict),
            "verdicts": verdicts,
            "shows": transcript.shows,
            "assumptions": list(transcript.assumptions),
            "figures": {figure.key: figure.value for figure in transcript.figures},
            "seconds": time.perf_counter() - begun,
            "processor": time.process_time() - own,
        },
    )


def sizes(run: Run) -> dict[str, Any]:
    """Bytes on disk, and by who sent them; envelopes with their heads."""
    by = Counter[str]()
    steps = Counter[str]()
    for entry in chain_of(run.path).entries:
        by["clients" if entry.sender >= 0 else named(entry.sender).removeprefix("the ")] += entry.size
        steps[entry.step] += entry.size
    disk = sum(path.stat().st_size for path in (run.path / TRANSCRIPT_FOLDER).iterdir())
    columns = [
        event["size"] // 4
        for line in run.ledger.of_kind("round")
        for event in line["told"]
        if event["kind"] == "answered" and event["what"] == "values"
    ]
    assert run.config.transport is not None
    bits, size = run.config.client[-1]["bits"], run.config.transport["size"]
    handout = next(one.size for one in sent(SUITE, size, max(columns), bits, 2 * size - 1) if one.to == "each client")
    return {
        "disk": disk,
        "messages": len(chain_of(run.path).entries),
        "by": dict(by),
        "steps": dict(steps),
        "columns": [min(columns), max(columns)],
        "handouts": handout * CLIENTS * run.rounds_executed,
    }


def seconds(notes: Notes, name: str) -> Counter[str]:
    """Over all sessions."""
    total = Counter[str]()
    for session in notes.found.get(f"seconds {name}", []):
        total.update(session)
    return total


def page(notes: Notes, runs: Mapping[str, Run], rounds: int) -> str:
    """docs/results/secure-end-to-end.md."""
    here, size, made, verified = hardware(), notes.found["sizes"], seconds(notes, SUITE), notes.found["verified"]
    each = {
        "clients, 32 in two processes": (made["clients-0"] + made["clients-1"], size["by"]["clients"]),
        "server": (made["server"], size["by"]["server"]),
        "witness": (made["witness"], size["by"]["witness"]),
        "key holder": (made["holder"], size["by"]["key holder"] + size["handouts"]),
    }
    sessions = len(notes.found[f"seconds {SUITE}"])
    same = len({run.digest for run in runs.values()}) == 1
    models = {digest_of_vector(run.model) for run in runs.values()}
    last = runs[SUITE].metrics[-1]
    lines = [
        "# Secure sums from end to end",
        "",
        f"    python benchmarks/secure_end_to_end.py --data DATA --out DIR --rounds {rounds} "
        "--report docs/results/secure-end-to-end.md",
        "",
        f"fuaudit {here['fuaudit']}, tenseal {LIBRARY}, torch {here['torch']}, numpy {here['numpy']}, python "
        f"{here['python']}, {here['processor']}, {here['cores']} cores, shared with other work. FedREP, Fashion-MNIST: "
        f"{CLIENTS} clients with {STEPS} local steps of {BATCH} rows, a CNN of {DIMENSION:,} parameters, {PER_CLIENT} "
        f"coordinates a client, {size['columns'][0]} to {size['columns'][1]} together, buffers of two, {rounds} rounds "
        f"by `{SUITE}` with parties that are processes, in {sessions} session{'s' * (sessions > 1)}.",
        "",
        "| what | found |",
        "| --- | --- |",
        f"| verdict of `verify --spec secure-aggregation`, with commitment, ledger head and roster | "
        f"{verified['verdict']} |",
        f"| its audits | {', '.join(f'{audit} {verdict}' for audit, verdict in verified['verdicts'].items())} |",
        f"| one digest of the run by `{SUITE}`, by `plain` and without a suite | {'yes' if same else 'NO'}, "
        f"`{runs[SUITE].digest[:16]}` |",
        f"| one model | {'yes' if len(models) == 1 else 'NO'}, `{sorted(models)[0][:16]}`, accuracy "
        f"{last['test_accuracy']:.4f} after round {last['round']} |",
        f"| sums that were opened | {verified['figures']['sums']}, of {verified['figures']['messages']:,} messages |",
        f"| transcript, estimated at most before | {notes.found['estimated'] / 1e6:.1f} MB |",
        f"| transcript, measured | {size['disk'] / 1e6:.1f} MB, {size['disk'] / notes.found['estimated']:.0%} of it |",
        f"| transcript of `plain` | {notes.found['plain disk'] / 1e6:.1f} MB |",
        "",
        f"`transcript` says: {verified['shows']}",
        "",
        "| party | processor seconds | seconds a round | bytes sent | bytes a round |",
        "| --- | --- | --- | --- | --- |",
        *(
            f"| {party} | {took:.1f} | {took / rounds:.2f} | {many:,} | {many // rounds:,} |"
            for party, (took, many) in each.items()
        ),
        f"| training: all clients' steps, the server's rule, measuring | {made['training']:.0f} | "
        f"{made['training'] / rounds:.2f} | - | - |",
        "",
        f"A client sent {size['by']['clients'] // CLIENTS // rounds:,} bytes a round; its row in float32 has at most "
        f"{4 * size['columns'][1]:,}, and the whole model {4 * DIMENSION:,}. By the clock the training took "
        f"{made['by the clock'] / rounds:.1f} s a round, by `plain` "
        f"{seconds(notes, 'plain')['by the clock'] / rounds:.1f} s (its parties are objects), without a suite "
        f"{seconds(notes, 'none')['by the clock'] / rounds:.1f} s. Clocks of the three are not to be compared: the "
        "machine was shared, they ran at other times, and where a clock says more than the processor seconds above, a "
        f"process waited for a core. Verifying took {verified['seconds']:.0f} s, "
        f"{verified['processor']:.0f} s of the processor in the process itself.",
        "",
        "Bytes are those of whole envelopes, as the transcript has them, and for the key holder what it hands to "
        "single clients besides, which no transcript has: at most "
        f"{size['handouts']:,} bytes. By step: "
        + ", ".join(
            f"{step} {many / 1e6:.1f} MB" for step, many in sorted(size["steps"].items(), key=lambda one: -one[1])
        )
        + ".",
        "",
        "A PASS of `transcript` takes on trust here: " + " ".join(verified["assumptions"]),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, required=True, metavar="DIR", help="the folder that holds FashionMNIST/raw"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="runs and notes are kept there")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--report", type=Path, metavar="FILE")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    notes, tables = Notes(given.out / "notes.json"), config(given.rounds)
    if notes.found.setdefault("rounds", given.rounds) != given.rounds:
        parser.error(f"{given.out} has runs of {notes.found['rounds']} rounds")
    notes.keep("rounds", given.rounds)
    notes.keep("estimated", estimated(tables))
    print(f"the transcript takes at most {notes.found['estimated'] / 1e6:.1f} MB", flush=True)
    runs = {name: trained(name, tables, given, notes) for name in RUNS}
    notes.keep("sizes", sizes(runs[SUITE]))
    notes.keep("plain disk", sizes(runs["plain"])["disk"])
    if "verified" not in notes.found:
        checked(runs[SUITE], given, notes)
    text = page(notes, runs, given.rounds)
    print(text)
    if given.report:
        write_bytes(given.report, text.encode())
    if len({run.digest for run in runs.values()}) > 1 or notes.found["verified"]["verdict"] != "PASS":
        raise SystemExit("the runs differ, or the verdict is no PASS")


if __name__ == "__main__":
    main()
