"""The contracts of what stands in front of the server: right parts keep them, wrong ones are caught for their fault."""

import random
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from fuaudit_plugins.mimic import OwnCorrection
from fuaudit_plugins.quantise import Quantise
from fuaudit_plugins.secure_sum import SecureSum
from tests_support import broken

from fuaudit.plugins import rows_of, with_rows
from fuaudit.testing import (
    check_aggregator,
    check_agreement,
    check_byzantine,
    check_client_stage,
    check_solver,
    check_transport,
)
from fuaudit.training.contracts import Delivery
from fuaudit.training.events import Answered, Released, Sent, Summed
from fuaudit.training.exchange import Clear
from fuaudit.training.solvers import Steps
from fuaudit.training.stages import Mean, Stateless, weighted_sum


@pytest.fixture
def stages(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "stages"))
    import fuaudit_stages

    return fuaudit_stages


def part(base, **body):
    """A frozen dataclass with some of its methods replaced."""
    return dataclass(frozen=True)(type("Wrong", (base,), {"__doc__": "A mutant."} | body))()


# client stages


def by_place(self, updates, context, state):
    """Wrong: a row times its client's place among the retained ones, which moves when another client is erased."""
    return updates * context.cohort.rows.unsqueeze(-1).to(updates.dtype), state


def mean_by_place(self, updates, context, state):
    return Mean().apply(by_place(self, updates, context, state)[0], context, state)


def test_places_among_the_retained_depend_on_who_is_left(stages):
    said = {"depends_on": frozenset({"clients"})}
    check_client_stage(part(Stateless, apply=by_place, vectorised=False, **said))
    broken(
        check_client_stage, part(Stateless, apply=by_place, vectorised=False), "how many clients there are, or which"
    )
    broken(check_aggregator, part(Mean, apply=mean_by_place, vectorised=False), "how many clients there are, or which")


@pytest.mark.thorough
def test_the_contract_of_client_stages(stages):
    for right in (stages.Memory(), stages.ClipAndNoise(), Quantise(), OwnCorrection(), OwnCorrection("scaled")):
        check_client_stage(right)
    check_client_stage(part(Stateless, apply=sparsely))
    for wrong, words in (
        (stages.Neighbour(), "depends on the rows, memories or draws"),
        (stages.OneNoise(), "depends on the rows, memories or draws"),
        (stages.MixesAtTheEnd(), "what a client keeps depends on"),
        (stages.Unsaid(), "declare answered = True"),
        (stages.Counting(), "declare it in depends_on"),
        (stages.FalselyStacked(), "several runs in one tensor"),
        (stages.Forgetful(), "names, shapes or dtypes"),
        (stages.Undeclared(), "did not declare it"),
        (stages.Wider(), "it turns torch.float32 into torch.float64"),
        (stages.TopTogether(), "check_agreement is for those"),
        (Chatty(), "other bits or events when repeated"),
        (Touches(), "'memory' changes in the rows of clients that do not take part"),
        (part(stages.Memory, vectorised=True, apply=by_id), "unused places"),
        (Narrows(), "apply made (4, 4) of (4, 5)"),
        (Remembers(), "with other rounds before"),
        (part(Stateless, apply=scaled(lambda c: (c.clients == 2).any())), "or on who they are"),
        (part(Stateless, apply=scaled(lambda c: c.steps.sum())), "or on who they are"),
        (part(Stateless, apply=scaled(lambda c: c.sizes.max())), "or on who they are"),
        (part(Stateless, apply=tells(lambda rows, c: float(rows.sum()))), "what it tells, of a client or of nobody"),
        (part(Stateless, apply=tells(lambda rows, c: c.own(1).integers("x", 9**9, 1).item()), draws=True), "it tells"),
        (part(Stateless, apply=sizes(lambda row, c: int(1e6 * row[0].abs()))), "what it tells follows from values"),
        (part(Stateless, apply=sizes(lambda row, c: c.own(0).integers("x", 9, 1).item()), draws=True), "from values"),
        (part(Stateless, apply=answered), "what it tells follows from values"),
        (part(stages.Memory, apply=remembered, settle=kept), "what it tells follows from values"),
        (part(stages.Memory, init=lambda s, shape: {"memory": shape.zeros(shape.clients, 5) + shape.clients}), "first"),
        (part(stages.Memory, apply=spoils(lambda c: c.vectors.fill_(0.25))), "the round that it is shown, in place"),
        (part(stages.Memory, apply=spoils(lambda c: c.cohort.sizes.add_(9))), "the round that it is shown, in place"),
        (part(stages.Memory, settle=lambda s, sent, answer, c, state: (answer.zero_(), state)[1]), "row, in place"),
    ):
        broken(check_client_stage, wrong, words)


def where(others, then=lambda rows: rows + rows.roll(1, 0)):
    """Wrong: a row depends on others in some rounds alone."""
    return lambda self, rows, context, state: (then(rows) if others(rows, context) else rows, state)


def takes_all(self, sent, answer, context, state):
    """Wrong: a client keeps what all sent, if one row is long."""
    long = bool((sent.norm(dim=-1) > 1e8).any())
    rows = 1e-9 * sent.sum(dim=0, keepdim=True).expand(sent.shape)
    return {"memory": with_rows(state["memory"], context.cohort, rows)} if long else state


def test_clients_know_nobody_in_late_wide_and_uneven_rounds_either(stages):
    for body in (
        {"apply": where(lambda rows, c: bool((rows.norm(dim=-1) > 10).any()), lambda rows: rows / 2)},
        {"apply": lambda s, rows, c, state: (rows * torch.arange(1, len(rows) + 1).to(rows).unsqueeze(1), state)},
        {"apply": lambda s, rows, c, state: (rows / len(rows), state)},
        {"apply": where(lambda rows, c: len(rows) > 7)},
        {"apply": where(lambda rows, c: rows.shape[-1] > 5)},
        {"apply": where(lambda rows, c: c.number > 6)},
    ):
        broken(check_client_stage, part(Stateless, **body), "a client knows nothing but its own")
    broken(check_client_stage, part(stages.Memory, settle=takes_all), "what a client keeps depends on")
    late = part(stages.LocalMomentum, after=lambda s, outcome, c, state: (outcome.updates.flip(0), state))
    broken(check_solver, late, "a client knows nothing but its own")


def releases(noise):
    """Tells of noise, and adds some or none."""

    def apply(self, updates, context, state):
        context.tell(Released("gaussian", {"deviation": 1.0}))
        return updates + noise(context, updates.shape[1]).to(updates), state

    return apply


def public_noise(context, columns):
    """Numbers that everybody knows: no generator is global, and no draw of the context is made."""
    return torch.randn(columns, generator=torch.Generator().manual_seed(context.number))


def test_a_mechanism_rests_on_draws_that_change_what_goes_out():
    for apply, draws, words in (
        (releases(public_noise), False, "tells of a mechanism and declares no draws"),
        (releases(public_noise), True, "no draw changes what it makes"),
        (releases(lambda c, columns: torch.zeros(columns)), True, "no draw changes what it makes"),
        (releases(lambda c, columns: torch.from_numpy(c.shared.normal("x", columns))), True, "no draw changes what"),
    ):
        broken(check_client_stage, part(Stateless, apply=apply, draws=draws), words)


def test_sizes_of_rows_are_no_tale_where_they_are_far_apart():
    for rule in (lambda row: row[0] > 1e7, lambda row: 0.001 < row.norm() < 0.05 and row[0] > row[1]):
        stage = part(Stateless, apply=sizes(lambda row, c, rule=rule: 100 + int(rule(row))))
        broken(check_client_stage, stage, "what it tells follows from values")


@pytest.mark.parametrize("declared", [frozenset(), frozenset({"clients"})])
def test_rows_by_id_are_told_to_be_rows_by_place(declared):
    """Where a client was erased, ids are no places among those who are left."""

    def init(self, shape):
        return {"memory": shape.zeros(shape.clients, shape.dimension)}

    def apply(self, updates, context, state):
        memory, ids = state["memory"].clone(), context.cohort.clients
        memory[ids] = updates + 0.5 * memory[ids]
        return memory[ids], {"memory": memory}

    stage = part(Stateless, init=init, apply=apply, per_client_state=frozenset({"memory"}), depends_on=declared)
    broken(check_client_stage, stage, "rows_of and with_rows")


def test_draws_are_of_rows_and_not_of_ids():
    def apply(self, updates, context, state):
        for client in context.cohort.clients.tolist():
            context.own(client + 4).uniform("x", 1)
        return updates, state

    with pytest.raises(AssertionError, match=r"own takes the number of a row, 0 to 3.*: [4-9]\n") as caught:
        check_client_stage(part(Stateless, apply=apply, draws=True))
    assert f"({Path(__file__).name}, line " in str(caught.value)


def test_a_row_a_client_that_is_not_named_is_no_reason_to_declare_a_dependence():
    def init(self, shape):
        return {"last": shape.zeros(shape.clients, shape.dimension)}

    def apply(self, updates, context, state):
        last = with_rows(state["last"], context.cohort, updates)
        return last.sum(dim=0, keepdim=True), {"last": last}

    with pytest.raises(AssertionError, match=r"name 'last', .* in per_client_state") as caught:
        check_aggregator(part(Stateless, init=init, apply=apply))
    assert "depends_on" not in str(caught.value)


def tells(number):
    """Wrong: tells in one event what depends on all rows or on another's draws."""

    def apply(self, updates, context, state):
        context.tell(Released("clip", {"of": number(updates, context)}))
        return updates, state

    return apply


def sizes(number):
    """Wrong: a client tells a number in the place of a size."""

    def apply(self, updates, context, state):
        for client, row in zip(context.cohort.clients.tolist(), updates, strict=True):
            context.tell(Sent(client, "update", number(row, context)))
        return updates, state

    return apply


def answered(self, updates, context, state):
    """Wrong: tells a number in the place of what everybody is sent."""
    context.tell(Answered("values", int(1e6 * updates.abs().sum())))
    return updates, state


def kept(self, sent, answer, context, state):
    return state


def sparsely(self, updates, context, state):
    """Sends what is large, and tells how much that is."""
    rows = updates * (updates.abs() > 0.5)
    for client, row in zip(context.cohort.clients.tolist(), rows, strict=True):
        context.tell(Sent(client, "large numbers", 4 * int(row.count_nonzero())))
    return rows, state


def remembered(self, updates, context, state):
    """Wrong: tells in the place of a size what its client sent the last time."""
    for client in context.cohort.clients.tolist():
        context.tell(Sent(client, "update", int(1e6 * state["memory"][client, 0].abs())))
    return updates, {"memory": with_rows(state["memory"], context.cohort, updates)}


def scaled(number):
    """Wrong: scales a row by a number of the whole cohort."""
    return lambda self, updates, context, state: (updates * (1 + number(context.cohort)), state)


def spoils(write):
    """Wrong: writes into what is shown."""

    def apply(self, updates, context, state):
        write(context)
        return updates, state

    return apply


@dataclass(frozen=True)
class Remembers(Stateless):
    """Wrong: adds what all others sent a round ago, which it keeps by itself."""

    _seen: dict = field(default_factory=dict)

    def apply(self, updates, context, state):
        self._seen[context.number] = updates.clone()
        before = self._seen.get(context.number - 1, updates)
        return updates + before.sum(dim=-2, keepdim=True) * (context.number > 1), state


def by_id(self, updates, context, state):
    """Wrong where it is stacked: at an unused place the id is -1, which is the last row of a memory."""
    memory = state["memory"].clone()
    for run, ids in zip(memory.view(-1, 6, 5), context.cohort.clients.view(-1, updates.shape[-2]), strict=True):
        run[ids] = 1.0
    return updates, {"memory": memory}


@dataclass(frozen=True)
class Chatty(Stateless):
    """Wrong: tells another tale each time."""

    _said: list = field(default_factory=list)

    def apply(self, updates, context, state):
        self._said.append(1)
        context.tell(Sent(0, "update", len(self._said)))
        return updates, state


@dataclass(frozen=True)
class Touches:
    """Wrong: changes what those keep who do not take part."""

    per_client_state: ClassVar[frozenset] = frozenset({"memory"})

    def init(self, shape):
        return {"memory": shape.zeros(shape.clients, shape.dimension)}

    def apply(self, updates, context, state):
        return updates, {"memory": state["memory"] + 1}


@dataclass(frozen=True)
class Narrows(Stateless):
    """Wrong: drops a column."""

    def apply(self, updates, context, state):
        return updates[..., 1:], state


# agreements


@dataclass(frozen=True)
class Agreed:
    """Each proposes two columns, its largest and one that it draws; all send the union."""

    draws: ClassVar[bool] = True

    def propose(self, updates, context):
        drawn = [context.own(row).integers("column", updates.shape[-1], 1) for row in range(len(updates))]
        return [
            torch.stack([row.abs().argmax(), torch.tensor(one[0])]) for row, one in zip(updates, drawn, strict=True)
        ]

    def agree(self, proposals, context):
        columns = torch.cat(proposals).unique()
        return columns[(columns >= 0) & (columns < context.columns)]


def test_an_agreement_of_drawn_columns():
    check_agreement(Agreed())
    check_agreement(part(Agreed, agree=lambda s, proposals, c: torch.zeros(0, dtype=torch.int64)))


def by_the_longest(self, updates, context):
    """Wrong where rows are long: proposes what the longest of all would."""
    sizes = updates.norm(dim=-1)
    return [(updates[sizes.argmax()] if sizes.max() > 10 else row).abs().argsort()[-2:] for row in updates]


def seen():
    """Wrong: agrees by the values of all rows, which nobody has sent."""
    rows = []

    def propose(self, updates, context):
        rows[:] = [updates]
        return [row.abs().argsort()[-2:] for row in updates]

    return {"propose": propose, "agree": lambda s, proposals, c: rows[0].sum(dim=0).argsort()[-2:].sort().values}


def tallies(self, proposals, context):
    """Wrong: counts votes in a table, where a number that is no column is no place."""
    votes = torch.zeros(context.columns)
    for one in proposals:
        votes[one] += 1
    return votes.nonzero()[:, 0]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"draws": False}, "did not declare it"),
        (
            {"propose": lambda s, u, c: [(u - u.mean(dim=0)).argmax(dim=1)[:1]] * len(u)},
            "depends on the rows, memories or draws of others",
        ),
        (
            {"propose": lambda s, u, c: [torch.tensor(c.own(0).integers("x", 3, 1)) for _ in u]},
            "depends on the rows, memories or",
        ),
        ({"propose": by_the_longest}, "depends on the rows, memories or draws of others"),
        (
            {"propose": lambda s, u, c: [(u.sum(dim=0) if len(u) > 7 else row).argmax()[None] for row in u]},
            "depends on the rows, memories or draws of others",
        ),
        ({"propose": lambda s, u, c: [row.argmax()[None].int() for row in u]}, "no int64 columns"),
        ({"propose": lambda s, u, c: [torch.tensor([4]) for _ in u]}, "no int64 columns of those that there are"),
        ({"propose": lambda s, u, c: torch.zeros(len(u), 1).long()}, "a list of tensors"),
        ({"propose": lambda s, u, c: [torch.tensor([0])]}, "one for each row"),
        ({"propose": lambda s, u, c: [torch.tensor([random.randrange(3)]) for _ in u]}, "a global generator"),
        ({"propose": lambda s, u, c: [torch.tensor([c.cohort.members % 4])] * len(u)}, "declare it in depends_on"),
        ({"agree": lambda s, proposals, c: c.own(0) and torch.tensor([0])}, "whose stage it is not"),
        (seen(), "what is agreed depends on more than the proposals"),
        ({"agree": lambda s, proposals, c: torch.cat(proposals).unique()}, "one client can stop all by proposing"),
        ({"agree": tallies}, "one client can stop all by proposing what is no column"),
        ({"agree": lambda s, proposals, c: torch.cat(proposals)}, "not ascending and distinct"),
        ({"agree": lambda s, proposals, c: torch.tensor([0, 4])}, "columns that there are not"),
        ({"agree": lambda s, proposals, c: torch.cat(proposals).unique().float()}, "int64 columns"),
        ({"agree": lambda s, proposals, c: torch.stack([max(one) for one in proposals]).unique()}, "4 rows of 5"),
        ({"agree": lambda s, proposals, c: torch.cat(proposals[:1]).mul_(0) + proposals[0].zero_()}, "in place"),
    ],
)
def test_agreements_that_break_their_word(body, words):
    broken(check_agreement, part(Agreed, **body), words)


def test_what_is_no_agreement():
    broken(check_agreement, Quantise(), "it is no agreement")


# Byzantine clients


def all_alike(value):
    return lambda self, updates, context, state: (torch.full_like(updates, value), state)


def test_the_contract_of_byzantine_stages(stages):
    for right in (
        stages.Flip(),
        stages.Infinite(),
        stages.Remembering(),
        part(stages.Remembering, apply=all_alike(torch.nan)),
        part(stages.Remembering, apply=remembers_all),
        part(stages.Remembering, proposals=lambda s, found, u, c: [one * 0 + 2**40 for one in found]),
        part(stages.Remembering, proposals=lambda s, found, u, c: [torch.arange(-9, 99) for _ in found]),
        part(stages.Remembering, apply=sends_kept, settle=keeps_own_sent, sees="own"),
        part(stages.Remembering, apply=lambda s, u, c, state: (u * 2, state), sees="own"),
    ):
        check_byzantine(right)


def overwrites(self, updates, context, state):
    return updates.mul_(-1), state


def peeks(self, updates, context, state):
    """Wrong where it sees "own": sends the mean of all, where one of them is long."""
    return (updates.mean(dim=0).expand(updates.shape) if updates.norm(dim=-1).max() > 1e8 else -updates), state


def remembers_all(self, updates, context, state):
    """Wrong where it sees less than all: sends in the next round what it kept of everybody in this one."""
    mean = updates.mean(dim=0, keepdim=True).expand(updates.shape)
    return -rows_of(state["seen"], context.cohort), {"seen": with_rows(state["seen"], context.cohort, mean)}


def remembers_one(self, updates, context, state):
    """Wrong where it sees "theirs": the first row may be of anybody."""
    first = updates[:1].expand(updates.shape)
    return -rows_of(state["seen"], context.cohort), {"seen": with_rows(state["seen"], context.cohort, first)}


def reads_theirs(self, updates, context, state):
    """Wrong where it sees "own": each keeps its own row, and sends what all have kept."""
    kept = state["seen"].mean(dim=0).expand(updates.shape)
    return kept, {"seen": with_rows(state["seen"], context.cohort, updates)}


def sends_kept(self, updates, context, state):
    return updates - rows_of(state["seen"], context.cohort), state


def keeps_all_sent(self, sent, answer, context, state):
    """Wrong where it sees less than all: ``settle`` is told what everybody sent."""
    return {"seen": with_rows(state["seen"], context.cohort, context.on_all(sent).mean(dim=0).expand(len(sent), -1))}


def keeps_own_sent(self, sent, answer, context, state):
    """Right: what was sent of itself, and the server's answer, which whoever gets models can tell."""
    kept = rows_of(state["seen"], context.cohort) - context.on_all(sent) + context.on_all(answer)
    return {"seen": with_rows(state["seen"], context.cohort, kept)}


def grows(self, updates, context, state):
    return updates, {"seen": torch.cat([state["seen"], state["seen"]])}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"clients": (9,)}, "clients 0 to 5"),
        ({"apply": lambda s, u, c, state: (c.tell(Sent(0, "update", 20)) or u, state)}, "tell nothing of a round"),
        ({"clients": [0]}, "name its clients"),
        ({"clients": (0.0,)}, "name its clients"),
        ({"draws": False}, "did not declare it"),
        ({"apply": lambda s, u, c, state: (c.own(1) and u, state)}, "whose stage it is not"),
        ({"apply": overwrites}, "in place"),
        ({"apply": grows}, "change from round to round"),
        ({"apply": lambda s, u, c, state: (u[:, :2], state)}, "apply made"),
        ({"apply": peeks, "sees": "own"}, "declare sees"),
        ({"apply": remembers_all, "sees": "own"}, "memories that are not own: declare sees"),
        ({"apply": remembers_all, "sees": "theirs"}, "memories that are not theirs: declare sees"),
        ({"apply": remembers_one, "sees": "theirs"}, "memories that are not theirs: declare sees"),
        ({"apply": reads_theirs, "sees": "own"}, "memories that are not own: declare sees"),
        ({"apply": sends_kept, "settle": keeps_all_sent, "sees": "own"}, "memories that are not own: declare sees"),
        ({"apply": lambda s, u, c, state: (u.double(), state)}, "it turns torch.float32"),
        ({"apply": lambda s, u, c, state: (u * c.cohort.members, state)}, "declare it in depends_on"),
        ({"apply": lambda s, u, c, state: (u + random.random(), state)}, "other bits"),
        ({"init": lambda s, shape: {"more": shape.zeros(1)}}, "named in per_client_state"),
        ({"init": lambda s, shape: {"seen": shape.zeros(1, shape.dimension)}}, "one row a client"),
        ({"init": lambda s, shape: {"seen": shape.zeros(shape.clients)}}, "one row a client, (M, d)"),
        ({"proposals": lambda s, found, u, c: found[:1]}, "one for each row"),
        ({"proposals": lambda s, found, u, c: [one + 0.5 for one in found]}, "no int64 columns"),
        ({"proposals": lambda s, found, u, c: [one.zero_() for one in found]}, "that it was given, in place"),
        ({"proposals": lambda s, found, u, c: [one * random.randrange(2) for one in found]}, "global generator"),
    ],
)
def test_byzantine_stages_that_break_their_word(stages, body, words):
    named = {"clients": body.pop("clients")} if "clients" in body else {}
    broken(check_byzantine, replace(part(stages.Remembering, **body), **named), words)


def test_whoever_names_nobody(stages):
    broken(check_byzantine, stages.Memory(), "does not say clients")


# transports


def test_the_transports_that_there_are(stages):
    for right in (Clear(), stages.Sums(), stages.DropsAll(), stages.Sums(3), stages.Sums(9)):
        check_transport(right)


def one_by_one(self, rows, context):
    return Delivery(rows, context.cohort.counted(len(rows)), rows)


def told_who(self, rows, context):
    came = delivered(self, rows, context)
    return replace(came, cohort=replace(came.cohort, clients=context.cohort.clients[: len(came.rows)]))


def delivered(self, rows, context):
    """One mean of all, or nothing."""
    sums = rows.mean(dim=0, keepdim=True)[: len(rows) // 2]
    return Delivery(sums, context.cohort.counted(len(sums)), rows)


def undivided(self, rows, context):
    """The sum of all, where there are two or more."""
    came = delivered(self, rows, context)
    return replace(came, rows=came.rows * max(len(rows), 1))


def halves(shown, hiding=True):
    """Sums of two halves of those who have samples, or of all; where both are finite."""

    def deliver(self, rows, context):
        taken = context.cohort.trained if hiding else torch.ones(len(rows), dtype=torch.bool)
        some, sent = rows[taken], rows.masked_fill(~taken[:, None], 0)
        if len(some) < 4 or not rows.isfinite().all() or not context.enough(2):
            return Delivery(rows[:0], context.cohort.counted(0), torch.zeros_like(rows))
        means = torch.stack([some[:2].mean(dim=0), some[2:].mean(dim=0)])
        return Delivery(shown(means), context.cohort.counted(2), sent)

    return deliver


def careful(self, rows, context):
    """One mean of all, where it is finite, and enough."""
    came = delivered(self, rows, context)
    if context.enough(1) and bool(came.rows.isfinite().all()) and bool(rows.isfinite().all()):
        return came
    return Delivery(rows[:0], context.cohort.counted(0), torch.zeros_like(rows))


def singles(self, rows, context):
    """The mean of all; of six rows or more the first, and the mean of the others."""
    if len(rows) < 6:
        return delivered(self, rows, context)
    means = torch.stack([rows[0], rows[1:].mean(dim=0)])
    return Delivery(means, context.cohort.counted(2), rows)


def overlapping(self, rows, context):
    """Of all, and of all but the last."""
    if len(rows) < 4:
        return Delivery(rows[:0], context.cohort.counted(0), 0 * rows)
    return Delivery(torch.stack([rows.mean(dim=0), rows[:3].mean(dim=0)]), context.cohort.counted(2), rows)


def faint(self, rows, context):
    """A row and next to nothing of all others, which it says were sent so."""
    if len(rows) != 4:
        return Delivery(rows[:0], context.cohort.counted(0), 0 * rows)
    weights = torch.tensor([[4.0 - 3e-6], [1e-6], [1e-6], [1e-6]], dtype=rows.dtype)
    return Delivery((weights * rows).mean(dim=0, keepdim=True), context.cohort.counted(1), weights * rows)


def weighing(self, rows, context):
    """One client's row three times as large."""
    rows = torch.where((context.cohort.clients == 2).unsqueeze(1), 3 * rows, rows)
    return Delivery(rows, context.cohort, rows)


def gossips(self, rows, context):
    """One mean, and a number of each row beside it."""
    for client, row in zip(context.cohort.clients.tolist(), rows, strict=True):
        context.tell(Released("row", {"client": client, "first": float(row[0])}))
    return delivered(self, rows, context)


def sends(told):
    """Brings all rows, or their mean, and says that something else was sent."""

    def deliver(self, rows, context):
        came = delivered(self, rows, context) if self.shows == "sums" else Delivery(rows, context.cohort, rows)
        return replace(came, sent=told(rows))

    return deliver


def mixed_up(self, rows, context):
    return Delivery(rows.flip(0), context.cohort, rows)


def first_alone(self, rows, context):
    first = torch.arange(len(rows)) < 1
    return Delivery(rows[first], context.cohort.among(first), rows)


def twice(self, rows, context):
    index = torch.cat([torch.arange(len(rows))] * 2)
    return Delivery(rows[index], context.cohort.among(index), rows)


def drawn(self, rows, context):
    return Delivery(rows + context.shared.uniform("x", 1)[0], context.cohort, rows)


def drawn_alone(self, rows, context):
    noise = sum(context.own(row).uniform("x", 1)[0] for row in range(len(rows)))
    return Delivery(rows + noise, context.cohort, rows)


def with_unused(self, rows, context):
    return Delivery(rows - rows.mean(dim=-2, keepdim=True), context.cohort, rows)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"shows": "all"}, "shows = 'all' is none of 'rows', 'sums'"),
        ({"deliver": lambda s, rows, c: rows}, "must return a Delivery"),
        ({"deliver": lambda s, rows, c: Delivery(rows, c.cohort, rows[1:])}, "not (b, c) and (n, c)"),
        ({"deliver": lambda s, rows, c: Delivery(rows[:1], c.cohort, rows)}, "not as many places"),
        ({"deliver": lambda s, rows, c: Delivery(rows.double(), c.cohort, rows)}, "it turns torch.float32"),
        ({"deliver": lambda s, rows, c: Delivery(rows * c.cohort.total, c.cohort, rows)}, "declare it in depends_on"),
        ({"deliver": lambda s, rows, c: Delivery(rows.mul_(2), c.cohort, rows)}, "in place"),
        ({"deliver": lambda s, rows, c: Delivery(rows + random.random(), c.cohort, rows)}, "other"),
        ({"deliver": drawn}, "did not declare it"),
        ({"deliver": drawn_alone, "draws": True}, "whose stage it is not"),
        ({"deliver": mixed_up}, "not that of the client that is named"),
        ({"deliver": first_alone}, "that does not come that something was sent"),
        ({"deliver": twice}, "none of those that it got"),
        ({"deliver": one_by_one}, "none of those that it got"),
        ({"deliver": one_by_one, "shows": "sums"}, "the row of one participation"),
        ({"deliver": told_who, "shows": "sums"}, "it names who is in them"),
        ({"deliver": undivided, "shows": "sums"}, "divide each sum by the number of rows in it"),
        ({"deliver": halves(lambda sums: sums[:1].expand(2, -1)), "shows": "sums"}, "in two of its sums"),
        ({"deliver": halves(lambda sums: 1.1 * sums), "shows": "sums"}, "is not the mean of what was sent"),
        ({"deliver": singles, "shows": "sums"}, "the row of one participation"),
        ({"deliver": halves(lambda sums: sums, hiding=False), "shows": "sums"}, "one participation with samples"),
        ({"deliver": delivered, "shows": "sums"}, "of a row that is not finite it shows a sum that is not"),
        ({"deliver": halves(lambda sums: sums * (1 + 1e-4)), "shows": "sums"}, "is not the mean of what was sent"),
        ({"deliver": overlapping, "shows": "sums"}, "a participation is in two of its sums"),
        ({"deliver": faint, "shows": "sums"}, "divide each sum"),
        ({"deliver": delivered, "shows": "sums"}, "it shows sums in a round that fails"),
        ({"deliver": sends(lambda rows: rows.flip(0))}, "depends on the rows of others"),
        ({"deliver": sends(lambda rows: rows.abs())}, "is not of its row"),
        ({"deliver": sends(lambda rows: 0.9 * rows)}, "is not what it says was sent by that client"),
        ({"deliver": sends(lambda rows: rows.flip(0)), "shows": "sums"}, "depends on the rows of others"),
        ({"deliver": weighing}, "weigh nobody"),
        ({"deliver": gossips, "shows": "sums"}, "what it tells follows from values"),
        ({"deliver": lambda s, rows, c: Delivery(rows, replace(c.cohort, total=7), rows)}, "other numbers of all"),
        ({"deliver": lambda s, rows, c: Delivery(rows, replace(c.cohort, members=1), rows)}, "other numbers of all"),
        ({"deliver": with_unused, "vectorised": True}, "unused places"),
        ({"in_the_clear": lambda s: Clear(), "deliver": mixed_up}, "in_the_clear makes other deliveries"),
    ],
)
def test_transports_that_break_their_word(stages, body, words):
    broken(check_transport, part(stages.DropsAll, **body), words)


def test_a_sum_of_all_is_a_sum(stages):
    check_transport(part(stages.DropsAll, deliver=careful, shows="sums"))
    check_transport(part(stages.DropsAll, deliver=halves(lambda sums: sums), shows="sums"))


CALLS = count()


# what follows from a fault is not told as another


@pytest.mark.parametrize(
    ("apply", "told"),
    [
        (lambda s, rows, c, state: (rows * float("nan"), state), "finite updates become infinite or NaN in round 1"),
        (lambda s, rows, c, state: (rows + next(CALLS), state), "it gives other bits or events when repeated"),
        (lambda s, rows, c, state: (rows.mul_(2), state), "it changes the updates that it was given, in place"),
    ],
)
def test_one_fault_is_one_line(apply, told):
    with pytest.raises(AssertionError) as caught:
        check_client_stage(part(Stateless, apply=apply))
    lines = str(caught.value).splitlines()[1:]
    assert [told in line for line in lines] == [True], lines


# server stages


def test_a_server_stage_draws_together_with_all_and_with_nobody_alone():
    def noisy(self, updates, context, state):
        context.tell(Released("gaussian", {"deviation": 1.0}))
        row, _ = Mean().apply(updates, context, {})
        return row + torch.from_numpy(context.shared.normal("noise", row.shape[-1])).to(row), state

    def own(self, updates, context, state):
        return Mean().apply(updates, context, {})[0] + context.own(0).uniform("noise", 1)[0], state

    check_aggregator(part(Stateless, apply=noisy, draws=True))
    broken(check_aggregator, part(Stateless, apply=own, draws=True), "whose stage it is not")
    broken(check_aggregator, part(Stateless, apply=noisy), "did not declare it")
    quiet = part(Mean, apply=releases(lambda c, columns: torch.zeros(columns)), draws=True)
    broken(check_aggregator, quiet, "no draw changes what it makes")
    weighed = part(Stateless, apply=lambda s, u, c, state: (u[:1] if len(u) > 5 else u.mean(0, keepdim=True), state))
    broken(check_aggregator, weighed, "depends on the order of places")


def slots(context, rows, table):
    """A table in which the slot of each client holds the row that it sent last."""
    new = table.clone().reshape(-1, *table.shape[-2:])
    ids = context.cohort.clients.reshape(len(new), -1)
    for run, its, sent in zip(new, ids, rows.reshape(len(new), ids.shape[-1], -1), strict=True):
        run[its[its >= 0] % 32] = sent[its >= 0]
    return new.reshape(table.shape)


HOARDS = {
    "init": lambda self, shape: {"table": shape.zeros(32, shape.dimension)},
    "per_client_state": frozenset(),
    "before": lambda self, context, state: Steps(context.step_size),
    "private": False,
}


def test_a_row_a_client_under_another_name(stages):
    def after(self, outcome, context, state):
        return outcome.updates, {"table": slots(context, outcome.updates, state["table"])}

    def apply(self, updates, context, state):
        return Mean().apply(updates, context, {})[0], {"table": slots(context, updates, state["table"])}

    def best(self, updates, context, state):
        """Keeps the shortest row, of one client, and so of all together."""
        shortest = updates[updates.norm(dim=1).argmin()]
        return shortest[None], {"table": shortest.expand(32, -1).clone()}

    disguised = "numbers that follow from one client each"
    broken(check_solver, part(stages.LocalMomentum, **HOARDS, after=after), disguised)
    broken(check_aggregator, part(Stateless, init=HOARDS["init"], apply=apply), disguised)
    check_aggregator(part(Stateless, init=HOARDS["init"], apply=best, publishes=lambda self, rows: "row"))


def test_who_sees_rows_tells_nothing_of_them(stages):
    def after(self, outcome, context, state):
        if outcome.updates.ndim == 3 and len(outcome.updates) == 1:
            context.tell(Released("step", {"norm": 1.0}))
        return outcome.updates, state

    def noisy(known, **body):
        def apply(self, updates, context, state):
            context.tell(Summed((known(updates),), 0, False))
            return Mean().apply(updates, context, state)

        return part(Stateless, apply=apply, **body)

    broken(check_solver, part(stages.LocalMomentum, after=after), "tell nothing of a round")
    check_aggregator(noisy(lambda updates: 5, vectorised=True))
    stacked = noisy(lambda updates: updates.ndim, vectorised=True)
    broken(check_aggregator, stacked, "a run in a stack tells otherwise than by itself")
    told_of_values = noisy(lambda updates: int(1e6 * updates.std(correction=0)))
    broken(check_aggregator, told_of_values, "what it tells follows from values")


def test_a_private_solver_mixes_no_clients(stages):
    check_solver(stages.LocalMomentum())
    broken(check_solver, stages.SharedMomentum(), "what a client sends or keeps depends on the rows")

    def counted(self, outcome, context, state):
        return outcome.updates * context.cohort.sizes.sum(), state

    broken(check_solver, part(stages.LocalMomentum, after=counted, depends_on=frozenset({"samples"})), "who they are")
    broken(check_solver, part(stages.LocalMomentum, per_client_state=frozenset()), "must be named in per_client_state")


# what only wide and late rounds show


def counts_small_ones_half(self, updates, context, state):
    weights = context.cohort.present * torch.where(context.cohort.sizes >= 10, 1.0, 0.5)
    return weighted_sum(updates, (weights / weights.sum(-1, keepdim=True)).to(updates.dtype)), state


def grows_with_thousands(self, updates, context, state):
    return Mean().apply(updates, context, {})[0] * (1.0 + context.cohort.total // 1000), state


def late(self, updates, context, state):
    row = Mean().apply(updates, context, {})[0]
    return row / (context.cohort.members if context.number > 9 else 1), state


def leaves_out_the_first_of_ten(self, updates, context, state):
    return Mean().apply(updates, context, {})[0] - (updates[..., :1, :] if updates.shape[-2] > 9 else 0), state


@pytest.mark.parametrize(
    ("apply", "words"),
    [
        (counts_small_ones_half, "how many samples"),
        (grows_with_thousands, "how many clients"),
        (late, "how many clients"),
        (leaves_out_the_first_of_ten, "order of places"),
    ],
)
def test_aggregators_that_are_wrong_in_wide_and_late_rounds(apply, words):
    broken(check_aggregator, part(Stateless, apply=apply, vectorised=False), "in late rounds", words)


def mixes_a_crowd(self, updates, context, state):
    return (updates + updates.roll(1, 0)) / 2 if len(updates) > 9 else updates, state


def zero_where_another_is_equal(self, updates, context, state):
    equal = (updates.unsqueeze(0) == updates.unsqueeze(1)).all(-1).sum(1, keepdim=True) > 1
    return updates.masked_fill(equal & (context.number > 9), 0.0), state


@pytest.mark.parametrize("apply", [mixes_a_crowd, zero_where_another_is_equal])
def test_client_stages_that_look_at_others_in_wide_rounds(apply):
    broken(check_client_stage, part(Stateless, apply=apply), "a client knows nothing but its own")


@dataclass(frozen=True)
class PairsAsThree(SecureSum):
    least_trained: ClassVar[int] = 3

    def deliver(self, rows, context):
        return SecureSum(self.size).deliver(rows, context)


def one_of_a_crowd_alone(self, rows, context):
    few = rows.mean(0, keepdim=True) if 1 < len(rows) < 10 else rows[:0]
    shown = torch.stack([rows[0], rows[1:].mean(0)]) if len(rows) > 9 else few
    return Delivery(shown, context.cohort.counted(len(shown)), rows * (len(shown) > 0))


@pytest.mark.thorough
def test_a_transport_that_shows_sums_of_fewer_than_it_says():
    broken(check_transport, PairsAsThree(2), "of fewer participations with samples than least_trained, whi")


def test_a_transport_that_shows_one_of_many_alone(stages):
    broken(check_transport, part(stages.Sums, deliver=one_of_a_crowd_alone), "the row of one participation")
