"""The contract of laws."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import product
from typing import Any

from fuaudit.draws import Address, Keyed
from fuaudit.plans import Plan, Population, Request
from fuaudit.plans.tried_laws import Noting, require_law
from fuaudit.proofs.toys import federation
from fuaudit.testing.problems import Problems


def check_law(law: Any) -> None:
    """Check that a law keeps its contract.

    Over small federations, before and after a client or a sample is erased, the law and each of its smaller ones say
    what can be, draw clients and samples that are there, and draw each at its own address
    (:func:`fuaudit.plans.tried_laws.require_law`). They draw the same, at the same addresses, when asked again, also
    in another order with other keys and populations in between: a law that remembers does not. Smaller laws have its
    name. No global generator is touched.

    Raises:
        AssertionError: the list of all that is wrong.
    """
    problems = Problems(law, "laws")
    whole = federation((2, 3, 1))
    populations = whole, *(whole.without(request) for request in (Request.of(clients=[0]), Request.of(samples=[5])))
    with problems.during("drawing"):
        for like in (law, *law.smaller()):
            problems.require(like.name == law.name, f"a smaller law is called {like.name!r}, and not {law.name!r}")
            for population in populations:
                require_law(like, population)
            pairs = [*product((bytes(32), bytes([1]) * 32), populations)]
            first = [_drawn(like, *pair) for pair in pairs]
            again = [_drawn(like, *pair) for pair in reversed(pairs)]
            problems.require(first == again[::-1], "it draws otherwise when it is asked again: it must keep nothing")
    problems.conclude()


def _drawn(law: Any, key: bytes, population: Population) -> tuple[Hashable, Hashable, list[Address]]:
    """What a law draws, twice from one plan, and at which addresses."""
    noting = Noting(Keyed(key))
    plan = Plan.fresh(law, population, noting)
    return plan.history(), plan.history(), noting.every
