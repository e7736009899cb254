"""The commands that bring data."""

from __future__ import annotations

import shlex
from contextlib import nullcontext, redirect_stderr
from io import StringIO
from pathlib import Path

import click

from fuaudit.cli.options import Folder, Output, given, output_options
from fuaudit.cli.proposed import to_forget
from fuaudit.errors import UsageError
from fuaudit.text import command


@click.command()
@click.argument("dataset")
@click.option("--data", "root", type=Folder, required=True, help="The folder to fetch to, later given with --data.")
@output_options
def fetch(dataset: str, root: Path, output: Output) -> None:
    """Download DATASET (mnist, fashion-mnist, cifar-10, cifar-100) to a folder, or complete what is there."""
    from fuaudit.importing.fetch import fetch as work

    # torchvision draws its bars on standard error and cannot be told otherwise; what goes wrong it raises
    with redirect_stderr(StringIO()) if output.silent else nullcontext():
        work(dataset, root)
    output.emit({"dataset": dataset, "data": str(root)}, [f"{dataset} is in {root}"])


@click.command("import")
@click.argument("file", type=Folder)
@click.option("--client", help="The column that names whose row it is.")
@click.option("--label", help="The column that holds the class; words become numbers by a table.")
@click.option("--out", type=Folder, required=True, help="Folder to write; it must be new or empty.")
@click.option("--test", type=Folder, help="A file of test rows with the same columns; its clients are left out.")
@click.option("--test-share", "share", type=float, default=0.2, show_default=True, help="Else: of each client's rows.")
@click.option("--seed", type=int, default=0, show_default=True, help="What the choice of test rows follows from.")
@click.option("--ignore", "ignored", multiple=True, help="A column to leave out; may be repeated.")
@click.option("--divide", "divided", multiple=True, help="COLUMN=N: divide by a constant; may be repeated.")
@click.option(
    "--like",
    type=Folder,
    help="For one client's own rows: read them as those of this import (its import.json and classes.json).",
)
@click.option(
    "--without",
    multiple=True,
    help="A client whose rows are left out; FILE is then a folder that import made. Other rows keep their ids.",
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float64"]),
    default="float64",
    show_default=True,
    help="Of stored numbers; a whole number that it cannot hold exactly is refused.",
)
@output_options
def import_(
    file: Path,
    client: str | None,
    label: str | None,
    out: Path,
    test: Path | None,
    share: float,
    seed: int,
    ignored: tuple[str, ...],
    divided: tuple[str, ...],
    like: Path | None,
    without: tuple[str, ...],
    dtype: str,
    output: Output,
) -> None:
    """Make a folder that trains from FILE, a CSV file with a header: a row a sample, all other columns numbers."""
    if without:
        _leave_out(file, without, out, output)
        return
    if like is not None:
        _import_own(file, like, out, output)
        return
    if client is None or label is None:
        from fuaudit.importing.csv_table import columns_of

        raise UsageError(
            "say which columns name client and class: --client COLUMN --label COLUMN",
            f"Columns of {file}: {', '.join(map(repr, columns_of(file)))}.",
        )

    from fuaudit.importing.import_csv import Source, import_csv
    from fuaudit.runs.layout import CONFIG

    if test is not None and (spare := given("share", "seed")):
        raise UsageError(f"--test gives the test rows, and {' and '.join(spare)} would choose them", "Leave one out.")
    made = import_csv(Source(file, client, label, test, share, seed, ignored, dtype, _constants(divided)), out)
    run = Path("runs") / out.resolve().name
    commands = [
        command("train", out / CONFIG, data=out, out=run),
        *to_forget(run, made.owners[0], "fats", "HEX", out),
    ]
    hint = "HEX is the commitment that train prints; publish it before anybody asks to be forgotten"
    lines = [f"{out} is written", *(f"  {note}" for note in made.notes), "", *commands, "", hint]
    output.emit(made.record | {"folder": str(out), "notes": made.notes, "next": commands}, lines)


def _constants(pairs: tuple[str, ...]) -> dict[str, str]:
    """Columns and their divisors; a name may hold an equals sign of its own."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, constant = pair.rpartition("=")
        if not equals or name in found:
            raise UsageError(f"--divide takes COLUMN=N once a column, such as age=100, not {pair!r}")
        found[name] = constant
    return found


def _leave_out(folder: Path, names: tuple[str, ...], out: Path, output: Output) -> None:
    from fuaudit.importing.left_out import leave_out

    if spare := given("client", "label", "test", "share", "seed", "ignored", "divided", "like", "dtype"):
        raise UsageError(
            f"--without takes rows out of a folder as it is, and {' and '.join(spare)} would read it otherwise",
            "Leave one out.",
        )
    made = leave_out(folder, names, out)
    again = "verify and unlearn with it from now on: --data " + shlex.quote(str(out))
    lines = [f"{out} is written", *(f"  {note}" for note in made.notes), "", again]
    output.emit(made.record | {"folder": str(out), "notes": made.notes}, lines)


def _import_own(file: Path, like: Path, out: Path, output: Output) -> None:
    from fuaudit.importing.own_rows import import_own

    if spare := given("client", "label", "test", "share", "seed", "ignored", "divided", "dtype"):
        raise UsageError(f"--like says how rows are read, and {' and '.join(spare)} would say it too", "Leave one out.")
    made = import_own(file, like, out)
    check = command("receipt", check="RECEIPT", data=out, commitment="HEX")
    lines = [f"{out} is written", *(f"  {note}" for note in made.notes), "", check]
    output.emit(made.record | {"folder": str(out), "notes": made.notes, "next": [check]}, lines)
