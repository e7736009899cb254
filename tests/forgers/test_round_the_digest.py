"""A forger leads code that runs past the digest by which a PASS names it.

The digest is over the files of a distribution. Code goes round it where a module has a name that nobody looks for, was
imported before, lies among notes, stands elsewhere on the search path, or is on no list. So what every module was
compiled from is compared with what was digested, before the audits and after them; what fuaudit did not compile is
named.
"""

import importlib
import importlib.util
import os
import py_compile
import sys
from textwrap import dedent

import pytest
from tests_support import AUDIT_KEY, config, secret

from fuaudit import registry, train, unlearn, verify
from fuaudit.errors import PluginError
from fuaudit.plans import Request
from fuaudit.verification.evidence import Evidence
from fuaudit.verification.outside import keeping_to, outside_code
from fuaudit.verification.spec import parse_spec
from fuaudit.workers import Processes

AUDIT = """
import importlib
import sys
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fuaudit.verification.finding import Finding, Subject, Verdict

BEFORE


def which():
    IMPORT
    return helper.WHICH


@dataclass(frozen=True)
class Looks:
    evidence: ClassVar[frozenset[str]] = frozenset({"files", "execution", "provenance", "regeneration"})
    uses: ClassVar[frozenset[str]] = frozenset()

    def examine(self, case):
        return Finding("looks", Subject.RUN, Verdict.PASS, f"This code is {which()}.", "Anything else.")


class Job:
    digest = "of a work"

    def compute(self, shard, threads):
        return {"which": np.array([len(which())])}
"""
ENTRIES = "[fuaudit.audits]\nlooks = led_round:Looks\n"
NAMES = ("led_round", "led_help", "led-help", "led_package", "led_other", "Led_help", "plain")
SPEC = {
    "id": "ours",
    "asks": "run",
    "out_of_scope": ["all else"],
    "check": [{"claim": "files", "audit": {"use": "looks"}}],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("led")
    parent = train(config(), root / "parent", secret=secret(3))
    return unlearn(parent, "fats", Request.of([0]), root / "child")


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs files as a distribution that lists some of them."""
    path, finders = list(sys.path), list(sys.meta_path)

    def work(files, listed=(), site="site", entries=ENTRIES, name="led-round"):
        folder = tmp_path / site
        info = f"{name.replace('-', '_')}-1.0.dist-info"
        notes = {"METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", "entry_points.txt": entries}
        for place, text in {**files, **{f"{info}/{note}": text for note, text in notes.items()}}.items():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            (folder / place).write_text(text)
        (folder / info / "RECORD").write_text("".join(f"{place},,\n" for place in listed))
        monkeypatch.syspath_prepend(str(folder))
        return folder

    yield work
    sys.path[:], sys.meta_path[:] = path, finders
    for module in [module for module in sys.modules if module.partition(".")[0] in NAMES]:
        del sys.modules[module]


def code(statement, before=""):
    return AUDIT.replace("IMPORT", statement).replace("BEFORE", before)


def hide(source, hidden='WHICH = "hidden"\n'):
    """Bytecode that says something else, of the kind that nobody compares."""
    other = source.with_suffix(".txt")
    other.write_text(hidden)
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    cached = importlib.util.cache_from_source(str(source))
    py_compile.compile(str(other), cached, str(source), invalidation_mode=unchecked)
    other.unlink()


def judged(run):
    """What the code says that ran, its digest, and what was not compiled."""
    result = verify(run, parse_spec(SPEC, "ours.toml"), key=AUDIT_KEY, save=False)
    assert result.verdict == "PASS", result.reason
    (named,) = result.context["outside"]
    assert named["name"] == "led-round"
    assert len(named["digest"]) == 64, named["covers"]
    assert named["digest"] in result.findings[0].assumptions[0]
    return result.findings[0].shows, named["digest"], named["uncompiled"]


def moved_on(run, file):
    """Another digest after another byte in a file, in a process that has imported nothing of it."""
    first = judged(run)
    for module in [module for module in sys.modules if module.partition(".")[0] in NAMES]:
        del sys.modules[module]
    file.write_text(file.read_text() + "# another one\n")
    return first[1] != judged(run)[1]


# 1. names that are no identifiers


def test_a_module_whose_name_is_no_identifier(install, run):
    site = install(
        {"led_round.py": code('helper = importlib.import_module("led-help")'), "led-help.py": 'WHICH = "read"\n'},
        ["led_round.py", "led-help.py"],
    )
    hide(site / "led-help.py")
    shows, _, uncompiled = judged(run)
    assert (shows, uncompiled) == ("This code is read.", ())
    assert moved_on(run, site / "led-help.py")


# 2. imported before


def test_another_package_imported_it_before(install, run):
    """The other one registers nothing of use here; it is loaded first."""
    site = install(
        {"led_round.py": code("import led_help as helper"), "led_help.py": 'WHICH = "read"\n'},
        ["led_round.py", "led_help.py"],
    )
    other = "[fuaudit.models]\nled = led_other:Model\n"
    text = "import led_help\nfrom dataclasses import dataclass\n\n\n@dataclass(frozen=True)\nclass Model:\n    pass\n"
    install({"led_other.py": text}, ["led_other.py"], "other", other, "led-other")
    hide(site / "led_help.py")
    registry.find("models", "led").value()
    assert judged(run)[::2] == ("This code is read.", ())


def test_python_imported_it_as_it_began(install, run):
    """A line of a .pth file does that. Nothing can be compiled any more, so it is named."""
    site = install(
        {"led_round.py": code("import led_help as helper"), "led_help.py": 'WHICH = "read"\n'},
        ["led_round.py", "led_help.py"],
    )
    hide(site / "led_help.py")
    finders = list(sys.meta_path)
    sys.meta_path[:] = [finder for finder in finders if "fuaudit" not in type(finder).__module__]
    importlib.import_module("led_help")
    sys.meta_path[:] = finders
    result = verify(run, parse_spec(SPEC, "ours.toml"), key=AUDIT_KEY, save=False)
    assert result.findings[0].shows == "This code is hidden."
    assert "1 module not compiled from it" in result.reason
    assert any("so not held to the digest: 'led_help'" in line for line in result.conclusion.rests_on)


# 3. among notes


@pytest.mark.parametrize(
    ("folder", "listed"),
    [
        ("led_round-1.0.dist-info", True),
        ("led_round-1.0.dist-info", False),
        ("led_round-1.0.dist-info/licenses", False),
        ("../lib", True),
    ],
)
def test_a_module_among_notes(install, run, folder, listed):
    files = {f"{folder}/led_help.py": 'WHICH = "read"\n'}
    site = install(files, [*(files if listed else ()), "led_round.py"])
    insert = f"sys.path.insert(0, {str(site / folder)!r})"
    (site / "led_round.py").write_text(code("import led_help as helper", insert))
    hide(site / folder / "led_help.py")
    assert judged(run)[::2] == ("This code is read.", ())
    assert moved_on(run, site / folder / "led_help.py")


def test_a_source_in_a_folder_of_bytecode(install, run):
    files = {"led_package/__init__.py": code("import led_package.__pycache__.led_help as helper")}
    hidden = "led_package/__pycache__/led_help.py"
    site = install({**files, hidden: 'WHICH = "read"\n'}, files, entries=ENTRIES.replace("led_round", "led_package"))
    hide(site / hidden)
    assert judged(run)[::2] == ("This code is read.", ())
    assert moved_on(run, site / hidden)


# 4. elsewhere on the search path


@pytest.mark.parametrize("where", ["before fuaudit looks", "while it is imported", "while it audits"])
def test_a_module_that_lies_earlier_on_the_search_path(install, run, tmp_path, where, monkeypatch):
    """What an import finds is digested; what it would find only afterwards is refused."""
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier" / "led_help.py").write_text('WHICH = "shadow"\n')
    insert = f"sys.path.insert(0, {str(tmp_path / 'earlier')!r})"
    before = insert if where == "while it is imported" else ""
    then = f"{insert}\n    import led_help as helper" if where == "while it audits" else "import led_help as helper"
    files = {"led_round.py": code(then, before), "led_help.py": 'WHICH = "read"\n'}
    install(files, files)
    if where == "while it audits":
        result = verify(run, parse_spec(SPEC, "ours.toml"), key=AUDIT_KEY, save=False)
        assert result.verdict == "ERROR"
        assert "which is not the code that was digested" in result.findings[0].shows
        return
    if where == "before fuaudit looks":
        monkeypatch.syspath_prepend(str(tmp_path / "earlier"))
    assert judged(run)[0] == "This code is shadow."
    assert moved_on(run, tmp_path / "earlier" / "led_help.py")


def test_who_catches_the_refusal_is_refused_when_the_audit_has_ended(install, run, tmp_path):
    """Its own finder brings the module in, past fuaudit's."""
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier" / "led_help.py").write_text('WHICH = "shadow"\n')
    own = f"""
    import importlib.util
    spec = importlib.util.spec_from_file_location("led_help", {str(tmp_path / "earlier" / "led_help.py")!r})
    helper = sys.modules["led_help"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(helper)"""
    files = {"led_round.py": code(own), "led_help.py": 'WHICH = "read"\n'}
    install(files, files)
    with pytest.raises(PluginError, match=r"led-round 1\.0 runs code that its digest does not cover: led_help of"):
        verify(run, parse_spec(SPEC, "ours.toml"), key=AUDIT_KEY, save=False)


def test_a_file_that_is_exchanged_once_it_was_imported(install, run):
    """Anew in the same process, the digest would name what did not run."""
    site = install({"led_round.py": code("import plain as helper"), "plain.py": 'WHICH = "read"\n'}, ["led_round.py"])
    judged(run)
    (site / "led_round.py").write_text("# nothing to see here\n")
    with pytest.raises(PluginError, match="its digest does not cover: led_round of"):
        judged(run)


def test_who_edits_a_package_and_imports_it_anew_can_go_on(install, run):
    """An honest author in a notebook does that. What he imported first is named: functions of it may have been kept."""
    site = install({"led_round.py": code("import plain as helper"), "plain.py": 'WHICH = "read"\n'}, ["led_round.py"])
    first = judged(run)
    with (site / "led_round.py").open("a") as file:
        file.write("# a word more\n")
    importlib.reload(sys.modules["led_round"])
    again = judged(run)
    assert again[1] != first[1]
    assert again[2] == ("led_round",)


def test_a_module_that_puts_another_in_its_place(install, run):
    """It writes harmless code over its file, imports that, and leaves its own function in the new module."""
    before = """
        import importlib, sys
        from pathlib import Path
        file = Path(__file__)
        file.write_text(file.with_name("fine.txt").read_text())
        del sys.modules[__name__]
        importlib.invalidate_caches()
        fine = importlib.import_module(__name__)
        fine.which = lambda: "hidden"
    """
    fine = code("import plain as helper")
    site = install({"led_round.py": "", "plain.py": 'WHICH = "read"\n'}, ["led_round.py", "plain.py"])
    (site / "fine.txt").write_text(fine)
    (site / "led_round.py").write_text(dedent(before))
    assert judged(run)[2] == ("led_round",)


# 5. no list


@pytest.mark.parametrize("second", ["led_help.py", "led_help/__init__.py"])
@pytest.mark.parametrize("beside", [True, False], ids=["beside others", "editable"])
def test_a_second_module_of_a_distribution_that_lists_no_files(install, run, tmp_path, second, beside):
    site = install({"led_round.py": code("import led_help as helper"), second: 'WHICH = "read"\n'})
    info = site / "led_round-1.0.dist-info"
    (info / "RECORD").unlink()
    if beside:
        install({"led_other.py": ""}, ["led_other.py"], entries="", name="led-other")
    else:
        (tmp_path / "lists").mkdir()
        info.rename(tmp_path / "lists" / info.name)
        sys.path.insert(0, str(tmp_path / "lists"))
    hide(site / second)
    assert judged(run)[::2] == ("This code is read.", ())
    assert moved_on(run, site / second)
    if beside:
        assert not moved_on(run, site / "led_other.py")  # it is another's


def test_what_is_no_file_beside_a_module_is_passed_over(install, run, tmp_path):
    """An editor's lock is a link to nowhere; a pipe would never end."""
    site = install({"led_round.py": code("import led_help.inner as helper"), "led_help/inner.py": 'WHICH = "read"\n'})
    (site / "led_round-1.0.dist-info" / "RECORD").unlink()
    for folder in (site, site / "led_help", site / "led_round-1.0.dist-info"):
        (folder / ".#inner.py").symlink_to("somebody@somewhere.1234")
        os.mkfifo(folder / "pipe.py")
    assert judged(run)[::2] == ("This code is read.", ())


# relatives


def test_a_path_that_is_changed_as_the_package_is_imported(install, run, tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "led_help.py").write_text('WHICH = "far"\n')
    append = f"__path__.append({str(tmp_path / 'far')!r})"
    files = {"led_package/__init__.py": code("import led_package.led_help as helper", append)}
    install(files, files, entries=ENTRIES.replace("led_round", "led_package"))
    judged(run)
    (tmp_path / "far" / "led_help.py").write_text('WHICH = "other"\n')
    with pytest.raises(PluginError, match=r"its digest does not cover: led_package\.led_help of"):
        judged(run)


def test_a_finder_that_the_package_brings_along(install, run):
    finder = """
from importlib.machinery import ModuleSpec


class Own:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return ModuleSpec(name, Own, is_package=False) if name == "led_help" else None

    @staticmethod
    def create_module(spec):
        return None

    @staticmethod
    def exec_module(module):
        module.WHICH = "made up"


sys.meta_path.insert(0, Own)
"""
    files = {"led_round.py": code("import led_help as helper", finder), "led_help.py": 'WHICH = "read"\n'}
    install(files, files)
    shows, _, uncompiled = judged(run)
    assert (shows, uncompiled) == ("This code is made up.", ("led_help",))


def test_a_package_behind_a_link(install, run, tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "led_help.py").write_text('WHICH = "read"\n')
    files = {"led_package/__init__.py": code("import led_package.inner.led_help as helper")}
    site = install(files, files, entries=ENTRIES.replace("led_round", "led_package"))
    (site / "led_package" / "inner").symlink_to(tmp_path / "far", target_is_directory=True)
    hide(tmp_path / "far" / "led_help.py")
    assert judged(run)[::2] == ("This code is read.", ())
    assert moved_on(run, tmp_path / "far" / "led_help.py")


def test_one_name_in_two_folders(install, run):
    """Python takes the entry points of the first one alone, and so is the digest of the first."""
    later = install({"led_round.py": code("import plain as helper"), "plain.py": 'WHICH = "later"\n'}, ["led_round.py"])
    first = install(
        {"led_round.py": code("import plain as helper"), "plain.py": 'WHICH = "first"\n'}, ["led_round.py"], "first"
    )
    assert judged(run)[0] == "This code is first."
    assert moved_on(run, first / "led_round.py")
    assert not moved_on(run, later / "led_round.py")


def test_an_entry_point_that_names_a_module_of_another_distribution(install, run):
    other = install({"led_other.py": code("import plain as helper")}, ["led_other.py"], "o", "", "led-other")
    install({"plain.py": 'WHICH = "read"\n'}, ["plain.py"], entries=ENTRIES.replace("led_round", "led_other"))
    hide(other / "led_other.py", code('from types import SimpleNamespace as S; helper = S(WHICH="hidden")'))
    assert judged(run)[::2] == ("This code is read.", ())
    assert moved_on(run, other / "led_other.py")


@pytest.mark.thorough
def test_workers_refuse_what_the_audit_does_not_digest(install, run):
    """A worker that finds another file leaves the work to the process that began it."""
    files = {"led_round.py": code("import led_help as helper"), "led_help.py": 'WHICH = "read"\n'}
    site = install(files, files)
    spec = parse_spec(SPEC, "ours.toml")
    outside = outside_code(Evidence(run, None, None), spec)
    importlib.import_module("led_help")
    (site / "led_help.py").write_text('WHICH = "another"\n')
    job = sys.modules["led_round"].Job()
    assert [found["which"][0] for found in Processes(1).map(job, [(0,)])] == [len("another")]
    with keeping_to(outside), pytest.raises(ImportError, match="which is not the code that was digested"):
        list(Processes(1).map(job, [(0,)]))
