"""JUnit XML: one test case for each check, so that any build server shows them; a second suite holds the verdict.

A build that looks at the checks alone could take an inconclusive verdict for success; the second suite prevents it.
"""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from fuaudit.reporting.contents import Checked, Contents
from fuaudit.verification.finding import Verdict


def render(contents: Contents) -> str:
    """The report as XML."""
    root = Element("testsuites", name="fuaudit")
    checks = SubElement(root, "testsuite", name=contents.spec)
    properties = SubElement(checks, "properties")
    for name, value in (
        ("run", contents.run),
        ("spec digest", contents.spec_digest),
        ("spec origin", contents.origin),
        ("verifications", contents.standing),
        ("key", contents.key),
        ("findings sha256", contents.digest),
        ("verdict", contents.verdict.value),
    ):
        SubElement(properties, "property", name=name, value=value)
    for check in contents.checks:
        case = SubElement(checks, "testcase", classname=f"{contents.spec}.{check.audit}", name=check.claim)
        _outcome(case, check.verdict, check.shows, _lines(check), blocks=check.required)
    whole = SubElement(root, "testsuite", name=f"{contents.spec}, verdict")
    case = SubElement(whole, "testcase", classname=f"{contents.spec}.verdict", name=contents.title)
    _outcome(case, contents.verdict, contents.reason, contents.reason, blocks=True)
    for suite in (checks, whole):
        for count, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(count, str(len(list(suite.iter(tag)))))
    indent(root, " ")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _lines(check: Checked) -> str:
    return "\n".join((*check.details, *map(str, check.copies), f"Does not show: {check.shows_not}"))


def _outcome(case: Element, verdict: Verdict, message: str, text: str, blocks: bool) -> None:
    """What is not a pass gets an element: a failure where it blocks the verdict, skipped where it does not."""
    if verdict is Verdict.PASS:
        SubElement(case, "system-out").text = f"{message}\n{text}"
        return
    if verdict is Verdict.ERROR:
        element = SubElement(case, "error", type="error", message=message)
    elif verdict is Verdict.FAIL or (verdict is Verdict.INCONCLUSIVE and blocks):
        element = SubElement(case, "failure", type=verdict.value.lower(), message=message)
    else:
        element = SubElement(case, "skipped", message=f"{verdict.value}: {message}")
    element.text = text
