"""Which accountant holds for which law of batches: amplification is counted where a theorem gives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class BatchLaw:
    """How batches come about, and what may be said of them.

    Attributes:
        words: what has to be true of batches.
        amplified: whether a row that is seldom sampled is charged less.
        adjacency: of what two histories differ.
        accountant: what holds for it, and why.
    """

    name: str
    words: str
    amplified: bool
    adjacency: str
    accountant: str


POISSON = BatchLaw(
    "poisson",
    "every row is in a batch by itself, with the same chance at every step, whatever other rows are; the sum is "
    "divided by a fixed number",
    True,
    "one row is added or removed",
    "privacy loss distribution of the Poisson-sampled Gaussian, which dominates every step, also in composition (Zhu, "
    "Dong, Wang 2022)",
)
FIXED = BatchLaw(
    "fixed",
    "batches have a fixed number of distinct rows: subsets, or pieces of a shuffled list",
    False,
    "one row counts, or its gradients are zero; to replace a row costs twice the sensitivity",
    "Gaussian steps without amplification: a batch of fixed size is no Poisson batch, and its theorem does not hold",
)
MULTISET = BatchLaw(
    "multiset",
    "a row can count several times in one step, as where FATS draws a client twice in a round",
    False,
    "one row counts, or its gradients are zero; to replace a row costs twice the sensitivity",
    "Gaussian steps without amplification, with a sensitivity of as many norms as a row can count",
)
LAWS: Mapping[str, BatchLaw] = {law.name: law for law in (POISSON, FIXED, MULTISET)}
