"""A forger writes another model into the low bits of every number, and names a processor that nobody has.

Replay then compares within a tolerance, and within it there is room. No audit can refuse that without refusing honest
runs of other machines; so the finding names the share of numbers that agree in every bit, and a PASS says that it rests
on the others holding nothing. Who wants none of it sets the tolerance to 0: then there is no PASS.
"""

from dataclasses import replace

import pytest
import torch
from tests_support import AUDIT_KEY, claimed, config, drawn_client, edit, holding, made_elsewhere, secret, told

from fuaudit import load_run, train, unlearn, verify
from fuaudit.audits.replay.tolerance import FEWEST
from fuaudit.data.images import Digits
from fuaudit.plans import Request

ONE_A_ROUND = {"use": "fats", "rounds": 16, "cohort": 1, "batch": 16, "steps": 3, "step_size": 0.3}


@pytest.fixture
def forged(tmp_path):
    """Two low bits of every number carry two bits of the untouched model; figures and ledger follow."""
    parent = train(config(), tmp_path / "parent", secret=secret(7))
    run = unlearn(parent, "fats", Request.of([drawn_client(parent)]), tmp_path / "child")
    old = parent.model.view(torch.int32) >> 20 & 3
    models = {number: run.checkpoint(number) for number in run.checkpoints}
    mixed = {n: ((v.view(torch.int32) & ~3 | old).view(torch.float32), state) for n, (v, state) in models.items()}
    holding(run.path, mixed)
    return run.path, old


@pytest.fixture
def diluted(tmp_path):
    """Every round is stored; four low bits of each number of the last one are those of the untouched model."""
    tables = config(run={"checkpoint_every": 1, "engine": "reference"})
    parent = train(tables, tmp_path / "parent", secret=secret(7))
    first = parent.plan.index.clients
    run = unlearn(parent, "fats", Request.of([max(first, key=first.get)]), tmp_path / "child")
    models = {number: run.checkpoint(number) for number in run.checkpoints}
    old, (vector, state) = parent.model.view(torch.int32) & 15, models[8]
    holding(run.path, models | {8: ((vector.view(torch.int32) & ~15 | old).view(torch.float32), state)})
    forged = load_run(run.path)
    return forged, float((forged.model == vector).float().mean())


def elsewhere(path):
    """The run and its parent say that another processor made them; the request then came to that parent."""
    above = claimed(path.parent / "parent", processor="another")
    edit(path, "run.json", parent=load_run(path).info["parent"] | {"digest": above.digest})
    told(path, lambda events: [e | {"parent": above.digest} if e["event"] == "request" else e for e in events])
    return claimed(path, processor="another")


def test_it_is_read_out_again(forged):
    path, old = forged
    assert torch.equal(load_run(path).model.view(torch.int32) & 3, old)


def test_on_the_platform_that_made_it_it_fails(forged, quick):
    result = verify(forged[0], quick, key=AUDIT_KEY, save=False)
    assert result.verdict == "FAIL"
    assert result.findings[1].shows == "Stored models are not what the plan makes of the retained data."


def test_the_parent_speaks_against_the_child_alone(forged, quick):
    result = verify(claimed(forged[0], processor="another"), quick, key=AUDIT_KEY, save=False)
    assert result.verdict == "FAIL"
    assert "names other platforms for the rounds that it keeps than parent" in " ".join(result.findings[0].details)


def test_elsewhere_a_pass_names_it(forged, quick):
    result = verify(elsewhere(forged[0]), quick, key=AUDIT_KEY, save=False)
    found = {finding.audit: finding for finding in result.findings}["replay"]
    assert result.verdict == found.verdict == "PASS"
    assert 0 < found.values["bit_equal"] < 0.6
    share = f"{int(100 * found.values['bit_equal'])}%"
    below = "Nothing is hidden below the tolerance, in the low bits of the numbers that differ"
    assert any(
        line.startswith(f"{below}: {share} agree in every bit, {FEWEST}, and ") for line in result.conclusion.rests_on
    )
    assert "The run was made on the platforms that it names." in result.conclusion.rests_on
    assert "On another platform than the run's, models were compared within a tolerance." in result.reason


def test_kept_rounds_do_not_speak_for_the_model_that_holds_it(diluted, quick):
    """Eight of nine stored models agree in every bit here; the finding speaks of the ninth."""
    run, alike = diluted
    assert alike < 0.3
    result = verify(made_elsewhere(run), quick, key=AUDIT_KEY, save=False)
    found = {finding.audit: finding for finding in result.findings}["replay"]
    assert result.verdict == "PASS"
    assert found.values["bit_equal"] <= alike
    assert f" {int(100 * found.values['bit_equal'])}% agree in every bit, {FEWEST}, and " in found.assumptions[-1]


def test_numbers_that_kept_rounds_alone_moved_do_not_speak_for_the_others(tmp_path, quick):
    """A column a row, as ids are: most numbers were last moved long before the first round that is drawn anew."""
    digits = Digits().load(None)
    inputs = torch.cat([digits.inputs[:400], torch.eye(400)], dim=1)
    data = replace(
        digits, inputs=inputs, targets=digits.targets[:400], test_inputs=inputs[:100], test_targets=digits.targets[:100]
    )
    tables = config(data={"use": "tensors", "classes": 10}, learner=ONE_A_ROUND, run={"checkpoint_every": 16})
    parent = train(tables, tmp_path / "parent", secret=secret(5), data=data)
    first = parent.plan.index.clients
    run = unlearn(parent, "fats", Request.of([max(first, key=first.get)]), tmp_path / "child", data=data)
    assert run.info["first_change"][0] == 16
    vector, state = run.checkpoint(16)
    pixels = torch.ones(len(vector), dtype=torch.bool)
    pixels[:4640] = torch.arange(464).repeat(10) < 64
    old = vector.view(torch.int32) & ~15 | parent.model.view(torch.int32) & 15
    forged = torch.where(pixels, old.view(torch.float32), vector)
    holding(run.path, {0: run.checkpoint(0), 16: (forged, state)}, data)
    result = verify(made_elsewhere(load_run(run.path)), quick, key=AUDIT_KEY, save=False, data=data)
    found = {finding.audit: finding for finding in result.findings}["replay"]
    assert result.verdict == "PASS"
    assert found.values["bit_equal"] < 0.5
    differ = int((forged.view(torch.int32) != vector.view(torch.int32)).sum())
    assert found.values["other_bits"] == differ
    assert f", and {differ} numbers of a stored model do not; and a share" in found.assumptions[-1]


def test_without_a_tolerance_there_is_no_pass(forged, quick):
    strict = {"replay": {"tolerance": 0}, "lineage": {"tolerance": 0}}
    checks = tuple(replace(check, audit=check.audit | strict.get(check.audit["use"], {})) for check in quick.checks)
    run = elsewhere(forged[0])
    assert verify(run, replace(quick, checks=checks), key=AUDIT_KEY, save=False).verdict == "INCONCLUSIVE"
