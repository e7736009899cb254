"""Random draws: the only source of randomness of learning and unlearning."""

from fuaudit.draws.address import END, START, Address, Position, Purpose, Stream
from fuaudit.draws.enumerating import Enumeration, Token, enumerate_law, estimate_leaves
from fuaudit.draws.keyed import Keyed
from fuaudit.draws.labelled import Labelled
from fuaudit.draws.protocol import Draws
from fuaudit.draws.recorded import Recorded
from fuaudit.draws.seeded import Leaves, Noted, Seeded
from fuaudit.draws.seeds import Seeds

__all__ = [
    "END",
    "START",
    "Address",
    "Draws",
    "Enumeration",
    "Keyed",
    "Labelled",
    "Leaves",
    "Noted",
    "Position",
    "Purpose",
    "Recorded",
    "Seeded",
    "Seeds",
    "Stream",
    "Token",
    "enumerate_law",
    "estimate_leaves",
]
