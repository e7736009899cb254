"""The statement without which an epsilon says nothing, and what an epsilon allows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from math import exp, isfinite

from fuaudit.statistics.rounding import up
from fuaudit.text import in_full


@dataclass(frozen=True)
class Statement:
    """What an epsilon is about, word by word.

    *Source*: NIST SP 800-226.

    Args:
        remark: what a reader may take the epsilon for, and it is not; name and sentence.
    """

    delta: str
    unit: str
    adjacency: str
    adversary: str
    trust_model: str
    sampling_assumption: str
    accountant: str
    rounds_covered: str
    outside_it: str
    remark: tuple[str, str]

    def as_json(self) -> dict[str, str]:
        """Name -> sentence."""
        fields = asdict(self)
        name, sentence = fields.pop("remark")
        return {word.replace("_", " "): text for word, text in fields.items()} | {name: sentence}


def epsilon_in_words(epsilon: float) -> str:
    """An epsilon, rounded up so that what is printed holds too."""
    return f"epsilon {up(epsilon, 5)}" if isfinite(epsilon) else "no guarantee"


def epsilon_at(epsilon: float, delta: float) -> str:
    """An epsilon and its delta, both rounded up."""
    return f"{epsilon_in_words(epsilon)} at delta {up(delta, 6)}"


def delta_in_words(delta: float) -> str:
    """A delta with all its digits: an epsilon holds at none that is smaller."""
    return in_full(delta) if delta else "0: pure differential privacy"


def meaning(total: float, delta: float) -> str:
    """What an epsilon allows to whoever is to tell the two histories apart, with even odds beforehand."""
    right = (1 + delta * exp(-total)) / (1 + exp(-total)) if isfinite(total) else 1.0
    if right > 0.9999:
        return "no guarantee to speak of: whoever must tell two such histories apart may be right always, or nearly so"
    return (
        f"whoever must tell two such histories apart, at even odds, is right in at most {_percent(right)} % of cases; "
        "guessing has 50 %"
    )


def _percent(share: float) -> str:
    return f"{-(-share * 10_000 // 1) / 100:.2f}"


def finite(number: float) -> float | None:
    """None for an epsilon that is unbounded."""
    return number if isfinite(number) else None


def version_of(package: str) -> str:
    """The version of an installed package, in words where there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "of no known version"
