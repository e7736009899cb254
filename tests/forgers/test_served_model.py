"""A forger shows one folder and serves another model.

He unlearns client TARGET honestly and has that run audited. What answers questions is the model of before. A verdict is
about a folder; ``--model FILE`` compares it with the model in use, and a PASS without it says that nothing did.
"""

import shutil

import pytest
from safetensors.torch import save_file
from tests_support import AUDIT_KEY, config, secret

from fuaudit import train, unlearn, verify
from fuaudit.plans import Request
from fuaudit.runs.layout import CHECKPOINT, of_round
from fuaudit.verification.model_in_use import NOT_COMPARED

TARGET = 0


@pytest.fixture
def child(tmp_path):
    parent = train(config(), tmp_path / "parent", secret=secret(3))
    return unlearn(parent, "fats", Request.of([TARGET]), tmp_path / "child")


@pytest.fixture
def asked(child, quick):
    def work(model=None):
        expected = {"commitment": child.commitment, "request": Request.of([TARGET])}
        return verify(child, quick, model=model, key=AUDIT_KEY, save=False, **expected)

    return work


def test_the_model_of_before_fails(child, tmp_path, asked):
    old = shutil.copy(tmp_path / "parent" / of_round(CHECKPOINT, 8), tmp_path / "old.safetensors")
    result = asked(old)
    assert result.verdict == "FAIL"
    assert "The model in use is not that of the run" in result.reason
    assert result.context["served"]["same"] is False


def test_the_old_model_beside_the_right_one_fails(child, tmp_path, asked):
    weight, bias = child.model[:640].reshape(10, 64).contiguous(), child.model[640:].contiguous()
    tensors = {"1.weight": weight, "1.bias": bias, "2.weight": weight + 1}
    save_file(tensors, tmp_path / "both.safetensors")
    assert asked(tmp_path / "both.safetensors").verdict == "FAIL"


def test_without_the_model_in_use_it_is_named(child, asked):
    result = asked()
    assert result.verdict == "PASS"
    assert NOT_COMPARED in result.conclusion.rests_on
    assert "nothing was given (--model FILE) to compare" in NOT_COMPARED


def test_the_right_model_is_named_by_its_digest(child, asked):
    result = asked(child.path / of_round(CHECKPOINT, 8))
    assert result.verdict == "PASS"
    assert result.context["served"]["same"] is True
    assert NOT_COMPARED not in result.conclusion.rests_on
