"""What tests of verification share: a small federation, targets, audits without sampling, and a forger's seal."""

import copy
from dataclasses import replace
from pathlib import Path

from hypothesis import strategies as st

from fuaudit import load_run, verify
from fuaudit.runs.ledger import NAME as LEDGER
from fuaudit.runs.ledger import Ledger, append, read_ledger
from fuaudit.runs.manifest import MANIFEST
from fuaudit.runs.writer import RunWriter
from fuaudit.verification.spec import Spec, read_spec
from fuaudit.verification.verify import default_spec

AUDIT_KEY = bytes(range(32))


def config(**changes):
    table = {
        "data": {"use": "digits"},
        "partition": {"use": "iid", "clients": 10},
        "model": {"use": "linear"},
        "learner": {"use": "fats", "rounds": 8, "cohort": 2, "steps": 2, "batch": 8, "step_size": 0.1},
        "run": {"checkpoint_every": 2},
    }
    return table | changes


def secret(number):
    return bytes([number]) * 32


def drawn_client(run, at_least=2):
    """A client whose first participation leaves at least so many rounds before it.

    Chosen by looking at the draws, so an adaptive request: only levels that judge this run or small
    federations are looked at where it is used.
    """
    first = {c: r for c, r in run.plan.index.clients.items()}
    return next(c for c, r in sorted(first.items()) if r > at_least)


def drawn_sample(run, at_least=2):
    """A sample of a client that took part in kept rounds, first drawn after so many rounds."""
    rounds = run.plan.index.clients
    owner = run.plan.retained.owner
    return next(
        s for s, at in sorted(run.plan.index.samples.items()) if at.round > at_least and rounds[owner[s]] < at.round
    )


def audits(run, **options):
    """Verdicts by audit, without repeated sampling of plans or models."""
    spec = options.pop("spec", None) or default_spec(run)
    spec = spec if isinstance(spec, Spec) else read_spec(spec)
    spec = replace(spec, checks=tuple(check for check in spec.checks if check.audit["use"] != "plan-law"))
    result = verify(run, spec, budget=0, key=AUDIT_KEY, save=False, **options)
    return result, {f.audit: f for f in result.findings}


def told(path: Path, edit):
    """Write a ledger whose events are what ``edit`` makes of those that are there, seals left out, and seal again."""
    events = [event for event in read_ledger(path).events if event["event"] not in ("sealed", "pruned")]
    (path / LEDGER).unlink()
    ledger = Ledger()
    for event in edit(events):
        facts = {name: value for name, value in event.items() if name not in ("event", "previous", "time")}
        ledger = append(path, ledger, event["event"], **facts)
    return reseal(path)


def reseal(path: Path):
    """Make manifest and ledger fit changed files, as a forger would."""
    (path / MANIFEST).unlink(missing_ok=True)
    writer = RunWriter(path, read_ledger(path))
    writer.close("sealed")
    return load_run(path)


PLAIN = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-2, 20),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["use", "fats", "mean", "momentum", "integrity", "required"]),
    st.dates(),
    st.datetimes(),
    st.times(),
)
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=2)
)
"""What TOML can hold."""


def places(table, here=()):
    """The paths to everything in nested tables and lists."""
    inner = table.items() if isinstance(table, dict) else enumerate(table) if isinstance(table, list) else ()
    for name, value in inner:
        yield (*here, name)
        yield from places(value, (*here, name))


@st.composite
def spoiled_tables(draw, table):
    """A table in one place of which there is any value of TOML, by itself or in a list or under a name."""
    spoiled = copy.deepcopy(table)
    *above, last = draw(st.sampled_from(list(places(table))))
    holder = spoiled
    for name in above:
        holder = holder[name]
    value = draw(VALUES)
    holder[last] = draw(st.sampled_from([value, [value], {"use": value}]))
    return spoiled
