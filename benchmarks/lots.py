"""What the chains of lots cost: hashes before training, hashes a round, and memory, by how many rounds there are.

    python benchmarks/lots.py
    python benchmarks/lots.py 1000          chains of so many rounds

One client, one thread, processor time. The dumb form keeps all elements in a list; it is what a chain is held against.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable
from typing import TypeVar

from fuaudit.commitments.lots import chain_end
from fuaudit.draws.chains import Chain, before

T = TypeVar("T")
SECRET = bytes(range(32))


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Processor seconds of some work, and what it gives."""
    begin = time.process_time()
    made = work()
    return time.process_time() - begin, made


def whole(last: bytes, length: int) -> list[bytes]:
    """All elements, the end first."""
    elements = [last]
    for _ in range(length):
        elements.append(before(elements[-1]))
    return elements[::-1]


def measured(length: int) -> str:
    """A row of the table, for a chain of so many elements."""
    ends, _ = timed(lambda: chain_end(SECRET, length))
    tracemalloc.start()
    made, chain = timed(lambda: Chain(SECRET, length))
    chain.element(length // 2)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    made, chain = timed(lambda: Chain(SECRET, length))
    turns, found = timed(lambda: [chain.element(number) for number in range(1, length + 1)])
    apart, _ = timed(lambda: [chain.element(number) for number in range(1, length + 1, max(1, length // 100))])
    if found != whole(SECRET, length)[1:]:
        raise SystemExit("a chain gives other elements than a list of all")
    steps = len(range(1, length + 1, max(1, length // 100)))
    return (
        f"| {length:,} | {ends:.3f} | {made:.3f} | {1e6 * turns / length:.2f} | {1e6 * apart / steps:.0f} | "
        f"{held / 1024:.0f} | {32 * length / 1024:,.0f} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rounds", type=int, nargs="*", default=[1000, 10_000, 100_000, 1_000_000])
    given = parser.parse_args()
    print("| rounds in all | s, the end | s, a chain | µs, in turn | µs, a hundredth on | KiB held | KiB, all |")
    print("|---|---|---|---|---|---|---|")
    for length in given.rounds:
        print(measured(length), flush=True)


if __name__ == "__main__":
    main()
