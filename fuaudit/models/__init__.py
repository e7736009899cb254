"""Models, and the one place that knows how a flat vector maps to the tensors of a module.

What is named here is made of torch, and is imported when it is first used: whoever reads a config needs no module.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fuaudit.models.layout import Layout, Recipe
    from fuaudit.models.recurrent_modules import Embedding

__all__ = ["Embedding", "Layout", "Recipe"]

_HOME = {"Embedding": "recurrent_modules", "Layout": "layout", "Recipe": "layout"}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"fuaudit.models.{_HOME[name]}"), name)
    raise AttributeError(f"module 'fuaudit.models' has no attribute {name!r}")
