"""Text that reaches a person: nothing in it moves a cursor, hides, or turns other text around."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e0fff]"
)
"""Control characters, marks without a shape, line ends, halves of characters. A list of its own, because what a library
calls printable changes with its version."""


def is_printable(text: str) -> bool:
    """Whether a text is one line of characters that can be seen."""
    return UNSEEN.search(text) is None


def printable(text: object) -> str:
    """A text as one line in which every character can be seen; others as escapes by their number."""
    return UNSEEN.sub(_escaped, str(text))


def plain(name: str) -> str:
    """The name of a machine as it is recorded: 100 characters of ASCII at most, others as question marks."""
    return "".join(char if " " <= char <= "~" else "?" for char in name[:100])


def in_full(number: float) -> str:
    """A number with all its digits, as short as it can be written: it is neither above nor below what is meant."""
    short = f"{number:g}"
    return short if float(short) == number else repr(number)


def counted(count: int, one: str, many: str = "") -> str:
    """A number and what it counts: "1 round", "2,000 rounds"; ``many`` where an s does not do."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


NAMED = 5
"""So many names stand in one sentence at most."""


def amount(size: int) -> str:
    """A number of bytes, rounded, such as ``40 MiB``."""
    if size >= 2**30:
        return f"{size / 2**30:,.1f} GiB"
    return f"{size / 2**20:.0f} MiB" if size >= 2**20 else f"{size / 2**10:.0f} KiB"


def some_of(names: Sequence[str]) -> str:
    """Names in a sentence: the first few, and how many more there are."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more:,} more" if more > 0 else "")


def said_by(who: object, text: str) -> str:
    """A text of somebody else, in quotes, so that it ends where it ends; "" for none."""
    return f"{who} says: {text!r}" if text else ""


def one_name(name: object) -> str:
    """A name as one word of a sentence: in quotes where it holds what parts names, so that none looks like two."""
    text = str(name)
    return text if {*"(),;"}.isdisjoint(text) else repr(text)


def client_in_words(client: object, name: object) -> str:
    """A client by its number, and by its name where that is another: "client 4 (alice)"."""
    return f"client {client}" if name in (None, "", str(client)) else f"client {client} ({one_name(name)})"


def span(ids: Sequence[int]) -> str:
    """Ids in words: a range, or the list of them, shortened."""
    if ids and list(ids) == list(range(ids[0], ids[-1] + 1)):
        return f"{ids[0]} to {ids[-1]}"
    return ", ".join(map(str, ids[:20])) + (f" and {len(ids) - 20} more" if len(ids) > 20 else "")


def _escaped(found: re.Match[str]) -> str:
    number = ord(found.group())
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def command(verb: str, *paths: object, **options: object) -> str:
    """A command to type in a shell such as bash or zsh; options that are None are left out, several values repeat one.

    It is one line of characters that can be seen, whatever the paths and names are.

    >>> command("verify", "my run", data="own", client="-x", key=None)
    "fuaudit verify 'my run' --data own --client=-x"
    """
    words = []
    for name, value in options.items():
        for text in map(str, value if isinstance(value, tuple) else () if value is None else (value,)):
            words += [f"--{name}={text}"] if text.startswith("-") else [f"--{name}", text]
    return " ".join(["fuaudit", verb, *map(quoted_path, paths), *map(_quoted, words)])


def quoted_path(path: object) -> str:
    """A path as a shell reads it; none is an option."""
    return _quoted(f"./{path}" if str(path).startswith("-") else str(path))


def _quoted(word: str) -> str:
    """A word as a shell reads it; with octal numbers of bytes where a character of it cannot be seen."""
    if is_printable(word):
        return shlex.quote(word)
    plain = {byte: chr(byte) for byte in range(32, 127) if byte not in b"'\\"}
    whole = word.encode("utf-8", "surrogateescape")
    return "$'" + "".join(plain.get(byte, f"\\{byte:03o}") for byte in whole) + "'"


WITH_DATA = " (and --data ROOT, where the run reads its data from a folder)"
"""Behind a command that may need a folder which whoever proposes it cannot know."""
