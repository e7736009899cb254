"""Pairs of runs: what repeated sampling computes, as work that an executor can cut up.

Pair i holds one fresh original and what unlearning makes of it, two fresh retrained runs and, for an editor, one that
the same editor has been applied to though it never had the target; see :mod:`fuaudit.replicas.arms`. What is measured
of their models is handed in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fuaudit import registry
from fuaudit.data.dataset import Dataset
from fuaudit.declared import says
from fuaudit.draws import Keyed
from fuaudit.errors import EvidenceError
from fuaudit.formats.files import sha256
from fuaudit.formats.forms import canonical_json
from fuaudit.plans.expanded import most_ids
from fuaudit.plans.stacked import IDS_AT_ONCE
from fuaudit.replicas.arms import Batch, EditRefused, arms_of, rounds_read, runs_abreast
from fuaudit.runs.platforms import versions
from fuaudit.runs.run import load_run
from fuaudit.training.engines.protocol import single_threaded
from fuaudit.unlearning.apply import unlearner_record
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence
from fuaudit.workers import Arrays, Shard, digest_of_code

Floats = NDArray[np.float64]

PAIRS_A_SHARD = 32
"""Fixed, so that neither the number of workers nor that of pairs changes a bit. Fewer where models or rounds are large,
more where the engine has room for more and nobody looks in between (:attr:`Pairs.most`).
"""

_NUMBERS_AT_HAND = 40_000_000  # of stored round models: 160 MB in float32


def runs_a_pair(is_editor: bool) -> int:
    """The training runs that a pair costs: an original, two retrained ones, and one of the subject's own.

    The rounds that a rewriter redraws, or an editor adds, are counted as a run of their own.
    """
    return len(arms_of(is_editor))


class Measuring(Protocol):
    """What is read off final models. A frozen dataclass of plain values, so that it can go to another process."""

    @property
    def told(self) -> dict[str, Any]:
        """What results depend on, as JSON."""

    def of(self, case: Case) -> Callable[[Tensor], Floats]:
        """What maps models ``(n, d)`` to ``(n, s)`` numbers."""


@dataclass(frozen=True)
class Pairs:
    """What is measured of pairs, as a job: shard ``(first, count)`` gives ``(count, s)`` for every arm.

    Holds plain values, from which a worker process builds the case anew.

    Attributes:
        read: the rounds whose models an editor is given, as the run that it edited stores them.
        most: pairs that may be in one part, where the engine has room for more than are in others; 0 for no more.
    """

    run: Path
    run_digest: str
    rows: dict[str, Any] = field(repr=False)
    secret: bytes = field(repr=False)
    measuring: Measuring
    read: tuple[int, ...]
    most: int = 0

    @classmethod
    def of(cls, case: Case, measuring: Measuring, most: int = 0) -> Pairs:
        """The pairs of a case whose data is at hand."""
        data = case.rerun.ready.dataset
        rows = {name: value.numpy() if isinstance(value, Tensor) else value for name, value in vars(data).items()}
        return cls(case.run.path, case.run.digest, rows, case.key.secret, measuring, rounds_read(case), most)

    @cached_property
    def case(self) -> Case:
        """The case, opened again; EvidenceError when the run has changed meanwhile."""
        run = load_run(self.run)
        if run.digest != self.run_digest:
            raise EvidenceError(f"{self.run} has changed during its audit")
        rows: dict[str, Any] = {
            k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in self.rows.items()
        }
        return Case(Evidence(run, None, Dataset(**rows)), Keyed(self.secret))

    @cached_property
    def digest(self) -> str:
        """See :class:`~fuaudit.workers.Job`."""
        hasher = hashlib.sha256()
        for name, value in sorted(self.rows.items()):
            plain = sorted(value) if isinstance(value, frozenset) else value
            content = value.tobytes() if isinstance(value, np.ndarray) else canonical_json(plain)
            shape = list(value.shape) if isinstance(value, np.ndarray) else []
            hasher.update(canonical_json([name, shape, len(content)]) + content)
        case, ready = self.case, self.case.rerun.ready
        name = case.run.info["unlearner"]["use"]
        model = registry.find("models", ready.config.model["use"]).load()
        plugins = (ready.learner, ready.procedure.solver, *ready.procedure.exchange.parts, case.evidence.unlearner)
        facts = {
            "work": "pairs",
            "run": self.run_digest,
            "data": hasher.hexdigest(),
            # the key itself is not for files
            "key": sha256(self.secret),
            "measured": self.measuring.told,
            "read": list(self.read),
            "abreast": self.size,
            "versions": versions(ready.device.type),
            "unlearner": unlearner_record(registry.find("unlearners", name), case.evidence.unlearner),
            "code": digest_of_code([model.__module__, *(type(plugin).__module__ for plugin in plugins)]),
        }
        return sha256(canonical_json(facts))

    @cached_property
    def measure(self) -> Callable[[Tensor], Floats]:
        """What is read off models."""
        return self.measuring.of(self.case)

    @property
    def size(self) -> int:
        """The pairs in a part."""
        law, procedure, before = self.case.run.plan.law, self.case.rerun.ready.procedure, self.case.run.before
        # a round of noisy steps is drawn as a whole
        noise = law.places(before.of_laws) * law.steps if says(procedure.solver, "draws") else 0
        models = procedure.layout.dimension * (law.rounds + 1 + noise)
        room = max(PAIRS_A_SHARD, min(self.most, runs_abreast(self.case)))
        # rounds are drawn some at a time, at least one for all pairs of a part
        return max(1, min(room, _NUMBERS_AT_HAND // models, IDS_AT_ONCE // most_ids(law, before)))

    def shards(self, pairs: int) -> list[Shard]:
        """The parts that hold the first so many pairs."""
        return [(first, min(self.size, pairs - first)) for first in range(0, pairs, self.size)]

    def compute(self, shard: Shard, threads: int) -> Arrays:
        """Train, unlearn and retrain the pairs of a shard, and measure.

        Of an arm that an editor refuses there is the reason instead; see :func:`refusal`.
        """
        single_threaded()
        first, count = shard
        batch, result = (
            Batch(self.case, range(first, first + count), threads, self.read, self.size),
            dict[str, NDArray[Any]](),
        )
        for arm in arms_of(self.case.evidence.is_editor):
            try:
                models = arm.models(batch)
            except EditRefused as error:
                result[_REFUSED + arm.name] = np.frombuffer(str(error).encode("utf-8", "replace"), dtype=np.uint8)
            else:
                result[arm.name] = self.measure(models)
        return result


_REFUSED = "refused "
"""Before the name of an arm: the key of the reason why it is missing."""


def refusal(part: Arrays, arm: str) -> str | None:
    """Why a part of the pairs lacks an arm; None where it does not."""
    reason = part.get(_REFUSED + arm)
    return None if reason is None else reason.tobytes().decode()


def measured(part: Arrays) -> list[str]:
    """The arms that a part of the pairs has."""
    return [name for name in part if not name.startswith(_REFUSED)]
