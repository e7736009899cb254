"""Claims of a stranger: names that read like fuaudit's own, texts and needs that lie, and a claim that changes."""

import sys
from importlib.metadata import distribution, version

import pytest
from tests_support import AUDIT_KEY, installed

from fuaudit import unlearn, verify
from fuaudit.errors import FuauditError, PluginError
from fuaudit.plans import Request
from fuaudit.reporting import render
from fuaudit.verification.spec import parse_spec

CODE = """
from fuaudit.verification.claims import Claim, EXACT

NAME, SHOWS, NEEDS = "a claim of mine", "Little.", frozenset({"files"})
CHANGE
MINE = Claim("mine", NAME, NEEDS, False, SHOWS, "They asked little.")
"""
ENTRY = "[fuaudit.claims]\nmine = stranger:MINE\n"
TABLE = {"id": "mine/1", "asks": "mine", "out_of_scope": ["x"]}
TABLE["check"] = [{"claim": "files", "audit": {"use": "integrity"}}]


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    def install(change, code=CODE, folder="site"):
        site = installed(tmp_path / folder, "stranger", code.replace("CHANGE", change), ENTRY)
        monkeypatch.syspath_prepend(str(site))
        sys.modules.pop("stranger", None)

    yield install
    sys.modules.pop("stranger", None)


@pytest.fixture
def kid(tiny, tmp_path):
    return unlearn(tiny(tmp_path / "p"), "fats", Request.of([0]), tmp_path / "c", data=tiny.dataset)


NAMES = {
    "two spaces": "exact  erasure",
    "space at the end": "exact erasure ",
    "another a": "ex\u0430ct erasure",
    "full width": "\uff45\uff58\uff41\uff43\uff54 erasure",
    "combining": "exact erasure\u034f",
    "hangul filler": "exact\u3164erasure",
    "full stop": "exact erasure.",
    "more sentences": "exact erasure within the stated scope. Asked by the spec client-erasure/1 (built-in, digest "
    "0123456789abcdef). It rests on fuaudit alone",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_name_that_reads_like_one_of_fuaudits_own(stranger, name):
    stranger(f"NAME = {name!r}")
    with pytest.raises(PluginError, match="no sound claim"):
        parse_spec(TABLE, "mine.toml")


TEXT = """
class Text(str):
    def casefold(self): return "x"
    def isprintable(self): return True
"""


@pytest.mark.parametrize("text", ["exact erasure", "exact erasure.\\x1b[8m\\n\\u202e"])
def test_a_text_that_is_another_than_it_says(stranger, text):
    """It passes the test of names and the test of lines: type(text) is str would refuse it, as audits' texts are."""
    stranger(f"{TEXT}\nNAME = Text('{text}')")
    with pytest.raises(PluginError, match="no sound claim"):
        parse_spec(TABLE, "mine.toml")


def test_needs_that_lack_nothing(stranger):
    """It says that it needs what `exact` needs, and one check of files is enough."""
    stranger("class Needs(frozenset):\n    def __sub__(self, other): return frozenset()\nNEEDS = Needs(EXACT.needs)")
    with pytest.raises(FuauditError):
        parse_spec(TABLE, "mine.toml")


CHANGING = """
import sys
from fuaudit.verification.claims import Claim

def __getattr__(name):
    if name != "MINE":
        raise AttributeError(name)
    asked = sys._getframe(1)
    while asked and asked.f_code.co_name not in ("digest", "as_json", "conclude"):
        asked = asked.f_back
    strong = asked is not None and asked.f_code.co_name != "digest"
    return Claim("mine", "a claim of mine", frozenset({"files"}), False,
                 "The model has forgotten {request}." if strong else "Little.", "They asked little.")
"""


def test_a_claim_that_says_another_thing_than_its_digest_covers(stranger, kid):
    """docs/specs.md: a later version of the package cannot ask for less under the same digest."""
    stranger("")
    agreed = parse_spec(TABLE, "mine.toml").digest
    stranger("", CHANGING, "later")
    spec = parse_spec(TABLE, "mine.toml")
    result = verify(kid, spec, key=AUDIT_KEY, save=False)
    page = render(result.as_json(), "md").decode()
    assert spec.digest != agreed or "has forgotten" not in page


@pytest.mark.parametrize("trusts", [[], ["fuaudit"], None])
def test_a_distribution_that_calls_itself_fuaudit(trusts, kid, tmp_path, monkeypatch):
    real = distribution("fuaudit")
    site = tmp_path / "site"
    info = site / "fuaudit-9.dist-info"
    info.mkdir(parents=True)
    (site / "stranger.py").write_text(CODE.replace("CHANGE", "NAME = 'exact and legal erasure'"))
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: fuaudit\nVersion: {version('fuaudit')}\n")
    lines = [f"[{e.group}]\n{e.name} = {e.value}\n" for e in real.entry_points if e.group.startswith("fuaudit.")]
    (info / "entry_points.txt").write_text("".join([*lines, ENTRY]))
    (info / "RECORD").write_text("stranger.py,,\n")
    monkeypatch.syspath_prepend(str(site))
    sys.modules.pop("stranger", None)
    table = TABLE | ({} if trusts is None else {"trusts": trusts})
    try:
        result = verify(kid, parse_spec(table, "mine.toml"), key=AUDIT_KEY, save=False)
    except FuauditError:
        return
    finally:
        sys.modules.pop("stranger", None)
    told = render(result.as_json(), "md").decode()
    assert f"a claim of fuaudit {version('fuaudit')}" not in result.reason, result.reason
    assert f"fuaudit {version('fuaudit')} says:" not in told


@pytest.mark.parametrize(
    "said",
    [
        "Name: fuaudit alone, nothing else. Never mind\nVersion: 0\n",
        "Name: fuaudit\u200b\nVersion: 0.2.0\n",
        "Name: x\n  and more\nVersion: 1\n",
        "Version: 1\n",  # TypeError
        "Name: \nVersion: \n",  # ValueError
        "Name: x\n",  # "x None"
    ],
)
def test_the_name_of_a_distribution_is_no_sentence(said, kid, tmp_path, monkeypatch):
    """run.json refuses such names of the plugins of a run; those of audits, claims and evidence nobody looks at."""
    info = tmp_path / "site" / "zz-1.5.dist-info"
    info.mkdir(parents=True)
    (info.parent / "stranger.py").write_text(CODE.replace("CHANGE", ""))
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\n{said}", encoding="utf-8")
    (info / "entry_points.txt").write_text(ENTRY)
    monkeypatch.syspath_prepend(str(info.parent))
    sys.modules.pop("stranger", None)
    try:
        with pytest.raises(FuauditError):
            verify(kid, parse_spec(TABLE, "mine.toml"), key=AUDIT_KEY, save=False)
    finally:
        sys.modules.pop("stranger", None)
