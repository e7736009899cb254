"""The files of a run: each is named once, here, with its form, its fields, and who may read it.

What writes a run, opens it, lists what nothing regenerates, or tells a reader what a file is for, asks this table. A
file, a field, a tensor or an event that is not in it is in no run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from fuaudit.commitments.contents import MORE
from fuaudit.commitments.secrets import MADE
from fuaudit.commitments.view import is_node
from fuaudit.data.partition import is_name
from fuaudit.errors import EvidenceError
from fuaudit.formats.schema import PARTICIPATION as TAKING_PART
from fuaudit.formats.schema import (
    SALT,
    Fields,
    Shape,
    among,
    are_doubts,
    are_ids,
    are_options,
    by_id,
    either,
    is_beacon,
    is_count,
    is_digest,
    is_flag,
    is_folder_name,
    is_loss,
    is_machine,
    is_nothing,
    is_position,
    is_share,
    is_text,
    is_time,
    is_version,
    is_word,
    listed,
)
from fuaudit.runs.forms import (
    OTHERS,
    Checkpoint,
    Deliveries,
    Elsewhere,
    Envelopes,
    Json,
    Lines,
    Memories,
    Tensors,
    Toml,
)
from fuaudit.secure.names import EXACT

FORMAT = "fuaudit run 2"

_NUMBER = "NNNNNN"

MANIFEST = "manifest.json"
LEDGER = "ledger.jsonl"
RUN = "run.json"
CONFIG = "config.toml"
PARTITION = "partition.safetensors"
CONTENTS = "contents.safetensors"
CLIENTS = "clients.json"
PLAN = "plan.json"
KEYS = "keys.json"
RECORDED = "recorded.safetensors"
EDIT = "edit.json"
CHECKPOINT = f"checkpoints/{_NUMBER}.safetensors"
CLIENTS_FOLDER = "clients/"
MEMORIES = f"{CLIENTS_FOLDER}{_NUMBER}.safetensors"
SECRETS = f"{CLIENTS_FOLDER}secrets.json"
RECEIVED = f"received/{_NUMBER}.safetensors"
TRANSCRIPT_FOLDER = "transcript/"
CHAIN = f"{TRANSCRIPT_FOLDER}chain.jsonl"
BODIES = f"{TRANSCRIPT_FOLDER}{_NUMBER}.bodies"
BEGUN = f"{TRANSCRIPT_FOLDER}begun.json"
"""Of a run that broke off, until its next round is stored. No finished run has it."""
INVOLVEMENT = "involvement.safetensors"
METRICS = "metrics.json"
PARTICIPATION = "participation.json"
MODEL = "model.safetensors"
FORMER = "former-manifest.json"
TOMBSTONE = "tombstone.json"
VIEW = "view.json"

PRUNING = ".pruning"
BEFORE_PRUNE = ".before-prune"
AUDIT = ".audit"
BESIDE = (PRUNING, BEFORE_PRUNE, AUDIT)
"""What names of folders beside a run add to its own. No run is called so: what lies there may go with the run."""

# --- what fields and tensors there are


def _are_segments(value: object) -> bool:
    return isinstance(value, list) and all(are_ids(row) and len(row) == 4 for row in value)


_ENTRY = Fields({"sha256": is_digest, "size": is_count})


def _are_files(value: object) -> bool:
    return isinstance(value, dict) and all(file_of(name) and _ENTRY(inner) for name, inner in value.items())


_DIGESTS = "names", "rows", "tests"


def _is_part(value: object) -> bool:
    """Of a tree of seeds: first leaf, end, what is held, and 64 hexadecimal digits."""
    return (
        isinstance(value, list)
        and len(value) == 4
        and are_ids(value[:2])
        and value[2] in ("seed", "digest")
        and is_digest(value[3])
    )


_VERSIONS = Fields(
    dict.fromkeys(("fuaudit", "python", "torch", "numpy"), is_version)
    | dict.fromkeys(("platform", "processor"), is_machine)
)
_PLUGIN = Fields({"kind": is_word, "use": is_word, "distribution": is_version, "version": is_version})


def _are_plugins(value: object) -> bool:
    """Rows of plugins; those of one distribution have one version."""
    if not (isinstance(value, list) and all(map(_PLUGIN, value))):
        return False
    installed = {(row["distribution"], row["version"]) for row in value}
    return len(installed) == len(dict(installed))


_COMMON: dict[str, Shape] = {
    "format": among(FORMAT),
    "kind": among("training", "unlearning"),
    "rounds_executed": is_count,
    "engine": among("reference", "threads", "batched", "grouped", "compiled"),
    "device": among("cpu", "cuda"),
    "versions": _VERSIONS,
    "plugins": _are_plugins,
    "beacon": either(is_nothing, is_beacon),
}
_UNLEARNER = Fields(
    {
        "use": is_word,
        "options": are_options,
        "kind": among("rewriter", "editor"),
        "distribution": is_version,
        "version": is_version,
        "guarantee": is_text,
        "cite": is_text,
    }
)
_CHILD: dict[str, Shape] = {
    "parent": Fields({"digest": is_digest, "name": is_folder_name}),
    "unlearner": _UNLEARNER,
    "first_change": is_position,
    "doubts": are_doubts,
}


_RECEIVED: dict[str, Shape] = {"received": lambda value: value is True}


def wrong_info(value: Any) -> list[str]:
    """Names of the fields of ``run.json`` that are missing, wrong or unknown."""
    is_child = isinstance(value, dict) and value.get("kind") == "unlearning"
    needed, optional = (_COMMON | _CHILD, {"edited_by": is_word}) if is_child else (_COMMON, {})
    wrong = Fields(needed, optional | _RECEIVED).wrong(value)
    if is_child and not wrong:
        made = value["unlearner"]
        wrong += [] if value.get("edited_by") == (made["use"] if made["kind"] == "editor" else None) else ["edited_by"]
    return wrong


_REQUEST = Fields({"clients": are_ids, "samples": are_ids})
_STREAMS = Fields(dict.fromkeys(("initial", "cohorts", "batches"), _are_segments))


_PLAN = Fields({"streams": _STREAMS, "requests": listed(_REQUEST)})
_KEYS = Fields({"seeds": listed(_is_part), "partition": either(is_nothing, is_digest), "partition_digest": is_digest})
_NAMES = either(is_nothing, by_id(is_name))
_CLIENTS = Fields({"names": _NAMES, "salts": either(is_nothing, listed(_is_part))})
_SECRETS = Fields(
    {
        "made": among(*MADE),
        "shared": listed(is_digest),
        "generations": listed(by_id(is_digest)),
        "names": _NAMES,
        "salts": listed(_is_part),
    },
    {"parties": listed(is_digest)},
)
_VIEW = Fields(
    {
        "partition_digest": is_digest,
        "seeds_digest": is_digest,
        "clients": listed(is_node),
        "tests": is_count,
        "tests_digest": is_digest,
        "parties": listed(is_digest),
        "contexts": listed(is_digest),
    }
)
_TOMBSTONE = Fields({"digest": is_digest, "files": _are_files, "info": lambda value: not wrong_info(value)})
_MANIFEST = Fields({"format": among(FORMAT), "files": _are_files, "digest": is_digest, "ledger": is_digest})


def _wrong_manifest(value: Any) -> list[str]:
    """Names of the fields of ``manifest.json`` that are missing, wrong or unknown: of files too that no run has."""
    wrong = _MANIFEST.wrong(value)
    if "files" not in wrong or not isinstance(value.get("files"), dict):
        return wrong
    files = [f"files.{name}" for name, entry in value["files"].items() if not (file_of(name) and _ENTRY(entry))]
    return [name for name in wrong if name != "files"] + files


_MESSAGE = Fields({"sender": is_word, "receiver": is_word, "size": is_count})
_FIGURES = listed(Fields({"round": is_count, "test_loss": is_loss, "test_accuracy": is_share}))


def _wrong_participation(value: object) -> list[str]:
    """What a learner concludes besides is its own; whether there may be such is asked where the learner is known."""
    others = dict.fromkeys(value, lambda inner: True) if isinstance(value, dict) else {}
    return Fields(TAKING_PART, others | {SALT: is_digest}).wrong(value)


_EVENTS: dict[str, tuple[dict[str, Shape], ...]] = {
    "commitment": ({"commitment": is_digest},),
    "secured": ({"suite": among(*EXACT), "library": is_version},),
    "request": ({"clients": are_ids, "samples": are_ids, "parent": is_digest},),
    "platform": ({"since": is_count, "versions": _VERSIONS, "plugins": _are_plugins, "canary": is_digest},),
    "unlearning": ({"first_change": is_position, "kept_rounds": is_count}, {"messages": is_count, "bytes": is_count}),
    "round": ({"round": is_count, "model": is_digest}, {"round": is_count}),
    "sealed": ({"digest": is_digest},),
    "pruned": ({"digest": is_digest, "before": is_digest},),
}
_TOLD: dict[str, dict[str, Shape]] = {
    "sent": {"client": is_count, "what": is_word, "size": is_count},
    "answered": {"what": is_word, "size": is_count},
    "summed": {"rows": listed(is_count), "discarded": is_count, "failed": is_flag},
    "released": {"mechanism": is_word, "parameters": are_options},
    "rejected": {"client": is_count, "why": is_word},
    "suspected": {"clients": are_ids, "why": is_word},
    "failed": {"why": is_word},
}
_STAGE_EVENTS = [Fields({"kind": among(kind), "part": is_word, **form}) for kind, form in _TOLD.items()]


def are_stage_events(value: object) -> bool:
    """Events of a round, one at least."""
    return bool(value) and listed(either(*_STAGE_EVENTS))(value)


def is_timed(kind: str) -> bool:
    """Whether an event tells its time. Of rounds there are many, and a model had room in their times."""
    return kind != "round"


_OPTIONAL: dict[str, dict[str, Shape]] = {"round": {"told": are_stage_events, "transcript": is_digest}}
EVENTS: Mapping[str, tuple[Fields, ...]] = {
    kind: tuple(
        Fields(
            {"event": among(kind), "previous": is_digest, **({"time": is_time} if is_timed(kind) else {}), **form},
            _OPTIONAL.get(kind, {}),
        )
        for form in forms
    )
    for kind, forms in _EVENTS.items()
}
"""Kind of event -> the fields that it has.

An event of unlearning is that of a rewriter or that of an editor; one of a round names its model where that is stored.
"""

# --- the table


class Reader(StrEnum):
    """Who there is.

    The operator holds the whole folder and reads everything. The server takes part in rounds: it sees models and who is
    in a round, no key, and of samples the ids alone that requests name. A client is one of many: what all of them may
    read is everybody's, or is sent to each; of other files she may be given her own part. The auditor has what a
    verdict needs. An archive keeps all but the clients' own, which are secrets and what follows from them: it holds
    redacted runs. What the server may be given is a sealed view.
    """

    OPERATOR = "operator"
    SERVER = "server"
    CLIENT = "client"
    AUDITOR = "auditor"
    ARCHIVE = "archive"
    EVERYBODY = "everybody"


class When(StrEnum):
    """Which runs have a file."""

    ALWAYS = "every run"
    EDITED = "a run whose model an editor made"
    RECORDED = "a run with draws that no seed gives"
    SECRET = "a run in whose rounds clients keep, draw or sign something"
    REMEMBERED = "a run in whose rounds clients keep something"
    RECEIVED = "a run with rounds that came in messages"
    SECURED = "a run whose sums a suite made"
    SUMMED = "a run whose sums a suite made, until a prune"
    PRUNED = "a run that was pruned"
    BURIED = "what a prune leaves of an ancestor"
    SEALED = "a sealed view"


@dataclass(frozen=True)
class Held:
    """How the copy of a file in an ancestor holds what was erased since.

    Attributes:
        what: it holds, in words.
        by_model: whether it holds that only where the model of its round does; of no round, the last model.
        undrawn: what it holds where no round drew what was erased; empty for the same.
    """

    what: str
    by_model: bool = False
    undrawn: str = ""


@dataclass(frozen=True)
class File:
    """A file of a run: one row says all that is asked of it. Whoever writes it, or reads what it tells, is not here.

    Attributes:
        name: its path in the folder, with ``/``; ``NNNNNN`` stands for the number of a stored round.
        role: what it is for.
        form: how it is written, and how its numbers are compared on another platform.
        readers: who may be given the whole, besides the operator. `redact` asks of archives, `seal` of the server; the
            rest is for whoever hands files on, and is told by docs/run-format.md.
        own: what of it a client may be given who may not have the whole: her own part, in words; empty for nothing.
        when: which runs have it.
        exempt: why nothing regenerates it; empty where the retained data and the plan do.
        first: whether it is written before the first round.
        listed: whether the manifest lists it.
        opens: whether it opens something: the disk of whoever holds the run shows it to its owner alone.
        destroyed: what of it a prune of the run destroys; empty where the prune leaves its bytes.
        stays: whether it stays where a prune buries the run as an ancestor.
        held: how its copy in an ancestor holds what was erased since; None where it does not.
        tells: what in it was computed from private rows under no mechanism, in words; empty for nothing.

    Raises:
        ValueError: it is regenerated, and its form does not say how its fractions are compared on another platform.
    """

    name: str
    role: str
    form: Json | Tensors | Toml | Lines | Envelopes
    readers: tuple[Reader, ...]
    when: When = When.ALWAYS
    exempt: str = ""
    first: bool = False
    own: str = ""
    listed: bool = True
    opens: bool = False
    destroyed: str = ""
    stays: bool = False
    held: Held | None = None
    tells: str = ""

    def __post_init__(self) -> None:
        if self.regenerated and isinstance(self.form, Json) and self.form.numbers is None:
            raise ValueError(f"{self.name} is regenerated: its form says in `numbers` how fractions are compared")
        named = (self.form.named or {}).values() if isinstance(self.form, Tensors) else ()
        if self.regenerated and any(kind.startswith("float") for kind, _ in named):
            raise ValueError(f"{self.name} is regenerated: fractions that are no model belong into JSON")

    @property
    def each_round(self) -> bool:
        """Whether there is one for every stored round, or for every one that came in messages."""
        return _NUMBER in self.name

    def is_for(self, reader: Reader) -> bool:
        """Whether somebody may be given the whole."""
        return reader is Reader.OPERATOR or bool({reader, Reader.EVERYBODY} & set(self.readers))

    @property
    def is_clients_own(self) -> bool:
        """Whether it stays with the clients: a redacted run, which any archive may keep, lacks it."""
        return not self.is_for(Reader.ARCHIVE)

    @property
    def is_withheld(self) -> bool:
        """Whether the server may not be given it: a sealed view lacks it."""
        return not self.is_for(Reader.SERVER)

    @property
    def given_to(self) -> str:
        """Who may be given it, in words; with a client's own part."""
        return ", ".join([*self.readers, *([f"client ({self.own})"] if self.own else [])])

    @property
    def regenerated(self) -> bool:
        """Whether the retained data and the plan give its bytes."""
        return not self.exempt


def _table(*files: File) -> dict[str, File]:
    table = {file.name: file for file in files}
    if len(table) != len(files):
        raise ValueError("a file is named twice")
    return table


def _integers(**axes: int) -> Tensors:
    """Whole numbers, and a salt where clients have secrets: the digest, which everybody may read, confirms no guess."""
    return Tensors({name: ("int64", count) for name, count in axes.items()}, {SALT: ("uint8", 1)})


_OWN, _AUDITOR, _ALL = (Reader.AUDITOR,), (Reader.AUDITOR, Reader.ARCHIVE), (Reader.EVERYBODY,)
_SERVER = (Reader.SERVER, *_AUDITOR)
FILES: dict[str, File] = _table(
    File(
        MANIFEST,
        "the list of files with their digests: the identity of the run",
        Json(_wrong_manifest, FORMAT),
        _ALL,
        exempt="it follows from the other files",
        listed=False,
    ),
    File(
        LEDGER,
        "the events of the run, each with the digest of the one before",
        Lines(),
        _SERVER,
        exempt="it holds digests, and times of few events; what stages told in it is made again by replay",
        first=True,
        listed=False,
        stays=True,
        tells="digests of models, and what stages told of every round",
    ),
    File(
        RUN,
        "what made the run: versions, plugins, beacon, parent, unlearner",
        Json(wrong_info, FORMAT),
        _SERVER,
        exempt="it says how the run came about; each field has a bounded shape",
        first=True,
    ),
    File(
        CONFIG, "the resolved config", Toml(), _ALL, exempt="it is what was asked for, and is committed to", first=True
    ),
    File(
        PARTITION,
        "who owned what when training started",
        _integers(clients=1, ends=1, samples=1),
        _AUDITOR,
        exempt="the commitment covers it",
        first=True,
        own="her ids",
        destroyed="ids of erased clients' rows",
    ),
    File(
        CONTENTS,
        "salted leaves of what every row holds; who signs, and the ends of chains of lots",
        Tensors(
            {**dict.fromkeys(("clients", "ends"), ("int64", 1)), **dict.fromkeys(_DIGESTS, ("uint8", 2))},
            dict.fromkeys(MORE, ("uint8", 2)),
        ),
        _AUDITOR,
        exempt="the commitment covers them",
        first=True,
        own="her leaves, her key and her end, and the way to the root",
    ),
    File(
        CLIENTS,
        "names of clients, and the salts of leaves",
        Json(_CLIENTS.wrong),
        _AUDITOR,
        exempt="they have to open the leaves",
        first=True,
        own="her name and salts",
        opens=True,
        destroyed="names and salts of erased clients",
    ),
    File(
        PLAN,
        "which generation and population every draw comes from, and the requests",
        Json(_PLAN.wrong),
        _SERVER,
        exempt="the audit provenance repeats it",
        first=True,
    ),
    File(
        RECORDED,
        "draws that no seed gives",
        _integers(addresses=2, ends=1, ids=1),
        _AUDITOR,
        When.RECORDED,
        exempt="a rewriter chose them",
        first=True,
        destroyed="draws that the plan does not read",
    ),
    File(
        EDIT,
        "the messages of an editor",
        Json(Fields({"messages": listed(_MESSAGE)}).wrong),
        _SERVER,
        When.EDITED,
        exempt="the audit provenance makes the edit again",
    ),
    File(
        CHECKPOINT,
        "model and memories after a round",
        Checkpoint(),
        _SERVER,
        held=Held("model", by_model=True),
        tells="models, and what solver and server remember",
    ),
    File(
        MEMORIES,
        "what clients keep after a round",
        Memories(),
        _OWN,
        When.REMEMBERED,
        own="her row",
        held=Held("what clients keep", by_model=True),
        tells="what clients keep, row by row",
    ),
    File(
        SECRETS,
        "secrets of clients, a generation after the other, and of those who sign sums; names, and the salts of leaves",
        Json(_SECRETS.wrong),
        _OWN,
        When.SECRET,
        exempt="the commitment covers their digests",
        first=True,
        own="her secret, name and salts",
        destroyed="secrets, names and salts of erased clients",
        held=Held("gives what erased clients drew back; prune destroys it"),
    ),
    File(
        RECEIVED,
        "what came of a round in messages: rows and who sent them, or means of sums; who did not answer",
        Deliveries(),
        _SERVER,
        When.RECEIVED,
        exempt="it came in messages, and can hold anything",
        held=Held("what came in messages", by_model=True),
        tells="rows of clients, or sums of them, as they came",
    ),
    File(
        CHAIN,
        "a line for each message of secure sums, each with the digest of the line before",
        Lines(2**30),
        _SERVER,
        When.SECURED,
        exempt="keys and masks are never drawn twice; the ledger holds its head after every round",
        listed=False,
    ),
    File(
        BODIES,
        "the messages of the secure sums of a round",
        Envelopes(),
        _SERVER,
        When.SUMMED,
        exempt="keys and masks are never drawn twice; the chain holds the digest of each, and ciphertexts can hold "
        "anything",
        listed=False,
        tells="sums of clients' rows, columns that clients agreed on, and rows that are masked, encrypted, or in the "
        "suite plain as they are",
    ),
    File(INVOLVEMENT, "first involvements", _integers(clients=2, samples=2), _AUDITOR, own="her rounds"),
    File(
        METRICS,
        "test loss and accuracy of the stored rounds",
        Json(
            lambda value: [] if value and _FIGURES(value) else [""],
            numbers={"test_loss": Elsewhere.NEAR, "test_accuracy": Elsewhere.SAME},
        ),
        _ALL,
        tells="loss and accuracy on test rows, which can be of clients, of models that were trained on private ones",
    ),
    File(
        PARTICIPATION,
        "who took part, and how the final model serves each client",
        # what a learner concludes follows from who took part
        Json(_wrong_participation, numbers={"own_accuracy": Elsewhere.SAME, OTHERS: Elsewhere.EXACT}),
        _AUDITOR,
        own="her rounds and her accuracy",
        tells="the accuracy of the final model on every client's own rows",
    ),
    File(
        MODEL,
        "the final model by the names of its parameters",
        Tensors(),
        (Reader.SERVER, Reader.CLIENT, *_AUDITOR),
        held=Held("final model", by_model=True),
        tells="the final model",
    ),
    File(
        KEYS,
        "the tree of seeds, and the key of the partition",
        Json(_KEYS.wrong),
        _AUDITOR,
        exempt="the commitment covers them",
        first=True,
        opens=True,
        destroyed="seeds of draws over earlier populations, and the key of the partition",
        held=Held(
            "gives every erased draw back; prune destroys it",
            undrawn="with the partition, gives the draws over the old population back",
        ),
    ),
    File(
        FORMER,
        "the manifest of before a prune, which names the run that was verified then",
        Json(_wrong_manifest, FORMAT),
        _ALL,
        When.PRUNED,
        exempt="it follows from what was there",
    ),
    File(
        TOMBSTONE,
        "run.json and digests of what was there",
        Json(_TOMBSTONE.wrong),
        _SERVER,
        When.BURIED,
        exempt="it is about a run that is gone",
        stays=True,
    ),
    File(
        VIEW,
        "what opens the commitment to the server: keys of those who sign, ends of chains, and the way to the root",
        Json(_VIEW.wrong),
        _SERVER,
        When.SEALED,
        exempt="the commitment covers it",
        listed=False,
    ),
)
"""Path, with ``NNNNNN`` for a round -> the file: every one that can be in the folder of a run.

Copies in ancestors are named in this order.
"""

_ROUND = re.compile(r"(?<=/)[0-9]{6}(?=\.)")


def of_round(name: str, round_number: int) -> str:
    """The path of the file of a stored round inside a run."""
    return name.replace(_NUMBER, f"{round_number:06d}")


def round_of(name: str) -> int | None:
    """The stored round that a path is of; None for no round."""
    found = _ROUND.search(name)
    return int(found.group()) if found else None


def is_clients_own(name: str) -> bool:
    """Whether a file of a run is the clients' own: a redacted run, which any archive may keep, lacks it."""
    file = file_of(name)
    return file is not None and file.is_clients_own


def is_withheld(name: str) -> bool:
    """Whether the server may not be given a file of a run: a sealed view lacks it."""
    file = file_of(name)
    return file is None or file.is_withheld


def is_listed(name: str) -> bool:
    """Whether the manifest lists a file; also one that no run has, since it is not to be there."""
    file = file_of(name)
    return file is None or file.listed


def replaced(name: str) -> bool:
    """Whether a prune writes a file of the run anew."""
    file = file_of(name)
    return file is not None and bool(file.destroyed)


def stays(name: str) -> bool:
    """Whether a file stays where a prune buries its run."""
    file = file_of(name)
    return file is not None and file.stays


def files_of_such(having: Collection[When], rounds: Collection[int], received: Collection[int] = ()) -> set[str]:
    """The paths that the manifest of a run lists, by what is known of it and the rounds whose models it stores.

    ``received``: the rounds that came in messages.
    """
    files = [file for file in FILES.values() if file.listed and file.when in having]
    return {file.name for file in files if not file.each_round} | {
        of_round(file.name, number)
        for file in files
        if file.each_round
        for number in (received if file.when is When.RECEIVED else rounds)
    }


def misfits(
    found: Set[str],
    having: Collection[When],
    rounds: Collection[int],
    unknown: Collection[When] = (),
    received: Collection[int] = (),
) -> Iterator[str]:
    """What a list of files has that such a run has not, or lacks, in words; of what is ``unknown`` either may be."""
    expected, possible = files_of_such(having, rounds, received), files_of_such(unknown, rounds)
    for name in sorted((found ^ expected) - possible):
        when = FILES[_of_any(name)].when
        if name in expected:
            yield f"lacks {name}, which {when} has"
        else:
            yield f"has {name}, which {'such a run has not' if when in having else f'only {when} has'}"


def mode_of(name: str) -> int:
    """Who may read a file on the disk of whoever holds the run: its owner alone, where it opens something."""
    file = file_of(name)
    return 0o600 if file and (file.opens or file.is_clients_own) else 0o644


def rounds_in(names: Iterable[str]) -> tuple[int, ...]:
    """The rounds whose models are among some files of a run, ascending."""
    return tuple(sorted(int(Path(name).stem) for name in names if file_of(name) is FILES[CHECKPOINT]))


def received_in(names: Iterable[str]) -> tuple[int, ...]:
    """The rounds that came in messages, by some files of a run, ascending."""
    return tuple(sorted(int(Path(name).stem) for name in names if file_of(name) is FILES[RECEIVED]))


def stored_rounds(every: int, rounds_executed: int) -> tuple[int, ...]:
    """The rounds after which training stores its model, ascending: 0 is before the first, and the last is stored."""
    return tuple(sorted({*range(0, rounds_executed + 1, every), rounds_executed}))


def file_of(name: str) -> File | None:
    """The file of that path; None for one that no run has."""
    return None if _NUMBER in name else FILES.get(_of_any(name))


def _of_any(name: str) -> str:
    """The path with ``NNNNNN`` in the place of its round."""
    return _ROUND.sub(_NUMBER, name)


def form_of(name: str) -> Any:
    """The form of a file that a run can have, by its path or by its name in the table."""
    file = FILES.get(name) or file_of(name)
    if file is None:
        raise KeyError(name)
    return file.form


def names_in(folder: Path, torn: bool = False) -> Iterator[str]:
    """The paths of the files in the folder of a run, sorted; nothing that no run has is looked into.

    Args:
        torn: a folder may be empty: a prune that was killed has taken the files out and not yet the folder.

    Raises:
        EvidenceError: a link, a device, an empty or unknown folder, or one that cannot be read.
    """
    return iter(sorted(_names_in(folder, "", torn)))


def _names_in(folder: Path, above: str, torn: bool) -> Iterator[str]:
    try:
        with os.scandir(folder) as found:
            entries = [
                (item.name, item.is_file(follow_symlinks=False), item.is_dir(follow_symlinks=False)) for item in found
            ]
    except OSError as error:
        raise EvidenceError(f"cannot read {folder}: {error.strerror or error}") from error
    if above and not entries and not torn:
        raise EvidenceError(f"{folder} is an empty folder, which no run has")
    for name, is_file, is_folder in entries:
        if is_folder and not above and any(path.startswith(f"{name}/") for path in FILES):
            yield from _names_in(folder / name, f"{name}/", torn)
        elif is_folder:
            raise EvidenceError(f"{folder / name} is a folder that no run has")
        elif is_file:
            yield above + name
        else:
            raise EvidenceError(f"{folder / name} is a link or a device; a run holds regular files only")
