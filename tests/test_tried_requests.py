"""What the fixed list of the contract asks of a rewriter: mistakes of honest authors, each wrong for some requests.

A method that looks at one of two clients, or errs at a third request alone, is right on every federation in which that
is not asked.
"""

from dataclasses import dataclass, field

import pytest
from fuaudit_plugins.fats import FatsUnlearning

from fuaudit.draws import END, Position
from fuaudit.plans import Request, UniformLaw
from fuaudit.proofs.exactness import exactness
from fuaudit.proofs.toys import trials


def first_client(plan, request, not_before):
    """Of two clients looks at the first one."""
    return plan.first_involvement(Request.of(request.clients[:1], request.samples))


def first_owner(plan, request, not_before):
    """Of samples of two owners looks at those of the first one."""
    owner = plan.retained.owner
    kept = [sample for sample in request.samples if owner[sample] == owner[request.samples[0]]]
    return plan.first_involvement(Request.of(request.clients, kept))


def clients_first(plan, request, not_before):
    """Where an erased client took part, forgets to look at the samples."""
    return plan.first_involvement(Request.of(request.clients)) or plan.first_involvement(request)


def two_alone(plan, request, not_before):
    """Keeps all from the third request on."""
    return END if len(plan.populations) > 2 else plan.first_involvement(request)


def rounds_to_the_end(plan, request, not_before):
    """During training goes on to the end of the round under way, from the second round on."""
    during = not_before != END and not_before.round > 1 and not_before.step > 1
    return Position(not_before.round + 1, 0) if during else plan.first_involvement(request)


@dataclass(frozen=True)
class Wrong(FatsUnlearning):
    cut: object = field(default=first_client)

    def rewrite(self, plan, request, fresh, not_before):
        first = self.cut(plan, request, not_before) or END
        return plan.erase(request, fresh, first if self.cut is rounds_to_the_end else min(first, not_before))


@pytest.mark.parametrize("replacement", [False, True], ids=["without replacement", "with replacement"])
@pytest.mark.parametrize("cut", [first_client, first_owner, clients_first, two_alone, rounds_to_the_end])
def test_each_is_refuted_on_a_federation_where_a_right_one_is_proved(cut, replacement):
    asked = [*trials(lambda *numbers: UniformLaw(*numbers, replacement))]
    refuted = [toy for toy in asked if exactness(Wrong(cut), *toy).total_variation]
    assert refuted
    assert not any(exactness(FatsUnlearning(), *toy).total_variation for toy in refuted)
