"""No noise twice: what one release has more than another is hidden by fresh noise of the size that was told.

Two releases of a lineage are subtracted. Each is what the server is given in round 1, the mean of clipped rows with the
noise of every client. The same rounds without noise say what is left of it in the difference.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests_support import secret

from fuaudit import train, unlearn
from fuaudit.errors import UsageError
from fuaudit.plans import Request
from fuaudit.plans.stacked import LazySchedule
from fuaudit.training.execute import execute, initial_state
from fuaudit.training.setup import setup
from fuaudit.workflow import unlearn as unlearning

DEVIATION, CLIENTS = 0.5, 8
DIM = 650
"""Coordinates of a linear model of digits."""


@pytest.fixture(autouse=True)
def _stages(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "stages"))


def trained(folder, number=1, rounds=6, **tables):
    config = {
        "data": {"use": "digits"},
        "partition": {"use": "iid", "clients": CLIENTS},
        "model": {"use": "linear"},
        "learner": {"use": "fedavg", "rounds": rounds, "cohort": CLIENTS, "steps": 2, "batch": 4, "step_size": 0.1},
        "client": [{"use": "test-clip-and-noise", "norm": 0.3, "deviation": DEVIATION}],
        "server": [{"use": "mean"}],
        "run": {"checkpoint_every": 6, "engine": "reference", "device": "cpu", "dtype": "float64", "requests": 2},
    }
    return train(config | tables, folder, secret=secret(number))


def released(run, deviation=DEVIATION):
    """What comes out of round 1 of a run, as its plan and its secrets give it; also with other noise."""
    ready, plan = setup(run.config), run.plan
    stages = ready.procedure.exchange.client_stages
    quieter = replace(stages, stages=(replace(stages.stages[0], deviation=deviation),))
    procedure = replace(ready.procedure, exchange=replace(ready.procedure.exchange, client_stages=quieter))
    start = initial_state(procedure, [plan], plan.retained, ready.device)
    rounds = execute(
        procedure, ready.client_problem(plan.retained), plan.retained, LazySchedule([plan]), start, ready.engine,
        draws=run.stage_draws(plan),
    )  # fmt: skip
    return (start.vectors - next(rounds)[1].vectors)[0]


def subtracted(run, other):
    """The difference of two releases, and that without noise."""
    return released(run) - released(other), released(run, 0.0) - released(other, 0.0)


def late_sample(run, after=1):
    """A sample that is drawn, and not before a round."""
    return max(one for one, at in run.plan.index.samples.items() if at.round > after)


def is_fresh(run, other):
    """Whether the noise in the difference is that of two means of clients, each with noise of its own."""
    noisy, exact = subtracted(run, other)
    sizes = [len(one.plan.cohort(1)) for one in (run, other)]
    variance = DEVIATION**2 * sum(1 / size for size in sizes)
    # of so many normal numbers: five standard deviations of the mean square
    return abs(float((noisy - exact).square().mean()) / variance - 1) < 5 * (2 / DIM) ** 0.5


def test_where_rounds_depend_on_all_samples_the_difference_would_have_no_noise(tmp_path, monkeypatch):
    """The rows are standardised: with one row less all others are other rows."""
    run = trained(tmp_path / "run", scaling="standardise")
    one = Request.of(samples=[late_sample(run)])
    with pytest.raises(UsageError, match="with the noise that they had"):
        unlearn(run, "fats", one, tmp_path / "child", allow_inexact=True)
    with monkeypatch.context() as patch:  # a forger refuses himself nothing
        patch.setattr(unlearning, "depended_on", lambda config, request: "")
        child = unlearn(run, "fats", one, tmp_path / "child", allow_inexact=True)
    assert child.info["first_change"][0] > 1
    noisy, exact = subtracted(child, run)
    assert exact.abs().max() > 1e-7
    assert torch.allclose(noisy, exact, rtol=0, atol=1e-13)
    anew = unlearn(run, "retrain", one, tmp_path / "anew")
    assert is_fresh(anew, run)


def test_a_round_that_is_kept_releases_the_same_again_and_tells_nothing_more(tmp_path):
    run = trained(tmp_path / "run")
    child = unlearn(run, "fats", Request.of(samples=[late_sample(run)]), tmp_path / "child")
    noisy, exact = subtracted(child, run)
    assert child.info["first_change"][0] > 1
    assert (noisy.abs().max(), exact.abs().max()) == (0, 0)


@pytest.mark.thorough
def test_what_is_drawn_anew_has_noise_of_its_own(tmp_path):
    """Of a parent and its children, of siblings by one method or by two, and of siblings with one request."""
    run = trained(tmp_path / "run")
    first = next(one for one, at in sorted(run.plan.index.samples.items()) if at == (1, 2))
    asked = {
        "cut inside": ("fats", Request.of(samples=[first])),
        "restart": ("fats", Request.of([0])),
        "retrained": ("retrain", Request.of([0])),
        "sibling": ("retrain", Request.of([1])),
    }
    runs = [run, *(unlearn(run, name, one, tmp_path / folder) for folder, (name, one) in asked.items())]
    assert runs[1].info["first_change"] == [1, 2]
    pairs = [(one, other) for number, one in enumerate(runs) for other in runs[:number]]
    assert [(one.path.name, other.path.name) for one, other in pairs if not is_fresh(one, other)] == []


def test_one_secret_in_two_federations_gives_no_noise_twice(tmp_path):
    run, longer, other = (
        trained(tmp_path / "run"),
        trained(tmp_path / "longer", rounds=7),
        trained(tmp_path / "other", scaling="standardise"),
    )
    assert run.secrets.generations == longer.secrets.generations == other.secrets.generations
    assert is_fresh(run, longer)
    assert is_fresh(run, other)
    assert not is_fresh(run, run)
