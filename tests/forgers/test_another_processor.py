"""A forger names a processor that nobody has, so that replay compares within a tolerance, and hides beside the numbers.

He puts the untouched model into surplus tensors and metadata of checkpoints. Their form is looked at before any number,
so they are refused whatever platform a run names. The low bits of the numbers themselves are another story.
"""

import json
import shutil

import pytest
from tests_support import claimed, config, drawn_client, parse_tensors, secret

from fuaudit import load_run, train, unlearn
from fuaudit.errors import EvidenceError
from fuaudit.formats.forms import tensor_bytes
from fuaudit.plans import Request
from fuaudit.runs.layout import CHECKPOINT, of_round


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    root = tmp_path_factory.mktemp("honest")
    parent = train(config(), root / "parent", secret=secret(7))
    unlearn(parent, "fats", Request.of([drawn_client(parent)]), root / "child")
    return root


@pytest.fixture
def forged(family, tmp_path):
    shutil.copytree(family / "parent", tmp_path / "parent")
    return shutil.copytree(family / "child", tmp_path / "child")


@pytest.mark.parametrize("name", ["old", "state.old", "state.server.0.old", "state.solver.old"])
def test_surplus_tensors_of_a_run_from_elsewhere(forged, family, name):
    old = load_run(family / "parent").model
    for path in sorted((forged / "checkpoints").iterdir()):
        path.write_bytes(tensor_bytes(parse_tensors(path.read_bytes(), path) | {name: old}))
    with pytest.raises(EvidenceError):
        claimed(forged, processor="another")


def test_metadata_of_a_run_from_elsewhere(forged, family):
    old = load_run(family / "parent").model
    path = forged / of_round(CHECKPOINT, 8)
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = {"__metadata__": {"old": old.numpy().tobytes().hex()}, **json.loads(content[8 : 8 + length])}
    text = json.dumps(header, separators=(",", ":")).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    with pytest.raises(EvidenceError):
        claimed(forged, processor="another")
