"""Curves of who took part: what the figures show, and what they refuse."""

import json
import re

import pytest
from test_report import Page, check, document
from tests_support import AUDIT_KEY, config, reseal, secret

from fuaudit import train, unlearn, verify
from fuaudit.errors import EvidenceError
from fuaudit.plans import Request
from fuaudit.reporting import render
from fuaudit.reporting.contents import read_contents
from fuaudit.reporting.drawings import drawings

COHORTS = [[0, 1, 2], [], [1], [0, 2]] * 5


OWN = {"0": 0.25, "10": 1.0, "2": None, "3": 0.5}


def with_participation(cohorts=COHORTS, uploads=None, a_participation=2):
    found = document("PASS", check("integrity"))
    sums = [a_participation * sum(map(len, cohorts[: i + 1])) for i in range(len(cohorts))]
    uploads = sums if uploads is None else uploads
    found["context"]["participation"] = {"cohorts": cohorts, "uploads": uploads, "own_accuracy": OWN}
    return found


def test_accuracy_is_drawn_over_uploads():
    """Accuracies of rounds 0, 10 and 20; two vectors a participation, six participations in four rounds."""
    curve = next(d for d in drawings(read_contents(with_participation())) if "over uploads" in d.title)
    assert curve.caption == f"0.6000 after {2 * 6 * 5} uploads."
    assert "Test accuracy of the run over uploads" in curve.svg


def test_the_raster_has_one_mark_a_participation_and_counts_empty_rounds():
    raster = next(d for d in drawings(read_contents(with_participation())) if d.title.startswith("Who took part"))
    assert (
        raster.caption
        == "30 participations in 20 rounds; rounds with nobody in them: 5; clients that never took part: 2."
    )
    assert len(re.findall(r"<use [^>]*#r-", raster.svg)) >= 30


def test_a_large_raster_is_cut_and_says_so(monkeypatch):
    monkeypatch.setattr("fuaudit.reporting.drawings.PARTICIPATIONS", 10)
    raster = next(d for d in drawings(read_contents(with_participation())) if d.title.startswith("Who took part"))
    assert raster.caption.endswith("Drawn are the first 7 of 20 rounds.")


def test_a_round_larger_than_a_raster_is_drawn_all_the_same(monkeypatch):
    monkeypatch.setattr("fuaudit.reporting.drawings.PARTICIPATIONS", 2)
    raster = next(d for d in drawings(read_contents(with_participation())) if d.title.startswith("Who took part"))
    assert raster.caption.endswith("Drawn are the first 1 of 20 rounds.")


def labels(svg):
    """What a figure says, in its order."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_the_raster_shows_clients_that_never_took_part_and_empty_rounds_at_the_end():
    found = read_contents(with_participation(cohorts=[[0], [3], *[[]] * 28]))
    raster = next(d for d in drawings(found) if d.title.startswith("Who took part"))
    assert raster.caption.endswith("rounds with nobody in them: 28; clients that never took part: 2.")
    words = labels(raster.svg)
    assert words[: words.index("round")][-1] in ("25", "30")  # the last tick of the axis of rounds
    assert words[words.index("round") + 1 :] == ["0", "2", "3", "10", "client"]


def test_accuracy_over_uploads_is_left_out_where_no_stored_round_has_any():
    found = with_participation()
    found["context"]["metrics"] = [{"round": 21, "test_accuracy": 0.5, "test_loss": 1.0}]
    assert not [d for d in drawings(read_contents(found)) if "over uploads" in d.title]


def test_accuracy_of_each_client_in_the_order_of_ids():
    found = read_contents(with_participation())
    assert found.own_accuracy == ((0, 0.25), (3, 0.5), (10, 1.0))
    figure = next(d for d in drawings(found) if d.title.startswith("How the final"))
    assert figure.caption == "From 0.2500 (client 0) to 1.0000, mean 0.5833 over 3 clients."


def test_documents_without_participation_have_neither():
    titles = [d.title for d in drawings(read_contents(document()))]
    assert not [title for title in titles if "uploads" in title or "took part" in title]
    assert not [d for d in drawings(read_contents(with_participation(cohorts=[[], []]))) if d.title.startswith("Who")]


@pytest.mark.parametrize(
    "participation",
    [
        [],
        {"cohorts": [0], "uploads": []},
        {"cohorts": [[0.5]], "uploads": [1]},
        {"cohorts": [["0"]], "uploads": [1]},
        {"cohorts": [[-1]], "uploads": [1]},
        {"cohorts": [[0]], "uploads": [True]},
        {"cohorts": [[0]], "uploads": [2**60]},
        {"cohorts": [[0]], "uploads": [1], "own_accuracy": {"x": 0.5}},
        {"cohorts": [[0]], "uploads": [1], "own_accuracy": [0.5]},
        {"cohorts": [[0]], "uploads": [1], "own_accuracy": {"0": 1.5}},
        {"cohorts": [[0]], "uploads": [1], "own_accuracy": {"0": -3}},
        {"cohorts": [[0]], "uploads": [1], "own_accuracy": {"-1": 0.5}},
        {"cohorts": [[0], [0]], "uploads": [2, 1]},
    ],
)
def test_what_tells_no_participations_is_refused(participation):
    found = document()
    found["context"]["participation"] = participation
    with pytest.raises(EvidenceError):
        read_contents(found)


@pytest.mark.parametrize("told", [[], {"up_each": "9"}, {"up_each": -1}, {"up_each": 2**60}, {"up_each": True}])
def test_what_tells_no_traffic_is_refused(told):
    found = document()
    found["context"]["traffic"] = told
    with pytest.raises(EvidenceError):
        read_contents(found)


def test_a_client_that_is_drawn_twice_sends_twice(small_config, tmp_path, quick):
    """FATS draws cohorts with replacement. Its runs tell who took part as all others do, in the order of the plan."""
    learner = {"use": "fats", "rounds": 12, "cohort": 4, "steps": 1, "batch": 2, "step_size": 0.1}
    run = train(small_config(learner=learner), tmp_path / "run", secret=secret(6))
    told = json.loads((run.path / "participation.json").read_text())
    cohorts = [run.plan.cohort(round_number) for round_number in range(1, 13)]
    assert any(len(set(cohort)) < 4 for cohort in cohorts)
    assert told["cohorts"] == [list(cohort) for cohort in cohorts]
    assert told["uploads"] == [4 * round_number for round_number in range(1, 13)]
    assert told["gaps"].keys() == told["own_accuracy"].keys() == {"0", "1", "2", "3", "4"}
    result = verify(run, spec=quick, budget=0, key=AUDIT_KEY, save=False)
    words = Page(render(result.as_json(), "html")).words
    for line in ("after 48 uploads.", "48 participations in 12 rounds", "mean", "over 5 clients."):
        assert line in words


def test_a_report_of_a_run_has_both(tmp_path, quick):
    learner = {"use": "scaffold", "scenario": "static", "probability": 0.4, "rounds": 6, "steps": 2, "batch": 4}
    run = train(config(learner=learner | {"step_size": 0.1}), tmp_path / "run", secret=secret(4))
    result = verify(run, spec=quick, budget=0, key=AUDIT_KEY, save=False)
    words = Page(render(result.as_json(), "html")).words
    total = sum(len(run.plan.cohort(round_number)) for round_number in range(1, 7))
    assert f"after {2 * total} uploads." in words
    assert f"{total} participations in 6 rounds" in words
    table = json.loads((run.path / "participation.json").read_text())
    half, texts = "0.500000", ["1.500000", "1.000001", "0.5", "0.50000\u0661", "nan", 0.5]
    strange = [{"9" * 20: half}, {"9" * 5000: half}, {"00": half}, {"x": half}, *({"0": text} for text in texts)]
    forged = [json.dumps(table | {"own_accuracy": own}) for own in strange]
    for content in (*forged, "[]", '{"cohorts": [["x"]], "uploads": []}', '{"cohorts": [[0]]}'):
        (run.path / "participation.json").write_text(content)
        with pytest.raises(EvidenceError, match=r"participation\.json"):
            verify(reseal(run.path), spec=quick, budget=0, key=AUDIT_KEY, save=False)


def test_a_run_without_its_participations_costs_no_audit(tmp_path, quick, monkeypatch):
    """It is refused before the first audit, not after the last."""
    learner = {"use": "fats", "rounds": 2, "cohort": 2, "steps": 1, "batch": 2, "step_size": 0.1}
    run = train(config(learner=learner), tmp_path / "run", secret=secret(4))
    (run.path / "participation.json").unlink()
    monkeypatch.setattr("fuaudit.verification.verify.examine", None)
    with pytest.raises(EvidenceError, match=r"has no participation\.json"):
        verify(reseal(run.path), spec=quick, budget=0, key=AUDIT_KEY, save=False)


def test_uploads_of_a_plan_are_not_told_of_an_edited_model(tmp_path, quick, fuaudit):
    """The edit sent messages of its own, and comes after the rounds that are shown."""
    learner = {"use": "dropouts", "scenario": "static", "probability": 0.5, "rounds": 4, "steps": 1, "batch": 4}
    run = train(config(learner=learner | {"step_size": 0.1}), tmp_path / "run", secret=secret(4))
    child = unlearn(run, "finetune", Request.of([3]), tmp_path / "child")
    words = Page(render(verify(child, spec=quick, budget=0, key=AUDIT_KEY, save=False).as_json(), "html")).words
    assert "over uploads" not in words
    assert "The model was edited by 'finetune' after these rounds." in words
    assert "uploads, before the edit" in fuaudit("show", child.path)[1]
