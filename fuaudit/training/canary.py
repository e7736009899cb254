"""The canary: a digest over bits that a config's arithmetic makes here, on numbers that are the same everywhere.

Equal libraries on one processor can still round differently: a matrix library chooses its code by the processor's
vendor, by instruction sets and by environment variables. Nothing reports that choice, but bits show it. The canary
takes the config's own path (model, engine, solver, server, dtype, device, one thread) through a federation in miniature
whose numbers are made from integers, and two machines whose canaries differ give other bits for the run too.

Bits may depend on shapes of inputs, on lengths of batches and on the length of the chunks in which models are measured.
These are as in the run. (Batches are full, and some ragged; an engine that stacks participations pads both to chunks of
one length.) The numbers of clients and participants are smaller than in the run, because participations never mix. So
are the number of rounds and the size of a step, which no library looks at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import accumulate, chain, islice, pairwise, product

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fuaudit.data.dataset import Dataset, erased_input, scaling_constants
from fuaudit.errors import AnswerError, FuauditError, PluginError
from fuaudit.models import Embedding
from fuaudit.plans import Population
from fuaudit.plans.expanded import NONE, Schedule
from fuaudit.plans.stage_draws import PublicDraws
from fuaudit.training.asking import asking_once, asking_twice
from fuaudit.training.engines.protocol import ClientProblem, Engine, single_threaded, threads_restored
from fuaudit.training.events import fails
from fuaudit.training.exchange import Clear, Exchange
from fuaudit.training.execute import Procedure, RoundState, StepSizes, client_problem, execute
from fuaudit.training.measuring import CHUNK, answering, loss_of
from fuaudit.training.setup import Setup
from fuaudit.training.solvers import Outcome, Steps
from fuaudit.training.stages import Chain, Mean

STEPS = 2
"""Local steps a round, where the law has so many."""

ENOUGH = 2**13
"""Numbers of local models to be made at least, in rounds up to :data:`MOST_ROUNDS`: two platforms may agree on a few
numbers by chance, and a small model makes few in a round."""

MOST_ROUNDS = 4

ASKED_TWICE = 2
"""Rounds in which every part is asked twice: the first, and one that starts from what a round left."""

STEADY = "A part keeps nothing in its object or module, and draws from its context alone. No audit could replay it."

LARGE = 2**17
"""Models of more parameters make one round of two participations: they have numbers enough."""

PLACES = 8
"""Participations a round, at least, in models that are not large."""

LONGEST = 1024
"""Longer batches are represented by batches of so many rows."""

TURNS = 16
"""Losses taken of one chunk, each with other targets: one loss is one number, and may agree by chance."""


@dataclass(frozen=True)
class _Miniature:
    """A federation of made numbers in which client i has a batch of ``lengths[i]`` rows, and all but the last train."""

    ready: Setup
    population: Population
    schedule: Schedule

    @classmethod
    def of(cls, ready: Setup) -> _Miniature:
        """Like the federation of a config in every shape that bits may depend on."""
        law, dimension = ready.learner.law, ready.procedure.layout.dimension
        longest = min(law.slots, LONGEST)
        large = dimension > LARGE
        lengths = _lengths(longest)[: 2 if large else None]
        lengths += [1] * (0 if large else PLACES - len(lengths))  # aggregators and transports need some rows
        ends = [0, *accumulate((*lengths, 1))]
        samples = {client: tuple(range(*span)) for client, span in enumerate(pairwise(ends))}
        made = STEPS * dimension * len(lengths)
        rounds = 1 if large else min(MOST_ROUNDS, max(2, -(-ENOUGH // made)))
        cohorts = np.tile(np.arange(len(lengths)), (1, rounds, 1))
        batches = np.full((*cohorts.shape, min(law.steps, STEPS), longest), NONE)
        for client, length in enumerate(lengths):
            batches[:, :, client, :, :length] = samples[client]
        dataset = _dataset(ready, ends[-1])
        return cls(replace(ready, dataset=dataset), Population(samples), Schedule(cohorts, batches))


@threads_restored()
def canary(ready: Setup) -> str:
    """SHA-256, in hexadecimal, over updates, models, memories, server steps, answers and losses of a miniature.

    Depends on the config but not on its secrets or data (only on their shape, type and number of classes, and on how
    many test rows the last chunk has), and on how this machine computes. Draws nothing, reads no file. The exchange
    is that without cryptography.

    Raises:
        UsageError: the engine cannot compute here.
        PluginError: the transport has no form without cryptography; or a part gives other bits when it is asked twice,
            so that no second execution makes the same models; or it answers what it must not, as whole numbers beyond
            those that it declares.
    """
    single_threaded()
    little = _Miniature.of(ready)
    # a miniature is simulated, wherever the rounds of the run come from
    exchange = replace(ready.procedure.exchange, received=False)
    procedure = replace(ready.procedure, exchange=exchange, step_sizes=StepSizes(0.3))  # no power of two: rounded
    with asking_twice() as unsteady:
        round_states, updates = _tried(little, procedure)
    if unsteady:
        raise PluginError(f"{unsteady[0]}: it is not a function of what it is given", STEADY)
    digest = sha256(b"fuaudit canary 2")
    for update in updates:
        digest.update(update)
    constants = scaling_constants(little.ready.dataset, little.population, procedure.scaling)
    digest.update(np.array([*constants, *_powers()], dtype="<f8").tobytes())
    for round_state in round_states:
        vector, state = round_state.of(0)
        for tensor in (vector, *(state[name] for name in sorted(state))):
            digest.update(tensor.contiguous().numpy().tobytes())
    for piece in _measured(little, _initial(procedure)[0]):
        digest.update(piece)
    return digest.hexdigest()


@dataclass(frozen=True)
class _Heard:
    """An engine whose updates are heard one by one: the mean of a round may round one's last bit away."""

    engine: Engine
    updates: list[bytes] = field(default_factory=list)

    @property
    def name(self) -> str:
        """That of the engine."""
        return self.engine.name

    def advance(self, problem: ClientProblem, vectors: Tensor, batches: Tensor, steps: Steps) -> Outcome:
        """See :class:`~fuaudit.training.engines.protocol.Engine`."""
        outcome = self.engine.advance(problem, vectors, batches, steps)
        self.updates.append(sha256(outcome.updates.contiguous().cpu().numpy().tobytes()).digest())
        return outcome


def _tried(little: _Miniature, procedure: Procedure) -> tuple[list[RoundState], list[bytes]]:
    """The rounds, and digests of the updates in them.

    Where so small a federation is refused or fails, the mean stands in for server stages, rows are shown as they are,
    or the mean stands in for all.

    Raises:
        AnswerError: a part breaks its word, however small the federation is.
    """
    exchange, mean = procedure.exchange.in_the_clear(), Chain((Mean(),))
    behind = Chain((Mean(), *exchange.server.stages[exchange.server.aggregating :]))
    for transport, server in product((exchange.transport, Clear()), (exchange.server, behind, mean)):
        tried = replace(exchange, transport=transport, server=server)
        try:
            found, updates = _rounds(little, replace(procedure, exchange=tried))
        except AnswerError:
            raise  # whatever a part is given, it must not answer so
        except FuauditError:
            continue
        if not any(fails(event) for round_state in found for event in round_state.events):
            return found, updates
    return _rounds(little, replace(procedure, exchange=Exchange(mean)))


def _rounds(little: _Miniature, procedure: Procedure) -> tuple[list[RoundState], list[bytes]]:
    """What the rounds of a miniature end with, and digests of the updates in them."""
    ready, engine = little.ready, _Heard(little.ready.engine)
    memory = procedure.initial_memory(len(little.population.clients), ready.device)
    start = RoundState.of_run(_initial(procedure)[0], memory, ready.device)
    problem = client_problem(procedure, ready.dataset, little.population, ready.device)
    draws = [PublicDraws()]
    rounds = execute(procedure, problem, little.population, little.schedule, start, engine, draws=draws)
    found = [round_state for _, round_state in islice(rounds, ASKED_TWICE)]
    with asking_once():
        found += [round_state for _, round_state in rounds]
    return found, engine.updates


def _initial(procedure: Procedure) -> Tensor:
    """The model before the first round, ``(1, d)``: finite, wherever the steps lead."""
    return procedure.layout.initial(_uniform(procedure.layout.dimension, "initial")[None], procedure.dtype)


def _measured(little: _Miniature, vector: Tensor) -> Iterator[bytes]:
    """Answers to the test rows, and losses by several turns of their targets."""
    data, logits = little.ready.dataset, answering(little.ready, little.population)
    for first in range(0, len(data.test_targets), CHUNK):
        found = logits(vector, data.test_inputs[first : first + CHUNK])
        yield found.contiguous().numpy().tobytes()
        wanted = data.test_targets[first : first + CHUNK]
        losses = [loss_of(found, wanted.roll(turn)) for turn in range(TURNS)]
        yield np.array(losses, dtype="<f8").tobytes()


def _powers() -> Iterator[float]:
    """Powers of made numbers, as decays of step sizes are: their last bit is a matter of the C library."""
    for number in _uniform(64, "decays").tolist():
        yield from (number**exponent for exponent in range(2, 66))


def _lengths(longest: int) -> list[int]:
    """Lengths of batches: the full one, one, one less than full, and powers of two between; no two are equal."""
    halves = (2**power for power in range(longest.bit_length() - 1, 0, -1))
    return [length for length in dict.fromkeys((longest, 1, longest - 1, *halves)) if 0 < length <= longest]


def _dataset(ready: Setup, rows: int) -> Dataset:
    """Made rows in the shape and type of the config's data; a whole chunk to measure, and one as long as its last."""
    like = ready.dataset
    test = CHUNK + len(like.test_targets) % CHUNK
    inputs, targets = _inputs(ready, rows + test), _words(rows + test, "targets") % np.uint64(like.classes)
    labels = torch.from_numpy(targets.astype(np.int64))
    return Dataset(inputs[:rows], labels[:rows], inputs[rows:], labels[rows:], like.classes)


def _inputs(ready: Setup, rows: int) -> Tensor:
    """Numbers in [0, 1), or tokens that every embedding of the model knows: ``(rows, *shape)``."""
    like = ready.dataset
    count = rows * int(np.prod(like.shape))
    if like.inputs.is_floating_point():
        made = torch.from_numpy(_uniform(count, "inputs"))
    else:
        known = (m.num_embeddings for m in ready.procedure.module.modules() if isinstance(m, Embedding))
        tokens = min(chain(known, (int(erased_input(like.inputs.dtype)),)))
        made = torch.from_numpy((_words(count, "inputs") % np.uint64(tokens)).astype(np.int64))
    return made.to(like.inputs.dtype).view(rows, *like.shape)


def _uniform(count: int, name: str) -> NDArray[np.float64]:
    """Numbers in [0, 1), multiples of 2**-53."""
    return (_words(count, name) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _words(count: int, name: str) -> NDArray[np.uint64]:
    """Words of 64 bits: the finalizer of SplitMix64 over the numbers from one on that follows from a name."""
    first = int.from_bytes(sha256(name.encode()).digest()[:8], "little")
    words = np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(first)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
