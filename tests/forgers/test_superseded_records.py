"""A forger keeps the old model as recorded draws of an earlier request, which a later one has put others in place of.

His method starts over at the second request, so nobody reads what the first one recorded. With the parents at hand an
auditor compares it with theirs. The forger lets a prune make tombstones of them, and hands the child over unpruned.
"""

import numpy as np
import pytest
from tests_support import AUDIT_KEY, config, drawn_client, reseal, secret

from fuaudit import load_run, train, unlearn, verify
from fuaudit.draws import Address, Purpose
from fuaudit.formats.forms import tensor_bytes
from fuaudit.plans import Request
from fuaudit.runs.encoding import recorded_tensors
from fuaudit.workflow.prune import prune


@pytest.fixture
def forged(tmp_path):
    parent = train(config(run={"checkpoint_every": 1}), tmp_path / "parent", secret=secret(3))
    child = unlearn(parent, "fats", Request.of([drawn_client(parent)]), tmp_path / "child")
    second = Request.of([child.plan.retained.clients[0]])
    sibling = unlearn(child, "retrain", second, tmp_path / "sibling")
    last = unlearn(child, "retrain", second, tmp_path / "last")
    numbers = np.frombuffer(parent.model.numpy().tobytes(), dtype="<u4").tolist()
    prune(sibling)
    written = recorded_tensors({1: {Address(Purpose.COHORT, 1): tuple(numbers)}})
    (last.path / "recorded.safetensors").write_bytes(tensor_bytes(written))
    reseal(last.path)
    return load_run(last.path), numbers


def test_nobody_reads_them_and_nobody_can_compare_them(forged, quick):
    run, numbers = forged
    assert numbers == run.tensors("recorded.safetensors")["ids"].tolist()
    given = {"commitment": run.commitment, "request": run.request, "key": AUDIT_KEY, "save": False}
    result = verify(run, quick, **given)
    assert result.verdict != "PASS"
    lineage = {finding.audit: finding for finding in result.findings}["lineage"]
    assert lineage.verdict == "INCONCLUSIVE"
    assert "holds 1 draw of earlier requests that the plan does not read" in lineage.shows
