"""Resume: finish a run that was interrupted. The result has the bytes that it would have had anyway."""

from __future__ import annotations

from pathlib import Path

from fuaudit.data.dataset import Dataset
from fuaudit.errors import EvidenceError
from fuaudit.formats.files import TEMPORARY, claimed, storage
from fuaudit.progress import Progress, silent
from fuaudit.renamed import renamed
from fuaudit.runs.ancestors import parent_of
from fuaudit.runs.layout import checkpoint_name
from fuaudit.runs.ledger import mend_ledger
from fuaudit.runs.names import require_committed
from fuaudit.runs.platforms import Platform, stand
from fuaudit.runs.run import Run, read_config_of, read_info, require_begun
from fuaudit.runs.tombstone import Tombstone
from fuaudit.runs.writer import RunWriter
from fuaudit.training.engines.protocol import threads_restored
from fuaudit.training.setup import setup
from fuaudit.workflow.train import finish, state_after
from fuaudit.workflow.unlearn import carry_out


@renamed(root="data", dataset="data")
@threads_restored()
def resume(
    path: Path | str,
    data: Path | str | Dataset | None = None,
    parent: Path | None = None,
    progress: Progress = silent,
) -> Run:
    """Finish the interrupted training or unlearning in a folder.

    Raises:
        UsageError: the run is complete already.
        EvidenceError: nothing was begun there, or the parent of an unlearning is not at hand.
    """
    folder = Path(path)
    require_begun(folder)
    with claimed(folder):
        with storage(folder):
            for torn in folder.rglob(f"*{TEMPORARY}"):
                torn.unlink()
        info, config = read_info(folder), read_config_of(folder)
        rounds_executed = info["rounds_executed"]
        stored = [r for r in range(rounds_executed + 1) if (folder / checkpoint_name(r)).exists()]
        done = stored[-1] if stored else 0
        edits = info["kind"] == "unlearning" and info["unlearner"]["kind"] == "editor"
        ledger = mend_ledger(folder, 0 if edits else done)  # an edit is made again as a whole
        unfinished = Run(folder, "", info, {}, ledger, config)
        writer = RunWriter(folder, ledger, unfinished.salt)
        ready = setup(config, data, unfinished.rows)
        require_committed(unfinished, ready.dataset)
        if info["kind"] == "unlearning":
            above = parent_of(unfinished, parent)
            if above is None or isinstance(above, Tombstone):
                raise EvidenceError(f"the parent of {folder} is not at hand", "Give its folder with --parent.")
            if not ledger.of_kind("request"):
                request = unfinished.requests[-1]
                writer.record(
                    "request", clients=list(request.clients), samples=list(request.samples), parent=above.digest
                )
            return carry_out(writer, ready, above, unfinished.plan, progress)
        plan = unfinished.plan
        stand(writer, Platform.here(ready, done))
        start = state_after(writer, ready, plan, stored)
        return finish(writer, ready, plan, start, done, rounds_executed, progress, unfinished.stage_draws(plan))
