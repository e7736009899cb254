"""The studies of FedREP's paper, as benchmarks/fedrep.py has them: cells, what they wait for, and what a page says."""

import json
import sys
from collections import Counter
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path

import pytest
from tests_support import secret

from fuaudit import train
from fuaudit.config import resolve
from fuaudit.testing.tiny import tiny_config, tiny_dataset

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import fedrep

DIMENSION = 21_840
MACHINE = {"processor": "one"}


NUMBERS = count()


def line(best=50.0, **more):
    told = {
        "best": best,
        "final": best - 1,
        "values": 500.25,
        "rate": 0.1,
        "failed_rounds": 0,
        "seconds": 12.0,
        "accuracies": [50.0] * 11,
    }
    told |= {"machine": MACHINE, "cell": {"steps": 5}, "client_steps": 24_000, "commitment": f"run {next(NUMBERS)}"}
    return told | more


def found(**best):
    """Lines of all cells; some with another accuracy."""
    lines = {cell.name: line() for cell in fedrep.CELLS}
    assert best.keys() <= lines.keys()
    return lines | {name: line(one) for name, one in best.items()}


def test_every_cell_stands_behind_those_that_it_waits_for():
    done = set()
    for cell in fedrep.CELLS:
        assert done.issuperset(cell.waits), cell.name
        assert cell.name not in done
        assert cell.rate or cell.waits
        done.add(cell.name)
    assert Counter(map(fedrep.Scale().client_steps, fedrep.CELLS)) == {24_000: len(done)}


def test_every_cell_is_a_config():
    """With as many values as others sent, where it is matched."""
    lines = found()
    for cell in fedrep.CELLS:
        config = resolve(fedrep.config(cell, fedrep.Scale(), DIMENSION, lines))
        clients = {client for stage in config.client for client in stage.get("clients", ())}
        assert clients == (set(range(32 - cell.bad, 32)) if cell.attack else set()), cell.name
        if cell.matched and cell.system == "rcgd-ef":
            assert next(stage for stage in config.client if stage["use"] == "top-k")["per_client"] == 500
        elif cell.matched:
            assert config.transport == {"use": "sparse-sum", "alpha": round(500.25 / DIMENSION, 6)}


def test_keys_differ_in_the_key_alone():
    for cell in (cell for cell in fedrep.CELLS if cell.study == "keys"):
        alike = [c for c in fedrep.CELLS if c.study != "keys" and replace(c, study="keys", key=cell.key) == cell]
        assert len(alike) == 1, cell.name
    assert len({fedrep.key(number) for number in (1, 2, 3)}) == 3


def test_the_rate_is_that_of_the_best_clean_run():
    cell = next(cell for cell in fedrep.CELLS if cell.study == "alpha")
    assert fedrep.rate_of(cell, found()) == 0.1  # the lowest of equals
    assert fedrep.rate_of(cell, found(**{"rate-fedrep-1-0.5": 60.0, "rate-fedrep-5-0.2": 70.0})) == 0.5


def test_findings_are_judged_one_by_one():
    alpha = fedrep.statements()[0]
    names = [one.first for one in alpha.comparisons]
    assert alpha.judged({}) == "not run"
    assert alpha.judged(found()) == "confirmed: 3 of 3"
    assert alpha.judged(found(**{names[0]: 47.9})) == "in part: 2 of 3"
    assert alpha.judged(found(**{names[0]: 48.1})) == "confirmed: 3 of 3"
    assert alpha.judged(found(**dict.fromkeys(names, 90.0))) == "contradicted: 0 of 3"
    lacking = found()
    del lacking[names[1]]
    assert alpha.judged(lacking) == "open: so far 2 of 2; 1 not run"
    assert alpha.gaps(lacking) == "+0.00 / +0.00 / +0.00"
    above = next(one for one in fedrep.statements() if "Under ALIE FedREP is above RCGD-EF" in one.text)
    names = [one.first for one in above.comparisons]
    assert above.judged(found()) == "no difference found"
    assert (
        above.judged(found(**dict.fromkeys(names, 48.5))) == "not confirmed: below in 3 of 3, by less than the margin"
    )
    assert above.judged(found(**{names[0]: 48.5})) == "no difference found"
    assert above.judged(found(**dict.fromkeys(names, 47.9))) == "contradicted: 0 of 3"
    assert above.judged(found(**dict.fromkeys(names, 52.1))) == "confirmed: 3 of 3"
    assert above.judged(found(**{names[0]: 52.1})) == "in part: 1 of 3; 2 show no difference"
    assert above.gaps(found(**{names[0]: 52.1, names[1]: 49.0})) == "-1.00 / +0.00 / +2.10"
    known = {cell.name for cell in fedrep.CELLS}
    assert {name for one in fedrep.statements() for c in one.comparisons for name in (c.first, c.second)} <= known


@pytest.mark.parametrize("how", ["above", "alike", "not below"])
def test_what_a_comparison_asks(how):
    for gain in (-9.0, -2.1, -2.0, -1.9, 2.0, 2.1, 9.0):
        judged = fedrep.Comparison("a", how, "b").judged({"a": line(50.0 + gain), "b": line(50.0)})
        small = "no difference" if how == "above" and abs(gain) <= 2 else "fails"
        if how == "not below" and gain == -2:  # at the margin itself
            small = "no difference"
        holds = {"above": gain > 2, "alike": -2 <= gain <= 2, "not below": gain > -2}[how]
        assert judged == ("holds" if holds else small), (how, gain)
    assert fedrep.Comparison("a", how, "b").judged({"a": line()}) == "not run"


def test_gaps_that_close_and_rates_at_the_edge_are_said():
    lines = found()
    assert not any("largest, 0.5" in text for text in fedrep.worth(lines))
    lines["rate-sparse-5-0.5"] = line(90.0, rate=0.5)
    name = fedrep.Cell("alpha", "fedrep", 1, "cclip", "foe", 0.95).name
    lines[name] = line(accuracies=[10.0] * 6 + [30.0] * 5)
    told = "\n".join(fedrep.worth(lines))
    assert "largest, 0.5, for sparse-5:" in told
    assert "cclip, foe: 40.0 after 3, 40.0 after 5, 20.0 after 7, 20.0 after 10" in told


def test_unrest_is_what_is_left_of_a_trend():
    assert fedrep.unrest(line(accuracies=[0, 1, 2, 3, 4, 5])) == pytest.approx(0)
    assert fedrep.unrest(line(accuracies=[50, 51, 49, 51, 49, 51, 49])) > 1


def test_one_run_on_two_processors_is_told():
    lines = found()
    assert not list(fedrep.repeated(lines))
    one, other = list(lines)[:2]
    twice = lines | {other: lines[one] | {"accuracies": [*lines[one]["accuracies"][:-1], 53.5]}}
    assert list(fedrep.repeated(twice)) == [(one, other)]
    assert fedrep.most_apart(twice[one], twice[other]) == 3.5
    assert f"`{one}` and `{other}` are one run" in "\n".join(fedrep.worth(twice))


def test_the_page_says_what_is_not_there():
    nothing, scale = fedrep.page({}, fedrep.Scale()), fedrep.Scale()
    assert f"0 of {len(fedrep.CELLS)} cells were run, and {len(fedrep.CELLS)} were not" in nothing
    assert nothing.count("| not run |") == len(fedrep.CELLS) + len(fedrep.statements())
    whole = fedrep.page(found(), scale)
    assert "not run" not in whole.lower()
    assert whole.count("| 50.00 / 50.00 / 50.00 | 0.00 |") == 6


def test_the_lines_beside_a_page_are_those_of_its_cells(tmp_path):
    scale, (first, second) = fedrep.Scale(), fedrep.CELLS[:2]
    told = {cell.name: line(50.0 + n, cell=asdict(cell), scale=asdict(scale)) for n, cell in enumerate((first, second))}
    kept = tmp_path / "page.jsonl"
    kept.write_text(fedrep.written(told))
    assert fedrep.lines(tmp_path, scale, kept) == told
    assert fedrep.lines(tmp_path, replace(scale, epochs=1), kept) == {}
    (tmp_path / f"{second.name}-{scale.mark}.json").write_text(json.dumps(told[second.name] | {"best": 99.0}))
    assert fedrep.lines(tmp_path, scale, kept)[second.name]["best"] == 99.0
    assert fedrep.lines(tmp_path, scale) == {second.name: told[second.name] | {"best": 99.0}}


def test_the_plan_says_how_long_it_takes():
    cells, scale = fedrep.CELLS[:2], fedrep.Scale()
    (told,) = fedrep.planned(cells, scale, {})
    assert told.startswith("2 cells are left, 48,000 client steps: about ")
    one = {cells[0].name: line(seconds=3600.0, cell={"steps": cells[1].steps})}
    assert fedrep.planned(cells, scale, one) == [
        "1 cells are left, 24,000 client steps: about 1.0 hours on this machine"
    ]


def test_values_are_counted_of_what_stages_told(tmp_path):
    """Of an agreement the answer, of stages and transports each client's own, else the whole model."""
    learner = {"use": "fedrep", "rounds": 2, "cohort": 4, "steps": 1, "batch": 2, "step_size": 0.1}
    chains = {
        "whole": ({}, 12),
        "top-k": ({"client": [{"use": "top-k", "per_client": 5}], "server": [{"use": "mean"}]}, 5),
        "consensus": ({"client": [{"use": "error-feedback"}, {"use": "consensus", "per_client": 12}]}, 12),
        "sparse": ({"transport": {"use": "sparse-sum", "alpha": 1.0}, "server": [{"use": "mean"}]}, None),
    }
    for name, (parts, values) in chains.items():
        run = train(tiny_config(learner=learner, **parts), tmp_path / name, data=tiny_dataset(), secret=secret(1))
        told = fedrep.values_of(run)
        assert told == values if values else 0 < told <= 12
