"""Start-up: commands that need no model answer without importing what models and figures are made of."""

import json
import os
import subprocess
import sys

import pytest
import torch
from tests_support import NEEDED

from fuaudit.plans import Request
from fuaudit.registry import build, entries
from fuaudit.training.rounds import Outline, OutlineShape, StateShape
from fuaudit.training.stages import Chain
from fuaudit.verification.verify import verify
from fuaudit.workflow.train import train
from fuaudit.workflow.unlearn import unlearn

HEAVY = {"torch", "torchvision", "matplotlib", "scipy.stats", "sklearn", "opacus", "cryptography", "tenseal"}
MANY = """
import json, os, sys
from fuaudit.cli import main
for line in sys.stdin:  # each is one command, which ends a fork of a process that has imported the command line alone
    arguments, folder, out = json.loads(line)
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        for stream in (1, 2):
            os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
        sys.argv[:], code = ["fuaudit", *arguments], 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        print("\\nimported", *sys.modules, flush=True)
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
WATCH = """
import atexit, os, sys
atexit.register(lambda: print("imported", *sys.modules, file=sys.stderr))
from fuaudit.cli import main
sys.argv[0] = "fuaudit"
main()
"""


ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """A command in: which heavy libraries it imports, and what it prints; it ends with the exit code expected."""
    said = tmp_path_factory.mktemp("said") / "said.txt"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    server = subprocess.Popen([sys.executable, "-c", MANY], env=ENVIRONMENT, **pipes)

    def work(*arguments, cwd, expected=0):
        said.unlink(missing_ok=True)
        server.stdin.write(json.dumps([[*map(str, arguments)], str(cwd), str(said)]) + "\n")
        code = int(server.stdout.readline())
        *lines, last = said.read_text().splitlines()
        assert code == expected, lines
        word, *modules = last.split()
        assert (word, "fuaudit.cli" in modules) == ("imported", True)
        return HEAVY & set(modules), "\n".join(lines)

    with server:
        yield work
        server.stdin.close()


@pytest.fixture(scope="module")
def place(small_config, quick, tmp_path_factory):
    """A folder with a run, a child of it with findings, a child that nobody pruned, and a run with memories."""
    folder = tmp_path_factory.mktemp("startup")
    (folder / "rows.csv").write_text("a,b,c\nx,1,1\nx,0,2\ny,1,1\ny,0,2\n")
    run = train(small_config(rounds=2), folder / "run", secret=bytes(32))
    child = unlearn(run, "fats", Request.of([0]), folder / "child")
    verify(child, quick)
    learner = {"use": "scaffold", "scenario": "static", "probability": 0.5, "steps": 1, "batch": 2, "step_size": 0.1}
    server = [{"use": "mean"}, {"use": "momentum"}]
    spare = {"cohort": None} | small_config(rounds=2)["learner"]
    train(
        small_config() | {"learner": {"rounds": spare["rounds"], **learner}, "server": server},
        folder / "memories",
        secret=bytes(32),
    )
    return folder


LIGHT = {
    "help": (("--help",), 0),
    "help of a command": (("verify", "--help"), 0),
    "show": (("show", "child"), 0),
    "show, as JSON": (("show", "run", "--json"), 0),
    "show, a run with memories": (("show", "memories"), 0),
    "plugins": (("plugins",), 0),
    "history": (("history", "child"), 0),
    "report as JSON": (("report", "child", "--format", "json"), 0),
    "report as Markdown": (("report", "child", "--format", "md"), 0),
    "report as JUnit": (("report", "child", "--format", "junit"), 0),
    "report of a run without findings": (("report", "run"), 4),
    "prove": (("prove", "fats"), 0),
    "prove, a sweep": (("prove", "fats", "--up-to", "2", "--leaves", "200"), 0),
    "prove, an editor": (("prove", "finetune"), 2),
    "unlearn, nothing to forget": (("unlearn", "run", "--with", "fats"), 2),
    "unlearn, an unknown client": (("unlearn", "run", "--with", "fats", "--client", "77"), 2),
    "unlearn, an unknown method": (("unlearn", "run", "--with", "fatz", "--client", "0"), 2),
    "an unknown option": (("train", "x.toml", "--whatever"), 2),
    "an unknown command": (("shows", "run"), 2),
    "bad hexadecimal digits": (("verify", "child", "--commitment", "xyz"), 2),
    "a bad key": (("verify", "child", "--key", "12"), 2),
    "a bad sample": (("verify", "child", "--sample", "zero"), 2),
    "no config": (("train", "nowhere.toml"), 2),
    "one plugin": (("plugins", "fats"), 0),
    "no plugin": (("plugins", "fatz"), 2),
    "no rows to import": (("import", "nowhere.csv", "--client", "a", "--label", "b", "--out", "own"), 2),
    "rows to import": (("import", "rows.csv", "--client=a", "--label=b", "--out=own", "--test-share=.5"), 0),
    "a new plugin": (("new", "audit", "our-audit"), 0),
    "a budget of pure rounds": (("budget", "conspar", "--dim=9", "--per-client=2", "--alpha=.5", "--rounds=3"), 0),
    "a budget of a history that is none": (
        ("budget", "dpsgd", "--delta=1e-5", "--sampling=poisson", "--history=rows.csv"), 2
    ),
    "a budget without a law of batches": (("budget", "dpsgd", "--noise=1", "--delta=1e-5"), 2),
    "a budget without an alpha": (("budget", "conspar", "--dim=9", "--per-client=2"), 2),
    **{
        f"no run to {words[0]}": ((words[0], "nowhere", *words[1:]), 4)
        for words in (
            ("show",), ("history",), ("report",), ("verify",), ("verify", "--spec", "client-erasure"), ("resume",),
            ("prune", "--yes"), ("unlearn", "--with", "fats", "--client", "0"), ("receipt", "--client", "0"),
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("name", LIGHT)
def test_what_needs_no_model_imports_none(imported, place, name):
    arguments, expected = LIGHT[name]
    heavy, said = imported(*arguments, cwd=place, expected=expected)
    assert not heavy, said


def test_a_prune_imports_no_model(imported, small_config, tmp_path):
    run = train(small_config(rounds=2), tmp_path / "run", secret=bytes(32))
    unlearn(run, "fats", Request.of([0]), tmp_path / "child")
    heavy, said = imported("prune", "child", "--yes", cwd=tmp_path)
    assert not heavy
    assert "pruned child" in said
    assert not imported("show", "child", cwd=tmp_path)[0]


def test_a_report_with_figures_imports_what_draws_them(imported, place):
    assert imported("report", "child", cwd=place)[0] == {"matplotlib"}


def test_a_list_of_plugins_imports_none_of_them(place):
    done = subprocess.run(
        [sys.executable, "-c", WATCH, "plugins", "--json"], cwd=place, capture_output=True, text=True, check=True
    )
    names = {row["name"] for row in json.loads(done.stdout)["plugins"]}
    assert {"fats", "replay", "mnist"} <= names
    assert not {"fuaudit_plugins", "numpy", "fuaudit.data", "fuaudit.verification"} & set(done.stderr.split())


MEMORIES = [(kind, name) for kind in ("aggregators", "solvers", "stages") for name in sorted(entries(kind))]


@pytest.mark.parametrize(("kind", "name"), MEMORIES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_outlines_are_those_of_the_tensors(kind, name, dtype):
    """What solver and server keep is checked without torch, and it is the same."""
    plugin = build(kind, {"use": name} | NEEDED.get(name, {}))
    owner = plugin if kind == "solvers" else Chain((plugin,))
    outlines = owner.init(OutlineShape(7, 3, dtype))
    tensors = owner.init(StateShape(7, 3, getattr(torch, dtype), torch.device("meta")))
    assert all(type(outline) is Outline for outline in outlines.values())
    found = {name: (f"torch.{outline.kind}", outline.shape) for name, outline in outlines.items()}
    assert found == {name: (str(tensor.dtype), tuple(tensor.shape)) for name, tensor in tensors.items()}


@pytest.mark.parametrize("shape", [(True, 2), (2.0,), ((2, 3),), (-1,)])
def test_an_outline_has_a_shape_that_a_tensor_can_have(shape):
    with pytest.raises(TypeError, match="no shape"):
        OutlineShape(7, 3, "float32").zeros(*shape)
