"""Unfinished: what a run that broke off stores is looked at before anything of it is gone on from, or cut.

Nothing here writes. A file that was altered is named, for each is compared with what makes it. The commitment covers
config, keys and contents. The key of the partition deals the rows. Plan and seeds make the first model, and a round
makes the next one. A child has the rest from its parent.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from torch import Tensor

from fuaudit import registry
from fuaudit.commitments.contents import APART, Contents, Opening, commit_under, compare
from fuaudit.commitments.keys import Keys, commitment, promised
from fuaudit.commitments.secrets import ClientSecrets, Renewal, committed_by
from fuaudit.data.dataset import Dataset
from fuaudit.data.partition import partition
from fuaudit.draws import Keyed
from fuaudit.errors import EvidenceError, FuauditError, RedactedError
from fuaudit.formats.files import TEMPORARY, read_bytes, sha256
from fuaudit.plans import Plan, Population
from fuaudit.plans.stacked import LazySchedule
from fuaudit.runs.ancestors import parent_of
from fuaudit.runs.encoding import digest_of_vector, files_of_round, read_checkpoint
from fuaudit.runs.layout import (
    BEGUN,
    CHECKPOINT,
    CLIENTS,
    CONFIG,
    CONTENTS,
    KEYS,
    LEDGER,
    MEMORIES,
    PARTITION,
    PLAN,
    RECEIVED,
    RUN,
    SECRETS,
    When,
    file_of,
    names_in,
    of_round,
    round_of,
    stored_rounds,
)
from fuaudit.runs.ledger import models_told, other_events, suite_of
from fuaudit.runs.manifest import limit_of, read_form
from fuaudit.runs.names import require_committed
from fuaudit.runs.platforms import Platform, makers_of
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.training.execute import RoundState, execute, initial_state
from fuaudit.training.rounds import State
from fuaudit.training.setup import Setup, setup
from fuaudit.workflow.unlearn import as_kept, kept_of
from fuaudit.workflow.writer import plan_table

COPY = "It is not what was written: take it from a copy of the folder, or begin anew in another one."
MOVE = "Move it out of the folder, and try again."


def looked_at(
    run: Run, stored: Sequence[int], data: Path | str | Dataset | None, parent: Path | None
) -> tuple[Setup, Run | None]:
    """The setup of an unfinished run, and the parent of a child, once all that it began with was looked at.

    How rounds were made is asked by :func:`require_made`, last, for it takes as long as they did.

    Raises:
        UsageError: the rows at hand are not those that it committed to.
        EvidenceError: a file was altered, is missing, or is none of such a run; or the parent is not at hand.
    """
    if run.ledger.kinds[:1] != ["commitment"]:
        raise EvidenceError(f"{run.path / LEDGER} does not begin with a commitment", COPY)
    _require_own_files(run)
    above = _parent_at_hand(run, parent) if run.is_child else None
    if above is None:
        _require_foundation(run, data)
    _require_fitting(run, stored, above)
    return _setup_of(run, data), above


def _require_own_files(run: Run) -> None:
    """Raises EvidenceError where a file is in the folder that such a run has not, finished or not."""
    having = _having(run)
    for name in names_in(run.path, torn=True):
        whole = name.removesuffix(TEMPORARY)  # what a kill left of a file of the run goes
        file = file_of(whole)
        if file is not None and file.when in (When.SECURED, When.SUMMED) and file.when not in having:
            raise EvidenceError(f"{run.path / LEDGER} names no suite, and {name} is of one", COPY)
        own = file is not None and file.when in having and (round_of(whole) or 0) <= run.rounds_executed
        if not own and whole != BEGUN:
            raise EvidenceError(f"{run.path / name} is a file that such a run has not", MOVE)


def _having(run: Run) -> frozenset[When]:
    """Which kinds of files an unfinished run may have."""
    more = {
        When.RECORDED: run.is_child,
        When.RECEIVED: run.rests_on_messages,
        When.SECURED: suite_of(run.ledger) is not None,
        When.SUMMED: suite_of(run.ledger) is not None,
    }
    return run.having(False, run.exchange) | {when for when, has in more.items() if has}


def _parent_at_hand(run: Run, parent: Path | None) -> Run:
    """The parent of an unlearning, from which its secrets and all that it is committed to follow.

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
    for name in (CONFIG, CONTENTS, KEYS):
        if run.read(name) != above.read(name):
            raise EvidenceError(f"{run.path / name} was altered: its parent has another one", COPY)
    if (run.original, run.stand_ins) != (above.original, above.stand_ins):
        raise EvidenceError(f"{run.path / PARTITION} was altered: its parent has another one", COPY)
    _require_next_secrets(run, above)
    return above


def _require_next_secrets(run: Run, parent: Run) -> None:
    """Raises EvidenceError where the secrets of a child do not follow from those of its parent."""
    if run.secrets is None:
        return
    renewal = Renewal(run.commitment, run.contexts[-1], run.info["unlearner"], parent.rounds_executed)
    if not parent.secrets or parent.secrets.after(run.plan.retained.samples, renewal) != run.secrets:
        raise EvidenceError(f"the secrets of clients in {run.path} do not follow from those of {parent.path}")


def _require_foundation(run: Run, data: Path | str | Dataset | None) -> None:
    """Raises EvidenceError where config, keys or contents of a training are not those of its commitment.

    Asked first: everything else is made of them, and would be blamed. ``data`` tells which of them, where it is right.
    """
    told = run.ledger.events[0]["commitment"]
    keys = Keys.of_table(run.document(KEYS), run.path / KEYS)
    contents = Contents.of_tensors(run.arrays(CONTENTS), run.path / CONTENTS)
    covered = keys.committed(sha256(run.read(CONFIG)), promised(run.beacon))
    if commitment(**covered, contents=contents.root) != told:
        again = _contents_again(run, data)
        names = [CONFIG, *([] if _are_right(run, keys) else [KEYS]), *([] if again == contents.root else [CONTENTS])]
        if again is not None and commitment(**covered, contents=again) == told:
            names = [CONTENTS]
        raise EvidenceError(f"{run.path / ' or '.join(names)} was altered: the commitment of the run is another", COPY)
    if wrong := run.unlike(run.config):
        raise EvidenceError(f"{run.path} {wrong}", f"The commitment covers {CONFIG}, so {RUN} was altered. {COPY}")


def _are_right(run: Run, keys: Keys) -> bool:
    """Whether keys are seen to be those that a training began with: a secret of clients is a leaf of its seeds."""
    if not run.exchange.has_secrets:
        return False
    shared = ClientSecrets.of_table(run.document(SECRETS)).shared
    return shared[:1] == (keys.seeds.leaf(keys.seeds.size - 1),)


def _contents_again(run: Run, data: Path | str | Dataset | None) -> str | None:
    """The root of a training's contents, of the rows at hand and of what lies beside it; None where these give none."""
    try:
        ready = setup(run.config, data).turned(run.owner)
        table = run.document(SECRETS if run.exchange.has_secrets else CLIENTS)
        secrets = ClientSecrets.of_table(table) if run.exchange.has_secrets else None
        lots_of = (run.law.rounds, run.config.run.requests) if run.exchange.casts_lots else None
        opening = Opening.of_table({word: table[word] for word in APART}, run.path)
        return commit_under(ready.dataset, run.original, opening, committed_by(secrets, lots_of)).root
    except Exception:  # of what was altered anything may break, parts of other packages too
        return None


def _setup_of(run: Run, data: Path | str | Dataset | None) -> Setup:
    """The setup of an unfinished run, with the rows that it committed to.

    Raises:
        UsageError: the rows at hand are others.
        EvidenceError: a training has another plan than its keys draw, or another partition than they deal.
    """
    if not run.is_child:
        if run.document(PLAN) != plan_table(Plan.fresh(run.law, run.original, run.sources[0]), ()):
            raise EvidenceError(f"{run.path / PLAN} was altered: a training draws all from one source", COPY)
        ready = setup(run.config, data)  # no row was erased yet
        if _opens(run, run.original, turned := ready.turned(run.owner)):
            return turned
        _require_dealt(run, ready)
    ready = setup(run.config, data, run.rows).turned(run.owner)
    require_committed(run, ready.dataset)
    return ready


def _require_dealt(run: Run, ready: Setup) -> None:
    """Raises EvidenceError where rows at hand are not committed to as they are owned, and are as the key deals them.

    Leaves cover whose a row is and its id: so the partition was altered, and not the rows.
    """
    if (key := run.keys.partition) is None:
        return
    try:
        dealt = partition(registry.build("partitions", run.config.partition), ready.dataset, Keyed(key))
    except FuauditError:  # other rows may not be dealt at all
        return
    if dealt.samples != run.original.samples and _opens(run, dealt, ready.turned(dealt.owner)):
        raise EvidenceError(f"{run.path / PARTITION} was altered: its key deals another one of these rows", COPY)


def _opens(run: Run, population: Population, ready: Setup) -> bool:
    """Whether the rows at hand are all that a training committed to, if they are dealt so."""
    return not compare(run.contents, run.opening, population, population.samples, ready.dataset)


def _require_fitting(run: Run, stored: Sequence[int], above: Run | None) -> None:
    """Raises EvidenceError where a stored round is missing, or not the one that the ledger tells of.

    Or where it lacks what clients keep. ``above``: the parent of a child.
    """
    told, salt = models_told(run.ledger), run.salt
    for number in stored:
        if number > _kept_rounds(run) and number not in told:
            # its line is on disk before its model is
            raise EvidenceError(f"{run.path / LEDGER} does not tell of round {number}, whose model is stored", COPY)
        name = of_round(CHECKPOINT, number)
        vector, _ = read_checkpoint(run.path, number)
        if number in told and digest_of_vector(vector) != told[number]:
            raise EvidenceError(f"{run.path / name} is not the model that the ledger names", COPY)
        name = of_round(MEMORIES, number)
        if salt is not None and read_form(run.path, name)["salt"].tobytes() != salt:
            raise EvidenceError(f"{run.path / name} has another salt than follows from the secrets of clients", COPY)
    kept = kept_of(run.config, above, run.plan) if above is not None and not run.by_editor else ()
    every = () if run.by_editor else stored_rounds(run.config.run.checkpoint_every, run.rounds_executed)
    own = (number for number in every if number > max(kept, default=-1))
    for number in (*kept, *own):
        if number not in stored and number < max(stored, default=0):
            raise EvidenceError(f"{run.path / of_round(CHECKPOINT, number)} is gone", COPY)


def _kept_rounds(run: Run) -> int:
    """How many rounds of an unfinished run its ledger tells nothing of: of a child those that it keeps, or an edit."""
    if not run.is_child:
        return 0
    told = run.ledger.of_kind("unlearning")
    return int(told[0].get("kept_rounds", run.rounds_executed)) if told else run.rounds_executed


def require_made(run: Run, ready: Setup, stored: Sequence[int], above: Run | None, here: Platform) -> None:
    """Raises EvidenceError where what is gone on from is not what its run made: models, and all that is remembered.

    What a child keeps is compared with its parent's, the first model with that of plan and seeds. The last stored round
    is made again from the one before, in the clear: every suite has the same sums, and none is opened. Not where
    another platform made it, for other bits may come out here; nor where nothing is remembered, for the ledger names
    the model.
    """
    if not stored or run.by_editor:
        return
    kept: Sequence[int] = ()
    if above is not None:
        kept = kept_of(run.config, above, run.plan)
        for number in (one for one in kept if one in stored):
            _require_same(run, number, as_kept(ready, above, run.plan, number), f"{above.path} stores another one")
    if not kept and _made_here(run, 0, 0, here):
        start = initial_state(ready.procedure, [run.plan], run.plan.retained, ready.device)
        _require_same(run, 0, start.of(0), "plan and seeds make another one")
    last, before = stored[-1], stored[-2] if len(stored) > 1 else 0
    if last not in (0, *kept) and _made_here(run, last, before, here):
        start = RoundState.of_run(*read_checkpoint(run.path, before), ready.device)
        if start.state or last in run.received:
            again = _went_on(run, ready, start, before + 1, last)
            unsure = [] if before in (0, *kept) else [*files_of_round(before, *start.of(0), run.salt)]
            _require_follows(run, again, last, unsure, before)
            # no line behind it has its digest, so the last one is compared with what the round tells
            if other_events(run.ledger, {last: list(again.events)}, range(last, last + 1)):
                possible = run.path / " or ".join([LEDGER, *unsure])
                raise EvidenceError(f"{possible} tells of round {last} what its stages do not tell", COPY)


def _require_follows(run: Run, again: RoundState, last: int, unsure: Collection[str], before: int) -> None:
    """Raises EvidenceError where the last stored round has other bytes than when it is made again from one before.

    ``unsure``: the files of that one, where nothing else was compared with them.
    """
    # the stored model is the one that the ledger names, so where another comes out it was made of something else
    same = digest_of_vector(again.vectors[0]) == models_told(run.ledger)[last]
    records = [of_round(RECEIVED, number) for number in run.received if before < number <= last]
    for name, content in files_of_round(last, *again.of(0), run.salt).items():
        if read_bytes(run.path / name, limit_of(name)) != content:
            possible = [name, *unsure] if same else [*records, *unsure] or [name]
            why = f"round {last} does not follow from round {before}"
            raise EvidenceError(f"{run.path / ' or '.join(possible)} was altered: {why}", COPY)


def _made_here(run: Run, number: int, before: int, here: Platform) -> bool:
    """Whether this machine computes as those that went from a stored round to another one, so that bits must agree."""
    return not any(one.unlike(here) for one in makers_of(run.ledger, number, before))


def _went_on(run: Run, ready: Setup, start: RoundState, first: int, last: int) -> RoundState:
    """The state after some rounds, executed from the one before them."""
    schedule, population = LazySchedule([run.plan], last), run.plan.retained
    problem, draws, engine = ready.client_problem(population), run.stage_draws(run.plan), ready.engine
    for _, state in execute(ready.procedure, problem, population, schedule, start, engine, first, draws, run.received):
        start = state
    return start


def _require_same(run: Run, number: int, made: tuple[Tensor, State], why: str) -> None:
    """Raises EvidenceError where a stored round has other bytes than what makes it."""
    for name, content in files_of_round(number, *made, run.salt).items():
        if read_bytes(run.path / name, limit_of(name)) != content:
            raise EvidenceError(f"{run.path / name} was altered: {why}", COPY)
