"""Resume: finish a run that was interrupted. The result has the bytes that it would have had anyway."""

from __future__ import annotations

from pathlib import Path

from fuaudit.data.dataset import Dataset
from fuaudit.errors import UsageError
from fuaudit.formats.files import TEMPORARY, claimed, storage
from fuaudit.progress import Progress, silent
from fuaudit.renamed import renamed
from fuaudit.runs.ledger import suite_of
from fuaudit.runs.platforms import Platform
from fuaudit.runs.run import Run, read_config_of, read_info, require_begun, require_not_given_up
from fuaudit.training.engines.protocol import threads_restored
from fuaudit.unlearning.protocol import is_editor
from fuaudit.workflow.append import mend_ledger, unmended
from fuaudit.workflow.memory import require_memory
from fuaudit.workflow.secured import books_of, remembering, require_same_platform, require_secured, secured
from fuaudit.workflow.train import finish
from fuaudit.workflow.transcripts import Mending, has_messages, keeper_behind, mending_of
from fuaudit.workflow.unfinished import looked_at, require_made
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
        ready, above = looked_at(unfinished, stored, data, parent)
        plan = unfinished.plan
        require_memory(ready, plan.retained)
        here, suite = Platform.here(ready, done), suite_of(unfinished.ledger)
        require_secured(ready, suite, plan.retained, apart)
        edits = above is not None and is_editor(unfinished.unlearner)
        mending = None if suite is None else _mending(unfinished, done, here)
        require_made(unfinished, ready, stored, above, here)
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


def _mending(run: Run, done: int, here: Platform) -> Mending:
    """What stays of the transcript of an unfinished run, once all of it was looked at that can be refused."""
    require_same_platform(run.ledger, has_messages(run.path), here)
    mending = mending_of(run.path, run.ledger, done)
    remembering(run, mending.keeper(run.path), run.plan)
    return mending
