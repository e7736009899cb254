"""What a sealed view says beside its messages: names, shapes and sizes are those of its config, the rest is named."""

import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from fuaudit_plugins.conspar import Consensus
from test_sealed import family, looked_at, sealed_again  # noqa: F401
from test_secured_runs import FEDREP, NOISY, trained

from fuaudit import load_run, registry, unlearn
from fuaudit.audits.transcript.served import _tiles
from fuaudit.audits.transcript.told import made_like, parameters_of
from fuaudit.errors import EvidenceError, PluginError, UsageError
from fuaudit.formats.forms import tensor_bytes
from fuaudit.plans import Request
from fuaudit.plugins import Answered
from fuaudit.runs.layout import MODEL
from fuaudit.runs.untrained import all_told, hiding_nobody
from fuaudit.testing.tiny import tiny_dataset
from fuaudit.training import federation
from fuaudit.workflow.seal import seal

TWO_BIASES = FEDREP | {"model": {"use": "mlp", "hidden": [3]}}


@pytest.fixture(scope="module")
def view(tmp_path_factory):
    """The view of a run whose model has two parameters of each size, which nobody may change."""
    folder = tmp_path_factory.mktemp("told")
    return seal(trained(folder / "run", TWO_BIASES, "plain"), folder / "view")


@pytest.fixture
def copied(view, tmp_path):
    return load_run(shutil.copytree(view.path, tmp_path / "view"))


def swapped(arrays):
    return arrays | {"1.bias": arrays["3.bias"], "3.bias": arrays["1.bias"]}


def renamed(arrays):
    return {f"p{number}-deadbeef": array for number, array in enumerate(arrays.values())}


def flattened(arrays):
    return {name: array.reshape(-1) for name, array in arrays.items()}


def split(arrays):
    whole = np.concatenate([arrays[f"{place}.{kind}"].reshape(-1) for place in (1, 3) for kind in ("weight", "bias")])
    return {f"{number:03d}": whole[number : number + 1] for number in range(len(whole))}


@pytest.mark.parametrize("other", [swapped, renamed, flattened, split])
def test_parameters_have_the_names_shapes_and_places_of_the_model(copied, other):
    arrays = dict(copied.arrays(MODEL))
    assert arrays["1.bias"].tolist() != arrays["3.bias"].tolist()
    (copied.path / MODEL).write_bytes(tensor_bytes(other(arrays)))
    found = looked_at(sealed_again(copied.path))
    assert (found.verdict, "names, shapes or places" in found.shows) == ("FAIL", True)


def test_a_view_as_it_is_passes_and_names_what_is_as_told(view):
    found = looked_at(view)
    assert found.verdict == "PASS", (found.shows, found.details)
    assert any("metrics.json" in line and "as told" in line for line in found.assumptions)
    # an MLP of as many numbers can have other inputs and classes: here 3 x 3 + 3 + 3 x 3 + 3, also 1 and 5, say
    assert [("model.safetensors" in line, "how many classes" in line) for line in found.assumptions].count(
        (True, True)
    ) == 1


@pytest.mark.parametrize(
    "use", ["linear", "mlp", "cnn", "lenet-5", "mimic-cnn", "lstm", "resnet-18", "resnet-20", "vgg-11"]
)
def test_the_models_of_fuaudit_are_found_by_their_parameters(use):
    recipe = registry.build("models", {"use": use})
    told = parameters_of(recipe, (3, 32, 32), 7) or parameters_of(recipe, (11,), 7)
    made = made_like(recipe, dict(sorted(told.items())))
    assert told in made.candidates
    assert [*made.names] == [*told]


def wrong_size(one):
    return one | {"size": one["size"] + 1} if one["kind"] == "sent" and one["what"] == "update" else one


def long_proposal(one):
    return one | {"size": 1 << 30} if one["kind"] == "sent" and one["what"] == "coordinates" else one


def longer_answer(one):
    return one | {"size": one["size"] + 4} if one["kind"] == "answered" else one


def nobody(one):
    return one | {"client": 99} if one["kind"] == "sent" and one["client"] == 3 else one


def other_release(one):
    return one | {"parameters": one["parameters"] | {"alpha": 0.25}} if one["kind"] == "released" else one


@pytest.mark.parametrize("change", [wrong_size, long_proposal, longer_answer, nobody, other_release])
def test_what_the_ledger_tells_of_messages_is_what_the_config_allows(copied, change):
    def course(event):
        return event | {"told": [*map(change, event["told"])]} if event["event"] == "round" else event

    found = looked_at(sealed_again(copied.path, course))
    assert (found.verdict, {line.split(":")[0][-6:] for line in found.details}) == ("FAIL", {", told"})


def test_numbers_of_a_stranger_are_summed_and_its_sizes_are_taken_at_its_word(tmp_path, monkeypatch):
    """An option of it may be called as one of fuaudit's own is, and mean something else."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "stages"))
    tables = FEDREP | {"client": [{"use": "test-sketch"}], "server": [{"use": "mean"}]}
    runs = [trained(tmp_path / str(suite), tables, suite) for suite in (None, "plain")]
    assert runs[0].digest == runs[1].digest
    found = looked_at(seal(runs[1], tmp_path / "view"))
    assert found.verdict == "PASS", (found.shows, found.details)
    assert any("'test-sketch'" in line and "as told" in line for line in found.assumptions)


@pytest.mark.parametrize(
    ("option", "told"),
    [({"step": 0.3}, "'test-sketch', step_of, .* not a power of two"), ({"bits": 25}, "2 to 24 bits")],
)
def test_a_stranger_whose_numbers_no_suite_adds_up_is_refused(tmp_path, monkeypatch, option, told):
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "stages"))
    tables = FEDREP | {"client": [{"use": "test-sketch", **option}], "server": [{"use": "mean"}]}
    with pytest.raises((PluginError, UsageError), match=told):
        trained(tmp_path / "run", tables, "plain")
    assert not (tmp_path / "run").exists()


def test_one_message_is_told_once(copied):
    def course(event):
        return event | {"told": [event["told"][0], *event["told"]]} if event["event"] == "round" else event

    found = looked_at(sealed_again(copied.path, course))
    assert (found.verdict, "something, twice" in found.details[0]) == ("FAIL", True)


LETTERS = "abcdefghijklmnop"
ROOM = {
    "rows of a sum": lambda told: [
        one | {"rows": [*one["rows"], 2**47], "discarded": 1} if one["kind"] == "summed" else one for one in told
    ],
    "a sum told twice": lambda told: [*told, told[-1] | {"rows": [2**47]}],
    "what is sent": lambda told: [*told, {"kind": "sent", "part": "client.1", "client": 0, "what": LETTERS, "size": 0}],
    "what is answered": lambda told: [*told, {"kind": "answered", "part": "client.1", "what": LETTERS, "size": 12}],
    "an answer of who never answers": lambda told: [
        *told, {"kind": "answered", "part": "client.0", "what": "values", "size": 12},
    ],
    "a release of the server": lambda told: [
        *told, {"kind": "released", "part": "server.0", "mechanism": "x", "parameters": {"a": LETTERS}},
    ],
    "a release of the solver": lambda told: [
        *told, {"kind": "released", "part": "solver", "mechanism": "x", "parameters": {"a": LETTERS}},
    ],
    "a release of nobody": lambda told: [
        *told, {"kind": "released", "part": "server.9", "mechanism": "x", "parameters": {"a": LETTERS}},
    ],
    "suspects": lambda told: [
        *told, {"kind": "suspected", "part": "transport", "clients": [7, 2**47], "why": "not finite"},
    ],
    "a client who is rejected": lambda told: [
        *told, {"kind": "rejected", "part": "client.1", "client": 2, "why": LETTERS},
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", ROOM)
def test_a_server_has_no_room_for_words_of_its_own_in_what_parts_tell(copied, name):
    def course(event):
        return event | {"told": ROOM[name](event["told"])} if event.get("round") == 1 else event

    found = looked_at(sealed_again(copied.path, course))
    assert (found.verdict, found.details[0][:8]) == ("FAIL", "round 1,"), (found.shows, found.details)


def test_a_config_that_training_refuses_is_no_view(tmp_path, monkeypatch):
    first, *others = FEDREP["client"]
    tables = FEDREP | {"client": [first, {"use": "alie", "clients": [3, 9]}, *others]}
    with monkeypatch.context() as patch:
        patch.setattr(federation, "require_named", lambda *_: None)
        path = seal(trained(tmp_path / "run", tables, "plain"), tmp_path / "view").path
    with pytest.raises(EvidenceError, match="cannot be a view of a run"):
        load_run(path)


def test_a_view_with_requests_for_samples_says_that_clients_may_have_none_left(tmp_path, family):  # noqa: F811
    """All samples of a client are erased one by one: she is left, and a view does not tell that she has none."""
    parent = trained(tmp_path / "parent", NOISY, "plain")
    child = unlearn(
        parent, "retrain", Request.of([], parent.original.samples[0]), tmp_path / "child", data=tiny_dataset()
    )
    (tmp_path / "views").mkdir()
    before, view = (seal(run, tmp_path / "views" / run.path.name) for run in (parent, child))
    found = looked_at(view, before)
    assert found.verdict == "PASS", (found.shows, found.details)
    assert any("Every client who is left has samples left" in line for line in found.assumptions)
    assert not any("has samples left" in line for line in looked_at(family[1], family[0]).assumptions)


def test_a_view_with_requests_for_samples_does_not_tell_why_a_buffer_was_discarded(tmp_path):
    """A client who has no samples left spoils sums of two. Whose samples are gone it does not tell, so none is due."""
    tables = NOISY | {
        "partition": {"use": "iid", "clients": 6},
        "learner": NOISY["learner"] | {"cohort": 6},
        "transport": {"use": "secure-sum", "size": 2},
    }
    parent = trained(tmp_path / "parent", tables, "plain")
    gone = Request.of([], parent.original.samples[0])
    child = unlearn(parent, "retrain", gone, tmp_path / "child", data=tiny_dataset())
    (tmp_path / "views").mkdir()
    before, view = (seal(run, tmp_path / "views" / run.path.name) for run in (parent, child))
    assert [hiding_nobody(run, 1) for run in (parent, child, view)] == [set(), {0}, set()]
    assert [all_told(run) for run in (before, child, view)] == [True, True, False]
    found = looked_at(view, before)
    assert (found.verdict, found.values["unplayed"]) == ("PASS", 2), (found.shows, found.details)


@pytest.mark.parametrize("told", ["all", "one"])
def test_a_server_tells_no_more_columns_than_clients_propose(tmp_path, monkeypatch, told):
    """Which they are is as told, for rows alone make them: a PASS says so. How many they are at most, the config says.

    Whoever tells all gets all of each sum.
    """

    def agree(self, proposals, context):
        columns = context.vectors.shape[-1]
        [*self._taken(proposals, columns, context)]
        made = torch.arange(columns) if told == "all" else torch.tensor([3])
        context.tell(Answered("coordinates", 4 * len(made)))
        context.tell(Answered("values", 4 * len(made)))
        return made

    few, (first, _, last) = {"use": "consensus", "per_client": 1, "alpha": 0.5}, FEDREP["client"]
    monkeypatch.setattr(Consensus, "agree", agree)
    view = seal(trained(tmp_path / "run", FEDREP | {"client": [first, few, last]}, "plain"), tmp_path / "view")
    found = looked_at(view)
    if told == "one":
        assert (found.verdict, sum("and the server tells them" in line for line in found.assumptions)) == ("PASS", 1)
        return
    assert (found.verdict, found.details[0]) == (
        "FAIL", "round 1, told: the server told 12 columns, and the clients of the round agree on 4 at most",
    )  # fmt: skip


def zeros(*sizes):
    return [bytes(size) for size in sizes]


@pytest.mark.parametrize(
    ("whole", "parts", "fits"),
    [
        (b"aabab", [b"ab", b"a", b"ab"], True),
        (b"aabab", [b"aab", b"ba"], False),
        (b"abcabd", [b"abc", b"ab", b"d"], True),
        (bytes(40) + b"x", [*zeros(16, 12, 8, 4), b"x"], True),
        (bytes(40) + b"x", [*zeros(16, 12, 8), b"xxxxx"], False),
        (b"", [], True),
    ],
)
def test_parts_are_laid_beside_each_other_in_whatever_order(whole, parts, fits):
    assert _tiles(whole, parts) == fits


def test_many_parts_are_laid_in_time():
    """It was quadratic: 4,000 equal ones took a second, and what never fits took all ways."""
    began = time.process_time()
    assert _tiles(bytes(80_000), zeros(*[4] * 20_000))
    assert not _tiles(bytes(40_001) + b"x", [*zeros(*([4, 8, 12, 16] * 1000)), b"xx"])
    assert time.process_time() - began < 2
