"""Files from elsewhere: regular ones only, and none that this machine could not hold."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from fuaudit.errors import UsageError

MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 16 * 2**30
"""Bytes of memory of this machine; a guess where the system does not say."""

MOST = MEMORY // 2
"""The largest file that is read as a whole."""


def require_regular(path: Path, most: int = MOST) -> None:
    """Check what a path leads to, before it is opened; nothing where nothing is there.

    Raises:
        UsageError: a pipe or a device, which might be waited for without end; a folder; a file that is too large.
    """
    try:
        found = path.stat()
    except OSError:
        return  # whoever opens it says why
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(
            f"{path} cannot be read: it is no regular file", "Pipes, devices and folders are not read as data."
        )
    if found.st_size > most:
        raise UsageError(f"{path} has {found.st_size:,} bytes, and at most {most:,} are read", "Check what it is.")
