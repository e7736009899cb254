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


@dataclass(frozen=True)
class Check:
    """One line of a spec: what is claimed, which audit decides it, and how it counts.

    ``required`` checks must pass; ``supporting`` ones can refute but not block. ``basis`` lists the clauses that
    it is evidence for.
    """

    claim: str
    audit: dict[str, Any]
    role: Literal["required", "supporting"] = "required"
    basis: tuple[str, ...] = ()


@dataclass(frozen=True)
class Spec:
    """A policy: ``asks`` for ``exact`` erasure or for a ``bound`` on what can be detected.

    ``digest`` covers the text and every option of every audit, defaults included.
    """

    id: str
    title: str
    asks: Literal["exact", "bound"]
    checks: tuple[Check, ...]
    digest: str
    expires: date | None = None
    out_of_scope: tuple[str, ...] = ()


def builtin_specs() -> dict[str, Path]:
    """The specs that ship with fuaudit, by name."""
    folder = Path(str(files("fuaudit_specs")))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def read_spec(name: str | Path) -> Spec:
    """A spec from a file, or a built-in one by name.

    Raises:
        UsageError: no such spec, no valid TOML, unknown keys, audits or options, no checks, or it has expired.
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
    allowed = {"id", "title", "asks", "expires", "out_of_scope", "check"}
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
    checks = []
    resolved: list[dict[str, Any]] = []
    for row in table["check"]:
        for key in row:
            if key not in {"claim", "audit", "role", "basis"}:
                raise UsageError(
                    f"{origin}: unknown key {key!r} in a check", nearest(key, {"claim", "audit", "role", "basis"})
                )
        if not isinstance(row.get("claim"), str) or row.get("role", "required") not in ("required", "supporting"):
            raise UsageError(f"{origin}: every check needs a claim, and a role of required or supporting")
        audit = registry.build("audits", row.get("audit", {}))
        if table["asks"] == "exact" and getattr(audit, "partial", False):
            raise UsageError(
                f"{origin} asks for exact erasure, but {row['audit']['use']!r} may pass what it did not look at",
                'Let it look at everything, or set asks = "bound".',
            )
        resolved.append({"use": row["audit"]["use"], **asdict(audit)})
        checks.append(Check(row["claim"], dict(row["audit"]), row.get("role", "required"), tuple(row.get("basis", ()))))
    plain = {k: str(v) if isinstance(v, date) else v for k, v in table.items()}
    return Spec(
        str(table.get("id", origin)),
        str(table.get("title", "")),
        table["asks"],
        tuple(checks),
        sha256(canonical_json(plain | {"audits": resolved})),
        expires,
        tuple(table["out_of_scope"]),
    )
