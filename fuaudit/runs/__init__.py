"""Runs: folders of plain files that record a training or an unlearning, and can be checked without trust."""

from fuaudit.runs.run import Run, load_run

__all__ = ["Run", "load_run"]
