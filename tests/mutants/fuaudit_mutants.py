"""Wrong unlearners, installed as a stranger's package would be. Every audit has one that it must catch."""

from dataclasses import dataclass, replace

from fuaudit_plugins.fats import FatsUnlearning

from fuaudit.draws import END, Position


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
