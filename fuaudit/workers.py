"""Executors: parts of one pure work, computed here or by worker processes, with the same results.

A *work* is a pure function of a part: everything else that its results depend on is fixed by its ``digest``. So a
part of a work has an address, and a result that is kept under it need not be computed again. How work is cut into
parts is fixed by the work, never by the number of workers; results come in the order of the parts. Findings are
therefore the same bytes with any number of workers, in whatever order these finish, and after a kill at any moment.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256 as hasher
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from fuaudit.errors import EvidenceError, UsageError
from fuaudit.formats.files import read_bytes, sha256, write_bytes
from fuaudit.formats.forms import canonical_json
from fuaudit.from_source import Compiled
from fuaudit.training.engines import processors

Shard = tuple[int, ...]
"""Which part of a work; what the numbers mean is the work's own matter."""

Arrays = Mapping[str, NDArray[Any]]
"""A result: named arrays, NaN and infinities included."""

_SEAL = "sha256"


class Job(Protocol):
    """A pure function of a part. Worker processes get a copy, so it holds plain values only."""

    @property
    def digest(self) -> str:
        """SHA-256, in hexadecimal, over everything that results depend on apart from the part: data, keys, code."""
        ...

    def compute(self, shard: Shard, threads: int) -> Arrays:
        """The result of one part; ``threads`` says how many threads it may use and must not change a bit of it."""
        ...


class Executor(Protocol):
    """Computes the parts of a work."""

    def map(self, job: Job, shards: Sequence[Shard]) -> Generator[Arrays, None, None]:
        """The results of the parts, in their order. Closing the generator gives up those not yet yielded."""
        ...


def address(job: Job, shard: Shard) -> str:
    """The address of a task, that is of one part of one work: a digest of everything its result depends on."""
    return sha256(canonical_json({"part": list(shard), "work": job.digest}))


@dataclass(frozen=True)
class InProcess:
    """Computes in this process, one part after another."""

    def map(self, job: Job, shards: Sequence[Shard]) -> Generator[Arrays, None, None]:
        """See :class:`Executor`."""
        for shard in shards:
            yield job.compute(shard, processors())


IN_PROCESS = InProcess()


@dataclass(frozen=True)
class Processes:
    """Computes in ``workers`` processes of one thread each.

    Workers are started afresh (``spawn``): a fork would copy the locks of torch's threads in whatever state they
    are, and cannot use a GPU that the parent has used. A start costs some seconds, so this pays for long work. As
    always with fresh processes, a script that uses them guards its own work with ``if __name__ == "__main__"``.

    Where a worker dies (killed, out of memory) the rest is computed in this process: work is pure, so nothing is
    lost but time. A worker whose parent dies ends too.
    """

    workers: int

    def map(self, job: Job, shards: Sequence[Shard]) -> Generator[Arrays, None, None]:
        """See :class:`Executor`."""
        count = min(self.workers, len(shards))
        if count < 1:
            return
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(count, mp_context=context, initializer=_begin, initargs=(Compiled(), job))
        done, others = 0, set(multiprocessing.active_children())
        try:
            with _undisturbed():
                futures = [pool.submit(_compute, shard) for shard in shards]
            for future in futures:
                yield future.result()
                done += 1
        except BrokenProcessPool:
            yield from IN_PROCESS.map(job, shards[done:])
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            if done < len(shards):  # given up: what workers still compute would keep this process from ending
                for worker in set(multiprocessing.active_children()) - others:
                    worker.terminate()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Processes started within it are deaf to Ctrl-C, also before they can say so themselves; here it waits."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(frozen=True)
class CachedJob:
    """A work whose results are kept in a folder, one file a task, named by its address.

    A file holds the arrays (safetensors) and a digest over the address and the arrays. What does not fit is
    computed anew and replaced. Files are written whole or not at all, by the process that computes, so what was
    finished before a kill still is.

    The digest tells a damaged file, not a forged one. The address covers the key of the audit, which nobody knows
    before the audit begins; keep the folder where only the auditor writes.
    """

    job: Job
    folder: Path

    @property
    def digest(self) -> str:
        """See :class:`Job`; keeping changes no result."""
        return self.job.digest

    def compute(self, shard: Shard, threads: int) -> Arrays:
        """See :class:`Job`."""
        name = address(self.job, shard)
        path = self.folder / f"{name}.safetensors"
        if path.exists():
            try:
                return _unsealed(name, path)
            except EvidenceError:
                pass
        result = self.job.compute(shard, threads)
        write_bytes(path, save_arrays({**_ready(result), _SEAL: _seal(name, result)}))
        return result


def executor(workers: int) -> Executor:
    """The executor for so many processes: this one, or workers.

    Raises:
        UsageError: fewer than one.
    """
    if workers < 1:
        raise UsageError(f"work needs at least one worker, not {workers}")
    return IN_PROCESS if workers == 1 else Processes(workers)


def digest_of_code(modules: Iterable[str]) -> str:
    """SHA-256 over the sources of fuaudit and of the top-level packages of some imported modules.

    Versions alone do not tell code that is being worked on.
    """
    digest = hasher()
    for name in sorted({"fuaudit", *(module.partition(".")[0] for module in modules)}):
        package = sys.modules[name]
        files = {
            path.relative_to(folder).as_posix(): path
            for folder in getattr(package, "__path__", ())
            for path in Path(folder).rglob("*.py")
        }
        for place, path in sorted((files or {"": Path(package.__file__ or "")}).items()):
            digest.update(f"{name} {place} ".encode() + hasher(path.read_bytes()).digest())
    return digest.hexdigest()


def _ready(result: Arrays) -> dict[str, NDArray[Any]]:
    return {name: np.ascontiguousarray(result[name]) for name in sorted(result)}


def _seal(name: str, result: Arrays) -> NDArray[np.uint8]:
    return np.frombuffer(hasher(name.encode() + save_arrays(_ready(result))).digest(), dtype=np.uint8)


def _unsealed(name: str, path: Path) -> Arrays:
    """The arrays of a kept result; EvidenceError when the file is damaged or of another task."""
    try:
        arrays = load_arrays(read_bytes(path))
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise EvidenceError(f"{path} is not a valid safetensors file: {error}") from None
    found = arrays.pop(_SEAL, None)
    if found is None or not np.array_equal(found, _seal(name, arrays)):
        raise EvidenceError(f"{path} is damaged")
    return arrays


_own: list[Job] = []
"""In a worker process: the work it was started for."""


def _begin(_: Compiled, job: Job) -> None:
    """Set up a worker process. What it is to compile is read before the work, which imports it."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    signal.signal(signal.SIGTERM, _give_up)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _own.append(job)


def _end_with_parent() -> None:
    # a pool's workers hold both ends of its queues, so they would wait for ever after a kill of the parent
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class _GivenUp(BaseException):
    """The parent no longer wants the part: what is being written is taken back on the way out."""


_computing: list[Shard] = []
"""In a worker process: the part that is being computed."""


def _give_up(number: int, frame: object) -> None:
    if _computing:
        raise _GivenUp
    os._exit(128 + number)


def _compute(shard: Shard) -> Arrays:
    try:
        _computing.append(shard)
        result = _own[-1].compute(shard, 1)
        _computing.clear()
    except _GivenUp:
        os._exit(128 + signal.SIGTERM)
    finally:
        _computing.clear()
    return result
