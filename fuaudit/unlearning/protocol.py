"""What an unlearner declares, and what it gets in return: that and nothing else.

A *rewriter* maps the old plan and a request to a new plan; the model follows by execution. An *editor* changes
a model directly and carries no proof. Both are frozen dataclasses whose fields are their options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from torch import Tensor

from fuaudit.draws import START, Draws, Position
from fuaudit.errors import PluginError, nearest
from fuaudit.plans import Law, Plan, Population, Request

NEEDS = ("model", "plan", "round models", "server data")
"""What an unlearner may need from a run. ``server data`` is the test data, which the server holds."""

PARTICIPANTS = ("server", "retained clients", "target")
"""Who may have to take part in unlearning."""


EVERY_LAW = "every law"
"""In ``exact_for``: exact whatever the law of draws."""


class Unlearner(Protocol):
    """What every unlearner declares, as class variables.

    Attributes:
        needs: from :data:`NEEDS`; touching anything else raises.
        participants: from :data:`PARTICIPANTS`; asking anybody else raises.
        guarantee: one line: what the method claims, and where it is proved.
        cite: the paper.

    An unlearner may also declare ``assumes``, the conditions of its guarantee as a tuple of texts. Those that
    :data:`fuaudit.verification.assumptions.CHECKS` knows are checked on every run.
    """

    needs: ClassVar[frozenset[str]]
    participants: ClassVar[frozenset[str]]
    guarantee: ClassVar[str]
    cite: ClassVar[str]


class Rewriter(Unlearner, Protocol):
    """An unlearner that rewrites plans. ``exact_for`` names the laws (``Law.name``) for which it claims exactness."""

    exact_for: ClassVar[frozenset[str]]

    def rewrite(self, plan: Plan, request: Request, fresh: Draws, executed: Position) -> Plan:
        """The plan over the retained data.

        Args:
            plan: the plan that was executed; look at draws through it.
            fresh: draws under a new key, for everything that must be drawn anew.
            executed: the first position not yet executed when the request came, ``END`` when training was over.
        """
        ...


class Editor(Unlearner, Protocol):
    """An unlearner that changes models directly."""

    def edit(self, context: Context) -> Tensor:
        """The new model ``(d,)``."""
        ...


def is_editor(unlearner: Any) -> bool:
    """Whether this is an editor; PluginError when it is neither or both, or declares unknown words."""
    name = type(unlearner).__name__
    kinds = [hasattr(unlearner, "rewrite"), hasattr(unlearner, "edit")]
    if sum(kinds) != 1:
        raise PluginError(f"{name} must have exactly one of rewrite(...) and edit(...)")
    for words, known in (("needs", NEEDS), ("participants", PARTICIPANTS)):
        declared = getattr(unlearner, words, None)
        if not isinstance(declared, frozenset):
            raise PluginError(f"{name} must declare {words} as a frozenset", f"Choose from: {', '.join(known)}.")
        for word in declared - set(known):
            raise PluginError(f"{name} declares unknown {words}: {word!r}", nearest(str(word), known))
    for text in ("guarantee", "cite"):
        if not isinstance(getattr(unlearner, text, None), str):
            raise PluginError(f"{name} must declare {text} as text")
    if kinds[0] and not isinstance(getattr(unlearner, "exact_for", None), frozenset):
        raise PluginError(f"{name} must declare exact_for, the names of the laws that it is exact for")
    return kinds[1]


def claims_exactness(unlearner: Any, law: str) -> bool:
    """Whether a rewriter claims to be exact for a law, by the law's name; an editor never does."""
    return not is_editor(unlearner) and bool({law, EVERY_LAW} & unlearner.exact_for)


def doubt_of_law(unlearner: Any, name: str, law: str) -> list[str]:
    """Why a rewriter that is exact for some laws is not known to be exact for another one: one sentence, or none."""
    if claims_exactness(unlearner, law):
        return []
    return [
        f"{name!r} does not claim to be exact for draws of the law {law!r}: what it keeps may have another law than "
        "after retraining"
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
        change: the first position that the rewriter changed.
    """
    sure = request.kinds & getattr(law, "first_round_involves", frozenset()) and change.round <= 1
    if change == START or sure or not depended_on:
        return []
    return [
        f"rounds of this run depend on {depended_on}, not on the batches alone that were drawn (by its "
        f"solver, server or scaling): {name!r}, which keeps rounds, is not exact for such a request"
    ]


@dataclass(frozen=True)
class Message:
    """One message of an unlearning protocol: who sent it to whom, and how many bytes it had."""

    sender: str
    receiver: str
    size: int


@dataclass
class Context:
    """What an editor may touch: exactly what it declared. Every message is counted.

    ``request`` and ``retained`` (who is left, with their sample ids) are always there.
    """

    request: Request
    retained: Population
    owner: str
    needs: frozenset[str]
    participants: frozenset[str]
    messages: list[Message] = field(default_factory=list)
    _model: Tensor | None = None
    _plan: Plan | None = None
    _round_models: Mapping[int, Tensor] = field(default_factory=dict)
    _server_data: tuple[Tensor, Tensor] | None = None
    _train: Callable[[Tensor, int], tuple[Tensor, list[Message]]] | None = None
    _target_gradient: Callable[[Tensor], tuple[Tensor, list[Message]]] | None = None

    def _require(self, declared: frozenset[str], word: str, what: str) -> None:
        if word not in declared:
            raise PluginError(
                f"{self.owner} touched {what} without declaring {word!r}", f"It declares {sorted(declared)}."
            )

    @property
    def model(self) -> Tensor:
        """The final model ``(d,)``, a copy. Needs ``model``."""
        self._require(self.needs, "model", "the model")
        assert self._model is not None
        return self._model.clone()

    @property
    def plan(self) -> Plan:
        """The plan of the run. Needs ``plan``."""
        self._require(self.needs, "plan", "the plan")
        assert self._plan is not None
        return self._plan

    @property
    def round_models(self) -> Mapping[int, Tensor]:
        """Stored models by round, copies. Needs ``round models``."""
        self._require(self.needs, "round models", "the models of earlier rounds")
        return {round: model.clone() for round, model in self._round_models.items()}

    @property
    def server_data(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets that the server holds, copies. Needs ``server data``."""
        self._require(self.needs, "server data", "the server's data")
        assert self._server_data is not None
        inputs, targets = self._server_data
        return inputs.clone(), targets.clone()

    def train(self, model: Tensor, rounds: int) -> Tensor:
        """The model after further rounds of the run's own learning on the retained clients, drawn afresh."""
        self._require(self.participants, "retained clients", "the retained clients")
        assert self._train is not None
        trained, sent = self._train(model, rounds)
        self.messages += sent
        return trained

    def target_gradient(self, model: Tensor) -> Tensor:
        """The gradient ``(d,)`` of the mean loss on the erased data at a model, computed by the target."""
        self._require(self.participants, "target", "the target")
        assert self._target_gradient is not None
        gradient, sent = self._target_gradient(model)
        self.messages += sent
        return gradient
