"""The models of a run, and what was measured on them: read when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fuaudit.runs.encoding import model_and_state, received_of
from fuaudit.runs.layout import CHECKPOINT, MEMORIES, METRICS, PARTICIPATION, RECEIVED, of_round
from fuaudit.runs.stored import Stored
from fuaudit.training.received import Received

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Records(Mapping[int, Received]):
    """What came in messages, by rounds; each is read when it is asked for."""

    run: Stored
    rounds: tuple[int, ...]

    def __getitem__(self, number: int) -> Received:
        if number not in self.rounds:
            raise KeyError(number)
        name = of_round(RECEIVED, number)
        return received_of(self.run.arrays(name), self.run.path / name)

    def __contains__(self, number: object) -> bool:
        return number in self.rounds

    def __iter__(self) -> Iterator[int]:
        return iter(self.rounds)

    def __len__(self) -> int:
        return len(self.rounds)


@dataclass(frozen=True)
class WithModels(Stored):
    """A run that tells of its stored rounds."""

    @property
    def received(self) -> Records:
        """What came in messages, by rounds."""
        return Records(self, self.received_rounds)

    def checkpoint(self, round_number: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Model ``(d,)`` and what is kept after a stored round; of a redacted run what the server keeps."""
        memories = of_round(MEMORIES, round_number)
        kept = self.tensors(memories) if self.has(memories) and not self.redacted else {}
        return model_and_state(self.tensors(of_round(CHECKPOINT, round_number)) | kept)

    @property
    def model(self) -> Tensor:
        """The final model, ``(d,)``."""
        return self.checkpoint(self.checkpoints[-1])[0]

    @property
    def models(self) -> dict[int, Tensor]:
        """Round -> model ``(d,)`` of every stored round, read now."""
        return {round_number: self.checkpoint(round_number)[0] for round_number in self.checkpoints}

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Test loss and accuracy at every stored round."""
        rows: list[dict[str, Any]] = self.document(METRICS)
        return rows

    @property
    def participation(self) -> dict[str, Any]:
        """Who took part in each round, what had been uploaded by then, and how the final model serves each client."""
        table: dict[str, Any] = self.document(PARTICIPATION)
        return table

    @property
    def own_accuracy(self) -> dict[str, float | None]:
        """Client id (as text) -> accuracy of the final model on its rows, of six decimals; None where it has none."""
        own = self.participation["own_accuracy"].items()
        return {client: None if share is None else float(share) for client, share in own}
