"""Whether the messages of secure sums are those of the protocol, and the model was made of what they opened.

Three parts. The first needs no secret of a client: the chain is that of which the ledger holds heads, envelopes are
signed by who was committed to, buffers are what the lots give, and sums are made again from what was sent. The second
needs none either: from the sums that were opened everything that the server does behind the transport is executed, and
gives the stored models. The third has the clients' secrets and rows: every opened number is that of the rows in the
clear. Without it the numbers behind ciphertexts are a key holder's word. Of a sealed view the first two decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from fuaudit.audits.provenance.answers import CheckResult
from fuaudit.audits.provenance.heads import KEPT_IN_TIME, head, held_rounds
from fuaudit.audits.transcript.again import Again, again, not_at_hand, other_sums
from fuaudit.audits.transcript.differences import covered_by, runs_above, telling_differences, uncovered
from fuaudit.audits.transcript.events import wrong_events
from fuaudit.audits.transcript.known import (
    known_of,
    left_alone,
    noise_alone,
    tells_buffers,
    told_rounds,
    wrong_beginning,
    wrong_cohorts,
    wrong_counts,
    wrong_draws,
    wrong_failures,
    wrong_opened,
    wrong_rule,
    wrong_silence,
)
from fuaudit.audits.transcript.left_out import left_out
from fuaudit.audits.transcript.served import ServerHalf, is_exported, named_otherwise, served
from fuaudit.audits.transcript.told import COLUMNS_TOLD, FIGURES_TOLD, exported, sizes_told, wrong_told
from fuaudit.errors import UsageError
from fuaudit.plans.availability import always_draws
from fuaudit.runs.layout import MODEL, RECORDED
from fuaudit.runs.ledger import suite_of
from fuaudit.runs.run import Run
from fuaudit.runs.transcripts import body_of
from fuaudit.secure.recheck.known import Known
from fuaudit.secure.recheck.shown import Checked, Wrong
from fuaudit.secure.recheck.transcripts import recheck
from fuaudit.secure.terms import LibraryError
from fuaudit.text import counted
from fuaudit.verification.case import Case
from fuaudit.verification.figure import Figure
from fuaudit.verification.finding import Finding, Subject, Verdict
from fuaudit.verification.rerun import EQUAL_BITS

NAME = "transcript"
NO_SUITE = "The ledger of the run names no suite that made its sums."
SHOWS_NOT = "It shows nothing of messages that nobody recorded."
GONE = "The chain is the one of which the ledger holds heads. Its messages went with a prune: no sum can be made again."
NO_ROWS = "The messages are those of the protocol; whether the sums are those of the clients' rows was not looked at."
SERVED_ALONE = (
    "The messages are those of the protocol, and the models were made of the sums that they opened; whether the sums "
    "are those of the clients' rows was not looked at."
)
WRONG = "Messages or sums are not as the protocol has them."
UNMADE = (
    "Sums could not be made again on this machine, so nothing is known of them; nothing else that was looked at is "
    "wrong. Mend what is named here, and verify again."
)
NOT_OF_SUMS = "Stored models are not those that the sums make which the messages opened."
NO_HALF = "The messages are those of the protocol; whether models were made of the opened sums, cannot be told here."
NO_PLACES = (
    "The messages are those of the protocol, and the models were made of the sums that they opened. In which order "
    "clients were drawn follows from seeds, which the operator has: so who was to be with whom is not known."
)
NO_COHORTS = (
    "The messages are those of the protocol, and the models were made of the sums that they opened. A method recorded "
    "draws, which a sealed view does not hold: whether cohorts are as it recorded them is not known."
)
GOES_BACK = (
    "The messages are those of the protocol, and the models were made of the sums that they opened. The plan goes back "
    "to draws that were given up before: no method of fuaudit does that, and what such a plan holds is as told."
)
NO_SUMS = "No sum was opened in any round: there is nothing to make again."
OF_NO_ROWS = (
    "The opened sums are taken as they are: a sealed view holds no rows and no secrets of clients, with which they "
    "could be made again. The operator and the clients have these."
)
NOT_EXPORTED = f"What lies in {MODEL} is not the last stored model."
NOT_NAMED = f"Parameters in {MODEL} have other names, shapes or places than the config's model gives them."
NOT_SAID = "The ledger tells of its rounds what the stages of its config do not."
SAMPLES_GONE = (
    "Every client who is left has samples left: requests erased samples, and whose they were a view does not tell. Who "
    "has none left sends nothing of data and hides nobody: a sum of hers with one other client is the other's row, and "
    "one with two others tells each of them the other's where a rule publishes it."
)
BATCHES_TOLD = (
    "Two clients at least of every opened sum drew samples, and three of one that alone was opened or that a rule can "
    "publish: batches of the config's law can be empty, and whose were a view does not tell. Who drew none sends "
    "nothing of data, but for noise, and hides nobody: a sum of hers with one other client is the other's row, and two "
    "others have each other's."
)
CONTEXTS_TOLD = (
    "Contexts of requests that name samples are those of these requests: they are hashes over places of samples, which "
    "a view does not hold. Under another one messages of another child of the same run would fit."
)
BEGINNING = (
    "The model before round {} is taken as it is stored, and with it what the server remembers where rounds were kept: "
    "they follow from seeds, or from rounds of the parent."
)
NOT_DRAWN = (
    "Clients who contributed to a lot are taken for all who were drawn for its round, and rounds without messages for "
    "rounds without clients: a sealed view holds no seeds. The operator has them."
)
AS_COMMITTED = (
    "Who signs is who the commitment of the ledger covers: provenance compares it with --commitment, and its parties "
    "with --roster."
)
EQUAL_NAMES = (
    "Where versions, processor and plugins of two platforms are equal, both make equal bits of what the server does, "
    "or bits that differ by rounding alone; without rows no canary can be compared."
)
ROUNDED = (
    "the difference is as small as rounding: another machine of the same name may have made the models, and without "
    "rows no canary can be compared"
)
AS_IT_RAN = (
    "The transcript was written while the run was made: whoever has the secrets of all parties can write another one "
    "afterwards, of another suite too."
)
BEHIND = (
    "The transcript of rounds {first} to {last}, which the head given by --ledger-head does not hold, was written "
    "while they were executed: whoever has the secrets of all parties can write another one afterwards."
)
UNPLAYED = (
    "Of {} that a lot gives no message is there: that clients sent nothing for them, or a row that is not finite, is "
    "the word of the operator, who can have opened their sums and recorded nothing."
)
ALONE = (
    "Where one sum of two clients is all that was opened of a round, as in {} (the first is round {}, with clients "
    "{}), these clients keep to themselves what the model tells them: each has her own row, and so the other's."
)
NOISE_ALONE = (
    "Noise is enough to hide a row: in {} that were opened (the first in round {}, of clients {}) one client at most "
    "has samples or drew some, and what the others sent is noise alone. An account tells how much that hides, and "
    "exposure takes it for nothing."
)
SOME = 10
"""How many things that are wrong a finding names."""


@dataclass(frozen=True)
class Transcript:
    """Checks every message of the run's own rounds, and makes their sums again."""

    evidence: ClassVar[frozenset[str]] = frozenset({"transcript"})
    uses: ClassVar[frozenset[str]] = frozenset({"data", "parent", "ledger_head"})
    knows_sealed: ClassVar[bool] = True
    recomputes: ClassVar[str] = (
        "every sum from the messages of its buffer, and every model from the sums; of a whole run, with the rows of "
        "training at hand, every sum from the rows of its clients too, and of a sealed view none"
    )

    def examine(self, case: Case) -> Finding:
        """FAIL where a message, a sum or a model is wrong; NOT_APPLICABLE where nothing is there.

        INCONCLUSIVE without rows, but for a sealed view, whose PASS says what was not looked at; and where this machine
        could not make a sum again: a process or a library broke off.
        """
        run, anchor = case.run, head(case)
        if anchor.verdict is Verdict.FAIL and (suite_of(run.ledger) is None or run.pruned):
            return Finding(NAME, Subject.RUN, Verdict.FAIL, anchor.text, SHOWS_NOT)
        if suite_of(run.ledger) is None:
            return Finding(NAME, Subject.RUN, Verdict.NOT_APPLICABLE, NO_SUITE, SHOWS_NOT)
        try:
            known = known_of(run)
        except LibraryError as error:
            return Finding(NAME, Subject.RUN, Verdict.INCONCLUSIVE, UNMADE, SHOWS_NOT, details=(str(error),))
        except UsageError as error:
            shows = f"The ledger names a suite that cannot have made the sums of such a run: {error.args[0]}"
            return Finding(NAME, Subject.RUN, Verdict.FAIL, shows, SHOWS_NOT)
        look = _looked(case, anchor, known)
        return next(filter(None, (step(look) for step in STEPS)))


@dataclass(frozen=True)
class _Look:
    """What an audit has looked at.

    Attributes:
        case: what it was given.
        anchor: what a head from outside shows.
        known: what is known of the sums without their messages.
        checked: what the messages show.
        missing: why the sums cannot be made again from rows; empty where they can.
        made: the sums of the rows; None where nothing made them.
        broke: what broke while they were made.
    """

    case: Case
    anchor: CheckResult
    known: Known
    checked: Checked
    missing: str = ""
    made: Again | None = None
    broke: Exception | None = None

    @property
    def run(self) -> Run:
        """The run."""
        return self.case.run

    @cached_property
    def half(self) -> ServerHalf:
        """The server's half, of rounds whose sums were made again."""
        return served(self.run, self.checked)

    @cached_property
    def others(self) -> list[Wrong]:
        """Sums that are not those of the rows; none where no rows made them."""
        return [] if self.made is None else [*other_sums(self.checked.opened, self.made, self.checked.unmade_at)]

    def found(self, verdict: Verdict, shows: str, details: Sequence[str] = (), *trusted: str) -> Finding:
        """A finding about what was looked at."""
        return Finding(
            NAME,
            Subject.RUN,
            verdict,
            shows,
            " ".join(self.checked.cannot),
            _figures(self.run, self.checked, self.made),
            assumptions=trusted,
            details=tuple(details),
        )


def _looked(case: Case, anchor: CheckResult, known: Known) -> _Look:
    """Make the sums again from rows, where they are at hand, and look at the messages.

    Whatever breaks with the rows is kept for later: more evidence must not hide what the messages show without it.
    """
    if missing := "It was pruned." if case.run.pruned else not_at_hand(case):
        return _Look(case, anchor, known, _checked(case.run, known), missing)
    try:
        made = again(case)
    except Exception as error:
        return _Look(case, anchor, known, _checked(case.run, known), broke=error)
    known = replace(known, columns=made.columns.get)
    return _Look(case, anchor, known, _checked(case.run, known), made=made)


# what is found, in this order: a FAIL that needs no rows comes before everything that does


def _wrong_messages(look: _Look) -> Finding | None:
    """Messages, or what ledger and plan say of them, that are not those of the protocol."""
    run, checked, anchor = look.run, look.checked, look.anchor
    lost = [Wrong("head", anchor.text)] * (anchor.verdict is Verdict.FAIL)
    counts = () if checked.unread else (*wrong_counts(run, checked),)
    counts += (*wrong_opened(run, checked), *wrong_silence(look.known, checked), *wrong_failures(run, checked))
    rules = [*wrong_rule(run), *wrong_draws(run)]
    rules += [] if RECORDED in run.files else [*wrong_cohorts(run, runs_above(look.case))]
    rules += [*wrong_beginning(run)]
    wrong = [*lost, *checked.wrong, *counts, *rules, *telling_differences(look.case)]
    return look.found(Verdict.FAIL, anchor.text if lost else WRONG, _told(wrong)) if wrong else None


def _without_messages(look: _Look) -> Finding | None:
    return look.found(Verdict.NOT_APPLICABLE, GONE) if look.checked.unread else None


def _opened_for_nothing(look: _Look) -> Finding | None:
    return look.found(Verdict.FAIL, WRONG, _told(look.half.opened_for_nothing)) if look.half.failed else None


def _wrong_view(look: _Look) -> Finding | None:
    """What a sealed view says that cannot be."""
    said = _said_wrong(look.run, look.checked) if look.run.sealed else None
    return None if said is None else look.found(Verdict.FAIL, said[0], _told(said[1]))


def _other_models(look: _Look) -> Finding | None:
    """Models that are not made of the opened sums."""
    if not look.half.others:
        return None
    elsewhere, trusted = _platforms(look.case, look.half)
    verdict = Verdict.INCONCLUSIVE if elsewhere else Verdict.FAIL
    return look.found(verdict, NOT_OF_SUMS, [*elsewhere, *_told([*look.half.wrong, *look.others])], *trusted)


def _other_rows(look: _Look) -> Finding | None:
    """Sums, or models, that are not those of the rows."""
    if not look.others:
        return None
    shows = "Sums that were opened, or models that were made of them, are not those of the clients' rows."
    if elsewhere := look.case.rerun.elsewhere(look.run):
        return look.found(Verdict.INCONCLUSIVE, shows, [*elsewhere, *_told(look.others)])
    return look.found(Verdict.FAIL, shows, _told(look.others), EQUAL_BITS)


def _not_carried_out(look: _Look) -> Finding | None:
    """Nothing is wrong so far: what broke while rows were added up decides."""
    if look.broke is not None:
        raise look.broke
    return None


def _unmade(look: _Look) -> Finding | None:
    return look.found(Verdict.INCONCLUSIVE, UNMADE, _broken_off(look.checked)) if look.checked.unmade else None


def _view(look: _Look) -> Finding | None:
    return _of_view(look) if look.run.sealed else None


def _without_rows(look: _Look) -> Finding | None:
    if look.made is not None:
        return None
    shows = NO_ROWS if look.half.missing else SERVED_ALONE
    return look.found(Verdict.INCONCLUSIVE, shows, [*filter(None, [look.half.missing]), look.missing])


def _open(look: _Look) -> Finding | None:
    why = _left_open(look.case, look.checked, look.anchor)
    return look.found(Verdict.INCONCLUSIVE, why) if why else None


def _passed(look: _Look) -> Finding:
    checked = look.checked
    return look.found(
        Verdict.PASS,
        f"{counted(checked.messages, 'message')} are those of the protocol. All {len(checked.opened)} sums that "
        "they opened are those of the clients' rows, and the models were made of them.",
        [*filter(None, [look.half.missing]), *_noted(checked)],
        *_on_when(look.case),
        *_on_unplayed(look.run, checked),
        *covered_by(look.case),
    )


STEPS: Sequence[Callable[[_Look], Finding | None]] = (
    _wrong_messages, _without_messages, _opened_for_nothing, _wrong_view, _other_models, _other_rows, _not_carried_out,
    _unmade, _view, _without_rows, _open, _passed,
)  # fmt: skip
"""What is asked one after the other; the first that finds something is the answer."""


def _left_open(case: Case, checked: Checked, anchor: CheckResult) -> str:
    """Why nothing passes though nothing is wrong, with rows or without; empty where it may."""
    if why := uncovered(case):
        return why
    if anchor.verdict is not Verdict.PASS:
        return anchor.text
    return "" if checked.opened else NO_SUMS


def _said_wrong(run: Run, checked: Checked) -> tuple[str, Sequence[Wrong]] | None:
    """What a sealed view says otherwise than it can, as a sentence, and where; None where all of it can be.

    No machine matters for that: it is a FAIL also where models were made on another one.
    """
    if not is_exported(run):
        return NOT_EXPORTED, ()
    if exported(run).wrong:
        return NOT_NAMED, ()
    if wrong := [*wrong_events(run), *wrong_told(run, checked)]:
        return NOT_SAID, wrong
    if wrong := [*left_out(run, checked)]:
        return WRONG, wrong
    return None


def _of_view(look: _Look) -> Finding:
    """What a sealed view shows whose messages are those of the protocol, and whose models are those of its sums."""
    run, checked = look.run, look.checked
    if look.half.missing:
        return look.found(Verdict.INCONCLUSIVE, NO_HALF, [look.half.missing])
    if not tells_buffers(run):
        return look.found(Verdict.INCONCLUSIVE, NO_PLACES)
    if run.segments.goes_back:
        return look.found(Verdict.INCONCLUSIVE, GOES_BACK)
    if others := [*wrong_cohorts(run, runs_above(look.case))]:  # elsewhere that is a FAIL
        return look.found(Verdict.INCONCLUSIVE, NO_COHORTS, _told(others))
    if why := _left_open(look.case, checked, look.anchor):
        return look.found(Verdict.INCONCLUSIVE, why)
    rounds = [event["round"] for event in told_rounds(run)]
    return look.found(
        Verdict.PASS,
        f"{counted(checked.messages, 'message')} are those of the protocol, and the models of "
        f"{counted(len(rounds), 'round')} were made of the {counted(len(checked.opened), 'sum')} that "
        "they opened. Whether these are sums of the clients' rows, a sealed view does not tell.",
        [*_noted(checked)],
        *_on_when(look.case),
        *_on_unplayed(run, checked),
        *covered_by(look.case),
        OF_NO_ROWS,
        BEGINNING.format(rounds[0]),
        NOT_DRAWN,
        AS_COMMITTED,
        FIGURES_TOLD,
        *[COLUMNS_TOLD] * run.exchange.agrees,
        *sizes_told(run),
        *filter(None, [exported(run).trusts]),
        *[] if always_draws(run.law) else [BATCHES_TOLD],
        *[SAMPLES_GONE, CONTEXTS_TOLD] * any(request.samples for request in run.requests),
    )


def _noted(checked: Checked) -> list[str]:
    """What a PASS tells beside: wrong shares that no sum needed, and buffers that were drawn and not opened."""
    signed = "signed a share that was not dealt to it; the sum is made without it"
    liars = [f"round {at}, buffer {buffer}: client {client} {signed}" for at, buffer, client in checked.liars]
    told = "were drawn together, and nothing of them was opened"
    return _first(liars) + _first([f"round {at}: clients {members} {told}" for at, members in checked.unplayed])


def _broken_off(checked: Checked) -> list[str]:
    """A line for each of the first buffers whose sum was not made again, with what to do."""
    return _first([f"round {number}, buffer {buffer}: {why}" for number, buffer, why in checked.unmade])


def _first(lines: Sequence[str]) -> list[str]:
    """The first lines, and how many more there are."""
    return [*lines[:SOME], *([f"and {len(lines) - SOME} more"] if len(lines) > SOME else [])]


def _on_unplayed(run: Run, checked: Checked) -> list[str]:
    """What a PASS takes on trust of buffers that were drawn, and of which no message is there; and of sums alone."""
    found = [UNPLAYED.format(counted(len(checked.unplayed), "buffer"))] if checked.unplayed else []
    if alone := left_alone(run, checked):
        number, members = alone[0]
        found.append(ALONE.format(counted(len(alone), "round"), number, ", ".join(map(str, members))))
    if noisy := noise_alone(run, checked):
        number, members = noisy[0]
        found.append(NOISE_ALONE.format(counted(len(noisy), "sum"), number, ", ".join(map(str, members))))
    return found


def _platforms(case: Case, half: ServerHalf) -> tuple[Sequence[str], tuple[str, ...]]:
    """Why bits of the server's half need not agree; empty where they must, and what that assumes."""
    if case.dataset is not None:
        return case.rerun.elsewhere(case.run), (EQUAL_BITS,)
    elsewhere = [*named_otherwise(case.run)]
    return elsewhere or ([ROUNDED] if half.rounding else []), (EQUAL_NAMES,)


def _checked(run: Run, known: Known) -> Checked:
    """What the transcript shows to whoever knows what was committed to."""
    return recheck(run.chain, lambda number: body_of(run.path, number), known)


def _on_when(case: Case) -> list[str]:
    """What a PASS takes on trust of when the transcript was written."""
    rounds, held = [event["round"] for event in told_rounds(case.run)], held_rounds(case)
    if not held:
        return [AS_IT_RAN]
    behind = [BEHIND.format(first=rounds[held], last=rounds[-1])] if held < len(rounds) else []
    return [KEPT_IN_TIME, *behind]


def _told(wrong: Sequence[Wrong]) -> list[str]:
    """A line for each of the first."""
    return _first([f"{_where(one)}{one.kind}: {one.sentence}" for one in wrong])


def _where(one: Wrong) -> str:
    if one.round is None:
        return ""
    return f"round {one.round}, " + ("" if one.buffer is None else f"buffer {one.buffer}, ")


def _figures(run: Run, checked: Checked, made: Again | None) -> tuple[Figure, ...]:
    again_ = "compared with the sums of the rows, which were computed anew" if made else "as their messages tell"
    return (
        Figure("messages", "Messages", checked.messages, "counted; each line holds the digest of the one before"),
        Figure("rounds", "Rounds", len(told_rounds(run)), "those that the run executed itself"),
        Figure("sums", "Sums that were opened", len(checked.opened), f"made again from their messages; {again_}"),
        Figure("discarded", "Buffers that were tried and not opened", len(checked.discarded), "as their messages tell"),
        Figure("unplayed", "Buffers that were drawn and not opened", len(checked.unplayed), "by lots and messages"),
    )
