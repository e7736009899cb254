"""A head of the ledger that was kept outside: whoever writes another transcript later has another ledger."""

import shutil
from dataclasses import replace

import pytest
from test_secured_runs import FEDREP, NOISY, trained
from test_transcript_runs import messages, written
from tests_support import AUDIT_KEY, of_the_run, reseal, told

from fuaudit import load_run, unlearn, verify
from fuaudit.audits.provenance.audit import Provenance
from fuaudit.audits.provenance.heads import KEPT_IN_TIME
from fuaudit.audits.transcript.audit import AS_IT_RAN, Transcript
from fuaudit.draws import Keyed
from fuaudit.errors import UsageError
from fuaudit.formats.files import sha256
from fuaudit.plans import Request
from fuaudit.runs.layout import LEDGER
from fuaudit.runs.ledger import Ledger, read_ledger
from fuaudit.testing.tiny import tiny_dataset
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence, Known
from fuaudit.verification.spec import read_spec
from fuaudit.workflow.append import append
from fuaudit.workflow.prune import prune

LOST = "has the head given by --ledger-head: it was written anew after that was kept"


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """A run whose sums masks make, which nobody may change."""
    return trained(tmp_path_factory.mktemp("honest") / "run", FEDREP, "mask")


@pytest.fixture(scope="module")
def later(tmp_path_factory, honest):
    """Its transcript of a later day, by whoever has all secrets: other masks, the same sums, models and identities."""
    other = trained(tmp_path_factory.mktemp("later") / "run", FEDREP, "mask")
    assert other.digest == honest.digest
    return other


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """A run that was unlearned, and its child."""
    folder = tmp_path_factory.mktemp("family")
    parent = trained(folder / "parent", NOISY, "plain")
    return parent, unlearn(parent, "retrain", Request.of([0]), folder / "child", data=tiny_dataset())


def case(run, head=None, parent=None):
    return Case(Evidence(run, parent, tiny_dataset(), Known(ledger_head=head)), Keyed(AUDIT_KEY))


def heads(run):
    """The digest of each line of a ledger, by its bytes."""
    return [sha256(line) for line in (run.path / LEDGER).read_bytes().splitlines()]


def gone_on(run, lines, events):
    """A ledger that keeps some lines as they are, and tells other events behind them; sealed again."""
    (run.path / LEDGER).write_bytes(b"".join(line + b"\n" for line in lines))
    ledger = read_ledger(run.path)
    for event in events:
        facts = {name: value for name, value in event.items() if name not in ("event", "previous", "time")}
        ledger = append(run.path, ledger, event["event"], **facts)
    return reseal(run.path)


def by(audit, *given):
    return audit.examine(case(*given))


def test_lines_have_numbers_by_their_heads(honest):
    found = heads(honest)
    assert [honest.ledger.line_with(head) for head in found] == list(range(1, len(found) + 1))
    assert found[-1] == honest.ledger.head
    assert honest.ledger.line_with("0" * 64) == Ledger().line_with("0" * 64) == 0


def test_another_transcript_afterwards_is_seen_by_the_head_alone(honest, later, tmp_path):
    """Its operator puts it in the place of the old one, names its heads in the ledger and seals that again."""
    copy = load_run(shutil.copytree(honest.path, tmp_path / "run"))
    forged = written(copy, messages(later))
    assert forged.digest == honest.digest
    assert messages(forged) != messages(honest)
    without = by(Transcript(), forged)
    assert (without.verdict, without.assumptions) == ("PASS", (AS_IT_RAN,))
    for audit in (Transcript(), Provenance()):
        found = by(audit, forged, honest.ledger.head)
        assert (found.verdict, LOST in found.shows) == ("FAIL", True), found.shows
        right = by(audit, honest, honest.ledger.head)
        assert (right.verdict, KEPT_IN_TIME in right.assumptions) == ("PASS", True)
        assert AS_IT_RAN not in right.assumptions
    silent = by(Provenance(), forged)
    assert (silent.verdict, "head" in "".join((*silent.details, *silent.assumptions))) == ("PASS", False)


def test_a_transcript_that_was_dropped_as_a_whole_is_seen(honest, tmp_path):
    """With the name of the suite: no audit of messages has anything to look at then, but the head is gone."""
    copy = load_run(shutil.copytree(honest.path, tmp_path / "run"))
    shutil.rmtree(copy.path / "transcript")

    def course(events):
        kept = (one for one in events if one["event"] != "secured")
        return [{name: value for name, value in one.items() if name != "transcript"} for one in kept]

    bare = told(copy.path, course)
    assert bare.digest == honest.digest
    assert by(Transcript(), bare).verdict == "NOT_APPLICABLE"
    assert [by(audit, bare, honest.ledger.head).verdict for audit in (Transcript(), Provenance())] == ["FAIL", "FAIL"]


def test_a_head_of_the_middle_holds_the_rounds_before_it(honest, later, tmp_path):
    """The second round is written anew: the head of the first one does not tell, and a PASS says that."""
    copy = load_run(shutil.copytree(honest.path, tmp_path / "run"))
    rounds = [one for one in messages(honest) if one.round == 1], [one for one in messages(later) if one.round == 2]
    places = [place for place, event in enumerate(honest.ledger.events) if event["event"] == "round"]
    forged = written(copy, [*rounds[0], *rounds[1]])
    lines = (honest.path / LEDGER).read_bytes().splitlines()
    forged = gone_on(forged, lines[: places[1]], forged.ledger.events[places[1] : -1])
    first, second = (heads(honest)[place] for place in places)
    found = by(Transcript(), forged, first)
    assert found.verdict == "PASS"
    assert found.assumptions[0] == KEPT_IN_TIME
    assert found.assumptions[1].startswith("The transcript of rounds 2 to 2, which the head given by --ledger-head")
    assert by(Transcript(), forged, second).verdict == "FAIL"
    before = by(Transcript(), forged, heads(honest)[places[0] - 1])  # no round is held by it
    assert (before.verdict, before.assumptions) == ("PASS", (AS_IT_RAN,))
    assert by(Transcript(), honest, second).assumptions == (KEPT_IN_TIME,)


def test_a_head_from_before_a_prune_stays_and_that_of_an_ancestor_counts(family, tmp_path):
    parent, child = (load_run(shutil.copytree(run.path, tmp_path / run.path.name)) for run in family)
    sealed = child.ledger.head
    found = by(Provenance(), child, parent.ledger.head, parent)
    lines = len(parent.ledger.events)
    assert found.verdict == "PASS"
    assert f"PASS: Line {lines} of {lines} of the ledger of parent has the head given" in "\n".join(found.details)
    of_parent = by(Transcript(), child, parent.ledger.head, parent)
    assert (of_parent.verdict, of_parent.assumptions[:1]) == ("PASS", (AS_IT_RAN,))  # its own rounds are not held
    missing = by(Provenance(), child, parent.ledger.head)
    assert (missing.verdict, "an ancestor is missing" in "\n".join(missing.details)) == ("INCONCLUSIVE", True)
    assert by(Transcript(), child, "ab" * 32, parent).verdict == "FAIL"
    pruned, _ = prune(child)
    assert pruned.ledger.head != sealed
    for head in (sealed, pruned.ledger.head, parent.ledger.head):
        assert verdict_of(pruned, head) == "PASS"
    assert verdict_of(pruned, "ab" * 32) == "FAIL"


def verdict_of(run, head):
    """The verdict of provenance by verify, which finds what is left of ancestors."""
    result = verify(run, of_the_run(), data=tiny_dataset(), budget=0, save=False, ledger_head=head)
    return next(one.verdict for one in result.findings if one.audit == "provenance")


def test_the_commands_tell_the_head_and_compare_it(fuaudit, honest, later, tmp_path):
    spec = read_spec("secure-aggregation")
    checks = [one for one in spec.checks if one.audit["use"] in ("integrity", "provenance", "transcript")]
    found = verify(
        honest, replace(spec, id="s", checks=tuple(checks), origin=""), data=tiny_dataset(), save=False,
        ledger_head=f" {honest.ledger.head.upper()}\n",
    )  # fmt: skip
    assert {str(one.verdict) for one in found.findings} == {"PASS"}
    assert found.context["arguments"][:2] == ["--ledger-head", honest.ledger.head]
    code, out, _ = fuaudit("show", honest.path)
    assert (code, f"  ledger head   {honest.ledger.head}" in out) == (0, True)
    for wrong in ("", "abc", "g" * 64):
        code, _, err = fuaudit("verify", honest.path, "--ledger-head", wrong)
        assert (code, "--ledger-head takes 64 hexadecimal digits" in err) == (2, True)
    with pytest.raises(UsageError, match="a head of a ledger has 64"):
        verify(honest, ledger_head="abc")
    shutil.copytree(honest.path, tmp_path / "run")
    code, _, err = fuaudit("verify", tmp_path / "run", "--ledger-head", later.ledger.head)
    assert f"No line of the ledger has the head {later.ledger.head}: this will be a FAIL." in err
    assert code in (1, 3)


def test_a_head_that_no_check_looks_at_is_refused(honest):
    spec = read_spec("secure-aggregation")
    only = replace(spec, id="s", checks=tuple(one for one in spec.checks if one.audit["use"] == "integrity"), origin="")
    with pytest.raises(UsageError, match="no check of s looks at --ledger-head"):
        verify(honest, only, data=tiny_dataset(), save=False, ledger_head=honest.ledger.head)
