"""The demo shows what it says: nines that are learned, forgotten, and still there where nothing was done."""

from pathlib import Path

import pytest

from fuaudit.config import read_config, resolve
from fuaudit.demo import CONFIG, METHODS, Row, demo, forgotten, table
from fuaudit.progress import silent


@pytest.fixture(scope="module")
def shown(quick, tmp_path_factory):
    """What the demo finds, audited by the audits of the run alone, and what it says."""
    lines = []
    return demo(tmp_path_factory.mktemp("demo") / "out", silent, lines.append, spec=quick), lines


def test_the_nines_are_learned_and_forgotten(shown):
    result, _ = shown
    models = result["models"]
    assert models["before"]["nines"] > 0.8
    assert models["fats"]["nines"] == models["retrain"]["nines"] == 0
    assert models["noop"] == models["before"] | {"rounds_executed": 0, "rounds_saved": 40}
    assert abs(models["fats"]["all"] - models["retrain"]["all"]) < 0.05
    assert result["forgotten"]


def test_fats_saves_rounds_and_retraining_saves_none(shown):
    models = shown[0]["models"]
    assert (models["fats"]["rounds_executed"], models["fats"]["rounds_saved"]) == (30, 10)
    assert (models["retrain"]["rounds_executed"], models["retrain"]["rounds_saved"]) == (40, 0)


def test_verdicts_and_reports_are_there(shown):
    result, lines = shown
    assert result["as_expected"], result
    assert "PASS" in " ".join(lines)
    assert "FAIL" in " ".join(lines)
    for name in ("fats", "noop"):
        assert Path(result[name]["report"]).read_text().lower().startswith("<!doctype html>")


def test_the_table_has_a_line_a_model(shown):
    rows = {name: Row(**row) for name, row in shown[0]["models"].items()}
    lines = table(rows)
    assert set(lines) <= set(shown[1])
    assert len(lines) == 1 + 1 + len(METHODS)
    assert len({len(line) for line in lines}) == 1


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("before", Row(0.8, 0.2, 40, 0)),
        ("fats", Row(0.8, 0.9, 30, 10)),
        ("retrain", Row(0.8, 0.1, 40, 0)),
        ("noop", Row(0.8, 0.0, 0, 40)),
    ],
)
def test_what_does_not_show_forgetting_is_told(shown, name, row):
    rows = {name: Row(**each) for name, each in shown[0]["models"].items()}
    assert not forgotten(rows | {name: row})


def test_the_example_is_the_federation_of_the_demo():
    assert read_config(Path(__file__).parents[1] / "examples/nines.toml") == resolve(CONFIG)
