"""The auditor's folder of rows: what findings say of erased rows in it, and how it is kept without them."""

import pytest
from conftest import SECRET
from test_names import NAMED, OWNERS, TABLES, rows_of

from fuaudit.runs.names import request_of
from fuaudit.verification.verify import verify
from fuaudit.workflow.prune import prune
from fuaudit.workflow.train import train
from fuaudit.workflow.unlearn import unlearn

EVE = 4
ALL = [*NAMED[:3], "", *NAMED[4:]]
KEPT = [*NAMED[:3], "", "", NAMED[5]]
STAY = [owner for owner in OWNERS if owner != EVE]


@pytest.fixture
def folder(tmp_path):
    return rows_of(tmp_path / "all", OWNERS, ALL)


@pytest.fixture
def child(tmp_path, folder):
    """Eve was forgotten; she is the only one called so."""
    run = train(TABLES, tmp_path / "run", folder, SECRET)
    return unlearn(run, "fats", request_of(run, ["eve"]), tmp_path / "child", data=folder)


def lineage_of(run, quick, data, **given):
    result = verify(run, quick, data=data, budget=0, save=False, **given)
    assert result.verdict == "PASS", result.reason
    return next(found for found in result.findings if found.audit == "lineage")


def in_data(found):
    return [copy.why for copy in found.copies if copy.place.startswith("the folder")]


def test_the_folder_of_rows_is_named_where_it_holds_erased_ones(child, quick, folder, tmp_path):
    assert in_data(lineage_of(child, quick, folder)) == [
        "holds 4 rows that a request erased, 1 name of whom no row is retained"
    ]
    kept = rows_of(tmp_path / "kept", STAY, KEPT)
    assert in_data(lineage_of(child, quick, kept)) == []
    found = lineage_of(child, quick, kept, erased=folder)
    assert in_data(found) == ["holds 4 rows that a request erased"]


def test_after_a_prune_rows_that_may_be_hers_are_not_said_to_be_elsewhere(child, quick, folder, tmp_path):
    pruned, _ = prune(child)
    found = lineage_of(pruned, quick, folder)
    words = "No retained row equals one of 4 erased rows, which nothing opens: 4 rows at hand may be of them."
    assert words in found.assumptions
    assert in_data(found) == [
        "holds 4 rows of no retained client, which may be erased ones, 1 name of whom no row is retained"
    ]
    kept = rows_of(tmp_path / "kept", STAY, KEPT)
    found = lineage_of(pruned, quick, kept)
    assert "No retained row equals one of 4 erased rows, which are neither at hand nor opened." in found.assumptions
    assert in_data(found) == []
