"""Prove: compare the law of an unlearner with that of retraining, exactly, on small federations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fuaudit.errors import BudgetError, PluginError, UsageError
from fuaudit.plans import Request, UniformLaw
from fuaudit.progress import Progress, silent
from fuaudit.proofs.exactness import DEFAULT_LEAVES, Exactness, exactness
from fuaudit.proofs.sweep import Sweep, sweep
from fuaudit.proofs.toys import AllToys, Shape, federation, stream_of
from fuaudit.registry import build
from fuaudit.unlearning.protocol import EVERY_LAW, KINDS, claims_exactness, is_editor

BY_DEFAULT = KINDS[:2]
"""Those that are asked where none is named."""


def _left_out(kinds: Sequence[str]) -> list[str]:
    """What was not asked though no kind was named: a reader could take it for proved."""
    return [kind for kind in KINDS if kind not in kinds] if tuple(kinds) == BY_DEFAULT else []


def _law_of(replacement: bool) -> str:
    """The name of the law that is asked."""
    return UniformLaw(1, 1, 1, 1, replacement).name


ASKED = tuple(map(_law_of, (True, False)))
"""The laws that a proof can be asked for."""


@dataclass(frozen=True)
class Proof:
    """What came out for one kind of request on one federation; ``claimed``: whether the unlearner claims exactness."""

    kind: str
    requests: tuple[Request, ...]
    claimed: bool
    result: Exactness

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        document: dict[str, Any] = {
            "request": self.kind,
            "requests": list(map(str, self.requests)),
            "total_variation": str(self.result.total_variation),
            "histories": self.result.histories,
            "claimed": self.claimed,
        }
        if w := self.result.witness:
            chances = {"unlearned": str(w.unlearned), "retrained": str(w.retrained)}
            document["witness"] = {"history": w.history, "initial": w.initial, **chances}
        return document


@dataclass(frozen=True)
class Proofs:
    """Proofs on one federation, one a kind of request, under one law; the unlearner claims exactness ``elsewhere``."""

    unlearner: str
    law: str
    proofs: tuple[Proof, ...]
    elsewhere: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether the laws do not differ for any of the kinds."""
        return all(proof.result.total_variation == 0 for proof in self.proofs)

    @property
    def not_asked(self) -> list[str]:
        """Kinds of request that were not asked, where none was named."""
        return _left_out([proof.kind for proof in self.proofs])

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "unlearner": self.unlearner,
            "exact": self.exact,
            "not_asked": self.not_asked,
            "elsewhere": list(self.elsewhere),
            "proofs": [proof.as_json() for proof in self.proofs],
        }


@dataclass(frozen=True)
class Swept:
    """Proofs on all federations up to a bound, as far as a budget of leaves reached; see :class:`Proofs`."""

    unlearner: str
    kinds: tuple[str, ...]
    budget: int
    found: Sweep
    elsewhere: tuple[str, ...] = ()

    @property
    def exact(self) -> bool | None:
        """Whether the laws do not differ on any.

        None where every federation was too large for the budget, or one was by what the unlearner draws without need:
        such draws could hide where it is wrong.
        """
        if self.found.refuted:
            return False
        return True if self.found.proved and not self.found.costly else None

    @property
    def not_asked(self) -> list[str]:
        """Kinds of request that were not asked, where none was named."""
        return _left_out(self.kinds)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        found = self.found
        document: dict[str, Any] = {
            "unlearner": self.unlearner,
            "requests": list(self.kinds),
            "not_asked": self.not_asked,
            "elsewhere": list(self.elsewhere),
            "proved": len(found.proved),
            "refuted": len(found.refuted),
            "too_large": found.too_large,
            "costly": found.costly,
            "leaves": found.leaves,
            "budget": self.budget,
        }
        if found.smallest:
            toy, result = found.smallest
            document |= {"smallest": str(toy), "total_variation": str(result.total_variation)}
        return document


SIZES: Mapping[str, int | None] = {
    **dict.fromkeys(("clients", "samples")),
    **dict.fromkeys(("rounds", "cohort", "steps", "batch", "requests"), 1),
}
"""What says which federation is meant, with what is taken where it is not said."""


def prove(
    unlearner: str | Mapping[str, object],
    request: str | None = None,
    up_to: int | None = None,
    replacement: bool = True,
    leaves: int = DEFAULT_LEAVES,
    progress: Progress = silent,
    **sizes: int | None,
) -> Proofs | Swept:
    """Compare the law of an unlearner with retraining, exactly: on one small federation, or on all up to a bound.

    That they do not differ says nothing of federations that were not looked at.

    Args:
        unlearner: a rewriter by its name, or its table (``use`` and options).
        request: "client", "sample" or "mixed"; by default client and sample, both.
        up_to: sweep all federations up to this bound, from 2 to 5.
        replacement: whether cohorts are drawn with replacement (FATS), or of distinct clients (FedAvg).
        leaves: the budget, of each proof or of the sweep.
        sizes: of the one federation, see :data:`SIZES`: ``clients`` (by default one more than the requests erase),
            ``samples`` of every client (one more than requests), ``rounds``, ``cohort``, ``steps``, ``batch``, and how
            many ``requests`` come one after another.

    Raises:
        UsageError: an editor, an unknown name or size, or sizes beside ``up_to``.
        BudgetError: one proof needs more leaves, or a federation has more samples than that.
        PluginError: the unlearner failed.
    """
    built = build("unlearners", unlearner)
    name = unlearner if isinstance(unlearner, str) else str(unlearner["use"])
    if is_editor(built):
        raise UsageError(f"{name!r} edits models: it has no plan whose law could be enumerated")
    if unknown := sorted(sizes.keys() - SIZES.keys()):
        raise UsageError(f"prove() takes no {', '.join(unknown)}", f"Sizes are {', '.join(SIZES)}.")
    asked = {word: value for word, value in sizes.items() if value is not None}
    kinds = (request,) if request else BY_DEFAULT
    if up_to is not None and asked:
        raise UsageError(f"up_to sweeps all federations up to a bound, and {', '.join(asked)} would say which one")
    elsewhere = _elsewhere(built, _law_of(replacement))
    with _named(name, elsewhere):
        if up_to is None:
            return _proofs(built, name, kinds, replacement, leaves, {**SIZES, **asked})
        found = sweep(built, AllToys(up_to, replacement, kinds), leaves, progress)
        return Swept(name, kinds, leaves, found, elsewhere)


def _elsewhere(unlearner: Any, asked: str) -> tuple[str, ...]:
    """The laws for which a rewriter claims exactness, where the one that is asked is not among them."""
    laws = {law for law, _ in unlearner.exact_for}
    return () if laws & {asked, EVERY_LAW} else tuple(sorted(laws))


class ElsewhereError(UsageError):
    """Nothing was proved of a method that claims exactness for other laws than the one that was asked."""

    def __init__(self, error: UsageError, unlearner: str, elsewhere: tuple[str, ...]) -> None:
        super().__init__(str(error.args[0]), error.hint)
        self.unlearner = unlearner
        self.elsewhere = elsewhere


@contextmanager
def _named(name: str, elsewhere: tuple[str, ...]) -> Iterator[None]:
    """Say whose fault the error of a plugin is, and for which laws one claims exactness that refuses the one asked."""
    try:
        yield
    except UsageError as error:
        if not elsewhere:
            raise
        raise ElsewhereError(error, name, elsewhere) from error
    except PluginError as error:
        raise type(error)(f"unlearner {name!r}: {error.args[0]}", error.hint) from error


def _proofs(
    unlearner: Any, name: str, kinds: Sequence[str], replacement: bool, leaves: int, sizes: Mapping[str, Any]
) -> Proofs:
    law = UniformLaw(sizes["rounds"], sizes["cohort"], sizes["steps"], sizes["batch"], replacement)
    count, proofs = sizes["requests"], []
    for kind in kinds:
        clients = sizes["clients"] or 2 + (kind != "sample") * count
        samples = sizes["samples"] or 1 + count
        if max(count, clients * samples) > leaves:
            raise BudgetError(
                f"the federation has more samples than the budget has leaves, {leaves:,}",
                "Choose a smaller federation, or raise the budget of leaves.",
            )
        population = federation((samples,) * clients)
        asked = stream_of([Shape.of_kind(kind)] * count, population)
        result = exactness(unlearner, law, population, asked, leaves=leaves)
        proofs.append(Proof(kind, tuple(asked), claims_exactness(unlearner, law.name, kind), result))
    return Proofs(name, law.name, tuple(proofs), _elsewhere(unlearner, law.name))
