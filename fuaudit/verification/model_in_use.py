"""The model in use: is it, number for number, the last model of the audited run?

A verdict is about a run folder. Only this comparison ties it to a model that answers questions somewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from fuaudit.errors import EvidenceError, UsageError
from fuaudit.formats.files import read_bytes, sha256
from fuaudit.runs.run import Run
from fuaudit.text import counted
from fuaudit.verification.finding import Verdict

if TYPE_CHECKING:
    from fuaudit.models.layout import Layout

SLACK = 16 * 2**20
"""Bytes of a file of a model beyond its numbers: names, and metadata of whoever wrote it."""

NOT_COMPARED = "The model in use is the last one of this run: nothing was given (--model FILE) to compare with it."
"""What is taken on trust without a model in use."""


@dataclass(frozen=True)
class ModelInUse:
    """The model in use: the SHA-256 of its file, the tensors in it, and how many bytes of the file are none."""

    sha256: str
    tensors: dict[str, Tensor]
    beside: int


def not_compared(given: ModelInUse | None, run: Run) -> tuple[str, ...]:
    """What of the model in use nothing compares, in sentences: none where its file is one of the run's own."""
    if given is None:
        return (NOT_COMPARED,)
    if given.sha256 in {entry["sha256"] for entry in run.files.values()}:
        return ()
    beside = counted(
        given.beside, "byte of the file of the model in use is", "bytes of the file of the model in use are"
    )
    notes = "no numbers: names, spaces and notes of its writer. Nothing compares more of them than names of parameters."
    return (f"{beside} {notes}",)


def read_model_in_use(path: Path, run: Run) -> ModelInUse:
    """The model in use, from a safetensors file: a vector ``(d,)``, or the named parameters of the model.

    Others write such files, with metadata and in orders of their own, so they are not held to the form of a run's.

    Raises:
        UsageError: there is no such file.
        EvidenceError: it is no safetensors file, is larger than any form of the run's model, or holds NaN or
            infinities.
    """
    if not path.is_file():
        raise UsageError(f"there is no model {path}", "Give --model a safetensors file.")
    model, state = run.checkpoint(run.checkpoints[-1])
    content = read_bytes(path, SLACK + 8 * sum(tensor.numel() for tensor in (model, *state.values())))
    try:
        tensors = load(content)
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise EvidenceError(f"{path} is not a valid safetensors file: {error}") from None
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise EvidenceError(f"{path}: {name} holds NaN or infinities")
    return ModelInUse(sha256(content), tensors, len(content) - sum(tensor.nbytes for tensor in tensors.values()))


def difference(given: ModelInUse, run: Run, layout: Callable[[], Layout]) -> str:
    """How the model in use differs from the last one of the run; empty where it does not.

    ``layout`` names the parameters of the model, and raises UsageError where the data is not at hand.

    Numbers are compared as numbers: a wider type that holds the same ones is no other model.

    Raises:
        EvidenceError: parameters are named, and without the data nothing says which of them is which.
    """
    model = run.model
    tensors = dict(given.tensors)
    if len(tensors) == 1 and next(iter(tensors.values())).ndim == 1:
        return _numbers("it", next(iter(tensors.values())), model)
    if "vector" in tensors:  # a stored round, with the server's memory
        _, state = run.checkpoint(run.checkpoints[-1])
        return _named(tensors, {"vector": model, **{f"state.{name}": tensor for name, tensor in state.items()}})
    try:
        found = layout()
    except UsageError:
        raise EvidenceError("the names of its parameters need the data", "Give --data ROOT.") from None
    if model.numel() != sum(tensor.numel() for tensor in found.split(model)):
        return "the run's own model has not the size of its config"
    return _named(tensors, dict(zip(found.names, found.split(model), strict=True)))


def _named(found: dict[str, Tensor], expected: dict[str, Tensor]) -> str:
    surplus, missing = sorted(found.keys() - expected.keys()), sorted(expected.keys() - found.keys())
    if surplus or missing:
        return "; ".join(
            f"{what}: {', '.join(map(repr, names[:5]))}"
            for what, names in (("tensors that the model has not", surplus), ("tensors that are missing", missing))
            if names
        )
    return next(filter(None, (_numbers(repr(name), found[name], expected[name]) for name in expected)), "")


def _numbers(name: str, found: Tensor, expected: Tensor) -> str:
    if found.shape != expected.shape:
        return f"{name} has the shape {tuple(found.shape)}, not {tuple(expected.shape)}"
    if found.is_floating_point() != expected.is_floating_point():
        return f"{name} holds numbers of another kind: {found.dtype}, not {expected.dtype}"
    ours, theirs = (t.double() if t.is_floating_point() else t for t in (found, expected))
    if torch.equal(ours, theirs):
        # a sign of each zero is a bit that a writer could choose
        same = not ours.is_floating_point() or torch.equal(ours.signbit(), theirs.signbit())
        return "" if same else f"zeros of {name} have another sign"
    share = float((ours != theirs).double().mean())
    return f"{share:.3%} of the numbers of {name} differ, by up to {float((ours - theirs).abs().max()):.3g}"


def in_use(given: ModelInUse | None, run: Run, layout: Callable[[], Layout]) -> tuple[Verdict, str] | None:
    """Whether the model in use is the last one of the run, and what to say of it; None where none was given."""
    if given is None:
        return None
    try:
        wrong = difference(given, run, layout)
    except EvidenceError as error:
        return Verdict.INCONCLUSIVE, f"The model in use cannot be compared: {error}"
    if wrong:
        return Verdict.FAIL, f"The model in use is not that of the run: {wrong}."
    return Verdict.PASS, f"The model in use (SHA-256 of its file {given.sha256}) is that of the run."
