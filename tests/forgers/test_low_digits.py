"""After honest training a forger writes the original model into figures, under a canary that no machine has.

Figures were doubles, and those of equal models could differ by 256 machine epsilons of float32: 37 free bits each. They
are stored with four digits now, and one in the last is all that another platform can make of them.
"""

import json
import shutil
import struct

import pytest
from tests_support import AUDIT_KEY, config, drawn_client, one_more, secret, told

from fuaudit import load_run, train, unlearn, verify
from fuaudit.errors import EvidenceError
from fuaudit.formats.forms import pretty_json
from fuaudit.plans import Request
from fuaudit.runs.layout import METRICS, form_of
from fuaudit.runs.rounding import are_neighbours, is_rounded, rounded
from fuaudit.workflow.prune import prune


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """A child all of whose rounds are stored, beside its parent."""
    root = tmp_path_factory.mktemp("digits")
    parent = train(config(run={"checkpoint_every": 1, "engine": "reference"}), root / "parent", secret=secret(7))
    return unlearn(parent, "retrain", Request.of([drawn_client(parent)]), root / "child")


@pytest.fixture
def child(honest, tmp_path):
    """A copy, free to be edited."""
    shutil.copytree(honest.path.parent, tmp_path / "copy")
    return load_run(tmp_path / "copy" / "child")


@pytest.fixture
def rows(child):
    """The figures of the run."""
    return json.loads((child.path / "metrics.json").read_bytes())


def measured_elsewhere(path, rows):
    """Other figures, and a platform that nobody has; the models and all that was computed are honest."""
    (path / "metrics.json").write_bytes(pretty_json(rows))
    return told(path, lambda events: [e | ({"canary": "5a" * 32} if "canary" in e else {}) for e in events])


def test_low_bits_of_figures_are_no_figures(child, rows):
    """The first attack: each loss carries 37 bits of the original."""
    model = load_run(child.path.with_name("parent")).model.numpy().tobytes()
    for place, row in enumerate(rows):
        (bits,) = struct.unpack("<q", struct.pack("<d", row["test_loss"]))
        word = int.from_bytes(model[4 * place : 4 * place + 4], "little")
        (row["test_loss"],) = struct.unpack("<d", struct.pack("<q", (bits >> 37 << 37) | word))
    with pytest.raises(EvidenceError, match=r"not rounded to 4 digits: 'test_loss'"):
        measured_elsewhere(child.path, rows)


@pytest.mark.parametrize("pruned", [False, True], ids=["a child", "a pruned one"])
def test_what_is_left_is_one_digit_each_and_a_pass_counts_them(pruned, child, rows, quick):
    """Every figure is one of three, which carries 1.6 bits: a PASS says how many are not those measured here."""
    for row in rows[1::2]:
        row["test_loss"] = one_more(row["test_loss"])
    forged = measured_elsewhere(child.path, rows)
    forged = prune(forged)[0] if pruned else forged
    result = verify(forged, quick, key=AUDIT_KEY, save=False, commitment=child.commitment)
    assert result.verdict == "PASS"
    sentence = "Nothing is hidden in last digits: 4 figures differ here, each by one in the last of 4 digits."
    assert sentence in result.conclusion.rests_on


@pytest.mark.parametrize("change", [lambda loss: one_more(one_more(loss)), lambda loss: None, lambda loss: -loss])
def test_more_than_one_digit_is_no_pass(change, child, rows, quick):
    rows[3]["test_loss"] = change(rows[3]["test_loss"])
    forged = measured_elsewhere(child.path, rows)
    result = verify(forged, quick, key=AUDIT_KEY, save=False)
    assert result.verdict == "INCONCLUSIVE"


def test_a_zero_has_no_sign():
    """Elsewhere a zero equals one with a sign, which is one bit an accuracy."""
    rows = [{"round": 0, "test_loss": 0.25, "test_accuracy": 0.0}]
    form = form_of(METRICS)
    assert form.last_digits(rows, rows) == 0
    assert form.last_digits(rows, [rows[0] | {"test_accuracy": -0.0}]) is None


def test_figures_that_can_be_stored():
    assert [rounded(x) for x in (2.34567, 0.000123456, 99999.0, -0.0, 0.0)] == [2.346, 0.0001235, 100000.0, 0.0, 0.0]
    assert [is_rounded(x) for x in (1e300, 1.2345, -0.0)] == [True, False, False]
    assert rounded(1.79769e308) == float("inf")
    for a, b in ((0.9999, 1.0), (1.0, 1.001), (-1.001, -1.0)):
        assert are_neighbours(a, b)
    for a, b in ((1.0, 1.0), (1.0, 1.002), (0.9999, 1.001), (0.0, 5e-324), (1.0, -1.0), (0.9998, 1.0)):
        assert not are_neighbours(a, b)
