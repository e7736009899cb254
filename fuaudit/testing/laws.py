"""The contract of laws."""

from __future__ import annotations

from typing import Any

from fuaudit.draws import Keyed
from fuaudit.plans import Plan, Request
from fuaudit.plans.tried_laws import require_law
from fuaudit.proofs.toys import federation
from fuaudit.testing.problems import Problems


def check_law(law: Any) -> None:
    """Check that a law keeps its contract.

    Over small federations, before and after a client or a sample is erased, the law and each of its smaller ones say
    what can be, draw clients and samples that are there, and draw each at its own address
    (:func:`fuaudit.plans.tried_laws.require_law`). They draw the same when asked again, and smaller laws have its
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
            plan = Plan.fresh(like, whole, Keyed(bytes(32)))
            problems.require(plan.history() == plan.history(), "it draws otherwise when it is asked again")
    problems.conclude()
