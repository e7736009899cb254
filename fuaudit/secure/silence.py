"""Silence: from which step of an opening on a party does not answer."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fuaudit.secure.messages import named
from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.terms import Terms

STEPS = ("announce", "share", "send", "unmask")
"""From which a client can be silent, in their order."""

ORDER = (*STEPS, "witness", "receipt")
"""The same, also of witness and key holder."""

NOBODY: Mapping[int, str] = MappingProxyType({})


def is_here(party: int, step: str, absent: Mapping[int, str]) -> bool:
    """Whether a party answers at a step, where some (party -> step) are silent from one on."""
    return party not in absent or ORDER.index(step) < ORDER.index(absent[party])


def unanswered(party: int, step: str, terms: Terms) -> RefusedError:
    """Why a buffer is discarded where the witness or the key holder is silent."""
    return RefusedError(
        f"{named(party)} does not answer at step {step} of buffer {terms.buffer}",
        "The buffer is discarded: without it no sum is told.",
        reason="silent",
    )
