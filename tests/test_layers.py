"""The house: imports point one way, no global generator, no assert for inputs. Read from the syntax trees."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import house  # noqa: E402

LEVELS = [
    {"errors", "from_source", "progress", "text"},
    {"renamed"},
    {"declared", "options", "statistics"},
    {"registry", "terminal", "draws", "reading", "budgets"},
    {"config", "describe", "plans", "formats"},
    {"data", "models", "secure"},
    {"training", "commitments"},
    {"unlearning", "workers"},
    {"proofs", "runs"},
    {"workflow", "verification", "importing"},
    {"replicas"},
    {"audits"},
    {"reporting", "testing"},
    {"plugins"},
    {"demo", "new", "selftest"},
    {"cli"},
]
"""What is below may be imported; rooms of one level do not know each other."""

SOURCES = sorted(ROOT.glob("fuaudit/**/*.py"))
PLUGINS = sorted(ROOT.glob("plugins/**/*.py"))
BY_STRANGERS = [*PLUGINS, *sorted(ROOT.glob("examples/**/*.py")), *sorted(ROOT.glob("fuaudit/new/templates/*.py"))]
"""Plugins as anybody may write them."""


@cache
def tree_of(path):
    return ast.parse(path.read_text(), str(path))


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def imported(path):
    """The modules that a file imports, also inside functions, but not for type checking only."""
    tree = tree_of(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}: imports are written in full"
    yield from house.imported(tree)


def room(module):
    parts = module.split(".")
    return parts[1] if parts[0] == "fuaudit" and len(parts) > 1 else None


def level(name):
    return next((number for number, rooms in enumerate(LEVELS) if name in rooms), None)


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_imports_point_one_way(path):
    own = path.relative_to(ROOT / "fuaudit").parts[0].removesuffix(".py")
    if own == "__init__":
        return
    assert level(own) is not None, f"{own} has no place in the order of rooms"
    for module in imported(path):
        other = room(module)
        if other is None or other == own:
            continue
        assert level(other) is not None, f"{module} has no place in the order of rooms"
        assert level(other) < level(own), f"{name_of(path)} imports {module} from above or beside it"


def test_registry_and_config_know_what_is_below_only():
    allowed = {
        "registry.py": {"declared", "errors", "from_source", "options", "renamed"},
        "config.py": {"budgets", "declared", "errors", "options", "reading", "registry"},
    }
    for name, rooms in allowed.items():
        assert {room(module) for module in imported(ROOT / "fuaudit" / name)} - {None} <= rooms


def test_statistics_know_numbers_only():
    for path in (ROOT / "fuaudit" / "statistics").rglob("*.py"):
        assert {room(module) for module in imported(path)} <= {None, "statistics"}, name_of(path)


def test_what_reads_runs_imports_nothing_that_writes_them():
    """No audit trusts the code that made a run's files, but for ``derived_files``, the specification of both."""
    for reader in ("runs", "verification", "replicas", "audits", "reporting"):
        for path in (ROOT / "fuaudit" / reader).rglob("*.py"):
            assert "workflow" not in map(room, imported(path)), name_of(path)


@pytest.mark.thorough
def test_what_reads_runs_changes_no_file():
    """The rooms that write are ``workflow`` and, beside a run, ``verification/store.py`` and ``reporting``.

    Pairs of repeated sampling keep a folder of their own.
    """
    for reader in ("runs", "replicas", "audits", "verification"):
        for path in (ROOT / "fuaudit" / reader).rglob("*.py"):
            if name_of(path) not in WRITERS:
                assert not list(writes(tree_of(path))), name_of(path)


WRITERS = {"fuaudit/verification/store.py", "fuaudit/replicas/pairs.py"}
WRITING = {
    "append_line", "hardlink_to", "locked", "make_folder", "mkdir", "plot", "rename", "rmtree", "save_file",
    "symlink_to", "touch", "unlink", "write_bytes", "write_folder", "write_text",
}  # fmt: skip


def writes(tree):
    """What changes files, by its name; ``open`` where its mode is another than reading."""
    for node in ast.walk(tree):
        named = getattr(node, "id", getattr(node, "attr", ""))
        if named in WRITING or (named == "shutil") or ast.unparse(node) == "os.replace":
            yield named
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "open":
            modes = [
                one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)
            ]
            if any(set(mode) <= set("rwaxbt+") and set(mode) & set("wax+") for mode in modes):
                yield "open"


@pytest.mark.parametrize(
    "line",
    [
        "with open(p, 'w') as f: pass",
        "p.open('ab')",
        "plot(seen, terms, p)",
        "p.touch()",
        "shutil.move(p, q)",
        "os.replace(p, q)",
    ],
)
def test_these_lines_change_files(line):
    assert list(writes(ast.parse(line)))
    assert not list(writes(ast.parse("with open(p, 'rb') as f: text.replace('a', 'w')")))


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_fuaudit_reaches_plugins_by_entry_points_only(path):
    assert not [m for m in imported(path) if m.split(".")[0] in ("fuaudit_plugins", "plugins")]


@pytest.mark.parametrize("path", BY_STRANGERS, ids=name_of)
def test_plugins_are_written_with_one_module(path):
    used = {module.rpartition(".")[0] for module in imported(path) if module.split(".")[0] == "fuaudit"}
    # a script that leads runs has the verbs of fuaudit, too
    assert used <= {"fuaudit.plugins", *(["fuaudit"] if path.parent.name == "examples" else [])}


def test_the_module_for_authors_names_everything_once():
    """What type checkers read, what is looked up, and what is listed are the same; all of it lies below."""
    from fuaudit import plugins

    (block,) = (node for node in tree_of(Path(plugins.__file__)).body if isinstance(node, ast.If))
    checked = {alias.name: node.module for node in block.body for alias in node.names}
    assert sorted(checked) == sorted(plugins.__all__) == dir(plugins)
    for name, home in checked.items():
        assert getattr(plugins, name) is getattr(importlib.import_module(home), name)
        assert level(room(home)) < level("plugins")
    with pytest.raises(AttributeError, match="no attribute 'Pland'"):
        _ = plugins.Pland


def test_the_module_for_authors_is_light():
    script = "import sys, fuaudit.plugins as p; assert p.__all__ and dir(p); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "fuaudit.plugins" in loaded
    assert not {"torch", "numpy", "fuaudit.draws", "fuaudit_plugins"} & loaded


GLOBAL = {
    "torch": {
        "bernoulli", "dropout", "initial_seed", "manual_seed", "multinomial", "normal", "poisson", "rand", "rand_like",
        "randint", "randint_like", "randn", "randn_like", "randperm", "seed", "set_rng_state",
    },
}  # fmt: skip
IN_PLACE = {"bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_", "random_", "uniform_"}


@pytest.mark.parametrize("path", [*SOURCES, *PLUGINS], ids=name_of)
def test_no_global_generator(path):
    """Only NumPy's Generator over an explicit bit generator; nothing of ``random``, nor torch's own draws."""
    assert not list(global_draws(tree_of(path))), name_of(path)


def global_draws(tree):
    """What draws from a generator of the process, by line; names that an import gives are read as what they stand for.

    To look at a generator is not to draw from it.
    """
    known = dict(full_names(tree))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Name | ast.Attribute):
            continue
        first, *rest = ast.unparse(node).split(".")
        *owner, name = [*known.get(first, first).split("."), *rest]
        owner = ".".join(owner)
        draws = (
            name in GLOBAL.get(owner, ())
            or (owner == "random" and first in known)
            or (owner == "numpy.random" and name not in ("Generator", "Philox"))
            or (owner == "torch.random" and name != "fork_rng")
            or owner.endswith("nn.init")
            or (isinstance(node, ast.Attribute) and name in IN_PLACE)
        )
        if draws and name not in ("getstate", "get_state", "get_rng_state"):
            yield f"line {node.lineno}: {owner}.{name}"


def full_names(tree):
    """Name here -> full name, for all that is imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom):
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


@pytest.mark.parametrize(
    "code",
    [
        "from torch import randn\nrandn(3)",
        "import random as r\nr.random()",
        "import numpy.random as n\nn.rand()",
        "from numpy.random import default_rng\ndefault_rng()",
        "import numpy as np\nnp.random.rand()",
        "import torch as th\nth.rand(3)",
        "import torch\ntorch.nn.init.zeros_(x)",
        "x.normal_()",
    ],
)
def test_these_lines_draw_from_a_global_generator(code):
    assert list(global_draws(ast.parse(code)))
    assert not list(global_draws(ast.parse("from numpy.random import Philox\nimport torch\nPhilox(1), torch.zeros(3)")))


def narrows(test):
    """Whether an assertion only tells a type checker what is known already."""
    if isinstance(test, ast.BoolOp):
        return all(map(narrows, test.values))
    if isinstance(test, ast.Compare):
        return isinstance(test.ops[0], ast.IsNot) and ast.unparse(test.comparators[0]) == "None"
    return isinstance(test, ast.Call) and ast.unparse(test.func) == "isinstance"


@pytest.mark.parametrize("path", [*SOURCES, *PLUGINS], ids=name_of)
def test_no_assert_for_inputs(path):
    if name_of(path).startswith("fuaudit/testing/"):
        return  # a contract suite speaks in assertions
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Assert):
            assert narrows(node.test), f"{name_of(path)}:{node.lineno}: {ast.unparse(node)}"


@pytest.mark.thorough
def test_no_bare_except():
    for path in [*SOURCES, *PLUGINS]:
        for node in ast.walk(tree_of(path)):
            assert not (isinstance(node, ast.ExceptHandler) and node.type is None), f"{name_of(path)}:{node.lineno}"


def test_the_first_import_is_light():
    """Neither torch nor NumPy nor any plugin is imported before a command needs it."""
    script = "import sys, fuaudit, fuaudit.cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "fuaudit.cli" in done.stdout.split()
    assert not {"torch", "numpy", "rich", "fuaudit_plugins"} & set(done.stdout.split())


def test_what_is_installed_has_every_package():
    """An editable install finds folders that a built one would leave out."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in ROOT.glob("fuaudit/**/__init__.py")}
    assert sorted(listed) == sorted(folders | {"fuaudit_plugins", "fuaudit_specs"})


def test_no_page_has_a_place_still_to_be_filled():
    """A line that is one word in capitals was meant to be replaced."""
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        empty = [line for line in path.read_text().splitlines() if re.fullmatch("[A-Z0-9_]{5,}", line)]
        assert not empty, path
