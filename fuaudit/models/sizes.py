"""Sizes of layers, checked where a config names a model; no layer is built."""

from __future__ import annotations

from fuaudit.errors import UsageError

MOST_LAYERS = 1000
"""Of those that a config lists."""


def require_positive(model: str, *sizes: int) -> None:
    """Raises UsageError unless all sizes of a model's layers are at least 1, and there are few enough of them."""
    if len(sizes) > MOST_LAYERS:
        raise UsageError(f"{model} has {len(sizes):,} layers, and at most {MOST_LAYERS:,} can be executed")
    if min(sizes, default=1) < 1:
        raise UsageError(f"the sizes of the layers of {model} must be at least 1, not {min(sizes)}")
