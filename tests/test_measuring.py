"""Measuring: the same figures as by a plain loop, whatever the number of processors; the rule for chunks."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest
import torch
from tests_support import claimed
from torch import nn
from torch.nn.functional import cross_entropy

from fuaudit import train
from fuaudit.audits.lineage.audit import Lineage
from fuaudit.audits.lineage.regenerated import follow_from_models
from fuaudit.config import resolve
from fuaudit.data.dataset import Dataset, scaled
from fuaudit.draws import Keyed
from fuaudit.plans import Population
from fuaudit.runs.derived_files import Measures
from fuaudit.runs.run import load_run
from fuaudit.testing.tiny import tiny_config, tiny_dataset
from fuaudit.training import measuring
from fuaudit.training.pooling import SlicedMaxPool2d, sliced
from fuaudit.training.setup import setup
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence

TEST, TRAINING, SIDE = 620, 900, 18


@pytest.fixture(scope="module")
def ready():
    """A small CNN over drawn images; chunks of 250, 250 and 120 test rows."""
    draws = torch.Generator().manual_seed(1)
    inputs = torch.rand(TEST + TRAINING, 1, SIDE, SIDE, generator=draws)
    targets = torch.randint(10, (TEST + TRAINING,), generator=draws)
    data = Dataset(inputs[TEST:], targets[TEST:], inputs[:TEST], targets[:TEST], classes=10)
    return setup(resolve(tiny_config(model={"use": "cnn"}, data={"use": "tensors", "classes": 10})), data)


@pytest.fixture(scope="module")
def population():
    """Clients of many sizes, one without samples; ids are not those of places."""
    sizes = [(7, 1), (3, 400), (5, 0), (9, 249), (4, 250)]
    ends = torch.tensor([size for _, size in sizes]).cumsum(0).tolist()
    return Population({client: tuple(range(end - size, end)) for (client, size), end in zip(sizes, ends, strict=True)})


@pytest.fixture(scope="module")
def model(ready):
    layout = ready.procedure.layout
    drawn = torch.rand(1, layout.dimension, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return layout.initial(drawn.numpy(), torch.float32)[0] * 3


def answers(ready, model, inputs, targets):
    """Losses and hits of chunks of 250 by the template as it is, one after the other."""
    module, layout, losses, hits = ready.cpu_module(), ready.procedure.layout, 0.0, []
    for first in range(0, len(targets), 250):
        named = dict(zip(layout.names, layout.split(model), strict=True))
        with torch.no_grad():
            found = torch.func.functional_call(module, named, (inputs[first : first + 250],))
        losses += float(cross_entropy(found, targets[first : first + 250], reduction="sum"))
        hits += (found.argmax(1) == targets[first : first + 250]).tolist()
    return losses / len(targets), hits


@pytest.mark.parametrize("processors", [1, 2, 5])
def test_figures_are_those_of_a_plain_loop(ready, population, model, monkeypatch, processors):
    monkeypatch.setattr(measuring, "processors", lambda: processors)
    data, told = ready.dataset, []
    measures = Measures(ready, population, lambda: told.append(0))
    loss, hits = answers(ready, model, data.test_inputs, data.test_targets)
    assert measures.on_test_rows(model) == (loss, sum(hits) / TEST)
    assert len(told) == 3
    # the rows of all clients one after the other, by ascending ids
    rows = [row for client in (3, 4, 5, 7, 9) for row in population.samples[client]]
    hits = dict(zip(rows, answers(ready, model, data.inputs[rows], data.targets[rows])[1], strict=True))
    own = {c: sum(hits[row] for row in its) / len(its) if its else None for c, its in population.samples.items()}
    assert measures.own_accuracy(model) == own
    assert own[5] is None
    assert 0 < own[3] < 1
    assert len(told) == 3 + 4


class Scribbler(nn.Module):
    """A model that writes into its inputs."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            self.layer = nn.Linear(SIDE * SIDE, 10)

    def forward(self, inputs):
        return self.layer(inputs.mul_(0).flatten(1))


def test_test_rows_stay_as_they_are(ready, population):
    whole = replace(ready, procedure=replace(ready.procedure, module=Scribbler()))
    before = ready.dataset.test_inputs.clone()
    measures = Measures(whole, population)
    measures.on_test_rows(torch.ones(SIDE * SIDE * 10 + 10))
    measures.own_accuracy(torch.ones(SIDE * SIDE * 10 + 10))
    assert torch.equal(ready.dataset.test_inputs, before)
    assert bool(ready.dataset.inputs.any())


def test_nothing_is_computed_where_nothing_is_scaled():
    """Of 400 MB of images each copy was as large."""
    inputs = torch.tensor([[0.0, -0.0, 1e-45, torch.nan, torch.inf]])
    assert scaled(inputs, 0.0, 1.0, torch.float32) is inputs
    for dtype in (torch.float32, torch.float64):
        same = ((inputs.to(dtype) - 0.0) / 1.0).view(torch.int8)
        assert torch.equal(scaled(inputs, 0.0, 1.0, dtype).view(torch.int8), same)
    assert torch.equal(scaled(inputs[:, :3], 1.0, 2.0, torch.float32), (inputs[:, :3] - 1) / 2)


def test_the_rule_for_chunks():
    """As docs/run-format.md has it."""
    found = measuring.chunks_of(620)
    assert [(some.start, some.stop) for some in found] == [(0, 250), (250, 500), (500, 620)]
    assert not measuring.chunks_of(0)
    assert [*measuring.in_chunks(lambda some: Fraction(some.start), 1000)] == [0, 250, 500, 750]


def test_what_a_chunk_raises_is_raised():
    def fails(some):
        raise ZeroDivisionError(some.start)

    for count in (10, 600):
        with pytest.raises(ZeroDivisionError, match="0"):
            [*measuring.in_chunks(fails, count)]


def test_pooling_by_slices_has_the_bits_of_the_library():
    generator = torch.Generator().manual_seed(3)
    for kernel, stride, dtype in product((1, 2, 3, (2, 3)), (None, 1, 2, (3, 1)), (torch.float32, torch.float64)):
        inputs = torch.randn(3, 2, 11, 8, generator=generator, dtype=dtype)
        inputs[0, 0, 4, 4], inputs[1, 1, 0, 0] = torch.nan, -torch.inf
        module = nn.Sequential(nn.MaxPool2d(kernel, stride))
        wanted, made = module(inputs), sliced(module)(inputs)
        assert type(module[0]) is SlicedMaxPool2d
        assert torch.equal(wanted.view(torch.int8), made.contiguous().view(torch.int8)), (kernel, stride)
        assert torch.equal(module(inputs[0]), wanted[0].nan_to_num(0)) or bool(wanted[0].isnan().any())


@pytest.mark.parametrize("options", [{"padding": 1}, {"dilation": 2}, {"ceil_mode": True}, {"return_indices": True}])
def test_other_pooling_is_left_to_the_library(options):
    module = sliced(nn.Sequential(nn.MaxPool2d(2, **options)))
    assert type(module[0]) is nn.MaxPool2d


def test_models_are_trained_with_the_pooling_of_the_library(ready, population):
    measuring.answering(ready, population)
    assert not any(isinstance(part, SlicedMaxPool2d) for part in ready.procedure.module.modules())


def test_equal_models_are_measured_once(tmp_path):
    """Lineage of a run of another platform has both, the models of the run and those that its plan makes here."""
    data = tiny_dataset()
    run = claimed(train(tiny_config(), tmp_path / "run", data, secret=bytes(32)).path, canary="0" * 64)
    case = Case(Evidence(load_run(run.path), None, data), Keyed(bytes(32)))
    assert Lineage().examine(case).verdict == "PASS"
    before = {number: case.rerun.measures.on_test_rows(run.checkpoint(number)[0]) for number in run.checkpoints}
    follow_from_models(case)
    after = {number: case.rerun.measures.on_test_rows(run.checkpoint(number)[0].clone()) for number in run.checkpoints}
    assert all(before[number] is after[number] for number in run.checkpoints)
