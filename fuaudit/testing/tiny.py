"""A federation that trains in milliseconds: the ground on which contracts are checked. It is always the same."""

from __future__ import annotations

from typing import Any

import torch

from fuaudit.data.dataset import Dataset
from fuaudit.draws import Address, Keyed, Purpose

CLIENTS, CLASSES, ROWS, FEATURES = 4, 3, 24, 3


def key_of(number: int) -> Keyed:
    """The key with this number, for tests; not a secret."""
    return Keyed(number.to_bytes(32, "big"))


def tiny_dataset() -> Dataset:
    """24 training and 12 test rows of 3 numbers in 3 classes; the inputs of a class lie around its unit vector."""
    rows = ROWS + ROWS // 2
    noise = torch.from_numpy(key_of(0).uniform(Address(Purpose.AUDIT), rows * FEATURES)).reshape(rows, FEATURES)
    targets = torch.arange(rows) % CLASSES
    inputs = (noise + torch.eye(CLASSES, FEATURES, dtype=torch.float64)[targets]).to(torch.float32)
    return Dataset(inputs[:ROWS], targets[:ROWS], inputs[ROWS:], targets[ROWS:], CLASSES)


def tiny_config(**changes: Any) -> dict[str, Any]:
    """Tables of a config: FATS learning of a linear model by 4 clients of 6 samples, 3 rounds of 2 steps."""
    tables: dict[str, Any] = {
        "data": {"use": "tensors", "classes": CLASSES},
        "partition": {"use": "iid", "clients": CLIENTS},
        "model": {"use": "linear"},
        "learner": {"use": "fats", "rounds": 3, "cohort": 2, "steps": 2, "batch": 2, "step_size": 0.2},
        "run": {"checkpoint_every": 1, "engine": "reference", "device": "cpu"},
    }
    return tables | changes
