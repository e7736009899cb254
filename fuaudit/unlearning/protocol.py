"""What an unlearner declares, and what it gets in return: that and nothing else.

A *rewriter* maps the old plan and a request to a new plan; the model follows by execution. An *editor* changes
a model directly and carries no proof. Both are frozen dataclasses whose fields are their options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from fuaudit.declared import must_say, offers, says
from fuaudit.draws import START, Draws, Position
from fuaudit.errors import PluginError, nearest
from fuaudit.plans import Law, Plan, Population, Request

if TYPE_CHECKING:
    from torch import Tensor

NEEDS = ("model", "plan", "round models", "server data")
"""What an unlearner may need from a run.

``server data`` is the test set, which the server holds, and on which figures are measured too.
"""

PARTICIPANTS = ("server", "retained clients", "target")
"""Who may have to take part in unlearning."""


KINDS = ("client", "sample", "mixed")
"""Kinds of request (:attr:`fuaudit.plans.Request.kind`): whole clients, single samples, both at once."""

EVERY_LAW = "every law"
"""In ``exact_for``, in the place of a law: exact whatever the law of draws."""


def exact_under(*laws: str, kinds: Sequence[str] = KINDS) -> frozenset[tuple[str, str]]:
    """For ``exact_for``: each of some laws (``Law.name``, or :data:`EVERY_LAW`) with each kind of request."""
    return frozenset(product(laws, kinds))


class Unlearner(Protocol):
    """What every unlearner declares, as class variables.

    Attributes:
        needs: from :data:`NEEDS`; touching anything else raises.
        participants: from :data:`PARTICIPANTS`; asking anybody else raises.
        guarantee: one line: what the method claims, and where it is proved.
        cite: the paper.

    An unlearner may also declare ``assumes``, the conditions of its guarantee as a tuple of texts. Those that
    :data:`fuaudit.audits.assumptions.CHECKS` knows are checked on every run. What else it may declare is in
    :data:`fuaudit.declared.WORDS`; faults are in :mod:`fuaudit.unlearning.faults`.
    """

    needs: ClassVar[frozenset[str]]
    participants: ClassVar[frozenset[str]]
    guarantee: ClassVar[str]
    cite: ClassVar[str]


class Rewriter(Unlearner, Protocol):
    """An unlearner that rewrites plans.

    ``exact_for`` holds the pairs (law, kind of request) for which it claims exactness; see :func:`exact_under`. Its
    plan is veiled: see :mod:`fuaudit.plans.veil`.
    """

    exact_for: ClassVar[frozenset[tuple[str, str]]]

    def rewrite(self, plan: Plan, request: Request, fresh: Draws, not_before: Position) -> Plan:
        """The plan over the retained data.

        Args:
            plan: the plan that was executed; look at draws of cohorts and batches through it.
            fresh: draws under a new key, for everything that must be drawn anew.
            not_before: the first position not yet executed when the request came, ``END`` when training was over.
        """
        ...


class Editor(Unlearner, Protocol):
    """An unlearner that changes models directly."""

    def edit(self, context: Context) -> Tensor:
        """The new model ``(d,)``."""
        ...


def is_editor(unlearner: object) -> bool:
    """Whether this is an editor; PluginError when it is neither or both, or declares what it may not need."""
    name = type(unlearner).__name__
    kinds = [offers(unlearner, "rewrite"), offers(unlearner, "edit")]
    if sum(kinds) != 1:
        raise PluginError(f"{name} must have exactly one of rewrite(...) and edit(...)")
    for words, known in (("needs", NEEDS), ("participants", PARTICIPANTS)):
        declared = must_say(unlearner, words)
        if not isinstance(declared, frozenset):
            raise PluginError(f"{name} must declare {words} as a frozenset", f"Choose from: {', '.join(known)}.")
        for word in sorted(declared - set(known), key=str):
            raise PluginError(f"{name} declares unknown {words}: {word!r}", nearest(str(word), known))
    for text in ("guarantee", "cite"):
        if not isinstance(must_say(unlearner, text), str):
            raise PluginError(f"{name} must declare {text} as text")
    claims: object = says(unlearner, "exact_for")
    if kinds[0] and not _are_claims(claims):
        if strange := _no_kinds(claims):
            raise PluginError(f"{name} claims to be exact for {strange[0]!r}", nearest(str(strange[0]), KINDS))
        raise PluginError(
            f"{name} must declare exact_for, the pairs of a law and a kind of request that it is exact for",
            'Write exact_under("uniform with replacement"), of fuaudit.plugins; with kinds=("client",) for clients '
            "only, and frozenset() where it claims nothing.",
        )
    return kinds[1]


def _no_kinds(found: object) -> list[object]:
    """What stands in the place of kinds of requests and is none."""
    pairs = (
        [pair for pair in found if isinstance(pair, tuple) and len(pair) == 2] if isinstance(found, frozenset) else []
    )
    return sorted((kind for _, kind in pairs if kind not in KINDS), key=str)


def _are_claims(found: object) -> bool:
    return isinstance(found, frozenset) and all(
        isinstance(claim, tuple) and len(claim) == 2 and isinstance(claim[0], str) and claim[1] in KINDS
        for claim in found
    )


def is_mutant(unlearner: object) -> bool:
    """Whether an unlearner, or its class, says that it is wrong on purpose."""
    return says(unlearner, "mutant") is True


def claims_exactness(unlearner: Any, law: str, kind: str) -> bool:
    """Whether a rewriter claims to be exact for a law, by its name, and a kind of request; an editor never does."""
    return not is_editor(unlearner) and bool({(law, kind), (EVERY_LAW, kind)} & unlearner.exact_for)


def claimed_laws(unlearner: Any, kind: str) -> tuple[str, ...]:
    """The laws for which a rewriter claims exactness for a kind of request, sorted."""
    return tuple(sorted(law for law, claimed in unlearner.exact_for if claimed == kind))


def doubt_of_law(unlearner: object, name: str, law: str, kind: str) -> list[str]:
    """Why a rewriter that is exact for some laws and requests is not known to be so here: one sentence, or none."""
    if claims_exactness(unlearner, law, kind):
        return []
    return [
        f"{name!r} does not claim to be exact for {kind} requests under draws of the law {law!r}: what it keeps may "
        "have another law than after retraining"
    ]


def doubt_of_rounds(name: str, law: Law, depended_on: str, request: Request, change: Position) -> list[str]:
    """Why keeping rounds of a run is not exact for a request: one sentence, or none.

    The answer is the law's and the request's, not that of the draws: whoever takes another method because of what
    was drawn changes the law of the result. Two things are free of doubt: a rewriter that starts over, and one that
    goes back to the first round where the law says that everybody requested is in it.

    Args:
        name: what the rewriter is called.
        law: of the run's draws.
        depended_on: what rounds of the run depend on that the request changes, besides batches
            (:func:`fuaudit.training.setup.depended_on`).
        request: to be carried out.
        change: the first position that the rewriter changed; see :meth:`fuaudit.plans.Plan.redrawn_from`.
    """
    sure = request.kinds & says(law, "first_round_involves") and change.round <= 1
    if change == START or sure or not depended_on:
        return []
    return [
        f"rounds of this run depend on {depended_on}, not on the batches alone that were drawn (by its "
        f"solver, server or scaling): {name!r}, which keeps rounds, is not exact for such a request"
    ]


def doubts_of_law(unlearner: Any, name: str, law: str, kind: str) -> list[str]:
    """As :func:`doubt_of_law`; of a rewriter that claims nothing in words of its own."""
    return (
        doubt_of_law(unlearner, name, law, kind) if unlearner.exact_for else [f"{name!r} claims to be exact for no law"]
    )


def doubts_of(
    unlearner: object,
    name: str,
    law: Law,
    request: Request,
    depended_on: str,
    change: Position,
    inherited: Sequence[str],
) -> tuple[str, ...]:
    """All that a run which an unlearner made records as doubts.

    An editor, which promises nothing, adds none; it works on its parent's model, so those of the parent stand.

    Args:
        depended_on, change: see :func:`doubt_of_rounds`.
        inherited: the doubts of the parent, which stand where anything of it is kept.
    """
    if is_editor(unlearner):
        return tuple(inherited)
    of_law = doubts_of_law(unlearner, name, law.name, request.kind)
    of_rounds = doubt_of_rounds(name, law, depended_on, request, change)
    return tuple(dict.fromkeys((*of_law, *of_rounds, *(inherited if change != START else ()))))


@dataclass(frozen=True)
class Message:
    """One message of an unlearning protocol: who sent it to whom, and how many bytes it had."""

    sender: str
    receiver: str
    size: int


WHAT = {
    "model": "the model",
    "plan": "the plan",
    "round models": "the models of earlier rounds",
    "server data": "the server's data",
    "retained clients": "the retained clients",
    "target": "the target",
}
"""Words that an editor declares, and what each opens."""


class Context:
    """What an editor may touch: exactly what it declared.

    ``request`` and ``retained`` (who is left, with their sample ids) are always there. All else is looked up in a table
    that has an entry for each declared word and no other. Messages are counted by those who send them, not here.
    """

    def __init__(
        self, request: Request, retained: Population, owner: str, providers: Mapping[str, Callable[..., Any]]
    ) -> None:
        """``providers``: declared word -> what gives it."""
        self.request = request
        self.retained = retained
        self._owner = owner
        self._providers = providers

    def _given(self, word: str) -> Callable[..., Any]:
        if word not in self._providers:
            declared = sorted(self._providers)
            raise PluginError(
                f"{self._owner} touched {WHAT[word]} without declaring {word!r}", f"It declares {declared}."
            )
        return self._providers[word]

    @property
    def model(self) -> Tensor:
        """The final model ``(d,)``, a copy. Needs ``model``."""
        model: Tensor = self._given("model")()
        return model

    @property
    def plan(self) -> Plan:
        """The plan of the run. Needs ``plan``."""
        plan: Plan = self._given("plan")()
        return plan

    @property
    def round_models(self) -> Mapping[int, Tensor]:
        """Stored models by round, copies. Needs ``round models``."""
        models: Mapping[int, Tensor] = self._given("round models")()
        return models

    @property
    def server_data(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets that the server holds, copies. Needs ``server data``.

        They are the test set. Accuracy, test loss and what attacks compare with are measured on the same rows, so
        figures of a method that fits them say nothing of rows it has not seen; findings say so.
        """
        data: tuple[Tensor, Tensor] = self._given("server data")()
        return data

    def train(self, model: Tensor, rounds: int) -> Tensor:
        """The model after further rounds of the run's own learning on the retained clients, drawn afresh."""
        trained: Tensor = self._given("retained clients")(model, rounds)
        return trained

    def target_gradient(self, model: Tensor) -> Tensor:
        """The gradient ``(d,)`` of the mean loss on the erased data at a model, computed by the target."""
        gradient: Tensor = self._given("target")(model)
        return gradient
