"""The contract of adversaries."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from fuaudit.data.adversaries import problem_of
from fuaudit.data.dataset import Dataset
from fuaudit.testing.problems import Problems
from fuaudit.testing.tiny import tiny_dataset

Made = list[tuple[Tensor, int]]


def check_adversary(adversary: Any, dataset: Dataset | None = None) -> None:
    """Check that an adversary keeps its contract.

    It makes rows of the shape, dtype and classes that it was given, at least one of them another one. It makes the same
    of a row when it is asked again, in another order and among others: whoever audits a run turns rows in an order of
    his own, and has not all of them. No global generator is used.

    Args:
        dataset: rows to turn, where those of :func:`~fuaudit.testing.tiny.tiny_dataset` do not suit it.

    Raises:
        AssertionError: the list of all that is wrong.
    """
    problems = Problems(adversary, "adversaries")
    clients = adversary.clients if "clients" in {option.name for option in fields(adversary)} else None
    if not isinstance(clients, tuple) or not all(type(client) is int and client >= 0 for client in clients):
        problems.require(False, "it must name its clients by their ids in an option, clients: tuple[int, ...]")
    data = tiny_dataset() if dataset is None else dataset
    rows = list(range(data.size))
    with problems.during("turning rows"):
        made = _made(adversary, data, rows)
        for problem in sorted({problem_of(one, data) for one in made} - {""}):
            problems.require(False, f"it makes of a row {problem}")
        if not problems.found:
            again = (_made(adversary, data, rows), _made(adversary, data, rows[::-1])[::-1])
            problems.require(all(_equal(made, other) for other in again), "it makes another row when it is asked again")
            whole = [(data.inputs[row], int(data.targets[row])) for row in rows]
            left = f"it leaves all of {len(rows)} rows, of classes 0 to {data.classes - 1}, as they were"
            given = "give it rows that it turns: check_adversary(adversary, dataset=...)"
            problems.require(not _equal(made, whole), f"{left}: where it turns others alone, {given}")
    problems.conclude()


def _made(adversary: Any, data: Dataset, rows: list[int]) -> Made:
    return [adversary.turn(data.inputs[row].clone(), int(data.targets[row]), data.classes) for row in rows]


def _equal(some: Made, others: Made) -> bool:
    return all(a[1] == b[1] and torch.equal(a[0], b[0]) for a, b in zip(some, others, strict=True))
