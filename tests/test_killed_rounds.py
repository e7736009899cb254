"""Six rounds by `bfv+mask`, killed at each point of the protocol, and finished: one digest, no buffer opened twice.

What a kill leaves is what lies in the folder at that instant, so a point is a copy of the folder made there. One run is
stopped at all points besides, one after another.
"""

import shutil
from collections import Counter
from itertools import pairwise

import pytest
from test_secured_runs import FEDREP, trained
from tests_support import AUDIT_KEY

from fuaudit.audits.transcript.audit import Transcript
from fuaudit.draws import Keyed
from fuaudit.runs.layout import CHAIN, LEDGER
from fuaudit.runs.ledger import ledger_of
from fuaudit.runs.transcripts import chain_of
from fuaudit.secure.suites import Suite
from fuaudit.secure.transcript import read_chain
from fuaudit.testing.tiny import tiny_dataset
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence, Known
from fuaudit.workflow import transcripts
from fuaudit.workflow.resume import resume
from fuaudit.workflow.transcripts import Keeper
from fuaudit.workflow.writer import RunWriter

ROUNDS, SUITE = 6, "bfv+mask"
TABLES = FEDREP | {"learner": FEDREP["learner"] | {"rounds": ROUNDS}}
EVERY = [(number, buffer) for number in range(1, ROUNDS + 1) for buffer in (0, 1)]

POINTS = {
    "in the middle of the contributions to the lot": ("behind", "lot", 1, -1, 2),
    "after the lot": ("behind", "lot", 1, -1, 4),
    "after the key holder's keys": ("behind", "context", 2, 0, 1),
    "after the clients' keys": ("behind", "announce", 2, 1, 2),
    "in the middle of writing a ciphertext": ("torn", "send", 3, 0, 1),
    "in the middle of the ciphertexts": ("behind", "send", 3, 1, 1),
    "after the sum": ("behind", "total", 4, 0, 1),
    "after the witness": ("behind", "witness", 4, 1, 1),
    "opened, and nobody was told": ("before", "receipt", 5, 0, 1),
    "opened, in the middle of telling": ("torn", "receipt", 5, 1, 1),
    "told, and the ledger was not": ("behind", "receipt", 5, 1, 1),
    "after the line of the ledger": ("ledger", "round", 5, -1, 1),
    "after the checkpoint": ("checkpoint", "", 5, -1, 1),
    "sealed, and no manifest": ("ledger", "sealed", 0, -1, 1),
}
"""A word for the place, the step, round, buffer, and the how manieth message of them."""


@pytest.fixture
def at(monkeypatch):
    """Calls what is handed to it at every point that a run comes to, with its folder."""
    acts, counts, writing = [], Counter(), []

    def here(folder, *where):
        counts[folder, where] += 1
        for act in acts:
            act(folder, (*where, counts[folder, where]))

    record, keep, noted, stored = Keeper.record, transcripts.append_bytes, RunWriter.record, RunWriter.checkpoint

    def recording(self, message):
        where = (message.step, message.round, message.buffer)
        here(self._folder, "before", *where)
        writing[:] = [where]
        record(self, message)
        here(self._folder, "behind", *where)

    def keeping(path, content, durable=True):
        if content and path.suffix == ".bodies" and any(point[0] == "torn" for point in POINTS.values()):
            keep(path, content[: len(content) // 2], durable)
            here(path.parents[1], "torn", *writing[0])
            content = content[len(content) // 2 :]
        return keep(path, content, durable)

    def noting(self, event, **facts):
        noted(self, event, **facts)
        here(self.path, "ledger", event, facts.get("round", 0), -1)

    def storing(self, round_number, vector, state):
        stored(self, round_number, vector, state)
        here(self.path, "checkpoint", "", round_number, -1)

    monkeypatch.setattr(Keeper, "record", recording)
    monkeypatch.setattr(transcripts, "append_bytes", keeping)
    monkeypatch.setattr(RunWriter, "record", noting)
    monkeypatch.setattr(RunWriter, "checkpoint", storing)
    return acts


@pytest.fixture
def asked(monkeypatch):
    """What suites are asked for: round and buffer -> the rows, each time."""
    found, work = {}, Suite.opened

    def noting(self, rows, bits, clients=None, **others):
        found.setdefault(others["at"], []).append(rows.tobytes())
        return work(self, rows, bits, clients, **others)

    monkeypatch.setattr(Suite, "opened", noting)
    return found


def ended(folder):
    """The lines of what was told in a folder before a kill."""
    content = (folder / CHAIN).read_bytes()
    return read_chain(content[: content.rfind(b"\n") + 1], folder).ended().entries


def held(folder):
    """Heads of the lines of rounds whose models are stored, as somebody outside can have kept them."""
    ledger = ledger_of((folder / LEDGER).read_bytes().split(b"\n")[:-1], folder)
    heads = [event["previous"] for event in ledger.events[1:]] + [ledger.head]
    stored = {int(path.stem) for path in (folder / "checkpoints").glob("*.safetensors")}
    return [head for head, event in zip(heads, ledger.events, strict=True) if event.get("round") in stored]


def require_once(run, before, digest):
    """A finished run has the digest, what was told stays as it was told, and every buffer was told once."""
    assert run.digest == digest
    entries = chain_of(run.path).entries
    assert entries[: len(before)] == before
    for step in ("total", "witness", "receipt"):
        assert [(one.round, one.buffer) for one in entries if one.step == step] == EVERY


def examined(run, head):
    return Transcript().examine(
        Case(Evidence(run, None, tiny_dataset(), Known(ledger_head=head)), Keyed(AUDIT_KEY))
    )


def test_a_run_that_is_killed_at_any_point_is_finished_with_one_digest(tmp_path, at, asked):
    """Killed once, at each point; whatever is asked of a suite again is asked for the rows of before."""

    def copy(folder, where):
        for name, point in POINTS.items():
            if point == where and folder.name == "whole":
                shutil.copytree(folder, tmp_path / name)

    at.append(copy)
    whole = trained(tmp_path / "whole", TABLES, SUITE)
    at.clear()
    assert {path.name for path in tmp_path.iterdir()} == {*POINTS, "whole"}
    require_once(whole, (), whole.digest)
    first = {key: rows[0] for key, rows in asked.items()}
    for name in POINTS:
        folder = tmp_path / name
        before, kept = ended(folder), held(folder)
        run = resume(folder, tiny_dataset())
        require_once(run, before, whole.digest)
        assert all(run.ledger.line_with(head) for head in kept), name
        found = examined(run, kept[-1] if kept else run.ledger.head)
        assert found.verdict == "PASS", (name, found.details)
    assert {key: {*rows} for key, rows in asked.items()} == {key: {rows} for key, rows in first.items()}


def test_a_run_that_is_killed_at_all_points_one_after_another_is_finished_with_one_digest(tmp_path, at):
    folder, left, befores = tmp_path / "run", dict(POINTS), []

    def kill(_, where):
        for name, point in left.items():
            if point[:-1] == where[:-1]:  # of a round that is played again, the first
                del left[name]
                raise KeyboardInterrupt

    at.append(kill)
    with pytest.raises(KeyboardInterrupt):
        trained(folder, TABLES, SUITE)
    befores.append(ended(folder))
    while left:
        with pytest.raises(KeyboardInterrupt):
            resume(folder, tiny_dataset())
        befores.append(ended(folder))
    at.clear()
    assert len(befores) == len(POINTS)
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(befores))
    run = resume(folder, tiny_dataset())
    require_once(run, befores[-1], trained(tmp_path / "whole", TABLES, SUITE).digest)
    found = examined(run, run.ledger.head)
    assert found.verdict == "PASS", found.details
