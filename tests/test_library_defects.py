"""Habits of dp-accounting and Opacus that make a figure wrong, and that none of them reaches a user.

Each test shows two things: the library does it, so the table in docs/budgets.md is true; and fuaudit's figure is right.
Where a library mends a habit, its test fails, and the table can be made shorter.
"""

import json
import math
import warnings
from pathlib import Path

import fuaudit_plugins
import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.accountant import advanced_composition
from dp_accounting.pld.common import DifferentialPrivacyParameters
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation
from opacus import PrivacyEngine
from opacus.accountants import GaussianAccountant, PRVAccountant
from opacus.accountants.analysis.gdp import compute_eps_poisson
from torch import arange, float32, nn, optim
from torch.random import fork_rng
from torch.utils.data import DataLoader, TensorDataset

import fuaudit
from fuaudit.budgets.compose import Part, composed, crossing, epsilons, optimal
from fuaudit.budgets.conspar.account import COARSE
from fuaudit.budgets.dpsgd.account import account
from fuaudit.budgets.dpsgd.beside import random_variables
from fuaudit.budgets.dpsgd.composed import CELLS, _grid
from fuaudit.budgets.dpsgd.laws import POISSON
from fuaudit.budgets.dpsgd.steps import Steps
from fuaudit.budgets.losses import Losses

ON_CELLS = pld.PrivacyLossDistribution.create_from_rounded_probability
RESPONSE = 1 / (1 + math.exp(-0.1))
HUNDRED = 4.774567587
"""The exact epsilon at 1e-6 of a hundred rounds of randomised response with epsilon .1, by sums of binomials."""

FORBIDDEN = {
    "dp_event": "events are composed once, whatever their count",
    "DpEvent": "the same",
    "PLDAccountant": "the same",
    "advanced_composition": "it overflows",
    "get_epsilon_for_delta": "it loses exp(-loss)",
    "from_two_probability_mass_functions": "one direction by default, and losses are rounded up",
    "from_gaussian_mechanism": "its optimistic law loses half a cell a step",
    "GaussianAccountant": "its figure is no bound",
    "create_accountant": "it makes any of them",
    "torch.load": "it can run code",
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_misleads_is_nowhere_used(name):
    sources = [
        path.read_text().replace("its get_epsilon_for_delta loses", "")
        for root in (fuaudit, fuaudit_plugins)
        for path in Path(root.__file__).parent.rglob("*.py")
    ]
    assert len(sources) > 300
    assert not any(name in text for text in sources), FORBIDDEN[name]


def test_an_event_of_randomised_response_is_composed_once():
    counted = []
    for count in (1, 100):
        accountant = PLDAccountant(NeighboringRelation.REPLACE_ONE)
        accountant.compose(dp_event.SelfComposedDpEvent(dp_event.RandomizedResponseDpEvent(0.5, 2), count))
        counted.append(accountant.get_epsilon(1e-6))
    assert counted[0] == pytest.approx(counted[1]) == pytest.approx(math.log(3), abs=1e-3)
    assert optimal(math.log(3), 100, 1e-6) > 50


def test_advanced_composition_overflows():
    with pytest.raises((OverflowError, RuntimeWarning)):
        advanced_composition(DifferentialPrivacyParameters(0.1, 0), 5000, 1e-6)
    assert 5 < optimal(0.1, 5000, 1e-6) < 500


def test_a_loss_on_the_edge_of_a_cell_is_rounded_up_by_a_whole_one():
    theirs = pld.from_randomized_response(2 / (1 + math.exp(0.1)), 2, value_discretization_interval=0.1)
    assert theirs.get_epsilon_for_delta(0.0) == pytest.approx(0.2)
    assert theirs.self_compose(100).get_epsilon_for_delta(1e-6) > 2.5 * HUNDRED
    found = composed(Losses(np.array([0.1, -0.1]), np.array([RESPONSE, 1 - RESPONSE]), 0.0), 100, 1e-6, COARSE)
    assert found.low <= HUNDRED < found.high < HUNDRED + 1e-4


def test_rounding_up_costs_up_to_a_cell_a_round():
    for cell in (1e-3, 1e-4):
        theirs = pld.from_randomized_response(2 / (1 + math.exp(0.1)), 2, value_discretization_interval=0.99 * cell)
        assert theirs.self_compose(100).get_epsilon_for_delta(1e-6) > HUNDRED + 5 * cell
    found = composed(Losses(np.array([0.1, -0.1]), np.array([RESPONSE, 1 - RESPONSE]), 0.0), 100, 1e-6, 2**12)
    assert HUNDRED <= found.high < HUNDRED + 1e-3  # on cells of about .002


def test_one_direction_alone_undercounts_where_steps_are_sampled():
    """Of a sampled step the two directions differ; the account is the larger of both."""
    steps = Steps(1.0, 0.1, 50)
    theirs = pld.from_gaussian_mechanism(1.0, value_discretization_interval=1e-4, sampling_prob=0.1).self_compose(50)
    uneven = [{i: math.log(x) for i, x in enumerate(law)} for law in ((0.5, 0.3, 0.2), (0.45, 0.33, 0.22))]
    missed, whole = (
        pld.from_two_probability_mass_functions(*uneven, **alone).self_compose(200).get_epsilon_for_delta(1e-5)
        for alone in ({}, {"symmetric": False})
    )
    assert missed < 0.99 * whole
    assert account([steps], 1e-5, POISSON).total == pytest.approx(theirs.get_epsilon_for_delta(1e-5), rel=1e-4)


def test_what_is_cut_off_counts_as_endless_on_the_optimistic_side_too():
    even = {cell: 1 / 2001 for cell in range(-1000, 1001)}
    theirs = ON_CELLS(even, 0.0, 0.01, pessimistic_estimate=False, symmetric=True).self_compose(10, 1e-3)
    assert theirs.get_delta_for_epsilon(1e6) == pytest.approx(1e-3)
    whole = ON_CELLS(even, 0.0, 0.01, pessimistic_estimate=False, symmetric=True).self_compose(10, 1e-14)
    assert whole.get_delta_for_epsilon(1e6) < 1e-12
    # so with a delta below what it cuts by default there is no epsilon at all; ours cuts in proportion to delta
    tiny = pld.from_gaussian_mechanism(1.0, sampling_prob=0.5, value_discretization_interval=1e-3).self_compose(2)
    assert tiny.get_epsilon_for_delta(9e-16) == math.inf
    found = account([Steps(1.0, 0.5, 2)], 1e-15, POISSON)
    assert found.total < 20


def test_an_epsilon_beyond_709_is_too_large():
    theirs = ON_CELLS({80_000: 0.5, 0: 0.5}, 0.0, 0.01, symmetric=True)
    true = 800 + math.log(0.6)
    assert theirs.get_epsilon_for_delta(0.2) == 800
    assert crossing(theirs.get_delta_for_epsilon, 0.2, 900.0)[1] == pytest.approx(true, rel=1e-9)
    two = np.zeros(80_001)
    two[[0, -1]] = 0.5
    assert epsilons([Part((0, two), 1)], 0.01, 0.2, 0.0)[1] == pytest.approx(true, rel=1e-9)


def test_memory_of_a_grid_grows_with_losses_over_cells_and_ours_does_not():
    """At noise .06 a step can lose hundreds."""
    sizes = [
        pld.from_gaussian_mechanism(0.06, value_discretization_interval=cell)._pmf_remove.size for cell in (1e-1, 1e-3)
    ]
    assert sizes[1] > 90 * sizes[0] > 300_000
    for noise in (0.06, 60.0):
        found = _grid([Steps(noise, 1.0, 3)], 1e-5, CELLS)
        assert max(len(law.masses) for (law,) in found.directions) <= CELLS


# Opacus


def quiet(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind()


def test_the_limit_by_gdp_is_below_the_exact_epsilon():
    theirs = compute_eps_poisson(steps=1, noise_multiplier=1.0, sample_rate=0.004, delta=1e-5)
    found = account([Steps(1.0, 0.004, 1)], 1e-5, POISSON)
    assert theirs < found.at_least / 4
    assert found.beside["gdp"].epsilon == theirs
    assert found.too_small()


def test_the_limit_by_gdp_forgets_all_kinds_of_steps_but_the_last(fuaudit, tmp_path):
    theirs = quiet(GaussianAccountant)
    theirs.history = [(0.8, 0.5, 1000), (10.0, 0.01, 1)]
    assert theirs.get_epsilon(1e-5) < 0.01
    (tmp_path / "state.json").write_text(json.dumps(theirs.state_dict()))
    asked = ("--history", tmp_path / "state.json", "--delta", "1e-5", "--sampling", "poisson", "--json")
    code, out, err = fuaudit("budget", "dpsgd", *asked)
    assert code == 0, err
    document = json.loads(out)
    assert document["epsilon_total_at_least"] > 100
    assert document["epsilon_gdp"] is None
    assert "several kinds" in document["not_computed"]["gdp"]


def test_the_grid_of_prvs_has_no_limit_and_is_asked_for_before():
    """Opacus would take these cells, several arrays of them; a number a little smaller would take all memory."""
    steps = Steps(0.05, 1.0, 5_000)
    theirs = PRVAccountant()
    theirs.history = [(steps.noise, steps.rate, steps.count)]
    figure = random_variables([steps], 1e-9)
    assert figure.epsilon is None
    assert float(figure.reason.split("would have ")[1].split()[0].replace(",", "")) > 1e9
    found = account([steps], 1e-9, POISSON)
    assert found.total < math.inf
    assert found.beside["prv"] == figure


def test_a_history_is_the_same_for_batches_that_are_not_poisson(fuaudit, tmp_path):
    """So the law of batches has to be said, and nothing is amplified unless Poisson batches are."""
    data = TensorDataset(arange(8, dtype=float32)[:, None], arange(8, dtype=float32)[:, None])
    states = []
    for poisson in (True, False):
        with warnings.catch_warnings(), fork_rng():
            warnings.simplefilter("ignore")
            engine, model = PrivacyEngine(accountant="rdp"), nn.Linear(1, 1)
            model, optimizer, loader = engine.make_private(
                module=model, optimizer=optim.SGD(model.parameters(), lr=0.1),
                data_loader=DataLoader(data, batch_size=2),
                noise_multiplier=5.0, max_grad_norm=1.0, poisson_sampling=poisson,
            )  # fmt: skip
            for rows, targets in loader:
                optimizer.zero_grad()
                nn.functional.mse_loss(model(rows), targets).backward()
                optimizer.step()
        states.append(engine.accountant.state_dict())
    assert states[0] == states[1]
    (tmp_path / "state.json").write_text(json.dumps(states[1]))
    given = ("--history", tmp_path / "state.json", "--delta", "1e-5")
    assert fuaudit("budget", "dpsgd", *given)[0] == 2
    totals = [
        json.loads(fuaudit("budget", "dpsgd", *given, "--sampling", law, "--json")[1])["epsilon_total"]
        for law in ("poisson", "fixed")
    ]
    assert totals[0] < 0.8 * totals[1]
