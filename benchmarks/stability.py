"""Stability of FATS: ``python benchmarks/stability.py --figures FOLDER``.

How often and how much is computed again, exactly and in simulated plans, beside the bounds of the paper; and the
curves behind the paper's figures 2 to 4, as far as they are about cost: the exact expected number of rounds to
compute again, where the paper shows measured times. Retraining (FRS) always costs all rounds. No model is trained.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from fuaudit_plugins import fats_laws
from fuaudit_plugins.fats import FatsUnlearning
from machine import hardware
from matplotlib.axes import Axes
from mnist_setting import LAW, POPULATION

from fuaudit.audits.plan_law.simulate import Step, Trial, simulate
from fuaudit.draws import Draws, Position
from fuaudit.plans import Plan, Population, Request, UniformLaw, exact_laws
from fuaudit.proofs.exactness import exactness
from fuaudit.proofs.toys import federation

Curve = tuple[str, list[float], list[float]]

FEMNIST = {"rounds": 350, "steps": 20, "batch": 10, "samples": 226}
"""Table 2 of the paper; samples a client: about the mean of the writers in LEAF, as no number is printed."""
FASHION = {"rounds": 50, "steps": 10, "batch": 10, "clients": 300, "samples": 200}


def setting(
    clients: int, samples: int, rounds: int, cohort: int, steps: int, batch: int
) -> tuple[UniformLaw, Population]:
    return UniformLaw(rounds, cohort, steps, batch), federation((samples,) * clients)


def costs(law: UniformLaw, population: Population, kind: str, number: int = 1) -> tuple[list[exact_laws.Cost], float]:
    """The exact costs of so many requests in turn, each for another client, and the first rho."""
    if kind == "client":
        requests = [Request.of(clients=[c]) for c in population.clients[:number]]
        bound = fats_laws.client_bound(law, population)
    else:
        requests = [Request.of(samples=[population.samples[c][0]]) for c in population.clients[:number]]
        bound = fats_laws.sample_bound(law, population, population.clients[0])
    return exact_laws.stream(law, population, requests), bound


def simulated(kind: str, number: int, plans: int, key: bytes) -> dict[str, Any]:
    """The stream of requests in simulated plans of the MNIST setting, beside the exact values and the bounds."""
    exact, bound = costs(LAW, POPULATION, kind, number)
    requests = [Request.of(clients=[c]) if kind == "client" else Request.of(samples=[200 * c]) for c in range(number)]
    steps = tuple(Step(FatsUnlearning(), "fats", request) for request in requests)
    redrawn = simulate(Trial(LAW, POPULATION, steps), key, range(plans)).redrawn
    times, rounds = (redrawn > 0).sum(axis=1), redrawn.sum(axis=1)

    def row(values: Any, truth: float) -> dict[str, float]:
        error = float(values.std(ddof=1)) / math.sqrt(plans)
        if not error:
            raise SystemExit(f"no two of {plans:,} plans differ when a {kind} is forgotten: take more --plans")
        return {
            "exact": truth,
            "simulated": float(values.mean()),
            "standard_error": error,
            "z": (float(values.mean()) - truth) / error,
        }

    return {
        "requests": number,
        "plans": plans,
        "rho": bound,
        "ever": row(times > 0, exact_laws.recompute_probability(LAW, POPULATION, requests)),
        "ever_bound": min(number * bound, 1.0),
        "recomputations": row(times, math.fsum(c.probability for c in exact)),
        "recomputations_bound": 4 * number * min(bound, 1.0),
        "rounds": row(rounds, math.fsum(c.rounds for c in exact)),
        "rounds_retraining": number * LAW.rounds,
    }


def shown(kind: str, r: dict[str, Any]) -> str:
    def text(name: str) -> str:
        v = r[name]
        return f"exact {v['exact']:.6f}, simulated {v['simulated']:.6f} ({v['z']:+.2f} standard errors)"

    return "\n".join(
        [
            f"{r['requests']} {kind} request(s) in turn, {r['plans']:,} plans, rho {r['rho']:.4f}",
            f"  anything again:  {text('ever')}; bound rho w {r['ever_bound']:.4f}",
            f"  recomputations:  {text('recomputations')}; bound 4 w rho {r['recomputations_bound']:.4f}",
            f"  rounds again:    {text('rounds')}; retraining every time {r['rounds_retraining']}",
        ]
    )


def over_cohorts(
    kind: str, lines: list[tuple[str, dict[str, int]]], largest: Callable[[dict[str, int]], float]
) -> list[Curve]:
    """Figure 2: expected rounds against K, each line up to the largest K with rho at most 1."""
    curves = []
    for name, table in lines:
        cohorts = range(1, max(1, math.floor(largest(table))) + 1)
        values = [costs(*setting(**table, cohort=k), kind)[0][0].rounds for k in cohorts]
        curves.append((name, [float(k) for k in cohorts], values))
    return curves


def figure_2() -> dict[str, list[Curve]]:
    table = {key: FEMNIST[key] for key in ("rounds", "steps", "batch", "samples")} | {"clients": 3556}
    samples = [(f"b = {b}", table | {"batch": b}) for b in (5, 10, 20)]
    clients = [(f"M = {m}", table | {"clients": m}) for m in (1778, 3556, 7112)]
    return {
        "one sample: rounds against K": over_cohorts(
            "sample",
            samples,
            lambda t: t["samples"] * t["clients"] / (t["batch"] * t["rounds"] * t["steps"]),
        ),
        "one client: rounds against K": over_cohorts("client", clients, lambda t: t["clients"] / t["rounds"]),
    }


def figure_3() -> dict[str, list[Curve]]:
    table = {key: FEMNIST[key] for key in ("rounds", "steps", "batch", "samples")} | {"clients": 3556}
    curves = []
    for cohort in (2, 4, 6, 8, 10):
        each, bound = costs(*setting(**table, cohort=cohort), "client", 10)
        totals = np.cumsum([c.rounds for c in each]).tolist()
        curves.append((f"K = {cohort} (rho_C = {bound:.2f})", [float(w) for w in range(1, 11)], totals))
    retraining = ("retraining every time", [1.0, 10.0], [350.0, 3500.0])
    return {"client requests in turn: rounds in all": [*curves, retraining]}


def figure_4() -> dict[str, list[Curve]]:
    result: dict[str, list[Curve]] = {}
    rounds = FASHION["rounds"]
    for kind in ("sample", "client"):
        exact: list[float] = []
        rho: list[float] = []
        if kind == "sample":  # b from 3 to 24: rho_S from .125 to 1
            laws = [setting(**FASHION | {"batch": b}, cohort=5) for b in range(3, 25)]
        else:  # K from 1 to 6: rho_C from .167 to 1
            laws = [setting(**FASHION, cohort=k) for k in range(1, 7)]
        for law, population in laws:
            each, bound = costs(law, population, kind)
            rho.append(bound)
            exact.append(each[0].rounds)
        result[f"one {kind}: rounds against rho"] = [
            ("exact", rho, exact),
            ("bound rho R", rho, [min(r, 1.0) * rounds for r in rho]),
            ("retraining", [rho[0], rho[-1]], [float(rounds)] * 2),
        ]
    return result


def draw(figures: dict[str, dict[str, list[Curve]]], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    plt.rcParams["svg.hashsalt"] = "fuaudit"  # equal curves give equal bytes
    for name, panels in figures.items():
        figure, axes = plt.subplots(1, len(panels), figsize=(5.5 * len(panels), 4), squeeze=False)
        for axis, (title, curves) in zip(axes[0], panels.items(), strict=True):
            panel(axis, title, curves)
        figure.tight_layout()
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        figure.savefig(folder / f"{name}.png", dpi=150)
        plt.close(figure)


def panel(axis: Axes, title: str, curves: list[Curve]) -> None:
    for label, x, y in curves:
        axis.plot(x, y, marker="." if len(x) > 2 else "", linestyle="-" if len(x) > 2 else "--", label=label)
    axis.set_title(title)
    axis.set_xlabel(title.rsplit(" ", 1)[-1] if "against" in title else "requests")
    axis.set_ylabel("expected rounds to compute again")
    axis.set_ylim(bottom=0)
    axis.legend()


class FullRestart(FatsUnlearning):
    """The cheap variant of section 5.3.2: one bit a sample, and everything again on a hit."""

    def rewrite(self, plan: Plan, request: Request, fresh: Draws, not_before: Position) -> Plan:
        involved = plan.first_involvement(request) is not None
        return plan.restart(request, fresh) if involved else plan.erase(request, fresh, not_before)


def witnesses() -> dict[str, Any]:
    """Where a statement of the paper fails as printed, the smallest federation that shows it."""
    clients = 2
    while True:  # one place, one round: request i is involved with probability 1 / (clients left)
        number = sum(Fraction(1, left) for left in range(2, clients + 1))
        if number > 4 * (clients - 1) * Fraction(1, clients):
            break
        clients += 1
    toy = UniformLaw(1, 1, 1, 1), federation((2, 2))
    found = exactness(FullRestart(), *toy, [Request.of(samples=[0])])
    one_client = exactness(FullRestart(), *toy, [Request.of(clients=[0])])
    return {
        "expected recomputations above 4 w rho": {
            "clients": clients,
            "requests": clients - 1,
            "exact": float(number),
            "bound": float(4 * (clients - 1) * Fraction(1, clients)),
        },
        "full restart on a hit, sample": str(found.total_variation),
        "full restart on a hit, client": str(one_client.total_variation),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figures", type=Path, required=True, metavar="FOLDER", help="SVG and PNG are written there")
    parser.add_argument("--plans", type=int, default=20_000)
    parser.add_argument("--key", default=bytes(32).hex(), metavar="HEX", help="32 bytes that all plans follow from")
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the figures there")
    given = parser.parse_args()
    document: dict[str, Any] = {"key": given.key, "machine": hardware(), "witnesses": witnesses()}
    figures = {"figure-2": figure_2(), "figure-3": figure_3(), "figure-4": figure_4()}
    draw(figures, given.figures)
    for name, panels in figures.items():
        for title, curves in panels.items():
            print(f"{name}, {title}")
            for label, x, y in curves:
                points = [*range(0, len(x), max(1, len(x) // 5))]
                print(f"  {label}: " + ", ".join(f"{x[i]:g} -> {y[i]:.2f}" for i in points))
    print(json.dumps(document["witnesses"], indent=2))
    document["figures"], document["simulated"] = figures, {}
    for kind in ("client", "sample"):
        for number, plans in ((1, given.plans), (10, max(1, given.plans // 10))):
            row = simulated(kind, number, plans, bytes.fromhex(given.key))
            document["simulated"][f"{number} {kind}"] = row
            print(shown(kind, row))
    if given.json:
        given.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
