"""How to repeat a verification: the commands, and the digests and versions that must agree."""

from __future__ import annotations

import re
import shlex

from fuaudit.reporting.contents import Contents

RUNS_A_PAIR = 4


def commands(contents: Contents) -> list[str]:
    """Commands to run in the folder that holds the run; names are quoted for a POSIX shell."""
    name = contents.name.replace("\n", "\ufffd")
    run = shlex.quote(f"./{name}" if name.startswith("-") else name)
    findings = shlex.quote(f"./{name}.audit/findings.json" if name.startswith("-") else f"{name}.audit/findings.json")
    check = contents.of("parameters")
    figures = check.statistic if check is not None else {}
    pairs = figures.get("pairs")
    runs = figures.get("runs", pairs * RUNS_A_PAIR if isinstance(pairs, int) else None)
    budget = f" --budget {runs}" if isinstance(runs, int) else ""
    budget += " --until decided" if figures.get("until") == "decided" else ""
    replayed = contents.of("replay")
    seen = replayed.statistic if replayed is not None else {}
    stretches = seen.get("stretches_replayed") if seen.get("chosen_by") == "the auditor" else None
    spot = f" --spot {stretches}" if isinstance(stretches, int) else ""
    spec = contents.spec.partition("/")[0]
    spec = spec if re.fullmatch(r"[a-z][a-z-]*", spec) else "SPEC.toml"
    key = contents.key if re.fullmatch(r"[0-9a-f]{64}", contents.key) else "KEY"
    return [
        f"sha256sum {findings}",
        f"fuaudit show {run}",
        f"fuaudit verify {run} --spec {spec} --key {key}{budget}{spot}",
        f"fuaudit report {run} --format html",
    ]


def identities(contents: Contents) -> list[tuple[str, str]]:
    """What must agree, by name."""

    def versions(table: dict[str, str]) -> str:
        return ", ".join(f"{name} {version}" for name, version in table.items()) or "not recorded"

    rows = [
        ("SHA-256 of findings.json", contents.digest),
        ("Digest of the run", contents.run),
        ("Spec", contents.spec),
        ("Digest of the spec", contents.spec_digest),
        ("Key of the audit's draws", contents.key),
        ("Engine and device of the run", f"{contents.engine} on {contents.device}"),
        ("Versions that made the run", versions(contents.run_versions)),
        ("Versions that audited it", versions(contents.audit_versions)),
    ]
    if contents.unlearner is not None:
        method = contents.unlearner
        rows.append(("Unlearner", f"{method.name}, {method.origin}"))
        rows += [("Options of the unlearner", method.options)] if method.options else []
        rows += [("Source of the method", method.cite)] if method.cite else []
    return rows
