"""Jobs for worker processes, in a file that imports little: each process imports it anew."""

import multiprocessing
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fuaudit.errors import PluginError


@dataclass(frozen=True)
class Powers:
    """Part (i,) gives some numbers, NaN among them; a line in a file tells that it was computed, and where."""

    log: Path
    digest: str = "powers"
    slow: bool = False

    def compute(self, shard, threads):
        with open(self.log, "a") as file:
            file.write(f"{shard[0]} {os.getpid()}\n")
        if self.slow:
            time.sleep(0.2 * (3 - shard[0] % 3))
        return {"values": np.array([shard[0], shard[0] ** 0.5, np.nan, -np.inf]), "whole": np.arange(shard[0])}


@dataclass(frozen=True)
class Fragile(Powers):
    """Kills its process at part 2, unless it is the main one."""

    def compute(self, shard, threads):
        if shard == (2,) and multiprocessing.parent_process() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().compute(shard, threads)


@dataclass(frozen=True)
class Failing(Powers):
    def compute(self, shard, threads):
        raise PluginError("it cannot be done", "Do something else.")
