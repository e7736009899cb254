"""Options of commands about noise in shares: who adds it, and who tells whom."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce, wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from fuaudit.errors import UsageError

if TYPE_CHECKING:
    from fuaudit.budgets.shares import Shares


class Divided(NamedTuple):
    """How noise is divided; ``secrets_beside``: whether the clients' secrets lie with the run."""

    shares: Shares
    secrets_beside: bool


OPTIONS = (
    click.option("--buffer", "size", type=click.IntRange(1), help="Clients in the smallest buffer; by default 1."),
    click.option(
        "--colluding", type=click.IntRange(0), help="Clients that tell a reader their shares; by default none."
    ),
    click.option("--absent", type=click.IntRange(0), help="Clients that took their shares with them; by default none."),
    click.option("--secrets-apart", is_flag=True, help="The clients' secrets do not lie with the run."),
)


def share_options(clients: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command ``divided``: a :class:`Divided`, or None without --clients, of which ``clients`` is the help."""
    first = click.option("--clients", type=click.IntRange(1), help=clients)
    return lambda command: reduce(lambda made, option: option(made), reversed((first, *OPTIONS)), _dividing(command))


def _dividing(command: Callable[..., None]) -> Callable[..., None]:
    @wraps(command)
    def dividing(
        *arguments: Any,
        clients: int | None,
        size: int | None,
        colluding: int | None,
        absent: int | None,
        secrets_apart: bool,
        **options: Any,
    ) -> None:
        from fuaudit.budgets.shares import Shares

        if clients is None and (secrets_apart or {size, colluding, absent} != {None}):
            raise UsageError("--buffer, --colluding, --absent and --secrets-apart are about shares: say --clients")
        shares = None if clients is None else Shares(clients, size or 1, colluding or 0, absent or 0)
        command(*arguments, divided=shares and Divided(shares, not secrets_apart), **options)

    return dividing
