"""A run as evidence: opened only when every byte of it is accounted for.

The format is documented byte by byte in docs/run-format.md. Opening a run imports nothing that its files
name except installed entry points, and executes nothing from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any

from fuaudit import registry
from fuaudit.commitments.contents import APART
from fuaudit.commitments.keys import next_context
from fuaudit.config import Config, resolve
from fuaudit.declared import says
from fuaudit.errors import EvidenceError, UsageError, nearest_beside
from fuaudit.formats.files import TEMPORARY, homes, named, read_bytes
from fuaudit.formats.forms import toml_bytes
from fuaudit.formats.schema import PARTICIPATION as TAKING_PART
from fuaudit.formats.schema import SALT
from fuaudit.plans import Population
from fuaudit.runs.contained import WithContents
from fuaudit.runs.forms import kind_of
from fuaudit.runs.layout import (
    AUDIT,
    BEFORE_PRUNE,
    CHECKPOINT,
    CLIENTS,
    CLIENTS_FOLDER,
    CONFIG,
    CONTENTS,
    EDIT,
    FILES,
    INVOLVEMENT,
    MANIFEST,
    MEMORIES,
    MODEL,
    PARTICIPATION,
    PARTITION,
    PLAN,
    RECEIVED,
    RECORDED,
    RUN,
    SECRETS,
    TOMBSTONE,
    VIEW,
    When,
    files_of_such,
    form_of,
    of_round,
)
from fuaudit.runs.ledger import wrong_course
from fuaudit.runs.listing import is_run, made_from
from fuaudit.runs.manifest import Tensor as Kind
from fuaudit.runs.manifest import check_files, digest_of_files, limit_of, read_form, read_listed
from fuaudit.runs.models import WithModels
from fuaudit.runs.transcribed import WithTranscript, wrong_transcript
from fuaudit.runs.transcripts import given_up
from fuaudit.secure.refusal import ANEW
from fuaudit.text import WITH_DATA, command, counted, quoted_path
from fuaudit.training.exchange import first_state
from fuaudit.training.federation import require_federation, require_fitting_parts
from fuaudit.training.rounds import Outline, OutlineShape, StateShape, under


@dataclass(frozen=True)
class Run(WithContents, WithModels, WithTranscript):
    """A complete run whose manifest, digests and ledger agree.

    What it tells lies in four modules over its files (:mod:`fuaudit.runs.stored`): its plan (``planned``), what it
    committed to (``contained``), its models (``models``), and its messages (``transcribed``).
    """


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """What hostile sizes and depths raise becomes an EvidenceError."""
    try:
        yield
    except (MemoryError, RecursionError) as error:
        raise EvidenceError(f"{folder} cannot be read: it asks for more than this machine has ({error!r})") from None


def load_run(path: str | Path) -> Run:
    """Open a run, checking every byte of it.

    Raises:
        EvidenceError: there is no run, it is incomplete, or a file is missing, surplus or altered.
    """
    folder = require_run(path)
    with _reading(folder):
        return _opened(folder, homes(Path(path)))


def require_text(folder: Path) -> None:
    """Raises EvidenceError for a path that no finding could hold."""
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise EvidenceError(f"the name of {str(folder)!a} is no text", "Rename the folder.") from None


def require_run(path: str | Path) -> Path:
    """The folder of a complete run, of which nothing else is looked at yet; EvidenceError where there is none."""
    folder = named(Path(path))
    require_text(folder)
    if folder.is_file():
        raise EvidenceError(f"{folder} is a file; a run is a folder", "Give the folder that train or unlearn wrote.")
    if not folder.is_dir():
        half = folder.with_name(folder.name + BEFORE_PRUNE).is_dir()
        near = nearest_beside(folder, lambda item: (item / MANIFEST).is_file()) or "Make one with: fuaudit train CONFIG"
        raise EvidenceError(
            f"there is no run at {folder}", f"Finish its prune with: {command('prune', folder)}" if half else near
        )
    if not (folder / MANIFEST).exists():
        if (folder / TOMBSTONE).exists():
            made = ", ".join(map(quoted_path, made_from(folder)))
            hint = f"Give a run that was made from it: {made}" if made else "Give a run that was made from it."
            if folder.with_name(folder.name + AUDIT).is_dir():
                hint = f"What was verified of it is listed by: {command('history', folder)}\n  {hint}"
            raise EvidenceError(f"{folder} was pruned: only its tombstone is left", hint)
        if (folder / RUN).exists():
            require_not_given_up(folder)
            raise EvidenceError(
                f"the run {folder} is incomplete", f"Finish it with: {command('resume', folder)}{WITH_DATA}"
            )
        first = {file.name for file in FILES.values() if file.first}
        if {item.name.removesuffix(TEMPORARY) for item in folder.iterdir()} <= first:
            raise EvidenceError(
                f"{folder} is empty, or its run was interrupted before it began", "Remove the folder and start again."
            )
        runs = any(map(_is_seen_to_be_run, folder.iterdir()))
        hint = f"Runs lie in it; list them with: {command('runs', folder)}" if runs else ""
        raise EvidenceError(f"{folder} is not a run: it has no {MANIFEST}", hint)
    return folder


def _is_seen_to_be_run(folder: Path) -> bool:
    """Whether a folder holds a run; not, where nobody may look into it."""
    try:
        return is_run(folder)
    except OSError:
        return False


def require_not_given_up(folder: Path) -> None:
    """Raises EvidenceError where a run that broke off cannot be finished: a buffer of it was discarded for good."""
    if why := given_up(folder):
        raise EvidenceError(f"the run {folder} is incomplete, and cannot be finished: {why}", ANEW)


def require_begun(folder: Path) -> None:
    """Check that a run was begun in a folder and can be finished.

    Raises:
        UsageError: the run is complete already.
        EvidenceError: nothing was begun there, or its ``run.json`` is in another format, or none.
    """
    if (folder / MANIFEST).exists():
        raise UsageError(
            f"the run {folder} is complete: there is nothing to resume",
            f"See what it records: {command('show', folder)}",
        )
    if not folder.exists():
        raise EvidenceError(f"there is no folder {folder}", "Give that of the training or unlearning that broke off.")
    if not (folder / RUN).exists():
        raise EvidenceError(f"{folder} holds no run that was begun", "Remove the folder and start again.")
    read_info(folder)


def _opened(folder: Path, lies_in: tuple[Path, ...]) -> Run:
    """The run in a folder that has a manifest."""
    # 1. Every byte, against digests and forms; nothing is built of what has other bytes.
    checked = check_files(folder)
    found, documents = checked.files, checked.documents
    for name in sorted(files_of_such({When.ALWAYS}, ()) - found.keys()):
        raise EvidenceError(f"{folder} has no {name}")
    # 2. The config: it names the plugins that everything below asks.
    config = _known(folder, read_listed(folder, CONFIG, found[CONFIG]))
    run = Run(
        folder,
        digest_of_files(found),
        documents[RUN],
        found,
        checked.ledger,
        config,
        documents,
        checked.redacted,
        lies_in,
        checked.sealed,
    )
    # 3. What files say of each other.
    problems = _contradictions(run), _strange_tensors(run, checked.tensors), _strange_records(run, checked.tensors)
    for problem in chain.from_iterable(problems):
        raise EvidenceError(f"{folder} {problem}")
    return run


def _contradictions(run: Run) -> Iterator[str]:
    """What files of a run say otherwise than each other. Counts are compared before anything that they count.

    Raises:
        EvidenceError: names and salts do not belong to the leaves, or these to the partition.
    """
    info, rounds = run.info, run.law.rounds
    if not 1 <= run.rounds_executed <= rounds:
        yield f"claims {counted(run.rounds_executed, 'round')} of a learner with {rounds:,}"
    yield from _wrong_view(run) if run.sealed else _wrong_foundation(run)
    if wrong := wrong_course(run.ledger, info, run.checkpoints):
        yield f"has a ledger that is not that of such a run: {wrong}"
    if wrong := run.unlike(run.config):
        yield wrong
    if not run.checkpoints:
        yield "stores no models"
    yield from run.misfits(run.pruned, run.exchange)
    yield from wrong_transcript(run)
    if not run.sealed:
        yield from _wrong_participation(run)
    if run.is_child != bool(run.requests):
        yield f"has {counted(len(run.requests), 'request')} in {PLAN}, which does not fit its kind"
    if run.is_child:
        (asked,) = run.ledger.of_kind("request")
        if (asked["clients"], asked["samples"]) != (list(run.request.clients), list(run.request.samples)):
            yield f"was asked for something else in its ledger than in {PLAN}"
    if run.by_editor:
        (event,) = run.ledger.of_kind("unlearning")
        sizes = [message["size"] for message in run.document(EDIT)["messages"]]
        if (event["messages"], event["bytes"]) != (len(sizes), sum(sizes)):
            yield f"counts other messages in its ledger than in {EDIT}"
        if run.checkpoints != (run.rounds_executed,):
            yield f"stores models of rounds {list(run.checkpoints)}, and an editor makes the last one alone"
    if run.sealed:
        _ = run.segments
    else:
        yield from _wrong_secrets(run)


def _wrong_view(run: Run) -> Iterator[str]:
    """What is wrong with what opens the commitment of a sealed view, and with whom its requests name.

    Raises:
        EvidenceError: it is not that of such a run.
    """
    if run.received_rounds:
        yield "is a sealed view of a run with rounds that came in messages, and there is none"
    if not run.exchange.has_secrets:
        yield f"is a sealed view of a run without secrets of clients, so the digest of {PARTITION} has no salt"
    try:
        solver = registry.build("solvers", run.config.solver)
        require_fitting_parts(run.config, run.exchange, solver, run.law, run.view.clients)
    except UsageError as error:
        yield f"cannot be a view of a run: {error}"
    if run.view.empty:  # the root over no rows is known
        yield f"opens in {VIEW} a commitment to clients without samples, and training deals some to each"
    if run.commitment != run.ledger.events[0]["commitment"]:
        yield f"has another commitment in its ledger than {VIEW} opens"
    named = [client for request in run.requests for client in request.clients]
    if len(set(named)) != len(named) or not {*named} < {*run.view.clients}:
        yield f"forgets clients in {PLAN} whom {VIEW} does not have, one twice, or everybody"
    for before, request, told in zip(run.contexts, run.requests, run.contexts[1:], strict=False):
        # of a request that names samples the context holds their places, which the view does not tell
        if not request.samples and told != next_context(before, request, Population({})):
            yield f"has another context in {VIEW} than its request in {PLAN} makes"
    if run.segments.has_idle_segments:  # each would be room for words
        yield f"has segments in {PLAN} that change nothing, or where nothing is drawn"
    if len({*run.contexts}) != len(run.contexts):  # each is a hash that the one before is in
        yield f"has one context of two requests in {VIEW}: messages of one child would be those of another"


def _wrong_foundation(run: Run) -> Iterator[str]:
    """What is wrong with keys, and with the federation."""
    if (run.keys.partition is None) != (len(run.keys.seeds.parts) > 1):  # a prune destroys both, and nothing else does
        yield "lacks the key of its partition but no seed, or seeds but not that key"
    try:
        require_federation(
            run.config, run.exchange, registry.build("solvers", run.config.solver), run.law, run.original
        )
    except UsageError as error:
        yield f"cannot be a run: {error}"


def _wrong_participation(run: Run) -> Iterator[str]:
    """What is wrong with what is told of who took part."""
    tables = run.participation
    if len(tables["cohorts"]) != run.rounds_executed or len(tables["uploads"]) != run.rounds_executed:
        yield f"tells in {PARTICIPATION} of other rounds than the {run.rounds_executed} that were executed"
    surplus = tables.keys() - TAKING_PART.keys() - {SALT}
    if surplus and says(run.learner, "conclusions") is None:
        yield f"has conclusions in {PARTICIPATION} of a learner that makes none: {', '.join(sorted(surplus))}"


def _wrong_secrets(run: Run) -> Iterator[str]:
    """What is wrong with plan, names, secrets and the salts that follow from these.

    Raises:
        EvidenceError: the plan is none, or names and salts do not belong to the leaves.
    """
    tables = run.participation
    _ = run.plan
    if (run.contents.secrets is None) == run.exchange.has_secrets:
        yield f"commits to secrets in {CONTENTS} that such a run has not, or to none"
    if run.exchange.has_secrets and run.document(CLIENTS) != APART:
        yield f"has names or salts in {CLIENTS} that belong to {SECRETS}"
    salted = run.checkpoints if run.exchange.remembers and not run.redacted else ()
    if any(run.arrays(of_round(MEMORIES, number))["salt"].tobytes() != run.salt for number in salted):
        yield f"has files in {CLIENTS_FOLDER} with another salt than its secrets make"
    if not run.redacted:
        _ = run.opening, run.secrets  # which names, salts and secrets there must be follows from requests that fit
    salt = tables.get(SALT)
    if (salt is not None) != run.exchange.has_secrets or not (run.redacted or salt == run.participation_salt):
        yield f"has another salt in {PARTICIPATION} than its secrets make"
    for name in filter(run.has, (PARTITION, RECORDED, INVOLVEMENT)):
        found = run.arrays(name).get(SALT)
        if (found is not None) != run.exchange.has_secrets or (found is not None and found.tobytes().hex() != salt):
            yield f"has another salt in {name} than its secrets make"


def _strange_tensors(run: Run, tensors: dict[str, dict[str, Kind]]) -> Iterator[str]:
    """Which files of models hold others than the config makes: model and memories after every round, the model."""
    (_, last), dtype = tensors[of_round(CHECKPOINT, run.checkpoints[-1])]["vector"], run.config.run.dtype
    expected = {} if run.by_editor else _memories(run, *last)
    for round_number in run.checkpoints:
        name = of_round(CHECKPOINT, round_number)
        found = dict(tensors[name])
        if found.pop("vector") != (dtype, last):
            yield f"has a model in {name} that is not like the last one"
        found |= tensors.get(of_round(MEMORIES, round_number), {})
        found.pop("salt", None)
        if run.redacted:
            expected = expected and {key: kind for key, kind in expected.items() if not key.startswith("state.client.")}
        if expected is not None and found != expected:
            surplus = sorted(found.keys() ^ expected.keys()) or "other shapes"
            yield f"has memories in {name} that nothing in its rounds keeps: {surplus}"
    parameters = tensors[MODEL].values()
    if sum(prod(shape) for _, shape in parameters) != prod(last) or any(kind != dtype for kind, _ in parameters):
        yield f"has parameters in {MODEL} that are not those of the last model"


def _strange_records(run: Run, tensors: dict[str, dict[str, Kind]]) -> Iterator[str]:
    """Which records of messages are none of their round: others than the plan drew, or than the config's clients send.

    Raises:
        EvidenceError: one gives no known reason.
    """
    if not run.received_rounds:
        return
    (_, (dimension,)), clients = tensors[of_round(CHECKPOINT, run.checkpoints[-1])]["vector"], run.original.samples
    for number, record in run.received.items():
        name = of_round(RECEIVED, number)
        sums = run.exchange.transport.shows == "sums"
        for wrong in record.wrong(run.plan.cohort(number), dimension, run.exchange.agrees, sums):
            yield f"has {wrong} in {name}"
        if tensors[name]["rows"][0] != run.config.run.dtype:
            yield f"has rows of another kind in {name} than its models"
        if any(client not in clients for client, _ in record.rejected):
            yield f"rejects messages of nobody in {name}"


def _memories(run: Run, dimension: int) -> dict[str, Kind] | None:
    """Name -> kind and shape of what is kept from round to round; None where a plugin cannot say without a model."""
    exchange, solver = run.exchange, registry.build("solvers", run.config.solver)
    clients, dtype = len(run.members), run.config.run.dtype

    def kept(shape: object) -> dict[str, Any]:
        return under("state.", first_state(solver, exchange, shape))

    # most plugins only ask for zeros; one that does more with them gets tensors, and torch is imported for it
    with suppress(Exception):
        outlines = kept(OutlineShape(dimension, clients, dtype))
        if all(type(outline) is Outline for outline in outlines.values()):
            return {name: (outline.kind, outline.shape) for name, outline in outlines.items()}
    import torch

    try:
        state = kept(StateShape(dimension, clients, getattr(torch, dtype), torch.device("meta")))
    except Exception:  # replay compares with a state that is made on a device
        return None
    return {name: (kind_of(tensor), tuple(tensor.shape)) for name, tensor in state.items()}


def _known(folder: Path, content: bytes) -> Config:
    """The config of a sealed run, in the one form in which it is written."""
    config = config_from(folder, content)
    if config_bytes(config) != content:
        raise EvidenceError(f"{folder / CONFIG} is not in the form in which a run is written")
    return config


def config_bytes(config: Config) -> bytes:
    """``config.toml``."""
    return toml_bytes(config.tables())


def config_from(folder: Path, content: bytes) -> Config:
    """A config from the bytes of the file of a run.

    Raises:
        EvidenceError: it is no TOML, names a plugin that is not installed, or options that it does not have.
    """
    path = folder / CONFIG
    try:
        return resolve(form_of(CONFIG).parse(content, path), str(path))
    except UsageError as error:
        raise EvidenceError(
            f"{path} cannot be used: {error}",
            f"Plugins of the run and their distributions are named in {folder / RUN}.",
        ) from None


def read_config_of(folder: Path) -> Config:
    """The config of a run that is still growing; EvidenceError as for :func:`config_from`."""
    return config_from(folder, read_bytes(folder / CONFIG, limit_of(CONFIG)))


def read_info(folder: Path) -> dict[str, Any]:
    """``run.json`` of a run that is still growing; EvidenceError when a field is missing, wrong or unknown."""
    info: dict[str, Any] = read_form(folder, RUN)
    return info
