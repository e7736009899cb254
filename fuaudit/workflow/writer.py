"""Writing a run: everything known before the first round at once, then round by round, then sealed.

A crash at any instant leaves a folder that ``resume`` can finish: every file is whole or absent, and a run
without a manifest is never evidence.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuaudit.commitments.contents import APART, Opening
from fuaudit.commitments.secrets import ClientSecrets
from fuaudit.draws import Recorded
from fuaudit.errors import PluginError, StorageError, UsageError
from fuaudit.formats.files import new_folder, read_bytes, require_name, write_bytes
from fuaudit.formats.forms import tensor_bytes
from fuaudit.plans import Plan, Request
from fuaudit.runs.contained import Foundation
from fuaudit.runs.encoding import (
    files_of_round,
    population_tensors,
    received_tensors,
    recorded_tensors,
    salted,
    segment_rows,
)
from fuaudit.runs.layout import (
    BESIDE,
    CHAIN,
    CLIENTS,
    CONFIG,
    CONTENTS,
    FORMAT,
    KEYS,
    LEDGER,
    MANIFEST,
    PARTITION,
    PLAN,
    RECEIVED,
    RECORDED,
    RUN,
    SECRETS,
    are_stage_events,
    form_of,
    mode_of,
    names_in,
    of_round,
    rounds_in,
)
from fuaudit.runs.ledger import PLATFORM, SECURED, Ledger
from fuaudit.runs.manifest import digest_of_files, files_of, limit_of, manifest_bytes
from fuaudit.runs.platforms import Platform, platforms_of, plugins_of, versions
from fuaudit.runs.run import Run, config_bytes, read_config_of, read_info
from fuaudit.runs.transcripts import chain_of, names_of_transcript
from fuaudit.secure.terms import LIBRARY
from fuaudit.text import WITH_DATA, amount, command
from fuaudit.training.exchange import exchange_of
from fuaudit.training.received import Received
from fuaudit.training.rounds import State
from fuaudit.workflow.append import append

if TYPE_CHECKING:
    from torch import Tensor

    from fuaudit.workflow.transcripts import Keeper


def require_new(path: Path) -> None:
    """Raises UsageError when something is already there, the name is no text or one that fuaudit uses beside a run,
    or it lies in a run: that would not open with more in it.
    """
    require_name(path)
    if path.name.endswith(BESIDE):
        raise UsageError(
            f"{path}: what is called so beside a run is fuaudit's own, and may be written to or removed",
            f"Choose a name with --out that does not end in {', '.join(BESIDE)}.",
        )
    if is_unfinished(path):
        raise UsageError(
            f"{path} exists already: a run was begun there and did not end",
            f"Finish it: {command('resume', path)}{WITH_DATA}. Or remove it and try again, or choose another folder.",
        )
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} exists already", "Choose another folder with --out; runs are never overwritten.")
    if inside := next((above for above in path.resolve().parents if (above / LEDGER).exists()), None):
        raise UsageError(f"{path} lies inside the run {inside}", "Choose another folder with --out.")


def is_unfinished(path: Path) -> bool:
    """Whether a run was begun in a folder and did not end."""
    return (path / RUN).exists() and not (path / MANIFEST).exists()


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
        raise StorageError(f"the run needs about {amount(size)}, the disk has {amount(free)}", "Free some space.")


def estimated_size(dimension: int, element: int, rounds: int, every: int, state: int, samples: int) -> int:
    """About how many bytes a run will take: checkpoints, three tables over samples, and a leaf a sample."""
    checkpoints = rounds // every + 2
    return checkpoints * (dimension + state) * element + 80 * samples + 400 * rounds + 100_000


def plan_table(plan: Plan, requests: tuple[Request, ...]) -> dict[str, Any]:
    """``plan.json``: streams as rows of segments (round, step, source, version), and the requests behind versions."""
    return {
        "streams": {str(name): segment_rows(segments) for name, segments in plan.streams.items()},
        "requests": [asdict(request) for request in requests],
    }


def recorded_bytes(plan: Plan, salt: str | None) -> bytes | None:
    """``recorded.safetensors``: the draws of sources that are no seeds; None when there is no such source.

    ``salt`` is None where clients have no secrets.
    """
    found = {number: source.answers for number, source in enumerate(plan.sources) if isinstance(source, Recorded)}
    return tensor_bytes(salted(recorded_tensors(found), salt)) if found else None


def begun_transcript(folder: Path) -> Keeper:
    """A transcript without messages."""
    from fuaudit.workflow.transcripts import Keeper  # cryptography, which runs without a suite do not need

    write_bytes(folder / CHAIN, b"", mode=mode_of(CHAIN))
    return Keeper(folder, chain_of(folder))


def copy_transcript(folder: Path, out: Path, bodies: bool = True) -> None:
    """The transcript of a run in another folder, or its chain alone; nothing where there is none."""
    for name in names_of_transcript(folder):
        if bodies or name == CHAIN:
            write_bytes(out / name, read_bytes(folder / name, limit_of(name)), mode=mode_of(name))


def copy_without(
    run: Run, out: Path, left_out: Callable[[str], bool], beside: Mapping[str, bytes] | None = None
) -> None:
    """The files of a run in a new folder but for those that are left out, with others beside them. All, or nothing."""
    require_new(out)
    with new_folder(out) as folder:
        for name in run.files:
            if not left_out(name):
                write_bytes(folder / name, run.read(name), mode=mode_of(name))
        copy_transcript(run.path, folder)
        for name, content in (beside or {}).items():
            write_bytes(folder / name, content, mode=mode_of(name))
        for name in (LEDGER, MANIFEST):
            write_bytes(folder / name, read_bytes(run.path / name, limit_of(name)), mode=mode_of(name))


@dataclass
class RunWriter:
    """A run being written. Its ledger grows with it."""

    path: Path
    ledger: Ledger = field(default_factory=Ledger)
    salt: bytes | None = field(default=None, repr=False)
    transcript: Keeper | None = field(default=None, repr=False)

    @property
    def run(self) -> Run:
        """What is there so far, once it was begun."""
        return Run(self.path, "", read_info(self.path), {}, self.ledger, read_config_of(self.path))

    @property
    def stored(self) -> tuple[int, ...]:
        """The rounds whose models are there, ascending."""
        return rounds_in(names_in(self.path, torn=True))

    def write(self, name: str, value: object) -> None:
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
        if facts.get("told") and not are_stage_events(facts["told"]):
            raise PluginError(f"what stages tell of round {facts['round']} cannot be recorded: {facts['told']}")
        self.ledger = append(self.path, self.ledger, event, **facts)

    def begin(
        self,
        common: Foundation,
        info: Mapping[str, Any],
        plan: Plan,
        secrets: ClientSecrets | None,
        requests: tuple[Request, ...] = (),
        beacon: str | None = None,
        suite: str | None = None,
    ) -> None:
        """Everything that is known before the first round. ``run.json`` comes last: with it, resume can finish.

        When it fails before that, nothing was begun, and the folder is emptied again.

        Args:
            info: what ``run.json`` has beside what follows from config and machine.
            secrets: the clients', where they have some.
            suite: that of :mod:`fuaudit.secure` which makes the sums, where one does.
        """
        require_new(self.path)
        config, engine, device = common.config, common.config.run.engine, common.config.run.device
        remembers = exchange_of(config, info.get("received") is True).remembers
        self.salt = secrets.salt if secrets and remembers else None
        made_by = {"engine": engine, "device": device, "versions": versions(device), "plugins": plugins_of(config)}
        try:
            write_bytes(self.path / CONFIG, config_bytes(config))
            salt = secrets.participation_salt if secrets else None
            self.write(PARTITION, salted(population_tensors(common.original, common.stand_ins), salt))
            self.write(CONTENTS, common.contents.tensors())
            self.open(common.opening, secrets)
            if recorded := recorded_bytes(plan, salt):
                write_bytes(self.path / RECORDED, recorded)
            self.write(PLAN, plan_table(plan, requests))
            self.write(KEYS, common.keys.as_table())
            self.record("commitment", commitment=common.commitment)
            if suite is not None:
                self.record(SECURED, suite=suite, library=LIBRARY)
                self.transcript = begun_transcript(self.path)
            self.write(RUN, {"format": FORMAT, **made_by, "beacon": beacon, **info})
        except BaseException:
            if not (self.path / RUN).exists():
                shutil.rmtree(self.path, ignore_errors=True)
            raise

    def open(self, opening: Opening, secrets: ClientSecrets | None) -> None:
        """Who is who: with the clients' secrets where they have some, so that no digest is of names alone."""
        self.write(CLIENTS, opening.table() if secrets is None else APART)
        if secrets is not None:
            self.write(SECRETS, secrets.table(opening))

    def record_platform(self, platform: Platform, kept: tuple[Platform, ...] = ()) -> None:
        """Tell of the platform that goes on with the run, unless it is the last one told of.

        ``kept``: those that made the rounds that a child keeps; it tells of them first.
        """
        known = platforms_of(self.ledger)
        for one in kept[len(known) :]:
            self.record(PLATFORM, **one.facts)
        own = known[len(kept) :]
        if not own:
            # run.json names the platform that begins a run: one that was there before it stored nothing. Before its
            # event: killed between the two, the next one to resume finds no event, and comes here again
            info = read_info(self.path)
            begun = info | {"versions": dict(platform.versions), "plugins": platform.plugins}
            if begun != info:
                self.write(RUN, begun)
        if not own or own[-1].unlike(platform):
            self.record(PLATFORM, **platform.facts)

    def checkpoint(self, round_number: int, vector: Tensor, state: State) -> None:
        """Store model ``(d,)`` and what is kept after a round."""
        for name, content in files_of_round(round_number, vector, state, self.salt).items():
            write_bytes(self.path / name, content, mode=mode_of(name))

    def received(self, round_number: int, received: Received) -> None:
        """Store what came of a round in messages."""
        self.write(of_round(RECEIVED, round_number), received_tensors(received))

    def keep_received(self, parent: Run, until: int) -> None:
        """Copy what came of a parent's rounds before a round, which a child keeps."""
        for number in parent.received_rounds:
            name = of_round(RECEIVED, number)
            if number < until:
                write_bytes(self.path / name, parent.read(name), mode=mode_of(name))

    def close(self, event: str, **facts: Any) -> str:
        """Write the manifest over the files that are there, and tie it to the ledger by a last event."""
        files = files_of(self.path)
        digest = digest_of_files(files)
        self.record(event, digest=digest, **facts)
        write_bytes(self.path / MANIFEST, manifest_bytes(digest, files, self.ledger.head))
        return digest
