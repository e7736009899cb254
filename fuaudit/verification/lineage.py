"""Level 8: every file of the run is regenerated from the retained data alone, and other copies are listed."""

from __future__ import annotations

from dataclasses import dataclass

from fuaudit.data.dataset import digest_of_test
from fuaudit.draws import Position
from fuaudit.runs.files import sha256
from fuaudit.runs.prune import Tombstone
from fuaudit.runs.run import Run
from fuaudit.verification.case import Case, drawn_plan
from fuaudit.verification.finding import Finding, Subject, Verdict
from fuaudit.verification.replay import changed_clients

SHOWS_NOT = "It does not show that no copy exists elsewhere: backups, participants, exported models."

BOOKKEEPING = frozenset(
    {"run.json", "plan.json", "keys.json", "config.toml", "partition.safetensors", "recorded.safetensors", "edit.json"}
)
"""Files that record how the run came about rather than what was learnt; none holds data or models."""


@dataclass(frozen=True)
class Lineage:
    """Executes the plan with the erased rows overwritten by NaN and compares every file, byte for byte."""

    def examine(self, case: Case) -> Finding:
        """FAIL on a file that is not regenerated, or that nothing regenerates; copies elsewhere are listed."""
        copies = other_copies(case)
        statistic = {"other_copies": len(copies)}
        if case.is_editor:
            return Finding(
                "lineage",
                Subject.RUN,
                Verdict.NOT_APPLICABLE,
                "The model was edited: no plan regenerates it.",
                SHOWS_NOT,
                statistic,
                details=copies,
            )
        if case.dataset is None or changed_clients(case) or digest_of_test(case.dataset) != case.run.test_digest:
            return Finding(
                "lineage",
                Subject.RUN,
                Verdict.INCONCLUSIVE,
                "The data of the run, retained rows and test rows, is not at hand.",
                SHOWS_NOT,
                statistic,
                details=("Give --data ROOT.", *copies),
            )
        expected = {name: sha256(content) for name, content in case.regenerated.items()}
        found = {name: entry["sha256"] for name, entry in case.run.files.items() if name not in BOOKKEEPING}
        other = sorted(name for name in expected.keys() & found.keys() if expected[name] != found[name])
        surplus, missing = sorted(found.keys() - expected.keys()), sorted(expected.keys() - found.keys())
        details = [f"not regenerated: {name}" for name in other]
        details += [f"left behind, nothing regenerates it: {name}" for name in surplus]
        details += [f"missing: {name}" for name in missing]
        statistic |= {"regenerated": len(expected) - len(other) - len(missing)}
        if details:
            same = case.same_platform or surplus
            return Finding(
                "lineage",
                Subject.RUN,
                Verdict.FAIL if same else Verdict.INCONCLUSIVE,
                f"{len(details)} files of the run do not follow from the retained data."
                if same
                else "Files are regenerated with other bits on this platform.",
                SHOWS_NOT,
                statistic,
                details=(*details, *copies),
            )
        return Finding(
            "lineage",
            Subject.RUN,
            Verdict.PASS,
            f"All {len(expected)} files that hold models or figures follow from the retained data, byte for byte.",
            SHOWS_NOT,
            statistic,
            details=copies,
        )


def other_copies(case: Case) -> tuple[str, ...]:
    """Where the contribution of the erased data may still lie: named, not judged."""
    run, parent = case.run, case.parent
    if not run.is_child:
        return ()
    if isinstance(parent, Tombstone):
        return ("the parent was pruned; its tombstone holds digests only",)
    if parent is None:
        return (
            f"the parent {run.info['parent']['digest'][:16]} is not at hand; it may hold models with the contribution",
        )
    return tuple(f"{parent.path.name}/{name}: {reason}" for name, reason in _holding(case, parent))


def _holding(case: Case, parent: Run) -> list[tuple[str, str]]:
    assert case.request is not None
    first: Position | None = drawn_plan(parent).first_involvement(case.request)
    if first is None:
        return [("keys.json", "with the partition, gives the draws over the old population back")]
    rows = [
        (f"checkpoints/{round:06d}.safetensors", f"model after round {round}, trained with the erased data")
        for round in parent.checkpoints
        if round >= first.round
    ]
    rows.append(("model.safetensors", "final model, trained with the erased data"))
    rows.append(("keys.json", "gives every erased draw back; prune destroys it"))
    return rows
