"""Confinement: what a process gives up before it reads bytes of a stranger.

Limits of the operating system hold on every Unix. Of Linux there is more: no new privileges, and where the library
libseccomp is at hand only those system calls that reading, adding and answering take. Nothing given up comes back.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from pathlib import Path

LIBRARY = "libseccomp.so.2"

CALLS = (
    "read", "write", "readv", "writev", "recvfrom", "sendto", "recvmsg", "sendmsg", "poll", "ppoll", "close", "fcntl",
    "mmap", "munmap", "mremap", "mprotect", "madvise", "brk", "futex", "sched_yield", "clock_gettime", "gettimeofday",
    "clock_nanosleep", "nanosleep", "getrandom", "setitimer", "getpid", "gettid", "getrusage", "rt_sigreturn",
    "rt_sigprocmask", "rt_sigaction", "sigaltstack", "restart_syscall", "rseq", "membarrier", "exit", "exit_group",
)  # fmt: skip
"""System calls of a process that reads, computes and answers. None of them opens, connects, starts or signals."""

NO_NEW_PRIVILEGES, DUMPABLE = 38, 4
REFUSE_WITH_EPERM = 0x00050001
ALLOW = 0x7FFF0000
ALL_THREADS = 4


def confine(room: int, descriptors: int) -> tuple[str, ...]:
    """Give up what a process needs no more.

    Args:
        room: bytes of memory that it may take beyond what it has.
        descriptors: it keeps those below this number, and gets no new one.

    Returns:
        What holds from now on, of "memory", "files", "descriptors", "cores", "processes", "privileges" and "calls".
    """
    library = _library()  # before there are no more descriptors
    held = {
        "memory": _limited("RLIMIT_AS", _size() + room) if _size() else False,
        "files": _limited("RLIMIT_FSIZE", 0),
        "descriptors": _limited("RLIMIT_NOFILE", descriptors),
        "cores": _limited("RLIMIT_CORE", 0),
        "processes": _limited("RLIMIT_NPROC", 0) and os.geteuid() != 0,  # root is not limited
    }
    if sys.platform == "linux":
        held["privileges"] = _no_privileges()
        held["calls"] = library is not None and _calls_alone(library)
    return tuple(name for name, holds in held.items() if holds)


def guard() -> None:
    """No core dump of this process; on Linux nobody of the same user reads its memory, and it gets no privileges."""
    _limited("RLIMIT_CORE", 0)
    if sys.platform == "linux":
        _no_privileges()


def _limited(name: str, most: int) -> bool:
    number = getattr(resource, name, None)
    if number is None:
        return False
    try:
        resource.setrlimit(number, (most, most))
    except (OSError, ValueError):
        return False
    return True


def _size() -> int:
    """Bytes of address space of this process; 0 where the system does not say so."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    except OSError:
        return 0
    return pages * resource.getpagesize()


def _no_privileges() -> bool:
    prctl = ctypes.CDLL(None).prctl
    return bool(prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0 and prctl(DUMPABLE, 0, 0, 0, 0) == 0)


def _library() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError:
        return None


def _calls_alone(library: ctypes.CDLL) -> bool:
    """Leave :data:`CALLS` alone to all threads; any other is refused."""
    library.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(REFUSE_WITH_EPERM)))
    if not rules.value or library.seccomp_attr_set(rules, ALL_THREADS, 1):
        return False
    numbers = (library.seccomp_syscall_resolve_name(name.encode()) for name in CALLS)
    added = [library.seccomp_rule_add_array(rules, ctypes.c_uint32(ALLOW), n, 0, None) for n in numbers if n >= 0]
    return not any(added) and bool(library.seccomp_load(rules) == 0)
