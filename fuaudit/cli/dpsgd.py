"""The account of DP-SGD: its command, and its words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fuaudit.budgets.dpsgd.laws import LAWS
from fuaudit.cli.options import Folder, Output, output_options
from fuaudit.errors import EvidenceError, StorageError, UsageError
from fuaudit.text import counted, in_full

if TYPE_CHECKING:
    from fuaudit.budgets.dpsgd.account import DpSgdAccount
    from fuaudit.budgets.dpsgd.history import History
    from fuaudit.budgets.dpsgd.laws import BatchLaw
    from fuaudit.budgets.dpsgd.steps import Steps

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
@click.option("--target", type=float, help="An epsilon: find --noise, --rate or --steps, the one left out.")
@click.option("--cut", type=float, default=0.0, help="The chance that any Poisson batch with the row is cut to fit.")
@click.option("--plot", "picture", type=Folder, help="Draw epsilon against steps of one kind: FILE.svg, .png or .pdf.")
@output_options
def dpsgd(
    noise: float | None,
    rate: float | None,
    count: int | None,
    source: Path | None,
    delta: float,
    sampling: str | None,
    times: int | None,
    target: float | None,
    cut: float,
    picture: Path | None,
    output: Output,
) -> None:
    """Account for DP-SGD, for one row: privacy loss distributions decide, and Opacus's figures stand beside them.

    Amplification by sampling is counted for Poisson batches alone. The statement says what an epsilon covers.
    """
    from fuaudit.budgets.dpsgd.account import account

    if sampling is None:
        laws = [f"--sampling {name}: {law.words}" for name, law in LAWS.items()]
        raise UsageError("say how batches came about: an epsilon holds for one law of them", "\n  ".join(laws))
    if (times is None) == (sampling == "multiset"):
        raise UsageError("--times goes with --sampling multiset: how often a row can count in one step, at most")
    if source is not None and (noise, rate, count, target) != (None, None, None, None):
        raise UsageError("a history has noise, rates and steps: leave out --noise, --rate, --steps and --target")
    if target is not None and cut:
        raise UsageError("a target is met without cuts: leave out --cut, and ask again with what was found")
    if picture is not None and (cut or source is not None):
        raise UsageError("--plot draws steps of one kind that are never cut: leave out --cut and --history")
    law = LAWS[sampling]
    if source is not None:
        told = _history(source)
        found = account(told.steps, delta, law, times or 1, cut=cut)
        output.emit(
            found.as_json() | {"history": {"mechanism": told.mechanism}}, [*_lines(found, told)], [_first(found)]
        )
    elif target is None:
        one = _one(law, noise, rate, count)
        _plot(one, delta, law, times or 1, picture)
        found = account([one], delta, law, times or 1, cut=cut)
        output.emit(found.as_json(), [*_lines(found)], [_first(found)])
    else:
        from fuaudit.budgets.dpsgd.targets import COARSE, Asked, answer

        missing = _missing(law, noise, rate, count)
        one = answer(Asked(noise, rate if law.amplified else 1.0, count, delta, law, times or 1), target)
        _plot(one, delta, law, times or 1, picture)
        found = account([one], delta, law, times or 1, COARSE)
        sought = f"found for epsilon {in_full(target)}: {_sought(found, missing)}"
        document = found.as_json() | {"target": target, "found": missing.lstrip("-")}
        output.emit(document, [sought, *_lines(found)], [sought, _first(found)])


def _plot(one: Steps, delta: float, law: BatchLaw, times: int, picture: Path | None) -> None:
    """Draw epsilon against steps, where a file is named for it."""
    if picture is None:
        return
    from fuaudit.budgets.dpsgd.plot import curves
    from fuaudit.budgets.picture import draw, require_format

    require_format(picture)
    draw(curves(one, delta, law, times), "steps", delta, picture)


def _one(law: BatchLaw, noise: float | None, rate: float | None, count: int | None) -> Steps:
    """The steps that the options name; a rate is theirs where rows are sampled."""
    from fuaudit.budgets.dpsgd.steps import Steps

    if noise is None or count is None or (rate is None) == law.amplified:
        needed = "--noise, --rate and --steps" if law.amplified else "--noise and --steps, and no --rate"
        raise UsageError(f"with --sampling {law.name} say {needed}, or give --history FILE")
    return Steps(noise, 1.0 if rate is None else rate, count)


def _missing(law: BatchLaw, noise: float | None, rate: float | None, count: int | None) -> str:
    """The option that a target is to find."""
    given = {"--noise": noise, "--steps": count} | ({"--rate": rate} if law.amplified else {})
    missing = [name for name, value in given.items() if value is None]
    if len(missing) != 1 or (rate is not None and not law.amplified):
        names = "--noise, --rate and --steps" if law.amplified else "--noise and --steps, and say no --rate"
        raise UsageError(f"with --target and --sampling {law.name} leave out one of {names}")
    return missing[0]


def _sought(found: DpSgdAccount, name: str) -> str:
    """The number that was searched for, and what it means for training."""
    from fuaudit.budgets.dpsgd.steps import STEPS

    (one,) = found.steps
    if name != "--steps":
        return f"{name} {one.noise if name == '--noise' else one.rate:.4g}"
    epochs = (
        f"; at this rate {counted(one.count, 'step')} are {one.count * one.rate:.4g} epochs"
        if found.law.amplified
        else ""
    )
    most = "; more are not accounted for" if one.count == STEPS else ""
    return f"--steps {one.count}{epochs}{most}"


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
    from fuaudit.budgets.statement import epsilon_at

    total = epsilon_at(found.total, found.delta_in_all)
    return f"{counted(found.count, 'step')} of DP-SGD, {found.law.name} batches: {total}"


def _lines(found: DpSgdAccount, told: History | None = None) -> Iterator[str]:
    from fuaudit.budgets.dpsgd.account import statement
    from fuaudit.budgets.statement import meaning
    from fuaudit.statistics.rounding import down, up

    yield _first(found)
    if found.exact:
        uncut = f" of batches that are never cut, at delta {up(found.delta, 6)}" if found.cut else ""
        yield f"  the exact loss{uncut}, composed: between {down(found.exact.low, 5)} and {up(found.exact.high, 5)}"
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
    yield meaning(found.total, found.delta_in_all)
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
