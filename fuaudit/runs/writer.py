"""Writing a run: everything known before the first round at once, then round by round, then sealed.

A crash at any instant leaves a folder that ``resume`` can finish: every file is whole or absent, and a run
without a manifest is never evidence.
"""

from __future__ import annotations

import platform
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tomli_w
import torch
from torch import Tensor

from fuaudit import registry
from fuaudit.config import TABLES, Config, stage_kind
from fuaudit.draws import Recorded
from fuaudit.errors import StorageError, UsageError
from fuaudit.plans import Plan, Population, Request
from fuaudit.runs.files import pretty_json, sha256, tensor_bytes, write_bytes
from fuaudit.runs.keys import RunKeys, digest_of_partition, leaf
from fuaudit.runs.ledger import Ledger, append
from fuaudit.runs.manifest import FORMAT, MANIFEST, digest_of_files, files_of, manifest_bytes
from fuaudit.runs.products import checkpoint_bytes
from fuaudit.runs.run import RECORDED
from fuaudit.runs.tables import checkpoint_name, population_tensors, recorded_tensors, segment_rows
from fuaudit.training.rounds import State


def versions(device: str = "cpu") -> dict[str, str]:
    """What computed: a replay is bit for bit only where these agree. ``processor``: instruction set, or GPU model."""
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
    named = [(kind, getattr(config, table)["use"]) for table, kind in TABLES.items()]
    named += [(stage_kind(stage), stage["use"]) for stage in config.server]
    found = [registry.find(kind, name) for kind, name in named]
    return [{"kind": e.kind, "use": e.name, "distribution": e.distribution, "version": e.version} for e in found]


def require_new(path: Path) -> None:
    """Raises UsageError when something is already there: runs are never overwritten."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} exists already", "Choose another folder with --out; runs are never overwritten.")


def require_space(path: Path, size: int) -> None:
    """Raises StorageError when the disk has less room than the estimated size of a run, in bytes."""
    place = path.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < size:
        raise StorageError(
            f"the run needs about {size / 2**20:.0f} MiB, the disk has {free / 2**20:.0f}", "Free some space."
        )


def estimated_size(dimension: int, element: int, rounds: int, every: int, state: int, samples: int) -> int:
    """About how many bytes a run will take: checkpoints, and three tables over samples."""
    checkpoints = rounds // every + 2
    return checkpoints * (dimension + state) * element + 48 * samples + 400 * rounds + 100_000


def config_bytes(config: Config) -> bytes:
    """``config.toml``."""
    return tomli_w.dumps(config.tables()).encode()


def commitment_of(keys: RunKeys, config: Config, partition: str) -> str:
    """The commitment of a run that is about to be written; ``partition`` is the digest of the committed one."""
    return keys.commitment(sha256(config_bytes(config)), partition)


def digest_of_population(original: Population) -> str:
    """The digest of a partition of which nothing was pruned."""
    return digest_of_partition({client: leaf(client, original.samples[client]) for client in original.clients})


def plan_table(plan: Plan, requests: tuple[Request, ...], pruned: Mapping[str, Any]) -> dict[str, Any]:
    """``plan.json``: streams as rows of segments (round, step, source, version), and the requests behind versions.

    ``pruned`` is what a prune left of earlier populations (see :attr:`Run.pruned_table`); empty without one.
    """
    return {
        **pruned,
        "streams": {str(name): segment_rows(segments) for name, segments in plan.streams.items()},
        "requests": [asdict(request) for request in requests],
    }


def recorded_bytes(plan: Plan) -> bytes | None:
    """``recorded.safetensors``: the draws of sources that are no keys; None when there is no such source."""
    found: dict[int, Recorded] = {}
    for number, source in enumerate(plan.sources):
        # after a prune all destroyed keys share one record
        if isinstance(source, Recorded) and not any(source is other for other in found.values()):
            found[number] = source
    return tensor_bytes(recorded_tensors({n: s.answers for n, s in found.items()})) if found else None


@dataclass
class RunWriter:
    """A run being written. Its ledger grows with it."""

    path: Path
    ledger: Ledger = field(default_factory=Ledger)

    def write_json(self, name: str, value: Any) -> None:
        """A file of the run, whole or not at all."""
        write_bytes(self.path / name, pretty_json(value))

    def write_tensors(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """A file of the run, whole or not at all."""
        write_bytes(self.path / name, tensor_bytes(tensors))

    def record(self, event: str, **facts: Any) -> None:
        """Add an event to the ledger."""
        self.ledger = append(self.path, self.ledger, event, **facts)

    def begin(
        self,
        config: Config,
        info: Mapping[str, Any],
        original: Population,
        plan: dict[str, Any],
        keys: Mapping[str, Any],
        commitment: str,
        recorded: bytes | None = None,
    ) -> None:
        """Everything that is known before the first round. ``run.json`` comes last: with it, resume can finish.

        When it fails before that, nothing was begun, and the folder is emptied again.
        """
        require_new(self.path)
        try:
            write_bytes(self.path / "config.toml", config_bytes(config))
            write_bytes(self.path / "partition.safetensors", tensor_bytes(population_tensors(original)))
            if recorded is not None:
                write_bytes(self.path / RECORDED, recorded)
            self.write_json("plan.json", plan)
            self.write_keys(keys)
            self.record("commitment", commitment=commitment)
            self.write_json("run.json", {"format": FORMAT, "plugins": plugins_of(config), **info})
        except BaseException:
            if not (self.path / "run.json").exists():
                shutil.rmtree(self.path, ignore_errors=True)
            raise

    def write_keys(self, keys: Mapping[str, Any]) -> None:
        """``keys.json``, for the eyes of its owner only."""
        write_bytes(self.path / "keys.json", pretty_json(dict(keys)), mode=0o600)

    def checkpoint(self, round: int, vector: Tensor, state: State) -> None:
        """Store model ``(d,)`` and server state after a round."""
        write_bytes(self.path / checkpoint_name(round), checkpoint_bytes(vector, state))

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
