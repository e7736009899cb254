"""`fuaudit new`: packages of all kinds install beside fuaudit, and their tests pass as written."""

import json
import re
import shutil
import sys
import tomllib

import pytest
from click.testing import CliRunner
from tests_support import by_pip, run

from fuaudit import registry
from fuaudit.cli.commands import cli
from fuaudit.errors import UsageError
from fuaudit.new.package import KINDS, class_of, new, package

PLACES = re.compile(r"\{(name|kind|module|plugin|group|article|Article|use|check|option|wrong|more)\}")


@pytest.mark.thorough
def test_all_kinds_install_and_pass_their_tests(tmp_path, monkeypatch):
    """One goes through pip. What the projects of the others say is laid beside it, as pip would.

    Tests of the one that is not installed run beside its folder, which has the name of the module in it.
    """
    folders = {kind: tmp_path / f"our-{kind}" for kind in KINDS} | {"aggregator": tmp_path / "our_aggregator"}
    for kind, folder in folders.items():
        done = CliRunner().invoke(cli, ["new", kind, f"our-{kind}", "--out", str(folder), "--json"])
        assert done.exit_code == 0, done.output
        assert all((folder / file).is_file() for file in json.loads(done.output)["files"])
    site = by_pip(folders["transport"], tmp_path / "pip")
    for kind in KINDS.keys() - {"transport"}:
        laid(folders[kind], site)
    monkeypatch.syspath_prepend(str(site))
    names = {name for kind in registry.KINDS for name in registry.entries(kind)}
    assert names >= {f"our-{kind}" for kind in KINDS}
    (site / "our_aggregator.py").unlink()
    pytests = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "our_aggregator/pyproject.toml")
    tests = [str(folder / "tests") for folder in folders.values()]
    found = run(*pytests, *tests, cwd=tmp_path, PYTHONPATH=str(site), PYTHONDONTWRITEBYTECODE="1")
    assert "22 passed" in found


def laid(folder, site):
    """A package that says in its project what it consists of."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    (module,), name = project["tool"]["setuptools"]["py-modules"], project["project"]["name"]
    shutil.copy(folder / f"{module}.py", site)
    info = site / f"{module}-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    ((group, entries),) = project["project"]["entry-points"].items()
    (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *map(" = ".join, entries.items()), ""]))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Mine", "cannot be the name of a plugin"),
        ("my_method", "cannot be the name of a plugin"),
        ("-mine", "cannot be the name of a plugin"),
        ("../mine", "cannot be the name of a plugin"),
        ("m" * 61, "cannot be the name of a plugin"),
        ("fats", "there is a plugin of that name already: unlearner 'fats' of fuaudit"),
        ("class", "is already a word or a module of Python"),
        ("json", "is already a word or a module of Python"),
        ("fuaudit", "is already a word or a module of Python"),
        ("rich-click", None),
    ],
)
def test_names_are_checked(tmp_path, name, said):
    if said is None:
        assert new("unlearner", name, tmp_path / "new")
        return
    with pytest.raises(UsageError, match=said):
        new("unlearner", name, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_an_aggregator_cannot_have_the_name_of_a_stage(tmp_path):
    with pytest.raises(UsageError, match="stage 'momentum'"):
        new("aggregator", "momentum", tmp_path / "new")


def test_nothing_is_overwritten(tmp_path):
    for place in ("folder", "file"):
        (tmp_path / "folder").mkdir(exist_ok=True)
        (tmp_path / "file").write_text("kept")
        with pytest.raises(UsageError, match="is not overwritten"):
            new("model", "our-model", tmp_path / place)
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["provenance", "dataset", "request", "finding"])
def test_whatever_the_name_the_files_are_whole(kind, name):
    files = package(kind, name)
    imports = [line for line in files[f"{name}.py"].split("\n") if "import" in line]
    assert not [line for line in imports if class_of(kind, name) in line.replace(",", " ").split()]
    assert "xample" not in files[f"{name}.py"]
    assert not [text for text in files.values() if PLACES.search(text)]


def test_classes_do_not_repeat_the_kind():
    assert class_of("audit", "our-audit") == "OurAudit"
    assert class_of("dataset", "dataset") == "DatasetDataset"
