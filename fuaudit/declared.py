"""What plugins declare beside their options: every word, with its type, its default and what it means.

A word that is left out means its default, and that can be a claim: a stage that names nothing in ``depends_on`` says
that rounds may be kept. So a misspelt word must not be silence: a class is judged when it is loaded. A default is said
where its word is read (:func:`says`), so a plugin that nobody loaded says the same, and none is written twice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, cached_property
from inspect import getattr_static
from types import FunctionType
from typing import Any, cast

from fuaudit.errors import PluginError, nearest
from fuaudit.renamed import WORDS as FORMER
from fuaudit.renamed import sentence

REQUIRED = object()
"""In the place of a default: whoever uses such a plugin asks for the word, and says what is missing."""

NOTHING: frozenset[str] = frozenset()
TYPES = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
    frozenset: "set",
    tuple: "list",
    dict: "table",
    object: "value",
}
ALIKE = 0.8
"""A public name that is so like a word, from 0 to 1, is taken for a slip of the pen."""


@dataclass(frozen=True)
class Word:
    """A word that plugins of a kind declare.

    Attributes:
        holds: the type of its value, or ``FunctionType`` for a method.
        meaning: what it says.
        default: what a class says that leaves it out; :data:`REQUIRED` where it must not.
        among: what it can say; anything of its type where that is empty.
    """

    name: str
    holds: type[Any]
    meaning: str
    default: Any = REQUIRED
    among: tuple[str, ...] = ()

    @property
    def type(self) -> str:
        """In words."""
        return TYPES.get(self.holds, "method")

    @property
    def default_text(self) -> str:
        """The default in words."""
        if self.default is REQUIRED:
            return "required"
        return "none" if self.default in (None, "", NOTHING, ()) else str(self.default).lower()


_DEPENDS_ON = Word(
    "depends_on",
    frozenset,
    "what a round depends on beyond the batches of its participants: clients (how many there are), samples (how many "
    "they have); rounds that an unlearner keeps then tell of what is gone",
    NOTHING,
)
_STATE = Word(
    "per_client_state", frozenset, "the tensors of its state that keep one row a client, frozenset() for none"
)
_OWN_STATE = dataclasses.replace(_STATE, default=NOTHING)
_GUARANTEE = Word("guarantee", str, "one line: what the method claims, and where it is proved", "")
_CITE = Word("cite", str, "the paper", "")
_SELFTEST = Word("selftest_faults", tuple, "of fuaudit's own: what the self-test plants", ())
_VECTORISED = Word(
    "vectorised",
    bool,
    "whether it takes leading axes of independent runs, and treats them with elementwise arithmetic only",
    False,
)
_DRAWS = Word("draws", bool, "whether it draws: its context then has own(row) and shared", False)
_ABRUPT = Word(
    "abrupt",
    bool,
    "whether the last bit of a row can change more than last bits of what it makes: it ranks, rounds or chooses; "
    "replay on another platform then knows no tolerance",
    False,
)
_STAGE = (
    _STATE,
    _SELFTEST,
    _VECTORISED,
    _ABRUPT,
    _DRAWS,
    _DEPENDS_ON,
    Word(
        "after_aggregation",
        bool,
        "whether apply takes the one row that an aggregator leaves, and is refused before it",
        False,
    ),
    Word("merges", bool, "whether a row that it leaves is of several participations, and names none of them", False),
    Word("least_rows", int, "how many rows it needs; a round that has fewer for it fails", 1),
    Word(
        "publishes",
        FunctionType,
        "publishes(rows): what of a single row it may leave as it is, or times a number, of so many rows: row, "
        "coordinates (each that of some row), or an empty text for nothing",
        None,
    ),
    Word("bears", FunctionType, "bears(rows): how many bad rows of so many its guarantee is about at most", None),
    _GUARANTEE,
    _CITE,
)
_ROWS_LEFT = Word("rows_left", FunctionType, "rows_left(rows): how many rows it leaves of so many at most", None)

WORDS: Mapping[str, tuple[Word, ...]] = {
    "adversaries": (
        Word("clients", tuple, "the ids of those whose rows it turns, an option of the type tuple[int, ...]"),
        _CITE,
    ),
    "aggregators": _STAGE,
    "audits": (
        Word("evidence", frozenset, "the kinds of evidence of which a PASS gives the whole"),
        Word("uses", frozenset, "the arguments that it looks at"),
        Word(
            "alpha_option",
            str,
            "the option that bounds the false alarms of its tests, and takes a share of the spec's alpha",
            "",
        ),
        Word("recomputes", str, "what it works out itself where it comes to a decision, a part of a sentence", ""),
        Word(
            "knows_received",
            bool,
            "whether it judges runs with rounds that came in messages; one that does not is not asked of them, and its "
            "check is INCONCLUSIVE",
            False,
        ),
        Word(
            "knows_sealed",
            bool,
            "whether it judges sealed views, which hold what the server may be given; one that does not is not asked "
            "of them, and its check is INCONCLUSIVE",
            False,
        ),
        Word("cost", FunctionType, "cost(case): a sentence about the work to come", None),
    ),
    "byzantine": (
        Word("clients", tuple, "the ids of those whose rows it changes, an option of the type tuple[int, ...]"),
        Word(
            "sees",
            str,
            "on whose rows and proposals it depends what a client sends: on its own, on theirs (of all its clients), "
            "or on all",
            "all",
        ),
        _CITE,
        _VECTORISED,
        _ABRUPT,
        _DRAWS,
        _DEPENDS_ON,
        _OWN_STATE,
    ),
    "client_stages": (
        _OWN_STATE,
        _SELFTEST,
        _VECTORISED,
        _ABRUPT,
        _DRAWS,
        _DEPENDS_ON,
        Word("answered", bool, "whether every participant is sent the aggregator's row as well", False),
        Word(
            "bits",
            int,
            "of how many bits each number of a row is, as it tells the size of an update; a suite adds up its rows "
            "where it has the method step_of too. 0 where numbers are those of the run's type",
            0,
        ),
        Word(
            "per_client",
            int,
            "of an agreement: how many coordinates a client proposes at most; 0 where it does not say",
            0,
        ),
        Word(
            "releases",
            FunctionType,
            "releases(columns): the Released that it tells in rounds over so many columns; a config's [budget] asks "
            "for it before training",
            None,
        ),
        _GUARANTEE,
        _CITE,
    ),
    "datasets": (
        _CITE,
        Word("reads_folder", bool, "whether load reads the folder of --data; if not, none may be given", True),
    ),
    "laws": (
        Word("name", str, "the family of the law, by which rewriters say what they are exact for"),
        Word("rounds", int, "how many rounds there are"),
        Word("steps", int, "how many steps a participation takes"),
        Word("slots", int, "the most samples that a batch can hold"),
        Word("replacement", bool, "whether a client can be drawn twice in one round", False),
        Word(
            "lasting",
            bool,
            "whether it has draws that last all rounds, one of every client by itself at addresses in round 0; nobody "
            "else's draws may depend on who is left out",
            False,
        ),
        Word(
            "first_round_involves",
            frozenset,
            "whom the first round involves, whatever is drawn: all clients, all samples, or both",
            NOTHING,
        ),
        Word("cohort_size", int, "how many clients a round draws; 0 where that varies", 0),
        Word(
            "cuts",
            bool,
            "whether a batch that came out too large is cut; it then has a method included, with the arguments of "
            "batch, which gives all samples that were included",
            False,
        ),
        Word(
            "divisor",
            int,
            "what the gradients of a batch are divided by when they are added up; 0 for the number of its samples",
            0,
        ),
    ),
    "learners": (
        Word("law", object, "how cohorts and batches are drawn"),
        Word("step_size", float, "the size of clients' steps in round 1"),
        Word("decay", float, "what it is multiplied with from round to round"),
        Word("solver", dict, "the table of its solver, where a config names none"),
        Word("server", tuple, "the tables of its chain of stages, where a config names none"),
        Word("client", tuple, "the tables of its client stages, where a config names none", ()),
        _GUARANTEE,
        _CITE,
        Word(
            "conclusions",
            FunctionType,
            "conclusions(seen, clients, solver, exchange): what a run records beside who took part",
            None,
        ),
        Word(
            "stability",
            FunctionType,
            "stability(population): lines on how often one more request makes an exact rewriter compute again",
            None,
        ),
    ),
    "models": (),
    "partitions": (
        Word(
            "reads", str, "what it deals by: targets, or the natural owners of rows", "targets", ("targets", "owners")
        ),
    ),
    "solvers": (
        _STATE,
        Word("uploads", int, "how many vectors of the model's size a participation sends to the server", 1),
        Word("downloads", int, "how many the server sends to it", 1),
        Word("private", bool, "whether all that it keeps has one row a client, never given to the server", False),
        Word(
            "draws",
            bool,
            "whether it adds noise to the steps of clients: its before then gets the participations of one run, and "
            "draws by own(row); it says by releases under which mechanism",
            False,
        ),
        Word(
            "releases",
            FunctionType,
            "releases(columns): the Released under which each participation of a round is, over so many columns; it is "
            "told for a solver that draws",
            None,
        ),
        _ABRUPT,
        _SELFTEST,
        _DEPENDS_ON,
    ),
    "stages": (*_STAGE, _ROWS_LEFT),
    "transports": (
        Word(
            "shows", str, "what the server sees: the rows of clients, or sums of several", among=("rows", "sums")
        ),
        Word(
            "sparse",
            bool,
            "whether of a row it sends some coordinates alone, all times one number, and divides by all participations",
            False,
        ),
        Word("byzantine", int, "how many Byzantine clients of a round it reckons with", 0),
        Word(
            "least_trained",
            int,
            "of one that shows sums: of how many clients with samples, who took a step, each is at least",
            2,
        ),
        _VECTORISED,
        _ABRUPT,
        _DRAWS,
        _DEPENDS_ON,
        Word(
            "require_places",
            FunctionType,
            "require_places(places, trained): raises UsageError where rounds of so many participations at most, so "
            "many of them of clients with samples, could deliver nothing",
            None,
        ),
        dataclasses.replace(
            _ROWS_LEFT, meaning="rows_left(places, trained): how many rows come of so many participations at most"
        ),
        Word(
            "buffers",
            FunctionType,
            "buffers(places): how many participations a uniform lot puts into each buffer, and from how many rows on "
            "it opens, a pair each",
            None,
        ),
        Word(
            "members",
            FunctionType,
            "members(places, lot): which clients, of those at the places of a round, are in each buffer",
            None,
        ),
        Word(
            "secured",
            FunctionType,
            "secured(suite, before, books, apart): a transport with the same deliveries, whose sums a suite makes",
            None,
        ),
        Word(
            "summable",
            FunctionType,
            "summable(suite, before): what a suite is asked to add up: bits of a value, most clients of a buffer, and "
            "mean_of; without a library of the suite",
            None,
        ),
        Word(
            "mean_of",
            FunctionType,
            "of what is summable: mean_of(total, rows, like), what the server is shown of an opened sum",
            None,
        ),
    ),
    "unlearners": (
        Word("needs", frozenset, "what it needs from a run; touching anything else raises"),
        Word("participants", frozenset, "who has to take part; asking anybody else raises"),
        dataclasses.replace(_GUARANTEE, default=REQUIRED),
        dataclasses.replace(_CITE, default=REQUIRED),
        Word(
            "exact_for",
            frozenset,
            "pairs of a law and a kind of request for which a rewriter claims exactness; an editor has none",
            None,
        ),
        Word("assumes", tuple, "the conditions of its guarantee, a text each", ()),
        Word(
            "follows_reference",
            bool,
            "of fuaudit's own: whether its plans are those of a rewriter of fuaudit.plans.reference, so that after a "
            "prune any other plan is held against it",
            False,
        ),
        Word(
            "by_first_involvement",
            bool,
            "of a rewriter: whether nothing but the first involvement of the request decides what it keeps; an audit "
            "then runs it once for each, on a plan whose draws are closed. Said anew by a subclass that rewrites "
            "otherwise",
            False,
        ),
        Word("known_faults", tuple, "of fuaudit's own: what audits of plans suspect", ()),
        _SELFTEST,
        Word("mutant", bool, "whether it is wrong on purpose, so that audits can be seen to catch it", False),
    ),
}  # fmt: skip
"""Kind of plugin -> its words. Laws are of no registered kind: a learner brings its own."""

METHODS: Mapping[str, tuple[str, ...]] = {
    "adversaries": ("turn",),
    "aggregators": ("init", "apply"),
    "audits": ("examine",),
    "byzantine": ("init", "apply"),
    "client_stages": ("init", "apply"),
    "datasets": ("load",),
    "laws": ("places", "smaller", "cohort", "batch", "drawn_at"),
    "learners": (),
    "models": ("build",),
    "partitions": ("deal",),
    "solvers": ("init", "before", "after"),
    "stages": ("init", "apply"),
    "transports": ("deliver", "in_the_clear"),
    "unlearners": ("rewrite", "edit"),
}
"""Kind of plugin -> the methods that each of it has; of an unlearner's one."""

AGREEMENT = "propose", "agree"
"""Those of a client stage that is an agreement."""
PRINTED = "printed_bytes"
"""The one that an agreement may have: what its paper counts of a participation."""

OPTIONAL: Mapping[str, tuple[str, ...]] = {
    "aggregators": ("publishes", "bears"),
    "byzantine": ("settle", "proposals"),
    "client_stages": ("settle", "step_of"),
    "laws": ("included",),
    "stages": ("rows_left", "publishes", "bears"),
    "transports": ("require_places", "rows_left", "buffers", "fails", "members", "summable", "secured", "mean_of"),
}
"""Kind of plugin -> the methods that it may have."""


FREE = frozenset({"datasets", "models"})
"""Kinds of which no word is a claim: they may have any public class variables."""


DEFAULTS = {word.name: word.default for words in WORDS.values() for word in words if word.default is not REQUIRED}
"""Word -> its default, which is the same for every kind that may leave it out."""

_REQUIRED = {word.name for words in WORDS.values() for word in words if word.default is REQUIRED}
_METHODS = frozenset({*AGREEMENT, PRINTED}).union(*METHODS.values(), *OPTIONAL.values())


def says(plugin: object, word: str) -> Any:
    """What a plugin says by a word that it may leave out."""
    return getattr(plugin, word, DEFAULTS[word])


def must_say(plugin: object, word: str) -> Any:
    """What a plugin says by a word that it must not leave out; None where it does, and nobody has judged it.

    Raises:
        KeyError: no kind of plugin must say it.
    """
    if word not in _REQUIRED:
        raise KeyError(word)
    return getattr(plugin, word, None)


def offers(part: object, method: str) -> bool:
    """Whether a plugin has a method that not all have.

    Raises:
        KeyError: no kind of plugin has such a method.
    """
    if method not in _METHODS:
        raise KeyError(method)
    return callable(getattr(part, method, None))


def is_agreement(stage: object) -> bool:
    """Whether a client stage is an agreement."""
    return offers(stage, "agree")


def require_words(plugin: type[Any], kind: str, who: str = "") -> None:
    """Refuse a class that declares a word that there is not, or one of another type; see :func:`wrong`.

    Args:
        who: what it is called, for messages.

    Raises:
        PluginError: it does.
    """
    if problems := wrong(plugin, kind):
        raise PluginError(
            f"{who or f'the {kind[:-1]} {plugin.__name__}'} declares wrongly:\n  " + "\n  ".join(problems),
            "A helper of its own begins with an underscore. docs/reference.md tells what there is to declare.",
        )


def wrong(plugin: type[Any], kind: str) -> tuple[str, ...]:
    """What a class declares that no plugin of its kind has, or that has another type; empty for nothing.

    Three kinds of names are refused: those of before; public class variables that are no word, for such a class has
    options and methods else; and options and methods that are like a word which may be left out, or like a method that
    is missing. So is a class without the methods of its kind.
    """
    return _judged(cast("Any", plugin), kind)


@cache
def _judged(plugin: Any, kind: str) -> tuple[str, ...]:
    return tuple(_wrong(plugin, kind))


def _wrong(plugin: type[Any], kind: str) -> Iterator[str]:
    words = {word.name: word for word in WORDS[kind]}
    lacking = _lacking(plugin, kind)
    agrees = kind == "client_stages" and is_agreement(plugin)
    optional = (PRINTED,) if agrees else OPTIONAL.get(kind, ())
    methods = [*lacking, *(name for name in optional if not hasattr(plugin, name))]
    open_names = [name for name, word in words.items() if word.default is not REQUIRED] + methods
    if lacking:
        inherit = ": inherit Stateless where it keeps nothing" if "init" in lacking else ""
        yield f"it has no method {' or '.join(lacking)}{inherit}"
    for name in [name for name in words if words[name].default is REQUIRED and not _has(plugin, name)]:
        yield f"it does not say {name}: {words[name].meaning}"
    if kind == "unlearners" and all(hasattr(plugin, name) for name in METHODS[kind]):
        yield f"it has both methods {' and '.join(METHODS[kind])}: an editor has the second alone"
    if agrees:
        for name in sorted(_public(plugin) & {*METHODS[kind], *OPTIONAL[kind], "per_client_state"}):
            yield f"{name!r} is never asked for: an agreement has {' and '.join(AGREEMENT)}, and keeps nothing"
    for name in sorted(_public(plugin)):
        value, is_option = getattr_static(plugin, name, None), name in _fields(plugin)
        is_plain = not (is_option or hasattr(value, "__get__") or isinstance(value, type))
        if is_option and name in words and words[name].holds is frozenset:
            yield f"{name!r} is an option, and a set has no form in a config: write {name}: ClassVar"
        elif (now := FORMER.get(name)) in words:
            yield f"{name!r}. {sentence(repr(name), repr(now))}"
        elif name in words:
            if (is_plain or isinstance(value, FunctionType)) and not _fits(value, words[name]):
                yield f"{name} = {value!r} is no {words[name].type}"
            elif is_plain and words[name].among and value not in words[name].among:
                yield f"{name} = {value!r} is none of {', '.join(map(repr, words[name].among))}"
        elif is_plain and kind not in FREE:
            typed = f"As an option it needs its type: {name}: {type(value).__name__} = {value!r}."
            yield f"{name!r} is no word of {kind}. {nearest(name, words)} {typed}"
        elif close := get_close_matches(name, open_names, 1, ALIKE):
            yield f"{name!r} is too like the {'method' if close[0] in methods else 'word'} {close[0]!r} of {kind}"


def _lacking(plugin: type[Any], kind: str) -> list[str]:
    """The methods of its kind that a class has not; none of an unlearner's where it has one."""
    agrees = kind == "client_stages" and any(hasattr(plugin, name) for name in AGREEMENT)
    wanted = AGREEMENT if agrees else METHODS[kind]
    lacking = [name for name in wanted if not callable(getattr(plugin, name, None))]
    return [] if kind == "unlearners" and len(lacking) < 2 else lacking


def _fits(value: object, word: Word) -> bool:
    """Whether a value is of the type of its word. Whoever needs a required one asks that itself, and says more."""
    if word.default is REQUIRED:
        return True
    return value is word.default or word.holds is type(value)


def _has(plugin: type[Any], name: str) -> bool:
    """Whether a class has a name, as an option or otherwise."""
    return hasattr(plugin, name) or name in _fields(plugin)


def _fields(plugin: type[Any]) -> frozenset[str]:
    """The names of its options."""
    fields = dataclasses.fields(plugin) if dataclasses.is_dataclass(plugin) else ()
    return frozenset(field.name for field in fields)


def _public(plugin: type[Any]) -> set[str]:
    """The public names in the body of a class, and of those of the same package that it is made from."""
    package = plugin.__module__.partition(".")[0]
    own = [part for part in plugin.__mro__ if part.__module__.partition(".")[0] == package]
    return {
        name
        for part in own
        if not vars(part).get("_is_protocol")
        for name in (*vars(part), *vars(part).get("__annotations__", {}))
        if not name.startswith("_")
    }


def said(plugin: type[Any], kind: str) -> dict[str, Any]:
    """Word -> what a class says; of a word that its options decide, the property."""
    found = {word.name: getattr(plugin, word.name, word.default) for word in WORDS[kind]}
    return {name: value for name, value in found.items() if value is not REQUIRED}


def in_words(value: object) -> str:
    """What a word says, on one line."""
    if isinstance(value, frozenset | tuple):
        return "; ".join(sorted(map(in_words, value))) or "none"
    if isinstance(value, property | cached_property):
        return "by its options"
    if isinstance(value, dict):
        return ", ".join(f"{key} = {inner}" for key, inner in value.items())
    return "a method" if isinstance(value, FunctionType) else str(value).lower() if value is True else str(value)
