"""Attacks on secure sums, and the audit that plays them: right suites pass, broken ones fail, broken attacks say so."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fuaudit_plugins.secure_sum import sizes
from secure_parties import opening_of, rows_of
from test_secured_runs import FEDAVG, FEDREP, NOISY, trained

from fuaudit import load_run, report, unlearn, verify
from fuaudit.audits.aggregation import AggregationAttacks
from fuaudit.plans import Request
from fuaudit.runs.sums import sums_of
from fuaudit.runs.transcripts import chain_of
from fuaudit.secure import adder, encrypted, masked, pairs
from fuaudit.secure.adder import end_all
from fuaudit.secure.attacks import openings
from fuaudit.secure.attacks.opening import Got
from fuaudit.secure.attacks.parties import Parties
from fuaudit.secure.attacks.table import ATTACKS, played
from fuaudit.secure.exposure import Buffer, exposed
from fuaudit.secure.names import EXACT, SCARY
from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.sizes import sent
from fuaudit.testing import check_audit
from fuaudit.testing.tiny import tiny_dataset
from fuaudit.text import counted
from fuaudit.workflow.seal import seal

PAGE = (Path(__file__).parents[1] / "docs" / "secure-aggregation.md").read_text()


def small(**others):
    return opening_of(4, 4096, noise=500, **others)


@pytest.mark.parametrize("suite", [*EXACT, SCARY])
def test_attacks_get_a_row_where_they_must_and_nowhere_else(suite):
    found = list(played(suite, small()))
    assert found
    assert not [one for one in found if one.got != one.due]


@pytest.mark.thorough
@pytest.mark.parametrize(("clients", "smallest"), [(8, 3), (15, 8)])
def test_attacks_on_larger_buffers_come_out_alike(clients, smallest):
    """Also in the ring for more clients."""
    some = opening_of(clients, 4096, noise=500, most=32 if clients > 8 else 8, size=clients, smallest=smallest)
    assert not [one for one in played("bfv+mask", some) if one.got != one.due]


@pytest.mark.parametrize("suite", ["bfv+mask", "bfv", "mask"])
@pytest.mark.parametrize(("size", "smallest"), [(2, None), (4, 3)])
def test_dropouts_open_a_row_with_as_many_colluders_as_is_said(suite, size, smallest):
    some = small(size=size, smallest=smallest)
    names = [name for name in ATTACKS if name.startswith("faked dropouts")]
    assert [ATTACKS[name].play(suite, some).succeeded for name in names] == [True, False]


def test_every_attack_has_an_answer_that_it_gets_somewhere():
    """One that never succeeds would show nothing where it fails; noise is the one thing that hides a difference."""
    assert {name for name, attack in ATTACKS.items() if not attack.opens} == {
        "faked dropouts, one colluder less",
        "parent minus child, fresh noise",
    }
    assert all(attack.closed or attack.opens for attack in ATTACKS.values())


def test_the_page_has_the_same_table():
    told = re.findall(r"^\| `([^`]+)` \|[^|]*\| ([^|]*) \| ([^|]*) \|$", PAGE, re.MULTILINE)
    short = {SCARY: "ckks-demo"}

    def words(suites):
        return ", ".join(f"`{short.get(suite, suite)}`" for suite in suites) or "-"

    assert {name: (opens, closed) for name, opens, closed in told if name in ATTACKS} == {
        name: (words(attack.opens), words(attack.closed)) for name, attack in ATTACKS.items()
    }


BROKEN = {
    "no check of ciphertexts": ("bfv", encrypted, "checks", lambda slots, *_: slots[:, 0] * 0, "copied ciphertext"),
    "no mask inside": ("bfv+mask", pairs, "modular", lambda *_: lambda key: np.int64(0), "server with key holder"),
    "no masks of pairs": (
        "mask", masked.pairs, "pair_masks", lambda *_: np.int64(0), "single opening",
    ),
    "few are enough": ("bfv", encrypted, "require_enough", lambda *_: None, "faked dropouts, one colluder less"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_suite_lets_an_attack_succeed(monkeypatch, name):
    suite, room, what, mutant, attack = BROKEN[name]
    for where in {room, openings}:  # the attacker knows the protocol, and computes what it computes
        if hasattr(where, what):
            monkeypatch.setattr(where, what, mutant)
    assert ATTACKS[attack].play(suite, small()).succeeded


@pytest.fixture(scope="module")
def sealed_sums(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("sums") / "run", FEDREP | {"server": [{"use": "geometric-median"}]}, "bfv")


def judged(run):
    result = verify(load_run(run.path), "secure-aggregation", data=tiny_dataset(), save=False)
    return result, next(found for found in result.findings if found.audit == "aggregation-attacks")


@pytest.mark.thorough
def test_sums_by_a_suite_pass_and_the_report_says_who_learns_what(sealed_sums, tmp_path):
    result, found = judged(sealed_sums)
    assert (result.verdict, found.verdict) == ("PASS", "PASS"), result.reason
    assert found.values["rows"] == 0 < found.values["attacks"]
    assert found.values["held"] == found.values["controls"] > 10
    assert "Nobody did what opens a row of 'bfv': server with key holder" in str(found.assumptions)
    assert judged(sealed_sums)[1] == found
    pages = [report(result, out=tmp_path / name).read_text() for name in ("page.html", "page.md")]
    for page in pages:
        assert "who learns what" in page
        for party in ("Server", "Key holder", "Witness", "Partner in a buffer", "Auditor", "Public"):
            assert party in page
        assert re.search(r"33\.4 %", page)  # one of three others
    assert "Exposure: the chance" in pages[0]


def told_of(run, tmp_path, party):
    """What the report of a run says of a party: what it learns, and with whom it has a row."""
    result = verify(load_run(run.path), "secure-aggregation", data=None if run.sealed else tiny_dataset(), save=False)
    page = report(result, out=tmp_path / f"{run.path.name}.md").read_text()
    return [part.strip() for part in re.search(rf"^\| {party} \|(.*)\|(.*)\|$", page, re.MULTILINE).groups()]


@pytest.mark.thorough
@pytest.mark.parametrize(("suite", "tables"), [("mask", FEDAVG), ("plain", FEDAVG), ("bfv", FEDREP), (None, FEDREP)])
def test_what_an_auditor_learns_is_what_the_files_tell(tmp_path, suite, tables):
    run = trained(tmp_path / "run", tables, suite)
    whole, view = told_of(run, tmp_path, "Auditor"), told_of(seal(run, tmp_path / "view"), tmp_path, "Auditor")
    assert "clients' secrets" in whole[0]
    assert "secrets" not in str(view)
    assert "rows of training" not in str(view)
    for learnt, _ in (whole, view):
        assert learnt.startswith(
            {"plain": "every client's row", None: "what the public learns"}.get(suite, "all that the server learns")
        )
    # what clients keep in FedREP are residuals of rows, in the run and not in the view
    assert ["what each client keeps" in learnt for learnt, _ in (whole, view)] == [tables is FEDREP, False]
    assert (whole[1] == "nobody") == (tables is FEDREP or suite == "plain")
    due = {"plain": "nobody", None: "as the public"}.get(
        suite, "As many clients of a buffer as the server needs, or more."
    )
    assert view[1] == due


@pytest.mark.thorough
def test_a_page_begins_with_what_the_server_is_given_and_names_who_ran_it(tmp_path, fuaudit):
    for suite in ("plain", "mask", None):
        run = trained(tmp_path / f"{suite}", FEDAVG, suite)
        assert "every client's row of every round" in told_of(run, tmp_path, "Who ran the training")[0]
        page = (tmp_path / f"{suite}.md").read_text()
        assert ("given every client's row" in page) == (suite == "plain")
        assert ("clients' rows, and no row" in page) == (suite != "plain")
        shown = fuaudit("show", run.path)[1]
        assert ("whoever ran this training saw every row" in shown) == (suite is not None)


def test_whoever_seals_plain_sums_is_told_that_rows_lie_open(tmp_path, fuaudit):
    for suite in ("plain", "mask"):
        run = trained(tmp_path / suite, FEDAVG, suite)
        code, out, _ = fuaudit("seal", run.path, "--out", tmp_path / f"{suite}-view")
        assert code == 0
        assert ("every client's row in the clear" in out) == (suite == "plain")


def test_no_suite_is_not_applicable_and_has_its_exposure_told(tmp_path):
    run = trained(tmp_path / "run", FEDREP, None)
    result, found = judged(run)
    assert (result.verdict, found.verdict) == ("INCONCLUSIVE", "NOT_APPLICABLE")
    sums = sums_of(run)
    assert (sums.suite, sums.places, sums.parties) == (None, 4, ())
    assert sums.over(1) == (pytest.approx(1 / 3), pytest.approx(5 / 9))
    check_audit(AggregationAttacks(), subjects=("training",))


def test_plain_sums_are_no_pass(tmp_path):
    found = judged(trained(tmp_path / "run", FEDREP | {"server": [{"use": "geometric-median"}]}, "plain"))[1]
    assert (found.verdict, found.shows[:19]) == ("INCONCLUSIVE", "The suite 'plain' h")


def test_a_suite_that_an_attack_opens_fails(sealed_sums, monkeypatch):
    monkeypatch.setattr(encrypted, "checks", lambda slots, *_: slots[:, 0] * 0)
    result, found = judged(sealed_sums)
    assert (result.verdict, found.verdict) == ("FAIL", "FAIL")
    assert "copied ciphertext" in found.shows + str(found.details)


def test_a_broken_attack_decides_nothing(sealed_sums, monkeypatch):
    idle = replace(ATTACKS["single opening"], play=lambda suite, opening: Got(None, opening.row))
    monkeypatch.setitem(ATTACKS, "single opening", idle)
    result, found = judged(sealed_sums)
    assert (result.verdict, found.verdict) == ("INCONCLUSIVE", "INCONCLUSIVE")
    assert "gets nothing where it must" in found.shows


@pytest.fixture
def no_process(monkeypatch):
    """A machine on which the process that adds cannot be started."""

    def started(*_):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    end_all()
    monkeypatch.setattr(adder, "started", started)
    yield
    end_all()


def test_a_machine_that_adds_nothing_decides_nothing(sealed_sums, no_process):
    result, found = judged(sealed_sums)
    assert (result.verdict, found.verdict) == ("INCONCLUSIVE", "INCONCLUSIVE")
    assert "BlockingIOError" in found.shows


@pytest.mark.parametrize("name", ["copied ciphertext", "overflow", "faked dropouts"])
def test_an_attack_that_breaks_off_got_not_nothing(no_process, name):
    """It says nothing of a suite: an attack that gets nothing counts for it."""
    with pytest.raises(RefusedError) as caught:
        ATTACKS[name].play("bfv", small(smallest=3))
    assert caught.value.broke


@pytest.mark.thorough
def test_rounds_with_different_numbers_of_clients_are_told_as_they_were(tmp_path):
    """By hand, of every round that was executed; a sealed view tells the same."""
    tables = FEDAVG | {
        "partition": {"use": "iid", "clients": 6},
        "learner": {
            **{"use": "fedprox", "scenario": "static", "probability": 0.6, "rounds": 4},
            **{"epochs": 1, "batch": 4, "largest_client": 20, "step_size": 0.2},
        },
        "transport": {"use": "secure-sum", "size": 2},
    }
    run = trained(tmp_path / "run", tables, "mask")
    numbers = [len(cohort) for cohort in run.participation["cohorts"]]
    assert len({*numbers}) > 1
    chances = [float(exposed("mask", [*map(Buffer, sizes(n, 2), sizes(n, 2))], 1)) for n in numbers if n]
    closed = np.prod([1 - chance for chance in chances])
    view = seal(run, tmp_path / "view")
    for one in (run, view):
        assert sums_of(one).over(1) == (pytest.approx(max(chances)), pytest.approx(1 - closed))
    for suffix in ("md", "html"):
        page = report(verify(run, "secure-aggregation", data=tiny_dataset(), save=False), out=tmp_path / f"p.{suffix}")
        assert f"{min(filter(None, numbers))} to {max(numbers)} participations" in page.read_text()


def test_rounds_that_a_view_kept_are_told_as_not_told(tmp_path):
    """Of a client who takes part late, so that rounds are kept: a whole child tells of all, its view of its own."""
    tables = NOISY | {"learner": NOISY["learner"] | {"cohort": 3, "rounds": 4, "batch": 1}}
    parent = trained(tmp_path / "parent", tables, "mask")
    first = {client: parent.plan.first_involvement(Request.of([client])) for client in parent.members}
    late = max(parent.members, key=lambda client: first[client].round)
    child = unlearn(parent, "fats", Request.of([late]), tmp_path / "child", data=tiny_dataset(), allow_inexact=True)
    kept = child.ledger.of_kind("unlearning")[0]["kept_rounds"]
    assert kept
    view = seal(child, tmp_path / "view")
    whole, own = sums_of(child), sums_of(view)
    assert (whole.rounds, whole.untold) == (4, 0)
    assert (own.rounds, own.untold) == (4 - kept, kept)
    page = report(verify(view, "secure-aggregation", save=False), out=tmp_path / "page.md").read_text()
    assert f"Who took part in {counted(kept, 'kept round')} is not told: more on top." in page


def test_show_tells_how_often_a_row_is_open(sealed_sums, fuaudit):
    code, out, _ = fuaudit("show", sealed_sums.path)
    assert code == 0
    assert "B down, in the plain form" in out
    assert re.search(r"messages      for the largest buffer, at most: client to server 6\d,\d{3} B", out)
    assert "a client's row is open to the server with 1 colluding client: in a round with a chance of 33.4 %" in out


def test_bytes_are_of_the_fields_that_the_sums_were_opened_with(tmp_path):
    """One buffer holds all 17, where s is 10: fields are as wide as 2 s - 1 summands need, and 33 have no layout."""
    tables = FEDREP | {
        "learner": FEDREP["learner"] | {"cohort": 17, "rounds": 1, "batch": 1},
        "partition": {"use": "iid", "clients": 17},
        "transport": {"use": "secure-sum", "size": 10},
        "client": FEDREP["client"][-1:],
        "server": [{"use": "mean"}],
    }
    run = trained(tmp_path / "run", tables, "bfv")
    assert sums_of(run).parties == sent("bfv", 17, run.model.numel(), 12, 19)


def test_values_beyond_the_range_of_a_row_are_summed_and_beyond_that_of_a_sum_are_not():
    """What the page says of a client that lies: nobody sees a row, so nobody sees that one value is too large."""
    some = small()
    large = 2 * some.largest
    with Parties("bfv", some.rows // 2) as four:
        row = four.rows[0].copy()
        row[0] = large - four.rows[1:, 0].sum() - 1
        four.clients[0]._vault.put("row", row + four.terms.largest)
        announced, messages = four.sent()
        assert four.opened(messages, announced).sums[0] == large - 1 > some.largest
    assert not openings.overflow("bfv", some).succeeded


@pytest.mark.parametrize("suite", EXACT)
def test_sizes_are_those_of_messages(tmp_path, suite):
    """Of the first buffer of a run whose clients agree on columns: at most as long, and nearly, handouts beside."""
    run = trained(tmp_path / "run", FEDREP | {"server": [{"use": "geometric-median"}]}, suite)
    chain = chain_of(run.path).of_round(1)
    columns = next(entry.size - 184 for entry in chain if entry.step == "columns") // 4
    asked = run.exchange.summation(suite)
    told = sent(suite, 2, columns, asked.bits, asked.most, agreed=True)
    lots = [entry for entry in chain if entry.step in ("lot", "columns")]
    one = [entry for entry in chain if entry.buffer == 0]
    client = min(entry.sender for entry in one if entry.sender >= 0)
    names = {client: "client", -1: "server", -2: "witness", -3: "key holder"}
    real = Counter()
    for entry in [*lots, *one]:
        if entry.sender in names and entry.step != "opened":
            real[names[entry.sender]] += entry.size
    handouts = {party.to: party.size for party in told if party.to == "each client"}
    due = Counter()
    for party in told:
        due[party.party] += party.size * (party.to != "each client")
    assert due.keys() == real.keys()
    assert all(0.8 * due[name] <= real[name] <= due[name] for name in real), (due, real)
    if handouts:
        with Parties(suite, rows_of(2, 5)) as two:
            handout = 184 + len(two.holder.handout(0).body())
        assert 0.8 * handouts["each client"] <= handout <= handouts["each client"]
