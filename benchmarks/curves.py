"""Curves of a table of ``benchmarks/dropouts.py``: one column a setting; accuracy over rounds, and over uploads.

The same numbers give the same bytes.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib
from figures import svg_of
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fuaudit.reporting.drawings import ROLES, STYLE

Entry = Mapping[str, Any]
"""What one run found: its ``key``, and for its stored models ``rounds``, ``uploads`` and ``accuracies`` (percent)."""
Found = dict[str, dict[str, list[dict[str, Any]]]]
"""Method -> setting -> one :data:`Entry` a key."""

LOOKS: dict[str, tuple[str, Any, str]] = {
    "dropouts": ("faint", "-", "o"),
    "fedprox": ("untouched", (0, (1, 1.5)), "x"),
    "scaffold": ("limit", (0, (6, 2, 1, 2)), "s"),
    "mifa": ("second", (0, (3, 1.2)), "^"),
    "mimic": ("subject", "-", "D"),
}
"""Method -> role of its colour, dashes, marker. FedProx lies on FedAvg where its pull is weak: dots on a line show
both."""


def look(method: str) -> dict[str, Any]:
    """Options of a method's lines; markers are hollow, because lines lie on each other."""
    role, dashes, marker = LOOKS[method]
    return {
        "color": ROLES[role],
        "linestyle": dashes,
        "marker": marker,
        "markersize": 4.5,
        "markerfacecolor": "none",
        "markeredgewidth": 1.1,
    }


def shared(groups: Iterable[Iterable[int]]) -> list[int]:
    """The numbers that are in all groups, of which there is one at least; ascending."""
    return sorted(set.intersection(*map(set, groups)))


def mean_over_keys(entries: Sequence[Entry]) -> tuple[list[int], list[float]]:
    """Rounds, and the mean accuracy at each, where all of them stored a model: not all runs store the same rounds."""
    rounds = shared(one["rounds"] for one in entries)
    found = [dict(zip(one["rounds"], one["accuracies"], strict=True)) for one in entries]
    return rounds, [statistics.fmean(one[round_number] for one in found) for round_number in rounds]


def over_rounds(axes: Axes, method: str, entries: Sequence[Entry], keys: Sequence[int]) -> None:
    """A thin line a key, and a thick one for the mean over some of the keys."""
    for one in entries:
        axes.plot(one["rounds"], one["accuracies"], linewidth=0.7, alpha=0.45, **look(method) | {"marker": ""})
    if meant := [one for one in entries if one["key"] in keys]:
        rounds, means = mean_over_keys(meant)
        last, first = len(rounds) - 1, list(LOOKS).index(method) % 2  # neighbours take turns with their markers
        axes.plot(rounds, means, linewidth=1.8, markevery=sorted({*range(first, last, 2), last}), **look(method))


def over_uploads(axes: Axes, method: str, entries: Sequence[Entry]) -> None:
    """A line a key, with a marker at its end."""
    for one in entries:
        axes.plot(one["uploads"], one["accuracies"], linewidth=0.9, markevery=[-1], **look(method))


def keys_in_words(keys: Sequence[int]) -> str:
    return f"{'key' if len(keys) == 1 else 'keys'} {', '.join(map(str, keys))}"


def told_of_keys(columns: Mapping[str, Sequence[Entry]]) -> list[str]:
    """Lines that tell whose keys are drawn and meant, from method's name -> its entries of one setting."""
    methods: dict[str, list[str]] = {}
    for name, entries in columns.items():
        methods.setdefault(keys_in_words([one["key"] for one in entries]), []).append(name)
    if len(methods) == 1:
        return list(methods)
    meant = shared([one["key"] for one in entries] for entries in columns.values())
    lines = [f"{', '.join(names)}: {keys}" for keys, names in methods.items()]
    return [*lines, f"means: {keys_in_words(meant)}" if meant else "no key that all have, so no means"]


def drawn(found: Found, settings: Sequence[str], names: Mapping[str, str]) -> str:
    """The SVG of a table: its settings that have runs, in this order, under the printed ``names`` of the methods.

    The upper row is accuracy over rounds: every key, and the mean over those keys that all methods of the setting have,
    because keys differ about as much as methods. The lower row is accuracy over uploads of vectors of the model's size:
    every key and no mean, because 200 rounds send several times as many vectors under one key as under another, and a
    mean at equal uploads would mix late models with early ones. Cohorts are the key's, so lines of one key end at about
    the same number of uploads: compare those.
    """
    settings = [name for name in settings if any(name in columns for columns in found.values())]
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        figure = Figure(figsize=(2.0 + 3.1 * len(settings), 6.4), layout="constrained")
        panels = figure.subplots(2, len(settings), sharey=True, squeeze=False)
        for above, below, setting in zip(*panels, settings, strict=True):
            columns = {method: of[setting] for method, of in found.items() if setting in of}
            meant = shared([one["key"] for one in entries] for entries in columns.values())
            for method, entries in columns.items():
                over_rounds(above, method, entries, meant)
                over_uploads(below, method, entries)
            told = told_of_keys({names[method]: entries for method, entries in columns.items()})
            above.set_title("\n".join([setting, *told]), fontsize=9)
            above.set_xlabel("rounds")
            below.set_xlabel("uploads")
            below.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        for row, what in zip(panels, ("thick: mean; thin: one key", "one line a key"), strict=True):
            row[0].set_ylabel(f"test accuracy, %\n{what}")
        lines = [Line2D([], [], linewidth=1.5, label=names[method], **look(method)) for method in found]
        figure.legend(handles=lines, loc="outside right center", frameon=False, handlelength=3.4)
        return svg_of(figure)
