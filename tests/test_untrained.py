"""Sums of too few rows that tell of data: found in a sealed view as far as it tells, and in a whole run by its plan.

Operators here have code of their own: it opens what an honest transport discards.
"""

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from math import prod
from pathlib import Path

import pytest
from fuaudit_plugins.secure_sum import SecuredSum, SecureSum
from test_sealed import left_out, looked_at, sealed_again
from test_secured_runs import KRUM, QUANTISE, trained
from test_transcript_runs import examined, messages
from tests_support import AUDIT_KEY

from fuaudit import unlearn, verify
from fuaudit.audits.transcript.audit import _checked
from fuaudit.audits.transcript.known import known_of, left_alone, noise_alone
from fuaudit.config import resolve
from fuaudit.data.partition import partition
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.plans import Population, Request
from fuaudit.plans.availability import AvailabilityLaw, PoissonBatches, StaticProbability
from fuaudit.registry import build
from fuaudit.runs.sums import Alike, Sums, sums_of
from fuaudit.runs.untrained import hiding_nobody, untrained
from fuaudit.secure.envelope import terms_of
from fuaudit.secure.exposure import Buffer
from fuaudit.testing.tiny import tiny_config, tiny_dataset
from fuaudit.training import one_round
from fuaudit.training.dropouts import Dropouts
from fuaudit.training.exchange import exchange_of
from fuaudit.training.publishing import buffers_in, require_unpublished
from fuaudit.workflow import begin
from fuaudit.workflow.seal import seal

EPOCHS = {"epochs": 1, "batch": 2, "largest_client": 8}
SPARSE = {"steps": 1, "batch": 3, "rate": 0.12, "largest_batch": 24}
"""Poisson batches, of which about half of four samples are empty."""


NOISE = {"solver": {"use": "dpsgd", "norm": 1, "noise": 1}}
"""Every row has noise."""


def dropouts(clients, batches, rounds=3, server=({"use": "mean"},), **transport):
    """A config in which everybody takes part in every round."""
    learner = {"use": "dropouts", "scenario": "static", "probability": 1.0, "rounds": rounds, "step_size": 0.2}
    return tiny_config(
        partition={"use": "iid", "clients": clients},
        learner=learner | batches,
        client=[QUANTISE],
        transport={"use": "secure-sum", **transport},
        server=[*server],
        run={"checkpoint_every": 1, "engine": "reference", "device": "cpu"},
    )


@contextmanager
def hostile(monkeypatch, **methods):
    """A transport whose methods an operator changed, and rounds that do not look at what it shows."""
    with monkeypatch.context() as patch:
        patch.setattr(one_round, "_misfit", lambda *_: None)
        for name, method in methods.items():
            patch.setattr(SecureSum, name, method)
        yield


def both(run, tmp_path):
    """What is found of a run without the rows of its clients, and of its view."""
    return examined(run, data=False), looked_at(seal(run, tmp_path / "view"))


@pytest.mark.thorough
@pytest.mark.parametrize("batches", [EPOCHS, SPARSE | {"rate": 0.9}], ids=["epochs", "poisson"])
def test_a_buffer_that_is_smaller_than_the_config_opens_is_found(tmp_path, monkeypatch, batches):
    """Of seven in twos one buffer has three clients. From three rows on a buffer opens, so the other two do not."""
    tables = dropouts(7, batches, size=2, smallest=3)
    assert looked_at(seal(trained(tmp_path / "honest", tables, "bfv+mask"), tmp_path / "its view")).verdict == "PASS"
    opened = SecuredSum._opened
    monkeypatch.setattr(SecuredSum, "_opened", lambda self, *given: opened(replace(self, smallest=2), *given))
    with hostile(monkeypatch, least_trained=property(lambda self: 2)):
        run = trained(tmp_path / "run", tables, "bfv+mask")
    assert {one.buffer for one in messages(run) if one.step == "receipt"} == {0, 1, 2}
    for found in both(run, tmp_path):
        told = {at: sentence for at, _, sentence in (line.partition(": ") for line in found.details)}
        assert found.verdict == "FAIL"
        assert told["round 1, buffer 1, terms"] == "the terms have another fewest rows than this training"
        assert "opens from 3 rows on" in told["round 1, buffer 1, buffer"]


def all_that_came(self, size, came, trained):
    """What an operator counts: one client with samples is enough."""
    return trained >= 1 and (came == size or self.smallest != "complete")


def drawing(run):
    """Rounds and buffers of which a sum was opened, and how many of its clients drew samples, by the plan."""
    found, of = {}, {}
    for one in messages(run):
        if one.step == "terms":
            of[one.round, one.buffer] = terms_of(one).members
        if one.step in ("opened", "receipt"):
            drew = [client for client in of[one.round, one.buffer] if run.plan.batch(one.round, 1, client, 0)]
            found[one.round, one.buffer] = len(drew)
    return found


def lonely(run):
    """Those of which one client drew samples."""
    return [at for at, drew in drawing(run).items() if drew < 2]


def test_a_sum_of_one_client_who_drew_samples_is_found_by_the_plan_and_named_of_a_view(tmp_path, monkeypatch):
    tables = dropouts(6, SPARSE, rounds=6, size=3)
    with hostile(monkeypatch, _counts=all_that_came):
        run = trained(tmp_path / "run", tables, "bfv+mask")
    alone = lonely(run)
    assert alone
    whole, view = both(run, tmp_path)
    assert whole.verdict == "FAIL"
    told = [line for line in whole.details if "1 have samples in this round" in line]
    assert [line.split(", sum")[0] for line in told] == [f"round {at}, buffer {buffer}" for at, buffer in alone]
    pairs = sum("2 have samples in this round" in line for line in whole.details)  # of three an honest one opens none
    assert pairs == sum(drew == 2 for drew in drawing(run).values())
    assert view.verdict == "PASS"
    assert sum("batches of the config's law can be empty" in line for line in view.assumptions) == 1


def test_of_a_law_without_empty_batches_nothing_of_the_kind_is_assumed(tmp_path):
    """With noise in each step a batch can be empty all the same: then noise alone is sent."""
    for number, (tables, told) in enumerate(
        [(dropouts(6, EPOCHS, size=3), False), (dropouts(6, SPARSE, size=3) | NOISE, True)]
    ):
        run = trained(tmp_path / f"{number}", tables, "plain")
        found = looked_at(seal(run, tmp_path / f"view {number}"))
        assert found.verdict == "PASS", (found.shows, found.details)
        assert any("can be empty" in line for line in found.assumptions) == told


def test_sums_in_which_noise_alone_hides_a_row_are_counted(tmp_path):
    """Everybody counts where steps have noise. Of a sum with one client who drew samples the others sent noise."""
    run = trained(tmp_path / "run", dropouts(6, SPARSE, rounds=6, size=2) | NOISE, "bfv")
    drew = {n: {c for c in range(6) if run.plan.batch(n, 1, c, 0)} for n in range(1, 7)}
    opened = sorted((one.round, terms_of(one).members) for one in messages(run) if one.step == "terms")
    due = [(number, members) for number, members in opened if len({*members} & drew[number]) < 2]
    checked = _checked(run, known_of(run))
    assert due
    assert sorted(noise_alone(run, checked)) == due
    assert sum(f"in {len(due)} sums that were opened" in line for line in examined(run).assumptions) == 1
    sums = sums_of(run)
    assert sums.fewest == 0
    chances = [(6 - len(some)) / 5 for some in drew.values() if some]
    assert sums.over(0) == (pytest.approx(max(chances)), pytest.approx(1 - prod(1 - chance for chance in chances)))
    assert "with nobody's help, beside up to" in sums.in_short
    assert "whose noise is all that hides it" in sums.in_short


def test_whoever_has_no_samples_counts_where_everybody_does_and_her_noise_hides_nobody(tmp_path):
    """All samples of a client are erased, and honest sums of her and one other are opened: she sends noise."""
    tables = dropouts(6, SPARSE | {"rate": 0.9}, size=2) | NOISE
    parent = trained(tmp_path / "parent", tables | {"run": tables["run"] | {"requests": 1}}, "plain")
    gone = Request.of([], parent.original.samples[0])
    child = unlearn(parent, "retrain", gone, tmp_path / "child", data=tiny_dataset())
    assert not any(0 in hiding_nobody(parent, number) for number in (1, 2, 3))
    assert all(0 in hiding_nobody(child, number) and not untrained(child, number) for number in (1, 2, 3))
    found = examined(child)
    assert found.verdict == "PASS", (found.shows, found.details)
    opened = {(one.round, one.buffer): terms_of(one).members for one in messages(child) if one.step == "terms"}
    assert len(opened) == 9
    with_her = [(number, members) for (number, _), members in opened.items() if 0 in members]
    assert {*with_her} <= {*noise_alone(child, _checked(child, known_of(child)))}


def test_a_buffer_is_left_out_for_no_reason_where_everybody_counts(tmp_path):
    """Who drew no samples is not told, and no honest server discards a buffer for her: she sends noise."""
    view = seal(trained(tmp_path / "run", dropouts(6, SPARSE, size=2) | NOISE, "plain"), tmp_path / "view")
    found = looked_at(left_out(view, 2, 1))
    assert found.verdict == "FAIL"
    assert [line.split(" of clients")[0] for line in found.details] == ["round 2, buffer: nothing"]


def test_who_drew_samples_in_a_later_step_has_trained(tmp_path):
    run = trained(tmp_path / "run", dropouts(6, SPARSE | {"steps": 2}, rounds=6, size=3), "plain")
    drew = {n: [{c for c in range(6) if run.plan.batch(n, step, c, 0)} for step in (1, 2)] for n in range(1, 7)}
    assert all(any(some - other for some, other in pairs) for pairs in (drew.values(), map(reversed, drew.values())))
    assert {n: hiding_nobody(run, n) for n in drew} == {n: {*range(6)} - one - two for n, (one, two) in drew.items()}
    assert examined(run).verdict == "PASS"


def test_a_sum_that_is_left_alone_with_noise_and_one_row_of_data_is_counted_as_both(tmp_path):
    run = trained(tmp_path / "run", dropouts(2, SPARSE, rounds=6, size=2) | NOISE, "plain")
    drew = {number: count for (number, _), count in drawing(run).items()}
    assert {*drew.values()} >= {0, 1}
    checked = _checked(run, known_of(run))
    assert left_alone(run, checked) == [(number, (0, 1)) for number in drew]
    assert noise_alone(run, checked) == [(number, (0, 1)) for number, count in drew.items() if count < 2]


class Undivided(AvailabilityLaw):
    """A law of a stranger: gradients of a batch, which can be empty, are divided by its length."""

    divisor, name = 0, "undivided"


def test_under_the_law_of_a_stranger_noise_alone_is_counted_too(tmp_path, monkeypatch):
    """Whoever has samples and drew none takes her steps with noise, and counts."""
    law = Undivided(6, StaticProbability(Fraction(1)), PoissonBatches(1, Fraction("0.12"), 24, 3))
    monkeypatch.setattr(Dropouts, "law", law)
    run = trained(tmp_path / "run", dropouts(6, SPARSE, rounds=6, size=2) | NOISE, "plain")
    assert not run.exchange.counts_all(run.law)
    drew = {n: {c for c in range(6) if run.plan.batch(n, 1, c, 0)} for n in range(1, 7)}
    opened = sorted((one.round, terms_of(one).members) for one in messages(run) if one.step == "terms")
    due = [(number, members) for number, members in opened if len({*members} & drew[number]) < 2]
    assert due
    assert sorted(noise_alone(run, _checked(run, known_of(run)))) == due


def test_in_plain_a_sum_that_does_not_open_is_sent_by_nobody(tmp_path):
    """Of three one was emptied, and a size of three opens from three clients with samples on."""
    for empty, line in ((0, "every client's row is open"), (1, "no number of colluding clients")):
        sums = Sums("plain", (Alike(3, (Buffer(3, 3, 3),), empty),), 0, 0, ())
        assert sums.over(0)[0] == (not empty)
        assert line in sums.in_short
    assert str(Sums("bfv", (Alike(3, (Buffer(3, 3, 3),)),), 0, 0, ()).table()["exposed"]).count("-0.0") == 0


def test_a_view_of_clients_without_samples_is_refused_and_a_run_of_them_is_found(tmp_path, monkeypatch):
    """Training deals samples to all. Here an operator dealt none to client 0, and opened her sums of two."""

    def dealt(*given):
        hands = dict(partition(*given).samples)
        hands[1] = tuple(sorted(hands[0] + hands[1]))
        return Population(hands | {0: ()})

    with hostile(monkeypatch, _counts=all_that_came), monkeypatch.context() as patch:
        patch.setattr(begin, "partition", dealt)
        run = trained(tmp_path / "run", dropouts(6, {"steps": 1, "batch": 2}, size=2), "plain")
    with pytest.raises(EvidenceError, match="a commitment to clients without samples, and training deals some to each"):
        seal(run, tmp_path / "view")
    found = examined(run, data=False)
    assert found.verdict == "FAIL"
    assert sum("1 have samples in this round" in line for line in found.details) == 3


@pytest.mark.parametrize("server", [({"use": "mean"},), ({"use": "bucketing", "size": 1}, {"use": "mean"})])
def test_a_round_of_which_half_of_the_sums_may_be_bad_is_found(tmp_path, monkeypatch, server):
    """One client is feared, and a buffer of three without two who drew samples does not count: two are left, or one.

    A server that draws is executed by nobody who has a view; what fails is known without.
    """
    tables = dropouts(9, SPARSE, rounds=6, size=3, byzantine=1, server=server)
    with hostile(monkeypatch, fails=lambda self, counted, known: counted == 0):
        run = trained(tmp_path / "run", tables, "plain")
    opened = {n: sum((one.step, one.round) == ("opened", n) for one in messages(run)) for n in range(1, 7)}
    few = [number for number, sums in opened.items() if 0 < sums < 3]
    assert few
    due = [f"round {n}, sum: sums were opened, and the round fails with so few" for n in few]
    for found in both(run, tmp_path):
        assert found.verdict == "FAIL"
        assert [line.rpartition(": ")[0] for line in found.details] == due


def test_a_round_without_sums_is_not_said_to_go_on(tmp_path):
    """Whoever has no samples in it is not known, and a round of which nothing is opened fails all the same."""
    run = trained(tmp_path / "run", dropouts(6, SPARSE | {"rate": 0.01}, size=3), "plain")
    view = seal(run, tmp_path / "view")
    opened = {one.round for one in messages(run) if one.step == "opened"}
    silent = {line["round"] for line in run.ledger.of_kind("round")} - opened
    assert silent

    def course(event):
        if event.get("round") not in silent or "told" not in event:
            return event
        told = [one | ({"failed": False} if one["kind"] == "summed" else {}) for one in event["told"]]
        return event | {"told": told}

    found = looked_at(sealed_again(view.path, course))
    assert found.verdict == "FAIL"
    assert {line.split(": ")[1] for line in found.details} == {
        "the ledger tells that the round goes on, and no sum of it was opened"
    }


@dataclass(frozen=True)
class SumsOfTwo(SecureSum):
    """A transport that opens each buffer which is complete, if two of its clients have samples."""

    @property
    def least_trained(self):
        return 2


def test_a_rule_that_publishes_a_sum_is_refused_where_batches_can_be_empty(tmp_path, monkeypatch):
    """Then all but two of a sum can be without samples, unless its transport sees to more of them."""
    tables = dropouts(9, SPARSE, size=2, server=[KRUM])
    with pytest.raises(UsageError, match=r"as batches can be empty, and who drew nothing hides nobody: .* subtracts"):
        trained(tmp_path / "run", tables, "plain")
    assert not (tmp_path / "run").exists()
    trained(tmp_path / "three", dropouts(9, SPARSE, size=3, server=[KRUM]), "plain")
    with monkeypatch.context() as patch:  # the training of an operator refuses nothing
        patch.setattr("fuaudit.workflow.secured.require_unpublished", lambda *_: None)
        run = trained(tmp_path / "run", tables, "plain")
    for found in both(run, tmp_path):
        assert (found.verdict, found.details[0][:5]) == ("FAIL", "rule:")


@pytest.mark.parametrize(
    ("transport", "batches", "solver", "refused"),
    [
        (SumsOfTwo(4), SPARSE, {}, True),
        (SecureSum(4), SPARSE, {}, False),
        (SumsOfTwo(4), EPOCHS, {}, False),
        (SumsOfTwo(4), SPARSE, NOISE, False),
    ],
    ids=["two may be left", "three at least", "batches are never empty", "whoever drew nothing sends noise"],
)
def test_sums_are_as_large_as_a_transport_or_a_law_sees_to(transport, batches, solver, refused):
    tables = dropouts(16, batches, size=4, server=[KRUM]) | solver
    config = resolve(tables)
    law, exchange = build("learners", config.learner).law, replace(exchange_of(config), transport=transport)
    with pytest.raises(UsageError, match="may publish") if refused else nullcontext():
        require_unpublished(exchange, buffers_in(exchange, law, "plain", 16), "plain", law)
    with pytest.raises(UsageError, match="may publish") if transport == SumsOfTwo(4) else nullcontext():
        require_unpublished(exchange, buffers_in(exchange, law, "plain", 16), "plain", law, empty=2)


def test_exposure_is_that_of_who_drew_samples_in_each_round(tmp_path):
    """Eight in sums of four. Of e without samples two colluders have a row where one of these is with them."""
    run = trained(tmp_path / "run", dropouts(8, SPARSE, rounds=6, size=4), "plain")
    empties = [sum(not run.plan.batch(n, 1, client, 0) for client in range(8)) for n in range(1, 7)]
    assert len({*empties}) > 2
    for suite in (None, "bfv"):
        sums = replace(sums_of(run), suite=suite)
        chances = [by_listing(empty) for empty in empties]
        assert sums.over(2) == (pytest.approx(max(chances)), pytest.approx(1 - prod(1 - chance for chance in chances)))
        assert (sums.fewest, sums.empty, sums.all_told) == (2, max(empties), True)
        assert f"with 2 colluding clients, and not with fewer, beside up to {max(empties)} clients" in sums.in_short


def by_listing(empty):
    """With which chance two colluders and a client with samples are with one who has none in a sum of four of eight."""
    if empty > 5:
        return 0
    others = [*["colluder"] * 2, *["empty"] * empty, *["honest"] * (5 - empty)]
    sums = [*combinations(others, 3)]
    return sum(some.count("colluder") == 2 and "honest" not in some for some in sums) / len(sums)


def test_a_view_does_not_tell_who_drew_samples_and_says_so(tmp_path, fuaudit):
    run = trained(tmp_path / "run", dropouts(6, SPARSE, size=3), "bfv")
    view = seal(run, tmp_path / "view")
    sums = sums_of(view)
    assert (sums.fewest, sums.all_told, sums.empty) == (2, False, 0)
    assert "who drew no samples in a round is not told: with them fewer do" in sums.in_short
    assert "not with fewer" not in sums.in_short
    assert sums.in_short in fuaudit("show", view.path)[1]
    verify(view.path, "secure-aggregation", key=AUDIT_KEY)
    page = Path(fuaudit("report", view.path, "--format", "md")[1].strip()).read_text()
    assert "How many there are is not told here" in page
    assert "as far as these drew samples" in page
    whole = seal(trained(tmp_path / "other", dropouts(6, EPOCHS, size=3), "bfv"), tmp_path / "other view")
    assert "and not with fewer" in sums_of(whole).in_short


def test_a_sum_that_is_left_alone_is_counted_by_who_drew_samples(tmp_path):
    """Of two sums of two one is opened: the model tells it. Where four drew samples both are."""
    run = trained(tmp_path / "run", dropouts(5, SPARSE, rounds=8, size=2), "plain")
    opened = {}
    for one in messages(run):
        if one.step == "terms":
            opened.setdefault(one.round, []).append(terms_of(one).members)
    drew = {n: [c for c in some[0] if run.plan.batch(n, 1, c, 0)] for n, some in opened.items() if len(some) == 1}
    due = [(number, opened[number][0]) for number, clients in drew.items() if len(clients) == 2]
    assert {len(members) for _, members in due} == {2, 3}
    assert left_alone(run, _checked(run, known_of(run))) == due
    assert any(f"as in {len(due)} round" in line for line in examined(run).assumptions)
