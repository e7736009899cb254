"""The pre-registered statistics of a final model: what repeated unlearning and repeated retraining are compared on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, vmap
from torch.nn.functional import cross_entropy

from fuaudit.commitments.keys import derive
from fuaudit.data.dataset import scaled, scaling_constants
from fuaudit.draws import Address, Keyed, Purpose
from fuaudit.models.layout import linear_stack
from fuaudit.training.setup import Setup
from fuaudit.verification.case import Case

Floats = NDArray[np.float64]

STATISTICS = (
    "loss on the erased data",
    "the same minus loss on retained data",
    "the same minus test loss",
    "loss on retained data",
    "test loss",
    "weight norm",
    "projection 1",
    "projection 2",
    "probe logit 1",
    "probe logit 2",
)
"""Fixed in advance; all are read off the final model of a run."""

PRIMARY = 1
"""The statistic with the largest share: what a model remembers shows most where the luck of a run cancels."""

Rows = tuple[Tensor, Tensor]
"""Inputs and targets on the device of the models."""


@dataclass(frozen=True)
class Statistics:
    """The statistics, with at most ``test_rows`` retained rows and as many test rows; see
    :class:`fuaudit.replicas.pairs.Measuring`.
    """

    test_rows: int

    @property
    def told(self) -> dict[str, Any]:
        """What results depend on."""
        return {"statistics": list(STATISTICS), "test rows": self.test_rows}

    def of(self, case: Case) -> Measure:
        """The statistics of a case."""
        return Measure.of(case, self.test_rows)


@dataclass(frozen=True)
class Measure:
    """The statistics of models ``(n, d)`` as ``(n, 10)``, in float64.

    Losses on retained and test data are means over at most ``test_rows`` rows each. Those rows, the unit vectors
    of the projections, and the test rows and classes of the probes are drawn from the audit's key.
    """

    ready: Setup
    erased: Rows
    retained: Rows
    test: Rows
    directions: Tensor
    probes: tuple[tuple[int, int], tuple[int, int]]
    stack_size: int

    @classmethod
    def of(cls, case: Case, test_rows: int) -> Measure:
        """The statistics of a case; inputs are scaled by the constants of the retained data."""
        ready, data, population = case.rerun.ready, case.rerun.ready.dataset, case.run.plan.retained
        shift, divisor = scaling_constants(data, population, ready.procedure.scaling)
        key = Keyed(derive(case.key.secret, "parameters", "statistics"))

        def some(number: int, among: list[int]) -> list[int]:
            return list(key.subset(Address(Purpose.AUDIT, number), among, min(len(among), test_rows)))

        def read(inputs: Tensor, targets: Tensor, rows: list[int]) -> Rows:
            values = scaled(inputs[rows], shift, divisor, ready.procedure.dtype)
            return values.to(ready.device), targets[rows].to(ready.device)

        chosen = some(1, list(range(len(data.test_targets))))
        dimension = ready.procedure.layout.dimension
        directions = torch.from_numpy(key.uniform(Address(Purpose.AUDIT, 2), 2 * dimension) - 0.5).view(2, dimension)
        rows = key.sequence(Address(Purpose.AUDIT, 3), range(len(chosen)), 2)
        classes = key.sequence(Address(Purpose.AUDIT, 4), range(data.classes), 2)
        return cls(
            ready,
            read(data.inputs, data.targets, sorted(case.evidence.erased_rows)),
            read(data.inputs, data.targets, some(5, sorted(population.owner))),
            read(data.test_inputs, data.test_targets, chosen),
            directions / directions.norm(dim=1, keepdim=True),
            ((rows[0], classes[0]), (rows[1], classes[1])),
            32 if linear_stack(ready.procedure.module) else 4,
        )

    @torch.no_grad()
    def __call__(self, vectors: Tensor) -> Floats:
        parts = [self._chunk(part) for part in torch.split(vectors, self.stack_size)]
        return np.concatenate(parts)

    def _chunk(self, vectors: Tensor) -> Floats:
        """A chunk of models, padded to one size, so that bits do not depend on how many there are."""
        count = len(vectors)
        padded = torch.cat([vectors, vectors[:1].expand(self.stack_size - count, -1)])
        erased, _ = self._losses(padded, self.erased)
        retained, _ = self._losses(padded, self.retained)
        test, logits = self._losses(padded, self.test)
        exact = padded.double().cpu()
        columns = [
            erased,
            erased - retained,
            erased - test,
            retained,
            test,
            exact.norm(dim=1),
            *((exact * direction).sum(dim=1) for direction in self.directions),
            *(logits[:, row, label] for row, label in self.probes),
        ]
        return torch.stack(columns, dim=1)[:count].numpy()

    def _losses(self, vectors: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """Mean losses ``(c,)`` and logits ``(c, rows, classes)`` in float64 on the CPU."""
        layout, module = self.ready.procedure.layout, self.ready.procedure.module
        inputs, targets = rows

        def forward(vector: Tensor) -> Tensor:
            parameters = dict(zip(layout.names, layout.split(vector), strict=True))
            logits = functional_call(module, parameters, (inputs,))
            assert isinstance(logits, Tensor)
            return logits

        logits = vmap(forward)(vectors).double().cpu()
        flat = cross_entropy(logits.flatten(0, 1), targets.cpu().repeat(len(vectors)), reduction="none")
        return flat.view(len(vectors), -1).mean(dim=1), logits
