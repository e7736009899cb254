"""The demo: an untouched model is shown to fail and an unlearned one to pass, on real digits, in a minute."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fuaudit.config import resolve
from fuaudit.plans import Request
from fuaudit.progress import Progress
from fuaudit.reporting import write_report
from fuaudit.runs.writer import require_new
from fuaudit.verification.verify import verify
from fuaudit.workflow.train import train
from fuaudit.workflow.unlearn import unlearn

CONFIG: dict[str, Any] = {
    "data": {"use": "digits"},
    "partition": {"use": "one-holder", "clients": 20, "label": 9},
    "model": {"use": "mlp", "hidden": [32]},
    "learner": {"use": "fats", "rounds": 20, "cohort": 4, "steps": 5, "batch": 8, "step_size": 0.1},
}
"""Twenty clients; client 0 alone holds the nines: the one clinic with this condition."""

EXPECTED = {"noop": "FAIL", "fats": "PASS"}


def demo(out: Path, progress: Progress, say: Callable[[str], None] | None = None) -> dict[str, Any]:
    """Train, forget client 0 with both unlearners, verify, report.

    The target is fixed before training: choosing a client because it was drawn would be an adaptive request.

    Returns:
        Verdicts and report paths by unlearner, and whether the verdicts are the expected ones.
    """
    speak = say or (lambda text: None)
    require_new(out)
    speak("training 20 clients on handwritten digits; client 0 alone holds the nines")
    run = train(resolve(CONFIG), out / "digits", announce=lambda text: speak(f"  commitment {text}"), progress=progress)
    speak(f"  test accuracy {run.metrics[-1]['test_accuracy']:.3f}")
    result: dict[str, Any] = {"run": str(run.path)}
    for name in EXPECTED:
        speak(f"client 0 asks to be forgotten; unlearning with {name!r}")
        child = unlearn(run, name, Request.of(clients=[0]), out / f"digits-{name}", progress=progress)
        found = verify(child, "client-erasure", progress=progress)
        report = write_report(child.path, "html")
        speak(f"  {found.verdict}: {found.reason}")
        result[name] = {"verdict": str(found.verdict), "reason": found.reason, "report": str(report)}
    result["as_expected"] = all(result[name]["verdict"] == verdict for name, verdict in EXPECTED.items())
    return result
