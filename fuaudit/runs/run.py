"""A run as evidence: opened only when every byte of it is accounted for.

The format is documented byte by byte in docs/run-format.md. Opening a run imports nothing that its files
name except installed entry points, and executes nothing from it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, chain, pairwise
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuaudit import registry
from fuaudit.commitments.contents import (
    Contents,
    Differences,
    Opening,
    client_called,
    compare,
    require_opening,
    span,
)
from fuaudit.commitments.keys import Keys, commitment, contexts, next_context
from fuaudit.config import TABLES, Config, build_stage, resolve, stage_kind
from fuaudit.draws import END, Draws, Leaves, Position, Recorded, Seeded, Stream
from fuaudit.errors import EvidenceError, UsageError, nearest_beside
from fuaudit.formats.files import TEMPORARY, named, read_bytes
from fuaudit.formats.forms import Array, as_tensors, toml_bytes
from fuaudit.formats.schema import PARTICIPATION as TOLD
from fuaudit.plans import Plan, Population, Request
from fuaudit.plans.expanded import require_feasible
from fuaudit.plans.plan import Segments
from fuaudit.runs.encoding import involvement_of, model_and_state, population_of, read_segments, recorded_of
from fuaudit.runs.layout import (
    CHECKPOINT,
    CLIENTS,
    CONFIG,
    CONTENTS,
    EDIT,
    FILES,
    FORMER,
    INVOLVEMENT,
    KEYS,
    LEDGER,
    MANIFEST,
    METRICS,
    MODEL,
    PARTICIPATION,
    PARTITION,
    PLAN,
    RECORDED,
    RUN,
    TOMBSTONE,
    When,
    checkpoint_name,
    form_of,
    kind_of,
    rounds_in,
)
from fuaudit.runs.ledger import Ledger, wrong_course
from fuaudit.runs.manifest import Tensor as Kind
from fuaudit.runs.manifest import check_files, digest_of_files, limit_of, read_listed
from fuaudit.training.rounds import Outline, OutlineShape, StateShape, under
from fuaudit.training.stages import Chain

if TYPE_CHECKING:
    from torch import Tensor

    from fuaudit.data.dataset import Dataset

_FIRST_FILES = {file.name for file in FILES if file.first}


@dataclass(frozen=True)
class Run:
    """A complete run whose manifest, digests and ledger agree.

    Attributes:
        path: the folder.
        digest: of the manifest's list of files: the identity of the run. The ledger, which holds times, is
            tied to it by its last event, and is not part of it.
        info: ``run.json``: kind, parent, unlearner, versions, engine, device.
        files: path -> digest and size of every file; empty for one that is still growing.
        documents: what was read of JSON files.
    """

    path: Path
    digest: str
    info: dict[str, Any]
    files: dict[str, dict[str, Any]]
    ledger: Ledger
    config: Config = field(repr=False)
    documents: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def read(self, name: str) -> bytes:
        """The content of a file: that which was hashed when the run was opened.

        Raises:
            EvidenceError: the run has no such file, or it was exchanged since.
        """
        if entry := self.files.get(name):
            return read_listed(self.path, name, entry)
        if self.files:
            raise EvidenceError(f"{self.path} has no {name}")
        return read_bytes(self.path / name, limit_of(name))  # the run is still growing, and is no evidence

    def document(self, name: str) -> Any:
        """What a JSON file of the run holds; EvidenceError as for :meth:`read`, or where it is in another form."""
        if name not in self.documents:
            self.documents[name] = form_of(name).parse(self.read(name), self.path / name)
        return self.documents[name]

    def arrays(self, name: str) -> dict[str, Array]:
        """The tensors of a file of the run as arrays, read now; EvidenceError as for :meth:`document`."""
        arrays: dict[str, Array] = form_of(name).parse(self.read(name), self.path / name)
        return arrays

    def tensors(self, name: str) -> dict[str, Tensor]:
        """As :meth:`arrays`, for whoever computes with them."""
        return as_tensors(self.arrays(name))

    def has(self, name: str) -> bool:
        """Whether the run has a file."""
        return name in self.files if self.files else (self.path / name).exists()

    @property
    def is_child(self) -> bool:
        """Whether unlearning wrote this run."""
        return bool(self.info["kind"] == "unlearning")

    @property
    def requests(self) -> tuple[Request, ...]:
        """All requests carried out up to this run, in order."""
        rows = [Request(tuple(r["clients"]), tuple(r["samples"])) for r in self._plan_table["requests"]]
        if any(row != Request.of(row.clients, row.samples) for row in rows):
            raise EvidenceError(f"{self.path / PLAN} holds no requests: ids are not sorted, or occur twice")
        return tuple(rows)

    @property
    def request(self) -> Request:
        """The last request; UsageError for a training run."""
        if not self.is_child:
            raise UsageError(f"{self.path} is a training run: it carries out no request")
        return self.requests[-1]

    @property
    def rounds_executed(self) -> int:
        """How many rounds were executed; less than the learner's rounds when training was stopped for a request."""
        return int(self.info["rounds_executed"])

    @property
    def _plan_table(self) -> dict[str, Any]:
        table: dict[str, Any] = self.document(PLAN)
        return table

    @cached_property
    def keys(self) -> Keys:
        """``keys.json``. EvidenceError when it is not one, or its tree has not the size that the run needs."""
        keys = Keys.of_table(self.document(KEYS), self.path / KEYS)
        room = self.config.run.requests
        needed = self.leaves.size * (room + 1)
        if keys.seeds.size != needed:
            raise EvidenceError(
                f"{self.path / KEYS} has a tree of {keys.seeds.size:,} seeds; {room} requests need {needed:,}"
            )
        if len(self.requests) > room:
            raise EvidenceError(f"{self.path} has {len(self.requests)} requests, its commitment has room for {room}")
        return keys

    @cached_property
    def leaves(self) -> Leaves:
        """Which leaf of the tree of seeds serves which draw."""
        law = self.learner.law
        return Leaves(self.original.clients, law.rounds, law.steps)

    @property
    def beacon(self) -> str | None:
        """What was published after the commitment and mixed into all draws; None for nothing."""
        beacon: str | None = self._plan_table["beacon"]
        return beacon

    @cached_property
    def sources(self) -> tuple[Seeded, ...]:
        """The draws of training and of every request so far."""
        seeds = self.keys.seeds
        return tuple(
            Seeded(seeds, self.leaves, generation, context)
            for generation, context in enumerate(contexts(self.beacon, self.requests, self.original))
        )

    def fresh(self, request: Request) -> Seeded:
        """The draws for one more request.

        Raises:
            UsageError: the commitment has no room for one more.
        """
        last, room = self.sources[-1], self.config.run.requests
        if last.generation >= room:
            raise UsageError(
                f"the commitment of {self.path} has room for {room} requests, and all of them were carried out",
                "Train anew, with requests = N in the table [run] as large as may be needed.",
            )
        context = next_context(last.context, request, self.original)
        return Seeded(last.seeds, self.leaves, last.generation + 1, context)

    @property
    def committed(self) -> dict[str, str]:
        """All that the commitment covers but the contents."""
        return self.keys.committed(self.files[CONFIG]["sha256"])

    @cached_property
    def commitment(self) -> str:
        """The commitment of the lineage, computed from what the run holds."""
        return commitment(**self.committed, contents=self.contents.root)

    @cached_property
    def contents(self) -> Contents:
        """The leaves of what clients' rows hold, which the commitment covers."""
        return Contents.of_tensors(self.arrays(CONTENTS), self.path / CONTENTS)

    @cached_property
    def opening(self) -> Opening:
        """Names of clients, and the salts of the leaves; of what a prune dropped neither.

        Raises:
            EvidenceError: names or salts do not belong to the leaves, or some are missing or surplus.
        """
        path = self.path / CLIENTS
        opening, contents = Opening.of_table(self.document(CLIENTS), path), self.contents
        require_opening(contents, opening, path)
        if not self.opens_just(opening):
            raise EvidenceError(f"{path} lacks names or salts of what is retained, or has some of what was erased")
        return opening

    def opens_just(self, opening: Opening) -> bool:
        """Whether names and salts are those that the run must hold: all, or those that the last prune left.

        That prune was of this run, or of an ancestor: a child has what its parent had.
        """
        contents, before = self.contents, self.original.samples
        if not self.pruned and self.keys.partition is not None:
            return opening.is_whole(contents)
        left = self.populations[-1:] if self.pruned else self.populations[1:-1]
        return any(opening.is_that_of(contents, kept, before) for kept in left)

    def name(self, client: int) -> str | None:
        """The name of a client; None where a prune dropped it, or there never was one."""
        return self.opening.name(client) if client in self.contents.clients else None

    def called(self, client: int) -> str:
        """A client in words: by its number, and its name where it has one that is no number."""
        name = self.name(client)
        return f"client {client}" if name in (None, str(client)) else f"client {client} ({name})"

    def client(self, text: str) -> int:
        """The id of the client with a name. Names are ids where the data names nobody.

        A client whose name was dropped by a prune is found by its id.

        Raises:
            UsageError: nobody has that name, or it is not said who is meant.
        """
        return client_called(text, self.contents.clients, self.opening)

    def differences(self, dataset: Dataset) -> Differences:
        """Where the retained rows and the test rows at hand are not those that were committed to."""
        kept = self.plan.retained
        return compare(self.contents, self.opening, kept, {c: self.numbered(c) for c in kept.clients}, dataset)

    @cached_property
    def _partition(self) -> tuple[Population, frozenset[int]]:
        path = self.path / PARTITION
        population, unknown = population_of(self.arrays(PARTITION), path)
        erased = {client for request in self.requests for client in request.clients}
        if any(unknown.intersection(ids) for client, ids in population.samples.items() if client not in erased):
            raise EvidenceError(f"{path} lacks ids of clients that were never erased")
        return population, unknown

    @property
    def original(self) -> Population:
        """The population that training started from; see :attr:`stand_ins`."""
        return self._partition[0]

    @property
    def stand_ins(self) -> frozenset[int]:
        """Ids in the place of those that a prune took out of the partition: the smallest that nobody has."""
        return self._partition[1]

    @cached_property
    def rows(self) -> int:
        """How many training rows there were at least: ids below it are rows, at hand or erased."""
        return max(self.original.owner, default=-1) + 1

    @cached_property
    def populations(self) -> tuple[Population, ...]:
        """The population that training started from, and those after every request."""
        return tuple(accumulate(self.requests, Population.without, initial=self.original))

    @cached_property
    def plan(self) -> Plan:
        """The plan, from its segments and keys; EvidenceError when they do not fit together."""
        try:
            plan = read_plan(self)
            _require_present(plan)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, UsageError) as error:
            raise EvidenceError(f"{self.path / PLAN} is not a plan: {error!r}") from None
        return plan

    @property
    def pruned(self) -> bool:
        """Whether seeds and ids that were needed for earlier populations only were destroyed in this run."""
        return self.ledger.kinds[-1:] == ["pruned"]

    def numbered(self, client: int) -> tuple[int, ...]:
        """The samples of a client when training started, erased ones included: what CLIENT:INDEX counts.

        Raises:
            UsageError: there is no such client.
        """
        samples = self.original.samples
        if client not in samples:
            raise UsageError(f"this federation has no client {client}", f"Clients are {span(self.original.clients)}.")
        return samples[client]

    def sample(self, client: int, index: int) -> int:
        """The id of a client's sample by its number, from 0, among those it had when training started.

        Raises:
            UsageError: there is no such client or sample, or a prune took its id out.
        """
        owned = self.numbered(client)
        if not 0 <= index < len(owned):
            raise UsageError(f"client {client} has samples 0 to {len(owned) - 1}, not {index}")
        if owned[index] in self.stand_ins:
            raise UsageError(f"client {client} was erased, and a prune took out the ids of its samples")
        return owned[index]

    @property
    def before(self) -> Population:
        """The population before the last request; after a prune :attr:`stand_ins` are what an erased client had."""
        return self.populations[-2]

    @cached_property
    def learner(self) -> Any:
        """The learner plugin."""
        return registry.build("learners", self.config.learner)

    @cached_property
    def unlearner(self) -> Any:
        """The unlearner plugin of a child run, with the options that are recorded."""
        recorded = self.info["unlearner"]
        return registry.build("unlearners", {**recorded["options"], "use": recorded["use"]})

    @property
    def next_position(self) -> Position:
        """The first position that was not executed; ``END`` when training was over."""
        return Position(self.rounds_executed + 1, 0) if self.rounds_executed < self.plan.law.rounds else END

    @property
    def models(self) -> dict[int, Tensor]:
        """Round -> model ``(d,)`` of every stored round, read now."""
        return {round_number: self.checkpoint(round_number)[0] for round_number in self.checkpoints}

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """The rounds after which model and state are stored, ascending; 0 is before the first."""
        return rounds_in(self.files)

    def checkpoint(self, round_number: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Model ``(d,)`` and server state after a stored round."""
        name = checkpoint_name(round_number)
        return model_and_state(self.tensors(name))

    @property
    def model(self) -> Tensor:
        """The final model, ``(d,)``."""
        return self.checkpoint(self.checkpoints[-1])[0]

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Test loss and accuracy at every stored round."""
        rows: list[dict[str, Any]] = self.document(METRICS)
        return rows

    @property
    def participation(self) -> dict[str, Any]:
        """Who took part in each round, what had been uploaded by then, and how the final model serves each client."""
        table: dict[str, Any] = self.document(PARTICIPATION)
        return table


def _require_present(plan: Plan) -> None:
    """Raises ValueError where a round names a client of a population that its batches are not drawn over.

    Only where the two streams are drawn over different populations can that be. A stream changes only in rounds in
    which a segment starts, and what lies between two of those is judged once: a config may name any number of rounds.
    """
    starts = {segment.start.round for name in (Stream.COHORTS, Stream.BATCHES) for segment in plan.streams[name]}
    after = plan.law.rounds + 1
    bounds = sorted(
        {
            1,
            after,
            *(round_number for start in starts for round_number in (start, start + 1) if 1 <= round_number < after),
        }
    )
    for first, end in pairwise(bounds):
        begin, last = Position(first, 0), Position(first, plan.law.steps)
        batches = _versions(plan.streams[Stream.BATCHES], begin, last)
        if batches <= _versions(plan.streams[Stream.COHORTS], begin, begin):
            continue
        for round_number in range(first, end):
            named = set(plan.cohort(round_number))
            if any(not named <= plan.populations[version].samples.keys() for version in batches):
                raise ValueError(f"round {round_number} draws batches of a client that is gone by then")


def _versions(segments: Segments, first: Position, last: Position) -> set[int]:
    """The populations that a stream is drawn over from one position to another, both included."""
    begin, end = (bisect_right(segments, at, key=lambda segment: segment.start) for at in (first, last))
    return {segment.version for segment in segments[begin - 1 : end]}


def read_plan(run: Run) -> Plan:
    """The plan of a run: law from the config, populations from partition and requests, sources from seeds."""
    recorded = recorded_of(run.arrays(RECORDED)) if run.has(RECORDED) else {}
    if not recorded.keys() <= set(range(1, len(run.sources))):
        raise ValueError("draws are recorded of training, or of a request that there is not")
    sources: tuple[Draws, ...] = tuple(
        Recorded(recorded[number]) if number in recorded else source for number, source in enumerate(run.sources)
    )
    table = run._plan_table["streams"]
    counts = len(sources), len(run.populations)
    if set(table) != set(Stream) or len(table[Stream.INITIAL]) != 1:
        raise ValueError(f"streams are not {', '.join(Stream)}, with one initial segment")
    streams = {stream: read_segments(table[stream], *counts) for stream in Stream}
    return Plan(
        run.learner.law,
        _drawn_over(run),
        sources,
        streams,
        index=involvement_of(run.arrays(INVOLVEMENT)) if run.has(INVOLVEMENT) else None,
    )


def _drawn_over(run: Run) -> tuple[Population, ...]:
    """The populations that rounds are drawn over.

    Under a law with draws that last all rounds those of erased clients are gone after a prune. Such a client is in no
    round that was kept, and nobody else's draws depend on it, so all populations are taken without it.
    """
    if not run.learner.law.lasting:
        return run.populations
    seeds, leaves = run.keys.seeds, run.leaves
    gone = {
        client
        for number, request in enumerate(run.requests, 1)
        for client in request.clients
        if not any(seeds.holds(leaves.client(generation, client)) for generation in range(number))
    }
    if not gone:
        return run.populations
    return tuple(
        Population({client: ids for client, ids in population.samples.items() if client not in gone})
        for population in run.populations
    )


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
        return _opened(folder)


def require_run(path: str | Path) -> Path:
    """The folder of a complete run, of which nothing else is looked at yet; EvidenceError where there is none."""
    folder = named(Path(path))
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise EvidenceError(f"the name of {str(folder)!a} is no text", "Rename the folder.") from None
    if not folder.is_dir():
        half = folder.with_name(folder.name + ".before-prune").is_dir()
        near = nearest_beside(folder, lambda item: (item / MANIFEST).is_file()) or "Make one with: fuaudit train CONFIG"
        raise EvidenceError(
            f"there is no run at {folder}", f"Finish its prune with: fuaudit prune {folder}" if half else near
        )
    if not (folder / MANIFEST).exists():
        if (folder / TOMBSTONE).exists():
            raise EvidenceError(f"{folder} was pruned: only its tombstone is left")
        if (folder / RUN).exists():
            raise EvidenceError(f"the run {folder} is incomplete", f"Finish it with: fuaudit resume {folder}")
        if {item.name.removesuffix(TEMPORARY) for item in folder.iterdir()} <= _FIRST_FILES:
            raise EvidenceError(
                f"{folder} is empty, or its run was interrupted before it began", "Remove the folder and start again."
            )
        raise EvidenceError(f"{folder} is not a run: it has no {MANIFEST}")
    return folder


def require_begun(folder: Path) -> None:
    """Check that a run was begun in a folder and can be finished.

    Raises:
        UsageError: the run is complete already.
        EvidenceError: nothing was begun there, or its ``run.json`` is in another format, or none.
    """
    if (folder / MANIFEST).exists():
        raise UsageError(
            f"the run {folder} is complete: there is nothing to resume", f"See what it records: fuaudit show {folder}"
        )
    if not folder.exists():
        raise EvidenceError(f"there is no folder {folder}", "Give that of the training or unlearning that broke off.")
    if not (folder / RUN).exists():
        raise EvidenceError(f"{folder} holds no run that was begun", "Remove the folder and start again.")
    read_info(folder)


def _opened(folder: Path) -> Run:
    """The run in a folder that has a manifest."""
    checked = check_files(folder)
    found, documents = checked.files, checked.documents
    for file in FILES:
        if file.when is When.ALWAYS and file.name not in (MANIFEST, LEDGER, CHECKPOINT) and file.name not in found:
            raise EvidenceError(f"{folder} has no {file.name}")
    config = _known(folder, read_listed(folder, CONFIG, found[CONFIG]))
    run = Run(folder, digest_of_files(found), documents[RUN], found, checked.ledger, config, documents)
    for problem in chain(_contradictions(run), _strange_tensors(run, checked.tensors)):
        raise EvidenceError(f"{folder} {problem}")
    return run


def _contradictions(run: Run) -> Iterator[str]:
    """What files of a run say otherwise than each other. Counts are compared before anything that they count.

    Raises:
        EvidenceError: names and salts do not belong to the leaves, or these to the partition.
    """
    info, rounds = run.info, run.learner.law.rounds
    if not 1 <= run.rounds_executed <= rounds:
        yield f"claims {run.rounds_executed} rounds of a learner with {rounds}"
    if (run.keys.partition is None) != (len(run.keys.seeds.parts) > 1):  # a prune destroys both, and nothing else does
        yield "lacks the key of its partition but no seed, or seeds but not that key"
    try:
        require_feasible(run.learner.law, run.original)
    except UsageError as error:
        yield f"cannot be a run: {error}"
    if wrong := wrong_course(run.ledger, info, run.checkpoints):
        yield f"has a ledger that is not that of such a run: {wrong}"
    if (info["engine"], info["device"]) != (run.config.run.engine, run.config.run.device):
        yield f"names another engine or device in {RUN} than in {CONFIG}"
    if [(row["kind"], row["use"]) for row in info["plugins"]] != named_plugins(run.config):
        yield f"names other plugins in {RUN} than in {CONFIG}"
    if not run.checkpoints:
        yield "stores no models"
    if run.has(FORMER) != run.pruned:
        yield f"was pruned and lacks {FORMER}, or has one and was not"
    told = run.participation
    if len(told["cohorts"]) != run.rounds_executed or len(told["uploads"]) != run.rounds_executed:
        yield f"tells in {PARTICIPATION} of other rounds than the {run.rounds_executed} that were executed"
    surplus = told.keys() - TOLD.keys()
    if surplus and run.learner.conclusions is None:
        yield f"has conclusions in {PARTICIPATION} of a learner that makes none: {', '.join(sorted(surplus))}"
    editor = run.is_child and info["unlearner"]["kind"] == "editor"
    if run.has(EDIT) != editor:
        yield f"has {'no' if editor else 'the file'} {EDIT}, which only an editor writes"
    if run.is_child != bool(run.requests):
        yield f"has {len(run.requests)} requests in {PLAN}, which does not fit its kind"
    if run.is_child:
        (asked,) = run.ledger.of_kind("request")
        if (asked["clients"], asked["samples"]) != (list(run.request.clients), list(run.request.samples)):
            yield f"was asked for something else in its ledger than in {PLAN}"
    if editor:
        (told_of,) = run.ledger.of_kind("unlearning")
        sizes = [message["size"] for message in run.document(EDIT)["messages"]]
        if (told_of["messages"], told_of["bytes"]) != (len(sizes), sum(sizes)):
            yield f"counts other messages in its ledger than in {EDIT}"
    _ = run.plan, run.opening  # which names and salts there must be follows from requests that fit


def _strange_tensors(run: Run, tensors: dict[str, dict[str, Kind]]) -> Iterator[str]:
    """Which files of models hold others than the config makes: model and memories after every round, the model."""
    (_, last), dtype = tensors[checkpoint_name(run.checkpoints[-1])]["vector"], run.config.run.dtype
    expected = _memories(run, *last) if not (run.is_child and run.info["unlearner"]["kind"] == "editor") else {}
    for round_number in run.checkpoints:
        name = checkpoint_name(round_number)
        found = dict(tensors[name])
        if found.pop("vector") != (dtype, last):
            yield f"has a model in {name} that is not like the last one"
        if expected is not None and found != expected:
            surplus = sorted(found.keys() ^ expected.keys()) or "other shapes"
            yield f"has memories in {name} that its solver and server do not keep: {surplus}"
    parameters = tensors[MODEL].values()
    if sum(prod(shape) for _, shape in parameters) != prod(last) or any(kind != dtype for kind, _ in parameters):
        yield f"has parameters in {MODEL} that are not those of the last model"


def _memories(run: Run, dimension: int) -> dict[str, Kind] | None:
    """Name -> kind and shape of what solver and server of a run keep; None where they cannot say without a model."""
    server = Chain(tuple(map(build_stage, run.config.server)))
    solver = registry.build("solvers", run.config.solver)
    clients, dtype = len(run.plan.retained.clients), run.config.run.dtype

    def kept(shape: Any) -> dict[str, Any]:
        state: dict[str, Any] = under("state.solver.", solver.init(shape)) | under("state.server.", server.init(shape))
        return state

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
    info: dict[str, Any] = form_of(RUN).parse(read_bytes(folder / RUN, limit_of(RUN)), folder / RUN)
    return info


def named_plugins(config: Config) -> list[tuple[str, str]]:
    """Kind and name of every plugin that a config names, in the order in which a run lists them."""
    named = [(kind, getattr(config, table)["use"]) for table, kind in TABLES.items()]
    return named + [(stage_kind(stage), stage["use"]) for stage in config.server]
