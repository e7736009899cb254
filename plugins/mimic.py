"""MimiC: every update is corrected by how far the client's last one was from what the server applied then.

Sun, Mao, Zhang: "MimiC: Combating Client Dropouts in Federated Learning by Mimicking Central Updates" (IEEE
Transactions on Mobile Computing 2024, arXiv 2306.12212), Algorithm 1. With g_i the local update of client i:

    v_i = g_i + c_i,   v = mean of v_i over the participants,   w <- w - eta_t v,   c_i <- v - g_i  (eq. 15)

:class:`Corrections` is the printed form, with all c_i at the server. :class:`OwnCorrection` is the form of section 5,
"Practical implementations": client i keeps c_i and uploads v_i. The server then needs the sum of the v_i alone, so they
can be encrypted and summed, and must send their mean back to those who took part. Both give the same bits.

What differs from print, and why:

- The printed g_i is free of step sizes, a mean of K gradients, and eta_t is one step of the server. Here an update is
  the sum of a client's steps, each with the clients' step size eta_L, and c_i is kept free of eta_L: it is divided by
  the step size of the round in which it is made, and multiplied by that of the round in which it is used. Up to the
  unit this is Algorithm 1 with eta_t = K eta_L. Published code keeps c_i with the old step size inside;
  ``memory = "scaled"`` is that form, another one once step sizes decay.
- K is not divided out. It is the same for all clients in print; where it is not, a client's weight is that of FedAvg.

With everybody active in every round the c_i add up to zero, so v is FedAvg's mean. With one client c_i is zero.

Guarantee for unlearning: rounds in which an erased client takes part reach, through v, the corrections of all who took
part with it. Dropping its row alone is no unlearning; going back to before its first round is (docs/dropouts.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, expm1, inf, log, log1p
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fuaudit.plugins import (
    Dropouts,
    Exchange,
    Mean,
    MemoryKept,
    Participations,
    RoundContext,
    ServerStep,
    Sgd,
    Solver,
    State,
    StateShape,
    rows_of,
    weighted_sum,
    with_rows,
)

if TYPE_CHECKING:
    from torch import Tensor

Memory = Literal["free", "scaled"]


@dataclass(frozen=True)
class Corrections:
    """MimiC at the server: an aggregator. ``corrections (M, d)`` keeps one row a client.

    Attributes:
        memory: how corrections are kept: "free" of step sizes, or "scaled" by those of the rounds in which
            they were made.
    """

    memory: Memory = "free"
    vectorised: ClassVar[bool] = True
    per_client_state: ClassVar[frozenset[str]] = frozenset({"corrections"})
    selftest_faults: ClassVar[tuple[MemoryKept, ...]] = (MemoryKept("mimic", {"server": [{"use": "mimic"}]}),)

    def init(self, shape: StateShape) -> State:
        """Zeros."""
        return {"corrections": shape.zeros(shape.clients, shape.dimension)}

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """See :class:`~fuaudit.training.stages.Stage`."""
        cohort, kept = context.cohort, state["corrections"]
        rate = _rate(context, self.memory)
        rows = updates + rate * rows_of(kept, cohort)
        places = cohort.present.sum(dim=-1, keepdim=True).to(updates.dtype)
        mean = weighted_sum(rows, cohort.present.to(updates.dtype) / places)
        return mean, {"corrections": with_rows(kept, cohort, (mean - updates) / rate)}


@dataclass(frozen=True)
class OwnCorrection:
    """MimiC at the clients: a client stage that sends corrected updates. ``corrections (M, d)`` never leaves them.

    With the mean at the server it is Algorithm 1, bit for bit. Behind another aggregator c_i follows what that one
    answers, as section 5 has it.

    Attributes:
        memory: how corrections are kept: "free" of step sizes, or "scaled" by those of the rounds in which
            they were made.
    """

    memory: Memory = "free"
    vectorised: ClassVar[bool] = True
    per_client_state: ClassVar[frozenset[str]] = frozenset({"corrections"})
    selftest_faults: ClassVar[tuple[MemoryKept, ...]] = (
        MemoryKept("mimic-client", {"client": [{"use": "mimic-client"}], "server": [{"use": "mean"}]}),
    )
    answered: ClassVar[bool] = True  # c_i is made of the aggregator's row

    def init(self, shape: StateShape) -> State:
        """Zeros."""
        return {"corrections": shape.zeros(shape.clients, shape.dimension)}

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """The corrected updates v_i. Until the round is settled the client keeps g_i, of which c_i will be made."""
        rows = updates + _rate(context, self.memory) * rows_of(state["corrections"], context.cohort)
        return rows, {"corrections": with_rows(state["corrections"], context.cohort, updates)}

    def settle(self, sent: Tensor, answer: Tensor, context: RoundContext, state: State) -> State:
        """c_i <- v - g_i."""
        new = (context.on_all(answer) - rows_of(state["corrections"], context.cohort)) / _rate(context, self.memory)
        return {"corrections": with_rows(state["corrections"], context.cohort, new)}


def _rate(context: RoundContext, memory: Memory) -> float:
    """What a correction is multiplied by where it is used, and divided by where it is made."""
    return context.step_size if memory == "free" else 1.0


def step_size_conditions(
    steps_of_server: Sequence[float],
    participants: Sequence[int],
    clients: int,
    gap: int,
    local_steps: int,
    local: float,
) -> dict[str, Any] | None:
    """Whether the conditions of Theorem 2 on step sizes held in rounds 0, ..., T - 1, as far as a run can tell.

    (19)  rho_t = eta_t |S_{t+1}| / (eta_{t+1} |S_t|) > 1
    (25)  (1 / eta_t) (1 / (2 eta_t) - L / 2) >= (rho_t - nu) phi_K tau_max N / (2 nu |S_t|)

    with phi_K = (((2 + 2 eta_L^2 L^2)^K - 1) / (K (2 eta_L^2 L^2 + 1)) + 1) L^2. The smoothness L of a loss is not
    known, so (25) is answered by the largest L for which it holds in every round that has a successor: the last one
    has no rho_t. The positive number nu is free but must stay below every rho_t - 1; half of the least of them is
    taken. Rounds with nobody in them are passed over. That sums of step sizes diverge and of their squares converge
    (Corollary 1) no finite run can tell.

    Args:
        steps_of_server: eta_t.
        participants: |S_t|.
        clients: N.
        gap: tau_max.
        local_steps: K.
        local: eta_L, the largest of the run.

    Returns:
        ``condition_19``, ``smallest_rho`` and ``log10_of_largest_smoothness``: the last is None where (19) fails, and
        all are where fewer than two rounds had somebody in them, for then nothing was asked. None for all of it
        where an eta_t or rho_t is no positive finite number.
    """
    rounds = [(step, count) for step, count in zip(steps_of_server, participants, strict=True) if count]
    if not all(0 < step < inf for step, _ in rounds):
        return None
    rho = [a * m / (b * n) for (a, n), (b, m) in pairwise(rounds)]
    if not all(0 < ratio < inf for ratio in rho):
        return None  # JSON has no infinity
    least = min(rho, default=None)
    found = {"condition_19": None if least is None else least > 1, "smallest_rho": least and round(least, 9)}
    if least is None or least <= 1:
        return found | {"log10_of_largest_smoothness": None}
    nu = (least - 1) / 2

    # in logarithms, because phi_K and L leave the range of numbers
    def log_of_phi(smoothness: float) -> float:
        square = 2 * (log(local) + smoothness * log(10))
        power = local_steps * (log(2) + _log1pexp(square))
        ratio = power + log1p(-exp(-power)) - log(local_steps) - _log1pexp(square + log(2))
        return _log1pexp(ratio) + 2 * smoothness * log(10)

    def holds(smoothness: float) -> bool:
        for (step, count), ratio in zip(rounds, rho, strict=False):
            taken = smoothness * log(10) + log(step)
            bound = log(ratio - nu) + log(gap * clients / count) - log(2 * nu) + log_of_phi(smoothness)
            if taken >= 0 or log(-expm1(taken)) - log(2) - 2 * log(step) < bound:
                return False
        return True

    low, high = -1.0, 1.0
    while not holds(low):
        low *= 2
    while holds(high):
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return found | {"log10_of_largest_smoothness": round(low, 3)}


def _log1pexp(x: float) -> float:
    """log(1 + e^x)."""
    return max(x, 0.0) + log1p(exp(-abs(x)))


def _is_of_the_theorem(solver: Solver, exchange: Exchange) -> bool:
    """Whether an exchange is that of Theorem 2: plain steps, corrections free of step sizes, a step of the server."""
    first, *rest = exchange.server.stages
    forms: tuple[tuple[Any, Any], ...] = ((), Corrections()), ((OwnCorrection(),), Mean())
    here = (exchange.client_stages.stages, first) in forms and exchange.transport.shows == "rows"
    return here and solver == Sgd() and all(isinstance(stage, ServerStep) for stage in rest)


@dataclass(frozen=True)
class Mimic(Dropouts):
    """MimiC among whoever is available."""

    cite: ClassVar[str] = Dropouts.cite
    guarantee: ClassVar[str] = "converges under bounded or random dropouts, for step sizes as in Theorems 2 and 3"
    server: ClassVar[tuple[dict[str, Any], ...]] = ({"use": "mimic"},)

    def conclusions(
        self, seen: Participations, clients: tuple[int, ...], solver: Solver, exchange: Exchange
    ) -> dict[str, Any]:
        """See :class:`~fuaudit.training.learner.Learner`: the conditions of Theorem 2.

        eta_t is K times the clients' step size, times the factor of a ``server-step``; K is the number of steps that
        every participant took. Where the theorem is not about this run, ``conditions`` is None and
        ``no_conditions`` says why.
        """
        import torch

        if not _is_of_the_theorem(solver, exchange):
            why = "Theorem 2 is about plain steps, corrections free of step sizes, their mean, and a step of the server"
            return {"conditions": None, "no_conditions": why}
        if self.rate is not None:
            why = "Theorem 2 is about means over batches, and gradients of Poisson batches are divided by one number"
            return {"conditions": None, "no_conditions": why}
        taken = {count for steps in seen.steps for count in steps} or {self.law.steps}
        if len(taken) > 1 or 0 in taken:
            why = f"Theorem 2 has one number of steps for all participants; here they took {min(taken)} to {max(taken)}"
            return {"conditions": None, "no_conditions": why}
        (local_steps,) = taken
        participants = [len(cohort) for cohort in seen.cohorts]
        eta = [local_steps * self.step_size * self.decay**t for t in range(len(participants))]
        for stage in exchange.server.stages:
            if isinstance(stage, ServerStep):
                factors = [stage.factor(t, torch.tensor(count)) for t, count in enumerate(participants, 1)]
                eta = [step * float(factor) for step, factor in zip(eta, factors, strict=True)]
        gap = max(seen.longest_gaps(clients).values())
        conditions = step_size_conditions(eta, participants, len(clients), gap, local_steps, self.step_size)
        if conditions is None:
            return {"conditions": None, "no_conditions": "a step of the server is 0 or infinite as a number"}
        return {"conditions": conditions}


@dataclass(frozen=True)
class MimicAtClients(Mimic):
    """MimiC among whoever is available, with corrections kept by the clients."""

    server: ClassVar[tuple[dict[str, Any], ...]] = ({"use": "mean"},)
    client: ClassVar[tuple[dict[str, Any], ...]] = ({"use": "mimic-client"},)
