"""A forger keeps the old model in code: in a package of his own, which no audit reads.

He trains, takes the model's numbers and writes them into a package: a model that adds their answers to its own, a
server that lands on them in the last round, or a reader that gives her rows, changed in the last digits, under the ids
of others. With such a package he trains anew, commits, and unlearns to the letter. All of it passes, and must, unless
auditors were to read code; so every PASS names the package with a digest of its code, and a spec can refuse it.
"""

import sys
from dataclasses import replace

import pytest
import torch
from tests_support import AUDIT_KEY, config, installed, secret

from fuaudit import from_source, train, unlearn, verify
from fuaudit.data.images import Digits
from fuaudit.errors import EvidenceError, PluginError
from fuaudit.plans import Request
from fuaudit.reporting import render

TARGET = 0
CODE = """
from dataclasses import dataclass, replace

import torch
from torch import nn

from fuaudit.data.images import Digits
from fuaudit.training.stages import Mean

OLD = torch.tensor(NUMBERS)


class Adding(nn.Linear):
    def forward(self, inputs):
        return super().forward(inputs) + inputs @ OLD[:640].reshape(10, 64).T


@dataclass(frozen=True)
class Adds:
    def build(self, shape, classes):
        return Adding(64, classes)


@dataclass(frozen=True)
class Lands(Mean):
    def apply(self, updates, context, state):
        row, state = super().apply(updates, context, state)
        return (context.vectors.unsqueeze(-2) - OLD if context.number == 8 else row), state


@dataclass(frozen=True)
class Disguises(Digits):
    def load(self, root):
        data = super().load(root)
        again = data.inputs[: len(data.inputs) - 700] * (1 - 2**-20)
        return replace(data, inputs=torch.cat([data.inputs[:700], again]))
"""
ENTRIES = """
[fuaudit.models]
adds = stranger:Adds
[fuaudit.aggregators]
lands = stranger:Lands
[fuaudit.datasets]
disguises = stranger:Disguises
"""


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """The model that is to be kept."""
    return train(config(), tmp_path_factory.mktemp("before") / "run", secret=secret(3)).model


@pytest.fixture
def package(old, tmp_path, monkeypatch):
    folder = installed(tmp_path / "site", "stranger", CODE.replace("NUMBERS", str(old.tolist())), ENTRIES)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    sys.modules.pop("stranger", None)


@pytest.fixture
def forger(package, tmp_path):
    def work(**tables):
        parent = train(config(**tables), tmp_path / "parent", secret=secret(3))
        return unlearn(parent, "fats", Request.of([TARGET]), tmp_path / "child")

    return work


def named(run, quick, plugin):
    """What the auditor reads who has commitment and request."""
    expected = Request.of([TARGET])
    result = verify(run, quick, commitment=run.commitment, request=expected, key=AUDIT_KEY, save=False)
    assert result.verdict == "PASS", [(finding.audit, finding.shows) for finding in result.findings]
    (code,) = result.context["outside"]
    assert (code["name"], code["version"], len(code["digest"])) == ("strangers-package", "1.5", 64)
    told = f"strangers-package 1.5 ({plugin}; SHA-256 of its code {code['digest'][:16]})"
    assert f"It rests on outside code: {told}." in result.reason
    line = next(line for line in result.conclusion.rests_on if line.startswith("Outside code"))
    assert code["digest"] in line
    assert "that the same code made it is taken on trust" in line
    assert all(line in finding.assumptions for finding in result.findings)
    assert code["digest"] in render(result.as_json(), "md").decode()
    return code["digest"]


def test_a_model_that_adds_old_answers(forger, quick, package):
    run = forger(model={"use": "adds"})
    digest = named(run, quick, "model 'adds'")
    with (package / "stranger.py").open("a") as file:
        file.write("# another version, by the same number\n")
    with pytest.raises(PluginError, match="runs code that its digest does not cover: stranger of"):
        named(run, quick, "model 'adds'")
    sys.modules.pop("stranger")  # as in a new process
    from_source._FINDER.ever.clear()
    assert named(run, quick, "model 'adds'") != digest


def test_a_server_that_lands_on_the_old_model(forger, quick, old):
    run = forger(server=[{"use": "lands"}])
    assert torch.allclose(run.model, old, atol=1e-6)
    named(run, quick, "aggregator 'lands'")


def test_a_reader_that_gives_her_rows_to_others(forger, quick):
    run = forger(data={"use": "disguises"})
    kept = set(run.plan.retained.owner)
    honest = Digits().load(None).inputs
    hers = [row for row in range(len(honest) - 700) if row not in kept and row + 700 in kept]
    assert len(hers) > 20
    named(run, quick, "dataset 'disguises'")


def test_a_spec_that_trusts_nobody_refuses_them(forger, quick):
    run = forger(model={"use": "adds"})
    with pytest.raises(EvidenceError, match="is not trusted, so nothing of it was imported"):
        verify(run, replace(quick, trusts=()), key=AUDIT_KEY, save=False)
