"""fuaudit: show, or refute, that a federated model has forgotten a client or a sample.

The verbs of the command line are functions here: ``train``, ``unlearn``, ``verify``, ``report``, ``prove`` and
``load_run``; ``request_of`` makes what ``unlearn`` is asked for, ``commit`` what ``train`` keeps a promise of.
``receive``, ``receive_child`` and ``receive_rest`` train and go on with a federation that sends messages. These
names, and those of :mod:`fuaudit.plugins` for authors of plugins, are public; everything else may change. They are
imported when first used, so that ``import fuaudit`` and ``fuaudit --help`` load neither torch nor any plugin.
"""

# First of all: started as ``python -m fuaudit.cli``, Python would take every library from the working folder, which may
# be somebody else's. Nothing that the interpreter has not loaded by itself is imported before.
import os
import sys

_started_here = "-m fuaudit" in " ".join(sys.orig_argv) and os.path.realpath(sys.path[0]) == os.getcwd()
if _started_here and os.path.dirname(os.path.dirname(os.path.realpath(__file__))) != os.getcwd():
    del sys.path[0]

from importlib import import_module  # noqa: E402
from importlib.metadata import version  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

if TYPE_CHECKING:
    from fuaudit.proofs.prove import prove
    from fuaudit.reporting import report
    from fuaudit.runs.names import request_of
    from fuaudit.runs.run import load_run
    from fuaudit.verification.verify import verify
    from fuaudit.workflow.commit import commit
    from fuaudit.workflow.receive import receive, receive_child, receive_rest
    from fuaudit.workflow.train import train
    from fuaudit.workflow.unlearn import unlearn

__version__ = version("fuaudit")
__all__ = [
    "commit", "load_run", "prove", "receive", "receive_child", "receive_rest", "report", "request_of", "train",
    "unlearn", "verify",
]  # fmt: skip

_HOME = {
    "commit": "fuaudit.workflow.commit",
    "load_run": "fuaudit.runs.run",
    "prove": "fuaudit.proofs.prove",
    "receive": "fuaudit.workflow.receive",
    "receive_child": "fuaudit.workflow.receive",
    "receive_rest": "fuaudit.workflow.receive",
    "report": "fuaudit.reporting",
    "request_of": "fuaudit.runs.names",
    "train": "fuaudit.workflow.train",
    "unlearn": "fuaudit.workflow.unlearn",
    "verify": "fuaudit.verification.verify",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'fuaudit' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What is offered, before it is imported."""
    return sorted({*globals(), *__all__})
