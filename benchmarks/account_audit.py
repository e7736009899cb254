"""Accounts against audits: ``python benchmarks/account_audit.py`` writes the page and its picture.

The stages ``consensus``, ``gaussian-noise`` and ``skellam-noise`` and the solver ``dpsgd`` draw as in a run, by the
secrets of its clients, under two histories that an account calls adjacent. What they let out bounds the epsilon from
below. Faults are planted to see that the bound then exceeds the account. The picture has accounts and bounds on one
axis.

Draws hang on no machine, so tables may be measured one by one: ``--only rounds`` keeps the others as the page has them.
``--picture`` measures nothing and draws the figures of the page.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import conspar_law as law
import matplotlib
import numpy as np
import torch
from figures import svg_of
from fuaudit_plugins.conspar import Consensus
from fuaudit_plugins.dpsgd import DpSgd
from fuaudit_plugins.noise import GaussianNoise, clipped
from fuaudit_plugins.skellam import SkellamNoise
from machine import hardware
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from fuaudit.budgets.conspar.law import ConSpar, epsilon
from fuaudit.budgets.dpsgd.account import account as dpsgd
from fuaudit.budgets.dpsgd.laws import FIXED, POISSON
from fuaudit.budgets.dpsgd.steps import Steps as Charged
from fuaudit.budgets.gaussian.curve import epsilon_of, mu_of
from fuaudit.budgets.skellam.account import account as skellam
from fuaudit.budgets.skellam.law import fitting
from fuaudit.draws import Address, Keyed, Purpose
from fuaudit.models.layout import Layout
from fuaudit.plans.stage_draws import OF_SOLVER, PlannedDraws
from fuaudit.reporting.drawings import ROLES, STYLE
from fuaudit.testing.accounts import AuditedAccount, audit_account
from fuaudit.training.engines.batched import Batched
from fuaudit.training.engines.protocol import ClientProblem
from fuaudit.training.rounds import RoundContext
from fuaudit.training.solvers import Steps

PAGE = Path(__file__).parents[1] / "docs" / "results" / "account-audit.md"
PICTURE = PAGE.with_suffix(".svg")
SIX, FIVE, WITH_FAULT = 10**6, 10**5, 40_000
"""Trials of each history; with each fault."""
ALPHA, DELTA = 0.05, 1e-5
WORKERS = 4
CONSPAR = {(50, 4, 0.8): SIX, (50, 4, 0.5): FIVE, (50, 1, 0.1): FIVE, (20, 2, 0.01): FIVE}
"""Coordinates, coordinates a client, alpha -> trials."""
NOISE = {0.5: SIX, 1.0: SIX, 2.0: SIX}
STEPS = {1.0: SIX}
"""Noise -> trials."""
POISSON_STEPS = {(1.0, 0.25): SIX, (0.5, 0.1): SIX}
"""Noise, chance that the row is in the batch -> trials."""
WHOLE = {(1.0, 12, 1): SIX, (1.0, 6, 1): SIX, (1.0, 12, 4): FIVE}
"""Noise of a share, bits, clients whose shares are summed up -> trials."""
COLUMNS, NORM = 3, 0.5
CELLS, WIDEST = 60, 6.0
"""Kinds of a normal number: cells of its values, up to so many deviations beyond both means."""

Kinds = NDArray[np.int64]
Rows = Sequence[torch.Tensor]

PAGE_TEXT = """\
# Accounts against audits

    python benchmarks/account_audit.py

{machine}. Three stages and a solver draw as in a run, by the secrets of its {clients} clients, under each of two \
histories that an account calls adjacent; *trials* are those of each, or a few more. One event is chosen on a fifth of \
the trials. On the others its chances are \
bounded by Clopper and Pearson's limits, so the bound on epsilon is above the true one with a chance of at most \
{alpha:g} ([budgets.md](../budgets.md#account-against-audit)). *Ceiling* is what the bound would be if the event came \
always under one history and never under the other.

`consensus`, one round, two top sets that differ in one element, delta 0:

| d | k | alpha | trials | account | at least | share | ceiling | verdict |
|---|---|---|---|---|---|---|---|---|
{conspar}

`gaussian-noise`, one step, a row as long as the norm against a row of zeros, delta {delta:g}:

| noise | trials | account | at least | share | ceiling | verdict |
|---|---|---|---|---|---|---|
{noise}

`skellam-noise`, one round, a row as long as the norm against a row of zeros, delta {delta:g}. *Clients* are those \
whose rows are summed up; the rows of all but one are zero. With 6 bits numbers are coarse:

| noise | bits | clients | trials | account | at least | share | ceiling | verdict |
|---|---|---|---|---|---|---|---|---|
{whole}

`dpsgd`, one step of a client, on a row whose gradient is longer than the norm against an empty batch, delta {delta:g}:

| noise | trials | account | at least | share | ceiling | verdict |
|---|---|---|---|---|---|---|
{steps}

The same with Poisson batches: the row is in the batch with a chance, *rate*:

| noise | rate | trials | account | at least | share | ceiling | verdict |
|---|---|---|---|---|---|---|---|
{poisson}

Two rounds, of which the second differs; the account is that of one round, or of one step:

| stage | trials | account | at least | share | verdict |
|---|---|---|---|---|---|
{rounds}

With a planted fault, {with_fault:,} trials of each history:

| stage | fault | account | at least | verdict |
|---|---|---|---|---|
{fault}

![Accounts, and the bounds of their audits, on one axis](account-audit.svg)

In words: at these sizes no bound exceeds its account, and each fault that lets out more than is charged is refuted. \
It is evidence and no proof: a bound below an account shows nothing. Faults that make a stage *more* private are not \
found here; the [law](conspar-law.md) finds them. Nor is noise that is short by a tenth: at noise 1 the account is \
4.38, and with noise .9 it would be 4.98, which a threshold on {six:,} trials does not reach. Tests of the law of \
the noise find 3 %.
"""


# --- what comes out under a history: rows of one client, round after round


@dataclass(frozen=True)
class Trial:
    """What is executed, and into which kinds its outcomes are sorted, fixed before anything is drawn.

    Attributes:
        stage: with which parameters; or a solver.
        histories: two lists of rows ``(c,)``, one row a round; of a solver batches ``(1,)``, -1 for an empty one.
        account: the epsilon that is charged.
        delta: at which it holds.
        sort: outcomes of all rounds ``(rounds, n, c)`` -> kinds ``(n,)``.
        fault: what goes wrong, with the proposals or with the keys; None for the stage as it is.
        summed: how many clients' rows are added up before anybody sees them; those of all but the first are zero.
        rate: the chance that the row is in a solver's batch, where that is drawn; None where its history says so.
    """

    stage: Consensus | GaussianNoise | SkellamNoise | DpSgd
    histories: tuple[Rows, Rows]
    account: float
    delta: float
    sort: Callable[[NDArray[np.float64]], Kinds]
    fault: law.Fault | None = None
    summed: int = 1
    rate: Fraction | None = None


def kinds(draws: PlannedDraws, trial: Trial, history: int, times: range) -> Kinds:
    """The kinds of trials under one history, so many ``times`` for every client; no round is used twice."""
    rows, found = trial.histories[history], []
    if isinstance(trial.stage, DpSgd):
        numbers = [1 + 2 * time + history for time in times]
        return trial.sort(_stepped(draws, trial.stage, _batches_of(trial, rows[0], numbers), numbers))
    for time in times:
        number = 1 + (2 * time + history) * len(rows)
        found.append([_outcome(draws, trial, row, number + i) for i, row in enumerate(rows)])
    outcomes = np.array(found).transpose(1, 0, 2, 3)
    return trial.sort(outcomes.reshape(len(rows), -1, outcomes.shape[-1]))


def _outcome(draws: PlannedDraws, trial: Trial, row: torch.Tensor, number: int) -> NDArray[np.float64]:
    """What all clients let out in one round of a stage: sets as bits, or rows, ``(clients, c)``."""
    stage, updates = trial.stage, row.expand(law.CLIENTS, len(row))
    context = law.context_of(draws, number, len(row)).at(law.PART, stage, None)
    if trial.fault is not None:
        context = replace(context, own=law.keys_of(draws, number, trial.fault))
    if isinstance(stage, SkellamNoise):
        updates = updates * (torch.arange(law.CLIENTS) % trial.summed == 0)[:, None]
        sent = _left(stage, updates, context)
        together: NDArray[np.float64] = sent.reshape(-1, trial.summed, sent.shape[-1]).sum(axis=1)
        return together
    if isinstance(stage, GaussianNoise):
        return _left(stage, updates, context)
    bits = np.zeros((law.CLIENTS, len(row)))
    propose = Consensus.propose if trial.fault is None else trial.fault.propose
    for client, columns in enumerate(propose(stage, updates, context)):
        bits[client, columns.numpy()] = 1
    return bits


def _left(stage: GaussianNoise | SkellamNoise, updates: torch.Tensor, context: RoundContext) -> NDArray[np.float64]:
    """What a stage without memory makes of rows, ``(clients, c)``."""
    rows: NDArray[np.float64] = stage.apply(updates, context, {})[0].numpy().astype(np.float64)
    return rows


LOUD = ClientProblem(
    module := torch.nn.Linear(2, 2).double(), Layout.of(module), torch.tensor([[3.0, -4.0]]).double(), torch.tensor([1])
)
"""One row, whose gradient is longer than the norm."""


DRAWN = Keyed(bytes(range(32)))
"""Batches are drawn as a law of Poisson batches draws them, with this key."""


def _batches_of(trial: Trial, batch: torch.Tensor, numbers: Sequence[int]) -> torch.Tensor:
    """The batches of all clients in each of these rounds, ``(n, clients, 1, 1)``; Poisson ones may lack the row."""
    batches = batch.repeat(len(numbers), law.CLIENTS, 1, 1)
    if trial.rate is not None:
        for place, number in enumerate(numbers):
            for client in range(law.CLIENTS):
                if not DRAWN.independent(Address(Purpose.BATCH, number, 1, client), (0,), trial.rate):
                    batches[place, client] = -1
    return batches


def _stepped(draws: PlannedDraws, solver: DpSgd, batches: torch.Tensor, numbers: Sequence[int]) -> NDArray[np.float64]:
    """What one step of all clients lets out in each of these rounds along the gradient of the row, in norms, ``(n,)``.

    The engine takes the steps of all rounds at once, as those of many runs.
    """
    asked = [_step_of(draws, solver, number) for number in numbers]
    noise = torch.stack([steps.noise for steps in asked if steps.noise is not None])
    updates = _advanced(replace(asked[0], noise=noise), batches).flatten(0, 1)
    alone = _advanced(replace(asked[0], noise=None), torch.zeros(1, 1, 1, 1, dtype=torch.int64))[0, 0]
    return (updates @ alone / alone.square().sum()).numpy()


def _step_of(draws: PlannedDraws, solver: DpSgd, number: int) -> Steps:
    """What the solver gives to the one step of every client in a round, divided by 1."""
    context = law.context_of(draws, number, LOUD.layout.dimension)
    wide = replace(context, vectors=context.vectors.double())
    steps: Steps = solver.before(wide.at(OF_SOLVER, solver, None), {})
    return replace(steps, divisor=1)


def _advanced(steps: Steps, batches: torch.Tensor) -> torch.Tensor:
    """The updates of one step from models of zeros, ``(runs, clients, c)``."""
    models = torch.zeros(len(batches), LOUD.layout.dimension, dtype=torch.float64)
    return Batched(1, stack_size=1024).advance(LOUD, models, batches, steps).updates


def audited(draws: PlannedDraws, trial: Trial, trials: int) -> AuditedAccount:
    """The account of a trial against what came out."""
    one, other = (kinds(draws, trial, history, range(law.rounds_for(trials))) for history in (0, 1))
    return audit_account(trial.account, one, other, trial.delta, ALPHA)


# --- trials


def row_with(columns: int, largest: Sequence[int]) -> torch.Tensor:
    """A row whose largest entries are these; others are smaller and lie anywhere."""
    row = torch.rand(columns, generator=torch.Generator().manual_seed(columns), dtype=torch.float64)
    row[list(largest)] = 2.0
    return row


def conspar(d: int, k: int, alpha: float, rounds: int = 1, fault: law.Fault | None = None) -> Trial:
    """In the last round two top sets differ in one element, and in those before in none."""
    mine, theirs = row_with(d, range(k)), row_with(d, range(1, k + 1))

    def sort(bits: NDArray[np.float64]) -> Kinds:
        """By size, by how many common elements are sent, and by which of the other two are, in every round."""
        found = np.zeros(bits.shape[1], dtype=np.int64)
        for sent in bits.astype(np.int64):
            common = sent[:, 1:k].sum(axis=1)
            found = ((found * (k + 1) + sent.sum(axis=1)) * (k + 1) + common) * 4 + 2 * sent[:, 0] + sent[:, k]
        return found

    shape = ConSpar(d, k, Fraction(str(alpha)))
    histories = ([mine] * rounds, [mine] * (rounds - 1) + [theirs])
    return Trial(Consensus(k, alpha), histories, epsilon(shape), 0.0, sort, fault)


def noise(z: float, rounds: int = 1, fault: law.Fault | None = None, stage: Any = None, column: int = 0) -> Trial:
    """In the last round the row is as long as the norm along one column, or zero; in those before it is the same.

    Kinds are cells of that column's number; with two rounds also whether it changed from the first to the second by
    exactly what the rows changed by, as where both have one key.
    """
    mine, zero = torch.zeros(COLUMNS, dtype=torch.float64), torch.zeros(COLUMNS, dtype=torch.float64)
    mine[column] = 4 * NORM  # clipped to the norm

    def cells(numbers: NDArray[np.float64], count: int) -> Kinds:
        low, high = -WIDEST * z, 1 + WIDEST * z
        found: Kinds = np.clip((numbers - low) / (high - low) * count, 0, count - 1).astype(np.int64)
        return found

    def sort(rows: NDArray[np.float64]) -> Kinds:
        last = cells(rows[-1, :, column] / NORM, CELLS)
        if len(rows) == 1:
            return last
        change = rows[-1, :, column] - rows[-2, :, column]
        same = np.abs(change[:, None] / NORM - np.array([0.0, -1.0])) < 1e-6  # exactly as without noise, or not
        found: Kinds = last + CELLS * (same[:, 0] + 2 * same[:, 1])
        return found

    account = epsilon_of(mu_of(z, 1), DELTA)
    histories = ([mine] * rounds, [mine] * (rounds - 1) + [zero])
    return Trial(stage or GaussianNoise(NORM, z), histories, account, DELTA, sort, fault)


def whole(z: float, bits: int, summed: int = 1, stage: Any = None) -> Trial:
    """The row is as long as the norm along one column, or zero; kinds are sums of that column's whole numbers.

    Of many different numbers so many as make cells no finer than those of ``noise`` are one kind.
    """
    mine, zero = torch.zeros(COLUMNS, dtype=torch.float64), torch.zeros(COLUMNS, dtype=torch.float64)
    mine[0] = 4 * NORM  # clipped to the norm
    fit = fitting(NORM, bits, COLUMNS, Fraction(str(z)))
    spread = float(fit.law.variance * summed) ** 0.5
    low, high = -math.ceil(WIDEST * spread), math.isqrt(fit.law.squares) + math.ceil(WIDEST * spread)
    width = max(1, (high - low) // CELLS)

    def sort(rows: NDArray[np.float64]) -> Kinds:
        numbers = np.rint(rows[-1, :, 0] / fit.step).astype(np.int64)
        found: Kinds = np.clip((numbers - low) // width, 0, (high - low) // width)
        return found

    account = skellam(fit.law, 1, DELTA, shares=summed).total
    return Trial(stage or SkellamNoise(NORM, z, bits), ([mine], [zero]), account, DELTA, sort, summed=summed)


def step(z: float, rate: float | None = None) -> Trial:
    """The row can be in the batch of the one step, or nothing is; kinds are cells of what comes out along its gradient.

    With a ``rate`` the batch is a Poisson batch, and without one the row is in it.
    """
    present, empty = torch.zeros(1, dtype=torch.int64), -torch.ones(1, dtype=torch.int64)

    def sort(numbers: NDArray[np.float64]) -> Kinds:
        low, high = -WIDEST * z, 1 + WIDEST * z
        return np.clip((numbers - low) / (high - low) * CELLS, 0, CELLS - 1).astype(np.int64)

    account = dpsgd([Charged(z, rate or 1.0, 1)], DELTA, POISSON if rate else FIXED, figures=False).total
    exact = None if rate is None else Fraction(str(rate))
    return Trial(DpSgd(NORM, z), ([present], [empty]), account, DELTA, sort, rate=exact)


# --- faults


class Unclipped(GaussianNoise):
    """It forgets to clip."""

    def apply(self, updates: torch.Tensor, context: Any, state: Any) -> Any:
        found, state = super().apply(updates, context, state)
        return found + updates - torch.stack([clipped(row, self.norm) for row in updates]), state


class HalfTheNoise(GaussianNoise):
    """It adds half of what it tells."""

    def apply(self, updates: torch.Tensor, context: Any, state: Any) -> Any:
        return replace(GaussianNoise(self.norm, self.noise), noise=self.noise / 2).apply(updates, context, state)


class OneOfSixteen(SkellamNoise):
    """It adds a sixteenth of the variance that it tells, as where the noise of a sum of sixteen is told of a row."""

    def apply(self, updates: torch.Tensor, context: Any, state: Any) -> Any:
        return SkellamNoise(self.norm, self.noise / 4, self.bits).apply(updates, context, state)


class FirstColumn(GaussianNoise):
    """It adds noise to the first column alone."""

    def apply(self, updates: torch.Tensor, context: Any, state: Any) -> Any:
        found, state = super().apply(updates, context, state)
        found[:, 1:] = torch.stack([clipped(row, self.norm) for row in updates])[:, 1:]
        return found, state


AGAIN = law.FAULTS["a client's key is used again in the next round"]
FAULTS: dict[tuple[str, str], Trial] = {
    ("consensus", "one trial too few in the binomial"): conspar(
        20, 2, 0.5, fault=law.FAULTS["one trial too few in the binomial"]
    ),
    ("consensus", "what comes is drawn from all of [d], and may be there already"): conspar(
        20, 2, 0.5, fault=law.FAULTS["what comes is drawn from all of [d], and may be there already"]
    ),
    ("consensus", "the largest always stay"): conspar(20, 2, 0.5, fault=law.FAULTS["the largest always stay"]),
    ("consensus", "a client's key is used again in the next round"): conspar(20, 2, 0.5, rounds=2, fault=AGAIN),
    ("gaussian-noise", "a client's key is used again in the next round"): noise(1.0, rounds=2, fault=AGAIN),
    ("gaussian-noise", "rows are not clipped, and are four times as long"): noise(1.0, stage=Unclipped(NORM, 1.0)),
    ("gaussian-noise", "half of the noise"): noise(1.0, stage=HalfTheNoise(NORM, 1.0)),
    ("gaussian-noise", "noise on the first column alone"): noise(1.0, stage=FirstColumn(NORM, 1.0), column=1),
    ("skellam-noise", "a sixteenth of the variance"): whole(1.0, 12, stage=OneOfSixteen(NORM, 1.0, 12)),
}
ROUNDS = {
    "consensus, d = 20, k = 2, alpha = 0.5": (conspar(20, 2, 0.5, rounds=2), FIVE),
    "gaussian-noise, noise 1": (noise(1.0, 2), SIX),
}
"""Which trial, and how often."""


# --- the page


Job = tuple[str, Any]
"""Which table of the page, and which of its rows."""
PART = 2_000
"""Rounds, or pairs of rounds, that one process executes at a time."""


def _trial(job: Job) -> tuple[Trial, int]:
    """What is executed, and how often under each history."""
    table, row = job
    if table == "conspar":
        return conspar(*row), CONSPAR[row]
    if table == "noise":
        return noise(row), NOISE[row]
    if table == "steps":
        return step(row), STEPS[row]
    if table == "poisson":
        return step(*row), POISSON_STEPS[row]
    if table == "whole":
        return whole(*row), WHOLE[row]
    return ROUNDS[row] if table == "rounds" else (FAULTS[row], WITH_FAULT)


def _part(given: tuple[Job, int, range]) -> Kinds:
    """The kinds of some trials of a job under one history, in a process of its own."""
    job, history, times = given
    torch.set_num_threads(1)
    return kinds(_draws(), _trial(job)[0], history, times)


@cache
def _draws() -> PlannedDraws:
    with tempfile.TemporaryDirectory() as folder:
        return law.stage_draws(Path(folder) / "run")


def _parts(job: Job) -> list[tuple[Job, int, range]]:
    times = law.rounds_for(_trial(job)[1])
    return [
        (job, history, range(first, min(times, first + PART))) for history in (0, 1) for first in range(0, times, PART)
    ]


def _all(jobs: list[Job]) -> dict[Job, AuditedAccount]:
    """All audits; trials are shared among processes, and put together in their order."""
    parts = [part for job in jobs for part in _parts(job)]
    with ProcessPoolExecutor(WORKERS) as pool:
        done = list(zip(parts, pool.map(_part, parts), strict=True))
    found = {}
    for job in jobs:
        one, other = (
            np.concatenate([seen for (whose, of, _), seen in done if (whose, of) == (job, history)])
            for history in (0, 1)
        )
        trial = _trial(job)[0]
        found[job] = audit_account(trial.account, one, other, trial.delta, ALPHA)
    return found


def _cells(found: AuditedAccount) -> str:
    least = found.least
    return f"{found.account:.3f} | {least.lower:.3f} | {found.share:.0%} | {least.ceiling:.2f} | {found.verdict}"


def _short(found: AuditedAccount, share: bool) -> str:
    reached = f"{found.share:.0%} | " if share else ""
    return f"{found.account:.3f} | {found.least.lower:.3f} | {reached}{found.verdict}"


TABLES: dict[str, Sequence[Any]] = {
    "conspar": list(CONSPAR), "noise": list(NOISE), "whole": list(WHOLE), "steps": list(STEPS),
    "poisson": list(POISSON_STEPS), "rounds": list(ROUNDS), "fault": list(FAULTS),
}  # fmt: skip
"""Table, in the order of the page -> what its rows are about."""


def _line(job: Job, found: AuditedAccount) -> str:
    """A row of the page."""
    (table, row), of = job, _trial(job)[1]
    if table in ("conspar", "poisson", "whole"):
        return f"| {' | '.join(f'{one:g}' for one in row)} | {of:,} | {_cells(found)} |"
    if table in ("noise", "steps"):
        return f"| {row:g} | {of:,} | {_cells(found)} |"
    if table == "rounds":
        return f"| {row} | {of:,} | {_short(found, True)} |"
    return f"| {' | '.join(row)} | {_short(found, False)} |"


def rows_of(page: str) -> dict[str, list[str]]:
    """The rows of each table of a page, as they are written there."""
    blocks = [block.splitlines() for block in page.split("\n\n") if block.startswith("|")]
    return dict(zip(TABLES, (lines[2:] for lines in blocks), strict=True))


def measured(tables: Sequence[str]) -> dict[str, list[str]]:
    """The rows of some tables, measured now."""
    jobs: list[Job] = [(table, row) for table in tables for row in TABLES[table]]
    found = _all(jobs)
    return {table: [_line((table, row), found[table, row]) for row in TABLES[table]] for table in tables}


def written(rows: Mapping[str, list[str]]) -> str:
    """The page with these rows."""
    facts = hardware()
    return PAGE_TEXT.format(
        machine=f"fuaudit {facts['fuaudit']}, torch {facts['torch']}, {facts['processor']}",
        clients=law.CLIENTS, six=SIX, alpha=ALPHA, delta=DELTA, with_fault=WITH_FAULT,
        **{table: "\n".join(lines) for table, lines in rows.items()},
    )  # fmt: skip


@dataclass(frozen=True)
class Shown:
    """A row of the page: an account beside the bound of its audit."""

    label: str
    account: float
    least: float
    verdict: str


LABELS = {
    "conspar": "consensus: d = {d}, k = {k}, alpha = {alpha}", "noise": "gaussian-noise: noise {noise}",
    "whole": "skellam-noise: noise {noise}, {bits} bits, clients {clients}", "steps": "dpsgd, one step: noise {noise}",
    "poisson": "dpsgd, one step: noise {noise}, rate {rate}", "rounds": "two rounds, {stage}",
    "fault": "{stage}: {fault}",
}  # fmt: skip
"""What a row of each table is called in the picture, by the columns of the page."""


MARKS = {
    "PASS": ("subject", "D", "audit: epsilon is at least this"),
    "FAIL": ("untouched", "X", "the same, above the account: FAIL"),
}
"""Verdict -> role of its colour, marker, words."""


def shown(page: str) -> dict[str, list[Shown]]:
    """Table -> what its rows say, as the page has them."""
    heads = [line for line, after in pairwise(page.splitlines()) if after.startswith("|---")]
    found = {}
    for (table, lines), head in zip(rows_of(page).items(), heads, strict=True):
        cells = [dict(zip(_split(head), _split(line), strict=True)) for line in lines]
        found[table] = [
            Shown(LABELS[table].format(**row), float(row["account"]), float(row["at least"]), row["verdict"])
            for row in cells
        ]
    return found


def _split(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def picture(page: str) -> str:
    """The SVG of a page: every account and its bound on one axis, faults in a panel of their own below."""
    tables = shown(page)
    honest, faulty = [row for name in tables if name != "fault" for row in tables[name]], tables["fault"]
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        figure = Figure(figsize=(9.5, 1.6 + 0.29 * (len(honest) + len(faulty))), layout="constrained")
        ratios = [len(honest) + 1, len(faulty) + 1]
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=ratios)
        _panel(above, honest, "as they are")
        _panel(below, faulty, "with a planted fault")
        below.set(xlabel="epsilon", xlim=(0, None))
        marks = [
            Patch(facecolor=ROLES["line"], edgecolor=ROLES["faint"], label="account: epsilon is at most this"),
            *(Line2D([], [], color=ROLES[role], marker=marker, linestyle="none", label=words)
              for role, marker, words in MARKS.values()),
        ]  # fmt: skip
        figure.legend(handles=marks, loc="outside upper center", ncols=len(marks), frameon=False, fontsize=9)
        return svg_of(figure)


def _panel(axes: Axes, rows: Sequence[Shown], title: str) -> None:
    """A bar up to each account, and a mark at its bound; what is beyond the bar is drawn as a line."""
    places = range(len(rows))
    axes.barh(places, [row.account for row in rows], height=0.62, color=ROLES["line"], edgecolor=ROLES["faint"],
              linewidth=0.8)  # fmt: skip
    beyond = [(place, row) for place, row in zip(places, rows, strict=True) if row.verdict == "FAIL"]
    axes.hlines([place for place, _ in beyond], [row.account for _, row in beyond], [row.least for _, row in beyond],
                color=ROLES["untouched"], linewidth=1.6)  # fmt: skip
    for verdict, (role, marker, _) in MARKS.items():
        of = [(row.least, place) for place, row in zip(places, rows, strict=True) if row.verdict == verdict]
        if of:
            axes.plot(*zip(*of, strict=True), marker, color=ROLES[role])
    axes.set_yticks(places, [row.label for row in rows])
    axes.set_title(title, loc="left", fontsize=10)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(TABLES), default=list(TABLES), help="measure these tables")
    parser.add_argument("--picture", action="store_true", help="measure nothing")
    given = parser.parse_args()
    if not given.picture:
        kept = {} if len(given.only) == len(TABLES) else rows_of(PAGE.read_text(encoding="utf-8"))
        rows = kept | measured(given.only)
        PAGE.write_text(written({table: rows[table] for table in TABLES}), encoding="utf-8")
    PICTURE.write_text(picture(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
