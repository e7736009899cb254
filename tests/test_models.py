"""Models: their sizes, their initial values, and that every engine makes the same of them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fuaudit import registry
from fuaudit.data.dataset import Dataset, erased_input, retained_rows, scaling_constants
from fuaudit.data.text import TOKENS
from fuaudit.errors import PluginError, UsageError
from fuaudit.models import Embedding, Layout
from fuaudit.models.layout import linear_stack, require_reading
from fuaudit.plans import Population, Request
from fuaudit.training.engines import ClientProblem
from fuaudit.training.engines.batched import Batched
from fuaudit.training.engines.reference import Reference
from fuaudit.training.engines.threads import Threads
from fuaudit.training.solvers import Steps
from fuaudit.verification.verify import verify
from fuaudit.workflow.train import train
from fuaudit.workflow.unlearn import unlearn

GREY, COLOUR, WINDOW = (1, 28, 28), (3, 32, 32), (80,)
SECRET = b"fuaudit: the key of a model test"
ROWS, STEP, TOLERANCE = 24, Steps(0.1), 1e-10


def build(name, shape, classes, **options):
    """A module whose parameters were filled without leaving a trace in torch's generator."""
    with torch.random.fork_rng(devices=[]):
        return registry.build("models", {"use": name, **options}).build(shape, classes)


def filled(module, dtype=torch.float64):
    """Its layout, and an initial vector (d,)."""
    layout = Layout.of(module)
    return layout, layout.initial(np.random.Generator(np.random.Philox(7)).random(layout.dimension), dtype)


def answer(module, vector, inputs):
    layout = Layout.of(module)
    return torch.func.functional_call(module, dict(zip(layout.names, layout.split(vector), strict=True)), (inputs,))


@pytest.mark.parametrize(
    ("name", "shape", "classes", "options", "parameters"),
    [
        ("linear", (64,), 10, {}, 650),
        ("mlp", (64,), 10, {}, 2_410),
        ("cnn", GREY, 10, {}, 21_840),
        ("lenet-5", GREY, 10, {}, 61_706),
        ("lenet-5", COLOUR, 10, {}, 62_006),
        ("mimic-cnn", GREY, 10, {}, 44_426),
        ("vgg-11", COLOUR, 10, {}, 9_231_114),
        ("vgg-11", COLOUR, 10, {"groups": 0}, 9_225_610),
        ("vgg-16", COLOUR, 10, {}, 14_728_266),
        ("vgg-16", COLOUR, 100, {"groups": 0}, 14_765_988),
        ("resnet-18", COLOUR, 10, {}, 11_173_962),
        ("resnet-18", COLOUR, 100, {}, 11_220_132),
        ("resnet-20", COLOUR, 10, {}, 269_722),
        ("lstm", WINDOW, TOKENS, {}, 824_425),
        ("lstm", WINDOW, 80, {}, 819_920),
    ],
)
def test_parameters_of_full_models(name, shape, classes, options, parameters):
    with torch.device("meta"):
        module = registry.build("models", {"use": name, **options}).build(shape, classes)
    assert Layout.of(module).dimension == parameters
    assert len(Layout.of(module).bounds) == len(Layout.of(module).centres) == len(list(module.parameters()))


SMALL = {
    "lenet-5": ("lenet-5", GREY, {}),
    "mimic-cnn": ("mimic-cnn", GREY, {"channels": [2, 3], "hidden": [5, 4]}),
    "vgg-11": ("vgg-11", COLOUR, {"width": 2, "groups": 1}),
    "vgg-11 without groups": ("vgg-11", COLOUR, {"width": 2, "groups": 0, "hidden": [5]}),
    "vgg-16": ("vgg-16", COLOUR, {"width": 2, "groups": 2}),
    "resnet-18": ("resnet-18", (3, 16, 16), {"width": 4, "groups": 2}),
    "resnet-20": ("resnet-20", (3, 12, 12), {"width": 4, "groups": 2}),
    "lstm": ("lstm", (6,), {"width": 3, "hidden": 5}),
    "deep lstm": ("lstm", (4,), {"width": 3, "hidden": 4, "layers": 3, "tokens": 9}),
}
every_model = pytest.mark.parametrize("model", SMALL)


def problem_of(model, dtype=torch.float64):
    name, shape, options = SMALL[model]
    draws = torch.Generator().manual_seed(5)
    if name == "lstm":
        inputs = torch.randint(4, (ROWS, *shape), generator=draws, dtype=torch.uint8)
    else:
        inputs = torch.rand(ROWS, *shape, generator=draws, dtype=torch.float64).to(dtype)
    module = build(name, shape, 4, **options).to(dtype)
    return ClientProblem(module, Layout.of(module), inputs, torch.randint(4, (ROWS,), generator=draws))


def round_of(problem):
    """Models of two runs and ragged batches for three participations of two steps, one of them empty; rows from 4."""
    uniform = np.random.Generator(np.random.Philox(7)).random((2, problem.layout.dimension))
    draws = np.random.Generator(np.random.Philox(11))
    batches = np.full((2, 3, 2, 3), -1)
    for at in np.ndindex(2, 3, 2):
        count = int(draws.integers(1, 4))
        batches[at][:count] = 4 + draws.permutation(ROWS - 4)[:count]
    batches[0, 0] = -1
    dtype = next(problem.module.parameters()).dtype
    return problem.layout.initial(uniform, dtype), torch.from_numpy(batches)


@every_model
def test_threads_have_the_bits_of_the_reference(model):
    problem = problem_of(model, torch.float32)
    vectors, batches = round_of(problem)
    expected = Reference().advance(problem, vectors, batches, STEP).updates
    assert torch.equal(Threads(2).advance(problem, vectors, batches, STEP).updates, expected)
    assert bool((expected[:, 1:] != 0).any(dim=2).all())
    assert torch.isfinite(expected).all()


@pytest.mark.parametrize("steps", [STEP, Steps(0.1, proximal=0.3, momentum=0.5)], ids=["plain", "with all terms"])
@every_model
def test_batched_agrees_with_the_reference(model, steps):
    problem = problem_of(model)
    vectors, batches = round_of(problem)
    expected = Reference().advance(problem, vectors, batches, steps).updates
    found = Batched(1, stack_size=6).advance(problem, vectors, batches, steps).updates
    assert float((found - expected).abs().max()) <= TOLERANCE


@every_model
def test_engines_agree_on_batches_of_one_sample(model):
    problem = problem_of(model)
    vectors, batches = round_of(problem)
    batches = batches[..., :1].contiguous()
    expected = Reference().advance(problem, vectors, batches, STEP).updates
    assert bool((expected[:, 1:] != 0).any(dim=2).all())
    assert torch.equal(Threads(2).advance(problem, vectors, batches, STEP).updates, expected)
    found = Batched(1, stack_size=4).advance(problem, vectors, batches, STEP).updates
    assert float((found - expected).abs().max()) <= TOLERANCE


@every_model
def test_the_models_of_many_runs_are_measured_at_once(model):
    """Forward alone under vmap, as the parameters audit does it."""
    problem = problem_of(model)
    vectors, _ = round_of(problem)
    together = torch.vmap(lambda vector: answer(problem.module, vector, problem.inputs))(vectors)
    alone = torch.stack([answer(problem.module, vector, problem.inputs) for vector in vectors])
    assert together.shape == (2, ROWS, 4)
    assert float((together - alone).abs().max()) <= TOLERANCE
    assert float(alone.std(dim=1).max()) > 0  # the answer depends on the sample


@every_model
@pytest.mark.parametrize("maker", [Reference(), Threads(2), Batched(1)], ids=["reference", "threads", "batched"])
def test_an_erased_row_shows_when_it_is_read_and_only_then(model, maker):
    problem = problem_of(model, torch.float32)
    vectors, batches = round_of(problem)
    expected = maker.advance(problem, vectors, batches, STEP).updates
    problem.inputs[:4] = erased_input(problem.inputs.dtype)
    assert torch.equal(maker.advance(problem, vectors, batches, STEP).updates, expected)
    batches[1, 2, 0, 0] = 3
    found = maker.advance(problem, vectors, batches, STEP).updates
    assert torch.isnan(found[1, 2]).any()
    assert torch.isnan(found[1, 2, -4:]).all()  # the last biases are part of every answer
    assert torch.isfinite(found[0]).all()


class TestLaws:
    def test_linear_and_convolution_keep_their_bits(self):
        module = build("cnn", GREY, 10)
        uniform = np.random.Generator(np.random.Philox(3)).random((2, 21_840))
        fans = [fan for fan in (25, 250, 320, 50) for _ in range(2)]
        bounds = np.repeat(np.array(fans, dtype=float) ** -0.5, [p.numel() for p in module.parameters()])
        expected = torch.from_numpy((2 * uniform - 1) * bounds).to(torch.float32)
        assert Layout.of(module).initial(uniform, torch.float32).numpy().tobytes() == expected.numpy().tobytes()

    def test_normalisation_starts_as_the_identity(self):
        module = nn.Sequential(nn.GroupNorm(2, 4), nn.LayerNorm(3))
        _, vector = filled(module)
        assert vector.tolist() == [1.0] * 4 + [0.0] * 4 + [1.0] * 3 + [0.0] * 3

    def test_the_bounds_of_recurrent_layers_and_embeddings(self):
        layout = Layout.of(build("lstm", (6,), 4, width=3, hidden=16))
        bounds = dict(zip(layout.names, layout.bounds, strict=True))
        assert bounds.pop("embedding.weight") == 3**0.5
        assert set(bounds.values()) == {0.25}
        assert set(layout.centres) == {0.0}

    def test_the_smallest_and_the_largest_number(self):
        with torch.random.fork_rng(devices=[]):
            layout = Layout.of(nn.Sequential(nn.Linear(4, 1), nn.GroupNorm(1, 1)))
        assert layout.initial(np.zeros(7), torch.float64).tolist() == [-0.5] * 5 + [1.0, 0.0]
        assert layout.initial(np.ones(7), torch.float64).tolist() == [0.5] * 5 + [1.0, 0.0]

    @pytest.mark.parametrize(
        ("layer", "said"),
        [
            (lambda: nn.BatchNorm2d(4), "BatchNorm2d makes samples depend on each other; use GroupNorm"),
            (lambda: nn.BatchNorm1d(4, affine=False, track_running_stats=False), "BatchNorm1d makes samples depend"),
            (lambda: nn.Dropout(0.5), "global generator"),
            (lambda: nn.Dropout2d(0.5), "global generator"),
            (lambda: nn.LSTM(2, 3), "LSTM has no batching rule.*LSTMCell"),
            (lambda: nn.GRU(2, 3), "GRU has no batching rule"),
            (lambda: nn.Embedding(4, 2), r"use fuaudit\.models\.Embedding"),
            (lambda: nn.PReLU(), "no initial law is declared for PReLU, which holds weight"),
            (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(2, 2)), "keeps buffers"),
        ],
    )
    def test_layers_that_are_refused(self, layer, said):
        with torch.random.fork_rng(devices=[]):
            module = nn.Sequential(nn.Linear(2, 2), layer())
        with pytest.raises(UsageError, match=said):
            Layout.of(module)

    def test_empty_buffers_are_none(self):
        """InstanceNorm without parameters or statistics has three, all None."""
        with torch.random.fork_rng(devices=[]):
            module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.InstanceNorm2d(2), nn.Flatten(), nn.Linear(72, 4)).double()
        inputs = torch.rand(ROWS, 1, 8, 8, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
        problem = ClientProblem(module, Layout.of(module), inputs, torch.arange(ROWS) % 4)
        vectors, batches = round_of(problem)
        expected = Reference().advance(problem, vectors, batches, STEP).updates
        found = Batched(1, stack_size=4).advance(problem, vectors, batches, STEP).updates
        assert float((found - expected).abs().max()) <= TOLERANCE

    def test_all_refusals_come_at_once(self):
        with torch.random.fork_rng(devices=[]):
            module = nn.Sequential(nn.Dropout(0.5), nn.Linear(2, 2), nn.BatchNorm1d(2))
        with pytest.raises(UsageError, match=r"0: Dropout(.|\n)*2: BatchNorm1d"):
            Layout.of(module)

    def test_no_answer_depends_on_the_samples_beside_it(self):
        """What batch normalisation would break: evaluation in chunks of any size gives one answer a sample."""
        for model in ("vgg-16", "resnet-18", "resnet-20"):
            problem = problem_of(model)
            _, vector = filled(problem.module)
            together = answer(problem.module, vector, problem.inputs[:6])
            alone = torch.cat([answer(problem.module, vector, row[None]) for row in problem.inputs[:6]])
            assert float((together - alone).detach().abs().max()) <= 1e-12


class TestLstm:
    def test_it_computes_what_torchs_lstm_computes(self):
        module = build("lstm", (7,), 9, width=4, hidden=6, layers=3).double()
        with torch.random.fork_rng(devices=[]):
            oracle = nn.LSTM(4, 6, num_layers=3, batch_first=True, dtype=torch.float64)
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        oracle.load_state_dict({f"{n}_l{at}": getattr(cell, n) for at, cell in enumerate(module.cells) for n in names})
        tokens = torch.randint(9, (5, 7), generator=torch.Generator().manual_seed(1), dtype=torch.int32)
        expected = module.scores(oracle(module.embedding(tokens))[0][:, -1])
        assert float((module(tokens) - expected).detach().abs().max()) <= 1e-13

    def test_it_reads_sequences_of_tokens(self):
        with pytest.raises(UsageError, match="sequences of tokens"):
            build("lstm", COLOUR, 10)
        with pytest.raises(UsageError, match="at least 1"):
            build("lstm", (6,), 10, layers=0)
        with pytest.raises(UsageError, match="integers"):
            build("lstm", (6,), 10)(torch.full((2, 6), 0.5))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_an_embedding_makes_nan_of_erased_tokens_alone(dtype):
    with torch.random.fork_rng(devices=[]):
        layer = Embedding(5, 2)
    tokens = torch.tensor([[0, 4], [erased_input(dtype), 1]], dtype=dtype)
    found = layer(tokens)
    assert found.shape == (2, 2, 2)
    assert torch.equal(found[0], layer.weight[[0, 4]])
    assert torch.equal(found[1, 1], layer.weight[1])
    assert torch.isnan(found[1, 0]).all()


def test_models_say_what_they_cannot_read():
    for name in ("cnn", "lenet-5", "mimic-cnn", "vgg-11", "resnet-20"):
        with pytest.raises(UsageError, match="reads images"):
            build(name, WINDOW, 10)
    for name in ("lenet-5", "mimic-cnn", "vgg-16"):
        with pytest.raises(UsageError, match="too small"):
            build(name, (1, 8, 8) if name != "lenet-5" else (1, 64, 3), 10)
    with pytest.raises(UsageError, match="8 channels cannot be normalised in 3 groups"):
        build("resnet-20", COLOUR, 10, width=8, groups=3)
    with pytest.raises(UsageError, match="cannot read"):
        require_reading(build("linear", WINDOW, 10), torch.zeros(3, 80, dtype=torch.uint8))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mlp", {"hidden": [8, 0]}),
        ("cnn", {"channels": [4, 0]}),
        ("cnn", {"hidden": -1}),
        ("mimic-cnn", {"hidden": [0]}),
        ("vgg-11", {"width": 0}),
        ("vgg-16", {"hidden": [0]}),
        ("resnet-18", {"width": -32}),
        ("resnet-20", {"width": 0}),
    ],
)
def test_layers_have_a_size(name, options):
    with pytest.raises(UsageError, match="must be at least 1"):
        build(name, COLOUR, 10, **options)


class Drops(nn.Module):
    """Dropout that no layer shows."""

    def forward(self, inputs):
        return nn.functional.dropout(inputs.flatten(1), 0.5)


class Breaks(nn.Module):
    def forward(self, inputs):
        raise ValueError("this layer reads nothing")


def drawing(*layers):
    with torch.random.fork_rng(devices=[]):
        return nn.Sequential(*(layer() for layer in layers))


@pytest.mark.parametrize("layer", [nn.RReLU, lambda: nn.FractionalMaxPool2d(2, output_size=4), Drops])
def test_models_that_draw_are_refused(layer):
    inputs = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(5))
    with pytest.raises(UsageError, match="draws from torch's global generator"):
        require_reading(drawing(layer), inputs)
    require_reading(drawing(nn.ReLU, lambda: nn.MaxPool2d(2), nn.Flatten), inputs)


def test_a_model_that_raises_is_reported_as_such():
    with pytest.raises(PluginError, match=r"raised on inputs of shape \(1, 8, 8\): .*reads nothing"):
        require_reading(Breaks(), torch.zeros(5, 1, 8, 8))


def test_none_of_them_has_the_step_by_hand():
    assert [model for model in SMALL if linear_stack(problem_of(model).module)] == []


def tokens_dataset():
    """Sixty windows of five tokens in which the class is the last token."""
    draws = torch.Generator().manual_seed(3)
    inputs = torch.randint(6, (60, 5), generator=draws, dtype=torch.uint8)
    targets = inputs[:, -1].long()
    return Dataset(inputs[:50], targets[:50], inputs[50:], targets[50:], 6, owners=torch.arange(50) % 5)


@pytest.fixture(scope="module", params=["reference", "batched"])
def token_run(request, tmp_path_factory):
    tables = {
        "data": {"use": "tensors", "classes": 6},
        "partition": {"use": "by-owner"},
        "model": {"use": "lstm", "width": 3, "hidden": 4},
        "learner": {"use": "fats", "rounds": 4, "cohort": 2, "steps": 2, "batch": 3, "step_size": 0.3},
        "run": {"checkpoint_every": 1, "engine": request.param, "device": "cpu"},
    }
    folder = tmp_path_factory.mktemp("tokens")
    return train(tables, folder / "parent", data=tokens_dataset(), secret=SECRET)


def test_on_tokens_a_plan_that_reads_an_erased_row_is_caught(token_run, quick):
    """The whole way, on integers: FATS passes, the untouched run fails, replay and lineage each by themselves."""
    data = tokens_dataset()
    target = max(token_run.plan.index.clients, key=token_run.plan.index.clients.__getitem__)
    found = {}
    for name in ("fats", "noop"):
        child = unlearn(token_run, name, Request.of([target]), token_run.path.parent / name, data=data)
        result = verify(child, quick, data=data, save=False)
        found[name] = {finding.audit: str(finding.verdict) for finding in result.findings}
    assert found["fats"] == dict.fromkeys(("integrity", "replay", "provenance", "lineage"), "PASS")
    assert (found["noop"]["replay"], found["noop"]["lineage"]) == ("FAIL", "FAIL")


def test_on_tokens_the_replay_does_not_read_what_was_erased(token_run, quick):
    """Other content in the erased rows, and the same findings; other content in a retained row is noticed."""
    data = tokens_dataset()
    target = max(token_run.plan.index.clients, key=token_run.plan.index.clients.__getitem__)
    child = unlearn(token_run, "fats", Request.of([target]), token_run.path.parent / "child", data=data)

    def changed(client):
        inputs = data.inputs.clone()
        rows = list(token_run.original.samples[client])
        inputs[rows] = 5 - inputs[rows]
        return replace(data, inputs=inputs)

    kept = next(c for c in child.plan.retained.clients if c != target)
    verdicts = [
        {f.audit: str(f.verdict) for f in verify(child, quick, data=changed(c), save=False).findings}["replay"]
        for c in (target, kept)
    ]
    assert verdicts == ["PASS", "FAIL"]  # the reader is the one on record, so such rows are not what was committed to


def test_integers_are_overwritten_and_never_scaled():
    data = tokens_dataset()
    retained = retained_rows(data, Population({0: (1, 2), 1: (4,)}))
    assert torch.equal(retained.inputs[[1, 2, 4]], data.inputs[[1, 2, 4]])
    assert bool((retained.inputs[[0, 3, 5]] == 255).all())
    assert bool((data.inputs < 255).all())
    assert scaling_constants(data, Population({0: (1, 2)}), "none") == (0.0, 1.0)
    with pytest.raises(UsageError, match=r"integers .* 'standardise' has no meaning"):
        scaling_constants(data, Population({0: (1, 2)}), "standardise")


def test_one_number_alone_is_scaled_by_one():
    data = Dataset(torch.tensor([[3.0], [5.0]]), torch.zeros(2).long(), torch.ones(1, 1), torch.zeros(1).long(), 2)
    assert scaling_constants(data, Population({0: (1,)}), "standardise") == (5.0, 1.0)


def test_the_constants_of_scaling_do_not_depend_on_the_number_of_threads():
    """They are in every round, so a last bit would be too."""
    inputs = torch.randn(200_000, 3, generator=torch.Generator().manual_seed(1))
    data = Dataset(inputs, torch.zeros(200_000).long(), inputs[:1], torch.zeros(1).long(), 2)
    found, before = set(), torch.get_num_threads()
    try:
        for threads in (1, 2, 3, 5):
            torch.set_num_threads(threads)
            found.add(scaling_constants(data, Population({0: tuple(range(200_000))}), "standardise"))
    finally:
        torch.set_num_threads(before)
    assert len(found) == 1


def test_a_model_that_cannot_read_tokens_is_refused_before_training(small_config, tmp_path):
    with pytest.raises(UsageError, match=r"integers .* this model cannot read"):
        train(small_config(), tmp_path / "run", data=tokens_dataset(), secret=SECRET)
    assert not (tmp_path / "run").exists()
