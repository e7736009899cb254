"""What ConSpar's budget is at the setting of its paper: ``python benchmarks/conspar_budget.py`` writes the page.

ResNet-20 on CIFAR-10: d = 270,000, m = 32 clients, K = .05 d, so K / m = 422 coordinates a client; 120 epochs of
batches of 25 are 7,500 rounds.
"""

from __future__ import annotations

import time
from importlib.metadata import version
from pathlib import Path

from machine import hardware

from fuaudit.budgets.conspar.account import ConSparAccount, account
from fuaudit.budgets.conspar.law import ConSpar, decimal, epsilon
from fuaudit.budgets.conspar.printed import appendix, theorem2, theorem2_is_bound
from fuaudit.budgets.conspar.targets import for_alpha
from fuaudit.budgets.statement import meaning
from fuaudit.statistics.rounding import down, up

PAGE = Path(__file__).parents[1] / "docs" / "results" / "conspar-budget.md"
DIM, PER_CLIENT, ROUNDS, DELTA = 270_000, 422, 7_500, 1e-5
OF_THE_PAPER = ("0", "0.2", "0.5", "0.8", "0.95", "0.99", "1")
BEYOND = ("0.999", "0.9999", "0.99999", "0.999999")

PAGE_TEXT = """\
# The budget of ConSpar at the setting of its paper

    python benchmarks/conspar_budget.py

{machine}. Nothing is drawn: every figure is computed. \
[budgets.md](../budgets.md) says how, and what the figures are about: sets of coordinates that differ in one element \
(below in ten), not people's data. The values on the agreed coordinates go out without noise beside it.

FedREP, ResNet-20 on CIFAR-10: d = 270,000 coordinates, 32 clients, K = .05 d, so k = K / 32 = 422 coordinates a \
client. 120 epochs of batches of 25 are 7,500 rounds. delta is 1e-5.

## alpha from 0 to 1

| alpha | one round: Theorem 2 | one round: exact | 7,500 rounds: Theorem 2, summed | optimal for pure rounds \
| exact loss, composed | who must tell two histories apart is right in at most |
|---|---|---|---|---|---|---|
{alphas}

Alphas of the paper are marked *. {words}

## Sets that differ in ten elements

| alpha | one round: ten times Theorem 2 | one round: exact | 7,500 rounds: exact loss, composed |
|---|---|---|---|
{ten}

## One coordinate a client

Here Theorem 2 is no bound for alpha below about 1/3.

| alpha | Theorem 2 | exact | is it a bound |
|---|---|---|---|
{single}

## Which alpha a target needs

The smallest alpha of three significant digits in 1 - alpha that keeps all 7,500 rounds to the target at delta 1e-5, \
and how many of its 422 top coordinates a client then gives up in a round, in the mean.

| target | alpha | top coordinates given up | of those kept |
|---|---|---|---|
{targets}

So where ConSpar promises anything for all rounds together, in the mean a client sends less than half a coordinate \
a round on purpose.

## Speed and digits

{speed}
"""


def row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def number(value: float | None) -> str:
    return "not stated" if value is None else "none" if value == float("inf") else up(value, 4)


def between(found: ConSparAccount) -> str:
    if found.exact is None:
        return number(found.total)
    return f"{down(found.exact.low, 4)} to {up(found.exact.high, 4)}"


def right(found: ConSparAccount) -> str:
    told = meaning(found.total, found.delta)
    return (
        "always, or nearly so" if told.startswith("no guarantee") else told.split("at most ")[1].split(" of cases")[0]
    )


def by_alpha() -> tuple[list[str], list[ConSparAccount]]:
    lines, found = [], []
    for text in sorted({*OF_THE_PAPER, *BEYOND}, key=decimal):
        each = account(ConSpar(DIM, PER_CLIENT, decimal(text)), ROUNDS, DELTA)
        printed = theorem2(each.mechanism)
        optimal = each.optimal if each.optimal is not None else each.basic
        lines.append(
            row(
                f"{text}{' *' if text in OF_THE_PAPER else ''}",
                number(printed),
                number(each.per_round),
                number(None if printed is None else ROUNDS * printed),
                number(optimal),
                between(each),
                right(each),
            )
        )
        found.append(each)
    return lines, found


def in_words(found: list[ConSparAccount]) -> str:
    first = next(each for each in found if right(each) != "always, or nearly so")
    half = next(each for each in found if each.mechanism.alpha == decimal("0.5"))
    printed = appendix(half.mechanism) or 0.0
    return (
        "In words: at every alpha of the paper but 1 the 7,500 rounds leave no guarantee, and the paper's main results "
        "are at alpha 0, where one round leaves none. At alpha 1 nothing depends on the gradients, and no top "
        "coordinate is sent on purpose. "
        f"A figure that means something begins at alpha = {float(first.mechanism.alpha):g}. "
        "Theorem 2 hardly moves with alpha, so it does not show this. "
        f"The form of the appendix prints {number(printed)} a round at alpha .5, and is still above 5,000 at .999999."
    )


def by_ten() -> list[str]:
    lines = []
    for text in ("0.5", "0.95", "0.99", *BEYOND):
        each = account(ConSpar(DIM, PER_CLIENT, decimal(text), 10), ROUNDS, DELTA)
        lines.append(row(text, number(theorem2(each.mechanism)), number(each.per_round), between(each)))
    return lines


def of_one() -> list[str]:
    rounds = [ConSpar(DIM, 1, decimal(text)) for text in ("0.05", "0.2", "0.33", "0.34", "0.5", "0.95")]
    return [
        row(
            float(each.alpha), number(theorem2(each)), number(epsilon(each)), "yes" if theorem2_is_bound(each) else "no"
        )
        for each in rounds
    ]


def by_target() -> list[str]:
    lines = []
    for target in (0.5, 1, 2, 4, 8, 16):
        alpha = for_alpha(ConSpar(DIM, PER_CLIENT, decimal("1")), ROUNDS, DELTA, target).alpha
        lines.append(
            row(
                target,
                f"{float(alpha):.10g}",
                f"{float(PER_CLIENT * alpha):.5g}",
                f"{float(PER_CLIENT * (1 - alpha)):.3g}",
            )
        )
    return lines


def speed() -> str:
    slowest = 0.0
    for text in ("1e-9", "0.5", "0.95", "0.99", "0.9901", "0.995", "0.999999"):
        start = time.perf_counter()
        epsilon(ConSpar(10**9, 10**7, decimal(text)))
        slowest = max(slowest, time.perf_counter() - start)
    start = time.perf_counter()
    account(ConSpar(10**9, 10**7, decimal("0.99")), 10**5, DELTA)
    composed = time.perf_counter() - start
    return (
        f"One round at d = 10^9 and k = 10^7 took {'less' if slowest < 1 else 'MORE'} than a second at each of "
        f"seven alphas. {10**5:,} rounds of it, from both sides, took {composed / max(slowest, 1e-3):,.0f} times "
        "the slowest of them. Tests hold a round to 12 digits there, against 40 digits, and to 13 digits against "
        "fractions, for all d <= 8 and k <= 4."
    )


def main() -> None:
    alphas, found = by_alpha()
    facts = hardware()
    machine = (
        f"fuaudit {facts['fuaudit']}, dp-accounting {version('dp-accounting')}, numpy {facts['numpy']}, "
        f"scipy {facts['scipy']}, python {facts['python']}, {facts['processor']}, {facts['cores']} cores"
    )
    parts = {"alphas": alphas, "ten": by_ten(), "single": of_one(), "targets": by_target()}
    text = PAGE_TEXT.format(
        machine=machine,
        words=in_words(found),
        speed=speed(),
        **{name: "\n".join(lines) for name, lines in parts.items()},
    )
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
