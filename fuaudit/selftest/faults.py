"""The faults, the ground on which each is planted, and the level that must catch it.

Audits of unlearning are usually measured by ten: no redraw, a late one, a relabelled index, a reused key, leaking
state, rounds that depend on the data, a lucky operator, an adaptive request, fine-tuning in place of retraining, and a
wrong acceptance probability. The last one belongs to a single method and is declared beside it. One more is what
methods with a memory of every client add, as they declare: the model goes back, the memory does not. Two are about
what clients draw: the noise of before over changed rows, and a secret that was not committed to.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fuaudit import registry
from fuaudit.commitments.keys import derive
from fuaudit.config import resolve
from fuaudit.draws import END, Enumeration, Keyed, Stream, enumerate_law
from fuaudit.errors import EvidenceError, KeyReuseError, PluginError
from fuaudit.plans import Law, Plan, Population, Request, UniformLaw
from fuaudit.plans.veil import rewritten
from fuaudit.progress import Progress, silent
from fuaudit.proofs import exactness
from fuaudit.proofs.exactness import adaptive_exactness
from fuaudit.proofs.toys import federation
from fuaudit.runs.layout import MANIFEST, SECRETS
from fuaudit.runs.platforms import Platform, platforms_kept
from fuaudit.runs.run import Run, load_run
from fuaudit.selftest.mutants import KeepsAll, Late, OldKey, Relabelled, Shorter
from fuaudit.statistics.rounding import down
from fuaudit.statistics.two_sample.power import lower_limit
from fuaudit.text import counted
from fuaudit.training.execute import RoundState, state_without
from fuaudit.training.setup import depended_on, setup
from fuaudit.unlearning.faults import MemoryKept, WrongRelative, selftest_faults
from fuaudit.unlearning.protocol import claims_exactness
from fuaudit.verification.spec import read_spec
from fuaudit.verification.verify import verify
from fuaudit.workflow.append import mend_ledger
from fuaudit.workflow.train import finish, train
from fuaudit.workflow.unlearn import carry_out, record_request, unlearn
from fuaudit.workflow.writer import RunWriter

TABLES: dict[str, Any] = {
    "data": {"use": "digits"},
    "partition": {"use": "one-holder", "clients": 10, "label": 9},
    "model": {"use": "linear"},
    "learner": {"use": "fats", "rounds": 12, "cohort": 2, "steps": 2, "batch": 8, "step_size": 0.1},
    "run": {"checkpoint_every": 4, "engine": "reference", "device": "cpu"},
}
"""A small federation on digits; client 0 alone holds the nines."""

A_ROUND = {"use": "fedavg", "rounds": 12, "cohort": 2, "steps": 2, "batch": 8, "step_size": 0.1}
"""The learner of methods that keep a row a client: nobody takes part twice in a round."""

TARGET = Request.of(clients=[0])
"""Fixed in advance."""


@dataclass(frozen=True)
class Ground:
    """What faults are planted on: the rewriter under test, a folder to write in, a key, and how often to repeat.

    ``pairs`` of runs are compared in each repetition of a statistical level.
    """

    name: str
    folder: Path
    key: Keyed
    repetitions: int
    pairs: int
    progress: Progress = silent

    @property
    def unlearner(self) -> Any:
        """The rewriter under test, with its default options."""
        return registry.build("unlearners", self.name)

    def secret(self, *label: str) -> bytes:
        """A key of its own for a part of the self-test."""
        return derive(self.key.secret, "selftest", *label)


@dataclass(frozen=True)
class Caught:
    """How often a fault was caught, by what evidence, and at what cost."""

    times: int
    tries: int
    evidence: str
    cost: str

    @property
    def power(self) -> float:
        """The share of tries in which the fault was caught."""
        return self.times / self.tries


@dataclass(frozen=True)
class Fault:
    """One planted fault: the level that must catch it, and how it is planted; statistical ones need power 0.9."""

    name: str
    level: str
    plant: Callable[[Ground], Caught]
    certain: bool = True

    def held(self, caught: Caught) -> bool:
        """Whether the level did what it is there for."""
        return caught.power == 1 if self.certain else caught.power >= GOAL


GOAL = 0.9
"""The power that is asked of statistical levels."""

CONFIDENCE = 0.95
"""Of the lower limit of that power."""


def _small() -> tuple[Law, Population]:
    return UniformLaw(2, 1, 1, 1), federation((1, 1, 1))


def _enumerated(mutant: Callable[[Any], Any]) -> Callable[[Ground], Caught]:
    def plant(ground: Ground) -> Caught:
        result = exactness(mutant(ground.unlearner), *_small(), [TARGET])
        return Caught(int(not result.exact), 1, f"total variation {result.total_variation}", f"{result.leaves} leaves")

    return plant


def wrong_relative(relative: WrongRelative, ground: Ground) -> Caught:
    """On the method that declares the fault, which passes, and on its relative."""
    methods = (registry.build("unlearners", name) for name in (relative.right, relative.wrong))
    right, wrong = (exactness(method, relative.law, relative.population, [relative.request]) for method in methods)
    evidence = f"total variation {wrong.total_variation}, and {right.total_variation} with the right one"
    return Caught(int(right.exact and not wrong.exact), 1, evidence, f"{right.leaves + wrong.leaves} leaves")


def reused_key(ground: Ground) -> Caught:
    """One key asked twice at one address, over two populations; looked at in old and new plan together."""
    law, members = _small()
    mutant = OldKey(ground.unlearner)

    def both(draws: Enumeration) -> Any:
        plan = Plan.fresh(law, members, draws.source("training"))
        return plan.history(), mutant.rewrite(plan, TARGET, draws.source("request"), END).history()

    try:
        enumerate_law(both)
    except KeyReuseError as error:
        return Caught(1, 1, str(error).splitlines()[0], "stops at the first reuse")
    return Caught(0, 1, "no address was asked twice", "")


def leaking_state(ground: Ground) -> Caught:
    """The server weighs by sample counts of everybody, so that kept rounds know who was there."""
    tables = TABLES | {"server": [{"use": "size-weighted", "by": "total"}]}
    child = _unlearned(ground, "leaking", tables)
    verdicts = _verdicts(ground, child, "replay", "stress", "lineage")
    # where nothing was kept, nothing can leak: stress plans decide then
    caught = verdicts["stress"] == "FAIL" or (verdicts["replay"] == "PASS" and not _keeps(ground))
    evidence = ", ".join(f"{name} {verdict}" for name, verdict in verdicts.items())
    return Caught(int(caught), 1, evidence if _keeps(ground) else f"no round is ever kept; {evidence}", "5 runs")


def memory_kept(ground: Ground) -> Caught:
    """The model goes back, the server's memory only loses the row of who is erased; beside it the right form.

    Where rounds depend on all clients only retraining is exact for them, so that is what is spoiled there.
    """
    found, right = [], []
    memories = [one for one in selftest_faults(ground.name) if isinstance(one, MemoryKept)]
    keeps = ground.name if claims_exactness(ground.unlearner, "uniform without replacement", "client") else "retrain"
    for memory in memories:
        tables = {**TABLES, "learner": A_ROUND, **memory.tables}
        by = replace(ground, name="retrain" if depended_on(resolve(tables), TARGET) else keeps)
        parent = _drawing_target(by, f"memory-{memory.name}", tables)
        child = _unlearned(by, f"memory-{memory.name}", {}, parent)
        spoiled = with_memory_kept(parent, child, ground.folder / f"memory-{memory.name}-kept")
        right.append(set(_verdicts(by, child, "replay", "lineage").values()) == {"PASS"})
        found.append(set(_verdicts(by, spoiled, "replay", "lineage").values()) == {"FAIL"})
    under = " and ".join(memory.name for memory in memories)
    evidence = f"replay and lineage FAIL under {under}, PASS where the memory goes back as well"
    caught = bool(found) and all(found) and all(right)
    return Caught(int(caught), 1, evidence if caught else "missed", f"at least {3 * len(memories)} runs")


def with_memory_kept(parent: Run, child: Run, out: Path) -> Run:
    """A child run executed anew from its last kept model, with the memory that its parent had at the end."""
    ready, plan, before = setup(child.config), child.plan, parent.plan.retained
    writer = _begun(child, parent, out, plan)
    kept = [round_number for round_number in child.checkpoints if round_number < max(child.info["first_change"][0], 1)]
    for round_number in kept:
        writer.checkpoint(round_number, *child.checkpoint(round_number))
    writer.record_platform(Platform.here(ready, kept[-1]), platforms_kept(parent.ledger, kept[-1]))
    writer.record("unlearning", first_change=child.info["first_change"], kept_rounds=kept[-1])
    vector, _ = child.checkpoint(kept[-1])
    memory = state_without(ready.procedure, parent.checkpoint(parent.checkpoints[-1])[1], before, plan.retained)
    start = RoundState.of_run(vector, memory, ready.device)
    return finish(writer, ready, plan, plan.law.rounds, silent, start)


DRAWING = {**TABLES, "client": [{"use": "quantise", "bits": 4}]}
"""Clients draw how they round."""


def old_noise(ground: Ground) -> Caught:
    """Stages draw with the parent's secrets after a request: its noise, over changed rows."""
    parent = _drawing_target(ground, "noise", DRAWING)
    child = _unlearned(ground, "noise", DRAWING, parent)
    (draws,) = child.stage_draws(child.plan)
    old = replace(draws, generations=draws.generations[:1] * len(draws.generations))
    writer = _begun(child, parent, ground.folder / "old-noise", child.plan)
    forged = carry_out(writer, setup(child.config), parent, child.plan, silent, (old,))
    right, wrong = (_verdicts(ground, run, "replay")["replay"] for run in (child, forged))
    evidence = f"replay {wrong}; with fresh secrets {right}"
    return Caught(int((right, wrong) == ("PASS", "FAIL")), 1, evidence, "3 runs")


def other_secret(ground: Ground) -> Caught:
    """A client draws with a secret that was never committed to, tried until its noise pleased."""
    run = _trained(ground, "secret", DRAWING)
    out, table = ground.folder / "other-secret", run.document(SECRETS)
    (own,) = table["generations"]
    shutil.copytree(run.path, out)
    (out / MANIFEST).unlink()
    writer = RunWriter(out, mend_ledger(out, run.rounds_executed))
    writer.write(SECRETS, table | {"generations": [own | {"1": ground.secret("another secret").hex()}]})
    writer.close("sealed")
    try:
        load_run(out)
    except EvidenceError as error:
        return Caught(1, 1, str(error).splitlines()[0].removeprefix(str(out)), "1 run")
    return Caught(0, 1, "the run was opened", "1 run")


def rounds_by_data(ground: Ground) -> Caught:
    """A plan of another shape is refused before anything is executed."""
    law, members = _small()
    mutant = Shorter(ground.unlearner)
    for number in range(64):
        plan = Plan.fresh(law, members, Keyed(ground.secret("rounds", str(number))))
        try:
            rewritten(mutant, "shorter", plan, TARGET, Keyed(ground.secret("anew", str(number))), END)
        except PluginError as error:
            return Caught(1, 1, str(error).splitlines()[0], counted(number + 1, "plan"))
    return Caught(0, 1, "64 plans went through", "64 plans")


def lucky_operator(ground: Ground) -> Caught:
    """An operator tries keys until he likes the plan, and records what it draws: it does not follow from the seeds."""
    parent = _trained(ground, "lucky", TABLES)
    out = ground.folder / "lucky-child"
    ready = setup(parent.config)
    for number in range(256):
        fresh = Keyed(ground.secret("luck", str(number)))
        plan = rewritten(ground.unlearner, ground.name, parent.plan, TARGET, fresh, END)
        if 1 in plan.cohort(plan.law.rounds):  # what this operator likes
            break
    if isinstance(plan.sources[-1], Keyed):
        plan = plan.recorded({})
        # no record holds the initial draw: a method that draws it anew too is given the old one
        plan = replace(plan, streams={**plan.streams, Stream.INITIAL: parent.plan.streams[Stream.INITIAL]})
    honest = _unlearned(ground, "lucky-honest", TABLES, parent)
    writer = _begun(honest, parent, out, plan)
    forged = carry_out(writer, ready, parent, plan, silent)
    verdicts = _verdicts(ground, forged, "integrity", "replay", "provenance")
    evidence = ", ".join(f"{name} {verdict}" for name, verdict in verdicts.items())
    return Caught(int(verdicts["provenance"] == "FAIL"), 1, f"key {number + 1} was taken; {evidence}", "3 runs")


def adaptive_request(ground: Ground) -> Caught:
    """Erase client 0 if client 1 was drawn, else client 2: given the request, exactness fails."""
    law, members = UniformLaw(1, 1, 1, 1), federation((1, 1, 1))

    def requester(plan: Plan) -> Request:
        return Request.of(clients=[0 if 1 in plan.cohort(1) else 2])

    results = adaptive_exactness(ground.unlearner, law, members, requester)
    gaps = {str(request): result.total_variation for request, result in results.items()}
    keeps = _keeps(ground)
    caught = any(gaps.values()) if keeps else not any(gaps.values())
    words = "; ".join(f"{request}: {gap}" for request, gap in gaps.items())
    return Caught(int(caught), 1, words if keeps else f"no round is ever kept, so nothing depends on it; {words}", "")


def fine_tuning(ground: Ground) -> Caught:
    """Three further rounds in place of retraining, told from it by repeated sampling."""
    times = sum(_rejected(ground, "finetune", number) for number in range(ground.repetitions))
    lower = lower_limit(times, ground.repetitions, CONFIDENCE)
    evidence = (
        f"rejected in {times} of {ground.repetitions} audits of at most {ground.pairs} pairs; power at least "
        f"{down(lower)} with confidence {CONFIDENCE}"
    )
    return Caught(times, ground.repetitions, evidence, f"at most {ground.repetitions * ground.pairs} pairs of runs")


def passes(ground: Ground, name: str) -> Caught:
    """The control: a right method, proved by enumeration for a client and a sample, is not rejected by any level."""
    method = replace(ground, name=name)
    proofs = {
        "client": exactness(method.unlearner, *_small(), [TARGET]),
        "sample": exactness(method.unlearner, UniformLaw(2, 1, 1, 1), federation((3, 2)), [Request.of(samples=[0])]),
    }
    child = _unlearned(method, f"right-{name}", TABLES)
    verdicts = _verdicts(method, child, "integrity", "replay", "stress", "provenance", "lineage")
    alarms = sum(_rejected(method, name, number) for number in range(ground.repetitions))
    right = all(proof.exact for proof in proofs.values()) and set(verdicts.values()) == {"PASS"} and not alarms
    distances = ", ".join(f"{proof.total_variation} for a {kind}" for kind, proof in proofs.items())
    evidence = f"total variation {distances}; " + ", ".join(f"{n} {v}" for n, v in verdicts.items())
    evidence += f"; {counted(alarms, 'false alarm')} in {ground.repetitions} audits"
    return Caught(
        int(right), 1, evidence, f"{sum(proof.leaves for proof in proofs.values())} leaves, {ground.repetitions} audits"
    )


FAULTS = (
    Fault("nothing drawn anew", "enumeration", _enumerated(KeepsAll)),
    Fault("drawn anew too late", "enumeration", _enumerated(Late)),
    Fault("relabelled index", "enumeration", _enumerated(Relabelled)),
    Fault("reused key", "addresses", reused_key),
    Fault("leaking state", "replay and stress", leaking_state),
    Fault("memory not rewound", "replay and lineage", memory_kept),
    Fault("rounds that depend on the data", "shape of the plan", rounds_by_data),
    Fault("lucky operator", "keys", lucky_operator),
    Fault("noise of the parent", "replay", old_noise),
    Fault("a secret not committed to", "integrity", other_secret),
    Fault("adaptive request", "enumeration", adaptive_request),
    Fault("fine-tuning", "model-law", fine_tuning, certain=False),
)
"""What can be planted around any rewriter."""


def all_faults(tested: str) -> tuple[Fault, ...]:
    """:data:`FAULTS`, and those that single methods declare: fuaudit's own, and the one that is tested."""
    relatives = [one for one in selftest_faults(tested) if isinstance(one, WrongRelative)]
    return (*FAULTS, *(Fault(one.name, "enumeration", partial(wrong_relative, one)) for one in relatives))


def _keeps(ground: Ground) -> bool:
    """Whether the rewriter ever keeps a round."""
    law, members = _small()
    plan = Plan.fresh(law, members, Keyed(ground.secret("keeps")))
    never = next(c for c in members.clients if c not in {*plan.cohort(1), *plan.cohort(2)})
    new: Plan = ground.unlearner.rewrite(plan, Request.of(clients=[never]), Keyed(ground.secret("keeps anew")), END)
    return bool(new.first_change(plan).round > 1)


def _begun(honest: Run, parent: Run, out: Path, plan: Plan) -> RunWriter:
    """A child run, begun as an honest one was but with a plan of the forger's choice."""
    writer = RunWriter(out)
    info = honest.info | {"first_change": list(plan.first_change(parent.plan))}
    writer.begin(honest.foundation, info, plan, honest.secrets, honest.requests)
    record_request(writer, parent)
    return writer


def _trained(ground: Ground, label: str, tables: dict[str, Any]) -> Run:
    return train(resolve(tables), ground.folder / label, secret=ground.secret("run", label), progress=ground.progress)


def _drawing_target(ground: Ground, label: str, tables: dict[str, Any]) -> Run:
    """A trained run that has drawn the target: else there is nothing to take back."""
    for number in range(256):
        run = _trained(ground, f"{label}-{number}", tables)
        if run.plan.first_involvement(TARGET) is not None:
            break
    return run


def _unlearned(ground: Ground, label: str, tables: dict[str, Any], parent: Run | None = None) -> Run:
    trained = parent or _trained(ground, label, tables)
    out = ground.folder / f"{label}-{ground.name}"
    return unlearn(trained, ground.name, TARGET, out, allow_inexact=True, progress=ground.progress)


def _verdicts(ground: Ground, run: Run, *names: str) -> dict[str, str]:
    spec = read_spec("client-erasure")
    chosen = replace(spec, checks=tuple(check for check in spec.checks if check.audit["use"] in names))
    found = verify(run, chosen, key=ground.secret("audit", run.path.name), save=False, progress=ground.progress)
    return {finding.audit: str(finding.verdict) for finding in found.findings}


def _rejected(ground: Ground, name: str, number: int) -> bool:
    """Whether repeated sampling tells a method from retraining, on keys of its own."""
    label = f"{name}-{number}"
    run = _trained(ground, f"{label}-parent", TABLES)
    child = unlearn(run, name, TARGET, ground.folder / label, allow_inexact=True)
    spec = read_spec("client-erasure")
    (check,) = (check for check in spec.checks if check.audit["use"] == "model-law")
    check = replace(check, audit=check.audit | {"pairs": ground.pairs})
    found = verify(child, replace(spec, checks=(check,)), key=ground.secret("audit", label), save=False)
    ground.progress(f"audits of {name}", number + 1, ground.repetitions)
    return found.findings[0].verdict == "FAIL"
