"""Models, and the one place that knows how a flat vector maps to the tensors of a module."""

from fuaudit.models.layout import Layout, Recipe

__all__ = ["Layout", "Recipe"]
