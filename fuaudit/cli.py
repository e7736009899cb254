"""The command line: parse, call one function, print, exit. Heavy imports happen inside the commands."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from fuaudit.errors import FuauditError, PluginError, StorageError, UsageError

Command = TypeVar("Command", bound=Callable[..., Any])
Folder = click.Path(path_type=Path)


class Interrupted(FuauditError):
    """The user pressed Ctrl-C."""

    exit_code = 130


@contextmanager
def resumable(folder: Path, parent: Path | None = None) -> Iterator[None]:
    """Where work in a folder breaks off and can be finished, say by which command."""
    try:
        yield
    except (KeyboardInterrupt, StorageError) as error:
        command = f"fuaudit resume {shlex.quote(str(folder))}"
        if parent is not None and parent.resolve().parent != folder.resolve().parent:
            command += f" --parent {shlex.quote(str(parent))}"
        begun = (folder / "run.json").exists() and not (folder / "manifest.json").exists()
        if isinstance(error, StorageError):
            error.hint += f"\n  Then finish the run with: {command}" if begun else ""
            raise
        hint = f"Finish the run with: {command}" if begun else ""
        raise Interrupted("interrupted; nothing that was complete is lost", hint) from None


def output_options(command: Command) -> Command:
    """``--json`` prints one document and nothing else; ``--quiet`` draws no progress and prints less."""
    command = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(command)
    return click.option("-q", "--quiet", is_flag=True, help="No progress bars, only the result.")(command)


def data_option(command: Command) -> Command:
    """The folder of the data."""
    text = "Folder of the data, for datasets that need one (for MNIST the folder above MNIST/raw)."
    return click.option("--data", "root", type=Folder, help=text)(command)


def emit(as_json: bool, document: dict[str, Any], lines: list[str]) -> None:
    """The result of a command, for programs or for people."""
    click.echo(json.dumps(document, sort_keys=True, indent=1, default=str) if as_json else "\n".join(lines))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="fuaudit")
def cli() -> None:
    """Show, or refute, that a federated model has forgotten a client or a sample.

    Exit codes: 0 pass, 1 fail, 2 usage, 3 inconclusive, 4 evidence rejected, 5 plugin failed, 70 internal error,
    130 interrupted.
    """


@cli.command()
@click.argument("config", type=Folder)
@click.option("--out", type=Folder, help="Folder to write; default runs/<name of the config>.")
@data_option
@click.option("--secret", help="Master secret, 64 hex digits; default: from the operating system.")
@click.option("--until", type=int, help="Stop after this round, as when a request comes in during training.")
@output_options
def train(
    config: Path, out: Path | None, root: Path | None, secret: str | None, until: int | None, as_json: bool, quiet: bool
) -> None:
    """Train a federation from CONFIG (TOML) and save the run."""
    from fuaudit.terminal import bars
    from fuaudit.workflow.train import train as work

    folder = out or Path("runs") / config.stem
    with bars(quiet or as_json) as progress, resumable(folder):
        run = work(
            config,
            folder,
            root,
            _hex(secret, "--secret"),
            until,
            progress=progress,
            announce=lambda text: click.echo(f"commitment {text}", err=as_json),
        )
    _describe(run, as_json, f"trained {run.executed} rounds")


@cli.command()
@click.argument("run", type=Folder)
@click.option("--with", "name", required=True, help="The unlearner; `fuaudit plugins` lists them.")
@click.option("--client", "clients", type=int, multiple=True, help="A client to forget; may be repeated.")
@click.option("--sample", "samples", multiple=True, help="A sample to forget, as CLIENT:INDEX; may be repeated.")
@click.option("--option", "options", multiple=True, help="An option of the unlearner, as NAME=VALUE (TOML).")
@click.option("--out", type=Folder, help="Folder to write; default <RUN>-<unlearner>.")
@data_option
@output_options
def unlearn(
    run: Path,
    name: str,
    clients: tuple[int, ...],
    samples: tuple[str, ...],
    options: tuple[str, ...],
    out: Path | None,
    root: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Carry out a request on RUN; the result is a child run beside it."""
    from fuaudit.runs.run import load_run
    from fuaudit.terminal import bars
    from fuaudit.workflow.unlearn import request_of
    from fuaudit.workflow.unlearn import unlearn as work

    parent = load_run(run)
    request = request_of(parent, clients, tuple(map(_place, samples)))
    folder = out or parent.path.with_name(f"{parent.path.name}-{name}")
    with bars(quiet or as_json) as progress, resumable(folder, parent.path):
        child = work(parent, name, request, folder, _options(options), root, progress=progress)
    drawn = parent.plan.first_involvement(request)
    note = "" if drawn else "; it was never drawn: this run contains nothing to forget"
    _describe(child, as_json, f"forgot {request} with {name}{note}")


@cli.command()
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

    expected = None
    if clients or samples:
        from fuaudit.plans import Request
        from fuaudit.runs.run import load_run

        opened = load_run(run)
        expected = Request.of(clients, [_numbered(opened, *_place(text)) for text in samples])
    silent = quiet or as_json
    with bars(silent) as progress:
        result = work(
            run,
            spec,
            root,
            erased,
            parent,
            commitment,
            expected,
            budget=budget,
            key=_hex(key, "--key"),
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
    lines += ["", f"findings {audit_folder(run) / 'findings.json'}", f"report   fuaudit report {run}"]
    emit(as_json, result.as_json(), lines[:1] if quiet else lines)
    sys.exit(result.exit_code)


@cli.command()
@click.argument("run", type=Folder)
@click.option("--format", "form", type=click.Choice(["html", "json", "md", "junit"]), default="html", show_default=True)
@output_options
def report(run: Path, form: str, as_json: bool, quiet: bool) -> None:
    """Write a report from the findings of RUN."""
    from fuaudit.reporting import write_report

    path = write_report(run, form)
    emit(as_json, {"report": str(path)}, [str(path)])


@cli.command()
@click.argument("run", type=Folder)
@output_options
def show(run: Path, as_json: bool, quiet: bool) -> None:
    """Show what RUN records, after checking every byte of it."""
    from fuaudit.runs.run import load_run

    _describe(load_run(run), as_json, "every byte accounted for")


@cli.command()
@click.argument("run", type=Folder)
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_options
def prune(run: Path, yes: bool, as_json: bool, quiet: bool) -> None:
    """Remove what the store remembers of erased data: old keys, old ids, and the ancestors of RUN."""
    from fuaudit.runs.prune import other_holders, recover
    from fuaudit.runs.prune import prune as work
    from fuaudit.runs.run import load_run

    opened = load_run(recover(run))
    others = list(map(str, other_holders(opened)))
    if not yes:
        click.confirm(
            f"This removes the models and keys of the ancestors of {run} for good. Go on?", abort=True, err=True
        )
    pruned, buried = work(opened)
    emit(
        as_json,
        {"run": str(run), "digest": pruned.digest, "tombstones": list(map(str, buried)), "still_holding_keys": others},
        [
            f"pruned {run}, digest {pruned.digest}",
            *(f"tombstone {path}" for path in buried),
            *(f"left alone: {path} holds a key that gives erased draws back" for path in others),
        ],
    )


@cli.command()
@click.argument("run", type=Folder)
@data_option
@click.option("--parent", type=Folder, help="The parent's folder; default: beside the run.")
@output_options
def resume(run: Path, root: Path | None, parent: Path | None, as_json: bool, quiet: bool) -> None:
    """Finish the interrupted training or unlearning in RUN."""
    from fuaudit.terminal import bars
    from fuaudit.workflow.resume import resume as work

    with bars(quiet or as_json) as progress, resumable(run, parent):
        done = work(run, root, parent, progress=progress)
    _describe(done, as_json, "finished")


@cli.command()
@output_options
def plugins(as_json: bool, quiet: bool) -> None:
    """List what is installed: name, kind, paper, guarantee, distribution, version."""
    from fuaudit.registry import KINDS, entries

    rows, broken = [], []
    for kind in KINDS:
        for name, entry in sorted(entries(kind).items()):
            try:
                plugin = entry.load()
            except PluginError as error:
                broken.append(str(error))
                continue
            rows.append(
                {
                    "kind": kind[:-1],
                    "name": name,
                    "guarantee": getattr(plugin, "guarantee", ""),
                    "cite": getattr(plugin, "cite", ""),
                    "distribution": entry.distribution,
                    "version": entry.version,
                }
            )
    lines = []
    for row in rows:
        lines.append(f"{row['kind']:<11} {row['name']:<16} {row['distribution']} {row['version']}")
        if not quiet:
            lines += [f"{'':<28} {row[word]}" for word in ("guarantee", "cite") if row[word]]
    emit(as_json, {"plugins": rows, "broken": broken}, lines)
    if broken:
        raise PluginError("\n".join(broken))


@cli.command()
@click.argument("name")
@click.option("--clients", type=click.IntRange(1), default=2, show_default=True)
@click.option("--samples", type=click.IntRange(1), default=2, show_default=True, help="Samples of every client.")
@click.option("--rounds", type=click.IntRange(1), default=1, show_default=True)
@click.option("--cohort", type=click.IntRange(1), default=1, show_default=True)
@click.option("--steps", type=click.IntRange(1), default=1, show_default=True)
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True)
@click.option("--request", type=click.Choice(["sample", "client", "mixed"]), default="client", show_default=True)
@click.option("--requests", type=click.IntRange(1), default=1, show_default=True, help="How many, one after another.")
@click.option("--without-replacement", is_flag=True, help="Cohorts of distinct clients (FedAvg); default: FATS.")
@click.option("--up-to", type=click.IntRange(1), help="Sweep the federations up to this bound instead.")
@click.option("--leaves", type=click.IntRange(1), default=200_000, show_default=True, help="Budget of leaves.")
@output_options
def prove(
    name: str,
    clients: int,
    samples: int,
    rounds: int,
    cohort: int,
    steps: int,
    batch: int,
    request: str,
    requests: int,
    without_replacement: bool,
    up_to: int | None,
    leaves: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Compare the law of unlearner NAME with retraining, exactly, on small federations. Exit code 1 if they differ."""
    from fuaudit.plans import UniformLaw, exactness
    from fuaudit.registry import build
    from fuaudit.terminal import bars
    from fuaudit.unlearning import is_editor
    from fuaudit.verification.enumeration import federation, requests_of

    unlearner = build("unlearners", name)
    if is_editor(unlearner):
        raise UsageError(f"{name!r} edits models: it has no plan whose law could be enumerated")
    if up_to is not None:
        with bars(quiet or as_json) as progress:
            _prove_up_to(unlearner, name, up_to, leaves, not without_replacement, as_json, progress)
        return
    if (request != "sample" and requests >= clients) or (request != "client" and requests >= clients * samples):
        raise UsageError(
            f"{requests} {request} requests would leave nothing of {clients} clients with {samples} samples"
        )
    population = federation((samples,) * clients)
    law = UniformLaw(rounds, cohort, steps, batch, replacement=not without_replacement)
    asked = requests_of(request, population, requests)
    result = exactness(unlearner, law, population, asked, leaves=leaves)
    document: dict[str, Any] = {
        "unlearner": name,
        "total_variation": str(result.total_variation),
        "histories": result.histories,
        "requests": list(map(str, asked)),
    }
    lines = [
        f"total variation {result.total_variation}",
        f"{result.histories} histories compared; requests: {'; '.join(map(str, asked))}",
    ]
    if result.witness:
        w = result.witness
        document["witness"] = {"history": w.history, "unlearned": str(w.unlearned), "retrained": str(w.retrained)}
        lines += [
            "smallest witness: " + "; ".join(_history(w.history)),
            f"  probability {w.unlearned} after unlearning, {w.retrained} after retraining",
        ]
    emit(as_json, document, lines)
    sys.exit(0 if result.exact else 1)


def _prove_up_to(
    unlearner: Any, name: str, bound: int, leaves: int, replacement: bool, as_json: bool, progress: Any
) -> None:
    from fuaudit.verification.enumeration import all_toys, sweep

    found = sweep(unlearner, all_toys(bound, replacement), leaves, progress)
    document: dict[str, Any] = {
        "unlearner": name,
        "proved": len(found.proved),
        "refuted": len(found.refuted),
        "too_large": found.too_large,
        "leaves": found.leaves,
        "budget": leaves,
    }
    lines = [f"{len(found.proved)} federations proved exact, {len(found.refuted)} refuted, {found.too_large} too large"]
    if found.smallest:
        toy, result = found.smallest
        document |= {"smallest": str(toy), "total_variation": str(result.total_variation)}
        lines.append(f"smallest refutation: {toy}: total variation {result.total_variation}")
    emit(as_json, document, lines)
    sys.exit(1 if found.refuted else 0 if found.proved else 3)


def _history(history: Any) -> list[str]:
    """A history in words."""
    return [
        f"round {number}: clients {list(cohort)}, batches {[[list(batch) for batch in steps] for steps in places]}"
        for number, (cohort, places) in enumerate(history, 1)
    ]


@cli.command()
@click.option("--with", "name", default="fats", show_default=True, help="A rewriter, whose relatives are spoilt.")
@click.option("--repetitions", type=click.IntRange(1), default=30, show_default=True, help="Of statistical levels.")
@click.option("--pairs", type=click.IntRange(2), default=32, show_default=True, help="Of runs in each of those.")
@click.option("--key", help="Key of everything that is drawn, 64 hex digits; default: zeros.")
@output_options
def selftest(name: str, repetitions: int, pairs: int, key: str | None, as_json: bool, quiet: bool) -> None:
    """Plant ten known faults and see each caught by the level that is there for it. Exit code 1 if one is not."""
    from fuaudit.selftest import selftest as work
    from fuaudit.terminal import bars

    with bars(quiet or as_json) as progress:
        result = work(name, _hex(key, "--key") or bytes(32), repetitions, pairs, progress)
    lines = []
    for row in result.rows:
        power = "certain" if row.caught.tries == 1 else f"power {row.caught.power:.2f}"
        lines.append(f"{'ok  ' if row.held else 'MISS'} {row.name:<32} {row.level:<18} {power}")
        if not quiet:
            lines.append(f"{'':<5}{row.caught.evidence}" + (f" ({row.caught.cost})" if row.caught.cost else ""))
    document = {"unlearner": name, "held": result.held, "rows": [row.as_json() for row in result.rows]}
    emit(as_json, document, lines)
    sys.exit(0 if result.held else 1)


@cli.command()
@click.option("--out", type=Folder, default=Path("demo-output"), show_default=True, help="Folder to write.")
@output_options
def demo(out: Path, as_json: bool, quiet: bool) -> None:
    """Train on real digits, forget a client with noop and with FATS, verify both, write reports."""
    from fuaudit.demo import demo as work
    from fuaudit.terminal import bars

    with bars(quiet or as_json) as progress:
        result = work(out, progress, None if as_json or quiet else click.echo)
    emit(
        as_json,
        result,
        [
            f"report of the untouched model: {result['noop']['report']}",
            f"report of the FATS model:      {result['fats']['report']}",
        ],
    )
    if not result["as_expected"]:
        sys.exit(1)


def _describe(run: Any, as_json: bool, what: str) -> None:
    last = run.metrics[-1]
    law = run.plan.law
    document: dict[str, Any] = {
        "run": str(run.path),
        "digest": run.digest,
        "kind": run.info["kind"],
        "executed_rounds": run.executed,
        "commitment": run.ledger.events[0].get("commitment"),
        "engine": run.info["engine"],
        "metrics": run.metrics,
        "requests": list(map(str, run.requests)),
        "law": law.name,
        "stability": _stability(run),
    }
    lines = [
        f"{run.path}: {what}",
        f"  digest        {run.digest}",
        f"  commitment    {document['commitment']}",
        f"  test accuracy {last['test_accuracy']:.4f} after round {last['round']}",
    ]
    if run.is_child:
        document |= {
            "parent": run.info["parent"],
            "unlearner": run.info["unlearner"],
            "first_change": run.info["first_change"],
        }
        rounds = max(0, min(run.info["first_change"][0], law.rounds + 1) - 1)
        lines.append(f"  kept          {rounds} of {law.rounds} rounds")
    lines += [f"  {text}" for text in document["stability"]]
    emit(as_json, document, lines)


def _stability(run: Any) -> list[str]:
    """How often one more request would make an exact rewriter compute again, where the learner can say it."""
    describe = getattr(run.learner, "stability", None)
    return describe(run.plan.retained) if describe else []


def _hex(text: str | None, option: str) -> bytes | None:
    try:
        value = None if text is None else bytes.fromhex(text)
    except ValueError:
        value = b""
    if value is not None and len(value) != 32:
        raise UsageError(f"{option} takes 64 hexadecimal digits")
    return value


def _place(text: str) -> tuple[int, int]:
    client, _, index = text.partition(":")
    if not (client.isdecimal() and index.isdecimal()):
        raise UsageError(f"--sample takes CLIENT:INDEX, such as 3:14, not {text!r}")
    return int(client), int(index)


def _numbered(run: Any, client: int, index: int) -> int:
    owned = run.numbered(client)
    if not 0 <= index < len(owned):
        raise UsageError(f"client {client} has samples 0 to {len(owned) - 1}, not {index}")
    return int(owned[index])


def _options(pairs: tuple[str, ...]) -> dict[str, object]:
    import tomllib

    table: dict[str, object] = {}
    for pair in pairs:
        try:
            table |= tomllib.loads(pair)
        except tomllib.TOMLDecodeError:
            raise UsageError(f"--option takes NAME=VALUE in TOML, such as rounds=5, not {pair!r}") from None
    return table


def _leave(number: int, frame: object) -> NoReturn:
    """Ctrl-C while libraries are being imported: nothing was begun, and some of them abort on an exception."""
    os.write(2, b"\ninterrupted before anything was begun\n")
    os._exit(130)


def main() -> None:
    """Run the command line; every error ends in its exit code, none in a bare traceback."""
    usual = signal.signal(signal.SIGINT, _leave)  # until the work begins, see fuaudit.terminal.bars
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (KeyboardInterrupt, click.Abort):
        click.echo("\ninterrupted; nothing that was complete is lost", err=True)
        sys.exit(130)
    except Interrupted as error:
        click.echo(f"\n{error}", err=True)
        sys.exit(error.exit_code)
    except FuauditError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except ImportError as error:
        _explain_import(error)
        sys.exit(70)
    except Exception as error:
        if isinstance(error, BrokenPipeError):
            sys.exit(70)
        import traceback

        traceback.print_exc()
        click.echo(
            f"internal error: {error!r}; this is a fault of fuaudit, please report it with the lines above", err=True
        )
        sys.exit(70)
    finally:
        signal.signal(signal.SIGINT, usual)


def _explain_import(error: ImportError) -> None:
    click.echo(f"error: a library cannot be imported: {error}", err=True)
    if "torch" in str(error):
        click.echo(
            "  torch and torchvision must be a matching pair: install both anew, in one command, from one index.",
            err=True,
        )


if __name__ == "__main__":
    main()
