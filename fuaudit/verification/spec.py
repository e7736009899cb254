"""Specs: policy as data. Which audits must hold, with which parameters, and what they are evidence for.

A spec is frozen before results: its digest is in every finding. It names registered audits only.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from fuaudit import registry
from fuaudit.config import read_toml
from fuaudit.errors import UsageError, nearest
from fuaudit.runs.files import canonical_json, sha256


@dataclass(frozen=True)
class Check:
    """One line of a spec: what is claimed, which audit decides it, and how it counts.

    ``required`` checks must pass; ``supporting`` ones can refute but not block. ``basis`` lists the clauses that
    it is evidence for. ``audit`` holds the options of the audit; ``share`` is its part of the spec's alpha, which
    :func:`parse_spec` puts among them.
    """

    claim: str
    audit: dict[str, Any]
    role: Literal["required", "supporting"] = "required"
    basis: tuple[str, ...] = ()
    share: float | None = None


@dataclass(frozen=True)
class Keys:
    """The keys of a spec as it is written, and what each holds."""

    asks: Literal["exact", "bound"]
    out_of_scope: tuple[str, ...]
    check: tuple[dict[str, Any], ...]
    id: str | None = None
    title: str = ""
    expires: date | None = None
    alpha: float | None = None


@dataclass(frozen=True)
class Spec:
    """A policy: ``asks`` for ``exact`` erasure or for a ``bound`` on what can be detected.

    ``alpha`` bounds the chance that any test of any of its audits rejects what it should not: every audit that has an
    error rate takes a ``share`` of it. None for a spec whose audits set their own. ``digest`` covers the text and
    every option of every audit, defaults included.
    """

    id: str
    title: str
    asks: Literal["exact", "bound"]
    checks: tuple[Check, ...]
    digest: str
    expires: date | None = None
    out_of_scope: tuple[str, ...] = ()
    alpha: float | None = None


def builtin_specs() -> dict[str, Path]:
    """The specs that ship with fuaudit, by name."""
    folder = Path(str(files("fuaudit_specs")))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def read_spec(name: str | Path) -> Spec:
    """A spec from a file, or a built-in one by name.

    Raises:
        UsageError: no such spec, no valid TOML, unknown keys, values of the wrong type, unknown audits or options, no
            checks, shares of alpha that are missing or too large, or it has expired.
    """
    known = builtin_specs()
    path = known.get(str(name), Path(name))
    return parse_spec(read_toml(path, "spec", nearest(str(name), known)), str(path))


def parse_spec(table: dict[str, Any], origin: str) -> Spec:
    """A spec from plain tables; see :func:`read_spec`."""
    if not table.get("check"):
        raise UsageError(f"{origin} has no checks: it would pass anything", "Add at least one [[check]].")
    written = Keys(**registry.options(Keys, origin, table))
    if written.expires and date.today() > written.expires:
        raise UsageError(f"{origin} expired on {written.expires}", "Look at the policy again, then set a new date.")
    if not written.out_of_scope:
        raise UsageError(f"{origin}: out_of_scope must say what is not covered")
    if written.alpha is not None and not 0 < written.alpha < 1:
        raise UsageError(f"{origin}: alpha must be a number in (0, 1)")
    checks = []
    resolved: list[dict[str, Any]] = []
    for number, row in enumerate(written.check, 1):
        check = Check(**registry.options(Check, f"{origin}: check {number}", row))
        options = _with_alpha(check, written.alpha, origin)
        audit = registry.build("audits", options)
        if written.asks == "exact" and getattr(audit, "partial", False):
            raise UsageError(
                f"{origin} asks for exact erasure, but {options['use']!r} may pass what it did not look at",
                'Let it look at everything, or set asks = "bound".',
            )
        resolved.append({**asdict(audit), "use": options["use"]})
        checks.append(replace(check, audit=options))
    if sum(check.share or 0.0 for check in checks) > 1 + 1e-12:
        raise UsageError(f"{origin}: the shares of alpha sum to more than 1")
    plain = {k: str(v) if isinstance(v, date) else v for k, v in table.items()}
    try:
        digest = sha256(canonical_json(plain | {"audits": resolved}))
    except (TypeError, ValueError) as error:
        raise UsageError(f"{origin}: an audit has an option that cannot be written as JSON: {error}") from None
    return Spec(
        origin if written.id is None else written.id,
        written.title,
        written.asks,
        tuple(checks),
        digest,
        written.expires,
        written.out_of_scope,
        written.alpha,
    )


def _with_alpha(check: Check, alpha: float | None, origin: str) -> dict[str, Any]:
    """The options of a check's audit, with its share of the spec's alpha where the spec has one."""
    options, share = dict(check.audit), check.share
    name = options.get("use")
    spends = hasattr(registry.build("audits", options), "alpha")
    if share is not None and (alpha is None or not spends):
        raise UsageError(f"{origin}: {name!r} has a share, but {'no error rate' if alpha else 'the spec has no alpha'}")
    if alpha is None or not spends:
        return options
    if "alpha" in options:
        raise UsageError(f"{origin} has one alpha for all audits; {name!r} sets its own", "Give it a share instead.")
    if share is None or not 0 < share <= 1:
        raise UsageError(f"{origin}: {name!r} has an error rate, so it needs a share of alpha, in (0, 1]")
    return options | {"alpha": alpha * share}
