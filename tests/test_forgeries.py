"""Forgeries by an operator who controls every byte and can make manifests and ledgers fit again."""

import json
import shutil

import pytest
import tomli_w
from tests_support import audits, config, drawn_client, drawn_sample, reseal, secret, told

from fuaudit import train, unlearn
from fuaudit.errors import EvidenceError
from fuaudit.plans import Request
from fuaudit.runs.ledger import NAME as LEDGER
from fuaudit.runs.ledger import append, read_ledger
from fuaudit.runs.prune import prune
from fuaudit.runs.tables import checkpoint_name


@pytest.fixture
def lineage(tmp_path):
    """A training run, a child by FATS, and the commitment that an auditor holds."""
    run = train(config(), tmp_path / "parent", secret=secret(7))
    child = unlearn(run, "fats", Request.of(clients=[drawn_client(run)]), tmp_path / "child")
    return run, child, run.ledger.events[0]["commitment"]


def change(path, name, edit):
    """Edit one JSON file of a run."""
    table = json.loads((path / name).read_text())
    edit(table)
    (path / name).write_text(json.dumps(table))


def test_honest_lineage_passes(lineage):
    _, child, commitment = lineage
    result, _ = audits(child, commitment=commitment, expected=child.request)
    assert result.verdict == "PASS"


def test_fewer_rounds_than_the_law(lineage):
    _, child, commitment = lineage
    change(child.path, "run.json", lambda t: t.update(executed_rounds=2))
    for round in (4, 6, 8):
        (child.path / checkpoint_name(round)).unlink()

    def shorter(events):
        kept = [event for event in events if event["event"] != "round"]
        return [{**event, "kept_rounds": 2} if event["event"] == "unlearning" else event for event in kept]

    result, found = audits(told(child.path, shorter), commitment=commitment)
    assert result.verdict == "FAIL"
    assert "stopped after round 2" in " ".join(found["plan"].details)


def test_more_rounds_than_the_law_are_no_run(lineage):
    _, child, _ = lineage
    change(child.path, "run.json", lambda t: t.update(executed_rounds=3_000_000))
    with pytest.raises(EvidenceError, match="claims 3000000 rounds"):
        reseal(child.path)


def test_another_config_breaks_the_commitment(lineage):
    run, child, commitment = lineage
    for path in (run.path, child.path):
        text = (path / "config.toml").read_text()
        (path / "config.toml").write_text(text + "# a nonce\n")
    change(child.path, "run.json", lambda t: t["parent"].update(digest=reseal(run.path).digest))
    result, found = audits(reseal(child.path), commitment=commitment)
    assert result.verdict == "FAIL"
    assert "committed to" in found["plan"].shows


def test_a_request_in_other_words_gives_no_other_key(lineage):
    _, child, _ = lineage
    change(child.path, "plan.json", lambda t: t["requests"][0].update(clients=[float(t["requests"][0]["clients"][0])]))
    with pytest.raises(EvidenceError, match="no integer"):
        audits(reseal(child.path))


def test_another_request_than_asked_for(lineage):
    _, child, _ = lineage
    other = next(c for c in child.original.clients if c not in child.request.clients)
    result, found = audits(child, expected=Request.of(clients=[other]))
    assert result.verdict == "FAIL"
    assert "asked for was" in " ".join(found["plan"].details)


def test_a_published_commitment_pasted_into_another_run(tmp_path, lineage):
    _, _, commitment = lineage
    run = train(config(), tmp_path / "other", secret=secret(9))
    ledger = read_ledger(run.path)
    (run.path / LEDGER).unlink()
    (run.path / "manifest.json").unlink()
    from fuaudit.runs.ledger import Ledger

    forged = append(run.path, Ledger(), "commitment", commitment=commitment)
    for event in ledger.events[1:-1]:
        facts = {k: v for k, v in event.items() if k not in ("event", "previous", "time")}
        forged = append(run.path, forged, event["event"], **facts)
    child = unlearn(reseal(run.path), "fats", Request.of(clients=[0]), tmp_path / "other-child")
    result, found = audits(child, commitment=commitment)
    assert result.verdict == "FAIL"
    assert found["plan"].verdict == "FAIL"


def test_a_flawed_method_earlier_in_the_lineage(tmp_path):
    run = train(config(), tmp_path / "parent", secret=secret(7))
    first = unlearn(run, "fats-as-printed", Request.of(samples=[drawn_sample(run)]), tmp_path / "first")
    second = unlearn(first, "fats", Request.of(clients=[drawn_client(first)]), tmp_path / "second")
    result, found = audits(second)
    assert found["enumeration"].verdict == "FAIL"
    assert result.verdict == "FAIL"


def test_two_honest_requests_pass_with_the_first_commitment(tmp_path, lineage):
    run, child, commitment = lineage
    second = unlearn(child, "fats", Request.of(clients=[drawn_client(child)]), run.path.parent / "second")
    result, _ = audits(second, commitment=commitment)
    assert result.verdict == "PASS"


def test_a_forged_index_convinces_nobody(lineage):
    """The parent's index of first involvements is a convenience; audits read the draws."""
    from fuaudit.runs.files import tensor_bytes
    from fuaudit.runs.tables import involvement_tensors

    run, child, _ = lineage
    index = run.plan.index
    index.clients.pop(child.request.clients[0])
    (run.path / "involvement.safetensors").write_bytes(tensor_bytes(involvement_tensors(index)))
    change(child.path, "run.json", lambda t: t["parent"].update(digest=reseal(run.path).digest))
    _, found = audits(reseal(child.path))
    assert found["plan"].statistic["nothing_to_forget"] == "no: it was drawn"
    assert found["plan"].verdict == "PASS"


def test_a_partition_that_no_key_dealt(tmp_path, lineage):
    """Rows moved to a neighbour before training: the commitment is to another partition, and the key deals another."""
    from fuaudit.runs.files import tensor_bytes
    from fuaudit.runs.tables import population_tensors

    run, _, _ = lineage
    samples = dict(run.original.samples)
    samples[1] = tuple(sorted(samples[1] + samples[0][1:]))
    samples[0] = samples[0][:1]
    forged = type(run.original)(samples)
    (run.path / "partition.safetensors").write_bytes(tensor_bytes(population_tensors(forged)))
    _, found = audits(reseal(run.path))
    assert found["plan"].verdict == "FAIL"


def test_a_label_with_words_of_its_own(lineage):
    _, child, _ = lineage
    change(child.path, "run.json", lambda t: t["unlearner"].update(guarantee="certified by the regulator"))
    result, _ = audits(reseal(child.path))
    assert result.verdict == "FAIL"
    assert "certified by the regulator" not in json.dumps(result.as_json())


def test_options_cannot_choose_another_method(lineage):
    _, child, _ = lineage
    change(child.path, "run.json", lambda t: t["unlearner"].update(options={"use": "noop"}))
    result, _ = audits(reseal(child.path))
    assert result.verdict == "FAIL"


def test_a_null_key_without_a_prune(lineage):
    run, _, _ = lineage
    change(run.path, "keys.json", lambda t: t.update(draws=[None]))
    with pytest.raises(EvidenceError):
        audits(reseal(run.path))


def test_after_a_prune_the_old_model_is_no_initial_model(lineage, tmp_path):
    """The parent's final model posing as the initial one, with a step size that leaves it alone."""
    run, child, commitment = lineage
    final = (run.path / checkpoint_name(run.checkpoints[-1])).read_bytes()
    pruned, _ = prune(child)
    config_of = pruned.config.tables()
    config_of["learner"]["step_size"] = 1e-30
    (pruned.path / "config.toml").write_text(tomli_w.dumps(config_of))
    for round in pruned.checkpoints:
        (pruned.path / checkpoint_name(round)).write_bytes(final)
    result, found = audits(reseal(pruned.path), commitment=commitment)
    assert result.verdict == "FAIL"
    assert found["replay"].verdict == "FAIL"
    assert found["plan"].verdict == "FAIL"


def test_pruning_after_retraining_keeps_the_evidence(tmp_path):
    run = train(config(), tmp_path / "parent", secret=secret(7))
    child = unlearn(run, "retrain", Request.of(clients=[drawn_client(run)]), tmp_path / "child")
    pruned, _ = prune(child)
    assert audits(pruned)[0].verdict == "PASS"


def test_the_untouched_model_under_a_right_plan_fails_every_spec(lineage):
    run, child, _ = lineage
    for round in run.checkpoints:
        shutil.copy(run.path / checkpoint_name(round), child.path / checkpoint_name(round))
    for name in ("model.safetensors", "metrics.json"):
        shutil.copy(run.path / name, child.path / name)
    forged = reseal(child.path)
    for spec in ("client-erasure", "sample-erasure", "bounded-difference"):
        assert audits(forged, spec=spec)[0].verdict == "FAIL"
