"""New: a package with one plugin, its tests and its README. It installs, and its tests pass as written."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from fuaudit import registry
from fuaudit.errors import UsageError

LONGEST = 60
"""Characters of a name."""

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclass(frozen=True)
class Kind:
    """What can be begun.

    Attributes:
        groups: where it is registered; others that share its names follow.
        tests: the module of tests, below its docstring.
        use: how it is used, for the README.
    """

    groups: tuple[str, ...]
    tests: str
    use: str


def filled(text: str, words: dict[str, str]) -> str:
    """A text with words in the places that name them in braces; other braces stay."""
    return re.sub(r"\{(\w+)\}", lambda found: words.get(found[1], found[0]), text)


_CONTRACT = """\
from {module} import {plugin}

from fuaudit.plugins import {check}


def test_it_keeps_the_contract():
    {check}({plugin}(){more})
"""

_OPTIONS = """

def test_options_are_checked():
    with pytest.raises(UsageError, match="{option}"):
        {plugin}({option}={wrong})
"""

_ROWS = """\
import pytest
from {module} import {plugin}

from fuaudit.plugins import UsageError, check_dataset


def written(root, last):
    lines = [f"{row},{row * row},{row % 2}" for row in range(20)]
    (root / "{name}.csv").write_text("\\n".join([*lines, last]) + "\\n")
    return root


def test_it_keeps_the_contract(tmp_path):
    check_dataset({plugin}(), written(tmp_path, "20,400,0"))


@pytest.mark.parametrize("last", ["20,400,0.5", "20,word,0", "20,400"])
def test_bad_rows_are_refused(tmp_path, last):
    with pytest.raises(UsageError, match="{name}.csv"):
        {plugin}().load(written(tmp_path, last))
"""


def _tests(check: str, option: str = "", wrong: str = "", more: str = "") -> str:
    """A module of tests: of the contract, and of an option that is given a wrong value."""
    text = filled(_CONTRACT, {"check": check, "more": more})
    if not option:
        return text
    text = text.replace("import check", "import UsageError, check")
    return "import pytest\n" + text + filled(_OPTIONS, {"option": option, "wrong": wrong})


def _config(table: str, line: str, root: str = "") -> str:
    """How a plugin is used that a config names."""
    return f'# in a config:\n# {table}\n# use = "{{name}}"\n# {line}\nfuaudit train CONFIG{root}'


KINDS = {
    "unlearner": Kind(
        ("unlearners",),
        _tests("check_unlearner"),
        "fuaudit prove {name} --up-to 2           # looks for a small federation that refutes it\n"
        "fuaudit unlearn RUN --with {name} --client 0",
    ),
    "editor": Kind(
        ("unlearners",),
        _tests("check_unlearner", "share", "2.0"),
        "fuaudit unlearn RUN --with {name} --client 0 --option share=0.5",
    ),
    "client-stage": Kind(
        ("client_stages", "byzantine"),
        _tests("check_client_stage", "share", "0.0"),
        _config("[[client]]", "share = 0.5"),
    ),
    "agreement": Kind(
        ("client_stages", "byzantine"),
        _tests("check_agreement", "keep", "0"),
        _config("[[client]]", "keep = 50"),
    ),
    "adversary": Kind(
        ("adversaries",),
        _tests("check_adversary", "label", "-1"),
        _config("[[adversary]]", "clients = [0]"),
    ),
    "byzantine-client": Kind(
        ("byzantine", "client_stages"),
        _tests("check_byzantine", "scale", "0.0"),
        _config("[[client]]", "clients = [0]"),
    ),
    "transport": Kind(("transports",), _tests("check_transport", "size", "1"), _config("[transport]", "size = 2")),
    "aggregator": Kind(
        ("aggregators", "stages"), _tests("check_aggregator", "norm", "0.0"), _config("[[server]]", "norm = 1.0")
    ),
    "audit": Kind(
        ("audits",),
        _tests("check_audit", more=', {"training": "NOT_APPLICABLE", "noop": "FAIL", "retrain": "PASS"}'),
        '# in a spec:\n# [[check]]\n# claim = "The model changed"\n# audit = { use = "{name}" }\n'
        '# role = "supporting"\nfuaudit verify RUN --spec SPEC',
    ),
    "model": Kind(("models",), _tests("check_model", "hidden", "0"), _config("[model]", "hidden = 16")),
    "dataset": Kind(("datasets",), _ROWS, _config("[data]", "classes = 2", " --data ROOT")),
}
"""What can be begun, by the word of the command line."""

PROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "0.1.0"
description = "{article} {kind} for fuaudit"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["fuaudit"]

[project.entry-points."fuaudit.{group}"]
{name} = "{module}:{plugin}"

[tool.setuptools]
py-modules = ["{module}"]

[tool.pytest.ini_options]
pythonpath = ["."]  # else a folder of the module's name hides the module
"""

README = """\
# {name}

{Article} {kind} for fuaudit, `{plugin}` in `{module}.py`. The line under `[project.entry-points."fuaudit.{group}"]` in
`pyproject.toml` registers it. Change the class, its docstring and its tests; its name stands in
`pyproject.toml`, and in the module where that uses it.

```sh
pip install --no-deps --no-build-isolation --editable .   # needs setuptools >= 77; without the options pip fetches it
pytest                                                    # holds the plugin to its contract
fuaudit plugins {name}
{use}
```

fuaudit's docs/plugin-guide.md explains the pieces.
"""


def new(kind: str, name: str, folder: Path) -> tuple[str, ...]:
    """Write a package with one plugin; the names of its files.

    Raises:
        UsageError: the name cannot be used, or is taken; there is something in the place of the folder.
        StorageError: the file system refused.
    """
    require_free(kind, name)
    if folder.exists() or folder.is_symlink():
        raise UsageError(f"{folder} is there already, and is not overwritten", "Choose another folder with --out.")
    contents = package(kind, name)
    from fuaudit.formats.files import write_folder

    write_folder(folder, {path: text.encode() for path, text in contents.items()})
    return tuple(contents)


def require_free(kind: str, name: str) -> None:
    """Raises UsageError where a plugin of that kind cannot have a name, or a plugin, module or package has it."""
    if not _NAME.fullmatch(name) or len(name) > LONGEST:
        raise UsageError(
            f"{name!r} cannot be the name of a plugin",
            f"Names are lower-case words of a to z and 0 to 9 with hyphens between them, at most {LONGEST} characters.",
        )
    for group in KINDS[kind].groups:
        if name in (known := registry.entries(group)):
            raise UsageError(f"there is a plugin of that name already: {known[name]}", "Choose another name.")
    module = module_of(name)
    found = None if keyword.iskeyword(module) else find_spec(module)
    if keyword.iskeyword(module) or (found is not None and found.origin is not None):
        raise UsageError(f"{module!r} is already a word or a module of Python here", "Choose another name.")
    try:
        distribution(name)
    except PackageNotFoundError:
        return
    raise UsageError(f"a package called {name!r} is installed already", "Choose another name.")


def module_of(name: str) -> str:
    """The module of a plugin."""
    return name.replace("-", "_")


def class_of(kind: str, name: str) -> str:
    """The class of a plugin: its name, with the kind behind it, so that it is no name that its module imports."""
    words = name.split("-")
    of = kind.split("-")
    named = words[: -len(of)] if len(words) > len(of) and words[-len(of) :] == of else words
    return "".join(word.capitalize() for word in (*named, *of))


def package(kind: str, name: str) -> dict[str, str]:
    """The files of a package, by their paths."""
    chosen, article = KINDS[kind], "an" if kind[0] in "aeu" else "a"
    words = {
        "name": name,
        "kind": kind.replace("-", " "),
        "module": module_of(name),
        "plugin": class_of(kind, name),
        "group": chosen.groups[0],
        "article": article,
        "Article": article.capitalize(),
    }
    words["use"] = filled(chosen.use, words)
    template = (files("fuaudit.new.templates") / f"{module_of(kind)}.py").read_text(encoding="utf-8")
    module = template.replace(class_of(kind, "example"), words["plugin"]).replace("example-name", name)
    tests = filled('"""{name}: the contract of {article} {kind}."""\n\n' + chosen.tests, words)
    return {
        "pyproject.toml": filled(PROJECT, words | {"article": words["Article"]}),
        "README.md": filled(README, words),
        f"{words['module']}.py": module,
        f"tests/test_{words['module']}.py": tests,
    }
