"""The models of a run, and what was measured on them: read when they are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fuaudit.runs.encoding import model_and_state
from fuaudit.runs.layout import CHECKPOINT, MEMORIES, METRICS, PARTICIPATION, of_round
from fuaudit.runs.stored import Stored

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class WithModels(Stored):
    """A run that tells of its stored rounds."""

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
