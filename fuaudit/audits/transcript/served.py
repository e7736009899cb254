"""The server's half of a run once more: from the sums that a transcript opened to the models that were made of them.

Each round begins with the model and the memory of the server that are stored before it. What was opened is all that
comes of its clients; everything behind the transport is executed: means of buffers, the robust rule, the other stages.
It takes no row and no secret of a client, so whoever has a sealed view can do it. A round of which nothing was opened
leaves model and memory as they were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fuaudit.audits.transcript.known import FOR_NOTHING, told_rounds
from fuaudit.declared import says
from fuaudit.runs.layout import MODEL
from fuaudit.runs.ledger import suite_of
from fuaudit.runs.platforms import COUNTED, makers_of, plugins_of, versions
from fuaudit.runs.run import Run
from fuaudit.secure.recheck.shown import Checked, Wrong
from fuaudit.secure.terms import Opened
from fuaudit.training.contracts import Delivery
from fuaudit.training.engines.protocol import single_threaded
from fuaudit.training.exchange import Summation
from fuaudit.training.execute import StepSizes
from fuaudit.training.one_round import Served, server_half
from fuaudit.training.rounds import SERVER, SOLVER, Cohort, ExchangeContext, State, owner_of, stripped
from fuaudit.training.setup import device_of

OTHER = "the stored model, or what the server remembers beside it, is not what the opened sums make"
WAYS = 100_000
"""So often, at most, a parameter is laid down or taken up again."""

ROUNDING = 256
"""So many units of the last digit can be rounding on a machine of the same name."""


@dataclass(frozen=True)
class ServerHalf:
    """What the server's half gives of a run's own rounds, each from what is stored before it.

    Attributes:
        others: the rounds after which something else is stored, ascending.
        rounding: whether all of it is so little that another machine may have rounded otherwise.
        missing: why nothing was executed, as a sentence; empty where it was.
        failed: the rounds of which sums were opened, and which fail with so few.
    """

    others: tuple[int, ...] = ()
    rounding: bool = False
    missing: str = ""
    failed: tuple[int, ...] = ()

    @property
    def wrong(self) -> list[Wrong]:
        """What is wrong."""
        return [Wrong("model", OTHER, number) for number in self.others]

    @property
    def opened_for_nothing(self) -> list[Wrong]:
        """Rounds that fail, and whose sums are open: the next ones are of the same clients over the same model."""
        return [Wrong("sum", FOR_NOTHING, number) for number in self.failed]


def served(run: Run, checked: Checked) -> ServerHalf:
    """Execute everything behind the transport, from the sums that were opened; all of them fit their messages.

    Raises:
        UsageError: the transport has no sums that the run's suite could make, or the run's device is not here.
    """
    sums = run.exchange.summation(str(suite_of(run.ledger)))
    if missing := _missing(run, sums):
        return ServerHalf(missing=missing)
    single_threaded()
    device, others, small = device_of(run.config.run.device), list[int](), True
    failed = list[int]()
    for event in told_rounds(run):
        number = event["round"]
        if not checked.is_made(number):
            continue
        opened = checked.opened_of(number)
        stored, columns = _kept(*run.checkpoint(number)), checked.columns.get(number)
        if columns is not None and columns[-1] >= len(stored[""]):
            others.append(number)
            small = False
            continue
        before = run.checkpoint(number - 1)
        after = _half(run, sums, number, before, opened, columns, device)
        failed += [number] if after.failed else []
        made = _kept(*_stored(before[0], after))
        if not _same(made, stored):
            others.append(number)
            small &= _is_rounding(made, stored, _kept(*before))
    return ServerHalf(tuple(others), bool(others) and small, failed=tuple(failed))


def _missing(run: Run, sums: Summation) -> str:
    """Why nobody can execute it here, as a sentence; empty where it can be done."""
    stages = run.exchange.server.stages
    if not sums.shows_means:
        return "The transport does not say what the server is shown of an opened sum."
    if any(says(stage, "draws") for stage in stages) and run.redacted:
        return (
            "A stage of the server draws with what all clients share, which is not here: it lies with the clients' "
            "secrets, which the operator has."
        )
    if run.sealed and any("samples" in says(stage, "depends_on") for stage in stages):
        return "A stage of the server depends on how many samples there are, which the server may not be given."
    if any(owner_of(name) == SOLVER for name in run.checkpoint(run.checkpoints[-1])[1]):
        return "The solver remembers something of clients' updates beside the model, which no sum makes."
    return ""


def _stored(before: Tensor, after: Served) -> tuple[Tensor, State]:
    """Model and state after a round, by the model before it."""
    vector = before.to(after.row.device)
    return (vector - after.row[0]).cpu(), {SERVER + name: tensor.cpu() for name, tensor in after.state.items()}


def _half(
    run: Run,
    sums: Summation,
    number: int,
    before: tuple[Tensor, State],
    opened: Sequence[Opened],
    columns: Any,
    device: torch.device,
) -> Served:
    """What the server makes of the sums of a round; parts of other packages get copies, for they may write there."""
    vector, learner = before[0].to(device, copy=True), run.learner
    state = {name: tensor.to(device, copy=True) for name, tensor in stripped(SERVER, before[1]).items()}
    count = len(vector) if columns is None else len(columns)
    means = [sums.mean_of(np.asarray(one.sums), len(one.members), vector) for one in opened]
    rows = torch.stack(means) if means else vector.new_empty(0, count)
    total = 0 if run.sealed else run.plan.retained.size  # no stage asks for it where it is not known
    cohort = _nobody(device, len(run.members), total).counted(len(rows))
    context = ExchangeContext(
        number,
        cohort,
        vector,
        StepSizes(learner.step_size, learner.decay).at(number),
        None if columns is None else torch.from_numpy(columns).to(device),
        draws=() if run.redacted else run.stage_draws(run.plan),
    )
    return server_half(run.exchange, Delivery(rows, cohort, rows), context, state)


def _nobody(device: torch.device, members: int, total: int) -> Cohort:
    """A cohort without places."""
    none = torch.zeros(0, dtype=torch.int64, device=device)
    return Cohort(none, none, none, none, none < 0, members, total)


def _kept(vector: Tensor, state: State) -> Mapping[str, Tensor]:
    """What the server has after a round: the model and its memory."""
    return {"": vector} | {name: tensor for name, tensor in state.items() if owner_of(name) == SERVER}


def _same(made: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> bool:
    """Whether all bits are equal: a sign of zero is one."""
    return made.keys() == stored.keys() and all(
        (tensor.dtype, tensor.shape) == (stored[name].dtype, stored[name].shape)
        and tensor.contiguous().numpy().tobytes() == stored[name].contiguous().numpy().tobytes()
        for name, tensor in made.items()
    )


def _is_rounding(made: Mapping[str, Tensor], stored: Mapping[str, Tensor], before: Mapping[str, Tensor]) -> bool:
    """Whether two rounds have one form, and numbers that differ by rounding at most."""
    return made.keys() == stored.keys() and all(
        tensor.shape == stored[name].shape
        and tensor.dtype == stored[name].dtype
        and (torch.equal(tensor, stored[name]) or _near(tensor, stored[name], before.get(name)))
        for name, tensor in made.items()
    )


def _near(made: Tensor, stored: Tensor, before: Tensor | None) -> bool:
    """Whether no number is further beside the other than rounding of it, or of what the round adds, can bring it.

    A rule over rows can take small numbers from large ones that cancel each other, so what it adds counts by its
    largest number. What no round touches is no room for others, however large it is.
    """
    if not made.is_floating_point():
        return False
    added = made if before is None or before.shape != made.shape else made - before
    size = torch.maximum(torch.maximum(made.abs(), stored.abs()), added.abs().max())
    return bool(((made - stored).abs() <= ROUNDING * torch.finfo(made.dtype).eps * size).all())


def is_exported(run: Run) -> bool:
    """Whether the named parameters of a run are its last model, in whatever order they lie there.

    Without rows nobody can build the model, which says the order. Of parts that fit at one place the longest goes
    first; what was made to need many ways is taken for another model.
    """
    vector = run.model.numpy().tobytes()
    parts = sorted((array.tobytes() for array in run.arrays(MODEL).values()), key=lambda part: (-len(part), part))
    return sum(map(len, parts)) == len(vector) and _tiles(vector, parts)


def _tiles(whole: bytes, parts: list[bytes]) -> bool:
    """Whether some parts, each once, make a whole. Those that fit at a place are found by how they begin."""
    left = Counter(filter(None, parts))
    width = min([8, *map(len, left)])
    kinds: dict[bytes, list[bytes]] = {}
    for part in left:
        kinds.setdefault(part[:width], []).append(part)

    def fitting(at: int) -> Iterator[bytes]:
        return (part for part in kinds.get(whole[at : at + width], ()) if left[part] and whole.startswith(part, at))

    at, laid, ways = 0, list[bytes](), [fitting(0)]
    for _ in range(WAYS):
        if at == len(whole):
            return True
        if (one := next(ways[-1], None)) is not None:
            left[one] -= 1
            laid.append(one)
            at += len(one)
            ways.append(fitting(at))
            continue
        ways.pop()
        if not laid:
            return False
        left[laid[-1]] += 1
        at -= len(laid.pop())
    return False


def named_otherwise(run: Run) -> Iterator[str]:
    """What says, without the rows that a canary needs, that the run's own rounds were made on another platform."""
    rounds = [event["round"] for event in told_rounds(run)]
    here, plugins = versions(run.config.run.device), plugins_of(run.config)
    for platform in makers_of(run.ledger, rounds[-1] + 1, rounds[0] - 1) if rounds else ():
        named = [name for name in COUNTED if platform.versions.get(name) != here.get(name)]
        named += ["plugins"] if platform.plugins != plugins else []
        if named:
            since = f"what {run.path.name} stores from round {platform.since} on"
            yield f"{since} was made on another platform: other {', '.join(named)}"
