"""What an audit is, what it declares, and the form of what it may return: checked once, where findings enter.

An audit is a frozen dataclass whose fields are its options. What it declares is read here and nowhere else, so a
word that is misspelt is refused instead of being silence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from fuaudit.declared import must_say, says
from fuaudit.errors import PluginError, nearest
from fuaudit.verification.claims import known_evidence
from fuaudit.verification.figure import Figure
from fuaudit.verification.finding import Control, Finding, ResidualCopy, Subject, Verdict

if TYPE_CHECKING:
    from fuaudit.verification.case import Case

LARGEST = 2**63
"""No whole number of a finding is beyond it, so that every one can be written, read and compared with a float."""

ARGUMENTS = {
    "data": "--data",
    "erased": "--erased",
    "parent": "--parent",
    "commitment": "--commitment",
    "request": "--client or --sample",
    "budget": "--budget",
    "spot_check": "--spot-check",
    "stopping": "--stopping",
    "cache": "--cache",
    "model": "--model",
    "before": "--before",
    "beacon": "--beacon",
    "roster": "--roster",
    "ledger_head": "--ledger-head",
    "receipts": "--receipt",
}
"""What an auditor can give beside run and spec, by the word in ``uses``, and its option. One that no audit of a spec
uses is an error: whoever gave it believes that something was compared with it."""


class Audit(Protocol):
    """Reads runs, writes findings.

    Attributes:
        evidence: the kinds of evidence of which a PASS gives the whole; see
            :mod:`fuaudit.verification.claims`. It may depend on options, as a property: an audit that may
            pass what it did not look at gives less. Empty where a PASS is no part of any claim, but a FAIL refutes.
        uses: the arguments that it looks at, words of :data:`ARGUMENTS`.
        alpha_option: the option that bounds the false alarms of its tests, which takes a share of the spec's alpha;
            "" for an audit without tests. May be left out.
        recomputes: what it works out itself where it comes to a decision, a part of a sentence. May be left out.
        knows_received: whether it judges runs with rounds that came in messages. Left out, it is not asked about them.
        knows_sealed: whether it judges sealed views. Left out, it is not asked about them.

    It may also have ``cost(case)``, a sentence about the work to come.
    """

    @property
    def evidence(self) -> frozenset[str]: ...

    uses: ClassVar[frozenset[str]]

    def examine(self, case: Case) -> Finding:
        """The finding, under the audit's registered name. Global generators and the run are left alone."""


@dataclass(frozen=True)
class AuditWords:
    """What an audit declares; see :class:`Audit`."""

    evidence: frozenset[str]
    uses: frozenset[str]
    alpha_option: str
    recomputes: str

    def alpha(self, audit: object) -> float:
        """The error rate that its tests may spend; 0 without tests."""
        return float(getattr(audit, self.alpha_option)) if self.alpha_option else 0.0


def declared(audit: object, who: str) -> AuditWords:
    """What an audit declares; ``who`` it is, for messages.

    Raises:
        PluginError: something is missing, or no word of this vocabulary; all at once.
    """
    try:
        return _declared(audit, who)
    except PluginError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(f"{who} raised where it declares: {error!r}") from error


def _declared(audit: object, who: str) -> AuditWords:
    problems = [
        f"{word} must be a frozenset of words, {what}"
        for word, what in (("evidence", "empty for none"), ("uses", "the arguments it looks at"))
        if not isinstance(must_say(audit, word), frozenset)
    ]
    evidence, uses = (must_say(audit, word) if not problems else frozenset() for word in ("evidence", "uses"))
    known = known_evidence()
    problems += [f"{word!r} is no kind of evidence. {nearest(str(word), known)}" for word in _others(evidence, known)]
    problems += [f"{word!r} is no argument. {nearest(str(word), ARGUMENTS)}" for word in _others(uses, ARGUMENTS)]
    option = says(audit, "alpha_option")
    if not isinstance(option, str) or (option and not _is_rate(getattr(audit, option, None))):
        problems.append(f"alpha_option = {option!r} names no option that is a rate in [0, 1]")
    if not _is_text(recomputes := says(audit, "recomputes")):
        problems.append("recomputes must be text")
    if problems:
        raise PluginError(
            f"{who} declares wrongly:\n  " + "\n  ".join(problems),
            "docs/plugin-guide.md tells what an audit declares.",
        )
    return AuditWords(evidence, uses, option, recomputes)


def _others(words: frozenset[Any], known: Container[str]) -> list[Any]:
    return sorted((word for word in words if word not in known), key=str)


def wrong_in(finding: object, name: str, alpha: float) -> list[str]:
    """What is wrong with the form of what an audit returned; empty for a sound finding.

    Args:
        name: the audit's registered name.
        alpha: the error rate that its tests may spend.
    """
    if type(finding) is not Finding:
        return [f"it returned {type(finding).__name__}, not a Finding"]
    return list(_wrong(finding, name, alpha))


def _wrong(finding: Finding, name: str, alpha: float) -> Iterator[str]:
    if finding.audit != name:
        yield f"the finding is in the name of {finding.audit!r}"
    if type(finding.verdict) is not Verdict or type(finding.subject) is not Subject:
        yield "verdict must be a Verdict, and subject a Subject"
    for word, said in (("shows", finding.shows), ("shows_not", finding.shows_not)):
        if not _is_text(said) or not said.strip():
            yield f"{word} must be a sentence"
    for word in ("detectable", "qualification", "plainly"):
        if not _is_text(getattr(finding, word)):
            yield f"{word} must be text"
    for word in ("assumptions", "details"):
        if not _are(getattr(finding, word), _is_text):
            yield f"{word} must be a tuple of texts"
    yield from _wrong_figures(finding.figures)
    if not _table(finding.series, lambda line: isinstance(line, list) and all(map(_is_number, line))):
        yield "series must be a dict of lists of finite numbers by name"
    if not _are(finding.controls, _is_control):
        yield "controls must be a tuple of Control(name, expected, observed), all texts"
    if not _are(finding.copies, _is_copy):
        yield "copies must be a tuple of ResidualCopy(place, why, holds)"
    for word in ("error_rate", "bounds_rate"):
        if not _is_rate(getattr(finding, word)):
            yield f"{word} must be a number in [0, 1]"
    if _is_rate(finding.error_rate) and finding.error_rate > alpha * (1 + 1e-9):
        yield f"its tests have spent an error rate of {finding.error_rate:g}, of {alpha:g} that they may"


def _is_text(value: object) -> bool:
    return type(value) is str and _is_written(value)


def _is_written(text: str) -> bool:
    """Whether a file can hold a text: half of a surrogate pair is none."""
    try:
        return bool(text.encode() or True)
    except UnicodeEncodeError:
        return False


def _is_number(value: object) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= LARGEST
    return isinstance(value, float) and isfinite(value)


def _is_of_numpy(value: object) -> bool:
    """Whether it is one number of numpy or torch, which no file holds as it is."""
    return not isinstance(value, str | float | int) and hasattr(value, "item") and not getattr(value, "shape", ())


def _wrong_figures(figures: Any) -> Iterator[str]:
    if not _are(figures, lambda figure: type(figure) is Figure):
        yield "figures must be a tuple of Figure"
        return
    for figure in figures:
        texts = (figure.key, figure.label, figure.how, figure.absent)
        if not all(map(_is_text, (*texts, figure.unit))) or not all(map(str.strip, texts)):
            yield f"the figure {figure.key!r} must have key, label and how in words"
        elif not _is_value(figure.value):
            plainer = ": write float(x)" if _is_of_numpy(figure.value) else ""
            wanted = f"a finite number of Python, a text, a truth or None, and not {type(figure.value).__name__}"
            yield f"the value of the figure {figure.key!r} must be {wanted}{plainer}"
        elif not _is_interval(figure.interval):
            yield f"the interval of the figure {figure.key!r} must be None or (low, high), finite, low <= high"
        elif figure.error_rate is not None and not _is_rate(figure.error_rate):
            yield f"the error rate of the figure {figure.key!r} must be None or a number in [0, 1]"
    for key, count in Counter(str(figure.key) for figure in figures).items():
        if count > 1:
            yield f"{count} figures have the key {key!r}"


def _is_value(value: object) -> bool:
    return value is None or isinstance(value, bool) or _is_text(value) or _is_number(value)


def _is_rate(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1


def _is_interval(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, tuple) and len(value) == 2 and all(map(_is_number, value)) and value[0] <= value[1]


def _is_control(value: object) -> bool:
    return type(value) is Control and all(map(_is_text, (value.name, value.expected, value.observed)))


def _is_copy(value: object) -> bool:
    return type(value) is ResidualCopy and _is_text(value.place) and _is_text(value.why) and type(value.holds) is bool


def _are(values: Any, sound: Any) -> bool:
    return isinstance(values, tuple) and all(map(sound, values))


def _table(values: Any, sound: Any) -> bool:
    return isinstance(values, dict) and all(map(_is_text, values)) and all(map(sound, values.values()))
