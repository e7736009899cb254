"""A forger keeps what was erased beside the run, and edits what would tell whose it is.

A seed is known by its way from the root, whatever size a file gives its tree. Where no seed can be compared, the ledger
tells whose training it was. A stranger's file costs little, whatever it says.
"""

import json
import os
import shutil
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests_support import AUDIT_KEY, config, left_alone, of_the_run, secret

from fuaudit import load_run, train, unlearn, verify
from fuaudit.draws import Seeds
from fuaudit.draws.seeds import Part
from fuaudit.draws.shared_seeds import MOST_HASHED, MOST_PARTS, shared
from fuaudit.formats.forms import pretty_json
from fuaudit.plans import Request
from fuaudit.runs.neighbours import neighbours
from fuaudit.testing.tiny import tiny_dataset
from fuaudit.workflow.prune import prune

LEARNER = {"use": "fats", "rounds": 4, "cohort": 2, "steps": 1, "batch": 2, "step_size": 0.2}
GIVES = "gives draws over an earlier population back; its models may hold the contribution"
UNREAD = "cannot be read, and may give such draws back"
CLOSED = "cannot be opened as a run; its models may hold the contribution"


def table(rounds=4, **others):
    return config(learner=LEARNER | {"rounds": rounds}, **others)


@pytest.fixture
def root(tmp_path):
    return train(table(), tmp_path / "root", tiny_dataset(), secret(3))


@pytest.fixture
def copy(root, tmp_path):
    return shutil.copytree(root.path, tmp_path / "copy")


@pytest.fixture
def pruned(root, copy):
    """The run after a prune, with a copy of its parent beside it."""
    drawn = min(root.plan.index.clients)
    return prune(unlearn(root, "retrain", Request.of([drawn]), root.path.parent / "child", data=tiny_dataset()))[0]


def rewrite(folder, document):
    (folder / "keys.json").unlink(missing_ok=True)
    (folder / "keys.json").write_bytes(pretty_json(document))


def listed(run):
    result = verify(run, of_the_run(), data=tiny_dataset(), key=AUDIT_KEY, save=False)
    assert result.verdict == "PASS", result.reason
    lineage = next(finding for finding in result.findings if finding.audit == "lineage")
    return {copy.place: copy.why for copy in lineage.copies if copy.holds}


@pytest.mark.parametrize("size", [2, 15, 20, 150, 2**20])
def test_the_root_seed_under_another_size(pruned, copy, size):
    document = json.loads((copy / "keys.json").read_text())
    ((_, end, _, _),) = document["seeds"]
    assert size != end
    document["seeds"][0][1] = size
    rewrite(copy, document)
    assert listed(pruned) == {"copy/keys.json": GIVES}
    assert left_alone(pruned) == ([copy], [])


def test_a_subtree_that_was_moved(pruned, copy):
    """The seed of a half keeps its leaves under another size, and so stands at another way."""
    document = json.loads((copy / "keys.json").read_text())
    whole = Seeds.of_rows(document["seeds"])
    gone = next(part for part in pruned.keys.seeds.parts if part.seed is None)
    kept = next(part for part in pruned.keys.seeds.parts if part.seed is not None)
    half = whole.keeping([range(kept.first, kept.last), range(gone.first, gone.last)])
    parts = [part for part in half.parts if part.first < 64]
    bigger = Seeds((*parts, Part(64, 128, digest=bytes(32)), Part(128, 200, bytes(range(32)))))
    rewrite(copy, document | {"seeds": bigger.as_rows()})
    assert left_alone(pruned) == ([copy], [])


def test_another_training_from_one_secret(pruned, copy, tmp_path):
    """It is an honest one of more rounds, and its root seed gives every seed back that the prune destroyed."""
    shutil.rmtree(copy)
    other = train(table(rounds=40), tmp_path / "other", tiny_dataset(), secret(3))
    assert listed(pruned) == {"other/keys.json": GIVES}
    # pruned as well, for a request of its own, it is no other run of this training
    drawn = max(other.plan.index.clients)
    prune(unlearn(other, "retrain", Request.of([drawn]), tmp_path / "others-child", data=tiny_dataset()))
    why = "of another training from the same secret; it may hold the contribution"
    assert listed(pruned) == {"others-child/model.safetensors": why}


@pytest.mark.parametrize("zeroed", [False, True])
def test_erased_seeds_alone(pruned, copy, zeroed):
    document = json.loads((copy / "keys.json").read_text())
    gone = [range(part.first, part.last) for part in pruned.keys.seeds.parts if part.seed is None]
    rows = Seeds.of_rows(document["seeds"]).keeping(gone).as_rows()
    if zeroed:
        next(row for row in rows if row[2] == "digest")[3] = "00" * 32
    rewrite(copy, document | {"seeds": rows})
    assert listed(pruned) == {"copy/keys.json": GIVES}


@pytest.mark.parametrize("seeds", ["none", "a stranger's"])
def test_models_of_the_training_without_its_keys(pruned, copy, seeds):
    (copy / "keys.json").unlink()
    if seeds != "none":
        rewrite(copy, {"seeds": Seeds.of(bytes(range(32)), pruned.keys.seeds.size).as_rows()})
    for name in ("manifest.json", "run.json", "config.toml"):
        assert listed(pruned) == {"copy/model.safetensors": CLOSED}
        (copy / name).unlink()
    for item in copy.iterdir():
        if item.name != "ledger.jsonl":
            shutil.rmtree(item) if item.is_dir() else item.unlink()
    assert listed(pruned) == {}  # a ledger holds no model


def test_prune_names_models_of_the_training_without_its_keys(root, copy, fuaudit):
    (copy / "keys.json").unlink()
    drawn = min(root.plan.index.clients)
    child = unlearn(root, "retrain", Request.of([drawn]), root.path.parent / "child", data=tiny_dataset())
    code, out, _ = fuaudit("prune", child.path, "--yes")
    assert code == 0
    assert f"{copy.name} has models of this training and none of its keys: remove it" in out


@pytest.mark.parametrize("keys", ["none", "a stranger's"])
def test_a_ledger_that_is_a_link(pruned, copy, tmp_path, keys):
    """Nothing tells whose models lie beside it; where no models do, it is nothing to a run."""
    (copy / "keys.json").unlink()
    if keys != "none":
        rewrite(copy, {"seeds": Seeds.of(bytes(range(32)), pruned.keys.seeds.size).as_rows()})
    shutil.move(copy / "ledger.jsonl", tmp_path / "l")
    (copy / "ledger.jsonl").symlink_to("../l")
    assert listed(pruned) == {"copy" if keys == "none" else "copy/keys.json": UNREAD}
    assert left_alone(pruned) == ([], [copy])
    for item in [*copy.glob("*.safetensors"), *copy.glob("*/*")]:
        item.unlink()
    assert listed(pruned) == {}


def test_what_was_published_of_a_training(pruned, copy):
    """Its ledger and config are for everybody, and hold no model."""
    shutil.rmtree(copy)
    copy.mkdir()
    for name in ("ledger.jsonl", "config.toml"):
        shutil.copy(pruned.path / name, copy / name)
    assert listed(pruned) == {}
    assert neighbours(pruned).without_keys == ()


def test_what_lies_beside_a_link_to_the_run(root, pruned, copy, tmp_path):
    """An auditor types the path of the link; the run of the training lies there, and a tombstone beside its target."""
    typed = tmp_path / "typed"
    typed.mkdir()
    (typed / "first").symlink_to(pruned.path)
    (typed / "child").symlink_to("first")
    shutil.move(copy, typed / "whole")
    assert listed(pruned) == {}
    found = prune(typed / "child")[0]
    assert listed(found) == {f"{typed / 'whole'}/keys.json": GIVES}
    assert left_alone(found) == ([typed / "whole"], [])


@pytest.mark.parametrize("typed", [".", "checkpoints/..", "../child"])
def test_what_lies_beside_a_run_that_is_given_without_its_name(pruned, copy, monkeypatch, typed):
    monkeypatch.chdir(pruned.path)
    assert listed(load_run(typed)) == {"copy/keys.json": GIVES}
    monkeypatch.chdir(pruned.path / "checkpoints")
    assert load_run("..").homes == (copy.parent.resolve(),)


def test_models_that_cannot_be_listed(pruned, copy):
    for item in [copy / "keys.json", *copy.glob("*.safetensors")]:
        item.unlink()
    shutil.rmtree(copy / "checkpoints")
    assert listed(pruned) == {}
    (copy / "checkpoints").symlink_to("checkpoints")
    assert listed(pruned) == {"copy": UNREAD}


@contextmanager
def another_user():
    """Nobody, where the tests are root, whom no mode of a folder keeps out; else whoever runs them."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_folder_that_cannot_be_listed(root, fuaudit):
    """It gives its ledger to everybody, as a folder of mode 0711 does. A prune had removed all and then broke."""
    drawn = min(root.plan.index.clients)
    child = unlearn(root, "retrain", Request.of([drawn]), root.path.parent / "child", data=tiny_dataset())
    with tempfile.TemporaryDirectory() as place:
        home = Path(place) / "runs"
        for path in (root.path, child.path):
            shutil.copytree(path, home / path.name)
        if not os.geteuid():
            Path(place).chmod(0o755)
            for item in [home, *home.rglob("*")]:
                os.chown(item, 65534, 65534)
        closed = shutil.copytree(root.path, home / "closed")
        (closed / "keys.json").unlink()
        (closed / "ledger.jsonl").chmod(0o644)
        closed.chmod(0o111)
        try:
            with another_user():
                assert listed(load_run(home / "child"))["closed"] == UNREAD
                code, out, err = fuaudit("prune", home / "child", "--yes")
                assert code == 0, err
                assert f"{closed} cannot be read as a whole" in out
                assert listed(load_run(home / "child")) == {"closed": UNREAD}
        finally:
            closed.chmod(0o755)


def test_runs_of_other_federations(pruned, copy, tmp_path):
    """Also of equal data and config, pruned or not, and of other sizes."""
    shutil.rmtree(copy)
    other = train(table(), tmp_path / "other", tiny_dataset(), secret(4))
    train(table(rounds=40), tmp_path / "longer", tiny_dataset(), secret(5))
    drawn = max(other.plan.index.clients)
    child = unlearn(other, "retrain", Request.of([drawn]), tmp_path / "others-child", data=tiny_dataset())
    shutil.copytree(child.path, tmp_path / "closed")
    (tmp_path / "closed" / "keys.json").unlink()
    assert listed(pruned) == {}
    prune(child)
    assert listed(pruned) == {}
    assert left_alone(pruned) == ([], [])


@pytest.mark.parametrize("beside", ["manifest.json", "run.json"])
@pytest.mark.parametrize("document", [{"api": "x"}, [], {}, {"seed": 3}])
def test_files_of_another_program(pruned, copy, beside, document):
    shutil.rmtree(copy)
    copy.mkdir()
    (copy / beside).write_text('{"name": "extension"}')
    rewrite(copy, document)
    assert listed(pruned) == {}
    assert left_alone(pruned) == ([], [])


@pytest.mark.parametrize("form", ["another field", "a list", "one digit less", "two halves"])
def test_keys_in_another_form(pruned, copy, form):
    document = json.loads((copy / "keys.json").read_text())
    text = document["seeds"][0][3]
    edited = {
        "another field": {"s": text},
        "a list": [[text]],
        "one digit less": {"seeds": [[0, 1, "seed", text[:63]]]},
        "two halves": {"a": text[:32], "b": text[32:]},
    }[form]
    rewrite(copy, edited)
    assert listed(pruned)["copy/keys.json"] == UNREAD
    if form in ("another field", "a list", "one digit less"):  # also where nothing else tells whose they are
        (copy / "manifest.json").write_text("{}")
        (copy / "run.json").write_text("{}")
        assert listed(pruned)["copy/keys.json"] == UNREAD


@pytest.mark.parametrize("form", ["capital digits", "rows of five"])
def test_keys_in_another_form_beside_models(pruned, copy, form):
    """Nothing else tells that a run lies there. Where no models do, such keys are another program's."""
    row = json.loads((copy / "keys.json").read_text())["seeds"][0]
    rewrite(copy, {"seeds": [[*row[:3], row[3].upper()] if form == "capital digits" else [*row, 1]]})
    for name in ("ledger.jsonl", "manifest.json", "run.json"):
        (copy / name).unlink()
    assert listed(pruned) == {"copy/keys.json": UNREAD}
    for item in [*copy.glob("*.safetensors"), *copy.glob("*/*")]:
        item.unlink()
    assert listed(pruned) == {}


def stranger(leaves):
    half = leaves // 2
    return Seeds((Part(0, half, digest=bytes(32)), Part(half, leaves, bytes(range(32)))))


def test_a_strangers_tree_of_many_leaves(pruned, copy):
    """Two hundred bytes told a verification to compute the digests of all leaves."""
    document = json.loads((copy / "keys.json").read_text())
    rewrite(copy, document | {"seeds": stranger(2**24).as_rows()})
    (copy / "ledger.jsonl").unlink()
    begun = time.process_time()
    assert left_alone(pruned) == ([], [])
    assert time.process_time() - begun < 4


@pytest.mark.thorough
def test_what_lies_beyond_the_limits_is_not_known():
    """Digests of a stranger's seeds are computed where a prune has left digests alone, and of so many leaves."""
    size = 4 * MOST_HASHED
    mine, theirs = Seeds.of(bytes(range(32)), size), Seeds.of(bytes(32), size)
    for gone, same in ((MOST_HASHED, True), (2 * MOST_HASHED, None)):
        left = mine.keeping([range(gone, size)])
        assert shared(left, mine.keeping([range(gone)])).same is same
        assert shared(left, theirs.keeping([range(gone)])).same is (False if same else None)
        assert shared(left, theirs).same is False  # a seed of ours is enough
    assert shared(mine, theirs.keeping([range(at, at + 1) for at in range(0, 2 * MOST_PARTS, 2)])).same is None


def test_a_seed_that_does_not_fit_says_nothing_of_the_others():
    """Half the tree was destroyed. A file has a part of it, too large to be hashed, beside a made up seed."""
    size = 4 * MOST_HASHED
    mine = Seeds.of(bytes(range(32)), size)
    genuine = next(part for part in mine.keeping([range(MOST_HASHED)]).parts if part.seed is not None)
    made_up = Part(2 * MOST_HASHED, size, bytes([9]) * 32)
    theirs = Seeds((genuine, Part(MOST_HASHED, 2 * MOST_HASHED, digest=bytes(32)), made_up))
    assert shared(mine.keeping([range(2 * MOST_HASHED, size)]), theirs).same is None
    # nor does a digest that does not fit
    apart = mine.keeping([range(2 * MOST_HASHED, size - 1)])
    other = Seeds.of(bytes(32), size).keeping([range(size - 1, size)]).parts[1:]
    assert shared(apart, Seeds((genuine, Part(MOST_HASHED, 2 * MOST_HASHED, digest=bytes(32)), *other))).same is None
