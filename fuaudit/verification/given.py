"""Given: what an auditor gives beside run and spec, by the words of the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, get_args

from fuaudit.budgets.target import require_delta
from fuaudit.data.dataset import Dataset, require_rows
from fuaudit.errors import UsageError, nearest
from fuaudit.plans import Request
from fuaudit.plans.population import require_request
from fuaudit.runs.run import Run
from fuaudit.verification.audit import ARGUMENTS
from fuaudit.verification.effort import Stopping
from fuaudit.verification.spec import Spec


class Given(TypedDict, total=False):
    """Keywords of :func:`fuaudit.verification.verify.verify`. Each is an option of the command line, None without.

    Attributes:
        data: the folder of the data, for datasets that need one, or the rows themselves.
        erased: a folder of the same dataset that holds the erased rows, where ``data`` no longer does.
        parent: the parent's folder, by default beside the run.
        commitment: the commitment that was received before training, in hexadecimal.
        request: the request that should have been carried out, in this run or before it in its lineage, or several
            of these in one; one that nobody in the lineage carried out is a FAIL.
        receipts: files of receipts of clients whose data was to be forgotten; retained rows are compared with them.
        model: the file of the model in use; another one than the run's last is a FAIL.
        before: a file of findings from before the run was pruned. What a prune has made impossible to show can rest on
            them. They must be of the very run that was pruned, and pass `provenance` and `plan-law`. If a commitment
            is given now, they must have compared the same one; if a request is given, they must have compared one.
        roster: a file with a line for each client, and for witness and key holder: a name and a public key. Another
            list than the run was committed to with is a FAIL; it is for runs whose server sees sums.
        ledger_head: SHA-256 of a line of the ledger of the run or of an ancestor, in hexadecimal, as it was kept when
            the line was written: the last one when training ended, or an earlier one. A head that no line has is a
            FAIL.
        beacon: what was published after the commitment, in hexadecimal; a run that did not mix it in is a FAIL.
        delta: at which the account of what rounds released is made; that of the config's ``[budget]`` by default, or 0.
            No audit judges the account, so it changes no verdict.
        budget: the most training runs to execute for repeated sampling.
        spot_check: replay so many stretches between stored models only, drawn by the key; at most INCONCLUSIVE where a
            spec asks for exactness and some stretch was left out. The spec decides by default.
        stopping: "decided" stops repeated sampling when its test by betting rejects, and goes on beyond the pairs of
            the spec, up to ``budget``, until it has power.
        cache: a folder that keeps what repeated sampling has finished, so that the same call goes on from there
            after a kill. It needs ``key``: results belong to one.
        workers: how many processes share repeated sampling; 1 is this one. It changes no finding.
    """

    data: Path | str | Dataset | None
    erased: Path | str | None
    parent: Path | str | None
    commitment: str | None
    request: Request | None
    receipts: Sequence[Path | str]
    model: Path | str | None
    before: Path | str | None
    roster: Path | str | None
    ledger_head: str | None
    beacon: str | None
    delta: float | None
    budget: int | None
    spot_check: int | None
    stopping: Stopping
    cache: Path | str | None
    workers: int


LEAST = {
    "budget": (0, "a number of training runs"),
    "spot_check": (1, "a number of stretches"),
    "workers": (1, "a number of processes"),
}
"""The whole numbers among them, and the least of each."""

OF_WHOLE = ("data", "erased", "receipts", "request")
"""What is compared with the partition, with leaves or with names, none of which a sealed view has."""

_DIGEST = re.compile("[0-9A-Fa-f]{64}")

SILENT = {"stopping": "fixed", "workers": 1, "budget": 0, "receipts": ()}
"""Values that ask for nothing: a limit of no run at all is kept by whoever runs none."""


def require_fitting(given: Mapping[str, Any], key: bytes | None) -> None:
    """Raises UsageError for arguments that are unknown, of the wrong kind, or contradict each other."""
    for word in given.keys() - Given.__annotations__.keys():
        raise UsageError(f"verify takes no {word!r}", nearest(word, Given.__annotations__))
    require_kinds(given)
    if given.get("cache") is not None and key is None:
        raise UsageError("kept results belong to a key, and none was given", "Choose one: openssl rand -hex 32")
    if isinstance(given.get("data"), Dataset) and given.get("erased") is not None:
        raise UsageError(
            "rows were given (data) beside a folder of rows (erased), which would be ignored",
            "Give one of them; absent rows can be marked in the dataset.",
        )


def require_kinds(given: Mapping[str, Any]) -> None:
    """Raises UsageError where something is not what it must be, with the way to make it."""
    data, request = given.get("data"), given.get("request")
    if data is not None and not isinstance(data, Path | str):
        require_rows(data)
    if request is not None:
        require_request(request)
    for word, (least, what) in LEAST.items():
        number = given.get(word)
        if number is not None and (type(number) is not int or number < least):
            raise UsageError(f"{word} is {what}, from {least}, not {number!r}")
    delta = given.get("delta")
    if delta is not None:
        if type(delta) not in (int, float):
            raise UsageError(f"delta is a number, not {delta!r}")
        require_delta(delta)
    if "workers" in given and given["workers"] is None:
        raise UsageError("workers is a number of processes, from 1, not None")
    if given.get("stopping", "fixed") not in get_args(Stopping):
        raise UsageError(f"stopping is one of {', '.join(get_args(Stopping))}, not {given['stopping']!r}")
    if not isinstance(given.get("receipts", ()), Sequence) or isinstance(given.get("receipts"), str):
        raise UsageError("receipts are several: give a list of files")
    for word, what in (("commitment", "a commitment"), ("ledger_head", "a head of a ledger")):
        digest = given.get(word)
        if digest is not None and not (isinstance(digest, str) and _DIGEST.fullmatch(digest.strip())):
            raise UsageError(f"{what} has 64 hexadecimal digits: {digest!r} has not")


def require_used(given: Mapping[str, Any], spec: Spec, run: Run) -> None:
    """Raises UsageError where something was given that nothing will be compared with."""
    told = [word for word in ARGUMENTS if _asks(word, given.get(word))]
    if unused := [ARGUMENTS[word] for word in told if word not in spec.uses]:
        raise UsageError(
            f"no check of {spec.id} looks at {', '.join(unused)}: nothing would be compared with what was given",
            "Leave it out, or choose a spec whose checks use it.",
        )
    if run.sealed and (lost := [ARGUMENTS[w] for w in OF_WHOLE if w in told or isinstance(given.get(w), Dataset)]):
        raise UsageError(
            f"{run.path} is a sealed view: nothing in it could be compared with {', '.join(lost)}, for it holds no "
            "partition and no salts that open leaves",
            "Leave that out, or verify the whole run.",
        )
    if not run.is_child and (ours := [ARGUMENTS[word] for word in ("request", "parent") if word in told]):
        raise UsageError(
            f"{run.path} is a training run: it carries out no request and has no parent",
            f"Leave {' and '.join(ours)} out, or verify the run that unlearning wrote.",
        )


def _asks(word: str, value: object) -> bool:
    """Whether something was given that a check should look at; rows in the place of a folder are for all."""
    return value is not None and not isinstance(value, Dataset) and value != SILENT.get(word)
