"""What may be asked of draws. Every source asks here first, so all refuse the same questions in the same words.

A rewriter or a law that met another error in a proof than in a run would know where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from fuaudit.draws.address import LARGEST, Address
from fuaudit.errors import PluginError, UsageError

MOST = 2**64
"""The largest sum of weights, and the most outcomes of one number."""

_known: dict[int, tuple[tuple[int, ...], bool]] = {}
"""Populations that were looked at lately, by their identity: most are asked for in every round."""


def members(population: Sequence[int]) -> Sequence[int]:
    """What is drawn from, as every source reads it: distinct or not, numbers of type int, in a tuple or a range.

    Raises:
        PluginError: it is something else.
    """
    return population if type(population) is range else _looked_at(population)[0]


def _looked_at(population: Sequence[int]) -> tuple[tuple[int, ...], bool]:
    """The members in a tuple, and whether each is named once."""
    known = _known.get(id(population))
    if known is not None and known[0] is population:
        return known
    listed = population if type(population) is tuple else tuple(population)
    if not {*map(type, listed)} <= {int}:
        raise PluginError("a draw was asked for from what are no ids", "Draw from numbers of type int, in a tuple.")
    found = listed, len({*listed}) == len(listed)
    if population is listed:  # what was listed here is met by nobody else
        if len(_known) >= 1024:
            _known.clear()
        _known[id(listed)] = found  # held: no other can have its identity
    return found


def require_count(count: Any) -> None:
    """Raises PluginError where a number of members is none."""
    if type(count) is not int or not 0 <= count < LARGEST:
        raise PluginError(f"a draw of {count!r} members was asked for", "A count is a number of type int, from 0.")


def for_sequence(population: Sequence[int], count: int) -> Sequence[int]:
    """The members; PluginError where so many cannot be drawn with replacement."""
    among = members(population)
    require_count(count)
    if count and not among:
        raise PluginError(f"a draw of {count} members was asked for, from nobody")
    return among


def for_subset(population: Sequence[int], count: int) -> Sequence[int]:
    """The members; PluginError where there are not so many distinct ones."""
    among = members(population)
    require_count(count)
    _require_enough(among, count)
    return among


def for_subsets(
    places: Sequence[Address], populations: Sequence[Sequence[int]], counts: Sequence[int]
) -> list[tuple[Address, Sequence[int], int]]:
    """Addresses, members and counts of many subsets; PluginError where they are not of one purpose, or not as many."""
    if not len(places) == len(populations) == len(counts):
        raise PluginError("many draws were asked for, and not as many populations or counts as addresses")
    if len({at.purpose for at in places}) > 1:
        raise PluginError("many draws were asked for at once, of more than one purpose", "Ask for each by itself.")
    asked = zip(places, populations, counts, strict=True)
    return [(at, for_subset(population, count), count) for at, population, count in asked]


def for_weighted(
    population: Sequence[int], weights: Sequence[int], count: int
) -> tuple[Sequence[int], tuple[int, ...]]:
    """The members and their weights.

    Raises:
        PluginError: so many of a weight cannot be drawn.
        UsageError: the weights have a sum above 2**64. The options of a law can bring that about.
    """
    among, sizes = members(population), tuple(weights)
    require_count(count)
    if len(sizes) != len(among) or not {*map(type, sizes)} <= {int} or min(sizes, default=0) < 0:
        raise PluginError(
            f"a weighted draw was asked for, with the weights {sizes[:5]!r} for {len(among)} members",
            "A weight is a number of type int, from 0, and each member has one.",
        )
    if sum(sizes) > MOST:
        raise UsageError(f"a draw cannot choose among {sum(sizes)} numbers: 2**64 is the most")
    _require_enough(among, count, sum(size > 0 for size in sizes))
    return among, sizes


def for_independent(population: Sequence[int], probability: Fraction) -> tuple[Sequence[int], tuple[int, int]]:
    """The members, and the probability as two whole numbers.

    Raises:
        PluginError: a member is named twice, or the probability is no fraction from 0 to 1 of plain numbers.
        UsageError: its denominator is above 2**64. The options of a law can bring that about.
    """
    among = members(population)
    _require_enough(among, len(among))
    plain = type(probability) is Fraction and type(probability.numerator) is type(probability.denominator) is int
    if not plain:
        raise PluginError(f"a draw with the probability {probability!r} was asked for", "A probability is a Fraction.")
    if not 0 <= probability <= 1:
        raise PluginError(f"a draw with the probability {probability} was asked for", "It is from 0 to 1.")
    if probability.denominator > MOST:
        raise UsageError(f"a draw cannot choose among {probability.denominator} numbers: 2**64 is the most")
    return among, probability.as_integer_ratio()


def for_permutation(population: Sequence[int]) -> Sequence[int]:
    """The members; PluginError where one is named twice."""
    among = members(population)
    _require_enough(among, len(among))
    return among


def _require_enough(among: Sequence[int], count: int, able: int | None = None) -> None:
    if type(among) is not range and not _looked_at(among)[1]:
        raise PluginError("a draw of distinct members was asked for, from members of whom one is named twice")
    most = len(among) if able is None else able
    if count > most:
        raise PluginError(f"a draw of {count} distinct members was asked for, from {most}")
