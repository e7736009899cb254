"""FedAvg: federated averaging.

McMahan, Moore, Ramage, Hampson, Agueera y Arcas: "Communication-Efficient Learning of Deep Networks from
Decentralized Data" (AISTATS 2017), Algorithm 1. What differs from print: local work is counted in steps of
mini-batches drawn afresh, not in epochs over a fixed split, so that every batch is a draw of the plan.

Note for unlearning: the printed weights n_k / n_S know how many samples a client has. An unlearner that keeps
rounds is then exact for clients but not for samples; ``server = [{use = "mean"}]`` avoids it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from fuaudit.plugins import PLAIN, UniformLearner


@dataclass(frozen=True)
class FedAvg(UniformLearner):
    """K distinct clients a round, E steps of plain SGD, mean weighted by sample counts."""

    cite: ClassVar[str] = "McMahan, Moore, Ramage, Hampson and Agueera y Arcas, AISTATS 2017, arXiv 1602.05629"
    guarantee: ClassVar[str] = "none"
    solver: ClassVar[dict[str, Any]] = PLAIN
    server: ClassVar[tuple[dict[str, Any], ...]] = ({"use": "size-weighted", "by": "cohort"},)
