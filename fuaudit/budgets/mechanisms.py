"""The mechanisms that there is an account of, by the name and the parameters that a stage tells."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from fuaudit.budgets.conspar.law import ConSpar
from fuaudit.budgets.target import ExceededError
from fuaudit.errors import UsageError

Parameters = Mapping[str, int | float | str]


def conspar_of(mechanism: str, parameters: Parameters, differ: int = 1) -> ConSpar:
    """The mechanism that a stage tells.

    Raises:
        ExceededError: nobody accounts for it.
        UsageError: there cannot be such a round, or no two sets that differ in so many elements.
    """
    try:
        if mechanism != "conspar":
            raise KeyError(mechanism)
        dim, per_client, alpha = (str(parameters[name]) for name in ("dim", "per_client", "alpha"))
        read = int(dim), int(per_client), Fraction(alpha)
    except (KeyError, ValueError):
        told = ", ".join(f"{name} {value}" for name, value in parameters.items())
        raise ExceededError(
            f"nobody accounts for the mechanism {mechanism!r} with {told or 'no parameters'}",
            "There is an account of conspar, with dim, per_client and alpha.",
        ) from None
    return ConSpar(*read, differ)


def unaccounted(mechanism: str, parameters: Parameters) -> str:
    """Why nobody accounts for what a stage tells; empty where somebody does."""
    try:
        conspar_of(mechanism, parameters)
    except UsageError as error:
        return str(error.args[0])
    return ""
