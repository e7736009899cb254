"""A forger writes the untouched model where a run may hold words or numbers that nothing was computed from.

He unlearns honestly. The doubts of a run, the words of a tombstone and the salts of erased rows are no models, and bear
on none; each is long enough to hold one.
"""

import json

import pytest
from tests_support import AUDIT_KEY, edit, reseal

from fuaudit import train, unlearn, verify
from fuaudit.errors import EvidenceError
from fuaudit.plans import Request
from fuaudit.workflow.prune import prune


@pytest.fixture
def parent(tiny, tmp_path):
    return tiny(tmp_path / "parent")


@pytest.fixture
def child(parent, tiny, tmp_path):
    return unlearn(parent, "fats", Request.of([1]), tmp_path / "child", data=tiny.dataset)


@pytest.fixture
def judged(tiny, quick):
    """The verdict on a run, and what the audit of plans says of it."""

    def work(run):
        result = verify(run, quick, data=tiny.dataset, key=AUDIT_KEY, save=False, commitment=run.commitment)
        return result.verdict, next(f for f in result.findings if f.audit == "provenance")

    return work


def hidden(parent):
    """The old model in words."""
    text = parent.model.numpy().tobytes().hex()
    return [text[at : at + 700] for at in range(0, len(text), 700)]


def test_doubts_that_nobody_has(parent, child, judged):
    """He writes the old model into the doubts of the child."""
    assert judged(child)[0] == "PASS"
    edit(child.path, "run.json", doubts=hidden(parent))
    verdict, plan = judged(reseal(child.path))
    assert (verdict, plan.shows) == ("FAIL", "child names other doubts than its method, request and parent give.")


@pytest.mark.parametrize("doubts", [["x"] * 65, ["x" * 701]])
def test_doubts_without_end(child, doubts):
    """He writes more doubts than a run may have, or longer ones."""
    edit(child.path, "run.json", doubts=doubts)
    with pytest.raises(EvidenceError, match="doubts"):
        reseal(child.path)


@pytest.mark.parametrize("field", ["doubts", "guarantee"])
def test_words_of_a_tombstone(parent, child, tiny, tmp_path, judged, field):
    """He writes it into a run between, lets fuaudit unlearn from that, and prunes: only its tombstone is left."""
    told = child.info["unlearner"] | {"guarantee": hidden(parent)[0]}
    edit(child.path, "run.json", **({"doubts": hidden(parent)} if field == "doubts" else {"unlearner": told}))
    last = unlearn(reseal(child.path), "retrain", Request.of([2]), tmp_path / "last", data=tiny.dataset)
    last, _ = prune(last)
    verdict, plan = judged(last)
    assert verdict == "FAIL"
    assert "child" in plan.shows


def test_doubts_of_a_method_that_is_not_here(child, tiny, tmp_path, judged):
    """He names a method that nobody has, whose doubts nobody can make again."""
    edit(child.path, "run.json", unlearner=child.info["unlearner"] | {"version": "77"}, doubts=["who knows"])
    last = unlearn(reseal(child.path), "retrain", Request.of([2]), tmp_path / "last", data=tiny.dataset)
    last, _ = prune(last)
    verdict, plan = judged(last)
    assert verdict == "INCONCLUSIVE"
    assert plan.shows.startswith("The doubts of child cannot be made")


def split(run, salts):
    """The tree of salts, a seed a leaf, with other salts in some places."""
    own = run.opening.salts.between(0, run.opening.salts.size)
    rows = [[at, at + 1, "seed", salts.get(at, value.hex())] for at, value in enumerate(own)]
    edit(run.path, "clients.json", salts=rows)


def test_salts_of_erased_rows(child):
    """He splits the tree of salts, and gives the erased rows salts that open nothing."""
    where = child.contents.salts_of(1)
    split(child, {at: "5a" * 32 for at in where[1:]})
    with pytest.raises(EvidenceError, match="shortest form"):
        reseal(child.path)


@pytest.mark.parametrize("name", ["clients.json", "clients/secrets.json"])
def test_digests_of_salts_that_are_gone(name, tiny, tmp_path):
    """He writes the old model over what a prune left in the place of the salts of erased rows."""
    stages = {"client": [{"use": "quantise"}]} if name != "clients.json" else {}
    parent = train(tiny.tables | stages, tmp_path / "parent", data=tiny.dataset)
    old = hidden(parent)[0][:64]
    asked = Request.of(samples=[own[0] for own in parent.plan.retained.samples.values()])
    pruned, _ = prune(unlearn(parent, "retrain", asked, tmp_path / "child", data=tiny.dataset))
    rows = json.loads((pruned.path / name).read_bytes())["salts"]
    gone = [row for row in rows if row[2] == "digest"]
    assert [row[3] for row in gone] == ["0" * 64] * len(asked.samples)
    gone[0][3] = old
    edit(pruned.path, name, salts=rows)
    with pytest.raises(EvidenceError, match="salts that are gone"):
        reseal(pruned.path).opening  # noqa: B018


def with_one_less(tree):
    """The tree without the last salt that it holds, as one more prune would leave it."""
    last = max(at for at in range(tree.size) if tree.holds(at))
    return tree.keeping([range(last)]).bare


def test_other_salts_than_those_that_an_earlier_prune_left(child, tiny, tmp_path, judged):
    """He gives the child of a run that was pruned twice another tree of salts: a test row's is gone."""
    for name, client, count in (("second", 2, 3), ("third", 0, 1)):
        pruned, _ = prune(child)
        asked = Request.of(samples=pruned.plan.retained.samples[client][:count])
        child = unlearn(pruned, "fats", asked, tmp_path / name, data=tiny.dataset)
    assert judged(child)[0] == "PASS"
    edit(child.path, "clients.json", salts=with_one_less(child.opening.salts).as_rows())
    with pytest.raises(EvidenceError, match="names or salts"):
        reseal(child.path)


def test_other_seeds_than_those_that_an_earlier_prune_left(child, tiny, tmp_path, judged):
    """He destroys a seed of requests to come in the child of a pruned run: its form is right, and its parent has it."""
    pruned, _ = prune(child)
    asked = Request.of(samples=pruned.plan.retained.samples[2][:1])
    child = unlearn(pruned, "fats", asked, tmp_path / "second", data=tiny.dataset)
    tree = child.keys.seeds
    edit(child.path, "keys.json", seeds=tree.keeping([range(tree.size - 1)]).as_rows())
    verdict, plan = judged(reseal(child.path))
    assert (verdict, plan.shows) == ("FAIL", "second holds other seeds, names or salts than its parent.")
