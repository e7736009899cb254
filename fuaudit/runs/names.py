"""Who is meant by a name, and who was to be forgotten, by name: what requests are made of, and what is echoed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fuaudit.data.adversaries import suspected
from fuaudit.data.dataset import Dataset
from fuaudit.data.partition import look_of
from fuaudit.errors import UsageError
from fuaudit.plans import Request
from fuaudit.plans.population import require_named_once
from fuaudit.runs.receipts import Receipt
from fuaudit.runs.run import Run
from fuaudit.text import client_in_words, command, counted, one_name

Name = str | int
"""A client by its name, or by its id."""


def requested(
    run: Run,
    clients: Iterable[Name] = (),
    samples: Iterable[tuple[Name, int]] = (),
    receipts: Sequence[Receipt] = (),
) -> Request:
    """What was asked for, in one request or several: ids of clients, and of samples by their numbers.

    Text is a name, a number is an id. Samples are counted from 0 over those that the client had when training started.
    A name that a prune dropped is found in a receipt under the commitment of the run.

    Raises:
        UsageError: nobody has that name, it is not said who is meant, or the client has not so many samples.
    """
    found = [(_client(run, client, receipts), index) for client, index in samples]
    ids = [run.sample(*place) for place in found]
    return Request.of([_client(run, client, receipts) for client in clients], ids)


def request_of(run: Run, clients: Iterable[Name] = (), samples: Iterable[tuple[Name, int]] = ()) -> Request:
    """A request in stable ids; see :func:`requested`.

    Raises:
        UsageError: an unknown client, one that is erased already or named beside a sample of hers, or an index beyond
            the client's samples.
    """
    request = requested(run, clients, samples)
    require_named_once(request, run.original)
    _require_not_forgotten(run, request)
    run.plan.retained.without(request)  # says what is unknown
    return request


def _require_not_forgotten(run: Run, request: Request) -> None:
    """Raises UsageError where something was forgotten before, with the number of the request that did it."""
    each = [Request.of([client]) for client in request.clients]
    for one in [*each, *(Request.of([], [sample]) for sample in request.samples)]:
        if before := asked_in(run, one):
            raise UsageError(
                f"{', '.join(map(whom, rows_of(run, one)))} was forgotten already, in request {before[0]} of "
                f"{len(run.requests)}",
                f"Leave it out, or verify what was done: {command('verify', run.path)}.",
            )


def _client(run: Run, client: Name, receipts: Sequence[Receipt]) -> int:
    if not isinstance(client, str):
        return client
    look = look_of(client)
    named = [one for one in receipts if one.name is not None and look_of(one.name) == look]
    hers = [one.client for one in named if one.commitment == run.commitment]
    return hers[0] if hers else run.client(client)


def meant(run: Run, expected: Request | None = None) -> tuple[Request, ...]:
    """The requests of a lineage that a verdict is about: those that carry out what was asked for, and the last one."""
    numbers = {*(() if expected is None else asked_in(run, expected)), len(run.requests)}
    return tuple(run.requests[number - 1] for number in sorted(numbers)) if run.is_child else ()


def to_forget(run: Run, expected: Request | None = None) -> list[dict[str, Any]]:
    """What a verdict is about: a row a client and a row a sample, for findings; see :func:`meant`, :func:`rows_of`."""
    return [row for request in meant(run, expected) for row in rows_of(run, request)]


def rows_of(run: Run, request: Request) -> list[dict[str, Any]]:
    """What a request of the lineage of a run names: a row a client and a row a sample.

    ``name`` is null where a prune dropped it or the run is redacted, ``index`` where nobody had the sample. A sealed
    view knows neither names nor who owned how many rows.
    """
    if run.sealed:
        unknown = {"client": None, "name": None, "index": None}
        return [
            *({"client": client, "name": None, "rows": None, "redacted": True} for client in request.clients),
            *({"sample": sample} | unknown for sample in request.samples),
        ]
    sizes = dict(zip(run.contents.clients, run.contents.sizes, strict=True))
    lacking = {"redacted": True} if run.redacted else {}
    rows: list[dict[str, Any]] = [
        {"client": client, "name": run.name(client), "rows": sizes.get(client, 0)} | lacking
        for client in request.clients
    ]
    for sample in request.samples:
        client, index = place_of(run, sample)
        name = None if client is None else run.name(client)
        rows.append({"sample": sample, "client": client, "name": name, "index": index})
    return rows


def carried_out(run: Run, expected: Request) -> dict[int, Request]:
    """What was asked for, by the number, from 1, of the request that carried it out; empty unless all of it was.

    Each client and sample is looked for in the first request that takes it away; with a client go her samples. A
    request may name others besides: who asked for herself need not know who else did.
    """

    def first(client: int | None, sample: int | None = None) -> int:
        named = (n for n, one in enumerate(run.requests, 1) if client in one.clients or sample in one.samples)
        return next(named, 0)

    found = [(first(client), Request.of([client])) for client in expected.clients]
    found += [(first(run.owner.get(sample), sample), Request.of([], [sample])) for sample in expected.samples]
    parts: dict[int, Request] = {}
    for number, part in sorted(found, key=lambda pair: pair[0]):
        parts[number] = parts.get(number, Request()) | part
    return {} if 0 in parts else parts


def asked_in(run: Run, expected: Request) -> tuple[int, ...]:
    """The numbers of the requests that carry out what was asked for; see :func:`carried_out`."""
    return tuple(carried_out(run, expected))


def besides(request: Request, expected: Request) -> Request:
    """What a request names and nobody is known to have asked for."""
    clients = (client for client in request.clients if client not in expected.clients)
    samples = (sample for sample in request.samples if sample not in expected.samples)
    return Request.of(clients, samples)


def forgets(run: Run) -> str:
    """Whom a run forgets, or its lineage one request after another, as the beginning of a sentence."""
    who = "The run" if len(run.requests) == 1 else "The lineage"
    return f"{who} forgets {', then '.join(called(run, request) for request in run.requests)}"


def require_committed(run: Run, dataset: Dataset) -> None:
    """Raises UsageError where rows at hand are not those that a run committed to: audits of its children would fail."""
    found = run.differences(dataset)
    if found.contradict:
        rows = sum(map(len, found.rows.values()))
        suspicion = [] if found.tests else suspected(run.config.adversary, found.rows)
        raise UsageError(
            f"the data at hand is not what {run.path} committed to: {counted(rows, 'row')} of "
            f"{counted(len(found.rows), 'client')} and {counted(len(found.tests), 'test row')} differ",
            " ".join(["Give the data that it was trained on, with --data ROOT.", *suspicion]),
        )


def place_of(run: Run, sample: int) -> tuple[int | None, int | None]:
    """Whose sample it was, and its number among those that the client had when training started; None for nobody's."""
    for client in run.original.clients:
        if sample in (numbered := run.numbered(client)):
            return client, numbered.index(sample)
    return None, None


def in_words(row: dict[str, Any]) -> str:
    """One row of :func:`to_forget`: "client 4 (alice), 120 rows", "sample 17 (alice:3)"."""
    if "sample" in row:
        return whom(row)
    if row["rows"] is None:
        return whom(row)
    why = "not in a redacted run" if row.get("redacted") else "dropped"
    nameless = "" if row["name"] else f" (name {why})"
    return f"{whom(row)}{nameless}, {counted(row['rows'], 'row')}"


def called(run: Run, request: Request) -> str:
    """Whom a request names, by name where all of it are clients: "client 4 (alice)"."""
    return str(request) if request.samples else ", ".join(map(run.called, request.clients))


def whom(row: dict[str, Any]) -> str:
    """Who or what one row of :func:`to_forget` names, without rows: "client 4 (alice)", "sample 17 (alice:3)"."""
    if "sample" in row:
        owner = row["client"] if row["name"] is None else row["name"]
        return f"sample {row['sample']}" + ("" if row["index"] is None else f" ({one_name(owner)}:{row['index']})")
    return client_in_words(row["client"], row["name"])
