"""Secure sums against others' ways: ``python benchmarks/secure.py --report docs/results/secure.md``.

``--exact`` compares large sums of every suite with the sum of whole numbers instead. ``--apart`` compares parties that
are objects with parties that are processes instead, ``--report docs/results/secure-apart.md``.

Eight clients, one buffer of a million values (``--values``), and 5 % of them, as consensus sparsification leaves them.
Each row of a table is the processor time of *all* parties together, the processes that add for server and witness with
them, one after the other: making keys, rounding not counted, encryption, messages and their signatures, adding, the
witness's adding again, opening. Ways take turns, so what disturbs the machine disturbs all; medians of ``--turns``, and
of eight times as many over the few values. What a process makes once for all its openings, the context without keys, is
measured beside them. Bytes are what one client sends, in whole envelopes; beside them those of the keys that are handed
to her.

NVFlare's way is made after its description, with the same version of TenSEAL, and is no run of NVFlare: CKKS of degree
8192 with moduli of 60, 40 and 40 bits and a scale of 2**40, one symmetric key for all, one vector for each of 20
layers, the mean taken by a product on the server, sums opened by a client. Its messages have a copy of the context with
every vector; a second row leaves the copies out.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import tenseal
from machine import hardware

from fuaudit.secure import bfv
from fuaudit.secure.adder import running
from fuaudit.secure.encrypted import Client, KeyHolder, Server, Witness, has_masks
from fuaudit.secure.envelope import FRONT_BYTES
from fuaudit.secure.masked import MaskClient, MaskServer
from fuaudit.secure.messages import Identity, Message
from fuaudit.secure.names import EXACT
from fuaudit.secure.suites import Books, Suite
from fuaudit.secure.terms import LIBRARY, RINGS, Once, Terms, coordinates_digest, new_attempt

CLIENTS, LAYERS, SHARE, CLIP = 8, 20, 20, 0.05


@dataclass
class Cost:
    """Processor seconds by party, bytes that a client sends, and bytes of keys that are handed to her."""

    seconds: dict[str, float]
    sent: int
    handed: int = 0

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


def spent() -> float:
    """Processor seconds of this process and of those that add for it."""
    return time.process_time() + sum(map(clock_of, running()))


def clock_of(pid: int) -> float:
    """Processor seconds of another process, on Linux: its clock has a number that follows from its own."""
    return time.clock_gettime((~pid << 3) | 2)


class Clock:
    """Adds processor time to a party."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def of(self, party: str) -> Iterator[None]:
        begun = spent()
        yield
        self.seconds[party] = self.seconds.get(party, 0.0) + spent() - begun


def rows_of(values: int, bits: int) -> np.ndarray:
    """Whole numbers as rounding of values around zero makes them, ``(8, values)``."""
    largest = (1 << bits - 1) - 1
    drawn = np.random.Generator(np.random.Philox(values)).normal(0, 0.01, (CLIENTS, values)).clip(-CLIP, CLIP)
    return np.rint(drawn / CLIP * largest).astype(np.int64)


def terms_of(
    suite: str, rows: np.ndarray, bits: int, identities: list[Identity], others: tuple[Identity, ...] = ()
) -> Terms:
    roster, members, columns = tuple(one.public for one in identities), tuple(range(CLIENTS)), rows.shape[1]
    return Terms(
        suite, members, columns, bits, CLIENTS, CLIENTS, roster, LIBRARY, 1, 0, new_attempt(),
        coordinates_digest(np.arange(columns)), *(one.public for one in others),
    )  # fmt: skip


def numpy_mean(values: int) -> Cost:
    rows, clock = rows_of(values, 12).astype(np.float32), Clock()
    with clock.of("server"):
        rows.mean(axis=0)
    return Cost(clock.seconds, 4 * values)


def by_bfv(suite: str, bits: int, values: int) -> Cost:
    rows, clock = rows_of(values, bits), Clock()
    with clock.of("clients"):
        identities = [Identity() for _ in rows]
    with clock.of("witness"):
        signing = Identity()
    with clock.of("key holder"):
        receipts = Identity()
        terms = terms_of(suite, rows, bits, identities, (signing, receipts))
        holder = KeyHolder(terms, receipts, Once())
        handouts, keyless = [holder.handout(one) for one in terms.members], holder.keyless()
    with clock.of("clients"):
        clients = [Client(terms, one, rows[one], identities[one], handouts[one], Once()) for one in terms.members]
        announced = [one.announce() for one in clients] if has_masks(terms) else []
        sent = [one.send(announced) for one in clients]
    with clock.of("server"):
        total = Server(terms, keyless).total(sent, announced)
    with clock.of("witness"):
        signature = Witness(terms, keyless, signing, Once()).signature(sent, total, announced)
    with clock.of("key holder"):
        opened = holder.opened(total, signature)
    require(opened.sums, rows)
    return Cost(clock.seconds, bytes_of(sent[0], *announced[:1]), FRONT_BYTES + len(handouts[0].body()))


def by_masks(values: int, bits: int = 12) -> Cost:
    rows, clock = rows_of(values, bits), Clock()
    with clock.of("clients"):
        identities = [Identity() for _ in rows]
        terms = terms_of("mask", rows, bits, identities)
        clients = [MaskClient(terms, one, rows[one], identities[one], Once()) for one in terms.members]
        announced = [one.announce() for one in clients]
        shared = [one.share(announced) for one in clients]
        sent = [one.send(shared) for one in clients]
        unmasked = [one.unmask(terms.members) for one in clients]
    with clock.of("server"):
        opened = MaskServer(terms).opened(announced, shared, sent, unmasked)
    require(opened.sums, rows)
    return Cost(clock.seconds, bytes_of(announced[0], shared[0], sent[0], unmasked[0]))


def bytes_of(*messages: Message) -> int:
    """Of whole envelopes."""
    return sum(FRONT_BYTES + len(one.body) for one in messages)


def require(sums: np.ndarray, rows: np.ndarray) -> None:
    if not np.array_equal(sums, rows.sum(axis=0)):
        raise SystemExit("a sum is wrong")


def nvflare(copies: bool, values: int) -> Cost:
    rows, clock, quiet = rows_of(values, 12) * (CLIP / 2047), Clock(), contextlib.redirect_stdout(io.StringIO())
    symmetric = tenseal.ENCRYPTION_TYPE.SYMMETRIC
    with quiet:
        with clock.of("key holder"):
            context = tenseal.context(
                tenseal.SCHEME_TYPE.CKKS, 8192, coeff_mod_bit_sizes=[60, 40, 40], encryption_type=symmetric, n_threads=1
            )
            context.global_scale = 2.0**40
        with clock.of("clients"):
            sent = [[sealed(context, layer, copies) for layer in np.array_split(row, LAYERS)] for row in rows]
        with clock.of("server"):
            plain = tenseal.context_from(context.serialize(), n_threads=1)
            totals = [added(plain, [client[layer] for client in sent]) for layer in range(LAYERS)]
        with clock.of("key holder"):
            opened = [np.array(tenseal.ckks_vector_from(context, one).decrypt()) for one in totals]
    if abs(np.concatenate(opened) - rows.mean(axis=0)).max() > 1e-5:
        raise SystemExit("a mean of CKKS is wrong")
    handed = len(context.serialize(save_secret_key=True))
    return Cost(clock.seconds, sum(len(vector) + len(copy) for vector, copy in sent[0]), handed)


def sealed(context: tenseal.Context, layer: np.ndarray, copies: bool) -> tuple[bytes, bytes]:
    return tenseal.ckks_vector(context, layer.tolist()).serialize(), context.serialize() if copies else b""


def added(plain: tenseal.Context, sent: list[tuple[bytes, bytes]]) -> bytes:
    total: Any = None
    for vector, copy in sent:
        here = tenseal.context_from(copy, n_threads=1) if copy else plain
        one = tenseal.ckks_vector_from(here, vector)
        total = one if total is None else total + one
    mean: bytes = (total * (1 / CLIENTS)).serialize()
    return mean


WAYS: dict[str, Callable[[int], Cost]] = {
    "numpy mean": numpy_mean,
    "`mask`, 12 bits": by_masks,
    "NVFlare's way": lambda values: nvflare(True, values),
    "NVFlare's way, no copies": lambda values: nvflare(False, values),
    "`bfv`, 12 bits x 3": lambda values: by_bfv("bfv", 12, values),
    "`bfv+mask`, 12 bits x 3": lambda values: by_bfv("bfv+mask", 12, values),
    "`bfv`, 8 bits x 4": lambda values: by_bfv("bfv", 8, values),
    "`bfv+mask`, 8 bits x 4": lambda values: by_bfv("bfv+mask", 8, values),
}
COPIES, BARE, OURS = "NVFlare's way", "NVFlare's way, no copies", "`bfv+mask`, 12 bits x 3"


def once_a_process() -> float:
    """Processor seconds of the context without keys, which a process makes once for all its openings."""
    begun = time.process_time()
    bfv.context_of(RINGS[0])
    return time.process_time() - begun


Costs = dict[tuple[str, int], list[Cost]]
"""Way and number of values -> its costs, in the order of turns."""


def measured(values: int, turns: int) -> Costs:
    """Every way over all values, and after each of them every way over a twentieth."""
    Suite("bfv").sums(rows_of(9, 12), 12)  # starts what adds
    few, found = values // SHARE, Costs()
    for _ in range(turns):
        for name, way in WAYS.items():
            found.setdefault((name, values), []).append(way(values))
            # a machine's speed changes within seconds, and what is short would be measured in one state of it
            for short, other in WAYS.items():
                found.setdefault((short, few), []).append(other(few))
    return found


def middle(costs: list[Cost]) -> Cost:
    first = costs[0]
    seconds = {party: median(one.seconds[party] for one in costs) for party in first.seconds}
    return Cost(seconds, first.sent, first.handed)


def times(over: int, under: int) -> str:
    return f"{over / under:.1f} times"


def by_turns(over: list[Cost], under: list[Cost], turns: int) -> str:
    """How many times longer one way takes than another: of medians, and the lowest and highest of turns."""
    taken = [np.array([one.total for one in costs]).reshape(turns, -1) for costs in (over, under)]
    ratios = np.median(taken[0], axis=1) / np.median(taken[1], axis=1)
    whole = middle(over).total / middle(under).total
    return f"{whole:.1f} times (turns: {ratios.min():.1f} to {ratios.max():.1f})"


def page(found: Costs, values: int, turns: int, once: float) -> str:
    costs = {key: middle(costs) for key, costs in found.items()}
    few, dense, here = values // SHARE, costs[COPIES, values], hardware()
    lines = [
        "# Secure sums, measured",
        "",
        f"    python benchmarks/secure.py --values {values} --turns {turns} --report docs/results/secure.md",
        "",
        f"fuaudit {here['fuaudit']}, tenseal {LIBRARY}, numpy {here['numpy']}, python {here['python']}, "
        f"{here['processor']}, {here['cores']} cores, shared with other work. {CLIENTS} clients, one buffer. Times are "
        f"processor times of all parties together, medians of {turns} turns, {len(WAYS)} times as many over "
        f"{values // SHARE:,} values, as multiples of {OURS}; beside them which "
        "share of its time each party takes. Rounding is not counted; keys, signatures and the witness are. Bytes are "
        "what a client sends, in whole envelopes.",
        "",
    ]
    for size in (values, few):
        lines += [
            f"## {size:,} values",
            "",
            "| way | time | clients | server | witness | key holder | bytes a client | bytes a value | bytes of keys |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        ]
        for name in WAYS:
            cost = costs[name, size]
            shares = [f"{cost.seconds[p] / cost.total:.0%}" if p in cost.seconds else "-" for p in PARTIES]
            longer = cost.total / costs[OURS, size].total
            counted = f"{cost.sent:,} | {cost.sent / size:.2f} | {cost.handed:,}"
            lines.append(f"| {name} | {longer:.2g} | {' | '.join(shares)} | {counted} |")
        lines.append("")
    ours, sparse = costs[OURS, values], costs[OURS, few]
    keyed, keyed_few = (dense.sent / (one.sent + one.handed) for one in (ours, sparse))
    lines += [
        "## Beside its targets",
        "",
        "| `bfv+mask`, 12 bits x 3, everything counted | target | measured |",
        "| --- | --- | --- |",
        *(
            f"| {what} | at least {target} times | {told} |"
            for what, target, told in (
                ("faster than NVFlare's way", 4, by_turns(found[COPIES, values], found[OURS, values], turns)),
                ("fewer bytes than NVFlare's way", 12, times(dense.sent, ours.sent)),
                ("fewer bytes than NVFlare's way without copies", 10, times(costs[BARE, values].sent, ours.sent)),
                (
                    f"{few:,} values: faster than NVFlare's way over all",
                    60,
                    by_turns(found[COPIES, values], found[OURS, few], turns),
                ),
                (f"{few:,} values: fewer bytes than NVFlare's way over all", 150, times(dense.sent, sparse.sent)),
            )
        ),
        "",
        f"NVFlare's way over the same {few:,} values takes {costs[COPIES, few].total / sparse.total:.1f} times the "
        f"time and {costs[COPIES, few].sent / sparse.sent:.1f} times the bytes of `bfv+mask`; without copies of the "
        f"context {costs[BARE, few].total / sparse.total:.1f} and {costs[BARE, few].sent / sparse.sent:.1f} times.",
        "",
        "Keys are new in every round, and the key holder hands each client hers: bytes of keys. NVFlare's clients get "
        f"theirs once a training. With them `bfv+mask` has {keyed:.1f} times fewer bytes than NVFlare's way over all "
        f"{values:,} values, and {keyed_few:.0f} times fewer over {few:,}.",
        "",
        "The context without keys is made once a process and not counted: what SEAL computes from the parameters "
        f"alone, {once / sparse.total:.2f} times the time of {OURS} over {few:,} values. Where each of the "
        f"{PROCESSES} parties and processes that add makes its own, and it is counted in, `bfv+mask` is faster than "
        "NVFlare's way over all "
        + ", ".join(f"{dense.total / (sparse.total + PROCESSES * once / n):.0f} times over {n} buffers" for n in RUNS)
        + ".",
        "",
        "NVFlare's way is made after its description with the same library, and is no run of NVFlare: there is no "
        "network, and no layer is left out. It protects against less: whoever sees its sums has the key "
        "([secure-aggregation.md](../secure-aggregation.md)).",
    ]
    return "\n".join(lines) + "\n"


LARGE = ((2, 2_000_000, 12), (8, 1_000_000, 24), (9, 500_000, 19), (32, 2_000_000, 9))
"""Clients, values and bits of sums that are too large for tests."""


def exact() -> None:
    """Says that every suite gives the sums of the large cases, half of whose values are at one of both ends."""
    for clients, values, bits in LARGE:
        largest = (1 << bits - 1) - 1
        rows = np.random.Generator(np.random.Philox(clients)).integers(-2 * largest, 2 * largest + 1, (clients, values))
        rows = rows.clip(-largest, largest)
        for name in EXACT:
            if not np.array_equal(Suite(name, most=clients).sums(rows, bits), rows.sum(axis=0)):
                raise SystemExit(f"{name}: a sum of {clients} clients with {values} values of {bits} bits is wrong")
        print(f"{clients} clients, {values:,} values of {bits} bits: {', '.join(EXACT)} are exact", flush=True)


Taken = dict[tuple[str, int, bool], list[tuple[float, float]]]
"""Suite, values, whether parties are processes -> seconds by the clock and of all processors, turn by turn."""


def apart(values: int, turns: int) -> str:
    """A page: seconds of a buffer by the clock, and of all processors, of objects and of processes."""
    sizes, costs, starts = (values, values // SHARE), Taken(), list[float]()
    books, rounds = Books(), count()
    for name in EXACT:  # starts all processes, and what adds
        begun = time.perf_counter()
        Suite(name, apart=True).opened(rows_of(9, 12), 12, at=(next(rounds), 0), books=books)
        starts.append(time.perf_counter() - begun)
        Suite(name).sums(rows_of(9, 12), 12)
    for _ in range(turns):
        for size in sizes:
            rows = rows_of(size, 12)
            for name in EXACT:
                for way in (False, True):
                    at, own = (next(rounds), 0), books if way else None
                    begun, before = time.perf_counter(), spent() + spent_by(books)
                    opened = Suite(name, apart=way).opened(rows, 12, at=at, books=own)
                    took = (time.perf_counter() - begun, spent() + spent_by(books) - before)
                    require(opened.sums, rows)
                    costs.setdefault((name, size, way), []).append(took)
    peak = {name: highest(pid) for name, pid in books.apart.pids.items()}
    books.end()
    return apart_page(costs, values, turns, max(starts), peak)


def spent_by(books: Books) -> float:
    """Processor seconds of all parties that are processes, and of those that add for them."""
    pids = list(books.apart.pids.values())
    others = [int(one) for pid in pids for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return sum(map(clock_of, pids + others))


def highest(pid: int) -> int:
    """The most memory that a process had, in kB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def apart_page(costs: Taken, values: int, turns: int, start: float, peak: dict[str, int]) -> str:
    here = hardware()
    lines = [
        "# Parties apart, measured",
        "",
        f"    python benchmarks/secure.py --apart --values {values} --turns {turns} "
        "--report docs/results/secure-apart.md",
        "",
        f"fuaudit {here['fuaudit']}, tenseal {LIBRARY}, numpy {here['numpy']}, python {here['python']}, "
        f"{here['processor']}, {here['cores']} cores, shared with other work. {CLIENTS} clients, values of 12 bits, "
        "one buffer; a server, a witness, a key holder, two processes of clients, kept from buffer to buffer. Objects "
        f"and processes take turns, {turns} of them: medians, lowest and highest in brackets. Ratios are those of "
        "turns. Time by the clock depends on what else the machine does, and processes can use two cores at once.",
        "",
        "| suite | values | objects, s by the clock | processes, s by the clock | ratio | ratio of processor time |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, size in {(name, size): None for name, size, _ in costs}:
        objects, processes = costs[name, size, False], costs[name, size, True]
        ratios = [[a[part] / b[part] for a, b in zip(processes, objects, strict=True)] for part in (0, 1)]
        clocks = [spread([one[0] for one in found]) for found in (objects, processes)]
        lines.append(f"| `{name}` | {size:,} | {' | '.join([*clocks, *map(spread, ratios)])} |")
    lines += [
        "",
        f"The first opening of a run starts the processes and imports what they need: {start:.1f} s here. The most "
        "memory of each, in MB: " + ", ".join(f"{name} {kilo / 1000:.0f}" for name, kilo in sorted(peak.items())) + ".",
    ]
    return "\n".join(lines) + "\n"


def spread(found: list[float]) -> str:
    return f"{median(found):.2g} ({min(found):.2g} to {max(found):.2g})"


PARTIES = ("clients", "server", "witness", "key holder")
PROCESSES, RUNS = CLIENTS + 3, (2, 10, 30, 100)
"""Clients, key holder, and the two that add for server and witness; and how many buffers a run may have."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--values", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--apart", action="store_true", help="instead: parties that are processes beside objects")
    parser.add_argument("--exact", action="store_true", help="instead: whether large sums are exact, by every suite")
    chosen = parser.parse_args()
    if chosen.exact:
        exact()
        return
    size, turns = chosen.values, chosen.turns
    once = once_a_process()
    text = apart(size, turns) if chosen.apart else page(measured(size, turns), size, turns, once)
    if chosen.report:
        chosen.report.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
