"""All commands, and how each ends: the result, an error in words, an exit code."""

from __future__ import annotations

import sys
from io import StringIO

import click

from fuaudit.cli import audits, budgets, data, methods, receipts, runs
from fuaudit.cli.options import Interrupted, became, complain, say
from fuaudit.errors import FuauditError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="fuaudit")
def cli() -> None:
    """Show, or refute, that a federated model has forgotten a client or a sample.

    Exit codes: 0 pass, 1 fail, 2 usage, 3 inconclusive, 4 evidence rejected, 5 plugin failed, 70 internal error, or
    files that cannot be written, 130 interrupted.
    """


for _command in (
    runs.commit, runs.train, runs.unlearn, receipts.receipt, audits.verify, audits.report, audits.history, runs.show,
    runs.runs, runs.prune, runs.redact, runs.seal, runs.resume, data.fetch, data.import_, methods.plugins, methods.new,
    methods.prove, methods.selftest, budgets.budget, runs.demo,
):  # fmt: skip
    cli.add_command(_command)


def run() -> None:
    """Carry out what the command line asks; every error ends in its exit code, none in a bare traceback."""
    try:
        code = cli.main(standalone_mode=False)
    except click.ClickException as error:
        shown = StringIO()
        error.show(shown)
        say(*shown.getvalue().rstrip("\n").split("\n"), *became(error), err=True)
        sys.exit(2)
    except (KeyboardInterrupt, click.Abort):
        click.echo("\ninterrupted; nothing that was complete is lost", err=True)
        sys.exit(130)
    except Interrupted as error:
        complain(f"\n{error}")
        sys.exit(error.exit_code)
    except FuauditError as error:
        complain(f"error: {error}")
        sys.exit(error.exit_code)
    except ImportError as error:
        _explain_import(error)
        sys.exit(70)
    except BaseException as error:  # no command ends by itself: a plugin would choose the exit code
        if isinstance(error, BrokenPipeError):
            sys.exit(70)
        import traceback

        from fuaudit.registry import outside_of

        if where := outside_of(error):
            complain(f"error: a plugin of {where} raised {error!r}")
            sys.exit(5)
        say(*traceback.format_exc().rstrip("\n").split("\n"), err=True)
        complain(f"internal error: {error!r}; this is a fault of fuaudit, please report it with the lines above")
        sys.exit(70)
    sys.exit(code or 0)


def _explain_import(error: ImportError) -> None:
    complain(f"error: a library cannot be imported: {error}")
    if "torch" in str(error):
        say(
            "  torch and torchvision must be a matching pair: install both anew, in one command, from one index.",
            err=True,
        )
