"""How often FATS computes again, against the exact probability.

    python benchmarks/recomputation.py                                            MNIST as the paper has it
    python benchmarks/recomputation.py --config examples/fashion-fats.toml --data ROOT

Draws many plans of one setting, each under a key of its own, by the same draws that train a run, and counts in how
many of them one client and one sample, both fixed beforehand, are drawn at all; then the same for ten clients and ten
samples of ten clients at once, the size of the paper's own requests. No model is trained: a plan is all that the
question needs.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fuaudit_plugins.fats_laws import client_bound, sample_bound
from machine import hardware
from mnist_setting import LAW, POPULATION
from numpy.typing import NDArray
from scipy.stats import binomtest, chisquare

from fuaudit import registry
from fuaudit.commitments.keys import derive
from fuaudit.config import read_config
from fuaudit.data.partition import partition
from fuaudit.draws import Keyed
from fuaudit.plans import Plan, Population, Request, UniformLaw
from fuaudit.plans.exact_laws import cost
from fuaudit.plans.stacked import Stack
from fuaudit.training.setup import load_dataset

"""The paper's MNIST: 300 clients with 200 samples each."""

CHUNK = 2000


@dataclass(frozen=True)
class Level:
    """What is erased, and what the theory says about it. A place of a cohort hits it with probability ``hit``."""

    name: str
    request: Request
    law: UniformLaw
    hit: float
    bound: float

    @property
    def places(self) -> int:
        return self.law.cohort_size * self.law.rounds

    @property
    def exact(self) -> float:
        """The probability of computing again: places are independent and alike."""
        return 1 - (1 - self.hit) ** self.places

    @property
    def missed(self) -> float:
        """The probability that one round does not draw the target."""
        return (1 - self.hit) ** self.law.cohort_size

    @property
    def expected_rounds(self) -> float:
        """Expected rounds to compute again: round s is one of them iff a round up to s drew the target."""
        return math.fsum(1 - self.missed**s for s in range(1, self.law.rounds + 1))

    def first_round_law(self) -> NDArray[np.float64]:
        """The probability of every first round 1 .. R, then that of never: ``(R + 1,)``."""
        rounds = [self.missed ** (s - 1) * (1 - self.missed) for s in range(1, self.law.rounds + 1)]
        return np.array([*rounds, self.missed**self.law.rounds])


def levels(law: UniformLaw, population: Population) -> list[Level]:
    """The first client and its first sample; the first ten clients at once, and the first sample of each of them.

    At every place of a cohort, hits of different clients exclude each other, so their probabilities add up.
    """
    if not law.replacement:
        raise SystemExit("the exact probabilities here are those of cohorts with replacement, as FATS draws them")
    ten = population.clients[:10]
    places = law.cohort_size * law.rounds

    def hit(request: Request) -> float:
        return float(1 - (1 - cost(law, population, request).probability) ** (1 / places))

    def level(name: str, clients: Sequence[int], samples: Sequence[int], hit: float, bound: float) -> Level:
        return Level(name, Request.of(clients=clients, samples=samples), law, hit, min(bound, 1.0))

    firsts = [population.samples[client][0] for client in ten]
    client, rho = hit(Request.of(clients=ten[:1])), client_bound(law, population)
    samples = [hit(Request.of(samples=[sample])) for sample in firsts]
    rhos = [sample_bound(law, population, client) for client in ten]
    return [
        level("client", ten[:1], (), client, rho),
        level("sample", (), firsts[:1], samples[0], rhos[0]),
        level("10 clients", ten, (), math.fsum([client] * len(ten)), math.fsum([rho] * len(ten))),
        level("10 samples", (), firsts, math.fsum(samples), math.fsum(rhos)),
    ]


def of_config(path: Path, root: Path | None, key: bytes) -> tuple[UniformLaw, Population]:
    """Law and population of a config; a partition that is drawn is drawn by the key."""
    config = read_config(path)
    population = partition(registry.build("partitions", config.partition), load_dataset(config, root), Keyed(key))
    return registry.build("learners", config.learner).law, population


def simulate(
    chosen: list[Level], population: Population, plans: int, key: bytes, say: Callable[[str], None]
) -> dict[str, NDArray[np.int64]]:
    """The first round that draws the target of every level, ``(plans,)``; R + 1 where none does."""
    law = chosen[0].law
    first: dict[str, list[NDArray[np.int64]]] = {level.name: [] for level in chosen}
    for done in range(0, plans, CHUNK):
        numbers = range(done, min(done + CHUNK, plans))
        keys = [derive(key, "recomputation", "plan", str(number)) for number in numbers]
        stack = Stack([Plan.fresh(law, population, Keyed(secret)) for secret in keys])
        for level in chosen:
            rounds, _ = stack.first_involvement(level.request)
            first[level.name].append(np.minimum(rounds, law.rounds + 1))
        say(f"{numbers.stop:,} of {plans:,} plans")
    return {name: np.concatenate(parts) for name, parts in first.items()}


def row(level: Level, first: NDArray[np.int64]) -> dict[str, Any]:
    """The simulated figures of one level beside the exact ones."""
    plans, exact, rounds = len(first), level.exact, level.law.rounds
    hits = int((first <= rounds).sum())
    again = rounds + 1 - first  # rounds to compute again
    interval = binomtest(hits, plans).proportion_ci(confidence_level=0.99, method="exact")
    expected = level.first_round_law() * plans
    fit = chisquare(np.bincount(first - 1, minlength=rounds + 1), expected)
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
        "linear_bound": level.bound,
        "rounds_mean": float(again.mean()),
        "rounds_standard_error": statistics.pstdev(again.tolist()) / math.sqrt(plans),
        "rounds_exact": level.expected_rounds,
        "rounds_given_recomputation": float(again[again > 0].mean()) if hits else None,
        "rounds_given_recomputation_exact": level.expected_rounds / exact,
        "rounds_retraining": rounds,
        "share_saved": 1 - float(again.mean()) / rounds,
        "share_saved_exact": 1 - level.expected_rounds / rounds,
        "chi_square": float(fit.statistic),
        "chi_square_degrees": rounds,
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, help="a config with the learner fats; by default the paper's MNIST")
    parser.add_argument("--data", type=Path, metavar="ROOT", help="the folder of the config's data")
    parser.add_argument("--plans", type=int, default=100_000)
    parser.add_argument("--key", default=bytes(32).hex(), metavar="HEX", help="32 bytes that all plans follow from")
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the figures there")
    given = parser.parse_args()
    started = time.perf_counter()
    key = bytes.fromhex(given.key)
    law, population = of_config(given.config, given.data, key) if given.config else (LAW, POPULATION)
    chosen = levels(law, population)
    first = simulate(chosen, population, given.plans, key, lambda text: print(f"\r{text}", end="", flush=True))
    rows = {level.name: row(level, first[level.name]) for level in chosen}
    print()
    for name, figures in rows.items():
        print(shown(name, figures))
    seconds = time.perf_counter() - started
    print(f"{seconds:.0f} s, {1e6 * seconds / given.plans:.0f} microseconds a plan")
    if given.json:
        sizes = sorted(map(len, population.samples.values()))
        setting = {"clients": len(sizes), "samples": [sizes[0], sizes[-1]], **asdict(law)}
        document = {"setting": setting, "key": given.key, "levels": rows, "seconds": seconds, "machine": hardware()}
        given.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
