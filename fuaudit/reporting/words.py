"""The sentences of a report. What was seen is said; what follows from it in law is not.

No sentence here draws such a conclusion: a test reads them for the words that would.
"""

from __future__ import annotations

import re

from fuaudit.draws import END
from fuaudit.reporting.contents import Checked, Contents, Done, Left, PartReleased
from fuaudit.statistics.rounding import down, rate_up, up
from fuaudit.text import counted
from fuaudit.verification.figure import Figure, Value
from fuaudit.verification.finding import ResidualCopy, Subject, Verdict

MARKS = {
    Verdict.PASS: "✓",
    Verdict.FAIL: "✕",
    Verdict.INCONCLUSIVE: "?",
    Verdict.NOT_APPLICABLE: "\u2013",
    Verdict.ERROR: "!",
}
LABELS = {verdict: verdict.value.replace("_", " ").lower() for verdict in Verdict}

SUBJECTS = {Subject.ALGORITHM: "the method", Subject.RUN: "this run"}

HEADLINES = {
    Verdict.PASS: "Every required check passed, within the limits stated below.",
    Verdict.FAIL: "The evidence refutes the claim.",
    Verdict.INCONCLUSIVE: "The evidence does not decide the question.",
    Verdict.NOT_APPLICABLE: "The question does not arise for this run.",
    Verdict.ERROR: "An audit broke off: this is no result.",
}

MEANINGS = {
    Verdict.PASS: "Passed: what was asked holds, within the scope that the check states.",
    Verdict.FAIL: "Failed: it does not hold, by a counterexample or at the stated error rate.",
    Verdict.INCONCLUSIVE: "Inconclusive: evidence or power is missing. This is not a pass.",
    Verdict.NOT_APPLICABLE: "Not applicable: the question does not arise for this run. This is not a pass.",
    Verdict.ERROR: "Error: the audit itself broke. This is not a pass.",
}

ATTACKS = (
    ("i", "Attribute and membership inference"),
    ("ii", "Exfiltration"),
    ("iii", "Regurgitation of training data"),
    ("iv", "Model inversion"),
    ("v", "Reconstruction"),
)
"""Classes of EDPB Opinion 28/2024, paragraph 55. No audit here attacks a model."""

TRUST = (
    "The run folder was made by whoever operated the training. Digests do not show who that was, nor that no second "
    "history was kept."
)
DISCLAIMER = (
    "This report states what was measured and how. It draws no legal conclusion: whether a duty exists and is "
    "fulfilled is for people to judge."
)
NOT_GIVEN = "none was given: nothing compares a model in use with this run"


def number(value: Value) -> str:
    """A figure as text; what is not there is said."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def figures(check: Checked) -> list[tuple[str, str, str]]:
    """Rows of a check's figures: what, how much, and how it was obtained."""
    return [(figure.label, amount(figure), figure.how) for figure in check.figures]


def amount(figure: Figure) -> str:
    """The value of a figure as text, with its unit and its interval."""
    if figure.value is None:
        return figure.absent
    unit = f" {figure.unit}" if figure.unit else ""
    limits = "" if figure.interval is None else f" ({down(figure.interval[0], 4)} to {up(figure.interval[1], 4)})"
    return f"{_towards(figure)}{unit}{limits}"


def _towards(figure: Figure) -> str:
    """The value as text; that of a bound is rounded to the side which its label names."""
    sides = {"at least": down, "at most": up, "below": up}
    side = next((round_ for words, round_ in sides.items() if figure.label.endswith(words)), None)
    return side(figure.value, 4) if side and isinstance(figure.value, float) else number(figure.value)


def headline(contents: Contents) -> str:
    """The verdict in one sentence."""
    if _unasked(contents):
        return "Nothing was asked yet: this is a training run."
    if _of_nobody(contents):
        return "The evidence refutes that this run forgets what was asked for."
    return HEADLINES[contents.verdict]


def _unasked(contents: Contents) -> bool:
    """Whether there is no verdict because there is no request; a FAIL of a training run is one."""
    unasked = not contents.request and contents.verdict is Verdict.INCONCLUSIVE
    return unasked and contents.claim.of_request


def _of_nobody(contents: Contents) -> bool:
    """Whether a FAIL is one because no request of the lineage is the one that was asked for."""
    return contents.verdict is Verdict.FAIL and contents.asked is not None and not contents.asked.done


def _not_carried_out(contents: Contents) -> str:
    """What such a FAIL refutes, and whether anything else was refuted; answers of a check stand in its particulars."""
    failed = [check for check in contents.checks if check.verdict is Verdict.FAIL]
    answers = sum(line.startswith("FAIL: ") for check in failed for line in check.details)
    more = "No check refuted anything else" if len(failed) == answers == 1 else "More was refuted; see the checks"
    return f"No request that the run records names it, or not all of it. {more}."


def lead(contents: Contents) -> str:
    """What the verdict means here, in one or two sentences."""
    if _unasked(contents):
        passed = counted(contents.count(Verdict.PASS), "check")
        return f"{passed} of {len(contents.checks)} passed. That says how it was trained, and nothing of forgetting."
    if contents.verdict is Verdict.PASS:
        return contents.claim.said(contents.claim.shows, target(contents))
    if _of_nobody(contents):
        return f"Asked for was {_hers(contents)}. {_not_carried_out(contents)}"
    if contents.verdict is Verdict.FAIL:
        return "At least one check found a counterexample, or a difference at its stated error rate."
    if contents.verdict is Verdict.ERROR:
        return "Nothing can be concluded until the audit that broke has run to its end."
    return "This is neither a pass nor a fail, and must not be read as either."


def target(contents: Contents) -> str:
    """What was to be forgotten."""
    return contents.whom or contents.request or "the data in question"


def tallies(contents: Contents) -> list[tuple[str, str]]:
    """How the checks came out, for the method and for the run."""
    rows = []
    for subject, words in SUBJECTS.items():
        counts = [(contents.count(verdict, subject), LABELS[verdict]) for verdict in Verdict]
        found = ", ".join(f"{count} {label}" for count, label in counts if count)
        rows.append((f"Checks of {words}", found or "none"))
    return rows


TURNED = (
    "They turned rows of theirs before the commitment, which covers the turned rows. Training, erasure and receipts "
    "are about these, and whoever reads the data turns it alike."
)
"""What adversaries mean for a reader of a report."""


IN_ORDER = (
    "In this order: the clients' steps, their stages (those of Byzantine clients among them), the way to the server, "
    "the server's rule; with their options by the config."
)
"""How the parts of a round are read."""


def facts(contents: Contents) -> list[tuple[str, str]]:
    """What was audited, against what."""
    method = contents.unlearner
    meant = "; ".join(contents.meant) or contents.request or "nothing: a training run"
    rows = [("Claim examined", contents.title), ("To be forgotten", meant)]
    if method is not None:
        rows.append(("Method", f"{method.name}, {method.origin}"))
        rows.append(("The method's own claim", method.guarantee or "none"))
    if contents.adversaries:
        rows.append(("Adversaries", f"{'; '.join(contents.adversaries)}. {TURNED}"))
    if contents.round:
        rows.append(("A round", f"{contents.round}. {IN_ORDER}"))
    rows += [("To be noted", f"{text[0].upper()}{text[1:]}.") for text in contents.fears]
    return [*rows, *_identity(contents), *_traffic(contents), *tallies(contents), *_error_rates(contents)]


def _traffic(contents: Contents) -> list[tuple[str, str]]:
    """What a client sends and is sent; nothing where the run tells of none."""
    if not {"up_each", "down_each"} <= contents.traffic.keys():
        return []
    up, down, printed = (contents.traffic.get(name) for name in ("up_each", "down_each", "printed_each"))
    beside = f"; FedREP's paper counts {printed:,.0f} B" if printed is not None else ""
    told = f"a client sends {up:,.0f} B a round and is sent {down:,.0f} B, on average, in the plain form{beside}"
    return [("Traffic", f"{told}. Counted from what stages told of the rounds that this run executed.")]


def _identity(contents: Contents) -> list[tuple[str, str]]:
    """Which policy, which model, and which of how many verifications."""
    spec = f"{contents.spec}: {contents.origin or 'origin not recorded'}, SHA-256 {contents.spec_digest}"
    used = {True: "it is the model of this run", False: "it is another model", None: "it could not be compared"}
    served = f"SHA-256 of its file {contents.served}: {used[contents.same]}" if contents.served else NOT_GIVEN
    rows = [("Spec", spec), ("Model in use", served)]
    rows += [("Model of this run", f"SHA-256 of its numbers {contents.model}")] if contents.model else []
    return rows + ([("Verifications", contents.standing)] if contents.standing else [])


def _error_rates(contents: Contents) -> list[tuple[str, str]]:
    """What all checks together have spent; nothing where no check tests anything."""
    allowed, tests, bounds = (contents.error_rates.get(name) for name in ("allowed", "tests", "bounds"))
    if not tests and not bounds:
        return []
    limit = f", of {number(allowed)} that the spec allows" if allowed else ""
    again = "; every further verification has its own"
    return [
        (
            "Chance of a false alarm",
            f"at most {rate_up(tests or 0)} in this verification, all tests together{limit}{again}",
        ),
        (
            "Chance that a stated bound is wrong",
            f"at most {rate_up(bounds or 0)} in this verification, all bounds on distances and rates together{again}",
        ),
        *_of_powers(contents),
    ]


def _of_powers(contents: Contents) -> list[tuple[str, str]]:
    """What the sum of the error rates leaves out, where it is stated."""
    stated = any(f.key == "detectable_rate" and f.value is not None for c in contents.checks for f in c.figures)
    text = (
        "about one in ten verifications, whether or not they state one: its confidence is .9, approximately, and it "
        "is in neither sum above. Where a rate of 1 is only just stated it is more often too bold. Every further "
        "verification has its own, so an inconclusive one that is run again until it passes proves little"
    )
    return [("Chance that the limit of the power is wrong", text)] if stated else []


def recomputed(contents: Contents) -> list[str]:
    """What the audits worked out themselves, by those that came to a decision."""
    decided = [check for check in contents.checks if check.verdict in (Verdict.PASS, Verdict.FAIL)]
    texts = dict.fromkeys(check.recomputes or f"what the audit {check.audit!r} looks at" for check in decided)
    return [text[0].upper() + text[1:] + "." for text in texts]


def trusted(contents: Contents) -> list[str]:
    """What was taken on trust, each once."""
    return [TRUST, *dict.fromkeys(text for check in contents.checks for text in check.assumptions)]


def person(contents: Contents) -> list[tuple[str, str]]:
    """For the person concerned: questions and answers in plain words."""
    if not contents.request:
        return [
            ("What was asked?", "Nothing. This is a training run; no request to forget belongs to it."),
            ("What does this page decide?", DISCLAIMER),
        ]
    return [
        (
            "What was asked?",
            f"That a trained model forget {_hers(contents)}. Such a model learns from the data of many participants, "
            "called clients, in rounds; what it learnt stays in its numbers when the data is removed.",
        ),
        ("What was done?", _steps(contents)),
        ("What did the checks find?", _found(contents)),
        ("What may still be there?", _left(contents)),
        ("What does this page decide?", DISCLAIMER),
    ]


def _hers(contents: Contents) -> str:
    """Who asked, where the auditor said so; nobody else is named then."""
    return contents.asked.whom if contents.asked else target(contents)


def _steps(contents: Contents) -> str:
    """What was done for the request that was asked for: its own story, and not that of a later one."""
    method, asked = contents.unlearner, contents.asked
    if asked is None:
        name, kind = (None, None) if method is None else (method.name, method.kind)
        return _done(name, kind, contents.first_round)
    if not asked.done:
        return "Nothing for this, by what the run records: none of its requests names all of it."
    return " ".join(_step(done, asked.requests) for done in asked.done)


def _step(done: Done, requests: int) -> str:
    """What was done for one request of a lineage."""
    own = "The run that did it is not at hand, so what it changed is not told here."
    if done.method is not None:
        own = _done(done.method, done.kind, done.first_round)
    if done.remains:
        own += " This is as the remains of a run tell it, which was pruned since."
    if requests == 1:
        return own
    begin = f"This was request {done.request} of {requests}, one after another. {own}"
    return begin if done.request == requests else f"{begin} Requests after it may have changed more."


def _done(method: str | None, kind: str | None, first: int | None) -> str:
    if kind == "editor":
        return (
            f"The finished model was changed by a method called {method!r}. It was not trained again from the "
            "remaining data."
        )
    name = f"a method called {method!r}" if method is not None else "a method"
    if first is None or first >= END.round:
        return (
            f"The operator used {name}. It changed nothing in the course of the training: the model stayed as it was."
        )
    kept = "Everything was drawn and computed anew."
    if first >= 1:
        before = f"Rounds before round {first} were kept" if first > 1 else "No whole round was kept"
        kept = f"{before}; the first change lies in round {first}."
    return (
        f"The operator used {name}. Such a method changes the record of the training; the model is then computed from "
        f"the remaining data. {kept}"
    )


def _found(contents: Contents) -> str:
    required = [check for check in contents.checks if check.required]
    count = sum(check.verdict is Verdict.PASS for check in required)
    begin = f"{contents.claim.said(contents.claim.question)} "
    alike = [check for check in contents.checks if check.verdict is contents.verdict]
    more = dict.fromkeys(check.plainly for check in alike if check.plainly)
    if contents.verdict is Verdict.PASS:
        did = f"All {len(required)} checks" if len(required) > 1 else "The one check"
        return " ".join((f"{begin}{did} that had to pass did.", *more))
    if _of_nobody(contents):
        return f"{_not_carried_out(contents)} This run gives no ground to say that the request was carried out."
    if contents.verdict is Verdict.FAIL:
        found = f"{begin}At least one check found that it is not so: {_why(contents)}"
        return " ".join((found, *more, "This run gives no ground to say that the request was carried out."))
    return (
        f"{begin}They could not decide it: {_why(contents)} Of {counted(len(required), 'check')} "
        f"that had to pass, {count} did. "
        "This page alone is no ground to say that the request was carried out, and none to say that it was not."
    )


def _why(contents: Contents) -> str:
    """The reason of the verdict, where it names nobody else who asked."""
    others = contents.asked.others if contents.asked else ()
    if any(re.search(rf"(?<!\w){re.escape(other)}(?!\w)", contents.reason) for other in others):
        return "section 1 says why, and names others."
    return contents.reason


def _left(contents: Contents) -> str:
    count = sum(copy.holds for copy in copies(contents))
    known = {0: "This audit knows of no other copy", 1: "This audit knows of one other place"}
    text = known.get(count, f"This audit knows of {count} other places")
    listed = "it is" if count == 1 else "they are"
    others = " or from that of others who asked" if contents.asked and contents.asked.others else ""
    where = "" if count == 0 else f" that may hold what was learnt from this data{others}; {listed} listed in section 6"
    return f"{text}{where}. Backups, models that were handed out and copies held by participants were not looked at."


def copies(contents: Contents) -> list[ResidualCopy]:
    """Other places that may hold the contribution, as the audits list them, each once."""
    if not contents.request:
        return []
    return list(dict.fromkeys(copy for check in contents.checks for copy in check.copies))


NOT_TOLD = "These findings are of before reports had such an account. `fuaudit budget run` makes one."
NO_EVENT = (
    "No round of this run and of its ancestors at hand told of a mechanism that limits what it lets out. So nothing "
    "here is differentially private by any account: there is no guarantee. No event does not mean private."
)
FROM_LEDGERS = (
    "Added up from what the ledgers of this run and of its ancestors tell. No check of this report judges the sum. An "
    "epsilon says nothing without the statement beside it."
)


def account(contents: Contents) -> list[str]:
    """What is said of all that rounds released: no more than a sentence where they told of nothing."""
    told = contents.released
    if told is None:
        return [NOT_TOLD]
    if not told.parts and not told.reasons:
        return [NO_EVENT]
    covered = [f"Covered: {told.covered}."] if told.covered else []
    return [FROM_LEDGERS, *covered, *(f"No guarantee: {reason}." for reason in told.reasons)]


def parts(contents: Contents) -> list[tuple[str, list[tuple[str, str]]]]:
    """Each part of the rounds that released something: its epsilon in a sentence, and what that is about."""
    return [(_epsilon(part), _about(part)) for part in (contents.released.parts if contents.released else ())]


def _epsilon(part: PartReleased) -> str:
    total = "no guarantee" if part.epsilon is None else f"epsilon {part.epsilon}"
    return f"{part.part}, {part.under}, {counted(part.rounds, 'round')}: {total} at delta {part.delta}"


def _about(part: PartReleased) -> list[tuple[str, str]]:
    why = [("reason", part.reason)] if part.reason else []
    means = [("what it means", part.meaning)] if part.epsilon is not None else []
    return [*why, *means, *part.statement]


def without_noise(contents: Contents) -> list[str]:
    """What left the runs of the lineage that no mechanism limits."""
    told = contents.released.left if contents.released else ()
    return [f"{left.run}, {_where(left)}: {left.what}; may go to: {left.given_to}" for left in told]


def _where(left: Left) -> str:
    of = counted(left.rounds, "round")
    if left.where == "rounds":
        return of
    return f"{left.where}, of {of}" if left.rounds else left.where


def undecided(contents: Contents) -> list[Checked]:
    """Checks that came to no decision."""
    return [check for check in contents.checks if check.verdict not in (Verdict.PASS, Verdict.FAIL)]
