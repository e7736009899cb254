"""Neighbours: what a prune of a run means for the folders beside it, which it leaves alone."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from fuaudit.draws import Seeds
from fuaudit.draws.seeds import Part
from fuaudit.errors import EvidenceError
from fuaudit.formats.files import read_json
from fuaudit.runs.ancestors import lineage
from fuaudit.runs.layout import KEYS, MANIFEST, RUN
from fuaudit.runs.listing import is_run
from fuaudit.runs.pruned_contents import kept_leaves
from fuaudit.runs.receipts import opens_erased, read_receipt
from fuaudit.runs.run import Run


def other_holders(run: Run, passed_over: Collection[Path] = ()) -> tuple[list[Path], list[Path]]:
    """Folders beside a run with seeds that its prune destroys, or has destroyed: prune leaves them alone.

    Then those whose keys cannot be read, which may hold some. The run itself, ancestors that still are runs, and
    folders that are ``passed_over`` are not looked into.

    Raises:
        EvidenceError: an ancestor does not check out, another run lies under its name, or the folder that holds the run
            cannot be read.
    """
    trees, unread = _of_the_training(run, passed_over)
    if not trees:
        return [], unread
    gone = [part for part in run.keys.seeds.keeping(kept_leaves(run, lineage(run))).parts if part.seed is None]
    return [folder for folder, tree in trees if any(_overlap(part, tree) for part in gone)], unread


def other_runs(run: Run, passed_over: Collection[Path] = ()) -> list[Path]:
    """Folders beside a run with keys of its training, whatever a prune has left in them; EvidenceError as above."""
    return [folder for folder, _ in _of_the_training(run, passed_over)[0]]


def _of_the_training(run: Run, passed_over: Collection[Path]) -> tuple[list[tuple[Path, Seeds]], list[Path]]:
    """Folders beside a run with its tree of seeds, and what each has of it; then those whose keys cannot be read."""
    mine = run.keys.seeds
    found, unread = list[tuple[Path, Seeds]](), list[Path]()
    passed = {ancestor.path.resolve() for ancestor in lineage(run) if isinstance(ancestor, Run)}.union(passed_over)
    for folder in _beside(run):
        path = folder / KEYS
        try:
            home = Path(os.path.realpath(folder, strict=True))
            if home in passed or not home.is_dir() or not (path.is_symlink() or path.exists()):
                continue
            tree = _tree_in(path)  # not as strictly as a run is opened: a holder is one in whatever form
        except FileNotFoundError:  # a link to nowhere
            continue
        except (EvidenceError, OSError):  # no permission to look inside, or a link to itself, is an answer too
            unread.append(folder)
            continue
        if tree is None:
            unread += [folder] if is_run(folder) else []  # other programs have a file of this name too
        elif _same_tree(mine, tree):
            found.append((folder, tree))
    return found, unread


def orphans(run: Run) -> list[Path]:
    """Runs beside a run whose parent its prune would bury, and which it would not prune: they can be judged less then.

    None are named where the lineage cannot be read as it is: a prune that was killed has begun to bury it.
    """
    try:
        chain = [ancestor for ancestor in lineage(run) if isinstance(ancestor, Run)]
    except EvidenceError:
        return []
    passed = {ancestor.path.resolve() for ancestor in chain}
    beside = _children_of({ancestor.digest for ancestor in chain[1:]}, run)
    return [folder for folder in beside if folder.resolve() not in passed]


def receipts_beside(run: Run) -> list[Path]:
    """Receipts beside a run that open what was to be forgotten: they are written there, and a prune leaves them."""
    files = (path for path in _beside(run) if path.suffix == ".json" and path.is_file())
    return [path for path in files if _opens(path, run)]


def _opens(path: Path, run: Run) -> bool:
    try:
        receipt = read_receipt(path)
    except (EvidenceError, OSError):
        return False
    return receipt.commitment == run.commitment and opens_erased(receipt, run)


def children(run: Run) -> list[Path]:
    """Runs beside a run that were made of it: a prune gives it another digest, and they lose their parent."""
    return _children_of({run.digest}, run)


def _children_of(digests: Collection[str], run: Run) -> list[Path]:
    """The folders beside a run that hold runs with one of these parents."""
    return [folder for folder in _beside(run) if _parent_in(folder, digests)]


def _beside(run: Run) -> list[Path]:
    """All that lies in the folder that holds a run. EvidenceError where it cannot be read."""
    home = run.path.resolve().parent
    try:
        return sorted(home.iterdir())
    except OSError as error:
        raise EvidenceError(f"cannot look through {home}: {error.strerror or error}") from error


def _parent_in(folder: Path, digests: Collection[str]) -> bool:
    """Whether a folder holds a run with one of these parents; not, where it cannot be read."""
    try:
        return (folder / MANIFEST).is_file() and read_json(folder / RUN)["parent"]["digest"] in digests
    except (EvidenceError, OSError, TypeError, KeyError):
        return False


def _same_tree(mine: Seeds, theirs: Seeds) -> bool:
    """Whether two trees are one. By a seed that both hold, where there is one: roots take long to compute.

    A surplus leaf makes no other tree of it.
    """
    both = next((part.first for part in mine.parts if part.seed is not None and theirs.holds(part.first)), None)
    return mine.root == theirs.root if both is None else mine.leaf(both) == theirs.leaf(both)


def _overlap(gone: Part, tree: Seeds) -> bool:
    """Whether a tree holds a seed inside a part."""
    return any(part.seed is not None and part.first < gone.last and gone.first < part.last for part in tree.parts)


def _tree_in(path: Path) -> Seeds | None:
    """The tree of seeds in a neighbour's file; None where it holds none, or in no form that a run has."""
    table = read_json(path)
    try:
        return Seeds.of_rows(table["seeds"])
    except (EvidenceError, TypeError, KeyError):
        return None
