"""Whether the stage draws by the law that budgets charge: ``python benchmarks/conspar_law.py`` writes the page.

The stage proposes as in a run: by the secrets of a run's clients, round after round. Its sets are compared with
equation 18 by tests with known laws. Faults are planted to see that these tests find them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fuaudit_plugins.conspar import Consensus, top
from machine import hardware
from numpy.typing import NDArray
from scipy import stats

from fuaudit import train
from fuaudit.budgets.conspar.law import ConSpar, probability
from fuaudit.plans.stage_draws import Part, PlannedDraws
from fuaudit.testing.tiny import tiny_config, tiny_dataset
from fuaudit.training.rounds import Cohort, ExchangeContext, RoundContext

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results" / "conspar-law.md"
CLIENTS, DIM = 12, 50
PART = Part("client", 1)
SETTINGS = [(4, 0.5), (4, 0.8), (10, 0.9)]
DRAWS, WITH_FAULT = (10**6, 10**5, 10**5), 20_000
"""Sets of each setting, and with each fault."""
REJECTED = 1e-6
"""Below this chance under the law a test rejects it. There are six tests, so all of one setting err with 5e-6."""

Bits = NDArray[np.uint8]
Propose = Callable[[Consensus, torch.Tensor, RoundContext], list[torch.Tensor]]

PAGE_TEXT = """\
# Does the stage draw by the law that budgets charge?

    python benchmarks/conspar_law.py

{machine}. The stage `consensus` proposes sets of {dim} coordinates by the secrets of a run's {clients} clients, round \
after round. Budgets charge [equation 18](../budgets.md#one-round). Six tests compare the two; each number is the \
chance that a stage with this law differs from it at least as much; 0 is below what a float holds.

- *sizes*: 1 where every set has k coordinates, else 0.
- *overlaps*: chi-square of the sizes of overlaps with the top set.
- *top coordinates*, *others*: given the overlaps, each top coordinate is as likely as any other, and so is each of \
the rest. Chi-square of how often each was proposed.
- *rounds*, *clients*: how often two sets of one client in neighbouring rounds, and of neighbouring clients in one \
round, are equal; binomial.

| k | alpha | sets | sizes | overlaps | top coordinates | others | rounds | clients |
|---|---|---|---|---|---|---|---|---|
{honest}

With a planted fault, {with_fault:,} sets each, k = 4, alpha = 0.5. A test rejects below {rejected:g}.

| fault | sizes | overlaps | top coordinates | others | rounds | clients | found |
|---|---|---|---|---|---|---|---|
{faulty}

In words: at these sizes nothing tells the stage from the law. It is evidence and no proof: for up to six coordinates \
all paths of the draws are enumerated, and the law comes out exactly (`tests/test_fedrep.py`).
"""


# --- what the stage proposes


def stage_draws(folder: Path) -> PlannedDraws:
    """What the clients of a run draw, by their secrets."""
    tables = tiny_config(
        partition={"use": "iid", "clients": CLIENTS},
        learner={"use": "fedrep", "rounds": 1, "cohort": CLIENTS, "steps": 1, "batch": 1, "step_size": 0.1},
        client=[{"use": "consensus", "per_client": 2, "alpha": 0.5}],
        server=[{"use": "mean"}],
    )
    run = train(tables, folder, tiny_dataset(), secret=bytes(range(32)))
    (draws,) = run.stage_draws(run.plan)
    return draws


def row_of(columns: int) -> torch.Tensor:
    """A row whose top coordinates lie anywhere."""
    return torch.randn(columns, generator=torch.Generator().manual_seed(columns))


def context_of(draws: Any, number: int, columns: int) -> ExchangeContext:
    """A round in which all clients take part."""
    ids, ones = torch.arange(CLIENTS), torch.ones(CLIENTS, dtype=torch.int64)
    cohort = Cohort(ids, ids, ones, ones, ids >= 0, CLIENTS, CLIENTS)
    return ExchangeContext(number, cohort, torch.zeros(columns), step_size=0.1, draws=(draws,))


@dataclass(frozen=True)
class Fault:
    """What goes wrong: how a set is proposed, or which round and client a key belongs to."""

    propose: Propose = Consensus.propose
    round_of: Callable[[int], int] = int
    client_of: Callable[[int], int] = int


def sets_of(draws: PlannedDraws, stage: Consensus, rounds: int, fault: Fault | None = None) -> Bits:
    """The sets of all clients in so many rounds, as bits ``(rounds, clients, columns)``."""
    row, found = row_of(DIM), np.zeros((rounds, CLIENTS, DIM), dtype=np.uint8)
    updates = row.expand(CLIENTS, DIM)
    for number in range(1, rounds + 1):
        context = context_of(draws, number, DIM).at(PART, stage, None)
        if fault is not None:
            context = replace(context, own=keys_of(draws, number, fault))
        proposed = stage.propose(updates, context) if fault is None else fault.propose(stage, updates, context)
        for client, columns in enumerate(proposed):
            found[number - 1, client, columns.numpy()] = 1
    return found


def keys_of(draws: PlannedDraws, number: int, fault: Fault) -> Callable[[int], Any]:
    """What a client draws in a round, with a fault."""
    return lambda client: draws.own(fault.round_of(number), PART, fault.client_of(client), 0)


# --- the tests


def p_values(found: Bits, per_client: int, alpha: float) -> Mapping[str, float]:
    """Test -> the chance of what is at least as unlike the law."""
    shape = ConSpar(found.shape[-1], per_client, Fraction(str(alpha)))
    largest = np.zeros(shape.dim, dtype=bool)
    largest[top(row_of(shape.dim), per_client).numpy()] = True
    each = found.reshape(-1, shape.dim)
    overlaps = each[:, largest].sum(axis=1, dtype=np.int64)
    one_set = np.array([float(probability(shape, overlap)) for overlap in range(per_client + 1)])
    ways = np.array([comb(per_client, u) * comb(shape.dim - per_client, per_client - u) for u in range(per_client + 1)])
    pairs = found[: len(found) // 2 * 2].reshape(-1, 2, *found.shape[1:])
    beside = found.reshape(len(found), -1, 2, shape.dim)
    return {
        "sizes": float((each.sum(axis=1, dtype=np.int64) == per_client).all()),
        "overlaps": of_categories(overlaps, one_set * ways),
        "top coordinates": of_members(each[:, largest], overlaps),
        "others": of_members(each[:, ~largest], per_client - overlaps),
        "rounds": of_equals(pairs[:, 0], pairs[:, 1], float(ways @ one_set**2)),
        "clients": of_equals(beside[:, :, 0], beside[:, :, 1], float(ways @ one_set**2)),
    }


def of_categories(seen: NDArray[np.int64], law: NDArray[np.float64]) -> float:
    """Chi-square of categories 0 .. k - 1; those that are seldom count together with their neighbour."""
    counts, expected = np.bincount(seen, minlength=len(law)).astype(float), law * len(seen)
    while len(law) > 2 and expected.min() < 10:
        rare = int(expected.argmin())
        into = rare - 1 if rare else 1
        for numbers in (counts, expected):
            numbers[into] += numbers[rare]
        counts, expected, law = (np.delete(numbers, rare) for numbers in (counts, expected, law))
    return float(stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), len(counts) - 1))


def of_members(members: Bits, sizes: NDArray[np.int64]) -> float:
    """Chi-square of how often each of n coordinates is in uniform subsets of these sizes.

    With p = s / n, a uniform subset with s of n has the covariance n / (n - 1) p (1 - p) times 1 - 1/n on the diagonal,
    and -1/n beside it. So deviations from the mean, squared and added up, are chi-square with n - 1 degrees.
    """
    count = members.shape[1]
    share = np.clip(sizes / count, 0.0, 1.0)
    variance = float((share * (1 - share)).sum()) * count / (count - 1)
    deviations = members.sum(axis=0, dtype=np.int64) - sizes.sum() / count
    return float(stats.chi2.sf((deviations**2).sum() / variance, count - 1))


def of_equals(one: Bits, other: Bits, chance: float) -> float:
    """Binomial test of how often two sets are equal."""
    equal = (one == other).all(axis=-1)
    return float(stats.binomtest(int(equal.sum()), equal.size, chance).pvalue)


# --- faults


@dataclass(frozen=True)
class Otherwise:
    """A client's draws, of which some are made otherwise."""

    draws: Any
    more: int = 0
    first: bool = False

    def binomial(self, label: str, trials: int, probability: Fraction) -> int:
        """With ``more`` trials."""
        return min(trials, int(self.draws.binomial(label, trials + self.more, probability)))

    def subset(self, label: str, size: int, count: int) -> Any:
        """The ``first`` ranks instead of drawn ones, of those that stay."""
        return np.arange(count) if self.first and label == "stay" else self.draws.subset(label, size, count)


def with_draws(**changes: Any) -> Propose:
    """The stage as it is, with other draws."""

    def propose(stage: Consensus, updates: torch.Tensor, context: RoundContext) -> list[torch.Tensor]:
        def own(place: int) -> Any:
            return Otherwise(context.own(place), **changes)

        proposals: list[torch.Tensor] = stage.propose(updates, replace(context, own=own))
        return proposals

    return propose


def coming_from(whom: Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]) -> Propose:
    """What comes in the place of the replaced is drawn from others: ``whom(largest, stay, columns)``."""

    def one(stage: Consensus, row: torch.Tensor, draws: Any) -> torch.Tensor:
        largest = top(row, stage.per_client)
        replaced = draws.binomial("replaced", len(largest), stage.probability)
        stay = largest[torch.from_numpy(draws.subset("stay", len(largest), len(largest) - replaced))]
        others = whom(largest, stay, len(row))
        come = others[torch.from_numpy(draws.subset("come", len(others), replaced))]
        proposal: torch.Tensor = torch.cat([stay, come]).unique()
        return proposal

    return lambda stage, updates, context: [one(stage, row, context.own(place)) for place, row in enumerate(updates)]


def _without(columns: int, some: torch.Tensor) -> torch.Tensor:
    return torch.tensor(sorted({*range(columns)} - {*some.tolist()}))


FAULTS = {
    "one trial too few in the binomial": Fault(with_draws(more=-1)),
    "one trial too many": Fault(with_draws(more=1)),
    "what comes is drawn from all of [d], and may be there already": Fault(
        coming_from(lambda largest, stay, columns: torch.arange(columns))
    ),
    "what comes is drawn from outside the top set": Fault(
        coming_from(lambda largest, stay, columns: _without(columns, largest))
    ),
    "the largest always stay": Fault(with_draws(first=True)),
    "what comes is never the last column": Fault(
        coming_from(lambda largest, stay, columns: _without(columns - 1, stay))
    ),
    "a client's key is used again in the next round": Fault(round_of=lambda number: (number + 1) // 2),
    "two clients have one key": Fault(client_of=lambda client: client // 2 * 2),
}


def _cells(found: Mapping[str, float]) -> str:
    return " | ".join(f"{value:.2g}" for value in found.values())


def rounds_for(sets: int) -> int:
    """Rounds in which all clients propose so many sets together, or a few more."""
    return -(-sets // CLIENTS)


def honest(draws: PlannedDraws, per_client: int, alpha: float, sets: int) -> str:
    """A line of the page: a setting without a fault."""
    rounds = rounds_for(sets)
    found = p_values(sets_of(draws, Consensus(per_client, alpha), rounds), per_client, alpha)
    return f"| {per_client} | {alpha} | {rounds * CLIENTS:,} | {_cells(found)} |"


def faulty(draws: PlannedDraws, name: str) -> str:
    """A line of the page: a planted fault."""
    found = p_values(sets_of(draws, Consensus(4, 0.5), rounds_for(WITH_FAULT), FAULTS[name]), 4, 0.5)
    return f"| {name} | {_cells(found)} | {'yes' if min(found.values()) < REJECTED else 'no'} |"


def page(settings: list[str], faults: list[str]) -> str:
    """The page, of its lines."""
    facts = hardware()
    return PAGE_TEXT.format(
        machine=f"fuaudit {facts['fuaudit']}, torch {facts['torch']}, {facts['processor']}",
        dim=DIM, clients=CLIENTS, with_fault=rounds_for(WITH_FAULT) * CLIENTS, rejected=REJECTED,
        honest="\n".join(settings), faulty="\n".join(faults),
    )  # fmt: skip


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        draws = stage_draws(Path(folder) / "run")
    faults = [faulty(draws, name) for name in FAULTS]
    settings = [honest(draws, *setting, sets) for setting, sets in zip(SETTINGS, DRAWS, strict=True)]
    PAGE.write_text(page(settings, faults), encoding="utf-8")


if __name__ == "__main__":
    main()
