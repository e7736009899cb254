"""A forger lets a client's receipt be checked with rows that are not hers.

He commits to public rows in her place, and trains on hers under another name. The receipt names the reader that is
asked for her rows: were that one of his choice, it could bring the public ones itself.
"""

import pytest
from tests_support import edit

from fuaudit.errors import EvidenceError
from fuaudit.formats.files import sha256
from fuaudit.runs.receipts import read_receipt, receipt_of


@pytest.fixture
def file(tiny, tmp_path):
    """The receipt of a run whose rows lie in folders."""
    path = tmp_path / "receipt.json"
    path.write_bytes(receipt_of(tiny(tmp_path / "run"), 1).content())
    return path


def test_a_reader_that_was_not_committed_to(file):
    honest = read_receipt(file)
    assert honest.data["use"] == "tensors"
    config = honest.config.replace('use = "tensors"\nclasses = 2', 'use = "digits"')
    assert config != honest.config
    edit(file.parent, file.name, config=config)
    with pytest.raises(EvidenceError, match="holds another config than was committed to"):
        read_receipt(file)
    edit(file.parent, file.name, committed={**honest.committed, "config": sha256(config.encode())})
    with pytest.raises(EvidenceError, match="does not open to the commitment"):
        read_receipt(file)


def test_a_reader_that_brings_rows_itself(fuaudit, trained, tmp_path):
    """Digits are public: that the run committed to them says nothing of rows of hers."""
    (tmp_path / "receipt.json").write_bytes(receipt_of(trained, 0).content())
    asked = ("receipt", "--check", tmp_path / "receipt.json", "--commitment", trained.commitment)
    code, out, _ = fuaudit(*asked)
    assert (code, out.startswith("not compared with any row of yours: 'digits' brings its own")) == (3, True)
    assert "other rows too, of other clients or for tests: the receipt is not about them" in out
    assert "in no leaf of the receipt" not in out
    code, _, err = fuaudit(*asked, "--data", tmp_path)
    assert (code, "looks into no folder" in err) == (2, True)
