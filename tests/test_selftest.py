"""The self-test: planted faults are caught, right methods pass, and a level that is asleep is noticed."""

import json
import re

import pytest
from click.testing import CliRunner

from fuaudit.cli.commands import cli
from fuaudit.cli.methods import lines_of
from fuaudit.draws import END, Keyed
from fuaudit.errors import UsageError
from fuaudit.plans import Plan, Request, WeightedLaw
from fuaudit.proofs import exactness
from fuaudit.registry import build
from fuaudit.selftest import Caught, Fault, Ground, all_faults, selftest
from fuaudit.selftest.selftest import Row, Selftest
from fuaudit.testing import check_unlearner, federation

FAULTS = all_faults("fats")
CERTAIN = [fault for fault in FAULTS if fault.certain]


@pytest.fixture(params=["fats", "retrain"])
def ground(request, tmp_path):
    return Ground(request.param, tmp_path, Keyed(bytes(32)), repetitions=1, pairs=2)


@pytest.mark.thorough
@pytest.mark.parametrize("fault", CERTAIN, ids=lambda fault: fault.name)
def test_certain_faults_are_caught(ground, fault):
    caught = fault.plant(ground)
    assert fault.held(caught), caught


@pytest.mark.thorough
@pytest.mark.parametrize("number", [8, 12])
def test_a_target_that_is_never_drawn_is_no_miss(number, tmp_path):
    """Under these keys nothing would have to be taken back in the first run that is made."""
    (fault,) = (fault for fault in FAULTS if fault.name == "memory not rewound")
    assert fault.held(fault.plant(Ground("fats", tmp_path, Keyed(bytes(31) + bytes([number])), repetitions=1, pairs=2)))


def test_there_are_thirteen():
    assert len(FAULTS) == 13
    assert len({fault.name for fault in FAULTS}) == 13


def test_a_level_that_catches_nothing_is_noticed(monkeypatch, tmp_path):
    """With enumeration put to sleep, the self-test says so."""
    from fuaudit.selftest import faults

    asleep = exactness(build("unlearners", "retrain"), WeightedLaw(1, 1, 1, 1, ((0, 1), (1, 1))), federation((1, 1)),
                       [Request.of(clients=[0])])  # fmt: skip
    monkeypatch.setattr(faults, "exactness", lambda *_: asleep)
    ground = Ground("fats", tmp_path, Keyed(bytes(32)), repetitions=1, pairs=2)
    for fault in (fault for fault in FAULTS if fault.level == "enumeration" and "adaptive" not in fault.name):
        assert not fault.held(fault.plant(ground))


def test_statistical_faults_are_held_to_their_power():
    statistical = Fault("", "", lambda ground: Caught(0, 1, "", ""), certain=False)
    assert statistical.held(Caught(9, 10, "", ""))
    assert not statistical.held(Caught(8, 10, "", ""))


def test_editors_and_strangers_to_the_law_are_refused():
    with pytest.raises(UsageError, match="'finetune' edits models") as error:
        selftest("finetune")
    assert error.value.hint == "Audits of editors are shown by: fuaudit selftest"
    for name in ("noop", "coupling"):
        with pytest.raises(UsageError, match="does not claim to be exact") as error:
            selftest(name)
        assert "check_unlearner, of fuaudit.plugins, tries a rewriter under the laws that it claims" in error.value.hint
        assert "editors" not in error.value.hint


@pytest.mark.thorough
def test_the_coupling_is_exact_where_keeping_is_not():
    law = WeightedLaw(1, 2, 1, 1, ((0, 1), (1, 2), (2, 3), (3, 4)))
    members, asked = federation((1, 1, 1, 1)), [Request.of(clients=[0])]
    results = {
        name: exactness(build("unlearners", name), law, members, asked).total_variation
        for name in ("fats", "coupling", "coupling-wrong-acceptance")
    }
    assert str(results["fats"]) == "13/1890"
    assert results["coupling"] == 0
    assert results["coupling-wrong-acceptance"] > 0
    two_rounds = WeightedLaw(2, 2, 1, 1, ((0, 1), (1, 2), (2, 3)))
    both = [Request.of(clients=[2]), Request.of(samples=[0])]
    assert exactness(build("unlearners", "coupling"), two_rounds, federation((2, 1, 1)), both).exact
    mixed = [Request.of(clients=[2], samples=[0])]
    assert exactness(build("unlearners", "coupling"), two_rounds, federation((2, 1, 1)), mixed).exact
    check_unlearner(build("unlearners", "coupling"), laws=(WeightedLaw(1, 2, 1, 1, ((0, 1), (1, 2), (2, 3))),))


def test_too_many_cohorts_are_refused():
    law = WeightedLaw(1, 4, 1, 1, tuple((client, 1) for client in range(60)))
    plan = Plan.fresh(law, federation((1,) * 60), Keyed(bytes(32)))
    with pytest.raises(UsageError, match="too many to tabulate"):
        build("unlearners", "coupling").rewrite(plan, Request.of(clients=[0]), Keyed(bytes(31) + b"1"), END)


@pytest.mark.thorough
def test_the_command_prints_level_power_and_cost():
    result = CliRunner().invoke(cli, ["selftest", "--repetitions", "1", "--pairs", "4", "--json"])
    document = json.loads(result.output)
    rows = {row["name"]: row for row in document["rows"]}
    assert len(rows) == 15
    assert all(row["level"] and row["evidence"] for row in rows.values())
    assert result.exit_code == (0 if document["held"] else 1)
    assert [name for name, row in rows.items() if not row["held"]] == ["fine-tuning"]  # 4 pairs cannot tell
    assert [name for name, row in rows.items() if not row["certain"]] == [
        "fine-tuning", "fats passes", "retrain passes",
    ]  # fmt: skip


def test_quiet_lines_keep_level_power_and_cost():
    """One statistical try is not certain."""
    rows = (
        Row("reused key", "addresses", True, True, Caught(1, 1, "why", "64 plans")),
        Row("fine-tuning", "model-law", False, False, Caught(0, 1, "why", "at most 4 pairs of runs")),
    )
    sure, tried = lines_of(Selftest("fats", rows), quiet=True)
    assert re.fullmatch(r"ok +reused key +addresses +certain +64 plans", sure)
    assert re.fullmatch(r"MISS +fine-tuning +model-law +power 0\.00 +at most 4 pairs of runs", tried)
    assert "why" in "".join(lines_of(Selftest("fats", rows), quiet=False))
