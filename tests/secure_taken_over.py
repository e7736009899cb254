"""A process in the place of the one that adds, as if bytes had taken it over: a part says what it does."""

import os
import signal
import sys
import time

from fuaudit.secure import adding, bfv
from fuaudit.secure.lines import NUMBER, Line

WAYS = {
    b"w": lambda line: line.send([adding.SUM, bytes(bfv.CIPHERTEXT_BYTES)]),
    b"n": lambda line: line.send([b"none", b"x"]),
    b"e": lambda line: line.send([]),
    b"l": lambda line: line.send([adding.SUM, bytes(bfv.CIPHERTEXT_BYTES + 1)]),
    b"p": lambda line: line.send([b""] * 1000),
    b"h": lambda line: os.write(line.fileno(), NUMBER.pack(2) + NUMBER.pack(2**32 - 1) * 2),
    b"c": lambda line: os.write(line.fileno(), NUMBER.pack(2**32 - 1)),
    b"t": lambda line: os.write(line.fileno(), NUMBER.pack(2) + NUMBER.pack(3)),
    b"s": lambda line: time.sleep(60),
    b"o": lambda line: line.send([adding.OPEN, NUMBER.pack(2)]),
    b"q": lambda line: line.send([adding.OPEN, b"\xff" * 9]),
    b"k": lambda line: os.kill(os.getpid(), signal.SIGKILL),
}


class Taken(Line):
    def receive(self, parts, most, within=None):
        found = super().receive(parts, most, within)
        for part in found:
            if part[1:2] == b"!":
                WAYS[part[:1]](self)
                return self.receive(parts, most, within)
        return found


if __name__ == "__main__":
    adding.Line = Taken
    adding.main(sys.argv[1])
