"""A forger puts tombstones of another lineage above his run: one run more than there are requests.

Between them stands an edit, which changes no draw. So what is above it bears on nothing that the run holds, and every
name and digest fits. The audit of draws ended in an error of its own there, without a verdict.
"""

import json
import shutil

from tests_support import AUDIT_KEY, edit, of_the_run, reseal, secret

from fuaudit import train, unlearn, verify
from fuaudit.plans import Request
from fuaudit.runs.ledger import Ledger, read_ledger
from fuaudit.testing.tiny import tiny_config, tiny_dataset
from fuaudit.workflow.append import append
from fuaudit.workflow.prune import prune

LEARNER = {"use": "fats", "rounds": 4, "cohort": 2, "steps": 1, "batch": 2, "step_size": 0.2}
TABLES = tiny_config(
    learner=LEARNER,
    partition={"use": "iid", "clients": 8},
    run={"checkpoint_every": 1, "engine": "reference", "device": "cpu", "requests": 4},
)


def forget(parent, method, client, name, options=None):
    folder = parent.path.parent / name
    return unlearn(parent, method, Request.of([client]), folder, options, data=tiny_dataset(), allow_inexact=True)


def child_of(run, name, digest):
    """The same run as a child of another one, sealed again."""
    edit(run.path, "run.json", parent={"digest": digest, "name": name})
    events, ledger = read_ledger(run.path).events[:-1], Ledger()
    (run.path / "ledger.jsonl").unlink()
    for event in events:
        facts = {name: value for name, value in event.items() if name not in ("event", "previous")}
        facts |= {"parent": digest} if event["event"] == "request" else {}
        ledger = append(run.path, ledger, event["event"], **facts)
    return reseal(run.path)


def test_a_run_more_than_there_are_requests(tmp_path):
    root = train(TABLES, tmp_path / "root", tiny_dataset(), secret(3))
    prune(forget(forget(root, "retrain", 2, "above"), "retrain", 3, "pruned"))
    stone = json.loads((tmp_path / "above" / "tombstone.json").read_text())
    (tmp_path / "other").mkdir()
    for name in ("above", "root"):
        shutil.copytree(tmp_path / name, tmp_path / "other" / name)
    again = train(TABLES, tmp_path / "again", tiny_dataset(), secret(3))
    edited = forget(again, "finetune", 1, "other/edited", {"rounds": 1})
    last = forget(edited, "retrain", 5, "last")
    edited = child_of(edited, "above", stone["digest"])
    last = child_of(last, "edited", edited.digest)
    result = verify(last, of_the_run(), data=tiny_dataset(), key=AUDIT_KEY, save=False, commitment=last.commitment)
    assert (result.verdict, result.reason) == ("FAIL", "above is a run more than the plan has requests.")
