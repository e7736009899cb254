"""The stage's own draws have the law that budgets charge; with a planted fault the same tests find that they have not.

docs/results/conspar-law.md has the same at a million draws.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
from fuaudit_plugins.conspar import Consensus
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import conspar_law as law


@pytest.fixture(scope="module")
def draws(tmp_path_factory):
    return law.stage_draws(tmp_path_factory.mktemp("law") / "run")


@pytest.mark.thorough
@pytest.mark.parametrize(("per_client", "alpha"), law.SETTINGS)
def test_the_stage_draws_by_the_law(draws, per_client, alpha):
    found = law.p_values(law.sets_of(draws, Consensus(per_client, alpha), 300), per_client, alpha)
    assert min(found.values()) > 1e-3, found


@pytest.mark.thorough
@pytest.mark.parametrize("name", law.FAULTS)
def test_planted_faults_are_found(draws, name):
    found = law.p_values(law.sets_of(draws, Consensus(4, 0.5), 250, law.FAULTS[name]), 4, 0.5)
    assert min(found.values()) < law.REJECTED, found


def test_without_a_fault_the_path_of_faults_is_the_stage(draws):
    """So what is found with a fault is the fault."""
    fair = law.Fault(law.coming_from(lambda largest, stay, columns: law._without(columns, stay)))
    stage = Consensus(4, 0.5)
    assert np.array_equal(law.sets_of(draws, stage, 20), law.sets_of(draws, stage, 20, fair))
    assert np.array_equal(law.sets_of(draws, stage, 20), law.sets_of(draws, stage, 20, law.Fault()))


def test_the_tests_reject_the_law_as_often_as_they_say():
    """Of uniform subsets, of categories and of equal pairs five in a hundred are below .05, within five sigma."""
    generator, repeats = np.random.Generator(np.random.PCG64(1)), 400
    below = np.zeros(3)
    for _ in range(repeats):
        sizes = generator.integers(0, 5, 300)
        ranks = generator.random((300, 6)).argsort(axis=1).argsort(axis=1)
        below[0] += law.of_members((ranks < sizes[:, None]).astype(np.uint8), sizes) < 0.05
        seen = generator.choice(4, 600, p=[0.4, 0.3, 0.2, 0.1])
        below[1] += law.of_categories(seen, np.array([0.4, 0.3, 0.2, 0.1])) < 0.05
        one, other = generator.integers(0, 2, (2, 2000, 1), dtype=np.uint8)
        below[2] += law.of_equals(one, other, 0.5) < 0.05
    for count in below:
        assert stats.binomtest(int(count), repeats, 0.05).pvalue > 1e-6, below
