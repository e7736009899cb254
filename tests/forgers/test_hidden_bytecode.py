"""A forger ships two codes: a source that anybody may read, and bytecode beside it that does something else.

Python runs kept bytecode where its time and size are the source's, or where its head says not to compare. A PASS names
the digest of the source. So sources are compiled anew, in worker processes too, and bytecode alone is refused.
"""

import importlib.util
import py_compile
import sys
from pathlib import Path

import pytest
from tests_support import installed

from fuaudit import registry
from fuaudit.errors import PluginError
from fuaudit.workers import Processes

CLEAN = """
from dataclasses import dataclass

import numpy as np
from fuaudit_plugins.fats import FatsUnlearning

WHICH = "read"


@dataclass(frozen=True)
class Twofaced(FatsUnlearning):
    @property
    def digest(self):
        return "of a work"

    def compute(self, shard, threads):
        return {"which": np.array([len(WHICH)])}
"""
EVIL = CLEAN.replace('"read"', '"hidden"')
ENTRIES = "[fuaudit.unlearners]\ntwofaced = twofaced_code:Twofaced\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    site = installed(tmp_path / "site", "twofaced_code", CLEAN, ENTRIES)
    source, other = site / "twofaced_code.py", tmp_path / "other.py"
    other.write_text(EVIL)
    cached = Path(importlib.util.cache_from_source(str(source)))
    cached.parent.mkdir()
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(other), str(cached), str(source), invalidation_mode=unchecked)
    monkeypatch.syspath_prepend(str(site))
    yield site
    sys.modules.pop("twofaced_code", None)


def test_the_source_runs_here_and_in_workers(folder):
    method = registry.find("unlearners", "twofaced").load()
    assert sys.modules["twofaced_code"].WHICH == "read"
    (found,) = Processes(1).map(method(), [(0,)])
    assert found["which"] == len("read")


def test_bytecode_alone_is_refused(folder, tmp_path):
    (folder / "twofaced_code.py").unlink()
    py_compile.compile(str(tmp_path / "other.py"), str(folder / "twofaced_code.pyc"))
    with pytest.raises(PluginError, match="bytecode without a source"):
        registry.find("unlearners", "twofaced").load()
