"""What the commands share: options, values of options, output, and what to do after a break."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from fuaudit.cli.proposed import elsewhere
from fuaudit.config import parse_toml
from fuaudit.errors import FuauditError, StorageError, UsageError
from fuaudit.renamed import FLAGS, sentence
from fuaudit.text import command, printable

Command = TypeVar("Command", bound=Callable[..., Any])
Folder = click.Path(path_type=Path)
LONGEST = 2_000
"""Characters of a line that says what went wrong: files of others can hold words of any length."""


class Interrupted(FuauditError):
    """The user pressed Ctrl-C."""

    exit_code = 130


@contextmanager
def resumable(folder: Path, data: Path | None, parent: Path | None = None) -> Iterator[None]:
    """Where work in a folder breaks off and can be finished, say by which command; and what a refusal leaves there."""

    def is_begun() -> bool:
        return (folder / "run.json").exists() and not (folder / "manifest.json").exists()

    before = is_begun()
    try:
        yield
    except (KeyboardInterrupt, FuauditError) as error:
        from fuaudit.runs.layout import CHAIN
        from fuaudit.runs.transcripts import given_up
        from fuaudit.secure.refusal import ANEW

        again, begun = command("resume", folder, data=data, parent=elsewhere(folder, parent)), is_begun()
        if isinstance(error, StorageError):
            error.hint += f"\n  Then finish the run with: {again}" if begun else "\n  No run was begun."
            raise
        if isinstance(error, FuauditError):
            why = given_up(folder) if begun else ""
            if why and ANEW not in error.hint:
                told = f"The run in {folder} ends here: {why}.\n  {ANEW}"
                error.hint = "\n  ".join(filter(None, (error.hint, told)))
            elif begun and not before and not why:
                # behind a suite another try is another run over the same rows
                other = "" if (folder / CHAIN).exists() else "Remove it to try again otherwise, or "
                told = f"What was complete is kept in {folder}. {other or 'To finish it, '}go on with: {again}"
                error.hint = "\n  ".join(filter(None, (error.hint, told)))
            raise
        if begun:
            raise Interrupted("interrupted; what was complete is kept", f"Finish the run with: {again}") from None
        raise Interrupted("interrupted; no run was begun", "Give the command again.") from None


@contextmanager
def lost(cache: Path | None) -> Iterator[None]:
    """Where a verification is interrupted, say what becomes of it."""
    try:
        yield
    except KeyboardInterrupt:
        kept = "With --key HEX --cache FOLDER finished sampling would be kept."
        kept = f"Finished sampling is kept in {cache}." if cache else kept
        hint = f"Where its audits had begun, the log counts it as not finished. {kept}"
        raise Interrupted("interrupted; there are no findings, and what was computed is lost", hint) from None


@dataclass(frozen=True)
class Output:
    """How a command prints: one JSON document and nothing else, or lines for people, and fewer where it is quiet."""

    as_json: bool
    quiet: bool

    @property
    def silent(self) -> bool:
        """Whether nothing but the result is printed."""
        return self.as_json or self.quiet

    def emit(self, document: dict[str, Any], lines: Sequence[str], brief: Sequence[str] | None = None) -> None:
        """Print the result. Names in lines cannot move the cursor, nor begin a line.

        ``brief``: the lines where it is quiet, by default the first.
        """
        if self.as_json:
            text = json.dumps(document, sort_keys=True, indent=1, default=str)  # escapes all but one control character
            _print(text.replace("\x7f", "\\u007f"))
        else:
            say(*((lines[:1] if brief is None else brief) if self.quiet else lines))


def output_options(command: Callable[..., None]) -> Callable[..., None]:
    """``--json`` and ``--quiet``, which the command gets as one ``output``."""

    @wraps(command)
    def printing(*arguments: Any, as_json: bool, quiet: bool, **options: Any) -> None:
        command(*arguments, output=Output(as_json, quiet), **options)

    told = "No progress bars; of the result one line, or one for each thing that it lists."
    with_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(printing)
    return click.option("-q", "--quiet", is_flag=True, help=told)(with_json)


CHOICES = {"--with": "For example --with fats, or --with retrain; fuaudit plugins lists all."}
"""What can be given to an option that is missing."""


MEANT = {"markdown": "md", "xml": "junit", "htm": "html"}
"""Other words for what an option takes."""


def became(error: click.ClickException) -> list[str]:
    """What became of a flag of before: a line, or none for any other error."""
    if isinstance(error, click.MissingParameter) and error.param is not None:
        return [CHOICES[flag] for flag in error.param.opts if flag in CHOICES]
    if meant := [word for word in MEANT if error.message.startswith(f"{word!r} is not one of ")]:
        return [f"Did you mean {MEANT[meant[0]]!r}?"]
    if not isinstance(error, click.NoSuchOption) or error.option_name not in FLAGS or error.ctx is None:
        return []
    now, command = FLAGS[error.option_name], error.ctx.command
    here = [flag for flag in now if any(flag in parameter.opts for parameter in command.params)]
    told = sentence(error.option_name, " or ".join(here or now))
    return [told if here else f"{told} {command.name} does not take it."]


def data_option(command: Command) -> Command:
    """The folder of the data."""
    text = "Folder of the data, for datasets that need one (for MNIST the folder above MNIST/raw)."
    return click.option("--data", type=Folder, help=text)(command)


def say(*lines: object, err: bool = False) -> None:
    """Print lines, every character of which can be seen."""
    _print("\n".join(map(printable, lines)), err)


def _print(text: str, err: bool = False) -> None:
    try:
        click.echo(text, err=err)
    except OSError as error:
        if err or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left in the buffer has nowhere to go
        raise StorageError(f"the result cannot be printed: {error.strerror}", "Standard output is full.") from None


def complain(text: object) -> None:
    """Print what went wrong to standard error: lines after the first are set in, whatever names are in them."""
    first, *rest = str(text).split("\n")
    lines = [first, *(line if line.startswith("  ") else f"  {line}" for line in rest)]
    say(*(line if len(line) <= LONGEST else f"{line[:LONGEST]} ..." for line in lines), err=True)


def given(*names: str) -> list[str]:
    """Those of some parameters of the present command that were given, and are no defaults, as they are written."""
    context = click.get_current_context()
    chosen = [name for name in names if context.get_parameter_source(name) is not ParameterSource.DEFAULT]
    written = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    return [written[name] for name in chosen]


def hexadecimal(text: str | None, option: str, hint: str = "") -> bytes | None:
    """32 bytes from 64 hexadecimal digits; UsageError for anything else."""
    if text is None:
        return None
    if re.fullmatch("[0-9A-Fa-f]{64}", text) is None:
        raise UsageError(f"{option} takes 64 hexadecimal digits", hint)
    return bytes.fromhex(text)


def commitment_of(text: str | None) -> str | None:
    """The commitment as it is written in ledgers, however it was copied; UsageError for what can be none."""
    hint = f"Give it as it was published before training; that of a run is told by: {command('show', 'RUN')}"
    return _digest(text, "--commitment", hint)


def ledger_head_of(text: str | None) -> str | None:
    """A head of a ledger, however it was copied; UsageError for what can be none."""
    return _digest(text, "--ledger-head", f"Give it as it was kept when training ended, by: {command('show', 'RUN')}")


def _digest(text: str | None, option: str, hint: str) -> str | None:
    value = hexadecimal(None if text is None else text.strip(), option, hint)
    return None if value is None else value.hex()


def place(text: str) -> tuple[str, int]:
    """Name and index of ``--sample NAME:INDEX``; a name may hold colons of its own."""
    client, _, index = text.rpartition(":")
    if not client or re.fullmatch("[0-9]{1,18}", index) is None:
        raise UsageError(f"--sample takes NAME:INDEX, such as 3:14, not {text!r}")
    return client, int(index)


def options_option(command: Command) -> Command:
    """The options of an unlearner; :func:`options_of` reads them."""
    text = "An option of the unlearner, as NAME=VALUE (TOML); may be repeated."
    return click.option("--option", "options", multiple=True, help=text)(command)


def options_of(pairs: tuple[str, ...]) -> dict[str, object]:
    """The table of ``--option NAME=VALUE``, each read as TOML; UsageError for what is none, and for ``use``."""
    table: dict[str, object] = {}
    for pair in pairs:
        try:
            table |= parse_toml(pair)
        except ValueError as error:
            raise UsageError(f"--option takes NAME=VALUE in TOML, such as rounds=5, not {pair!r}", str(error)) from None
    if "use" in table:
        raise UsageError("use is no option of an unlearner", "Say which one to use by its name, not by an option.")
    return table
