"""Engines: all replay one plan to one result, whatever is computed beside it, and read nothing else."""

from __future__ import annotations

import copy
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fuaudit.data.dataset import Dataset
from fuaudit.draws import Keyed
from fuaudit.errors import UsageError
from fuaudit.models.convolutional import Cnn
from fuaudit.models.dense import Linear, Mlp
from fuaudit.models.layout import Layout, linear_stack
from fuaudit.plans import Plan, Population, UniformLaw
from fuaudit.plans.stacked import expand_many
from fuaudit.training.engines import ClientProblem, Engine, batched, engine, suggested
from fuaudit.training.engines.batched import Batched, suitable_stack_size
from fuaudit.training.engines.compiled import Compiled
from fuaudit.training.engines.reference import Reference
from fuaudit.training.engines.threads import Threads
from fuaudit.training.exchange import Exchange
from fuaudit.training.execute import Procedure, StepSizes, client_problem, execute, initial_state
from fuaudit.training.solvers import Outcome, Steps
from fuaudit.training.stages import Chain, SizeWeighted

SHAPE, CLASSES, ROWS, STEP = (1, 16, 16), 4, 60, Steps(0.2)
CPU = torch.device("cpu")
TOLERANCE = 1e-12


def convolutional() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 3, 3, stride=2), nn.Tanh(), nn.Flatten(), nn.Linear(147, CLASSES))


def without_bias() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(256, 6, bias=False), nn.ReLU(), nn.Linear(6, CLASSES))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: Linear().build(SHAPE, CLASSES),
    "mlp": lambda: Mlp((32,)).build(SHAPE, CLASSES),
    "deep mlp": lambda: Mlp((9, 7)).build(SHAPE, CLASSES),
    "cnn": lambda: Cnn((4, 5), 8).build(SHAPE, CLASSES),
    "other convolution": convolutional,
    "without bias": without_bias,
}
every_model = pytest.mark.parametrize("model", MODELS)
both_paths = pytest.mark.parametrize("model", ["mlp", "cnn"])


def make_task(model: str, dtype: torch.dtype = torch.float64) -> ClientProblem:
    draws = torch.Generator().manual_seed(5)
    module = MODELS[model]().to(dtype)
    inputs = torch.rand(ROWS, *SHAPE, generator=draws, dtype=torch.float64).to(dtype)
    return ClientProblem(module, Layout.of(module), inputs, torch.randint(CLASSES, (ROWS,), generator=draws))


def make_vectors(problem: ClientProblem, runs: int) -> Tensor:
    uniform = np.random.Generator(np.random.Philox(7)).random((runs, problem.layout.dimension))
    return problem.layout.initial(uniform, problem.inputs.dtype)


def make_batches(runs: int, places: int = 3, steps: int = 3, slots: int = 5, ragged: bool = True) -> Tensor:
    """Batches from rows 10 on; ragged ones have 0 to all slots used, and one participation none at all."""
    draws = np.random.Generator(np.random.Philox(11))
    result = np.full((runs, places, steps, slots), -1, dtype=np.int64)
    for at in np.ndindex(runs, places, steps):
        count = int(draws.integers(slots + 1)) if ragged else slots
        result[at][:count] = 10 + draws.permutation(ROWS - 10)[:count]
    if ragged:
        result[0, 0] = -1
    return torch.from_numpy(result)


def gap(one: Engine, other: Engine, problem: ClientProblem, batches: Tensor, steps: Steps = STEP) -> float:
    """The largest difference between the outcomes of two engines; NaN counts as infinite."""
    vectors = make_vectors(problem, len(batches))
    left, right = (maker.advance(problem, vectors, batches, steps) for maker in (one, other))
    pairs = [(left.updates, right.updates)]
    if steps.momentum:
        assert left.velocity is not None
        assert right.velocity is not None
        pairs.append((left.velocity, right.velocity))
    return max(float((a - b).abs().nan_to_num(nan=torch.inf).max()) for a, b in pairs)


def train(maker: Engine, problem: ClientProblem, vectors: Tensor, batches: Tensor) -> Tensor:
    """Two rounds over the same batches, with a plain mean."""
    for _ in range(2):
        updates = maker.advance(problem, vectors, batches, STEP).updates
        vectors = vectors - updates.sum(dim=1) / updates.shape[1]
    return vectors


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@every_model
def test_threads_have_the_bits_of_the_reference(model: str, dtype: torch.dtype, ragged: bool) -> None:
    problem, batches = make_task(model, dtype), make_batches(3, ragged=ragged)
    assert gap(Threads(2), Reference(), problem, batches) == 0


@pytest.mark.parametrize("ragged", [False, True])
@every_model
def test_batched_agrees_with_the_reference(model: str, ragged: bool) -> None:
    problem, batches = make_task(model), make_batches(3, ragged=ragged)
    assert gap(Batched(1, stack_size=6), Reference(), problem, batches) <= TOLERANCE


@both_paths
def test_batched_agrees_in_single_precision_over_a_short_horizon(model: str) -> None:
    assert gap(Batched(1, stack_size=6), Reference(), make_task(model, torch.float32), make_batches(3)) <= 1e-5


TERMS = ["proximal", "drift", "momentum", "carried momentum", "everything", "divisor", "all divided"]
every_term = pytest.mark.parametrize("term", TERMS)


def make_steps(problem: ClientProblem, batches: Tensor, term: str) -> Steps:
    """Steps with one term, or all of them; rows of drift and velocity differ from participation to participation."""
    draws = np.random.Generator(np.random.Philox(13))
    rows = draws.random((2, *batches.shape[:2], problem.layout.dimension)) - 0.5
    drift, velocity = torch.from_numpy(rows).to(problem.inputs.dtype)
    return {
        "proximal": Steps(0.2, proximal=0.7),
        "drift": Steps(0.2, drift=drift),
        "momentum": Steps(0.2, momentum=0.9),
        "carried momentum": Steps(0.2, momentum=0.9, dampening=0.9, velocity=velocity),
        "everything": Steps(0.2, 0.7, drift, 0.9, 0.3, velocity),
        "divisor": Steps(0.2, divisor=3),
        "all divided": Steps(0.2, 0.7, drift, 0.9, 0.3, velocity, divisor=3),
    }[term]


@every_term
@both_paths
def test_engines_agree_on_every_term_of_a_step(model: str, term: str) -> None:
    problem, batches = make_task(model), make_batches(3)
    steps = make_steps(problem, batches, term)
    assert gap(Threads(2), Reference(), problem, batches, steps) == 0
    assert gap(Batched(1, stack_size=6), Reference(), problem, batches, steps) <= TOLERANCE
    assert gap(Batched(2, stack_size=7), Reference(), problem, batches, steps) <= TOLERANCE
    alone = {"everything": replace(steps, drift=None), "all divided": replace(steps, divisor=0)}.get(term, Steps(0.2))
    assert gap(Batched(1, stack_size=6), Batched(1, stack_size=6), problem, batches, alone) == 0
    updates = [Reference().advance(problem, make_vectors(problem, 3), batches, s).updates for s in (steps, alone)]
    assert (updates[0] - updates[1]).abs().max() > 1e-3  # the term does something


def test_a_divisor_takes_the_place_of_the_length_of_a_batch() -> None:
    """A step on a ragged batch is that of the mean, times its length over the divisor; an empty one is none."""
    problem, batches = make_task("mlp"), make_batches(1, places=4, steps=1)
    lengths = (batches >= 0).sum(dim=-1).to(torch.float64)
    assert len(lengths.unique()) > 1
    vectors = make_vectors(problem, 1)
    for engine_ in (Reference(), Threads(2), Batched(1, stack_size=6)):
        mean, divided = (engine_.advance(problem, vectors, batches, Steps(0.2, divisor=d)).updates for d in (0, 5))
        assert (divided - mean * lengths / 5).abs().max() <= TOLERANCE


def test_momentum_is_that_of_torch() -> None:
    problem, batches = make_task("mlp"), make_batches(1, places=1, steps=5, ragged=False)
    (vector,) = make_vectors(problem, 1)
    module = copy.deepcopy(problem.module)
    torch.nn.utils.vector_to_parameters(vector.clone(), module.parameters())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.2, momentum=0.9)
    for rows in batches[0, 0]:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(problem.inputs[rows]), problem.targets[rows]).backward()
        optimizer.step()
    end = torch.nn.utils.parameters_to_vector(module.parameters()).detach()
    found = Reference().advance(problem, vector[None], batches, Steps(0.2, momentum=0.9)).updates[0, 0]
    assert (vector - end - found).abs().max() <= TOLERANCE


def test_the_proximal_term_is_the_gradient_of_half_a_squared_distance() -> None:
    problem, batches = make_task("mlp"), make_batches(1, places=1, steps=4, ragged=False)
    (vector,) = make_vectors(problem, 1)
    point = vector.clone()
    for rows in batches[0, 0]:
        leaf = point.clone().requires_grad_()
        named = dict(zip(problem.layout.names, problem.layout.split(leaf), strict=True))
        logits = torch.func.functional_call(problem.module, named, (problem.inputs[rows],))
        loss = torch.nn.functional.cross_entropy(logits, problem.targets[rows])
        (loss + 0.7 / 2 * (leaf - vector).square().sum()).backward()
        assert leaf.grad is not None
        point = point - 0.2 * leaf.grad
    found = Reference().advance(problem, vector[None], batches, Steps(0.2, proximal=0.7)).updates[0, 0]
    assert (vector - point - found).abs().max() <= TOLERANCE


@pytest.mark.parametrize("maker", [Reference(), Threads(2), Batched(1)])
@both_paths
def test_terms_of_zero_leave_the_bits(model: str, maker: Engine) -> None:
    problem, batches = make_task(model, torch.float32), make_batches(2)
    vectors = make_vectors(problem, 2)
    zero = torch.zeros(*batches.shape[:2], problem.layout.dimension)
    plain, drifting = (maker.advance(problem, vectors, batches, steps) for steps in (STEP, Steps(0.2, drift=zero)))
    assert torch.equal(plain.updates, drifting.updates)


def test_which_models_have_a_step_by_hand() -> None:
    by_hand = [model for model, build in MODELS.items() if linear_stack(build())]
    assert by_hand == ["linear", "mlp", "deep mlp"]


class Halved(nn.Linear):
    """A layer that computes something else than its base class."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) / 2


class Negated(nn.Sequential):
    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = super().forward(inputs)
        return -logits


def tied() -> nn.Module:
    shared = nn.Linear(6, 6)
    return nn.Sequential(nn.Flatten(), nn.Linear(256, 6), nn.ReLU(), shared, nn.ReLU(), shared)


def hooked() -> nn.Module:
    module = Mlp((6,)).build(SHAPE, CLASSES)
    module[1].register_forward_hook(lambda layer, inputs, output: output / 2)  # type: ignore[index, operator, union-attr]
    return module


def patched() -> nn.Module:
    module = Mlp((6,)).build(SHAPE, CLASSES)
    module[2].forward = torch.tanh  # type: ignore[index, assignment, union-attr]
    return module


def over_the_last_axis() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, CLASSES))


LOOK_ALIKES: dict[str, Callable[[], nn.Module]] = {
    "a subclass of Sequential": lambda: Negated(*Mlp((6,)).build(SHAPE, CLASSES)),  # type: ignore[arg-type, misc]
    "a subclass of Linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(256, 6), nn.ReLU(), Halved(6, CLASSES)),
    "tied layers": tied,
    "a forward hook": hooked,
    "a forward of its own": patched,
    "Linear over the last axis": over_the_last_axis,
    "a ReLU at the end": lambda: nn.Sequential(nn.Flatten(), nn.Linear(256, CLASSES), nn.ReLU()),
}


@pytest.mark.parametrize("look_alike", LOOK_ALIKES)
def test_what_only_looks_like_linear_layers_is_computed_as_it_says(
    look_alike: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MODELS, look_alike, LOOK_ALIKES[look_alike])
    problem = make_task(look_alike)
    assert linear_stack(problem.module) is None
    assert gap(Batched(1, stack_size=6), Reference(), problem, make_batches(3)) <= TOLERANCE
    assert gap(Threads(2), Reference(), problem, make_batches(3)) == 0


def test_frozen_parameters_and_hooks_on_gradients_are_refused() -> None:
    frozen, watched = MODELS["mlp"](), MODELS["mlp"]()
    frozen[1].bias.requires_grad_(False)  # type: ignore[index, operator, union-attr]
    watched[3].weight.register_hook(torch.neg)  # type: ignore[index, operator, union-attr]
    with pytest.raises(UsageError) as error:
        Layout.of(frozen)
    assert "1: Linear has a frozen parameter (bias)" in error.value.hint
    with pytest.raises(UsageError) as error:
        Layout.of(watched)
    assert "3: Linear has a hook on a gradient (weight)" in error.value.hint


@pytest.mark.parametrize("stack_size", [1, 3, 7, 256])
@both_paths
def test_a_chunk_may_be_smaller_or_larger_than_the_work(model: str, stack_size: int) -> None:
    assert gap(Batched(1, stack_size=stack_size), Reference(), make_task(model), make_batches(4)) <= TOLERANCE


@both_paths
def test_what_is_gathered_at_once_changes_no_bit(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, batches = make_task(model), make_batches(3, steps=5)
    steps, vectors = make_steps(problem, batches, "everything"), make_vectors(problem, 3)
    for terms in (STEP, steps):
        expected = Batched(1, stack_size=4).advance(problem, vectors, batches, terms).updates
        for limit in (0, 2 * 4 * 5 * 256 * 8):  # one step, two steps at a time
            monkeypatch.setattr(batched, "READ_AT_ONCE", limit)
            found = Batched(1, stack_size=4).advance(problem, vectors, batches, terms).updates
            assert torch.equal(found, expected)
            monkeypatch.undo()


@pytest.mark.thorough
@both_paths
def test_memory_that_is_kept_does_not_grow_with_places_and_steps(model: str) -> None:
    """Thirty places in chunks of four; a thousand steps of four batches of five images would be 41 MB."""
    problem = make_task(model)
    maker = Batched(1, stack_size=4)
    for places, steps in ((4, 2), (30, 2), (1, 1000)):
        batches = make_batches(1, places, steps, ragged=False)
        assert torch.isfinite(maker.advance(problem, make_vectors(problem, 1), batches, STEP).updates).all()
        (buffers,) = maker._idle
        sizes = {name: kept.numel() * kept.element_size() for name, kept in buffers._kept.items()}
        assert sizes["inputs"] <= batched.READ_AT_ONCE
        held = sum(size for name, size in sizes.items() if name.startswith("parameter"))
        assert held == 4 * 8 * problem.layout.dimension


@dataclass(frozen=True)
class CountsUnusedSlots:
    """A wrong engine: it divides the sum of losses by the number of slots, used or not."""

    name: str = "wrong"

    def advance(self, problem: ClientProblem, vectors: Tensor, batches: Tensor, steps: Steps) -> Outcome:
        result = Reference().advance(problem, vectors, batches[:, :, :0], steps).updates
        for at in np.ndindex(*batches.shape[:2]):
            vector = vectors[at[0]]
            for batch in batches[at]:
                share = float((batch >= 0).double().mean())
                less = Steps(steps.size * share)
                one = Reference().advance(problem, vector[None], batch.view(1, 1, 1, -1), less).updates
                vector = vector - one[0, 0]
            result[at] = vectors[at[0]] - vector
        return Outcome(result)


@dataclass(frozen=True)
class ReadsRowZero:
    """A wrong engine: an unused slot becomes row 0."""

    name: str = "wrong"

    def advance(self, problem: ClientProblem, vectors: Tensor, batches: Tensor, steps: Steps) -> Outcome:
        return Reference().advance(problem, vectors, batches.clamp(min=0), steps)


@pytest.mark.parametrize("wrong", [CountsUnusedSlots(), ReadsRowZero()])
@both_paths
def test_the_comparison_catches_wrong_engines(model: str, wrong: Engine) -> None:
    problem = make_task(model)
    assert gap(wrong, Reference(), problem, make_batches(3, ragged=False)) <= TOLERANCE  # wrong on ragged ones only
    assert gap(wrong, Reference(), problem, make_batches(3)) > 1e-4


@pytest.mark.parametrize("maker", [Reference(), Threads(2), Batched(1)])
@both_paths
def test_empty_batches_leave_the_model_exactly_as_it_is(model: str, maker: Engine) -> None:
    problem = make_task(model, torch.float32)
    vectors = make_vectors(problem, 2)
    batches = make_batches(2)
    assert not maker.advance(problem, vectors, batches, STEP).updates[0, 0].any()
    without_slots = maker.advance(problem, vectors, batches[..., :0], STEP).updates
    assert without_slots.shape == (2, 3, problem.layout.dimension)
    assert not without_slots.any()
    # an empty step between others is no step
    steps = make_batches(2, ragged=False)
    padded = torch.cat([steps[:, :, :1], torch.full_like(steps[:, :, :1], -1), steps[:, :, 1:]], dim=2)
    assert torch.equal(
        maker.advance(problem, vectors, padded, STEP).updates, maker.advance(problem, vectors, steps, STEP).updates
    )


@pytest.mark.parametrize("name", ["batched", "grouped"])
def test_unused_places_read_rows_of_their_own_batch_alone(name: str) -> None:
    """They repeat one, wherever they stand; a row of NaN that one participation reads in one step is nobody else's."""
    problem, vectors = make_task("cnn", torch.float32), make_vectors(make_task("cnn", torch.float32), 4)
    batches = make_batches(4, places=2, steps=3, ragged=False)
    batches[..., 3:] = -1
    batches[1::2, :, 1, :2] = -1
    batches[2] = batches[2].flip(2)  # unused places come first
    expected = Reference().advance(problem, vectors, batches, STEP).updates
    found = engine(name, 1).advance(problem, vectors, batches, STEP).updates
    assert (found - expected).abs().max() <= 1e-5
    problem.inputs[ROWS - 1] = problem.inputs[0] = torch.nan  # the largest row of all, and the one of no row
    alone = batches.masked_fill(batches == ROWS - 1, 11)
    reading = alone.clone()
    reading[3, 1, 2, 0] = ROWS - 1  # in the last step
    before, after = (engine(name, 1).advance(problem, vectors, given, STEP).updates for given in (alone, reading))
    assert before.isfinite().all()
    others = torch.ones(4, 2, dtype=torch.bool)
    others[3, 1] = False
    assert torch.equal(after[others], before[others])
    assert not after[3, 1].isfinite().all()


@pytest.mark.parametrize("name", ["batched", "grouped"])
def test_an_empty_batch_with_noise_reads_no_row(name: str) -> None:
    problem, batches = make_task("cnn", torch.float32), torch.full((1, 2, 2, 3), -1)
    batches[0, 1, 1] = torch.tensor([7, -1, 9])
    problem.inputs[0] = torch.nan
    noise = torch.ones(*batches.shape[:3], problem.layout.dimension)
    steps, vectors = Steps(0.1, clip=0.5, divisor=2, noise=noise), make_vectors(problem, 1)
    found, expected = (
        maker.advance(problem, vectors, batches, steps).updates for maker in (engine(name, 1), Reference())
    )
    assert (found - expected).abs().max() <= 1e-5


OVERFLOWING = [*product(("threads", "batched"), ("linear", "mlp", "deep mlp", "cnn")), ("grouped", "cnn")]


@pytest.mark.parametrize(("name", "model"), OVERFLOWING)
@pytest.mark.parametrize("size", [1e18, 1e22, 1e28, 1e30])
def test_models_that_overflow_are_those_of_the_reference(model: str, size: float, name: str) -> None:
    """Empty batches and unused slots read zeros, of which a large model can make infinities; a rate of 0 keeps them."""
    problem, overflows = make_task(model, torch.float32), 0
    batches = torch.full((6, 2, 3, 5), -1)
    batches[:, 0, 0, :2] = torch.arange(12).view(6, 2)  # one step, then none
    batches[:, 1, 1:, 0] = torch.arange(12, 24).view(6, 2)  # none, then two, with one row of five
    batches[0, 1] = torch.arange(24, 39).view(3, 5)
    vectors = make_vectors(problem, 6)
    clipped = Steps(size, clip=1.0, divisor=2)
    draws = np.random.Generator(np.random.Philox(19)).random((*batches.shape[:3], problem.layout.dimension))
    noisy = replace(clipped, noise=torch.from_numpy(draws - 0.5).float())
    # steps on noise alone, after which zeros overflow
    empty = torch.full_like(batches, -1)
    assert engine(name, 1).advance(problem, vectors, empty, noisy).updates.isfinite().all()
    for steps in (Steps(size), Steps(size, momentum=0.5), Steps(size, proximal=0.1), clipped, noisy):
        expected = Reference().advance(problem, vectors, batches, steps).updates
        found = engine(name, 1).advance(problem, vectors, batches, steps).updates
        assert torch.equal(found.isfinite().all(dim=2), expected.isfinite().all(dim=2))
        overflows += int((~expected.isfinite()).any(dim=2).sum())
        if steps is noisy:
            continue  # a step on an empty batch is one
        still = Reference().advance(problem, vectors, batches[:, :, :1], steps).updates[:, 0]
        alone = engine(name, 1).advance(problem, vectors, batches[:, :, :1], steps).updates[:, 0]
        assert torch.equal(found[:, 0], alone)  # the steps that are none leave all bits
        assert torch.equal(expected[:, 0], still)
    assert overflows or size < 1e28


@pytest.mark.parametrize("maker", [Reference(), Threads(2), Batched(1)])
@both_paths
def test_rows_outside_the_batches_are_not_read(model: str, maker: Engine) -> None:
    problem, batches = make_task(model, torch.float32), make_batches(3)
    vectors = make_vectors(problem, 3)
    expected = maker.advance(problem, vectors, batches, STEP).updates
    problem.inputs[:10] = torch.nan
    problem.targets[:10] = 0
    found = maker.advance(problem, vectors, batches, STEP).updates
    assert torch.isfinite(found).all()
    assert torch.equal(found, expected)
    problem.inputs[10:] = torch.nan  # and NaN does show when it is read
    assert not torch.isfinite(maker.advance(problem, vectors, batches, STEP).updates).all()


@pytest.fixture(scope="module", params=["mlp", "cnn"])
def together(request: pytest.FixtureRequest) -> tuple[ClientProblem, Tensor, Tensor, Tensor]:
    """Forty runs in single precision, ragged, and what the batched engine makes of them at once."""
    problem, batches = make_task(request.param, torch.float32), make_batches(40, places=4)
    vectors = make_vectors(problem, 40)
    return problem, vectors, batches, train(Batched(1), problem, vectors, batches)


Together = tuple[ClientProblem, Tensor, Tensor, Tensor]


@pytest.mark.parametrize("size", [1, 3, 8, 32])
def test_bits_do_not_depend_on_the_grouping(together: Together, size: int) -> None:
    problem, vectors, batches, expected = together
    pieces = zip(vectors.split(size), batches.split(size), strict=True)
    assert torch.equal(torch.cat([train(Batched(1), problem, v, b) for v, b in pieces]), expected)


def test_bits_do_not_depend_on_the_order(together: Together) -> None:
    problem, vectors, batches, expected = together
    order = torch.from_numpy(np.random.Generator(np.random.Philox(3)).permutation(len(vectors)))
    assert torch.equal(train(Batched(1), problem, vectors[order], batches[order]), expected[order])
    maker = Batched(1)
    updates = maker.advance(problem, vectors, batches, STEP).updates
    assert torch.equal(maker.advance(problem, vectors, batches.flip(1), STEP).updates, updates.flip(1))


def test_bits_do_not_depend_on_the_cohorts_beside(together: Together) -> None:
    """Three places alone, or among four of which one is empty: no chunk has another shape."""
    problem, vectors, batches, _ = together
    expected = Batched(1).advance(problem, vectors, batches, STEP).updates
    assert torch.equal(Batched(1).advance(problem, vectors, batches[:, :3], STEP).updates, expected[:, :3])


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_bits_do_not_depend_on_the_workers(together: Together, workers: int) -> None:
    problem, vectors, batches, expected = together
    assert torch.equal(train(Batched(workers), problem, vectors, batches), expected)


@both_paths
def test_workers_share_nothing(model: str) -> None:
    """Many small chunks on more threads than processors; a shared module or buffer would mix them up."""
    problem, batches = make_task(model), make_batches(24, places=2)
    vectors = make_vectors(problem, 24)
    pairs: list[tuple[Engine, Engine]] = [
        (Batched(4, stack_size=2), Batched(1, stack_size=2)),
        (Threads(4), Threads(1)),
    ]
    for maker, alone in pairs:
        assert torch.equal(train(maker, problem, vectors, batches), train(alone, problem, vectors, batches))


def test_buffers_keep_nothing_between_calls() -> None:
    """One engine serves tasks of all shapes, as a new one would."""
    kept = Batched(1)
    for model, dtype, slots in [("mlp", torch.float32, 5), ("mlp", torch.float64, 4), ("linear", torch.float64, 4),
                                ("cnn", torch.float32, 4), ("mlp", torch.float32, 5)]:  # fmt: skip
        problem, batches = make_task(model, dtype), make_batches(3, slots=slots)
        assert gap(kept, Batched(1), problem, batches) == 0


@pytest.mark.parametrize("maker", [Reference(), Threads(2), Batched(2)])
def test_neither_arguments_nor_global_random_states_change(maker: Engine) -> None:
    problem, batches = make_task("cnn"), make_batches(3)
    vectors = make_vectors(problem, 3)
    before = vectors.clone(), batches.clone(), problem.inputs.clone()
    states = torch.get_rng_state(), repr(np.random.get_state()), random.getstate()
    updates = maker.advance(problem, vectors, batches, STEP).updates
    vectors[0] += 1
    assert not torch.equal(updates, maker.advance(problem, vectors, batches, STEP).updates)
    vectors[0] -= 1
    assert torch.allclose(vectors, before[0])
    assert torch.equal(batches, before[1])
    assert torch.equal(problem.inputs, before[2])
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1:] == (repr(np.random.get_state()), random.getstate())


def test_whole_runs_agree_over_clients_of_all_sizes() -> None:
    """Through the plan: an empty client, one smaller than a batch, cohorts with repetitions, erased rows."""
    population = Population({0: (), 1: (20, 21), 2: tuple(range(30, 45)), 3: tuple(range(50, 60)), 4: (25,)})
    draws = torch.Generator().manual_seed(2)
    inputs = torch.rand(ROWS, *SHAPE, generator=draws)
    inputs[:20] = torch.nan
    targets = torch.randint(CLASSES, (ROWS,), generator=draws)
    data = Dataset(inputs, targets, inputs[20:], targets[20:], CLASSES)
    plans = [Plan.fresh(UniformLaw(4, 3, 3, 4), population, Keyed(bytes([run]) * 32)) for run in range(3)]
    schedule = expand_many(plans)
    procedure = Procedure(MODELS["mlp"](), Exchange(Chain((SizeWeighted(),))), StepSizes(0.2), dtype=torch.float64)
    start = initial_state(procedure, plans, population, CPU)
    problem = client_problem(procedure, data, population, CPU)

    def final(name: str) -> Tensor:
        return list(execute(procedure, problem, population, schedule, start, engine(name, 2)))[-1][1].vectors

    assert torch.isfinite(final("reference")).all()
    assert torch.equal(final("threads"), final("reference"))
    assert (final("batched") - final("reference")).abs().max() <= TOLERANCE


def test_engines_by_name() -> None:
    assert engine("threads", 3) == Threads(3)
    assert engine("batched", 3) == Batched(3)
    assert engine("compiled", 3) == Compiled(3)
    assert engine("batched").workers >= 1  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="threds") as error:
        engine("threds")
    assert "threads" in str(error.value.hint)


def test_the_suggested_engine() -> None:
    mlp, cnn = MODELS["mlp"](), MODELS["cnn"]()
    assert [suggested(mlp, CPU, torch.float64, many) for many in (False, True)] == ["threads", "batched"]
    assert [suggested(cnn, CPU, torch.float64, many) for many in (False, True)] == ["threads", "threads"]
    assert suggested(cnn, torch.device("cuda"), torch.float64, many=False) == "batched"


def test_chunks_shrink_with_the_model() -> None:
    modules = [Mlp((32,)).build((64,), 10), Mlp((200,)).build((784,), 10), Cnn().build((1, 28, 28), 10)]
    tasks = [ClientProblem(module, Layout.of(module), torch.empty(0), torch.empty(0)) for module in modules]
    assert [suitable_stack_size(problem) for problem in tasks] == [256, 4, 4]


compiling = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "clang++", "c++"))), reason="the engine 'compiled' needs a C++ compiler"
)


@pytest.fixture(scope="module")
def ready() -> tuple[ClientProblem, Compiled]:
    """A convolutional task and one engine for it, so that it is compiled once."""
    return make_task("cnn"), Compiled(2, stack_size=2)


@compiling
def test_compiled_agrees_with_the_reference_on_every_term_of_a_step(ready: tuple[ClientProblem, Compiled]) -> None:
    problem, compiled = ready
    batches = make_batches(3)
    for steps in (STEP, *(make_steps(problem, batches, term) for term in TERMS)):
        assert gap(compiled, Reference(), problem, batches, steps) <= TOLERANCE
    wrong = Steps(STEP.size * 1.001)
    vectors = make_vectors(problem, 3)
    updates = [
        maker.advance(problem, vectors, batches, s).updates for maker, s in ((compiled, wrong), (Reference(), STEP))
    ]
    assert (updates[0] - updates[1]).abs().max() > 1e-6


@compiling
def test_compiled_does_not_see_what_is_computed_beside(ready: tuple[ClientProblem, Compiled]) -> None:
    """Bits stay with other workers, cohorts and company; empty batches are no steps, and other rows not read."""
    problem, compiled = ready
    batches = make_batches(5, places=3)
    vectors = make_vectors(problem, 5)
    expected = compiled.advance(problem, vectors, batches, STEP).updates
    assert not expected[0, 0].any()
    assert torch.equal(Compiled(1, stack_size=2).advance(problem, vectors, batches, STEP).updates, expected)
    for run in range(5):
        found = compiled.advance(problem, vectors[run : run + 1], batches[run : run + 1, :2], STEP).updates
        assert torch.equal(found, expected[run : run + 1, :2])
    erased = replace(problem, inputs=problem.inputs.clone())
    erased.inputs[:10] = torch.nan
    assert torch.equal(compiled.advance(erased, vectors, batches, STEP).updates, expected)
    assert not compiled.advance(problem, vectors, batches[..., :0], STEP).updates.any()


class Undecided(nn.Sequential):
    """A model whose way depends on its input, which nothing can compile as a whole."""

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = super().forward(inputs)
        return logits if float(logits.sum()) > 0 else -logits


def test_a_model_that_cannot_be_compiled_is_refused_with_a_way_out() -> None:
    problem = make_task("cnn")
    unfit = replace(problem, module=Undecided(*problem.module.children()).double())
    with pytest.raises(UsageError, match="compile") as error:
        Compiled(1, stack_size=2).advance(unfit, make_vectors(problem, 1), make_batches(1), STEP)
    assert "threads" in str(error.value.hint)
