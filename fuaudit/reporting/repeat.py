"""How to repeat a verification: the commands, and the digests and versions that must agree."""

from __future__ import annotations

import re
import shlex

from fuaudit.reporting.contents import Contents
from fuaudit.verification.spec import BUILT_IN
from fuaudit.verification.store import SHORT


def commands(contents: Contents) -> list[str]:
    """Commands to run in the folder that holds the run; names are quoted for a POSIX shell.

    Words in capitals stand for what only the reader knows: DATA, ROWS and PARENT for folders, SPEC.toml and MODEL for
    files.
    """
    name = contents.name.replace("\n", "\ufffd")
    arguments = [shlex.quote(word.replace("\n", "\ufffd")) for word in contents.arguments]
    run = shlex.quote(f"./{name}" if name.startswith("-") else name)
    findings = f"{run}.audit/findings-*-{contents.digest[:SHORT]}.json"
    spec = contents.spec.partition("/")[0]
    spec = spec if contents.origin == BUILT_IN and re.fullmatch(r"[a-z][a-z-]*", spec) else "SPEC.toml"
    key = contents.key if re.fullmatch(r"[0-9a-f]{64}", contents.key) else "KEY"
    return [
        f"sha256sum {findings}",
        f"fuaudit show {run}",
        " ".join(["fuaudit verify", run, "--spec", spec, "--key", key, *arguments]),
        f"fuaudit report {run} --format html",
    ]


def identities(contents: Contents) -> list[tuple[str, str]]:
    """What must agree, by name."""

    def versions(table: dict[str, str]) -> str:
        return ", ".join(f"{name} {version}" for name, version in table.items()) or "not recorded"

    rows = [
        ("SHA-256 of the findings", contents.digest),
        ("Digest of the run", contents.run),
        ("Spec", f"{contents.spec}, {contents.origin}"),
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
