"""Pairs of runs: what level 6 samples, as work that an executor can cut up.

Pair i holds one fresh original and what unlearning makes of it, two fresh retrained runs and, for an editor, one
that the same editor has been applied to though it never had the target. Every run of every pair has draws of its
own, from the audit's key, the name of its arm and i.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fuaudit import registry
from fuaudit.commitments.keys import derive
from fuaudit.data.dataset import Dataset
from fuaudit.draws import END, Keyed, Stream
from fuaudit.errors import EvidenceError, PluginError
from fuaudit.formats.files import sha256
from fuaudit.formats.forms import canonical_json
from fuaudit.plans import Plan
from fuaudit.plans.expanded import SelectedRuns, most_ids
from fuaudit.plans.stacked import IDS_AT_ONCE, LazySchedule
from fuaudit.replicas.measure import Measure
from fuaudit.runs.run import load_run
from fuaudit.runs.writer import versions
from fuaudit.training.engines import Engine, engine, suggested
from fuaudit.training.engines.batched import Batched
from fuaudit.training.engines.protocol import single_threaded
from fuaudit.training.execute import RoundState, execute, initial_state
from fuaudit.training.setup import Setup
from fuaudit.unlearning.apply import edited, provenance, rewritten
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence
from fuaudit.workers import Arrays, Shard, digest_of_code

Floats = NDArray[np.float64]

ARMS = ("subject", "untouched", "retrained", "second")
"""The arms of every pair: unlearned, the same run before, and two retrained ones that share nothing."""

WITHOUT = "without"
"""The arm of editors alone: the editor applied to a run that never had the target."""

PAIRS_A_SHARD = 32
"""Fixed, so that neither the number of workers nor that of pairs changes a bit. Fewer where models or rounds are large.
"""

RUNS_ABREAST = 16
"""Runs that the batched engine advances in one operation; two make a part, one for each of two threads."""

_NUMBERS_AT_HAND = 40_000_000  # of stored round models: 160 MB in float32


def runs_a_pair(is_editor: bool) -> int:
    """The training runs that a pair costs: an original, two retrained ones, and one of the subject's own.

    The rounds that a rewriter redraws, or an editor adds, are counted as a run of their own.
    """
    return len(ARMS) + is_editor


@dataclass(frozen=True)
class Pairs:
    """The statistics of pairs, as a work: part ``(first, count)`` gives ``(count, 10)`` for every arm.

    Holds plain values, from which a worker process builds the case anew.
    """

    run: Path
    run_digest: str
    rows: dict[str, Any] = field(repr=False)
    secret: bytes = field(repr=False)
    test_rows: int

    @classmethod
    def of(cls, case: Case, test_rows: int) -> Pairs:
        """The pairs of a case whose data is at hand."""
        data = case.rerun.ready.dataset
        rows = {name: value.numpy() if isinstance(value, Tensor) else value for name, value in vars(data).items()}
        return cls(case.run.path, case.run.digest, rows, case.key.secret, test_rows)

    @cached_property
    def case(self) -> Case:
        """The case, opened again; EvidenceError when the run has changed meanwhile."""
        run = load_run(self.run)
        if run.digest != self.run_digest:
            raise EvidenceError(f"{self.run} has changed during its audit")
        rows: dict[str, Any] = {
            k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in self.rows.items()
        }
        return Case(Evidence(run, None, Dataset(**rows)), Keyed(self.secret))

    @cached_property
    def digest(self) -> str:
        """See :class:`~fuaudit.workers.Job`."""
        hasher = hashlib.sha256()
        for name, value in sorted(self.rows.items()):
            plain = sorted(value) if isinstance(value, frozenset) else value
            content = value.tobytes() if isinstance(value, np.ndarray) else canonical_json(plain)
            shape = list(value.shape) if isinstance(value, np.ndarray) else []
            hasher.update(canonical_json([name, shape, len(content)]) + content)
        case, ready = self.case, self.case.rerun.ready
        name = case.run.info["unlearner"]["use"]
        model = registry.find("models", ready.config.model["use"]).load()
        plugins = (ready.learner, ready.procedure.solver, *ready.procedure.chain.stages, case.evidence.unlearner)
        facts = {
            "work": "pairs",
            "run": self.run_digest,
            "data": hasher.hexdigest(),
            # the key itself is not for files
            "key": sha256(self.secret),
            "test rows": self.test_rows,
            "versions": versions(ready.device.type),
            "unlearner": provenance(registry.find("unlearners", name), case.evidence.unlearner),
            "code": digest_of_code([model.__module__, *(type(plugin).__module__ for plugin in plugins)]),
        }
        return sha256(canonical_json(facts))

    @cached_property
    def measure(self) -> Measure:
        """The statistics."""
        return Measure.of(self.case, self.test_rows)

    def shards(self, pairs: int) -> list[Shard]:
        """The parts that hold the first so many pairs."""
        law = self.case.run.plan.law
        models = self.case.rerun.ready.procedure.layout.dimension * (law.rounds + 1)
        before = self.case.run.before
        # rounds are drawn some at a time, at least one for all pairs of a part
        size = max(1, min(PAIRS_A_SHARD, _NUMBERS_AT_HAND // models, IDS_AT_ONCE // most_ids(law, before)))
        return [(first, min(size, pairs - first)) for first in range(0, pairs, size)]

    def compute(self, shard: Shard, threads: int) -> Arrays:
        """Train, unlearn and retrain the pairs of a part, and measure. An arm that an editor refuses is left out."""
        single_threaded()
        first, count = shard
        case, numbers = self.case, range(first, first + count)
        ready, plan = case.rerun.ready, case.run.plan
        # where few of those who may take part do, lanes for all of them would be computed in vain
        maker = _engine(ready, plan.law.cohort_size or 1, threads)
        originals = [Plan.fresh(plan.law, case.run.before, _source(case, "original", i)) for i in numbers]
        history = _rounds(ready, originals, maker)
        result = {
            "untouched": self.measure(history[-1].vectors),
            "subject": self.measure(_subjects(case, originals, history, maker, numbers, threads)),
        }
        for arm in ("retrained", "second"):
            fresh = [Plan.fresh(plan.law, plan.retained, _source(case, arm, i)) for i in numbers]
            result[arm] = self.measure(_rounds(ready, fresh, maker, keep=False)[-1].vectors)
        if case.evidence.is_editor:
            without = [Plan.fresh(plan.law, plan.retained, _source(case, WITHOUT, i)) for i in numbers]
            try:
                models = _edits(case, without, _rounds(ready, without, maker), numbers, threads, "request without")
                result[WITHOUT] = self.measure(models)
            except PluginError:
                pass  # not every editor can be asked to forget what a run never had
        return result


def _engine(ready: Setup, places: int, threads: int) -> Engine:
    maker = engine(suggested(ready.procedure.module, ready.device, many=True), threads)
    if isinstance(maker, Batched) and ready.device.type == "cpu":
        return replace(maker, stack_size=RUNS_ABREAST * places)
    return maker


def _source(case: Case, arm: str, number: int) -> Keyed:
    return Keyed(derive(case.key.secret, "parameters", arm, str(number)))


def _rounds(ready: Setup, plans: Sequence[Plan], maker: Engine, keep: bool = True) -> list[RoundState]:
    """The moments after rounds 0 to R of many runs over one population; only the last one unless ``keep``."""
    population = plans[0].retained
    round_states = [initial_state(ready.procedure, plans, population, ready.device)]
    problem, schedule = ready.client_problem(population), LazySchedule(plans)
    for _, round_state in execute(ready.procedure, problem, population, schedule, round_states[0], maker):
        round_states = [*round_states, round_state] if keep else [round_state]
    return round_states


def _subjects(
    case: Case, originals: list[Plan], history: list[RoundState], maker: Engine, numbers: range, threads: int
) -> Tensor:
    """The unlearned models ``(n, d)`` of some originals, made as `unlearn` makes them."""
    assert case.request is not None
    if case.evidence.is_editor:
        return _edits(case, originals, history, numbers, threads, "request")
    name = case.run.info["unlearner"]["use"]
    fresh = [_source(case, "request", i) for i in numbers]
    method = case.evidence.unlearner
    plans = [rewritten(method, name, p, case.request, s, END) for p, s in zip(originals, fresh, strict=True)]
    # runs of one history of populations are stacked by making the populations the same object
    shared = plans[0].populations
    plans = [replace(plan, populations=shared) for plan in plans]
    ready, before = case.rerun.ready, case.run.before
    inherited = [state.without(ready.procedure, before, plans[0].retained) for state in history]
    return _resume(ready, plans, originals, inherited, maker)


def _edits(
    case: Case, plans: list[Plan], history: list[RoundState], numbers: range, threads: int, own_draws: str
) -> Tensor:
    """The models ``(n, d)`` that an editor makes of some runs; the runs may never have had the target."""
    assert case.request is not None
    name, retained = case.run.info["unlearner"]["use"], case.run.plan.retained
    ready = replace(case.rerun.ready, engine=engine(case.rerun.ready.engine.name, threads))
    target = case.request, case.run.before
    models = []
    for place, (plan, i) in enumerate(zip(plans, numbers, strict=True)):
        fresh = _source(case, own_draws, i)
        stored = {round_number: round_state.vectors[place].cpu() for round_number, round_state in enumerate(history)}
        after = replace(plan, populations=(plan.retained, retained), sources=(*plan.sources, fresh))
        models.append(edited(ready, plan, after, case.evidence.unlearner, name, stored[max(stored)], stored, target)[0])
    return torch.stack(models).to(ready.device)


def _resume(ready: Setup, plans: list[Plan], originals: list[Plan], history: list[RoundState], maker: Engine) -> Tensor:
    """Final models ``(n, d)``: every run goes on from the start of its first changed round, on the retained data."""
    rounds = plans[0].law.rounds
    firsts = np.array([min(max(p.first_change(o).round, 1), rounds + 1) for p, o in zip(plans, originals, strict=True)])
    initial = [[p.streams[Stream.INITIAL] for p in pair] for pair in zip(plans, originals, strict=True)]
    redrawn = [place for place, (new, old) in enumerate(initial) if new != old]
    vectors = history[-1].vectors.clone()
    state = {k: v.clone() for k, v in history[-1].state.items()}
    if redrawn:
        begin = initial_state(ready.procedure, [plans[place] for place in redrawn], plans[0].retained, ready.device)
    schedule, population = LazySchedule(plans), plans[0].retained
    problem = ready.client_problem(population)
    for round_number in range(1, rounds + 1):
        starting = np.flatnonzero(firsts == round_number)
        vectors[starting] = history[round_number - 1].vectors[starting]
        for key, value in state.items():
            value[starting] = history[round_number - 1].state[key][starting]
        if round_number == 1 and redrawn:
            vectors[redrawn] = begin.vectors
            for key, value in state.items():
                value[redrawn] = begin.state[key]
        active = np.flatnonzero(firsts <= round_number)
        if not len(active):
            continue
        part = SelectedRuns(schedule, active, round_number)
        round_state = RoundState(vectors, state)[active]
        *_, (_, round_state) = execute(
            ready.procedure, problem, population, part, round_state, maker, first=round_number
        )
        vectors[active] = round_state.vectors
        for key, value in state.items():
            value[active] = round_state.state[key]
    return vectors
