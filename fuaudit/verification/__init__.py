"""Verification: reads runs, writes findings. Never edits a run, and runs no code out of one."""

from fuaudit.verification.finding import Finding, Verdict

__all__ = ["Finding", "Verdict"]
