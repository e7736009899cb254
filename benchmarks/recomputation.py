"""How often FATS computes again, against the exact probability: ``python benchmarks/recomputation.py``.

Draws many plans of the paper's MNIST setting, each under a key of its own, by the same draws that train a run, and
counts in how many of them one client and one sample, both fixed beforehand, are drawn at all; then the same for ten
clients and ten samples of ten clients at once, the size of the paper's own requests. No model is trained: a plan is
all that the question needs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from fuaudit_plugins.fats import Stability, client_stability, sample_stability
from numpy.typing import NDArray
from scipy.stats import binomtest, chisquare

from fuaudit.draws import Keyed
from fuaudit.plans import Plan, Population, Request, UniformLaw
from fuaudit.plans.schedule import Stack
from fuaudit.runs.keys import derive

CLIENTS, SAMPLES = 300, 200
LAW = UniformLaw(rounds=30, cohort_size=5, steps=10, batch_size=10)
POPULATION = Population({c: tuple(range(SAMPLES * c, SAMPLES * (c + 1))) for c in range(CLIENTS)})
CLIENT, SAMPLE = 0, 0
CHUNK = 2000


@dataclass(frozen=True)
class Level:
    """What is erased, and what the theory says about it."""

    name: str
    request: Request
    stability: Stability

    @property
    def missed(self) -> float:
        """The probability that one round does not draw the target: rounds are independent and alike."""
        return float((1 - self.stability.exact) ** (1 / LAW.rounds))

    @property
    def expected_rounds(self) -> float:
        """Expected rounds to compute again: round s is one of them iff a round up to s drew the target."""
        return math.fsum(1 - self.missed**s for s in range(1, LAW.rounds + 1))

    def first_round_law(self) -> NDArray[np.float64]:
        """The probability of every first round 1 .. R, then that of never: ``(R + 1,)``."""
        rounds = [self.missed ** (s - 1) * (1 - self.missed) for s in range(1, LAW.rounds + 1)]
        return np.array([*rounds, self.missed**LAW.rounds])


def batch(one: Stability, number: int) -> Stability:
    """For ``number`` clients, or samples of as many clients, at once: at every place their hits exclude each other."""
    places = LAW.cohort_size * LAW.rounds
    a_place = 1 - (1 - one.exact) ** (1 / places)
    return Stability(1 - (1 - number * a_place) ** places, min(number * one.bound, 1.0))


def levels() -> list[Level]:
    client = client_stability(LAW, POPULATION)
    sample = sample_stability(LAW, POPULATION, CLIENT)
    ten = range(10)
    return [
        Level("client", Request.of(clients=[CLIENT]), client),
        Level("sample", Request.of(samples=[SAMPLE]), sample),
        Level("10 clients", Request.of(clients=ten), batch(client, len(ten))),
        Level("10 samples", Request.of(samples=[SAMPLES * c for c in ten]), batch(sample, len(ten))),
    ]


def simulate(chosen: list[Level], plans: int, key: bytes, say: Callable[[str], None]) -> dict[str, NDArray[np.int64]]:
    """The first round that draws the target of every level, ``(plans,)``; R + 1 where none does."""
    first: dict[str, list[NDArray[np.int64]]] = {level.name: [] for level in chosen}
    for done in range(0, plans, CHUNK):
        numbers = range(done, min(done + CHUNK, plans))
        keys = [derive(key, "recomputation", "plan", str(number)) for number in numbers]
        stack = Stack([Plan.fresh(LAW, POPULATION, Keyed(secret)) for secret in keys])
        for level in chosen:
            rounds, _ = stack.first_involvement(level.request)
            first[level.name].append(np.minimum(rounds, LAW.rounds + 1))
        say(f"{numbers.stop:,} of {plans:,} plans")
    return {name: np.concatenate(parts) for name, parts in first.items()}


def row(level: Level, first: NDArray[np.int64]) -> dict[str, Any]:
    """The simulated figures of one level beside the exact ones."""
    plans, exact = len(first), level.stability.exact
    hits = int((first <= LAW.rounds).sum())
    again = LAW.rounds + 1 - first  # rounds to compute again
    interval = binomtest(hits, plans).proportion_ci(confidence_level=0.99, method="exact")
    expected = level.first_round_law() * plans
    fit = chisquare(np.bincount(first - 1, minlength=LAW.rounds + 1), expected)
    error = math.sqrt(exact * (1 - exact) / plans)
    return {
        "request": str(level.request),
        "plans": plans,
        "recomputed": hits,
        "frequency": hits / plans,
        "exact": exact,
        "standard_error": error,
        "z": (hits / plans - exact) / error,
        "interval_99": [float(interval.low), float(interval.high)],
        "linear_bound": level.stability.bound,
        "rounds_mean": float(again.mean()),
        "rounds_standard_error": statistics.pstdev(again.tolist()) / math.sqrt(plans),
        "rounds_exact": level.expected_rounds,
        "rounds_given_recomputation": float(again[again > 0].mean()) if hits else None,
        "rounds_given_recomputation_exact": level.expected_rounds / exact,
        "rounds_retraining": LAW.rounds,
        "share_saved": 1 - float(again.mean()) / LAW.rounds,
        "share_saved_exact": 1 - level.expected_rounds / LAW.rounds,
        "chi_square": float(fit.statistic),
        "chi_square_degrees": LAW.rounds,
        "chi_square_p": float(fit.pvalue),
    }


def shown(name: str, r: dict[str, Any]) -> str:
    low, high = r["interval_99"]
    return "\n".join(
        [
            f"{name}: forget {r['request']}",
            f"  computed again in {r['recomputed']:,} of {r['plans']:,} plans: {r['frequency']:.6f}, 99 % interval "
            f"[{low:.6f}, {high:.6f}] (Clopper-Pearson)",
            f"  exact {r['exact']:.6f}, standard error {r['standard_error']:.6f}, {r['z']:+.2f} of them away; "
            f"linear bound {r['linear_bound']:.4f}",
            f"  rounds computed again: {r['rounds_mean']:.4f} +- {r['rounds_standard_error']:.4f}, exact "
            f"{r['rounds_exact']:.4f}, of {r['rounds_retraining']} for retraining: {r['share_saved']:.2%} saved, "
            f"exact {r['share_saved_exact']:.2%}",
            f"  if it has to at all: {r['rounds_given_recomputation']:.3f} rounds, exact "
            f"{r['rounds_given_recomputation_exact']:.3f}",
            f"  first round against its law: chi-square {r['chi_square']:.1f} on {r['chi_square_degrees']} degrees, "
            f"p {r['chi_square_p']:.3f}",
        ]
    )


def hardware() -> dict[str, str]:
    """Versions and processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=int, default=100_000)
    parser.add_argument("--key", default=bytes(32).hex(), metavar="HEX", help="32 bytes that all plans follow from")
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the figures there")
    given = parser.parse_args()
    started = time.perf_counter()
    chosen = levels()
    first = simulate(chosen, given.plans, bytes.fromhex(given.key), lambda text: print(f"\r{text}", end="", flush=True))
    rows = {level.name: row(level, first[level.name]) for level in chosen}
    print()
    for name, figures in rows.items():
        print(shown(name, figures))
    seconds = time.perf_counter() - started
    print(f"{seconds:.0f} s, {1e6 * seconds / given.plans:.0f} microseconds a plan")
    if given.json:
        setting = {"clients": CLIENTS, "samples": SAMPLES, **asdict(LAW)}
        document = {"setting": setting, "key": given.key, "levels": rows, "seconds": seconds, "machine": hardware()}
        given.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
