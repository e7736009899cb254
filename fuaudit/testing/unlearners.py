"""The contract of unlearners: rewriters of plans and editors of models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import torch
from torch import Tensor

from fuaudit import registry
from fuaudit.config import resolve
from fuaudit.data.partition import partition
from fuaudit.draws import END, Draws, Position
from fuaudit.errors import BudgetError, FuauditError, UsageError
from fuaudit.plans import Law, Plan, Population, Request, UniformLaw, WeightedLaw
from fuaudit.plans.availability import (
    Availability,
    AvailabilityLaw,
    Batches,
    BoundedRoundRobin,
    FreshBatches,
    PermutedEpochs,
    PoissonBatches,
    StaticProbability,
    TimeVaryingWeights,
)
from fuaudit.plans.expanded import expand
from fuaudit.plans.reference import Reference
from fuaudit.plans.stacked import expand_many
from fuaudit.plans.veil import rewritten
from fuaudit.proofs.exactness import estimated_leaves, exactness
from fuaudit.proofs.toys import Toy, federation, further_trials, trials
from fuaudit.testing.problems import Problems
from fuaudit.testing.tiny import key_of, tiny_config, tiny_dataset
from fuaudit.training.execute import execute, initial_state
from fuaudit.training.setup import Setup, setup
from fuaudit.unlearning.apply import edited
from fuaudit.unlearning.protocol import EVERY_LAW, Message, claims_exactness, is_editor

CHEAP = 400
"""Federations of :func:`fuaudit.proofs.toys.further_trials` with more leaves, about, are left out under a law."""

KEYS = 8
"""How many keys the form of a rewritten plan is checked under."""


def check_unlearner(unlearner: Any, laws: Sequence[Law] = (), leaves: int = 50_000) -> None:
    """Check that an unlearner keeps its contract.

    All unlearners: a frozen dataclass that declares ``needs``, ``participants``, ``guarantee`` and ``cite``,
    repeats itself, changes nothing it is given, and uses no global generator.

    Rewriters: the plan has the same law and the retained population. If ``exact_for`` names a law and the kinds of
    some requests, nothing erased is in any draw, and exactness is proved by enumeration on a fixed list of small
    federations (:func:`fuaudit.proofs.toys.trials`, :func:`~fuaudit.proofs.toys.further_trials`); ``fuaudit prove
    --up-to`` looks at all of a size. A draw from an old key over a smaller population is an error.

    Editors: on a tiny federation the model is finite and of the right shape, nothing undeclared is touched, and
    every message has declared ends and a size. Refusing one kind of request by UsageError is allowed.

    Args:
        laws: small laws of your own, for clients 0, 1 and 2 at most, on which exactness is proved too.
        leaves: the budget of each proof.

    Raises:
        AssertionError: the list of all that is wrong.
    """
    problems = Problems(unlearner, "unlearners")
    try:
        editor = is_editor(unlearner)
    except FuauditError as error:
        problems.require(False, str(error))
        problems.conclude()
        return
    problems.require(unlearner.guarantee.strip(), 'guarantee says nothing; "none" and "empirical only" are answers')
    if editor:
        _check_editor(unlearner, problems)
    else:
        problems.require("plan" in unlearner.needs, 'it rewrites plans without declaring that it needs "plan"')
        _check_form(unlearner, problems)
        _check_claims(unlearner, tuple(laws), leaves, problems)
    problems.conclude()


_LAWS: dict[str, Callable[[int, int, int, int], Law]] = {
    "uniform with replacement": lambda r, k, e, b: UniformLaw(r, k, e, b, replacement=True),
    "uniform without replacement": lambda r, k, e, b: UniformLaw(r, k, e, b, replacement=False),
    "weighted without replacement": lambda r, k, e, b: WeightedLaw(
        r, k, e, b, weights=((0, 1), (1, 2), (2, 3), (3, 1), (4, 2))
    ),
}


def _of_availability(
    who: Callable[[int], Availability], what: Callable[[int, int, int], Batches]
) -> Callable[..., Law]:
    return lambda r, k, e, b: AvailabilityLaw(r, who(k), what(r, e, b), first_all=False)


def _poisson(rounds: int, steps: int, batch: int) -> Batches:
    """With rate 1/2 where there is one batch; of several there are too many outcomes, so they have rate 1."""
    return PoissonBatches(steps, Fraction(1, 2 if rounds * steps * batch == 1 else 1), batch, divisor=batch)


_WHO: tuple[Callable[[int], Availability], ...] = (
    lambda k: BoundedRoundRobin(k + 1, "aligned" if k == 1 else "drawn"),
    lambda k: StaticProbability(Fraction(k, 3)),
    lambda k: TimeVaryingWeights(number=k, largest=2),
    lambda k: TimeVaryingWeights(share=Fraction(2, 3), largest=k),
)
_WHAT: tuple[Callable[[int, int, int], Batches], ...] = (
    lambda r, e, b: FreshBatches(e, b),
    lambda r, e, b: PermutedEpochs(e, b, largest=4),
    _poisson,
)
_LAWS |= {f"{who(1).name}, {what(1, 1, 1).name}": _of_availability(who, what) for who, what in product(_WHO, _WHAT)}


def _check_form(unlearner: object, problems: Problems) -> None:
    """One rewrite after another under true keys: form, determinism, inputs left alone, nothing erased drawn."""
    for name, make_law in _LAWS.items():
        for trial in trials(make_law):
            claimed = _claims(unlearner, name, trial)
            for number in range(KEYS):
                plan = Plan.fresh(trial.law, trial.population, key_of(number))
                for place, (request, moment) in enumerate(zip(trial.requests, trial.not_before, strict=True), 1):
                    # a law and a kind of request that it does not claim may be refused
                    refusal = () if claims_exactness(unlearner, name, request.kind) else (UsageError,)
                    with problems.during("rewriting a plan"), suppress(*refusal):
                        plan = _rewrite_once(unlearner, plan, request, moment, number + 1000 * place, problems)
                whole = len(plan.populations) > len(trial.requests)
                if whole and claimed:
                    with problems.during("drawing a rewritten plan"):
                        problems.require(not _strangers(plan), f"something erased is still drawn: {trial}")


def _rewrite_once(
    unlearner: object, plan: Plan, request: Request, moment: Position, key: int, problems: Problems
) -> Plan:
    watched = _Watched(unlearner)
    again = rewritten(watched, type(unlearner).__name__, plan, request, key_of(key), moment)
    same = watched.given == [(plan.populations, plan.law, request)]
    problems.require(same, "it changes the plan, population or request that it was given")
    new = rewritten(unlearner, type(unlearner).__name__, plan, request, key_of(key), moment)
    problems.require(new == again, "it rewrites the same plan in two ways: it is not deterministic")
    return new


class _Watched:
    """A rewriter, and what it was given as it is afterwards: every rewriting gets objects of its own."""

    def __init__(self, unlearner: Any) -> None:
        self.unlearner = unlearner
        self.given: list[tuple[tuple[Population, ...], Law, Request]] = []

    def rewrite(self, plan: Plan, request: Request, fresh: Draws, not_before: Position) -> Plan:
        """As the rewriter does."""
        new: Plan = self.unlearner.rewrite(plan, request, fresh, not_before)
        self.given.append((plan.populations, plan.law, request))
        return new


def _strangers(plan: Plan) -> set[int]:
    """What is drawn somewhere, but is not in the retained population."""
    schedule = expand(plan)
    clients = set(schedule.cohorts.reshape(-1).tolist()) - {-1, *plan.retained.clients}
    return clients | set(schedule.batches.reshape(-1).tolist()) - {-1, *plan.retained.owner}


def _check_claims(unlearner: Any, laws: tuple[Law, ...], leaves: int, problems: Problems) -> None:
    """Prove every claim of exactness, or name the federation that refutes it."""
    known = {name: [*trials(make), *filter(_is_cheap, further_trials(make))] for name, make in _LAWS.items()}
    for law in laws:
        members = federation((2, 1, 2))
        for request in (Request.of(clients=[0]), Request.of(samples=[0]), Request.of(clients=[1], samples=[0])):
            known.setdefault(law.name, []).append(Toy(law, members, (request,), (END,)))
    for name in sorted({name for name, _ in unlearner.exact_for} - {EVERY_LAW} - known.keys()):
        problems.require(False, f"it claims to be exact for {name!r}, which was not tried: give such a law by laws=")
    for name in known:
        for trial in known[name]:
            if _claims(unlearner, name, trial):
                with problems.during(f"proof of exactness for {name!r}"):
                    _prove(unlearner, name, trial, leaves, problems)


def _is_cheap(toy: Toy) -> bool:
    """Whether a proved method takes few leaves on it."""
    return estimated_leaves(Reference(), *toy, probes=4, most=CHEAP) <= CHEAP


def _claims(unlearner: object, law: str, trial: Toy) -> bool:
    """Whether a rewriter claims to be exact for all requests of a trial."""
    return all(claims_exactness(unlearner, law, request.kind) for request in trial.requests)


def _prove(unlearner: Any, name: str, trial: Toy, leaves: int, problems: Problems) -> None:
    try:
        result = exactness(unlearner, trial.law, trial.population, trial.requests, trial.not_before, leaves)
    except BudgetError:
        problems.require(False, f"no proof within {leaves} leaves: {trial}")
        return
    problems.require(
        result.exact,
        f"it is not exact for {name!r}: total variation {result.total_variation} from retraining, "
        f"{trial}; {result.witness}",
    )


def _tiny() -> tuple[Setup, Plan, dict[int, Tensor]]:
    """A tiny federation, its plan, and the models of all rounds."""
    ready = setup(resolve(tiny_config()), tiny_dataset())
    source = key_of(1)
    members = partition(registry.build("partitions", ready.config.partition), ready.dataset, source)
    plan = Plan.fresh(ready.learner.law, members, source)
    start = initial_state(ready.procedure, [plan], plan.retained, ready.device)
    models = {0: start.vectors[0]}
    problem = ready.client_problem(members)
    for round_number, moment in execute(ready.procedure, problem, members, expand_many([plan]), start, ready.engine):
        models[round_number] = moment.vectors[0]
    return ready, plan, models


def _check_editor(unlearner: object, problems: Problems) -> None:
    ready, plan, models = _tiny()
    first, second = plan.retained.clients[:2]
    requests = Request.of(clients=[first]), Request.of(samples=plan.retained.samples[second][:1])
    refused = 0
    for request in requests:
        with problems.during(f"editing a model to forget a {request.kind}"):
            try:
                _edit_twice(unlearner, (ready, plan, models), request, problems)
            except UsageError:
                refused += 1
    problems.require(refused < len(requests), "it refuses requests of every kind")


def _edit_twice(
    unlearner: object, setting: tuple[Setup, Plan, dict[int, Tensor]], request: Request, problems: Problems
) -> None:
    ready, plan, models = setting
    new = plan.erase(request, key_of(2), END)
    results = []
    for _ in range(2):
        given = {round_number: model.clone() for round_number, model in models.items()}
        data = ready.dataset.test_inputs.clone(), ready.dataset.test_targets.clone()
        lent = replace(ready, dataset=replace(ready.dataset, test_inputs=data[0], test_targets=data[1]))
        final = models[max(models)].clone()
        vector, messages = edited(lent, plan, new, unlearner, type(unlearner).__name__, final, given)
        intact = torch.equal(final, models[max(models)]) and given.keys() == models.keys()
        intact = intact and all(torch.equal(given[round_number], models[round_number]) for round_number in models)
        intact = (
            intact
            and torch.equal(data[0], ready.dataset.test_inputs)
            and torch.equal(data[1], ready.dataset.test_targets)
        )
        problems.require(intact, "it changes models or data that it was given, in place")
        _check_messages(unlearner, messages, problems)
        results.append((vector, messages))
    same = torch.equal(results[0][0], results[1][0]) and results[0][1] == results[1][1]
    problems.require(same, "it makes two models of one: it is not deterministic")


def _check_messages(unlearner: Any, messages: list[Message], problems: Problems) -> None:
    for message in messages:
        problems.require(message.size > 0, "it sent a message without a size")
        for end in (message.sender, message.receiver):
            role = end if end in ("server", "target") else "retained clients"
            problems.require(role in unlearner.participants, f"{role} took part, which it does not declare")
