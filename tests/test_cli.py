"""The command line: one JSON document, exit codes, and errors that say what to do."""

import io
import json
import math
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path

import pytest
import tomli_w
from conftest import SECRET
from hypothesis import given, settings
from hypothesis import strategies as st
from tests_support import installed, spoiled_tables, stored, told

from fuaudit import terminal
from fuaudit.config import resolve
from fuaudit.errors import EvidenceError, FuauditError, PluginError, UsageError, nearest
from fuaudit.importing import fetch as fetching
from fuaudit.plans import Request
from fuaudit.proofs.toys import AllToys, leaves_choice
from fuaudit.registry import find
from fuaudit.reporting import write_report
from fuaudit.runs import load_run
from fuaudit.runs.run import read_config_of
from fuaudit.terminal import lines
from fuaudit.text import command
from fuaudit.verification import verify as verifying
from fuaudit.verification.store import audit_folder, history
from fuaudit.verification.verify import verify
from fuaudit.workflow.prune import prune
from fuaudit.workflow.unlearn import unlearn

COMMAND = Path(sys.executable).parent / "fuaudit"
STRANGER = '''
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Raises:
    """Raises where it is asked to."""

    where: str = "rewrite"
    needs: ClassVar[frozenset] = frozenset({"plan"})
    participants: ClassVar[frozenset] = frozenset()
    guarantee: ClassVar[str] = "none"
    cite: ClassVar[str] = ""
    exact_for: ClassVar[frozenset] = frozenset()

    def __post_init__(self):
        if self.where == "build":
            raise RuntimeError("no")

    def rewrite(self, plan, request, fresh, executed):
        if self.where == "rewrite":
            return 1 / 0
        if self.where == "kind":
            return "a plan"
        if self.where == "law":
            return plan
        if self.where == "inside":
            first = plan.first_involvement(request)
            return plan.erase(request, fresh, first._replace(step=1) if first else executed)
        return plan.erase(request, fresh, executed)


@dataclass(frozen=True)
class Away(Raises):
    """Exact, under two laws."""

    where: str = "nowhere"
    exact_for: ClassVar[frozenset] = frozenset(
        (law, kind)
        for law in ("uniform with replacement", "static availability, fresh batches")
        for kind in ("client", "sample", "mixed")
    )

    def rewrite(self, plan, request, fresh, executed):
        return plan.erase(request, fresh, min(plan.first_involvement(request) or executed, executed))


@dataclass(frozen=True)
class Curious:
    """An editor that touches what it has not declared."""

    needs: ClassVar[frozenset] = frozenset()
    participants: ClassVar[frozenset] = frozenset({"server"})
    guarantee: ClassVar[str] = "none"
    cite: ClassVar[str] = ""

    def edit(self, context):
        return context.model
'''


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """A distribution of its own on the search path, with unlearners that misbehave."""
    place = tmp_path / "site"
    (place / "stranger-1.0.dist-info").mkdir(parents=True)
    (place / "stranger_methods.py").write_text(STRANGER)
    (place / "stranger-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (place / "stranger-1.0.dist-info" / "entry_points.txt").write_text(
        "[fuaudit.unlearners]\nraises = stranger_methods:Raises\ncurious = stranger_methods:Curious\n"
        "away = stranger_methods:Away\n"
    )
    monkeypatch.syspath_prepend(str(place))
    yield place
    sys.modules.pop("stranger_methods", None)


@pytest.fixture
def config_file(small_config, tmp_path):
    def write(**tables):
        path = tmp_path / "config.toml"
        path.write_text(tomli_w.dumps(small_config(**tables)))
        return path

    return write


@pytest.fixture
def copies(trained, child, untouched, tmp_path):
    """Parent, child and untouched child, to be spoiled."""
    for run in (trained, child, untouched):
        shutil.copytree(run.path, tmp_path / run.path.name)
    return tmp_path


@pytest.fixture
def spec_file(quick, tmp_path):
    """The quick spec as a file."""
    lines = ['id = "quick"', 'title = "quick"', 'asks = "run"', 'out_of_scope = ["much"]']
    for check in quick.checks:
        lines += ["[[check]]", f'claim = "{check.claim}"', f'audit = {{ use = "{check.audit["use"]}" }}']
    path = tmp_path / "quick.toml"
    path.write_text("\n".join(lines))
    return path


# --- every command


def test_help_is_quick_and_light():
    """Under half a second of the processor and without torch: how busy a machine is says nothing about a command."""

    def spent():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    begin = spent()
    done = subprocess.run([COMMAND, "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "Exit codes" in done.stdout
    assert spent() - begin < 0.5
    traced = subprocess.run([sys.executable, "-X", "importtime", COMMAND, "--help"], capture_output=True, text=True)
    modules = {line.rpartition("|")[2].strip() for line in traced.stderr.splitlines()}
    assert "fuaudit.cli" in modules
    assert not {"torch", "numpy", "sklearn", "fuaudit_plugins"} & modules


COMMANDS = ["train", "unlearn", "verify", "report", "show", "prune", "resume", "plugins", "prove", "demo"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_json_and_quiet(fuaudit, command):
    code, out, _ = fuaudit(command, "--help")
    assert code == 0
    assert "--json" in out
    assert "--quiet" in out


def test_version(fuaudit):
    code, out, _ = fuaudit("--version")
    assert code == 0
    assert "0.2.0" in out


def test_the_whole_way_in_json(fuaudit, config_file, target, spec_file, trained, tmp_path):
    """Train, show, unlearn, verify, report, prune: each prints one JSON document and nothing else."""

    def documents(*arguments, expected=0):
        code, out, err = fuaudit(*arguments, "--json")
        assert code == expected, err
        return json.loads(out)

    run = documents("train", config_file(), "--out", tmp_path / "parent", "--secret", SECRET.hex())
    assert run["digest"] == trained.digest
    assert run["rounds_executed"] == 6
    assert run["metrics"][-1]["round"] == 6
    assert run.keys() - (shown := documents("show", tmp_path / "parent")).keys() == {"constant", "next"}
    assert run | shown == run
    parent, child = tmp_path / "parent", tmp_path / "parent-fats"
    made = documents("unlearn", parent, "--with", "fats", "--client", target)
    assert made["run"] == str(child)
    assert made["parent"]["digest"] == run["digest"]
    assert made["requests"] == [f"client {target}"]
    found = documents("verify", child, "--spec", spec_file, "--commitment", run["commitment"])
    assert found["verdict"] == "PASS"
    assert found.pop("standing") == "This is verification 1 of 1 by the log beside the findings."
    assert json.loads(Path(found.pop("stored")).read_text()) == found
    for form in ("html", "json", "md", "junit"):
        assert Path(documents("report", child, "--format", form)["report"]).stat().st_size > 0
    noop = documents("unlearn", parent, "--with", "noop", "--client", target, "--out", tmp_path / "noop")
    assert documents("verify", tmp_path / "noop", "--spec", spec_file, expected=1)["verdict"] == "FAIL"
    assert noop["kind"] == "unlearning"
    left = documents("prune", child, "--yes", "--allow-orphans")
    assert left["tombstones"] == [str(parent.resolve())]
    assert left["still_holding_keys"] == [str((tmp_path / "noop").resolve())]
    assert documents("show", child)["digest"] == left["digest"]
    assert documents("verify", child, "--spec", spec_file)["verdict"] == "PASS"


def test_the_whole_way_in_words(fuaudit, config_file, target, spec_file, tmp_path):
    code, out, _ = fuaudit("train", config_file(), "--out", tmp_path / "parent")
    assert code == 0
    commitment = next(line.split()[1] for line in out.splitlines() if line.startswith("commitment "))
    assert load_run(tmp_path / "parent").commitment == commitment
    code, out, _ = fuaudit("unlearn", tmp_path / "parent", "--with", "fats", "--client", target, "-q")
    assert code == 0
    code, out, _ = fuaudit("verify", tmp_path / "parent-fats", "--spec", spec_file, "--quiet")
    assert code == 0
    assert out.startswith("PASS")
    assert len(out.strip().splitlines()) == 1
    code, out, err = fuaudit("verify", tmp_path / "parent-fats", "--spec", spec_file, "--commitment", "00" * 32)
    assert code == 1
    assert "committed" in out
    assert f"The run is under the commitment {commitment}, not the one given: this will be a FAIL." in err


def test_a_commitment_may_be_copied_untidily(fuaudit, copies, spec_file, trained):
    untidy = f"  {trained.commitment.upper()}\n"
    assert fuaudit("verify", copies / "fats", "--spec", spec_file, "-q", "--commitment", untidy)[0] == 0
    for wrong in ("", "abc", trained.commitment + "0", "g" * 64, " ".join(["ab"] * 32)):
        code, _, err = fuaudit("verify", copies / "fats", "--spec", spec_file, "-q", "--commitment", wrong)
        assert code == 2
        assert "--commitment takes 64" in err


def test_show_tells_where_a_run_comes_from(fuaudit, trained, child, target, tmp_path):
    shown = fuaudit("show", child.path)[1]
    for words in (
        "kind          unlearning, 6 rounds of 6",
        f"parent        parent, digest {trained.digest}",
        f"request       client {target}",
        "method        fats (rewriter), exact",
        f"kept          {child.info['first_change'][0] - 1} of 6 rounds",
    ):
        assert words in shown, words
    assert "kind          training, 6 rounds of 6" in fuaudit("show", trained.path)[1]
    out = tmp_path / "edited"
    code, made, _ = fuaudit("unlearn", trained.path, "--with", "finetune", "--sample", "3:1", "--out", out)
    assert code == 0
    assert f"asked finetune to forget sample {trained.sample(3, 1)} (3:1); not verified yet" in made
    assert "\nto verify and report:\n" in made, "what was committed to was to be published before the request"
    assert "kept          no plan: the parent's last model was edited" in made
    assert command("verify", out, parent=trained.path, commitment=trained.commitment, sample=("3:1",)) in made
    assert command("report", out) in made


def test_what_another_request_would_cost_is_said_of_methods_that_keep_rounds(fuaudit, copies, child, untouched):
    """The probability is that of FATS: retraining computes all rounds again, and noop none."""
    said = "forgetting one more client with fats: rounds are computed anew with probability"
    assert (
        fuaudit("unlearn", copies / "parent", "--with", "retrain", "--client", "0", "--out", copies / "again")[0] == 0
    )
    for name, expected in (("parent", True), ("fats", True), ("noop", False), ("again", False)):
        assert (said in fuaudit("show", copies / name)[1]) is expected, name
        assert bool(json.loads(fuaudit("show", copies / name, "--json")[1])["stability"]) is expected


def test_errors_say_what_to_do_next(fuaudit, copies, config_file, spec_file):
    """The nearest name, or the next command."""
    config_file()
    for arguments, expected in (
        (("show", copies / "fatz"), f"Nearest to it: {copies / 'fats'}"),
        (("train", copies / "confg.toml"), f"Nearest to it: {copies / 'config.toml'}"),
        (("show", copies / "none" / "run"), "fuaudit train CONFIG"),
        (("show", copies / "config.toml"), "is a file; a run is a folder"),
        (("show", copies / "xyzw"), "fuaudit train CONFIG"),
        (("resume", copies / "fats"), f"fuaudit show {copies / 'fats'}"),
    ):
        code, out, err = fuaudit(*arguments)
        assert code in (2, 4)
        assert out == ""
        assert expected in err, arguments
    assert "unlearn first: fuaudit unlearn" in fuaudit("verify", copies / "parent", "--spec", spec_file)[1]
    assert "unlearn first" not in fuaudit("verify", copies / "fats", "--spec", spec_file)[1]
    assert fuaudit("unlearn", copies / "parent", "--with", "finetune", "--client", "0", "-q")[0] == 0
    code, _, err = fuaudit("prune", copies / "parent-finetune", "--yes")
    assert code == 2
    assert "prune that child" in err


def test_a_run_named_by_a_dot(fuaudit, copies, monkeypatch):
    monkeypatch.chdir(copies / "fats")
    assert fuaudit("show", ".")[0] == 0
    monkeypatch.chdir(copies / "parent")
    code, _, err = fuaudit("unlearn", ".", "--with", "retrain", "--client", "0")
    assert code == 0, err
    assert (copies / "parent-retrain" / "manifest.json").exists()


def test_plugins(fuaudit):
    code, out, _ = fuaudit("plugins", "--long", "--json")
    rows = {(row["kind"], row["name"]): row for row in json.loads(out)["plugins"]}
    assert code == 0
    assert {("unlearner", "fats"), ("unlearner", "noop"), ("learner", "fedavg"), ("audit", "replay")} <= rows.keys()
    assert rows["unlearner", "fats"]["distribution"] == "fuaudit"
    assert "VLDB" in rows["unlearner", "fats"]["cite"]
    mutants = {name for (_, name), row in rows.items() if row["mutant"]}
    assert mutants == {"fats-as-printed", "coupling-wrong-acceptance"}
    lines = [line for line in fuaudit("plugins", "--long")[1].splitlines() if "mutant: wrong on purpose" in line]
    assert {line.split()[1] for line in lines} == mutants
    listed = json.loads(fuaudit("plugins", "--json")[1])["plugins"]
    assert listed == [
        {word: row[word] for word in ("kind", "name", "distribution", "version")} for row in rows.values()
    ]
    lines = fuaudit("plugins")[1].splitlines()
    assert len(lines) == len(rows)
    told = (f" {row['distribution']} {row['version']}" for row in rows.values())
    assert len({line.rindex(text) for line, text in zip(lines, told, strict=True)}) == 1, "the columns are ragged"


@pytest.mark.parametrize(
    ("arguments", "variation", "expected"),
    [
        (("fats-as-printed", "--request", "sample"), "1/8", 1),
        (("fats-as-printed", "--request", "sample", "--samples", "3", "--rounds", "2"), "1/12", 1),
        (("fats", "--request", "sample"), "0", 0),
        (("fats", "--request", "client"), "0", 0),
        (("fats", "--request", "mixed", "--clients", "3", "--without-replacement"), "0", 0),
        (("retrain", "--requests", "2", "--clients", "4"), "0", 0),
        (("noop", "--request", "sample"), "1/4", 1),
        (("fats",), "0", 0),
    ],
)
def test_prove(fuaudit, arguments, variation, expected):
    code, out, _ = fuaudit("prove", *arguments, "--json")
    document = json.loads(out)
    assert (code, document["exact"]) == (expected, not expected)
    asked = [proof["request"] for proof in document["proofs"]]
    one = [kind for kind in ("client", "sample", "mixed") if kind in arguments]
    assert asked == (one or ["client", "sample"])
    for proof in document["proofs"]:
        assert proof["total_variation"] == variation
        assert ("witness" in proof) == bool(expected)
    assert fuaudit("prove", *arguments)[1].startswith(
        f"{asked[0]}: {'refuted' if expected else 'proved on this one federation'}, total variation {variation}"
    )


@pytest.mark.usefixtures("stranger")
def test_prove_names_a_method_that_fails_and_what_to_do(fuaudit):
    code, _, err = fuaudit("prove", "raises", "--option", "where='inside'")
    assert code == 5
    assert "unlearner 'raises': the plan draws a batch of client 2 over a population without it" in err
    assert "erase from the cohort on: Position(round, 0)" in err


def test_prove_tries_both_kinds_of_request(fuaudit):
    code, out, _ = fuaudit("prove", "fats-as-printed")
    assert code == 1
    assert "client: proved on this one federation, total variation 0\n" in out
    assert "sample: refuted, total variation 1/8\n" in out
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    shown = readme.partition("$ fuaudit prove fats-as-printed --request sample\n")[2].partition("```")[0]
    assert shown
    assert shown in out
    assert "shows little" not in out
    assert "One federation, of 1 round, shows little" in fuaudit("prove", "fats")[1]


@pytest.mark.parametrize("up_to", [(), ("--up-to", "2", "--leaves", "500")])
def test_prove_says_which_kind_of_request_was_not_asked_and_how_to_ask(fuaudit, up_to):
    told = "Not asked: a client and a sample in one request. --request mixed asks for that."
    assert fuaudit("prove", "fats", *up_to)[1].splitlines()[-1] == told
    assert json.loads(fuaudit("prove", "fats", *up_to, "--json")[1])["not_asked"] == ["mixed"]
    for kind in ("mixed", "sample"):
        code, out, _ = fuaudit("prove", "fats", *up_to, "--request", kind)
        assert (code, "Not asked" in out) == (0, False)
        assert json.loads(fuaudit("prove", "fats", *up_to, "--request", kind, "--json")[1])["not_asked"] == []


@pytest.mark.parametrize("up_to", [(), ("--up-to", "2", "--leaves", "500")])
def test_prove_says_for_which_law_a_method_claims_exactness(fuaudit, up_to):
    """coupling is for weighted cohorts, of which prove has none; the others claim what is asked, or nothing."""
    asked = ("prove", "coupling", "--request", "sample", *up_to)
    code, out, _ = fuaudit(*asked)
    assert (
        "coupling claims to be exact for 'weighted without replacement'. prove cannot be asked for that: "
        "check_unlearner and the audit enumeration try it."
    ) in out.splitlines()
    again, document, _ = fuaudit(*asked, "--json")
    assert code == again == 0
    assert json.loads(document)["elsewhere"] == ["weighted without replacement"]
    for name in ("fats", "retrain", "noop"):
        assert "claims to be exact for" not in fuaudit("prove", name, "--request", "sample", *up_to)[1]


@pytest.mark.parametrize("up_to", [(), ("--up-to", "2")])
def test_a_method_that_refuses_the_law_asked_for_says_for_which_it_is(fuaudit, up_to):
    code, _, err = fuaudit("prove", "coupling", *up_to)
    assert code == 2
    assert err.splitlines()[-2:] == [
        "error: the coupling tabulates weighted cohorts, not those of 'uniform with replacement'",
        "  coupling claims to be exact for 'weighted without replacement'. prove cannot be asked for that: "
        "check_unlearner and the audit enumeration try it.",
    ]
    assert "claims to be exact" not in fuaudit("prove", "fats", "--request", "sample", "--samples", "1")[2]


@pytest.mark.usefixtures("stranger")
def test_prove_says_which_of_the_laws_that_a_method_claims_can_be_asked(fuaudit):
    asked = ("prove", "away", "--request", "sample")
    assert "claims to be exact for" not in fuaudit(*asked)[1]
    code, out, _ = fuaudit(*asked, "--without-replacement")
    assert code == 0
    assert (
        "away claims to be exact for 'static availability, fresh batches', 'uniform with replacement'. Ask for 'uniform"
        " with replacement' without --without-replacement. prove cannot be asked for 'static availability, fresh "
        "batches': check_unlearner and the audit enumeration try it."
    ) in out.splitlines()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--request", "client", "--clients", "2"),
        ("--request", "sample", "--samples", "1"),
        ("--request", "mixed", "--clients", "2"),
        ("--request", "client", "--clients", "4", "--requests", "3"),
    ],
)
def test_prove_leaves_something_to_choose(fuaudit, arguments):
    code, _, err = fuaudit("prove", "noop", *arguments)
    assert code == 2
    assert "would leave nothing to choose" in err


def test_prove_sweeps(fuaudit):
    code, out, _ = fuaudit("prove", "fats", "--up-to", "2", "--json", "--leaves", "2000")
    found = json.loads(out)
    assert code == 0
    assert found["proved"] > 20
    assert found["refuted"] == 0
    assert found["too_large"] > 0
    code, out, _ = fuaudit("prove", "fats-as-printed", "--up-to", "2", "--leaves", "20000")
    assert code == 1
    assert "smallest refutation" in out
    assert "1/4" in out
    code, out, _ = fuaudit("prove", "fats-as-printed", "--up-to", "2", "--leaves", "2000", "--request", "client")
    assert code == 0
    assert "0 refuted" in out


@pytest.mark.parametrize("replacement", [True, False])
def test_a_sweep_makes_its_federations_as_they_are_needed(replacement):
    """In the order of the product of parameters, then of samples; something is left to choose in each."""
    toys = list(AllToys(3, replacement))
    assert len(toys) == len(set(map(str, toys))) == len(AllToys(3, replacement))
    work = [prod((toy.law.rounds, toy.law.cohort_size, toy.law.steps, toy.law.batch_size)) for toy in toys]
    assert work == sorted(work)
    sizes = [max(map(len, toy.population.samples.values())) for toy in toys]
    assert all(toy.law.batch_size <= size for toy, size in zip(toys, sizes, strict=True))
    assert {toy.law.replacement for toy in toys} == {replacement}
    assert all(leaves_choice(toy.population, toy.requests) for toy in toys)
    assert {toy.requests[0].kind for toy in toys} == {"client", "sample"}
    left = {tuple(sorted(map(len, toy.population.without(toy.requests[0]).samples.values()))) for toy in toys}
    assert len(left) == 6 + 10  # all multisets of two and of three sizes up to 3
    begin = time.process_time()
    assert next(iter(AllToys(5, replacement))).population.size == 3
    assert time.process_time() - begin < 1  # a list of all would take many seconds


def test_a_sweep_takes_no_size_of_one_federation(fuaudit):
    for option, value in (("clients", 3), ("samples", 2), ("rounds", 1), ("cohort", 1), ("steps", 1), ("batch", 1)):
        code, _, err = fuaudit("prove", "fats", "--up-to", "2", f"--{option}", value)
        assert code == 2
        assert f"and --{option} would say which one" in err
    code, _, err = fuaudit("prove", "fats", "--requests", "1", "--up-to", "2")
    assert code == 2
    assert "and --requests would say" in err
    assert fuaudit("prove", "fats", "--up-to", "2", "--without-replacement", "--leaves", "500")[0] == 0


def test_a_sweep_says_what_it_shows_nothing_of(fuaudit):
    code, out, _ = fuaudit("prove", "fats", "--up-to", "2", "--leaves", "10")
    assert (code, "2 federations proved exact, 0 refuted, 270 too large" in out) == (0, True)
    assert "Nothing is shown of 270 of 272 federations: they have more outcomes than --leaves." in out
    assert "Nothing is shown" not in fuaudit("prove", "retrain", "--up-to", "1")[1]


def test_a_sweep_that_would_take_days_is_refused(fuaudit):
    code, _, err = fuaudit("prove", "fats", "--up-to", "6")
    assert code == 2
    assert "2,074,500 federations" in err


def test_quiet_prints_one_line(fuaudit, copies, spec_file, monkeypatch):
    def said(*arguments):
        code, out, err = fuaudit(*arguments, "--quiet")
        assert (code, err) == (0, ""), err
        return out.splitlines()

    assert said("show", copies / "fats") == [f"{copies / 'fats'}: every byte accounted for"]
    [made] = said("unlearn", copies / "parent", "--with", "retrain", "--client", "0")
    assert made.endswith("asked retrain to forget client 0; not verified yet")
    verify(copies / "fats", spec_file)
    [written] = said("report", copies / "fats")
    assert Path(written).exists()
    [done, *others] = said("prune", copies / "fats", "--yes", "--allow-orphans")
    assert done.startswith("pruned ")
    assert said("prune", copies / "fats", "--yes")[0] == f"{copies / 'fats'} was pruned already"
    assert all(line.startswith(("left alone: ", "without their parent now: ")) for line in others)
    assert others
    assert said("prove", "fats") == [
        "client: proved on this one federation, total variation 0; "
        "sample: proved on this one federation, total variation 0"
    ]
    assert len(said("prove", "fats", "--up-to", "2", "--leaves", "500")) == 1

    def work(dataset, root):
        print("a bar", file=sys.stderr)

    monkeypatch.setattr(fetching, "fetch", work)
    assert said("fetch", "mnist", "--data", copies) == [f"mnist is in {copies}"]
    assert fuaudit("fetch", "mnist", "--data", copies)[2] == "a bar\n"


def test_prove_refuses(fuaudit):
    assert fuaudit("prove", "finetune")[0] == 2
    for option, expected in (("round=5", "no option 'round'"), ("rounds", "NAME=VALUE"), ('use="fats"', "by its name")):
        code, _, err = fuaudit("prove", "retrain", "--option", option)
        assert (code, expected in err) == (2, True), err
    assert fuaudit("prove", "fats", "--clients", "1")[0] == 2
    for size in ("--clients", "--samples", "--requests"):
        code, _, err = fuaudit("prove", "fats", size, "9" * 4_000)
        assert (code, "more samples than the budget" in err) == (2, True)
    code, _, err = fuaudit("prove", "fats", "--clients", "4", "--rounds", "4", "--cohort", "3", "--leaves", "1000")
    assert code == 2
    assert "leaves" in err


# --- what is wrong is said, with its exit code


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--with", "fatz", "--client", "0"), "Did you mean 'fats'"),
        (("--with", "fats", "--client", "77"), "no client 77"),
        (("--with", "fats", "--sample", "77:0"), "no client 77"),
        (("--with", "fats", "--sample", "0:99999"), "samples 0 to"),
        (("--with", "fats", "--sample", "zero"), "NAME:INDEX"),
        (("--with", "fats", "--sample", f"0:{'1' * 5_000}"), "NAME:INDEX"),
        (("--with", "fats"), "nothing to forget"),
        (("--with", "finetune", "--client", "0", "--option", "round=5"), "Did you mean 'rounds'"),
        (("--with", "finetune", "--client", "0", "--option", "rounds=many"), "NAME=VALUE"),
        (("--with", "finetune", "--client", "0", "--option", 'rounds="5"'), "rounds = '5' is not a whole number"),
        (("--with", "finetune", "--client", "0", "--option", "rounds=0"), "at least 1"),
        (("--with", "fats", "--client", "0", "--option", 'use="retrain"'), "by its name"),
        (("--with", "fats", "--cliant", "0"), "--client"),
        (("--with", "fats", "--client", "zero"), "no client zero"),
        (("--client", "0"), "--with"),
    ],
)
def test_unlearn_refuses(fuaudit, trained, tmp_path, arguments, expected):
    code, out, err = fuaudit("unlearn", trained.path, "--out", tmp_path / "child", *arguments)
    assert code == 2
    assert out == ""
    assert expected in err
    assert "Traceback" not in err
    assert not (tmp_path / "child").exists()


def test_the_name_of_an_unlearner_is_no_option(trained, tmp_path):
    """It would carry out one, and record the name of the other."""
    with pytest.raises(UsageError, match="use is no option"):
        unlearn(trained, "fats", Request.of([0]), tmp_path / "child", {"use": "retrain"})
    assert not (tmp_path / "child").exists()


def test_a_config_says_all_that_is_wrong_at_once(fuaudit, tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(
        """
        scalling = "none"
        [data]
        use = "digit"
        [partition]
        use = "iid"
        client = 5
        [model]
        use = "mlp"
        hidden = ["wide"]
        [learner]
        use = "fats"
        rounds = "six"
        cohort = 2
        steps = 2
        batch = 4
        stepsize = 0.1
        [[server]]
        use = "median"
        [run]
        checkpoint_evry = 2
        engine = "fast"
        """
    )
    code, _, err = fuaudit("train", path, "--out", tmp_path / "run")
    assert code == 2
    for wrong in (
        "'scalling'", "'digit'", "'client'", "'clients'", "hidden", "rounds = 'six'", "'stepsize'",
        "'step_size'", "'median'", "'checkpoint_evry'", "'checkpoint_every'", "engine = 'fast'",
    ):  # fmt: skip
        assert wrong in err, wrong
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ({"learner": {"rounds": 0}}, "rounds must be"),
        ({"learner": {"step_size": -1.0}}, "step_size"),
        ({"partition": {"use": "iid", "clients": 10**6}}, "cannot share"),
        ({"partition": {"use": "one-holder", "clients": 10**6}}, "of 1000000 clients one holds class 9 alone"),
        ({"model": {"use": "cnn"}}, "images"),
        ({"scaling": "standardize"}, "Did you mean 'standardise'"),
        ({"data": {"use": "mnist"}}, "--data ROOT"),
        ({"run": 3}, "one table, not 3"),
        ({"server": 3}, "server must be a list"),
        ({"server": [3]}, '[[server]] must be a table with use = "..."'),
        ({"server": [{"use": ["a"]}]}, '[[server]] must be a table with use = "..."'),
        ({"server": False}, "server must be a list"),
        ({"model": {"use": ["linear"]}}, 'use = "name"'),
        ({"model": {"use": "mlp", "hidden": 2**70}}, "more than 64 bits"),
        ({"run": {"checkpoint_every": 0}}, "checkpoint_every"),
        ({"learner": {"step_size": 1e38}}, "no longer finite"),
    ],
)
def test_train_refuses(fuaudit, config_file, tmp_path, tables, expected):
    code, _, err = fuaudit("train", config_file(**tables), "--out", tmp_path / "run")
    assert code == 2
    assert expected in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("tables", "place", "told"),
    [
        ({"learner": {"rounds": "6"}}, "[learner]", "rounds = '6' is not a whole number"),
        ({"learner": {"batch": 0}}, "[learner]", "batch must be a whole number from 1 to 2**31 - 1, not 0"),
        ({"learner": {"cohort": -2}}, "[learner]", "cohort must be a whole number from 1 to 2**31 - 1, not -2"),
        ({"learner": {"step_size": math.nan}}, "[learner]", "step_size = nan is nothing that a run can hold"),
        ({"learner": {"use": "fast"}}, "[learner]", "Did you mean 'fats'?"),
        ({"model": {"use": ""}}, "[model]", "there is no model called ''"),
        ({"model": {"use": "mlp", "hidden": [3, -1]}}, "[model]", "must be at least 1, not -1"),
        ({"model": 3}, "[model]", "it must be one table, not 3"),
        ({"solver": {"use": "fedprox", "mu": -1.0}}, "[solver]", "mu must be at least 0, not -1.0"),
        ({"server": [{"use": "mean"}, {"use": "meen"}]}, "[[server]] 2", "Did you mean 'mean'?"),
        ({"server": [{"use": "trimmed-mean"}]}, "[[server]]", "needs the option 'trim'"),
        ({"client": [{"use": "byz"}]}, "[[client]]", "there is no client stage or Byzantine client called 'byz'"),
        ({"transport": [{"use": "clear"}]}, "[transport]", 'use = "...", not a list of tables, [[...]]'),
        ({"unlearner": {"use": "finetune", "rounds": -1}}, "[unlearner]", "rounds must be at least 1, not -1"),
        ({"unlearner": "fats"}, "[unlearner]", "it must be one table, not 'fats'"),
        ({"run": {"checkpoint_every": -2}}, "[run]", "checkpoint_every must be at least 1, not -2"),
        ({"run": {"device": "gpu"}}, "[run]", "device = 'gpu' is not 'auto' or 'cpu' or 'cuda'"),
        ({"run": [{"dtype": "float32"}]}, "[run]", "it must be one table, not a list of tables, [[...]]"),
    ],
)
def test_a_refused_value_is_named_with_file_and_table(fuaudit, config_file, tmp_path, tables, place, told):
    path = config_file(**tables)
    code, _, err = fuaudit("train", path, "--out", tmp_path / "run")
    assert code == 2
    assert err.startswith(f"error: {path}, {place}: ")
    assert told in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"[data]\nuse = 1\n[data]\n", "is not TOML: Cannot declare ('data',) twice (at line 3"),
        (b"[data\n", "is not TOML: Expected ']'"),
        ("[data]".encode("utf-16"), "is not TOML: byte 0 is no UTF-8\n  Save it as text in UTF-8."),
        (b"scaling = 3\n", "scaling = 3 is no text"),
        (b"server = 3\n", "server must be a list of tables, [[server]], not 3"),
        (b"[runn]\n", "has no table 'runn'. Did you mean 'run'?"),
        (b"", "needs the table [data]"),
    ],
)
def test_a_file_that_is_no_config_is_named(fuaudit, tmp_path, content, told):
    path = tmp_path / "own.toml"
    path.write_bytes(content)
    code, _, err = fuaudit("train", path, "--out", tmp_path / "run")
    assert (code, err.startswith(f"error: {path}")) == (2, True)
    assert told in err


def test_a_folder_that_nothing_reads_is_refused(fuaudit, config_file, trained, child, target, tmp_path):
    """Who gives one would take what comes out for a result of the rows in it."""
    (tmp_path / "own").mkdir()
    data = ("--data", tmp_path / "own")
    config, out = config_file(), tmp_path / "out"
    for words in (
        ("train", config, "--out", out, *data),
        ("commit", config, "--out", out, *data),
        ("unlearn", trained.path, "--with", "fats", "--sample", "0:0", "--out", out, *data),
        ("verify", child.path, *data),
        ("verify", child.path, "--erased", tmp_path / "own"),
    ):
        code, _, err = fuaudit(*words)
        assert code == 2, words
        assert f"the dataset 'digits' reads no folder, and {tmp_path / 'own'} was given" in err
        assert not out.exists()


def dropouts(config):
    learner = {"use": "mimic", "scenario": "round-robin", "tau_max": 3, "rounds": 4, "epochs": 1, "largest_client": 9}
    learner |= {"batch": 2, "step_size": 0.1, "decay": 0.9, "phase": "drawn"}
    server = [{"use": "mimic"}, {"use": "server-step", "size": 0.5, "schedule": "constant"}]
    return config | {"learner": learner, "solver": {"use": "sgd", "momentum": 0.5}, "server": server}


@settings(derandomize=True, deadline=None, max_examples=200)
@given(data=st.data())
def test_any_value_in_any_place_of_a_config_is_taken_or_refused(small_config, data):
    config = small_config() | {"scaling": "none", "server": [{"use": "mean"}, {"use": "momentum", "beta": 0.5}]}
    table = data.draw(st.sampled_from([config, dropouts(config)]))
    with suppress(FuauditError):
        resolve(data.draw(spoiled_tables(table)))
    resolve(table)  # and nothing else is wrong with it


@pytest.mark.parametrize("text", ["a" + ".a" * 5000 + " = 1", "a = " + "[" * 5000 + "]" * 5000, "a = " + "9" * 5000])
def test_toml_that_no_reader_can_hold(fuaudit, trained, tmp_path, text):
    (tmp_path / "x.toml").write_text(text)
    for arguments in (("train", tmp_path / "x.toml", "--out", tmp_path / "run"), ("verify", "RUN", "--spec", "SPEC")):
        given = [{"RUN": trained.path, "SPEC": tmp_path / "x.toml"}.get(argument, argument) for argument in arguments]
        code, _, err = fuaudit(*given)
        assert code == 2
        assert "is not TOML" in err
    shutil.copytree(trained.path, tmp_path / "hostile")
    (tmp_path / "hostile" / "config.toml").write_text(text)
    with pytest.raises(EvidenceError, match="cannot be read"):
        read_config_of(tmp_path / "hostile")


def test_what_is_no_file(fuaudit, config_file, trained, tmp_path):
    """A folder, and something below a file."""
    config = config_file()
    for path, words in ((tmp_path, "cannot be read"), (config / "x.toml", "there is no config")):
        code, _, err = fuaudit("train", path, "--out", tmp_path / "run")
        assert (code, words in err) == (2, True), err
    for path, words in ((tmp_path, "cannot be read"), (config / "x.toml", "there is no spec")):
        code, _, err = fuaudit("verify", trained.path, "--spec", path)
        assert (code, words in err) == (2, True), err
        looked = "No file is at this path, and no built-in spec has this name. Known: bounded-difference, "
        assert (looked in err) is (words == "there is no spec"), err
    for path in (config, config / "below"):
        code, _, err = fuaudit("fetch", "mnist", "--data", path)
        assert (code, "cannot write" in err) == (70, True), err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("nowhere.toml",), "no config nowhere.toml"),
        ((__file__,), "is not TOML"),
        (("CONFIG", "--secret", "abc"), "64 hexadecimal"),
        (("CONFIG", "--stop-after", "7"), "rounds 1 to 6"),
        (("CONFIG", "--stop-after", "0"), "rounds 1 to 6"),
        ((), "CONFIG"),
    ],
)
def test_train_is_used_wrongly(fuaudit, config_file, tmp_path, arguments, expected):
    given = [config_file() if argument == "CONFIG" else argument for argument in arguments]
    code, _, err = fuaudit("train", *given, "--out", tmp_path / "run")
    assert code == 2
    assert expected in err


def test_unknown_command(fuaudit):
    code, _, err = fuaudit("unlern")
    assert code == 2
    assert "unlern" in err


def test_a_batch_larger_than_a_client(fuaudit, config_file, spec_file, tmp_path):
    """The rule is min(b, n_k), for training and for unlearning alike: it works."""
    path = config_file(partition={"use": "iid", "clients": 400}, learner={"batch": 50, "cohort": 20})
    assert fuaudit("train", path, "--out", tmp_path / "parent", "-q")[0] == 0
    code, _, err = fuaudit("unlearn", tmp_path / "parent", "--with", "fats", "--sample", "3:0", "--sample", "4:1")
    assert code == 0, err
    assert fuaudit("verify", tmp_path / "parent-fats", "--spec", spec_file, "-q")[0] == 0


def test_verify_exit_codes(fuaudit, copies, spec_file):
    assert fuaudit("verify", copies / "fats", "--spec", spec_file)[0] == 0
    assert fuaudit("verify", copies / "noop", "--spec", spec_file)[0] == 1
    assert fuaudit("verify", copies / "parent", "--spec", spec_file)[0] == 3
    assert fuaudit("verify", copies / "fats", "--spec", "client-erazure")[0] == 2
    assert fuaudit("verify", copies / "fats", "--parent", copies / "noop")[0] == 4
    shutil.rmtree(copies / "parent")
    code, out, _ = fuaudit("verify", copies / "fats", "--spec", spec_file)
    assert code == 3
    assert "not at hand: give its folder with --parent" in out


@pytest.mark.parametrize(
    "command", [("show",), ("verify",), ("unlearn", "--with", "fats", "--client", "0"), ("prune", "--yes")]
)
def test_corrupt_runs(fuaudit, copies, command):
    path = copies / "fats" / "metrics.json"
    path.write_bytes(path.read_bytes().replace(b"0", b"1", 1))
    code, out, err = fuaudit(command[0], copies / "fats", *command[1:])
    assert code == 4
    assert out == ""
    assert "altered: metrics.json" in err
    code, _, err = fuaudit(command[0], copies / "nowhere", *command[1:])
    assert code == 4
    assert "no run at" in err


def test_a_corrupt_parent(fuaudit, copies, spec_file):
    (copies / "parent" / "clients.json").write_text("{}")
    assert fuaudit("verify", copies / "fats", "--spec", spec_file)[0] == 4


def test_lines_of_progress_where_there_is_no_terminal(capsys):
    """One every 20 seconds, and none for work that is done by then."""
    now = iter([0.0, 5.0, 21.0, 21.5, 30.0, 42.0, 42.0])
    show = lines(lambda: next(now))
    for done in range(1, 5):
        show("plans", done, 4000)
    assert capsys.readouterr().err.splitlines() == ["plans: 2 of 4,000", "plans: 4 of 4,000"]


def test_a_pass_says_what_it_says_nothing_of(fuaudit, copies, spec_file):
    """The parent still holds what was forgotten, and a prune removes it. Of a pruned run neither is said."""
    _, out, _ = fuaudit("verify", copies / "fats", "--spec", spec_file)
    assert "beyond this model may still hold what was forgotten" in out
    assert f"what ancestors hold is removed by fuaudit prune {copies / 'fats'}" in out
    shutil.rmtree(copies / "noop")
    assert fuaudit("prune", copies / "fats", "--yes")[0] == 0
    _, out, _ = fuaudit("verify", copies / "fats", "--spec", spec_file)
    assert "PASS" in out.splitlines()[0]
    assert "may still hold" not in out
    assert "fuaudit prune" not in out


def test_a_run_that_was_pruned_is_not_to_be_pruned_again(fuaudit, copies, trained, target):
    """It holds keys for its own request: only its removal helps the other one."""
    shutil.copytree(copies / "parent", copies / "again")
    shutil.rmtree(copies / "noop")
    other = next(client for client in trained.plan.retained.clients if client != target)
    unlearn(copies / "parent", "fats", Request.of([other]), copies / "second")
    assert fuaudit("prune", copies / "second", "--yes", "--allow-orphans")[0] == 0
    out = fuaudit("prune", copies / "fats", "--yes")[1]
    assert not any("second" in line and "prune or remove" in line for line in out.splitlines())
    assert any("second" in line and "it was pruned already, so remove it" in line for line in out.splitlines())


def test_who_gives_a_tombstone_is_told_which_run_was_made_from_it(fuaudit, copies):
    """Also by another of which a tombstone alone is left."""
    shutil.rmtree(copies / "noop")
    who = str(load_run(copies / "fats").plan.retained.clients[0])
    asked = ("--with", "retrain", "--client", who)
    assert fuaudit("unlearn", copies / "fats", *asked, "--out", copies / "last")[0] == 0
    assert fuaudit("prune", copies / "last", "--yes")[0] == 0
    for name in ("parent", "fats"):
        code, _, err = fuaudit("unlearn", copies / name, *asked)
        assert code == 4
        assert "was pruned: only its tombstone is left" in err
        assert err.splitlines()[-1].endswith(f"Give a run that was made from it: {copies / 'last'}")
    shutil.rmtree(copies / "last")
    err = fuaudit("show", copies / "fats")[2]
    assert err.splitlines()[-1].endswith("Give a run that was made from it.")


def test_of_many_files_that_are_missing_five_are_named(fuaudit, copies):
    lost = sorted((copies / "parent" / "checkpoints").iterdir())[:-1]
    others = [
        copies / "parent" / name for name in ("metrics.json", "model.safetensors", "participation.json", "plan.json")
    ]
    for path in (*lost, *others):
        path.unlink()
    names = [str(path.relative_to(copies / "parent")) for path in (*lost, *others)]
    code, _, err = fuaudit("show", copies / "parent")
    assert code == 4
    assert f"missing: {', '.join(names[:5])} and {len(names) - 5} more." in err
    assert names[5] not in err


def test_what_cannot_be_pruned_is_not_to_be_pruned(fuaudit, copies):
    """The sibling that left the model as it was still draws what it was asked to forget."""
    out = fuaudit("prune", copies / "fats", "--yes", "--allow-orphans")[1]
    assert any("noop" in line and "remove it: it cannot be pruned" in line for line in out.splitlines())


def test_what_is_missing_is_offered(fuaudit, trained, tmp_path):
    assert "--with fats" in fuaudit("unlearn", trained.path, "--client", "0")[2]
    (tmp_path / "rows.csv").write_text("ward,x,y\nA,1,0\n")
    code, _, err = fuaudit("import", tmp_path / "rows.csv", "--out", tmp_path / "out")
    assert (code, "'ward', 'x', 'y'" in err) == (2, True), err


def test_names_that_are_offered():
    """Also by a part of them; one with a comma is one name."""
    assert nearest("Mercy", ["007", "Mercy, North"]) == "Did you mean 'Mercy, North'? Known: 007, 'Mercy, North'."
    assert nearest("7", ["007", "Mercy, North"]).startswith("Did you mean '007'?")
    assert nearest("", ["a"]) == "Known: a."


@contextmanager
def nobody_reads():
    """Standard error is a pipe that nobody reads from any more, and every bit of progress is a line."""
    reads, writes = os.pipe()
    os.close(reads)
    with open(writes, "w", buffering=1) as pipe, pytest.MonkeyPatch.context() as patched:
        patched.setattr(terminal, "EVERY", 0.0)
        patched.setattr(sys, "stderr", pipe)
        yield
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, writes)  # what is left in the buffer has nowhere to go
        os.close(null)


def test_progress_that_cannot_be_shown_is_no_verdict(fuaudit, copies, spec_file):
    """Neither the pipe of ``2>&1 | head`` nor a full log breaks an audit, or what is said before it."""
    with nobody_reads():
        code, out, _ = fuaudit("verify", copies / "fats", "--spec", spec_file)
    assert code == 0, out
    (entry,) = history(audit_folder(copies / "fats"))
    assert entry.verdict == "PASS"


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(28, "no space")])
def test_a_callback_that_cannot_show_is_asked_once(child, quick, error):
    """Also one of Python's: from then on it is left alone."""
    asked = []

    def show(what, done, total):
        asked.append(what)
        raise error

    result = verify(child, quick, budget=0, progress=show, save=False)
    assert result.verdict == "PASS", result.reason
    assert len(asked) == 1


def test_no_standard_error_at_all(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(terminal, "EVERY", 0.0)
    with terminal.bars(quiet=False) as show:
        show("plans", 1, 2)
    assert capsys.readouterr().out == ""


def test_resume_refuses(fuaudit, copies, tmp_path):
    code, _, err = fuaudit("resume", copies / "fats")
    assert code == 2
    assert "nothing to resume" in err
    (tmp_path / "empty").mkdir()
    assert fuaudit("resume", tmp_path / "empty")[0] == 4
    code, _, err = fuaudit("resume", tmp_path / "nowhere")
    assert code == 4
    assert "there is no folder" in err
    (copies / "fats" / "manifest.json").unlink()
    shutil.rmtree(copies / "parent")
    code, _, err = fuaudit("resume", copies / "fats")
    assert code == 4
    assert "--parent" in err


@pytest.mark.parametrize("where", ["rewrite", "kind", "law", "build"])
def test_a_plugin_that_fails(fuaudit, trained, stranger, tmp_path, where, bytes_of):
    before = bytes_of(trained.path)
    code, out, err = fuaudit(
        "unlearn",
        trained.path,
        "--with",
        "raises",
        "--client",
        "0",
        "--out",
        tmp_path / "child",
        "--option",
        f"where='{where}'",
    )
    assert code == 5
    assert out == ""
    assert "'raises'" in err
    assert "Traceback" not in err
    assert not (tmp_path / "child").exists()
    assert bytes_of(trained.path) == before


@pytest.mark.usefixtures("stranger")
@pytest.mark.parametrize(("where", "said"), [("build", "raised while being built"), ("rewrite", "division by zero")])
def test_a_proof_is_of_the_method_with_its_options(fuaudit, where, said):
    code, _, err = fuaudit("prove", "raises", "--option", f"where='{where}'")
    assert (code, said in err) == (5, True), err


def test_a_plugin_that_touches_what_it_has_not_declared(fuaudit, trained, stranger, tmp_path):
    code, _, err = fuaudit("unlearn", trained.path, "--with", "curious", "--client", "0", "--out", tmp_path / "child")
    assert code == 5
    assert "without declaring 'model'" in err


def test_a_plugin_with_an_option_called_use(fuaudit, trained, stranger, tmp_path):
    (stranger / "stranger_methods.py").write_text(STRANGER.replace("where: str", 'use: str = "x"\n    where: str'))
    code, _, err = fuaudit("unlearn", trained.path, "--with", "raises", "--client", "0", "--out", tmp_path / "child")
    assert code == 5
    assert "has an option called use" in err


def test_a_plugin_that_cannot_be_imported(fuaudit, trained, stranger, tmp_path):
    (stranger / "stranger_methods.py").write_text("import nothing_of_this_name\n")
    assert fuaudit("plugins")[0] == 0  # nothing is imported
    code, out, err = fuaudit("plugins", "--long", "--json")
    assert code == 5
    document = json.loads(out)
    assert len(document["broken"]) == 3
    assert "fats" in {row["name"] for row in document["plugins"]}
    assert "nothing_of_this_name" in err
    assert fuaudit("unlearn", trained.path, "--with", "raises", "--client", "0", "--out", tmp_path / "child")[0] == 5
    assert fuaudit("unlearn", trained.path, "--with", "fats", "--client", "0", "--out", tmp_path / "child")[0] == 0


def test_strangers_can_be_left_out(fuaudit, trained, stranger, tmp_path, monkeypatch):
    monkeypatch.setenv("FUAUDIT_NO_PLUGINS", "1")
    assert fuaudit("unlearn", trained.path, "--with", "raises", "--client", "0", "--out", tmp_path / "child")[0] == 2


OF_A_STRANGER = """
from dataclasses import dataclass

import torch


class Divides(torch.nn.Linear):
    def forward(self, rows):
        return super().forward(rows / (1 // 0))


@dataclass(frozen=True)
class Model:
    where: str = "forward"

    def build(self, shape, classes):
        return Divides(shape[0] if self.where == "forward" else 1 // 0, classes)


@dataclass(frozen=True)
class Dealer:
    clients: int = 2

    def deal(self, labels, draws):
        return [0, 1]


class Reads(Dealer):
    reads = property(lambda self: 1 // 0)
"""


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"model": {"use": "divides"}}, r"the model raised .*ZeroDivision.* \(stranger_parts.py, line 9\)"),
        (
            {"model": {"use": "divides", "where": "build"}},
            r"model 'divides', build, raised ZeroDivisionError.* \(stranger_parts.py, line 17\)",
        ),
        (
            {"partition": {"use": "reads"}},
            r"error: a plugin of stranger 1.0 \(stranger_parts.py, line 29\) raised ZeroDivision",
        ),
        ({"partition": {"use": "deals"}}, "partition 'deals', deal, raised TypeError"),
    ],
)
def test_a_fault_of_a_stranger_is_not_called_one_of_fuaudit(
    fuaudit, config_file, stranger, tmp_path, monkeypatch, tables, told
):
    (stranger / "stranger_parts.py").write_text(OF_A_STRANGER)
    (stranger / "stranger-1.0.dist-info" / "entry_points.txt").write_text(
        "[fuaudit.models]\ndivides = stranger_parts:Model\n[fuaudit.partitions]\ndeals = stranger_parts:Dealer\n"
        "reads = stranger_parts:Reads\n"
    )
    monkeypatch.delitem(sys.modules, "stranger_parts", raising=False)
    code, _, err = fuaudit("train", config_file(**tables), "--out", tmp_path / "run")
    assert code == 5, err
    assert re.search(told, err), err
    assert "Traceback" not in err


def test_a_second_rival_takes_back_no_first_one(stranger, tmp_path, monkeypatch):
    """One before fuaudit on the search path and one behind it, with one value."""
    entry = "[fuaudit.unlearners]\nfats = stranger_methods:Raises\n"
    (stranger / "stranger-1.0.dist-info" / "entry_points.txt").write_text(entry)
    monkeypatch.setattr(sys, "path", [*sys.path, str(installed(tmp_path / "behind", "stranger_methods", "", entry))])
    found = find("unlearners", "fats")
    assert "fuaudit" in (found.distribution, *found.rivals)
    with pytest.raises(PluginError, match="register the unlearner 'fats'"):
        found.load()


def test_two_plugins_of_one_name(fuaudit, trained, stranger, tmp_path):
    """What is used under another name goes on."""
    (stranger / "stranger-1.0.dist-info" / "entry_points.txt").write_text(
        "[fuaudit.unlearners]\nfats = stranger_methods:Raises\n"
    )
    told = "register the unlearner 'fats'. Uninstall stranger."
    for words in (
        ("unlearn", trained.path, "--with", "fats", "--client", "0", "--out", tmp_path / "child"),
        ("plugins", "fats"),
    ):
        code, _, err = fuaudit(*words)
        assert (code, told in err) == (5, True), err
    code, out, _ = fuaudit("plugins", "--json")
    document = json.loads(out)
    assert (code, len(document["clashes"]), document["strays"]) == (0, 1, [])
    assert told in document["clashes"][0]
    assert told in fuaudit("plugins")[1]
    code, out, err = fuaudit("plugins", "--long")
    assert (code, told in err, " mean " in out) == (5, True, True), out
    for words in (("show", trained.path), ("plugins", "mean"), ("runs", trained.path.parent)):
        assert fuaudit(*words)[0] == 0, words
    work = ("unlearn", trained.path, "--with", "retrain", "--client", "0", "--out", tmp_path / "child")
    assert fuaudit(*work)[0] == 0


DECLARES = """
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Unlearner:
    needs: ClassVar[frozenset] = frozenset({"plan"})
    participants: ClassVar[frozenset] = frozenset()
    guarantee: ClassVar[str] = "none"
    cite: ClassVar[str] = ""
    exact_for: ClassVar[frozenset] = frozenset()

    def rewrite(self, plan, request, fresh, not_before):
        return plan.restart(request, fresh)


@dataclass(frozen=True)
class Audit:
    rate: float = 0.01
    evidence: ClassVar[frozenset] = frozenset()
    uses: ClassVar[frozenset] = frozenset()
    alpha_option: ClassVar[str] = "rate"

    def examine(self, case):
        return None
"""


@pytest.mark.parametrize(
    ("name", "was", "now", "told"),
    [
        ("u", "", "", ""),
        ("a", "", "", ""),
        ("u", '{"plan"}', '{"plann"}', "unknown needs: 'plann'"),
        ("u", "exact_for: ClassVar[frozenset] = frozenset()", "exact_for = frozenset({('x', 'clients')})", "'clients'"),
        ("u", '    cite: ClassVar[str] = ""', "", "it does not say cite: the paper"),
        ("a", "uses: ClassVar[frozenset] = frozenset()", "uses = frozenset({'plan'})", "'plan' is no argument"),
        ("a", "    uses: ClassVar[frozenset] = frozenset()", "", "it does not say uses: the arguments"),
        ("a", '= "rate"', '= "rat"', "alpha_option = 'rat' names no option"),
    ],
)
def test_a_wrong_declaration_is_told_where_a_plugin_is_shown(fuaudit, stranger, monkeypatch, name, was, now, told):
    (stranger / "stranger_says.py").write_text(DECLARES.replace(was, now))
    (stranger / "stranger-1.0.dist-info" / "entry_points.txt").write_text(
        "[fuaudit.unlearners]\nu = stranger_says:Unlearner\n[fuaudit.audits]\na = stranger_says:Audit\n"
    )
    monkeypatch.delitem(sys.modules, "stranger_says", raising=False)
    code, _, err = fuaudit("plugins", name)
    assert (code, told in err) == (5 if told else 0, True), err


def test_a_name_under_a_group_that_there_is_not(fuaudit, config_file, stranger, tmp_path, monkeypatch):
    (stranger / "stranger-1.0.dist-info" / "entry_points.txt").write_text(
        "[fuaudit.aggregator]\nlone = stranger_methods:Raises\n"
    )
    told = "stranger registers 'lone' under 'fuaudit.aggregator'. Did you mean 'fuaudit.aggregators'?"
    code, out, _ = fuaudit("plugins")
    assert (code, told in out) == (0, True)
    for words in (("plugins", "lone"), ("train", config_file(server=[{"use": "lone"}]), "--out", tmp_path / "run")):
        code, _, err = fuaudit(*words)
        assert (code, told in err) == (2, True), err
    monkeypatch.setenv("FUAUDIT_NO_PLUGINS", "1")
    assert told not in fuaudit("plugins")[1]


def test_internal_errors_and_interruptions(fuaudit, child, monkeypatch):
    def broken(*arguments, **options):
        raise ZeroDivisionError("a fault")

    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    def ended(*arguments, **options):
        raise SystemExit(0)  # whoever does so would have chosen the verdict

    monkeypatch.setattr(verifying, "verify", broken)
    code, out, err = fuaudit("verify", child.path)
    assert (code, out) == (70, "")
    assert "internal error" in err
    monkeypatch.setattr(verifying, "verify", ended)
    code, out, err = fuaudit("verify", child.path)
    assert (code, out) == (70, "")
    assert "internal error: SystemExit(0)" in err
    monkeypatch.setattr(verifying, "verify", interrupted)
    code, out, err = fuaudit("verify", child.path)
    assert (code, out) == (130, "")
    assert "interrupted; there are no findings, and what was computed is lost" in err
    assert "--key HEX --cache FOLDER" in err


def test_a_full_standard_output_is_named(fuaudit):
    with open("/dev/full", "w") as full:
        done = subprocess.run([COMMAND, "plugins"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 70
    assert done.stderr.startswith("error: the result cannot be printed: No space left on device\n")
    assert "Traceback" not in done.stderr
    assert "ignored" not in done.stderr


def test_a_full_disk_before_a_run_was_begun_is_told_as_it_is(fuaudit, config_file, tmp_path):
    """There is nothing to resume, and nothing is left."""
    config, (_, hard) = config_file(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        code, _, err = fuaudit("train", config, "--out", tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert code == 70
    assert "Free some space." in err
    assert "No run was begun." in err
    assert "resume" not in err
    assert not (tmp_path / "run").exists()


def test_a_name_that_is_no_text_is_refused_before_training(fuaudit, config_file, trained, tmp_path):
    name = tmp_path / "r\udcff"
    for arguments in (("train", config_file()), ("unlearn", trained.path, "--with", "noop", "--client", "0")):
        code, _, err = fuaudit(*arguments, "--out", name)
        assert (code, "is no text" in err) == (2, True), err
        assert not name.exists()


def test_a_report_names_a_run_that_is_not_there_and_overwrites_nothing(fuaudit, child, tmp_path):
    code, _, err = fuaudit("report", tmp_path / "nosuch")
    assert (code, "there is no run at" in err) == (4, True), err
    (tmp_path / "mine.csv").write_text("precious")
    code, _, err = fuaudit("report", child.path, "--out", tmp_path / "mine.csv")
    assert (code, "exists already" in err) == (2, True), err
    assert (tmp_path / "mine.csv").read_text() == "precious"


def test_a_report_is_written_in_the_format_that_its_name_ends_in(fuaudit, copies, spec_file, tmp_path):
    verify(copies / "fats", spec_file)
    begins = {"r.md": "# ", "r.html": "<!doctype html>", "r.HTM": "<!doctype html>", "r.xml": "<?xml", "r": "<!doctype"}
    for name, first in begins.items():
        code, _, err = fuaudit("report", copies / "fats", "--out", tmp_path / name)
        assert code == 0, err
        assert (tmp_path / name).read_text().lower().startswith(first)
    fuaudit("report", copies / "fats", "--out", tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_bytes())["verdict"] == "PASS"
    fuaudit("report", copies / "fats", "--out", tmp_path / "named.txt", "--format", "md")
    assert (tmp_path / "named.txt").read_text().startswith("# ")
    code, _, err = fuaudit("report", copies / "fats", "--out", tmp_path / "r.pdf")
    assert (code, "no report format is written to files that end in .pdf" in err) == (2, True)
    assert not (tmp_path / "r.pdf").exists()


@pytest.mark.parametrize(("said", "meant"), [("markdown", "md"), ("xml", "junit"), ("htm", "html")])
def test_another_word_for_a_format_is_answered_by_its_own(fuaudit, said, meant):
    code, _, err = fuaudit("report", "run", "--format", said)
    assert (code, f"Did you mean {meant!r}?" in err) == (2, True)


def test_a_folder_of_runs_is_told_from_one(fuaudit, copies):
    for verb in ("show", "history", "verify", "report"):
        code, _, err = fuaudit(verb, copies)
        assert code == 4
        assert f"is not a run: it has no manifest.json\n  Runs lie in it; list them with: fuaudit runs {copies}" in err
    assert "list them" not in fuaudit("show", copies / "fats" / "checkpoints")[2]


def test_prune_asks_first(fuaudit, copies, bytes_of):
    before = bytes_of(copies / "fats")
    done = subprocess.run([COMMAND, "prune", copies / "fats"], input="n\n", capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "nothing was changed\n")
    assert "runs that lose their parent by this: " in done.stderr
    assert "noop" in done.stderr
    assert f"of the ancestors of {copies / 'fats'} (parent) for good" in done.stderr
    done_blind = subprocess.run([COMMAND, "prune", copies / "fats"], input="", capture_output=True, text=True)
    assert (done_blind.returncode, "Say --yes" in done_blind.stderr) == (2, True), done_blind.stderr
    asked = subprocess.run([COMMAND, "prune", copies / "parent"], input="", capture_output=True, text=True)
    assert (asked.returncode, "Go on?" in asked.stderr) == (2, False), asked.stderr
    assert "there is no request after which to prune" in asked.stderr
    assert done.stderr.index("receipts of what was forgotten cannot be made after this") < done.stderr.index("Go on?")
    assert "findings and reports stay as they are: they still say who was forgotten" in done.stderr
    assert bytes_of(copies / "fats") == before
    assert fuaudit("prune", copies / "noop", "--yes")[0] == 2
    assert fuaudit("prune", copies / "parent", "--yes")[0] == 2


def test_a_prune_says_how_the_run_is_verified_from_then_on(fuaudit, copies, spec_file):
    """Its digest is another, so the findings of before are of a run that is gone; what they show can be given."""
    shutil.rmtree(copies / "noop")
    verify(copies / "fats", spec_file)
    passed = stored(copies / "fats")
    code, out, err = fuaudit("prune", copies / "fats", "--yes")
    assert code == 0, err
    *_, told, following = out.splitlines()
    assert told.startswith("its digest is another now; verify it again")
    # the commitment is whoever verifies to give: the run's own would say that it was received before training
    assert following == command("verify", copies / "fats", commitment="HEX", before=passed)
    received = following.replace("HEX", load_run(copies / "fats").commitment)
    code, out, err = fuaudit(*received.split()[1:], "--spec", spec_file)
    assert (code, out.splitlines()[0].startswith("PASS")) == (0, True), (out, err)
    again = fuaudit("prune", copies / "fats", "--yes", "--json")[1]
    assert "next" not in json.loads(again)


def test_a_prune_gives_no_pass_of_before_a_failure(fuaudit, copies, spec_file):
    """And the findings that a prune leaves are still reported, as those of the run before it."""
    shutil.rmtree(copies / "noop")
    verify(copies / "fats", spec_file)
    passed = stored(copies / "fats")
    assert fuaudit("verify", copies / "fats", "--spec", spec_file, "--commitment", "11" * 32)[0] == 1
    out = fuaudit("prune", copies / "fats", "--yes")[1]
    assert out.splitlines()[-1] == command("verify", copies / "fats", commitment="HEX")
    code, out, err = fuaudit("report", copies / "fats", "--findings", passed, "--format", "md")
    assert code == 0, err
    assert "It judged the run as its ledger says that it was before its prune" in Path(out.strip()).read_text()
    shutil.copytree(copies / "fats.audit", copies / "other.audit")
    shutil.copytree(copies / "fats", copies / "other")
    (copies / "parent.audit").mkdir()
    code, _, err = fuaudit("report", copies / "parent")
    assert (code, "has no findings" in err, "fuaudit verify" in err) == (4, True, False)


def test_a_prune_takes_no_parent_from_others_before_somebody_was_told(fuaudit, copies, bytes_of):
    """With --yes nobody reads the question, so it is refused, and names who would lose a parent."""
    before = bytes_of(copies)
    code, out, err = fuaudit("prune", copies / "fats", "--yes")
    assert (code, out) == (2, "")
    assert "noop would lose what it was made of, for good" in err
    assert "--yes --allow-orphans" in err
    assert bytes_of(copies) == before
    code, out, _ = fuaudit("prune", copies / "fats", "--yes", "--allow-orphans")
    assert (code, "without their parent now: noop" in out) == (0, True)
    assert fuaudit("prune", copies / "fats", "--yes")[0] == 0


def test_a_prune_names_what_was_made_of_the_run_itself(fuaudit, copies, target):
    """That can be neither verified nor pruned after it: said before, after, and by whoever opens it later."""
    others = [c for c in load_run(copies / "fats").plan.populations[-1].clients if c != target]
    assert (
        fuaudit("unlearn", copies / "fats", "--with", "fats", "--client", others[0], "--out", copies / "twice")[0] == 0
    )
    shutil.rmtree(copies / "noop")
    code, out, err = fuaudit("prune", copies / "fats", "--yes")
    assert (code, out) == (2, "")
    assert "twice can be neither verified nor pruned after that" in err
    assert f"prune {copies / 'twice'}" in err
    shutil.copytree(copies / "parent", copies / "noop")
    asked = subprocess.run([COMMAND, "prune", copies / "fats"], input="n\n", capture_output=True, text=True)
    assert "runs that lose their parent by this: twice" in asked.stderr
    assert "of these twice can be neither verified nor pruned after that" in asked.stderr
    code, out, _ = fuaudit("prune", copies / "fats", "--yes", "--allow-orphans")
    assert (code, "without their parent now: twice" in out, "twice can be neither" in out) == (0, True, True)
    assert f"left alone: {(copies / 'twice').resolve()} holds a key that gives erased draws back; remove it" in out
    for asked in (("prune", copies / "twice", "--yes"), ("verify", copies / "twice", "--budget", "0")):
        code, _, err = fuaudit(*asked)
        assert (code, "was pruned after" in err, "Make it again" in err) == (4, True, True)


def test_a_prune_advises_to_prune_first_only_what_can_be(fuaudit, copies, target):
    """Not a child that an editor made, and neither of two: each would lose its parent by the prune of the other."""
    shutil.rmtree(copies / "noop")
    others = [c for c in load_run(copies / "fats").plan.populations[-1].clients if c != target]
    for name, method in (("edited", "finetune"), ("second", "fats")):
        made = fuaudit("unlearn", copies / "fats", "--with", method, "--client", others[0], "--out", copies / name)
        assert made[0] == 0, made
        code, _, err = fuaudit("prune", copies / "fats", "--yes")
        assert (code, "edited" in err, "--allow-orphans" in err) == (2, True, True)
        assert "first, then" not in err
        with pytest.raises(UsageError) as refused:
            prune(copies / "fats")
        assert "Prune it first" not in str(refused.value)


def test_a_folder_that_nobody_may_look_into_is_no_run(fuaudit, tmp_path):
    """Root may look into all: for root this shows nothing."""
    (tmp_path / "private").mkdir(mode=0)
    code, _, err = fuaudit("show", tmp_path)
    (tmp_path / "private").chmod(0o700)
    assert (code, "is not a run: it has no manifest.json" in err) == (4, True), err


def test_a_prune_advises_none_of_what_cannot_be_pruned(fuaudit, copies, target):
    """Such as a run whose parent is not there."""
    (apart := copies / "apart").mkdir()
    for run in ("fats", "noop"):
        shutil.copytree(copies / run, apart / run)
    shutil.copytree(copies / "parent", apart / "parent")
    parent = apart / "parent"
    assert fuaudit("unlearn", parent, "--with", "retrain", "--client", target, "--out", apart / "same")[0] == 0
    (apart / "elsewhere").mkdir()
    shutil.copytree(apart / "parent", apart / "elsewhere" / "another")
    parent = apart / "elsewhere" / "another"
    assert fuaudit("unlearn", parent, "--with", "retrain", "--client", target, "--out", apart / "lonely")[0] == 0
    out = fuaudit("prune", apart / "fats", "--yes", "--allow-orphans")[1]
    told = {Path(line.split()[2]).name: line for line in out.splitlines() if line.startswith("left alone:")}
    assert told["same"].endswith("; prune or remove it"), out
    assert told["lonely"].endswith("; remove it: it cannot be pruned"), out


def test_show_prints_no_commitment_that_the_run_does_not_make(fuaudit, copies):
    told(copies / "fats", lambda events: [e | ({"commitment": "ab" * 32} if "commitment" in e else {}) for e in events])
    code, out, err = fuaudit("show", copies / "fats")
    assert (code, out, "another commitment than its keys, config and contents make" in err) == (4, "", True)


def test_a_prune_killed_in_a_tombstone_is_finished(fuaudit, copies):
    """By the same command; and it names who still holds a key, as before."""
    (copies / "parent" / "tombstone.json.partial").write_text("{")
    code, out, err = fuaudit("prune", copies / "fats", "--yes", "--allow-orphans")
    assert code == 0, err
    assert f"left alone: {copies / 'noop'} holds a key" in out
    assert f"left alone: {copies / 'noop'} holds a key" in fuaudit("prune", copies / "fats", "--yes")[1]
    assert sorted(path.name for path in (copies / "parent").iterdir()) == ["ledger.jsonl", "tombstone.json"]


def test_prune_changes_nothing_before_the_answer(fuaudit, copies, bytes_of):
    """Not even what another prune, at work or killed, has written beside the run."""
    shutil.copytree(copies / "fats", copies / "fats.pruning")
    (copies / "fats.pruning" / "manifest.json").unlink()
    for there in (True, False):
        if not there:
            shutil.move(copies / "fats", copies / "fats.before-prune")
        before = bytes_of(copies)
        done = subprocess.run([COMMAND, "prune", copies / "fats"], input="n\n", capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, "nothing was changed\n")
        assert bytes_of(copies) == before
    (copies / "torn").mkdir()
    (copies / "torn" / "keys.json").write_text("{")
    code, out, _ = fuaudit("prune", copies / "fats", "--yes", "--allow-orphans", "--json")
    assert code == 0
    left = json.loads(out)
    assert left["unreadable_keys"] == [str((copies / "torn").resolve())]
    assert "fats" not in [Path(path).name.split(".")[0] for path in left["still_holding_keys"]]
    assert not [path for path in copies.iterdir() if path.name.startswith("fats.")]
    assert load_run(copies / "fats").pruned


def test_the_command_that_is_printed_works_where_a_child_lies_apart_from_its_parent(fuaudit, copies, spec_file, target):
    apart = copies / "apart"
    apart.mkdir()
    ask = ("--with", "fats", "--client", target)
    code, out, _ = fuaudit("unlearn", copies / "parent", *ask, "--out", apart / "child")
    printed = next(line for line in out.splitlines() if line.startswith("fuaudit verify"))
    assert (code, f"--parent {copies / 'parent'}" in printed) == (0, True)
    assert fuaudit(*printed.split()[1:], "--spec", spec_file)[0] == 0
    assert "--parent" not in fuaudit("unlearn", copies / "parent", *ask, "--out", copies / "child")[1]


def test_what_strangers_put_beside_a_run_breaks_neither_its_verification_nor_its_prune(fuaudit, copies, spec_file):
    """A link to itself, one to nowhere, and a folder whose name is no text: named, or nothing is there."""
    (copies / "loop").symlink_to("loop")
    (copies / "nowhere").symlink_to("gone")
    odd = copies / os.fsdecode(b"\xff\xfe")
    odd.mkdir()
    shutil.copy(copies / "parent" / "keys.json", odd)
    code, out, err = fuaudit("verify", copies / "fats", "--spec", spec_file, "--json")
    assert code == 0, err
    places = [one["place"] for check in json.loads(out)["checks"] for one in check["finding"]["copies"]]
    assert {"loop", "\\udcff\\udcfe/keys.json"} <= set(places)
    assert not any("nowhere" in place for place in places)
    code, out, err = fuaudit("prune", copies / "fats", "--yes", "--allow-orphans")
    assert code == 0, err
    assert f"left alone: {copies.resolve() / 'loop'} cannot be read as a whole" in out
    assert "udcfe holds a key" in out
    assert fuaudit("verify", copies / "fats", "--spec", spec_file)[0] == 0
    odd.rename(copies / "stone")
    shutil.rmtree(copies / "stone")
    shutil.copytree(copies / "parent", odd)
    code, _, err = fuaudit("verify", copies / "fats", "--spec", spec_file, "--parent", odd)
    assert (code, "is no text" in err) == (4, True)


def test_a_run_is_audited_and_reported_on_from_inside(fuaudit, copies, spec_file, monkeypatch):
    for place, run in ((copies / "fats", "."), (copies / "fats" / "checkpoints", "..")):
        monkeypatch.chdir(place)
        code, out, err = fuaudit("verify", run, "--spec", spec_file)
        assert code == 0, err
        findings = stored(copies / "fats").resolve()
        assert str(findings) in out
        code, out, err = fuaudit("report", run)
        assert code == 0, err
        assert Path(out.strip()) == findings.with_name(findings.name.replace("findings", "report")[:-4] + "html")
        monkeypatch.chdir(copies)
        assert not [path for path in copies.rglob("*.audit") if path != copies / "fats.audit"]
        shutil.rmtree(copies / "fats.audit")


def test_a_report_needs_findings(fuaudit, copies):
    code, _, err = fuaudit("report", copies / "fats")
    assert code == 4
    assert "verify" in err


def test_commands_are_functions_too(child, quick):
    import fuaudit

    assert fuaudit.verify is verify
    assert fuaudit.load_run is load_run
    assert callable(fuaudit.train)
    assert callable(fuaudit.unlearn)
    assert callable(write_report)
    with pytest.raises(AttributeError):
        _ = fuaudit.nothing


def test_a_folder_that_takes_no_files_is_named(fuaudit, tmp_path, small_config):
    """Not called a full disk."""
    (tmp_path / "config.toml").write_text(tomli_w.dumps(small_config()))
    code, _, err = fuaudit("train", tmp_path / "config.toml", "--out", "/proc/runs/here")
    assert code == 70
    assert "takes no new files" in err
    assert "--out" in err


def test_a_prune_that_is_declined_changes_nothing(fuaudit, child, tmp_path, bytes_of, monkeypatch):
    folder = tmp_path / "runs"
    shutil.copytree(child.path.parent, folder)
    before = bytes_of(folder)
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    code, out, err = fuaudit("prune", folder / child.path.name)
    assert code == 0
    assert "nothing was changed" in out
    assert "interrupted" not in err
    assert bytes_of(folder) == before
