"""Platforms: which machines made the models that a run stores, as its ledger tells, and whether another computes alike.

A run may be trained here, resumed there, unlearned elsewhere, and keep rounds that an ancestor's machine made. Each
machine that goes on with a run leaves an event; a child's ledger begins with those under which its kept rounds were
made, so a run tells of all of them also when no ancestor is at hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any

from fuaudit.runs.layout import RUN
from fuaudit.runs.ledger import PLATFORM, Ledger
from fuaudit.runs.run import read_info
from fuaudit.runs.writer import RunWriter, plugins_of, versions
from fuaudit.training.canary import canary
from fuaudit.training.setup import Setup

COUNTED = ("torch", "numpy", "platform", "processor")
"""The versions that count beside the canary. Equal canaries under other libraries or processors say only that these
agree on what was tried; Python and fuaudit itself do no arithmetic that the canary and the plugins do not cover."""


@dataclass(frozen=True)
class Platform:
    """What computed the rounds after ``since``, and measured: versions, plugins, and the canary of the config there."""

    since: int
    versions: Mapping[str, str]
    plugins: list[dict[str, str]]
    canary: str

    @classmethod
    def here(cls, ready: Setup, since: int) -> Platform:
        """What computes here, with a setup."""
        return cls(since, versions(ready.device.type), plugins_of(ready.config), canary(ready))

    @property
    def facts(self) -> dict[str, Any]:
        """The fields of its event."""
        return {
            "since": self.since,
            "versions": dict(self.versions),
            "plugins": self.plugins,
            "canary": self.canary,
        }

    def unlike(self, other: Platform) -> str:
        """In what another platform computes otherwise, or may; empty for nothing."""
        named = [name for name in COUNTED if self.versions.get(name) != other.versions.get(name)]
        named += ["plugins"] if self.plugins != other.plugins else []
        named += ["canary"] if self.canary != other.canary else []
        return ", ".join(named)


def told(ledger: Ledger) -> tuple[Platform, ...]:
    """All platforms that a ledger tells of, in order."""
    events = ledger.of_kind(PLATFORM)
    return tuple(Platform(e["since"], e["versions"], e["plugins"], e["canary"]) for e in events)


def makers(platforms: Iterable[Platform]) -> tuple[Platform, ...]:
    """Those whose work was not lost: before another one went on, they had stored a model."""
    found = tuple(platforms)
    return tuple(one for one, after in pairwise(found) if after.since > one.since) + found[-1:]


def made(ledger: Ledger, until: int, after: int = 0) -> tuple[Platform, ...]:
    """Those that made the models of the rounds ``after`` + 1 to ``until``; what they start from counts with 0."""
    found = makers(told(ledger))
    ends = [*(later.since for later in found[1:]), inf]
    return tuple(one for one, end in zip(found, ends, strict=True) if one.since < max(until, 1) and end > after)


def inherited(ledger: Ledger, kept: int) -> tuple[Platform, ...]:
    """Those that made the rounds 1 to ``kept`` of a parent, which a child keeps."""
    return made(ledger, kept) if kept else ()


def stand(writer: RunWriter, platform: Platform, kept: tuple[Platform, ...] = ()) -> None:
    """Tell of the platform that goes on with a run, unless it is the last one told of.

    ``kept``: those that made the rounds that a child keeps; it tells of them first.
    """
    known = told(writer.ledger)
    for one in kept[len(known) :]:
        writer.record(PLATFORM, **one.facts)
    own = known[len(kept) :]
    if not own:
        _begin(writer, platform)
    if not own or own[-1].unlike(platform):
        writer.record(PLATFORM, **platform.facts)


def _begin(writer: RunWriter, platform: Platform) -> None:
    """Let ``run.json`` name the platform that begins a run: one that was there before it stored nothing.

    Before its event: killed between the two, the next one to resume finds no event, and comes here again.
    """
    info = read_info(writer.path)
    begun = info | {"versions": dict(platform.versions), "plugins": platform.plugins}
    if begun != info:
        writer.write(RUN, begun)
