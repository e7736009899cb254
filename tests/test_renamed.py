"""Formats, flags, names and keywords of before: each is refused by the name that came after it, none is understood."""

import json
import re
from datetime import date

import pytest

from fuaudit import __version__, load_run, train, unlearn
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.plans import Request
from fuaudit.verification.spec import parse_spec
from fuaudit.workflow.commit import commit, read_promise
from fuaudit.workflow.resume import resume

OLD_RUN = (
    f"is in the format 'fuaudit run 1', and fuaudit {__version__} reads 'fuaudit run 2'\n  Read it with fuaudit 0.1.0."
)
LATER = f"Read it with fuaudit of a later version than {__version__}."


@pytest.fixture
def copied(tiny, tmp_path):
    """A run to be changed."""
    return tiny(tmp_path / "run").path


def rewrite(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_run_of_before_is_named_before_a_field_or_a_digest_is_looked_at(copied):
    rewrite(copied / "manifest.json", format="fuaudit run 1", files="not even a table", digest=3, unheard=True)
    (copied / "model.safetensors").unlink()
    with pytest.raises(EvidenceError) as caught:
        load_run(copied)
    assert OLD_RUN in str(caught.value)
    assert caught.value.exit_code == 4


def test_a_run_of_a_later_version_is_refused_by_its_format(copied):
    rewrite(copied / "manifest.json", format="fuaudit run 3")
    with pytest.raises(EvidenceError, match=rf"'fuaudit run 3'.*'fuaudit run 2'\n  {re.escape(LATER)}"):
        load_run(copied)


@pytest.mark.parametrize(
    "strange", ["fuaudit run 2\n", "fuaudit findings 2", "fuaudit run x", 2, None, ["fuaudit run 1"]]
)
def test_what_names_no_format_of_runs_is_judged_by_its_fields(copied, strange):
    rewrite(copied / "manifest.json", format=strange)
    with pytest.raises(EvidenceError, match=r"not in the form|'format'"):
        load_run(copied)


def test_an_interrupted_run_of_before_is_left_as_it_is(copied):
    (copied / "manifest.json").unlink()
    rewrite(copied / "run.json", format="fuaudit run 1", executed_rounds=2)
    (copied / "model.safetensors.partial").write_bytes(b"half")
    with pytest.raises(EvidenceError, match=re.escape(OLD_RUN)):
        resume(copied)
    assert (copied / "model.safetensors.partial").exists()


def test_a_promise_in_another_format_is_no_usage_error(tiny, tmp_path):
    path = tmp_path / "promise.json"
    commit(tiny.tables, path, data=tiny.dataset)
    path.chmod(0o600)
    rewrite(path, format="fuaudit promise 2")
    with pytest.raises(EvidenceError, match=rf"'fuaudit promise 2'.*'fuaudit promise 1'\n  {re.escape(LATER)}"):
        read_promise(path)


@pytest.mark.parametrize(
    ("arguments", "now"),
    [
        (["train", "--until", "3"], "--stop-after"),
        (["train", "nothing.toml", "--until=3"], "--stop-after"),
        (["unlearn", "nowhere", "--with", "fats", "--anyway"], "--allow-inexact"),
        (["unlearn", "--anyway", "nowhere"], "--allow-inexact"),
        (["verify", "nowhere", "--until", "decided"], "--stopping"),
        (["verify", "nowhere", "--keep", "somewhere"], "--cache"),
        (["verify", "nowhere", "--spot", "3"], "--spot-check"),
        (["verify", "nowhere", "--anyway"], "--allow-inexact"),
        (["resume", "nowhere", "--anyway"], "--allow-inexact"),
        (["history", "nowhere", "--until", "3"], "--stop-after or --stopping"),
    ],
)
def test_a_flag_of_before_is_refused_with_the_present_one(fuaudit, arguments, now):
    code, out, err = fuaudit(*arguments)
    assert (code, out) == (2, "")
    assert f"is called {now}." in err
    assert (f"{arguments[0]} does not take it." in err) == (now.split()[0] not in fuaudit(arguments[0], "--help")[1])


@pytest.mark.parametrize(("command", "flags"), [("train", ["--until"]), ("verify", ["--until", "--keep ", "--spot "])])
def test_no_help_offers_a_flag_of_before(fuaudit, command, flags):
    _, out, _ = fuaudit(command, "--help")
    assert not [flag for flag in flags if flag in out]


@pytest.mark.parametrize(("former", "now"), [("plan", "provenance"), ("parameters", "model-law")])
def test_an_audit_of_before_is_refused_with_the_present_name(former, now):
    spec = {
        "id": "ours",
        "asks": "run",
        "out_of_scope": ["all else"],
        "expires": date(2999, 1, 1),
        "check": [{"claim": "x", "audit": {"use": former}}],
    }
    with pytest.raises(UsageError, match=f"{former!r} is called {now!r}"):
        parse_spec(spec, "our.toml")


def test_keywords_of_before_are_refused_with_the_present_ones(tiny, tmp_path):
    with pytest.raises(UsageError, match="'until' is called 'stop_after'"):
        train(tiny.tables, tmp_path / "run", data=tiny.dataset, until=1)
    with pytest.raises(UsageError, match="'anyway' is called 'allow_inexact'"):
        unlearn(tmp_path / "run", "fats", Request.of([0]), tmp_path / "child", anyway=True)
    assert not list(tmp_path.iterdir())
