"""The guide for authors of plugins: every listing is a whole file, and runs as it is printed."""

import os
import re
import subprocess
import sys
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

from fuaudit.draws import END, Address, Purpose
from fuaudit.errors import KeyReuseError
from fuaudit.plans import Request, UniformLaw
from fuaudit.plans.strange_laws import is_foreign
from fuaudit.proofs import exactness
from fuaudit.proofs.toys import federation
from fuaudit.registry import find
from fuaudit.runs.run import Run
from fuaudit.testing import check_unlearner
from fuaudit.unlearning.protocol import claims_exactness
from fuaudit.verification.audit import ARGUMENTS
from fuaudit.verification.case import Case

ROOT = Path(__file__).parents[1]


def listings(page):
    """The Python listings of a page, by the file that the first line names."""
    found = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return {(re.match(r"# (\w+\.py)\n", text) or [None, None])[1]: text for text in found}


@pytest.fixture
def files(tmp_path):
    found = listings("docs/plugin-guide.md")
    assert None not in found, "a listing does not say which file it is"
    for name, text in found.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.thorough
def test_the_guide_runs_as_printed(files):
    """Its tests hold its plugins to their contracts; nothing beside the listings is there."""
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(files), str(files))
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=files, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


def test_every_plugin_of_the_guide_is_tested_there(files):
    text = "".join(path.read_text(encoding="utf-8") for path in files.glob("test_*.py"))
    for path in {*files.glob("*.py")} - {*files.glob("test_*.py")}:
        plugin, *_ = re.findall(r"^class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)  # and its parts
        assert f"({plugin}(" in text, plugin


def test_authors_import_from_one_module(files):
    for path in [*files.glob("*.py"), ROOT / "README.md"]:
        for module in re.findall(r"^(?:from|import) (fuaudit[\w.]*)", path.read_text(encoding="utf-8"), re.MULTILINE):
            assert module == "fuaudit.plugins", path


def test_what_the_guide_says_of_arguments_and_runs_is_there():
    text = (ROOT / "docs" / "plugin-guide.md").read_text(encoding="utf-8")
    (told,) = re.findall(r"it looks at: (.*?)\. An argument", text, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", told)) == ARGUMENTS.keys()
    (table,) = re.findall(r"\| of a `Run` \| \|\n\|---\|---\|\n((?:\|.*\n)+)", text)
    found = [name for row in table.splitlines() for name in re.findall(r"`(\w+)", row.split("|")[1])]
    assert len(found) == 11
    for name in found:
        assert hasattr(Run, name) or name in {field.name for field in fields(Run)}, name


def test_a_known_law_with_other_options_keeps_its_claims(files, monkeypatch):
    """As the guide says: claims for its name hold, and not for a law that inherits from it."""
    monkeypatch.syspath_prepend(files)
    law = import_module("steady").Steady(rounds=2, steps=2, read=5, step_size=0.1).law
    assert law == UniformLaw(2, 2, 2, 2, replacement=False)
    assert not is_foreign(law)
    assert claims_exactness(find("unlearners", "fats").load()(), law.name, "client")
    assert is_foreign(import_module("alone").Alone(1, 1, 1))

    class Heir(UniformLaw):
        pass

    assert is_foreign(Heir(2, 2, 2, 2, replacement=False))


@pytest.mark.parametrize("others", [False, True], ids=["the same ids", "other ids"])
def test_a_coin_at_the_address_of_the_law_is_refuted(files, monkeypatch, others):
    """As the guide says: at a purpose of its own it is exact, at the law's it is the law's draw."""
    monkeypatch.syspath_prepend(files)
    coin = import_module("coin").Coin

    class OfTheLaw(coin):
        def rewrite(self, plan, request, fresh, not_before):
            left = plan.retained.without(request).clients
            at = Address(Purpose.COHORT, 1, version=len(plan.populations))
            if fresh.sequence(at, range(7) if others else left, 1) == left[:1]:
                return plan.restart(request, fresh)
            return plan.erase(request, fresh, min(plan.first_involvement(request) or END, not_before))

    asked = UniformLaw(1, 1, 1, 1), federation((1, 1, 1)), [Request.of(clients=[0])]
    assert exactness(coin(), *asked).exact
    if others:
        with pytest.raises(KeyReuseError):
            exactness(OfTheLaw(), *asked)
    else:
        assert not exactness(OfTheLaw(), *asked).exact


def test_what_the_guide_says_of_a_case_is_there():
    text = (ROOT / "docs" / "plugin-guide.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"\| of a `Case` \| \|\n\|---\|---\|\n((?:\|.*\n)+)", text)
    found = [name for row in table.splitlines() for name in re.findall(r"`(\w+)", row.split("|")[1])]
    assert set(found) == {"run", "parent", "request", "dataset", "evidence", "measured", "key", "known", "effort"}
    assert all(hasattr(Case, name) or name in {field.name for field in fields(Case)} for name in found)


def names(page):
    """How a page calls its examples: by class, file and registered name."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(r"^(?:class (\w+)|# (\w+)\.py$|([\w-]+) = \"\w+:)", text, re.MULTILINE)
    return {name.lower() for several in found for name in several if name}


def test_no_example_has_the_name_of_another():
    """Whoever reads both pages would take one method for the other."""
    readme = names("README.md")
    assert readme == {"prefix"}
    assert not readme & names("docs/plugin-guide.md")


@pytest.mark.thorough
def test_the_plugin_of_the_readme_keeps_its_contract():
    (text,) = listings("README.md").values()
    own = {"__name__": "readme"}
    exec(compile(text, "README.md", "exec"), own)
    check_unlearner(own["Prefix"]())
