"""Collecting all that is wrong, so that one run of a check shows the whole list."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch

from fuaudit.declared import must_say, wrong
from fuaudit.errors import line_of


class Problems:
    """What a check found wrong with one subject."""

    def __init__(self, subject: Any, kind: str = "") -> None:
        """Starts with what holds for every plugin: a frozen dataclass, so that its options can be recorded.

        One of a kind declares only what there is (:mod:`fuaudit.declared`).

        Raises:
            AssertionError: it declares something else.
        """
        self.subject, self.name = subject, type(subject).__name__
        self.found: list[str] = []
        frozen = is_dataclass(subject) and getattr(type(subject), "__dataclass_params__").frozen  # noqa: B009
        self.require(frozen, "it is not a frozen dataclass, so its options cannot be recorded with a run")
        if frozen:
            hidden = sorted(getattr(subject, "__dict__", {}).keys() - {f.name for f in fields(subject)})
            self.require(not hidden, f"it keeps hidden attributes: {', '.join(hidden)}")
        if kind and (problems := wrong(type(subject), kind)):
            self.found += problems
            self.conclude()

    def require(self, holds: object, text: str) -> None:
        """Note ``text``, once, unless it holds."""
        if not holds and text not in self.found:
            self.found.append(text)

    @contextmanager
    def during(self, doing: str) -> Iterator[None]:
        """Note what is raised inside as a problem, and a draw from a global generator as another."""
        before = _generator_states()
        try:
            yield
        except Exception as error:
            self.require(False, f"{doing}: {type(error).__name__}: {error}{line_of(self.subject, error)}")
        self.require(before == _generator_states(), f"{doing}: a global generator of random numbers was used")

    def require_rows_declared(self, plugin: object) -> None:
        """Raises AssertionError where a plugin with a state does not say which tensors have one row a client."""
        if not isinstance(must_say(plugin, "per_client_state"), frozenset):
            self.found.append(
                "it must declare per_client_state: the names of the tensors in its state with one row for each client"
            )
            self.conclude()

    def conclude(self) -> None:
        """Raises AssertionError with the whole list, if there is anything on it."""
        if self.found:
            raise AssertionError(
                f"{self.name} breaks its contract:\n" + "\n".join(f"  - {text}" for text in self.found)
            )


def _generator_states() -> tuple[object, ...]:
    numpy = tuple(repr(part) if not isinstance(part, np.ndarray) else part.tobytes() for part in np.random.get_state())
    return random.getstate(), numpy, torch.get_rng_state().numpy().tobytes()
