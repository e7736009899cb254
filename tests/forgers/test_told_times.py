"""After honest training, on the run's own platform, a forger writes the original model into the times of the ledger.

Every executed round had a time, of any second of any year and in any order: 37 free bits each. Rounds tell no time now.
Other events tell a second that a calendar has, between 1970 and 2099, none earlier than the one before, and a child
begins when its parent was sealed, or later.
"""

import shutil
from datetime import UTC, datetime, timedelta

import pytest
from tests_support import AUDIT_KEY, config, drawn_client, secret

from fuaudit import load_run, train, unlearn, verify
from fuaudit.errors import EvidenceError
from fuaudit.formats.files import sha256
from fuaudit.formats.forms import canonical_json
from fuaudit.formats.schema import EARLIEST, LATEST, is_time
from fuaudit.plans import Request
from fuaudit.runs.ledger import read_ledger
from fuaudit.runs.manifest import manifest_bytes
from fuaudit.workflow import append
from fuaudit.workflow.prune import prune
from fuaudit.workflow.resume import resume


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    root = tmp_path_factory.mktemp("times")
    parent = train(config(), root / "parent", secret=secret(7))
    return unlearn(parent, "fats", Request.of([drawn_client(parent)]), root / "child")


@pytest.fixture
def child(honest, tmp_path):
    """A copy, free to be edited, beside its parent."""
    shutil.copytree(honest.path.parent, tmp_path / "copy")
    return load_run(tmp_path / "copy" / "child")


def telling(run, changed):
    """The run with other events, of which ``changed`` makes each of those that are there; sealed again."""
    head, written = "0" * 64, b""
    for event in read_ledger(run.path).events:
        line = canonical_json(changed(event) | {"previous": head})
        head, written = sha256(line), written + line + b"\n"
    (run.path / "ledger.jsonl").write_bytes(written)
    (run.path / "manifest.json").write_bytes(manifest_bytes(run.digest, run.files, head))
    return run.path


def second(number):
    """A second after the beginning of all years, as the format wrote it."""
    return (datetime(1, 1, 1, tzinfo=UTC) + timedelta(seconds=number)).isoformat().replace("+00:00", "Z")


def test_rounds_have_no_time_to_hold_a_model(child):
    bits = int.from_bytes(load_run(child.path.with_name("parent")).model.numpy().tobytes(), "little")

    def hidden(event):
        if event["event"] != "round":
            return event
        return event | {"time": second(bits >> 37 * event["round"] & 2**37 - 1)}

    with pytest.raises(EvidenceError, match="no event that a run can have"):
        load_run(telling(child, hidden))


def test_times_never_fall(child):
    def changed(event):
        return event | ({"time": "1990-01-01T00:00:00Z"} if event["event"] == "request" else {})

    with pytest.raises(EvidenceError, match="tells an earlier time than a line before it"):
        load_run(telling(child, changed))


def test_a_child_is_not_older_than_its_parent(child, quick):
    assert verify(child, quick, key=AUDIT_KEY, save=False).verdict == "PASS"
    path = telling(child, lambda event: event | ({"time": EARLIEST} if "time" in event else {}))
    result = verify(path, quick, key=AUDIT_KEY, save=False)
    assert result.verdict == "FAIL"
    assert "child began, by its ledger, before parent was sealed" in result.findings[0].details


@pytest.mark.parametrize(
    "text",
    [
        "2026-02-29T00:00:00Z",
        "2026-19-01T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T23:59:60Z",
        "2026-01-01 00:00:00Z",
        "2026-01-01T00:00:00.5Z",
        "2026-01-01T00:00:00+00:00",
        "2026-W01-1T00:00:00Z",
        "1969-12-31T23:59:59Z",
        "2100-01-01T00:00:00Z",
        "٢026-01-01T00:00:00Z",
        20260101,
    ],
)
def test_what_is_no_time(text):
    assert not is_time(text)


def test_what_is_a_time():
    assert all(map(is_time, (EARLIEST, LATEST, "2024-02-29T12:00:00Z")))


class Clock(datetime):
    """A clock that is set an hour back whenever it is asked."""

    hours = 0

    @classmethod
    def now(cls, tz=None):
        cls.hours += 1
        return datetime(2030, 1, 2, tzinfo=tz) - timedelta(hours=cls.hours)


def test_honest_runs_pass_whatever_the_clock_does(tmp_path, monkeypatch, quick):
    """Set back while a run is trained, at its resume, and between parent and child; and a clock that nobody set."""
    monkeypatch.setattr(append, "datetime", Clock)

    def ended(what, number, rounds):
        if what == "rounds" and number == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config(), tmp_path / "parent", secret=secret(7), progress=ended)
    parent = resume(tmp_path / "parent")
    child = unlearn(parent, "fats", Request.of([drawn_client(parent)]), tmp_path / "child")
    told = {event.get("time") for run in (parent, child) for event in run.ledger.events}
    assert told == {None, "2030-01-01T23:00:00Z"}
    assert Clock.hours > 5
    monkeypatch.setattr(Clock, "hours", 24 * 365 * 60)
    pruned = prune(unlearn(child, "fats", Request.of([next(iter(child.plan.retained.clients))]), tmp_path / "next"))[0]
    assert pruned.ledger.time == "2030-01-01T23:00:00Z"
    assert verify(pruned, quick, key=AUDIT_KEY, save=False).verdict == "PASS"
