"""Forgers around runs whose models an editor made: no plan makes these models, so other things have to be looked at.

Each trains a small federation with `finetune` as the editor, writes something else into a run, and makes manifest and
ledger fit. The auditor has all folders and the rows.
"""

import json
from dataclasses import replace

import pytest
import torch
from tests_support import AUDIT_KEY, config, drawn_client, edit, installed, secret, told

from fuaudit import train, unlearn, verify
from fuaudit.data.images import Digits
from fuaudit.plans import Request

WHOLE = {"run": {"checkpoint_every": 8, "engine": "reference"}}
"""One stored model beside the initial one."""


@pytest.fixture
def parent(tmp_path):
    return train(config(**WHOLE), tmp_path / "parent", secret=secret(7))


@pytest.fixture
def edited(parent, tmp_path):
    return unlearn(parent, "finetune", Request.of([drawn_client(parent)]), tmp_path / "edited", {"rounds": 1})


@pytest.fixture
def found(quick):
    def work(run, **given):
        return {f.audit: f for f in verify(run, quick, key=AUDIT_KEY, save=False, **given).findings}

    return work


def test_the_original_in_the_messages(parent, edited, found):
    """The size of each message is one number of the original model; the ledger counts them."""
    assert found(edited)["provenance"].verdict == "PASS"
    bits = [number % 2**32 for number in parent.model.view(torch.int32).tolist()]
    messages = [{"sender": "server", "receiver": "client 1", "size": number} for number in bits]
    edit(edited.path, "edit.json", messages=messages)
    counts = {"messages": len(bits), "bytes": sum(bits)}
    forged = told(edited.path, lambda events: [e | counts if e["event"] == "unlearning" else e for e in events])
    held = [message["size"] for message in json.loads((forged.path / "edit.json").read_bytes())["messages"]]
    assert held == bits
    finding = found(forged)["provenance"]
    assert (finding.verdict, finding.shows) == (
        "FAIL",
        "edit.json of edited does not hold the messages that 'finetune' sends.",
    )


ASKER = """
from dataclasses import dataclass
from typing import ClassVar

@dataclass(frozen=True)
class Asker:
    \"\"\"One step up the gradient that the target computes.\"\"\"
    needs: ClassVar[frozenset] = frozenset({"model"})
    participants: ClassVar[frozenset] = frozenset({"server", "target"})
    guarantee: ClassVar[str] = "none"
    cite: ClassVar[str] = ""

    def edit(self, context):
        return context.model + 0.01 * context.target_gradient(context.model)
"""


def other_rows(run, client):
    """Digits, where the rows of a client hold something else."""
    data, rows = Digits().load(None), list(run.original.samples[client])
    inputs = data.inputs.clone()
    inputs[rows] = 1 - inputs[rows]
    return replace(data, inputs=inputs)


@pytest.mark.parametrize("earlier", [False, True])
def test_other_rows_under_erased_ids_refute_no_edit(parent, edited, found, tmp_path, monkeypatch, earlier):
    """Whoever hands in the erased rows cannot make an honest edit a FAIL: the one that asks for them, or one before."""
    entry = "[fuaudit.unlearners]\nasker = asker:Asker\n"
    monkeypatch.syspath_prepend(str(installed(tmp_path / "site", "asker", ASKER, entry)))
    if earlier:
        client = edited.plan.retained.clients[0]
        run = unlearn(edited, "finetune", Request.of([client]), tmp_path / "asked", {"rounds": 1})
    else:
        client = drawn_client(parent)
        run = unlearn(parent, "asker", Request.of([client]), tmp_path / "asked")
    assert found(run)["provenance"].verdict == "PASS"
    finding = found(run, data=other_rows(run, client))["provenance"]
    assert finding.verdict == "INCONCLUSIVE"
    assert finding.shows.endswith("rows that it reads are not at hand as they were committed to.")
