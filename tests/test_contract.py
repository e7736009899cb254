"""The contract suite: all registered plugins keep it, and those that break it are caught for the right reason."""

import ast
import json
import os
import random
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from fuaudit_plugins.fats import FatsAsPrinted, FatsUnlearning
from fuaudit_plugins.finetune import Finetune
from fuaudit_plugins.krum import Krum
from fuaudit_plugins.medians import CoordinateMedian
from fuaudit_plugins.scaffold import ControlVariates
from tests_support import NEEDED, broken

import fuaudit
from fuaudit import registry
from fuaudit.audits.enumeration import Enumeration
from fuaudit.audits.model_law.audit import ModelLaw
from fuaudit.audits.replay.audit import Replay
from fuaudit.draws import END, START, Position, Stream
from fuaudit.errors import PluginError, UsageError
from fuaudit.plans import Plan, Request, Segment, WeightedLaw
from fuaudit.testing import check_aggregator, check_audit, check_solver, check_unlearner
from fuaudit.testing.contexts import context_of, shape_of, stacked
from fuaudit.testing.tiny import key_of, tiny_config, tiny_dataset
from fuaudit.testing.unlearners import _tiny
from fuaudit.training.asking import is_tensor, rows_and_state
from fuaudit.training.exchange import Exchange
from fuaudit.training.one_round import exchanged
from fuaudit.training.stages import Chain, Mean, Momentum, SizeWeighted, Stateless, weighted_sum
from fuaudit.unlearning import exact_under
from fuaudit.unlearning.apply import edited
from fuaudit.verification.figure import Figure
from fuaudit.verification.finding import Finding, Subject, Verdict
from fuaudit.workflow.train import train
from fuaudit.workflow.unlearn import unlearn

sys.path.append(str(Path(__file__).parent / "mutants"))
import fuaudit_mutants as mutants

SMALLER = {"model-law": {"pairs": 8}, "stress": {"candidates": 8}, "plan-law": {"plans": 500}}
REFUTED = {"coupling-wrong-acceptance"}


def registered(kind):
    return [name for name, entry in registry.entries(kind).items() if entry.distribution == "fuaudit"]


# the registered ones


@pytest.mark.thorough
@pytest.mark.parametrize("name", [n for n in registered("unlearners") if n not in {*REFUTED, "fats-as-printed"}])
def test_registered_unlearners(name):
    check_unlearner(registry.build("unlearners", name))


ROWS = {"krum": (4, 5), "multi-krum": (3, 4)}
"""Where a rule needs more than one row."""


@pytest.mark.parametrize("name", registered("aggregators"))
def test_registered_aggregators(name):
    check_aggregator(registry.build("aggregators", {"use": name} | NEEDED.get(name, {})), ROWS.get(name))


def test_size_weighted_by_total():
    check_aggregator(registry.build("aggregators", {"use": "size-weighted", "by": "total"}))


class SilentKrum(Krum):
    def publishes(self, rows):
        return ""


class SilentMedian(CoordinateMedian):
    def publishes(self, rows):
        return ""


def test_a_rule_that_publishes_a_row_must_say_so():
    """Behind sums of two it would show a client her partner's row, and nobody would refuse it."""
    with pytest.raises(
        AssertionError, match=r"of \d rows it leaves a row as it is, or times a number, and publishes\(\d\) says ''"
    ):
        check_aggregator(SilentKrum(1), ROWS["krum"])
    with pytest.raises(AssertionError, match="of 3 rows it leaves coordinates of single rows as they are"):
        check_aggregator(SilentMedian())


@pytest.mark.thorough
@pytest.mark.parametrize(("byzantine", "rows"), [(5, None), (5, [8]), (0, [9])])
def test_a_rule_that_needs_many_rows_is_tried_of_so_many(byzantine, rows):
    """Whoever needs eight rows published one unseen: of six rows it was not asked, and of no others it was tried."""
    with pytest.raises(
        AssertionError, match=r"of (8|9) rows it leaves a row as it is, or times a number, and publishes\(\d\) says ''"
    ):
        check_aggregator(SilentKrum(byzantine), rows)


class TimesTwo(SilentKrum):
    """Whoever knows the rule halves it."""

    def aggregate(self, rows):
        return 2 * super().aggregate(rows)


class Nearly(SilentKrum):
    def aggregate(self, rows):
        return super().aggregate(rows) * 0.9995 + rows.mean(dim=0) * 0.0005


class Sometimes(SilentKrum):
    """Mean, but where one row stands out."""

    def aggregate(self, rows):
        lengths = rows.norm(dim=1)
        stands_out = lengths.max() > 3 * lengths.median()
        return super().aggregate(rows) if stands_out else rows.mean(dim=0, keepdim=True)


class TwoColumns(SilentMedian):
    """Opposite coordinates."""

    def aggregate(self, rows):
        return -super().aggregate(rows)


@dataclass(frozen=True)
class Picks(Stateless):
    """A stage that leaves as many rows as it gets, and nothing but one in them."""

    said: str = ""

    def apply(self, updates, context, state):
        rows = torch.zeros_like(updates)
        place = int((updates * updates).sum(dim=1).argmax())
        rows[place] = updates[place] * int(context.cohort.present.sum())
        return rows, state

    def publishes(self, rows):
        return self.said


@pytest.mark.parametrize(
    ("part", "left"),
    [
        (TimesTwo(1), "a row as it is, or times a number"),
        (Nearly(1), "a row as it is, or times a number"),
        (Sometimes(1), "a row as it is, or times a number"),
        (TwoColumns(), "coordinates of single rows as they are, or times a number"),
        (Picks(), "a row as it is, or times a number"),
    ],
)
def test_a_row_in_disguise_is_published_too(part, left):
    with pytest.raises(AssertionError, match=rf"of \d rows it leaves {left}, and publishes\(\d\) says ''"):
        check_aggregator(part)
    check_aggregator(Picks("row"))


class SaysNothing(SizeWeighted):
    depends_on = frozenset()


class SaysNothingOfClients(ControlVariates):
    depends_on = frozenset()


def test_what_is_not_named_in_tells_of_must_have_no_effect():
    """Else an unlearner that keeps such rounds would not be refused."""
    for by in ("cohort", "total"):
        with pytest.raises(AssertionError, match="it depends on how many samples there are, or which"):
            check_aggregator(SaysNothing(by))
    with pytest.raises(AssertionError, match="it depends on how many clients there are, or which"):
        check_solver(SaysNothingOfClients())


@pytest.mark.parametrize("name", registered("stages"))
def test_registered_stages(name):
    check_aggregator(registry.build("stages", {"use": name} | NEEDED.get(name, {})))


class AnyRows(Momentum):
    """Server momentum that does not say that it takes one row."""

    after_aggregation = False


def test_a_stage_of_one_row_must_say_so():
    with pytest.raises(AssertionError, match="shapes or dtypes of its state change"):
        check_aggregator(AnyRows())


@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize("vectorised", [True, False])
def test_a_state_keeps_its_form(runs, vectorised):
    """Else a momentum for every place mixes the clients that stood there."""
    chain = Chain((type("Places", (AnyRows,), {"vectorised": vectorised})(), Mean()))
    state = {name: torch.stack([tensor] * runs) for name, tensor in chain.init(shape_of(torch.float32)).items()}
    context = stacked([context_of([0, 2], torch.float32)] * runs)
    with pytest.raises(PluginError, match=r"state of Places changed its form in a round: velocity from \(.*1, 5\)"):
        exchanged(Exchange(chain), torch.ones(runs, 2, 5), context, {}, state)


@pytest.mark.parametrize(
    ("init", "apply"),
    [
        ({}, lambda state: {"more": torch.zeros(1)}),
        ({"count": torch.zeros(1)}, lambda state: {}),
        ({"count": torch.zeros(1, dtype=torch.int64)}, lambda state: {"count": state["count"] + 0.5}),
    ],
)
def test_a_state_keeps_its_names_and_dtypes(init, apply):
    row = weighted_sum(torch.ones(2, 5), torch.ones(2))
    stage = aggregator(lambda s, u, c, state: (row, apply(state)), lambda s, shape: init, vectorised=False)
    chain = Chain((stage,))
    state = {name: tensor[None] for name, tensor in chain.init(shape_of(torch.float32)).items()}
    context = stacked([context_of([0, 2], torch.float32)])
    with pytest.raises(PluginError, match="state of Mutant changed its form"):
        exchanged(Exchange(chain), torch.ones(1, 2, 5), context, {}, state)


@pytest.mark.parametrize("name", [n for n in registered("audits") if n != "enumeration"])
def test_registered_audits(name):
    check_audit(registry.build("audits", {"use": name, **SMALLER.get(name, {})}))


@pytest.mark.thorough
def test_enumeration_with_its_controls():
    controls = {"noop": "FAIL", "fats": "PASS", "finetune": "NOT_APPLICABLE", "training": "NOT_APPLICABLE"}
    check_audit(Enumeration(leaves=4000), controls, subjects=())


def test_a_control_that_does_not_hold_is_reported():
    broken(
        check_audit,
        Replay(),
        "training: the verdict is PASS, expected FAIL",
        expected={"training": "FAIL"},
        subjects=(),
    )
    with pytest.raises(ValueError, match="no subject"):
        check_audit(Replay(), {"nobody": "FAIL"})


def test_the_core_does_not_import_its_testing_package():
    root = Path(fuaudit.__file__).parent
    for file in root.rglob("*.py"):
        if "testing" in file.relative_to(root).parts or file == root / "plugins.py":
            continue  # the face for authors looks names up when they are used
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [f"{node.module}"] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.startswith(("fuaudit.testing", "hypothesis"))], file


# broken unlearners


@pytest.mark.thorough
def test_the_printed_algorithm_is_refuted_with_a_witness():
    claim = rewriter(FatsAsPrinted.rewrite)
    broken(check_unlearner, claim, "total variation 1/8", "probability 3/8 after unlearning")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("mutant", "kind", "why"),
    [
        (mutants.EarlierWhileAlike, "client", "total variation 5/81 from retraining, 3 clients"),
        (mutants.PrintedForTwo, "sample", "forget sample 0, 1"),
    ],
)
def test_what_shows_only_where_several_numbers_are_above_one_is_refuted(mutant, kind, why):
    claim = exact_under("uniform with replacement", kinds=(kind,))
    claiming = dataclass(frozen=True)(type("Claiming", (mutant,), {"exact_for": claim}))
    broken(check_unlearner, claiming(), why)


def rewriter(rewrite, **changes):
    claim = exact_under("uniform with replacement")  # one law is enough to be told what is wrong
    body = {"rewrite": rewrite, "__doc__": "A mutant.", "exact_for": claim} | changes
    return dataclass(frozen=True)(type("Mutant", (FatsUnlearning,), body))()


@pytest.mark.thorough
def test_declarations():
    broken(check_unlearner, rewriter(FatsUnlearning.rewrite, needs=frozenset({"models"})), "unknown needs")
    broken(check_unlearner, rewriter(FatsUnlearning.rewrite, needs=frozenset()), 'needs "plan"')
    broken(check_unlearner, rewriter(FatsUnlearning.rewrite, guarantee=" "), "guarantee")
    broken(check_unlearner, rewriter(FatsUnlearning.rewrite, exact_for=exact_under("poisson")), "not tried")
    broken(check_unlearner, object(), "frozen dataclass", "no method rewrite or edit")


def old_key(self, plan, request, fresh, not_before):
    first = min(plan.first_involvement(request) or END, not_before)
    new = plan.erase(request, fresh, first)
    if first >= END:
        return new
    again = Segment(first, 0, 0)
    old = replace(new, populations=(plan.retained.without(request), new.populations[-1]))
    drawn = {name: (*plan.streams[name], again) for name in (Stream.COHORTS, Stream.BATCHES)}
    return replace(old, streams={**plan.streams, **drawn})


def old_numbers(self, plan, request, fresh, not_before):
    first = min(plan.first_involvement(request) or END, not_before)
    again = Plan.fresh(plan.law, plan.retained.without(request), plan.sources[0])
    new = plan.erase(request, fresh, first)
    if first >= END or request.samples:
        return new
    return new.recorded(
        {round_number: again.cohort(round_number) for round_number in range(first.round, plan.law.rounds + 1)}
    )


def without_memory(self, plan, request, fresh, not_before):
    self._calls.append(1)
    return plan.restart(request, fresh) if len(self._calls) % 2 else plan.erase(request, fresh, END)


def in_place(self, plan, request, fresh, not_before):
    new = FatsUnlearning.rewrite(self, plan, request, fresh, not_before)
    for client in plan.retained.clients:
        plan.retained.samples[client] = plan.retained.samples[client][::-1]
    return new


def throws_dice(self, plan, request, fresh, not_before):
    random.random()
    return FatsUnlearning.rewrite(self, plan, request, fresh, not_before)


def full_population(self, plan, request, fresh, not_before):
    new = plan.restart(request, fresh)
    return replace(new, populations=(*plan.populations, plan.retained))


def erased_client_in_a_kept_cohort(self, plan, request, fresh, not_before):
    first = plan.first_involvement(request)
    return plan.erase(request, fresh, Position(first.round, 1) if first else END)


def reads_the_key(self, plan, request, fresh, not_before):
    return plan.erase(request, fresh, Position(1, 0) if plan.sources[0].secret[0] % 2 else START)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("rewrite", "reason"),
    [
        (
            lambda self, plan, request, fresh, not_before: plan.erase(request, fresh, END),
            "something erased is still drawn",
        ),
        (lambda self, plan, request, fresh, not_before: plan.erase(request, fresh, END), "total variation"),
        (old_key, "another law or population"),
        (old_numbers, "KeyReuseError"),
        (without_memory, "not deterministic"),
        (in_place, "changes the plan"),
        (throws_dice, "global generator"),
        (full_population, "another law or population"),
        (erased_client_in_a_kept_cohort, "over a population without it"),
        (reads_the_key, "secret"),
        (lambda self, plan, request, fresh, not_before: None, "not a Plan"),
        (lambda self, plan, request, fresh, not_before: 1 / 0, "raised while rewriting"),
    ],
)
def test_broken_rewriters(rewrite, reason):
    broken(check_unlearner, rewriter(rewrite, _calls=[]), reason)


def test_laws_of_a_stranger_are_proved_too():
    law = WeightedLaw(1, 2, 1, 1, weights=((0, 1), (1, 2), (2, 3)))
    claim = exact_under(law.name)
    broken(check_unlearner, rewriter(FatsUnlearning.rewrite, exact_for=claim), "not exact for 'weighted", laws=(law,))


@dataclass(frozen=True)
class Editor:
    """Leaves the model as it is."""

    needs: ClassVar[frozenset[str]] = frozenset({"model", "round models", "server data"})
    participants: ClassVar[frozenset[str]] = frozenset({"server"})
    guarantee: ClassVar[str] = "none"
    cite: ClassVar[str] = ""

    def edit(self, context):
        return context.model


def editor(edit):
    return dataclass(frozen=True)(type("Mutant", (Editor,), {"edit": edit, "__doc__": "A mutant."}))()


def around_the_door(self, context):
    return context._plan.sources and context.model


def shared_tensor(self, context):
    context.round_models[1].zero_()
    return context.model


def counts(self, context, calls=[]):  # noqa: B006
    calls.append(1)
    return context.model * len(calls)


class Lying(torch.Tensor):
    """Stands in the place of all tensors that it meets: a retrained model beside it would be the old one."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return super().__torch_function__(function, types, args, kwargs)


def lies(self, context):
    return context.model.as_subclass(Lying)


def looks_about(self, context):
    return context.train(context.model.as_subclass(Lying), 1)


def refuses(self, context):
    raise UsageError("not today")


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda self, context: context.plan and context.model, "touched the plan without declaring 'plan'"),
        (lambda self, context: context.train(context.model, 1), "touched the retained clients"),
        (lambda self, context: context.target_gradient(context.model), "touched the target"),
        (lambda self, context: context.model[:-1], "finite model of shape"),
        (lies, "a torch.Tensor and no class of its own"),
        (lambda self, context: context.model.numpy(), "no class of its own, but numpy.ndarray of shape ("),
        (lambda self, context: context.model * torch.nan, "finite model of shape"),
        (lambda self, context: context.model + torch.randn(context.model.shape), "global generator"),
        (around_the_door, "'Context' object has no attribute '_plan'"),
        (counts, "not deterministic"),
        (refuses, "every kind"),
    ],
)
def test_broken_editors(edit, reason):
    check_unlearner(Editor())
    broken(check_unlearner, editor(edit), reason)


def test_an_editor_cannot_change_what_it_was_given():
    """Tensors are handed over as copies: overwriting one harms nobody."""
    check_unlearner(editor(shared_tensor))


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_gradients_are_there_where_an_editor_switched_them_off(off):
    """The usual way to write one: nothing of its own needs a gradient."""
    ready, plan, models = _tiny()
    new = plan.erase(Request.of(clients=[0]), key_of(5), END)

    def made(within):
        def ascend(self, context):
            with within():
                model = context.model + 0.1 * context.target_gradient(context.model)
                return context.train(model, 1)

        method = editor(ascend)
        type(method).participants = frozenset({"server", "target", "retained clients"})
        return edited(ready, plan, new, method, "it", models[3], models)[0]

    assert torch.equal(made(off), made(nullcontext))


def test_a_gradient_is_asked_of_a_copy():
    """A model that asks for its gradient keeps the graph of all that is trained from it, which threads share."""
    ready, plan, models = _tiny()
    new, marked = plan.erase(Request.of(clients=[0]), key_of(5), END), []

    def climb(self, context):
        model = context.model
        context.target_gradient(model)
        marked.append(model.requires_grad)
        return context.train(model.requires_grad_(), 1)

    def made(edit):
        method = editor(edit)
        type(method).participants = frozenset({"server", "target", "retained clients"})
        return edited(ready, plan, new, method, "it", models[3], models)[0]

    found = made(climb)
    assert marked == [found.requires_grad] == [False]
    assert torch.equal(found, made(lambda self, context: context.train(context.model, 1)))


def test_messages_are_counted():
    ready, plan, models = _tiny()
    new = plan.erase(Request.of(clients=[0]), key_of(5), END)
    _, messages = edited(ready, plan, new, Finetune(rounds=2), "finetune", models[3], models)
    places = plan.law.cohort_size * 2
    assert len(messages) == 2 * places
    assert {message.size for message in messages} == {models[3].numel() * models[3].element_size()}
    assert "client 0" not in {end for message in messages for end in (message.sender, message.receiver)}


@pytest.mark.parametrize(
    ("chain", "down", "up"),
    [
        ({"solver": {"use": "sgd"}}, 1, 1),
        ({"solver": {"use": "scaffold"}}, 2, 2),
        ({"client": [{"use": "mimic-client"}]}, 2, 1),
    ],
)
def test_messages_are_as_many_as_solver_and_stages_send(tmp_path, chain, down, up):
    """SCAFFOLD sends model and control variate both ways; MimiC at the clients sends the mean back as well."""
    learner = {"use": "fedavg", "rounds": 3, "cohort": 2, "steps": 2, "batch": 2, "step_size": 0.2}
    tables = tiny_config(learner=learner, server=[{"use": "mean"}], **chain)
    run = train(tables, tmp_path / "parent", data=tiny_dataset())
    child = unlearn(run, "finetune", Request.of([0]), tmp_path / "child", {"rounds": 2}, data=tiny_dataset())
    sent = [message["sender"] for message in json.loads((child.path / "edit.json").read_text())["messages"]]
    participations = 2 * learner["cohort"]
    assert sent.count("server") == down * participations
    assert len(sent) == (down + up) * participations


# broken aggregators


class Broken(Stateless):
    """For aggregators with one method replaced."""


def aggregator(apply, init=None, vectorised=True):
    body = {"apply": apply, "vectorised": vectorised, "__doc__": "A mutant."} | ({"init": init} if init else {})
    return dataclass(frozen=True)(type("Mutant", (Broken,), body))()


def total(updates, weights=None):
    return weighted_sum(updates, torch.ones(updates.shape[:-1], dtype=updates.dtype) if weights is None else weights)


def normed(self, updates, context, state):
    row, _ = Mean().apply(updates, context, {})
    return row / row.norm(dim=-1, keepdim=True), state


def library_mean(self, updates, context, state):
    weights = context.cohort.present.to(updates.dtype)
    return (updates * weights[..., None]).sum(-2, keepdim=True) / updates.reshape(-1, updates.shape[-2]).shape[0], state


def overwrites(self, updates, context, state):
    updates *= 2
    return Mean().apply(updates, context, state)


def hoards(self, updates, context, state):
    row, _ = Mean().apply(updates, context, {})
    return row, {"all": torch.cat([state["all"], row])}


def overwrites_state(self, updates, context, state):
    row, _ = Mean().apply(updates, context, {})
    state["velocity"] += row
    return state["velocity"].clone(), state


def velocity(self, shape):
    return {"velocity": shape.zeros(1, shape.dimension)}


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        (aggregator(lambda s, u, c, state: (Mean().apply(u, c, {})[0].double(), state)), "it turns torch.float32"),
        (aggregator(normed), "infinite or NaN"),
        (aggregator(lambda s, u, c, state: (total(u) / u.shape[-2], state)), "unused places"),
        (aggregator(lambda s, u, c, state: (u[..., :1, :].clone(), state)), "order of places"),
        (aggregator(library_mean), "than each run by itself"),
        (aggregator(overwrites), "updates that it was given, in place"),
        (aggregator(hoards, lambda s, shape: {"all": shape.zeros(1, shape.dimension)}), "change from round to round"),
        (aggregator(overwrites_state, velocity), "old state in place"),
        (aggregator(lambda s, u, c, state: (Mean().apply(u + torch.rand(1), c, {})[0], state)), "global generator"),
        (aggregator(lambda s, u, c, state: Mean().apply(u, c, {})[0]), "a tensor and a dict"),
        (aggregator(Mean.apply, vectorised=None), "vectorised"),
    ],
)
def test_broken_aggregators(subject, reason):
    broken(check_aggregator, subject, reason)


# broken audits


def finding(**changes):
    plain = {
        "audit": "mine",
        "subject": Subject.RUN,
        "verdict": Verdict.INCONCLUSIVE,
        "shows": "Nothing.",
        "shows_not": "All.",
    }
    return Finding(**(plain | changes))


def figure(key, value, **changes):
    return Figure(**({"key": key, "label": "A figure", "value": value, "how": "made up"} | changes))


def audit(examine, **changes):
    members = {"examine": examine, "__doc__": "A mutant.", "evidence": frozenset(), "uses": frozenset()}
    return dataclass(frozen=True)(type("Mutant", (), members | changes))()


def meddles(self, case):
    (case.run.path / "note.txt").write_text("seen")
    return finding()


def centres(self, case):
    if case.dataset is not None:
        case.dataset.inputs -= case.dataset.inputs.mean()
    return finding()


def renames(self, case):
    case.run.info["parent"] = "another"
    return finding()


@pytest.mark.parametrize(
    ("word", "attribute", "shown"), [("data", "dataset", Verdict.FAIL), ("parent", "parent", Verdict.INCONCLUSIVE)]
)
def test_an_audit_does_not_pass_for_want_of_evidence(word, attribute, shown):
    def examine(self, case):
        return finding(verdict=Verdict.PASS if getattr(case, attribute) is None else shown)

    there = "noop: it is PASS where {0} is not at hand, and {1} where it is"
    broken(check_audit, audit(examine, uses=frozenset({word})), there.format(word, shown), subjects=("noop",))

    def honest(self, case):
        return finding(verdict=Verdict.INCONCLUSIVE if getattr(case, attribute) is None else Verdict.PASS)

    check_audit(audit(honest, uses=frozenset({word})), subjects=("training", "noop") if word == "data" else ("noop",))
    broken(check_audit, audit(honest), f"uses does not name '{word}'", subjects=("noop",))


@pytest.mark.parametrize(
    ("examine", "reason"),
    [
        (lambda self, case: finding(details=(os.getcwd(),)), "repeated later, its finding has other bytes"),
        (lambda self, case: finding(details=(str(os.getpid()),)), "repeated later, its finding has other bytes"),
        (centres, "it changes case.dataset.inputs, which it was given: compute on a copy"),
        (renames, "it changes case.run.info, which it was given"),
        (lambda self, case: None, "not a Finding"),
        (lambda self, case: finding(shows=" "), "shows must be a sentence"),
        (lambda self, case: finding(figures=(figure("gap", float("nan")),)), "finite number"),
        (lambda self, case: finding(figures=(figure("vector", torch.zeros(2)),)), "finite number"),
        (lambda self, case: finding(figures=(figure("gap", np.float32(1)),)), "not float32: write float(x)"),
        (lambda self, case: finding(figures={"gap": 1.0}), "figures must be a tuple of Figure"),
        (lambda self, case: finding(figures=(figure("gap", 1.0, how=" "),)), "must have key, label and how"),
        (lambda self, case: finding(figures=(figure("gap", 1.0, interval=(2.0, 1.0)),)), "interval of the figure"),
        (lambda self, case: finding(figures=(figure("gap", 1.0, error_rate=2),)), "error rate of the figure"),
        (lambda self, case: finding(figures=(figure("gap", 1.0), figure("gap", 2.0))), "2 figures have the key"),
        (lambda self, case: finding(verdict="PASS"), "verdict must be a Verdict"),
        (lambda self, case: finding(error_rate=0.001), "spent an error rate"),
        (lambda self, case: finding(bounds_rate=-5.0), "bounds_rate must be a number in"),
        (lambda self, case: finding(figures=(figure("seconds", time.time()),)), "other bytes"),
        (lambda self, case: finding(figures=(figure("luck", random.random()),)), "global generator"),
        (
            lambda self, case: finding(subject=Subject.ALGORITHM, verdict=Verdict.PASS),
            "passes the algorithm of a training run",
        ),
        (lambda self, case: finding(details=(str(case.parent.path),)), "parent not at hand: AttributeError"),
        (meddles, "writes into the folders"),
    ],
)
def test_broken_audits(examine, reason):
    broken(check_audit, audit(examine), reason, subjects=("training", "noop"))


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"evidence": None}, "evidence must be a frozenset"),
        ({"evidence": {"files"}}, "evidence must be a frozenset"),
        ({"evidence": frozenset({"everything"})}, "'everything' is no kind of evidence"),
        ({"uses": None}, "uses must be a frozenset"),
        ({"uses": frozenset({"key"})}, "'key' is no argument"),
        ({"recomputes": None}, "recomputes = None is no text"),
        ({"alpha_option": "alpha"}, "names no option"),
        ({"alpha_option": "level", "level": 5, "__annotations__": {"level": int}}, "names no option"),
    ],
)
def test_audits_that_declare_wrongly(members, reason):
    broken(check_audit, audit(lambda self, case: finding(), **members), reason, subjects=())


def test_a_sound_audit_of_a_stranger():
    check_audit(audit(lambda self, case: finding(figures=(figure("rounds", case.run.rounds_executed),))))
    check_audit(ModelLaw(pairs=4), {"training": "NOT_APPLICABLE"}, subjects=("training",))


@dataclass(frozen=True)
class Otherwise:
    """An audit that answers in the name that it had before."""

    evidence: ClassVar[frozenset] = frozenset()
    uses: ClassVar[frozenset] = frozenset()

    def examine(self, case):
        return Finding("before", Subject.RUN, Verdict.PASS, "It was opened.", "Anything else.")


def test_a_finding_is_in_the_name_under_which_its_audit_is_registered(tmp_path, monkeypatch):
    check_audit(Otherwise(), subjects=("training",))
    about = tmp_path / "otherwise-0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: otherwise\nVersion: 0.1\n")
    (about / "entry_points.txt").write_text(f"[fuaudit.audits]\nafter = {__name__}:Otherwise\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(AssertionError, match="in the name of 'before'"):
        check_audit(Otherwise(), subjects=("training",))


def test_a_tensor_of_a_class_of_its_own_is_none():
    """Stages, solvers and transports give plain ones: another could answer for those that it is computed with."""
    assert is_tensor(torch.zeros(2))
    assert not is_tensor(torch.zeros(2).as_subclass(Lying))
    assert not is_tensor([0.0, 0.0])


def test_an_editor_s_tensor_meets_no_rows():
    """The gradient of a model of its own class would be handed the erased rows, and training those of clients."""
    looking = dataclass(frozen=True)(
        type(
            "Looking",
            (Editor,),
            {"participants": frozenset({"server", "retained clients"}), "edit": looks_about, "__doc__": "A mutant."},
        )
    )()
    with pytest.raises(AssertionError, match="gave a Lying for a model"):
        check_unlearner(looking)


def test_an_aggregator_without_its_row_is_told_the_shape_that_it_leaves():
    kind = rows_and_state(torch.zeros(3, 18), columns_alone=True)
    assert not kind.holds((torch.zeros(18), {}))
    assert "An aggregator leaves one row, (1, 18)" in kind.hint
