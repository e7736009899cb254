"""A word in a name makes the trust that a PASS names disappear: "non-adaptive" in a folder, a client, a plugin.

A PASS once put one fixed sentence in the place of every assumption that contains "non-adaptive". Names of folders and
of clients are the operator's (data alone, no code), names of plugins and distributions the plugin author's.
"""

import sys

from tests_support import AUDIT_KEY, config, drawn_client, secret

from fuaudit import train, unlearn, verify
from fuaudit.plans import Request
from fuaudit.reporting import render


def test_a_folder_whose_name_hides_that_the_method_was_chosen_later(quick, tmp_path):
    run = train(config(), tmp_path / "run", secret=secret(3))
    child = unlearn(run, "fats", Request.of([drawn_client(run)]), tmp_path / "non-adaptive")
    result = verify(child, quick, key=AUDIT_KEY, save=False)
    assert result.verdict == "PASS", result.reason
    assert any("was chosen later" in line for f in result.findings for line in f.assumptions)
    assert any("was chosen later" in line for line in result.conclusion.rests_on)
    assert "was chosen later" in render(result.as_json(), "md").decode()


MODEL = """
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Adds:
    def build(self, shape, classes):
        return nn.Linear(64, classes)
"""


def test_a_package_whose_name_takes_it_off_the_list_of_what_is_trusted(quick, tmp_path, monkeypatch):
    site = tmp_path / "site"
    info = site / "non_adaptive-1.5.dist-info"
    info.mkdir(parents=True)
    (site / "stranger.py").write_text(MODEL)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: non-adaptive\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text("[fuaudit.models]\nadds = stranger:Adds\n")
    (info / "RECORD").write_text("stranger.py,,\n")
    monkeypatch.syspath_prepend(str(site))
    sys.modules.pop("stranger", None)
    run = train(config(model={"use": "adds"}), tmp_path / "run", secret=secret(3))
    child = unlearn(run, "fats", Request.of([drawn_client(run)]), tmp_path / "child")
    result = verify(child, quick, key=AUDIT_KEY, save=False)
    sys.modules.pop("stranger", None)
    assert result.verdict == "PASS", result.reason
    (code,) = result.context["outside"]
    # test_outside_code.py holds this of every other name
    assert code["digest"] in render(result.as_json(), "md").decode()
    assert code["digest"] in render(result.as_json(), "html").decode()
