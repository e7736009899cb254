"""What a run is by its files: its identity, and the bytes that were hashed when it was opened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuaudit import registry
from fuaudit.config import Config
from fuaudit.errors import EvidenceError, RedactedError, UsageError
from fuaudit.formats.files import read_bytes
from fuaudit.formats.forms import Array, as_tensors
from fuaudit.plans import Law
from fuaudit.plans.strange_laws import remade
from fuaudit.plans.tried_laws import require_own_name
from fuaudit.runs.layout import (
    CONFIG,
    RUN,
    When,
    form_of,
    is_clients_own,
    is_withheld,
    misfits,
    names_in,
    received_in,
    rounds_in,
)
from fuaudit.runs.ledger import Ledger
from fuaudit.runs.manifest import limit_of, read_listed
from fuaudit.training.exchange import Exchange, exchange_of

if TYPE_CHECKING:
    from torch import Tensor


class WithInfo:
    """What ``run.json`` and the list of files tell: of a run, and of one of which a prune left a tombstone."""

    info: dict[str, Any]
    files: dict[str, dict[str, Any]]

    @property
    def is_child(self) -> bool:
        """Whether unlearning wrote this run."""
        return bool(self.info["kind"] == "unlearning")

    @property
    def rounds_executed(self) -> int:
        """How many rounds were executed; less than the learner's rounds when training was stopped for a request."""
        return int(self.info["rounds_executed"])

    @property
    def beacon(self) -> str | None:
        """What was published after the commitment and mixed into all draws; None for nothing."""
        beacon: str | None = self.info["beacon"]
        return beacon

    @property
    def by_editor(self) -> bool:
        """Whether it says that an editor made its model."""
        return bool(self.is_child and self.info["unlearner"]["kind"] == "editor")

    def unlike(self, config: Config) -> str:
        """What ``run.json`` names otherwise than a config; empty for nothing."""
        if (self.info["engine"], self.info["device"]) != (config.run.engine, config.run.device):
            return f"names another engine or device in {RUN} than in {CONFIG}"
        if [(row["kind"], row["use"]) for row in self.info["plugins"]] != config.plugins:
            return f"names other plugins in {RUN} than in {CONFIG}"
        return ""

    @cached_property
    def checkpoints(self) -> tuple[int, ...]:
        """The rounds after which model and state are stored, ascending; 0 is before the first."""
        return rounds_in(self.files)

    @property
    def received_rounds(self) -> tuple[int, ...]:
        """The rounds whose deliveries came in messages, ascending: nothing regenerates these."""
        return received_in(self.files)

    @property
    def rests_on_messages(self) -> bool:
        """Whether some of its rounds came in messages, or are to come."""
        return bool(self.received_rounds) or self.info.get("received") is True

    @property
    def own_rounds(self) -> range:
        """The rounds that it does not keep: of a child those from its first change on; of an editor's none."""
        first = max(int(self.info["first_change"][0]), 1) if self.is_child else 1
        return range(first, self.rounds_executed + 1)

    def having(self, pruned: bool, exchange: Exchange | None) -> frozenset[When]:
        """Which kinds of files it has, by what is known of it; those of its exchange are open where that is None."""
        known = {
            When.ALWAYS: True,
            When.EDITED: self.by_editor,
            When.PRUNED: pruned,
            When.SECRET: exchange is not None and exchange.has_secrets,
            When.REMEMBERED: exchange is not None and exchange.remembers,
            When.RECEIVED: bool(self.received_rounds),
        }
        return frozenset(when for when, has in known.items() if has)

    def misfits(self, pruned: bool, exchange: Exchange | None) -> Iterator[str]:
        """Which files it has that such a run has not, or lacks, in words."""
        unknown = {When.SECRET, When.REMEMBERED} if exchange is None else set()
        unknown |= {When.RECORDED} if self.is_child else set()
        executed = range(1, self.rounds_executed + 1)
        received = [number for number in self.received_rounds if number in executed]
        yield from misfits(self.files.keys(), self.having(pruned, exchange), self.checkpoints, unknown, received)
        own = set(self.own_rounds) if self.info.get("received") else set[int]()
        if own != set(received) & set(self.own_rounds) or (received and self.by_editor):
            yield f"has records of other rounds than those that came in messages, as {RUN} tells"
        keeps = exchange is not None and exchange.clients_keep
        if keeps and received and set(received) != set(executed):
            yield "has rounds without a record, and only clients know what they kept by then"

    @cached_property
    def unlearner(self) -> Any:
        """The unlearner plugin of a child run, with the options that are recorded.

        EvidenceError where none is installed of that name, or none that takes them.
        """
        recorded = self.info["unlearner"]
        try:
            return registry.build("unlearners", {**recorded["options"], "use": recorded["use"]})
        except UsageError as error:
            raise EvidenceError(f"the unlearner that {RUN} names cannot be used: {error}") from None


@dataclass(frozen=True)
class Stored(WithInfo):
    """The files of a run, whose manifest, digests and ledger agree.

    Attributes:
        path: the folder.
        digest: of the manifest's list of files: the identity of the run. The ledger, which holds times, is
            tied to it by its last event, and is not part of it.
        info: ``run.json``: kind, parent, unlearner, versions, engine, device.
        files: path -> digest and size of every file; empty for one that is still growing.
        documents: what was read of JSON files.
        redacted: whether what is the clients' own was left out, all of it; of a sealed view too.
        sealed: whether it is a sealed view: all was left out that the server may not be given.
        homes: the folders that it lies in, and those in which links lie by which it was opened.
    """

    path: Path
    digest: str
    info: dict[str, Any]
    files: dict[str, dict[str, Any]]
    ledger: Ledger
    config: Config = field(repr=False)
    documents: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    redacted: bool = False
    homes: tuple[Path, ...] = field(default=(), repr=False, compare=False)
    sealed: bool = False

    def read(self, name: str) -> bytes:
        """The content of a file: that which was hashed when the run was opened.

        Raises:
            EvidenceError: the run has no such file, or it was exchanged since.
        """
        if self.sealed and is_withheld(name):
            raise RedactedError(
                f"{self.path.name} is a sealed view: {name} is not in it, for the server may not be given that",
                "The operator has it, and may give it to an auditor: ask for the whole run.",
            )
        if self.redacted and is_clients_own(name):
            raise RedactedError(
                f"{self.path.name} is redacted: {name} stays with the clients", "Ask for the whole run."
            )
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
    def received_rounds(self) -> tuple[int, ...]:
        """See :class:`WithInfo`; of one that is still growing those that came so far."""
        return received_in(self.files or names_in(self.path, torn=True))

    @property
    def pruned(self) -> bool:
        """Whether seeds and ids that were needed for earlier populations only were destroyed in this run."""
        return self.ledger.kinds[-1:] == ["pruned"]

    @cached_property
    def exchange(self) -> Exchange:
        """The exchange of its rounds."""
        return exchange_of(self.config, self.rests_on_messages)

    @cached_property
    def learner(self) -> Any:
        """The learner plugin."""
        return registry.build("learners", self.config.learner)

    @cached_property
    def law(self) -> Law:
        """How cohorts and batches are drawn; one of fuaudit's is made anew, so no plugin holds it.

        PluginError where a law of a stranger has the name of one of fuaudit's.
        """
        law: Law = self.learner.law
        require_own_name(law)
        made: Law = remade(law)
        return made
