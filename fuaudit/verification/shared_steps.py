"""Local steps that are computed once where two executions of one plan ask for the same, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

import torch
from torch import Tensor

from fuaudit.training.engines.protocol import ClientProblem, Engine
from fuaudit.training.solvers import Outcome, Steps

ROWS_AT_ONCE = 4096
"""Rows of two data sets that are compared at once."""

WHOLE = {number.itemsize: number for number in (torch.uint8, torch.int16, torch.int32, torch.int64)}
"""By their bytes, the whole numbers that stand for the bits of others."""


@dataclass(frozen=True)
class _Asked:
    """What an engine was asked: copies, for whoever asked may write on its own afterwards."""

    problem: ClientProblem
    vectors: Tensor
    batches: Tensor
    steps: Steps

    @classmethod
    def of(cls, problem: ClientProblem, vectors: Tensor, batches: Tensor, steps: Steps) -> _Asked:
        drift, velocity, noise = map(_copied, (steps.drift, steps.velocity, steps.noise))
        own = replace(steps, drift=drift, velocity=velocity, noise=noise)
        return cls(problem, vectors.clone(), batches.clone(), own)

    def same(self, other: _Asked) -> bool:
        """Whether an engine is given the same bits; of the data these are the rows that batches hold."""
        drawn = same_bits(self.batches, other.batches) and same_bits(self.vectors, other.vectors)
        return drawn and _same_steps(self.steps, other.steps) and same_rows(self.problem, other.problem, self.batches)


@dataclass(frozen=True)
class SharedSteps:
    """An engine that keeps its last answer, and gives a copy of it where it is asked the same again.

    An engine is a pure function: equal bits in, equal bits out. So no answer is another one, and two executions that
    part from each other are both computed from there on. It is as pure as the model's own code, which runs inside.
    """

    engine: Engine
    _kept: list[tuple[_Asked, Outcome]] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def name(self) -> str:
        """As that of the engine behind it."""
        return self.engine.name

    def advance(self, problem: ClientProblem, vectors: Tensor, batches: Tensor, steps: Steps) -> Outcome:
        """See :class:`~fuaudit.training.engines.protocol.Engine`."""
        asked = _Asked.of(problem, vectors, batches, steps)
        if not any(asked.same(before) for before, _ in self._kept):
            self._kept[:] = [(asked, self.engine.advance(problem, vectors, batches, steps))]
        ((_, answer),) = self._kept
        return Outcome(answer.updates.clone(), _copied(answer.velocity))


def same_rows(one: ClientProblem, other: ClientProblem, batches: Tensor) -> bool:
    """Whether what clients share has equal bits, as far as ``batches (n, K, E, B)`` read it; -1 is no row."""
    if one is other:
        return True
    if one.module is not other.module or one.layout != other.layout:
        return False
    read = batches[batches >= 0].unique().to(one.inputs.device)
    return all(_same_at(one, other, rows) for rows in read.split(ROWS_AT_ONCE))


def _same_at(one: ClientProblem, other: ClientProblem, rows: Tensor) -> bool:
    return same_bits(one.inputs[rows], other.inputs[rows]) and same_bits(one.targets[rows], other.targets[rows])


def same_bits(one: object, other: object) -> bool:
    """Whether two values have equal bits: NaN equals itself, and the two zeros differ."""
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return type(one) is type(other) and repr(one) == repr(other)
    alike = (one.shape, one.dtype, one.device) == (other.shape, other.dtype, other.device)
    return alike and torch.equal(bits_of(one), bits_of(other))


def bits_of(tensor: Tensor) -> Tensor:
    """The bits of numbers, each read as one whole number; of the shape of the tensor."""
    return tensor.contiguous().view(WHOLE[tensor.itemsize])


def _same_steps(one: Steps, other: Steps) -> bool:
    names = [part.name for part in fields(one)]
    return type(one) is type(other) and all(same_bits(getattr(one, name), getattr(other, name)) for name in names)


def _copied(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.clone()
