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
from fuaudit.secure.transcript import Chain, read_chain
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
"""Where it is, of which step, round and buffer, and the how manieth time that a run comes there."""


def watched(patch, act):
    """Calls ``act`` with the folder and the point wherever a run that grows comes to one."""
    counts, writing = Counter(), []
    record, keep, noted, stored = Keeper.record, transcripts.append_bytes, RunWriter.record, RunWriter.checkpoint

    def here(folder, *where):
        counts[folder, where] += 1
        act(folder, (*where, counts[folder, where]))

    def recording(self, message):
        where = (message.step, message.round, message.buffer)
        here(self._folder, "before", *where)
        writing[:] = [where]
        record(self, message)
        here(self._folder, "behind", *where)

    def keeping(path, content, durable=True):
        if content and path.suffix == ".bodies":
            half = len(content) // 2
            keep(path, content[:half], durable)
            here(path.parents[1], "torn", *writing[0])
            content = content[half:]
        keep(path, content, durable)

    def noting(self, event, **facts):
        noted(self, event, **facts)
        here(self.path, "ledger", event, facts.get("round", 0), -1)

    def storing(self, round_number, vector, state):
        stored(self, round_number, vector, state)
        here(self.path, "checkpoint", "", round_number, -1)

    patch.setattr(Keeper, "record", recording)
    patch.setattr(transcripts, "append_bytes", keeping)
    patch.setattr(RunWriter, "record", noting)
    patch.setattr(RunWriter, "checkpoint", storing)


def asked_for(patch):
    """What suites are asked for from now on: round and buffer -> the rows, each time."""
    found, work = {}, Suite.opened

    def noting(self, rows, bits, clients=None, **others):
        found.setdefault(others["at"], []).append(rows.tobytes())
        return work(self, rows, bits, clients, **others)

    patch.setattr(Suite, "opened", noting)
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nobody killed, the folders as a kill at each point would have left them, and what was asked for."""
    home = tmp_path_factory.mktemp("killed")

    def copy(folder, where):
        for name in [name for name, point in POINTS.items() if point == where]:
            shutil.copytree(folder, home / "left" / name)

    with pytest.MonkeyPatch.context() as patch:
        asked = asked_for(patch)
        watched(patch, copy)
        run = trained(home / "run", TABLES, SUITE)
    assert {path.name for path in (home / "left").iterdir()} == {*POINTS}
    assert [*asked] == EVERY
    return run, home / "left", asked


def ended(folder):
    """The lines of what was told in a folder before a kill."""
    content = (folder / CHAIN).read_bytes()
    entries = read_chain(content[: content.rfind(b"\n") + 1], folder).entries
    ends = [place for place, entry in enumerate(entries, 1) if entry.step == "receipt"]
    return entries[: max(ends, default=0)]


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
    assert entries[: len(before)] == before, "what was told is told otherwise"
    for step in ("total", "witness", "receipt"):
        assert [(one.round, one.buffer) for one in entries if one.step == step] == EVERY


def passes(run, head):
    found = Transcript().examine(Case(Evidence(run, None, tiny_dataset(), Known(ledger_head=head)), Keyed(AUDIT_KEY)))
    return found.verdict == "PASS"


@pytest.mark.parametrize("point", POINTS)
def test_a_run_that_is_killed_at_a_point_is_finished_with_the_same_digest(whole, tmp_path, monkeypatch, point):
    """Whatever is asked of a suite again is asked for the rows of before; a head that was kept before still holds."""
    run, left, first = whole
    folder = shutil.copytree(left / point, tmp_path / "run")
    before, kept, asked = ended(folder), held(folder), asked_for(monkeypatch)
    finished = resume(folder, tiny_dataset())
    require_once(finished, before, run.digest)
    assert all(rows == first[at] for at, rows in asked.items())
    assert asked.keys() >= {*EVERY} - {(one.round, one.buffer) for one in before}
    assert all(finished.ledger.line_with(head) for head in kept)
    assert passes(finished, kept[-1] if kept else finished.ledger.head)


def test_a_resume_that_forgot_what_was_opened_would_be_seen(whole, tmp_path, monkeypatch):
    """It opens the buffers of the round again, under new keys."""
    folder = shutil.copytree(whole[1] / "told, and the ledger was not", tmp_path / "run")
    before = ended(folder)
    assert (before[-1].round, before[-1].buffer) == (5, 1)
    monkeypatch.setattr(Chain, "ended", lambda self: Chain())
    finished = resume(folder, tiny_dataset())
    with pytest.raises(AssertionError, match="what was told is told otherwise"):
        require_once(finished, before, whole[0].digest)


@pytest.mark.thorough
def test_a_run_that_is_killed_at_all_points_one_after_another_is_finished_with_the_same_digest(
    whole, tmp_path, monkeypatch
):
    folder, left, befores = tmp_path / "run", dict(POINTS), []

    def kill(_, where):
        for name in [name for name, point in left.items() if point[:-1] == where[:-1]]:
            del left[name]
            raise KeyboardInterrupt

    watched(monkeypatch, kill)
    with pytest.raises(KeyboardInterrupt):
        trained(folder, TABLES, SUITE)
    befores.append(ended(folder))
    while left:
        with pytest.raises(KeyboardInterrupt):
            resume(folder, tiny_dataset())
        befores.append(ended(folder))
    assert len(befores) == len(POINTS)
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(befores))
    finished = resume(folder, tiny_dataset())
    require_once(finished, befores[-1], whole[0].digest)
    assert passes(finished, finished.ledger.head)
