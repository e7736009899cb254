"""Steps that clip the gradient of each sample and add noise: engines agree, and are equal to Opacus."""

import copy
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from test_engines import Batched, Reference, Threads, gap, make_batches, make_task, make_vectors
from torch.nn.functional import cross_entropy

from fuaudit.errors import UsageError
from fuaudit.training.engines import engine
from fuaudit.training.solvers import Steps
from fuaudit.verification.own_steps import Masked, OwnSteps

CLIP, SIGMA, DIVISOR, SIZE = 0.05, 0.8, 5, 0.2


def noise_for(problem, batches, scale=CLIP * SIGMA):
    draws = np.random.Generator(np.random.Philox(5))
    drawn = draws.standard_normal((*batches.shape[:3], problem.layout.dimension))
    return torch.from_numpy(scale * drawn).to(problem.inputs.dtype)


def steps_of(kind, problem, batches):
    noise = noise_for(problem, batches)
    return {
        "clipped": Steps(SIZE, clip=CLIP),
        "clipped, divided": Steps(SIZE, clip=CLIP, divisor=DIVISOR),
        "with noise": Steps(SIZE, clip=CLIP, divisor=DIVISOR, noise=noise),
        "with all terms": Steps(SIZE, 0.7, momentum=0.9, dampening=0.3, clip=CLIP, divisor=DIVISOR, noise=noise),
    }[kind]


KINDS = ["clipped", "clipped, divided", "with noise", "with all terms"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_engines_agree(model, kind):
    problem, batches = make_task(model), make_batches(2)
    steps = steps_of(kind, problem, batches)
    assert gap(Threads(2), Reference(), problem, batches, steps) == 0
    assert gap(Batched(1, stack_size=6), Reference(), problem, batches, steps) <= 1e-10
    assert gap(Batched(2, stack_size=7), Reference(), problem, batches, steps) <= 1e-10


@pytest.mark.thorough
def test_compiled_agrees():
    problem, batches = make_task("mlp"), make_batches(1)
    steps = steps_of("with noise", problem, batches)
    assert gap(engine("compiled", 1), Reference(), problem, batches, steps) <= 1e-10


@pytest.mark.parametrize("name", ["reference", "threads", "batched"])
def test_rounds_that_are_read_in_blocks_have_the_noise_of_their_steps(name, monkeypatch):
    problem, batches = make_task("mlp"), make_batches(2)
    steps = steps_of("with noise", problem, batches)
    whole = engine(name, 2).advance(problem, make_vectors(problem, 2), batches, steps).updates
    monkeypatch.setattr("fuaudit.training.engines.batched.READ_AT_ONCE", 1)
    assert torch.equal(engine(name, 2).advance(problem, make_vectors(problem, 2), batches, steps).updates, whole)


@pytest.mark.parametrize("name", ["reference", "threads", "batched"])
def test_a_norm_that_nothing_reaches_is_plain(name):
    problem, batches = make_task("mlp"), make_batches(2)
    vectors = make_vectors(problem, 2)
    plain, wide = (engine(name, 2).advance(problem, vectors, batches, Steps(SIZE, clip=c)).updates for c in (0, 1e6))
    assert (plain - wide).abs().max() <= 1e-10


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["reference", "threads", "batched"])
def test_no_sample_moves_a_model_further_than_the_norm(name, dtype):
    """One step on one sample, of every size: zero, usual, huge; from zero, so that nothing else is rounded."""
    problem, batches = make_task("mlp", dtype), make_batches(1, places=1, steps=1, ragged=False)
    batches = torch.full_like(batches, -1)
    batches[0, 0, 0, 0] = 3
    lengths = []
    for scale in (0.0, 1e-30, 1.0, 1e10):
        loud = replace(problem, inputs=problem.inputs * scale)
        for clip in (0.01, 0.05, 0.3):
            steps = Steps(1.0, clip=clip, divisor=1)
            start = torch.zeros(1, problem.layout.dimension, dtype=dtype)
            moved = engine(name, 1).advance(loud, start, batches, steps).updates[0, 0]
            lengths.append(sum(Fraction(number) ** 2 for number in moved.tolist()) / Fraction(clip) ** 2)
    assert max(lengths) <= 1
    assert max(lengths) > 1 - 1e-5


@pytest.mark.parametrize(("clip", "size", "divisor"), [(1.0, 0.01, 1000), (0.0135, 0.01, 256), (1e-3, 1.0, 1)])
@pytest.mark.parametrize("name", ["reference", "threads", "batched"])
def test_the_largest_numbers_move_a_model_no_further_than_the_norm(name, clip, size, divisor):
    """What their gradients are scaled by is no normal float32, and was rounded up to nearly twice as much."""
    problem, batches = make_task("linear", torch.float32), make_batches(1, places=1, steps=1, ragged=False)
    batches = torch.full_like(batches, -1)
    batches[0, 0, 0, 0] = 3
    loud = replace(problem, inputs=torch.full_like(problem.inputs, 3e38))
    start = torch.zeros(1, problem.layout.dimension)
    moved = engine(name, 1).advance(loud, start, batches, Steps(size, clip=clip, divisor=divisor)).updates
    assert 1 - 1e-4 < moved.double().norm() / (size / divisor * clip) <= 1 + 1e-6


@pytest.mark.parametrize("name", ["reference", "threads", "batched"])
def test_noise_on_empty_batches_is_divided_as_in_full_ones(name):
    """Whoever has no rows left would send noise of the size of a whole batch else."""
    problem, batches = make_task("mlp"), make_batches(1)
    empty = torch.full_like(batches, -1)
    noise = noise_for(problem, batches)
    vectors = make_vectors(problem, 1)
    updates = engine(name, 2).advance(problem, vectors, empty, Steps(SIZE, clip=CLIP, noise=noise)).updates
    assert (updates - SIZE / batches.shape[-1] * noise.sum(dim=2)).abs().max() <= 1e-10


@pytest.mark.parametrize("name", ["reference", "threads", "batched"])
def test_noise_moves_models_on_empty_batches_too(name):
    problem, batches = make_task("mlp"), make_batches(1)
    empty = torch.full_like(batches, -1)
    noise = noise_for(problem, batches)
    updates = engine(name, 2).advance(
        problem, make_vectors(problem, 1), empty, Steps(SIZE, clip=CLIP, divisor=DIVISOR, noise=noise)
    )
    assert (updates.updates - SIZE / DIVISOR * noise.sum(dim=2)).abs().max() <= 1e-10


def test_noise_without_clipping_is_refused():
    with pytest.raises(UsageError, match="clip"):
        Steps(SIZE, noise=torch.zeros(1, 1, 1, 3))


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # of Opacus
@pytest.mark.parametrize("sigma", [0.0, SIGMA])
@pytest.mark.parametrize("model", ["mlp", "cnn"])
@pytest.mark.parametrize("name", ["reference", "threads", "batched"])
def test_equal_to_opacus(name, model, sigma, monkeypatch):
    """The same batches, some of them empty, and the same noise in both.

    Opacus scales by norm / (length + 1e-6), and here it is norm / length: so much relative difference a step.
    """
    problem, batches = make_task(model), make_batches(1, places=2, steps=5)[:, 1:]
    batches[0, 0, 2] = -1
    assert {0, 5} <= {*(lengths := (batches >= 0).sum(dim=-1)).ravel().tolist()}, lengths
    (vector,) = make_vectors(problem, 1)
    noise = noise_for(problem, batches, CLIP * sigma)
    steps = Steps(SIZE, clip=CLIP, divisor=DIVISOR, noise=noise)
    found = engine(name, 1).advance(problem, vector[None], batches, steps).updates[0, 0]

    module = copy.deepcopy(problem.module)
    torch.nn.utils.vector_to_parameters(vector.clone(), module.parameters())
    wrapped = GradSampleModule(module)
    optimizer = DPOptimizer(
        torch.optim.SGD(wrapped.parameters(), lr=SIZE),
        noise_multiplier=sigma,
        max_grad_norm=CLIP,
        expected_batch_size=DIVISOR,
    )
    ours = iter(())
    monkeypatch.setattr(
        "opacus.optimizers.optimizer._generate_noise", lambda std, reference, **_: next(ours).view_as(reference)
    )
    for step, rows in enumerate(batches[0, 0]):
        rows = rows[rows >= 0]
        ours = iter(problem.layout.split(noise[0, 0, step]))
        optimizer.zero_grad()
        if len(rows):
            cross_entropy(wrapped(problem.inputs[rows]), problem.targets[rows]).backward()
        else:  # as Opacus's own loaders do: a batch of no rows
            for parameter in wrapped.parameters():
                parameter.grad_sample = parameter.new_zeros(0, *parameter.shape)
        optimizer.step()
    end = torch.nn.utils.parameters_to_vector(wrapped.parameters()).detach()
    expected = vector - end
    assert expected.abs().max() > 1e-4
    assert (found - expected).abs().max() <= 2e-5 * expected.abs().max()


@pytest.mark.parametrize("kind", KINDS)
def test_masked_steps_are_those_of_the_rows_that_count(kind):
    """Clipped samples do not know each other, so in one step a part does what leaving it in does."""
    problem, batches = make_task("mlp"), make_batches(1, places=2, steps=1)
    steps = replace(steps_of(kind, problem, batches), divisor=DIVISOR)
    every, own = range(len(problem.inputs)), Reference()
    drawn = batches[batches >= 0].tolist()
    part, kept = {drawn[0]}, {*every} - {drawn[0]}
    vectors = make_vectors(problem, 1)
    whole = own.advance(problem, vectors, batches, steps).updates
    two = batches.repeat(2, 1, 1, 1)
    both = replace(steps, noise=None if steps.noise is None else steps.noise.repeat(2, 1, 1, 1))
    apart = OwnSteps(own, kept, [part]).advance(problem, vectors.repeat(2, 1), two, both).updates
    assert (apart[1] - whole[0]).abs().max() <= 1e-12
    masked = Masked(own, [kept]).advance(problem, vectors, batches, steps).updates
    assert (masked[0] - apart[0]).abs().max() <= 1e-12
    taken_out = own.advance(problem, vectors, batches.masked_fill(batches == drawn[0], -1), steps).updates
    assert (taken_out[0] - apart[0]).abs().max() <= 1e-12
