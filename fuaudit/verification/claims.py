"""Claims as data: what a spec may ask for, which kinds of evidence that needs, and what a PASS then says.

A claim is shown by *required* checks alone, and by all of the kinds it needs. A new one is a line in :data:`CLAIMS`. An
outside package registers its own: a kind of evidence is a sentence in the group ``fuaudit.evidence``, a claim a
:class:`Claim` in ``fuaudit.claims``. What fuaudit itself defines, nobody else can.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass, replace

from fuaudit import registry
from fuaudit.errors import PluginError
from fuaudit.registry import Entry
from fuaudit.text import said_by

EVIDENCE = {
    "files": "the files of the run are complete and unaltered, and belong together",
    "execution": "the model, or the one that was edited, is what its plan makes of the retained data",
    "provenance": "keys, plan and request are those of the named method, from what was committed to",
    "law": "plans of the method have the law of retraining",
    "reference": "at full size, plans of the method and of the run itself were compared with those of a proved method",
    "regeneration": "every file of models or figures follows from the retained data and the test rows alone",
    "sampling": "repeated unlearning was compared with repeated retraining, beside controls",
    "attack": "attacks were run, and worked where they must",
    "budget": "what was spent of a privacy budget was counted",
    "transcript": "the messages are those of the protocol",
}
"""The kinds of evidence that fuaudit defines, and what each shows."""


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
        of: whose it is, distribution and version, where it is not fuaudit's own; not to be given, it is filled in.
        of_request: whether it is about a request that was carried out; what is not, training runs can show too.
    """

    asks: str
    name: str
    needs: frozenset[str]
    editors: bool
    shows: str
    question: str
    of: str = ""
    of_request: bool = True

    @property
    def title(self) -> str:
        """Its name in sentences, and whose it is."""
        return f"{self.name} (a claim of {self.of})" if self.of else self.name

    @property
    def told(self) -> dict[str, str]:
        """What a report needs of it: whoever reads one may not have installed what defines it."""
        return {"name": self.name, "shows": self.shows, "question": self.question, "of": self.of}

    def said(self, text: str, request: str = "") -> str:
        """One of its texts, in whose name it is said."""
        whole = text.replace("{request}", request)
        return said_by(self.of, whole) if self.of else whole


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
    "the bound on one violation",
    frozenset({"files", "execution", "provenance", "regeneration", "sampling"}),
    editors=True,
    shows="No difference from retraining was found. Models left untouched in a share of runs, which the checks state, "
    "would have shown one with probability .9 or more, by a lower limit at confidence .9, approximately. Differences "
    "of other kinds, of any size, may be there.",
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

SUMS = Claim(
    "sums",
    "sums by the protocol",
    frozenset({"files", "transcript", "attack"}),
    editors=True,
    shows="The recorded messages of the run's sums are those of the suite's protocol, and the models were made of what "
    "they opened. Attacks on small openings of the suite got no row that it hides, and got one where they must. This "
    "says nothing about messages that nobody recorded, nor about forgetting.",
    question="The checks asked whether attacks on the sums of clients' updates get the update of one client.",
    of_request=False,
)

CLAIMS = {claim.asks: claim for claim in (EXACT, BOUND, RUN, SUMS)}
"""Every claim by its word in specs."""

BOUNDED_SPEC = "bounded-difference"
"""The built-in spec that asks of an editor of models what can be shown of one."""


def known_evidence() -> frozenset[str]:
    """The words for all kinds of evidence, of installed distributions too; nothing is imported.

    Raises:
        PluginError: a distribution registers a word of fuaudit's own.
    """
    return frozenset(EVIDENCE) | _added("evidence", EVIDENCE.keys()).keys()


def known_claims() -> tuple[str, ...]:
    """The words for all claims, fuaudit's own first; see :func:`known_evidence`."""
    return (*CLAIMS, *sorted(_added("claims", CLAIMS.keys())))


def shown_by(word: str) -> str:
    """What a kind of evidence shows.

    Raises:
        EvidenceError: whoever defines it is not trusted.
        PluginError: it is no sentence.
    """
    if word in EVIDENCE:
        return EVIDENCE[word]
    entry = _added("evidence", EVIDENCE.keys())[word]
    sentence = entry.value()
    if not _is_line(sentence):
        raise PluginError(f"{entry} must be one line of text: what it shows")
    return str(sentence)


def claim_of(asks: str) -> Claim:
    """The claim of a word.

    Raises:
        EvidenceError: whoever defines it is not trusted.
        PluginError: it is not a sound claim.
    """
    if asks in CLAIMS:
        return CLAIMS[asks]
    entry = _added("claims", CLAIMS.keys())[asks]
    claim: Claim = entry.value()
    if wrong := _wrong_in(claim, asks):
        raise PluginError(f"{entry} is no sound claim: {wrong}", "docs/plugin-guide.md tells what a claim holds.")
    return replace(claim, of=f"{entry.distribution} {entry.version}")


_NAME = re.compile("(?=.{3,60}$)[A-Za-z][A-Za-z0-9,-]*( [A-Za-z0-9,-]+)*")


def _wrong_in(claim: object, asks: str) -> str:
    if type(claim) is not Claim:
        return f"it is {type(claim).__name__}, not a Claim"
    if claim.asks != asks or claim.of:
        return f"asks must be {asks!r}, as it is registered, and of must be left out"
    if not all(map(_is_line, (claim.name, claim.shows, claim.question))) or type(claim.editors) is not bool:
        return "name, shows and question must be one line of text, editors true or false"
    if not _NAME.fullmatch(claim.name):
        return "name must be 3 to 60 letters of ASCII, digits, hyphens and commas, with single spaces between"
    if any(own.name in claim.name.lower() for own in CLAIMS.values()):
        return f"{claim.name!r} holds the name of a claim of fuaudit's own"
    if type(claim.needs) is not frozenset or not claim.needs or not claim.needs <= known_evidence():
        return "needs must be a frozenset of kinds of evidence that are registered, at least one"
    return ""


def _is_line(text: object) -> bool:
    return type(text) is str and bool(text.strip()) and text.isprintable()


def _added(kind: str, own: Set[str]) -> dict[str, Entry]:
    """What distributions register of a kind, by name; a name of fuaudit's own is refused whoever asks for what."""
    found = registry.entries(kind)
    if taken := [entry for name, entry in found.items() if name in own]:
        raise PluginError(f"{taken[0]} has a name that fuaudit itself defines", "Uninstall it.")
    return found


def lacking(needs: Set[str], given: Set[str]) -> list[str]:
    """The kinds of evidence that are needed and not given, each with what it shows; fuaudit's own first."""
    missing = needs - given
    ordered = [*(word for word in EVIDENCE if word in missing), *sorted(missing - EVIDENCE.keys())]
    return [f"{word} ({shown_by(word)})" for word in ordered]
