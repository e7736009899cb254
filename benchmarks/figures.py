"""Figures of the calibration, and of any findings: ``python benchmarks/figures.py FOLDER --calibration JSON``.

From the JSON of ``benchmarks/calibration.py``: wealth over the pairs of the first audits, how often the subject and
both controls reached a wealth, and power against planted violations. From a file of findings (``--findings``): the
figures of its report, as files of their own. The same numbers give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fuaudit.audits.model_law.audit import BETTING
from fuaudit.reporting.contents import read_contents
from fuaudit.reporting.drawings import ARMS, ROLES, STYLE, drawings

COLOURS = {
    "ink": "#16202c",
    "faint": "#6b7785",
    "line": "#e4e8ed",
    "subject": "#1f4e79",
    "second": "#4d7c2a",
    "untouched": "#b3541e",
    "limit": "#7a2a77",
}
Table = dict[str, Any]
SHOWN = 8
"""Audits whose wealth is drawn pair by pair."""
LIMIT: Table = {"color": ROLES["limit"], "linewidth": 1.2, "dashes": (6, 2, 1, 2)}


def coloured(svg: str) -> str:
    """Roles replaced by colours, for a file that no style sheet reaches."""
    for role, colour in COLOURS.items():
        svg = svg.replace(ROLES[role], colour).replace(f"var(--fig-{role})", colour)
    return svg


def svg_of(figure: Figure) -> str:
    """A figure as the text of an SVG file; nothing in it tells when or with which version it was drawn."""
    stream = StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None})
    return coloured(re.sub(r"<metadata>.*?</metadata>\n?", "", stream.getvalue(), flags=re.DOTALL))


def save(figure: Figure, path: Path) -> None:
    path.write_text(svg_of(figure), encoding="utf-8")


def legend(axes: Axes) -> None:
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9, frameon=False, handlelength=2.6)


def paths(axes: Axes, table: Table) -> None:
    alpha = 0.01
    for name, words, style in ARMS:
        for number, path in enumerate(table["paths"][:SHOWN]):
            label = words if number == 0 else None
            shown = style | {"linewidth": 1.0, "color": ROLES[name], "label": label}
            axes.plot(range(1, len(path[name]) + 1), path[name], **shown)
    axes.axhline(-math.log(BETTING * alpha), label=f"threshold at alpha {alpha}", **LIMIT)
    axes.set(xlabel="pairs of runs", ylabel="log wealth", ylim=(-4, 20))


def controls(axes: Axes, table: Table) -> None:
    powers = np.linspace(-0.3, 4.0, 216)
    for name, words, style in ARMS:
        largest = np.array([row["wealth"][name] for row in table["rows"]]) / math.log(10)
        shares = (largest >= powers[:, None]).mean(axis=1)
        shown = np.where(shares > 0, shares, np.nan)
        axes.step(powers, shown, color=ROLES[name], where="post", label=words, **style)
    ends = np.array([0.0, 4.0])
    axes.plot(ends, 10**-ends, label="bound for equal laws: 1 / wealth", **LIMIT)
    axes.set(xlabel="largest wealth reached, power of ten", ylabel="share of audits that reached it", yscale="log")
    axes.set(xlim=(-0.3, 4), ylim=(0.5 / len(table["rows"]), 1.3))


def power(axes: Axes, document: Table, alpha: str) -> None:
    lines = [
        ("trained models untouched", "subject", "-o", document["model-law"]["fats"]["power"], "audit"),
        ("plans untouched, one client", "untouched", "--s", document["plans"]["power"]["noop, client"], None),
        ("plans untouched, one sample", "untouched", ":^", document["plans"]["power"]["noop, sample"], None),
        ("plans of the printed form", "second", "-.d", document["plans"]["power"]["fats-as-printed, sample"], None),
    ]
    for words, role, style, rows, test in lines:
        points = [(float(rate), row[alpha][test] if test else row[alpha]) for rate, row in rows.items()]
        shares = [row["rejected"] / row["of"] for _, row in points]
        axes.plot([rate for rate, _ in points], shares, style, color=ROLES[role], markersize=4, label=words)
    axes.axhline(0.9, label="power 0.9", **LIMIT)
    axes.set(xscale="log", xlabel="rate of planted violations", ylabel=f"share rejected, alpha {alpha}")
    axes.set_ylim(-0.03, 1.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="SVG files are written there")
    parser.add_argument("--calibration", type=Path, metavar="JSON")
    parser.add_argument("--findings", type=Path, metavar="JSON")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.calibration:
        document = json.loads(given.calibration.read_text(encoding="utf-8"))
        fats = document["model-law"]["fats"]
        drawn: dict[str, Callable[[Axes], None]] = {
            "wealth": lambda axes: paths(axes, fats),
            "controls": lambda axes: controls(axes, fats),
            "power": lambda axes: power(axes, document, "0.01"),
        }
        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(STYLE)
            for name, draw in drawn.items():
                figure = Figure(figsize=(7.4, 3.4), layout="constrained")
                axes = figure.add_subplot()
                draw(axes)
                legend(axes)
                save(figure, given.folder / f"calibration-{name}.svg")
    if given.findings:
        contents = read_contents(json.loads(given.findings.read_text(encoding="utf-8")))
        for number, drawing in enumerate(drawings(contents), 1):
            text = drawing.svg.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
            (given.folder / f"finding-{number}.svg").write_text(coloured(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
