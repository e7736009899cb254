"""A resume that is killed itself, at any of its steps and as often as one likes, opens no buffer over other values.

What a kill leaves is what lies in the folder at that instant. So the folder is copied in front of every step of a
resume that is to last, and a resume goes on from each copy, until no copy is new.
"""

import os
import shutil
from functools import partial
from pathlib import Path

import pytest
from test_killed_rounds import asked_for, watched
from test_secured_runs import FEDREP, NOISY, trained

from fuaudit import unlearn
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.plans import Request
from fuaudit.runs.layout import BEGUN, CHAIN, LEDGER, rounds_in
from fuaudit.runs.ledger import ledger_of
from fuaudit.runs.platforms import versions
from fuaudit.secure.transcript import ENDS, read_chain
from fuaudit.testing.tiny import tiny_dataset
from fuaudit.workflow.resume import resume
from fuaudit.workflow.transcripts import begun_in

ONE = FEDREP | {"learner": FEDREP["learner"] | {"rounds": 1}}
NOISY_ONE = NOISY | {"learner": NOISY["learner"] | {"rounds": 1}}


def elsewhere(patch):
    """From now on this is another platform."""
    patch.setattr("fuaudit.runs.platforms.versions", lambda device="cpu": versions(device) | {"numpy": "9"})


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def ledger_left(folder):
    return ledger_of((folder / LEDGER).read_bytes().split(b"\n")[:-1], folder)


def left(folder):
    """A folder as far as a resume tells states apart; contents hang on keys, which are made anew.

    Of the messages those that begin a buffer or end one; of what lies between, test_killed_rounds.py asks.
    """
    content = (folder / CHAIN).read_bytes()
    chain = read_chain(content[: content.rfind(b"\n") + 1], folder)
    marks = [(one.round, one.buffer, one.step) for one in chain.entries if one.step in (*ENDS, "terms")]
    found = files(folder)
    return repr((sorted(map(str, found)), ledger_left(folder).kinds, marks, len(found.get(Path(BEGUN), b""))))


def killed_at_each_step(patch, folder, act):
    """Calls ``act`` in front of each step of whatever writes to a folder that is to last."""
    for name in ("replace", "unlink", "write"):
        patch.setattr(os, name, partial(_stepping, getattr(os, name), folder, act))


def _stepping(work, folder, act, first, *others, **more):
    path = os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else first
    if str(path).startswith(str(folder)):
        act()
    return work(first, *others, **more)


def closure(tmp_path, first, go_on):
    """All that kills of resumes leave of a folder, however many there are; ``go_on`` resumes a copy of each."""
    found, new = {left(first): first}, [first]
    while new:
        folder = shutil.copytree(new.pop(), tmp_path / "at work")

        def keep(folder=folder):
            if (state := left(folder)) not in found:
                assert len(found) < 100, "kills lead on and on"
                found[state] = shutil.copytree(folder, tmp_path / f"left {len(found)}")
                new.append(found[state])

        go_on(folder, keep)
        shutil.rmtree(folder)
    return [*found.values()]


def begun(tmp_path, point, act):
    """A folder as it is when something comes to a point, what that made, and what was asked of the suite for it."""

    def copy(folder, where):
        if where[:-1] == point and not (tmp_path / "begun").exists():
            shutil.copytree(folder, tmp_path / "begun")

    with pytest.MonkeyPatch.context() as patch:
        asked = asked_for(patch)
        watched(patch, copy)
        run = act()
    return tmp_path / "begun", run, asked


def refused_elsewhere(folder, go_on, error=UsageError, match="may compute other rows"):
    """On another platform nothing goes on, and nothing is taken from the folder."""
    before = files(folder)
    with pytest.MonkeyPatch.context() as patch:
        elsewhere(patch)
        with pytest.raises(error, match=match):
            go_on(folder)
    assert files(folder) == before


def require_kept(folder, first, asked, whole, go_on, keep):
    """What is begun is known, another platform is refused and writes nothing, and the rows are those of before."""
    refused_elsewhere(folder, go_on)
    if max(rounds_in(map(str, files(folder)))) == 0:
        known = begun_in(folder, 0)
        assert {at: known[at].members for at in first} == {at: terms.members for at, terms in first.items()}
    with pytest.MonkeyPatch.context() as patch:
        again = asked_for(patch)
        killed_at_each_step(patch, folder, keep)
        assert go_on(folder).digest == whole.digest
    assert all(set(rows) <= set(asked[at]) for at, rows in again.items())
    assert not (folder / BEGUN).exists()


def require_all_kept(tmp_path, point, act, go_on):
    folder, whole, asked = begun(tmp_path, point, act)
    first = begun_in(folder, 0)
    assert point[2:] in first
    states = closure(tmp_path, folder, lambda one, keep: require_kept(one, first, asked, whole, go_on, keep))
    assert any((state / BEGUN).exists() for state in states), "no kill leaves terms beside the chain"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("suite", "point"),
    [("plain", ("behind", "send", 1, 0)), ("mask", ("behind", "unmask", 1, 1))],
    ids=["sent", "told"],
)
def test_however_often_a_resume_is_killed_no_buffer_is_opened_over_other_values(tmp_path, suite, point):
    """Of a run that was killed when somebody could have opened a buffer, and nobody was told."""
    go_on = partial(resume, data=tiny_dataset())
    require_all_kept(tmp_path, point, lambda: trained(tmp_path / "run", ONE, suite), go_on)


@pytest.mark.thorough
def test_a_child_is_no_other(tmp_path):
    parent = trained(tmp_path / "parent", NOISY_ONE, "plain")
    make = partial(unlearn, parent, "retrain", Request.of([0]), tmp_path / "run", data=tiny_dataset())
    go_on = partial(resume, data=tiny_dataset(), parent=parent.path)
    require_all_kept(tmp_path, ("behind", "send", 1, 0), make, go_on)


def test_a_ledger_that_tells_no_platform_of_what_was_begun_goes_on_nowhere(tmp_path):
    """As versions of before left it, which cut that line when a resume was killed."""
    folder, _, _ = begun(tmp_path, ("behind", "send", 1, 0), lambda: trained(tmp_path / "run", ONE, "plain"))
    lines = (folder / LEDGER).read_bytes().splitlines(keepends=True)
    assert ledger_left(folder).kinds[-1] == "platform"
    (folder / LEDGER).write_bytes(b"".join(lines[:-1]))
    refused_elsewhere(folder, partial(resume, data=tiny_dataset()), EvidenceError, "does not tell on which platform")


def test_what_lies_beside_the_chain_is_terms_or_refused(tmp_path):
    folder, _, _ = begun(tmp_path, ("behind", "send", 1, 0), lambda: trained(tmp_path / "run", ONE, "plain"))
    (folder / BEGUN).write_bytes(b'[{"round":1}]')
    with pytest.raises(EvidenceError, match="holds no terms of buffers"):
        resume(folder, tiny_dataset())
