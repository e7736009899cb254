"""The account of Skellam noise: its command, and its words."""

from __future__ import annotations

from fractions import Fraction
from math import inf, sqrt
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fuaudit.budgets.statement import epsilon_at, meaning
from fuaudit.cli.options import Folder, Output, output_options
from fuaudit.cli.shares import Divided, share_options
from fuaudit.errors import UsageError
from fuaudit.statistics.rounding import up
from fuaudit.text import counted

if TYPE_CHECKING:
    from fuaudit.budgets.skellam.account import SkellamAccount
    from fuaudit.budgets.skellam.law import Fitting


@click.command()
@click.option("--dim", type=click.IntRange(1), required=True, help="Numbers of a row.")
@click.option("--share", type=float, help="Deviation of one client's noise, a multiple of the longest rounded row.")
@click.option("--norm", type=float, default=1.0, show_default=True, help="The longest row before it is rounded.")
@click.option("--bits", type=click.IntRange(2, 18), default=16, show_default=True, help="Of a number that is sent.")
@click.option("--rounds", type=click.IntRange(1), help="Rounds that a client takes part in.")
@click.option("--delta", type=float, required=True, help="Above 0: Skellam noise has no pure epsilon.")
@click.option("--target", type=float, help="An epsilon of one row: find --share or --rounds, the one left out.")
@share_options("How many clients add a share each: who faces what?")
@click.option("--plot", "picture", type=Folder, help="Draw epsilon against rounds: FILE.svg, .png or .pdf.")
@output_options
def skellam(
    dim: int,
    share: float | None,
    norm: float,
    bits: int,
    rounds: int | None,
    delta: float,
    target: float | None,
    divided: Divided | None,
    picture: Path | None,
    output: Output,
) -> None:
    """Account for Skellam noise on clipped rows of whole numbers, without amplification by sampling.

    Shares are those of the stage skellam-noise: every client adds one. With --clients they are summed up, and three
    statements follow: of who sees totals, buffers and rows.
    """
    from fuaudit.budgets.skellam.account import account
    from fuaudit.budgets.skellam.faces import statements
    from fuaudit.budgets.skellam.law import fitting
    from fuaudit.budgets.skellam.targets import noise_for, rounds_for
    from fuaudit.budgets.target import Target

    match (share, rounds, target):
        case (float(), int(), None):
            fit, number = fitting(norm, bits, dim, _exact(share)), rounds
        case (None, int(), float()):
            fit, number = noise_for(Target(target, delta), rounds, norm, bits, dim), rounds
        case (float(), None, float()):
            fit = fitting(norm, bits, dim, _exact(share))
            number = rounds_for(fit.law, Target(target, delta))
        case _:
            raise UsageError("say --share and --rounds; or --target, and leave one of the two out")
    told = [account(fit.law, number, delta)]
    found = {"target": target, "found": "share" if share is None else "rounds"} if target is not None else {}
    document = told[0].as_json() | {"step": fit.step, "bits": bits, "norm": norm} | found
    if divided is not None:
        told = list(statements(fit, divided.shares, number, delta, divided.secrets_beside))
        document |= {"faces": [one.as_json() for one in told]}
    if picture is not None:
        from fuaudit.budgets.picture import draw
        from fuaudit.budgets.skellam.plot import curves

        draw(curves(told), "rounds", delta, picture)
    output.emit(
        document, [_of_step(fit), *(line for one in told for line in _lines(one))], [_first(one) for one in told]
    )


def _exact(share: float) -> Fraction:
    """The decimal that was written; UsageError for what is no noise."""
    if not 0 < share < inf:
        raise UsageError(f"--share is a number above 0, not {share}")
    return Fraction(str(share))


def _of_step(fit: Fitting) -> str:
    """What is rounded to what, and how much longer a row becomes by it."""
    longest = sqrt(fit.law.squares) * fit.step
    return f"numbers are whole multiples of {fit.step:g}; after rounding no row is longer than {up(longest, 5)}"


def _first(found: SkellamAccount) -> str:
    one = float(found.mechanism.noise)
    together = f", {up(one * sqrt(found.shares), 5)} together" if found.shares > 1 else ""
    shares = f"{counted(found.shares, 'unknown share')} of {up(one, 6)}{together}"
    return f"{counted(found.rounds, 'round')} with {shares}: {epsilon_at(found.epsilon, found.delta)}"


def _lines(found: SkellamAccount) -> list[str]:
    """An account in words; the first line says the most."""
    told = [f"  {name}: {text}" for name, text in found.statement().as_json().items()]
    why = [found.note] if found.note else []
    seen = f"towards who sees {found.seen}"
    return [_first(found), seen, *why, meaning(found.epsilon, found.delta), "Statement:", *told, ""]
