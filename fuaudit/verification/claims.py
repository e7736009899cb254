"""Claims as data: what a spec may ask for, which kinds of evidence that needs, and what a PASS then says.

A claim is shown by *required* checks alone, and by all of the kinds it needs. A new one is a line in :data:`CLAIMS`.
"""

from __future__ import annotations

from dataclasses import dataclass

EVIDENCE = {
    "files": "the files of the run are complete and unaltered, and belong together",
    "execution": "the model is what its plan makes of the retained data",
    "provenance": "keys, plan and request are those of the named method, from what was committed to",
    "law": "plans of the method have the law of retraining",
    "reference": "at full size, plans of the method and of the run itself were compared with those of a proved method",
    "regeneration": "every file of models or figures follows from the retained data alone",
    "sampling": "repeated unlearning was compared with repeated retraining, beside controls",
    "attack": "attacks were run, and worked where they must",
    "budget": "what was spent of a privacy budget was counted",
    "transcript": "the messages are those of the protocol",
}
"""The kinds of evidence that an audit can give, and what each shows. No audit may name another."""


@dataclass(frozen=True)
class Claim:
    """What a spec may ask for.

    Attributes:
        asks: its word in specs.
        name: its name in sentences.
        needs: the kinds of evidence that required checks must give together.
        editors: whether a method that edits models can show it; the spec to use instead where it cannot.
        shows: what a PASS is evidence for; ``{request}`` stands for what was to be forgotten.
        question: what the checks ask, for people who do not know the words.
    """

    asks: str
    name: str
    needs: frozenset[str]
    editors: bool
    shows: str
    question: str


EXACT = Claim(
    "exact",
    "exact erasure",
    frozenset({"files", "execution", "provenance", "law", "reference", "regeneration"}),
    editors=False,
    shows="This is evidence that the model follows the law of a model trained without {request}.",
    question="The checks asked whether the new model is what training without this data gives.",
)
BOUND = Claim(
    "bound",
    "the stated bound",
    frozenset({"files", "provenance", "sampling"}),
    editors=True,
    shows="No difference from retraining was found above the size stated by the checks. This does not show that there "
    "is none.",
    question="The checks asked whether the new models can be told from models trained without this data.",
)

RUN = Claim(
    "run",
    "a run that follows its plan",
    frozenset({"files", "execution", "provenance", "regeneration"}),
    editors=False,
    shows="This is evidence about this run alone: its model is what its plan makes of the retained data, and the plan "
    "is the one that the named method makes. It does not show that the method is right.",
    question="The checks asked whether the new model was computed as the record of the training says. They did not ask "
    "whether the method forgets.",
)

CLAIMS = {claim.asks: claim for claim in (EXACT, BOUND, RUN)}
"""Every claim by its word in specs."""

BOUNDED_SPEC = "bounded-difference"
"""The built-in spec that asks of an editor of models what can be shown of one."""
