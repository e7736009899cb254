"""Findings as HTML, JSON, Markdown and JUnit.

The HTML is one file without scripts or network; names and paths in it come from others, so every value is
escaped. The same findings give the same bytes.
"""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from fuaudit.errors import UsageError, nearest
from fuaudit.runs.files import pretty_json, sha256

EXTENSIONS = {"html": "html", "json": "json", "md": "md", "junit": "xml"}
"""Format -> file extension."""

MARKS = {"PASS": "✓", "FAIL": "✗", "INCONCLUSIVE": "?", "NOT_APPLICABLE": "-", "ERROR": "!"}
"""A sign beside every verdict, so that colour is never the only signal."""

PLAIN = {
    "PASS": "Every required check held. Within the scope stated below, the evidence agrees with a model that was "
    "trained without the data in question.",
    "FAIL": "At least one check was refuted. The evidence shows that the model is not what training without the "
    "data in question would have produced, or that the method does not do what it says.",
    "INCONCLUSIVE": "The evidence does not decide. Something was missing, or a test could not have seen even a "
    "large difference. This is not a pass.",
    "NOT_APPLICABLE": "The question does not arise for this run.",
    "ERROR": "An audit broke. Nothing can be concluded until it is repaired.",
}

ATTACKS = (
    "attribute and membership inference",
    "exfiltration",
    "regurgitation of training data",
    "model inversion",
    "reconstruction",
)
"""The classes of EDPB Opinion 28/2024, paragraph 55 (i) to (v)."""


def render(document: dict[str, Any], form: str) -> bytes:
    """The findings in one of the formats of :data:`EXTENSIONS`; UsageError for another."""
    renderers = {"html": _html, "json": pretty_json, "md": _markdown, "junit": _junit}
    if form not in renderers:
        raise UsageError(f"there is no report format {form!r}", nearest(form, renderers))
    return renderers[form](document)


def _html(document: dict[str, Any]) -> bytes:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    from fuaudit.reporting.figures import figures

    environment = Environment(
        loader=PackageLoader("fuaudit.reporting", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["figure"] = figure
    drawn = [(title, caption, Markup(svg)) for title, caption, svg in figures(document)]
    page = environment.get_template("template.html.j2").render(
        d=document,
        marks=MARKS,
        plain=PLAIN[document["verdict"]],
        attacks=ATTACKS,
        figures=drawn,
        digest=sha256(pretty_json(document)),
        untested=untested(document),
        copies=copies(document),
    )
    return page.encode()


def figure(value: Any) -> str:
    """A number for people: integers as they are, others with four significant digits."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def untested(document: dict[str, Any]) -> list[str]:
    """What no check has decided, in words."""
    undecided = ("NOT_APPLICABLE", "INCONCLUSIVE", "ERROR")
    open_checks = [c for c in document["checks"] if c["finding"]["verdict"] in undecided]
    return [f"{c['claim']}: {c['finding']['verdict']}. {c['finding']['shows']}" for c in open_checks]


def copies(document: dict[str, Any]) -> list[str]:
    """Other places where the contribution may still lie, as lineage lists them."""
    return [
        line
        for check in document["checks"]
        if check["finding"]["audit"] == "lineage"
        for line in check["finding"]["details"]
        if "trained with" in line or "gives" in line or "pruned" in line or "not at hand" in line
    ]


def _markdown(document: dict[str, Any]) -> bytes:
    def cell(text: str) -> str:
        return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")

    lines = [
        f"# {MARKS[document['verdict']]} {document['verdict']}: {cell(document['spec']['title'])}",
        "",
        cell(document["reason"]),
        "",
        f"Run `{cell(document['run'])}`, spec `{cell(document['spec']['id'])}`. {PLAIN[document['verdict']]}",
        "",
        "| verdict | check | role | what it shows | what it does not |",
        "|---|---|---|---|---|",
    ]
    for check in document["checks"]:
        found = check["finding"]
        lines.append(
            f"| {MARKS[found['verdict']]} {found['verdict']} | {cell(check['claim'])} | {check['role']} "
            f"| {cell(found['shows'])} | {cell(found['shows_not'])} |"
        )
    lines += ["", "Out of scope:", "", *(f"- {cell(text)}" for text in document["out_of_scope"])]
    lines += ["", f"To repeat: `fuaudit verify RUN --key {cell(document['key'])}`", ""]
    return "\n".join(lines).encode()


def _junit(document: dict[str, Any]) -> bytes:
    """One test case a check; INCONCLUSIVE fails where the check is required, for it is not a pass."""
    count = str(len(document["checks"]))
    suite = ElementTree.Element("testsuite", name=_printable(document["spec"]["id"]), tests=count)
    failures = errors = skipped = 0
    for check in document["checks"]:
        found = check["finding"]
        case = ElementTree.SubElement(
            suite, "testcase", classname=_printable(found["audit"]), name=_printable(check["claim"])
        )
        verdict, message = found["verdict"], _printable(found["shows"])
        required = check["role"] == "required"
        if verdict == "ERROR":
            errors += 1
            ElementTree.SubElement(case, "error", message=message)
        elif verdict == "FAIL" or (verdict == "INCONCLUSIVE" and required):
            failures += 1
            node = ElementTree.SubElement(case, "failure", type=verdict.lower(), message=message)
            node.text = _printable("\n".join(found["details"]))
        elif verdict != "PASS":
            skipped += 1
            ElementTree.SubElement(case, "skipped", message=f"{verdict}: {message}")
    suite.set("failures", str(failures))
    suite.set("errors", str(errors))
    suite.set("skipped", str(skipped))
    content: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return content


def _printable(text: str) -> str:
    """Without the control characters that XML does not know."""
    return "".join(c for c in str(text) if c in "\n\t" or (ord(c) >= 32 and not 0xD800 <= ord(c) <= 0xDFFF))
