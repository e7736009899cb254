"""Level 3: what was committed to, how each plan follows from it, and that no draw holds what was to be forgotten."""

from fuaudit.audits.provenance.audit import Provenance

__all__ = ["Provenance"]
