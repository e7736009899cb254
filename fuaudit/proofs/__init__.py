"""Proofs: a rewriter is exact, or a counterexample, by enumeration on small federations. Needs no run."""

from fuaudit.proofs.exactness import Exactness, exactness

__all__ = ["Exactness", "exactness"]
