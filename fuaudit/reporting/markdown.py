"""Markdown for a pull request or a ticket: the verdict, the checks, the limits, and how to repeat it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fuaudit.reporting import learns
from fuaudit.reporting.contents import Contents
from fuaudit.reporting.repeat import commands, identities
from fuaudit.reporting.words import (
    ATTACKS,
    DISCLAIMER,
    MARKS,
    SUBJECTS,
    account,
    copies,
    facts,
    figures,
    headline,
    lead,
    parts,
    trusted,
    undecided,
    without_noise,
)

MANY = 12
"""Lines of one list; the others are counted."""


def render(contents: Contents) -> str:
    """The report as Markdown."""
    sections = [
        f"# {MARKS[contents.verdict]} {contents.verdict.value}. Claim examined: \u201c{_plain(contents.title)}\u201d",
        f"**{headline(contents)}** {_plain(lead(contents))}",
        f"> {_plain(contents.reason)}",
        _table(("", ""), facts(contents)),
        "## Checks",
        _checks(contents),
        "## Figures and how they were obtained",
        _figures(contents),
        *_copies(contents),
        *_released(contents),
        *_sums(contents),
        "## Taken on trust",
        _bullets(trusted(contents)),
        "## Not tested",
        _bullets([*contents.out_of_scope, *(f"{c.verdict.value}: {c.claim}: {c.shows}" for c in undecided(contents))]),
        "Attack classes of EDPB Opinion 28/2024, paragraph 55: "
        + "; ".join(f"({number}) {name.lower()}: not run" for number, name in ATTACKS)
        + ".",
        "## How to repeat it",
        "\n".join(f"    {command}" for command in commands(contents)),
        _table(("What", "Value"), identities(contents)),
        DISCLAIMER,
    ]
    return "\n\n".join(part for part in sections if part) + "\n"


def _checks(contents: Contents) -> str:
    rows = [
        (
            f"{MARKS[c.verdict]} {c.verdict.value}",
            f"{c.claim} ({c.audit}, {c.role})",
            SUBJECTS[c.subject],
            c.shows,
            c.shows_not,
            "; ".join(c.basis),
        )
        for c in contents.checks
    ]
    return _table(("Verdict", "Claim", "About", "Shows", "Does not show", "Evidence relevant to"), rows)


def _figures(contents: Contents) -> str:
    rows = [(c.audit, *row) for c in contents.checks for row in figures(c)]
    rows += [
        (c.audit, f"Control: {k.name}", f"{k.observed} ({'held' if k.held else 'not held'})", f"expected: {k.expected}")
        for c in contents.checks
        for k in c.controls
    ]
    return _table(("Check", "Figure", "Value", "How obtained"), rows)


def _copies(contents: Contents) -> list[str]:
    found = copies(contents)
    return ["## Other places that may hold the contribution", _bullets(map(str, found))] if found else []


def _released(contents: Contents) -> list[str]:
    found = ["## Privacy account: what rounds released", "\n\n".join(map(_plain, account(contents)))]
    for told, about in parts(contents):
        found += [f"**{_plain(told)}**", _table(("What it is about", ""), about)]
    left = without_noise(contents)
    return found + (["Let out without noise:", _bullets(left)] if left else [])


def _sums(contents: Contents) -> list[str]:
    sums = contents.sums
    if sums is None:
        return []
    head = "Clients who collude with the server", "In a round", f"In {sums.rounds} rounds"
    table = _table(("Party", "To", "Bytes at most"), learns.bytes_of(sums))
    sent = [_plain(learns.BYTES), table] if sums.parties else []
    return [
        "## Sums of clients: who learns what",
        "\n\n".join(map(_plain, learns.lead(sums))),
        _table(("Party", "Learns", "Has one client's row together with"), learns.who(sums)),
        _plain(learns.chances_of(sums)),
        _table(head, learns.chances(sums)),
        _plain(learns.meetings(sums)),
        *sent,
    ]


def _plain(text: str) -> str:
    """Text that Markdown shows as it is, on one line: no markup, no links, no one called by name."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")
    text = re.sub(r"([\\`*_\[\]#|~!])", r"\\\1", text)
    return re.sub(r"(@|://|\bwww\.)", "\\1\u2060", text)


def _bullets(lines: Iterable[str]) -> str:
    found = list(lines)
    rest = [f"- and {len(found) - MANY} more, in the findings"] if len(found) > MANY else []
    return "\n".join([*(f"- {_plain(line)}" for line in found[:MANY]), *rest])


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *(tuple(map(_plain, row)) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
