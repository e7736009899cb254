"""Unlearners: rewriters of plans and editors of models, and the two that everything is compared with."""

from fuaudit.unlearning.protocol import Context, Editor, Rewriter, Unlearner, is_editor

__all__ = ["Context", "Editor", "Rewriter", "Unlearner", "is_editor"]
