"""A forger's method chooses between two proved ones by what was drawn, and remembers which.

Each of the two is exact, and the choice between them is not: what it keeps is kept where the draws please him. In an
audit it draws what the chosen one draws, on all plans and in the run itself. An option of its own may not be written
into; of what it remembers elsewhere the PASS says that it is a matter of its code.
"""

import sys

import pytest
from tests_support import config, lean, secret

from fuaudit import train, unlearn, verify
from fuaudit.errors import PluginError
from fuaudit.plans import Request

METHODS = '''
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from fuaudit.plugins import END, exact_under
from fuaudit.unlearning.baselines import Retrain


@dataclass(frozen=True)
class InItsOption:
    """Keeps what FATS keeps where it likes the first cohort, and else starts over.

    Attributes:
        mode: "auto", or what was chosen.
    """

    mode: Literal["auto", "keep", "anew"] = "auto"
    needs: ClassVar[frozenset[str]] = frozenset({"plan"})
    participants: ClassVar[frozenset[str]] = frozenset({"server", "retained clients"})
    guarantee: ClassVar[str] = "exact, for uniform cohorts"
    cite: ClassVar[str] = "an example"
    exact_for: ClassVar[frozenset[tuple[str, str]]] = exact_under("uniform with replacement")

    def chosen(self, plan):
        if self.mode == "auto":
            object.__setattr__(self, "mode", "keep" if 1 in plan.cohort(1) else "anew")
        return self.mode

    def rewrite(self, plan, request, fresh, not_before):
        if self.chosen(plan) == "anew":
            return plan.restart(request, fresh)
        return plan.erase(request, fresh, min(plan.first_involvement(request) or END, not_before))


@dataclass(frozen=True)
class InAFile(InItsOption):
    """The same, with a note beside the module.

    Attributes:
        mode: "auto", or what was chosen.
    """

    def chosen(self, plan):
        note = Path(__file__).with_suffix(".note")
        if not note.exists():
            note.write_text("keep" if 1 in plan.cohort(1) else "anew")
        return note.read_text()


@dataclass(frozen=True)
class OfAnotherClass(InItsOption):
    """Built, it is a method of fuaudit, which is nobody's code but its own.

    Attributes:
        mode: "auto", or what was chosen.
    """

    def __new__(cls, mode="auto"):
        return Retrain()


@dataclass(frozen=True)
class LaterOfAnotherClass:
    """Once it has chosen, it makes itself a method of fuaudit."""

    needs: ClassVar[frozenset[str]] = Retrain.needs
    participants: ClassVar[frozenset[str]] = Retrain.participants
    guarantee: ClassVar[str] = Retrain.guarantee
    cite: ClassVar[str] = Retrain.cite
    exact_for: ClassVar[frozenset[tuple[str, str]]] = Retrain.exact_for

    def rewrite(self, plan, request, fresh, not_before):
        chosen = Path(__file__).with_suffix(".note").exists()
        new = InAFile().rewrite(plan, request, fresh, not_before)
        if chosen:
            object.__setattr__(self, "__class__", Retrain)
        return new
'''


@pytest.fixture
def choosers(tmp_path, monkeypatch):
    info = tmp_path / "site" / "choosers-1.0.dist-info"
    info.mkdir(parents=True)
    (tmp_path / "site" / "chosen_methods.py").write_text(METHODS)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: choosers\nVersion: 1.0\n")
    names = "in-its-option = chosen_methods:InItsOption\nin-a-file = chosen_methods:InAFile\n"
    names += "of-another-class = chosen_methods:OfAnotherClass\nlater = chosen_methods:LaterOfAnotherClass\n"
    (info / "entry_points.txt").write_text(f"[fuaudit.unlearners]\n{names}")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    yield
    sys.modules.pop("chosen_methods", None)


def test_an_option_is_not_written_into(choosers, tmp_path):
    run = train(config(), tmp_path / "run", secret=secret(3))
    with pytest.raises(PluginError, match="'in-its-option' wrote into its own options"):
        unlearn(run, "in-its-option", Request.of([0]), tmp_path / "child")
    assert not (tmp_path / "child").exists()
    assert unlearn(run, "in-its-option", Request.of([0]), tmp_path / "child", {"mode": "keep"})


def test_a_class_makes_objects_of_its_own(choosers, tmp_path):
    run = train(config(), tmp_path / "run", secret=secret(3))
    with pytest.raises(PluginError, match="made an object of another class"):
        unlearn(run, "of-another-class", Request.of([0]), tmp_path / "child")


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["in-a-file", "later"])
def test_a_choice_that_is_kept_elsewhere_is_said_to_be_a_matter_of_the_code(name, choosers, tmp_path):
    run = train(config(), tmp_path / "run", secret=secret(3))
    child = unlearn(run, name, Request.of([0]), tmp_path / "child")
    result = verify(child, lean("client-erasure"), key=bytes([7]) * 32, budget=0, save=False)
    told = [line for line in result.conclusion.rests_on if line.startswith(f"{name!r} follows the proved method")]
    assert (result.verdict, len(told)) == ("PASS", 1), result.reason
    assert "it did not choose one by the draws, and remember which" in told[0]


@pytest.mark.thorough
def test_of_a_choice_below_an_editor_it_is_said_too(choosers, tmp_path):
    run = train(config(), tmp_path / "run", secret=secret(3))
    edited = unlearn(run, "finetune", Request.of([1]), tmp_path / "edited")
    child = unlearn(edited, "in-a-file", Request.of([0]), tmp_path / "child", allow_inexact=True)
    result = verify(child, lean("client-erasure"), key=bytes([7]) * 32, budget=0, save=False)
    (plan_law,) = (finding for finding in result.findings if finding.audit == "plan-law")
    assert [line for line in plan_law.assumptions if line.startswith("'in-a-file' follows the proved method")], result


@pytest.mark.thorough
def test_of_a_method_of_fuaudit_it_is_not_said(tmp_path):
    run = train(config(), tmp_path / "run", secret=secret(3))
    honest = unlearn(run, "fats", Request.of([0]), tmp_path / "honest")
    result = verify(honest, lean("client-erasure"), key=bytes([7]) * 32, budget=0, save=False)
    assert not [line for line in result.conclusion.rests_on if "follows the proved method" in line]
