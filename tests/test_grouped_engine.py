"""The grouped engine: one call for the convolutions of several participations, each of which computes as if alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest
import torch
from test_engines import (
    CLASSES,
    MODELS,
    ROWS,
    SHAPE,
    STEP,
    TERMS,
    TOLERANCE,
    gap,
    make_batches,
    make_steps,
    make_task,
    make_vectors,
    train,
)
from tests_support import config
from torch import Tensor, nn
from torch.nn.utils import prune
from torch.nn.utils.parametrizations import weight_norm

from fuaudit import train as train_run
from fuaudit import unlearn, verify
from fuaudit.config import RunOptions
from fuaudit.data.dataset import Dataset
from fuaudit.errors import UsageError
from fuaudit.models.convolutional import Cnn, LeNet5, MimicCnn, Vgg11
from fuaudit.models.layout import Layout, linear_stack
from fuaudit.plans import Request
from fuaudit.training.engines import ENGINES, ClientProblem, engine, suggested
from fuaudit.training.engines.grouped import Grouped, grouped_gradients, unsuited
from fuaudit.training.engines.reference import Reference
from fuaudit.training.engines.threads import Threads
from fuaudit.training.solvers import Steps
from fuaudit.verification.finding import Verdict

NAN = float("nan")


def strided() -> nn.Module:
    """Without biases, with strides and borders, in a height that is not the width."""
    return nn.Sequential(
        nn.Conv2d(1, 3, (3, 5), stride=(1, 2), padding=(1, 2), bias=False),
        nn.ReLU(inplace=True),
        nn.Conv2d(3, 4, 3, padding="same"),
        nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True),
        nn.Flatten(),
        nn.Linear(4 * 9 * 5, 5, bias=False),
        nn.ReLU(),
        nn.Linear(5, CLASSES),
    )


def bordered() -> nn.Module:
    """As LeNet-5, with narrower layers."""
    images = (nn.Conv2d(1, 3, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 4, 5, padding=2), nn.ReLU())
    return nn.Sequential(*images, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 7), nn.ReLU(), nn.Linear(7, CLASSES))


def of_one_relu() -> nn.Module:
    """Layers without parameters may stand in several places."""
    relu, pool = nn.ReLU(), nn.MaxPool2d(3, stride=1, padding=1)
    images = (nn.Conv2d(1, 3, 3), relu, pool, nn.Conv2d(3, 2, 3), relu, pool)
    return nn.Sequential(*images, nn.Flatten(), nn.Linear(288, 5), relu, nn.Linear(5, CLASSES))


CONVOLUTIONS: dict[str, Callable[[], nn.Module]] = {
    "cnn": MODELS["cnn"],
    "bordered": bordered,
    "one ReLU, one pooling": of_one_relu,
    "strided": strided,
    "one layer": lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(392, CLASSES)),
}
every_convolution = pytest.mark.parametrize("model", CONVOLUTIONS)


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ClientProblem]:
    def made(model: str, dtype: torch.dtype = torch.float64) -> ClientProblem:
        monkeypatch.setitem(MODELS, model, CONVOLUTIONS[model])
        return make_task(model, dtype)

    return made


Task = Callable[..., ClientProblem]


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("stack_size", [None, 1, 2, 3, 7, 32])
@every_convolution
def test_it_agrees_with_the_reference(task: Task, model: str, stack_size: int | None, ragged: bool) -> None:
    assert gap(Grouped(1, stack_size), Reference(), task(model), make_batches(3, ragged=ragged)) <= TOLERANCE


@every_convolution
def test_it_agrees_in_single_precision_over_a_short_horizon(task: Task, model: str) -> None:
    assert gap(Grouped(2), Reference(), task(model, torch.float32), make_batches(3)) <= 1e-5


@pytest.mark.parametrize("term", TERMS)
@every_convolution
def test_it_agrees_on_every_term_of_a_step(task: Task, model: str, term: str) -> None:
    problem, batches = task(model), make_batches(3)
    assert gap(Grouped(2), Reference(), problem, batches, make_steps(problem, batches, term)) <= TOLERANCE


@pytest.mark.parametrize("noisy", [False, True])
@every_convolution
def test_it_agrees_where_samples_are_clipped(task: Task, model: str, noisy: bool) -> None:
    problem, batches = task(model), make_batches(2)
    draws = np.random.Generator(np.random.Philox(17))
    noise = torch.from_numpy(draws.random((*batches.shape[:3], problem.layout.dimension)) - 0.5)
    steps = Steps(0.2, clip=0.3, divisor=4, noise=noise if noisy else None)
    assert gap(Grouped(1), Reference(), problem, batches, steps) <= 1e-10


def test_images_of_several_channels_stay_those_of_their_participation() -> None:
    draws = torch.Generator().manual_seed(3)
    module = Cnn((4, 5), 8).build((3, 18, 16), CLASSES).double()
    inputs = torch.rand(ROWS, 3, 18, 16, generator=draws, dtype=torch.float64)
    problem = ClientProblem(module, Layout.of(module), inputs, torch.randint(CLASSES, (ROWS,), generator=draws))
    assert gap(Grouped(1), Reference(), problem, make_batches(3)) <= TOLERANCE


# --- what is computed beside it -----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["small", "cnn of MNIST"])
def together(request: pytest.FixtureRequest) -> tuple[ClientProblem, Tensor, Tensor, Tensor]:
    """Twelve runs in single precision, ragged, and what two rounds make of them at once."""
    shape, recipe = (SHAPE, Cnn((4, 5), 8)) if request.param == "small" else ((1, 28, 28), Cnn())
    draws = torch.Generator().manual_seed(5)
    module, inputs = recipe.build(shape, CLASSES), torch.rand(ROWS, *shape, generator=draws)
    problem = ClientProblem(module, Layout.of(module), inputs, torch.randint(CLASSES, (ROWS,), generator=draws))
    vectors, batches = make_vectors(problem, 12), make_batches(12, places=3)
    return problem, vectors, batches, train(Grouped(1), problem, vectors, batches)


Together = tuple[ClientProblem, Tensor, Tensor, Tensor]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_bits_do_not_depend_on_the_grouping(together: Together, size: int) -> None:
    problem, vectors, batches, expected = together
    pieces = zip(vectors.split(size), batches.split(size), strict=True)
    assert torch.equal(torch.cat([train(Grouped(1), problem, v, b) for v, b in pieces]), expected)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_bits_do_not_depend_on_order_and_workers(together: Together, workers: int) -> None:
    problem, vectors, batches, expected = together
    order = torch.from_numpy(np.random.Generator(np.random.Philox(3)).permutation(len(vectors)))
    assert torch.equal(train(Grouped(workers), problem, vectors[order], batches[order]), expected[order])
    updates = Grouped(workers).advance(problem, vectors, batches, STEP).updates
    assert torch.equal(Grouped(workers).advance(problem, vectors, batches.flip(1), STEP).updates, updates.flip(1))


def test_bits_do_not_depend_on_those_who_take_no_step(together: Together) -> None:
    problem, vectors, batches, _ = together
    expected = Grouped(1).advance(problem, vectors, batches, STEP).updates
    empty = torch.full_like(batches[:, :1], -1)
    among = torch.cat([empty, batches[:, :1], empty, empty, batches[:, 1:]], dim=1)
    found = Grouped(1).advance(problem, vectors, among, STEP).updates
    assert torch.equal(found[:, [1, 4, 5]], expected)
    assert not found[:, [0, 2, 3]].any()


@pytest.mark.parametrize("stack_size", [2, 3, 4, 8])
@pytest.mark.parametrize("place", range(4))
def test_what_is_not_a_number_stays_in_its_participation(together: Together, place: int, stack_size: int) -> None:
    """One participation reads an erased row: its model is NaN, and those beside it have the bits they had."""
    problem, vectors, batches, _ = together
    given = vectors[:4], batches[:4, :1].clamp(min=10)
    expected = Grouped(1, stack_size).advance(problem, *given, STEP).updates
    erased = replace(problem, inputs=problem.inputs.clone())
    erased.inputs[0] = NAN
    reading = given[1].clone()
    reading[place, 0, -1, 0] = 0  # in the last step: what comes before it was right
    found = Grouped(1, stack_size).advance(erased, given[0], reading, STEP).updates
    others = [at for at in range(4) if at != place]
    assert not found[place].isfinite().all()
    assert torch.equal(found[others], expected[others])


# --- what is not computed -----------------------------------------------------------------------------------------


def test_rows_outside_the_batches_are_not_read(task: Task) -> None:
    problem, batches = task("cnn", torch.float32), make_batches(3)
    vectors = make_vectors(problem, 3)
    expected = Grouped(1).advance(problem, vectors, batches, STEP).updates
    problem.inputs[:10] = NAN
    assert torch.equal(Grouped(1).advance(problem, vectors, batches, STEP).updates, expected)


def test_it_computes_where_gradients_are_off(task: Task) -> None:
    problem, batches = task("cnn", torch.float32), make_batches(3)
    expected = Grouped(1).advance(problem, make_vectors(problem, 3), batches, STEP).updates
    with torch.no_grad():
        assert torch.equal(Grouped(1).advance(problem, make_vectors(problem, 3), batches, STEP).updates, expected)


@pytest.mark.parametrize("carried", [False, True])
def test_who_takes_no_step_keeps_model_and_velocity(task: Task, carried: bool) -> None:
    problem, batches = task("cnn", torch.float32), make_batches(3)
    batches[1] = -1
    velocity = torch.full((*batches.shape[:2], problem.layout.dimension), 0.3) if carried else None
    vectors = make_vectors(problem, 3)
    vectors[1] = NAN  # the difference of what is no number is none either
    for given in (batches, torch.full_like(batches, -1), batches[..., :0]):
        steps = Steps(0.2, momentum=0.9, velocity=velocity)
        found, expected = (maker.advance(problem, vectors, given, steps) for maker in (Grouped(1), Reference()))
        idle = ~(given >= 0).flatten(2).any(dim=2)
        assert idle[1].all()
        assert torch.equal(found.velocity[idle], expected.velocity[idle])
        assert torch.equal(found.updates[idle].nan_to_num(7), expected.updates[idle].nan_to_num(7))


def test_a_step_between_others_that_nobody_takes_is_none(task: Task) -> None:
    problem, steps = task("cnn", torch.float32), make_batches(2, ragged=False)
    vectors = make_vectors(problem, 2)
    padded = torch.cat([steps[:, :, :1], torch.full_like(steps[:, :, :1], -1), steps[:, :, 1:]], dim=2)
    found, expected = (Grouped(1).advance(problem, vectors, given, STEP).updates for given in (padded, steps))
    assert torch.equal(found, expected)


# --- which models -------------------------------------------------------------------------------------------------


def changed(change: Callable[[nn.Module], object]) -> nn.Module:
    module = Cnn((4, 5), 8).build(SHAPE, CLASSES)
    change(module)
    return module


class Halved(nn.Conv2d):
    """A layer that computes something else than its base class."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) / 2


class Doubled(nn.Parameter):
    """Any class of parameters may compute something else."""


class Negated(nn.Sequential):
    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = super().forward(inputs)
        return -logits


def shared() -> nn.Module:
    twice = nn.Conv2d(1, 1, 3, padding=1)
    return nn.Sequential(twice, twice, nn.Flatten(), nn.Linear(256, CLASSES))


def of_one_weight() -> nn.Module:
    first, second = nn.Conv2d(1, 1, 3, padding=1), nn.Conv2d(1, 1, 3, padding=1)
    second.weight = first.weight
    return nn.Sequential(first, second, nn.Flatten(), nn.Linear(256, CLASSES))


def turned_round() -> nn.Module:
    module = Cnn((4, 5), 8).build(SHAPE, CLASSES)
    weight = module[0].weight
    del module[0].weight
    module[0].register_parameter("weight", weight)
    return module


def without_a_parameter(module: nn.Module) -> None:
    bias = module[0].bias.detach()
    del module[0].bias
    module[0].bias = bias


def ending(numbers: int, *layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(numbers, CLASSES))


LOOK_ALIKES: dict[str, Callable[[], nn.Module]] = {
    "a subclass of Sequential": lambda: Negated(*Cnn((4, 5), 8).build(SHAPE, CLASSES)),
    "a subclass of Conv2d": lambda: ending(392, Halved(1, 2, 3)),
    "one layer twice": shared,
    "one weight twice": of_one_weight,
    "a hook": lambda: changed(lambda m: m[0].register_forward_hook(lambda layer, read, out: out / 2)),
    "a hook on the way back": lambda: changed(lambda m: m[0].register_full_backward_hook(lambda *given: None)),
    "a hook before the way back": lambda: changed(lambda m: m[0].register_full_backward_pre_hook(lambda *given: None)),
    "a border of one number": lambda: ending(512, nn.Conv2d(1, 2, 3, padding=(1,))),
    "a hook before": lambda: changed(lambda m: m.register_forward_pre_hook(lambda layer, read: (read[0] / 2,))),
    "a forward of its own": lambda: changed(lambda m: setattr(m[1], "forward", torch.tanh)),
    "a product of its own": lambda: changed(lambda m: setattr(m[0], "_conv_forward", lambda x, w, b: x)),
    "a bias before the weight": turned_round,
    "one parameter more": lambda: changed(lambda m: m[0].register_parameter("scale", nn.Parameter(torch.ones(1)))),
    "a bias that is none": lambda: changed(without_a_parameter),
    "a bias that hides one": lambda: changed(lambda m: vars(m[0]).update(bias=torch.zeros(4))),
    "parameters in one memory": lambda: changed(lambda m: setattr(m[9], "bias", nn.Parameter(m[7].bias.data[:4]))),
    "parameters of another class": lambda: changed(lambda m: setattr(m[0], "bias", Doubled(m[0].bias.data))),
    "a call of its own": lambda: changed(lambda m: setattr(m[1], "_call_impl", torch.tanh)),
    "a compiled call": lambda: changed(lambda m: setattr(m[1], "_compiled_call_impl", torch.tanh)),
    "pruned": lambda: changed(lambda m: prune.l1_unstructured(m[0], "weight", amount=2)),
    "parametrised": lambda: changed(lambda m: weight_norm(m[0])),
    "another activation": lambda: ending(392, nn.Conv2d(1, 2, 3), nn.Tanh()),
    "groups": lambda: ending(288, nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3, groups=2)),
    "holes": lambda: ending(288, nn.Conv2d(1, 2, 3, dilation=2)),
    "a pooling with holes": lambda: ending(288, nn.Conv2d(1, 2, 3), nn.MaxPool2d(2, stride=1, dilation=2)),
    "borders wider than half a window": lambda: ending(648, nn.Conv2d(1, 2, 3, padding=2)),
    "mirrored borders": lambda: ending(512, nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect")),
    "indices of the largest": lambda: ending(98, nn.Conv2d(1, 2, 3), nn.MaxPool2d(2, return_indices=True)),
    "another end of Flatten": lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(2), nn.Linear(196, CLASSES)),
    "no convolution": lambda: nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, CLASSES)),
    "nothing": nn.Sequential,
    "no Sequential": lambda: nn.Conv2d(1, 2, 3),
}


@pytest.mark.parametrize("look_alike", LOOK_ALIKES)
def test_what_only_looks_like_convolutions_in_a_line_is_refused(look_alike: str) -> None:
    module = LOOK_ALIKES[look_alike]()
    with pytest.raises(UsageError, match="the engine grouped cannot compute this model: ") as error:
        grouped_gradients(module)
    assert (reason := unsuited(module))
    assert reason in str(error.value)
    assert 'engine = "threads"' in error.value.hint
    assert suggested(module, torch.device("cpu"), torch.float32, many=True) == "threads"


def test_hooks_of_all_modules_are_hooks_of_each() -> None:
    module = CONVOLUTIONS["cnn"]()
    handle = nn.modules.module.register_module_forward_hook(lambda layer, read, out: out / 2)
    try:
        assert unsuited(module)
        assert linear_stack(MODELS["mlp"]()) is None
    finally:
        handle.remove()
    assert unsuited(module) is None


def test_layers_that_were_pruned_have_their_parameters_in_another_order() -> None:
    """What is left of a pruning is a plain layer with its bias first: torch counts parameters as they came."""
    module, linear = CONVOLUTIONS["cnn"](), MODELS["mlp"]()
    prune.remove(prune.l1_unstructured(module[0], "weight", amount=2), "weight")
    prune.remove(prune.l1_unstructured(linear[1], "weight", amount=2), "weight")
    assert unsuited(module)
    assert linear_stack(linear) is None


def test_the_reason_is_that_of_the_model() -> None:
    own = nn.Module()
    reasons = {
        "it is a Module, not a Sequential": own,
        "layer 1 is AvgPool2d(kernel_size=2, stride=2, padding=0)": ending(98, nn.Conv2d(1, 2, 3), nn.AvgPool2d(2)),
        "layer 1 is Conv2d(2, 2, kernel_size=(3, 3), stride=(1, 1), groups=2)": LOOK_ALIKES["groups"](),
        "layer 0 is Sequential(": nn.Sequential(nn.Sequential(nn.Conv2d(1, 2, 3)), nn.Flatten(), nn.Linear(392, 4)),
        "it has no Conv2d": LOOK_ALIKES["no convolution"](),
        "it has no Flatten()": nn.Sequential(nn.Conv2d(1, 2, 3)),
        "a layer of it has a hook": LOOK_ALIKES["a hook"](),
    }
    for reason, module in reasons.items():
        assert (unsuited(module) or "").startswith(reason)


def test_a_config_can_name_every_engine() -> None:
    named = set(get_args(get_type_hints(RunOptions)["engine"]))
    assert named == {"auto", *ENGINES}


def test_models_that_it_knows() -> None:
    alone = nn.Sequential(nn.Conv2d(1, CLASSES, 16), nn.Flatten())
    plain = ending(392, nn.Conv2d(1, 2, 3)), ending(98, nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2)), alone
    for module in (*(make() for make in CONVOLUTIONS.values()), *plain):
        assert unsuited(module) is unsuited(copy.deepcopy(module)) is None


def test_a_config_with_another_model_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    tables = config(run={"engine": "grouped"}, solver={"use": "sgd", "momentum": 0.9})
    for model in ("linear", "mlp"):
        with pytest.raises(UsageError, match="grouped cannot compute this model: it has no Conv2d"):
            train_run(tables | {"model": {"use": model}}, tmp_path / "run", secret=bytes(32))
    assert not list(tmp_path.iterdir())
    with pytest.raises(UsageError, match="grouped"):
        Grouped(1).advance(make_task("mlp"), make_vectors(make_task("mlp"), 3), make_batches(3), STEP)


def test_where_it_is_suggested() -> None:
    cpu, single = torch.device("cpu"), torch.float32
    small = [Cnn().build((1, 28, 28), 10), LeNet5().build((1, 28, 28), 10), MimicCnn().build((1, 28, 28), 10)]
    assert [suggested(module, cpu, single, many=True) for module in small] == ["grouped"] * 3
    assert [suggested(module, cpu, single, many=False) for module in small] == ["threads"] * 3
    assert suggested(small[0], cpu, torch.float64, many=True) == "threads"
    assert suggested(small[0], torch.device("cuda"), single, many=True) == "batched"
    assert suggested(Vgg11(32, 0).build((3, 32, 32), 10), cpu, single, many=True) == "threads"
    assert engine("grouped", 3) == Grouped(3)


def test_larger_models_go_in_smaller_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three participations are two chunks of two, and one of four."""
    problem, found = make_task("cnn"), list[int]()
    vectors, batches = make_vectors(problem, 1), make_batches(1, ragged=False)
    for limit in (100_000, 1):
        monkeypatch.setattr("fuaudit.training.engines.grouped.FOUR_UP_TO", limit)
        maker = Grouped(1)
        maker.advance(problem, vectors, batches, STEP)
        found.append(len(maker._stacked._idle[0]._kept["parameter 0.weight"]))
        assert gap(maker, Reference(), problem, batches) <= TOLERANCE
    assert found == [4, 2]


@pytest.mark.parametrize("workers", [1, 4])
def test_one_engine_serves_all_shapes(task: Task, workers: int) -> None:
    """What it keeps from round to round is memory alone."""
    kept = Grouped(workers)
    for model, dtype, slots in [("cnn", torch.float32, 5), ("bordered", torch.float64, 4), ("cnn", torch.float32, 4),
                                ("cnn", torch.float64, 5), ("cnn", torch.float32, 5)]:  # fmt: skip
        problem, batches = task(model, dtype), make_batches(6, slots=slots)
        vectors = make_vectors(problem, 6)
        found, new = (maker.advance(problem, vectors, batches, STEP).updates for maker in (kept, Grouped(workers)))
        assert torch.equal(found, new)


def test_the_model_of_the_run_is_read_and_left_as_it_is(task: Task) -> None:
    problem = task("cnn", torch.float32)
    before = [parameter.detach().clone() for parameter in problem.module.parameters()]
    Grouped(2).advance(problem, make_vectors(problem, 3), make_batches(3), STEP)
    assert all(map(torch.equal, before, problem.module.parameters()))
    assert all(parameter.grad is None for parameter in problem.module.parameters())
    assert gap(Threads(2), Reference(), problem, make_batches(3)) == 0


def images(rows: int) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(rows)
    return torch.rand(rows, 1, 12, 12, generator=draws), torch.arange(rows) % 3


@pytest.mark.parametrize(("method", "verdict"), [("fats", Verdict.PASS), ("noop", Verdict.FAIL)])
def test_a_run_of_this_engine_is_audited_as_others_are(method: str, verdict: Verdict, tmp_path: Path) -> None:
    rows = Dataset(*images(120), *images(9), 3)
    learner = {"use": "fats", "rounds": 3, "cohort": 3, "steps": 2, "batch": 4, "step_size": 0.1}
    model = {"use": "cnn", "channels": [3], "hidden": 4}
    tables = config(model=model, learner=learner, run={"engine": "grouped"})
    parent = train_run(tables, tmp_path / "run", data=rows, secret=bytes(32))
    client = next(client for client in parent.members if client in parent.plan.cohort(2))
    child = unlearn(parent, method, Request.of(clients=[client]), tmp_path / "child", data=rows)
    assert child.info["engine"] == "grouped"
    found = verify(child, key=bytes(32), data=rows, budget=0, save=False).findings
    verdicts = {finding.audit: finding.verdict for finding in found}
    assert verdicts["replay"] == verdict
    assert verdicts["stress"] == verdict
