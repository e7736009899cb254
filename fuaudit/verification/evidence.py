"""Evidence: the run under audit, its ancestors, the rows at hand, and what the auditor knows from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fuaudit.commitments.contents import Differences
from fuaudit.data.dataset import Dataset
from fuaudit.errors import UsageError
from fuaudit.plans import Population, Request
from fuaudit.runs.ancestors import lineage
from fuaudit.runs.platforms import plugins_of, versions
from fuaudit.runs.receipts import Receipt
from fuaudit.runs.roster import Roster
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.text import counted, span
from fuaudit.unlearning.protocol import is_editor
from fuaudit.verification.erased_rows import AtHand, at_hand
from fuaudit.verification.model_in_use import ModelInUse

NO_DATA = UsageError("the data is not at hand", "Give --data ROOT.")


@dataclass(frozen=True)
class Before:
    """Findings from before a prune, and the SHA-256 of the file that holds them."""

    findings: Mapping[str, Any]
    sha256: str


@dataclass(frozen=True)
class Known:
    """What an auditor knows from elsewhere than the run. Everything may be missing.

    Attributes:
        commitment: received before training, in hexadecimal.
        request: the one that should have been carried out, by this run or before it in its lineage.
        beacon: what was published after the commitment, in hexadecimal.
        receipts: those of clients.
        model: the model in use.
        roster: which party signs under which key.
        before: the findings of a verification from before a prune.
        erased: whether a folder of erased rows was given, so that other rows of training may be missing too.
        ledger_head: SHA-256 of a line of the ledger that was kept when the line was written, in hexadecimal.
        rows_made: whether the rows were given as tensors, which may have been computed, and not read by a reader.
        folder: whether they lie in a folder that the auditor named.
    """

    commitment: str | None = None
    request: Request | None = None
    beacon: str | None = None
    receipts: tuple[Receipt, ...] = ()
    model: ModelInUse | None = None
    before: Before | None = None
    roster: Roster | None = None
    erased: bool = False
    rows_made: bool = False
    folder: bool = False
    ledger_head: str | None = None


MOVED = (
    "Ids are places of rows, so a file of fewer lines that is imported again moves them. Put the folder of before "
    "back, and take rows out of it with fuaudit import FOLDER --without NAME, which keeps ids."
)
"""What makes honest rows move, and how erased rows are removed without that."""

READERS = ("datasets", "adversaries")
"""The kinds of plugins that rows come from."""


@dataclass(frozen=True)
class Evidence:
    """What an audit may look at.

    Attributes:
        run: the run under audit; its integrity is already checked.
        parent: the run that it was made from, or what a prune left of it; None when it is not at hand.
        dataset: the rows at hand, None when the data cannot be read.
    """

    run: Run
    parent: Run | Tombstone | None
    dataset: Dataset | None
    known: Known = Known()

    @property
    def request(self) -> Request | None:
        """What the run had to forget last; None for a training run."""
        return self.run.request if self.run.is_child else None

    @property
    def rows(self) -> Dataset:
        """The rows at hand. UsageError where there are none."""
        if self.dataset is None:
            raise NO_DATA
        return self.dataset

    @cached_property
    def unlearner(self) -> Any:
        """The installed unlearner that the run names, with its recorded options."""
        return self.run.unlearner

    @property
    def is_editor(self) -> bool:
        """Whether the last unlearner edits models, so that no plan makes this one.

        The installed plugin decides. A rewriter that went on from an edited model makes models that its plan does not
        make, which replay shows.
        """
        return self.run.is_child and is_editor(self.unlearner)

    @property
    def planned(self) -> Run | Tombstone | None:
        """The run itself, or where its model was edited the nearest ancestor that no editor made; None if missing."""
        chain = (self.run, *self.ancestors)
        return next((run for run in chain if not (run.is_child and is_editor(run.unlearner))), None)

    @cached_property
    def ancestors(self) -> tuple[Run | Tombstone, ...]:
        """The parent, its parent, and so on, as far as they are at hand."""
        return lineage(self.parent)

    @property
    def complete_lineage(self) -> bool:
        """Whether every ancestor up to the training run is at hand, pruned or not."""
        oldest = self.ancestors[-1] if self.ancestors else self.run
        return not oldest.is_child

    @property
    def is_pruned(self) -> bool:
        """Whether anything of the lineage at hand was pruned."""
        return any(isinstance(run, Tombstone) or run.pruned for run in (self.run, *self.ancestors))

    @property
    def received(self) -> str:
        """Which rounds of the lineage at hand came in messages, in words; empty for none."""
        found = ((run.path.name, run.received_rounds) for run in (self.run, *self.ancestors))
        told = [
            f"{'round' if len(rounds) == 1 else 'rounds'} {span(rounds)} of {name}" for name, rounds in found if rounds
        ]
        return "; ".join(told)

    @property
    def children(self) -> list[Run]:
        """The runs of the lineage at hand that unlearning wrote, oldest first."""
        return [run for run in (*self.ancestors[::-1], self.run) if isinstance(run, Run) and run.is_child]

    @cached_property
    def steps(self) -> tuple[tuple[Any, str], ...]:
        """The unlearners of the lineage at hand with the kinds of their requests, oldest first."""
        return tuple((run.unlearner, run.request.kind) for run in self.children)

    @property
    def erased_rows(self) -> frozenset[int]:
        """The sample ids that the last request took away, as far as they are known."""
        return frozenset() if self.request is None else self.erased_since(self.run.before)

    def erased_since(self, before: Population) -> frozenset[int]:
        """The sample ids that requests took away since a population, as far as they are known."""
        return frozenset(before.owner.keys() - self.run.plan.retained.owner.keys() - self.run.stand_ins)

    @cached_property
    def at_hand(self) -> AtHand:
        """What lies under the ids of erased rows. UsageError without data."""
        return at_hand(self.run, self.ancestors, self.known.receipts, self.rows)

    def unopened(self, before: Population) -> tuple[str, ...]:
        """What it assumes to compute with the rows taken away since a population; empty where all open leaves."""
        here = self.at_hand
        rows = self.erased_since(before).intersection((*here.other, *here.unknown))
        if not rows:
            return ()
        are = "is the one that was" if len(rows) == 1 else "are the ones that were"
        return (f"{counted(len(rows), 'erased row')} at hand {are} trained on: the commitment does not show it.",)

    @cached_property
    def differences(self) -> Differences:
        """Where the rows at hand are not those that the run committed to. UsageError without data."""
        return self.run.differences(self.rows)

    @cached_property
    def moved(self) -> str:
        """What to do where rows at hand are other ones because they have moved, as after an import of fewer lines."""
        found = self.differences
        if not found.contradict or (pair := self.run.moved(self.rows, found)) is None:
            return ""
        return f"Rows have moved: what the run has as row {pair[0]} lies at hand as row {pair[1]}. {MOVED}"

    @property
    def same_reader(self) -> bool:
        """Whether the rows are read as they were for the run and its ancestors: same reader, libraries and system.

        Adversaries turn rows as they are read, so they count as readers.

        Training committed to the rows, and another machine may have gone on with it. fuaudit's own readers only divide,
        which every processor does alike. Others may compute, and rows given as tensors too: then it counts as well.
        """
        ours, config = versions(), self.run.config
        readers = [row for row in plugins_of(config) if row["kind"] in READERS]
        computed = self.known.rows_made or any(row["distribution"] != "fuaudit" for row in readers)
        compared = ("torch", "numpy", "platform") + (("processor",) if computed else ())
        return all(
            readers == [row for row in run.info["plugins"] if row["kind"] in READERS]
            and all(ours[name] == run.info["versions"].get(name) for name in compared)
            for run in (self.run, *self.ancestors)
        )
