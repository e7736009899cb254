"""What attacks share: whom they copy, where one of them is copied.

docs/attacks.md has all attacks, what each sees, and who is right where libraries differ.
"""

from __future__ import annotations

from fuaudit.plugins import Cohort


def copied_place(clients: tuple[int, ...], cohort: Cohort, wanted: int | str) -> int | None:
    """A place of the honest client that is copied: the wanted one, or else the one with the lowest id.

    Who has no samples sends nothing worth a copy. None where nobody is left.
    """
    each = enumerate(zip(cohort.clients.tolist(), cohort.steps.tolist(), strict=True))
    places = {client: place for place, (client, steps) in each if steps and client not in clients}
    if not places:
        return None
    return places[wanted if isinstance(wanted, int) and wanted in places else min(places)]
