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
import twofaced_help
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


def hidden(source, code, other):
    """Other bytecode beside a source, of the kind that nobody compares."""
    other.write_text(code)
    cached = Path(importlib.util.cache_from_source(str(source)))
    cached.parent.mkdir(exist_ok=True)
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(other), str(cached), str(source), invalidation_mode=unchecked)


@pytest.fixture(params=["listed", "editable"])
def folder(request, tmp_path, monkeypatch):
    """A package of two modules, installed, or found in a folder while its list is elsewhere."""
    site = installed(tmp_path / "site", "twofaced_code", CLEAN, ENTRIES)
    (site / "twofaced_help.py").write_text('WHICH = "read"\n')
    lists = site / "strangers_package-1.5.dist-info"
    if request.param == "listed":
        with (lists / "RECORD").open("a") as record:
            record.write("twofaced_help.py,,\n")
    else:
        (lists / "RECORD").write_text("")
        lists.rename(tmp_path / lists.name)
        monkeypatch.syspath_prepend(str(tmp_path))
    hidden(site / "twofaced_code.py", EVIL, tmp_path / "other.py")
    hidden(site / "twofaced_help.py", 'WHICH = "hidden"\n', tmp_path / "help.py")
    monkeypatch.syspath_prepend(str(site))
    yield site
    for name in ("twofaced_code", "twofaced_help"):
        sys.modules.pop(name, None)


@pytest.mark.thorough
def test_the_source_runs_here_and_in_workers(folder):
    method = registry.find("unlearners", "twofaced").load()
    assert [sys.modules[name].WHICH for name in ("twofaced_code", "twofaced_help")] == ["read", "read"]
    (found,) = Processes(1).map(method(), [(0,)])
    assert found["which"] == len("read")


def test_bytecode_alone_is_refused(folder, tmp_path):
    (folder / "twofaced_code.py").unlink()
    py_compile.compile(str(tmp_path / "other.py"), str(folder / "twofaced_code.pyc"))
    with pytest.raises(PluginError, match="bytecode without a source"):
        registry.find("unlearners", "twofaced").load()
