"""Self-test: known faults are planted, and each must be caught by the level that is there for it."""

from fuaudit.selftest.faults import Caught, Fault, Ground, all_faults
from fuaudit.selftest.selftest import Selftest, selftest

__all__ = ["Caught", "Fault", "Ground", "Selftest", "all_faults", "selftest"]
