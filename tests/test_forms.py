"""One form a file: encoders and strict decoders, the table of files, and a run in which anything else is refused."""

import copy
import json
import re
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load as library_load
from safetensors.numpy import save as library_save
from tests_support import AUDIT_KEY, parse_tensors, sealed

from fuaudit import unlearn, verify
from fuaudit.errors import EvidenceError, FuauditError
from fuaudit.formats.forms import parse_canonical, parse_json, parse_pretty, pretty_json, tensor_bytes
from fuaudit.formats.forms import toml_bytes as toml
from fuaudit.plans import Request
from fuaudit.runs.forms import Envelopes, Json, Lines, Tensors, Toml
from fuaudit.runs.layout import (
    CHECKPOINT,
    FILES,
    MEMORIES,
    SECRETS,
    Reader,
    When,
    file_of,
    names_in,
)

ROOT = Path(__file__).parents[1]
PATH = Path("some file")
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=12)
ARRAYS = st.builds(
    lambda kind, shape, seed: np.random.default_rng(seed).integers(0, 2, shape).astype(kind),
    st.sampled_from(["<i8", "<f8", "<f4", "<i4", "<f2", "<i2", "i1", "u1", "?"]),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.integers(0, 99),
)


# --- tensors


@given(st.dictionaries(NAMES, ARRAYS, max_size=6))
def test_tensors_are_written_as_the_library_writes_them_today(arrays):
    content = tensor_bytes({name: torch.from_numpy(array) for name, array in arrays.items()})
    assert content == library_save(arrays)
    assert library_load(content).keys() == arrays.keys()
    again = parse_tensors(content, PATH)
    assert tensor_bytes(again) == content
    assert all(np.array_equal(again[name].numpy(), array) for name, array in arrays.items())


@given(st.data())
def test_every_byte_of_a_header_counts(data):
    """Another byte is refused, or it is another name: the table of files refuses those."""
    content = tensor_bytes({"b": torch.zeros(2, 3), "a": torch.arange(4)})
    place = data.draw(st.integers(0, 8 + int.from_bytes(content[:8], "little") - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != content[place]))
    try:
        tensors = parse_tensors(content[:place] + bytes([other]) + content[place + 1 :], PATH)
    except EvidenceError:
        return
    assert tensors.keys() != {"a", "b"}


def header(text, body=b""):
    content = text if isinstance(text, bytes) else json.dumps(text, separators=(",", ":")).encode()
    content += b" " * (-len(content) % 8)
    return len(content).to_bytes(8, "little") + content + body


ONE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        bytes(8),
        header({"a": ONE}),
        header({"a": ONE}, bytes(5)),
        header({"a": ONE | {"dtype": "BF16"}}, bytes(2)),
        header({"a": ONE | {"dtype": ["F32"]}}, bytes(4)),
        header({"a": ONE | {"shape": [1.0]}}, bytes(4)),
        header({"a": ONE | {"shape": [True]}}, bytes(4)),
        header({"a": ONE | {"shape": [-1]}}, bytes(4)),
        header({"a": ONE | {"shape": [2**63, 2**63]}}, bytes(4)),
        header({"a": ONE | {"shape": [1] * 9}}, bytes(4)),
        header({"a": ONE | {"more": 1}}, bytes(4)),
        header({"a": ONE, "__metadata__": {"x": "y"}}, bytes(4)),
        header({"": ONE}, bytes(4)),
        header({"a" * 201: ONE}, bytes(4)),
        header({"b": ONE, "a": ONE | {"data_offsets": [4, 8]}}, bytes(8)),
        header({"a": ONE | {"data_offsets": [4, 8]}}, bytes(8)),
        header([1], bytes(4)),
        header(b"[" * 100_000, bytes(4)),
        header(b'{"a":' + json.dumps(ONE).encode() + b"}", bytes(4)),
        header({"a": ONE | {"dtype": "BOOL", "data_offsets": [0, 1]}}, b"\x02"),
        (2**60).to_bytes(8, "little") + bytes(100),
        header({"a": ONE}, np.array([np.nan], dtype="<f4").tobytes()),
    ],
)
def test_other_tensors_are_refused(content):
    with pytest.raises(EvidenceError):
        parse_tensors(content, PATH)


def test_kinds_of_numbers_are_a_closed_list():
    with pytest.raises((ValueError, TypeError)):
        tensor_bytes({"a": torch.zeros(1, dtype=torch.complex64)})


# --- JSON and TOML

PLAIN = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | NAMES
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
)


@given(VALUES)
def test_pretty_json_has_one_spelling(value):
    content = pretty_json(value)
    assert parse_pretty(content, PATH) == value
    for other in (b" " + content, content[:-1], content + b"\n", json.dumps(value).encode() + b" "):
        with pytest.raises(EvidenceError):
            parse_pretty(other, PATH)


@pytest.mark.parametrize("text", ['{"b":1,"a":2}', "[1.0e0]", "[1E2]", "[-0]", '["\\u0041"]', "[ 1]", "[1]\n", "1.00"])
def test_other_spellings_of_canonical_json(text):
    parse_json(text.encode(), PATH)
    with pytest.raises(EvidenceError, match="form"):
        parse_canonical(text.encode(), PATH)


ROWS = st.dictionaries(NAMES, PLAIN | st.lists(PLAIN, max_size=3), min_size=1, max_size=3)


@given(
    st.dictionaries(NAMES, PLAIN | st.lists(PLAIN | ROWS, max_size=3) | ROWS | st.dictionaries(NAMES, ROWS), max_size=4)
)
def test_toml_is_read_back(table):
    assert tomllib.loads(toml(table).decode()) == table


# --- the table


def test_files_are_named_once():
    for name, file in FILES.items():
        assert name == file.name
        assert file.role
        assert isinstance(file.form, Json | Tensors | Toml | Lines | Envelopes)
    assert file_of("checkpoints/000007.safetensors").name == CHECKPOINT
    for strange in ("checkpoints/7.safetensors", CHECKPOINT, "checkpoints/0000007.safetensors", "model.pkl", ""):
        assert file_of(strange) is None


def test_no_other_module_names_a_file():
    literal = re.compile("|".join(re.escape(f'"{name}"') for name in FILES if name != CHECKPOINT))
    for path in (ROOT / "fuaudit").rglob("*.py"):
        # the table needs torch, and the command line asks before that whether a run was begun
        if path.name != "layout.py" and path.parts[-2:] != ("cli", "options.py"):
            found = literal.search(path.read_text())
            assert not found, f"{path}: {found.group()}"


def test_the_page_has_the_table():
    """docs/run-format.md says of every file what the code says."""
    rows = re.findall(
        r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", (ROOT / "docs/run-format.md").read_text(), re.M
    )
    told = {name: (who, where, why) for name, who, where, why in rows if "." in name}
    for file in FILES.values():
        who, where, why = told[file.name]
        assert who == file.given_to
        assert where == (file.when if file.when is not When.ALWAYS else "every run")
        assert why == (f"exempt: {file.exempt}" if file.exempt else "yes")
    assert told.keys() == FILES.keys()
    assert {reader for file in FILES.values() for reader in file.readers} <= set(Reader)


def test_who_may_be_given_a_file():
    """Keys, names and ids of samples are the auditor's; a client's own part is of files that she may not have whole."""
    given = {reader: {file.name for file in FILES.values() if file.is_for(reader)} for reader in Reader}
    assert given[Reader.OPERATOR] == FILES.keys()
    assert given[Reader.EVERYBODY] < given[Reader.CLIENT] < given[Reader.SERVER] < given[Reader.AUDITOR]
    assert given[Reader.AUDITOR] == {name for name, file in FILES.items() if file.readers} <= given[Reader.OPERATOR]
    assert given[Reader.ARCHIVE] == given[Reader.OPERATOR] - {MEMORIES, SECRETS}
    secret = {"keys.json", "clients.json", "partition.safetensors", "recorded.safetensors", "participation.json"}
    assert not secret & given[Reader.SERVER]
    assert not {"ledger.jsonl", "run.json", "plan.json", CHECKPOINT} & given[Reader.CLIENT]
    own = {file.name for file in FILES.values() if file.own}
    assert own <= given[Reader.OPERATOR] - given[Reader.CLIENT]
    # what a receipt is made of
    assert {"clients.json", "contents.safetensors", "partition.safetensors"} <= own


# --- a run, changed anywhere and sealed again


@pytest.fixture(scope="module")
def family(tiny, tmp_path_factory):
    root = tmp_path_factory.mktemp("honest")
    unlearn(tiny(root / "parent"), "fats", Request.of([1]), root / "child", data=tiny.dataset)
    return root


@pytest.fixture(scope="module")
def honest(family, tiny, quick):
    """The audits that the child passes as it is."""
    found = verify(family / "child", quick, key=AUDIT_KEY, data=tiny.dataset, save=False).findings
    passed = {finding.audit for finding in found if finding.verdict == "PASS"}
    assert passed == {"integrity", "replay", "provenance", "lineage"}
    return passed


def everywhere(value, here=()):
    """The paths to everything inside a value of JSON, itself included."""
    yield here
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from everywhere(inner, (*here, key))


def changes(draw, value):
    """A value of JSON with something else in one place, something more, or something less."""
    value = copy.deepcopy(value)
    *above, last = draw(st.sampled_from([path for path in everywhere(value) if path]))
    inner = value
    for key in above:
        inner = inner[key]
    how = draw(st.sampled_from(["other", "more", "less", "digit"]))
    if how == "less":
        del inner[last]
    elif how == "more" and isinstance(inner, dict):
        inner[draw(NAMES)] = draw(VALUES)
    elif how == "more":
        inner.insert(last, draw(VALUES | st.just(inner[last])))
    elif how == "digit" and type(inner[last]) is int:
        inner[last] += draw(st.sampled_from([-1, 1, 2**40]))
    elif how == "digit" and isinstance(inner[last], str) and inner[last]:
        inner[last] = inner[last][:-1] + ("0" if inner[last][-1] != "0" else "1")
    else:
        inner[last] = draw(VALUES)
    return value


@pytest.mark.thorough
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_whatever_is_changed_is_refused_or_found(family, honest, tiny, quick, tmp_path_factory, data):
    """Every changed value is an error of exit code 4, or a finding that is not PASS; never a crash."""
    root = tmp_path_factory.mktemp("fuzz")
    path = shutil.copytree(family / "child", root / "child")
    shutil.copytree(family / "parent", root / "parent")
    name = data.draw(st.sampled_from(sorted(set(names_in(path)) - {"manifest.json", "ledger.jsonl"})))
    content = (path / name).read_bytes()
    if name.endswith(".json"):
        (path / name).write_bytes(pretty_json(changes(data.draw, json.loads(content))))
    elif name.endswith(".toml"):
        place = data.draw(st.integers(0, len(content)))
        added = data.draw(st.sampled_from([b" ", b"\n", b"0", b"1", b"# x", b'"', b"_", b"."]))
        (path / name).write_bytes(content[:place] + added + content[place:])
    else:
        tensors = dict(parse_tensors(content, path))
        chosen = data.draw(st.sampled_from(sorted(tensors)))
        flat = tensors[chosen].clone().reshape(-1)
        if len(flat):
            flat[data.draw(st.integers(0, len(flat) - 1))] += 1
        how = data.draw(st.sampled_from(["value", "name", "more", "shape"]))
        tensors[chosen] = flat.reshape(tensors[chosen].shape)
        if how == "name":
            tensors[f"{chosen}x"] = tensors.pop(chosen)
        elif how == "more":
            tensors[data.draw(NAMES)] = torch.zeros(2)
        elif how == "shape":
            tensors[chosen] = flat.reshape(1, -1)
        (path / name).write_bytes(tensor_bytes(tensors))
    if (path / name).read_bytes() == content:
        return
    try:
        sealed(path)
        found = verify(path, quick, key=AUDIT_KEY, data=tiny.dataset, save=False).findings
        outcome = {finding.audit: finding.verdict for finding in found}
    except FuauditError as error:
        outcome = error.exit_code
    finally:
        shutil.rmtree(root, ignore_errors=True)
    if isinstance(outcome, int):
        assert outcome in (4, 5), (name, outcome)
    else:
        assert any(outcome[audit] != "PASS" for audit in honest), name
