"""fuaudit: show, or refute, that a federated model has forgotten a client or a sample.

``train``, ``unlearn``, ``verify`` and ``load_run`` are the command line's verbs from Python. They are imported
when first used, so that ``import fuaudit`` and ``fuaudit --help`` load neither torch nor any plugin.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fuaudit.runs.run import load_run
    from fuaudit.verification.verify import verify
    from fuaudit.workflow.train import train
    from fuaudit.workflow.unlearn import request_of, unlearn

__version__ = version("fuaudit")
__all__ = ["load_run", "request_of", "train", "unlearn", "verify"]

_HOME = {
    "load_run": "fuaudit.runs.run",
    "request_of": "fuaudit.workflow.unlearn",
    "train": "fuaudit.workflow.train",
    "unlearn": "fuaudit.workflow.unlearn",
    "verify": "fuaudit.verification.verify",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'fuaudit' has no attribute {name!r}")
