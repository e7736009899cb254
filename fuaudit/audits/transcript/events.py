"""Events: who tells what in the ledger of a sealed view, and how often, by its config.

A server writes the ledger, so each word in it is room. Parts of fuaudit tell of few things, each once a round, and of
clients who are in it. What parts of other packages tell, and in which order all of it stands, is as told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fuaudit import registry
from fuaudit.audits.transcript.known import cohort_of, told_rounds
from fuaudit.budgets.family import Release
from fuaudit.declared import is_agreement, says
from fuaudit.plans.stage_draws import OF_SOLVER
from fuaudit.runs.procedure import named_parts
from fuaudit.runs.released import release_of, releases_of
from fuaudit.runs.run import Run
from fuaudit.secure.recheck.shown import Wrong
from fuaudit.training.events import COORDINATES, REJECTED_FOR, VALUES


@dataclass(frozen=True)
class Part:
    """A part of fuaudit's own that tells of rounds.

    Attributes:
        kinds: of what it may tell.
        words: what it may send and answer; empty where it does neither.
    """

    kinds: frozenset[str]
    words: frozenset[str] = frozenset()


AGREEMENT = Part(frozenset({"sent", "answered", "released", "rejected"}), frozenset({COORDINATES, VALUES}))
CLIENT = Part(frozenset({"sent", "released"}), frozenset({"update", COORDINATES, VALUES}))
TRANSPORT = Part(frozenset({"summed", "suspected"}))
SOLVER = Part(frozenset({"released"}))
SERVER = Part(frozenset())
EXCHANGE = Part(frozenset({"failed", "rejected"}))
PLACES = {"client": CLIENT, "transport": TRANSPORT, "solver": SOLVER, "server": SERVER}
"""By the place of a part in a round: what it may tell."""


def wrong_events(run: Run) -> Iterator[Wrong]:
    """What the ledger tells of a round that no part of the config tells, tells twice, or of somebody not in it."""
    parts, cohort = own_parts(run), cohort_of(run)
    solver, dimension = registry.build("solvers", run.config.solver), run.model.numel()
    for event in told_rounds(run):
        number, clients, seen = event["round"], {*cohort(event["round"])}, set[tuple[object, ...]]()
        for one in event.get("told", ()):
            told = f"the ledger tells of {one['part']} that it {one['kind']}"
            named = one["kind"], one["part"], one.get("what"), one.get("client"), str(one.get("clients"))
            if named in seen:
                yield Wrong("told", f"{told} something, twice", number)
            elif "client" in one and one["client"] not in clients:
                yield Wrong("told", f"{told} something of client {one['client']}, who is not in the round", number)
            elif why := _wrong(run, parts.get(one["part"]), one):
                yield Wrong("told", f"{told} {why}", number)
            seen.add(named)
        if not _is_of_solver(solver, dimension, releases_of(event)):
            yield Wrong("told", f"{OF_SOLVER} tells that it releases what its config does not have", number)


def _wrong(run: Run, part: Part | None, event: Mapping[str, Any]) -> str:
    """Why a part does not tell such an event; empty where it may, as one of another package mostly."""
    if not run.exchange.may_tell(event) or (part is not None and event["kind"] not in part.kinds):
        return "something, and it never does"
    if part is None:
        return ""
    if event["kind"] in ("sent", "answered") and event["what"] not in part.words:
        return f"{event['what']}, and it never does"
    if event["kind"] == "rejected" and event["client"] not in run.exchange.deviating:
        return f"client {event['client']}, who is honest by the config"
    if event["kind"] == "rejected" and event["why"] not in REJECTED_FOR:
        return f"client {event['client']} for a reason that it never tells"
    return ""


def _is_of_solver(solver: Any, dimension: int, released: Iterable[Release]) -> bool:
    """Whether what the solver released in a round, of all that was, is what its config has, or nothing."""
    told = [one for one in released if one.part == str(OF_SOLVER)]
    return not told or (says(solver, "releases") and told == [release_of(str(OF_SOLVER), solver, dimension)])


def own_parts(run: Run) -> dict[str, Part]:
    """The parts of a config that are fuaudit's own, by their names in the ledger."""
    stages = run.exchange.client_stages.stages
    found = {"exchange": EXCHANGE}
    for name, (kind, use) in named_parts(run.config).items():
        if registry.find(kind, use).own:
            place, _, number = name.partition(".")
            agrees = place == "client" and is_agreement(stages[int(number)])
            found[name] = AGREEMENT if agrees else PLACES[place]
    return found
