"""What some rows of a batch do by themselves, at the weight that they have in it.

Taking rows out of a batch changes the mean of the others, and asking them alone makes them as many times as loud as
the batch was long. Here a row counts 1 / b, where b is the length of the batch as it was drawn, or the divisor of its
law, whoever else counts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fuaudit.plans.expanded import NONE
from fuaudit.training.engines.protocol import ClientProblem, Engine
from fuaudit.training.solvers import Outcome, Steps


@dataclass(frozen=True)
class Masked:
    """An engine that masks gradients: of each run all but those of the rows that count in it.

    A step whose rows are all masked is taken, with a gradient of zero. Runs have the same draws.

    Attributes:
        engine: computes the gradients.
        counts: samples that count, by run.
    """

    engine: Engine
    counts: Sequence[Collection[int]]

    @property
    def name(self) -> str:
        """As that of the engine behind it."""
        return self.engine.name

    def advance(self, problem: ClientProblem, vectors: Tensor, batches: Tensor, steps: Steps) -> Outcome:
        """See :class:`~fuaudit.training.engines.protocol.Engine`; as many runs as ``counts``."""
        masked = torch.stack([_masked(drawn, rows) for drawn, rows in zip(batches, self.counts, strict=True)])
        walked = masked.flatten(2).any(dim=2)
        # who has all rows counted takes the engine's own steps, all runs at once
        ends = self.engine.advance(problem, vectors, batches.masked_fill(walked[..., None, None], NONE), steps)
        updates, velocity = ends.updates.clone(), None if ends.velocity is None else ends.velocity.clone()
        for run in walked.any(dim=1).nonzero()[:, 0].tolist():
            at = slice(run, run + 1)
            alone = OwnSteps(self.engine, self.counts[run]).advance(
                problem, vectors[at], batches[at].masked_fill(~walked[at, :, None, None], NONE), _of_run(steps, at)
            )
            updates[run, walked[run]] = alone.updates[0, walked[run]]
            if velocity is not None and alone.velocity is not None:
                velocity[run, walked[run]] = alone.velocity[0, walked[run]]
        return Outcome(updates, velocity)


@dataclass(frozen=True)
class OwnSteps:
    """An engine that masks gradients. Run 0 takes the steps of the kept rows; run 1 + j adds those of part j.

    A part's steps are added up beside the others': its gradients are those at the model that the kept rows and its
    own earlier steps make, and what it does changes no other gradient. So no other row answers for it, not even in a
    later step. What the solver makes of a gradient (momentum, a proximal term) it makes of the part's.

    Every run starts from one model and has the same draws. A step whose rows are all masked is taken, with a gradient
    of zero: the part is all that runs differ by.

    Runs differ by what gradients of the part put into an update: for each of its draws the step size, times its share
    of the batch, times its mean gradient. Leaving it in puts this in, and what others then do otherwise, which can be
    anything. A mean makes a model's difference of it exactly, a clipping that projects makes it no longer. A stage
    that chooses or rounds can make it longer; no tolerance judges there.

    Attributes:
        engine: computes the gradients.
        kept: samples that count in every run.
        parts: samples that count in one run each.
    """

    engine: Engine
    kept: Collection[int]
    parts: Sequence[Collection[int]] = ()

    @property
    def name(self) -> str:
        """As that of the engine behind it."""
        return self.engine.name

    def advance(self, problem: ClientProblem, vectors: Tensor, batches: Tensor, steps: Steps) -> Outcome:
        """See :class:`~fuaudit.training.engines.protocol.Engine`; one run more than there are parts."""
        one, drawn = _of_run(steps, slice(1)), batches[0]
        walked = _masked(drawn, self.kept).flatten(1).any(dim=1)
        # who has all rows counted takes the engine's own steps
        whole = drawn.masked_fill(walked[:, None, None], NONE)[None]
        ends = self.engine.advance(problem, vectors[:1], whole, one)
        updates = ends.updates.repeat(len(vectors), 1, 1)
        velocity = None if ends.velocity is None else ends.velocity.repeat(len(vectors), 1, 1)
        if places := walked.nonzero()[:, 0].tolist():
            ends = self._walk(problem, vectors[0], drawn[places], _of_run(steps, (0, places)))
            updates[:, places] = ends.updates
            if velocity is not None and ends.velocity is not None:
                velocity[:, places] = ends.velocity
        return Outcome(updates, velocity)

    def _walk(self, problem: ClientProblem, sent: Tensor, drawn: Tensor, steps: Steps) -> Outcome:
        """Participations of one run ``(c, E, B)``, step by step: what those of all runs end with, ``(1 + P, c, d)``.

        A part takes steps where it was drawn, and nowhere else. So rows ``(k, d)`` are pairs of a run and a place:
        first the kept rows in each place, then each part in the places that have rows of it.
        """
        lengths, counted, places = (drawn != NONE).sum(dim=2), (self.kept, *self.parts), len(drawn)
        counts = torch.stack([_among(drawn, rows) for rows in counted])
        walks = counts.flatten(2).any(dim=2)
        walks[0] = True
        run, place = walks.nonzero().unbind(dim=1)
        on = place.to(sent.device)
        # the first are how far the kept rows moved models, the others what parts added to that
        moved = sent.new_zeros(len(run), len(sent))
        speeds = torch.zeros_like(moved)  # velocities, times the step size
        if steps.velocity is not None:
            speeds[:places] = steps.size * steps.velocity
        for step in range(drawn.shape[1]):
            change = steps.proximal * moved
            if steps.drift is not None:
                change[:places] += steps.drift
            change = steps.size * change
            rows = torch.where(counts[run, place, step], drawn[place, step], NONE)
            reads = (rows != NONE).any(dim=1).nonzero()[:, 0]
            if len(reads):
                read, at = rows[reads], reads.to(sent.device)
                starts = sent + _upon_the_kept(moved, on, places)[at]
                plain = Steps(steps.size, divisor=steps.divisor, clip=steps.clip)
                pulls = self.engine.advance(problem, starts, read[:, None, None], plain).updates[:, 0]
                if not steps.divisor:
                    pulls = pulls * ((read != NONE).sum(dim=1) / lengths[place[reads], step]).to(pulls)[:, None]
                change[at] += pulls
            if steps.noise is not None:  # drawn, whoever counts: it is that of the kept rows
                divisor = steps.divisor or torch.where(lengths > 0, lengths, drawn.shape[2])[:, step, None].to(sent)
                change[:places] += steps.size * steps.noise[:, step] / divisor
            if steps.momentum:
                change = steps.momentum * speeds + (1 - steps.dampening) * change
            taken = (lengths[place, step] > 0).to(sent.device)[:, None] | (steps.noise is not None)
            if steps.momentum:
                speeds = torch.where(taken, change, speeds)
            moved = torch.where(taken, moved - change, moved)

        def of_runs(rows: Tensor) -> Tensor:
            ends = rows[:places].repeat(len(counted), 1, 1)
            ends[run.to(sent.device), on] = _upon_the_kept(rows, on, places)
            return ends

        return Outcome(-of_runs(moved), of_runs(speeds) / steps.size if steps.momentum else None)


def _masked(drawn: Tensor, counts: Collection[int]) -> Tensor:
    """Which places of batches hold a sample that does not count."""
    return ~(_among(drawn, counts) | (drawn == NONE))


def _among(rows: Tensor, wanted: Collection[int]) -> Tensor:
    return torch.from_numpy(np.isin(rows.numpy(), np.fromiter(wanted, dtype=np.int64)))


def _upon_the_kept(rows: Tensor, place: Tensor, places: int) -> Tensor:
    """The first rows, one a place, and each other one added to that of its place; ``place`` ``(k,)`` says which."""
    return torch.cat([rows[:places], rows[place[places:]] + rows[places:]])


def _of_run(steps: Steps, at: slice | tuple[int, list[int]]) -> Steps:
    """The steps of some runs, or of some participations of one."""
    drift, velocity, noise = (None if t is None else t[at] for t in (steps.drift, steps.velocity, steps.noise))
    return replace(steps, drift=drift, velocity=velocity, noise=noise)
