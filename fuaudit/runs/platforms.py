"""Platforms: which machines made the models that a run stores, as its ledger tells, and whether another computes alike.

A run may be trained here, resumed there, unlearned elsewhere, and keep rounds that an ancestor's machine made. Each
machine that goes on with a run leaves an event; a child's ledger begins with those under which its kept rounds were
made, so a run tells of all of them also when no ancestor is at hand.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any

from fuaudit import registry
from fuaudit.config import Config
from fuaudit.runs.ledger import PLATFORM, Ledger
from fuaudit.text import plain

if TYPE_CHECKING:
    from fuaudit.training.setup import Setup

COUNTED = ("torch", "numpy", "platform", "processor")
"""The versions that count beside the canary. Equal canaries under other libraries or processors say only that these
agree on what was tried; Python and fuaudit itself do no arithmetic that the canary and the plugins do not cover."""


def versions(device: str = "cpu") -> dict[str, str]:
    """What computed: a replay is bit for bit only where these agree. ``processor``: instruction set, or GPU model."""
    import torch

    return {
        "fuaudit": version("fuaudit"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": version("numpy"),
        "platform": plain(f"{platform.system()} {platform.machine()}"),
        "processor": plain(
            torch.cuda.get_device_name() if device == "cuda" else torch.backends.cpu.get_cpu_capability()
        ),
    }


def plugins_of(config: Config) -> list[dict[str, str]]:
    """Where the plugins of a config come from: one row of kind, name, distribution and version each."""
    found = [registry.find(kind, name) for kind, name in config.plugins]
    return [{"kind": e.kind, "use": e.name, "distribution": e.distribution, "version": e.version} for e in found]


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
        from fuaudit.training.canary import canary  # it imports torch

        return cls(since, versions(ready.device.type), plugins_of(ready.config), canary(ready))

    @property
    def facts(self) -> dict[str, Any]:
        """The fields of its event."""
        return asdict(self)

    def unlike(self, other: Platform) -> str:
        """In what another platform computes otherwise, or may; empty for nothing."""
        named = [name for name in COUNTED if self.versions.get(name) != other.versions.get(name)]
        named += ["plugins"] if self.plugins != other.plugins else []
        named += ["canary"] if self.canary != other.canary else []
        return ", ".join(named)


def platforms_of(ledger: Ledger) -> tuple[Platform, ...]:
    """All platforms that a ledger tells of, in order."""
    events = ledger.of_kind(PLATFORM)
    return tuple(Platform(e["since"], e["versions"], e["plugins"], e["canary"]) for e in events)


def makers(platforms: Iterable[Platform]) -> tuple[Platform, ...]:
    """Those whose work was not lost: before another one went on, they had stored a model."""
    found = tuple(platforms)
    return tuple(one for one, after in pairwise(found) if after.since > one.since) + found[-1:]


def makers_of(ledger: Ledger, until: int, after: int = 0) -> tuple[Platform, ...]:
    """Those that made the models of the rounds ``after`` + 1 to ``until``; what they start from counts with 0."""
    found = makers(platforms_of(ledger))
    ends = [*(later.since for later in found[1:]), inf]
    return tuple(one for one, end in zip(found, ends, strict=True) if one.since < max(until, 1) and end > after)


def went_on_elsewhere(ledger: Ledger, kept: int) -> tuple[int, ...]:
    """Behind which rounds a run that keeps so many went on where other results may come out, ascending.

    What it had executed behind such a round is lost, and was executed again.
    """
    own = (one for one in platforms_of(ledger) if one.since >= kept)
    return tuple(after.since for one, after in pairwise(own) if after.unlike(one))


def platforms_kept(ledger: Ledger, kept: int) -> tuple[Platform, ...]:
    """Those that made the rounds 1 to ``kept`` of a parent, which a child keeps."""
    return makers_of(ledger, kept) if kept else ()
