"""Resume: finish a run that was interrupted. The result has the bytes that it would have had anyway."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fuaudit.commitments.secrets import Renewal
from fuaudit.data.dataset import Dataset
from fuaudit.errors import EvidenceError, RedactedError, UsageError
from fuaudit.formats.files import TEMPORARY, claimed, storage
from fuaudit.progress import Progress, silent
from fuaudit.renamed import renamed
from fuaudit.runs.ancestors import parent_of
from fuaudit.runs.encoding import digest_of_vector, read_checkpoint
from fuaudit.runs.layout import CHECKPOINT, LEDGER, MEMORIES, of_round
from fuaudit.runs.ledger import models_told, suite_of
from fuaudit.runs.manifest import read_form
from fuaudit.runs.names import require_committed
from fuaudit.runs.platforms import Platform
from fuaudit.runs.run import Run, read_config_of, read_info, require_begun, require_not_given_up
from fuaudit.runs.tombstone import Tombstone
from fuaudit.training.engines.protocol import threads_restored
from fuaudit.training.setup import setup
from fuaudit.unlearning.protocol import is_editor
from fuaudit.workflow.append import mend_ledger, unmended
from fuaudit.workflow.memory import require_memory
from fuaudit.workflow.secured import books_of, remembering, require_same_platform, require_secured, secured
from fuaudit.workflow.train import finish
from fuaudit.workflow.transcripts import Mending, has_messages, keeper_behind, mending_of
from fuaudit.workflow.unlearn import carry_out
from fuaudit.workflow.writer import RunWriter


@renamed(root="data", dataset="data")
@threads_restored()
def resume(
    path: Path | str,
    data: Path | str | Dataset | None = None,
    parent: Path | None = None,
    progress: Progress = silent,
    apart: bool = False,
) -> Run:
    """Finish the interrupted training or unlearning in a folder.

    Args:
        apart: whether the parties of a secure sum are processes; it need not be as it was before the break.

    Raises:
        UsageError: the run is complete already.
        EvidenceError: nothing was begun there, a buffer was discarded for good, the parent of an unlearning is not at
            hand, or what is stored does not fit ledger and secrets.
    """
    folder = Path(path)
    require_begun(folder)
    require_not_given_up(folder)
    with claimed(folder):
        # 1. All that can be refused is looked at. Nothing is written, so a refusal leaves the folder as it was.
        info, config = read_info(folder), read_config_of(folder)
        if info.get("received"):
            raise UsageError(
                f"the rounds of {folder} come in messages, and nothing here makes them",
                "Go on with it from Python: with receive_rest(FOLDER) as reception.",
            )
        stored = RunWriter(folder).stored
        done = stored[-1] if stored else 0
        unfinished = Run(folder, "", info, {}, unmended(folder), config)
        require_fitting(unfinished, stored)
        ready = setup(config, data, unfinished.rows).turned(unfinished.owner)
        plan = unfinished.plan
        require_committed(unfinished, ready.dataset)
        require_memory(ready, plan.retained)
        above = parent_at_hand(unfinished, parent) if info["kind"] == "unlearning" else None
        here, suite = Platform.here(ready, done), suite_of(unfinished.ledger)
        require_secured(ready, suite, plan.retained, apart)
        edits = above is not None and is_editor(unfinished.unlearner)
        mending = None if suite is None else _looked_at(unfinished, done, here)
        # 2. What a kill left is cut. A kill here loses nothing that step 1 looks at.
        remove_torn(folder)
        ledger = mend_ledger(folder, 0 if edits else done)  # an edit is made again as a whole
        keeper = None if mending is None else keeper_behind(folder, mending)
        # 3. The run goes on.
        writer = RunWriter(folder, ledger, unfinished.salt, keeper)
        if above is not None:
            return carry_out(writer, ready, above, plan, progress, apart=apart)
        writer.record_platform(here)
        with secured(ready, suite, books_of(writer, plan), apart) as sums:
            return finish(writer, sums, plan, info["rounds_executed"], progress)


def remove_torn(folder: Path) -> None:
    """Remove what a kill left of files that were being written; StorageError where the file system refuses."""
    with storage(folder):
        for torn in folder.rglob(f"*{TEMPORARY}"):
            torn.unlink()


def _looked_at(run: Run, done: int, here: Platform) -> Mending:
    """What stays of the transcript of an unfinished run, once all of it was looked at that can be refused."""
    require_same_platform(run.ledger, has_messages(run.path), here)
    mending = mending_of(run.path, run.ledger, done)
    remembering(run, mending.keeper(run.path), run.plan)
    return mending


def parent_at_hand(run: Run, parent: Path | None) -> Run:
    """The parent of an unlearning, from which its secrets follow.

    Raises:
        EvidenceError: it is not at hand, or only a view of it is, or the secrets do not follow from it.
    """
    above = parent_of(run, parent)
    if above is None or isinstance(above, Tombstone):
        raise EvidenceError(f"the parent of {run.path} is not at hand", "Give its folder with --parent.")
    if above.redacted or above.sealed:
        raise RedactedError(
            f"{above.path} lacks what is the clients' own, and a child goes on from it", "Give the whole parent."
        )
    require_next_secrets(run, above)
    return above


def require_fitting(run: Run, stored: Sequence[int]) -> None:
    """Raises EvidenceError where a stored round is not the one that the ledger tells of, or lacks what clients keep."""
    told, salt = models_told(run.ledger), run.salt
    for number in stored:
        if number > _kept_rounds(run) and number not in told:
            # its line is on disk before its model is
            raise EvidenceError(f"{run.path / LEDGER} does not tell of round {number}, whose model is stored")
        vector, _ = read_checkpoint(run.path, number)
        if number in told and digest_of_vector(vector) != told[number]:
            raise EvidenceError(f"{run.path / of_round(CHECKPOINT, number)} is not the model that the ledger names")
        name = of_round(MEMORIES, number)
        if salt is not None and read_form(run.path, name)["salt"].tobytes() != salt:
            raise EvidenceError(f"{run.path / name} has another salt than follows from the secrets of clients")


def _kept_rounds(run: Run) -> int:
    """How many rounds of an unfinished run its ledger tells nothing of: of a child those that it keeps, or an edit."""
    if not run.is_child:
        return 0
    told = run.ledger.of_kind("unlearning")
    return int(told[0].get("kept_rounds", run.rounds_executed)) if told else run.rounds_executed


def require_next_secrets(run: Run, parent: Run) -> None:
    """Raises EvidenceError where the secrets of a child do not follow from those of its parent."""
    if run.secrets is None:
        return
    renewal = Renewal(run.commitment, run.contexts[-1], run.info["unlearner"], parent.rounds_executed)
    if not parent.secrets or parent.secrets.after(run.plan.retained.samples, renewal) != run.secrets:
        raise EvidenceError(f"the secrets of clients in {run.path} do not follow from those of {parent.path}")
