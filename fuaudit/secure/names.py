"""What suites and parties are called."""

from collections.abc import Mapping
from types import MappingProxyType

EXACT = ("bfv+mask", "bfv", "mask", "plain")
"""Those that a training can use."""

BITS = (2, 24)
"""Of how many bits a value is that is added up, at least and at most."""

ANSWERS = MappingProxyType({"bfv+mask": "send", "bfv": "send", "mask": "unmask", "plain": "send"})
"""Suite -> the step that a client takes once a round, in whatever buffers and attempts."""

ATTEMPTS = 3
"""How often a buffer is tried, at most: another attempt is right only while nobody answered."""

SCARY = "ckks-demo-whose-sums-give-the-key-away"
"""CKKS, to be attacked."""


GIVES_THE_KEY_AWAY = "with CKKS whoever sees a decrypted sum recovers the key and opens every client's row"
"""Why CKKS trains nothing."""


def has_key_holder(suite: str) -> bool:
    """Whether rows are encrypted, so that a witness and a key holder take part."""
    return suite in ("bfv+mask", "bfv")


def floor_of(members: int) -> int:
    """From how many rows on terms of so many members may have it open, at least: 2 of 2, and 3 of more."""
    return 2 if members <= 2 else 3


def least_rows_of(suite: str | None, members: int) -> int:
    """From how many rows on a buffer of so many members can open at all under a suite, None for the simulator.

    Never below what terms may say, and 2 where there are none. More than two thirds where shares are dealt, and more
    than half where clients are shown a list of keys: two groups that were shown two lists cannot both go on.
    """
    if suite not in EXACT:
        return 2
    return max(floor_of(members), {"mask": 2 * members // 3 + 1, "bfv+mask": members // 2 + 1}.get(suite, 2))


SERVER, WITNESS, HOLDER, EVERYBODY = -1, -2, -3, -4
"""Numbers of the parties that are no clients; clients have numbers from 0 on. The key holder is the holder."""

NAMES: Mapping[int, str] = MappingProxyType(
    {SERVER: "the server", WITNESS: "the witness", HOLDER: "the key holder", EVERYBODY: "everybody"}
)
"""Their names in sentences."""

NO_BUFFER = -1
"""In the place of a buffer's number, where a message is of a whole round."""
