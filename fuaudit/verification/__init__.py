"""Verification: reads runs, writes findings. Never edits a run, never executes anything from one."""

from fuaudit.verification.finding import Finding, Verdict

__all__ = ["Finding", "Verdict"]
