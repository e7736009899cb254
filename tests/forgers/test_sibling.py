"""A forger keeps what was erased in a sibling, and prunes both: no seed is left there that gives an old draw back.

The sibling carries out somebody else's request, honestly, from the same parent. It was drawn anew with the client, or
the sample, that the audited run has forgotten. A prune leaves it the seeds of its own request alone. The audited run
holds the same ones: two requests draw different numbers from one seed.
"""

import json
import shutil

import pytest
from tests_support import AUDIT_KEY, config, left_alone, of_the_run, secret

from fuaudit import load_run, train, unlearn, verify
from fuaudit.errors import UsageError
from fuaudit.formats.forms import pretty_json
from fuaudit.plans import Request
from fuaudit.runs.drawn import first_drawn
from fuaudit.testing.tiny import tiny_config, tiny_dataset
from fuaudit.workflow.prune import prune


@pytest.fixture
def parent(tmp_path):
    return train(config(), tmp_path / "run", secret=secret(3))


@pytest.fixture
def last(parent):
    """The last of all samples."""
    return max(parent.plan.retained.owner)


def other_copies(run, quick):
    result = verify(run, quick, key=AUDIT_KEY, save=False, commitment=run.commitment)
    assert result.verdict == "PASS", result.reason
    lineage = next(finding for finding in result.findings if finding.audit == "lineage")
    count = next(figure.value for figure in lineage.figures if figure.key == "other_copies")
    named = {copy.place: copy.why for copy in lineage.copies if copy.holds}
    assert count == len(named)
    return named


def sibling_of(parent, kind, last):
    """A run of the same training that has forgotten others: two clients, one after the other, or the last sample."""
    if kind == "sample":
        return unlearn(parent, "retrain", Request.of(samples=[last]), parent.path.parent / "sibling")
    first = unlearn(parent, "retrain", Request.of([8]), parent.path.parent / "first")
    return unlearn(first, "retrain", Request.of([9]), parent.path.parent / "sibling")


def both_drew(parent, sibling, kind):
    """A request for what the parent and the sibling have drawn."""
    if kind == "client":
        return Request.of([min(parent.plan.index.clients.keys() & sibling.plan.index.clients)])
    return Request.of(samples=[min(parent.plan.index.samples.keys() & sibling.plan.index.samples)])


def beside(sibling, child, quick):
    """The other places of a run beside a sibling, after a prune of both."""
    prune(sibling, allow_orphans=True)
    return other_copies(prune(child, allow_orphans=True)[0], quick)


@pytest.mark.parametrize("kind", ["client", "sample"])
def test_a_sibling_that_was_trained_with_it(kind, parent, last, quick):
    sibling = sibling_of(parent, kind, last)
    child = unlearn(parent, "retrain", both_drew(parent, sibling, kind), parent.path.parent / "child")
    assert beside(sibling, child, quick) == {
        "sibling/model.safetensors": "of another run of the same training, trained with the erased data"
    }


def test_a_sibling_that_cannot_be_opened(parent, last, quick):
    sibling = sibling_of(parent, "sample", last)
    child = unlearn(parent, "retrain", both_drew(parent, sibling, "sample"), parent.path.parent / "child")
    prune(sibling, allow_orphans=True)
    (sibling.path / "metrics.json").unlink()
    assert other_copies(prune(child, allow_orphans=True)[0], quick) == {
        "sibling/model.safetensors": "cannot be opened as a run; its models may hold the contribution"
    }


def test_a_sibling_that_has_forgotten_it_too(parent, last, quick):
    """Another honest child of the same request holds nothing of it."""
    sibling = sibling_of(parent, "sample", last)
    child = unlearn(parent, "fats", Request.of(samples=[last]), parent.path.parent / "child")
    assert "sibling/model.safetensors" not in beside(sibling, child, quick)


def test_a_sibling_that_never_drew_it(parent, last, quick):
    """It stays in the population of the sibling, whose models hold nothing of it."""
    sibling = sibling_of(parent, "sample", last)
    nobodys = min(sibling.plan.retained.owner.keys() - sibling.plan.index.samples.keys())
    child = unlearn(parent, "retrain", Request.of(samples=[nobodys]), parent.path.parent / "child")
    assert beside(sibling, child, quick) == {}


def test_an_ancestor_that_was_asked_and_did_not_forget(parent, quick):
    """An inexact method left its model as it was: what it says that it was asked for shows nothing."""
    first, second = sorted(parent.plan.index.clients, key=parent.plan.index.clients.get)[:2]
    left = unlearn(parent, "noop", Request.of([first]), parent.path.parent / "left", allow_inexact=True)
    found = other_copies(unlearn(left, "retrain", Request.of([second]), parent.path.parent / "last"), quick)
    assert "trained with the erased data" in found["left/model.safetensors"]
    assert any(name.startswith("left/checkpoints/") for name in found)


def test_a_prune_asks_for_all_requests_of_the_lineage(tmp_path):
    """The last request is forgotten, by a method that keeps rounds; the one before was not."""
    table = config(learner=config()["learner"] | {"rounds": 2})
    parent = train(table, tmp_path / "parent", secret=secret(1))
    drawn = parent.plan.index.samples
    left = unlearn(parent, "noop", Request.of(samples=[min(drawn)]), tmp_path / "left", allow_inexact=True)
    never = min(parent.plan.retained.owner.keys() - drawn.keys())
    last = unlearn(left, "fats", Request.of(samples=[never]), tmp_path / "last", allow_inexact=True)
    with pytest.raises(UsageError, match="still draws what it was asked to forget"):
        prune(last)
    assert parent.path.joinpath("manifest.json").exists()


def test_a_run_is_asked_for_ids_that_it_does_not_have(parent):
    """Of another lineage, it need not know whose they are: what no draw of it can hold was not drawn."""
    unknown, known = max(parent.plan.retained.owner) + 1, min(parent.plan.index.samples)
    assert first_drawn(parent, Request.of(samples=[unknown])) is None
    assert first_drawn(parent, Request.of(samples=[unknown, known])) == parent.plan.index.samples[known]


def test_a_pruned_sibling_that_lost_an_id_is_asked_for_it(tmp_path):
    """Rows that nobody has stand in for the ids of its erased client: it does not know the id that it is asked for."""
    learner = {"use": "fats", "cohort": 2, "steps": 2, "batch": 2, "step_size": 0.2, "rounds": 6}
    table = tiny_config(partition={"use": "dirichlet", "clients": 5}, learner=learner)
    root = train(table, tmp_path / "root", tiny_dataset(), secret(3))
    owned = root.plan.retained.samples
    unused = set(range(24)) - root.plan.retained.owner.keys()
    erased, lost = next((c, max(ids)) for c, ids in owned.items() if max(ids) > min(unused))
    sibling = unlearn(root, "retrain", Request.of([erased]), tmp_path / "sibling", data=tiny_dataset())
    child = unlearn(root, "retrain", Request.of(samples=[lost]), tmp_path / "child", data=tiny_dataset())
    prune(sibling, allow_orphans=True)
    assert lost not in load_run(sibling.path).original.owner
    options = {"commitment": root.commitment, "data": tiny_dataset()}
    result = verify(child, of_the_run(), key=AUDIT_KEY, save=False, budget=0, **options)
    assert result.verdict == "PASS", result.reason


@pytest.mark.parametrize("form", ["upper case", "a row twice", "a surplus row", "a surplus leaf", "renamed"])
def test_a_copy_of_the_parent_whose_keys_were_edited(parent, last, quick, form):
    """Who opens it as a run is refused; a reader who mends one character is not."""
    copy = shutil.copytree(parent.path, parent.path.parent / "copy")
    keys, run = copy / "keys.json", unlearn(parent, "retrain", Request.of(samples=[last]), parent.path.parent / "child")
    table = json.loads(keys.read_text())
    (row,) = rows = table["seeds"]
    table["seeds"] = {
        "upper case": [[x.upper() if isinstance(x, str) else x for x in row]],
        "a row twice": rows * 2,
        "a surplus row": [*rows, ["zz"]],
        "a surplus leaf": [row, [row[1], row[1] + 1, *row[2:]]],
        "renamed": rows,
    }[form]
    if form == "renamed":
        table["Seeds"] = table.pop("seeds")
    keys.unlink()
    keys.write_bytes(pretty_json(table))
    pruned, _ = prune(run, allow_orphans=True)
    assert "copy/keys.json" in other_copies(pruned, quick)
    assert any(copy in folders for folders in left_alone(pruned))
