"""What c is at least, by docs/robust.md: stored inputs reach it, it is below what is proved, a search climbs to it."""

import json
import sys
from pathlib import Path

import pytest
import torch
from fuaudit_plugins.medians import CoordinateMedian, GeometricMedian

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import robust_constants
from robust_constants import INPUTS, PAGE, SIZES, climbed, inputs, proved, reached, rules, table

STORED = json.loads(INPUTS.read_text())
CELLS = [(n, f, name) for n, f in SIZES for name in proved(n, f)]
SEEN = {(8, 1): (6.553, 3.784, 2.728), (7, 2): (10.578, 6.780, 2.1), (16, 3): (5.280, 2.918, 2.872)}
SEEN[16, 7] = (25.354, 23.231, 4.724)
"""What another search reached for Krum, multi-Krum and geometric median."""


def stored(n, f, name):
    return torch.tensor(STORED[f"{n} {f} {name}"], dtype=torch.float64)


def test_the_table_of_the_page_is_that_of_the_stored_inputs():
    assert set(STORED) == {f"{n} {f} {name}" for n, f, name in CELLS}
    assert table(STORED) in PAGE.read_text(), "run python benchmarks/robust_constants.py --write"


@pytest.mark.parametrize(("n", "f", "name"), CELLS)
def test_a_stored_input_is_within_what_is_proved_and_meets_it_where_it_is_met(n, f, name):
    rows, most = stored(n, f, name), proved(n, f)[name]
    assert len(rows) == n
    c = reached(rules(n, f)[name][0], rows, f)
    assert c <= most * (1 + 1e-9)
    if name in ("trimmed-mean", "coordinate-median"):
        assert c == pytest.approx(most, rel=1e-3)


@pytest.mark.parametrize(("n", "f"), SEEN)
def test_no_other_search_is_known_to_reach_much_more(n, f):
    for name, seen in zip(("krum", "multi-krum", "geometric-median"), SEEN[n, f], strict=True):
        assert reached(rules(n, f)[name][0], stored(n, f, name), f) > 0.995 * seen


@pytest.mark.thorough
@pytest.mark.parametrize(("n", "f"), [(6, 2), (16, 3)])
def test_a_twin_leaves_what_its_rule_leaves(n, f):
    rows = torch.stack(list(inputs(n, f, torch.Generator().manual_seed(3)))[::7])  # drawn far rows, no ties
    for rule, twin in rules(n, f).values():
        assert torch.allclose(twin(rows), torch.stack([rule(one) for one in rows]), rtol=1e-9, atol=1e-9)


def test_a_climb_ends_above_the_best_input_that_it_began_with(monkeypatch):
    rule, twin = rules(7, 2)["krum"]
    monkeypatch.setattr(robust_constants, "CLIMBS", [(30, 0)])
    start = max(reached(rule, rows, 2) for rows in climbed(twin, 7, 2))
    monkeypatch.setattr(robust_constants, "CLIMBS", [(30, 300)])
    assert max(reached(rule, rows, 2) for rows in climbed(twin, 7, 2)) > 1.3 * start


def test_more_steps_can_lead_the_geometric_median_further_away_than_the_coordinate_median_ever_is():
    """Two bad rows of six; what is proved of the coordinate median is kappa 1, and c is 1.125 kappa."""
    bad = [[-92.0, -80.3], [-93.9, -82.1]]
    rows = torch.tensor([*bad, [0.6, 0.5], [0.9, -0.1], [0.3, 0.6], [-0.7, -0.8]], dtype=torch.float64)
    kappa = [reached(GeometricMedian(steps).aggregate, rows, 2) / 1.125 for steps in (8, 40, 400)]
    assert kappa == pytest.approx([1.32, 2.36, 2.48], abs=0.005)
    assert reached(CoordinateMedian().aggregate, rows, 2) / 1.125 < proved(6, 2)["coordinate-median"] / 1.125 == 1.0
