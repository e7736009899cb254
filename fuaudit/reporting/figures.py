"""Figures of a report, as inline SVG: the same numbers give the same bytes."""

from __future__ import annotations

import io
import re
from math import log
from typing import Any

INK = {"subject": "#1f4e79", "second": "#2e7d4f", "untouched": "#b03a2e"}
DASH = {"subject": "-", "second": "--", "untouched": ":"}
NAMES = {
    "subject": "unlearned against retrained (the subject)",
    "second": "retrained against retrained (must stay below)",
    "untouched": "untouched against retrained (must rise above)",
}


def figures(document: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Title, caption and SVG of every figure that the findings have numbers for."""
    drawn = []
    for check in document["checks"]:
        found = check["finding"]
        series = found["series"]
        if "log wealth, subject" in series:
            drawn.append(_wealth(series, found["statistic"]))
        if "power, rate" in series:
            drawn.append(_power(series, found["statistic"]))
    if document["context"].get("metrics"):
        drawn.append(_accuracy(document["context"]))
    return [(title, caption, _separate(svg, f"f{number}")) for number, (title, caption, svg) in enumerate(drawn)]


def _axes() -> tuple[Any, Any]:
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    matplotlib.rcParams.update({"svg.hashsalt": "fuaudit", "svg.fonttype": "none", "font.family": "sans-serif"})
    figure = Figure(figsize=(7, 2.9), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    return figure, axes


def _svg(figure: Any, axes: Any) -> str:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8)
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    text = stream.getvalue()
    return text[text.index("<svg") :]


def _separate(svg: str, prefix: str) -> str:
    """Ids of one figure made different from those of the others on the page."""
    svg = re.sub(r'id="([^"]+)"', rf'id="{prefix}-\1"', svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', svg)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", svg)


def _wealth(series: dict[str, list[float]], statistic: dict[str, Any]) -> tuple[str, str, str]:
    figure, axes = _axes()
    for arm, label in NAMES.items():
        values = series.get(f"log wealth, {arm}", [])
        axes.plot(range(1, len(values) + 1), values, DASH[arm], color=INK[arm], label=label, linewidth=1.6)
    threshold = -log(statistic["alpha"])
    axes.axhline(threshold, color="#777777", linewidth=1)
    axes.annotate(f"rejection at log(1/{statistic['alpha']:g})", (1, threshold), fontsize=8, va="bottom")
    axes.set_xlabel("pairs of runs")
    axes.set_ylabel("log wealth")
    axes.set_ylim(top=max(3 * threshold, 1), bottom=min(-3.0, *(min(v) for k, v in series.items() if "wealth" in k)))
    caption = (
        "A bettor who bets that the two arms differ. If they have one law, the chance that the wealth ever crosses "
        f"the line is at most {statistic['alpha']:g}. Curves that leave the picture above were rejected."
    )
    return "Repeated unlearning against repeated retraining", caption, _svg(figure, axes)


def _power(series: dict[str, list[float]], statistic: dict[str, Any]) -> tuple[str, str, str]:
    figure, axes = _axes()
    axes.plot(series["power, rate"], series["power, estimate"], "o-", color=INK["subject"], markersize=4)
    axes.axhline(0.9, color="#777777", linewidth=1, linestyle="--")
    axes.set_xlabel("fraction of runs in which the model is left untouched")
    axes.set_ylabel("found")
    axes.set_ylim(0, 1.05)
    caption = (
        f"How often a planted violation is found with {statistic['pairs']} pairs; an estimate from resampled runs. "
        "It speaks of this kind of violation only."
    )
    return "What the test could have seen", caption, _svg(figure, axes)


def _accuracy(context: dict[str, Any]) -> tuple[str, str, str]:
    figure, axes = _axes()
    for key, label, dash, ink in (
        ("parent_metrics", "before the request", "--", "#777777"),
        ("metrics", "this run", "-", INK["subject"]),
    ):
        rows = context.get(key) or []
        rounds, accuracy = [r["round"] for r in rows], [r["test_accuracy"] for r in rows]
        axes.plot(rounds, accuracy, dash + "o", color=ink, label=label, markersize=4)
    axes.set_xlabel("round")
    axes.set_ylabel("test accuracy")
    axes.set_ylim(0, 1)
    caption = "Accuracy on the test data at the stored rounds, measured when the runs were made."
    return "Accuracy before and after", caption, _svg(figure, axes)
