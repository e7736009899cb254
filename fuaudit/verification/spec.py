"""Specs: policy as data. What is claimed, which audits must hold, with which parameters, and whom it trusts.

A spec is frozen before results: its digest is in every finding. It names registered audits only. One that cannot show
what it asks for is refused when it is read.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from fuaudit import registry
from fuaudit.config import read_toml
from fuaudit.errors import EvidenceError, UsageError, nearest
from fuaudit.formats.files import sha256
from fuaudit.formats.forms import canonical_json
from fuaudit.options import option_values, options
from fuaudit.verification.audit import AuditWords, declared
from fuaudit.verification.claims import CLAIMS, Claim, claim_of, known_claims, lacking, shown_by

BUILT_IN = "built-in"
"""The origin of the specs that ship with fuaudit."""

_FILE = re.compile(r"[A-Za-z0-9_-]+\.toml")
_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}(/[0-9]{1,9})?")


@dataclass(frozen=True)
class Check:
    """One line of a spec: what is claimed, which audit decides it, and how it counts.

    :func:`parse_spec` puts the share of alpha among the options of the audit.

    Attributes:
        claim: what this check decides, in words.
        audit: the audit, by ``use``, and its options.
        role: "required" checks must pass; "supporting" ones can refute, but do not block.
        basis: the clauses that it is evidence for.
        share: its part of the spec's alpha, in (0, 1]; needed where the spec has one and the audit has an
            error rate.
    """

    claim: str
    audit: dict[str, Any]
    role: Literal["required", "supporting"] = "required"
    basis: tuple[str, ...] = ()
    share: float | None = None

    @cached_property
    def built(self) -> Any:
        """Its audit, with these options."""
        return registry.build("audits", self.audit)

    @cached_property
    def declared(self) -> AuditWords:
        """What its audit declares, with these options."""
        return declared(self.built, str(registry.find("audits", self.audit["use"])))


@dataclass(frozen=True)
class SpecKeys:
    """The keys of a spec as it is written, and what each holds.

    Attributes:
        id: lower-case letters, digits, ``.``, ``_`` and ``-``, then perhaps ``/`` and a number.
        asks: the claim: "exact", "bound", "run" or "sums".
        out_of_scope: sentences on what the spec does not cover.
        check: the checks, at least one.
        title: the claim in words, for reports.
        expires: the last day on which the spec is read.
        alpha: the chance that any test of any audit rejects what it should not, in (0, 1).
        trusts: the distributions beside fuaudit whose code may run; [] is fuaudit alone; left out, all, and
            they are named.
    """

    id: str
    asks: str
    out_of_scope: tuple[str, ...]
    check: tuple[dict[str, Any], ...]
    title: str = ""
    expires: date | None = None
    alpha: float | None = None
    trusts: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Spec:
    """A policy.

    Attributes:
        asks: the word of the claim; see :mod:`fuaudit.verification.claims`.
        expires: the last day on which it is read.
        out_of_scope: what it does not cover, one sentence each.
        alpha: the chance that any test of any of its audits rejects what it should not, at most: every audit that has
            an error rate takes a ``share`` of it. None for a spec whose audits set their own.
        trusts: the distributions beside fuaudit whose code may run; None for any, which are then named.
        origin: ``built-in``, or the name of the file that it was read from.
    """

    id: str
    title: str
    asks: str
    checks: tuple[Check, ...]
    expires: date | None = None
    out_of_scope: tuple[str, ...] = ()
    alpha: float | None = None
    trusts: tuple[str, ...] | None = None
    origin: str = ""

    @cached_property
    def claim(self) -> Claim:
        """What it asks for; EvidenceError where it does not trust whoever defines that."""
        with registry.trusting(self.trusts):
            return claim_of(self.asks)

    @property
    def digest(self) -> str:
        """SHA-256 over everything but its origin, every option of every audit included, defaults too.

        It is that of the audits as they are now: a program can change them after the spec was read.
        """
        plain = {name: value for name, value in asdict(self).items() if name not in ("checks", "origin")}
        checks = [asdict(check) | {"audit": _resolved(check)} for check in self.checks]
        return sha256(canonical_json(plain | self._foreign | {"checks": checks, "expires": str(self.expires)}))

    @property
    def _foreign(self) -> dict[str, Any]:
        """The claim in full where it is not fuaudit's own: whoever defines it may change it."""
        if self.asks in CLAIMS:
            return {}
        with registry.trusting(self.trusts):
            needs = {word: shown_by(word) for word in sorted(self.claim.needs)}
        return {"claim": asdict(self.claim) | {"needs": needs, "of": ""}}

    @cached_property
    def evidence(self) -> frozenset[str]:
        """The kinds of evidence that its required checks give together."""
        return frozenset(word for check in self.checks if check.role == "required" for word in check.declared.evidence)

    @cached_property
    def uses(self) -> frozenset[str]:
        """The arguments that some check of it looks at."""
        return frozenset(word for check in self.checks for word in check.declared.uses)

    @property
    def source(self) -> str:
        """Where it comes from, for sentences: built in as it is here, or whose file."""
        same = self.digest == _built_in_digests().get(_stem(self.id))
        if self.origin == BUILT_IN:
            return BUILT_IN if same else "changed from a built-in one by a program"
        # the name of a file is chosen by whoever wrote it, and must not read like a sentence of this one
        name = self.origin if _FILE.fullmatch(self.origin) else f"the file {self.origin!a}"
        return f"{name if self.origin else 'made by a program'}{', the same as the built-in one' if same else ''}"


def _resolved(check: Check) -> dict[str, Any]:
    return {**option_values(check.built), "use": check.audit["use"]}


def builtin_specs() -> dict[str, Path]:
    """The specs that ship with fuaudit, by name."""
    folder = Path(str(files("fuaudit_specs")))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


@cache
def _built_in_digests() -> dict[str, str]:
    """By name; of those that have expired too, which keep their names."""
    return {name: _parsed(read_toml(path, "spec", ""), BUILT_IN).digest for name, path in builtin_specs().items()}


def _stem(name: str) -> str:
    return name.partition("/")[0]


def read_spec(name: str | Path) -> Spec:
    """A spec from a file, or a built-in one by name.

    Raises:
        UsageError: there is no such spec, or it is not valid TOML. It has unknown keys, audits or options, or values
            of the wrong type. It has no checks. Shares of alpha are missing or too large. Its required checks do not
            give the evidence that its claim needs. It has the id of a built-in spec and is another one. It names an
            audit that it does not trust. It has expired.
        PluginError: an audit declares wrongly.
    """
    known = builtin_specs()
    path = known.get(str(name), Path(name))
    hint = f"No file is at this path, and no built-in spec has this name. {nearest(str(name), known)}"
    table = read_toml(path, "spec", hint)
    return parse_spec(table, str(path), BUILT_IN if str(name) in known else path.name)


def parse_spec(table: dict[str, Any], origin: str, source: str | None = None) -> Spec:
    """A spec from plain tables; see :func:`read_spec`. ``origin`` is for messages, ``source`` what findings name."""
    spec = _parsed(table, origin)
    if spec.expires and date.today() > spec.expires:
        raise UsageError(f"{origin} expired on {spec.expires}", "Look at the policy again, then set a new date.")
    if _stem(spec.id) in builtin_specs() and spec.digest != _built_in_digests()[_stem(spec.id)]:
        raise UsageError(
            f"{origin} calls itself {spec.id!r}, and is not the built-in spec of that name",
            "Give it an id of its own: a reader would take it for the built-in one.",
        )
    return replace(spec, origin=origin if source is None else source)


def _parsed(table: dict[str, Any], origin: str) -> Spec:
    if not table.get("check"):
        raise UsageError(f"{origin} has no checks: it would pass anything", "Add at least one [[check]].")
    written = SpecKeys(**options(SpecKeys, origin, table))
    if not _ID.fullmatch(written.id):
        raise UsageError(f"{origin}: id = {written.id!r} is not a name like 'our-policy' or 'our-policy/2'")
    if written.asks not in (known := known_claims()):
        raise UsageError(f"{origin}: asks = {written.asks!r} is not {' or '.join(map(repr, known))}")
    if not written.out_of_scope:
        raise UsageError(f"{origin}: out_of_scope must say what is not covered")
    if written.alpha is not None and not 0 < written.alpha < 1:
        raise UsageError(f"{origin}: alpha must be a number in (0, 1)")
    try:
        with registry.trusting(written.trusts):
            return _whole(written, origin)
    except EvidenceError as error:
        raise UsageError(f"{origin}: {error}") from None


def _whole(written: SpecKeys, origin: str) -> Spec:
    """The spec, with its audits built: nothing that it does not trust is imported on the way."""
    checks = []
    for number, row in enumerate(written.check, 1):
        check = Check(**options(Check, f"{origin}: check {number}", row))
        checks.append(_with_alpha(check, written.alpha, origin))
    if sum(check.share or 0.0 for check in checks) > 1 + 1e-12:
        raise UsageError(f"{origin}: the shares of alpha sum to more than 1")
    spec = Spec(
        written.id,
        written.title,
        written.asks,
        tuple(checks),
        written.expires,
        written.out_of_scope,
        written.alpha,
        written.trusts,
    )
    for word in sorted(spec.evidence):
        shown_by(word)  # imports nothing that is not trusted, and refuses what is not sound
    if missing := lacking(spec.claim.needs, spec.evidence):
        raise UsageError(
            f"{origin} asks for {spec.claim.name}, but no required check gives evidence of {'; nor of '.join(missing)}",
            "Add required checks that do, or ask for less; docs/specs.md tells which audit gives what.",
        )
    return spec


def _with_alpha(check: Check, alpha: float | None, origin: str) -> Check:
    """The check, with its share of the spec's alpha among the options of its audit where the spec has one."""
    option, name, share = check.declared.alpha_option, check.audit["use"], check.share
    if share is not None and (alpha is None or not option):
        raise UsageError(f"{origin}: {name!r} has a share, but {'no error rate' if alpha else 'the spec has no alpha'}")
    if alpha is None or not option:
        return check
    if option in check.audit:
        raise UsageError(f"{origin} has one alpha for all audits; {name!r} sets its own", "Give it a share instead.")
    if share is None or not 0 < share <= 1:
        raise UsageError(f"{origin}: {name!r} has an error rate, so it needs a share of alpha, in (0, 1]")
    return replace(check, audit=check.audit | {option: alpha * share})
