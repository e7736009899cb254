"""The cap: a config that names a budget is refused before anything is drawn, or its rounds keep to it."""

import json
import re
import sys
from dataclasses import dataclass, replace
from fractions import Fraction

import pytest
import tomli_w
from fuaudit_plugins.conspar import Consensus
from tests_support import AUDIT_KEY, secret

from fuaudit import load_run, train, unlearn
from fuaudit.audits.provenance.audit import Provenance
from fuaudit.audits.provenance.budget import budget
from fuaudit.budgets.cap import capped
from fuaudit.budgets.conspar.account import COARSE, account
from fuaudit.budgets.conspar.law import ConSpar
from fuaudit.budgets.conspar.targets import for_rounds
from fuaudit.budgets.dpsgd.account import account as dpsgd
from fuaudit.budgets.dpsgd.laws import LAWS
from fuaudit.budgets.dpsgd.steps import Steps
from fuaudit.budgets.dpsgd.targets import Asked, answer
from fuaudit.budgets.gaussian.account import account as gaussian
from fuaudit.budgets.gaussian.curve import rounds_for
from fuaudit.budgets.target import Target
from fuaudit.config import resolve
from fuaudit.draws import Keyed
from fuaudit.errors import PluginError, UsageError
from fuaudit.plans import Request
from fuaudit.plans.stage_draws import Part
from fuaudit.runs.account import account_of
from fuaudit.runs.released import EDITED
from fuaudit.testing.tiny import tiny_config, tiny_dataset
from fuaudit.training.events import Released
from fuaudit.training.exchange import exchange_of
from fuaudit.training.releases import BEHIND, NO_WORD, in_the_way, released_by
from fuaudit.training.solvers import Sgd
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence
from fuaudit.workflow import begin
from fuaudit.workflow.begin import begun

DIM = 12
"""Coordinates of the model of these tests: weights of 3 numbers in 3 classes, and 3 biases."""
PROPOSES = {"use": "consensus", "per_client": 2, "alpha": 0.99}
LEARNS = {"use": "fedrep", "cohort": 4, "steps": 1, "batch": 2, "step_size": 0.2}


def table(rounds, epsilon=0.5, delta=0.0, client=(PROPOSES,), differ=1, **learner):
    return tiny_config(
        learner={**LEARNS, "rounds": rounds, **learner},
        client=list(client),
        server=[{"use": "mean"}],
        budget={"epsilon": epsilon, "delta": delta, "differ": differ},
    )


def allowed(epsilon, delta=0.0, differ=1, per_client=2):
    return for_rounds(ConSpar(DIM, per_client, Fraction("0.99"), differ), delta, epsilon)


@pytest.mark.parametrize(("delta", "differ"), [(0.0, 1), (1e-3, 1), (0.0, 2)])
def test_as_many_rounds_as_the_target_allows_are_trained_and_one_more_is_refused(tmp_path, delta, differ):
    most = allowed(0.5, delta, differ)
    assert 3 <= most <= 50
    ready = begun(table(most, delta=delta, differ=differ), tiny_dataset(), secret(1))
    assert ready.ready.learner.law.rounds == most
    with pytest.raises(UsageError, match=rf"(?s)\[budget\]: {most + 1} rounds have epsilon .*At most {most} rounds"):
        train(table(most + 1, delta=delta, differ=differ), tmp_path / "run", tiny_dataset(), secret(1))
    assert not (tmp_path / "run").exists()


def test_what_was_charged_before_training_is_what_every_round_then_tells(tmp_path):
    most = allowed(0.5)
    run = train(table(most), tmp_path / "run", tiny_dataset(), secret(1))
    child = unlearn(run, "retrain", Request(clients=(0,)), tmp_path / "child", data=tiny_dataset())
    for each in (run, child):
        read = load_run(each.path)
        assert read.config.budget == Target(0.5, 0.0, 1)
        told = [event for line in read.ledger.of_kind("round") for event in line["told"] if event["kind"] == "released"]
        assert [(one["mechanism"], one["parameters"]) for one in told] == [
            ("conspar", {"dim": DIM, "per_client": 2, "alpha": 0.99})
        ] * most


def test_a_config_without_a_budget_says_nothing_of_it():
    tables = table(3)
    del tables["budget"]
    assert "budget" not in resolve(tables).tables()
    assert begun(tables, tiny_dataset(), secret(1)).ready.config.budget is None


def test_a_client_that_may_be_drawn_several_times_is_charged_for_each():
    """FATS draws with replacement: four participations of a round may be one client's."""
    learner = {"use": "fats", "cohort": 4}
    most = allowed(2.0) // 4
    assert begun(table(most, 2.0, **learner), tiny_dataset(), secret(1)).ready.learner.law.rounds == most
    with pytest.raises(UsageError, match=rf"takes part up to 4 times, have .*\n.*At most {most} rounds"):
        begun(table(most + 1, 2.0, **learner), tiny_dataset(), secret(1))


@pytest.mark.parametrize(
    ("client", "words"),
    [
        ([], "no \\[\\[client\\]\\] stages say"),
        ([PROPOSES, {**PROPOSES, "per_client": 1}], "and 2 \\[\\[client\\]\\] stages say"),
        ([{**PROPOSES, "alpha": 0.0}], "no guarantee at delta 0.*\n.*top coordinates as they are"),
        ([{**PROPOSES, "alpha": 0.5}], "Not even one round"),
        ([{**PROPOSES, "per_client": DIM}], "may send 12 of 12"),
        ([{"use": "alie", "clients": [1], "sees": "theirs"}, PROPOSES], "'alie' sees rows of others"),
        (
            [{"use": "mimic", "clients": [1]}, PROPOSES],
            "consensus': .*'mimic' sees rows of others as they were before it",
        ),
    ],
)
def test_what_no_budget_can_be_kept_with_is_refused(client, words):
    with pytest.raises(UsageError, match=rf"(?s)\[budget\].*{words}"):
        begun(table(3, client=client), tiny_dataset(), secret(1))


@pytest.mark.parametrize(
    "client", [[{"use": "bit-flip", "clients": [1]}, PROPOSES], [PROPOSES, {"use": "mimic", "clients": [1]}]]
)
def test_byzantine_clients_who_see_no_row_as_it_was_leave_the_account_as_it_is(client):
    assert begun(table(9, 1.0, client=client), tiny_dataset(), secret(1))


def test_at_alpha_one_every_number_of_rounds_is_kept():
    assert begun(table(9, 0.0, client=[{**PROPOSES, "alpha": 1.0}]), tiny_dataset(), secret(1))


def test_what_a_stage_releases_under_is_what_it_tells():
    assert Consensus(3, 0.25).releases(7) == Released("conspar", {"dim": 7, "per_client": 3, "alpha": 0.25})
    assert Consensus(30, 0.25).releases(7).parameters["per_client"] == 7


@dataclass(frozen=True)
class Tells:
    """A stage that answers with anything."""

    answer: object

    def releases(self, columns):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@dataclass(frozen=True)
class Agrees:
    """An agreement that releases nothing."""

    def propose(self, updates, context):
        return [row.new_zeros(0, dtype=int) for row in updates]

    def agree(self, proposals, context):
        return proposals[0]


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (3, PluginError, "no event"),
        (ValueError("x"), PluginError, "raised ValueError"),
        (Released("conspar", {"dim": float("nan")}), PluginError, "finite"),
    ],
)
def test_a_stage_that_answers_with_no_mechanism_is_named(answer, kind, words):
    with pytest.raises(kind, match=words):
        released_by(Tells(answer), DIM)


def test_behind_another_agreement_figures_would_differ_from_round_to_round():
    exchange = exchange_of(resolve(table(3)))
    both = replace(exchange, client_stages=replace(exchange.client_stages, stages=(Agrees(), Consensus(2, 0.99))))
    assert in_the_way(both, Sgd(), "none", Part("client", 1), DIM) == BEHIND


NOISE = {"use": "gaussian-noise", "norm": 0.5, "noise": 20.0}


@pytest.mark.parametrize(
    "tables",
    [
        {"client": [{"use": "test-agreement"}, PROPOSES]},
        {"client": [{"use": "mimic", "clients": [1]}, PROPOSES]},
        {"client": [NOISE], "scaling": "standardise"},
        {"client": [], "solver": {"use": "dpsgd", "norm": 0.5, "noise": 20.0}, "scaling": "standardise"},
    ],
)
def test_a_cap_is_refused_in_the_words_in_which_a_run_has_no_account(tmp_path, monkeypatch, tables):
    monkeypatch.syspath_prepend("tests/stages")
    without = {name: of for name, of in table(3, 1e6, 1e-5).items() if name != "budget"} | tables
    accounts = account_of(train(without, tmp_path / "run", tiny_dataset(), secret(1)), 1e-5).towards["server"].accounts
    (why,) = {one.reason for one in accounts}
    with pytest.raises(UsageError) as refused:
        begun(table(3, 1e6, 1e-5) | tables, tiny_dataset(), secret(1))
    assert refused.value.args[0].endswith(f": {why}")


@pytest.mark.parametrize(
    "told",
    [
        Released("gaussian", {"deviation": 1.0}),
        Released("gaussian", {"noise": 0.0}),
        Released("gaussian", {"noise": "much"}),
        Released("conspar", {"dim": 12, "alpha": 0.5}),
        Released("conspar", {"dim": "many", "per_client": 2, "alpha": 0.5}),
    ],
)
def test_what_nobody_accounts_for_is_no_budget(told):
    with pytest.raises(UsageError, match="nobody accounts for"):
        capped(Target(1.0, 0.0), told.mechanism, told.parameters, 3)


def conspar_rounds(epsilon):
    for_rounds(ConSpar(DIM, 2, Fraction("0.5")), 0.0, epsilon)


def cap(epsilon):
    capped(Target(epsilon, 1e-5), "gaussian", {"noise": 20.0}, 100)


def gaussian_rounds(epsilon):
    rounds_for(epsilon, 1e-5, 0.5)


def dpsgd_rounds(epsilon):
    answer(Asked(2.0, 1.0, None, 1e-5, LAWS["fixed"], 1), epsilon)


@pytest.mark.parametrize(
    ("ask", "exact"),
    [
        (cap, lambda: gaussian(20.0, 100, 1e-5).total),
        (conspar_rounds, lambda: account(ConSpar(DIM, 2, Fraction("0.5")), 1, 0.0, COARSE).total),
        (gaussian_rounds, lambda: gaussian(0.5, 1, 1e-5).total),
        (dpsgd_rounds, lambda: dpsgd([Steps(2.0, 1.0, 1)], 1e-5, LAWS["fixed"], 1, COARSE).total),
    ],
)
@pytest.mark.parametrize("less", [1e-9, 1e-6, 1e-4, 1e-3])
def test_what_is_refused_prints_an_epsilon_above_its_target(ask, exact, less):
    exact = exact()
    with pytest.raises(UsageError) as refused:
        ask(exact * (1 - less))
    told = refused.value.args[0]
    epsilon, target = (re.search(rf"{name} (\d+\.\d+)", told)[1] for name in ("epsilon", "target is"))
    assert float(epsilon) >= exact > float(target) == exact * (1 - less)


def test_a_pass_names_the_target_with_all_its_digits(tmp_path):
    target = 0.5 + 2.0**-40
    run = train(table(3, target, 1.0000001e-3), tmp_path / "run", tiny_dataset(), secret(1))
    assert f"epsilon {target} at delta 0.0010000001." in budget(load_run(run.path), run.config.budget).text


def test_the_cap_is_the_account_of_all_participations():
    parameters = {"dim": DIM, "per_client": 2, "alpha": 0.99}
    found = capped(Target(3.0, 1e-4, 2), "conspar", parameters, 5, 3)
    assert found == account(ConSpar(DIM, 2, Fraction("0.99"), 2), 15, 1e-4, COARSE)
    assert found.rounds == 15


@pytest.mark.parametrize(
    ("budget", "told"),
    [
        ({"epsilon": -1.0, "delta": 0.0}, "epsilon is a number of at least 0"),
        ({"epsilon": float("inf"), "delta": 0.0}, "epsilon is a number of at least 0"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta is 0, or at least"),
        ({"epsilon": 1.0, "delta": 0.0, "differ": 0}, "differ must be at least 1"),
        ({"epsilon": 1.0}, "needs the option 'delta'"),
        ({"epsilon": 1.0, "delta": 0.0, "round": 3}, "no option 'round'"),
        (3, "it must be one table"),
    ],
)
def test_a_wrong_budget_is_named(budget, told):
    with pytest.raises(UsageError, match=rf"(?s)\[budget\].*{told}"):
        resolve(tiny_config(budget=budget))


def test_the_command_line_refuses_and_finds_the_same_number_of_rounds(fuaudit, tmp_path):
    path, tables = tmp_path / "config.toml", {**table(30), "data": {"use": "digits"}}
    path.write_text(tomli_w.dumps(tables))
    code, _, err = fuaudit("train", path, "--out", tmp_path / "run")
    assert code == 2
    assert "[budget]: 30 rounds have epsilon" in err
    assert err.count("Not even one round") == 1
    assert not (tmp_path / "run").exists()
    shape = ("--dim", 650, "--per-client", 2, "--alpha", "0.99", "--target", "9", "--json")
    code, out, _ = fuaudit("budget", "conspar", *shape)
    most = json.loads(out)["rounds"]
    assert code == 0
    tables["budget"] = {"epsilon": 9, "delta": 0}
    path.write_text(tomli_w.dumps(tables))
    _, _, err = fuaudit("train", path, "--out", tmp_path / "run")
    assert f"At most {most} rounds keep to it." in err


# what an audit says of it


def provenance(run):
    return Provenance().examine(Case(Evidence(load_run(run.path), None, tiny_dataset()), Keyed(AUDIT_KEY)))


def test_a_run_that_keeps_to_its_budget_passes_and_names_what_is_assumed(tmp_path):
    most = allowed(0.5)
    found = provenance(train(table(most), tmp_path / "run", tiny_dataset(), secret(1)))
    assert found.verdict == "PASS", found.details
    assert any(f"The {most} participations that a client of run can have keep" in line for line in found.details)
    assumed = "In every round two top sets differ in at most 1 element, as the budget assumes."
    assert any(line.startswith(assumed) for line in found.assumptions)


def test_of_a_child_its_own_rounds_are_counted_and_the_finding_says_so(tmp_path):
    run = train(table(3), tmp_path / "run", tiny_dataset(), secret(1))
    one = Request(samples=(run.plan.retained.samples[0][0],))
    child = unlearn(run, "fats", one, tmp_path / "child", data=tiny_dataset())
    answer = budget(load_run(child.path), child.config.budget)
    assert answer.verdict == "PASS"
    assert "What other runs of the lineage released is not counted" in answer.text


def test_a_config_without_a_budget_is_asked_for_none(tmp_path):
    tables = table(2)
    del tables["budget"]
    found = provenance(train(tables, tmp_path / "run", tiny_dataset(), secret(1)))
    assert found.verdict == "PASS"
    assert "budget" not in " ".join(found.details)


def test_whoever_trained_beyond_the_budget_fails(tmp_path, monkeypatch):
    """A forger has no cap."""
    monkeypatch.setattr(begin, "capped", lambda *anything: None)
    found = provenance(train(table(allowed(0.5) + 1), tmp_path / "run", tiny_dataset(), secret(1)))
    assert found.verdict == "FAIL"
    assert "run does not keep to its own budget" in found.shows
    found = provenance(train(table(3, client=()), tmp_path / "nothing", tiny_dataset(), secret(1)))
    assert (found.verdict, "no [[client]] stages say" in found.shows) == ("FAIL", True)


def test_another_mechanism_than_was_charged_fails(tmp_path, monkeypatch):
    """Its ledger tells of an alpha that its config does not have, in the round that is named."""
    tell = Consensus.releases
    with monkeypatch.context() as patch:
        patch.setattr(Consensus, "releases", lambda stage, columns: tell(replace(stage, alpha=0.999), columns))
        run = train(table(3), tmp_path / "run", tiny_dataset(), secret(1))
    found = provenance(run)
    assert found.verdict == "FAIL"
    assert "In round 1 of run another mechanism was told" in found.shows


def test_what_an_editor_asks_of_clients_is_in_no_cap(tmp_path):
    """Rounds as they stand in the config are charged; those that an editor asks for, nobody has counted."""
    run = train(table(allowed(0.5)), tmp_path / "run", tiny_dataset(), secret(1))
    child = unlearn(run, "finetune", Request(clients=(0,)), tmp_path / "child", {"rounds": 9}, tiny_dataset())
    answer = budget(load_run(child.path), child.config.budget)
    assert (answer.verdict, EDITED in answer.text) == ("INCONCLUSIVE", True)
    case = Case(Evidence(load_run(child.path), load_run(run.path), tiny_dataset()), Keyed(AUDIT_KEY))
    assert Provenance().examine(case).verdict == "INCONCLUSIVE"


def test_an_editor_of_the_server_alone_leaves_the_account_as_it_is(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend("tests/mutants")
    run = train(table(allowed(0.5)), tmp_path / "run", tiny_dataset(), secret(1))
    child = unlearn(run, "stranger-halves", Request(clients=(0,)), tmp_path / "child", data=tiny_dataset())
    assert budget(load_run(child.path), child.config.budget).verdict == "PASS"


def claiming(folder, monkeypatch, **options):
    """A run whose one stage is a stranger's, and adds no noise."""
    monkeypatch.syspath_prepend("tests/stages")
    stage = {"use": "test-claims-noise", **options}
    return train(table(3, epsilon=2.0, delta=1e-5, client=[stage]), folder, tiny_dataset(), secret(1))


def test_that_the_word_of_a_strangers_stage_is_taken_is_said(tmp_path, monkeypatch):
    found = provenance(claiming(tmp_path / "run", monkeypatch))
    assert found.verdict == "PASS", found.details
    (taken,) = [line for line in found.assumptions if "'test-claims-noise'" in line]
    assert NO_WORD in taken
    own = provenance(train(table(3), tmp_path / "own", tiny_dataset(), secret(1)))
    assert not [line for line in own.assumptions if NO_WORD in line]


def test_what_is_told_twice_in_a_round_is_charged_once(tmp_path, monkeypatch):
    found = provenance(claiming(tmp_path / "run", monkeypatch, times=2))
    assert (found.verdict, "told several times in round 1" in found.shows) == ("INCONCLUSIVE", True)


def telling(folder, monkeypatch, **stages):
    monkeypatch.syspath_prepend("tests/stages")
    tables = table(3) | {"client": [PROPOSES], "server": [{"use": "mean"}]}
    return provenance(train(tables | stages, folder, tiny_dataset(), secret(1)))


def test_what_another_part_tells_of_is_another_release(tmp_path, monkeypatch):
    """A stage of the server may tell of a mechanism of its own: the run keeps to the budget of its clients."""
    found = telling(tmp_path / "server", monkeypatch, server=[{"use": "mean"}, {"use": "test-tells"}])
    assert found.verdict == "PASS", found.details
    assert any("What server.1 told of acts behind the clients" in line for line in found.assumptions)
    found = telling(tmp_path / "client", monkeypatch, client=[PROPOSES, {"use": "test-tells-at-clients"}])
    assert (found.verdict, "client.1 told of releases" in found.shows) == ("INCONCLUSIVE", True)


def test_without_the_library_nobody_can_tell(tmp_path, monkeypatch):
    run = train(table(3, delta=1e-3), tmp_path / "run", tiny_dataset(), secret(1))
    monkeypatch.setitem(sys.modules, "dp_accounting.pld.common", None)
    found = provenance(run)
    assert found.verdict == "INCONCLUSIVE"
    assert "dp-accounting" in found.shows
    with pytest.raises(UsageError, match="pip install 'fuaudit"):
        begun(table(3, delta=1e-3), tiny_dataset(), secret(1))
