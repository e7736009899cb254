"""Trees of seeds: what is kept follows from the root, what is destroyed is gone, and one set has one form."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuaudit.draws.seeds import Part, Seeds, leaf_digest, node_digest
from fuaudit.errors import EvidenceError, UsageError

SEED = bytes(range(32))


def by_hand(seed, leaves):
    """The seeds of the leaves and the digest of the tree, by the definition."""
    if leaves == 1:
        return [seed], hashlib.sha256(b"\0" + seed).digest()
    left = 1
    while left * 2 < leaves:
        left *= 2
    halves = [
        by_hand(hashlib.blake2b(bit, key=seed, digest_size=32, person=b"fuaudit seeds").digest(), count)
        for bit, count in ((b"\0", left), (b"\1", leaves - left))
    ]
    return halves[0][0] + halves[1][0], hashlib.sha256(b"\1" + halves[0][1] + halves[1][1]).digest()


@pytest.mark.parametrize("leaves", [*range(1, 18), 63, 64, 65, 100])
def test_leaves_and_root_by_the_definition(leaves):
    tree, (seeds, root) = Seeds.of(SEED, leaves), by_hand(SEED, leaves)
    assert [tree.leaf(number) for number in range(leaves)] == seeds
    assert tree.root == root.hex()


def kept_sets():
    sizes = st.integers(1, 70)
    return sizes.flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1))))


@settings(max_examples=300, deadline=None)
@given(kept_sets(), st.data())
def test_a_punctured_tree_keeps_its_root_and_nothing_else(case, data):
    size, kept = case
    whole = Seeds.of(SEED, size)
    tree = whole.keeping([range(i, i + 1) for i in kept])
    assert tree.root == whole.root
    assert [i for i in range(size) if tree.holds(i)] == sorted(kept)
    assert all(tree.leaf(i) == whole.leaf(i) for i in kept)
    for gone in set(range(size)) - kept:
        with pytest.raises(EvidenceError, match="destroyed"):
            tree.leaf(gone)
    assert Seeds.of_rows(tree.as_rows()) == tree
    fewer = data.draw(st.sets(st.sampled_from(sorted(kept)))) if kept else set()
    twice = tree.keeping([range(i, i + 1) for i in fewer])
    assert twice == whole.keeping([range(i, i + 1) for i in fewer])  # one form, in however many steps
    held = {part.seed for part in twice.parts if part.seed}
    assert len(held) <= 2 * len(fewer)


def test_a_prefix_is_short():
    tree = Seeds.of(SEED, 100_000).keeping([range(0, 12_345)])
    assert len(tree.parts) <= 2 * 17


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (Part(0, 2, SEED), Part(3, 4, SEED)),
        (Part(1, 4, SEED),),
        (Part(0, 3, SEED), Part(3, 4, SEED)),  # no subtree
        (Part(0, 4),),
        (Part(0, 4, SEED, SEED),),
        (Part(0, 4, SEED[:31]),),
        (Part(0, 2, digest=SEED), Part(2, 4, digest=SEED)),  # has a shorter form
        (Part(0, 2, SEED), Part(2, 4, SEED)),  # one seed gives both
        (Part(0, 1, digest=SEED), Part(1, 2, SEED), Part(2, 3, SEED), Part(3, 4, SEED)),
        (Part(0, 2**40, SEED),),
    ],
)
def test_other_parts_are_no_tree(parts):
    with pytest.raises(EvidenceError):
        Seeds(parts)


@pytest.mark.parametrize(
    "rows", [None, 3, [[0, 1, "seed", "xx"]], [[0, 1, "seed", "AB" * 32]], [[True, 1, "seed", "ab" * 32]], [["0"]]]
)
def test_other_rows_are_no_tree(rows):
    with pytest.raises(EvidenceError):
        Seeds.of_rows(rows)


def test_sizes_out_of_range():
    for leaves in (0, -1, 2**40):
        with pytest.raises(UsageError):
            Seeds.of(SEED, leaves)


def test_leaves_and_nodes_are_hashed_apart():
    assert leaf_digest(bytes(64)) != node_digest(bytes(32), bytes(32))
