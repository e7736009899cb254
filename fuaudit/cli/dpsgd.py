"""The account of DP-SGD: its command, and its words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fuaudit.budgets.dpsgd.laws import LAWS
from fuaudit.cli.options import Folder, Output, output_options
from fuaudit.errors import EvidenceError, StorageError, UsageError
from fuaudit.text import counted

if TYPE_CHECKING:
    from fuaudit.budgets.dpsgd.account import DpSgdAccount
    from fuaudit.budgets.dpsgd.history import History

NOT_READ = "What torch writes is not read: to open it can run code."
LARGEST = 2**24
"""Bytes of a history."""


@click.command()
@click.option("--noise", type=float, help="Standard deviation of the noise on the sum, in norms.")
@click.option("--rate", type=float, help="With --sampling poisson: the chance that a row is in a batch.")
@click.option("--steps", "count", type=click.IntRange(1), help="Steps whose batch may have the row.")
@click.option("--history", "source", type=Folder, help="Instead of these: the state of an Opacus accountant, JSON.")
@click.option("--delta", type=float, required=True, help="At which the epsilon holds, above 0.")
@click.option("--sampling", type=click.Choice([*LAWS]), help="How batches came about; a history does not tell.")
@click.option("--times", type=click.IntRange(1), help="With --sampling multiset: how often a row counts in a step.")
@output_options
def dpsgd(
    noise: float | None,
    rate: float | None,
    count: int | None,
    source: Path | None,
    delta: float,
    sampling: str | None,
    times: int | None,
    output: Output,
) -> None:
    """Account for DP-SGD, for one row: privacy loss distributions decide, and Opacus's figures stand beside them.

    Amplification by sampling is counted for Poisson batches alone. The statement says what an epsilon covers.
    """
    from fuaudit.budgets.dpsgd.account import account
    from fuaudit.budgets.dpsgd.steps import Steps

    if sampling is None:
        laws = [f"--sampling {name}: {law.words}" for name, law in LAWS.items()]
        raise UsageError("say how batches came about: an epsilon holds for one law of them", "\n  ".join(laws))
    if (times is None) == (sampling == "multiset"):
        raise UsageError("--times goes with --sampling multiset: how often a row can count in one step, at most")
    law, one = LAWS[sampling], (noise, rate, count)
    if source is not None and one != (None, None, None):
        raise UsageError("a history has noise, rates and steps: leave out --noise, --rate and --steps")
    told: History | None = None
    if source is not None:
        told = _history(source)
        steps = told.steps
    elif noise is None or count is None or (rate is None) == law.amplified:
        needed = "--noise, --rate and --steps" if law.amplified else "--noise and --steps, and no --rate"
        raise UsageError(f"with --sampling {law.name} say {needed}, or give --history FILE")
    else:
        steps = (Steps(noise, 1.0 if rate is None else rate, count),)
    found = account(steps, delta, law, times or 1)
    document = found.as_json() | ({"history": {"mechanism": told.mechanism}} if told else {})
    output.emit(document, [*_lines(found, told)], [_first(found)])


def _history(source: Path) -> History:
    """The steps of a file. It is read as JSON and as nothing else: other forms of a state can run code."""
    from fuaudit.budgets.dpsgd.history import HINT, history
    from fuaudit.formats.forms import parse_json
    from fuaudit.reading import require_regular

    require_regular(source, LARGEST)
    try:
        return history(parse_json(source.read_bytes(), source))
    except EvidenceError as error:
        raise UsageError(str(error.args[0]), f"{HINT} {NOT_READ}") from None
    except OSError as error:
        raise StorageError(f"{source} cannot be read: {error.strerror}") from None


def _first(found: DpSgdAccount) -> str:
    from fuaudit.statistics.rounding import up

    total = "no guarantee" if found.total == float("inf") else f"epsilon {up(found.total, 5)}"
    return f"{counted(found.count, 'step')} of DP-SGD, {found.law.name} batches: {total} at delta {up(found.delta, 6)}"


def _lines(found: DpSgdAccount, told: History | None) -> Iterator[str]:
    from fuaudit.budgets.dpsgd.account import statement
    from fuaudit.budgets.statement import meaning
    from fuaudit.statistics.rounding import down, up

    yield _first(found)
    if found.exact:
        yield f"  the exact loss, composed: between {down(found.exact.low, 5)} and {up(found.exact.high, 5)}"
    if found.plain < float("inf"):
        yield f"  without amplification: {up(found.plain, 5)}, for every law of batches"
    if found.law.amplified and found.total < float("inf"):
        for name, words in (("rdp", "by Renyi divergences"), ("prv", "by PRVs")):
            figure = found.beside[name]
            yield f"  Opacus {words}: {figure.reason if figure.epsilon is None else up(figure.epsilon, 5)}"
        yield f"  Opacus by GDP: {_approximated(found)}"
    if told:
        yield f"the history was counted by Opacus's accountant {told.mechanism}; its word for an epsilon is not asked"
    if found.note:
        yield found.note
    yield meaning(found.total, found.delta)
    yield ""
    yield "Statement:"
    for name, text in statement(found).as_json().items():
        yield f"  {name}: {text}"


def _approximated(found: DpSgdAccount) -> str:
    figure = found.beside["gdp"]
    if figure.epsilon is None:
        return figure.reason
    smaller = ", and SMALLER than the exact epsilon here" if found.too_small() else ""
    return f"{figure.epsilon:.5g}, no bound: a limit for many steps{smaller}"
