"""Commands that audit runs, and the report on their findings."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from fuaudit.cli.completion import ARun, client_names, spec_names
from fuaudit.cli.options import (
    Folder,
    Output,
    commitment_of,
    data_option,
    hexadecimal,
    ledger_head_of,
    lost,
    output_options,
    place,
    say,
)
from fuaudit.cli.proposed import to_unlearn
from fuaudit.text import command, counted


@click.command()
@click.argument("run", type=ARun)
@click.option(
    "--spec",
    shell_complete=spec_names,
    help="A spec file, or a built-in one; default: the built-in one for what was asked for.",
)
@data_option
@click.option("--erased", type=Folder, help="Folder with the erased rows, where --data no longer holds them.")
@click.option("--parent", type=ARun, help="The parent's folder; default: beside the run.")
@click.option(
    "--client",
    "clients",
    multiple=True,
    shell_complete=client_names,
    help="The request to expect, of this run or an earlier one of its lineage: a client's name; may be repeated.",
)
@click.option("--sample", "samples", multiple=True, help="Likewise, NAME:INDEX; may be repeated.")
@click.option("--commitment", help="The commitment received before training, to compare with.")
@click.option(
    "--receipt",
    "receipts",
    type=Folder,
    multiple=True,
    help="The receipt of one whose data was to be forgotten, to look for equal rows; may be repeated.",
)
@click.option(
    "--budget", type=click.IntRange(0), help="The most training runs to execute; default: what the spec says."
)
@click.option(
    "--spot-check",
    type=click.IntRange(1),
    help="Replay only so many stretches between stored models, drawn by the key.",
)
@click.option("--key", help="Key of the audit's own draws, 64 hex digits; default: fresh from the operating system.")
@click.option(
    "--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes for repeated sampling."
)
@click.option("--cache", "cache", type=Folder, help="Keep finished sampling here, to go on after a kill; needs --key.")
@click.option(
    "--stopping",
    type=click.Choice(["fixed", "decided"]),
    default="fixed",
    show_default=True,
    help="Sample the pairs of the spec; or stop on a rejection, and go on up to --budget for want of power.",
)
@click.option(
    "--model", type=Folder, help="The model in use, a safetensors file: it must be the run's last, number for number."
)
@click.option("--before", type=Folder, help="Findings of this run from before it was pruned.")
@click.option(
    "--delta",
    type=float,
    help="At which the account of what rounds released is made; default: that of the config's [budget], or 0.",
)
@click.option("--beacon", help="What was published after the commitment, in hexadecimal, to compare with.")
@click.option(
    "--roster",
    type=Folder,
    help="Clients, witness and key holder with their public keys, a line each, to compare with; behind sums.",
)
@click.option(
    "--ledger-head",
    help="The ledger head that was kept when training ended, or before: the ledger must still have a line with it.",
)
@output_options
def verify(
    run: Path,
    spec: str | None,
    key: str | None,
    clients: tuple[str, ...],
    samples: tuple[str, ...],
    output: Output,
    **given: Any,
) -> None:
    """Audit RUN against a spec; findings go to <RUN>.audit."""
    from fuaudit.runs.run import load_run, require_run

    # arguments that cannot be meant are refused before anything heavy is imported
    given["ledger_head"] = ledger_head_of(given["ledger_head"])
    given["commitment"], chosen = commitment_of(given["commitment"]), hexadecimal(key, "--key")
    places = list(map(place, samples))
    require_run(run)

    from fuaudit.registry import trusting
    from fuaudit.terminal import bars
    from fuaudit.verification.spec import read_spec
    from fuaudit.verification.verify import verify as work

    policy = read_spec(spec) if spec else None
    if clients or samples:
        from fuaudit.runs.names import requested
        from fuaudit.runs.receipts import read_receipt

        with trusting(policy.trusts if policy else None):
            given["request"] = requested(load_run(run), clients, places, list(map(read_receipt, given["receipts"])))
    estimate = None if output.silent else lambda text: say(text, err=True)
    with lost(given["cache"]), bars(output.silent) as progress:
        # what is left are options, in the words of verify
        result = work(run, policy, chosen, progress=progress, estimate=estimate, **given)
    lines = [f"{result.verdict}: {result.reason} {result.standing}", *_who(result), ""]
    for check, finding in zip(result.spec.checks, result.findings, strict=True):
        role = "" if check.role == "required" else " (supporting)"
        lines.append(f"  {finding.verdict:<14} {finding.audit:<12} {finding.shows}{role}")
        if finding.verdict == "FAIL":
            lines += [f"{'':<30}{detail}" for detail in finding.details[:4]]
    if result.spec.asks != "sums" and "request" not in result.context and "sealed" not in result.context:
        forget = to_unlearn(load_run(run), given["data"])
        lines += ["", f"There is nothing to judge yet; unlearn first: {forget[0]}"] if forget else []
    if result.conclusion.rests_on:
        lines += ["", "  rests on:", *(f"    {line}" for line in result.conclusion.rests_on)]
        lines += _elsewhere(result, run)
    elif result.verdict == "INCONCLUSIVE":
        lines += _taken_on_trust(result)
    lines += ["", f"findings {result.path}", f"report   {command('report', run)}"]
    output.emit(
        result.as_json() | {"stored": str(result.path), "standing": result.standing},
        lines,
    )
    raise click.exceptions.Exit(result.exit_code)


@click.command()
@click.argument("run", type=ARun)
@click.option(
    "--format",
    "form",
    type=click.Choice(["html", "json", "md", "junit"]),
    help="Default: what --out ends in, else html.",
)
@click.option("--findings", type=Folder, help="A file of findings; default: those of the last verification.")
@click.option("--out", type=Folder, help="File to write; default: beside the findings, under their name.")
@output_options
def report(run: Path, form: str | None, findings: Path | None, out: Path | None, output: Output) -> None:
    """Write a report from the findings of RUN."""
    from fuaudit.reporting import write_report

    path = write_report(run, form, findings, out)
    output.emit({"report": str(path)}, [str(path)])


@click.command()
@click.argument("run", type=ARun)
@output_options
def history(run: Path, output: Output) -> None:
    """List all verifications of RUN, as the log beside it tells."""
    from dataclasses import asdict

    from fuaudit.runs.ancestors import run_or_remains
    from fuaudit.runs.run import Run
    from fuaudit.verification import store

    found = run_or_remains(run)
    here = found.digest, found.ledger.head
    folder = store.audit_folder(run)
    entries = store.history(folder)
    told = (
        f"{counted(len(entries), 'verification')} by {folder / store.LOG}" if entries else f"{run} was never verified"
    )
    told += "" if isinstance(found, Run) else "; the run is gone, and its tombstone says that a prune removed it"
    lines = [] if output.quiet and entries else [told]
    for entry in entries:
        about = "" if entry.of == here else "; of the run as it was before a prune, or of another one"
        about = "; of this run with another ledger" if entry.run == here[0] and about else about
        key = "key given" if entry.key_given else "key drawn"
        spec = f"{entry.spec['id']} ({entry.spec['origin']}, {entry.spec['digest'][:16]})"
        lines.append(f"{entry.number:>4}  {entry.begun}  {entry.outcome:<14} {spec}; {key}{about}")
        if not output.quiet:
            kept = "as stored" if entry.kept else "missing or altered"
            lines += [f"      arguments {shlex.join(entry.arguments)}"] if entry.arguments else []
            lines += [f"      {entry.findings}: {kept}"] if entry.findings else []
            lines += [f"      {why}"] if entry.verdict == "FAIL" and (why := store.reason(folder, entry)) else []
    rows = [asdict(entry) | {"this_run": entry.of == here} for entry in entries]
    output.emit({"verifications": rows}, lines, lines)


def _taken_on_trust(result: Any) -> list[str]:
    """What the audits that passed rest on, where the spec as a whole did not pass, each line once."""
    passed = {line: found.audit for found in result.findings if found.verdict == "PASS" for line in found.assumptions}
    return (
        ["", "  what passed rests on:", *(f"    {audit}: {line}" for line, audit in passed.items())] if passed else []
    )


def _elsewhere(result: Any, run: Path) -> list[str]:
    """Places beyond the run that a PASS says nothing of, and the command that removes some of them."""
    places = [copy.place for finding in result.findings for copy in finding.copies if copy.holds]
    if not places:
        return []
    more = f", and {len(places) - MOST_PLACES} more" if len(places) > MOST_PLACES else ""
    told = (
        f"  {counted(len(places), 'place')} beyond this model may still hold what was forgotten (the report says why): "
    )
    removed = f"  what ancestors hold is removed by {command('prune', run)}"
    of_ancestors = any(row["kind"] != "pruned" for row in result.lineage[1:])
    return ["", f"{told}{', '.join(places[:MOST_PLACES])}{more}", *([removed] if of_ancestors else [])]


MOST_PLACES = 8
"""How many places a PASS lists."""


def _who(result: Any) -> list[str]:
    """Who was to be forgotten, by name."""
    from fuaudit.runs.names import in_words

    return [f"to forget {in_words(row)}" for row in result.context.get("to_forget", ())]
