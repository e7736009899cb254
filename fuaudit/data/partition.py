"""Partitions: which client owns which training rows. Drawn once, recorded, never drawn again by a deletion.

A partition may look at the labels: it describes the world that the audit takes as given, and does not belong to
learning. Its draws come from the run's key, through NumPy's Generator over Philox, and only the recorded
result counts afterwards.

"Dirichlet" names two conventions in the literature, which give different federations: mixtures of classes per
client with equal sizes (:class:`Dirichlet`), and shares of clients per class with unequal sizes
(:class:`DirichletByClass`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol
from unicodedata import normalize

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import NDArray

from fuaudit.data.dataset import Dataset
from fuaudit.declared import says
from fuaudit.draws import Keyed, Purpose
from fuaudit.draws.keyed import philox_key
from fuaudit.errors import UsageError
from fuaudit.plans import Population
from fuaudit.registry import blaming
from fuaudit.text import counted

if TYPE_CHECKING:
    from torch import Tensor

Labels = NDArray[np.int64]


class Partition(Protocol):
    """A registered partition: a frozen dataclass that deals rows to clients 0 .. clients - 1.

    It deals by the targets; with ``reads: ClassVar[str] = "owners"`` by the natural owners of the rows instead. Where
    it then deals every client the rows of one owner, clients have the numbers and the names of their owners.
    """

    def deal(self, labels: Labels, draws: Generator) -> Sequence[Sequence[int]]:
        """The rows of every client; ``labels (N,)`` are the targets. UsageError if they cannot be dealt so."""
        ...


def partition(plugin: Partition, dataset: Dataset, source: Keyed) -> Population:
    """Deal the training rows, and check that every client has one and no row has two owners.

    Random: whatever the plugin draws, under the key of the purpose ``partition``.

    Raises:
        PluginError: the plugin raised, or did not return lists of rows.
        UsageError: rows are absent or cannot be dealt so, a client without rows, a row that was dealt twice or does not
            exist, or a partition by owners of data that has none.
    """
    if dataset.absent:
        raise UsageError(
            f"{len(dataset.absent)} of {dataset.size} rows are not at hand, so they cannot be dealt to clients",
            "For a new federation number the rows from 0 without gaps, or leave ids out.",
        )
    labels = dataset.owners if by_owners(plugin) else dataset.labels
    if labels is None:
        raise UsageError("the data has no natural owners to deal it by", "Choose another partition, such as iid.")
    key = np.array(philox_key(source.secret, Purpose.PARTITION), dtype=np.uint64)
    with blaming(plugin, "deal"):
        hands = [tuple(sorted(map(int, hand))) for hand in plugin.deal(labels.numpy(), Generator(Philox(key=key)))]
    rows = [row for hand in hands for row in hand]
    if len(set(rows)) != len(rows):
        raise UsageError("the partition gave one sample to two clients")
    if rows and not 0 <= min(rows) <= max(rows) < dataset.size:
        raise UsageError(f"the partition dealt samples that do not exist: there are 0 to {dataset.size - 1}")
    empty = [client for client, hand in enumerate(hands) if not hand]
    if empty or not hands:
        raise UsageError(
            f"the partition leaves {len(empty) or 'all'} of {len(hands)} clients without samples",
            "Ask for fewer clients.",
        )
    owners = _owners_of(hands, labels) if by_owners(plugin) else None
    return Population(dict(zip(owners or range(len(hands)), hands, strict=True)))


def by_owners(plugin: Partition) -> bool:
    """Whether a partition deals by the natural owners of rows."""
    return bool(says(plugin, "reads") == "owners")


def _owners_of(hands: Sequence[Sequence[int]], owners: Tensor) -> list[int] | None:
    """The owner of every hand; None where a hand has several, or two hands one.

    Raises:
        UsageError: an owner's number is too large for a client.
    """
    found = [set(owners[list(hand)].tolist()) for hand in hands]
    numbers = [owner for group in found for owner in group]
    if any(len(group) != 1 for group in found) or len(set(numbers)) != len(numbers) or min(numbers) < 0:
        return None
    if max(numbers) >= MOST_OWNERS:
        raise UsageError(
            f"owner {max(numbers)} cannot be a client: numbers end at {MOST_OWNERS - 1}",
            "Number owners from 0, and give their names as owner_names.",
        )
    return numbers


MOST_OWNERS = 2**20
"""Owners have smaller numbers than this: there are tables over them."""


def require_clients(plugin: Partition, clients: Sequence[int]) -> None:
    """Check that a partition can deal to these clients, without dealing: a prune destroys its key.

    Ids are no secret and follow from the config: 0 to M - 1, or the numbers of owners. Of fuaudit's own partitions M
    is known too.

    Raises:
        UsageError: there are more or fewer clients than the config asks for, or they have other ids.
    """
    wanted = vars(plugin)["clients"] if type(plugin) in OWN else None  # a stranger's subclass may mean otherwise
    if wanted is not None and len(clients) != wanted:
        raise UsageError(f"the config deals rows to {counted(wanted, 'client')}, and there are {len(clients):,}")
    if tuple(clients) == tuple(range(len(clients))):
        return
    if not by_owners(plugin):
        raise UsageError(f"clients have other ids than 0 to {len(clients) - 1}, and their partition gives no others")
    if max(clients) >= MOST_OWNERS:
        raise UsageError(f"owner {max(clients)} cannot be a client: numbers end at {MOST_OWNERS - 1}")


def names_of(plugin: Partition, dataset: Dataset, population: Population) -> dict[int, str] | None:
    """Client id -> name, where clients are owners that have names; None where ids are the names.

    Raises:
        UsageError: an owner has no name, or one that cannot be typed or told from another.
    """
    names, owners = dataset.owner_names, dataset.owners
    if not names or not by_owners(plugin) or owners is None:
        return None
    hands = [population.samples[client] for client in population.clients]
    if _owners_of(hands, owners) != list(population.clients):
        return None
    if population.clients[-1] >= len(names):
        raise UsageError(f"owner {population.clients[-1]} has no name: there are {len(names)} names")
    found = {client: names[client] for client in population.clients}
    if wrong := [name for name in found.values() if not is_name(name)]:
        raise UsageError(
            f"{wrong[0]!r} cannot be the name of a client",
            f"Names are printable, have 1 to {MOST_OF_A_NAME} characters, and no space at their ends.",
        )
    if twice := [name for name, count in Counter(map(look_of, found.values())).items() if count > 1]:
        raise UsageError(f"the name {twice[0]!r} is that of several clients", "Give every owner a name of its own.")
    return found


_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""What Python calls printable and nobody sees: fillers, blanks, and what chooses among forms of a letter."""


def look_of(name: str) -> str:
    """A name as a reader sees it: two names of one look are one, however they are written."""
    return normalize("NFC", _UNSEEN.sub("", name))


MOST_OF_A_NAME = 200
"""Characters of a name, at most."""


def is_name(value: object) -> bool:
    """Whether a value can be the name of a client: printable text without space at its ends."""
    return (
        isinstance(value, str) and 0 < len(value) <= MOST_OF_A_NAME and value.isprintable() and value.strip() == value
    )


LARGEST = 1e100
"""The largest concentration: far below it all shares are even, and far above sums of weights are infinite."""


def _require_concentration(concentration: float) -> None:
    if not 0 < concentration <= LARGEST:  # false for NaN too
        raise UsageError(
            f"the concentration of a Dirichlet partition must be above 0 and at most {LARGEST:g}, not {concentration}",
            "For even shares choose iid.",
        )


def _require_clients(clients: int, rows: int) -> None:
    if not 1 <= clients <= rows:
        raise UsageError(
            f"[partition] clients = {clients}: {clients} clients cannot share {rows} samples",
            "Choose from 1 client to one a sample.",
        )


@dataclass(frozen=True)
class Iid:
    """Rows in random order, dealt out evenly.

    Attributes:
        clients: how many clients there are.
    """

    clients: int

    def deal(self, labels: Labels, draws: Generator) -> list[list[int]]:
        """See :class:`Partition`."""
        _require_clients(self.clients, len(labels))
        return [hand.tolist() for hand in np.array_split(draws.permutation(len(labels)), self.clients)]


@dataclass(frozen=True)
class OneHolder:
    """Client 0 alone holds one class ("the one clinic with this condition"); the others share the rest evenly.

    Attributes:
        clients: how many clients there are, at least 2.
        label: the class that client 0 alone holds.
    """

    clients: int
    label: int = 9

    def deal(self, labels: Labels, draws: Generator) -> list[list[int]]:
        """See :class:`Partition`."""
        held = np.flatnonzero(labels == self.label)
        rest = draws.permutation(np.flatnonzero(labels != self.label))
        if not len(held) or self.clients < 2:
            raise UsageError(f"one client shall hold class {self.label} alone: that needs such rows and 2 clients")
        if self.clients > len(rest) + 1:
            raise UsageError(
                f"of {self.clients} clients one holds class {self.label} alone, and the others cannot share "
                f"{counted(len(rest), 'sample')}",
                "Choose at most one a sample.",
            )
        return [held.tolist(), *(hand.tolist() for hand in np.array_split(rest, self.clients - 1))]


@dataclass(frozen=True)
class Dirichlet:
    """Equal numbers of rows, class mixtures drawn per client.

    Convention: every client draws class proportions from Dirichlet(concentration, ..., concentration) and
    takes its N // clients rows one by one, each from a class drawn by these proportions among the classes not
    yet used up (Hsu, Qi, Brown, arXiv 1909.06335, "LDA"). Sizes are equal; rows that do not divide stay unused.
    The other convention, a Dirichlet per class over clients, is :class:`DirichletByClass`.

    Attributes:
        clients: how many clients there are.
        concentration: of the Dirichlet law, above 0; the larger, the more alike clients are.
    """

    clients: int
    concentration: float = 0.5

    def deal(self, labels: Labels, draws: Generator) -> list[list[int]]:
        """See :class:`Partition`."""
        _require_clients(self.clients, len(labels))
        _require_concentration(self.concentration)
        classes = np.unique(labels)
        pools = [draws.permutation(np.flatnonzero(labels == label)) for label in classes]
        left, hands = np.array([len(pool) for pool in pools]), []
        for _ in range(self.clients):
            mixture = draws.dirichlet(np.full(len(classes), self.concentration)) + 1e-12  # never all zero
            taken, rows = _classes(mixture, left, draws.random(len(labels) // self.clients))
            hands.append([int(pools[label][row]) for label, row in zip(taken.tolist(), rows.tolist(), strict=True)])
            left = left - np.bincount(taken, minlength=len(classes))
        return hands


CELLS = 1_000_000
"""Numbers of a table over rows and classes that are computed at once."""


def _classes(mixture: NDArray[np.float64], left: Labels, numbers: NDArray[np.float64]) -> tuple[Labels, Labels]:
    """Classes by their places, one for each number in [0, 1), and the rows that are taken of them: ``(n,)`` each.

    A class is drawn by a mixture ``(C,)`` of those not yet used up; ``left (C,)`` says how many rows each has, and the
    last of these is taken. As long as no class is used up all are drawn alike, at once.
    """
    found: list[Labels] = []
    rows: list[Labels] = []
    size = max(1, CELLS // len(mixture))
    while len(numbers):
        shares = mixture * (left > 0)
        places = np.searchsorted(np.cumsum(shares), numbers[:size] * shares.sum(), side="right")
        places = np.minimum(places, np.flatnonzero(shares)[-1])  # the sum and the last edge may be rounded apart
        so_far = (places[:, None] == np.arange(len(mixture))).cumsum(axis=0)
        used_up = ((so_far >= left) & (left > 0)).any(axis=1)
        count = int(used_up.argmax()) + 1 if used_up.any() else len(places)
        found.append(places[:count])
        rows.append((left - so_far)[np.arange(count), places[:count]])
        left, numbers = left - so_far[count - 1], numbers[count:]
    return np.concatenate(found).astype(np.int64), np.concatenate(rows)


ATTEMPTS = 1000
"""How often shares are drawn, at most, until everybody gets enough. Then an error, never an endless loop."""


def _shares(
    labels: Labels, weights: NDArray[np.float64], least: NDArray[np.int64], draws: Generator
) -> list[list[int]]:
    """Rows for every part: per class, shares of the parts from Dirichlet(weights), rows in random order.

    Shares of all classes are drawn anew, up to ``ATTEMPTS`` times, until part p has at least ``least[p]`` rows.
    """
    pools = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    counts = np.array([len(pool) for pool in pools])
    for _ in range(ATTEMPTS):
        shares = draws.dirichlet(weights, len(pools))
        cuts = np.minimum(np.cumsum(shares, axis=1)[:, :-1], 1) * counts[:, None]
        edges = np.column_stack([np.zeros_like(counts), cuts.astype(np.int64), counts])
        if (np.diff(edges, axis=1).sum(axis=0) >= least).all():
            dealt = [np.split(draws.permutation(pool), edge[1:-1]) for pool, edge in zip(pools, edges, strict=True)]
            return [np.concatenate(hand).tolist() for hand in zip(*dealt, strict=True)]
    raise UsageError(
        f"in {ATTEMPTS} draws the classes never gave everybody enough samples",
        "Ask for a higher concentration, fewer clients, or a lower minimum.",
    )


@dataclass(frozen=True)
class DirichletByClass:
    """Every class spread over clients by shares of its own; sizes are unequal.

    Convention: every class draws shares of the clients from Dirichlet(concentration, ..., concentration) and its
    rows are cut by them (Yurochkin et al., ICML 2019; Li et al., arXiv 2102.02079). All shares are drawn anew until
    every client has ``minimum`` rows, up to 1,000 times: the law is conditioned on that. All rows are used.

    Attributes:
        clients: how many clients there are.
        concentration: of the Dirichlet law, above 0; the larger, the more alike clients are.
        minimum: the fewest rows of a client.
    """

    clients: int
    concentration: float = 0.5
    minimum: int = 1

    def deal(self, labels: Labels, draws: Generator) -> list[list[int]]:
        """See :class:`Partition`."""
        _require_clients(self.clients, len(labels) // max(self.minimum, 1))
        _require_concentration(self.concentration)
        if self.minimum < 1:
            raise UsageError("the minimum of samples a client must be at least 1")
        weights = np.full(self.clients, self.concentration)
        return _shares(labels, weights, np.full(self.clients, self.minimum), draws)


@dataclass(frozen=True)
class TwoLevel:
    """Classes differ between groups of clients, and are alike inside each: a stranger group, or several.

    ``groups`` lists clients; those in none form one more group. Every class draws shares of the groups from a
    Dirichlet of mean (clients in the group / clients) and total weight ``concentration`` times the number of
    groups; inside a group its rows are dealt evenly at random. A high concentration tends to ``iid``. For the
    heterogeneity between remaining and erased clients of the stability-fairness paper, section 7; its text does
    not print the means, which are our choice.

    Attributes:
        clients: how many clients there are.
        groups: the clients of each group, ascending, and groups by their first clients; those in none form one more.
        concentration: of the Dirichlet law, above 0; the larger, the more alike groups are.
    """

    clients: int
    groups: tuple[tuple[int, ...], ...]
    concentration: float = 0.5

    def __post_init__(self) -> None:
        # not only where rows are dealt: nothing deals a pruned run again, and its config is opened
        named = [client for group in self.groups for client in group]
        if len(set(named)) != len(named) or not set(named) <= set(range(self.clients)) or not all(self.groups):
            raise UsageError(f"groups must be lists of clients 0 to {self.clients - 1}, each in one group at most")
        if self.groups != tuple(sorted(tuple(sorted(group)) for group in self.groups)):
            raise UsageError("groups must name clients in ascending order, and go by their first clients")

    def deal(self, labels: Labels, draws: Generator) -> list[list[int]]:
        """See :class:`Partition`."""
        _require_clients(self.clients, len(labels))
        named = [client for group in self.groups for client in group]
        _require_concentration(self.concentration)
        others = tuple(sorted(set(range(self.clients)) - set(named)))
        groups = [*self.groups, *([others] if others else [])]
        sizes = np.array([len(group) for group in groups])
        weights = self.concentration * len(groups) * sizes / self.clients
        hands: list[list[int]] = [[] for _ in range(self.clients)]
        for group, rows in zip(groups, _shares(labels, weights, sizes, draws), strict=True):
            for client, hand in zip(group, np.array_split(draws.permutation(rows), len(group)), strict=True):
                hands[client] = hand.tolist()
        return hands


@dataclass(frozen=True)
class Shards:
    """Rows sorted by class and cut into shards of one size, ``shards`` of them for every client.

    As McMahan et al. (AISTATS 2017) have it, a shard may hold the end of one class and the beginning of the next.
    With ``pure`` it holds one class (the MimiC paper, section 7.1): shards are then as large as possible such that
    the classes hold clients x shards of them. Shards are drawn regardless of their class: of clients with two pure
    shards some hold one class only (at the paper's 30 clients and ten classes 30 x 5 / 59, between 2 and 3, on
    average); :class:`KClasses` gives everybody two. Rows that do not fill a shard, and shards beyond clients x shards
    of them, stay unused: 601 clients with one shard each use 601 of 1,200 rows.

    Attributes:
        clients: how many clients there are.
        shards: how many shards a client gets.
        pure: whether a shard holds one class only.
    """

    clients: int
    shards: int = 2
    pure: bool = False

    def deal(self, labels: Labels, draws: Generator) -> list[list[int]]:
        """See :class:`Partition`."""
        count = self.clients * self.shards
        if self.clients < 1 or self.shards < 1 or count > len(labels):
            raise UsageError(f"{self.clients} clients cannot have {self.shards} shards each of {len(labels)} samples")
        pools = [draws.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
        size = len(labels) // count
        if self.pure:
            counts = np.array([len(pool) for pool in pools])
            size = next(s for s in range(size, 0, -1) if (counts // s).sum() >= count)
        else:
            pools = [np.concatenate(pools)]
        cut = [pool[at : at + size] for pool in pools for at in range(0, len(pool) - size + 1, size)]
        order = draws.permutation(len(cut))[:count].reshape(self.clients, self.shards)
        return [np.concatenate([cut[shard] for shard in hand]).tolist() for hand in order]


@dataclass(frozen=True)
class KClasses:
    """Every client holds ``each`` classes; the rows of a class are shared evenly among its holders.

    Client i holds class i modulo the number of classes, in a random order of classes, and others drawn at random
    without repetition (Li et al., arXiv 2102.02079). Rows of a class that nobody holds stay unused. A class with fewer
    rows than holders is refused, for then some would hold fewer classes.

    Attributes:
        clients: how many clients there are.
        each: how many classes a client holds.
    """

    clients: int
    each: int = 2

    def deal(self, labels: Labels, draws: Generator) -> list[list[int]]:
        """See :class:`Partition`."""
        _require_clients(self.clients, len(labels))
        order = draws.permutation(np.unique(labels))
        if not 1 <= self.each <= len(order):
            raise UsageError(f"a client can hold 1 to {len(order)} classes, not {self.each}")
        held = [
            {int(own), *draws.choice(order[order != own], self.each - 1, replace=False).tolist()}
            for own in np.resize(order, self.clients)
        ]
        hands: list[list[int]] = [[] for _ in held]
        for label in order.tolist():
            holders = [client for client, classes in enumerate(held) if label in classes]
            rows = draws.permutation(np.flatnonzero(labels == label))
            if len(rows) < len(holders):
                raise UsageError(
                    f"class {label} has {len(rows)} samples for the {len(holders)} clients that would hold it",
                    "Ask for fewer clients or fewer classes each.",
                )
            for client, part in zip(holders, np.array_split(rows, max(len(holders), 1)), strict=False):
                hands[client] += part.tolist()
        return hands


@dataclass(frozen=True)
class ByOwner:
    """Every client is one natural owner of rows: a writer, a role. Nothing is drawn unless ``clients`` is given.

    Owners with fewer than ``minimum`` rows are left out; ``clients`` draws so many of the others at random. Clients
    keep the numbers of their owners, also where some are left out, and their names.

    Attributes:
        clients: how many owners are drawn at random; left out, all are clients.
        minimum: the fewest rows of a client; owners with fewer are left out.
    """

    clients: int | None = None
    minimum: int = 1
    reads: ClassVar[str] = "owners"

    def deal(self, labels: Labels, draws: Generator) -> list[list[int]]:
        """See :class:`Partition`; ``labels (N,)`` are owners, -1 for none."""
        owners, counts = np.unique(labels[labels >= 0], return_counts=True)
        eligible = owners[counts >= self.minimum]
        wanted = len(eligible) if self.clients is None else self.clients
        if not 1 <= wanted <= len(eligible):
            raise UsageError(
                f"{len(eligible)} of {len(owners)} owners have {self.minimum} samples; {wanted} clients were asked for",
                "Ask for fewer clients or a lower minimum.",
            )
        chosen = eligible if self.clients is None else np.sort(draws.choice(eligible, wanted, replace=False))
        grouped = np.argsort(labels, kind="stable")
        first, last = (np.searchsorted(labels[grouped], chosen, side=side) for side in ("left", "right"))
        return [grouped[a:b].tolist() for a, b in zip(first, last, strict=True)]


OWN = (ByOwner, Dirichlet, DirichletByClass, Iid, KClasses, OneHolder, Shards, TwoLevel)
"""Fuaudit's own: ``clients`` is how many clients they deal rows to, where it is given."""
