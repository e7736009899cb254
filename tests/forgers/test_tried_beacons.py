"""A forger tries beacons after the commitment is out, until he likes the draws.

The commitment says whether a beacon is to come. Each run of a lineage tells its beacon, and a tombstone keeps it. So a
beacon under a commitment to none is a FAIL, before a prune and after it.
"""

import hashlib
import shutil

import pytest
from tests_support import AUDIT_KEY, config, edit, secret, told

from fuaudit import commit, train, unlearn, verify
from fuaudit.plans import Request
from fuaudit.workflow.prune import prune

TARGET = 0


def beacon(number):
    return hashlib.sha256(b"%d" % number).hexdigest()


@pytest.fixture
def judged(quick):
    """The verdict, and what provenance says."""

    def work(run, **options):
        result = verify(run, quick, key=AUDIT_KEY, save=False, request=Request.of([TARGET]), **options)
        return result.verdict, {finding.audit: finding for finding in result.findings}["provenance"].shows

    return work


def lineage(folder, mixed=None, method="fats"):
    """A training run with a beacon or without one, and its child. One secret, one config, one partition."""
    promise = commit(config(), folder / "promise.json", secret=secret(3), beacon=mixed is not None)
    parent = train(config(), folder / "parent", promise=folder / "promise.json", beacon=mixed)
    return promise.commitment, parent, unlearn(parent, method, Request.of([TARGET]), folder / "child")


def lineages(tmp_path, *mixed, method="fats"):
    for number in range(len(mixed)):
        (tmp_path / str(number)).mkdir()
    return [lineage(tmp_path / str(number), one, method) for number, one in enumerate(mixed)]


def under(run, commitment):
    """A run in whose ledger another commitment stands."""
    return told(run.path, lambda events: [e | {"commitment": commitment} if "commitment" in e else e for e in events])


def hung(child, parent):
    """A child beside a parent that it was not made of, and named as its child."""
    path = parent.path.with_name("hung")
    shutil.copytree(child.path, path)
    edit(path, "run.json", parent={"digest": parent.digest, "name": parent.path.name})
    return told(path, lambda events: [e | ({"parent": parent.digest} if "parent" in e else {}) for e in events])


def both_states(run, judged, **options):
    """What is said of a run before a prune, and after it."""
    before = judged(run, **options)
    return before, judged(prune(run)[0], **options)


def test_a_beacon_that_was_tried_until_the_client_was_never_drawn(tmp_path, judged):
    """The whole lineage is written anew, and names the commitment that everybody has."""
    published = commit(config(), tmp_path / "published.json", secret=secret(3), beacon=False).commitment
    for number in range(100):
        (folder := tmp_path / f"tried-{number}").mkdir()
        _, parent, child = lineage(folder, beacon(number))
        if TARGET not in parent.plan.index.clients:
            break
    under(parent, published)
    for verdict, shows in both_states(under(child, published), judged, commitment=published):
        assert verdict == "FAIL"
        assert "says that no beacon is to come, and " in shows, shows


def test_one_that_was_to_come_is_left_out(tmp_path, judged):
    """He likes the draws that there are without."""
    published = commit(config(), tmp_path / "published.json", secret=secret(3)).commitment
    ((_, parent, child),) = lineages(tmp_path, None)
    under(parent, published)
    for verdict, shows in both_states(under(child, published), judged, commitment=published):
        assert verdict == "FAIL"
        assert "says that a beacon is to come, and " in shows, shows


@pytest.mark.parametrize("method", ["fats", "retrain"])
@pytest.mark.parametrize("real", [None, beacon(7)], ids=["none", "another"])
def test_a_child_of_a_tried_beacon_under_the_real_parent(tmp_path, judged, method, real):
    """A prune leaves a tombstone of the real parent, which had no beacon, or another one."""
    (published, parent, honest), (_, _, tried) = lineages(tmp_path, real, beacon(8), method=method)
    child = under(hung(tried, parent), published)
    for verdict, shows in both_states(child, judged, commitment=published):
        assert verdict == "FAIL"
        assert "another beacon" in shows or "no beacon is to come" in shows, shows
    assert honest.commitment == published


def test_with_both_words_honest_runs_pass(tmp_path, judged):
    for published, _, child in lineages(tmp_path, None, beacon(7)):
        for verdict, shows in both_states(child, judged, commitment=published):
            assert verdict == "PASS", shows
