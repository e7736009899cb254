"""What a round of FedREP costs server and clients, beside means of dense rows: it writes ``docs/results``.

    python benchmarks/fedrep_speed.py                  two processor minutes and 9 GB; one thread
    python benchmarks/fedrep_speed.py --parameters 1000000 --page FILE

32 clients, 10 million parameters, K = 5 % of them, buffers of two, the geometric median of 8 steps. Everything that is
timed is a function that training calls: ``propose`` and ``agree`` of ``consensus``, ``error-feedback``, ``delivered``
and ``server_half``. First a whole round by ``exchanged`` has to leave the row that these leave, bit for bit.

Contenders take turns inside one process, so what disturbs the machine disturbs all of them. Printed are medians and
ranges of ratios of processor seconds, turn by turn; a first turn is not counted. Memory is measured in processes of
their own: the kernel's highest resident set is set back before the work, and read after it. There every piece of more
than 64 KiB goes back to the kernel at once, so nothing that is used again is overlooked.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from fuaudit_plugins.conspar import Consensus
from fuaudit_plugins.error_feedback import ErrorFeedback
from fuaudit_plugins.medians import GeometricMedian
from fuaudit_plugins.secure_sum import SecureSum
from machine import hardware
from torch import Tensor

from fuaudit.plans.stage_draws import PublicDraws
from fuaudit.testing.contexts import stacked
from fuaudit.training.contracts import Delivery
from fuaudit.training.exchange import Exchange
from fuaudit.training.one_round import Sending, Served, client_half, delivered, exchanged, server_half, settled
from fuaudit.training.rounds import Cohort, ExchangeContext, State, StateShape
from fuaudit.training.stages import Chain, Mean

PAGE = Path(__file__).parents[1] / "docs" / "results" / "fedrep-speed.md"
CLIENTS, PARAMETERS, SHARE, STEPS, SIZE, BYZANTINE = 32, 10**7, 20, 8, 2, 7
"""One coordinate of ``SHARE`` is proposed at most."""
TURNS = 5
BYTES = 4
"""Of a number."""

SERVER, DENSE_MEAN, TORCH_MEAN, DENSE_RULE = (
    "server side of FedREP",
    "dense mean of the tool",
    "dense mean of torch",
    "geometric median over dense buffers",
)
TOP, CLIENT = "clients: the top k", "clients: all of their side, with memory"

PAGE_TEXT = """\
# The speed of a round of FedREP

    python benchmarks/fedrep_speed.py

{machine}. One thread; {clients} clients, {parameters:,} parameters of 4 bytes, K = 5 % of them (k = {per_client:,}), \
alpha 0, buffers of {size}, geometric median of {steps} steps. Their rows are normal draws, so they agree on \
{agreed:,} coordinates, |I|. Processor seconds, {turns} turns in one process after one that is not counted: medians, \
and in brackets the lowest and the highest. Ratios are those of turns.

| | seconds | times the server side |
|---|---|---|
{times}

The server side is the union of proposals, the means of buffers, the rule, and the row on all coordinates. The dense \
mean is that of the same {clients} rows. Dense buffers are the same round without client stages, as in SHARE. What \
clients do is that of all {clients} together.

| bound | measured | |
|---|---|---|
{bounds}

Memory is the highest resident set during the work less that before it, in a fresh process in which no freed piece is \
kept. The server side is given proposals and the {clients} rows on I, {rows:.0f} MB; what it takes beside them is \
{server:.0f} MB. The client side is given updates and u_k, {tables:,.0f} MB, and takes {client:,.0f} MB beside them: \
{copies:.1f} tables of m d numbers.

The bounds are those of ten million parameters. Where the dense row of a client lies in the processor's cache, its \
mean is cheap: with a million parameters (`--parameters 1000000`) the tool's dense mean took 0.4 of the server side's \
time, and torch's the same.
"""


# --- the round


@dataclass(frozen=True)
class Round:
    """What a round begins with: updates ``(m, d)``, and the exchange by which they become a row."""

    updates: Tensor
    exchange: Exchange
    context: ExchangeContext

    @classmethod
    def of(cls, parameters: int) -> Round:
        """A first round with drawn updates."""
        ids = torch.arange(CLIENTS)
        counts = torch.full((CLIENTS,), 5)
        cohort = Cohort(ids, ids, counts, counts, ids >= 0, CLIENTS, 5 * CLIENTS)
        context = ExchangeContext(1, cohort, torch.zeros(parameters), step_size=0.1, draws=(PublicDraws(),))
        stages = Chain((ErrorFeedback(), Consensus(parameters // SHARE // CLIENTS)))
        exchange = Exchange(Chain((GeometricMedian(STEPS),)), stages, SecureSum(SIZE, byzantine=BYZANTINE))
        drawn = torch.empty(CLIENTS, parameters).normal_(generator=torch.Generator().manual_seed(1))
        return cls(drawn, exchange, context)

    @property
    def without_stages(self) -> Exchange:
        """The same exchange without client stages: buffers are dense."""
        return replace(self.exchange, client_stages=Chain(()))

    def memory(self) -> State:
        """u_k before the round: zero."""
        shape = StateShape(self.updates.shape[1], CLIENTS, self.updates.dtype, self.updates.device)
        return self.exchange.client_stages.init(shape)

    def proposals(self) -> list[Tensor]:
        """What all clients propose, of their updates alone: u_k is zero."""
        consensus: Any = self.exchange.client_stages.stages[1]
        proposed: list[Tensor] = consensus.propose(self.updates, self.exchange.seen_by(1, self.context))
        return proposed

    def columns(self, proposals: list[Tensor]) -> Tensor:
        """The union of proposals, which the server takes, ``(c,)``."""
        consensus: Any = self.exchange.client_stages.stages[1]
        here = self.exchange.seen_by(1, self.context).without_own()
        union: Tensor = consensus.agree(proposals, here)
        return union

    def agreed(self, proposals: list[Tensor]) -> ExchangeContext:
        """The round on these columns."""
        return replace(self.context, coordinates=self.columns(proposals))


def served(exchange: Exchange, sending: Sending) -> tuple[Tensor, Served]:
    """What was sent of each row, and what the server makes of it: as training does it, with a copy of the former."""
    delivery = delivered(exchange, sending)
    sent = delivery.sent if exchange.plain else delivery.sent.clone()
    return sent, server_half(exchange, delivery, sending.context, {})


def server_side(round_: Round, proposals: list[Tensor], rows: Tensor) -> Tensor:
    """The server's part: from proposals and the rows on the union of them, ``(m, c)``, to the row ``(1, d)``."""
    return served(round_.exchange, Sending(rows, round_.agreed(proposals), {}, {}))[1].row


def client_side(round_: Round, memory: State) -> State:
    """The clients' part: what they send, and what they keep. The server's answer is that all came, and zero."""
    sending = client_half(round_.exchange, round_.updates, round_.context, memory)
    came = Delivery(sending.rows, sending.context.cohort, sending.rows)
    return settled(round_.exchange, sending, came, sending.rows[:1])


def require_the_same_work(parameters: int) -> None:
    """SystemExit unless the parts that are timed leave the row of a whole round."""
    round_ = Round.of(parameters)
    memory = {name: tensor[None] for name, tensor in round_.memory().items()}
    whole = exchanged(round_.exchange, round_.updates[None], stacked([round_.context]), memory, {})
    proposals = round_.proposals()
    rows = round_.updates[:, round_.columns(proposals)]
    if not torch.equal(whole.row[0], server_side(round_, proposals, rows)):
        raise SystemExit("the parts that are timed do other work than a round")


# --- time


def contenders(round_: Round) -> tuple[int, dict[str, Callable[[], object]]]:
    """|I|, and what takes turns."""
    proposals, memory = round_.proposals(), round_.memory()
    columns = round_.columns(proposals)
    rows, dense = round_.updates[:, columns], Sending(round_.updates, round_.context, {}, {})
    plain = Exchange(Chain((Mean(),)))
    return len(columns), {
        SERVER: lambda: server_side(round_, proposals, rows),
        DENSE_MEAN: lambda: served(plain, dense),
        TORCH_MEAN: lambda: round_.updates.mean(dim=0),
        DENSE_RULE: lambda: served(round_.without_stages, dense),
        TOP: round_.proposals,
        CLIENT: lambda: client_side(round_, memory),
    }


def in_turns(work: dict[str, Callable[[], object]], turns: int) -> dict[str, list[float]]:
    """Processor seconds of each contender, turn by turn; who is first changes each time."""
    names, found = [*work], dict[str, list[float]]()
    for turn in range(turns + 1):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            begun = time.process_time()
            work[name]()
            seconds = time.process_time() - begun
            if turn:  # the first one warms up
                found.setdefault(name, []).append(seconds)
    return found


def shown(values: list[float], form: str) -> str:
    """The median, the lowest and the highest."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


# --- memory


def extra_memory(parameters: int, side: str) -> float:
    """By how many bytes the resident set of a fresh process grows at most while it does the work of a side."""
    # every freed piece of more than 64 KiB goes back to the kernel, so none is used again unseen
    environment = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--parameters", str(parameters), "--peak", side]
    told = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    return float(told.stdout)


def resident(what: str) -> int:
    """Bytes: ``VmRSS`` now, ``VmHWM`` the most since it was set back. Linux tells them."""
    line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith(what))
    return 1024 * int(line.split()[1])


def print_peak(parameters: int, side: str) -> None:
    """In a fresh process: prints how far the resident set grows."""
    require_the_same_work(CLIENTS * SHARE * 10)  # what is loaded at the first use is there
    round_ = Round.of(parameters)
    proposals, memory = round_.proposals(), round_.memory() if side == CLIENT else {}
    rows = round_.updates[:, round_.columns(proposals)] if side == SERVER else round_.updates
    sides: dict[str, Callable[[], object]] = {
        SERVER: lambda: server_side(round_, proposals, rows),
        CLIENT: lambda: client_side(round_, memory),
    }
    work = sides[side]
    Path("/proc/self/clear_refs").write_text("5")  # sets the most back to what is resident now
    before = resident("VmRSS")
    result = work()
    print(resident("VmHWM") - before)
    del result


# --- the page


def page(parameters: int, turns: int) -> str:
    """Measure, and write what came out."""
    require_the_same_work(parameters // 10)
    agreed, work = contenders(Round.of(parameters))
    found = in_turns(work, turns)
    ratios = {name: [own / of for own, of in zip(found[name], found[SERVER], strict=True)] for name in found}
    del work
    server, client = (extra_memory(parameters, side) for side in (SERVER, CLIENT))
    allowed = 3 * CLIENTS * agreed * BYTES + 2 * parameters * BYTES
    shares = {name: [1 / ratio for ratio in ratios[name]] for name in (DENSE_MEAN, TORCH_MEAN)}
    bounds = [
        ("at most the time of the tool's dense mean", shares[DENSE_MEAN], 1.0),
        ("at most 4 times that of torch's dense mean", shares[TORCH_MEAN], 4.0),
        ("at most 1/10 of that of the rule over dense buffers", [1 / ratio for ratio in ratios[DENSE_RULE]], 0.1),
    ]
    lines = [f"| {words} | {shown(of, '.3f')} | {held(of, most)} |" for words, of, most in bounds]
    memory = (
        f"| at most {allowed / 1e6:.0f} MB of memory: 3 tables of m x I and 2 of d numbers | {server / 1e6:.0f} MB |"
    )
    times = [f"| {name} | {shown(found[name], '.3f')} | {shown(ratios[name], '.2f')} |" for name in found]
    return PAGE_TEXT.format(
        machine=", ".join(f"{key} {value}" for key, value in hardware().items()),
        clients=CLIENTS,
        parameters=parameters,
        per_client=parameters // SHARE // CLIENTS,
        size=SIZE,
        steps=STEPS,
        agreed=agreed,
        turns=turns,
        times="\n".join(times),
        bounds="\n".join([*lines, f"{memory} {held([server], allowed)} |"]),
        rows=CLIENTS * agreed * BYTES / 1e6,
        server=server / 1e6,
        tables=2 * CLIENTS * parameters * BYTES / 1e6,
        client=client / 1e6,
        copies=client / (CLIENTS * parameters * BYTES),
    )


def held(values: list[float], most: float) -> str:
    """Whether the median keeps to a bound."""
    return "holds" if statistics.median(values) <= most else "missed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=int, default=PARAMETERS)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--peak", choices=(SERVER, CLIENT), help="print the memory of one side, and nothing else")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.peak:
        print_peak(options.parameters, options.peak)
    else:
        options.page.write_text(page(options.parameters, options.turns))
        print(options.page.read_text())


if __name__ == "__main__":
    main()
