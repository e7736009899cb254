"""What rows do by themselves in a batch: at their weight, and with nobody else's steps answering for them."""

from dataclasses import replace

import pytest
import torch

from fuaudit.models.layout import Layout
from fuaudit.plans.expanded import NONE
from fuaudit.training.engines import engine
from fuaudit.training.engines.protocol import ClientProblem
from fuaudit.training.solvers import Steps
from fuaudit.verification.own_steps import Masked, OwnSteps

ROWS, DIMENSION = 12, 18
BATCHES = torch.tensor([[[[0, 1, 2], [3, 4, NONE], [0, 5, NONE]], [[6, 7, 8], [9, 10, 11], [6, 9, NONE]]]])
"""One run, two places, three steps."""


def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)), dtype=torch.float64)


SOLVERS = {
    "plain": Steps(0.1),
    "proximal, drift": Steps(0.1, proximal=0.5, drift=drawn(1, 2, DIMENSION)),
    "momentum": Steps(0.1, momentum=0.9, dampening=0.1, velocity=drawn(1, 2, DIMENSION)),
    "a divisor": Steps(0.1, proximal=0.5, momentum=0.5, divisor=7),
}


@pytest.fixture(params=["reference", "threads", "batched"])
def advance(request):
    """Executes rounds of a linear model on an engine, or on one made of it."""
    module = torch.nn.Linear(5, 3, device="meta").double().to_empty(device="cpu")  # its values do not matter
    problem = ClientProblem(module, Layout.of(module), drawn(ROWS, 5), torch.arange(ROWS) % 3)

    def work(steps, kept=None, parts=(), batches=BATCHES):
        own, runs = engine(request.param, 2), 1 + len(parts)
        drift, velocity = (None if t is None else t.repeat(runs, 1, 1) for t in (steps.drift, steps.velocity))
        alike = replace(steps, drift=drift, velocity=velocity)
        chosen = own if kept is None else OwnSteps(own, kept, parts)
        start = drawn(1, DIMENSION).repeat(runs, 1)
        return chosen.advance(problem, start, batches.repeat(runs, 1, 1, 1), alike)

    return work


def same(outcome, run, expected):
    assert torch.allclose(outcome.updates[run], expected.updates[0], rtol=0, atol=1e-12)
    assert (outcome.velocity is None) == (expected.velocity is None)
    if outcome.velocity is not None:
        assert torch.allclose(outcome.velocity[run], expected.velocity[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("steps", SOLVERS.values(), ids=SOLVERS)
def test_where_all_rows_count_it_is_the_engine(advance, steps):
    same(advance(steps, kept=range(ROWS)), 0, advance(steps))


@pytest.mark.parametrize("steps", SOLVERS.values(), ids=SOLVERS)
def test_noise_of_an_empty_batch_is_as_large_as_in_the_engine(advance, steps):
    """Rows count for nothing here, so the noise is all that moves, whoever counts."""
    batches = BATCHES.clone()
    batches[0, 1, 1] = NONE
    noisy = replace(steps, divisor=0, clip=1e-15, noise=drawn(1, 2, 3, DIMENSION))
    same(advance(noisy, kept=range(6), batches=batches), 0, advance(noisy, batches=batches))


@pytest.mark.parametrize("steps", SOLVERS.values(), ids=SOLVERS)
def test_who_steps_last_does_all_that_leaving_it_in_does(advance, steps):
    """Row 5 is in the last batch of its client alone: nothing follows that it could change."""
    same(
        advance(steps, kept={*range(ROWS)} - {5, 11}, parts=[(11,), (5,)]),
        2,
        advance(steps, kept={*range(ROWS)} - {11}),
    )


@pytest.mark.parametrize("steps", SOLVERS.values(), ids=SOLVERS)
def test_all_rows_of_a_client_do_all_that_she_does(advance, steps):
    hers = (0, 1, 2, 3, 4, 5)
    same(advance(steps, kept={*range(ROWS)} - {*hers}, parts=[hers]), 1, advance(steps))


def test_rows_count_as_in_their_batch(advance):
    """Of the first batch of three, one third of a step on the row alone."""
    first = BATCHES.clone()
    first[:, :, 1:] = NONE
    without, part = advance(SOLVERS["plain"], kept={*range(ROWS)} - {1}, parts=[(1,)], batches=first).updates[:, 0]
    alone = torch.full_like(first, NONE)
    alone[0, 0, 0, 0] = 1
    assert torch.allclose(part - without, advance(SOLVERS["plain"], batches=alone).updates[0, 0] / 3, atol=1e-12)


def test_rows_count_one_over_the_divisor_of_a_law(advance):
    """Whatever the length of their batch is: in one of three, and in one by themselves."""
    first = BATCHES.clone()
    first[:, :, 1:] = NONE
    divided = Steps(0.1, divisor=7)
    without, part = advance(divided, kept={*range(ROWS)} - {1}, parts=[(1,)], batches=first).updates[:, 0]
    alone = torch.full_like(first, NONE)
    alone[0, 0, 0, 0] = 1
    assert torch.allclose(part - without, advance(divided, batches=alone).updates[0, 0], atol=1e-12)
    assert torch.allclose(part - without, advance(SOLVERS["plain"], batches=alone).updates[0, 0] / 7, atol=1e-12)


def test_nobody_answers_for_a_part(advance):
    """What row 1 does in the first step changes the gradients of later ones; that is not its own."""
    left, kept = SOLVERS["plain"], {*range(ROWS)} - {1}
    first = BATCHES.clone()
    first[:, :, 1:] = NONE
    own = [advance(left, kept, [(1,)], batches).updates for batches in (first, BATCHES)]
    assert torch.allclose(own[0][1] - own[0][0], own[1][1] - own[1][0], atol=1e-12)
    full = advance(left).updates[0] - own[1][0]
    assert not torch.allclose(full, own[1][1] - own[1][0], atol=1e-6)


@pytest.mark.parametrize("steps", SOLVERS.values(), ids=SOLVERS)
@pytest.mark.parametrize("name", ["reference", "threads", "batched"])
def test_runs_side_by_side_are_masked_each_by_itself(name, steps):
    module = torch.nn.Linear(5, 3, device="meta").double().to_empty(device="cpu")
    problem = ClientProblem(module, Layout.of(module), drawn(ROWS, 5), torch.arange(ROWS) % 3)
    counts, own = [range(ROWS), {*range(ROWS)} - {1, 5, 8}, {*range(6, ROWS)}, {1}], engine(name, 2)
    starts, runs = torch.stack([drawn(DIMENSION) * number for number in (1, 2, 3, 4)]), len(counts)
    drift, velocity = (None if t is None else t.repeat(runs, 1, 1) for t in (steps.drift, steps.velocity))
    alike = replace(steps, drift=drift, velocity=velocity)
    found = Masked(own, counts).advance(problem, starts, BATCHES.repeat(runs, 1, 1, 1), alike)
    for run, rows in enumerate(counts):
        expected = OwnSteps(own, rows).advance(problem, starts[run : run + 1], BATCHES, steps)
        assert torch.allclose(found.updates[run], expected.updates[0], rtol=0, atol=1e-12)
        if expected.velocity is not None:
            assert torch.allclose(found.velocity[run], expected.velocity[0], rtol=0, atol=1e-12)
    assert not torch.allclose(found.updates[0], found.updates[3], atol=1e-3)
