"""Text: characters as small integers, windows of them as samples, and Shakespeare by role.

The alphabet is fixed. One that is collected from the texts at hand would know the erased ones.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fuaudit.data.dataset import Dataset
from fuaudit.data.documents import parse
from fuaudit.errors import UsageError
from fuaudit.reading import require_regular

if TYPE_CHECKING:
    from torch import Tensor

ALPHABET = "\n" + "".join(map(chr, range(32, 127)))
"""Newline and the printable characters of ASCII; token i stands for ``ALPHABET[i]``."""

OTHER = len(ALPHABET)
"""The token of every character outside the alphabet."""

TOKENS = OTHER + 1
"""How many tokens there are: the classes of a next-character task."""

MOST_TEXT = 64 * 2**20
"""The most bytes that a file of roles may have when it is unpacked: fifteen times all of Shakespeare."""

_TOKEN_OF = np.full(128, OTHER, dtype=np.uint8)
_TOKEN_OF[[ord(character) for character in ALPHABET]] = np.arange(len(ALPHABET))


def encode(text: str) -> Tensor:
    """The tokens of a text, uint8 ``(len(text),)`` in [0, TOKENS)."""
    import torch

    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    return torch.from_numpy(np.where(codes < 128, _TOKEN_OF[np.minimum(codes, 127)], np.uint8(OTHER)))


def windows(tokens: Tensor, width: int, stride: int) -> tuple[Tensor, Tensor]:
    """Windows ``(n, width)`` that begin every ``stride`` tokens, and the token ``(n,)`` that follows each.

    Both are views of ``tokens (L,)``: n is ``(L - width - 1) // stride + 1``, or 0 for a text of at most ``width``.
    """
    if len(tokens) <= width:
        return tokens.new_empty(0, width), tokens.new_empty(0)
    cut = tokens.unfold(0, width + 1, stride)
    return cut[:, :width], cut[:, width]


@dataclass(frozen=True)
class ShakespeareRoles:
    """Shakespeare's speaking roles, from ``ROOT/shakespeare/roles.json.gz``, an object of role -> text.

    A sample is a window of ``window`` characters, its class the character that follows. The last fifth of every
    role's text is for testing, cut every ``test_stride`` characters; windows of the rest begin every ``stride``
    characters, and none crosses the cut. Each role is an owner, in the order of names; ``owners`` takes the first
    so many of them. Inputs are uint8 ``(window,)``.

    Windows overlap when ``stride`` is at most ``window``: erasing one sample then leaves its characters in its
    neighbours (at the default the last character alone, as the target of one and the first of the next).

    Attributes:
        window: characters of a sample.
        stride: characters from the beginning of a training window to the next.
        test_stride: characters from the beginning of a test window to the next.
        owners: how many roles are read, in the order of names; left out, all.
    """

    window: int = 80
    stride: int = 80
    test_stride: int = 400
    owners: int | None = None
    file: ClassVar[str] = "shakespeare/roles.json.gz"
    cite: ClassVar[str] = "task of Caldas et al., arXiv 1812.01097, 2018; texts in the public domain"

    def __post_init__(self) -> None:
        if min(self.window, self.stride, self.test_stride) < 1 or (self.owners is not None and self.owners < 1):
            raise UsageError("window, stride, test_stride and owners must be at least 1")

    def load(self, root: Path | None) -> Dataset:
        """Needs ``--data ROOT``."""
        import torch

        if root is None:
            raise UsageError("Shakespeare's roles are read from a folder", f"Give --data ROOT with ROOT/{self.file}.")
        texts = _texts(root / self.file)
        names = tuple(sorted(texts))[: self.owners]
        train, test = [], []
        for name in names:
            tokens = encode(texts[name])
            cut = len(tokens) - len(tokens) // 5
            train.append(windows(tokens[:cut], self.window, self.stride))
            test.append(windows(tokens[cut:], self.window, self.test_stride))
        for part, purpose in ((train, "train"), (test, "test")):
            if not any(len(inputs) for inputs, _ in part):
                raise UsageError(
                    f"{root / self.file} has no role with more than {self.window} characters to {purpose} on",
                    "Take more roles (owners), or a smaller window; the last fifth of each text is for testing.",
                )
        owners, tested = (
            torch.repeat_interleave(torch.tensor([len(rows) for rows, _ in part])) for part in (train, test)
        )
        return Dataset(*_joined(train), *_joined(test), TOKENS, owners=owners, owner_names=names, test_owners=tested)


def _joined(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    import torch

    inputs, targets = zip(*parts, strict=True)
    return torch.cat(inputs), torch.cat(targets).long()


def _texts(path: Path) -> dict[str, str]:
    require_regular(path)
    try:
        with gzip.open(path) as file:
            unpacked = file.read(MOST_TEXT + 1)
    except FileNotFoundError:
        raise UsageError(f"there is no {path}", f"Give the folder above {path.parent.name!r} with --data.") from None
    except (EOFError, OSError, zlib.error) as error:
        raise UsageError(f"{path} is cut short or is no gzipped JSON: {error}") from None
    if len(unpacked) > MOST_TEXT:
        raise UsageError(f"{path} holds more than {MOST_TEXT // 2**20} MiB of text", "Split it, or take fewer roles.")
    content = parse(unpacked, path)
    if not isinstance(content, dict) or not content or not all(isinstance(text, str) for text in content.values()):
        raise UsageError(f"{path} must hold one object of role -> text")
    return content
