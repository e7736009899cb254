"""A forger chooses which small federations are walked: where they would refute him, he draws what nobody needs.

His method is wrong where there are two places, or from the second request on: the order of a fresh cohort tells whether
who was erased took part. Just there he throws forty coins, so that a proof has 2^40 leaves, or says himself that it is
too large. Which federations are walked is therefore said by what a method has to draw.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

import pytest
from fuaudit_plugins.fats import FatsUnlearning

from fuaudit.audits.enumeration import Enumeration
from fuaudit.cli.methods import _many
from fuaudit.draws import Address, Purpose
from fuaudit.errors import BudgetError, PluginError
from fuaudit.plans import UniformLaw
from fuaudit.plans.reference import Anew
from fuaudit.proofs.prove import Swept
from fuaudit.proofs.sweep import sweep
from fuaudit.proofs.toys import AllToys, Shape, federation
from fuaudit.verification.finding import Verdict

LAW, MEMBERS, CLIENT = UniformLaw(6, 3, 5, 4), federation((15,) * 12), Shape(1, ())


@dataclass(frozen=True)
class Tells(FatsUnlearning):
    """Wrong in every round that is drawn anew; ``coins`` of them are thrown before, none where it is 0."""

    places: int = 1
    requests: int = 1
    coins: int = 0
    mutant: ClassVar[bool] = True

    def rewrite(self, plan, request, fresh, not_before):
        right, law = super().rewrite(plan, request, fresh, not_before), plan.law
        honest = right.streams == plan.streams or len(plan.populations) < self.requests
        if honest or law.cohort_size < self.places:
            return right
        if self.coins < 0:
            raise BudgetError("too large")
        for number in range(self.coins):
            fresh.sequence(Address(Purpose.COUPLING, number + 1), range(2), 1)
        first, left, cohorts = right.first_change(plan), right.retained.clients, {}
        for number in range(first.round + (first.step > 0), law.rounds + 1):
            new = sorted(
                fresh.sequence(
                    Address(Purpose.COHORT, number, version=len(plan.populations)), left, law.places(right.retained)
                )
            )
            cohorts[number] = tuple(new[::-1] if {*request.clients} & {*plan.cohort(number)} else new)
        return right.recorded(cohorts)


@pytest.mark.parametrize(("coins", "verdict"), [(0, "FAIL"), (40, "INCONCLUSIVE")])
def test_of_a_first_request(coins, verdict):
    found = Enumeration(leaves=6_000).judged(LAW, MEMBERS, [(Tells(2, 1, coins), CLIENT)], ["tells"])
    assert found.verdict == verdict, found.shows
    if verdict != "FAIL":
        assert "for 1 client, on which the method draws far more than one that keeps what it may" in found.shows


@pytest.mark.thorough
@pytest.mark.parametrize(("coins", "verdict"), [(0, "FAIL"), (40, "INCONCLUSIVE")])
def test_of_a_second_request(coins, verdict):
    """What fats did twice is no proof of what comes after fats."""
    made = [(FatsUnlearning(), CLIENT), (Tells(1, 2, coins), CLIENT)]
    found = Enumeration(leaves=6_000).judged(LAW, MEMBERS, made, ["fats", "tells"])
    assert found.verdict == verdict, found.shows


@pytest.mark.thorough
@pytest.mark.parametrize("decoy", [[], [(FatsUnlearning(), CLIENT), (FatsUnlearning(), Shape(0, (1,)))]])
def test_other_requests_take_no_federations_away(decoy):
    """FATS carries out two requests before his own: the leaves that these take are missing where he is refuted."""
    made = [*decoy, (Tells(2, len(decoy) + 1), CLIENT)]
    found = Enumeration(leaves=6000).judged(LAW, MEMBERS, made, ["fats"] * len(decoy) + ["tells"])
    assert found.verdict == "FAIL", found.shows


@dataclass(frozen=True)
class OneCoin(FatsUnlearning):
    """A coin in every request doubles the leaves, and chooses nothing."""

    def rewrite(self, plan, request, fresh, not_before):
        fresh.sequence(Address(Purpose.COUPLING, 1), range(2), 1)
        return super().rewrite(plan, request, fresh, not_before)


@dataclass(frozen=True)
class StartsOver(FatsUnlearning):
    """Starts over where a coin says so, which draws much now and then."""

    def rewrite(self, plan, request, fresh, not_before):
        if fresh.sequence(Address(Purpose.COUPLING, 1), range(3), 1) == (0,):
            return plan.restart(request, fresh)
        return super().rewrite(plan, request, fresh, not_before)


TOYS = AllToys(2, True, ("client",))


def test_that_it_is_too_large_is_not_for_him_to_say():
    """He draws nothing and raises the error of draws: what raises is told by name and line, as any error is."""
    with pytest.raises(PluginError, match="raised while rewriting the plan: BudgetError"):
        Enumeration(leaves=6_000).judged(LAW, MEMBERS, [(Tells(2, 1, -1), CLIENT)], ["tells"])
    with pytest.raises(PluginError, match="raised while rewriting the plan: BudgetError"):
        sweep(Tells(2, 1, -1), TOYS, 10_000)


class LikeAny(BudgetError):
    """It says that it is whatever it is compared with."""

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0


def test_an_error_that_says_that_it_is_that_of_a_draw():
    """A draw that he made fail is raised, whatever he raises after it."""

    class Fails(FatsUnlearning):
        def rewrite(self, plan, request, fresh, not_before):
            with suppress(PluginError):
                fresh.subset(None, (0,), 1)
            raise LikeAny("too large")

    with pytest.raises(PluginError, match="which is no address"):
        Enumeration(leaves=6_000).judged(LAW, MEMBERS, [(Fails(), CLIENT)], ["fails"])


@pytest.mark.thorough
def test_a_sweep_that_is_too_large_where_it_would_refute_proves_nothing():
    swept = Swept("tells", ("client",), 10_000, sweep(Tells(2, 1, 40), TOYS, 10_000))
    assert sweep(Tells(2), TOYS, 10_000).refuted
    assert len(swept.found.proved) > 5 < swept.found.costly
    assert (swept.exact, swept.as_json()["costly"]) == (None, swept.found.costly)
    lines, short = _many(swept)
    assert f"{swept.found.costly} by draws without need" in short
    assert any("on them tells draws far more than it needs" in line for line in lines)


@pytest.mark.thorough
@pytest.mark.parametrize("method", [OneCoin(), StartsOver(), Anew()], ids=lambda made: type(made).__name__)
def test_a_sweep_of_who_draws_a_little_more_is_a_proof(method):
    for leaves in (2_000, 10_000):
        found = sweep(method, TOYS, leaves)
        assert (found.refuted, found.costly) == ((), 0)
        assert found.too_large
        assert Swept("more", ("client",), leaves, found).exact


@pytest.mark.thorough
def test_who_draws_a_little_more_passes():
    found = Enumeration(leaves=6000).judged(LAW, MEMBERS, [(OneCoin(), CLIENT)], ["coin"])
    assert found.verdict is Verdict.PASS, found.shows


@pytest.mark.thorough
def test_who_starts_over_by_a_coin_passes():
    """Rare draws that cost much mislead an estimate by eight paths; what it refuses is walked."""
    found = Enumeration(leaves=6000).judged(LAW, MEMBERS, [(StartsOver(), Shape(0, (1,)))], ["coin"])
    assert found.verdict is Verdict.PASS, found.shows
