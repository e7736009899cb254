"""The calibration in small: its counts are those of its own rows, its bounds as stated, its figures repeatable.

Keys are fixed and counts are compared with counts, so nothing here samples.
"""

import json
import math
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
ROOT = bytes(range(50, 82))


@pytest.fixture(scope="module")
def calibration():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        import calibration

        yield calibration


@pytest.fixture(scope="module")
def measured(calibration, tmp_path_factory):
    """The file that the command writes, and the finished parts that it keeps."""
    folder = tmp_path_factory.mktemp("calibration")
    made, cache = folder / "calibration.json", folder / "cache"
    numbers = {"audits": 3, "plans": 40, "pairs": 24, "powered": 2}
    options = [text for name, number in numbers.items() for text in (f"--{name}", str(number))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["", *options, "--root", ROOT.hex(), "--cache", str(cache), "--json", str(made)])
        calibration.main()
    return made, cache


@pytest.fixture(scope="module")
def document(measured):
    return json.loads(measured[0].read_text())


def test_bounds_are_binomial_quantiles(calibration):
    for alpha, most in ((0.01, 35), (0.05, 131)):
        assert calibration.counted(most, 2000, alpha)["at_most"] == most
        assert calibration.counted(most, 2000, alpha)["held"]
        assert not calibration.counted(most + 1, 2000, alpha)["held"]


def test_decisions_divide_alpha_as_the_audit_does(calibration):
    wealth = math.log(1 / (0.8 * 0.01))
    just = calibration.decisions(wealth + 1e-9, 1.0)["0.01"]
    assert just == {"betting": True, "batch": False, "audit": True}
    assert calibration.decisions(wealth - 1e-9, 1.0)["0.01"] == {"betting": True, "batch": False, "audit": False}
    assert calibration.decisions(0.0, 0.0019)["0.01"] == {"betting": False, "batch": True, "audit": True}
    assert calibration.decisions(0.0, 0.0021)["0.01"] == {"betting": False, "batch": True, "audit": False}


def test_audits_of_models_are_counted_one_by_one(calibration, measured, document):
    for name, audits in (("fats", 3), ("retrain", 1)):
        table = document["model-law"][name]
        assert len(table["rows"]) == table["audits"] == audits
        for arm in ("subject", "second"):
            for alpha in ("0.01", "0.05"):
                hits = [calibration.decisions(r["wealth"][arm], r["batch"][arm])[alpha]["audit"] for r in table["rows"]]
                assert table["exact"][arm][alpha]["audit"]["rejected"] == sum(hits)
        # every audit has runs of its own, and a wealth that starts at 1
        assert len({row["wealth"]["untouched"] for row in table["rows"]}) == audits
        for path, row in zip(table["paths"], table["rows"], strict=True):
            assert max(path["subject"]) == row["wealth"]["subject"]
            assert path["subject"][0] == pytest.approx(0)
    power = document["model-law"]["fats"]["power"]
    assert [power[str(rate)]["0.05"]["audit"]["of"] for rate in calibration.RATES] == [2] * 7
    assert power["1.0"]["0.05"]["betting"]["rejected"] == 2  # no model forgets anything: seen at once
    assert len(list(measured[1].iterdir())) == 4


def test_audits_of_plans_are_whole(calibration, document):
    plans = document["plans"]
    assert set(plans["exact"]) == {"fats, sample", "fats, client", "retrain, sample", "retrain, client"}
    assert plans["power"]["noop, client"]["1.0"]["0.01"]["rejected"] == 3  # a plan with the target needs no statistics
    # the target is in a plan unless 18 places miss it
    assert plans["target_seen"]["client"]["0.5"] == pytest.approx(1 - (1 - 0.5 * (1 - 0.9**18)) ** 40)
    assert all(row["of"] == 3 for rows in plans["exact"].values() for row in rows.values())


def test_figures_are_the_same_bytes_for_the_same_numbers(measured, tmp_path, monkeypatch):
    import figures

    for folder in ("one", "two"):
        given = ["figures", str(tmp_path / folder), "--calibration", str(measured[0])]
        monkeypatch.setattr(sys, "argv", given)
        figures.main()
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == ["calibration-controls.svg", "calibration-power.svg", "calibration-wealth.svg"]
    for name in names:
        content = (tmp_path / "one" / name).read_bytes()
        assert content == (tmp_path / "two" / name).read_bytes()
        assert len(content) < 60_000
        assert all(colour.encode() not in content for colour in figures.ROLES.values())
