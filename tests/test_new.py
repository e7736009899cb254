"""`fuaudit new`: packages of all kinds install beside fuaudit, and their tests pass as written."""

import json
import os
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

from fuaudit.cli import cli
from fuaudit.errors import UsageError
from fuaudit.workflow.new import KINDS, class_of, new, package

PLACES = re.compile(r"\{(name|kind|module|plugin|group|article|Article|use|check|option|wrong)\}")
PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")


def run(*command, **environment):
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=900, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_all_kinds_install_and_pass_their_tests(tmp_path):
    folders = []
    for kind in KINDS:
        name = f"our-{kind}"
        done = CliRunner().invoke(cli, ["new", kind, name, "--out", str(tmp_path / name), "--json"])
        assert done.exit_code == 0, done.output
        assert all((tmp_path / name / file).is_file() for file in json.loads(done.output)["files"])
        folders.append(str(tmp_path / name))
    target = str(tmp_path / "packages")
    isolated = ["--no-build-isolation"] if modern() else []  # else pip fetches setuptools, which needs an index
    run(*PIP, *isolated, "--target", target, *folders)
    code = "from fuaudit import registry; print({n for k in registry.KINDS for n in registry.entries(k)})"
    names = run(sys.executable, "-c", code, PYTHONPATH=target)
    assert all(f"'our-{kind}'" in names for kind in KINDS)
    pytests = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path))
    tests = [f"{folder}/tests" for folder in folders]
    assert "12 passed" in run(*pytests, *tests, PYTHONPATH=target, PYTHONDONTWRITEBYTECODE="1")


def test_the_tests_run_beside_the_folder(tmp_path):
    """The folder has the name of the module in it."""
    new("aggregator", "ours", tmp_path / "ours")
    done = subprocess.run(
        (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "ours"),
        capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert " passed" in done.stdout, done.stdout


def modern():
    try:
        import setuptools
    except ImportError:
        return False
    return int(setuptools.__version__.split(".")[0]) >= 77


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
