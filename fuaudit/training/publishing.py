"""Publishing: rules of the server whose row may be a sum as it is, where a partner subtracts her own row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fuaudit.declared import says
from fuaudit.errors import UsageError
from fuaudit.registry import called
from fuaudit.secure.exposure import Buffer, buffers_under, fewest
from fuaudit.training.exchange import Exchange
from fuaudit.training.stages import least_rows, published

if TYPE_CHECKING:
    from fuaudit.plans import Law

LARGER = (
    "Use sums of three clients with samples or more (secure-sum with a size of 3 or more), or a rule that adds up "
    'several sums, such as "geometric-median", "mean", or "multi-krum" with a keep of 2 or more.'
)
ERASE_WHOLE = (
    "Erase a client as a whole where no samples of hers are left: then she is in no buffer. Or train with larger "
    "buffers, or with a rule that adds up several sums."
)


def buffers_in(exchange: Exchange, law: Law, suite: str | None, places: int) -> tuple[Buffer, ...]:
    """The buffers of a round of so many participations; none where the transport says nothing of them.

    Where everybody counts, see :meth:`~.exchange.Exchange.counts_all`, all but one behind a sum can be noise alone.
    """
    trained = 1 if exchange.counts_all(law) else says(exchange.transport, "least_trained")
    return buffers_under(suite, exchange.buffers(places), trained) if places else ()


def require_unpublished(exchange: Exchange, buffers: Sequence[Buffer], suite: str, law: Law, empty: int = 0) -> None:
    """Refuse a rule that may publish a sum of two, in rounds with such buffers at most.

    Whoever is in it subtracts her own row, and has the other's. How many sums come nobody knows before: clients may
    not come, and sums are discarded. So every number of them is asked for, from two on and from what a rule needs: one
    alone is all that there is, and a round that has fewer than a rule needs fails, and opens none. Of clients ``empty``
    ones have no samples and hide nobody: a lot can put them into one buffer, and a buffer of which too few have some is
    not opened, so that another one is left alone.

    Where batches of the law can be empty, see :meth:`~.exchange.Exchange.trains_all`, any number of others can be
    without samples in a round. Then a sum is large enough where the transport sees to that alone (``least_trained``).
    That a smaller one is left alone, whatever the rule, is a chance that grows with how many batches are empty: an
    audit counts these rounds, and refuses none.

    Raises:
        UsageError: the server has such a rule, and a buffer may open from two rows of data on; or one such buffer may
            be all that is opened of several.
    """
    all_train = exchange.trains_all(law)
    if all(max(buffer.trained, (fewest(suite, buffer) - empty) * all_train) > 2 for buffer in buffers):
        return
    without = " where clients without samples hide nobody" * bool(empty)
    without = without if all_train else ", as batches can be empty, and who drew nothing hides nobody"
    for stage in exchange.server.stages[: exchange.server.aggregating]:
        needed = max(2, least_rows(stage))
        told = {published(stage, rows) for rows in range(needed, len(buffers) + 1)} - {""}
        if told or (least_rows(stage) < 2 and _one_is_left(buffers, empty)):
            what = "coordinates of single sums as they are" if told == {"coordinates"} else "a sum as it is"
            raise UsageError(
                f"the {called(stage)} may publish {what}, and the {called(exchange.transport)} has sums of two"
                f"{without}: whoever is in one subtracts her own row, and has the other client's",
                ERASE_WHOLE if empty else LARGER,
            )


def _one_is_left(buffers: Sequence[Buffer], empty: int) -> bool:
    """Whether a lot can leave one buffer of several, with two clients who have samples: in others there is one each."""
    return len(buffers) > 1 and sum(buffer.size - 1 for buffer in buffers) - 1 <= empty
