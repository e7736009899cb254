"""Lines: bytes between two processes of one machine, in frames of bounded size, within a bounded time.

A frame is a few parts: how many, the length of each, then their bytes, numbers of 32 bits, little-endian. Counts and
lengths are compared with what is due before anything of that size is read. Nothing is unpickled.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import Self

from fuaudit.secure.refusal import RefusedError

NUMBER = struct.Struct("<I")


class BrokenLineError(RefusedError):
    """The other end is gone, is late, or sends what is no frame that is due."""


class FloodedError(BrokenLineError):
    """The other end sends what is no frame that is due. Nobody knows where the next one begins, so none is read."""


class Line:
    """One end of a socket to another process; as a context manager it is closed behind the block.

    Args:
        end: a connected socket.
        peer: what the other end is called in errors.
    """

    def __init__(self, end: socket.socket, peer: str) -> None:
        self._end, self._peer, self._flooded = end, peer, ""

    def send(self, parts: Sequence[bytes], within: float | None = None) -> None:
        """Send a frame within some seconds. BrokenLineError where it is not taken."""
        head = b"".join(map(NUMBER.pack, (len(parts), *map(len, parts))))
        try:
            self._wait(within)
            self._end.sendall(b"".join([head, *parts]))
        except OSError as error:
            failed = error
        else:
            return
        raise self._broken(failed)

    def receive(self, parts: int, most: int, within: float | None = None) -> list[bytes]:
        """A frame of at most so many parts and so many bytes together, within some seconds.

        Raises:
            BrokenLineError: there is none; a FloodedError from then on where the other end sends another.
        """
        if self._flooded:
            raise FloodedError(self._flooded)
        until = None if within is None else monotonic() + within
        try:
            (count,) = NUMBER.unpack(self._exactly(NUMBER.size, until))
            if count > parts:
                raise self._no_frame(f"{count} parts", parts)
            lengths = [one for (one,) in NUMBER.iter_unpack(self._exactly(NUMBER.size * count, until))]
            if sum(lengths) > most:
                raise self._no_frame(f"{sum(lengths)} bytes", most)
            return [self._exactly(length, until) for length in lengths]
        except OSError as error:
            failed = error
        raise self._broken(failed)

    def _exactly(self, size: int, until: float | None) -> bytes:
        found = bytearray()
        while len(found) < size:
            self._wait(None if until is None else max(until - monotonic(), 1e-3))
            part = self._end.recv(min(size - len(found), 1 << 20))
            if not part:
                raise BrokenPipeError
            found += part
        return bytes(found)

    def _wait(self, seconds: float | None) -> None:
        if self._end.gettimeout() != seconds:  # a confined process may not set what is set already
            self._end.settimeout(seconds)

    def _no_frame(self, sent: str, due: int) -> FloodedError:
        self._flooded = f"{self._peer} sends {sent}, where at most {due} are due"
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_RD)  # or the other end waits until somebody takes the rest
        return FloodedError(self._flooded)

    def _broken(self, error: OSError) -> BrokenLineError:
        late = isinstance(error, TimeoutError)
        return BrokenLineError(f"{self._peer} {'did not answer in time' if late else 'is gone'}")

    def fileno(self) -> int:
        """The descriptor, for a wait on several lines."""
        return self._end.fileno()

    def close(self) -> None:
        """Let go of the socket: the other end reads that it is gone."""
        self._end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
