"""What every test gets: global generators that must stay as they were, and one small federation."""

import gc
import hashlib
import os
import random
import secrets
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import sklearn.datasets  # noqa: F401, its first import draws from Python's global generator
import tomli_w
import torch
from tests_support import LEAN, of_the_run, sealed

from fuaudit import from_source
from fuaudit.cli import main
from fuaudit.data.dataset import Dataset
from fuaudit.formats.forms import pretty_json
from fuaudit.plans import Request
from fuaudit.verification.spec import builtin_specs
from fuaudit.workflow.train import train
from fuaudit.workflow.unlearn import unlearn

hypothesis.settings.register_profile(
    "suite", max_examples=50, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)  # each run has new examples, and how busy a machine is says nothing about a property
hypothesis.settings.load_profile("suite")

SECRET = bytes(range(32))

MEMORY, ROOM = Path("/dev/shm"), 6 * 2**30
if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM:
    tempfile.tempdir = str(MEMORY)  # runs are written durably, and waiting for a disk is a third of that

LONGEST = ("test_traps", "test_executor", "test_faults", "test_outside_package", "test_guide", "test_platforms")
"""Modules whose single tests take longest: they come first, so that at the end no processor waits for one of them."""

ORDER = "FUAUDIT_TEST_ORDER"
"""The environment variable with the order of tests; worker processes inherit it, so all have the same."""


SHARE = "FUAUDIT_TEST_SHARE"
"""The environment variable with the share of tests marked ``thorough`` that are run, such as "2/5"; else all are."""


def pytest_configure():
    os.environ.setdefault(ORDER, secrets.token_hex(4))


def in_share(item):
    """Whether a test is run: of those that take long only a share, of which each function is in one."""
    if SHARE not in os.environ or item.get_closest_marker("thorough") is None:
        return True
    share, shares = map(int, os.environ[SHARE].split("/"))
    name = f"{item.module.__name__}.{item.originalname}"
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) % shares == share % shares


def pytest_collection_finish():
    """What was imported stays: it need not be looked at whenever garbage is collected."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"The same order again: {ORDER}={os.environ[ORDER]}")


def pytest_collection_modifyitems(config, items):
    """The longest modules first, else in random order, and within each its tests: what one prepares, it keeps."""
    if left := [item for item in items if not in_share(item)]:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if in_share(item)]

    def place(*names):
        return hashlib.sha256(" ".join([os.environ[ORDER], *names]).encode()).digest()

    def key(item):
        name = item.module.__name__
        return name not in LONGEST, place(name), place(item.nodeid)

    items.sort(key=key)


def generator_states():
    kind, keys, *rest = np.random.get_state()
    return random.getstate(), (kind, keys.tobytes(), *rest), torch.random.get_rng_state().numpy().tobytes()


BUILD_LAYERS_BY_HAND = {"test_clipped_steps", "test_engines", "test_grouped_engine"}
"""Layers fill themselves from torch's generator when they are made; fuaudit puts it back, these tests need not."""


@pytest.fixture(autouse=True)
def _global_generators_untouched(request):
    """No global generator anywhere: their states are compared before and after each test."""
    before = generator_states()
    yield
    after = generator_states()
    kinds = 2 if request.module.__name__ in BUILD_LAYERS_BY_HAND else 3
    assert after[:kinds] == before[:kinds], "a global generator of random numbers was used"


@pytest.fixture(autouse=True)
def _other_packages_were_other_processes():
    """Packages of one name lie in many folders here, one a test; in one process that would be worth a word."""
    yield
    from_source._FINDER.ever.clear()


@pytest.fixture(scope="session")
def small_config():
    """Tables of a config: five clients on digits, a linear model, six short rounds."""

    def tables(rounds=6, **tables):
        learner = {"use": "fats", "rounds": rounds, "cohort": 2, "steps": 2, "batch": 4, "step_size": 0.1}
        return {
            "data": {"use": "digits"},
            "partition": {"use": "iid", "clients": 5},
            "model": {"use": "linear"},
            "learner": learner | tables.pop("learner", {}),
            "run": {"checkpoint_every": 2, "engine": "reference", "device": "cpu"},
        } | tables

    return tables


@pytest.fixture(scope="session")
def quick():
    """A spec of the run alone: client erasure without the slow audits of the algorithm."""
    return of_the_run()


@pytest.fixture(scope="session")
def lean_file(tmp_path_factory):
    """The spec for erasing a client, under a name of its own, with as few plans and leaves as suffice for a PASS."""
    table = tomllib.loads(builtin_specs()["client-erasure"].read_text()) | {"id": "lean"}
    for check in table["check"]:
        check["audit"] |= LEAN.get(check["audit"]["use"], {})
    path = tmp_path_factory.mktemp("specs") / "lean.toml"
    path.write_text(tomli_w.dumps(table))
    return path


@pytest.fixture(scope="session")
def trained(small_config, tmp_path_factory):
    """A trained run that nobody may edit."""
    return train(small_config(), tmp_path_factory.mktemp("session") / "parent", secret=SECRET)


@pytest.fixture(scope="session")
def target(trained):
    """The client that is drawn last, so that some rounds are kept."""
    return max(trained.plan.index.clients, key=trained.plan.index.clients.__getitem__)


@pytest.fixture(scope="session")
def child(trained, target):
    """The target unlearned with FATS, beside the trained run."""
    return unlearn(trained, "fats", Request.of([target]), trained.path.parent / "fats")


@pytest.fixture(scope="session")
def untouched(trained, target):
    """The target "unlearned" with noop, beside the trained run."""
    return unlearn(trained, "noop", Request.of([target]), trained.path.parent / "noop")


@pytest.fixture(scope="session")
def tiny():
    """Training of a run of some kilobytes: 12 rows of 3 numbers, 3 clients, 2 rounds."""
    rows = torch.arange(36, dtype=torch.float32).reshape(12, 3) / 36
    data = Dataset(rows, torch.arange(12) % 2, rows[:4], torch.arange(4) % 2, classes=2)
    tables = {
        "data": {"use": "tensors", "classes": 2},
        "partition": {"use": "iid", "clients": 3},
        "model": {"use": "linear"},
        "learner": {"use": "fats", "rounds": 2, "cohort": 2, "steps": 1, "batch": 2, "step_size": 0.1},
        "run": {"checkpoint_every": 1, "engine": "reference", "device": "cpu"},
    }

    def work(out, **options):
        return train(tables, out, data=data, secret=SECRET, **options)

    work.dataset = data
    work.tables = tables
    return work


@pytest.fixture
def reseal():
    """Make manifest and ledger fit changed files, as a forger would."""

    def work(path: Path, **documents):
        for name, document in documents.items():
            (path / f"{name}.json").write_bytes(pretty_json(document))
        sealed(path)

    return work


@pytest.fixture
def fuaudit(monkeypatch, capsys):
    """The command line in this process: arguments in; exit code, standard output and standard error out."""

    def work(*arguments):
        monkeypatch.setattr(sys, "argv", ["fuaudit", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return work


@pytest.fixture(scope="session")
def bytes_of():
    """Path -> content of every file of a folder."""

    def work(folder):
        return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}

    return work
