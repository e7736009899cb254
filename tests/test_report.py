"""Reports: every format from every verdict, hostile names, no wording that concludes, the same bytes twice."""

import copy
import html
import json
import re
import shutil
import subprocess
import sys
from fractions import Fraction
from html.parser import HTMLParser
from importlib.resources import files
from xml.etree import ElementTree

import pytest
from tests_support import lean

from fuaudit import verify
from fuaudit.budgets.conspar.account import account, statement
from fuaudit.budgets.conspar.law import ConSpar
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.formats.files import sha256, write_bytes
from fuaudit.formats.forms import pretty_json
from fuaudit.proofs.exactness import Witness
from fuaudit.reporting import EXTENSIONS, render, write_report
from fuaudit.reporting.contents import read_contents
from fuaudit.reporting.drawings import drawings
from fuaudit.reporting.words import NO_EVENT, NOT_TOLD, figures, trusted
from fuaudit.verification.store import begin, findings_name, finish

HOSTILE = "<script>alert('x')</script>\"&]]>|`@all\u202e\x00\x1b{{ 7 * 7 }}"
GIVES = {"integrity": ["files"], "enumeration": ["law"], "lineage": ["regeneration"], "provenance": ["provenance"]}
VERDICTS = ("PASS", "FAIL", "INCONCLUSIVE", "NOT_APPLICABLE", "ERROR")


def check(audit, verdict="PASS", role="required", subject="run", **finding):
    lists: dict = {name: [] for name in ("controls", "assumptions", "details", "copies")}
    plain = {"figures": [], "detectable": "", "series": {}, "plainly": "", **lists}
    texts = {"shows": f"What {audit} shows.", "shows_not": "It shows nothing else."}
    whole = {
        "audit": audit,
        "subject": subject,
        "verdict": verdict,
        **plain,
        **texts,
        **finding,
    }
    words = {"claim": f"The claim of {audit}", "role": role, "basis": ["GDPR Art. 17(1)"]}
    return {**words, "evidence": GIVES.get(audit, []), "recomputes": f"what {audit} does", "finding": whole}


def figure(key, value, **changes):
    plain = {"unit": "", "interval": None, "error_rate": None, "absent": "none"}
    return {"key": key, "label": f"The {key}", "value": value, "how": "counted", **plain, **changes}


def sampled(verdict="PASS", role="supporting"):
    pairs = [0.1 * i for i in range(64)]
    return check(
        "model-law",
        verdict,
        role,
        "algorithm",
        figures=[figure("pairs", 64), figure("p_value", 1.0), figure("rejected_at", None, absent="never")],
        controls=[{"name": "untouched against retrained", "expected": "rejected", "observed": "rejected"}],
        series={
            "log wealth, subject": [0.0] * 64,
            "log wealth, second": [-x / 9 for x in pairs],
            "log wealth, untouched": [3 * x for x in pairs],
            "power, rate": [0.05, 0.15, 1.0],
            "power, estimate": [0.1, 0.97, 1.0],
            "power, lower limit": [0.05, 0.95, 1.0],
            "power, detectable rate": [0.15],
            "log wealth, threshold": [7.1],
        },
    )


def document(verdict="PASS", *checks, child=True, asks="exact"):
    metrics = [{"round": r, "test_accuracy": 0.1 + r / 40, "test_loss": 1.0} for r in (0, 10, 20)]
    context = {
        "engine": "threads",
        "device": "cpu",
        "run_versions": {"fuaudit": "0.1.0"},
        "audit_versions": {"fuaudit": "0.1.0"},
        "metrics": metrics,
        "arguments": ["--client", "0", "--budget", "256"],
    }
    lineage = [{"digest": "b" * 64, "name": "parent", "kind": "training"}]
    if child:
        use = {"use": "fats", "kind": "rewriter", "guarantee": "exact for uniform cohorts", "cite": "a paper"}
        context |= {
            "parent_metrics": metrics,
            "unlearner": {**use, "options": {"x": 1}, "distribution": "fuaudit", "version": "0.1.0"},
            "request": "client 0",
            "first_change": [8, 0],
        }
        lineage.insert(
            0, {"digest": "a" * 64, "name": "child", "kind": "unlearning", "unlearner": "fats", "request": "client 0"}
        )
    return {
        "format": "fuaudit findings 2",
        "run": "a" * 64,
        "ledger": "b" * 64,
        "spec": {
            "id": "client-erasure/1",
            "title": "The claim of the spec",
            "digest": "c" * 64,
            "asks": asks,
            "origin": "built-in",
        },
        "key": "d" * 64,
        "verdict": verdict,
        "reason": "The reason of the verdict.",
        "checks": list(checks) or [check("integrity"), check("provenance"), sampled()],
        "out_of_scope": ["Copies elsewhere."],
        "lineage": lineage,
        "context": context,
    }


def hostile(value):
    """The same document with hostile text wherever text is free."""
    kept = {"format", "verdict", "role", "subject", "kind", "asks", "audit"}
    if isinstance(value, dict):
        return {k: v if k in kept else hostile(v) for k, v in value.items()}
    if isinstance(value, list):
        return [hostile(v) for v in value]
    return HOSTILE if isinstance(value, str) else value


def with_released(found):
    """A document that tells an account: one part with an epsilon and its statement, and one without."""
    about = statement(account(ConSpar(50, 4, Fraction(4, 5)), 20)).as_json()
    part = {"part": "client.1", "under": "conspar (dim 50)", "rounds": 20, "delta": "0"}
    found["context"]["released"] = {
        "covered": "20 rounds of 2 runs: parent rounds 1 to 20; child none",
        "reasons": ["the parent of parent is not at hand"],
        "accounts": [
            part | {"epsilon": "46.7", "reason": "", "meaning": "no guarantee to speak of", "statement": about},
            part | {"part": "client.2", "epsilon": None, "reason": "nobody compares", "meaning": "", "statement": {}},
        ],
        "without_noise": {
            "parent": [
                {"where": "rounds", "what": "every row", "given_to": "server", "rounds": 20},
                {"where": "metrics.json", "what": "accuracy", "given_to": "everybody", "rounds": 0},
                {"where": "checkpoints/N", "what": "models", "given_to": "auditor", "rounds": 1},
            ]
        },
    }
    return found


DOCUMENTS = {
    "released": with_released(document()),
    "hostile account": hostile(with_released(document())),
    **{verdict: document(verdict, check("integrity", verdict), sampled()) for verdict in VERDICTS},
    "bound": document("PASS", check("integrity"), sampled(role="required"), asks="bound"),
    "training run": document("INCONCLUSIVE", check("integrity"), child=False),
    "hostile": hostile(document("FAIL", check("lineage", "FAIL", details=["x"] * 9), sampled("FAIL"))),
}


class Page(HTMLParser):
    """The tags, attributes and visible text of a page."""

    def __init__(self, content):
        super().__init__()
        self.tags, self.attributes, self.text, self.open = [], [], [], []
        self.feed(content.decode())

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())


@pytest.mark.parametrize("form", EXTENSIONS)
@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_document_has_every_report_with_the_same_bytes_twice(name, form):
    before = copy.deepcopy(DOCUMENTS[name])
    first = render(DOCUMENTS[name], form)
    assert first == render(DOCUMENTS[name], form)
    assert before == DOCUMENTS[name]
    assert sha256(pretty_json(before)).encode() in (sha256(first).encode() if form == "json" else first)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_html_has_no_script_and_reaches_nothing_outside(name):
    page = Page(render(DOCUMENTS[name], "html"))
    assert not {"script", "iframe", "object", "link", "img", "form", "base"} & set(page.tags)
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert ("content", policy) in page.attributes
    for key, value in page.attributes:
        assert not key.startswith("on")
        if key in ("href", "src", "xlink:href"):
            assert value.startswith("#")


def test_ids_of_a_page_are_unique_and_all_references_resolve():
    content = render(DOCUMENTS["PASS"], "html")
    page = Page(content)
    ids = [value for key, value in page.attributes if key == "id"]
    assert len(ids) == len(set(ids))
    used = re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', content.decode())
    assert {name for pair in used for name in pair if name} <= set(ids)
    assert page.tags.count("svg") == 3


def test_hostile_names_are_shown_and_do_nothing():
    page = render(DOCUMENTS["hostile"], "html").decode()
    assert "<script" not in page
    assert html.escape("<script>", quote=False) in page
    assert "49" not in Page(page.encode()).words.partition("alert")[2][:60]
    for form in ("html", "md", "junit"):
        text = render(DOCUMENTS["hostile"], form).decode()
        assert not set(text) & {"\u202e", "\x00", "\x1b"}
    ElementTree.fromstring(render(DOCUMENTS["hostile"], "junit"))
    markdown = render(DOCUMENTS["hostile"], "md").decode()
    shown = "\n".join(line for line in markdown.splitlines() if not line.startswith("    "))
    assert "<script" not in shown
    assert "@all" not in shown
    assert "|`" not in shown


def test_hostile_names_stay_one_word_of_the_commands():
    import shlex

    from fuaudit.reporting.contents import read_contents
    from fuaudit.reporting.repeat import commands

    found = document()
    found["lineage"][0]["name"] = "-x; rm -r '$(y)'\nz"
    found["context"]["arguments"] = ["--budget", "$(y)\nz"]
    for command in commands(read_contents(found)):
        assert "\n" not in command
        assert len(shlex.split(command)) <= 9  # of these "--budget" is one, and what it holds another
        assert any(word.startswith("./-x; rm -r '$(y)'") for word in shlex.split(command))


def test_long_particulars_are_folded_and_counted():
    many = document("FAIL", check("replay", "FAIL", details=[f"line {i} " + "x" * 500 for i in range(1500)]))
    page = Page(render(many, "html"))
    assert "details" in page.tags
    assert "line 999 " in page.words
    assert "500 more lines are in the findings" in page.words
    assert "details" not in Page(render(document("PASS", check("replay", details=["one"])), "html")).tags


CONCLUSIONS = re.compile(
    r"complian|complies|comply|certif|authentic|guarantee[sd]\b|anonym|resistant|proven\b|fully forgotten"
    r"|(?:is|are|was|were|been|be|successfully|has) (?:now )?(?:erased|deleted|removed|forgotten|gone)|right to be",
    re.IGNORECASE,
)
ALLOWED = re.compile(r"(?<!proven )to be forgotten|when the data is removed", re.IGNORECASE)


def conclusions(text):
    return CONCLUSIONS.findall(ALLOWED.sub("", text))


def test_the_lint_finds_conclusions():
    for text in (
        "The data has been erased.",
        "GDPR-compliant",
        "certified",
        "It is proven forgotten.",
        "was forgotten",
    ):
        assert conclusions(text), text


@pytest.mark.parametrize("name", ["template.html.j2", "words.py", "drawings.py", "markdown.py", "repeat.py"])
def test_no_source_of_wording_concludes(name):
    text = files("fuaudit.reporting").joinpath(name).read_text()
    assert conclusions(text) == []
    assert "erased" not in text.lower().replace("--erased", "")


@pytest.mark.parametrize("form", ["html", "md", "junit"])
@pytest.mark.parametrize("name", [*VERDICTS, "bound", "training run", "released"])
def test_no_report_concludes(name, form):
    content = render(DOCUMENTS[name], form)
    text = Page(content).words if form == "html" else content.decode()
    assert conclusions(text) == []
    assert "erased" not in text.replace("--erased", "")


@pytest.mark.parametrize("name", [name for name in VERDICTS if name != "PASS"])
def test_what_is_no_pass_is_never_headed_as_one(name):
    words = Page(render(DOCUMENTS[name], "html")).words
    screen = words[: words.index("For the person concerned")]
    assert "Every required check passed" not in screen
    assert "This is evidence that" not in screen


def test_what_is_not_decided_is_told_to_the_person_as_not_decided():
    """A refutation gives no ground to say that a request was carried out; missing evidence gives none either way."""
    told = {name: Page(render(DOCUMENTS[name], "html")).words for name in ("FAIL", "INCONCLUSIVE")}
    refuted = "This run gives no ground to say that the request was carried out."
    assert refuted in told["FAIL"]
    assert refuted not in told["INCONCLUSIVE"]
    assert "no ground to say that the request was carried out, and none to say that it was not." in told["INCONCLUSIVE"]


def test_a_training_run_is_not_headed_as_if_something_had_been_asked():
    for form in ("html", "md"):
        text = render(DOCUMENTS["training run"], form).decode()
        assert "Nothing was asked yet: this is a training run." in text
        assert "does not decide the question" not in text


@pytest.mark.parametrize("name", VERDICTS)
def test_a_verdict_does_not_stand_before_the_claim_as_if_it_held(name):
    head = render(DOCUMENTS[name], "md").decode().splitlines()[0]
    assert re.fullmatch(rf"# . {name}\. Claim examined: \u201cThe claim of the spec\u201d", head)


def test_who_is_meant_is_named():
    found = document()
    found["context"]["to_forget"] = [{"client": 0, "name": "ann", "rows": 7}]
    page, text = Page(render(found, "html")).words, render(found, "md").decode()
    assert "a model trained without client 0 (ann)." in page
    assert "That a trained model forget client 0 (ann)." in page
    assert "a model trained without client 0 (ann)." in text


def test_the_page_has_its_nine_parts_in_order_and_says_what_was_not_run():
    words = Page(render(DOCUMENTS["PASS"], "html")).words
    heads = [
        "Claim examined",
        "2 For the person concerned",
        "3 Checks",
        "4 Controls and figures",
        "5 Enumeration",
        "6 Lineage",
        "7 Privacy account: what rounds released",
        "8 What was not tested",
        "9 How to repeat it",
    ]
    places = [words.rindex(head) for head in heads]
    assert places == sorted(places)
    assert words.count("not run") == 5
    assert f"fuaudit verify child --spec client-erasure --key {'d' * 64} --client 0 --budget 256" in words


@pytest.mark.parametrize("form", ["html", "md"])
def test_an_epsilon_stands_with_all_that_it_is_about(form):
    content = render(DOCUMENTS["released"], form)
    text = Page(content).words if form == "html" else re.sub(r"\\([_*])", r"\1", content.decode())
    for words in (
        "client.1, conspar (dim 50), 20 rounds: epsilon 46.7 at delta 0",
        "client.2, conspar (dim 50), 20 rounds: no guarantee at delta 0", "nobody compares",
        "No guarantee: the parent of parent is not at hand.", "An epsilon says nothing without the statement beside it",
        "unit", "adjacency", "adversary", "trust model", "sampling assumption", "accountant", "rounds covered",
        "outside it", "no data-level guarantee", "exact law of the overlap",
        "parent, 20 rounds: every row; may go to: server", "parent, checkpoints/N, of 1 round: models",
    ):  # fmt: skip
        assert words in text, words


def test_a_statement_is_in_its_own_order_however_it_is_stored():
    """Files have keys in alphabetical order."""
    for form in ("html", "md"):
        page = render(DOCUMENTS["released"], form)
        names = [b"delta", b"unit", b"adjacency", b"adversary", b"trust model", b"outside it", b"no data-level"]
        begin = page.index(b"word by word" if form == "html" else b"What it is about")
        places = [page.index(name, begin) for name in names]
        assert places == sorted(places)
        stored = json.loads(pretty_json(DOCUMENTS["released"]))
        assert render(stored, form) == page


@pytest.mark.parametrize("form", ["html", "md"])
def test_no_event_is_told_to_mean_no_privacy(form):
    silent = document()
    assert NOT_TOLD.partition("`")[0] in Page(render(silent, "html")).words
    silent["context"]["released"] = None
    text = render(silent, form).decode()
    assert NO_EVENT in text
    assert NOT_TOLD.partition("`")[0] not in text
    assert NO_EVENT not in render(DOCUMENTS["released"], form).decode()


@pytest.mark.parametrize("broken", [[], {"covered": ""}, "text"])
def test_an_account_that_is_none_makes_no_report(broken):
    found = document()
    found["context"]["released"] = broken
    with pytest.raises(EvidenceError, match="no findings"):
        read_contents(found)


def test_no_word_pushes_a_column_of_the_checks_off_the_page():
    """Cells break words of any length, and where windows are narrow each says under which head it stands."""
    text = render(document("PASS", check("integrity", shows="a" * 64)), "html").decode()
    style, _, body = text.partition("</style>")
    assert re.search(r"^td \{[^}]*overflow-wrap: anywhere", style, re.MULTILINE)
    table = re.search(r'<table class="checks">.*?</table>', body, re.DOTALL)[0]
    heads = re.findall(r'<th scope="col">([^<]+)</th>', table)
    assert "What it does not show" in heads
    assert re.findall(r'<td[^>]* data-head="([^"]+)"', table) == heads


def test_every_figure_of_a_real_verification_has_words(child):
    """The audits that ship: no figure is left as its author named it, and one line speaks of non-adaptive requests."""
    result = verify(child, lean("client-erasure"), budget=16, key=bytes(32), save=False)
    contents = read_contents(result.as_json())
    rows = [(check, row) for check in contents.checks for row in figures(check)]
    audits = {check.audit for check, _ in rows}
    assert audits >= {"integrity", "replay", "stress", "provenance", "plan-law", "lineage", "model-law"}
    for check, (label, _, how) in rows:
        assert check.recomputes
        assert conclusions(f"{label} {how}") == []
        assert "erased" not in f"{label} {how}"
    assert sum("non-adaptive" in line for line in trusted(contents)) == 1


def test_what_refutes_a_run_is_said_by_its_plainest_finding_first(untouched, quick, target):
    """Who was drawn explains why models differ, and NaN is said to be the mark that it is."""
    result = verify(untouched, quick, key=bytes(32), save=False)
    failed = {finding.audit: finding for finding in result.findings if finding.verdict == "FAIL"}
    assert list(failed)[:2] == ["replay", "provenance"]
    assert result.reason == failed["provenance"].shows
    assert re.fullmatch(rf"Round \d+ draws client {target}, which was to be forgotten\.", result.reason)
    assert failed["provenance"].details[0] == f"FAIL: {result.reason}"
    assert all("the mark that the plan reads erased rows" in line for line in failed["replay"].details)
    page = Page(render(result.as_json(), "html")).words
    assert f"{result.reason} The model is not the one that the recorded training gives from the remaining data." in page


def test_controls_lie_above_the_subject_where_the_curves_are_one():
    wealth, _, accuracy = (d.svg for d in drawings(read_contents(DOCUMENTS["PASS"])))
    for svg, controls in ((wealth, ("second", "untouched")), (accuracy, ("untouched",))):
        lines = re.findall(r"stroke: var\(--fig-(subject|second|untouched)\)", svg)
        assert all(lines.index("subject") < lines.index(control) for control in controls)
        assert "stroke-dasharray" in svg


@pytest.mark.parametrize(
    ("shown", "row"),
    [
        (figure("rejected_at", None, absent="never"), "never"),
        (figure("p_value", None), "none"),
        (figure("rate", 0.15, unit="of runs"), "0.15 of runs"),
        (figure("advantage", 0.5, interval=[0.25, 0.5]), "0.5 (0.25 to 0.5)"),
        (figure("held", True), "yes"),
        (figure("epsilon at least", 2.15991), "2.159"),
        (figure("distance, below", 3.45328e-4), "0.0003454"),
        (figure("numbers that agree, at least", 0.99999), "0.9999"),
        (figure("advantage at most", 0.41964, interval=[0.10009, 0.41964]), "0.4197 (0.1 to 0.4197)"),
    ],
)
def test_a_figure_says_what_a_reader_needs(shown, row):
    found = document("PASS", check("anything", figures=[shown]))
    assert figures(read_contents(found).checks[0]) == [(shown["label"], row, "counted")]


def test_findings_of_another_format_are_refused_before_anything_else_is_asked():
    with pytest.raises(EvidenceError, match=r"'fuaudit findings 2'\n  Read it with fuaudit 0\.1\.0"):
        read_contents({"format": "fuaudit findings 1"})
    with pytest.raises(EvidenceError, match=r"'fuaudit findings 9', and fuaudit .* reads 'fuaudit findings 2'"):
        read_contents({"format": "fuaudit findings 9"})
    with pytest.raises(EvidenceError, match="does not hold findings"):
        read_contents({})


def test_other_copies_are_listed_and_faults_are_not_copies():
    details = ["not regenerated: model.safetensors", "left behind, nothing regenerates it: x"]
    places = [
        {"place": "parent/keys.json", "why": "gives draws back", "holds": True},
        {"place": "older", "why": "was pruned", "holds": False},
    ]
    found = document("FAIL", check("lineage", "FAIL", details=details, copies=places))
    words = Page(render(found, "html")).words
    assert "knows of one other place that may hold what was learnt from this data; it is listed in section 6." in words
    assert "older: was pruned" in words
    assert "parent/keys.json: gives draws back" in render(found, "junit").decode()
    assert "parent/keys.json: gives draws back" in render(found, "md").decode()
    part = words[words.rindex("Known places") : words.rindex("What was not tested")]
    assert "parent/keys.json" in part
    assert "not regenerated" not in part


def test_a_witness_is_shown_with_both_probabilities():
    details = [
        "smallest federation: 2 clients",
        f"witness: {Witness((((0,), (((1,),),)),), Fraction(3, 8), Fraction(1, 2))}",
    ]
    found = document("FAIL", check("enumeration", "FAIL", subject="algorithm", details=details))
    words = Page(render(found, "html")).words
    assert "round 1: clients [0], batches [[[1]]]" in words
    assert "Its probability after unlearning 3/8 Its probability after retraining 1/2" in words


def test_junit_has_one_case_a_check_and_no_verdict_but_pass_is_green():
    found = document(
        "INCONCLUSIVE",
        check("a", "PASS"),
        check("b", "FAIL"),
        check("c", "INCONCLUSIVE"),
        check("d", "INCONCLUSIVE", "supporting"),
        check("e", "NOT_APPLICABLE"),
        check("f", "ERROR"),
    )
    suite, whole = ElementTree.fromstring(render(found, "junit"))
    outcome = [[(child.tag, child.get("type")) for child in case] for case in suite.iter("testcase")]
    assert outcome == [
        [("system-out", None)],
        [("failure", "fail")],
        [("failure", "inconclusive")],
        [("skipped", None)],
        [("skipped", None)],
        [("error", "error")],
    ]
    assert [suite.get(k) for k in ("tests", "failures", "errors", "skipped")] == ["6", "2", "1", "2"]
    assert whole.find("testcase/failure").get("type") == "inconclusive"


def test_an_inconclusive_verdict_over_passing_checks_is_no_green_build():
    """An editor under a spec that asks for exactness: every check may pass, the verdict does not."""
    root = ElementTree.fromstring(render(document("INCONCLUSIVE", check("provenance")), "junit"))
    assert len(list(root.iter("failure"))) == 1


@pytest.mark.parametrize(
    "spoil",
    [
        lambda d: d.pop("checks"),
        lambda d: d.update(format="other"),
        lambda d: d.update(verdict="GOOD"),
        lambda d: d.update(reason=3),
        lambda d: d["checks"][0].update(role="decorative"),
        lambda d: d["checks"][0]["finding"].pop("shows_not"),
        lambda d: d["checks"][0]["finding"].update(verdict="pass"),
        lambda d: d["checks"][0]["finding"].update(series={"x": ["y"]}),
        lambda d: d["checks"][0]["finding"].update(copies=[{"place": "x", "why": "y", "holds": "no"}]),
        lambda d: d["context"].update(first_change=[]),
        lambda d: d.update(reason="\ud800"),
        lambda d: d.update(reason=float("nan")),
    ],
)
@pytest.mark.parametrize("form", EXTENSIONS)
def test_what_is_no_document_is_refused(spoil, form):
    found = document()
    spoil(found)
    with pytest.raises(EvidenceError):
        render(found, form)


def test_figures_of_the_parent_are_as_told():
    """Whoever holds the run can write them as he likes: no audit computes them."""
    for child in (True, False):
        page = render(document(child=child), "html").decode()
        for said in ("Its parent, as its own files tell: ", "No check computed the parent"):
            assert (said in page) == child


def test_an_unknown_format_is_a_usage_error():
    with pytest.raises(UsageError, match="markdwn"):
        render(document(), "markdwn")


def sealed_as(run):
    """What findings name that judged a run."""
    return {"run": run.digest, "ledger": run.ledger.head}


def kept(folder, found):
    """Findings as a verification stores them."""
    spec = {name: found["spec"][name] for name in ("id", "origin", "digest")}
    number = begin(folder, found["run"], found["ledger"], spec, True, found["context"]["arguments"])
    return finish(folder, number, found["verdict"], found)


def test_reports_are_written_beside_the_findings(tmp_path, child):
    run = shutil.copytree(child.path, tmp_path / "run")
    folder = tmp_path / "run.audit"
    with pytest.raises(EvidenceError):
        write_report(run)
    found = document() | sealed_as(child)
    findings = kept(folder, found)
    standing = "This is verification 1 of 1 by the log beside the findings."
    for form, extension in EXTENSIONS.items():
        path = write_report(run, form)
        assert path == folder / findings.name.replace("findings", "report").replace("json", extension)
        assert path.read_bytes() == render(found, form, standing)
        assert form == "json" or standing in path.read_text()


def test_a_report_is_not_written_to_a_folder_that_is_not_there(tmp_path, child):
    with pytest.raises(UsageError, match="there is no folder"):
        write_report(child.path, "md", out=tmp_path / "mistyped/report.md")
    assert not (tmp_path / "mistyped").exists()


def test_findings_in_another_form_than_stored_are_refused(tmp_path, child):
    """The digest in a report must be that of the file."""
    shutil.copytree(child.path, tmp_path / "run")
    content = pretty_json(document() | sealed_as(child)) + b"\n"
    write_bytes(tmp_path / "run.audit" / findings_name(1, content), content)
    with pytest.raises(EvidenceError, match="not in the form"):
        write_report(tmp_path / "run")


def test_a_report_is_of_its_findings_alone(tmp_path, child):
    """After a FAIL nothing says PASS of the run without saying which verification of how many it was."""
    run = shutil.copytree(child.path, tmp_path / "run")
    folder = tmp_path / "run.audit"
    first = kept(folder, document("PASS") | sealed_as(child))
    passed = write_report(run, "md")
    second = kept(folder, document("FAIL", check("replay", "FAIL")) | sealed_as(child))
    failed = write_report(run, "md")
    assert (passed.name, failed.name) == tuple(
        p.name.replace("findings", "report")[:-4] + "md" for p in (first, second)
    )
    assert first.exists()
    assert "FAIL" in failed.read_text().splitlines()[0]
    assert "verification 2 of 2 by the log beside the findings; the others: by this spec 1 PASS" in failed.read_text()
    assert write_report(run, "md", findings=first) == passed
    assert "verification 1 of 2 by the log beside the findings; the others: by this spec 1 FAIL" in passed.read_text()


def test_matplotlib_is_imported_for_html_only():
    script = (
        "import sys, json; from fuaudit.reporting import render; d = json.load(sys.stdin)\n"
        "for form in ('json', 'md', 'junit'): render(d, form)\n"
        "assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], input=pretty_json(document()), check=True)
