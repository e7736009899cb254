"""Wrong plugins, installed as a stranger's package would be. Every audit has one that it must catch."""

from dataclasses import dataclass, replace

from fuaudit_plugins.fats import FatsUnlearning
from fuaudit_plugins.mifa import LatestUpdates

from fuaudit.draws import END, Position
from fuaudit.training.stages import weighted_sum


@dataclass(frozen=True)
class Late(FatsUnlearning):
    """Restarts one round too late."""

    def rewrite(self, plan, request, fresh, executed):
        first = plan.first_involvement(request) or END
        return plan.erase(request, fresh, first if first == END else Position(first.round + 1, 0))


@dataclass(frozen=True)
class ReusedKey(FatsUnlearning):
    """Restarts in time, but draws from the old key again."""

    def rewrite(self, plan, request, fresh, executed):
        right = super().rewrite(plan, request, fresh, executed)
        last = len(right.sources) - 1

        def old(segments):
            return tuple(replace(s, source=0) if s.source == last else s for s in segments)

        return replace(right, streams={name: old(segments) for name, segments in right.streams.items()})


@dataclass(frozen=True)
class Raises(FatsUnlearning):
    """Breaks."""

    def rewrite(self, plan, request, fresh, executed):
        raise RuntimeError("the dog ate the plan")


@dataclass(frozen=True)
class Peeks:
    """Claims to need nothing and reads the model."""

    needs = frozenset()
    participants = frozenset()
    guarantee = "none"
    cite = ""

    def edit(self, context):
        return context.model


@dataclass(frozen=True)
class UnnamedRows(LatestUpdates):
    """MIFA that finds rows by client id and does not name them, so that an erased client's row stays."""

    stackable = False
    client_rows = frozenset()

    def apply(self, updates, context, state):
        table, cohort = state["updates"].clone(), context.cohort
        table[cohort.clients[cohort.present]] = updates[cohort.present]
        return weighted_sum(table, table.new_ones(len(table)) / len(table)), {"updates": table}
