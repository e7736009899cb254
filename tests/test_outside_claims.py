"""A stranger's kind of evidence and claim: a line of registration each, named in a PASS, never in fuaudit's name."""

import sys
import tomllib
from pathlib import Path

import pytest
from tests_support import AUDIT_KEY, by_pip, config, drawn_client, installed, secret

from fuaudit import train, unlearn, verify
from fuaudit.errors import PluginError, UsageError
from fuaudit.plans import Request
from fuaudit.reporting import render
from fuaudit.verification.spec import parse_spec, read_spec

EXAMPLE = Path(__file__).parents[1] / "examples" / "rationed"
SPEC = EXAMPLE / "rationed.toml"
TABLE = tomllib.loads(SPEC.read_text())
MODULE = "fuaudit_rationed"


@pytest.fixture(scope="module")
def child(tmp_path_factory):
    root = tmp_path_factory.mktemp("rationed")
    run = train(config(), root / "parent", secret=secret(3))
    return unlearn(run, "fats", Request.of(clients=[drawn_client(run)]), root / "child")


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return by_pip(EXAMPLE, tmp_path_factory.mktemp("package"))


@pytest.fixture
def beside(package, monkeypatch):
    """The package, installed for one test."""
    monkeypatch.syspath_prepend(str(package))
    yield
    sys.modules.pop(MODULE, None)


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """Installs a module of somebody else, with its entry points."""

    def install(code, entries, folder="site"):
        monkeypatch.syspath_prepend(str(installed(tmp_path / folder, "stranger", code, entries)))
        sys.modules.pop("stranger", None)

    yield install
    sys.modules.pop("stranger", None)


def changed(most=5, **changes):
    checks = [*TABLE["check"][:2], TABLE["check"][2] | {"audit": {"use": "ration", "most": most}}]
    return parse_spec({**TABLE, "check": checks, **changes}, "our.toml")


@pytest.mark.usefixtures("beside")
def test_a_claim_about_no_request_is_one_about_training_runs_too(child):
    parent = child.path.parent / "parent"
    result = verify(parent, SPEC, key=AUDIT_KEY, save=False)
    assert result.verdict == "PASS", result.reason
    assert "forget" not in result.reason
    assert "Every required check passed: evidence for a ration of rounds" in result.reason
    page = render(result.as_json(), "md").decode()
    assert "No client took part in more rounds than its ration." in page
    assert verify(parent, changed(most=1), key=AUDIT_KEY, save=False).verdict == "FAIL"
    assert verify(parent, "client-erasure", key=AUDIT_KEY, save=False, budget=0).verdict == "INCONCLUSIVE"


@pytest.mark.usefixtures("beside")
def test_a_pass_names_whose_claim_it_is_and_the_code_that_defines_it(child):
    result = verify(child, SPEC, key=AUDIT_KEY, save=False)
    assert result.verdict == "PASS", result.reason
    assert "evidence for a ration of rounds for every client (a claim of fuaudit-rationed 0.1.0)" in result.reason
    named = "fuaudit-rationed 0.1.0 (audit 'ration', claim 'rationed', evidence 'ration'; SHA-256 of its code "
    assert f"It rests on outside code: {named}" in result.reason
    ration = result.findings[2]
    assert ration.values["most_rounds"] <= 5
    assert any("audit 'ration', claim 'rationed', evidence 'ration'" in line for line in ration.assumptions)


def test_the_report_of_a_claim_needs_no_package(child, package, monkeypatch):
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(package))
        document = verify(child, SPEC, key=AUDIT_KEY, save=False).as_json()
    sys.modules.pop(MODULE, None)
    page = render(document, "md").decode()
    assert "fuaudit-rationed 0.1.0 says: 'No client took part in more rounds than its ration. What a client" in page
    assert "The most rounds that one client takes part in" in page
    assert MODULE not in sys.modules


@pytest.mark.usefixtures("beside")
def test_claims_and_evidence_are_listed_without_an_import(fuaudit):
    lines = [line.split()[:3] for line in fuaudit("plugins")[1].splitlines()]
    assert ["claim", "rationed", "fuaudit-rationed"] in lines
    assert ["evidence", "ration", "fuaudit-rationed"] in lines
    assert MODULE not in sys.modules
    assert "claim rationed  fuaudit-rationed 0.1.0\n  says       a ration of" in fuaudit("plugins", "rationed")[1]
    assert "evidence ration  fuaudit-rationed 0.1.0\n  says       no client" in fuaudit("plugins", "ration")[1]
    assert ["claim", "rationed"] in [line.split()[:2] for line in fuaudit("plugins", "--long")[1].splitlines()]


@pytest.mark.usefixtures("beside")
def test_its_audit_refutes(child):
    assert verify(child, changed(most=1), key=AUDIT_KEY, save=False).verdict == "FAIL"


@pytest.mark.usefixtures("beside")
def test_its_evidence_is_needed():
    with pytest.raises(UsageError, match=r"no required check gives evidence of ration \(no client takes part in more"):
        changed(check=TABLE["check"][:2])


@pytest.mark.usefixtures("beside")
def test_nothing_of_it_is_imported_where_it_is_not_trusted():
    with pytest.raises(UsageError, match=r"'ration' of fuaudit-rationed 0\.1\.0 is not trusted"):
        changed(trusts=[])
    with pytest.raises(UsageError, match=r"claim 'rationed' of fuaudit-rationed 0\.1\.0 is not trusted"):
        changed(trusts=[], check=TABLE["check"][:2])
    assert MODULE not in sys.modules


def test_without_the_package_the_claim_is_unknown():
    with pytest.raises(UsageError, match="asks = 'rationed' is not 'exact' or 'bound' or 'run'"):
        changed()


CLAIM = """
from fuaudit.verification.claims import Claim, EXACT
MINE = Claim("mine", "a claim of mine", frozenset({"files"}), False, "It shows {request}.", "They asked.")
"""
REGISTERED = "[fuaudit.claims]\nmine = stranger:MINE\n"
FILES = {"id": "mine", "asks": "mine", "out_of_scope": ["All else."], "check": TABLE["check"][:1]}


@pytest.mark.parametrize(
    "entries",
    [
        "[fuaudit.claims]\nexact = stranger:MINE\n",
        "[fuaudit.claims]\nbound = stranger:MINE\n",
        "[fuaudit.evidence]\nlaw = stranger:WORDS\n",
    ],
)
def test_a_name_that_fuaudit_defines_is_refused_before_anything_is_imported(stranger, entries):
    stranger(CLAIM, entries)
    with pytest.raises(PluginError, match=r"of strangers-package 1\.5 has a name that fuaudit itself defines"):
        read_spec("client-erasure")
    assert "stranger" not in sys.modules


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("MINE = 'exact'", "it is str, not a Claim"),
        ("MINE = EXACT", "asks must be 'mine'"),
        ("MINE = replace(MINE, of='fuaudit 0.2.0')", "of must be left out"),
        ("MINE = replace(MINE, name='Exact erasure')", "a claim of fuaudit's own"),
        ("MINE = replace(MINE, needs=frozenset())", "at least one"),
        ("MINE = replace(MINE, needs=frozenset({'hope'}))", "kinds of evidence that are registered"),
        ("MINE = replace(MINE, shows='one\\ntwo')", "one line of text"),
        ("raise ValueError('not today')", "cannot be loaded: not today"),
    ],
)
def test_a_claim_that_is_not_sound_is_refused(stranger, change, reason):
    stranger(f"from dataclasses import replace\n{CLAIM}{change}\n", REGISTERED)
    with pytest.raises(PluginError, match=reason):
        parse_spec(FILES, "mine.toml")


def test_evidence_is_one_line_of_text(stranger):
    code = CLAIM.replace('frozenset({"files"})', 'frozenset({"files", "mine"})') + "SHOWS = ['no text']\n"
    stranger(code, f"{REGISTERED}[fuaudit.evidence]\nmine = stranger:SHOWS\n")
    with pytest.raises(PluginError, match=r"evidence 'mine' of strangers-package 1\.5 must be one line of text"):
        parse_spec(FILES, "mine.toml")


def test_the_digest_of_a_spec_covers_what_a_claim_means(stranger):
    stranger(CLAIM, REGISTERED)
    before = parse_spec(FILES, "mine.toml").digest
    stranger(CLAIM.replace("They asked.", "They asked nothing."), REGISTERED, "another")
    assert parse_spec(FILES, "mine.toml").digest != before
