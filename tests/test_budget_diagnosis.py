"""How many coordinates differ: counted by hand, measured on a federation, and never an epsilon."""

import sys
from pathlib import Path

import pytest
from tests_support import secret

from fuaudit import train
from fuaudit.budgets.conspar.diagnosis import diagnosis
from fuaudit.errors import UsageError
from fuaudit.testing.tiny import tiny_config, tiny_dataset

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import conspar_differ


def test_differing_elements_are_counted_round_by_round():
    found = diagnosis([{1, 2}, {1, 2}, [3, 4]], [{2, 1}, {2, 5}, (5, 6)], 1)
    assert found.differing == (0, 1, 2)
    document = found.as_json()
    assert (document["largest"], document["rounds_beyond"], document["first_beyond"]) == (2, 1, 3)
    assert document["refuted"] is True
    within = diagnosis([{1, 2}], [{1, 3}], 1)
    assert not within.is_refuted
    assert within.as_json()["first_beyond"] is None


def test_a_diagnosis_is_never_called_a_budget():
    document = diagnosis([{1, 2}], [{1, 3}], 1).as_json()
    assert not {"epsilon", "delta", "statement"} & {part for key in document for part in key.split("_")}
    assert "no guarantee" in document["meaning"]
    assert "never show one" in document["meaning"]


@pytest.mark.parametrize(
    ("one", "other", "assumed"),
    [([], [], 1), ([{1}], [], 1), ([{1}], [{1}, {2}], 1), ([{1}], [{1, 2}], 1), ([{1}], [{2}], 0)],
)
def test_histories_that_cannot_be_compared_are_refused(one, other, assumed):
    with pytest.raises(UsageError):
        diagnosis(one, other, assumed)


@pytest.mark.parametrize("memory", [True, False])
def test_one_sample_changes_no_set_before_it_is_drawn_and_later_ones_after(tmp_path, memory):
    data = tiny_dataset()
    proposes = {"use": "consensus", "per_client": 3, "alpha": 0.5}
    table = tiny_config(
        learner={"use": "fedrep", "rounds": 12, "cohort": 4, "steps": 1, "batch": 1, "step_size": 0.5},
        client=[{"use": "error-feedback"}, proposes] if memory else [proposes],
        server=[{"use": "mean"}],
    )
    run = train(table, tmp_path / "run", data, secret(3))
    samples = run.plan.retained.samples[0]
    row = max(samples, key=lambda each: conspar_differ.first_drawn(run, each))
    first = conspar_differ.first_drawn(run, row)
    assert first > 2
    found = conspar_differ.measured(run, data, 0, row)
    assert len(found.differing) == 12
    assert not any(found.differing[: first - 1])
    assert any(found.differing[first - 1 :])
    same = diagnosis(conspar_differ.top_sets(run, data, 0), conspar_differ.top_sets(run, data, 0), 1)
    assert not any(same.differing)
