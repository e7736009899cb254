"""Server work: a chain of stages ``(n, d) -> (m, d)`` on the updates of a round; the last leaves one row.

An update is a descent: the model sent out minus the model that came back, one row per participation. The
server subtracts the row that the chain leaves. A stage keeps no hidden memory: state goes in, state comes
out, and it is recorded with the round, because an aggregator's memory of an erased client is a leak.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from fuaudit.declared import is_agreement, offers, says
from fuaudit.errors import AnswerError, PluginError, UsageError
from fuaudit.plans.stage_draws import Part
from fuaudit.registry import called, is_strange
from fuaudit.training.asking import STATE, Kind, a, asked, rows_and_state
from fuaudit.training.rounds import ExchangeContext, RoundContext, State, StateShape, stripped, under

if TYPE_CHECKING:
    from torch import Tensor


class Stage(Protocol):
    """A registered stage (group ``stages``), or the last one (group ``aggregators``): a frozen dataclass.

    ``vectorised`` says that ``apply`` accepts leading axes of independent runs, ``(*s, n, d)``, and treats
    them with elementwise arithmetic only, so that a run's bits do not depend on its neighbours.
    ``per_client_state`` names the tensors of its state that keep one row a client, ``(*s, M, d)``.
    ``after_aggregation`` says that ``apply`` takes the one row that an aggregator leaves, ``(1, d)``; a stage that does
    not say it takes any number of rows. Where a round has fewer than its ``least_rows``, the round fails. A stage that
    leaves fewer rows than it gets says by ``rows_left(rows)`` how many; no aggregator has it. One that may leave a
    single row as it is says by ``publishes(rows)`` what of it: :data:`PUBLISHED`. What else it declares is in
    :data:`fuaudit.declared.WORDS`.
    """

    per_client_state: ClassVar[frozenset[str]]

    def init(self, shape: StateShape) -> State:
        """The state before the first round; every tensor has the shape it keeps."""

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """Map the rows of a round, and the state."""


class Stateless:
    """For stages without memory."""

    per_client_state: ClassVar[frozenset[str]] = frozenset()

    def init(self, shape: StateShape) -> State:
        """No state."""
        return {}


def weighted_sum(updates: Tensor, weights: Tensor) -> Tensor:
    """``sum_i weights_i * updates_i``, added in the order of places: ``(*s, n, d), (*s, n) -> (*s, 1, d)``.

    A fixed order of elementwise additions, because the bits of a library's reduction may depend on its shape.
    """
    total = updates[..., 0, :] * weights[..., 0, None]
    for place in range(1, updates.shape[-2]):
        total += updates[..., place, :] * weights[..., place, None]
    return total.unsqueeze(-2)


def mean(rows: Tensor) -> Tensor:
    """The mean of rows, one at least, added in the order of places: ``(*s, n, d) -> (*s, 1, d)``."""
    count = rows.shape[-2]
    return weighted_sum(rows, rows.new_full(rows.shape[:-1], 1 / count))


@dataclass(frozen=True)
class Mean(Stateless):
    """The mean over places: 1 / K with multiplicity, as FATS needs it (a client drawn twice counts twice)."""

    vectorised: ClassVar[bool] = True

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """See :class:`Stage`."""
        present = context.cohort.present
        places = present.sum(dim=-1, keepdim=True)
        return weighted_sum(updates, present.to(updates.dtype) / places.to(updates.dtype)), state


@dataclass(frozen=True)
class SizeWeighted(Stateless):
    """The mean weighted by sample counts (McMahan et al., AISTATS 2017, Algorithm 1).

    ``by = "cohort"`` divides by the samples of the cohort (n_k / n_S), ``by = "total"`` by those of all clients,
    scaled by M / K. Weights come from the retained data, so kept rounds change when a sample of a participant
    (or, with ``total``, anything) is erased. So an unlearner that keeps rounds is not exact under this stage.

    Attributes:
        by: what weights are divided by: the samples of the "cohort", or those of all clients, "total".
    """

    by: Literal["cohort", "total"] = "cohort"
    vectorised: ClassVar[bool] = True

    @property
    def depends_on(self) -> frozenset[str]:
        """See :class:`Stage`."""
        return frozenset({"samples"} if self.by == "cohort" else {"clients", "samples"})

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """See :class:`Stage`."""
        import torch

        cohort = context.cohort
        sizes = torch.where(cohort.present, cohort.sizes, 0).to(torch.float64)
        if self.by == "cohort":
            weights = sizes / sizes.sum(dim=-1, keepdim=True).clamp(min=1)
        else:
            places = cohort.present.sum(dim=-1, keepdim=True).to(torch.float64)
            weights = sizes / cohort.total * cohort.members / places
        return weighted_sum(updates, weights.to(updates.dtype)), state


@dataclass(frozen=True)
class Momentum:
    """Server momentum: v <- beta v + row, and v is applied (Hsu, Qi, Brown, arXiv 1909.06335, "FedAvgM").

    Its memory v holds the updates of all earlier rounds, an erased client's among them; it is recorded with
    the round and rewound with the model.

    Attributes:
        beta: the share of the velocity that is kept, in [0, 1).
    """

    beta: float = 0.9
    vectorised: ClassVar[bool] = True
    per_client_state: ClassVar[frozenset[str]] = frozenset()
    after_aggregation: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.beta < 1:
            raise UsageError(f"beta must be in [0, 1), not {self.beta}")

    def init(self, shape: StateShape) -> State:
        """``velocity (1, d)``, zero."""
        return {"velocity": shape.zeros(1, shape.dimension)}

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """See :class:`Stage`; a velocity for every row would mix clients, because places change hands."""
        velocity = state["velocity"] * self.beta + updates
        return velocity, {"velocity": velocity}


ALL = slice(None)
"""Every stage of a chain."""


@dataclass(frozen=True)
class Chain:
    """Stages one after another; a chain is a stage. State names are prefixed by the number in the chain, from 0."""

    stages: tuple[Stage, ...]

    @property
    def per_client_state(self) -> frozenset[str]:
        """Those of all stages."""
        return frozenset(
            f"{number}.{name}" for number, stage in enumerate(self.stages) for name in says(stage, "per_client_state")
        )

    def init(self, shape: StateShape) -> State:
        """See :class:`Stage`; an agreement keeps nothing."""
        state: State = {}
        for number, stage in enumerate(self.stages):
            state |= {} if is_agreement(stage) else under(f"{number}.", asked(stage, "init", STATE, shape))
        return state

    @property
    def aggregating(self) -> int:
        """How many stages there are up to the aggregator: what follows takes the one row that it leaves."""
        after = takewhile(lambda stage: says(stage, "after_aggregation"), reversed(self.stages))
        return len(self.stages) - len(list(after))

    def enough(self, rows: int) -> bool:
        """Whether so many rows of a round are enough for every stage up to the aggregator."""
        for stage in self.stages[: self.aggregating]:
            if rows < least_rows(stage):
                return False
            rows = rows_left(stage, rows, rows)
        return True

    def apply(
        self, updates: Tensor, context: ExchangeContext, state: State, numbers: slice = ALL
    ) -> tuple[Tensor, State]:
        """See :class:`Stage`; of the stages of some numbers alone, where they are given.

        Where a stage gets fewer rows than it needs no row is left, ``(0, c)``, and what all remember stays.

        Raises:
            PluginError: the state of a stage does not keep its form; one of a stranger makes NaN of finite rows.
        """
        new: State = {}
        for number, stage in list(enumerate(self.stages))[numbers]:
            if _has_few(updates, context, least_rows(stage)):
                return updates[..., :0, :], state
            prefix = f"{number}."
            old = stripped(prefix, state)
            here = context.at(Part("server", number), stage)
            given = updates
            updates, own = asked(stage, "apply", rows_and_state(updates, columns_alone=True), updates, here, old)
            require_form(stage, old, own)
            if is_strange(stage) and not bool(updates.isfinite().all()):
                _require_finite(stage, given, old, updates, context)
            new |= under(prefix, own)
            if says(stage, "merges"):
                context = replace(context, cohort=context.cohort.counted(updates.shape[-2]))
        return updates, new


NO_STAGES = Chain(())


PUBLISHED = "", "coordinates", "row"
"""What of a single row, of so many, a stage may leave as it is: nothing, each coordinate of some row, or all of one."""

A_PUBLISHED = Kind(f"one of {PUBLISHED}", lambda answer: answer in PUBLISHED)


def published(stage: object, rows: int) -> str:
    """What of a single row a stage may leave as it is of so many. PluginError where it says no word for it."""
    said: str = asked(stage, "publishes", A_PUBLISHED, rows) if offers(stage, "publishes") else ""
    return said


def borne(stage: object, rows: int, otherwise: int) -> int:
    """How many bad rows of so many the guarantee of a stage is about; ``otherwise`` where it says nothing of them.

    None of fewer rows than it needs.

    Raises:
        PluginError: it says another number than 0 to ``rows``.
    """
    if not offers(stage, "bears"):
        return otherwise
    if rows < max(1, least_rows(stage)):
        return 0
    a_number = Kind(f"a whole number from 0 to {rows}", lambda answer: type(answer) is int and 0 <= answer <= rows)
    found: int = asked(stage, "bears", a_number, rows)
    return found


def least_rows(stage: object) -> int:
    """How many rows a stage needs. PluginError where it says no number."""
    needed: object = says(stage, "least_rows")
    if type(needed) is not int:
        raise PluginError(f"{called(stage)} says least_rows = {needed!r}", "Say a whole number.")
    return needed


def rows_left(part: object, otherwise: int, *given: int) -> int:
    """How many rows a part leaves of what it is given at most; ``otherwise`` where it does not say."""
    left: int = asked(part, "rows_left", a(int), *given) if offers(part, "rows_left") else otherwise
    return left


def _has_few(updates: Tensor, context: RoundContext, needed: int) -> bool:
    """Whether rows ``(*s, n, c)`` are fewer than a stage needs, in some run; unused places do not count."""
    if needed <= 1:
        return False
    present = context.cohort.present
    if present.shape != updates.shape[:-1]:  # behind an aggregator places are no longer those of the cohort
        return updates.shape[-2] < needed
    return bool((present.sum(dim=-1) < needed).any())


def _require_finite(stage: object, given: Tensor, state: State, made: Tensor, context: RoundContext) -> None:
    """PluginError where a stage made of finite rows, ``(*s, n, c)``, and a finite state what is not finite.

    Unused places do not count. Behind an aggregator places are no longer those of the cohort.
    """
    unused = ~context.cohort.present
    ignored = unused.unsqueeze(-1) if unused.shape == given.shape[:-1] else unused.new_zeros(())
    sound = given.masked_fill(ignored, 0).flatten(-2).isfinite().all(dim=-1)
    remembers = all(bool(tensor.isfinite().all()) for tensor in state.values())
    if remembers and bool((sound & ~made.flatten(-2).isfinite().all(dim=-1)).any()):
        raise PluginError(
            f"{called(stage)}, apply in round {context.number}, turned finite rows into one that is not finite",
            "Look for a division by 0: behind sums, and of clients without samples, cohort.sizes are 0. "
            "Where updates grew from round to round, lower the step size.",
        )


def require_form(stage: object, old: State, new: State) -> None:
    """Raises PluginError where a state has other names, shapes or dtypes than the one before it."""
    before, after = ({name: _form(tensor) for name, tensor in state.items()} for state in (old, new))
    if before != after:
        forms = [(name, before.get(name, "nothing"), after.get(name, "nothing")) for name in sorted(before | after)]
        changed = "; ".join(f"{name} from {was} to {now}" for name, was, now in forms if was != now)
        told = f"the state of {called(stage)} changed its form in a round: {changed}"
        raise AnswerError(told, "Names, shapes and dtypes must be those of init.")


def _form(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def require_one_row(chain: Chain, rows: Tensor, columns: int) -> None:
    """Raises PluginError unless a chain left one row ``(*s, 1, c)`` of so many columns."""
    if rows.shape[-2:] != (1, columns):
        names = ", ".join(map(called, chain.stages))
        raise AnswerError(
            f"the chain {names} left {tuple(rows.shape[-2:])} instead of one row of {columns}",
            "An aggregator leaves one row: (n, d) -> (1, d), or (runs, n, d) -> (runs, 1, d) where it is vectorised.",
        )
