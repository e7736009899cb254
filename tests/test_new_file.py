"""A new file of a run: a row in the table of files, and who writes it. All else follows from the row."""

import json

import pytest
from tests_support import AUDIT_KEY, claimed, one_more, sealed

from fuaudit import load_run, unlearn
from fuaudit.audits.lineage.audit import Lineage
from fuaudit.draws import Keyed
from fuaudit.errors import EvidenceError
from fuaudit.formats.forms import pretty_json
from fuaudit.formats.schema import Fields, is_count, is_loss, listed
from fuaudit.plans import Request
from fuaudit.runs.derived_files import WRITTEN
from fuaudit.runs.forms import Elsewhere, Json, Tensors
from fuaudit.runs.layout import FILES, File, Held, Reader
from fuaudit.runs.names import in_words, to_forget
from fuaudit.runs.rounding import rounded
from fuaudit.runs.tombstone import read_tombstone
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence
from fuaudit.workflow.prune import prune
from fuaudit.workflow.redact import redact

ROWS = listed(Fields({"round": is_count, "norm": is_loss}))
FORM = Json(lambda value: [] if ROWS(value) else [""], numbers={"norm": Elsewhere.NEAR})
HELD = Held("lengths of models", by_model=True)
NORMS = File("norms.json", "lengths of models", FORM, (Reader.EVERYBODY,), held=HELD)
OWN = File("clients/norms.json", "lengths of models", FORM, (Reader.AUDITOR,), own="her length")


def norms(stored):
    return [{"round": number, "norm": rounded(float(stored.model(number).norm()))} for number in stored.rounds]


@pytest.fixture(params=[NORMS, OWN], ids=lambda file: file.name)
def lineage(request, tiny, tmp_path, monkeypatch):
    """The file, a run that has it, and a child that forgot a client."""
    monkeypatch.setitem(FILES, request.param.name, request.param)
    monkeypatch.setitem(WRITTEN, request.param.name, norms)
    parent = tiny(tmp_path / "parent")
    return request.param, parent, unlearn(parent, "fats", Request.of([1]), tmp_path / "child", data=tiny.dataset)


def examined(run, parent, data):
    return Lineage().examine(Case(Evidence(run, parent, data), Keyed(AUDIT_KEY)))


def changed(run, name, factor):
    """The run with another last number in a file, sealed again."""
    rows = json.loads((run.path / name).read_text())
    rows[-1]["norm"] = factor(rows[-1]["norm"])
    (run.path / name).write_bytes(pretty_json(rows))
    sealed(run.path)
    return load_run(run.path)


def test_it_is_written_hashed_and_read(lineage):
    file, _, child = lineage
    path = child.path / file.name
    assert child.document(file.name)[-1]["norm"] == rounded(float(child.model.norm()))
    assert path.stat().st_mode & 0o777 == (0o600 if file is OWN else 0o644)
    path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))
    with pytest.raises(EvidenceError, match=f"altered: {file.name}"):
        load_run(child.path)
    path.unlink()
    if path.parent != child.path:  # an empty folder is in no run
        path.parent.rmdir()
    sealed(child.path)
    with pytest.raises(EvidenceError, match=f"has no {file.name}"):
        load_run(child.path)


def test_it_is_regenerated_and_compared_as_its_form_says(lineage, tiny):
    """On the same platform to the last bit; on another one but for the last digit, and a FAIL for no honest run."""
    file, parent, child = lineage
    honest = examined(child, parent, tiny.dataset)
    assert honest.verdict == "PASS"
    copies = {copy.place for copy in honest.copies}
    assert (f"parent/{file.name}" in copies) == (file is NORMS)
    child = changed(child, file.name, one_more)
    found = examined(child, parent, tiny.dataset)
    assert found.verdict == "FAIL"
    assert f"not regenerated: {file.name}" in found.details
    child = claimed(child.path, torch="another")
    assert examined(child, parent, tiny.dataset).verdict == "PASS"
    child = changed(child, file.name, one_more)
    assert examined(child, parent, tiny.dataset).verdict == "INCONCLUSIVE"


def test_it_is_pruned_and_buried(lineage, tiny):
    file, parent, child = lineage
    before = child.files[file.name]
    pruned, _ = prune(child)
    assert pruned.files[file.name] == before
    stone = read_tombstone(parent.path, pruned.config)
    assert file.name in stone.files
    assert not (parent.path / file.name).exists()
    assert examined(pruned, stone, tiny.dataset).verdict == "PASS"


def test_it_is_redacted_where_it_is_the_clients_own(lineage, tmp_path):
    file, _, child = lineage
    if file is OWN:
        kept = redact(child, tmp_path / "archive")
        assert kept.redacted
        assert kept.digest == child.digest
        assert not (kept.path / file.name).exists()
        assert "(name " not in in_words(*to_forget(child))
        assert in_words(*to_forget(kept)).startswith("client 1 (name not in a redacted run), ")


def test_fractions_of_which_nothing_is_said_are_refused():
    """Else they would be compared to the last bit on every platform, and honest runs would FAIL."""
    form = Json(FORM.wrong, numbers={})
    with pytest.raises(ValueError, match="compared elsewhere: 'norm'"):
        form.write([{"round": 1, "norm": 1.5}])
    assert json.loads(form.write([{"round": 1, "norm": None}])) == [{"round": 1, "norm": None}]
    with pytest.raises(ValueError, match="not rounded to 4 digits: 'norm'"):
        FORM.write([{"round": 1, "norm": 1.2345}])
    with pytest.raises(ValueError, match="how fractions are compared"):
        File("norms.json", "lengths", Json(FORM.wrong), (Reader.EVERYBODY,))
    with pytest.raises(ValueError, match="belong into JSON"):
        File("norms.safetensors", "lengths", Tensors({"norm": ("float32", 1)}), (Reader.EVERYBODY,))
