"""The outside door, from outside: a stranger's package is installed beside fuaudit, and used by name."""

import json
import sys
from pathlib import Path

import pytest
from tests_support import by_pip, run

EXAMPLE = Path(__file__).parents[1] / "examples" / "outside"

USE = """
import json, sys
from dataclasses import replace
from pathlib import Path
from fuaudit import registry, request_of, train, unlearn, verify
from fuaudit.errors import PluginError
from fuaudit.verification.spec import read_spec

out = Path(sys.argv[1])
known = registry.entries("unlearners")
result = {"distributions": {name: [e.distribution, e.version] for name, e in known.items()}}
run = train(
    {
        "data": {"use": "digits"},
        "partition": {"use": "iid", "clients": 10},
        "model": {"use": "linear"},
        "learner": {"use": "fats", "rounds": 6, "cohort": 2, "steps": 2, "batch": 8, "step_size": 0.1},
    },
    out / "run",
    secret=bytes(32),
)
spec = read_spec("client-erasure")


def with_plans(plans):
    fewer = {"plan-law": {"plans": plans, "most": plans}, "enumeration": {"leaves": 6_000}}
    checks = (replace(check, audit=check.audit | fewer.get(check.audit["use"], {})) for check in spec.checks)
    return replace(spec, checks=tuple(checks))


# for a sample its draws differ from the reference's, so tests decide, and they need more plans
plans = {"round-rewind sample": 20_000}
for kind, request in (("client", request_of(run, (0,))), ("sample", request_of(run, (), ((3, 5),)))):
    for name in ("round-rewind", "shrink"):
        child = unlearn(run, name, request, out / f"{name}-{kind}")
        seen = verify(child, with_plans(plans.get(f"{name} {kind}", 1000)), budget=0, key=bytes(32))
        result[f"{name} {kind}"] = {
            "verdict": seen.verdict, "reason": seen.reason, "exit": seen.exit_code,
            "findings": {finding.audit: finding.verdict for finding in seen.findings},
            "recorded": child.info["unlearner"]["distribution"],
            "messages": (child.path / "edit.json").exists(),
        }
try:
    unlearn(run, "peeking", request_of(run, (0,)), out / "peeking")
    result["peeking"] = "nothing was raised"
except PluginError as error:
    result["peeking"] = str(error)
print(json.dumps(result))
"""

PEEKING = '''
from dataclasses import dataclass

from fuaudit_outside import Shrink


@dataclass(frozen=True)
class Peeking(Shrink):
    """Reads the server's data, which it does not declare."""

    def edit(self, context):
        return context.model * context.server_data[0].mean()
'''


def distribution(folder, name, entry):
    """What an installer writes of a distribution with one unlearner."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"  # a hyphen here would end the name
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[fuaudit.unlearners]\n{entry}\n")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    return by_pip(EXAMPLE, tmp_path_factory.mktemp("packages"))


@pytest.fixture(scope="module")
def used(installed, tmp_path_factory):
    (installed / "fuaudit_peeking.py").write_text(PEEKING)
    distribution(installed, "fuaudit-peeking", "peeking = fuaudit_peeking:Peeking")
    out = tmp_path_factory.mktemp("runs")
    return json.loads(run(sys.executable, "-c", USE, str(out), PYTHONPATH=str(installed)).splitlines()[-1])


def test_both_are_found_by_name(used):
    assert used["distributions"]["round-rewind"] == ["fuaudit-outside", "0.1.0"]
    assert used["distributions"]["shrink"] == ["fuaudit-outside", "0.1.0"]
    assert used["distributions"]["fats"][0] == "fuaudit"


@pytest.mark.parametrize("kind", ["client", "sample"])
def test_the_rewriter_passes(used, kind):
    seen = used[f"round-rewind {kind}"]
    assert (seen["verdict"], seen["exit"]) == ("PASS", 0), seen
    assert seen["findings"]["enumeration"] == "PASS"
    assert seen["recorded"] == "fuaudit-outside"


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["client", "sample"])
def test_the_editor_never_passes_a_spec_that_asks_for_exactness(used, kind):
    seen = used[f"shrink {kind}"]
    assert seen["verdict"] in ("INCONCLUSIVE", "FAIL"), seen
    assert seen["messages"]


def test_an_editor_that_touches_what_it_did_not_declare_raises(used):
    assert "touched the server's data without declaring 'server data'" in used["peeking"]


def test_it_can_be_switched_off(installed):
    code = "from fuaudit import registry; print(sorted(registry.entries('unlearners')))"
    names = run(sys.executable, "-c", code, PYTHONPATH=str(installed), FUAUDIT_NO_PLUGINS="1")
    assert "round-rewind" not in names
    assert "fats" in names


@pytest.mark.thorough
def test_its_own_tests_pass(installed):
    """They hold both of its unlearners to their contract."""
    run(
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(EXAMPLE),
        str(EXAMPLE / "tests"),
        PYTHONPATH=str(installed),
        PYTHONDONTWRITEBYTECODE="1",
    )
