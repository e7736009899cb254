"""Runs whose sums a suite makes hold every message: what opening looks at, what is found, what a prune leaves."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fuaudit_plugins.secure_sum import SecuredSum, SecureSum
from secure_transcripts import Kept as InMemory
from secure_transcripts import with_another_sum
from test_secured_runs import FEDAVG, FEDREP, INFINITE, NOISY, SHARES, trained
from tests_support import AUDIT_KEY, secret, told

import fuaudit.workflow.unlearn as unlearning
from fuaudit import load_run, unlearn
from fuaudit.audits.lineage.other_copies import other_copies
from fuaudit.audits.transcript.audit import Transcript, _noted
from fuaudit.audits.transcript.known import known_of
from fuaudit.draws import Keyed
from fuaudit.errors import EvidenceError, PluginError, StorageError, UsageError
from fuaudit.formats.files import append_bytes
from fuaudit.plans import Request
from fuaudit.runs.layout import BODIES, CHAIN, of_round
from fuaudit.runs.noise import step_of
from fuaudit.runs.sums import buffers_of, sums_of
from fuaudit.runs.transcripts import body_of, chain_of
from fuaudit.secure import adder, bfv
from fuaudit.secure.adder import end_all
from fuaudit.secure.envelope import terms_of
from fuaudit.secure.exposure import Buffer
from fuaudit.secure.messages import Identity
from fuaudit.secure.names import EXACT
from fuaudit.secure.recheck.shown import Checked
from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.suites import Books, Suite
from fuaudit.secure.suites import Kept as InRun
from fuaudit.secure.terms import LibraryError, Opened
from fuaudit.secure.transcript import messages_of, opened_in, read_chain
from fuaudit.testing.tiny import tiny_dataset
from fuaudit.training.execute import Procedure
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence
from fuaudit.verification.verify import verify
from fuaudit.workflow.prune import prune
from fuaudit.workflow.redact import redact
from fuaudit.workflow.resume import resume
from fuaudit.workflow.seal import seal
from fuaudit.workflow.secured import size_of_transcript
from fuaudit.workflow.train import prepare
from fuaudit.workflow.transcripts import Keeper, kept
from fuaudit.workflow.writer import begun_transcript

SUITES = "plain", "bfv+mask"


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """A run of each suite, which nobody may change."""
    return {suite: trained(tmp_path_factory.mktemp("honest") / "run", FEDREP, suite) for suite in SUITES}


@pytest.fixture
def copied(honest, tmp_path):
    """A copy of a run, to be changed."""
    return lambda suite: load_run(shutil.copytree(honest[suite].path, tmp_path / suite))


def examined(run, data=True):
    return Transcript().examine(Case(Evidence(run, None, tiny_dataset() if data else None), Keyed(AUDIT_KEY)))


def messages(run):
    """All messages of a run, in order."""
    chain = chain_of(run.path)
    return [one for n in chain.rounds for one in messages_of(chain.of_round(n), body_of(run.path, n), run.path)]


def written(run, changed):
    """A run with other messages, sealed again as its operator can: chain, ledger and manifest fit them."""
    shutil.rmtree(run.path / "transcript")
    keeper = begun_transcript(run.path)
    for message in changed:
        keeper.record(message)
    return anchored(run)


def anchored(run):
    """A run whose ledger holds the heads of the chain that is there."""
    chain = chain_of(run.path)
    heads = {number: chain.head_after(number) for number in range(1, run.rounds_executed + 1)}

    def course(events):
        return [one | ({"transcript": heads[one["round"]]} if one["event"] == "round" else {}) for one in events]

    return told(run.path, course)


def parties(run):
    """The identities of a run, as its operator holds them."""
    return kept(run, Keeper(run.path, chain_of(run.path)), run.plan).signers


# what training writes


@pytest.mark.parametrize("suite", SUITES)
def test_a_run_keeps_every_message_and_its_ledger_the_heads(honest, suite):
    run, chain = honest[suite], chain_of(honest[suite].path)
    assert chain.rounds == (1, 2)
    assert sorted(path.name for path in (run.path / "transcript").iterdir()) == [
        "000001.bodies",
        "000002.bodies",
        "chain.jsonl",
    ]
    assert [event["transcript"] for event in run.ledger.of_kind("round")] == [chain.head_after(1), chain.head]
    steps = [message.step for message in messages(run) if message.round == 1]
    assert steps[:4] == ["lot"] * 4
    assert steps.count("terms") == steps.count("receipt" if suite == "bfv+mask" else "opened") == 2
    assert not any(name.startswith("transcript") for name in run.files)


@pytest.mark.parametrize("suite", SUITES)
def test_an_honest_transcript_passes_and_says_what_it_cannot_show(honest, suite):
    found = examined(honest[suite])
    assert found.verdict == "PASS", found.details
    assert (found.values["sums"], found.values["rounds"]) == (4, 2)
    for what in ("nobody recorded", "memory", "colluded", "invented"):
        assert what in found.shows_not
    assert ("Ciphertexts and masked rows can hold anything" in found.shows_not) == (suite != "plain")


@pytest.mark.parametrize("tables", [INFINITE, SHARES], ids=["a row that is not finite", "shares"])
def test_other_trainings_pass_and_buffers_that_were_not_played_are_named(tmp_path, monkeypatch, tables):
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "stages"))
    run = trained(tmp_path / "run", tables, "mask")
    found = examined(run)
    assert found.verdict == "PASS", found.details
    unplayed = [line for line in found.details if "nothing of them was opened" in line]
    assert (len(unplayed), found.values["sums"]) == ((2, 2) if tables is INFINITE else (0, 2))
    assert all("3" in line for line in unplayed)
    assert found.values["unplayed"] == len(unplayed)
    alone = [line for line in found.assumptions if "one sum of two clients is all that was opened" in line]
    assert len(alone) == (tables is INFINITE)
    if tables is INFINITE:  # their numbers are the places that the lot gives
        for number in (1, 2):
            drawn = known_of(run).buffers(number, lots_of(run, number))
            assert {one.buffer: terms_of(one).members for one in messages(run) if one.step == "terms"
                    and one.round == number} == {
                place: members for place, members in enumerate(drawn) if 3 not in members
            }  # fmt: skip


def test_a_round_that_is_one_sum_of_two_is_named(tmp_path):
    """A size of 2 asks for it: each of the two takes her own row from the model, whatever the rule."""
    tables = NOISY | {"learner": NOISY["learner"] | {"cohort": 2}, "transport": {"use": "secure-sum", "size": 2}}
    run = trained(tmp_path / "run", tables, "mask")
    named = [
        [line for line in found.assumptions if "one sum of two clients is all that was opened of a round" in line]
        for found in (examined(run), examined(seal(run, tmp_path / "view"), data=False))
    ]
    members = ", ".join(map(str, sorted(run.participation["cohorts"][0])))
    assert [len(lines) for lines in named] == [1, 1]
    assert all(f"as in 2 rounds (the first is round 1, with clients {members})" in lines[0] for lines in named)


def lots_of(run, number):
    """Client -> its contribution to the lot of a round."""
    return {one.sender: one.body for one in messages(run) if (one.step, one.round) == ("lot", number)}


def test_no_columns_are_told_where_no_sum_is_asked_for(tmp_path, monkeypatch):
    """Nobody without rows could compare them, so they could be anything."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "stages"))
    tables = INFINITE | {"learner": INFINITE["learner"] | {"cohort": 2, "rounds": 4}}
    run = trained(tmp_path / "run", tables, "plain")
    steps = [{one.step for one in messages(run) if one.round == number} for number in range(1, 5)]
    assert {"lot"} in steps
    assert all("columns" not in one or "terms" in one for one in steps)
    assert examined(run).verdict == "PASS"


def test_more_buffers_than_are_named_are_counted():
    unplayed = tuple((number, (0, 1)) for number in range(1, 14))
    lines = _noted(Checked((), {}, (), unplayed, (), 0, ()))
    assert (len(lines), lines[-1]) == (11, "and 3 more")
    assert len(_noted(Checked((), {}, (), unplayed[:10], (), 0, ()))) == 10


def test_what_clients_and_server_remember_before_the_first_round_follows_from_no_seed(tmp_path, monkeypatch):
    honest = Procedure.initial_memory

    def forged(procedure, clients, device):
        memory = honest(procedure, clients, device)
        return {name: tensor + (0.5 if name.endswith(("memory", "velocity")) else 0) for name, tensor in memory.items()}

    tables = FEDREP | {"server": [{"use": "mean"}, {"use": "momentum", "beta": 0.5}]}
    assert examined(trained(tmp_path / "honest", tables, "plain")).verdict == "PASS"
    with monkeypatch.context() as forging:
        forging.setattr(Procedure, "initial_memory", forged)
        run = trained(tmp_path / "run", tables, "plain")
    for data in (True, False):
        found = examined(run, data)
        assert (found.verdict, [line.partition(",")[0] for line in found.details]) == (
            "FAIL", ["round 0", "round 0"],
        )  # fmt: skip


def test_what_clients_remember_of_kept_rounds_is_that_of_the_parent(tmp_path, monkeypatch):
    tables = FEDAVG | {
        "partition": {"use": "iid", "clients": 8},
        "learner": FEDAVG["learner"] | {"rounds": 5, "cohort": 3},
        "client": [
            {"use": "error-feedback"},
            {"use": "gaussian-noise", "norm": 0.5, "noise": 1.0},
            *FEDAVG["client"],
        ],
        "transport": {"use": "secure-sum", "size": 2},
    }
    parent, honest = trained(tmp_path / "parent", tables, "plain", 5), unlearning.as_kept
    cohorts = parent.participation["cohorts"]
    first = {who: min((n for n, some in enumerate(cohorts, 1) if who in some), default=9) for who in parent.members}
    asked = Request.of([next(who for who, at in first.items() if 2 < at < 6)])

    def forged(*given):
        vector, state = honest(*given)
        return vector, {name: tensor + 0.5 * name.startswith("client.") for name, tensor in state.items()}

    def child(name):
        return unlearn(parent, "fats", asked, tmp_path / name, data=tiny_dataset(), allow_inexact=True)

    def judged(run):
        return Transcript().examine(Case(Evidence(run, parent, tiny_dataset()), Keyed(AUDIT_KEY)))

    assert judged(child("fair")).verdict == "PASS"
    with monkeypatch.context() as forging:
        forging.setattr(unlearning, "as_kept", forged)
        run = child("forged")
    found = judged(run)
    assert found.verdict == "FAIL"
    assert "beginning: what is stored after this round is not what parent stores" in found.details[0]


def test_a_buffer_is_not_tried_again_after_clients_told_shares_of_it(tmp_path, monkeypatch):
    """Two clients unmask a sum without the first one, and the others a sum with her: the difference is her row."""
    tables = FEDAVG | {
        "partition": {"use": "iid", "clients": 7},
        "learner": FEDAVG["learner"] | {"cohort": 7},
        "transport": {"use": "secure-sum", "size": 7, "smallest": 3},
    }
    honest = Suite.opened

    def twice(suite, rows, bits, clients, **others):
        first, *some = sorted(clients)
        silent = {first: "send", **dict.fromkeys(some[2:], "unmask")}
        with pytest.raises(RefusedError):
            honest(suite, rows, bits, clients, **others | {"absent": silent})
        return honest(suite, rows, bits, clients, **others | {"absent": dict.fromkeys(some[:2], "unmask")})

    with monkeypatch.context() as forging:
        forging.setattr(Suite, "opened", twice)
        run = trained(tmp_path / "run", tables, "mask")
    found = examined(run)
    again = "order: a buffer was tried again after clients answered in it"
    assert (found.verdict, found.details) == ("FAIL", tuple(f"round {n}, buffer 0, {again}" for n in (1, 2)))


def test_clients_who_signed_wrong_shares_are_named():
    """No sum needed them, so nothing is wrong with it."""
    liar = {(2, 1): Opened((0, 3), np.zeros(2, dtype=np.int64), (3,))}
    (line,) = _noted(Checked((), liar, (), (), (), 0, ()))
    assert line.startswith("round 2, buffer 1: client 3 signed a share that was not dealt to it")


@pytest.mark.parametrize("data", [True, False])
def test_more_evidence_hides_nothing_that_a_config_shows(honest, monkeypatch, data):
    """No rows can be added up by such a transport, and it is not asked to before it is known that no suite could."""
    monkeypatch.setattr(SecureSum, "secured", None)
    found = examined(honest["plain"], data)
    assert (found.verdict, "cannot have made the sums of such a run" in found.shows) == ("FAIL", True)


@pytest.mark.parametrize("error", [UsageError("the rows have values outside their field"), RuntimeError("broke")])
def test_rows_of_which_no_sum_can_be_made_hide_no_wrong_message(copied, monkeypatch, error):
    def deliver(*_):
        raise error

    run = copied("plain")
    monkeypatch.setattr(SecuredSum, "deliver", deliver)
    with pytest.raises((UsageError, PluginError)):  # nothing is wrong: it is told as it is
        examined(run)
    other = [replace(one, signature=bytes(64)) if one.step == "send" else one for one in messages(run)]
    found = examined(written(run, other))
    assert (found.verdict, "signature" in found.details[0]) == ("FAIL", True)


def test_without_rows_or_secrets_half_of_it_is_inconclusive(honest, tmp_path):
    run = honest["bfv+mask"]
    for found in (examined(run, data=False), examined(redact(run, tmp_path / "redacted"))):
        assert (found.verdict, found.values["sums"]) == ("INCONCLUSIVE", 4)
        assert "whether the sums are those of the clients' rows was not looked at" in found.shows


# a fault of the auditor's machine


@pytest.fixture
def no_process(monkeypatch):
    """A machine on which the process that adds cannot be started."""

    def started(*_):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    end_all()
    monkeypatch.setattr(adder, "started", started)
    yield
    end_all()


@pytest.mark.parametrize("data", [True, False])
def test_a_machine_that_adds_nothing_fails_no_honest_run(honest, no_process, data):
    found = examined(honest["bfv+mask"], data)
    assert (found.verdict, found.values["sums"], len(found.details)) == ("INCONCLUSIVE", 0, 4)
    assert found.details[0].startswith("round 1, buffer 0: _due of a secure sum broke off (BlockingIOError)")
    assert "could not be made again on this machine" in found.shows
    assert examined(honest["plain"]).verdict == "PASS"


def test_a_machine_that_adds_nothing_still_finds_what_needs_no_sum(copied, no_process):
    run = copied("bfv+mask")
    other = [replace(one, signature=bytes(64)) if one.step == "send" else one for one in messages(run)]
    found = examined(written(run, other))
    assert found.verdict == "FAIL"
    assert "signature" in found.details[0]


def test_sums_that_are_not_there_are_no_fault_of_a_machine(copied, no_process):
    """One round has a buffer less than its ledger tells; of the other nobody knows."""
    run = copied("bfv+mask")
    left = [one for one in messages(run) if one.round == 1 or one.step in ("lot", "columns")]
    found = examined(written(run, left))
    assert (found.verdict, found.details) == (
        "FAIL", ("round 2, order: the server told columns, and no sum was asked for",
                 "round 2, sum: 0 sums were opened, and the ledger tells of 2"),
    )  # fmt: skip


def test_reading_a_run_needs_no_library_of_a_suite(honest, monkeypatch):
    """What is summed is said without anybody who can open it; only sums of ciphertexts need TenSEAL."""
    bfv.require_margin.cache_clear()
    monkeypatch.setitem(sys.modules, "tenseal", None)
    monkeypatch.setattr(Suite, "start", lambda *_: pytest.fail("a suite was started"))
    monkeypatch.setattr(SecureSum, "secured", lambda *_: pytest.fail("a transport that opens sums was made"))
    run = honest["bfv+mask"]
    known = known_of(run)
    assert (known.bits, known.most, known.sizes(1)[0].smallest) == (12, 3, 2)
    assert step_of(run) > 0
    assert buffers_of(run) == (Buffer(2, 2),) * 2
    assert {one.party for one in sums_of(run).parties} == {"client", "server", "witness", "key holder"}
    found = examined(run, data=False)
    assert found.verdict == "INCONCLUSIVE"
    assert ["pip install tenseal==0.3.18" in line for line in found.details] == [True] * 4


def test_a_transport_of_another_package_that_needs_a_library_fails_nobody(honest, monkeypatch):
    """It has no ``summable``, and its suite cannot be made here."""

    def secured(*_):
        raise LibraryError("tenseal 0.3.18 is needed for encrypted sums", "Install it.")

    monkeypatch.delattr(SecureSum, "summable")
    monkeypatch.setattr(SecureSum, "secured", secured)
    found = examined(honest["bfv+mask"], data=False)
    assert found.verdict == "INCONCLUSIVE"
    assert "is needed for encrypted sums" in found.details[0]


# from how many rows on a buffer opens

FEW = FEDAVG | {"transport": {"use": "secure-sum", "size": 4, "smallest": 3}}


@pytest.mark.parametrize("suite", EXACT)
def test_parties_open_from_as_many_rows_as_the_config_says(tmp_path, suite):
    """As exposure says it, and as a sealed view shows it."""
    run = trained(tmp_path / "run", FEW, suite)
    assert {terms_of(one).smallest for one in messages(run) if one.step == "terms"} == {3}
    assert buffers_of(run) == (Buffer(4, 3, 3),)
    for one in (run, seal(run, tmp_path / "view")):
        found = examined(one, data=one is run)
        assert found.verdict == "PASS", found.details


@pytest.mark.parametrize(("tables", "other"), [(FEW, "complete"), (FEDAVG, 3)], ids=["complete", "from fewer"])
def test_terms_that_open_from_other_numbers_of_rows_than_the_config_says_are_found(
    tmp_path, monkeypatch, tables, other
):
    opened = SecuredSum._opened
    monkeypatch.setattr(SecuredSum, "_opened", lambda self, *given: opened(replace(self, smallest=other), *given))
    run = trained(tmp_path / "run", tables, "mask")
    for one in (run, seal(run, tmp_path / "view")):
        found = examined(one, data=False)
        assert found.verdict == "FAIL"
        assert found.details[0] == "round 1, buffer 0, terms: the terms have another fewest rows than this training"


def test_a_buffer_of_three_opens_from_three_rows_where_two_of_two_do(tmp_path):
    """No terms let three clients open a sum of two; the config's 2 is of buffers of two."""
    tables = FEDAVG | {
        "learner": FEDAVG["learner"] | {"cohort": 5},
        "partition": {"use": "iid", "clients": 5},
        "transport": {"use": "secure-sum", "size": 2, "smallest": 2},
    }
    run = trained(tmp_path / "run", tables, "plain")
    some = [terms_of(one) for one in messages(run) if one.step == "terms"]
    assert {(len(one.members), one.smallest) for one in some} == {(2, 2), (3, 3)}
    assert buffers_of(run) == (Buffer(3, 3), Buffer(2, 2))
    assert examined(run).verdict == "PASS"


def test_a_run_whose_sums_no_suite_made_has_none(tmp_path):
    run = trained(tmp_path / "run", FEDAVG, None)
    assert examined(run).verdict == "NOT_APPLICABLE"
    begun_transcript(run.path)
    with pytest.raises(EvidenceError, match=r"has transcript/chain.jsonl, which only a run whose sums a suite made"):
        load_run(run.path)


@pytest.mark.parametrize("suite", EXACT)
def test_how_large_a_transcript_becomes_at_most_is_known_before(tmp_path, suite):
    """Unless clients agree on columns: nobody knows before how many these are."""
    run = trained(tmp_path / "run", FEDAVG, suite)
    ready, agreeing = (prepare(t, tiny_dataset(), secret(1), None, None, None).first.ready for t in (FEDAVG, FEDREP))
    most = size_of_transcript(ready, suite, 4, 2)
    assert 0.8 * most < sum(path.stat().st_size for path in (run.path / "transcript").iterdir()) <= most
    assert size_of_transcript(ready, None, 4, 2) == size_of_transcript(agreeing, suite, 4, 2) == 0


def test_a_disk_without_room_for_messages_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=300_000))
    with pytest.raises(StorageError, match="the run needs about"):
        trained(tmp_path / "run", FEDAVG, "bfv+mask")
    assert not (tmp_path / "run").exists()
    trained(tmp_path / "run", FEDAVG, None)


# what opening refuses


def _without_line(path):
    lines = (path / CHAIN).read_bytes().splitlines(keepends=True)
    (path / CHAIN).write_bytes(b"".join(lines[:3] + lines[4:]))


def _without_tail(path):
    """The last buffer was never there: chain and body agree."""
    chain = chain_of(path)
    entries = chain.of_round(2)
    shorter = entries[: next(i for i, one in enumerate(entries) if one.step == "terms" and one.buffer == 1)]
    whole = chain.of_round(1) + shorter
    (path / CHAIN).write_bytes(b"".join(one.line + b"\n" for one in whole))
    body = path / of_round(BODIES, 2)
    body.write_bytes(body.read_bytes()[: sum(one.size for one in shorter)])


def _longer(path):
    (path / of_round(BODIES, 1)).write_bytes(body_of(path, 1) + b"more")


MALFORMED = {
    "a line dropped": (_without_line, "line 4 does not follow"),
    "a tail cut off": (_without_tail, "another head in transcript/chain.jsonl after round 2"),
    "a longer body": (_longer, "another number of bytes in transcript/000001.bodies"),
    "no chain": (lambda path: (path / CHAIN).unlink(), "missing"),
    "a torn line": (lambda path: (path / CHAIN).write_bytes((path / CHAIN).read_bytes()[:-1]), "torn"),
    "no body": (lambda path: (path / of_round(BODIES, 2)).unlink(), "lacks transcript/000002.bodies"),
    "a body of no round": (lambda path: (path / of_round(BODIES, 3)).write_bytes(b""), "has transcript/000003.bodies"),
    "another file": (lambda path: (path / "transcript/keys").write_bytes(b""), "transcript/keys"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_transcript_that_is_not_that_of_the_ledger_is_refused(copied, name):
    spoil, reason = MALFORMED[name]
    run = copied("plain")
    spoil(run.path)
    with pytest.raises(EvidenceError, match=reason):
        load_run(run.path)


def test_a_ledger_that_names_no_heads_is_refused(copied):
    run = copied("plain")

    def course(events):
        return [{name: value for name, value in one.items() if name != "transcript"} for one in events]

    with pytest.raises(EvidenceError, match="names a transcript where no suite made sums, or none where one did"):
        told(run.path, course)


# what the audit finds


def _flipped(run, number, place):
    """One bit of a body is another."""
    body = bytearray(body_of(run.path, number))
    body[place] ^= 1
    (run.path / of_round(BODIES, number)).write_bytes(body)


@pytest.mark.parametrize("suite", SUITES)
def test_a_bit_that_is_flipped_after_the_run_was_opened_is_found(copied, suite):
    run = copied(suite)
    _flipped(run, 2, -1)
    found = examined(run)
    assert (found.verdict, found.details[0][:19]) == ("FAIL", "round 2, body: the ")


@pytest.mark.parametrize("open_", [load_run, verify, lambda path: seal(path, path.with_name("view"))])
@pytest.mark.parametrize(("number", "place"), [(1, 0), (2, 1000), (2, -1)])
def test_whoever_opens_a_run_compares_every_byte_of_its_messages(copied, number, place, open_):
    """Else "every byte is accounted for" was said of a run whose transcript somebody edited."""
    run = copied("plain")
    _flipped(run, number, place)
    with pytest.raises(EvidenceError, match=f"00000{number}.bodies was altered: the envelope of line"):
        open_(run.path)
    assert not run.path.with_name("view").exists()


@pytest.mark.parametrize("suite", SUITES)
def test_messages_left_out_are_found_though_all_was_sealed_again(copied, suite):
    """A whole buffer, a round, a contribution, a row."""
    told_of = {
        "another number": lambda one: (one.round, one.buffer) != (2, 1),
        "2 sums": lambda one: one.round != 1,
        "withheld": lambda one: (one.step, one.sender, one.round) != ("lot", 1, 2),
        "": lambda one: (one.step, one.round, one.buffer) != ("send", 1, 0),
    }
    told_of["1 sums were opened, and the ledger tells of 2"] = told_of.pop("another number")
    told_of["0 sums were opened, and the ledger tells of 2"] = told_of.pop("2 sums")
    run = copied(suite)
    whole = messages(run)
    for reason, keeps in told_of.items():
        run = written(run, filter(keeps, whole))
        found = examined(run, data=False)
        assert found.verdict == "FAIL"
        assert any(reason in line for line in found.details), found.details


@pytest.mark.parametrize("suite", SUITES)
def test_another_roster_is_found(copied, suite):
    """A client's messages of the lot under a key that nobody committed to."""
    run = copied(suite)
    with Identity() as stranger:
        changed = [
            replace(one, signature=stranger.signature(one.head)) if (one.step, one.sender) == ("lot", 2) else one
            for one in messages(run)
        ]
    found = examined(written(run, changed), data=False)
    assert found.verdict == "FAIL"
    assert any("client 2 at step lot does not have its signature" in line for line in found.details)


def _told_otherwise(run):
    """It, with one opened number that is one more."""
    return written(run, [*with_another_sum(messages(run), parties(run))])


def test_a_number_behind_ciphertexts_is_not_one_that_the_model_was_made_of_nor_that_of_the_rows(copied):
    """Without rows it is the key holder's word; tests of sealed views have models that were made of it."""
    run = _told_otherwise(copied("bfv+mask"))
    found = [examined(run, data=data) for data in (False, True)]
    assert [one.verdict for one in found] == ["FAIL", "FAIL"]
    of_sums = (
        "round 1, model: the stored model, or what the server remembers beside it, is not what the opened sums make"
    )
    of_rows = "round 1, buffer 0, sum: what was opened is not the sum of the rows of the clients that were drawn"
    assert [one.details for one in found] == [(of_sums,), (of_sums, of_rows)]


def test_a_number_of_rows_in_the_open_is_added_up_again(copied):
    found = examined(_told_otherwise(copied("plain")), data=False)
    assert found.verdict == "FAIL"
    assert "is not the sum of the rows that came" in found.details[0]


@pytest.mark.parametrize("suite", SUITES)
def test_buffers_of_other_clients_than_the_lot_gives_are_found(copied, suite):
    """Its operator plays round 1 once more, with two clients exchanged, and signs all of it."""
    run = copied(suite)
    whole, signers, again = messages(run), parties(run), InMemory()
    opened = [terms_of(one) for one in whole if one.step == "terms" and one.round == 1]
    (a, b), (c, d) = (terms.members for terms in opened)
    for number, (members, terms) in enumerate(zip(((a, c), (b, d)), opened, strict=True)):
        Suite(suite, terms.most).opened(
            np.zeros((2, terms.columns), dtype=np.int64), terms.bits, sorted(members), at=(1, number),
            signers=signers, record=again.transcript.record, coordinates=terms.coordinates, context=terms.context,
        )  # fmt: skip
    lots = [one for one in whole if one.step in ("lot", "columns") and one.round == 1]
    run = written(run, [*lots, *again.messages(), *(one for one in whole if one.round == 2)])
    found = examined(run, data=False)
    assert found.verdict == "FAIL"
    assert [line.endswith("were not drawn together") for line in found.details] == [True, True], found.details


# a child, a prune, an archive


def test_a_child_has_a_transcript_of_its_own_and_a_prune_leaves_the_chain(tmp_path):
    parent = trained(tmp_path / "parent", NOISY, "bfv+mask")
    child = unlearn(parent, "retrain", Request.of([0]), tmp_path / "child", data=tiny_dataset())
    found = Transcript().examine(Case(Evidence(child, parent, tiny_dataset()), Keyed(AUDIT_KEY)))
    assert found.verdict == "PASS", found.details
    assert 0 not in {message.sender for message in messages(child)}
    copies = {copy.place: copy.why for copy in other_copies(Case(Evidence(child, parent, None), Keyed(AUDIT_KEY)))}
    assert copies["parent/transcript/"] == "holds messages of secure sums of 2 rounds, also of erased clients"
    before = (child.path / CHAIN).read_bytes()
    pruned, _ = prune(child)
    assert [path.name for path in (pruned.path / "transcript").iterdir()] == ["chain.jsonl"]
    assert (pruned.path / CHAIN).read_bytes() == before
    found = examined(pruned)
    assert found.verdict == "NOT_APPLICABLE"
    assert "no sum can be made again" in found.shows
    (pruned.path / of_round(BODIES, 1)).write_bytes(b"")
    with pytest.raises(EvidenceError, match=r"has transcript/000001.bodies"):
        load_run(pruned.path)


def test_sums_whose_difference_is_an_erased_row_are_found(tmp_path, monkeypatch):
    """A child that was made all the same: its round 1 has the model of its parent's, and no noise of its own."""
    parent = trained(tmp_path / "parent", FEDAVG, "plain")
    monkeypatch.setattr("fuaudit.workflow.unlearn.require_fresh_noise", lambda run, unlearner: None)
    child = unlearn(parent, "fats", Request.of([0]), tmp_path / "child", data=tiny_dataset(), allow_inexact=True)
    found = Transcript().examine(Case(Evidence(child, parent, tiny_dataset()), Keyed(AUDIT_KEY)))
    assert found.verdict == "FAIL"
    assert [line[:31] for line in found.details] == ["round 1, difference: sums of thi"[:31]]
    total = [sum(one.sums for one in opened_in(messages_in(run, 1)).values()) for run in (parent, child)]
    assert (total[0] - total[1]).any()
    bare = trained(tmp_path / "bare", FEDAVG, None)  # the same digest, and no transcript that tells of its sums
    assert bare.digest == parent.digest
    hidden = Transcript().examine(Case(Evidence(child, bare, tiny_dataset()), Keyed(AUDIT_KEY)))
    assert (hidden.verdict, "names no suite" in hidden.details[0]) == ("FAIL", True)
    alone = Transcript().examine(Case(Evidence(child, None, tiny_dataset()), Keyed(AUDIT_KEY)))
    assert (alone.verdict, "may have opened rounds from the same models" in alone.shows) == ("INCONCLUSIVE", True)


def messages_in(run, number):
    return [message for message in messages(run) if message.round == number]


def test_an_archive_keeps_the_transcript(honest, tmp_path):
    run = honest["bfv+mask"]
    redacted = redact(run, tmp_path / "redacted")
    assert [one.body for one in messages(redacted)] == [one.body for one in messages(run)]


# a run that broke off


@pytest.fixture
def killed(monkeypatch):
    """Kills the writing of a transcript in the middle of the write of a number."""
    counts = []

    def arm(number):
        counts.append(number)

    def torn(path, content, durable=True):
        if not counts:
            return append_bytes(path, content, durable)
        counts[0] -= 1
        if counts[0] < 0:
            counts.clear()
            append_bytes(path, content[: len(content) // 2], durable)
            raise KeyboardInterrupt
        return append_bytes(path, content, durable)

    monkeypatch.setattr("fuaudit.workflow.transcripts.append_bytes", torn)
    return arm


@pytest.mark.thorough
@pytest.mark.parametrize("suite", SUITES)
def test_a_run_that_is_killed_at_any_write_opens_no_buffer_twice(honest, tmp_path, killed, suite):
    """The digest is that of a run that was not; what was opened before stands in the transcript as it stood."""
    whole = honest[suite]
    writes = 2 * len(chain_of(whole.path).entries) + 4  # and two flushes a round
    for number in range(1, writes, 7 if suite == "plain" else 23):
        path = tmp_path / str(number)
        killed(number)
        with pytest.raises(KeyboardInterrupt):
            trained(path, FEDREP, suite)
        content = (path / CHAIN).read_bytes()
        before = read_chain(content[: content.rfind(b"\n") + 1], path).ended().entries
        run = resume(path, tiny_dataset())
        assert run.digest == whole.digest
        assert chain_of(path).entries[: len(before)] == before
        ends = [(one.round, one.buffer) for one in chain_of(path).entries if one.step in ("receipt", "opened")]
        assert ends == [(1, 0), (1, 1), (2, 0), (2, 1)]
        assert examined(load_run(path)).verdict == "PASS"


def test_a_sum_that_was_opened_is_not_given_for_other_rows(tmp_path):
    """Of other clients, of other columns: a second sum is refused."""
    suite, found = Suite("plain", 3), []
    rows = np.arange(6).reshape(2, 3)
    first = suite.opened(rows, 12, [4, 7], at=(1, 0), record=found.append)
    told_ = {(1, 0): (terms_of(found[0]), first)}
    books = Books(kept=InRun(found.append, told=told_))
    count = len(found)
    assert np.array_equal(suite.opened(rows + 1, 12, [7, 4], at=(1, 0), books=books).sums, first.sums)
    assert len(found) == count
    for other, clients in ((rows, [4, 8]), (rows[:, :2], [4, 7])):
        with pytest.raises(RefusedError, match="was asked for before"):
            suite.opened(other, 12, clients, at=(1, 0), books=books)


def test_a_sum_that_was_begun_is_made_again_of_the_same_clients_and_columns():
    suite, found = Suite("plain", 3), []
    rows = np.arange(6).reshape(2, 3)
    suite.opened(rows, 12, [4, 7], at=(1, 0), record=found.append)
    books = Books(kept=InRun(found.append, begun={(1, 0): terms_of(found[0])}))
    count = len(found)
    for other, clients in ((rows, [4, 8]), (rows[:, :2], [4, 7])):
        with pytest.raises(RefusedError, match="was asked for before"):
            suite.opened(other, 12, clients, at=(1, 0), books=books)
    assert len(found) == count
    assert np.array_equal(suite.opened(rows, 12, [7, 4], at=(1, 0), books=books).sums, rows.sum(axis=0))
