"""Writes docs/reference.md from the code: ``python docs/make_reference.py``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path

from fuaudit import registry
from fuaudit.budgets.target import Target
from fuaudit.config import STAGE_KINDS, TABLES, Config, RunOptions
from fuaudit.data.adversaries import Adversary
from fuaudit.data.dataset import DatasetPlugin
from fuaudit.data.partition import Partition
from fuaudit.declared import AGREEMENT, METHODS, WORDS
from fuaudit.describe import Description, Option, description, options_of, plain, sentences
from fuaudit.models.layout import Recipe
from fuaudit.plans import Law
from fuaudit.training.contracts import Agreement, Byzantine, ClientStage, Transport
from fuaudit.training.learner import Learner
from fuaudit.training.solvers import Solver
from fuaudit.training.stages import Stage
from fuaudit.unlearning.protocol import Editor, Rewriter
from fuaudit.verification.audit import Audit
from fuaudit.verification.spec import Check, SpecKeys

PAGE = Path(__file__).with_name("reference.md")

INTRODUCTION = """\
# Reference of configs, specs and plugins

`python docs/make_reference.py` makes this page from the code, and a test compares the two: do not edit it. \
`fuaudit plugins NAME` shows the same of any installed plugin. What a spec's claims mean is in [specs.md](specs.md), \
data sets and models are explained in [data-and-models.md](data-and-models.md).
"""

DECLARED = """\
Class variables and methods of a plugin, beside its options. A word that is left out has the default. A former word, a \
public class variable that is no word (data sets and models may have some), and an option or a method whose name is \
nearly that of a word, or of a method that is missing, are refused when the plugin is loaded; helpers begin with an \
underscore. A law is no plugin: a learner brings its own.
"""

PROTOCOLS = {
    "adversaries": (Adversary,),
    "aggregators": (Stage,),
    "audits": (Audit,),
    "byzantine": (Byzantine,),
    "client_stages": (ClientStage, Agreement),
    "datasets": (DatasetPlugin,),
    "laws": (Law,),
    "learners": (Learner,),
    "models": (Recipe,),
    "partitions": (Partition,),
    "solvers": (Solver,),
    "stages": (Stage,),
    "transports": (Transport,),
    "unlearners": (Rewriter, Editor),
}
"""Kind of plugin -> what says the signatures of its methods."""

METHODS_TOLD = {
    "adversaries": "Required is an option `clients: tuple[int, ...]`, the ids of its clients. Required methods:",
    "byzantine": "Required is an option `clients: tuple[int, ...]`, the ids of its clients. `settle`, as of client "
    "stages, and `proposals(found: list[Tensor], updates: Tensor, context: RoundContext) -> list[Tensor]`, what they "
    "propose in an agreement, may be left out. Required methods:",
    "client_stages": "{settle} may be left out. An agreement has {propose} and {agree} alone. Required methods of "
    "others:",
    "unlearners": "One of these methods:",
}
"""Kind of plugin -> what is said before its methods."""

TABLES_OF = {name: (kind,) for name, kind in TABLES.items()} | STAGE_KINDS | {"unlearner": ("unlearners",)}
"""The keys of a config that name plugins, and the kinds of these."""


def cell(text: str) -> str:
    """A text as a cell of a table."""
    return text.replace("|", "\\|")


def option_lines(options: Iterable[Option]) -> list[str]:
    """A table of options."""
    rows = [f"| `{each.name}` | {cell(each.type)} | {_default(each)} | {cell(each.doc)} |" for each in options]
    return ["| key | type | default | what it says |", "|---|---|---|---|", *rows] if rows else ["No options."]


def _default(option: Option) -> str:
    return option.default_text if option.required or option.default is None else f"`{option.default_text}`"


def config_lines() -> list[str]:
    """The keys of a config, and the table of its own options."""
    told = sentences(Config)
    kinds = {key: " or ".join(f"[{kind}](#{kind})" for kind in kinds) for key, kinds in TABLES_OF.items()}
    rows = [f"| `{key}` | {kinds.get(key, '')} | {cell(text)} |" for key, text in told.items()]
    return [
        *("## Configs", "", "A TOML file. Each table but `run` names a plugin by `use` and holds its options.", ""),
        *("| key | names one of | what it says |", "|---|---|---|", *rows, ""),
        *("### run", "", *option_lines(options_of(RunOptions)), ""),
        *("### budget", "", *option_lines(options_of(Target)), ""),
    ]


def spec_lines() -> list[str]:
    """The keys of a spec."""
    return [
        *("## Specs", "", *option_lines(options_of(SpecKeys)), ""),
        *("### check", "", *option_lines(options_of(Check)), ""),
    ]


def plugin_lines(plugin: Description) -> list[str]:
    """One plugin."""
    facts = {"Guarantee": plugin.guarantee, "Paper": plugin.cite}
    if plugin.exact_for is not None:
        laws = [f"{law} ({', '.join(kinds)})" for law, kinds in plugin.exact_for.items()]
        facts["Exact for"] = "; ".join(laws) or "nothing"
    if plugin.mutant:
        facts["Mutant"] = "wrong on purpose, so that audits can be seen to catch it"
    facts["Declares"] = "; ".join(f"`{word}` {text}" for word, text in plugin.declares.items())
    lines = [line for word, text in facts.items() if text for line in (f"{word}: {text}", "")]
    return [f"### {plugin.name}", "", plugin.doc, "", *lines, *option_lines(plugin.options), ""]


def methods_of(kind: str) -> dict[str, Callable[..., object]]:
    """What the protocols of a kind define, and those that they are made from."""
    bases = [base for each in PROTOCOLS[kind] for base in reversed(each.__mro__)]
    return {name: method for base in bases for name, method in vars(base).items()}


def method_lines(kind: str) -> list[str]:
    """The methods that a plugin of a kind has, each with its signature and the first paragraph of its docstring."""
    found = methods_of(kind)
    lines = [f"- `{name}{_signature(found[name])}`: {_paragraph(found[name])}" for name in METHODS[kind]]
    signed = {name: f"`{name}{_signature(found[name])}`" for name in (*AGREEMENT, "settle") if name in found}
    told = METHODS_TOLD.get(kind, "Required methods:").format(**signed)
    return [told, "", *lines, ""] if lines else []


def _signature(method: Callable[..., object]) -> str:
    return str(inspect.signature(method)).replace("'", "").replace("(self, ", "(").replace("(self)", "()")


def _paragraph(method: Callable[..., object]) -> str:
    return plain((inspect.getdoc(method) or "").partition("\n\n")[0])


def word_lines() -> list[str]:
    """What plugins of each kind declare."""
    lines = [*("## What plugins declare", "", DECLARED)]
    head = ["| word | type | left out | what it says |", "|---|---|---|---|"]
    for kind, words in sorted(WORDS.items()):
        rows = [f"| `{each.name}` | {each.type} | {each.default_text} | {cell(each.meaning)} |" for each in words]
        lines += [f"### Words of {kind}", "", *(head + rows if rows else ["None."]), "", *method_lines(kind)]
    return lines


def page() -> str:
    """The whole page."""
    lines = [INTRODUCTION, *config_lines(), *spec_lines(), *word_lines()]
    for kind in registry.KINDS:
        own = [entry for _, entry in sorted(registry.entries(kind).items()) if entry.own]
        each = [line for entry in own for line in plugin_lines(description(entry))]
        lines += [f"## {kind}", "", *(each or ["None in this package.", ""])]
    return "\n".join(lines).rstrip("\n") + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
