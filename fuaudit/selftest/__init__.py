"""Self-test: known faults are planted, and each must be caught by the level that is there for it."""

from fuaudit.selftest.faults import FAULTS, Caught, Fault, Ground
from fuaudit.selftest.selftest import Selftest, selftest

__all__ = ["FAULTS", "Caught", "Fault", "Ground", "Selftest", "selftest"]
