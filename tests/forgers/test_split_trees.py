"""A forger chooses the salt of every retained row himself, and hides the old model in them, 32 bytes in each.

Salts follow from one seed. An unpruned run must hold that seed, so nothing fits in. A pruned run holds seeds of
subtrees, and nothing shows what they followed from. So the forger hands over a pruned run whose tree is split down to
its leaves. Here he splits the honest tree; one that is split may as well hold other numbers from the beginning.
"""

import json
from itertools import chain

import pytest
from tests_support import sealed

from fuaudit import load_run, unlearn
from fuaudit.draws.seeds import Seeds
from fuaudit.errors import EvidenceError
from fuaudit.formats.forms import pretty_json
from fuaudit.plans import Request
from fuaudit.workflow.prune import prune


@pytest.fixture
def pruned(tiny, tmp_path):
    """A run that honestly forgot client 0, without its parent."""
    run = unlearn(tiny(tmp_path / "run"), "fats", Request.of([0]), tmp_path / "child", data=tiny.dataset)
    return prune(run)[0].path


def leaves_of(rows):
    """The rows of a tree of seeds, with a row for every leaf that is kept."""
    tree = Seeds.of_rows(rows)
    kept = ([[n, n + 1, "seed", tree.leaf(n).hex()] for n in range(row[0], row[1])] for row in rows if row[2] == "seed")
    return sorted([row for row in rows if row[2] == "digest"] + list(chain.from_iterable(kept)))


@pytest.mark.parametrize(("name", "field"), [("clients", "salts"), ("keys", "seeds")])
def test_a_tree_that_is_split_further_than_a_prune_splits_it(pruned, name, field):
    table = json.loads((pruned / f"{name}.json").read_bytes())
    split = leaves_of(table[field])
    assert len(split) > len(table[field])
    (pruned / f"{name}.json").write_bytes(pretty_json(table | {field: split}))
    sealed(pruned)
    with pytest.raises(EvidenceError, match="not its subtrees in their shortest form"):
        load_run(pruned).require_consistent()
