"""What a stranger tests of a plugin: its contract, its proof, and that a wrong relative is caught."""

from dataclasses import dataclass
from fractions import Fraction

import pytest
from fuaudit_outside import RewindToTheStart, RoundRewind, Shrink
from hypothesis import given, settings

from fuaudit.plugins import Request, UniformLaw, UsageError, check_unlearner, exactness, federation, strategies


def test_both_keep_the_contract():
    check_unlearner(RoundRewind())
    check_unlearner(Shrink())
    check_unlearner(Shrink(share=1.0))


@settings(derandomize=True, deadline=None, max_examples=50)
@given(strategies.trials(leaves=500))
def test_round_rewind_is_exact(trial):
    assert exactness(RoundRewind(), *trial, leaves=100_000).exact


def test_rewinding_to_the_start_is_exact_for_clients_only():
    members, law = federation((2, 2)), UniformLaw(1, 1, 1, 1)
    assert exactness(RewindToTheStart(), law, members, [Request.of(clients=[0])]).exact
    sample = [Request.of(samples=[0])]
    assert exactness(RewindToTheStart(), law, members, sample).total_variation == Fraction(1, 8)
    with pytest.raises(AssertionError, match="total variation 1/8"):
        check_unlearner(RewindToTheStart())


@dataclass(frozen=True)
class Peeking(Shrink):
    """Reads the server's data, which it does not declare."""

    def edit(self, context):
        inputs, _ = context.server_data
        return context.model * inputs.mean()


def test_touching_what_is_not_declared_is_caught():
    with pytest.raises(AssertionError, match="without declaring 'server data'"):
        check_unlearner(Peeking())


def test_options_are_checked():
    with pytest.raises(UsageError, match="share"):
        Shrink(share=2.0)
