"""The state of an accountant of Opacus, as JSON: noise, rate and number of steps, in the order of training.

Its accountants make it by ``state_dict()``. Nothing else is taken from it: an epsilon in it would be somebody's word.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuaudit.budgets.dpsgd.steps import Steps
from fuaudit.errors import UsageError
from fuaudit.text import printable

MECHANISMS = ("rdp", "prv", "gdp")
HINT = (
    "Opacus gives such a state by engine.accountant.state_dict(); write it with json.dump. "
    "It has 'history', a list of [noise multiplier, sample rate, steps]."
)


@dataclass(frozen=True)
class History:
    """Steps in the order of training, and the accountant of Opacus that counted them."""

    steps: tuple[Steps, ...]
    mechanism: str


def history(state: object) -> History:
    """Steps from a state that was read as JSON.

    Raises:
        UsageError: it is no such state, or has steps that there cannot be.
    """
    if not isinstance(state, dict) or not isinstance(rows := state.get("history"), list):
        raise UsageError("this is no state of an accountant: there is no list 'history' in it", HINT)
    if (mechanism := state.get("mechanism")) not in MECHANISMS:
        raise UsageError(
            f"the accountant is one of {', '.join(MECHANISMS)}, not {printable(repr(mechanism))[:60]}", HINT
        )
    if strange := sorted(printable(repr(each))[:60] for each in {*state} - {"history", "mechanism"}):
        raise UsageError(f"the state of an accountant has no {', '.join(strange[:5])}", HINT)
    if not rows:
        raise UsageError("the history has no step: nothing was counted", HINT)
    return History(tuple(_steps(row, number) for number, row in enumerate(rows, 1)), str(mechanism))


def _steps(row: object, number: int) -> Steps:
    """One row of a history; a boolean is no number."""
    match row:
        case [int() | float() as noise, int() | float() as rate, int() as count] if not any(
            isinstance(each, bool) for each in row
        ):
            try:
                return Steps(float(noise), float(rate), count)
            except (OverflowError, UsageError) as error:
                raise UsageError(f"row {number} of the history: {error.args[0]}", HINT) from None
    raise UsageError(f"row {number} of the history is no noise, rate and number of steps", HINT)
