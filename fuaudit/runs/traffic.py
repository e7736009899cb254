"""Traffic: how many bytes a client sends and is sent in a round, from what stages told in the ledger of a run.

Sizes are those of the plain form. Where nobody told of values, they are numbers of the run's dtype: those that were
agreed on, or a whole model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fuaudit.declared import PRINTED, is_agreement, offers, says
from fuaudit.registry import build
from fuaudit.runs.layout import MODEL
from fuaudit.runs.ledger import has_failed
from fuaudit.runs.run import Run
from fuaudit.training.asking import a, asked
from fuaudit.training.events import COORDINATES, VALUES


@dataclass(frozen=True)
class Traffic:
    """Bytes over the rounds that a run executed itself, and simulated.

    Attributes:
        participations: how many there were.
        up: what clients sent, together.
        down: what they were sent, together.
        printed: of the same participations what the paper of the one agreement counts, where it says so, and clients
            proposed in all rounds. None elsewhere.
    """

    participations: int
    up: int
    down: int
    printed: int | None

    def table(self) -> dict[str, Any]:
        """For JSON: totals, and the mean of a participation."""
        count = max(1, self.participations)
        totals = {"up": self.up, "down": self.down, "printed": self.printed}
        each = {f"{name}_each": None if size is None else round(size / count, 1) for name, size in totals.items()}
        return {"participations": self.participations, **totals, **each}


def traffic(run: Run) -> Traffic:
    """The traffic of a run; of a child's kept rounds its ancestors tell. Rounds that came in messages are left out."""
    model, solver = sum(part.nbytes for part in run.arrays(MODEL).values()), build("solvers", run.config.solver)
    more, vectors = says(solver, "uploads") - 1, says(solver, "downloads") + run.exchange.downloads
    participations = up = down = printed = 0
    part, agreement = _agreement(run)
    agreed = agreement is not None
    came = {*run.received_rounds}
    for line in run.ledger.of_kind("round"):
        if line["round"] in came:  # what was sent is not known: absent clients sent nothing, and wires have other forms
            continue
        told, cohort = line.get("told", []), run.participation["cohorts"][line["round"] - 1]
        count, answered = len(cohort), [event for event in told if event["kind"] == "answered"]
        values = [event["size"] for event in answered if event["what"] == VALUES][-1:]  # behind the last agreement
        sent = [event for event in told if event["kind"] == "sent"]
        participations += count
        up += count * more * model + sum(event["size"] for event in sent)
        # of whom nobody told how many bytes her values were: as many numbers as were agreed on, or a whole model
        valued = {event["client"] for event in sent if event["what"] != COORDINATES}
        up += sum(values or [model]) * sum(client not in valued for client in cohort)
        received = sum(event["size"] for event in answered if event["what"] != VALUES)
        received += 0 if has_failed(told) else sum(values)
        down += count * (received if answered else vectors * model)
        proposed = any((event["kind"], event["part"]) == ("released", part) for event in told)
        agreed &= proposed or not count
        if not (agreement is not None and proposed):
            continue
        proposing = len({event["client"] for event in sent if event["what"] == COORDINATES and event["size"]})
        printed += count * asked(agreement, PRINTED, a(int), proposing, run.model.numel())
    return Traffic(participations, up, down, printed if agreed and printed else None)


def _agreement(run: Run) -> tuple[str, Any]:
    """The one agreement of a run whose paper counts bytes, and which part of a round it is; None where it has none."""
    stages = run.exchange.client_stages.stages
    found = [number for number, stage in enumerate(stages) if is_agreement(stage)]
    if len(found) != 1 or not offers(stages[found[0]], PRINTED):
        return "", None
    return f"client.{found[0]}", stages[found[0]]
