"""Drawings as SVG to stand inside a page: no script, no reference outside, the same bytes for the same numbers.

Colours are named by their role and filled in by the style sheet of the page, so that one drawing serves light, dark
and print; every line also has a pattern or markers of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fuaudit.reporting import learns
from fuaudit.reporting.contents import Checked, Contents, Point, Summing
from fuaudit.reporting.words import number
from fuaudit.runs.sums import percent
from fuaudit.statistics.rounding import down
from fuaudit.text import counted
from fuaudit.verification.finding import Verdict

ROLES = {
    "ink": "#010101",
    "faint": "#020202",
    "line": "#030303",
    "subject": "#040404",
    "second": "#050505",
    "untouched": "#060606",
    "limit": "#070707",
}
"""Placeholders that become ``var(--fig-<role>)``."""

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fuaudit",
    "font.size": 10,
    "axes.edgecolor": ROLES["faint"],
    "axes.labelcolor": ROLES["ink"],
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": ROLES["line"],
    "grid.linewidth": 0.7,
    "text.color": ROLES["ink"],
    "xtick.color": ROLES["faint"],
    "ytick.color": ROLES["faint"],
    "xtick.labelcolor": ROLES["ink"],
    "ytick.labelcolor": ROLES["ink"],
    "lines.linewidth": 1.8,
    "path.simplify": True,
    "path.simplify_threshold": 0.3,
}

SUBJECT = "subject"
ARMS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (SUBJECT, "subject: unlearned models", {"linewidth": 2.6}),
    ("second", "control: second retrained arm", {"dashes": (1, 1.6)}),
    ("untouched", "control: untouched models", {"dashes": (5, 2.5)}),
)
"""In the order in which they are drawn: controls lie above the subject, and it shows between their dashes."""


@dataclass(frozen=True)
class Drawing:
    """What it shows, how its numbers were obtained, and its SVG."""

    title: str
    caption: str
    how: str
    svg: str


def drawings(contents: Contents) -> list[Drawing]:
    """The drawings for which the document holds numbers."""
    found: list[Drawing] = []
    for check in contents.checks:
        found += [_wealth(check, f"w{check.number}")] if f"log wealth, {SUBJECT}" in check.series else []
        found += [_power(check, f"p{check.number}")] if _curve(check) else []
    if contents.accuracy:
        found.append(_accuracy(contents))
    if points := _over_uploads(contents):
        found.append(_uploads(points))
    if any(contents.cohorts):
        found.append(_raster(contents))
    if contents.own_accuracy:
        found.append(_own_accuracy(contents))
    return found


def exposed(sums: Summing) -> Drawing:
    """With which chance a row is open to a server with colluders, over the rounds of a run."""
    picked, alike = learns.picked(sums), len(sums.places) == 1
    rounds = sorted({round(sums.rounds * step / CURVE) for step in range(CURVE + 1)} | {min(1, sums.rounds)})
    styles: tuple[dict[str, Any], ...] = ({"dashes": (1, 1.6)}, {"linewidth": 2.6}, {"dashes": (5, 2.5)})
    roles = ("second", SUBJECT, "untouched")

    def draw(axes: Any) -> None:
        for (count, a_round, run), role, style in zip(picked, roles, styles, strict=False):
            closed = 1 - a_round if alike else max(1 - run, LEAST) ** (1 / sums.rounds)
            open_by = [1 - closed**after for after in rounds]
            axes.plot(rounds, open_by, color=ROLES[role], label=counted(count, "colluder"), **style)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set(xlabel="rounds in which the client takes part", ylabel="chance of an open row", ylim=(-0.02, 1.02))
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9, frameon=False, handlelength=2.6)

    a = "a round" if alike else "in the worst round"
    told = [
        f"{counted(count, 'colluder')}: {percent(a_round)} {a}, {percent(run)} in the run"
        for count, a_round, run in picked
    ]
    between = "" if alike else " Rounds have different numbers of clients: the curve has them in no order, all alike."
    return Drawing(
        "Exposure: the chance that a client's row was open to the server",
        f"{'; '.join(told)}.",
        "Hypergeometric sums over a uniform lot, exact up to the rounding of a power. Each round has a lot of its own. "
        f"Colluders are fixed before, and take part in every round.{between}",
        _svg(draw, "e", "Chance that a row was open to the server and colluders, over the rounds"),
    )


CURVE = 60
"""In so many pieces a curve of exposure is drawn."""
LEAST = 5e-7
"""A chance below that is 0 in findings, whose numbers have six digits."""


def _svg(draw: Callable[[Any], None], prefix: str, label: str) -> str:
    """An SVG element whose ids begin with a prefix, so that several can share a page."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        figure = Figure(figsize=(6.6, 2.9), layout="constrained")
        draw(figure.add_subplot())
        stream = StringIO()
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :].strip()
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r' (width|height)="[\d.]+pt"', "", text, count=2)
    used = set(re.findall(r"url\(#([^)]+)\)|href=\"#([^\"]+)\"", text))
    names = {name for pair in used for name in pair if name}
    text = re.sub(r' id="([^"]+)"', lambda m: f' id="{prefix}-{m[1]}"' if m[1] in names else "", text)
    text = re.sub(r"url\(#|href=\"#", lambda m: f"{m[0]}{prefix}-", text)
    text = re.sub(r"font: ([\d.]+)px [^;\"]+", r"font-size: \1px", text)
    for role, colour in ROLES.items():
        text = text.replace(colour, f"var(--fig-{role})")
    text = re.sub(r"\n\s*", "\n", re.sub(r"<defs>\s*</defs>", "", text))
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def _label(axes: Any, x: float, y: float, text: str, role: str, **options: Any) -> None:
    axes.annotate(text, (x, y), color=ROLES[role], fontsize=9, **options)


def _first_above(values: Sequence[float], limit: float) -> int | None:
    return next((i for i, value in enumerate(values, 1) if value >= limit), None)


def _wealth(check: Checked, prefix: str) -> Drawing:
    limit = next(iter(check.series.get("log wealth, threshold", ())), None)
    paths = {name: check.series.get(f"log wealth, {name}", ()) for name, _, _ in ARMS}

    def draw(axes: Any) -> None:
        # what lies far above the threshold tells nothing more, and would hide the rest
        top = 4 * limit if limit is not None else None
        for name, words, style in ARMS:
            values = paths[name]
            if values:
                shown = values if top is None else [min(v, 2 * top) for v in values]
                axes.plot(range(1, len(values) + 1), shown, color=ROLES[name], label=words, **style)
        if limit is not None and top is not None:
            axes.axhline(limit, color=ROLES["limit"], linewidth=1.2, dashes=(6, 2, 1, 2), label="threshold")
            floor = min((min(values) for values in paths.values() if values), default=0.0)
            axes.set_ylim(max(min(floor * 1.05, -1.0), -top), top)
        axes.set_xlabel("pairs of runs")
        axes.set_ylabel("log wealth")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9, frameon=False, handlelength=2.6)

    sentences = []
    for name, words, _ in ARMS:
        values = paths[name]
        if values:
            crossed = None if limit is None else _first_above(values, limit)
            after = "never reaches the threshold" if crossed is None else f"reaches the threshold at pair {crossed}"
            largest = f"largest log wealth {number(float(max(values)))}"
            sentences.append(
                f"{words[0].upper()}{words[1:]}: {after if limit is not None else 'no threshold'}, {largest}."
            )
    extent = "" if limit is None else " The vertical axis is cut at four times the threshold."
    return Drawing(
        "Betting against equality: wealth over the pairs of runs",
        " ".join(sentences),
        f"Computed by the check {check.audit!r}: a bettor who gains when the two arms of a pair differ. "
        "Were the arms alike, its wealth would reach one over its part of alpha, the threshold, with at most that "
        f"probability.{extent}",
        _svg(draw, prefix, "Log wealth of the subject and of both controls over the pairs of runs"),
    )


def _curve(check: Checked) -> list[tuple[float, float, float]]:
    series = [check.series.get(f"power, {name}", ()) for name in ("rate", "estimate", "lower limit")]
    return list(zip(*series, strict=False))


def _power(check: Checked, prefix: str) -> Drawing:
    rates, estimates, lowers = zip(*_curve(check), strict=True)
    rate = next(iter(check.series.get("power, detectable rate", ())), None)

    def draw(axes: Any) -> None:
        axes.plot(rates, lowers, "-o", color=ROLES["subject"], markersize=4)
        axes.plot(rates, estimates, "--", color=ROLES["faint"], linewidth=1.2)
        axes.axhline(0.9, color=ROLES["limit"], linewidth=1.2, dashes=(6, 2, 1, 2))
        _label(axes, 1.0, 0.9, "power 0.9", "limit", xytext=(0, -11), textcoords="offset points", ha="right")
        if isinstance(rate, float):
            axes.axvline(rate, color=ROLES["faint"], linewidth=1.0, linestyle=":")
            _label(
                axes,
                rate,
                0.02,
                f"smallest detectable rate {rate:.0%}",
                "ink",
                xytext=(5, 0),
                textcoords="offset points",
            )
        axes.set(xlim=(0, 1.02), ylim=(-0.03, 1.05), xlabel="rate of planted violations", ylabel="power (lower limit)")

    found = f"{rate:.0%} of runs" if isinstance(rate, float) else "no rate on the grid"
    return Drawing(
        "What the test would have seen: power against planted violations",
        f"Smallest rate from which on the lower limit of the power is 0.9: {found}. "
        + "; ".join(f"{r:.0%}: {down(low)}" for r, low in zip(rates, lowers, strict=True))
        + ".",
        f"Simulated by the check {check.audit!r}: in a share of runs an untouched model takes the place of an "
        "unlearned one. Dashed: the share of audits, resampled from the runs at hand, that reject. Line: the share "
        "that do with a margin for the luck of these runs, a lower limit. It says nothing about other violations.",
        _svg(draw, prefix, "Power of the test over the rate of planted violations"),
    )


def _accuracy(contents: Contents) -> Drawing:
    def draw(axes: Any) -> None:
        axes.plot(*zip(*contents.accuracy, strict=True), "-o", color=ROLES["subject"], markersize=4, linewidth=2.6)
        if contents.parent_accuracy:
            above = {"color": ROLES["untouched"], "markersize": 6, "markerfacecolor": "none"}
            axes.plot(*zip(*contents.parent_accuracy, strict=True), "--s", **above)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set(xlabel="round", ylabel="test accuracy", ylim=(0, 1.02))
        axes.set_xlim(left=min(0, axes.get_xlim()[0]))
        names = ["after: this run", "before: as the parent tells"] if contents.parent_accuracy else ["this run"]
        options = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), "fontsize": 9, "frameon": False}
        axes.legend(axes.get_lines(), names, handlelength=2.6, **options)

    def last(points: tuple[Point, ...]) -> str:
        return f"{points[-1][1]:.4f} after round {points[-1][0]:.0f}"

    regenerated = contents.giving("regeneration")
    again = (
        f"The check {regenerated.audit!r} computed this run's file anew and found the same bytes."
        if regenerated is not None and regenerated.verdict is Verdict.PASS
        else "No check computed this run's file anew."
    )
    before = contents.parent_accuracy
    parent = f" Its parent, as its own files tell: {last(before)}." if before else ""
    again += " No check computed the parent's models or its file anew." if before else ""
    return Drawing(
        "Usefulness: accuracy on test data over the rounds",
        f"This run: {last(contents.accuracy)}.{parent}",
        f"Share of test rows classified correctly, as the runs recorded it in metrics.json. {again} "
        "Accuracy says nothing about forgetting.",
        _svg(draw, "a", "Test accuracy of the run and of its parent over the rounds"),
    )


def _over_uploads(contents: Contents) -> list[Point]:
    """Pairs of uploads and accuracy of those stored rounds whose uploads are known."""
    sent = (0, *contents.uploads)
    return [(sent[int(r)], a) for r, a in contents.accuracy if contents.uploads and 0 <= r < len(sent)]


def _uploads(points: list[Point]) -> Drawing:
    def draw(axes: Any) -> None:
        axes.plot(*zip(*points, strict=True), "-o", color=ROLES["subject"], markersize=4)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set(xlabel="uploads", ylabel="test accuracy", ylim=(0, 1.02))
        axes.set_xlim(left=min(0, axes.get_xlim()[0]))

    return Drawing(
        "Usefulness: accuracy on test data over uploads",
        f"{points[-1][1]:.4f} after {counted(int(points[-1][0]), 'upload')}.",
        "As above, over the number of uploads, as the run recorded it in participation.json. A method may send more "
        "than one a participation. An upload is as long as the model, unless stages of clients make it shorter: see "
        "Traffic.",
        _svg(draw, "u", "Test accuracy of the run over uploads"),
    )


PARTICIPATIONS = 4000
"""As many are drawn in a raster; more would make a page slow."""


def _raster(contents: Contents) -> Drawing:
    """Who took part when: one mark a participation, one row a client of the run, whether it took part or not."""
    total, shown = 0, 0
    for cohort in contents.cohorts:
        total += len(cohort)
        if shown and total > PARTICIPATIONS:
            break
        shown += 1
    marks = [
        (round_number, client) for round_number, cohort in enumerate(contents.cohorts[:shown], 1) for client in cohort
    ]
    ids = sorted({*contents.clients, *(client for _, client in marks)})
    rows = {client: row for row, client in enumerate(ids)}

    def draw(axes: Any) -> None:
        axes.plot([r for r, _ in marks], [rows[c] for _, c in marks], "s", color=ROLES["subject"], markersize=2.5)
        every = max(1, -(-len(ids) // 8))
        axes.set_yticks(range(0, len(ids), every), [str(client) for client in ids[::every]])
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set(xlabel="round", ylabel="client", xlim=(0.5, shown + 0.5), ylim=(-0.5, len(ids) - 0.5))

    rounds = len(contents.cohorts)
    empty = sum(not cohort for cohort in contents.cohorts)
    extent = "" if shown == rounds else f" Drawn are the first {shown} of {counted(rounds, 'round')}."
    never = len(set(contents.clients).difference(*contents.cohorts))
    return Drawing(
        "Who took part in which round",
        f"{counted(sum(map(len, contents.cohorts)), 'participation')} in {counted(rounds, 'round')}; "
        f"rounds with nobody in them: {empty}; "
        f"clients that never took part: {never}.{extent}",
        "As the run recorded it in participation.json; the draws themselves are the plan's."
        + (f" The model was edited by {contents.edited_by!r} after these rounds." if contents.edited_by else ""),
        _svg(draw, "r", "Participations of clients over the rounds"),
    )


def _own_accuracy(contents: Contents) -> Drawing:
    clients, shares = zip(*contents.own_accuracy, strict=True)
    worst = min(range(len(shares)), key=shares.__getitem__)

    def draw(axes: Any) -> None:
        axes.vlines(range(len(shares)), 0, shares, color=ROLES["line"])
        axes.plot(range(len(shares)), shares, "o", color=ROLES["subject"], markersize=4)
        every = max(1, -(-len(shares) // 12))
        axes.set_xticks(range(0, len(shares), every), [f"{client:.0f}" for client in clients[::every]])
        axes.set(xlabel="client", ylabel="accuracy on its own rows", ylim=(0, 1.02))

    return Drawing(
        "How the final model serves each client",
        f"From {min(shares):.4f} (client {clients[worst]:.0f}) to {max(shares):.4f}, "
        f"mean {sum(shares) / len(shares):.4f} over {counted(len(shares), 'client')}.",
        "Share of a client's own training rows that the final model classifies correctly, as the run recorded it in "
        "participation.json. Rows that were trained on flatter a model.",
        _svg(draw, "o", "Accuracy of the final model on the rows of each client"),
    )
