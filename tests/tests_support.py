"""What tests of verification share: a small federation, targets, audits without sampling, and a forger's seal."""

import copy
import json
import os
import random
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import pytest
import torch
from hypothesis import strategies as st

from fuaudit import load_run, receive, verify
from fuaudit.draws import Keyed, Position
from fuaudit.formats.files import write_bytes
from fuaudit.formats.forms import as_tensors, parse_arrays, pretty_json
from fuaudit.plans.involvement import involvements, knowing
from fuaudit.plans.stacked import LazySchedule
from fuaudit.runs.derived_files import derived
from fuaudit.runs.encoding import digest_of_vector
from fuaudit.runs.layout import FORMER, LEDGER, MANIFEST
from fuaudit.runs.ledger import Ledger, read_ledger
from fuaudit.runs.manifest import digest_of_files, files_of, manifest_bytes
from fuaudit.runs.neighbours import neighbours
from fuaudit.training.execute import execute, initial_state
from fuaudit.training.setup import load_dataset, setup
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence
from fuaudit.verification.spec import Spec, builtin_specs, read_spec
from fuaudit.verification.store import latest
from fuaudit.verification.verify import default_spec
from fuaudit.workflow.append import append
from fuaudit.workflow.writer import RunWriter

AUDIT_KEY = bytes(range(32))

NEEDED = {
    "dpsgd": {"norm": 0.5, "noise": 2.0},
    "centered-clipping": {"radius": 0.5, "steps": 2},
    "krum": {"byzantine": 1},
    "multi-krum": {"byzantine": 0},
    "norm-clipping": {"norm": 0.5},
    "norm-thresholding": {"trim": 0.3},
    "spectral-filter": {"sigma": 0.2},
    "trimmed-mean": {"trim": 0.3},
}
"""Options of aggregators and stages that have no default."""


def config(**changes):
    table = {
        "data": {"use": "digits"},
        "partition": {"use": "iid", "clients": 10},
        "model": {"use": "linear"},
        "learner": {"use": "fats", "rounds": 8, "cohort": 2, "steps": 2, "batch": 8, "step_size": 0.1},
        "run": {"checkpoint_every": 2, "engine": "reference"},
    }
    return table | changes


def secret(number):
    return bytes([number]) * 32


def drawn_client(run, at_least=2, but=()):
    """A client, none of those in ``but``, whose first participation leaves at least so many rounds before it.

    Chosen by looking at the draws, so an adaptive request: only levels that judge this run or small
    federations are looked at where it is used.
    """
    first = {c: r for c, r in run.plan.index.clients.items()}
    return next(c for c, r in sorted(first.items()) if r > at_least and c not in but)


def drawn_sample(run, at_least=2):
    """A sample of a client that took part in kept rounds, first drawn after so many rounds."""
    rounds = run.plan.index.clients
    owner = run.plan.retained.owner
    return next(
        s for s, at in sorted(run.plan.index.samples.items()) if at.round > at_least and rounds[owner[s]] < at.round
    )


LEAN = {"plan-law": {"plans": 1000, "most": 1000}, "enumeration": {"leaves": 6_000}}
"""Options of audits with which exact methods still pass on small runs."""


def lean(spec):
    """A spec, by itself or by its name, with as few plans and leaves as still suffice for a PASS."""
    spec = spec if isinstance(spec, Spec) else read_spec(spec)
    used = {check.audit["use"] for check in spec.checks}
    return with_options(spec, **{name: fewer for name, fewer in LEAN.items() if name in used})


def of_the_run(*more):
    """A spec of the run alone, without the slow audits of the algorithm but those named."""
    spec, fast = read_spec("client-erasure"), {"integrity", "replay", "provenance", "lineage", *more}
    checks = tuple(check for check in spec.checks if check.audit["use"] in fast)
    return replace(spec, id="quick", asks="run", alpha=None, checks=checks, origin="")


def with_options(spec, **options):
    """A spec with other options of some audits, by their names."""
    assert options.keys() <= {check.audit["use"] for check in spec.checks}
    checks = (replace(check, audit=check.audit | options.get(check.audit["use"], {})) for check in spec.checks)
    return replace(spec, checks=tuple(checks))


def changed(case, **words):
    """A case with other values of some fields of its evidence, of what is known, or of its effort."""

    def given(value):
        return replace(value, **{name: words.pop(name) for name in list(words) if hasattr(value, name)})

    known, effort = given(case.known), given(case.effort)
    evidence = given(replace(case.evidence, known=known))
    assert not words, words
    return Case(evidence, case.key, effort)


def audits(run, **options):
    """Verdicts by audit, by a lean spec and without repeated sampling of models."""
    spec = lean(options.pop("spec", None) or default_spec(run))
    result = verify(run, spec, budget=0, key=AUDIT_KEY, save=False, **options)
    return result, {f.audit: f for f in result.findings}


def parse_tensors(content: bytes, path: Path):
    """The tensors of a file of a run."""
    return as_tensors(parse_arrays(content, path))


def stored(run):
    """The file of findings that was stored last for a run."""
    return latest(Path(run))


def edit(path: Path, name: str, **changes):
    """Fields of a JSON file of a run."""
    table = json.loads((path / name).read_text())
    (path / name).write_bytes(pretty_json(table | changes))


def told(path: Path, course):
    """Write a ledger whose events are what ``course`` makes of those that are there, seals left out, and seal again.

    A pruned run keeps a manifest of before: it becomes that of a run that never was.
    """
    events = [event for event in read_ledger(path).events if event["event"] not in ("sealed", "pruned")]
    (path / LEDGER).unlink()
    ledger = Ledger()
    for event in course(events):
        facts = {name: value for name, value in event.items() if name not in ("event", "previous", "time")}
        ledger = append(path, ledger, event["event"], **facts)
    if not (path / FORMER).exists():
        return reseal(path)
    (path / MANIFEST).unlink(missing_ok=True)
    files = {name: entry for name, entry in files_of(path).items() if name != FORMER}
    ledger = append(path, ledger, "sealed", digest=digest_of_files(files))
    (path / FORMER).write_bytes(manifest_bytes(digest_of_files(files), files, ledger.head))
    RunWriter(path, ledger).close("pruned", before=digest_of_files(files))
    return load_run(path)


def fitting(path: Path, events):
    """Events of rounds as a run with these stored models tells of them: whoever forges more is not yet seen by that."""
    stored = {int(item.stem) for item in (path / "checkpoints").iterdir()}
    for event in events:
        if event["event"] == "round":
            model = {"model": event.get("model", "0" * 64)} if event["round"] in stored else {}
            event = {name: value for name, value in event.items() if name != "model"} | model
        yield event


def left_alone(run):
    """The folders beside a run that hold seeds which its prune destroys, and those that cannot be read."""
    found = neighbours(run)
    return [*found.holding], [*found.unread]


def one_more(figure):
    """The next figure above that can be stored, of 4 digits."""
    number = Decimal(repr(figure))
    return float(number + Decimal(1).scaleb(number.adjusted() - 3))


def same(events):
    """The course that is there."""
    return events


def remade(path: Path, course=same, dataset=None):
    """Every file that follows from a forged plan, partition or data, and a ledger that fits, under a new seal."""
    told(path, lambda events: fitting(path, course(events)))
    forged = load_run(path)
    case = Case(Evidence(forged, None, dataset or load_dataset(forged.config, None)), Keyed(bytes(32)))
    for name, content in case.rerun.regenerated.items():
        (path / name).write_bytes(content)
    models = {round_number: digest_of_vector(vector) for round_number, (vector, _) in case.rerun.replayed.items()}

    def computed(events):
        return [e | {"model": models[e["round"]]} if "model" in e else e for e in events]

    return told(path, computed)


def holding(path: Path, models, data=None):
    """The run with other stored models ``{round: (vector, state)}``; figures and ledger follow, under a new seal."""
    run = load_run(path)
    for round_number, (vector, state) in models.items():
        RunWriter(path).checkpoint(round_number, vector, state)
    schedule, ready = LazySchedule([run.plan], run.rounds_executed), setup(run.config, data)
    salt = run.participation_salt
    files = derived(ready, run.plan.retained, schedule, run.checkpoints, lambda r: models[r][0], salt=salt)
    for name, content in files.items():
        write_bytes(path / name, content)

    def logged(event):
        stored = event["event"] == "round" and event["round"] in models
        return event | ({"model": digest_of_vector(models[event["round"]][0])} if stored else {})

    return told(path, lambda events: map(logged, events))


def installed(folder: Path, module: str, code: str, entries: str):
    """A distribution that somebody else installed: one module, its plugins, and the list of its files."""
    info = folder / "strangers_package-1.5.dist-info"
    info.mkdir(parents=True)
    (folder / f"{module}.py").write_text(code)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strangers-package\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(entries)
    (info / "RECORD").write_text(f"{module}.py,,\nstrangers_package-1.5.dist-info/entry_points.txt,,\n")
    return folder


def run(*command, cwd=None, **environment):
    """What a command prints; it must succeed."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, cwd=cwd, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def by_pip(example: Path, folder: Path):
    """A package in a folder of its own, built from a copy: building leaves files beside the sources."""
    copy, target = folder / "source", folder / "site"
    shutil.copytree(example, copy, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")
    try:
        import setuptools

        modern = int(setuptools.__version__.split(".")[0]) >= 77
    except ImportError:
        modern = False
    # without setuptools at hand pip fetches it, which needs an index
    run(*pip, *(["--no-build-isolation"] if modern else []), "--target", str(target), str(copy))
    return target


def broken(check, subject, *reasons, **options):
    """A contract check refuses a subject for these reasons."""
    states = random.getstate(), torch.get_rng_state()
    with pytest.raises(AssertionError) as caught:
        check(subject, **options)
    random.setstate(states[0])  # some mutants draw from them
    torch.set_rng_state(states[1])
    for reason in reasons:
        assert reason in str(caught.value)


def reseal(path: Path):
    """Make manifest and ledger fit changed files, as a forger would, and open the run."""
    sealed(path)
    return load_run(path)


def claimed(path: Path, **names):
    """Let a run say that another platform made its models: other versions, or another canary; and seal it again."""
    named = {word: name for word, name in names.items() if word != "canary"}
    changed = {"canary": names["canary"]} if "canary" in names else {}

    def other(event):
        if event["event"] != "platform":
            return event
        return event | changed | {"versions": event["versions"] | named}

    info = json.loads((path / "run.json").read_text())
    (path / "run.json").write_bytes(pretty_json(info | {"versions": info["versions"] | named}))
    return told(path, lambda events: map(other, events))


def made_elsewhere(run):
    """A child whose rounds from the request on were made on another platform; kept ones stay with the parent's."""
    last, other = max(event["since"] for event in run.ledger.of_kind("platform")), {"processor": "another"}

    def named(event):
        new = event["event"] == "platform" and event["since"] == last
        return event | ({"versions": event["versions"] | other} if new else {})

    edit(run.path, "run.json", versions=run.info["versions"] | other)
    return told(run.path, lambda events: map(named, events))


def sealed(path: Path) -> None:
    """Make manifest and ledger fit changed files, as a forger would: the last seal, or the prune, is that of now."""
    (path / MANIFEST).unlink(missing_ok=True)
    lines = (path / LEDGER).read_bytes().splitlines(keepends=True)
    last = json.loads(lines[-1])
    if last["event"] in ("sealed", "pruned"):
        write_bytes(path / LEDGER, b"".join(lines[:-1]))
    facts = {"before": last["before"]} if last["event"] == "pruned" else {}
    RunWriter(path, read_ledger(path)).close("pruned" if facts else "sealed", **facts)


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


@dataclass(frozen=True)
class Watched:
    """A transport that keeps, for a test, what it delivers: rows, coordinates, and of how many each row is."""

    inner: object
    into: dict

    @property
    def shows(self):
        return self.inner.shows

    @property
    def draws(self):
        return getattr(self.inner, "draws", False)

    def deliver(self, rows, context):
        told = []
        found = self.inner.deliver(rows, replace(context, tell=told.append))
        counts = told[0].rows if told else ()
        self.into[context.number] = found.rows.clone(), context.coordinates, counts
        return found


def deliveries(run, data):
    """What the transport of a simulated run delivered, by rounds."""
    ready, plan, into = setup(run.config, data), run.plan, {}
    exchange = ready.procedure.exchange
    procedure = replace(ready.procedure, exchange=replace(exchange, transport=Watched(exchange.transport, into)))
    start = initial_state(procedure, [plan], plan.retained, ready.device)
    problem, schedule = ready.client_problem(plan.retained), LazySchedule([plan], run.rounds_executed)
    for _ in execute(procedure, problem, plan.retained, schedule, start, ready.engine, 1, run.stage_draws(plan)):
        pass
    return into


def hand_in(reception, delivered):
    """The messages of the open round, as an honest federation sends them."""
    at, (rows, coordinates, counts) = reception.round, delivered
    if coordinates is not None:
        reception.agree(coordinates)
    for place, row in enumerate(rows):
        if counts:
            assert reception.receive_sum(at.number, row.double() * counts[place], counts[place]) == ""
        else:
            assert reception.receive(at.number, at.clients[place], row) is None


def in_messages(run, out, data, secret):
    """A simulated run once more, of messages that hold what its transport delivered."""
    found = deliveries(run, data)
    with receive(run.config.tables(), out, data, secret) as reception:
        while reception.round is not None:
            if reception.round.clients:  # in a round of nobody no transport is asked
                hand_in(reception, found[reception.round.number])
            reception.advance()
        return reception.close()


def in_messages_never_pass(run, data, **options):
    """No spec that asks for erasure passes a run, and nothing of it is refuted or breaks. Findings of it by audit."""
    for name in (one for one in builtin_specs() if read_spec(one).claim.of_request):
        result, found = audits(run, spec=lean(name), data=data, **options)
        assert result.verdict == "INCONCLUSIVE", (name, result.reason)
        assert "came in messages" in result.reason
        assert {one.verdict for one in found.values()} <= {"PASS", "INCONCLUSIVE", "NOT_APPLICABLE"}, found
    result = verify(run, of_the_run(), key=AUDIT_KEY, save=False, data=data, **options)
    assert result.verdict == "INCONCLUSIVE"
    assert "came in messages" in result.reason
    return {one.audit: one for one in result.findings}


def foreseeing(plans, request, cohorts=None):
    """The same plans with first involvement of a request known; rounds and steps as of ``involvements``."""
    rounds, steps = involvements(plans, request, cohorts)
    positions = zip(rounds.tolist(), steps.tolist(), strict=True)
    return [knowing(plan, request, Position(*at)) for plan, at in zip(plans, positions, strict=True)], rounds, steps
