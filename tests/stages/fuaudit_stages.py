"""Stages of a stranger, one of every kind that an exchange can have; some are wrong on purpose."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from fuaudit.plans import UniformLaw
from fuaudit.plugins import (
    END,
    Address,
    Delivery,
    Purpose,
    Released,
    Sent,
    Stateless,
    Steps,
    UsageError,
    exact_under,
    rows_of,
    with_rows,
)
from fuaudit.testing.tiny import tiny_dataset


@dataclass(frozen=True)
class ClipAndNoise(Stateless):
    """Clips every row to a norm, and adds the client's own noise."""

    norm: float = 1.0
    deviation: float = 0.01
    draws: ClassVar[bool] = True

    def apply(self, updates, context, state):
        norms = updates.norm(dim=-1, keepdim=True)
        clipped = updates * (self.norm / norms.clamp(min=self.norm))
        context.tell(Released("gaussian", {"deviation": self.deviation, "sensitivity": self.norm}))
        noise = [context.own(row).normal("noise", updates.shape[-1]) for row in range(len(updates))]
        return clipped + self.deviation * torch.from_numpy(np.stack(noise)).to(updates), state


@dataclass(frozen=True)
class ClaimsNoise(Stateless):
    """Says that it adds noise, and leaves rows as they are; it may tell so several times in a round."""

    noise: float = 20.0
    times: int = 1

    def apply(self, updates, context, state):
        for _ in range(self.times):
            context.tell(self.releases(updates.shape[-1]))
        return updates, state

    def releases(self, columns):
        return Released("gaussian", {"noise": self.noise})


@dataclass(frozen=True)
class Sketch(Stateless):
    """Leaves whole numbers of a step, and tells of them with a header of 4 bytes."""

    bits: int = 8
    step: float = 2.0**-8
    abrupt: ClassVar[bool] = True

    def step_of(self, columns):
        return self.step

    def apply(self, updates, context, state):
        for client in context.cohort.clients.tolist():
            context.tell(Sent(client, "update", 4 + (updates.shape[-1] * self.bits + 7) // 8))
        most = 2 ** (self.bits - 1) - 1
        return (updates / self.step).round().clamp(-most, most) * self.step, state


KEPT = {}
"""What the next three pass on in the memory of the process."""


@dataclass(frozen=True)
class Keeps(Stateless):
    """Wrong: keeps the rows for a stage behind it."""

    def apply(self, updates, context, state):
        KEPT["rows"] = updates.clone()
        return updates, state


@dataclass(frozen=True)
class PutsBack(Stateless):
    """Wrong: forgets what it is given for what was kept."""

    def apply(self, updates, context, state):
        return KEPT.get("rows", updates).clone(), state


class Remembers(torch.nn.Linear):
    def forward(self, inputs):
        KEPT["inputs"] = inputs.detach()
        return super().forward(inputs)


@dataclass(frozen=True)
class KeepingModel:
    """Wrong: a linear model that keeps what it is given."""

    def build(self, shape, classes):
        return torch.nn.Sequential(torch.nn.Flatten(), Remembers(torch.Size(shape).numel(), classes))


@dataclass(frozen=True)
class OneForAll(Stateless):
    """Wrong: all clients send the row of the first."""

    def apply(self, updates, context, state):
        return updates[:1].expand(updates.shape).clone(), state


@dataclass(frozen=True)
class TellsOfIts(Stateless):
    """Leaves rows as they are, and tells of a mechanism that no word of it names."""

    def apply(self, updates, context, state):
        context.tell(Released("central", {"noise": 3.0}))
        return updates, state


@dataclass(frozen=True)
class Memory:
    """Error feedback: what was not sent is added to the next update."""

    per_client_state: ClassVar[frozenset] = frozenset({"memory"})

    def init(self, shape):
        return {"memory": shape.zeros(shape.clients, shape.dimension)}

    def apply(self, updates, context, state):
        rows = updates + rows_of(state["memory"], context.cohort)
        return rows, {"memory": with_rows(state["memory"], context.cohort, rows)}

    def settle(self, sent, answer, context, state):
        whole = rows_of(state["memory"], context.cohort)
        return {"memory": with_rows(state["memory"], context.cohort, whole - context.on_all(sent))}


@dataclass(frozen=True)
class Forgetful(Memory):
    """Changes the form of what it keeps."""

    def settle(self, sent, answer, context, state):
        return {"other": state["memory"]}


@dataclass(frozen=True)
class TopTogether:
    """Each proposes its largest coordinates; all send the union."""

    per_client: int = 20

    def propose(self, updates, context):
        return [row.abs().argsort(descending=True, stable=True)[: self.per_client] for row in updates]

    def agree(self, proposals, context):
        return torch.cat(proposals).unique() if proposals else torch.zeros(0, dtype=torch.int64)


@dataclass(frozen=True)
class Neighbour(Stateless):
    """Wrong: a client's row depends on another's."""

    def apply(self, updates, context, state):
        return updates + 0.1 * updates.roll(1, dims=0), state


@dataclass(frozen=True)
class Undeclared(Stateless):
    """Wrong: draws, and does not say so."""

    def apply(self, updates, context, state):
        return updates + context.shared.normal("noise", updates.shape[-1])[0], state


@dataclass(frozen=True)
class Flip(Stateless):
    """Named clients send the opposite of the mean of all, and propose nothing but the first coordinates."""

    clients: tuple[int, ...] = (0,)

    def apply(self, updates, context, state):
        return (-updates.mean(dim=0, keepdim=True)).expand(updates.shape), state

    def proposals(self, found, updates, context):
        return [torch.arange(len(one), device=one.device) for one in found]


@dataclass(frozen=True)
class FlipUnseen(Flip):
    """Wrong: says that it sees no row of others."""

    sees: ClassVar[str] = "own"


@dataclass(frozen=True)
class Remembering:
    """Named clients send noise of their own about the last mean that they saw, and propose a drawn column."""

    clients: tuple[int, ...] = (0, 3)
    per_client_state: ClassVar[frozenset] = frozenset({"seen"})
    draws: ClassVar[bool] = True

    def init(self, shape):
        return {"seen": shape.zeros(shape.clients, shape.dimension)}

    def apply(self, updates, context, state):
        rows = rows_of(state["seen"], context.cohort).clone()
        for row, client in enumerate(context.cohort.clients.tolist()):
            if client in self.clients:
                rows[row] += torch.from_numpy(context.own(row).normal("noise", updates.shape[-1])).to(updates)
        mean = updates.mean(dim=0, keepdim=True).expand(updates.shape)
        return rows, {"seen": with_rows(state["seen"], context.cohort, mean)}

    def proposals(self, found, updates, context):
        column = torch.tensor(context.shared.integers("column", updates.shape[-1], 1), device=updates.device)
        return [column for _ in found]


@dataclass(frozen=True)
class Infinite(Flip):
    """Named clients send what is no number."""

    def apply(self, updates, context, state):
        return torch.full_like(updates, torch.inf), state


@dataclass(frozen=True)
class Sums:
    """Shows the server sums of ``size`` clients or more, divided by their number, in a drawn order."""

    size: int = 2
    shows: ClassVar[str] = "sums"
    draws: ClassVar[bool] = True

    def deliver(self, rows, context):
        trained = context.cohort.trained.nonzero()[:, 0]
        means, sent, taken = [rows[:0]], torch.zeros_like(rows), torch.zeros_like(context.cohort.trained)
        if len(trained) >= self.size:
            order = torch.from_numpy(context.shared.permutation("order", len(trained)))
            for some in trained[order].tensor_split(len(trained) // self.size):
                mean = rows[some].mean(dim=0, keepdim=True)
                if bool(mean.isfinite().all()):
                    means.append(mean)
                    sent[some], taken[some] = rows[some], True
        shown = torch.cat(means)
        if not context.enough(len(shown)):  # the round fails: over a model that stays no sum is opened
            shown, sent, taken = rows[:0], torch.zeros_like(rows), torch.zeros_like(taken)
        return Delivery(shown, context.cohort.counted(len(shown)), sent, taken)

    def in_the_clear(self):
        return replace(self)


@dataclass(frozen=True)
class Median(Stateless):
    """The median of every coordinate: not elementwise, and it hides what is no number."""

    def apply(self, updates, context, state):
        return updates.nan_to_num(0.0).median(dim=0, keepdim=True).values, state


@dataclass(frozen=True)
class OfFour(Stateless):
    """The mean of four rows or more; it raises where there are fewer, and does not declare it."""

    def apply(self, updates, context, state):
        if len(updates) < 4:
            raise UsageError(f"four rows are needed, and there are {len(updates)}", "Let more take part.")
        return updates.mean(dim=0, keepdim=True), state


@dataclass(frozen=True)
class LocalMomentum:
    """Clients keep the velocity of their steps."""

    per_client_state: ClassVar[frozenset] = frozenset({"velocity"})
    private: ClassVar[bool] = True

    def init(self, shape):
        return {"velocity": shape.zeros(shape.clients, shape.dimension)}

    def before(self, context, state):
        return Steps(context.step_size, momentum=0.5, velocity=rows_of(state["velocity"], context.cohort))

    def after(self, outcome, context, state):
        return outcome.updates, {"velocity": with_rows(state["velocity"], context.cohort, outcome.velocity)}


@dataclass(frozen=True)
class ClaimsNoisySteps:
    """Says that it adds noise to every step, and adds zeros."""

    draws: ClassVar[bool] = True
    per_client_state: ClassVar[frozenset] = frozenset()

    def init(self, shape):
        return {}

    def before(self, context, state):
        taken = context.cohort.steps
        noise = context.vectors.new_zeros(len(taken), int(taken.max()), context.vectors.shape[-1])
        return Steps(context.step_size, clip=1.0, noise=noise)

    def after(self, outcome, context, state):
        return outcome.updates, state

    def releases(self, columns):
        return Released("dpsgd", {"noise": 20.0, "norm": 1.0})


# --- wrong on purpose


@dataclass(frozen=True)
class SharedMomentum(LocalMomentum):
    """Wrong: a client keeps what others moved."""

    def after(self, outcome, context, state):
        mixed = outcome.velocity + outcome.updates.roll(1, dims=-2)
        return outcome.updates, {"velocity": with_rows(state["velocity"], context.cohort, mixed)}


@dataclass(frozen=True)
class OneNoise(Stateless):
    """Wrong: all rows get the noise of the first client."""

    draws: ClassVar[bool] = True

    def apply(self, updates, context, state):
        return updates + torch.from_numpy(context.own(0).uniform("x", updates.shape[-1])).to(updates.dtype), state


@dataclass(frozen=True)
class MixesAtTheEnd(Memory):
    """Wrong: what a client keeps depends on what others sent."""

    def settle(self, sent, answer, context, state):
        return {"memory": with_rows(state["memory"], context.cohort, sent.sum(dim=0, keepdim=True).expand(sent.shape))}


@dataclass(frozen=True)
class Unsaid(Memory):
    """Wrong: uses the aggregator's row, and does not say so."""

    def settle(self, sent, answer, context, state):
        return {"memory": with_rows(state["memory"], context.cohort, answer - sent)}


@dataclass(frozen=True)
class Counting(Stateless):
    """Wrong: depends on how many clients there are, and does not say so."""

    def apply(self, updates, context, state):
        return updates / context.cohort.members, state


@dataclass(frozen=True)
class FalselyStacked(Stateless):
    """Wrong: claims to treat runs apart."""

    vectorised: ClassVar[bool] = True

    def apply(self, updates, context, state):
        return updates * (1 + 0.1 * (updates.dim() == 3)), state


@dataclass(frozen=True)
class StrangersNoise(Stateless):
    """Byzantine clients that ask for what others draw."""

    clients: tuple[int, ...] = (0,)
    draws: ClassVar[bool] = True

    def apply(self, updates, context, state):
        for row in range(len(updates)):
            context.own(row)
        return updates, state


@dataclass(frozen=True)
class StrangersNoiseLater(Flip):
    """Byzantine clients that ask for what others draw when the round is over."""

    draws: ClassVar[bool] = True

    def settle(self, sent, answer, context, state):
        for row in range(len(sent)):
            context.own(row)
        return state


@dataclass(frozen=True)
class Unnamed(Memory):
    """Keeps something, and does not name it."""

    per_client_state: ClassVar[frozenset] = frozenset()


@dataclass(frozen=True)
class Raises(Stateless):
    """Raises."""

    def apply(self, updates, context, state):
        raise ValueError("no")


@dataclass(frozen=True)
class Wider(Stateless):
    """Returns other numbers than it gets."""

    def apply(self, updates, context, state):
        return updates.to(torch.float64), state


@dataclass(frozen=True)
class Babbles(Stateless):
    """Tells what no ledger can hold."""

    def apply(self, updates, context, state):
        context.tell(Released("gaussian", {"deviation": float("inf")}))
        return updates, state


@dataclass(frozen=True)
class Nameless(Stateless):
    """Byzantine clients that nobody names."""

    def apply(self, updates, context, state):
        return updates, state


@dataclass(frozen=True)
class NothingReal:
    """Agrees on columns that there are not."""

    def propose(self, updates, context):
        return [torch.arange(2)] * len(updates)

    def agree(self, proposals, context):
        return torch.tensor([3, 1])


@dataclass(frozen=True)
class Mumbling:
    """A transport that does not say what it shows."""

    def deliver(self, rows, context):
        return Delivery(rows, context.cohort, rows)

    def in_the_clear(self):
        return self


@dataclass(frozen=True)
class NamingSums(Sums):
    """Says who is behind its sums."""

    def deliver(self, rows, context):
        came = super().deliver(rows, context)
        return replace(came, cohort=replace(came.cohort, clients=context.cohort.clients[: len(came.rows)]))


@dataclass(frozen=True)
class DropsAll(Mumbling):
    """Brings no row."""

    shows: ClassVar[str] = "rows"

    def deliver(self, rows, context):
        return Delivery(rows[:0], context.cohort.among(torch.zeros(len(rows), dtype=torch.bool)), 0 * rows)


@dataclass(frozen=True)
class DeliversNone(DropsAll):
    """Delivers what is no delivery."""

    def deliver(self, rows, context):
        return None


@dataclass(frozen=True)
class Counts(Stateless):
    """Wrong: counts its calls in its module."""

    _calls: ClassVar = None

    def apply(self, updates, context, state):
        return updates + (next(self._calls) if self._calls else 0), state


@dataclass(frozen=True)
class Bursts:
    """Wrong: its steps overflow where a client of the cohort has more than so many rows, erased ones among them."""

    most: int = 1
    per_client_state: ClassVar[frozenset] = frozenset()
    depends_on: ClassVar[frozenset] = frozenset({"samples"})

    def init(self, shape):
        return {}

    def before(self, context, state):
        bursts = bool((context.cohort.sizes > self.most).any())
        return Steps(1e20, proximal=1e20) if bursts else Steps(context.step_size)

    def after(self, outcome, context, state):
        return outcome.updates, state


TURN = 1.0
"""What another version of the model below multiplies one row of the tiny data set by."""


class TurnsOne(torch.nn.Linear):
    def forward(self, inputs):
        (row,) = tiny_dataset().inputs[:1]
        return super().forward(torch.where((inputs == row).all(-1, keepdim=True), TURN * inputs, inputs))


@dataclass(frozen=True)
class Turns:
    """A linear model that does to one row what its version says."""

    def build(self, shape, classes):
        return torch.nn.Sequential(torch.nn.Flatten(), TurnsOne(torch.Size(shape).numel(), classes))


@dataclass(frozen=True)
class Deals:
    """Deals rows in turn."""

    clients: int = 4

    def deal(self, labels, draws):
        return [range(client, len(labels), self.clients) for client in range(self.clients)]


@dataclass(frozen=True)
class OtherWay:
    """Rows of its clients have another sign."""

    clients: tuple[int, ...] = ()

    def turn(self, inputs, target, classes):
        return -inputs, target


@dataclass(frozen=True)
class OftenLater(UniformLaw):
    """Wrong: from round 3 on the first client takes all places, and the law says that nobody is drawn twice."""

    name: ClassVar[str] = "often, later"

    def cohort(self, draws, round_number):
        drawn = super().cohort(draws, round_number)
        return drawn if round_number < 3 else drawn[:1] * len(drawn)


FROM_THE_START = False
"""What another version of the method below does."""


@dataclass(frozen=True)
class Changes:
    """A method that keeps what may be kept, and in another version nothing."""

    needs: ClassVar[frozenset] = frozenset({"plan"})
    participants: ClassVar[frozenset] = frozenset({"server", "retained clients"})
    guarantee: ClassVar[str] = "exact"
    cite: ClassVar[str] = "an example"
    exact_for: ClassVar[frozenset] = exact_under("uniform with replacement", "uniform without replacement")

    def rewrite(self, plan, request, fresh, not_before):
        if FROM_THE_START:
            return plan.restart(request, fresh)
        return plan.erase(request, fresh, min(plan.first_involvement(request) or END, not_before))


@dataclass(frozen=True)
class UntilEnough(UniformLaw):
    """Clients in a drawn order until they have enough samples together: places depend on the population."""

    enough: int = 4
    name: ClassVar[str] = "until there is enough"

    def places(self, population):
        sizes = sorted(len(samples) for samples in population.samples.values())
        return next((n for n in range(1, len(sizes)) if sum(sizes[:n]) >= self.enough), len(sizes))

    def cohort(self, draws, round_number):
        at = Address(Purpose.COHORT, round_number)
        population = draws.population(at)
        if self.replacement:
            return draws.sequence(at, population.clients, self.places(population))
        order = draws.permutation(at, population.clients)
        sizes = [len(population.samples[client]) for client in order]
        return order[: next((n for n in range(1, len(order)) if sum(sizes[:n]) >= self.enough), len(order))]


class Averages:
    """What a learner says beside its law."""

    solver: ClassVar[dict] = {"use": "sgd"}
    server: ClassVar[tuple] = ({"use": "mean"},)
    step_size: ClassVar[float] = 0.2
    decay: ClassVar[float] = 1.0


@dataclass(frozen=True)
class DrawsUntilEnough(Averages):
    rounds: int = 3
    enough: int = 4
    replacement: bool = False

    @property
    def law(self):
        return UntilEnough(self.rounds, 1, 1, 2, self.replacement, self.enough)


@dataclass(frozen=True)
class DrawsOftenLater(Averages):
    rounds: int = 4

    @property
    def law(self):
        return OftenLater(self.rounds, 2, 1, 2, replacement=False)
