"""Receipts for clients, and their check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fuaudit.cli.completion import ARun, client_names
from fuaudit.cli.options import Folder, Output, commitment_of, data_option, hexadecimal, output_options
from fuaudit.errors import UsageError
from fuaudit.text import WITH_DATA, command, counted

if TYPE_CHECKING:
    from fuaudit.data.dataset import Dataset
    from fuaudit.runs.receipts import Receipt
    from fuaudit.runs.run import Run


@click.command()
@click.argument("run", type=ARun, required=False)
@click.option("--client", "client", shell_complete=client_names, help="Whose receipt to make, by name.")
@click.option("--out", type=Folder, help="File to write; default receipt-<RUN>-<number>.json beside RUN.")
@click.option("--check", "file", type=Folder, help="Check this receipt instead, against the rows in --data.")
@click.option("--commitment", help="The commitment received before training, to compare with.")
@click.option("--own-secret", type=Folder, help="With --check: a file with the client's first secret, 64 hex digits.")
@data_option
@output_options
def receipt(
    run: Path | None,
    client: str | None,
    out: Path | None,
    file: Path | None,
    commitment: str | None,
    own_secret: Path | None,
    data: Path | None,
    output: Output,
) -> None:
    """Make a receipt of what a client of RUN contributed, or check one.

    A receipt lets a client show later which of her rows the commitment covers. Make it before a prune.
    """
    if file is not None:
        if run is not None or client is not None or out is not None:
            only = "--check takes --data, --commitment and --own-secret only"
            raise UsageError(only, "Leave RUN, --client and --out out.")
        _check(file, data, commitment, own_secret, output)
        return
    if own_secret is not None:
        raise UsageError("--own-secret is for --check: it is compared with a receipt", "Leave it out.")
    if run is not None and client is not None and data is not None:
        raise UsageError(
            "a receipt is made from RUN alone: --data is for --check, which compares rows with a receipt",
            f"Leave it out: {command('receipt', run, client=client)}",
        )
    if run is None or client is None:
        raise UsageError(
            "say whose receipt to make, or which to check",
            "As in: fuaudit receipt RUN --client NAME; or: fuaudit receipt --check FILE --data ROOT --commitment HEX",
        )
    _make(run, client, out, commitment, output)


def _make(run: Path, client: str, out: Path | None, commitment: str | None, output: Output) -> None:
    from fuaudit.formats.files import require_new_file, write_bytes
    from fuaudit.runs.receipts import receipt_of
    from fuaudit.runs.run import load_run

    opened = load_run(run)
    number = _number(opened, client)
    made = receipt_of(opened, number)
    expected = commitment_of(commitment)
    if expected is not None and expected != made.commitment:
        raise UsageError(f"{run} has the commitment {made.commitment}, not {expected}")
    path = out or opened.path.with_name(f"receipt-{opened.path.name}-{number}.json")
    require_new_file(path)
    write_bytes(path, made.content(), mode=0o600)
    document = {"receipt": str(path), "client": number, "name": made.whose, "rows": len(made.rows)}
    whose = f"receipt of {opened.called(number)}, {counted(len(made.rows), 'row')}: {path}"
    lines = [whose, f"commitment {made.commitment}"]
    check = command("receipt", check=path, commitment="HEX")
    more = [
        "give it to the client; with HEX as it was published before training she checks it by:",
        f"{check}{WITH_DATA}",
    ]
    output.emit(document | {"commitment": made.commitment}, [*lines, "", *more], lines)


def _number(opened: Run, client: str) -> int:
    """The number of a client; UsageError, which says of a pruned run what no receipt can be made of."""
    try:
        return opened.client(client)
    except UsageError as error:
        if not opened.pruned:
            raise
        advice = "No receipt can be made of whom a prune dropped: whoever had one made before keeps it."
        raise UsageError(str(error.args[0]), advice) from None


NO_LEAF = "rows that were kept for tests are in none, and no request removes those; ask whoever made the receipt"
MOST_LISTED = 10


def _listed(missing: Sequence[int]) -> str:
    more = f" and {len(missing) - MOST_LISTED} more" if len(missing) > MOST_LISTED else ""
    rows = counted(len(missing), "row")
    return f"{rows}, by ids of the training (no lines of a file): {', '.join(map(str, missing[:MOST_LISTED]))}{more}"


def _rows_of(reader: Any) -> Dataset | None:
    """The rows that a reader brings itself, from no folder; None where it needs one."""
    try:
        found: Dataset = reader.load(None)
    except UsageError:
        return None
    return found


def _in_words(table: Mapping[str, Any]) -> str:
    options = [f"{name} = {value!a}" for name, value in table.items() if name != "use"]
    return f"{table['use']!a}" + (f" with {', '.join(options)}" if options else "")


def _foreign(made: Receipt, own_secret: Path | None) -> tuple[str, ...]:
    """What in a receipt does not follow from the secret in a file; nothing without one."""
    from fuaudit.formats.files import read_bytes
    from fuaudit.runs.receipts import not_hers

    if own_secret is None:
        return ()
    text = read_bytes(own_secret, 1024).decode(errors="replace").strip()
    return not_hers(made, hexadecimal(text, f"the secret in {own_secret}") or b"")


def _check(file: Path, data: Path | None, commitment: str | None, own_secret: Path | None, output: Output) -> None:
    from fuaudit import registry
    from fuaudit.importing.own_rows import done_to_own
    from fuaudit.runs.receipts import check_dataset, read_receipt
    from fuaudit.verification.finding import EXIT_CODES, Verdict

    made, expected = read_receipt(file), commitment_of(commitment)
    if made.data["use"] == "tensors" and data is not None and data.is_file():
        raise UsageError(
            f"{data} is a file, and --data takes a folder",
            f"Rows of a CSV file are read as all were: {command('import', data, like='SENT', out='MY-FOLDER')}, "
            "where SENT holds import.json and classes.json of the import.",
        )
    reader = registry.build("datasets", made.data)
    its_own, adversaries = _rows_of(reader), made.adversaries
    if its_own and data is not None:
        raise UsageError(
            f"the run's reader, {made.data['use']!r}, looks into no folder: no row in {data} would be read",
            "Leave --data out; compare rows of yours in Python with fuaudit.runs.receipts.check.",
        )
    found = check_dataset(made, its_own or reader.load(data))
    other = expected is not None and expected != made.commitment
    held, foreign = len(made.rows) - len(found.missing), _foreign(made, own_secret)
    wrong = bool(found.missing) or other or bool(foreign)
    whose = f"client {made.client}" if made.name is None else repr(made.name)
    rows = f"{held} of {counted(len(made.rows), 'row')} of {whose} {'is' if held == 1 else 'are'}"
    if other:
        lines = [
            f"not as committed: the receipt is of another commitment than the one received, {expected}",
            f"  {rows} in its own, {made.commitment}",
        ]
    elif expected is None and not wrong:
        own = "consistent with the receipt's own commitment; not compared with one of yours"
        lines = [f"{own}: {rows} in the commitment {made.commitment}"]
    else:
        there = f"{rows} at hand as they are in" if wrong else f"{rows} in"
        lines = [f"{'not ' * wrong}as committed: {there} the commitment {made.commitment}"]
    if its_own and not wrong:
        lines = [f"not compared with any row of yours: {made.data['use']!r} brings its own", f"  {lines[0]}"]
    if adversaries and not wrong:
        turning = ", ".join(ascii(table["use"]) for table in adversaries)
        lines = [f"not compared as they are: the config names client {made.client} as an adversary", f"  {lines[0]}"]
        lines.append(f"  {turning} turned rows of hers before the commitment, and turned those at hand alike")
    lines.append(f"  read by {_in_words(made.data)}, as the config says that was committed to")
    lines += [f"  {what}; nothing binds that record" for what in done_to_own(data)]
    lines += ["  give --commitment HEX, as it was published before training"] if expected is None else []
    lines += [f"  not found at hand: {_listed(found.missing)}"] if found.missing else []
    lines += [f"  of another than has this secret: {', '.join(foreign)}"] if foreign else []
    lines += ["  secret, key and chain follow from this secret"] if own_secret is not None and not foreign else []
    if found.surplus and its_own:
        more = counted(found.surplus, "other row", "other rows")
        lines.append(f"  the reader brings {more} too, of other clients or for tests: the receipt is not about them")
    elif found.surplus:
        more = counted(found.surplus, "row at hand is", "rows at hand are")
        lines.append(f"  {more} in no leaf of the receipt: {NO_LEAF}")
    # whoever forges a receipt can forge the commitment in it, or commit to rows that all know
    alone = expected is None or its_own or adversaries
    verdict = Verdict.FAIL if wrong else Verdict.INCONCLUSIVE if alone else Verdict.PASS
    output.emit(
        {
            "verdict": verdict,
            "name": made.whose,
            "client": made.client,
            "commitment": made.commitment,
            "same_commitment": None if expected is None else not other,
            "reader": made.data,
            "adversaries": adversaries,
            "brings_rows": bool(its_own),
            "of_another_secret": None if own_secret is None else list(foreign),
            "rows": len(made.rows),
            "missing": list(found.missing),
            "surplus": found.surplus,
        },
        lines,
    )
    if code := EXIT_CODES[verdict]:
        raise click.exceptions.Exit(code)
