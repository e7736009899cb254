"""The account of a family of runs: its command, and its words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fuaudit.budgets.family import rounds_in_words
from fuaudit.cli.completion import ARun
from fuaudit.cli.options import Folder, Output, output_options
from fuaudit.text import counted

if TYPE_CHECKING:
    from fuaudit.budgets.spent import PartAccount
    from fuaudit.runs.account import FamilyAccount, Towards
    from fuaudit.runs.released import Unlimited


@click.command("run")
@click.argument("run", type=ARun)
@click.option("--delta", type=float, help="By default that of the config's [budget], or 0.")
@click.option(
    "--differ",
    type=click.IntRange(1),
    help="Elements in which two top sets of a round may differ; by default that of the config's [budget], or 1.",
)
@click.option(
    "--published", multiple=True, help="Folder name of another run whose results were published; may be repeated."
)
@click.option("--also", multiple=True, type=Folder, help="Another folder with runs of this training; may be repeated.")
@click.option("--plot", "picture", type=Folder, help="Draw epsilon against rounds, run by run: FILE.svg, .png or .pdf.")
@output_options
def budget_of_run(
    run: Path,
    delta: float | None,
    differ: int | None,
    published: tuple[str, ...],
    also: tuple[Path, ...],
    picture: Path | None,
    output: Output,
) -> None:
    """Add up what RUN and all runs of its training released: towards the server, and towards the public.

    A round counts for each run that drew it anew. RUN and its ancestors count as published, others by --published.
    """
    from fuaudit.budgets.growth import Seen, plot
    from fuaudit.budgets.picture import require_format
    from fuaudit.runs.account import account_of
    from fuaudit.runs.run import load_run

    if picture is not None:
        require_format(picture)
    found = account_of(load_run(run), delta, differ, published, also)
    if picture is not None:
        seen = {name: Seen(one.spent, one.accounts, one.reasons, one.terms) for name, one in found.towards.items()}
        plot(seen, picture)
    output.emit(found.as_json(), list(_lines(found)), list(_short(found)))


def _lines(found: FamilyAccount) -> Iterator[str]:
    for reader, towards in found.towards.items():
        yield from _towards(found, reader, towards)
        yield ""
    yield "Released without noise, in rounds as they were executed:"
    for name, rows in found.unlimited.items():
        yield f"  {name}"
        for row in rows:
            yield f"    {_where(row)}: {row.what}; may go to: {row.given_to}"
    yield "A kept round that was executed again, as no model after it was kept, counts only in the run that drew it."


def _where(row: Unlimited) -> str:
    """What left a run: its rounds, a file, or a file of some rounds."""
    if row.where == "rounds":
        return rounds_in_words(range(row.rounds[0], row.rounds[-1] + 1))
    return f"{row.where}, of {counted(len(row.rounds), 'round')}" if row.rounds else row.where


def _towards(found: FamilyAccount, reader: str, towards: Towards) -> Iterator[str]:
    yield f"Towards the {reader}: {towards.spent.covered}"
    if not towards.accounts:
        yield f"  no guarantee: {'; '.join(towards.reasons)}"
    for one in towards.accounts:
        yield f"  {_total(found, one)}"
        if one.reason:
            yield f"    {one.reason}"
        if one.found is not None and one.statement is not None:
            from fuaudit.budgets.statement import meaning

            yield f"    {meaning(one.epsilon, one.found.delta)}"
            yield from (f"    {name}: {text}" for name, text in one.statement.as_json().items())


def _total(found: FamilyAccount, one: PartAccount) -> str:
    from fuaudit.budgets.statement import epsilon_at

    total = epsilon_at(one.epsilon, found.terms.delta)
    return f"{one.part}, {one.under}, {counted(one.rounds, 'round')}: {total}"


def _short(found: FamilyAccount) -> Iterator[str]:
    for reader, towards in found.towards.items():
        yield from (f"{reader}: {_total(found, one)}" for one in towards.accounts)
        if not towards.accounts:
            yield f"{reader}: no guarantee"
