"""Models, and the one place that knows how a flat vector maps to the tensors of a module."""

from fuaudit.models.layout import Layout, Recipe
from fuaudit.models.recurrent import Embedding

__all__ = ["Embedding", "Layout", "Recipe"]
