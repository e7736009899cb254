"""Unlearners: rewriters of plans and editors of models, and the two that everything is compared with."""

from fuaudit.unlearning.protocol import EVERY_LAW, Context, Editor, Rewriter, Unlearner, exact_under, is_editor

__all__ = ["EVERY_LAW", "Context", "Editor", "Rewriter", "Unlearner", "exact_under", "is_editor"]
