"""One request carried out on many plans: a rewriter is run once for each distinct cut where nothing else decides.

Most rewriters look at one thing: where the request is first involved. One that declares so (``by_first_involvement``)
is run on a plan whose draws are closed: it sees the segments, the request and the first involvement, which is all that
the plans of one cut have in common. So what it makes of one it makes of all. Three things hold it to its word:

1. Closed draws: a rewriter that asks for any is refused, whatever it catches.
2. The word holds where it stands: a subclass with a rewriting of its own has to say it again.
3. Samples: on some plans, by their keys, it is run with draws that are open. Another result is refused. So is code that
   counts its calls, and has no use for draws.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn, cast

import numpy as np

from fuaudit.declared import says
from fuaudit.draws import Draws, Position, Recorded
from fuaudit.draws.columns import Column, Listed
from fuaudit.errors import PluginError
from fuaudit.plans.expanded import Ids
from fuaudit.plans.involvement import knowing
from fuaudit.plans.law import Law
from fuaudit.plans.many import Plans, Streams, distinct, key_of
from fuaudit.plans.plan import Plan
from fuaudit.plans.population import Population, Request
from fuaudit.plans.veil import rewritten

WORD = "by_first_involvement"

CHECKED = 64
"""One plan in so many, about, is rewritten by itself where the others are rewritten by their cuts."""


def by_first_involvement(unlearner: object) -> bool:
    """Whether a rewriter declares that first involvement alone decides, beside the rewriting that it has."""
    kind = type(unlearner)
    own = next((part for part in kind.__mro__ if "rewrite" in vars(part)), kind)
    said = any(WORD in vars(part) for part in kind.__mro__[: kind.__mro__.index(own) + 1])
    return said and says(unlearner, WORD) is True


class Closed:
    """Draws that answer nothing: whoever asks is refused."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _refuse(self, *asked: Any) -> NoReturn:
        raise PluginError(
            f"unlearner {self._name!r} declares {WORD}, and asks its plan for more than the first involvement of the "
            "request",
            f"Take the word {WORD} away: it is then run on every plan by itself.",
        )

    sequence = subset = many_subsets = weighted = independent = permutation = uniform = _refuse


@dataclass(frozen=True)
class Carrier:
    """Carries out one request by one method, on plans of one law over one history of populations.

    It remembers what the method made of each cut, as long as it lives.
    """

    unlearner: Any
    name: str
    request: Request
    not_before: Position
    _made: dict[Any, tuple[Streams, Law, tuple[Population, ...]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def carried_out(self, plans: Plans, fresh: Column, rounds: Ids, steps: Ids) -> Plans:
        """What the method makes of plans, each with its own new draws.

        ``rounds`` and ``steps`` ``(n,)`` are those of :func:`fuaudit.plans.involvement.involvements`.

        Raises:
            PluginError: the method raised, returned no plan over the retained population, or does not keep its word.
        """
        if not by_first_involvement(self.unlearner):
            return self._one_by_one(plans, fresh, rounds, steps)
        places = np.stack([plans.form, rounds, steps])
        cuts, inverse = np.unique(places, axis=1, return_inverse=True)
        made = [self._of(plans, plans.streams[form], Position(r, e)) for form, r, e in cuts.T.tolist()]
        streams, form = distinct(made)
        populations = (*plans.populations, plans.retained.without(self.request))
        after = Plans(plans.law, populations, (*plans.columns, fresh), streams, form[inverse.reshape(-1)])
        self._check(plans, fresh, rounds, steps, after)
        return after

    def _rewritten(self, plan: Plan, fresh: Draws, first: Position) -> Plan:
        known = knowing(plan, self.request, first)
        return rewritten(self.unlearner, self.name, known, self.request, fresh, self.not_before)

    def _of(self, plans: Plans, streams: Streams, first: Position) -> Streams:
        """The streams of all plans with these streams in which the request is first involved there."""
        key = id(plans.law), *map(id, plans.populations), key_of(streams), first
        if (known := self._made.get(key)) is None:
            closed = cast(Draws, Closed(self.name))
            plan = Plan(plans.law, plans.populations, (closed,) * len(plans.columns), streams)
            new = self._rewritten(plan, closed, first)
            if isinstance(new.sources[-1], Recorded):
                raise self._another("writes draws down that it cannot have seen")
            # law and populations are kept too, so that nothing else comes to have their numbers
            known = self._made[key] = new.streams, plans.law, plans.populations
        return known[0]

    def _check(self, plans: Plans, fresh: Column, rounds: Ids, steps: Ids, after: Plans) -> None:
        """Some plans rewritten by themselves. Which ones follows from keys, which no method sees."""
        for place in range(len(plans)):
            if not is_sample(plans.columns[0], place):
                continue
            plan, source = plans[place], fresh[place]
            new = self._rewritten(plan, source, Position(int(rounds[place]), int(steps[place])))
            if new.streams != after.streams[after.form[place]] or new.sources[-1] is not source:
                raise self._another("rewrites a plan otherwise when its draws are open")

    def _another(self, what: str) -> PluginError:
        return PluginError(
            f"unlearner {self.name!r} declares {WORD}, and {what}", f"Take the word {WORD} away, or keep it."
        )

    def _one_by_one(self, plans: Plans, fresh: Column, rounds: Ids, steps: Ids) -> Plans:
        firsts = map(Position, rounds.tolist(), steps.tolist())
        sources = [fresh[place] for place in range(len(plans))]
        new = [self._rewritten(*each) for each in zip(plans, sources, firsts, strict=True)]
        streams, form = distinct(plan.streams for plan in new)
        last = [plan.sources[-1] for plan in new]
        own = all(a is b for a, b in zip(last, sources, strict=True))
        return Plans(plans.law, new[0].populations, (*plans.columns, fresh if own else Listed(last)), streams, form)


def is_sample(column: Column, place: int) -> bool:
    """Whether a plan is rewritten by itself: by the first byte of the secret of its first source, where it has one."""
    secret = getattr(column, "secret", None)
    found = secret(place) if secret is not None else getattr(column[place], "secret", b"\0")
    return found[0] < 256 // CHECKED
