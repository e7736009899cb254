"""Tombstones: what a prune leaves of an ancestor. Digests of its files and its ``run.json``; no key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fuaudit.config import Config
from fuaudit.errors import EvidenceError
from fuaudit.formats.files import sha256
from fuaudit.formats.forms import pretty_json
from fuaudit.runs.layout import CONFIG, RUN, TOMBSTONE, file_of, names_in, stored_rounds
from fuaudit.runs.ledger import Ledger, read_ledger, wrong_course
from fuaudit.runs.manifest import digest_of_files, limit_of, read_form
from fuaudit.runs.stored import WithInfo
from fuaudit.training.exchange import OF_ITS_OWN, Exchange, exchange_of


@dataclass(frozen=True)
class Tombstone(WithInfo):
    """What a prune left of a run: its digest, those of its files, its ``run.json``; no key."""

    path: Path
    digest: str
    files: dict[str, Any]
    info: dict[str, Any]
    config: Config | None = field(default=None, repr=False, compare=False)
    """That of its child, which is its own."""

    @cached_property
    def ledger(self) -> Ledger:
        """The events of the run that was here; a prune leaves them as they are."""
        return read_ledger(self.path)


def read_tombstone(path: Path, config: Config | None = None) -> Tombstone:
    """The tombstone in a pruned run's folder, of a run with a config; EvidenceError when it is not one."""
    if strange := [name for name in names_in(path, torn=True) if file_of(name) is None]:
        raise EvidenceError(f"{path} holds what neither a run nor a tombstone has: {', '.join(strange[:5])}")
    at = path / TOMBSTONE
    stone = Tombstone(path, **read_form(path, TOMBSTONE), config=config)
    if not {RUN, CONFIG} <= stone.files.keys() or digest_of_files(stone.files) != stone.digest:
        raise EvidenceError(f"{at} is not a tombstone: its files do not have its digest")
    if sha256(pretty_json(stone.info)) != stone.files[RUN]["sha256"]:
        raise EvidenceError(f"{at} is not a tombstone: its copy of {RUN} is another")
    ledger = stone.ledger
    if ledger.events[-1].get("digest") != stone.digest or wrong_course(ledger, stone.info, stone.checkpoints):
        raise EvidenceError(f"the ledger of {path} is not that of the run that its tombstone names")
    wrong = _wrong_files(stone, ledger.kinds[-1] == "pruned")
    if not wrong and config is not None and (unlike := stone.unlike(config)):
        wrong = f"it {unlike}"
    if wrong:
        raise EvidenceError(f"{at} is not that of a run: {wrong}")
    return stone


def _tales_of_none(stone: Tombstone, exchange: Exchange) -> Iterator[str]:
    """Which parts its ledger makes tell of rounds, in words, that tell nothing; in what order would be told, too."""
    for event in stone.ledger.of_kind("round"):
        for told in event.get("told", ()):
            if not exchange.may_tell(told) or not _is_in_order(event["told"]):
                yield f"its ledger holds what {told['part']} told of round {event['round']}, and that tells nothing"


def _is_in_order(told: Sequence[Mapping[str, Any]]) -> bool:
    """Whether an exchange tells the events of its own so: by what they are of, by client, and one of each but rows."""
    own = [(event.get("why"), event.get("client", 0)) for event in told if event["part"] == "exchange"]
    places = [(OF_ITS_OWN.index(why), client) for why, client in own if why in OF_ITS_OWN]
    once = [place for place in places if place[0]]
    return places == sorted(places) and len({*once}) == len(once)


def _wrong_files(stone: Tombstone, pruned: bool) -> str:
    """What a tombstone lists that such a run did not have, or lacks; empty for nothing."""
    exchange = exchange_of(stone.config, stone.rests_on_messages) if stone.config else None
    if wrong := next(stone.misfits(pruned, exchange), ""):
        return f"by its list it {wrong}"
    if any(entry["size"] > limit_of(name) for name, entry in stone.files.items()):
        return "it lists a file that is larger than such files are"
    if stone.files[RUN]["size"] != len(pretty_json(stone.info)):
        return f"its copy of {RUN} has another size"
    if exchange and (tale := next(_tales_of_none(stone, exchange), "")):
        return tale
    editor = stone.by_editor
    every, last = stone.config.run.checkpoint_every if stone.config else 0, stone.rounds_executed
    if editor and stone.checkpoints != (last,):
        return "it lists models of other rounds than an editor stores"
    # counted before they are listed: the last round may be any number
    if every and not editor and (last // every > len(stone.files) or stone.checkpoints != stored_rounds(every, last)):
        return "it lists models of other rounds than its config stores"
    return ""
