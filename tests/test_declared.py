"""What plugins declare: words that are misspelt, of before or of another type are refused; one left out is known."""

from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import EntryPoint
from typing import ClassVar

import pytest
from fuaudit_plugins.fats import FatsUnlearning
from fuaudit_plugins.scaffold import ControlVariates

from fuaudit import registry
from fuaudit.audits.integrity import Integrity
from fuaudit.data.partition import Iid
from fuaudit.declared import METHODS, REQUIRED, WORDS, must_say, offers, require_words, said, says, wrong
from fuaudit.errors import PluginError
from fuaudit.plans import UniformLaw, WeightedLaw
from fuaudit.plans.availability import AvailabilityLaw
from fuaudit.testing import check_aggregator, check_audit, check_solver, check_unlearner
from fuaudit.training.dropouts import Dropouts
from fuaudit.training.exchange import Clear, Exchange
from fuaudit.training.solvers import Sgd
from fuaudit.training.stages import Chain, Mean, Momentum
from fuaudit.unlearning.protocol import is_editor
from fuaudit.verification.audit import declared

GOOD = {
    "aggregators": Mean,
    "audits": Integrity,
    "laws": WeightedLaw,
    "learners": Dropouts,
    "partitions": Iid,
    "solvers": Sgd,
    "stages": Momentum,
    "transports": Clear,
    "unlearners": FatsUnlearning,
}
MISSPELT = {
    "aggregators": ("vectorized", True, "vectorised"),
    "audits": ("alpha_options", "alpha", "alpha_option"),
    "laws": ("first_round_involve", frozenset({"clients"}), "first_round_involves"),
    "learners": ("conclusion", 3, "conclusions"),
    "partitions": ("read", "owners", "reads"),
    "solvers": ("depend_on", frozenset({"clients"}), "depends_on"),
    "stages": ("after_agregation", True, "after_aggregation"),
    "unlearners": ("asumes", ("nothing",), "assumes"),
}


def made(kind, **body):
    """A class of a kind, frozen and all, with a body of its own."""
    return dataclass(frozen=True)(type("Made", (GOOD[kind],), {"__doc__": "One.", "__module__": __name__, **body}))


@pytest.mark.parametrize("kind", GOOD)
def test_a_good_one_says_every_word_that_it_leaves_out(kind):
    optional = {word.name for word in WORDS[kind] if word.default is not REQUIRED}
    assert optional <= said(made(kind), kind).keys()


@pytest.mark.parametrize("kind", GOOD)
def test_what_nobody_loaded_says_the_defaults(kind):
    bare = type("Bare", (), {})()
    for word in WORDS[kind]:
        if word.default is not REQUIRED:
            assert says(bare, word.name) == word.default
    assert not vars(type(bare)).keys() & {word.name for word in WORDS[kind]}


def test_stages_and_audits_that_nobody_loaded_are_used():
    """A direct use is as good as one by name: the defaults are no work of the registry."""
    stage = type("Bare", (), {"per_client_state": frozenset()})()
    assert not Exchange(Chain((stage,))).vectorised
    audit = type("Bare", (), {"evidence": frozenset(), "uses": frozenset()})()
    assert declared(audit, "it").alpha(audit) == 0


@pytest.mark.parametrize("kind", MISSPELT)
@pytest.mark.parametrize("how", ["variable", "annotated", "option", "method", "property"])
def test_a_misspelt_word_is_no_silence(kind, how):
    """Whatever it is written as: the word that was meant would say more than its default."""
    name, value, meant = MISSPELT[kind]
    body = {
        "variable": {name: value},
        "annotated": {"__annotations__": {name: ClassVar[type(value)]}, name: value},
        "option": {"__annotations__": {name: type(value)}, name: value},
        "method": {name: lambda self: value},
        "property": {name: property(lambda self: value)},
    }[how]
    with pytest.raises(PluginError, match=f"{name!r}.*{meant!r}") as caught:
        require_words(made(kind, **body), kind)
    assert "begins with an underscore" in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "former", "now"),
    [
        ("stages", "tells_of", "depends_on"),
        ("solvers", "tells_of", "depends_on"),
        ("aggregators", "client_rows", "per_client_state"),
        ("stages", "one_row", "after_aggregation"),
        ("aggregators", "stackable", "vectorised"),
    ],
)
@pytest.mark.parametrize("value", [frozenset(), property(lambda self: frozenset()), True])
def test_a_word_of_before_is_refused_with_the_present_one(kind, former, now, value):
    with pytest.raises(PluginError, match=f"{former!r} is called {now!r}"):
        require_words(made(kind, **{former: value}), kind)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("stages", "vectorised", "no"),
        ("unlearners", "mutant", "yes"),
        ("solvers", "uploads", True),
        ("solvers", "depends_on", "clients"),
        ("audits", "cost", "much"),
        ("partitions", "reads", ("owners",)),
    ],
)
def test_a_word_of_another_type_is_refused(kind, name, value):
    with pytest.raises(PluginError, match=f"{name} = .* is no "):
        require_words(made(kind, **{name: value}), kind)


@pytest.mark.parametrize("kind", ["aggregators", "solvers", "stages"])
def test_a_part_with_a_state_says_which_rows_are_of_clients(kind):
    body = {name: getattr(GOOD[kind], name) for name in METHODS[kind]}
    silent = type("Silent", (), {"__doc__": "One.", "__module__": __name__, **body})
    (told,) = wrong(dataclass(frozen=True)(silent), kind)
    assert "does not say per_client_state" in told


def test_a_set_is_no_option():
    """It has no form in a config."""
    body = {"__annotations__": {"per_client_state": frozenset[str]}, "per_client_state": frozenset({"memory"})}
    with pytest.raises(PluginError, match="write per_client_state: ClassVar"):
        require_words(made("stages", **body), "stages")


def test_an_option_without_a_type_is_told_to_have_one():
    with pytest.raises(
        PluginError, match=r"'trim' is no word of stages.* As an option it needs its type: trim: int = 1"
    ):
        require_words(made("stages", trim=1), "stages")


def test_a_class_variable_that_is_no_word_is_refused():
    """It may be a word that the author believes in."""
    with pytest.raises(PluginError, match="'exact' is no word of unlearners"):
        require_words(made("unlearners", exact=True), "unlearners")


@pytest.mark.parametrize("kind", GOOD)
def test_helpers_options_and_methods_of_other_names_are_the_authors_own(kind):
    body = {
        "__annotations__": {"strength": float},
        "strength": 0.5,
        "_limit": 3,
        "_most": frozenset(),
        "prepared": lambda self, number: number,
        "halved": property(lambda self: self.strength / 2),
        "doubled": cached_property(lambda self: self.strength * 2),
        "shared": staticmethod(lambda: 1),
        "Inner": type("Inner", (), {}),
    }
    assert wrong(made(kind, **body), kind) == ()


def test_words_may_be_options_or_follow_from_them():
    body = {"__annotations__": {"uploads": int}, "uploads": 2, "depends_on": property(lambda self: frozenset())}
    plugin = made("solvers", **body)(uploads=3)
    assert [says(plugin, word) for word in ("uploads", "downloads", "depends_on")] == [3, 1, frozenset()]


def test_what_another_package_made_it_from_is_not_judged():
    foreign = type("Foreign", (), {"__module__": "elsewhere.base", "settings": 3, "training": True})
    body = {"__module__": __name__, "__doc__": "One."}
    assert wrong(dataclass(frozen=True)(type("Made", (Mean, foreign), body)), "stages") == ()


@pytest.mark.parametrize(
    ("kind", "right", "slip"),
    [
        ("audits", "examine", "exmaine"),
        ("unlearners", "rewrite", "rewirte"),
        ("unlearners", "edit", "edits"),
        ("stages", "apply", "aply"),
        ("solvers", "before", "befor"),
        ("partitions", "deal", "deals"),
        ("datasets", "load", "loads"),
        ("models", "build", "biuld"),
    ],
)
def test_a_misspelt_method_is_refused_with_the_right_name(kind, right, slip):
    others = {name: lambda self: None for name in METHODS[kind] if name != right and kind != "unlearners"}
    one = type("Made", (), {"__doc__": "One.", "__module__": __name__, slip: lambda self: None, **others})
    with pytest.raises(PluginError, match=f"it has no method [^\n]*{right}") as caught:
        require_words(dataclass(frozen=True)(one), kind)
    assert f"{slip!r} is too like the method {right!r} of {kind}" in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "right", "slip"), [("client_stages", "settle", "setle"), ("byzantine", "proposals", "proposal")]
)
def test_a_method_that_may_be_left_out_is_not_misspelt(kind, right, slip):
    others = {name: lambda self: None for name in METHODS[kind]} | {"clients": property(lambda self: (1,))}
    one = type("Made", (), {"__doc__": "One.", "__module__": __name__, slip: lambda self: None, **others})
    assert wrong(dataclass(frozen=True)(one), kind) == (f"{slip!r} is too like the method {right!r} of {kind}",)


def test_an_agreement_has_no_methods_that_nobody_asks_for():
    others = {name: lambda self: None for name in ("propose", "agree", "settle")}
    one = type("Made", (), {"__doc__": "One.", "__module__": __name__, **others})
    [told] = wrong(dataclass(frozen=True)(one), "client_stages")
    assert told.startswith("'settle' is never asked for: an agreement has propose and agree")


@pytest.mark.parametrize("kind", [kind for kind in WORDS if any(word.default is REQUIRED for word in WORDS[kind])])
def test_a_required_word_that_is_missing_is_told_when_a_plugin_is_loaded(kind):
    methods = METHODS[kind][: 1 if kind == "unlearners" else None]
    body = {name: lambda self: None for name in methods}
    bare = dataclass(frozen=True)(type("Made", (), {"__doc__": "One.", "__module__": __name__, **body}))
    required = [f"it does not say {word.name}: {word.meaning}" for word in WORDS[kind] if word.default is REQUIRED]
    assert wrong(bare, kind) == tuple(required)


@pytest.mark.parametrize(
    ("kind", "body", "told"),
    [
        ("transports", {"shows": "all"}, "shows = 'all' is none of 'rows', 'sums'"),
        ("partitions", {"reads": "owner"}, "reads = 'owner' is none of 'targets', 'owners'"),
        ("unlearners", {"edit": lambda self, context: None}, "both methods rewrite and edit"),
    ],
)
def test_what_a_word_cannot_say_is_told_when_a_plugin_is_loaded(kind, body, told):
    with pytest.raises(PluginError, match=told):
        require_words(made(kind, **body), kind)


@pytest.mark.parametrize("word", ["needs", "participants"])
def test_a_misspelt_value_is_refused_with_the_nearest(word):
    slip, meant = {"needs": ("plann", "plan"), "participants": ("servre", "server")}[word]
    with pytest.raises(PluginError, match=f"unknown {word}: {slip!r}\n.*Did you mean {meant!r}"):
        is_editor(made("unlearners", **{word: frozenset({slip})})())


@pytest.mark.parametrize(("word", "slip", "meant"), [("evidence", "file", "files"), ("uses", "dat", "data")])
def test_a_misspelt_value_of_an_audit_is_refused_with_the_nearest(word, slip, meant):
    audit = made("audits", **{word: frozenset({slip})})()
    with pytest.raises(PluginError, match=f"{slip!r} is no .*Did you mean {meant!r}"):
        declared(audit, "it")


@pytest.mark.parametrize("kind", registry.KINDS)
def test_every_registered_plugin_declares_words_only(kind):
    for entry in registry.entries(kind).values():
        assert wrong(entry.load(), kind) == ()


@pytest.mark.parametrize("law", [UniformLaw, WeightedLaw, AvailabilityLaw])
def test_laws_declare_words_only(law):
    assert wrong(law, "laws") == ()


def test_a_misspelt_plugin_is_refused_where_it_is_loaded(monkeypatch):
    monkeypatch.setattr(EntryPoint, "load", lambda self: made("stages", vectorized=True))
    with pytest.raises(PluginError, match=r"stage 'momentum' of fuaudit .* declares wrongly"):
        registry.build("stages", "momentum")


def test_the_law_of_a_learner_is_judged_with_it(monkeypatch):
    options = {"scenario": "static", "probability": 0.5, "rounds": 1, "batch": 1, "step_size": 0.1, "steps": 1}
    law = made("laws", lasted=True)(1, 1, 1, 1)
    monkeypatch.setattr(EntryPoint, "load", lambda self: made("learners", law=law))
    with pytest.raises(PluginError, match="'lasted' is no word of laws"):
        registry.build("learners", {"use": "dropouts", **options})


@dataclass(frozen=True)
class Slip(ControlVariates):
    depends_onn: ClassVar[frozenset[str]] = frozenset()


@pytest.mark.parametrize(
    ("check", "subject"),
    [
        (check_solver, Slip()),
        (check_aggregator, made("aggregators", stackable=True)()),
        (check_audit, made("audits", costs=lambda self, case: "")()),
        (check_unlearner, made("unlearners", assume=("x",))()),
    ],
)
def test_contracts_ask_for_words_too(check, subject):
    with pytest.raises(AssertionError, match="breaks its contract"):
        check(subject)


def test_asking_for_a_word_that_there_is_not_is_an_error():
    """Else a slip of the pen in the code would be silence, too."""
    agreement, stage = made("stages", agree=lambda self: None, propose=lambda self: None)(), Slip()
    assert offers(agreement, "agree")
    assert not offers(stage, "settle")
    assert must_say(stage, "shows") is None
    for ask, word in ((offers, "setle"), (must_say, "show"), (says, "depends")):
        with pytest.raises(KeyError, match=word):
            ask(stage, word)
