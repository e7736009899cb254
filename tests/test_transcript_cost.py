"""Work on transcripts: a chain is read once for an opened run, and no round looks through all others.

Calls are counted, for seconds are those of the day.
"""

import cProfile
import pstats

import pytest
from test_sealed import AUDIT_KEY, looked_at, without_attacks
from test_secured_runs import FEDAVG, FEDREP, trained

from fuaudit import load_run, verify
from fuaudit.workflow.seal import seal

ROUNDS = 3, 6, 9
RELEASING = FEDAVG | {"solver": {"use": "dpsgd", "norm": 1.0, "noise": 0.5}}


@pytest.fixture(scope="module", params=[FEDREP, RELEASING], ids=["fedrep", "a solver that releases"])
def views(request, tmp_path_factory):
    """Rounds -> the folder of a sealed view of one config with so many; nobody may change it."""
    folder, config = tmp_path_factory.mktemp("cost"), request.param
    learners = {rounds: {"learner": config["learner"] | {"rounds": rounds}} for rounds in ROUNDS}
    runs = {rounds: trained(folder / f"run-{rounds}", config | other, "plain") for rounds, other in learners.items()}
    found = {rounds: seal(run, folder / f"view-{rounds}").path for rounds, run in runs.items()}
    looked_at(load_run(found[ROUNDS[0]]))  # what the first audit of a process prepares is not counted
    return found


def calls(work, *given):
    """File, line and name of each function of fuaudit -> how often it was called."""
    profile = cProfile.Profile()
    profile.runcall(work, *given)
    found = {where: times for where, (_, times, *_) in pstats.Stats(profile).stats.items()}
    return {where: times for where, times in found.items() if "fuaudit" in where[0]}


def of(name, found):
    """How often functions of a name were called."""
    return sum(times for where, times in found.items() if where[2] == name)


def opened_and_verified(path):
    looked_at(load_run(path))
    verify(path, without_attacks(), key=AUDIT_KEY, save=False)


def test_an_opened_view_reads_its_chain_once(views):
    path = views[ROUNDS[0]]
    assert of("read_chain", calls(opened_and_verified, path)) == 2  # opened twice
    view = load_run(path)
    assert of("read_chain", calls(looked_at, view)) == 0


def test_work_grows_with_rounds_and_no_faster(views):
    """A round more costs what each other costs: whatever looks through all rounds in each one grows by more."""
    few, more, most = (calls(looked_at, load_run(views[rounds])) for rounds in ROUNDS)
    grown = {
        where: (few.get(where, 0), times, most[where])
        for where, times in more.items()
        if most.get(where, 0) - times > times - few.get(where, 0)
    }
    assert not grown
    assert of("_told_of", most) == ROUNDS[-1]


def test_each_round_reads_two_models(views):
    """That which is stored after it, and that which is stored before it."""
    few, more, _ = (of("checkpoint", calls(looked_at, load_run(views[rounds]))) for rounds in ROUNDS)
    assert more - few == 2 * (ROUNDS[1] - ROUNDS[0])
