"""What a report is made from: the stored findings, checked for their shape and made safe to show.

Names, paths and sentences come from plugins and folders that nobody vouches for. Control characters and those that
reverse the direction of text are replaced here, once; escaping is left to each format.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from fuaudit.budgets.statement import Statement
from fuaudit.errors import EvidenceError
from fuaudit.formats.files import sha256
from fuaudit.formats.forms import pretty_json
from fuaudit.formats.schema import EXACT
from fuaudit.runs.names import in_words, whom
from fuaudit.verification.claims import CLAIMS, Claim
from fuaudit.verification.figure import Figure
from fuaudit.verification.finding import Control, ResidualCopy, Subject, Verdict, require_findings

Point = tuple[float, float]
T = TypeVar("T")


@dataclass(frozen=True)
class Checked:
    """One check of the spec with its finding; see :class:`fuaudit.verification.finding.Finding`."""

    number: int
    claim: str
    role: str
    basis: tuple[str, ...]
    evidence: tuple[str, ...]
    recomputes: str
    audit: str
    subject: Subject
    verdict: Verdict
    shows: str
    shows_not: str
    figures: tuple[Figure, ...]
    detectable: str
    controls: tuple[Control, ...]
    assumptions: tuple[str, ...]
    details: tuple[str, ...]
    series: dict[str, tuple[float, ...]]
    copies: tuple[ResidualCopy, ...]
    plainly: str

    @property
    def required(self) -> bool:
        """Whether the verdict of the spec needs it."""
        return self.role == "required"


@dataclass(frozen=True)
class Ancestor:
    """A run of the lineage, youngest first."""

    name: str
    digest: str
    kind: str
    unlearner: str
    request: str


@dataclass(frozen=True)
class Unlearner:
    """The method as the run records it; ``guarantee`` is its own claim."""

    name: str
    kind: str
    guarantee: str
    cite: str
    origin: str
    options: str


@dataclass(frozen=True)
class Done:
    """What was done for a request: its number, method, kind and first round; None where its run is not at hand.

    ``remains`` says that what a prune left of that run tells it, and nothing else.
    """

    request: int
    method: str | None
    kind: str | None
    first_round: int | None
    remains: bool


@dataclass(frozen=True)
class Asked:
    """What the auditor has in hand: who asked, what was done for it, and the words for others whom the lineage names.

    ``requests`` is the number of those of the lineage; ``done`` is empty where none of them is this one.
    """

    whom: str
    requests: int
    done: tuple[Done, ...]
    others: tuple[str, ...]


@dataclass(frozen=True)
class PartReleased:
    """What one part of the rounds released: its epsilon as text, None for no guarantee, and what it is about."""

    part: str
    under: str
    rounds: int
    epsilon: str | None
    delta: str
    reason: str
    meaning: str
    statement: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Left:
    """What left a run that nothing limits: of how many rounds, 0 where it is of none in particular."""

    run: str
    where: str
    what: str
    given_to: str
    rounds: int


@dataclass(frozen=True)
class Released:
    """What rounds of the lineage released, as their ledgers tell; empty where none told of a mechanism."""

    covered: str = ""
    reasons: tuple[str, ...] = ()
    parts: tuple[PartReleased, ...] = ()
    left: tuple[Left, ...] = ()


@dataclass(frozen=True)
class Summing:
    """The sums of a run, as :class:`fuaudit.runs.sums.Sums` tells them.

    ``alike`` has how many rounds have equal buffers, and of these size, from how many rows on they open, how many of
    clients with samples are among these at least, and how many there are. ``untold`` are rounds of which nothing tells
    how many took part. ``exposed`` holds a number of colluders, and with which chance a row is open to a server with
    them: in the worst round, and in the run. ``meetings`` says how often two clients meet on average, and with which
    chance they ever do. ``holds`` are parts of the run that tell of rows.
    ``empty`` is how many clients of a round are without samples in it at most, and ``all_told`` whether the run tells
    of all of them.
    """

    suite: str
    alike: tuple[tuple[int, tuple[tuple[int, int, int, int], ...]], ...]
    untold: int
    feared: int
    empty: int
    exposed: tuple[tuple[int, float, float], ...]
    meetings: tuple[float, float]
    parties: tuple[tuple[str, str, int], ...]
    holds: tuple[str, ...] = ()
    all_told: bool = True

    @property
    def rounds(self) -> int:
        """How many rounds are told of."""
        return sum(rounds for rounds, _ in self.alike)

    @property
    def places(self) -> tuple[int, ...]:
        """The participations of rounds in which somebody took part, each number once, ascending."""
        return tuple(sorted({sum(size * number for size, _, _, number in some) for _, some in self.alike if some}))

    @property
    def buffers(self) -> tuple[tuple[int, int, int], ...]:
        """The kinds of buffers of all rounds: size, from how many rows on it opens, and how many with samples."""
        return tuple(sorted({kind[:3] for _, some in self.alike for kind in some}))


@dataclass(frozen=True)
class Contents:
    """A document of findings. ``digest`` is the SHA-256 of its stored form, the bytes of its file.

    ``origin`` says where the spec comes from; ``served`` is the SHA-256 of the file of the model in use, and
    ``same`` whether it is the run's (None where that could not be told). ``standing`` says which verification of the
    run it is, by the log beside it: that is no part of the findings, which are the same whenever they are repeated.
    ``released`` is None in findings of before there was such an account.
    """

    digest: str
    run: str
    key: str
    verdict: Verdict
    reason: str
    spec: str
    title: str
    spec_digest: str
    claim: Claim
    checks: tuple[Checked, ...]
    out_of_scope: tuple[str, ...]
    lineage: tuple[Ancestor, ...]
    unlearner: Unlearner | None
    request: str
    first_round: int | None
    engine: str
    device: str
    run_versions: dict[str, str]
    audit_versions: dict[str, str]
    accuracy: tuple[Point, ...]
    parent_accuracy: tuple[Point, ...]
    cohorts: tuple[tuple[int, ...], ...] = ()
    uploads: tuple[int, ...] = ()
    own_accuracy: tuple[Point, ...] = ()
    traffic: dict[str, float] = field(default_factory=dict)
    round: str = ""
    clients: tuple[int, ...] = ()
    edited_by: str = ""
    adversaries: tuple[str, ...] = ()
    fears: tuple[str, ...] = ()
    meant: tuple[str, ...] = ()
    whom: str = ""
    arguments: tuple[str, ...] = ()
    error_rates: dict[str, float | None] = field(default_factory=dict)
    origin: str = ""
    rests_on: tuple[str, ...] = ()
    model: str = ""
    served: str = ""
    same: bool | None = None
    asked: Asked | None = None
    released: Released | None = None
    sums: Summing | None = None
    standing: str = ""

    @property
    def name(self) -> str:
        """The folder of the run, without those above it."""
        return self.lineage[0].name if self.lineage else "RUN"

    def giving(self, evidence: str) -> Checked | None:
        """The first check of which a PASS gives evidence of this kind."""
        return next((check for check in self.checks if evidence in check.evidence), None)

    def count(self, verdict: Verdict, subject: Subject | None = None) -> int:
        """How many checks came out so."""
        return sum(c.verdict is verdict and subject in (None, c.subject) for c in self.checks)


def stored_form(document: object) -> bytes:
    """The bytes of the file of findings for a document; EvidenceError where it has none."""
    try:
        return pretty_json(document)
    except (TypeError, ValueError, RecursionError) as error:
        raise EvidenceError(f"these are no findings: {error}") from None


def _require_consistent(document: dict[str, Any]) -> None:
    """Raises ValueError where a PASS stands over checks of which it cannot follow."""
    rows = [(row["role"], Verdict(row["finding"]["verdict"])) for row in map(_mapping, _sequence(document["checks"]))]
    required = {verdict for role, verdict in rows if role == "required"} - {Verdict.NOT_APPLICABLE}
    refuted = {Verdict.FAIL, Verdict.ERROR}.intersection(verdict for _, verdict in rows)
    if document["verdict"] == Verdict.PASS and (required != {Verdict.PASS} or refuted):
        raise ValueError("a PASS stands over checks that do not give one")


def read_contents(document: dict[str, Any]) -> Contents:
    """The contents of a document of findings; EvidenceError when it is not one."""
    require_findings(document, Path("the document"))
    digest = sha256(stored_form(document))
    try:
        context = _mapping(document["context"])
        spec = _mapping(document["spec"])
        _require_consistent(document)
        seen = _mapping(context.get("participation", {}))
        served = _mapping(context.get("served") or {})
        own, first = _mapping(seen.get("own_accuracy", {})), context.get("first_change")
        return Contents(
            digest=digest,
            run=_text(document["run"]),
            key=_text(document["key"]),
            verdict=Verdict(document["verdict"]),
            reason=_text(document["reason"]),
            spec=_text(spec["id"]),
            title=_text(spec["title"]),
            spec_digest=_text(spec["digest"]),
            claim=_claim(spec),
            checks=tuple(_check(i, row) for i, row in enumerate(_sequence(document["checks"]), 1)),
            out_of_scope=_lines(document["out_of_scope"]),
            lineage=tuple(_ancestor(row) for row in _sequence(document["lineage"])),
            unlearner=_unlearner(context["unlearner"]) if "unlearner" in context else None,
            request=_text(context.get("request", "")),
            first_round=int(first[0]) if first is not None else None,
            engine=_text(context.get("engine", "")),
            device=_text(context.get("device", "")),
            run_versions=_table(context.get("run_versions", {}), _text),
            audit_versions=_table(context.get("audit_versions", {}), _text),
            accuracy=_accuracy(context.get("metrics", [])),
            parent_accuracy=_accuracy(context.get("parent_metrics", [])),
            cohorts=tuple(map(_whole, _sequence(seen.get("cohorts", [])))),
            uploads=_sums(seen.get("uploads", [])),
            own_accuracy=_of_clients(own),
            traffic=_sizes(context.get("traffic", {})),
            round=_text(context.get("round", "")),
            clients=_whole(sorted(map(int, own))),
            edited_by=_text(context.get("edited_by", "")),
            adversaries=_lines(context.get("adversaries", [])),
            fears=_lines(context.get("fears", [])),
            meant=tuple(_text(in_words(_mapping(row))) for row in _sequence(context.get("to_forget", []))),
            whom=_text(", ".join(whom(_mapping(row)) for row in _sequence(context.get("to_forget", [])))),
            arguments=_lines(context.get("arguments", [])),
            error_rates=_table(context.get("error_rates", {}), lambda rate: None if rate is None else float(rate)),
            origin=_text(spec.get("origin", "")),
            rests_on=_lines(document.get("rests_on", [])),
            model=_text(context.get("model", "")),
            served=_text(served.get("sha256", "")),
            asked=_asked(context["asked"]) if "asked" in context else None,
            released=_released(context["released"]) if "released" in context else None,
            sums=_summing(context["sums"]) if "sums" in context else None,
            same=None if served.get("same") is None else _truth(served["same"]),
        )
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise EvidenceError(f"these are no findings: {type(error).__name__} {error}") from None


def _refuse(what: str) -> NoReturn:
    raise ValueError(f"unexpected {what}")


def _shown(character: str) -> str:
    """The character, or one that stands for those that hide, break or turn text."""
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp") and character != "\n"
    return "\ufffd" if hidden or ord(character) & 0xFFFE == 0xFFFE else character


def _text(value: object) -> str:
    if not isinstance(value, str):
        _refuse(type(value).__name__)
    return "".join(map(_shown, value.replace("\r\n", "\n").replace("\t", " ")))


def _mapping(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        _refuse(type(value).__name__)
    return value


def _sequence(value: object) -> list[Any]:
    if not isinstance(value, list | tuple):
        _refuse(type(value).__name__)
    return list(value)


def _lines(value: object) -> tuple[str, ...]:
    return tuple(map(_text, _sequence(value)))


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        _refuse(type(value).__name__)
    return value


def _table(value: object, convert: Callable[[Any], T]) -> dict[str, T]:
    return {_text(key): convert(_mapping(value)[key]) for key in sorted(_mapping(value))}


def _figure(row: Any) -> Figure:
    value, interval, rate = row["value"], row["interval"], row["error_rate"]
    return Figure(
        key=_text(row["key"]),
        label=_text(row["label"]),
        value=value if isinstance(value, bool | int | float) or value is None else _text(value),
        how=_text(row["how"]),
        unit=_text(row["unit"]),
        interval=None if interval is None else (float(interval[0]), float(interval[1])),
        error_rate=None if rate is None else float(rate),
        absent=_text(row["absent"]),
    )


def _numbers(value: object) -> tuple[float, ...]:
    return tuple(map(float, _sequence(value)))


def _whole(value: object) -> tuple[int, ...]:
    """Whole numbers that a figure can show."""
    numbers = _sequence(value)
    if any(type(n) is not int or not 0 <= n < EXACT for n in numbers):
        _refuse("number")
    return tuple(numbers)


def _sizes(value: object) -> dict[str, float]:
    """Sizes by their names; without those that are not known."""
    known = {_text(name): size for name, size in _mapping(value).items() if size is not None}
    if any(type(size) not in (int, float) or not 0 <= size < EXACT for size in known.values()):
        _refuse("size")
    return known


def _sums(value: object) -> tuple[int, ...]:
    """Whole numbers that never fall."""
    numbers = _whole(value)
    if list(numbers) != sorted(numbers):
        _refuse("sums that fall")
    return numbers


def _of_clients(table: dict[str, Any]) -> tuple[Point, ...]:
    """Pairs of client and accuracy, by client; without those that have none."""
    found = tuple(sorted((float(c), float(a)) for c, a in table.items() if a is not None))
    if any(not 0 <= share <= 1 for _, share in found):
        _refuse("accuracy")
    return found


def _check(number: int, row: Any) -> Checked:
    finding = _mapping(row["finding"])
    if row["role"] not in ("required", "supporting"):
        _refuse("role")
    return Checked(
        number=number,
        claim=_text(row["claim"]),
        role=_text(row["role"]),
        basis=_lines(row["basis"]),
        evidence=_lines(row["evidence"]),
        recomputes=_text(row["recomputes"]),
        audit=_text(finding["audit"]),
        subject=Subject(finding["subject"]),
        verdict=Verdict(finding["verdict"]),
        shows=_text(finding["shows"]),
        shows_not=_text(finding["shows_not"]),
        figures=tuple(map(_figure, _sequence(finding["figures"]))),
        detectable=_text(finding["detectable"]),
        controls=tuple(
            Control(*(_text(c[k]) for k in ("name", "expected", "observed"))) for c in _sequence(finding["controls"])
        ),
        assumptions=_lines(finding["assumptions"]),
        details=_lines(finding["details"]),
        series=_table(finding["series"], _numbers),
        copies=tuple(
            ResidualCopy(_text(c["place"]), _text(c["why"]), _truth(c["holds"])) for c in _sequence(finding["copies"])
        ),
        plainly=_text(finding["plainly"]),
    )


def _claim(spec: dict[str, Any]) -> Claim:
    """What was asked for: fuaudit's own by its word, another as it was told, in the name of whoever defines it."""
    asks = _text(spec["asks"])
    if asks in CLAIMS:
        return CLAIMS[asks]
    told = _mapping(spec["claim"])
    name, shows, question, of = (_text(told[word]) for word in ("name", "shows", "question", "of"))
    return Claim(asks, name, frozenset(), False, shows, question, of or "nobody who is named")


def _ancestor(row: Any) -> Ancestor:
    words = (_text(row.get(word, "")) for word in ("name", "digest", "kind", "unlearner", "request"))
    return Ancestor(*words)


def _asked(row: object) -> Asked:
    row = _mapping(row)
    mine, others = (list(map(_mapping, _sequence(row[name]))) for name in ("to_forget", "others"))
    (requests,) = _whole([row["requests"]])
    names = [other["name"] for other in others if other["name"] is not None]
    numbers = [f"client {other['client']}" for other in others if "sample" not in other]
    return Asked(
        _text(", ".join(map(whom, mine))),
        requests,
        tuple(map(_done, _sequence(row["done"]))),
        tuple(dict.fromkeys(map(_text, [*map(whom, others), *names, *numbers]))),
    )


def _released(row: object) -> Released:
    if row is None:
        return Released()
    row = _mapping(row)
    return Released(
        _text(row["covered"]),
        _lines(row["reasons"]),
        tuple(map(_part_released, _sequence(row["accounts"]))),
        tuple(
            _left(name, left)
            for name, rows in sorted(_mapping(row["without_noise"]).items())
            for left in _sequence(rows)
        ),
    )


def _summing(row: object) -> Summing:
    row = _mapping(row)
    untold, feared, empty = _whole([row["rounds_untold"], row["feared"], row["without_samples"]])
    alike = tuple(map(_alike, _sequence(row["rounds_alike"])))
    meetings = _mapping(row["meetings"])
    mean, ever = _numbers([meetings["on_average"], meetings["ever"]])
    if not any(some for _, some in alike) or not 0 <= mean < EXACT:
        _refuse("buffers")
    return Summing(
        "" if row["suite"] is None else _text(row["suite"]),
        alike,
        untold,
        feared,
        empty,
        tuple(map(_exposed, _sequence(row["exposed"]))),
        (mean, _chances([ever])[0]),
        tuple(map(_party, _sequence(row["parties"]))),
        _lines(row["holds"]),
        row.get("without_samples_told", True) is True,
    )


def _alike(row: object) -> tuple[int, tuple[tuple[int, int, int, int], ...]]:
    row = _mapping(row)
    (rounds,) = _whole([row["rounds"]])
    return rounds, tuple(map(_kind, _sequence(row["buffers"])))


def _kind(row: object) -> tuple[int, int, int, int]:
    row = _mapping(row)
    size, few, trained, number = _whole([row[word] for word in ("size", "opens_from", "with_samples", "number")])
    if not size or not number:
        _refuse("buffers")
    return size, few, trained, number


def _exposed(row: object) -> tuple[int, float, float]:
    row = _mapping(row)
    (colluders,), (a_round, run) = _whole([row["colluders"]]), _chances([row["in_the_worst_round"], row["in_the_run"]])
    return colluders, a_round, run


def _party(row: object) -> tuple[str, str, int]:
    row = _mapping(row)
    party, to = row["party"], row["to"]
    (known,) = _whole([row["bytes"]])
    return _text(party), _text(to), known


def _chances(values: object) -> tuple[float, ...]:
    """Numbers from 0 to 1."""
    numbers = _numbers(values)
    if any(not 0 <= number <= 1 for number in numbers):
        _refuse("chance")
    return numbers


def _part_released(row: object) -> PartReleased:
    row = _mapping(row)
    part, under, delta, reason, meant = (_text(row[name]) for name in ("part", "under", "delta", "reason", "meaning"))
    (rounds,), epsilon = _whole([row["rounds"]]), row["epsilon"]
    about = _mapping(row["statement"])
    # files have names in alphabetical order; a reader gets them in that of the statement
    said = tuple((_text(name), _text(about[name])) for name in sorted(about, key=lambda name: (_place(name), name)))
    return PartReleased(part, under, rounds, None if epsilon is None else _text(epsilon), delta, reason, meant, said)


STATED = tuple(field.name.replace("_", " ") for field in fields(Statement))


def _place(name: str) -> int:
    """Where a sentence stands in a statement; what its author named himself comes last."""
    return STATED.index(name) if name in STATED else len(STATED)


def _left(name: str, row: object) -> Left:
    row = _mapping(row)
    (rounds,) = _whole([row["rounds"]])
    return Left(_text(name), _text(row["where"]), _text(row["what"]), _text(row["given_to"]), rounds)


def _done(row: object) -> Done:
    row = _mapping(row)
    use, kind, first = row.get("use"), row.get("kind"), row.get("first_change")
    (number,) = _whole([row["request"]])
    return Done(
        number,
        None if use is None else _text(use),
        None if kind is None else _text(kind),
        None if first is None else int(first[0]),
        row.get("remains") is True,
    )


def _unlearner(row: object) -> Unlearner:
    row = _mapping(row)
    options = ", ".join(f"{_text(k)} = {_text(str(v))}" for k, v in sorted(_mapping(row.get("options", {})).items()))
    name, kind, guarantee, cite = (_text(row.get(word, "")) for word in ("use", "kind", "guarantee", "cite"))
    origin = f"{_text(row.get('distribution', ''))} {_text(row.get('version', ''))}".strip()
    return Unlearner(name, kind, guarantee, cite, origin, options)


def _accuracy(rows: object) -> tuple[Point, ...]:
    """Pairs of round and test accuracy, where a run records them."""
    keys = ("round", "test_accuracy")
    found = [tuple(row.get(key) for key in keys) for row in map(_mapping, _sequence(rows))]
    return tuple((float(r), float(a)) for r, a in found if isinstance(r, int | float) and isinstance(a, int | float))
