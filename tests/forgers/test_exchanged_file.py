"""A forger exchanges files while an auditor works: after they were hashed, before they are used.

The auditor opens the run of an honest digest. Then another plan, other keys and other models lie in the folder. What is
used must be what was hashed: JSON is read once, and tensors are hashed at each reading.
"""

import shutil

import pytest

from fuaudit import load_run, unlearn
from fuaudit.errors import EvidenceError
from fuaudit.plans import Request


@pytest.fixture
def exchange(tiny, tmp_path):
    """The folder of an honest child, and what puts a file of the parent in the place of the child's."""
    parent = tiny(tmp_path / "parent")
    unlearn(parent, "fats", Request.of([1]), tmp_path / "child", data=tiny.dataset)

    def work(name):
        shutil.copyfile(tmp_path / "parent" / name, tmp_path / "child" / name)

    work.child, work.parent = tmp_path / "child", parent
    return work


@pytest.mark.parametrize("name", ["plan.json", "metrics.json", "participation.json"])
def test_json_is_read_once(exchange, name):
    honest = load_run(exchange.child)
    history, keys = honest.plan.history(), honest.keys
    opened = load_run(exchange.child)
    exchange(name)
    assert (opened.plan.history(), opened.keys) == (history, keys)
    assert opened.document(name) == honest.document(name)
    with pytest.raises(EvidenceError, match=f"altered: {name}"):
        opened.read(name)
    with pytest.raises(EvidenceError, match="altered"):
        load_run(exchange.child)


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("checkpoints/000002.safetensors", lambda run: run.model),
        ("checkpoints/000001.safetensors", lambda run: run.models),
        ("partition.safetensors", lambda run: run.tensors("partition.safetensors")),
        ("contents.safetensors", lambda run: run.tensors("contents.safetensors")),
    ],
)
def test_tensors_are_hashed_at_each_reading(exchange, name, use):
    opened = load_run(exchange.child)
    content = (exchange.child / name).read_bytes()
    (exchange.child / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(EvidenceError, match=f"altered: {name}"):
        use(opened)


def test_the_size_is_looked_at_first(exchange):
    opened = load_run(exchange.child)
    with (exchange.child / "checkpoints" / "000002.safetensors").open("r+b") as file:
        file.truncate(2**40)
    with pytest.raises(EvidenceError, match="altered"):
        _ = opened.model
