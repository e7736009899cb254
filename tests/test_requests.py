"""The request to expect: any of the lineage may be meant, and a PASS says which one was compared."""

import pytest
from conftest import SECRET
from test_names import NAMED, NEEDED, OWNERS, TABLES, data, lines_of, rows_of, trained

from fuaudit.plans import Request
from fuaudit.runs.names import asked_in, request_of, requested
from fuaudit.verification.verify import verify
from fuaudit.workflow.prune import prune
from fuaudit.workflow.train import train
from fuaudit.workflow.unlearn import unlearn

ANN, BEN, EVE = 0, 1, 4


@pytest.fixture
def run(tmp_path):
    """Ann was forgotten, and then Eve."""
    parent = trained(tmp_path / "run", NAMED)
    first = unlearn(parent, "fats", request_of(parent, ["ann"]), tmp_path / "first", data=data(NAMED))
    return unlearn(first, "fats", request_of(first, ["eve"]), tmp_path / "second", data=data(NAMED))


def asked(run, quick, *clients, **given):
    """The verification for who asked, and the finding of provenance."""
    result = verify(run, quick, data=data(NAMED), budget=0, save=False, request=Request.of(clients), **given)
    return result, lines_of(result)


def test_the_client_of_an_earlier_request_is_found(run, quick):
    result, found = asked(run, quick, ANN)
    assert result.verdict == "PASS", result.reason
    assert any("asked for is request 1 of 2, for client 0 (ann), 4 rows" in line for line in found.details)
    assert "Compared with --client or --sample was request 1 of 2 (client 0 (ann))" in result.reason
    assert "later, request 2 of 2 (client 4 (eve)) was compared with nothing" in result.reason
    assert "looks at the last" in result.reason
    assert found.values["compared"] == "request 1 of 2"
    # what is told of the last request must not be read as told of this one
    assert found.plainly == found.qualification
    assert "request 1 of 2 (client 0 (ann))" in found.plainly
    (integrity,) = (one for one in result.findings if one.audit == "integrity")
    assert any(line.startswith("What ledgers say of 1 platform, and the names of") for line in integrity.assumptions)
    assert any(line.startswith("The 1 other request was really made") for line in found.assumptions)


def test_the_last_request_is_compared_as_before(run, quick):
    result, found = asked(run, quick, EVE)
    assert result.verdict == "PASS", result.reason
    assert "Compared with" not in result.reason
    assert found.values["compared"] == "request 2 of 2"
    assert any(line.startswith("The 1 other request was really made") for line in found.assumptions)


def test_all_requests_may_be_expected_at_once(run, quick):
    """Whoever asked in two requests gives both; that they were made in this order stays as told."""
    result, found = asked(run, quick, ANN, EVE)
    assert result.verdict == "PASS", result.reason
    assert found.values["compared"] == "requests 1 and 2 of 2"
    assert "were requests 1 and 2 of 2 (client 0 (ann); client 4 (eve))" in result.reason
    assert "compared with nothing" not in result.reason
    assert not any("really made" in line for line in found.assumptions)
    assert any("The 2 requests were made in this order" in line for line in found.assumptions)


@pytest.mark.parametrize("clients", [(BEN,), (ANN, BEN), (ANN, BEN, EVE)])
def test_what_nobody_asked_for_in_the_lineage_is_a_fail(run, quick, clients):
    told = []
    result, _ = asked(run, quick, *clients, estimate=told.append)
    assert result.verdict == "FAIL"
    assert "The lineage forgets client 0 (ann), then client 4 (eve); asked for was client" in result.reason
    assert any("this will be a FAIL" in line for line in told)


def test_who_asked_for_more_than_a_part_of_a_request(tmp_path, quick):
    """A request that took more away than was asked for is not the one that was asked for."""
    parent = trained(tmp_path / "run", NAMED)
    first = unlearn(parent, "fats", Request.of([ANN, BEN]), tmp_path / "first", data=data(NAMED))
    run = unlearn(first, "fats", Request.of([EVE]), tmp_path / "second", data=data(NAMED))
    assert asked(run, quick, ANN)[0].verdict == "FAIL"
    assert asked(run, quick, ANN, EVE)[0].verdict == "FAIL"
    assert asked(run, quick, ANN, BEN)[0].verdict == "PASS"


def test_the_client_of_an_earlier_request_is_found_after_a_prune(run, quick):
    pruned, _ = prune(run)
    result, found = asked(pruned, quick, ANN)
    assert result.verdict == "PASS", result.reason
    assert "was request 1 of 2 (client 0)" in result.reason
    assert found.values["compared"] == "request 1 of 2"


def test_of_an_edited_model_the_last_request_alone_is_judged(tmp_path, quick):
    parent = train(TABLES, tmp_path / "run", data=data(NAMED), secret=SECRET)
    first = unlearn(parent, "finetune", request_of(parent, ["ann"]), tmp_path / "first", data=data(NAMED))
    run = unlearn(first, "finetune", request_of(first, ["eve"]), tmp_path / "second", data=data(NAMED))
    (found,) = [line for line in asked(run, quick, ANN)[1].details if "asked for" in line]
    assert found.startswith("INCONCLUSIVE")
    assert "verify first" in found
    assert not any(line.startswith("INCONCLUSIVE") and "asked" in line for line in asked(run, quick, EVE)[1].details)


def test_an_earlier_client_on_the_command_line(fuaudit, tmp_path):
    folder = rows_of(tmp_path / "all", OWNERS, NAMED)
    parent = train(TABLES, tmp_path / "run", folder, SECRET)
    first = unlearn(parent, "fats", request_of(parent, ["ann"]), tmp_path / "first", data=folder)
    run = unlearn(first, "fats", request_of(first, ["eve"]), tmp_path / "second", data=folder)
    checks = [f'[[check]]\nclaim = "x"\naudit = {{ use = "{name}" }}' for name in NEEDED]
    (tmp_path / "run.toml").write_text("\n".join(['id = "run"', 'asks = "run"', 'out_of_scope = ["x"]', *checks]))
    code, out, err = fuaudit("verify", run.path, "--client", "ann", "--spec", tmp_path / "run.toml", "--data", folder)
    assert code == 0, out + err
    assert "will be a FAIL" not in err
    assert "was request 1 of 2 (client 0 (ann))" in out.splitlines()[0]
    assert "--client ann" in fuaudit("history", run.path)[1]


@pytest.mark.parametrize(
    ("asked_for", "numbers"), [((0,), (1,)), ((1, 2), (2,)), ((0, 1, 2), (1, 2)), ((1,), ()), ((0, 1), ()), ((9,), ())]
)
def test_whole_requests_only(asked_for, numbers):
    assert asked_in((Request.of([0]), Request.of([1, 2])), Request.of(asked_for)) == numbers


def test_a_sample_and_then_its_client_are_compared_together(tmp_path, quick):
    """One request with both is one wish too many; two requests, one after the other, are not."""
    parent = trained(tmp_path / "run", NAMED)
    first = unlearn(parent, "fats", request_of(parent, samples=[("ben:1", 1)]), tmp_path / "first", data=data(NAMED))
    run = unlearn(first, "fats", request_of(first, ["ben:1"]), tmp_path / "second", data=data(NAMED))
    expected = requested(run, ["ben:1"], [("ben:1", 1)])
    result = verify(run, quick, data=data(NAMED), budget=0, save=False, request=expected)
    assert result.verdict == "PASS", result.reason
    assert lines_of(result).values["compared"] == "requests 1 and 2 of 2"
