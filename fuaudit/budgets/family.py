"""A family: the runs that unlearning made of one training, and which of their rounds count towards whom.

A run charges the rounds that it drew anew: those from its first change on, and those that its parent had not executed.
A kept round that it executes again has the draws and the result that it had, so the ancestor's charge is the only one.
A round that is cut inside was executed twice, with two noises, and counts for both runs. Nothing is ever refunded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from fuaudit.text import counted

Parameters = tuple[tuple[str, int | float | str], ...]


@dataclass(frozen=True)
class Release:
    """What a part of a round says that it releases under. Equal ones add up, and no others.

    A release fixes unit, adjacency and adversary: they follow from mechanism and parameters, and from the part.
    """

    part: str
    mechanism: str
    parameters: Parameters


@dataclass(frozen=True)
class Member:
    """A run of a family, as its files tell.

    Attributes:
        name: of its folder.
        digests: by which its children name it; before a prune it had another one than after it.
        parent: the digest of its parent; empty for a training run.
        first_change: the first round that is not its parent's; any number up to 1 for all of them.
        executed: the last round that it has.
        told: round -> what it told of that round, of those that it executed itself.
        beyond: why its rounds are not all that it released; empty for nothing of the kind.
    """

    name: str
    digests: frozenset[str]
    parent: str = ""
    first_change: int = 1
    executed: int = 0
    told: Mapping[int, tuple[Release, ...]] = field(default_factory=dict)
    beyond: str = ""


@dataclass(frozen=True)
class Charge:
    """The rounds that a run adds to an account, and what was told of each."""

    name: str
    rounds: range
    releases: tuple[tuple[Release, ...], ...]


@dataclass(frozen=True)
class Family:
    """Runs, by digest each once, and what is in the way of an account.

    Attributes:
        run: the name of the one that is asked about.
        gaps: name of a run -> why what it released cannot be counted.
        doubles: name of a run -> why it is not known which one it is, so that any may be an ancestor.
        between: two names -> why their charges do not add up.
    """

    run: str
    members: tuple[Member, ...]
    gaps: Mapping[str, str] = field(default_factory=dict)
    doubles: Mapping[str, str] = field(default_factory=dict)
    between: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def named(self, name: str) -> Member:
        """The member with a name."""
        return next(member for member in self.members if member.name == name)

    def parent_of(self, member: Member) -> Member | None:
        """The parent of a member; None for a training run, and where it is not at hand."""
        others = (other for other in self.members if other is not member)
        return next((other for other in others if member.parent in other.digests), None)

    def with_ancestors(self, names: Collection[str]) -> tuple[Member, ...]:
        """Some members and all ancestors of them that are at hand."""
        found, ahead = set[str](), list(names)
        while ahead:
            name = ahead.pop()
            found.add(name)
            parent = self.parent_of(self.named(name))
            ahead += [parent.name] if parent and parent.name not in found else []
        return tuple(member for member in self.members if member.name in found)

    def in_order(self, members: Collection[Member]) -> list[Member]:
        """Parents before their children; those of one generation by name."""
        return sorted(members, key=lambda member: (len(self.with_ancestors([member.name])), member.name))

    def charge(self, member: Member) -> Charge:
        """The rounds of a member that count."""
        parent = self.parent_of(member)
        drawn_anew = 1 if not member.parent else member.first_change
        first = max(1, min(drawn_anew, parent.executed + 1 if parent else drawn_anew))
        rounds = range(first, member.executed + 1)
        return Charge(member.name, rounds, tuple(member.told.get(number, ()) for number in rounds))


@dataclass(frozen=True)
class Spent:
    """What some members of a family released together.

    Attributes:
        reasons: why no epsilon holds for it; empty where one may.
    """

    charges: tuple[Charge, ...]
    reasons: tuple[str, ...]

    @property
    def rounds(self) -> int:
        """How many there are together; one that was executed twice with other draws counts twice."""
        return sum(len(charge.rounds) for charge in self.charges)

    @cached_property
    def releases(self) -> Mapping[str, tuple[Release, ...]]:
        """Part -> what it released under, each once."""
        told = sorted({one for charge in self.charges for each in charge.releases for one in each}, key=repr)
        return {part: tuple(one for one in told if one.part == part) for part in sorted({one.part for one in told})}

    def silent(self, part: str) -> int:
        """In how many of the rounds a part told of nothing: they are charged as the others."""
        return sum(not count for count in self._told(part))

    def at_once(self, part: str) -> int:
        """How often a part told of something in one round, at most."""
        return max(self._told(part), default=0)

    def _told(self, part: str) -> list[int]:
        return [sum(one.part == part for one in each) for charge in self.charges for each in charge.releases]

    @property
    def covered(self) -> str:
        """Which rounds of which run."""
        each = [f"{charge.name} {rounds_in_words(charge.rounds)}" for charge in self.charges]
        counted_ones = f"{counted(self.rounds, 'round')} of {counted(len(self.charges), 'run')}"
        return f"{counted_ones}: {'; '.join(each)}"


def rounds_in_words(rounds: range) -> str:
    """Rounds by their numbers."""
    if not rounds:
        return "none"
    return f"round {rounds[0]}" if len(rounds) == 1 else f"rounds {rounds[0]} to {rounds[-1]}"


def spent_towards_server(family: Family) -> Spent:
    """What the server saw: all members, for siblings have noise of their own over nearly the same data."""
    return _spent(family, family.members, list(family.gaps.items()))


def spent_towards_public(family: Family, published: Collection[str] = ()) -> Spent:
    """What the public may have seen: the run and others that were published, each with all ancestors.

    A request comes to a model that is in use, so ancestors count as published.
    """
    names = {family.run, *published}
    known = {member.name for member in family.members}
    gaps = [(name, why) for name, why in family.gaps.items() if name in names]
    return _spent(family, family.with_ancestors(names & known), gaps)


def _spent(family: Family, members: Sequence[Member], gaps: Sequence[tuple[str, str]]) -> Spent:
    reasons = [f"{name}: {why}" for name, why in (*gaps, *family.doubles.items())]
    return Spent(tuple(map(family.charge, family.in_order(members))), (*reasons, *_reasons(family, members)))


def _reasons(family: Family, members: Sequence[Member]) -> Iterator[str]:
    """Why no epsilon holds for some members together."""
    names = {member.name for member in members}
    for member in members:
        if member.parent and family.parent_of(member) is None:
            yield f"the parent of {member.name} is not at hand, so what it released is not known"
        elif all(map(family.parent_of, family.with_ancestors([member.name]))):
            yield f"the ancestors of {member.name} go in a circle, so one of them is not what it says that it was"
        if member.beyond:
            yield f"{member.name}: {member.beyond}"
    yield from (why for pair, why in family.between.items() if names.issuperset(pair))
