"""The contract of models."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fuaudit.draws import Address, Purpose
from fuaudit.models.layout import Layout, require_reading
from fuaudit.testing.problems import Problems
from fuaudit.testing.tiny import key_of

ROWS, MANY = 4, 33
"""How many rows are tried, and how many with others behind them."""


def check_model(
    recipe: object, shape: tuple[int, ...] = (64,), classes: int = 10, inputs: Tensor | None = None
) -> None:
    """Check that a model keeps its contract.

    It builds a module of layers that fuaudit can initialise and replay, the same one whatever the global generator
    says; the module gives finite logits ``(B, classes)``, those of a row do not depend on the rows beside it, and
    gradients are found for several models at once, as repeated sampling needs it.

    Args:
        shape: of one input, where ``inputs`` are not given.
        inputs: rows ``(4, *shape)`` to try it on, for models that read tokens; otherwise numbers in [-1, 1).

    Raises:
        AssertionError: the list of all that is wrong.
    """
    problems = Problems(recipe, "models")
    rows = _rows(shape) if inputs is None else inputs
    with problems.during("building"):
        module, again = _built(recipe, rows, classes)
        if not isinstance(module, nn.Module):
            problems.require(False, f"it builds {type(module).__name__}, not a module")
            problems.conclude()
        require_reading(module, rows)
        problems.require(Layout.of(module) == Layout.of(again), "it builds another module when it is asked again")
        problems.require(str(module) == str(again), "it builds another module when it is asked again")
        with problems.during("computing"):
            _check_logits(module, rows, classes, problems)
    problems.conclude()


def _rows(shape: tuple[int, ...]) -> Tensor:
    size = ROWS * torch.Size(shape).numel()
    return torch.from_numpy(2 * key_of(5).uniform(Address(Purpose.AUDIT), size) - 1).reshape(ROWS, *shape).float()


def _among_many(rows: Tensor) -> Tensor:
    """These rows in front of 29 others, which are ten times as large where they are numbers."""
    others = rows.repeat(8, *[1] * (rows.ndim - 1))[: MANY - ROWS]
    return torch.cat([rows, 10 * others if others.is_floating_point() else others])


def _built(recipe: Any, rows: Tensor, classes: int) -> tuple[Any, Any]:
    """Two modules; layers fill their parameters from the global generator, which is put back after both."""
    shape = tuple(rows.shape[1:])
    with torch.random.fork_rng(devices=[]):
        return recipe.build(shape, classes), recipe.build(shape, classes)


def _check_logits(module: nn.Module, rows: Tensor, classes: int, problems: Problems) -> None:
    layout = Layout.of(module)
    uniform = key_of(6).uniform(Address(Purpose.AUDIT), 2 * layout.dimension).reshape(2, layout.dimension)
    vectors = layout.initial(uniform, torch.float32)

    def logits(vector: Tensor, inputs: Tensor) -> Any:
        return functional_call(module, dict(zip(layout.names, layout.split(vector), strict=True)), (inputs,))

    found = logits(vectors[0], rows)
    shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
    problems.require(shape == (len(rows), classes), f"it gives {shape}, not logits (B, classes)")
    if shape != (len(rows), classes):
        return
    problems.require(bool(torch.isfinite(found).all()), "finite inputs give infinite or NaN logits")
    alone = torch.cat([logits(vectors[0], row[None]) for row in rows])
    problems.require(
        torch.allclose(found, alone, rtol=1e-4, atol=1e-5)
        and torch.allclose(found, logits(vectors[0], _among_many(rows))[:ROWS], rtol=1e-4, atol=1e-5),
        "the logits of a row depend on the rows beside",
    )
    slopes = vmap(grad(lambda vector: logits(vector, rows).square().sum()))(vectors)
    single = grad(lambda vector: logits(vector, rows).square().sum())(vectors[1])
    together = torch.allclose(slopes[1], single, rtol=1e-3, atol=1e-4)
    problems.require(together, "gradients of several models at once are other ones than those of one model")
