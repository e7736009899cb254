"""Examine: one audit on one case, checked for the form of its finding."""

from __future__ import annotations

import traceback
from dataclasses import replace
from functools import partial
from pathlib import Path

from fuaudit import registry
from fuaudit.declared import says
from fuaudit.errors import EvidenceError, FuauditError, PluginError, RedactedError, line_of
from fuaudit.text import said_by
from fuaudit.verification.apart import apart, changes
from fuaudit.verification.audit import wrong_in
from fuaudit.verification.case import Case
from fuaudit.verification.finding import Finding, Subject, Verdict
from fuaudit.verification.spec import Check

NOTHING = "It shows nothing about the run."
SEALED = (
    "The run is a sealed view, and this audit needs more than the server may be given: seeds of draws, the partition, "
    "rows and clients' secrets. The operator has the whole run, and its clients have the rows."
)
"""Why an audit is not asked of a sealed view."""

SOME = "Rounds of the lineage"
"""What came in messages, as the beginning of a sentence."""


def examine(check: Check, case: Case) -> tuple[Finding, int]:
    """One audit, and the exit code where it broke (else 0): what breaks becomes an ERROR finding, never a pass.

    Raises:
        EvidenceError: the evidence is rejected, and no finding of it would count.
    """
    name = check.audit["use"]
    entry, audit = registry.find("audits", name), check.built
    given = case if entry.own else apart(case)
    if not_asked := unknown_to(check, case):
        return Finding(name, Subject.RUN, Verdict.INCONCLUSIVE, not_asked, NOTHING), 0
    try:
        finding = audit.examine(given)
    except RedactedError as error:
        return Finding(name, Subject.RUN, Verdict.INCONCLUSIVE, _sentences(error), NOTHING), 0
    except EvidenceError:
        raise
    except PluginError as error:
        return _broken(name, f"A plugin failed: {_sentences(error)}"), PluginError.exit_code
    except FuauditError as error:
        shows = f"The audit could not be carried out: {_sentences(error)}"
        return Finding(name, Subject.RUN, Verdict.INCONCLUSIVE, shows, NOTHING), 0
    except (Exception, SystemExit) as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"in {where.name}, line {where.lineno} of {Path(where.filename).name}"
        whose = f" of {entry.distribution} {entry.version}" if not entry.own else ""
        line, code = ("", 70) if entry.own else (line_of(audit, error), PluginError.exit_code)
        return _broken(name, f"The audit{whose} broke: {error!r}{line}", place), code
    wrong = wrong_in(finding, name, check.declared.alpha(audit))
    if not entry.own:
        wrong += [f"it changed {what}, which it was given" for what in changes(case.evidence, given.evidence)]
    if wrong:
        shows = f"The audit of {entry.distribution} {entry.version} broke its contract: {wrong[0]}."
        return _broken(name, shows, *wrong), PluginError.exit_code
    return finding if entry.own else _in_the_name_of(entry, finding), 0


def unknown_to(check: Check, case: Case) -> str:
    """Why an audit is not asked, as a sentence; empty where it is: most judge whole runs with simulated rounds."""
    if case.run.sealed and not says(check.built, "knows_sealed"):
        return SEALED
    came = case.evidence.received
    if not came or says(check.built, "knows_received"):
        return ""
    return f"{SOME} came in messages ({came}), and this audit judges simulated rounds alone."


def _in_the_name_of(entry: registry.Entry, finding: Finding) -> Finding:
    """A finding of an outside audit: what the whole repeats of it is said in its name."""
    said = partial(said_by, f"The {entry}")
    return replace(
        finding,
        qualification=said(finding.qualification),
        plainly=said(finding.plainly),
        assumptions=tuple(map(said, finding.assumptions)),
        copies=tuple(replace(copy, place=repr(copy.place), why=said(copy.why)) for copy in finding.copies),
    )


def _sentences(error: FuauditError) -> str:
    """What an error says, and what to do."""
    return " ".join(f"{text.rstrip('.')}." for text in (str(error.args[0]), error.hint) if text)


def _broken(name: str, shows: str, *details: str) -> Finding:
    return Finding(name, Subject.RUN, Verdict.ERROR, shows, NOTHING, details=details)
