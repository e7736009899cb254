"""Apart: an outside audit is given evidence of its own, so that what it writes there bears on no other audit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import fields, replace
from typing import Any

from torch import Tensor, equal, uint8

from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence

OF_A_RUN = ("info", "files", "ledger", "config")
"""What a run, or the tombstone of one, holds in memory; models are read from its files whenever they are asked for."""


def apart(case: Case) -> Case:
    """The case over copies of all that can be written to; nothing that was computed of it comes along."""
    return replace(case, evidence=copied(case.evidence))


def copied(evidence: Evidence) -> Evidence:
    """The evidence over copies; ``replace`` leaves behind what runs have computed."""
    parent = None if evidence.parent is None else replace(evidence.parent)
    return deepcopy(replace(evidence, run=replace(evidence.run), parent=parent))


def changes(ours: Evidence, theirs: Evidence) -> list[str]:
    """What is no longer as it was in a copy of evidence, in the words of a case: ``case.dataset.inputs``, for example.

    Whoever changes what it is given has shown nothing about the run, though nobody else reads the copy.
    """
    return list(_changes(ours, theirs))


def _changes(ours: Evidence, theirs: Evidence) -> Iterator[str]:
    if ours.dataset is not None:
        for field in fields(ours.dataset):
            if not _same(getattr(ours.dataset, field.name), getattr(theirs.dataset, field.name)):
                yield f"case.dataset.{field.name}"
    for name in ("run", "parent"):
        one, other = getattr(ours, name), getattr(theirs, name)
        yield from (f"case.{name}.{word}" for word in OF_A_RUN if one and getattr(one, word) != getattr(other, word))
        # a copy may have read more of them since
        read: Mapping[str, Any] = getattr(one, "documents", {})
        yield from (f"case.{name}.document({key!r})" for key in read if read[key] != other.documents.get(key))


def _same(ours: object, theirs: object) -> bool:
    """Whether two values are equal; tensors by their bits, as erased rows are NaN."""
    if not isinstance(ours, Tensor):
        return ours == theirs
    alike = isinstance(theirs, Tensor) and (theirs.shape, theirs.dtype) == (ours.shape, ours.dtype)
    return alike and equal(_bits(ours), _bits(theirs))  # type: ignore[arg-type]


def _bits(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().view(uint8)
