"""A forger gives an erased row another id, after the request, until he likes the draws that follow.

The leaf of a row covers its id, but nobody opens the leaf of a row that is gone: in partition and index he may call it
what he likes. If draws followed from ids, each id would be one more try under the published commitment.
"""

import shutil

import pytest
import torch
from tests_support import config, drawn_sample, reseal, secret

from fuaudit import load_run, train, unlearn
from fuaudit.formats.forms import tensor_bytes
from fuaudit.plans import Population, Request
from fuaudit.runs.encoding import population_tensors


@pytest.fixture
def parent(tmp_path):
    return train(config(run={"checkpoint_every": 1}), tmp_path / "parent", secret=secret(3))


def called_otherwise(parent, path, sample, name):
    """A copy of a run in which a row has another id."""
    shutil.copytree(parent.path, path)
    clients = {c: tuple(name if s == sample else s for s in ids) for c, ids in parent.original.samples.items()}
    (path / "partition.safetensors").write_bytes(tensor_bytes(population_tensors(Population(clients))))
    index = parent.tensors("involvement.safetensors")
    rows = sorted([name if s == sample else s, *at] for s, *at in index["samples"].tolist())
    (path / "involvement.safetensors").write_bytes(tensor_bytes(index | {"samples": torch.tensor(rows)}))
    reseal(path)
    return load_run(path)


def test_another_id_gives_the_same_draws(parent, tmp_path):
    sample = drawn_sample(parent)
    honest = unlearn(parent, "fats", Request.of(samples=[sample]), tmp_path / "child")
    for more in range(3):
        name = parent.rows + more
        other = called_otherwise(parent, tmp_path / f"other-{more}" / "parent", sample, name)
        child = unlearn(other, "fats", Request.of(samples=[name]), tmp_path / f"other-{more}" / "child")
        assert child.commitment == honest.commitment
        assert child.plan.history() == honest.plan.history()
        assert torch.equal(child.model, honest.model)


def test_places_tell_samples_apart(parent, tmp_path):
    """What is asked for still changes the draws: two rows of one client, and one place of two clients."""
    first, second = parent.original.samples[0][:2]
    elsewhere = parent.original.samples[1][0]
    contexts = {parent.fresh(Request.of(samples=[s])).context for s in (first, second, elsewhere)}
    assert len(contexts | {parent.fresh(Request.of(clients=[0])).context}) == 4
