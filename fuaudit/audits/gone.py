"""What is gone: files that a prune took away, and models of rounds that were not kept, of which digests are told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fuaudit.commitments.tree import DIGEST_BYTES
from fuaudit.formats.forms import canonical_json
from fuaudit.runs.encoding import digest_of_vector
from fuaudit.runs.layout import FORMER, MANIFEST, RUN, round_of
from fuaudit.runs.ledger import models_told
from fuaudit.runs.manifest import limit_of
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.text import counted

Chain = Sequence[Run | Tombstone]


def told_of_gone(chain: Chain) -> str:
    """How much is told of what is gone, as a sentence; empty for nothing.

    Not counted is what a child has kept, under its name or of its round: an honest parent had just that. Equal to
    anything else at hand, it would tell by its choice among what is at hand.

    Args:
        chain: the run and its ancestors, the youngest first.
    """
    files, models = list(_files(chain)), sum(1 for _ in _models(chain))
    room = sum(DIGEST_BYTES + -(-limit_of(name).bit_length() // 8) for name in files) + DIGEST_BYTES * models
    if not room:
        return ""
    of_files = f"and sizes of {counted(len(files), 'file')}"
    of_models = f"of {counted(models, 'model')}"
    what = f"{of_files}, and digests {of_models}," if files and models else of_files if files else of_models
    are = "is" if len(files) + models == 1 else "are"
    return f"Digests {what} that {are} gone are as told: {counted(room, 'byte')}, with which nothing here was compared."


def told_of_rounds(chain: Chain) -> str:
    """How much stages told of rounds that an ancestor alone executed, as a sentence; empty for nothing."""
    rounds = [
        line["told"]
        for run, last in zip(chain, last_compared(chain), strict=True)
        for line in run.ledger.of_kind("round")
        if "told" in line and line["round"] > last
    ]
    if not rounds:
        return ""
    return (
        f"What stages told of {counted(len(rounds), 'round')} of ancestors is as told: "
        f"{counted(sum(len(canonical_json(told)) for told in rounds), 'byte')}, with which nothing here was compared."
    )


def last_compared(chain: Chain) -> Iterator[int]:
    """For the run and each ancestor the last round of which replay compares what its ledger tells.

    Further above only what all below kept is asked for: the rest was executed anew, by others.
    """
    last = chain[0].rounds_executed
    for run in chain:
        yield last
        last = min([last, *(event.get("kept_rounds", 0) for event in run.ledger.of_kind("unlearning"))])


def _files(chain: Chain) -> Iterator[str]:
    """Names in manifests of what a prune left, and of before a prune, whose entries no child and no run answers for."""
    for at, run in enumerate(chain):
        if isinstance(run, Tombstone):
            there = (name for name in run.files if name != RUN)  # a stone has its run.json
            yield from (name for name in there if run.files[name] != _kept_entry(chain, at, name))
            yield from [MANIFEST] * len(run.ledger.of_kind("pruned"))  # its digest of before
        elif run.has(FORMER):
            before = run.document(FORMER)["files"]
            yield from (name for name, entry in before.items() if entry != run.files.get(name))


def _kept_entry(chain: Chain, at: int, name: str) -> object:
    """What those who kept a file of the one at a place list under its name; None for nothing."""
    number = round_of(name)
    kept_by = chain[at - 1 : at] if number is None else _keepers(chain, at, number)
    return _first(name, (child.files for child in kept_by))


def _models(chain: Chain) -> Iterator[int]:
    """Rounds of which a tombstone's ledger tells a model that no child has kept."""
    digests: list[Mapping[int, str]] = []
    if any(isinstance(run, Tombstone) for run in chain):
        digests = [_digests(run) for run in chain]
    for at, (run, told) in enumerate(zip(chain, digests, strict=False)):
        if isinstance(run, Tombstone):
            for number, digest in told.items():
                kept = len(list(_keepers(chain, at, number)))
                if digest != _first(number, reversed(digests[at - kept : at])):
                    yield number


def _digests(run: Run | Tombstone) -> Mapping[int, str]:
    """The digests of models by round: of all that a run stores, of those that a tombstone's ledger tells."""
    if isinstance(run, Tombstone):
        return models_told(run.ledger)
    return {number: digest_of_vector(model) for number, model in run.models.items()}


def _keepers(chain: Chain, at: int, round_number: int) -> Iterator[Run | Tombstone]:
    """Those younger than the one at a place which kept its model of a round, each from the one before it."""
    for child in reversed(chain[:at]):
        if child.by_editor or int(child.info["first_change"][0]) <= round_number:
            return
        yield child


def _first(name: Any, tables: Iterable[Mapping[Any, object]]) -> object:
    """What the first table says that has a name; None for none."""
    return next((table[name] for table in tables if name in table), None)
