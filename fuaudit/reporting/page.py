"""The HTML report: one file without scripts or references outside, readable on a screen and on paper."""

from __future__ import annotations

import re
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from fuaudit.reporting import learns, words
from fuaudit.reporting.contents import Checked, Contents
from fuaudit.reporting.drawings import drawings, exposed
from fuaudit.reporting.repeat import commands, identities
from fuaudit.verification.finding import Verdict

TEMPLATE = "template.html.j2"
FOLD = 6
"""More lines than this are folded away."""
MOST = 1000
"""Lines of one check that are shown at all; the findings hold them all."""


def render(contents: Contents) -> str:
    """The report as HTML."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["number"] = words.number
    template = environment.from_string(files("fuaudit.reporting").joinpath(TEMPLATE).read_text(encoding="utf-8"))
    enumeration = contents.giving("law")
    exposure = None if contents.sums is None else exposed(contents.sums)
    return template.render(
        c=contents,
        words=words,
        learns=learns,
        Verdict=Verdict,
        # drawn from numbers and fixed labels only, so nothing in them needs escaping
        drawings=[(drawing, Markup(drawing.svg)) for drawing in drawings(contents)],  # noqa: S704
        enumeration=enumeration,
        exposure=None if exposure is None else (exposure, Markup(exposure.svg)),  # noqa: S704
        witness=None if enumeration is None else witness(enumeration),
        commands=commands(contents),
        identities=identities(contents),
        fold=FOLD,
        most=MOST,
    )


def witness(check: Checked) -> tuple[str, str, str, str] | None:
    """The smallest counterexample of an enumeration: federation, history, and its two probabilities."""
    toy = next((line for line in check.details if line.startswith("smallest federation: ")), "")
    pattern = r"witness: (.+); probability (\S+) after unlearning, (\S+) after retraining"
    found = (re.fullmatch(pattern, line) for line in check.details)
    match = next((match for match in found if match), None)
    return None if match is None else (toy.partition(": ")[2], match[1], match[2], match[3])
