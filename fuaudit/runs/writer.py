"""Writing a run: everything known before the first round at once, then round by round, then sealed.

A crash at any instant leaves a folder that ``resume`` can finish: every file is whole or absent, and a run
without a manifest is never evidence.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuaudit import registry
from fuaudit.commitments.contents import APART, Contents, Opening
from fuaudit.commitments.keys import Keys
from fuaudit.commitments.secrets import ClientSecrets
from fuaudit.config import Config
from fuaudit.draws import Recorded
from fuaudit.errors import PluginError, StorageError, UsageError
from fuaudit.formats.files import sha256, write_bytes
from fuaudit.formats.forms import tensor_bytes
from fuaudit.plans import Plan, Population, Request
from fuaudit.runs.derived_files import files_of_round
from fuaudit.runs.encoding import population_tensors, recorded_tensors, segment_rows
from fuaudit.runs.layout import (
    CLIENTS,
    CONFIG,
    CONTENTS,
    FORMAT,
    KEYS,
    LEDGER,
    MANIFEST,
    PARTITION,
    PLAN,
    RECORDED,
    RUN,
    SECRETS,
    are_told,
    form_of,
    mode_of,
)
from fuaudit.runs.ledger import Ledger, append
from fuaudit.runs.manifest import digest_of_files, files_of, manifest_bytes
from fuaudit.runs.run import Run, config_bytes, read_config_of, read_info
from fuaudit.training.exchange import exchange_of
from fuaudit.training.rounds import State

if TYPE_CHECKING:
    from torch import Tensor


def versions(device: str = "cpu") -> dict[str, str]:
    """What computed: a replay is bit for bit only where these agree. ``processor``: instruction set, or GPU model."""
    import torch

    return {
        "fuaudit": version("fuaudit"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": version("numpy"),
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": torch.cuda.get_device_name() if device == "cuda" else torch.backends.cpu.get_cpu_capability(),
    }


def plugins_of(config: Config) -> list[dict[str, str]]:
    """Where the plugins of a config come from: one row of kind, name, distribution and version each."""
    found = [registry.find(kind, name) for kind, name in config.plugins]
    return [{"kind": e.kind, "use": e.name, "distribution": e.distribution, "version": e.version} for e in found]


def require_new(path: Path) -> None:
    """Raises UsageError when something is already there, or it lies in a run: that would not open with more in it."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} exists already", "Choose another folder with --out; runs are never overwritten.")
    if inside := next((above for above in path.resolve().parents if (above / LEDGER).exists()), None):
        raise UsageError(f"{path} lies inside the run {inside}", "Choose another folder with --out.")


def require_space(path: Path, size: int) -> None:
    """Check that a run of an estimated size, in bytes, can be written to a folder that need not be there yet.

    Raises:
        StorageError: the folder above it takes no new files, or the disk has less room.
    """
    place = path.absolute()
    while not place.exists():
        place = place.parent
    if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)) or not shutil.disk_usage(place).total:
        raise StorageError(f"{path} cannot be written: {place} takes no new files", "Choose another folder with --out.")
    free = shutil.disk_usage(place).free
    if free < size:
        raise StorageError(
            f"the run needs about {size / 2**20:.0f} MiB, the disk has {free / 2**20:.0f}", "Free some space."
        )


def estimated_size(dimension: int, element: int, rounds: int, every: int, state: int, samples: int) -> int:
    """About how many bytes a run will take: checkpoints, three tables over samples, and a leaf a sample."""
    checkpoints = rounds // every + 2
    return checkpoints * (dimension + state) * element + 80 * samples + 400 * rounds + 100_000


def plan_table(plan: Plan, requests: tuple[Request, ...], beacon: str | None) -> dict[str, Any]:
    """``plan.json``: streams as rows of segments (round, step, source, version), the requests behind versions, and what
    was mixed into all draws.
    """
    return {
        "streams": {str(name): segment_rows(segments) for name, segments in plan.streams.items()},
        "requests": [asdict(request) for request in requests],
        "beacon": beacon,
    }


def recorded_bytes(plan: Plan) -> bytes | None:
    """``recorded.safetensors``: the draws of sources that are no seeds; None when there is no such source."""
    found = {number: source.answers for number, source in enumerate(plan.sources) if isinstance(source, Recorded)}
    return tensor_bytes(recorded_tensors(found)) if found else None


@dataclass
class RunWriter:
    """A run being written. Its ledger grows with it."""

    path: Path
    ledger: Ledger = field(default_factory=Ledger)
    salt: bytes | None = field(default=None, repr=False)

    @property
    def run(self) -> Run:
        """What is there so far, once it was begun."""
        return Run(self.path, "", read_info(self.path), {}, self.ledger, read_config_of(self.path))

    def write(self, name: str, value: Any) -> None:
        """A file of the run, whole or not at all, in its form.

        Raises:
            PluginError: the value does not fit the form, which only a plugin can bring about.
        """
        try:
            content = form_of(name).write(value)
        except ValueError as error:
            raise PluginError(f"{self.path / name} cannot be written: {error}") from None
        write_bytes(self.path / name, content, mode=mode_of(name))

    def record(self, event: str, **facts: Any) -> None:
        """Add an event to the ledger. PluginError where a stage told something that no reader takes."""
        if facts.get("told") and not are_told(facts["told"]):
            raise PluginError(f"what stages tell of round {facts['round']} cannot be recorded: {facts['told']}")
        self.ledger = append(self.path, self.ledger, event, **facts)

    def begin(
        self,
        config: Config,
        info: Mapping[str, Any],
        original: Population,
        plan: dict[str, Any],
        keys: Keys,
        commitment: str,
        contents: Contents,
        opening: Opening,
        recorded: bytes | None = None,
        unknown: frozenset[int] = frozenset(),
        secrets: ClientSecrets | None = None,
    ) -> None:
        """Everything that is known before the first round. ``run.json`` comes last: with it, resume can finish.

        When it fails before that, nothing was begun, and the folder is emptied again.

        Args:
            unknown: ids of ``original`` that stand in for those that a prune of an ancestor took out.
            secrets: the clients', where they have some.
        """
        require_new(self.path)
        self.salt = secrets.salt if secrets and exchange_of(config).remembers else None
        try:
            write_bytes(self.path / CONFIG, config_bytes(config))
            self.write(PARTITION, population_tensors(original, unknown))
            self.write(CONTENTS, contents.tensors())
            self.open(opening, secrets)
            if recorded is not None:
                write_bytes(self.path / RECORDED, recorded)
            self.write(PLAN, plan)
            self.write(KEYS, keys.as_table())
            self.record("commitment", commitment=commitment)
            self.write(RUN, {"format": FORMAT, "plugins": plugins_of(config), **info})
        except BaseException:
            if not (self.path / RUN).exists():
                shutil.rmtree(self.path, ignore_errors=True)
            raise

    def open(self, opening: Opening, secrets: ClientSecrets | None) -> None:
        """Who is who: with the clients' secrets where they have some, so that no digest is of names alone."""
        self.write(CLIENTS, opening.table() if secrets is None else APART)
        if secrets is not None:
            self.write(SECRETS, secrets.table(opening))

    def checkpoint(self, round_number: int, vector: Tensor, state: State) -> None:
        """Store model ``(d,)`` and what is kept after a round."""
        for name, content in files_of_round(round_number, vector, state, self.salt).items():
            write_bytes(self.path / name, content, mode=mode_of(name))

    def close(self, event: str, **facts: Any) -> str:
        """Write the manifest over the files that are there, and tie it to the ledger by a last event."""
        files = files_of(self.path)
        digest = digest_of_files(files)
        self.record(event, digest=digest, **facts)
        write_bytes(self.path / MANIFEST, manifest_bytes(digest, files, self.ledger.head))
        return digest


def digest_of_vector(vector: Tensor) -> str:
    """SHA-256 over the bytes of a model ``(d,)``: what the ledger keeps of every round."""
    return sha256(vector.detach().cpu().contiguous().numpy().tobytes())
