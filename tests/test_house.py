"""The house on paper: its measures find what they are meant to find, and picture and page tell of the code as it is."""

import ast
import re
import sys
import tomllib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from house import circles, duplicates, measures, opened, picture, upwards, words  # noqa: E402
from test_layers import LEVELS  # noqa: E402

ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
SAME = """
def {0}({1}):
    found = []
    for each in {1}:
        found.append(each.size * {2})
    if not found:
        raise ValueError("none")
    return sorted(found)
"""


@pytest.fixture
def built(tmp_path):
    """A house of the sources given by path, with two rooms: `low` under `high`."""

    def work(**sources):
        files = {"tests/test_layers.py": 'LEVELS = [{"low"}, {"high"}]', "fuaudit/__init__.py": ""}
        for name, text in (files | {f"fuaudit/{name}.py": text for name, text in sources.items()}).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return opened(tmp_path)

    return work


@pytest.fixture(scope="module")
def house():
    return opened(ROOT)


@pytest.fixture(scope="module")
def drawn(house):
    return picture(house)


BESIDE = sorted(path for folder in ("benchmarks", "docs", "examples") for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", BESIDE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_what_lies_beside_the_code_imports_what_there_is(path):
    """Benchmarks take long and no test runs them: a name that was moved would be missed when one is needed."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "fuaudit":
            module = import_module(node.module)
            for alias in node.names:
                assert hasattr(module, alias.name) or find_spec(f"{node.module}.{alias.name}"), alias.name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                assert alias.name.split(".")[0] != "fuaudit" or find_spec(alias.name), alias.name


def test_an_import_upwards_is_found(built):
    assert upwards(built(low="def f():\n    import fuaudit.high", high="")) == {"fuaudit.low imports fuaudit.high"}
    assert not upwards(built(low="", high="import fuaudit.low"))


def test_a_circle_is_found(built):
    assert circles(built(low="import fuaudit.high", high="from fuaudit.low import f").arrows()) == {
        "fuaudit.high fuaudit.low"
    }
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import fuaudit.high"
    house = built(low=typed, high="import fuaudit.low")
    assert not circles(house.arrows())
    assert circles(house.arrows(types=True)) == {"fuaudit.high fuaudit.low"}


def test_a_duplicate_is_found_under_other_names(built):
    one, other = SAME.format("one", "rows", 2), SAME.format("other", "columns", 3)
    assert len(duplicates(built(low=one, high=other))) == 1
    assert not duplicates(built(low=one, high=other.replace("sorted(found)", "found").replace("not found", "found")))


def test_words_parameters_and_any_are_counted(built):
    text = (
        "import os\nfrom typing import Any\n"
        "def f(x: Any, *, y: list[Any]) -> Any:\n    return getattr(x, 'wish', 0), hasattr(os, 'sync')\n"
        "class A:\n    def _g(self, a: Any): ...\n    def h(self): ...\n"
    )
    values = {each.name: each.value for each in measures(built(low=text, high=SAME.format("one", "rows", 1)))}
    assert values["plugin words read by getattr or hasattr"] == "1"
    assert values["bare Any in signatures of public functions"] == "2"
    assert values["parameters of a function, at most"] == "2"
    assert values["methods of a class, at most"] == "2"
    assert values["functions"] == "4"
    assert values["lines of the longest function"] == "6"


def test_words_in_loops_over_literals_are_counted(built):
    text = (
        "TABLE = Word('needs', frozenset), Word('cite', str), Word('uses', frozenset)\n"
        "def f(x, some):\n"
        "    for word, why in (('needs', 'a'), ('cite', 'b'), ('other', 'uses')):\n        getattr(x, word, why)\n"
        "    for option in some:\n        getattr(x, option)\n"
        "    return [getattr(x, each) for each in ('uses', 'needs')]\n"
    )
    assert {each.partition(":")[0] for each in words(built(low=text, high=""))} == {"needs", "cite", "uses"}


@pytest.mark.thorough
def test_this_house_has_no_circle_and_no_import_upwards(house):
    assert not circles(house.arrows(types=True))
    assert not upwards(house)


def test_the_picture_is_that_of_the_code(drawn):
    assert (ROOT / "docs" / "architecture.svg").read_text() == drawn, "run python benchmarks/house.py --picture"


def test_every_room_lies_on_the_paper_of_the_picture(drawn):
    paper = ElementTree.fromstring(drawn)
    wide, high = map(float, paper.get("viewBox").split()[2:])
    boxes = [each for each in paper.iter() if each.get("class") == "box"]
    assert len(boxes) == sum(map(len, LEVELS))
    for box in boxes:
        x, y, width, height = (float(box.get(name)) for name in ("x", "y", "width", "height"))
        assert 0 <= x <= wide - width
        assert 0 <= y <= high - height
    assert "`" not in "".join(paper.itertext())


def test_the_page_names_files_that_are_there():
    walks = ARCHITECTURE.partition("## Four walks")[2].partition("## Nine questions")[0]
    named = re.findall(r"`((?:fuaudit|plugins)/[\w/]+\.py)`", walks)
    assert len(named) > 30
    assert not [name for name in named if not (ROOT / name).is_file()]


def test_the_answers_lead_to_files_and_folders_that_are_there():
    rows = re.findall(r"^\| [^|]+\? \| ([^|]+) \|$", ARCHITECTURE, re.MULTILINE)
    assert len(rows) == 9
    for row in rows:
        assert ROOT.joinpath(*re.findall(r"`([\w/.]+)`", row)).exists(), row


def test_the_page_has_the_levels_of_the_rule():
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", ARCHITECTURE, re.MULTILINE)
    found = {int(number): set(re.findall(r"`(\w+)`", rooms)) for number, rooms in rows}
    assert found == dict(enumerate(LEVELS, 1))


def test_the_measures_need_nothing_but_python():
    tree = ast.parse((ROOT / "benchmarks" / "house.py").read_text())
    modules = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {module.partition(".")[0] for module in modules} <= sys.stdlib_module_names


def test_the_citation_has_this_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"\nversion: {project['version']}\n" in (ROOT / "CITATION.cff").read_text()
