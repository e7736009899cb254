"""Random draws: the only source of randomness of learning and unlearning."""

from fuaudit.draws.address import END, START, Address, Position, Purpose, Stream
from fuaudit.draws.enumerating import Enumeration, Token, enumerate_law, estimate_leaves
from fuaudit.draws.keyed import Keyed
from fuaudit.draws.protocol import Draws
from fuaudit.draws.recorded import Recorded, Recording

__all__ = [
    "END",
    "START",
    "Address",
    "Draws",
    "Enumeration",
    "Keyed",
    "Position",
    "Purpose",
    "Recorded",
    "Recording",
    "Stream",
    "Token",
    "enumerate_law",
    "estimate_leaves",
]
