"""The demo: real digits are learned and forgotten; an unlearned model passes and an untouched one fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from fuaudit.config import resolve
from fuaudit.plans import Request
from fuaudit.progress import Progress
from fuaudit.reporting import write_report
from fuaudit.runs.run import Run
from fuaudit.training.measuring import measuring
from fuaudit.training.setup import setup
from fuaudit.verification.spec import Spec
from fuaudit.verification.verify import verify
from fuaudit.workflow.train import train
from fuaudit.workflow.unlearn import unlearn
from fuaudit.workflow.writer import require_new

NINES = 9
CONFIG: dict[str, Any] = {
    "data": {"use": "digits"},
    "partition": {"use": "one-holder", "clients": 10, "label": NINES},
    "model": {"use": "linear"},
    "learner": {"use": "fats", "rounds": 40, "cohort": 2, "steps": 5, "batch": 16, "step_size": 0.4, "decay": 0.94},
}
"""Ten clients; client 0 alone holds the nines: the one clinic with this condition. Two take part in a round."""

SECRET = sha256(b"fuaudit demo 0").digest()
"""Everybody knows it, so the demo shows the same everywhere. A real one is drawn by the operating system.

With it client 0 first takes part in round 12, and FATS goes on from the model stored after round 10. The mean over
secrets is round 5.3. Rounds and step sizes were settled with this secret in view, so the demo is an example and no
typical case: with these settings three of four secrets learned nine in ten nines, and one learned none.
"""

EXPECTED = {"fats": "PASS", "noop": "FAIL"}
BEFORE, METHODS = "before", ("fats", "retrain", "noop")


@dataclass(frozen=True)
class Row:
    """What is known of one model: its accuracy on test rows, in [0, 1], and the rounds that it took."""

    all: float
    nines: float
    rounds_executed: int
    rounds_saved: int


def demo(
    out: Path,
    progress: Progress,
    say: Callable[[str], None] | None = None,
    spec: Spec | str = "client-erasure",
) -> dict[str, Any]:
    """Train, forget client 0 by each method, verify two of them, report.

    The target is fixed before training: choosing a client because it was drawn would be an adaptive request.

    Returns:
        A row for every model, verdicts and report paths by unlearner, whether the nines were learned and forgotten,
        and whether the verdicts are the expected ones.
    """
    speak = say or (lambda text: None)
    require_new(out)
    speak("training 10 clients on handwritten digits; client 0 alone holds the nines")
    run = train(resolve(CONFIG), out / "digits", secret=SECRET, progress=progress)
    speak("client 0 asks to be forgotten")
    request = Request.of(clients=[0])
    children = {name: unlearn(run, name, request, out / f"digits-{name}", progress=progress) for name in METHODS}
    rows = {name: measured(each) for name, each in {BEFORE: run, **children}.items()}
    for line in table(rows):
        speak(line)
    result: dict[str, Any] = {"run": str(run.path), "models": {name: asdict(row) for name, row in rows.items()}}
    for name in EXPECTED:
        speak(f"verifying {name}")
        found = verify(children[name], spec, workers=2, progress=progress)
        report = write_report(children[name].path, "html")
        speak(f"  {found.verdict}: {found.reason}")
        result[name] = {"verdict": str(found.verdict), "reason": found.reason, "report": str(report)}
    result["forgotten"] = forgotten(rows)
    result["as_expected"] = all(result[name]["verdict"] == verdict for name, verdict in EXPECTED.items())
    return result


def measured(run: Run) -> Row:
    """The model of a run on all test rows, and on the nines among them."""
    ready = setup(run.config)
    inputs, targets = ready.dataset.test_inputs, ready.dataset.test_targets
    measure, nines = measuring(ready, run.plan.retained), targets == NINES
    told = run.ledger.of_kind("unlearning")
    saved = told[0]["kept_rounds"] if told else 0
    return Row(
        measure(run.model, inputs, targets)[1],
        measure(run.model, inputs[nines], targets[nines])[1],
        run.rounds_executed - saved,
        saved,
    )


def forgotten(rows: dict[str, Row]) -> bool:
    """Whether the nines were learned, are gone after FATS as after retraining, and are still there after noop."""
    learned, gone = rows[BEFORE].nines > 0.5, rows["fats"].nines < 0.05 and rows["retrain"].nines < 0.05
    return learned and gone and rows["noop"].nines == rows[BEFORE].nines


def table(rows: dict[str, Row]) -> list[str]:
    """One line a model, in columns."""
    names = {BEFORE: "before", "fats": "after FATS", "retrain": "after retraining", "noop": "after noop"}
    head = f"  {'accuracy on':18}{'all digits':>12}{'the nines':>12}{'rounds executed':>18}{'saved':>8}"
    return [head] + [
        f"  {names[name]:18}{row.all:12.1%}{row.nines:12.1%}{row.rounds_executed:18}{row.rounds_saved:8}"
        for name, row in rows.items()
    ]
