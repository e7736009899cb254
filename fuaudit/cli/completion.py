"""What a shell offers for a word that was begun: runs, names of plugins and specs, clients. Nothing is imported for it
but what metadata and a file of names tell, and whatever goes wrong offers nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from fuaudit.text import is_printable

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


class RunType(click.Path):
    """The folder of a run: runs are offered, and folders that may hold some."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Runs as they are, other folders with a slash, so that the shell goes on inside."""
        from fuaudit.runs.listing import is_run

        above, begun = os.path.split(incomplete)
        found = []
        with suppress(OSError):
            for item in sorted(Path(above or ".").iterdir()):
                fits = item.name.startswith(begun) and not item.name.endswith(".audit")
                if fits and item.is_dir() and (begun or not item.name.startswith(".")):
                    text = os.path.join(above, item.name)
                    found.append(text if is_run(item) else f"{text}/")
        return _offered(found, "")


ARun = RunType(path_type=Path)


def _offered(names: Iterable[str], begun: str) -> list[CompletionItem]:
    fitting = [name for name in sorted(names) if name.startswith(begun) and is_printable(name)]
    return [CompletionItem(_word(name)) for name in fitting]


def _word(name: str) -> str:
    """A name as the script of a shell takes it: a name in a run of others must not become a command.

    That of bash reads backslashes once, then puts the word on the line as it is. Other shells quote words themselves.
    """
    if os.environ.get("_FUAUDIT_COMPLETE") != "bash_complete":
        return name
    return re.sub(r"([^\w@%+=:,./-])", r"\\\1", name).replace("\\", "\\\\")


def plugin_of(*kinds: str) -> Completer:
    """Names of plugins of some kinds; of all without any."""

    def complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        from fuaudit import registry

        return _offered({name for kind in kinds or registry.KINDS for name in registry.entries(kind)}, begun)

    return complete


def spec_names(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Names of built-in specs, and files."""
    from importlib.resources import files

    names = [
        item.name.removesuffix(".toml") for item in files("fuaudit_specs").iterdir() if item.name.endswith(".toml")
    ]
    return _offered(names, begun) or [CompletionItem(begun, type="file")]


def client_names(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Names of the clients of the run that was given before, where they have any."""
    from fuaudit.errors import FuauditError
    from fuaudit.formats.files import read_json
    from fuaudit.runs.layout import CLIENTS, SECRETS

    # an option without its value ends the reading of a line: what stood before it is left over
    run = context.params["run"] or next(iter(context.args), "")
    with suppress(FuauditError, KeyError, TypeError, AttributeError):
        names = read_json(Path(run) / CLIENTS)["names"] or read_json(Path(run) / SECRETS)["names"]
        return _offered(map(str, names.values()), begun)
    return []
