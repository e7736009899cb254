"""Specs: policy as data. Which audits must hold, with which parameters, and what they are evidence for.

A spec is frozen before results: its digest is in every finding. It names registered audits only.
"""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from fuaudit import registry
from fuaudit.errors import UsageError, nearest
from fuaudit.runs.files import canonical_json, sha256

KEYS = {"claim", "audit", "share", "role", "basis"}
"""Of a check."""


@dataclass(frozen=True)
class Check:
    """One line of a spec: what is claimed, which audit decides it, and how it counts.

    ``required`` checks must pass; ``supporting`` ones can refute but not block. ``basis`` lists the clauses that
    it is evidence for. ``audit`` holds the options of the audit, its part of the spec's alpha among them.
    """

    claim: str
    audit: dict[str, Any]
    role: Literal["required", "supporting"] = "required"
    basis: tuple[str, ...] = ()


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
        UsageError: no such spec, no valid TOML, unknown keys, audits or options, no checks, shares of alpha that are
            missing or too large, or it has expired.
    """
    known = builtin_specs()
    path = known.get(str(name), Path(name))
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError):
        raise UsageError(f"there is no spec {name}", nearest(str(name), known)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    return parse_spec(table, str(path))


def parse_spec(table: dict[str, Any], origin: str) -> Spec:
    """A spec from plain tables; see :func:`read_spec`."""
    allowed = {"id", "title", "asks", "expires", "out_of_scope", "alpha", "check"}
    for key in table:
        if key not in allowed:
            raise UsageError(f"{origin}: unknown key {key!r}", nearest(key, allowed))
    if not table.get("check"):
        raise UsageError(f"{origin} has no checks: it would pass anything", "Add at least one [[check]].")
    if table.get("asks") not in ("exact", "bound"):
        raise UsageError(f'{origin}: asks must be "exact" or "bound"')
    expires = table.get("expires")
    if expires is not None and not isinstance(expires, date):
        raise UsageError(f"{origin}: expires must be a date")
    if expires and date.today() > expires:
        raise UsageError(f"{origin} expired on {expires}", "Look at the policy again, then set a new date.")
    if not table.get("out_of_scope"):
        raise UsageError(f"{origin}: out_of_scope must say what is not covered")
    alpha = table.get("alpha")
    if alpha is not None and not (type(alpha) is float and 0 < alpha < 1):
        raise UsageError(f"{origin}: alpha must be a number in (0, 1)")
    checks = []
    resolved: list[dict[str, Any]] = []
    for row in table["check"]:
        for key in row:
            if key not in KEYS:
                raise UsageError(f"{origin}: unknown key {key!r} in a check", nearest(key, KEYS))
        if not isinstance(row.get("claim"), str) or row.get("role", "required") not in ("required", "supporting"):
            raise UsageError(f"{origin}: every check needs a claim, and a role of required or supporting")
        options = _with_alpha(row, alpha, origin)
        audit = registry.build("audits", options)
        if table["asks"] == "exact" and getattr(audit, "partial", False):
            raise UsageError(
                f"{origin} asks for exact erasure, but {row['audit']['use']!r} may pass what it did not look at",
                'Let it look at everything, or set asks = "bound".',
            )
        resolved.append({**asdict(audit), "use": row["audit"]["use"]})
        checks.append(Check(row["claim"], options, row.get("role", "required"), tuple(row.get("basis", ()))))
    if sum(row.get("share", 0.0) for row in table["check"]) > 1 + 1e-12:
        raise UsageError(f"{origin}: the shares of alpha sum to more than 1")
    plain = {k: str(v) if isinstance(v, date) else v for k, v in table.items()}
    return Spec(
        str(table.get("id", origin)),
        str(table.get("title", "")),
        table["asks"],
        tuple(checks),
        sha256(canonical_json(plain | {"audits": resolved})),
        expires,
        tuple(table["out_of_scope"]),
        alpha,
    )


def _with_alpha(row: dict[str, Any], alpha: float | None, origin: str) -> dict[str, Any]:
    """The options of a check's audit, with its share of the spec's alpha where the spec has one."""
    options, share = dict(row.get("audit", {})), row.get("share")
    name = options.get("use")
    spends = hasattr(registry.build("audits", options), "alpha")
    if share is not None and (alpha is None or not spends):
        raise UsageError(f"{origin}: {name!r} has a share, but {'no error rate' if alpha else 'the spec has no alpha'}")
    if alpha is None or not spends:
        return options
    if "alpha" in options:
        raise UsageError(f"{origin} has one alpha for all audits; {name!r} sets its own", "Give it a share instead.")
    if share is None or type(share) not in (int, float) or not 0 < share <= 1:
        raise UsageError(f"{origin}: {name!r} has an error rate, so it needs a share of alpha, in (0, 1]")
    return options | {"alpha": alpha * share}
