"""Reports: safe, repeatable, and careful with words."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fuaudit import train, unlearn, verify
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.plans import Request
from fuaudit.reporting import render, write_report

KEY = bytes(range(32))
CONFIG = {
    "data": {"use": "digits"},
    "partition": {"use": "iid", "clients": 6},
    "model": {"use": "linear"},
    "learner": {"use": "fats", "rounds": 4, "cohort": 2, "steps": 2, "batch": 8, "step_size": 0.1},
}


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """Findings of a run that passes, one that fails, one that is inconclusive, and a training run."""
    folder = tmp_path_factory.mktemp("reports")
    run = train(CONFIG, folder / "run", secret=KEY)
    found = {"training": verify(run, budget=0, key=KEY).as_json()}
    for name in ("fats", "noop", "finetune"):
        child = unlearn(run, name, Request.of(clients=[0]), folder / name)
        found[name] = verify(child, budget=40 if name == "fats" else 0, key=KEY).as_json()
    return folder, found


def test_verdicts_of_the_examples(documents):
    _, found = documents
    assert {name: d["verdict"] for name, d in found.items()} == {
        "training": "INCONCLUSIVE",
        "fats": "PASS",
        "noop": "FAIL",
        "finetune": "INCONCLUSIVE",
    }


@pytest.mark.parametrize("form", ["html", "json", "md", "junit"])
@pytest.mark.parametrize("name", ["training", "fats", "noop", "finetune"])
def test_same_findings_same_bytes(documents, form, name):
    _, found = documents
    assert render(found[name], form) == render(json.loads(json.dumps(found[name])), form)


def test_written_beside_the_run(documents):
    folder, found = documents
    path = write_report(folder / "fats", "html")
    assert path == folder / "fats.audit" / "report.html"
    assert path.read_bytes() == render(found["fats"], "html")
    with pytest.raises(EvidenceError, match="no findings yet"):
        write_report(Path(folder / "nowhere"))
    with pytest.raises(UsageError, match="html"):
        render(found["fats"], "htm")


@pytest.mark.parametrize("name", ["training", "fats", "noop", "finetune"])
def test_page_holds_no_script_and_reaches_nowhere(documents, name):
    page = render(documents[1][name], "html").decode()
    assert "default-src 'none'" in page
    assert "<script" not in page.lower()
    assert not re.search(r'(src|href)="(?!#)', page.replace("http://www.w3.org", ""))
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def hostile(value):
    """The same document with every text turned into an attack."""
    if isinstance(value, dict):
        return {k: hostile(v) for k, v in value.items()}
    if isinstance(value, list):
        return [hostile(v) for v in value]
    if isinstance(value, str) and value not in WORDS:
        return f"<script>alert(1)</script>\"'&]]>|{value}\x07"
    return value


WORDS = {
    "PASS", "FAIL", "INCONCLUSIVE", "NOT_APPLICABLE", "ERROR", "required", "supporting", "lineage", "parameters",
    "integrity", "replay", "stress", "plan", "enumeration",
}  # fmt: skip


@pytest.mark.parametrize("name", ["fats", "noop"])
def test_hostile_names_stay_text(documents, name):
    document = hostile(documents[1][name])
    page = render(document, "html").decode()
    assert "<script" not in page
    assert "<script" not in render(document, "md").decode()
    suite = ElementTree.fromstring(render(document, "junit"))
    assert len(suite) == len(document["checks"])


def test_junit_fails_what_did_not_pass(documents):
    _, found = documents
    suite = ElementTree.fromstring(render(found["noop"], "junit"))
    failed = {case.get("classname") for case in suite if case.find("failure") is not None}
    assert {"stress", "enumeration"} <= failed
    assert int(suite.get("failures")) == len(failed)
    passing = ElementTree.fromstring(render(found["fats"], "junit"))
    assert passing.get("failures") == "0"


FORBIDDEN = re.compile(
    r"\b(has been erased|is erased|was erased|compliant|complies|certified|guarantees that|GDPR-ready|proven forgotten"
    r"|fully forgotten|is anonymous)\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("name", ["training", "fats", "noop", "finetune"])
@pytest.mark.parametrize("form", ["html", "md", "junit"])
def test_no_legal_conclusions(documents, name, form):
    text = render(documents[1][name], form).decode()
    assert not FORBIDDEN.search(text), FORBIDDEN.search(text)


def test_report_says_what_was_not_tested(documents):
    page = render(documents[1]["finetune"], "html").decode()
    assert "What was not tested" in page
    assert "adaptive requests" in page
    assert page.count("not run") >= 5
    assert "NOT_APPLICABLE" in page
