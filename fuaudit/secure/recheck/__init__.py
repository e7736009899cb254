"""Recheck: what a transcript shows, by whoever has no key. See :mod:`fuaudit.secure.recheck.transcripts`."""
