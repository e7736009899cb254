"""Training whose sums a suite makes: one model whatever the suite, no secret in a run, no sum over other values."""

import secrets as system
import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.asymmetric import ed25519, x25519
from fuaudit_plugins.quantise import Quantise
from fuaudit_plugins.secure_sum import SecureSum
from fuaudit_plugins.skellam import SkellamNoise
from secure_parties import rows_of
from tests_support import secret

from fuaudit import load_run, registry, train, unlearn, verify
from fuaudit.audits.transcript.known import wrong_rule
from fuaudit.config import resolve
from fuaudit.errors import EvidenceError, PluginError, UsageError
from fuaudit.formats.forms import canonical_json
from fuaudit.plans import Request, UniformLaw
from fuaudit.runs.ledger import ledger_of, suite_of, wrong_course
from fuaudit.runs.platforms import versions
from fuaudit.runs.sums import sums_of
from fuaudit.runs.transcripts import chain_of
from fuaudit.secure import bfv, masked, pairs, slots, streams
from fuaudit.secure.exposure import Buffer
from fuaudit.secure.names import EXACT, SCARY
from fuaudit.secure.suites import Books, Suite
from fuaudit.testing.tiny import tiny_config, tiny_dataset
from fuaudit.training.exchange import Exchange, exchange_of
from fuaudit.training.publishing import require_unpublished
from fuaudit.training.stages import Chain, Mean
from fuaudit.workflow.resume import resume
from fuaudit.workflow.seal import seal
from fuaudit.workflow.secured import require_secured
from fuaudit.workflow.train import prepare

QUANTISE = {"use": "quantise", "clip": 1.0, "bits": 12}
NOISE = {"use": "gaussian-noise", "norm": 0.5, "noise": 0.3}
FEDAVG = tiny_config(
    learner={"use": "fedavg", "cohort": 4, "steps": 1, "batch": 2, "step_size": 0.2, "rounds": 2},
    client=[QUANTISE],
    transport={"use": "secure-sum", "size": 4},
    server=[{"use": "mean"}],
    run={"checkpoint_every": 1, "engine": "reference", "device": "cpu", "requests": 2},
)
FEDREP = FEDAVG | {
    "learner": {"use": "fedrep", "rounds": 2, "cohort": 4, "steps": 2, "batch": 2, "step_size": 0.2},
    "client": [{"use": "error-feedback"}, {"use": "consensus", "per_client": 2, "alpha": 0.5}, QUANTISE],
    "transport": {"use": "secure-sum", "size": 2},
    "server": [{"use": "coordinate-median"}],
}
THIN = FEDAVG | {
    "partition": {"use": "iid", "clients": 5},
    "learner": {
        **{"use": "dropouts", "scenario": "static", "probability": 0.5, "first_all": False},
        **{"rounds": 8, "steps": 1, "batch": 2, "step_size": 0.2},
    },
    "transport": {"use": "secure-sum", "size": 3},
}
"""Some rounds have two clients, and sums are of three."""
BITS = {"use": "alie", "clients": [3]}
NOISY = FEDAVG | {"client": [NOISE, QUANTISE]}
SHARES = FEDAVG | {"client": [{"use": "skellam-noise", "norm": 0.5, "noise": 0.5, "bits": 12}]}
"""Whole numbers with noise, of which no rounding stage is needed."""
INFINITE = FEDREP | {"client": [{"use": "test-infinite", "clients": [3]}, *FEDREP["client"]]}
"""Of two buffers one is discarded in each round; whole numbers could not hold its sum."""


def trained(path, tables=FEDAVG, suite="mask", number=1, **others):
    return train(tables, path, tiny_dataset(), secret(number), secure=suite, **others)


def sealed_with_child(folder, tables, suite):
    """A run, its child that forgets client 0, and the sealed views of both."""
    (folder / "views").mkdir()
    parent = trained(folder / "parent", tables, suite)
    child = unlearn(parent, "retrain", Request.of([0]), folder / "child", data=tiny_dataset())
    return [parent, child, *(seal(run, folder / "views" / run.path.name) for run in (parent, child))]


@pytest.mark.parametrize(
    "tables", [FEDAVG, FEDREP, SHARES, INFINITE], ids=["fedavg", "fedrep", "shares", "a row that is not finite"]
)
def test_every_suite_gives_one_run(tmp_path, monkeypatch, tables):
    """Every byte but those of the ledger: neither models nor draws know of keys."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "stages"))
    runs = [trained(tmp_path / str(suite), tables, suite) for suite in (None, *EXACT)]
    assert len({run.digest for run in runs}) == 1
    assert [suite_of(run.ledger) for run in runs] == [None, *EXACT]
    assert not runs[0].model.eq(runs[0].models[0]).all()
    told = [event for run in runs for line in run.ledger.of_kind("round") for event in line["told"]]
    suspects = [event["clients"] for event in told if event["kind"] == "suspected"]
    assert len(suspects) == (len(runs) * 2 if tables is INFINITE else 0)
    assert all(3 in clients and len(clients) == 2 for clients in suspects)


def test_a_round_of_two_opens_no_sum_where_sums_are_of_three(tmp_path, quick):
    """Its model would be the sum, from which each of the two takes her own row: by every suite, and without one."""
    runs = {suite: trained(tmp_path / str(suite), THIN, suite) for suite in (None, *EXACT)}
    assert len({run.digest for run in runs.values()}) == 1
    came = [len(cohort) for cohort in runs[None].participation["cohorts"]]
    assert 2 in came
    assert max(came) > 2
    for suite, run in runs.items():
        stayed = [bool(one.equal(other)) for one, other in pairwise(run.models[number] for number in range(9))]
        assert stayed == [number < 3 for number in came]
        assert [line["told"][-1]["failed"] for line in run.ledger.of_kind("round")] == stayed
        terms = {entry.round for entry in chain_of(run.path).entries if entry.step == "terms"} if suite else ()
        assert not any(came[number - 1] < 3 for number in terms)
        # nobody's row is open in a round that opens nothing: two of three have to collude
        assert (sums_of(run).over(1)[0], sums_of(run).over(0)[0]) == (suite == "plain", suite == "plain")
    view = seal(runs["mask"], tmp_path / "view")
    for one, data in ((runs["mask"], tiny_dataset()), (view, None)):
        found = {f.audit: f for f in verify(one, "secure-aggregation", data=data, save=False).findings}
        assert [found[audit].verdict for audit in ("transcript", "aggregation-attacks")] == ["PASS", "PASS"]
        assert not [line for line in found["transcript"].assumptions if "all that was opened of a round" in line]


@contextmanager
def noted(monkeypatch):
    """All secrets that suites make or derive, as bytes."""
    found = set()

    def noting(work):
        def noted_(*args, **kwargs):
            made = work(*args, **kwargs)
            found.add(made if isinstance(made, bytes) else made.private_bytes_raw())
            return made

        return noted_

    with monkeypatch.context() as patch:
        patch.setattr(system, "token_bytes", noting(system.token_bytes))
        for room in (pairs, masked, slots):
            patch.setattr(room, "derived", noting(streams.derived))
        for home in (x25519.X25519PrivateKey, ed25519.Ed25519PrivateKey):
            patch.setattr(home, "generate", noting(home.generate))
        yield found


@pytest.mark.parametrize("suite", ["mask", "bfv", "bfv+mask"])
def test_no_secret_comes_again_and_none_is_in_a_run(tmp_path, monkeypatch, quick, suite):
    """Trained twice from one secret, and replayed: whatever was a secret in one is none in another."""
    made = []
    for name in ("one", "other"):
        with noted(monkeypatch) as found:
            trained(tmp_path / name, FEDREP, suite)
        made.append(found)
    assert len(made[0]) > 20
    assert not made[0] & made[1]
    with noted(monkeypatch) as again:
        result = verify(load_run(tmp_path / "one"), quick, data=tiny_dataset(), budget=0, save=False)
    assert result.verdict != "FAIL"
    assert not (made[0] | made[1]) & again
    for path in (tmp_path / "one").rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        # numbers of attempts, of 16 bytes, are drawn as secrets are, and told to everybody
        held = [one for one in made[0] if len(one) > 16 and (one in content or one.hex().encode() in content)]
        assert not held, path


def test_a_replay_makes_no_sum_by_a_suite(tmp_path, monkeypatch, quick):
    run = trained(tmp_path / "run")

    def opened(*_, **__):
        raise AssertionError("an audit opened a sum")

    monkeypatch.setattr(Suite, "opened", opened)
    replayed = next(f for f in verify(run, quick, data=tiny_dataset(), save=False).findings if f.audit == "replay")
    assert replayed.verdict == "PASS"


def published(tables, *server, size=2, clients=10):
    """A config whose server has other rules, over so many clients."""
    partition = {"use": "iid", "clients": clients}
    learner = tables["learner"] | {"cohort": clients}
    transport = {"use": "secure-sum", "size": size}
    return tables | {"partition": partition, "learner": learner, "transport": transport, "server": [*server]}


KRUM, MEDIAN = {"use": "krum", "byzantine": 0}, {"use": "coordinate-median"}
SHOWN = "subtracts her own row, and has the other client's"
WRONG = {
    "one sum of two is published": (
        published(FEDAVG, KRUM),
        f"the aggregator 'krum' may publish a sum as it is, and the transport 'secure-sum' .* {SHOWN}",
    ),
    "coordinates of sums of two": (published(FEDAVG, MEDIAN), f"coordinates of single sums as they are, .* {SHOWN}"),
    "a rule that is left one value": (published(FEDAVG, {"use": "trimmed-mean", "trim": 2}), SHOWN),
    "a rule that keeps one": (published(FEDAVG, {"use": "multi-krum", "byzantine": 0}), SHOWN),
    "the longest are left out": (published(FEDAVG, {"use": "norm-thresholding", "trim": 4}), SHOWN),
    "one that weighs": (published(FEDAVG, {"use": "spectral-filter", "sigma": 1.0}), SHOWN),
    "no whole numbers": (FEDAVG | {"client": []}, "does not make them"),
    "something behind quantise": (FEDAVG | {"client": [QUANTISE, {"use": "clip", "norm": 1.0}]}, "does not make them"),
    "rows in the clear": ({name: FEDAVG[name] for name in FEDAVG if name != "transport"}, "has no sums"),
    "pairs of clients": (FEDAVG | {"transport": {"use": "sparse-sum", "alpha": 0.5}}, "has no sums"),
    "rounds that are not stored": (FEDAVG | {"run": FEDAVG["run"] | {"checkpoint_every": 2}}, "every round stored"),
    "two of many": (FEDAVG | {"transport": {"use": "secure-sum", "size": 3, "smallest": 2}}, "opens no sum of two"),
    "large buffers": (FEDAVG | {"transport": {"use": "secure-sum", "size": 17}}, "2 to 32 clients, not of 33"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_config_that_no_suite_can_sum_is_refused_with_the_reason(tmp_path, name):
    tables, reason = WRONG[name]
    with pytest.raises(UsageError, match=reason):
        trained(tmp_path / "run", tables)
    assert not (tmp_path / "run").exists()


HIDING = {
    "larger sums": published(FEDAVG, KRUM, size=3),
    "more are kept": published(FEDAVG, {"use": "multi-krum", "byzantine": 0, "keep": 2}),
    "a point between": published(FEDAVG, {"use": "geometric-median"}),
    "two sums, whose median is their mean": published(FEDAVG, MEDIAN, clients=4),
    "one sum, which is all that there is": published(FEDAVG, {"use": "mean"}, clients=2),
    "a fraction that leaves several": published(FEDAVG, {"use": "trimmed-mean", "trim": 0.25}),
}


@pytest.mark.parametrize("name", HIDING)
def test_a_rule_that_adds_up_sums_of_two_or_has_larger_ones_is_no_reason_to_refuse(tmp_path, name):
    first = prepare(HIDING[name], tiny_dataset(), secret(1), None, None, None).first
    require_secured(first.ready, "plain", first.common.original, apart=False)


EMPTIED = NOISY | {"client": [{"use": "gaussian-noise", "norm": 0.5, "noise": 1.0}, QUANTISE]}


@pytest.mark.parametrize(
    ("server", "size", "clients", "refused"),
    [(KRUM, 3, 9, False), (KRUM, 4, 12, False), ({"use": "mean"}, 2, 4, True), ({"use": "mean"}, 3, 6, False)],
    ids=["sums of three", "sums of four", "one of two sums of two is left", "one sum of three is left"],
)
def test_a_request_that_empties_a_client_is_refused_where_a_sum_of_two_could_be_published(
    tmp_path, monkeypatch, server, size, clients, refused
):
    """An emptied client hides nobody: where sums are of two, and one is left, its two have each other's row."""
    parent = trained(tmp_path / "parent", published(EMPTIED, server, size=size, clients=clients), "plain")
    request, out = Request.of([], parent.original.samples[0]), tmp_path / "child"
    if not refused:
        child = unlearn(parent, "retrain", request, out, data=tiny_dataset())
        assert [*wrong_rule(child)] == []
        return
    with pytest.raises(UsageError, match=r"clients without samples hide nobody: whoever is in one subtracts"):
        unlearn(parent, "retrain", request, out, data=tiny_dataset())
    assert not out.exists()
    unlearn(parent, "retrain", Request.of([0]), tmp_path / "whole", data=tiny_dataset())
    monkeypatch.setattr("fuaudit.workflow.unlearn.require_secured", lambda *_, **__: None)
    made = unlearn(parent, "retrain", request, out, data=tiny_dataset())
    assert [one.kind for one in wrong_rule(made)] == ["rule"]


@dataclass(frozen=True)
class NeedsThree(Mean):
    """A rule that would leave one row of two, and says so; of two it is never asked, for it needs more."""

    least: int = 3
    most: int = 2

    @property
    def least_rows(self):
        return self.least

    def publishes(self, rows):
        return "row" if rows <= self.most else ""


def test_a_rule_is_not_asked_of_fewer_rows_than_it_needs():
    """A round with so few fails, and opens no sum."""
    buffers, law = [Buffer(2, 2)] * 4, UniformLaw(rounds=2, cohort_size=2, steps=1, batch_size=1)
    require_unpublished(Exchange(Chain((NeedsThree(),))), buffers, "plain", law)
    for shown in (NeedsThree(2), NeedsThree(3, 3), NeedsThree(3, 4)):
        with pytest.raises(UsageError, match="may publish a sum as it is"):
            require_unpublished(Exchange(Chain((shown,))), buffers, "plain", law)


def partners_rows(rule, rows):
    """How many rows ``(2 b, d)`` their partners can tell, by what a rule makes of the means of two."""
    means = (rows[::2] + rows[1::2]) / 2
    row = registry.build("aggregators", rule).aggregate(means)[0]
    others = rows.reshape(-1, 2, rows.shape[1]).flip(1).reshape(rows.shape)
    return int(((2 * row - others - rows).abs() < 1e-9).all(dim=1).sum())


def test_what_krum_publishes_is_a_partners_row():
    rows = torch.from_numpy(rows_of(10, 6).astype(float))
    assert partners_rows(KRUM, rows) == 2  # each of the two who are in the sum that it chose has the other's
    assert partners_rows({"use": "geometric-median"}, rows) == partners_rows(KRUM | {"use": "multi-krum"}, rows) == 0


@pytest.mark.parametrize("suite", [SCARY, "bvf"])
def test_only_exact_suites_train(tmp_path, suite):
    with pytest.raises(UsageError, match="for training"):
        trained(tmp_path / "run", suite=suite)


TOML = (
    'scaling = "none"\n[data]\nuse = "digits"\n[partition]\nuse = "iid"\nclients = 3\n[model]\nuse = "linear"\n'
    '[learner]\nuse = "fedavg"\nrounds = 1\ncohort = 3\nsteps = 1\nbatch = 4\nstep_size = 0.1\n'
    '[[client]]\nuse = "quantise"\n[transport]\nuse = "secure-sum"\nsize = 3\n[[server]]\nuse = "mean"\n'
    "[run]\ncheckpoint_every = 1\n"
)


def test_the_command_trains_by_a_suite(fuaudit, tmp_path):
    (tmp_path / "c.toml").write_text(TOML)
    code, _, err = fuaudit("train", tmp_path / "c.toml", "--out", tmp_path / "run", "--secure", "bfv+mask")
    assert code == 0, err
    assert suite_of(load_run(tmp_path / "run").ledger) == "bfv+mask"
    assert fuaudit("train", tmp_path / "c.toml", "--out", tmp_path / "no", "--secure", "ckks-demo")[0] == 2


# what a suite is asked to add up


@dataclass(frozen=True)
class Foreign:
    """A transport of another package, as it was written before there was ``summable``."""

    shows = "sums"
    draws = True

    def deliver(self, rows, context):
        raise AssertionError("nothing is delivered")

    def secured(self, suite, before, books, apart):
        return SecureSum(3).secured(suite, before, books, apart)

    def buffers(self, places):
        raise AssertionError("nobody is summed")

    members = buffers


@dataclass(frozen=True)
class Summing(Foreign):
    """One that says what is summed, right or wrong."""

    bits: object = 12
    most: object = 5

    def summable(self, suite, before):
        return self

    def secured(self, *_):
        raise AssertionError("nothing is opened")


def exchange_by(transport):
    return replace(exchange_of(resolve(FEDAVG)), transport=transport)


def test_what_is_summed_is_said_without_a_suite():
    own = exchange_by(SecureSum(3)).summation("bfv")
    assert (own.bits, own.most, own.shows_means) == (12, 5, True)
    step = own.part.numbers.step_of(2)
    found = own.mean_of(np.array([8, -2]), 4, torch.zeros(2, dtype=torch.float64))
    assert torch.equal(found, torch.tensor([2 * step, -step / 2], dtype=torch.float64))
    old = exchange_by(Foreign()).summation("bfv")
    assert (old.bits, old.most, old.shows_means) == (12, 5, False)
    other = exchange_by(Summing()).summation("bfv")
    assert (other.bits, other.most, other.shows_means) == (12, 5, False)


@pytest.mark.parametrize(
    ("transport", "suite", "error", "words"),
    [
        (SecureSum(3), "bvf", UsageError, "no suite 'bvf'"),
        (SecureSum(3), SCARY, UsageError, "no suite"),
        (SecureSum(17), "mask", UsageError, "of 2 to 32 clients, not of 33"),
        (Summing(most=33), "mask", UsageError, "of 2 to 32 clients, not of 33"),
        (Summing(bits=99), "mask", UsageError, "99"),
        (Summing(bits="12"), "mask", PluginError, "whole numbers bits and most"),
        (Summing(most=True), "mask", PluginError, "whole numbers bits and most"),
    ],
)
def test_what_no_suite_adds_up_is_refused(transport, suite, error, words):
    with pytest.raises(error, match=words):
        exchange_by(transport).summation(suite)


def test_a_library_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tenseal", None)
    bfv.require_margin.cache_clear()
    with pytest.raises(UsageError, match="cannot be loaded") as caught:
        trained(tmp_path / "run", suite="bfv")
    assert "pip install tenseal==0.3.18" in str(caught.value)
    assert not (tmp_path / "run").exists()
    assert suite_of(trained(tmp_path / "run", suite="mask").ledger) == "mask"


def test_a_buffer_that_is_too_large_is_told_before_who_may_be_byzantine(tmp_path):
    for size, words in ((17, "of 2 to 32 clients, not of 33"), (4, "may be bad")):
        transport = {"use": "secure-sum", "size": size, "byzantine": 3}
        with pytest.raises(UsageError, match=words):
            trained(tmp_path / "run", FEDAVG | {"transport": transport})


def test_the_command_says_why_ckks_trains_nothing(fuaudit, tmp_path):
    (tmp_path / "c.toml").write_text(TOML)
    code, _, err = fuaudit("train", tmp_path / "c.toml", "--out", tmp_path / "run", "--secure", "ckks-demo")
    assert code == 2
    assert "recovers the key and opens every client's row" in err
    code, _, err = fuaudit("train", tmp_path / "c.toml", "--out", tmp_path / "run", "--secure", "bvf")
    assert code == 2
    assert "'bfv+mask'" in err


# what was opened is not opened over other values


@pytest.mark.parametrize("noise", [True, False])
def test_a_training_says_before_its_rows_are_sent_whether_anybody_can_be_forgotten(
    fuaudit, tmp_path, monkeypatch, noise
):
    """And proposes what can be done. The reason is the one with which the request is refused."""
    stage = 'use = "skellam-noise"\nnorm = 0.5\nnoise = 0.5\nbits = 12' if noise else 'use = "quantise"'
    (tmp_path / "c.toml").write_text(TOML.replace('use = "quantise"', stage))
    opened, lines, told = Suite.opened, [], []

    def opening(suite, *given, **options):
        told.append([*lines])
        return opened(suite, *given, **options)

    monkeypatch.setattr("fuaudit.cli.runs.say", lambda text, **_: lines.append(text))
    monkeypatch.setattr(Suite, "opened", opening)
    code, out, _ = fuaudit("train", tmp_path / "c.toml", "--out", tmp_path / "run", "--secure", "mask")
    assert code == 0
    assert any("no request can be carried out on this run" in text for text in told[0]) != noise
    assert ("fuaudit unlearn" in out) == ("epsilon   " in out) == noise
    assert ("requests      no request can be carried out on this run" in out) != noise
    run = load_run(tmp_path / "run")
    assert f"--spec secure-aggregation --commitment {run.commitment} --ledger-head {run.ledger.head}" in out
    code, out, err = fuaudit(
        "unlearn", run.path, "--with", "retrain", "--client", run.name(0), "--out", tmp_path / "child"
    )
    assert code == (0 if noise else 2)
    assert ("are the row of who is erased" in err) != noise
    if noise:
        assert "steps of the numbers that are opened" in out
        assert f"fuaudit budget run {tmp_path / 'child'} --delta" in out


def test_the_sums_of_a_parent_minus_those_of_a_child_are_the_erased_row():
    """Whatever the buffers were; only noise that is drawn anew covers it."""
    rows, suite, generator = rows_of(6, 4000, 10), Suite("mask"), np.random.Generator(np.random.Philox(5))
    parent = suite.sums(rows[:3], 12) + suite.sums(rows[3:], 12)
    child = suite.sums(rows[[5, 2]], 12) + suite.sums(rows[[1, 4, 3]], 12)
    assert np.array_equal(parent - child, rows[0])

    def noisy(some):
        return suite.sums(rows[some] + np.rint(generator.normal(0, 100, rows[some].shape)).astype(np.int64), 12)

    rest = noisy([0, 1, 2]) + noisy([3, 4, 5]) - noisy([5, 2]) - noisy([1, 4, 3]) - rows[0]
    assert abs(rest.std() / (100 * 11**0.5) - 1) < 0.1  # 11 noises, of six rows and of five


@pytest.mark.parametrize(
    "client", [[{"use": "consensus", "per_client": 2, "alpha": 0.5}, NOISE, QUANTISE], [BITS, NOISE, QUANTISE]]
)
def test_noise_that_no_account_takes_allows_no_unlearning(tmp_path, client):
    """Behind an agreement, or behind a Byzantine client who sees all rows."""
    run = trained(tmp_path / "run", FEDAVG | {"client": client})
    with pytest.raises(UsageError, match="are the row of who is erased"):
        unlearn(run, "retrain", Request.of([0]), tmp_path / "child", data=tiny_dataset())


def test_shares_of_noise_that_are_drawn_anew_allow_unlearning(tmp_path, quick):
    run = trained(tmp_path / "run", SHARES)
    child = unlearn(run, "retrain", Request.of([0]), tmp_path / "child", data=tiny_dataset())
    assert suite_of(child.ledger) == "mask"
    result = verify(load_run(child.path), quick, data=tiny_dataset(), budget=0, save=False)
    assert {str(found.verdict) for found in result.findings} == {"PASS"}


def test_unlearning_that_would_tell_the_erased_row_is_refused(tmp_path, quick):
    """Also where a method edits the model: it asks clients for more. With fresh noise of clients it is carried out."""
    run = trained(tmp_path / "run")
    for method in ("retrain", "fats", "finetune", "noop"):
        with pytest.raises(UsageError, match="are the row of who is erased") as caught:
            unlearn(run, method, Request.of([0]), tmp_path / "child", data=tiny_dataset())
        assert "gaussian-noise" in caught.value.hint
    noisy = trained(tmp_path / "noisy", NOISY)
    with pytest.raises(UsageError, match="are the row of who is erased"):
        unlearn(noisy, "finetune", Request.of([0]), tmp_path / "child", data=tiny_dataset())
    child = unlearn(noisy, "retrain", Request.of([0]), tmp_path / "child", data=tiny_dataset())
    assert suite_of(child.ledger) == "mask"
    result = verify(child, quick, data=tiny_dataset(), budget=0)
    assert result.verdict == "PASS", result.reason
    plain = unlearn(
        trained(tmp_path / "plain", NOISY, None), "retrain", Request.of([0]), tmp_path / "other", data=tiny_dataset()
    )
    assert plain.model.equal(child.model)


@pytest.fixture
def opened(monkeypatch):
    """What suites open, in order: numbers of round and buffer, and rows; and after how many they are killed."""
    found, kill, work = [], [], Suite.opened

    def noting(self, rows, bits, clients=None, **others):
        found.append((others["at"], rows.tobytes()))
        made = work(self, rows, bits, clients, **others)
        if len(found) in kill:
            kill.clear()
            raise KeyboardInterrupt  # opened, and nothing of the round was stored
        return made

    monkeypatch.setattr(Suite, "opened", noting)  # what is asked of a suite: it can have told it before
    return found, kill


def stop(_, number, __):
    """What progress calls after a round was stored."""
    if number == 1:
        raise KeyboardInterrupt


def test_a_run_that_was_killed_goes_on_behind_its_last_round(tmp_path, opened):
    """No buffer is opened twice; the digest is that of a run that was not killed."""
    whole = trained(tmp_path / "whole")
    opened[0].clear()
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "run", progress=stop)
    assert resume(tmp_path / "run", tiny_dataset()).digest == whole.digest
    assert [at for at, _ in opened[0]] == [(1, 0), (2, 0)]
    assert suite_of(load_run(tmp_path / "run").ledger) == "mask"


@pytest.mark.parametrize("number", [1, 2])
def test_a_round_that_was_opened_and_not_stored_is_asked_for_the_same_rows_or_not(
    tmp_path, monkeypatch, opened, number
):
    whole = trained(tmp_path / "whole")
    found, kill = opened
    found.clear()
    kill.append(number)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "run")
    for _ in range(2):  # a refusal leaves the folder as it was
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr("fuaudit.runs.platforms.versions", lambda device="cpu": versions(device) | {"numpy": "9"})
            with pytest.raises(UsageError, match="may compute other rows"):
                resume(tmp_path / "run", tiny_dataset())
    assert len(found) == number
    assert resume(tmp_path / "run", tiny_dataset()).digest == whole.digest
    assert [at for at, _ in found] == sorted([(1, 0), (2, 0), (number, 0)])
    assert found[number - 1] == found[number]


def test_a_ledger_names_one_suite_behind_its_commitment(tmp_path):
    run = trained(tmp_path / "run")
    first, named, *others = run.ledger.events
    for events in ((first, others[0], named, *others[1:]), (first, named, named, *others)):
        wrong = wrong_course(replace(run.ledger, events=events), run.info, run.checkpoints)
        assert "elsewhere than behind its commitment" in wrong
    lines = [canonical_json(event) for event in (first, named | {"suite": "ckks"})]
    with pytest.raises(EvidenceError, match="line 2 is no event"):
        ledger_of(lines, tmp_path)


def test_errors_of_rounds_keep_their_words(tmp_path, monkeypatch):
    """What a part of fuaudit's own refuses is told by it, and stops training."""
    whole = SkellamNoise._fitting
    monkeypatch.setattr(SkellamNoise, "_fitting", lambda self, columns: whole(self, columns)._replace(largest=1))
    with pytest.raises(UsageError, match=r"^client stage 'skellam-noise', apply in round 1, says: a share of client"):
        trained(tmp_path / "run", SHARES)


def test_a_transport_with_a_suite_goes_by_the_name_that_configs_have():
    secured = SecureSum(2).secured("plain", [Quantise()], Books(), False)
    assert registry.called(secured) == "transport 'secure-sum'"
