"""A case: what an audit is given. Evidence, the key of its draws, the effort, and the run made again."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from fuaudit import registry
from fuaudit.data.dataset import Dataset
from fuaudit.draws import Keyed
from fuaudit.errors import UsageError
from fuaudit.plans import Request
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.training.measuring import Measured, measuring
from fuaudit.verification.effort import Effort
from fuaudit.verification.evidence import Evidence, Known
from fuaudit.verification.finding import Verdict
from fuaudit.verification.model_in_use import in_use
from fuaudit.verification.rerun import Rerun


@dataclass(frozen=True)
class Case:
    """What an audit is given. ``run``, ``parent``, ``dataset``, ``request`` and ``known`` are those of the evidence.

    Attributes:
        key: draws of the audit itself.
    """

    evidence: Evidence
    key: Keyed
    effort: Effort = field(default_factory=Effort)

    @cached_property
    def rerun(self) -> Rerun:
        """The run made again, as far as somebody asks."""
        return Rerun(self.evidence, self.effort.progress)

    @property
    def run(self) -> Run:
        """The run under audit."""
        return self.evidence.run

    @property
    def parent(self) -> Run | Tombstone | None:
        """The run that it was made from, as far as it is at hand."""
        return self.evidence.parent

    @property
    def dataset(self) -> Dataset | None:
        """The rows at hand."""
        return self.evidence.dataset

    @property
    def request(self) -> Request | None:
        """What the run had to forget last."""
        return self.evidence.request

    @property
    def known(self) -> Known:
        """What the auditor knows from elsewhere."""
        return self.evidence.known

    @cached_property
    def measured(self) -> Measured:
        """Mean loss and accuracy of a model ``(d,)`` on inputs ``(n, *shape)`` and targets ``(n,)``, n at least 1.

        Inputs are rows as the data set holds them: they are scaled as in the run. UsageError without data.
        """
        return measuring(self.rerun.ready, self.run.plan.retained)

    @cached_property
    def in_use(self) -> tuple[Verdict, str] | None:
        """Whether the model in use is the last one of the run, and what to say of it; None where none was given."""
        return in_use(self.known.model, self.run, lambda: self.rerun.ready.procedure.layout)


def made_by_another(run: Run | Tombstone) -> str:
    """In words that a run was made by another distribution or version than is installed here; "" where it was not."""
    if not run.is_child:
        return ""
    recorded = run.info["unlearner"]
    try:
        installed = registry.find("unlearners", recorded["use"])
    except UsageError:
        return f"{run.path.name} was made by {recorded['use']!r}, which is not installed"
    if (recorded.get("distribution"), recorded.get("version")) == (installed.distribution, installed.version):
        return ""
    return (
        f"{run.path.name} was made by {recorded.get('distribution')} {recorded.get('version')}, "
        f"installed is {installed.distribution} {installed.version}"
    )
