"""Commands that audit runs, and the report on their findings."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from fuaudit.cli.options import Folder, commitment_of, data_option, emit, hexadecimal, output_options, place


@click.command()
@click.argument("run", type=Folder)
@click.option("--spec", help="A spec file, or the name of a built-in one.")
@data_option
@click.option("--erased", type=Folder, help="Folder with the erased rows, where --data no longer holds them.")
@click.option("--parent", type=Folder, help="The parent's folder; default: beside the run.")
@click.option("--client", "clients", type=int, multiple=True, help="The request to expect: a client; may be repeated.")
@click.option("--sample", "samples", multiple=True, help="The request to expect: CLIENT:INDEX; may be repeated.")
@click.option("--commitment", help="The commitment received before training, to compare with.")
@click.option(
    "--budget", type=click.IntRange(0), help="The most training runs to execute; default: what the spec says."
)
@click.option(
    "--spot", type=click.IntRange(1), help="Replay only so many stretches between stored models, drawn by the key."
)
@click.option("--key", help="Key of the audit's own draws, 64 hex digits; default: fresh from the operating system.")
@click.option(
    "--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes for repeated sampling."
)
@click.option("--keep", "kept", type=Folder, help="Keep finished sampling here, to go on after a kill; needs --key.")
@click.option(
    "--until",
    type=click.Choice(["fixed", "decided"]),
    default="fixed",
    show_default=True,
    help="Sample the pairs of the spec; or stop on a rejection, and go on up to --budget for want of power.",
)
@output_options
def verify(
    run: Path,
    spec: str | None,
    root: Path | None,
    erased: Path | None,
    parent: Path | None,
    clients: tuple[int, ...],
    samples: tuple[str, ...],
    commitment: str | None,
    budget: int | None,
    spot: int | None,
    key: str | None,
    workers: int,
    kept: Path | None,
    until: str,
    as_json: bool,
    quiet: bool,
) -> None:
    """Audit RUN against a spec; findings go to <RUN>.audit."""
    from fuaudit.terminal import bars
    from fuaudit.verification.verify import audit_folder
    from fuaudit.verification.verify import verify as work

    promised = commitment_of(commitment)
    expected = None
    if clients or samples:
        from fuaudit.plans import Request
        from fuaudit.runs.run import load_run

        opened = load_run(run)
        expected = Request.of(clients, [opened.sample(*place(text)) for text in samples])
    silent = quiet or as_json
    with bars(silent) as progress:
        result = work(
            run,
            spec,
            root,
            erased,
            parent,
            promised,
            expected,
            budget=budget,
            key=hexadecimal(key, "--key"),
            workers=workers,
            kept=kept,
            until_decided=until == "decided",
            progress=progress,
            spot=spot,
            estimate=None if silent else lambda text: click.echo(text, err=True),
        )
    lines = [f"{result.verdict}: {result.reason}", ""]
    for check, finding in zip(result.spec.checks, result.findings, strict=True):
        role = "" if check.role == "required" else " (supporting)"
        lines.append(f"  {finding.verdict:<14} {finding.audit:<12} {finding.shows}{role}")
        if finding.verdict == "FAIL":
            lines += [f"{'':<30}{detail}" for detail in finding.details[:4]]
    if "request" not in result.context:
        lines += ["", f"There is nothing to judge yet; unlearn first: fuaudit unlearn {run} --with fats --client 0"]
    lines += ["", f"findings {audit_folder(run) / 'findings.json'}", f"report   fuaudit report {run}"]
    emit(as_json, result.as_json(), lines[:1] if quiet else lines)
    sys.exit(result.exit_code)


@click.command()
@click.argument("run", type=Folder)
@click.option("--format", "form", type=click.Choice(["html", "json", "md", "junit"]), default="html", show_default=True)
@output_options
def report(run: Path, form: str, as_json: bool, quiet: bool) -> None:
    """Write a report from the findings of RUN."""
    from fuaudit.reporting import write_report

    path = write_report(run, form)
    emit(as_json, {"report": str(path)}, [str(path)])
