"""Which client a name means, by the names that were committed to and are left."""

from __future__ import annotations

from collections.abc import Sequence

from fuaudit.commitments.contents import Opening
from fuaudit.data.partition import look_of
from fuaudit.errors import UsageError, nearest
from fuaudit.text import counted, span

WHICH = "only a receipt tells which of these it is"
"""Nothing else does, once a prune has dropped several names."""


def client_called(text: str, clients: Sequence[int], opening: Opening) -> int:
    """The id of the client with a name; see :meth:`fuaudit.runs.run.Run.client`.

    Raises:
        UsageError: nobody has that name, or it is not said who is meant.
    """
    number = int(text) if text.isdecimal() and str(int(text)) == text else -1
    if opening.names is None:
        if number in clients:
            return number
        raise UsageError(f"this federation has no client {text}", f"Clients are {span(clients)}.")
    # names of one look are one when data is read, so what is typed in another spelling means the same client
    called = [client for client, name in opening.names.items() if look_of(name) == look_of(text)]
    nameless = number in clients and number not in opening.names
    if called and nameless:
        raise UsageError(
            f"{text!r} is the name of client {called[0]}, and the number of one whose name a prune dropped",
            "Name the one that was erased by its receipt: verify --receipt FILE.",
        )
    if called or nameless:
        return called[0] if called else number
    if number in opening.names:
        raise UsageError(
            f"no client is called {text!r}; number {text} is called {opening.names[number]!r}",
            "Clients of this federation have names: say the name.",
        )
    if dropped := [client for client in clients if client not in opening.names]:
        # whoever asks for one who was forgotten is not told who else takes part
        raise UsageError(
            f"no client is called {text!r} by the names that are left; a prune dropped {counted(len(dropped), 'name')}",
            f"Its number is {' or '.join(map(str, dropped))}, and {WHICH}: verify --client NAME --receipt FILE."
            if len(dropped) > 1
            else f"Say the number, --client {dropped[0]}, or let a receipt tell the name: verify --client NAME "
            "--receipt FILE.",
        )
    raise UsageError(f"no client is called {text!r}", nearest(text, opening.names.values()))
