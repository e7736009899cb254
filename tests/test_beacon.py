"""A secret that was committed to before a beacon was published, and what bears on it."""

import json
import shutil

import pytest
from tests_support import audits, config, drawn_client, of_the_run, secret

from fuaudit import commit, train, unlearn
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.formats.forms import pretty_json
from fuaudit.plans import Request
from fuaudit.workflow.commit import read_promise
from fuaudit.workflow.prune import prune

BEACON = "5a" * 32


@pytest.fixture
def promised(tmp_path):
    """A promise, and the run that was trained with it and a beacon."""
    promise = commit(config(), tmp_path / "promise.json", secret=secret(7))
    return promise, train(config(), tmp_path / "parent", promise=tmp_path / "promise.json", beacon=BEACON.upper())


def test_a_promise_is_kept_by_its_owner(tmp_path, promised):
    promise, run = promised
    path = tmp_path / "promise.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_promise(path) == promise
    assert promise.secret.hex()[:8] not in repr(promise)
    assert run.commitment == promise.commitment == run.ledger.events[0]["commitment"]
    with pytest.raises(UsageError, match="never overwritten"):
        commit(config(), path)
    with pytest.raises(UsageError, match="there is no folder"):
        commit(config(), tmp_path / "mistyped/promise.json")


def test_a_beacon_bears_on_draws_alone(tmp_path, promised):
    _, run = promised
    other = train(config(), tmp_path / "other", promise=tmp_path / "promise.json", beacon="00" * 16)
    without = train(config(), tmp_path / "without", secret=secret(7))
    runs = (run, other, without)
    assert [r.beacon for r in runs] == [BEACON, "00" * 16, None]
    assert len({r.plan.history() for r in runs}) == 3
    assert len({r.model.numpy().tobytes() for r in runs}) == 3
    assert run.commitment == other.commitment != without.commitment, "it says whether a beacon is to come"
    assert len({r.contents.root for r in runs}) == 1
    assert all(r.original.samples == run.original.samples for r in runs)


@pytest.mark.parametrize(
    "change",
    [{"run": {"checkpoint_every": 3}}, {"partition": {"use": "iid", "clients": 9}}, {"unlearner": {"use": "fats"}}],
    ids=str,
)
def test_what_was_changed_since_is_refused(tmp_path, change):
    commit(config(), tmp_path / "promise.json")
    with pytest.raises(UsageError, match="config or data are not those that"):
        train(config(**change), tmp_path / "run", promise=tmp_path / "promise.json", beacon=BEACON)
    assert not (tmp_path / "run").exists()


def test_a_beacon_needs_a_promise(tmp_path):
    with pytest.raises(UsageError, match="committed to before"):
        train(config(), tmp_path / "run", secret=secret(7), beacon=BEACON)
    for beacon in ("", "xy" * 16, "ab" * 15, "ab" * 65):
        with pytest.raises(UsageError, match="16 to 64 bytes"):
            train(config(), tmp_path / "run", promise=tmp_path / "none", beacon=beacon)
    with pytest.raises(UsageError, match="there is no promise"):
        train(config(), tmp_path / "run", promise=tmp_path / "none", beacon=BEACON)
    (tmp_path / "some.json").write_text("{}")
    with pytest.raises(UsageError, match="is no promise"):
        train(config(), tmp_path / "run", promise=tmp_path / "some.json", beacon=BEACON)


def test_findings_say_whether_a_beacon_was_used(tmp_path, promised):
    promise, run = promised
    target = drawn_client(run, 0)
    child = unlearn(run, "fats", Request.of([target]), tmp_path / "child")
    assert child.beacon == BEACON
    for found in (audits(child, commitment=promise.commitment, beacon=BEACON), audits(prune(child)[0], beacon=BEACON)):
        assert found[0].verdict == "PASS", found[0].reason
        told = next(line for line in found[1]["provenance"].assumptions if "beacon" in line)
        assert "only if it was published after the commitment" in told
        assert "given by --beacon" in told
    _, found = audits(child, spec=of_the_run())
    assert any("no --beacon was given" in line for line in found["provenance"].assumptions)
    result, found = audits(child, spec=of_the_run(), beacon="00" * 32)
    assert result.verdict == found["provenance"].verdict == "FAIL"
    without = train(config(), tmp_path / "without" / "parent", secret=secret(7))
    other = unlearn(without, "fats", Request.of([target]), tmp_path / "without" / "child")
    result, found = audits(other, spec=of_the_run(), beacon=BEACON)
    assert result.verdict == found["provenance"].verdict == "FAIL"
    _, found = audits(other, spec=of_the_run())
    assert any("No beacon was mixed into the draws" in line for line in found["provenance"].assumptions)


def test_a_beacon_is_not_exchanged_in_a_child(tmp_path, promised):
    """Another one gives other draws to the request, which an operator may like better."""
    from tests_support import reseal

    _, run = promised
    child = unlearn(run, "fats", Request.of([drawn_client(run, 0)]), tmp_path / "child")
    table = json.loads((child.path / "run.json").read_text())
    (child.path / "run.json").write_bytes(pretty_json(table | {"beacon": "00" * 32}))
    _, found = audits(reseal(child.path))
    assert found["provenance"].verdict == "FAIL"
    (child.path / "run.json").write_bytes(pretty_json(table | {"beacon": "0" * 31}))
    with pytest.raises(EvidenceError, match="beacon"):
        audits(reseal(child.path))


def test_an_unlearner_that_the_config_names_was_not_chosen_later(tmp_path, fuaudit):
    run = train(config(unlearner={"use": "fats"}), tmp_path / "parent", secret=secret(7))
    target = drawn_client(run, 0)
    for name, later in (("fats", False), ("retrain", True)):
        child = unlearn(run, name, Request.of([target]), tmp_path / name)
        result, found = audits(child, spec=of_the_run())
        assert result.verdict == "PASS", result.reason
        assert any("was chosen later" in line for line in found["provenance"].assumptions) == later
    said = fuaudit("unlearn", run.path, "--with", "noop", "--client", target, "--out", tmp_path / "noop")[1]
    assert "the config named 'fats', and every verification will say that 'noop' was chosen later" in said
    open_run = train(config(), tmp_path / "open" / "parent", secret=secret(7))
    child = unlearn(open_run, "fats", Request.of([target]), tmp_path / "open" / "child")
    _, found = audits(child, spec=of_the_run())
    assert any("the committed config names none" in line for line in found["provenance"].assumptions)
    with pytest.raises(UsageError, match="no unlearner called"):
        train(config(unlearner={"use": "fatz"}), tmp_path / "wrong")


def test_the_command_line_commits_and_trains(tmp_path, fuaudit, monkeypatch, lean_file):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(
        '[data]\nuse = "digits"\n[partition]\nuse = "iid"\nclients = 10\n[model]\nuse = "linear"\n'
        '[learner]\nuse = "fats"\nrounds = 3\ncohort = 2\nsteps = 1\nbatch = 8\nstep_size = 0.1\n'
    )
    code, out, _ = fuaudit("commit", "small.toml", "--out", "promise.json", "--json")
    assert code == 0
    commitment = json.loads(out)["commitment"]
    (tmp_path / "own").mkdir()
    shutil.copy("small.toml", "own/config.toml")
    out = fuaudit("commit", "own/config.toml", "--out", "own.json")[1]
    assert "--beacon HEX --out runs/own" in out, "where the lines that import prints look for it"
    train_it = ("train", "small.toml", "--out", "run", "--promise", "promise.json", "--beacon", BEACON)
    code, out, _ = fuaudit(*train_it)
    assert code == 0
    assert f"commitment {commitment}" in out
    assert f"beacon        {BEACON}" in out
    assert f"--beacon {BEACON} --client 0\n" in out
    code, out, _ = fuaudit("unlearn", "run", "--with", "retrain", "--client", 0, "--client", 0, "--out", "child")
    assert code == 0
    assert f"verify child --commitment {commitment} --beacon {BEACON} --client 0\n" in out
    spec = ("--spec", lean_file, "--budget", 0, "--commitment", commitment)
    code, out, _ = fuaudit("verify", "child", *spec, "--beacon", BEACON.upper(), "--json")
    assert code == 0, out
    assert [w for w in json.loads(out)["context"]["arguments"] if w in ("--beacon", BEACON)] == ["--beacon", BEACON]
    assert fuaudit("verify", "child", *spec, "--beacon", "00" * 32, "-q")[0] == 1
