"""The robust rules agree with ByzFL's where both mean the same, as benchmarks/against_byzfl.py compares them."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from against_byzfl import RULES, apart, inputs


@pytest.mark.thorough
@pytest.mark.parametrize("rule", RULES)
def test_rules_agree_on_drawn_and_attacked_rows(rule):
    assert len(inputs()) == 40
    assert max(apart(rule)) < 1e-12


def test_another_rule_is_seen():
    theirs, _ = RULES["coordinate-median"]
    _, ours = RULES["trimmed-mean"]
    assert max(abs(theirs()(rows.numpy()) - ours(rows)[0].numpy()).max() for rows in inputs()) > 0.1
