"""Commit: fix a secret, and all that training is committed to, before something unforeseeable is published.

A promise is the file that holds both. Training with it computes the commitment again, and mixes into its draws what was
published since: so the secret cannot have been tried until its draws were liked.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuaudit.commitments.keys import BEACON_TO_COME, NO_BEACON
from fuaudit.config import Config
from fuaudit.data.dataset import Dataset
from fuaudit.errors import UsageError
from fuaudit.formats.files import read_bytes, require_new_file, write_bytes
from fuaudit.formats.forms import MAX_JSON_BYTES, parse_json, pretty_json
from fuaudit.formats.schema import is_digest
from fuaudit.formats.versions import require_format
from fuaudit.renamed import renamed
from fuaudit.training.engines.protocol import threads_restored
from fuaudit.workflow.begin import begun

FORMAT = "fuaudit promise 1"


@dataclass(frozen=True)
class Promise:
    """A master secret, 32 bytes, and the commitment of the run that will be trained with it.

    ``beacon`` is what the commitment says of it: whether one is to come.
    """

    secret: bytes = field(repr=False)
    commitment: str
    beacon: str


@renamed(root="data", dataset="data")
@threads_restored()
def commit(
    config: Config | Path | str | dict[str, Any],
    out: Path | str,
    data: Path | str | Dataset | None = None,
    secret: bytes | None = None,
    beacon: bool = True,
) -> Promise:
    """Choose a secret, and write it with the commitment to a file that only its owner can read.

    Args:
        config: a config, its tables, or the path of its TOML file.
        out: the file to write; there must be none yet.
        data: the folder of the data, for datasets that need one, or the rows themselves.
        secret: the master secret, 32 bytes; by default from the operating system.
        beacon: whether one is to come, which training mixes in. The commitment binds the answer: training with a beacon
            under a commitment to none, or without one under a commitment to one, is refused, and audits refute it.

    Raises:
        UsageError: a wrong config, a file that exists, or no folder for it.
        StorageError: the file cannot be written.
    """
    path = Path(out)
    require_new_file(path)
    word = BEACON_TO_COME if beacon else NO_BEACON
    beginning = begun(config, data, secret if secret is not None else secrets.token_bytes(32), beacon=word)
    promise = Promise(beginning.secret, beginning.common.commitment, word)
    covered = {"commitment": promise.commitment, "beacon": promise.beacon}
    table = {"format": FORMAT, "secret": promise.secret.hex(), **covered}
    write_bytes(path, pretty_json(table), mode=0o600)
    return promise


def read_promise(path: Path) -> Promise:
    """The promise in a file; UsageError when it holds none, EvidenceError for one in another format."""
    if not path.exists():
        raise UsageError(f"there is no promise {path}", "Make one with: fuaudit commit CONFIG --out FILE")
    content = read_bytes(path, MAX_JSON_BYTES)
    table = parse_json(content, path)
    require_format(table, FORMAT, path)
    names = {"secret", "commitment"}
    if (
        not isinstance(table, dict)
        or table.keys() != {"format", "beacon", *names}
        or table["format"] != FORMAT
        or table["beacon"] not in (NO_BEACON, BEACON_TO_COME)
        or not all(is_digest(table[name]) for name in names)
        or content != pretty_json(table)
    ):
        raise UsageError(f"{path} is no promise", "Make one with: fuaudit commit CONFIG --out FILE")
    return Promise(bytes.fromhex(table["secret"]), table["commitment"], table["beacon"])
