"""A forger has his code called by a name that is trusted: a package of fuaudit, one of its laws, a method, a sentence.

What is called fuaudit's own lies where fuaudit lies. Rewriters claim exactness for a law by its name, so fuaudit's
laws keep theirs. A proof of one law answers for no other that says it is equal. Names of plugins stand in sentences.
"""

import subprocess
import sys
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

import fuaudit_plugins
import pytest
from fuaudit_plugins.fats import FatsUnlearning
from tests_support import installed

from fuaudit import registry
from fuaudit.draws import Address, Purpose
from fuaudit.errors import PluginError
from fuaudit.plans import AvailabilityLaw, UniformLaw
from fuaudit.plans.availability import FreshBatches, StaticProbability
from fuaudit.plans.tried_laws import require_own_name
from fuaudit.proofs.sweep import sweep, tasks_of
from fuaudit.proofs.toys import Shape, toys_like

SHADOW = """
import sys
from fuaudit import registry
from fuaudit.errors import PluginError
try:
    registry.find("unlearners", "fats").load()
except PluginError as error:
    assert "fuaudit_plugins" not in sys.modules
    print(error)
"""


def test_another_package_of_fuaudits_name_is_not_imported(tmp_path):
    folder = tmp_path / "fuaudit_plugins"
    folder.mkdir()
    for path in Path(fuaudit_plugins.__file__).parent.glob("*.py"):
        (folder / path.name).write_bytes(path.read_bytes())
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{SHADOW}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert f"a package of fuaudit, is found in {folder.resolve()}" in done.stdout


def test_a_module_of_fuaudits_name_is_not_imported(tmp_path):
    """One file, which names the folder of its parts itself."""
    (tmp_path / "fuaudit_plugins.py").write_text(f"__path__ = [{str(tmp_path / 'parts')!r}]\n")
    (tmp_path / "parts").mkdir()
    for path in Path(fuaudit_plugins.__file__).parent.glob("*.py"):
        (tmp_path / "parts" / path.name).write_bytes(path.read_bytes())
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{SHADOW}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert f"a package of fuaudit, is found in {(tmp_path / 'fuaudit_plugins.py').resolve()}" in done.stdout


@pytest.mark.parametrize("name", ["fats' (fuaudit 0.2.0), which is proved. It is 'x", "f\u0430ts", "fats\u202e", "a b"])
def test_names_of_plugins_are_no_sentences(name, tmp_path, monkeypatch):
    entries = f"[fuaudit.unlearners]\n{name} = stranger:Stranger\n"
    monkeypatch.syspath_prepend(str(installed(tmp_path / "site", "stranger", "", entries)))
    with pytest.raises(PluginError, match="has no sound name"):
        registry.find("unlearners", name).load()


@dataclass(frozen=True)
class TwoModes(UniformLaw):
    """Uniform cohorts, or always the first clients; it says that both are equal."""

    mode: int = field(default=0, compare=False)
    called = "uniform cohorts of a stranger"

    @property
    def name(self):
        return self.called

    def smaller(self):
        return (replace(law, mode=self.mode) for law in (TwoModes(1, 2, 1, 1), TwoModes(1, 1, 1, 1)))

    def cohort(self, draws, round_number):
        at = Address(Purpose.COHORT, round_number)
        clients = draws.population(at).clients
        weights = [1 + self.mode * client for client in clients]
        return draws.weighted(at, clients, weights, min(self.cohort_size, len(clients)))


class Borrowed(TwoModes):
    called = "uniform with replacement"


class SaysItIsOurs(Borrowed):
    __module__ = "fuaudit.plans.law"


@dataclass(frozen=True)
class Half(StaticProbability):
    """A part of a law is a stranger's."""


def test_a_proof_under_one_law_answers_for_no_other():
    honest, other = TwoModes(1, 2, 1, 1), TwoModes(1, 2, 1, 1, mode=1)
    assert honest == other
    found = [
        sweep(FatsUnlearning(), list(toys_like(law, [Shape.of_kind("client")])), 20_000) for law in (honest, other)
    ]
    assert [bool(one.refuted) for one in found] == [False, True]


@pytest.mark.parametrize(
    "law",
    [
        Borrowed(1, 1, 1, 1),
        SaysItIsOurs(1, 1, 1, 1),
        AvailabilityLaw(1, Half(Fraction(1, 2)), FreshBatches(1, 1)),
    ],
    ids=["law", "of another module", "part"],
)
def test_names_of_fuaudits_laws_are_reserved(law):
    require_own_name(UniformLaw(1, 1, 1, 1))
    require_own_name(TwoModes(1, 1, 1, 1))
    with pytest.raises(PluginError, match="which is a law of fuaudit"):
        require_own_name(law)


@dataclass(frozen=True)
class Noted(FatsUnlearning):
    """Right, with a table among its options."""

    notes: dict = field(default_factory=dict)


def test_a_method_with_a_table_among_its_options_is_enumerated():
    law, shape = UniformLaw(1, 1, 1, 1), Shape.of_kind("client")
    assert len(tasks_of(law, [(Noted(), shape), (Noted(), shape)])) == len(
        tasks_of(law, [(FatsUnlearning(), shape)] * 2)
    )
    assert len(tasks_of(law, [(Noted({"a": "b"}), shape), (Noted(), shape)])) > len(
        tasks_of(law, [(Noted(), shape)] * 2)
    )
    assert not sweep(Noted(), list(toys_like(law, [shape])), 5_000).refuted
