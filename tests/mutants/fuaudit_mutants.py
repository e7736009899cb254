"""Plugins installed as a stranger's package would be: wrong ones, for audits to catch, and one right one."""

from dataclasses import dataclass, replace

from fuaudit_plugins.fats import FatsUnlearning
from fuaudit_plugins.mifa import LatestUpdates

from fuaudit.draws import END, Address, Position, Purpose
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
class Places(FatsUnlearning):
    """Right, and not to be expressed by segments: gives away only the erased client's places in later cohorts.

    With replacement, places are independent and uniform, so the others may stay. The plan it returns is recorded.
    """

    guarantee = "exact, for uniform cohorts with replacement"
    exact_for = frozenset({"uniform with replacement"})
    gives_to_first = False

    def rewrite(self, plan, request, fresh, executed):
        first = min(plan.first_involvement(request) or END, executed)
        if request.samples or first == END:
            return super().rewrite(plan, request, fresh, executed)
        left, cohorts = plan.retained.without(request).clients, {}
        for round in range(first.round, plan.law.rounds + 1):
            at = Address(Purpose.COHORT, round, version=len(plan.populations))
            spare = fresh.sequence(at, left, plan.law.cohort_size)
            if self.gives_to_first:
                spare = left[:1] * len(spare)
            pairs = zip(plan.cohort(round), spare, strict=True)
            cohorts[round] = tuple(new if old in request.clients else old for old, new in pairs)
        return plan.erase(request, fresh, first).recorded(cohorts)


@dataclass(frozen=True)
class Favours(Places):
    """Wrong: all given places go to the first client."""

    gives_to_first = True


@dataclass(frozen=True)
class UnnamedRows(LatestUpdates):
    """MIFA that finds rows by client id and does not name them, so that an erased client's row stays."""

    stackable = False
    client_rows = frozenset()

    def apply(self, updates, context, state):
        table, cohort = state["updates"].clone(), context.cohort
        table[cohort.clients[cohort.present]] = updates[cohort.present]
        return weighted_sum(table, table.new_ones(len(table)) / len(table)), {"updates": table}
