"""The request to expect: any of the lineage may be meant, and a PASS says which one was compared."""

from dataclasses import dataclass
from math import comb

import pytest
from conftest import SECRET
from test_names import NAMED, NEEDED, OWNERS, TABLES, data, lines_of, rows_of, trained

from fuaudit.errors import UsageError
from fuaudit.plans import Request
from fuaudit.reporting import render
from fuaudit.reporting.contents import read_contents
from fuaudit.reporting.words import headline, lead, person
from fuaudit.runs.names import asked_in, request_of, requested
from fuaudit.verification.conclude import conclude
from fuaudit.verification.evidence import Evidence, Known
from fuaudit.verification.finding import Finding, Subject, Verdict
from fuaudit.verification.spec import read_spec
from fuaudit.verification.store import audit_folder, history
from fuaudit.verification.verify import default_spec, verify
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
    assert "What was asked for was request 1 of 2 (client 0 (ann))" in result.reason
    assert "no --client or --sample was given for request 2 of 2 (client 4 (eve)), made later" in result.reason
    assert "looks at the last" in result.reason
    assert found.values["compared"] == "request 1 of 2"
    # what is told of the last request must not be read as told of this one
    assert "request 1 of 2." in found.plainly
    assert "(eve)" not in found.plainly
    (integrity,) = (one for one in result.findings if one.audit == "integrity")
    assert any(line.startswith("What ledgers say of 1 platform, and the names of") for line in integrity.assumptions)
    (others,) = [line for line in found.assumptions if line.startswith("The 1 other request was really made")]
    assert "write up to 1 byte by which ones they name" in others


@pytest.mark.parametrize(
    ("clients", "words"),
    [
        ((ANN,), "for the requests to forget client 0 (ann), client 4 (eve): evidence"),
        ((ANN, EVE), "for the requests to forget client 0 (ann), client 4 (eve): evidence"),
        ((EVE,), "for the request to forget client 4 (eve): evidence"),
    ],
)
def test_the_headline_names_who_asked(run, clients, words):
    spec = read_spec("client-erasure")
    passed = [Finding(check.audit["use"], Subject.RUN, Verdict.PASS, "x", "y") for check in spec.checks]
    evidence = Evidence(run, None, None, Known(request=Request.of(clients)))
    assert words in conclude(spec, tuple(passed), evidence, ()).reason


def test_the_last_request_is_compared_as_before(run, quick):
    result, found = asked(run, quick, EVE)
    assert result.verdict == "PASS", result.reason
    assert "What was asked for" not in result.reason
    assert found.values["compared"] == "request 2 of 2"
    assert any(line.startswith("The 1 other request was really made") for line in found.assumptions)


def test_all_requests_may_be_expected_at_once(run, quick):
    """Whoever asked in two requests gives both; that they were made in this order stays as told."""
    result, found = asked(run, quick, ANN, EVE)
    assert result.verdict == "PASS", result.reason
    assert found.values["compared"] == "requests 1 and 2 of 2"
    assert "were requests 1 and 2 of 2 (client 0 (ann); client 4 (eve))" in result.reason
    assert "was given for" not in result.reason
    assert not any("really made" in line for line in found.assumptions)
    assert any("in requests 1 and 2 of 2, in this order" in line for line in found.assumptions)


@pytest.mark.parametrize("clients", [(BEN,), (ANN, BEN), (ANN, BEN, EVE)])
def test_what_nobody_asked_for_in_the_lineage_is_a_fail(run, quick, clients):
    told = []
    result, _ = asked(run, quick, *clients, estimate=told.append)
    assert result.verdict == "FAIL"
    assert "The lineage forgets client 0 (ann), then client 4 (eve); asked for was client" in result.reason
    assert any("this will be a FAIL" in line for line in told)


def test_who_asked_with_others_is_found_in_their_request(tmp_path, quick):
    """She need not know who else asked; that they did is taken on trust, for it gave other draws."""
    parent = trained(tmp_path / "run", NAMED)
    first = unlearn(parent, "fats", Request.of([ANN, BEN]), tmp_path / "first", data=data(NAMED))
    run = unlearn(first, "fats", Request.of([EVE]), tmp_path / "second", data=data(NAMED))
    for clients, others in [((ANN,), "client 1 (ben:1)"), ((ANN, EVE), "client 1 (ben:1)"), ((ANN, BEN), None)]:
        result, found = asked(run, quick, *clients)
        assert result.verdict == "PASS", result.reason
        told = [line for line in found.assumptions if "takes away more than was asked for" in line]
        assert [others in line for line in told] == ([] if others is None else [True])
    alone, found = asked(first, quick, BEN)
    assert alone.verdict == "PASS"
    assert any("more than was asked for, and that was asked for too: client 0 (ann)" in a for a in found.assumptions)


def test_which_rows_of_others_are_named_is_room(tmp_path, quick):
    """A set of rows is as many bits as there are rows: with hers, anything could be named besides."""
    parent = trained(tmp_path / "run", NAMED)
    rows = [row for client in (BEN, EVE) for row in parent.original.samples[client]]
    run = unlearn(parent, "fats", Request.of([ANN], rows[::2]), tmp_path / "first", data=data(NAMED))
    (line,) = [line for line in asked(run, quick, ANN)[1].assumptions if "takes away more" in line]
    bits = (comb(sum(run.contents.sizes), len(rows[::2])) - 1).bit_length()
    assert f"write up to {-(-bits // 8)} bytes by which ones they name" in line


def test_a_sample_goes_with_its_client(tmp_path, quick):
    parent = trained(tmp_path / "run", NAMED)
    run = unlearn(parent, "fats", request_of(parent, ["ann"]), tmp_path / "first", data=data(NAMED))
    sample = requested(run, samples=[("ann", 1)])
    result = verify(run, quick, data=data(NAMED), budget=0, save=False, request=sample)
    assert result.verdict == "PASS", result.reason
    assert any("more than was asked for" in line for line in lines_of(result).assumptions)


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


@dataclass(frozen=True)
class Lineage:
    """The requests of a run, and whose rows are whose."""

    requests: tuple[Request, ...]
    owner: dict[int, int]


@pytest.mark.parametrize(
    ("asked_for", "numbers"),
    [((0,), (1,)), ((1, 2), (2,)), ((0, 1, 2), (1, 2)), ((1,), (2,)), ((0, 1), (1, 2)), ((9,), ()), ((0, 9), ())],
)
def test_all_that_was_asked_for_has_to_be_there(asked_for, numbers):
    lineage = Lineage((Request.of([0]), Request.of([1, 2])), {7: 0, 8: 2, 9: 3})
    assert asked_in(lineage, Request.of(asked_for)) == numbers


def test_samples_are_looked_for_where_they_first_went():
    lineage = Lineage((Request.of([], [7]), Request.of([0]), Request.of([3])), {6: 0, 7: 0, 8: 2, 9: 3})
    assert asked_in(lineage, Request.of([], [7])) == (1,)
    assert asked_in(lineage, Request.of([], [6, 7])) == (1, 2)
    assert asked_in(lineage, Request.of([0], [7])) == (1, 2)
    assert asked_in(lineage, Request.of([], [8])) == ()


def test_a_sample_and_then_its_client_are_compared_together(tmp_path, quick):
    """One request with both is one wish too many; two requests, one after the other, are not."""
    parent = trained(tmp_path / "run", NAMED)
    first = unlearn(parent, "fats", request_of(parent, samples=[("ben:1", 1)]), tmp_path / "first", data=data(NAMED))
    run = unlearn(first, "fats", request_of(first, ["ben:1"]), tmp_path / "second", data=data(NAMED))
    expected = requested(run, ["ben:1"], [("ben:1", 1)])
    result = verify(run, quick, data=data(NAMED), budget=0, save=False, request=expected)
    assert result.verdict == "PASS", result.reason
    assert lines_of(result).values["compared"] == "requests 1 and 2 of 2"


def test_the_default_spec_is_that_of_what_was_asked_for(tmp_path):
    """A wish that came before another one has its own claim, and the digest of the spec that was agreed on."""
    parent = trained(tmp_path / "run", NAMED)
    first = unlearn(parent, "fats", request_of(parent, ["ann"]), tmp_path / "first", data=data(NAMED))
    run = unlearn(first, "fats", request_of(first, samples=[("ben:1", 1)]), tmp_path / "second", data=data(NAMED))
    sample, with_client = requested(run, samples=[("ben:1", 1)]), requested(run, samples=[("ann", 1)])
    expected = {
        None: "sample-erasure",
        sample: "sample-erasure",
        Request.of([ANN]): "client-erasure",
        Request.of([ANN]) | sample: "client-erasure",
        Request.of([EVE]): "client-erasure",
        with_client: "client-erasure",
    }
    assert {request: default_spec(run, request) for request in expected} == expected
    assert default_spec(parent) == "client-erasure"

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verify(run, data=data(NAMED), budget=0, progress=stop, request=Request.of([ANN]))
    (begun,) = history(audit_folder(run.path))
    assert begun.spec["id"] == "client-erasure/1"


def page_of(result):
    """What the person concerned reads, and the figure on whether there was anything to forget."""
    answers = " ".join(answer for _, answer in person(read_contents(result.as_json())))
    return answers, lines_of(result).values["nothing_to_forget"]


FEW = {"learner": TABLES["learner"] | {"cohort": 1}}


@pytest.fixture
def one_was_drawn(tmp_path):
    """A training that drew some of its clients and left out others: the run, one of each kind."""
    run = trained(tmp_path / "run", NAMED, **FEW)
    drawn = run.plan.index.clients
    late = next(client for client, first in drawn.items() if first > 1)
    return run, late, next(client for client in run.original.clients if client not in drawn)


def test_the_page_tells_her_own_story(one_was_drawn, quick, tmp_path):
    """She was drawn; who asked after her never was. Her page tells neither his name nor what was done for him."""
    parent, drawn, _ = one_was_drawn
    first = unlearn(parent, "fats", Request.of([drawn]), tmp_path / "first", data=data(NAMED))
    still_never = next(c for c in first.plan.retained.clients if not first.plan.first_involvement(Request.of([c])))
    run = unlearn(first, "fats", Request.of([still_never]), tmp_path / "second", data=data(NAMED))
    result, _ = asked(run, quick, drawn)
    assert result.verdict == "PASS", result.reason
    page, answer = page_of(result)
    assert answer == "no: it was drawn"
    assert f"the first change lies in round {first.info['first_change'][0]}" in page
    assert "This was request 1 of 2" in page
    assert "remains" not in page
    assert "changed nothing" not in page
    assert run.name(drawn) in page
    assert run.name(still_never) not in page
    assert f"client {still_never}" not in page
    assert "never used" not in result.reason
    # his own page
    page, answer = page_of(asked(run, quick, still_never)[0])
    assert answer.startswith("yes: ")
    assert "This was request 2 of 2" in page
    assert "changed nothing" in page
    assert run.name(drawn) not in page
    html = render(result.as_json(), "html").decode()
    assert "Hand out this one alone" in html


def test_who_was_never_drawn_is_told_so_whoever_asked_later(one_was_drawn, quick, tmp_path):
    parent, drawn, never = one_was_drawn
    first = unlearn(parent, "fats", Request.of([never]), tmp_path / "first", data=data(NAMED))
    run = unlearn(first, "fats", Request.of([drawn]), tmp_path / "second", data=data(NAMED))
    result, _ = asked(run, quick, never)
    page, answer = page_of(result)
    assert answer == "yes: it was never drawn"
    assert "The training had never used this data" in page
    assert "The training never used what was asked for" in result.reason
    assert page_of(asked(run, quick, drawn)[0])[1] == "no: it was drawn"
    both = asked(run, quick, drawn, never)[0]
    assert page_of(both)[1] == "request 1: yes: it was never drawn; request 2: no: it was drawn"


def test_in_one_request_each_has_her_own_page(one_was_drawn, quick, tmp_path):
    parent, drawn, never = one_was_drawn
    run = unlearn(parent, "fats", Request.of([drawn, never]), tmp_path / "both", data=data(NAMED))
    for hers, his, answer in [(drawn, never, "no: it was drawn"), (never, drawn, "yes: it was never drawn")]:
        page, told = page_of(asked(run, quick, hers)[0])
        assert told == answer
        assert run.name(hers) in page
        assert run.name(his) not in page


def test_after_a_prune_her_page_still_tells_her_own_story(one_was_drawn, quick, tmp_path):
    parent, drawn, _ = one_was_drawn
    first = unlearn(parent, "fats", Request.of([drawn]), tmp_path / "first", data=data(NAMED))
    change = first.info["first_change"][0]
    other = first.plan.retained.clients[0]
    run, _ = prune(unlearn(first, "fats", Request.of([other]), tmp_path / "second", data=data(NAMED)))
    page, answer = page_of(asked(run, quick, drawn)[0])
    assert f"the first change lies in round {change}" in page
    assert "This is as the remains of a run tell it, which was pruned since." in page
    assert answer == "unknown: the parent is not at hand"
    assert f"client {other}" not in page


def test_without_a_request_in_hand_the_room_in_it_is_named(run, quick):
    result = verify(run, quick, data=data(NAMED), budget=0, save=False)
    (line,) = (
        line for line in result.conclusion.rests_on if line.startswith("The request is the one that the run names")
    )
    assert line.endswith("could choose among draws, and write up to 1 byte by which ones they name.")


def test_she_is_no_other_where_she_was_forgotten_for_a_sample(run, quick):
    """A sample of hers was asked for, and she went as a whole: nobody else is named but Eve."""
    sample = Request.of(samples=[run.original.samples[ANN][0]])
    result = verify(run, quick, data=data(NAMED), budget=0, save=False, request=sample)
    asked_for = read_contents(result.as_json()).asked
    assert [number.request for number in asked_for.done] == [1]
    assert asked_for.others
    assert not any("ann" in words or f"client {ANN}" in words for words in asked_for.others)


def test_a_request_that_nobody_carried_out_refutes_that_and_nothing_else(run, quick):
    """Ben never asked this run: nothing is wrong with its model, and his page names nobody who did."""
    result, _ = asked(run, quick, BEN)
    contents = read_contents(result.as_json())
    assert (result.verdict, headline(contents)) == (
        "FAIL",
        "The evidence refutes that this run forgets what was asked for.",
    )
    told = "No request that the run records names it, or not all of it. No check refuted anything else."
    assert lead(contents) == f"Asked for was client 1 (ben:1). {told}"
    page, _ = page_of(result)
    assert told in page
    assert "counterexample" not in lead(contents)
    assert "is not so" not in page
    assert "client 0" not in page
    assert "(eve)" not in page


def test_what_else_is_refuted_is_not_silent(run, quick):
    result, _ = asked(run, quick, BEN, commitment="0" * 64)
    assert "More was refuted; see the checks." in lead(read_contents(result.as_json()))
    result, _ = asked(run, quick, ANN, commitment="0" * 64)
    assert headline(read_contents(result.as_json())) == "The evidence refutes the claim."


def test_who_was_forgotten_is_not_asked_for_again(run):
    """Said by name, with the request that did it."""
    for given, words in [
        ({"clients": ["ann"]}, r"client 0 \(ann\) was forgotten already, in request 1 of 2"),
        ({"clients": ["cay", "eve"]}, r"client 4 \(eve\) was forgotten already, in request 2 of 2"),
        ({"samples": [("eve", 0)]}, r"sample 3 \(eve:0\) was forgotten already, in request 2 of 2"),
    ]:
        with pytest.raises(UsageError, match=words):
            request_of(run, **given)
    assert request_of(run, ["cay"]) == Request.of([2])


def test_a_name_that_a_prune_dropped_is_one_of_the_numbers(run, quick):
    """No number stands out: whoever tried the first one had a PASS for somebody else."""
    pruned, _ = prune(run)
    with pytest.raises(UsageError, match="Its number is 0 or 4, and only a receipt tells which of these it is"):
        requested(pruned, ["eve"])
    told = lines_of(verify(pruned, quick, data=data(NAMED), budget=0, save=False, request=Request.of([ANN, EVE])))
    assert any(line.startswith("The names of clients 0, 4 were not shown") for line in told.assumptions)


def test_small_words_say_whom_they_mean(fuaudit, tmp_path):
    folder = rows_of(tmp_path / "all", OWNERS, NAMED)
    run = train(TABLES | FEW, tmp_path / "run", folder, SECRET)
    never = next(client for client in run.original.clients if client not in run.plan.index.clients)
    shown = fuaudit("show", run.path)[1]
    assert "largest gap 4 rounds (of a client who never took part)" in shown
    code, out, err = fuaudit("unlearn", run.path, "--with", "fats", "--client", run.name(never), "--data", folder)
    assert code == 0, err
    assert "run never drew what was asked for, so there was nothing to forget" in out


def test_a_receipt_of_whom_a_prune_dropped_is_not_promised(run, fuaudit):
    pruned, _ = prune(run)
    code, _, err = fuaudit("receipt", pruned.path, "--client", "eve")
    assert code == 2
    assert "no client is called 'eve'" in err
    assert "No receipt can be made of whom a prune dropped" in err
    assert "verify --client" not in err
