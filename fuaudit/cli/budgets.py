"""Commands about privacy budgets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fuaudit.cli.dpsgd import dpsgd
from fuaudit.cli.family import budget_of_run
from fuaudit.cli.options import Folder, Output, output_options
from fuaudit.cli.shares import Divided, share_options
from fuaudit.cli.skellam import skellam
from fuaudit.errors import UsageError
from fuaudit.text import counted, in_full

if TYPE_CHECKING:
    from fuaudit.budgets.conspar.account import ConSparAccount
    from fuaudit.budgets.gaussian.account import GaussianAccount


@click.group()
def budget() -> None:
    """Say how much privacy a mechanism leaves, or what runs released, and under which assumptions."""


budget.add_command(budget_of_run)
budget.add_command(dpsgd)
budget.add_command(skellam)


@budget.command()
@click.option("--dim", type=click.IntRange(2), required=True, help="Coordinates of the model.")
@click.option("--per-client", type=click.IntRange(1), help="Coordinates that a client sends in a round.")
@click.option("--alpha", help="Chance that a top coordinate is given up, a decimal: it is read as it is written.")
@click.option("--rounds", type=click.IntRange(1), help="Rounds that a client takes part in; by default 1.")
@click.option(
    "--differ", type=click.IntRange(1), default=1, show_default=True, help="Elements in which two top sets may differ."
)
@click.option("--delta", type=float, default=0.0, show_default=True, help="Above 0 the exact loss is composed.")
@click.option("--target", type=float, help="An epsilon: find --alpha, --per-client or --rounds, the one left out.")
@click.option("--plot", "picture", type=Folder, help="Draw epsilon against rounds: FILE.svg, .png or .pdf.")
@output_options
def conspar(
    dim: int,
    per_client: int | None,
    alpha: str | None,
    rounds: int | None,
    differ: int,
    delta: float,
    target: float | None,
    picture: Path | None,
    output: Output,
) -> None:
    """Account for ConSpar: exactly for one round, and for all rounds of a client.

    Adjacency is on sets of top coordinates, not on data. The statement that is printed says what an epsilon covers.
    """
    from fuaudit.budgets.conspar.account import BINS, COARSE, account
    from fuaudit.budgets.conspar.law import decimal
    from fuaudit.budgets.conspar.targets import Asked, answer

    rounds = 1 if rounds is None and target is None else rounds
    given = {"--per-client": per_client, "--alpha": alpha, "--rounds": rounds}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) != (target is not None):
        raise UsageError(
            "with --target leave out one of --per-client, --alpha and --rounds"
            if target is not None
            else f"say {', '.join(missing)}",
            "As in: fuaudit budget conspar --dim 270000 --per-client 422 --alpha 0.95 --rounds 7500 --delta 1e-5",
        )
    chance = None if alpha is None else decimal(alpha)
    shape, number = answer(Asked(dim, per_client, chance, rounds, differ, delta), target)
    if picture is not None:
        from fuaudit.budgets.conspar.plot import plot

        plot(shape, number, delta, picture)
    result = account(shape, number, delta, BINS if target is None else COARSE)
    document = result.as_json() | ({"target": target, "found": missing[0].lstrip("-")} if target is not None else {})
    found = f"{missing[0]} {_sought(result, missing[0])}" if missing else ""
    sought = [] if target is None else [f"found for epsilon {in_full(target)}: {found}"]
    output.emit(document, [*sought, *_lines(result)], [*sought, *_short(result)])


@budget.command()
@click.option("--noise", type=float, help="Deviation of a round's whole noise, a multiple of the clipping norm.")
@click.option("--target", type=float, help="An epsilon: find --noise or --rounds, the one left out.")
@click.option("--rounds", type=click.IntRange(1), help="Rounds that a client takes part in.")
@click.option("--delta", type=float, required=True, help="Above 0: Gaussian noise has no pure epsilon.")
@click.option(
    "--participations", type=click.IntRange(1), default=1, show_default=True, help="Of one client in a round, at most."
)
@share_options("Into how many shares the noise is divided: who faces what?")
@click.option("--plot", "picture", type=Folder, help="Draw epsilon against rounds: FILE.svg, .png or .pdf.")
@output_options
def gaussian(
    noise: float | None,
    target: float | None,
    rounds: int | None,
    delta: float,
    participations: int,
    divided: Divided | None,
    picture: Path | None,
    output: Output,
) -> None:
    """Account for Gaussian noise on clipped rows, exactly for all rounds, without amplification by sampling.

    With --clients the noise is in shares, and three statements follow: of who sees totals, buffers and rows.
    """
    from fuaudit.budgets.gaussian.account import account
    from fuaudit.budgets.gaussian.faces import statements

    if divided is not None and participations > 1:
        raise UsageError("shares are of clients that take part once in a round: leave out --participations")
    added, number = _noise_and_rounds(noise, rounds, target, delta, participations)
    whole = account(added, number, delta, participations)
    told = [whole]
    found = {"target": target, "found": "noise" if noise is None else "rounds"} if target is not None else {}
    document = whole.as_json() | found
    if divided is not None:
        told = list(statements(added, divided.shares, number, delta, divided.secrets_beside))
        document |= {"faces": [one.as_json() for one in told]}
    if picture is not None:
        from fuaudit.budgets.gaussian.plot import curves
        from fuaudit.budgets.picture import draw

        draw(curves(told), "rounds", delta, picture)
    output.emit(document, [line for one in told for line in _of_noise(one)], [_of_noise(one)[0] for one in told])


def _noise_and_rounds(
    noise: float | None, rounds: int | None, target: float | None, delta: float, participations: int
) -> tuple[float, int]:
    """Noise and rounds; the one that is left out is as a target allows it."""
    from fuaudit.budgets.gaussian.curve import noise_for, rounds_for

    match (noise, rounds, target):
        case (float(), int(), None):
            return noise, rounds
        case (None, int(), float()):
            return noise_for(target, delta, rounds, participations), rounds
        case (float(), None, float()):
            return noise, rounds_for(target, delta, noise, participations)
    raise UsageError("say --noise and --rounds; or --target, and leave one of the two out")


def _of_noise(found: GaussianAccount) -> list[str]:
    """An account of noise in words; the first line says the most."""
    from fuaudit.budgets.gaussian.account import statement
    from fuaudit.budgets.statement import epsilon_at, meaning
    from fuaudit.statistics.rounding import up

    # whoever adds the noise that is printed keeps to the epsilon beside it
    noise = f"{counted(found.rounds, 'round')} with noise {up(found.noise, 6)}"
    first = f"{noise}: {epsilon_at(found.epsilon, found.delta)}"
    told = [f"  {name}: {text}" for name, text in statement(found).as_json().items()]
    why = [found.note] if found.note else []
    seen = f"towards who sees {found.seen}"
    return [first, seen, *why, meaning(found.epsilon, found.delta), "Statement:", *told, ""]


def _sought(found: ConSparAccount, name: str) -> str:
    """The value that was searched for, as it is written; and what an alpha means for a client."""
    from fuaudit.budgets.conspar.account import decimal_text

    shape = found.mechanism
    if name != "--alpha":
        return str(shape.per_client if name == "--per-client" else found.rounds)
    given_up = f"{float(shape.alpha) * shape.per_client:,.2f} of its {counted(shape.per_client, 'top coordinate')}"
    return f"{decimal_text(shape)}; a client then gives up {given_up} a round, on average"


def _lines(found: ConSparAccount) -> list[str]:
    """An account in words."""
    from fuaudit.budgets.conspar.account import decimal_text, statement
    from fuaudit.budgets.statement import meaning

    shape = found.mechanism
    sends = f"{shape.per_client:,} of {shape.dim:,} coordinates"
    first = f"ConSpar: a client sends {sends} a round, alpha {decimal_text(shape)}"
    told = [f"  {name}: {text}" for name, text in statement(found).as_json().items()]
    return [first, *_one_round(found), *_all_rounds(found), meaning(found.total, found.delta), "", "Statement:", *told]


def _short(found: ConSparAccount) -> list[str]:
    from fuaudit.budgets.statement import epsilon_at, epsilon_in_words

    total = f"{counted(found.rounds, 'round')}: {epsilon_at(found.total, found.delta)}"
    return [f"{total}; one round: {epsilon_in_words(found.per_round)}"]


def _one_round(found: ConSparAccount) -> list[str]:
    from fuaudit.budgets.conspar.printed import appendix, theorem2, theorem2_is_bound
    from fuaudit.budgets.statement import epsilon_in_words

    lines = [f"one round: {epsilon_in_words(found.per_round)}"]
    times = f" for one element, {found.mechanism.differ} times:" if found.mechanism.differ > 1 else ""
    if (printed := theorem2(found.mechanism)) is not None:
        beside = _beside(printed, found.per_round, bool(theorem2_is_bound(found.mechanism)))
        lines.append(f"  Theorem 2 prints{times} {beside}")
    if (printed := appendix(found.mechanism)) is not None:
        lines.append(f"  the appendix prints{times} {_beside(printed, found.per_round, True)}")
    return lines


def _beside(printed: float, exact: float, is_bound: bool) -> str:
    if not is_bound:
        return f"{printed:.5g}, which is SMALLER than the exact value: it is no bound here"
    if printed - exact <= 5e-5 * printed:
        return f"{printed:.5g}, the same"
    return f"{printed:.5g}: a bound, looser by {printed - exact:.3g}"


def _all_rounds(found: ConSparAccount) -> list[str]:
    from fuaudit.budgets.statement import epsilon_at
    from fuaudit.statistics.rounding import down, up

    lines = [f"{counted(found.rounds, 'round')}: {epsilon_at(found.total, found.delta)}"]
    if found.exact:
        lines.append(f"  the exact loss, composed: between {down(found.exact.low, 5)} and {up(found.exact.high, 5)}")
    if found.optimal is not None:
        lines.append(f"  optimal for this epsilon a round: {up(found.optimal, 5)}")
    if 0 < found.basic < float("inf"):
        lines.append(f"  the sum of the rounds: {up(found.basic, 5)}{'' if found.delta else ', exact at delta 0'}")
    return [*lines, *([found.note] if found.note else [])]
