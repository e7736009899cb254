"""Publishing: rules of the server whose row may be a sum as it is, where a partner subtracts her own row."""

from __future__ import annotations

from collections.abc import Sequence

from fuaudit.errors import UsageError
from fuaudit.registry import called
from fuaudit.secure.exposure import Buffer, fewest
from fuaudit.training.exchange import Exchange
from fuaudit.training.stages import least_rows, published


def require_unpublished(exchange: Exchange, buffers: Sequence[Buffer], suite: str) -> None:
    """Refuse a rule that may publish a sum of two, in rounds with such buffers at most.

    Whoever is in it subtracts her own row, and has the other's. How many sums come nobody knows before: clients may
    not come, and sums are discarded. So every number of them is asked for, from two on and from what a rule needs: one
    alone is all that there is, and a round that has fewer than a rule needs fails, and opens none.

    Raises:
        UsageError: the server has such a rule, and a buffer may open from two rows on.
    """
    if all(fewest(suite, buffer) > 2 for buffer in buffers):
        return
    for stage in exchange.server.stages[: exchange.server.aggregating]:
        needed = max(2, least_rows(stage))
        told = {published(stage, rows) for rows in range(needed, len(buffers) + 1)} - {""}
        if told:
            what = "a sum as it is" if "row" in told else "coordinates of single sums as they are"
            raise UsageError(
                f"the {called(stage)} may publish {what}, and the {called(exchange.transport)} has sums of two: "
                "whoever is in one subtracts her own row, and has the other client's",
                "Give the transport a size of 3 or more, or use a rule that adds up several sums, such as "
                '"geometric-median", "mean", or "multi-krum" with a keep of 2 or more.',
            )
