"""Commands that write runs, or show what a run records."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fuaudit.cli.completion import ARun, client_names, plugin_of
from fuaudit.cli.options import (
    Folder,
    Output,
    data_option,
    hexadecimal,
    options_of,
    options_option,
    output_options,
    place,
    resumable,
    say,
)
from fuaudit.cli.proposed import after_training, run_of, to_verify, to_verify_sums, to_verify_view
from fuaudit.declared import says
from fuaudit.errors import EvidenceError, FuauditError, UsageError
from fuaudit.secure.names import EXACT, GIVES_THE_KEY_AWAY, SCARY
from fuaudit.text import WITH_DATA, command, counted, printable, span

if TYPE_CHECKING:
    from fuaudit.runs.listing import Listed
    from fuaudit.verification.store import Verified

NOT_HERE = (
    "Also where an unlearner that claims exactness for some runs and requests does not claim it for these. Mutants, "
    "which are wrong on purpose, need no such word."
)


class Suite(click.Choice[str]):
    """A suite that a training can use; of CKKS it says why it is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """See :class:`click.ParamType`."""
        if str(value).startswith("ckks"):
            raise UsageError(
                f"no training uses {printable(value)!r}: {GIVES_THE_KEY_AWAY}",
                f'Use "bfv+mask". fuaudit.secure.suites.Suite("{SCARY}") is there to be attacked.',
            )
        return super().convert(value, param, ctx)


RECEIVED_BEFORE = (
    "whoever has it can verify it; commitment and head show something where he received them before, the list of "
    "parties where it is from elsewhere:"
)
NO_MESSAGES = (
    "no suite made its sums, so there are no messages that a view could be verified by: train with --secure bfv+mask"
)
NO_MORE_MESSAGES = "its messages went with the prune: that they were those of the protocol, nobody can verify any more"


apart_option = click.option(
    "--apart", is_flag=True, help="With --secure: the parties are processes of their own, and each has its own secrets."
)


@click.command()
@click.argument("config", type=Folder)
@click.option("--out", type=Folder, help="Folder to write; default runs/<name of the config>.")
@data_option
@click.option("--secret", help="Master secret, 64 hex digits; default: from the operating system.")
@click.option("--stop-after", type=int, help="Stop after this round, as when a request comes in during training.")
@click.option("--promise", type=Folder, help="The secret that was committed to before, a file of `fuaudit commit`.")
@click.option(
    "--beacon",
    help="What was published since, 16 to 64 bytes in hexadecimal: it is mixed into all draws. "
    "For a promise that says that one is to come.",
)
@click.option(
    "--secure",
    type=Suite(EXACT),
    help="Make the sums of the transport secure-sum by this suite, each party an object of its own; no bit of the run "
    "depends on it but its name in the ledger.",
)
@apart_option
@output_options
def train(
    config: Path,
    out: Path | None,
    data: Path | None,
    secret: str | None,
    stop_after: int | None,
    promise: Path | None,
    beacon: str | None,
    secure: str | None,
    apart: bool,
    output: Output,
) -> None:
    """Train a federation from CONFIG (TOML) and save the run."""
    from fuaudit.config import read_config

    # arguments that cannot be meant are refused before anything heavy is imported
    master, resolved = hexadecimal(secret, "--secret"), read_config(config)

    from fuaudit.terminal import bars
    from fuaudit.workflow.train import train as work

    folder = out or Path("runs") / config.stem
    constant: list[tuple[int, float]] = []
    with bars(output.silent) as progress, resumable(folder, data):
        run = work(
            resolved,
            folder,
            data,
            master,
            stop_after,
            progress=progress,
            announce=lambda text: say(f"commitment {text}", err=output.as_json),
            promise=promise,
            beacon=beacon,
            baseline=lambda number, share: constant.append((number, share)),
            secure=secure,
            apart=apart,
            warn=lambda text: say(text, err=True),
        )
    done = f"trained {counted(run.rounds_executed, 'round')}"
    describe(run, output, done, constant, after_training(run, data))


@click.command()
@click.argument("config", type=Folder)
@click.option("--out", type=Folder, required=True, help="File to write: the secret, and the commitment to it.")
@data_option
@click.option("--secret", help="Master secret, 64 hex digits; default: from the operating system.")
@click.option(
    "--no-beacon",
    is_flag=True,
    help="Say that no beacon is to come: training draws from the secret alone. Else it needs one.",
)
@output_options
def commit(config: Path, out: Path, data: Path | None, secret: str | None, no_beacon: bool, output: Output) -> None:
    """Commit to a secret, to CONFIG (TOML) and to the data, before training: publish the commitment, keep the file.

    The commitment also says whether a beacon is to come, something published after it that training mixes in.
    """
    from fuaudit.config import read_config

    master, resolved = hexadecimal(secret, "--secret"), read_config(config)

    from fuaudit.workflow.commit import commit as work

    promise = work(resolved, out, data, master, beacon=not no_beacon)
    beacon = None if no_beacon else "HEX"
    lines = [
        f"commitment {promise.commitment}",
        f"  {out} holds the secret: keep it to yourself, and publish the commitment",
        f"  then train{'' if no_beacon else ' with what is published after it'}: "
        + command("train", config, data=data, promise=out, beacon=beacon, out=run_of(config)),
    ]
    output.emit({"commitment": promise.commitment, "beacon": promise.beacon, "promise": str(out)}, lines)


@click.command()
@click.argument("run", type=ARun)
@click.option(
    "--with",
    "name",
    required=True,
    shell_complete=plugin_of("unlearners"),
    help="The unlearner; `fuaudit plugins` lists them.",
)
@click.option(
    "--client",
    "clients",
    multiple=True,
    shell_complete=client_names,
    help="A client to forget, by its name; may be repeated.",
)
@click.option("--sample", "samples", multiple=True, help="A sample to forget, as NAME:INDEX; may be repeated.")
@options_option
@click.option("--allow-inexact", is_flag=True, help=NOT_HERE)
@click.option("--out", type=Folder, help="Folder to write; default <RUN>-<unlearner>.")
@data_option
@output_options
def unlearn(
    run: Path,
    name: str,
    clients: tuple[str, ...],
    samples: tuple[str, ...],
    options: tuple[str, ...],
    allow_inexact: bool,
    out: Path | None,
    data: Path | None,
    output: Output,
) -> None:
    """Carry out a request on RUN; the result is a child run beside it."""
    from fuaudit.registry import find
    from fuaudit.runs.names import request_of, to_forget, whom
    from fuaudit.runs.run import load_run

    # arguments that cannot be meant are refused before anything heavy is imported
    places, chosen = tuple(map(place, samples)), options_of(options)
    find("unlearners", name)
    parent = load_run(run)
    request = request_of(parent, clients, places)

    from fuaudit.terminal import bars
    from fuaudit.training.setup import depended_on
    from fuaudit.workflow.unlearn import unlearn as work

    folder = out or parent.path.with_name(f"{parent.path.name}-{name}")
    with bars(output.silent) as progress, resumable(folder, data, parent.path):
        child = work(
            parent,
            name,
            request,
            folder,
            chosen,
            data,
            progress=progress,
            allow_inexact=allow_inexact,
        )
    note = "; not verified yet"
    if not parent.by_editor and not parent.plan.first_involvement(request):
        known = depended_on(parent.config, request)
        rest = f", but rounds depend on {known}" if known else ", so there was nothing to forget"
        note += f"; {parent.path.name} never drew what was asked for{rest}"
    promised = parent.config.unlearner
    if promised is not None and promised["use"] != name:
        note += (
            f"; the config named {promised['use']!r}, and every verification will say that {name!r} was chosen later"
        )
    asked = ", ".join(map(whom, to_forget(child)))
    commitment = child.commitment or "HEX"
    following = to_verify(child.path, commitment, data, clients, samples, parent.path, child.beacon)
    following[1:1] = to_verify_sums(child, data, parent.path)
    describe(child, output, f"asked {name} to forget {asked}{note}", following=following)


@click.command()
@click.argument("run", type=ARun)
@data_option
@click.option("--parent", type=ARun, help="The parent's folder; default: beside the run.")
@apart_option
@output_options
def resume(run: Path, data: Path | None, parent: Path | None, apart: bool, output: Output) -> None:
    """Finish the interrupted training or unlearning in RUN."""
    from fuaudit.runs.run import require_begun

    require_begun(run)

    from fuaudit.terminal import bars
    from fuaudit.workflow.resume import resume as work

    with bars(output.silent) as progress, resumable(run, data, parent):
        done = work(run, data, parent, progress=progress, apart=apart)
    describe(done, output, "finished", following=() if done.is_child else after_training(done, data))


@click.command()
@click.argument("run", type=ARun)
@click.option(
    "--roster", is_flag=True, help="Print instead who signs under which public key, as verify --roster reads."
)
@output_options
def show(run: Path, roster: bool, output: Output) -> None:
    """Show what RUN records, after checking every byte of it."""
    from fuaudit.runs.roster import lines_of
    from fuaudit.runs.run import load_run

    found = load_run(run)
    if found.commitment != found.ledger.events[0]["commitment"]:
        raise EvidenceError(f"the ledger of {run} names another commitment than its keys, config and contents make")
    if roster:
        lines = lines_of(found)
        output.emit({"run": str(run), "roster": dict(line.rsplit(" ", 1) for line in lines)}, lines, lines)
        return
    if found.sealed:
        _describe_view(found, output)
        return
    redacted = "redacted: what is the clients' own is not here, every other byte accounted for"
    describe(found, output, redacted if found.redacted else "every byte accounted for", concluded=True)


@click.command()
@click.argument("folder", type=Folder, default=Path("runs"))
@output_options
def runs(folder: Path, output: Output) -> None:
    """List the runs in FOLDER (default: runs), as their files tell: no digest is compared.

    Kind, parent, unlearner, request, and the verdict of the last verification by the log beside each.
    """
    from dataclasses import asdict

    from fuaudit.runs.listing import runs_in

    rows = [asdict(row) | {"verdict": _last_verdict(folder / row.name, row)} for row in runs_in(folder)]
    none = [f"no run in {folder}"]
    names = [row["name"] for row in rows]
    width = max(map(len, names), default=0)
    lines = [_listed(row, width) for row in rows]
    output.emit({"folder": str(folder), "runs": rows}, lines or none, names or none)


def _last_verdict(run: Path, row: Listed) -> str:
    """The verdict of the last verification that ended, where it was of this run; empty for none."""
    if not row.digest:
        return ""
    try:
        ended = _ended(run)
    except FuauditError:
        return "log unreadable"
    if not ended:
        return ""
    last, when = ended[-1], {row.former: " before a prune", (row.digest, row.ledger): ""}
    return last.outcome + when.get(last.of, "") if last.of in when or not last.kept else "not verified as it is now"


def _ended(run: Path) -> list[Verified]:
    """The verifications of the run at a path that ended, by the log beside it. EvidenceError where that is none."""
    from fuaudit.verification.store import audit_folder, history

    return [entry for entry in history(audit_folder(run)) if entry.verdict]


def _listed(row: dict[str, str], width: int) -> str:
    asked = f": {row['whom']}" if row["whom"] else ""
    of = f"of {row['parent']} by {row['unlearner']}{asked}" if row["parent"] else ""
    state = "" if row["state"] == "complete" else f"({row['state']})"
    verdict = row["verdict"]
    if row["kind"] == "training" and verdict == "INCONCLUSIVE":
        verdict = "verified; nothing was asked yet"
    return "  ".join(filter(None, (f"{row['name']:<{width}}  {row['kind']:<10}", of, verdict, state)))


@click.command()
@click.argument("run", type=ARun)
@click.option("--out", required=True, type=Folder, help="The folder to write.")
@output_options
def redact(run: Path, out: Path, output: Output) -> None:
    """Write RUN to another folder without what is the clients' own: their secrets, and what they keep."""
    from fuaudit.workflow.redact import redact as work

    digest = work(run, out).digest
    output.emit({"run": str(out), "digest": digest}, [f"redacted {out}, digest {digest}"], [str(out)])


@click.command()
@click.argument("run", type=ARun)
@click.option("--out", required=True, type=Folder, help="The folder to write.")
@output_options
def seal(run: Path, out: Path, output: Output) -> None:
    """Write what the server may be given of RUN to another folder: no key, no name, no row."""
    from fuaudit.runs.ledger import suite_of
    from fuaudit.workflow.seal import seal as work

    made = work(run, out)
    lines = [f"sealed {out}, digest {made.digest}"]
    document: dict[str, Any] = {"run": str(out), "digest": made.digest}
    if suite_of(made.ledger) == "plain" and not made.pruned:
        told = "its messages hold every client's row in the clear, as the server of 'plain' saw them"
        lines.append(f"  {told}")
        document["doubts"] = [told]
    if made.is_child:
        name = printable(made.info["parent"]["name"])
        lines.append(f"  seal its parent beside it as well, under its own name: {name}")
    following = to_verify_view(made)
    whole = (
        [*lines, "", RECEIVED_BEFORE, *following]
        if following
        else [*lines, f"  {NO_MORE_MESSAGES if made.pruned else NO_MESSAGES}"]
    )
    output.emit(document | {"next": following}, whole, [str(out)])


@click.command()
@click.argument("run", type=ARun)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--allow-orphans", is_flag=True, help="Also where runs beside RUN lose their parent.")
@output_options
def prune(run: Path, yes: bool, allow_orphans: bool, output: Output) -> None:
    """Remove what the store remembers of erased data: old keys, old ids, and the ancestors of RUN."""
    from fuaudit.runs.neighbours import children, neighbours, orphans, receipts_beside
    from fuaudit.runs.run import load_run
    from fuaudit.workflow.prune import first_to_prune, require_forgotten
    from fuaudit.workflow.prune import prune as work
    from fuaudit.workflow.swap import standing

    # nothing is changed before the answer, not even what a killed prune left: another may be at work there
    found = load_run(standing(run))
    require_forgotten(found)
    own = [path.name for path in children(found)] if not found.pruned else []
    losing = own + [path.name for path in orphans(found)]
    if yes and losing and not found.pruned and not allow_orphans:
        raise _would_be_orphans(run, own, losing, first_to_prune(found))
    if not yes:
        if losing:
            say(f"runs that lose their parent by this: {', '.join(losing)}", err=True)
        if own:
            say(f"of these {_lost(own)}", err=True)
        say("receipts of what was forgotten cannot be made after this", err=True)
        say("findings and reports stay as they are: they still say who was forgotten", err=True)
        question = f"This removes the models and keys of {_ancestors(found)} for good. Go on?"
        if not _confirmed(question):
            output.emit({"run": str(run), "pruned": False}, ["nothing was changed"])
            return
    earlier = _verified(run, found)
    pruned, buried = work(run, allow_orphans)
    again = pruned.digest == found.digest and not buried
    beside, receipts = neighbours(pruned), list(map(str, receipts_beside(pruned)))
    others, unread, closed = (list(map(str, paths)) for paths in (beside.holding, beside.unread, beside.without_keys))
    lines = [
        f"{run} was pruned already" if again else f"pruned {run}, digest {pruned.digest}",
        *([f"without their parent now: {', '.join(losing)}"] if losing else []),
        *([_lost(own)] if own else []),
        *(f"left alone: {path} holds a key that gives erased draws back; {_way_out(path)}" for path in others),
        *(f"left alone: {path} cannot be read as a whole, and may hold such a key" for path in unread),
        *(f"left alone: {path} has models of this training and none of its keys: remove it" for path in closed),
        *(f"left alone: {path} is a receipt that opens erased rows; remove your copies of it" for path in receipts),
    ]
    document = {"run": str(run), "digest": pruned.digest, "tombstones": list(map(str, buried)), "orphans": losing}
    document |= {"still_holding_keys": others, "unreadable_keys": unread, "without_keys": closed, "receipts": receipts}
    whole = [lines[0], *(f"tombstone {path}" for path in buried), *lines[1:]]
    if not again:
        # the commitment is whoever verifies to give, as it was received before training; the run's own shows nothing
        following = command("verify", run, commitment="HEX", before=earlier)
        whole += ["", f"its digest is another now; verify it again{WITH_DATA}:", following]
        document |= {"next": [following]}
    output.emit(document, whole, lines)


def _verified(path: Path, run: Any) -> Path | None:
    """The findings of the last verification of the run at a path, as it is; None where it is no PASS, or unreadable."""
    from fuaudit.verification.store import audit_folder

    try:
        last = [one for one in _ended(path) if one.of == (run.digest, run.ledger.head)][-1:]
    except FuauditError:
        return None
    return next((audit_folder(path) / one.findings for one in last if one.kept and one.verdict == "PASS"), None)


def _would_be_orphans(run: Path, own: list[str], losing: list[str], first: Path | None) -> UsageError:
    """Why a prune is refused by which runs lose their parent; ``own`` were made of the run itself, and come first.

    ``first`` is one of these to be pruned in place of the run.
    """
    anyway = f"Say --allow-orphans where that is meant: {command('prune', run)} --yes --allow-orphans."
    if own:
        instead = f"Prune {printable(own[0])} first, then {printable(run.name)} is left as a tombstone: "
        return UsageError(_lost(own), f"{instead}{command('prune', first)}. {anyway}" if first else anyway)
    were = "it was" if len(losing) == 1 else "they were"
    return UsageError(
        f"{', '.join(map(printable, losing))} would lose what {were} made of, for good: no verification could "
        "compare with a parent any more",
        anyway,
    )


def _lost(own: list[str]) -> str:
    """In words: what a prune means for runs that were made of the run itself."""
    return (
        f"{', '.join(map(printable, own))} can be neither verified nor pruned after that: what was made of a run names "
        "its digest, and a prune gives the run another"
    )


def _confirmed(question: str) -> bool:
    """Whether somebody says yes; UsageError where nobody is there to be asked."""
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin is not None and sys.stdin.isatty():
            raise
        raise UsageError("nobody answered, and nothing was changed", "Say --yes to prune without a question.") from None


def _ancestors(run: Any) -> str:
    """The ancestors of a run that a prune removes, by name; in other words where one cannot be read."""
    from fuaudit.runs.ancestors import lineage, parent_of
    from fuaudit.runs.run import Run

    others = f"the ancestors of {printable(run.path)}"
    try:
        names = [one.path.name for one in lineage(parent_of(run)) if isinstance(one, Run)]
    except FuauditError:
        return others
    return f"{others} ({', '.join(map(printable, names))})" if names else others


def _way_out(path: str) -> str:
    """What to do about a run that holds a key: one that was pruned already holds it for a request of its own."""
    from fuaudit.runs.layout import FORMER
    from fuaudit.runs.run import load_run
    from fuaudit.workflow.prune import require_prunable

    if (Path(path) / FORMER).exists():
        return "it was pruned already, so remove it"
    try:
        require_prunable(load_run(Path(path)))
    except FuauditError:
        return "remove it: it cannot be pruned"
    return "prune or remove it"


@click.command()
@click.option("--out", type=Folder, default=Path("demo-output"), show_default=True, help="Folder to write.")
@output_options
def demo(out: Path, output: Output) -> None:
    """Train on real digits, forget a client with FATS, by retraining and with noop, verify, write reports."""
    from fuaudit.demo import demo as work
    from fuaudit.terminal import bars

    with bars(output.silent) as progress:
        result = work(out, progress, None if output.silent else say)
    lines = [
        f"report of the untouched model: {result['noop']['report']}",
        f"report of the FATS model:      {result['fats']['report']}",
    ]
    output.emit(result, lines, lines)
    if not (result["as_expected"] and result["forgotten"]):
        raise click.exceptions.Exit(1)


def describe(
    run: Any,
    output: Output,
    what: str,
    constant: Sequence[tuple[int, float]] = (),
    following: Sequence[str] = (),
    concluded: bool = False,
) -> None:
    """Print what a run records; when quiet only what was done.

    Args:
        constant: the most common class of the test rows and its share, where they are known.
        following: commands that come next.
        concluded: whether to print what the learner concludes, which is for readers of its paper.
    """
    from fuaudit.data.adversaries import in_words as in_words_of_adversaries
    from fuaudit.formats.schema import SALT
    from fuaudit.runs.fears import fears_of
    from fuaudit.runs.ledger import failed_rounds, suite_of
    from fuaudit.runs.names import in_words, to_forget
    from fuaudit.runs.sums import sums_of
    from fuaudit.runs.traffic import traffic

    last = run.metrics[-1]
    law, sums = run.plan.law, sums_of(run)
    noise = _noise_of(run) if suite_of(run.ledger) else None
    never = _never(run)
    document: dict[str, Any] = {
        "run": str(run.path),
        "digest": run.digest,
        "kind": run.info["kind"],
        "rounds_executed": run.rounds_executed,
        "commitment": run.ledger.events[0].get("commitment"),
        "ledger_head": run.ledger.head,
        "engine": run.info["engine"],
        "metrics": run.metrics,
        "requests": list(map(str, run.requests)),
        "pruned": run.pruned,
        "clients": {str(client): run.name(client) for client in run.plan.retained.clients},
        "law": law.name,
        "beacon": run.beacon,
        "stability": [] if never else _stability(run),
        "cuts": _cuts(run),
        "participation": {name: value for name, value in run.participation.items() if name != SALT}
        | {"own_accuracy": run.own_accuracy},
        "adversaries": in_words_of_adversaries(run.config.adversary),
        "fears": fears_of(run),
        "exchange": _exchange(run),
        "confidential": _confidential(run),
        "secure": suite_of(run.ledger),
        "noise": noise,
        "sums": sums.table() if sums else None,
        "traffic": None if run.by_editor else traffic(run).table(),
        "received": list(run.received_rounds),
        "failed_rounds": failed_rounds(run.ledger),
    }
    lines = [
        f"{run.path}: {what}",
        f"  kind          {document['kind']}, {counted(run.rounds_executed, 'round')} of "
        f"{law.rounds}{', pruned' * run.pruned}",
        f"  engine        {document['engine']} on {run.info['device']}",
        f"  digest        {run.digest}",
        f"  commitment    {document['commitment']}",
        f"  ledger head   {run.ledger.head}",
        *([f"  beacon        {run.beacon}"] if run.beacon else []),
        f"  test accuracy {last['test_accuracy']:.4f} after round {last['round']}",
    ]
    lines += [
        f"  adversary     {text}: their rows were turned before the commitment" for text in document["adversaries"]
    ]
    lines += [f"  {text}" for text in _participation(run.participation, run.own_accuracy, run.info)]
    lines += [f"  {text}" for text in (_concluded(run) if concluded else ())]
    lines += [f"  {text}" for text in (*_sent(document["exchange"]), *_traffic(document["traffic"]))]
    lines += [f"  note          {text}" for text in document["fears"]]
    if run.received_rounds:
        told = "they rest on what was recorded of them, and who was drawn may not have come"
        lines.append(f"  in messages   rounds {span(run.received_rounds)}: {told}")
    lines += [f"  {text}" for text in _made(run, document["secure"])]
    lines += [f"  messages      for the largest buffer, at most: {sums.messages}"] if sums and sums.messages else []
    lines += [f"  {text}" for text in _noise(document["noise"], run.path, never)]
    lines += [f"  exposed       {sums.in_short}"] if sums else []
    lines += [f"  {text}" for text in _failed(document["failed_rounds"], run)]
    lines += [f"  confidential  {place}/ {HELD}" for place in document["confidential"]]
    if run.is_child:
        document |= {
            "parent": run.info["parent"],
            "to_forget": to_forget(run),
            "unlearner": run.info["unlearner"],
            "first_change": run.info["first_change"],
            "doubts": run.info["doubts"],
            "computed_anew": _computed_anew(run),
        }
        parent, unlearner = run.info["parent"], run.info["unlearner"]
        lines += [
            f"  parent        {parent['name']}, digest {parent['digest']}",
            *_requests(run),
            *(f"  to forget     {in_words(row)}" for row in document["to_forget"]),
            f"  method        {unlearner['use']} ({unlearner['kind']}), {unlearner['guarantee']}",
            f"  kept          {_kept(run)}",
            *_anew(document["computed_anew"]),
            *(f"  doubted       {text}" for text in run.info["doubts"]),
        ]
    lines += [f"  {text}" for text in (*document["stability"], *_of_cuts(document["cuts"], run.plan.law))]
    for number, share in constant:
        document["constant"] = {"class": number, "test_accuracy": share}
        if last["test_accuracy"] <= share:
            lines.append(
                f"  no better on test rows than always answering class {number}, which is right in {share:.4f}: "
                "try more rounds, a larger cohort or another step_size"
            )
    document |= {"next": list(following)} if following else {}
    publish = "publish the commitment and the ledger head; to forget, verify and report:"
    forgets = any(line.startswith("fuaudit unlearn ") for line in following)
    head = "to verify and report:" if run.is_child else publish if forgets else publish.replace("forget, ", "")
    lines += ["", head, *following] if following else []
    output.emit(document, lines)


def _describe_view(run: Any, output: Output) -> None:
    """Print what a sealed view records; what it does not tell is said."""
    from fuaudit.runs.fears import fears_of
    from fuaudit.runs.layout import is_withheld
    from fuaudit.runs.ledger import failed_rounds, suite_of
    from fuaudit.runs.names import in_words, to_forget
    from fuaudit.runs.sums import sums_of

    last, sums, lacking = run.metrics[-1], sums_of(run), sorted(filter(is_withheld, run.files))
    document: dict[str, Any] = {
        "run": str(run.path),
        "digest": run.digest,
        "sealed": True,
        "kind": run.info["kind"],
        "rounds_executed": run.rounds_executed,
        "commitment": run.commitment,
        "engine": run.info["engine"],
        "metrics": run.metrics,
        "requests": list(map(str, run.requests)),
        "pruned": run.pruned,
        "clients": list(run.members),
        "law": run.law.name,
        "beacon": run.beacon,
        "secure": suite_of(run.ledger),
        "sums": sums.table() if sums else None,
        "failed_rounds": failed_rounds(run.ledger),
        "fears": fears_of(run),
        "lacking": lacking,
    }
    rounds = f"{counted(run.rounds_executed, 'round')} of {run.law.rounds}{', pruned' * run.pruned}"
    lines = [
        f"{run.path}: a sealed view; every byte of it is accounted for, and it opens its commitment",
        f"  kind          {run.info['kind']}, {rounds}",
        f"  digest        {run.digest}",
        f"  commitment    {run.commitment}",
        *([f"  beacon        {run.beacon}"] if run.beacon else []),
        f"  test accuracy {last['test_accuracy']:.4f} after round {last['round']}",
        *(f"  {text}" for text in _made(run, document["secure"])),
        *([f"  exposed       {sums.in_short}"] if sums else []),
        *(f"  note          {text}" for text in document["fears"]),
        *(f"  {text}" for text in _failed(document["failed_rounds"], run)),
    ]
    if run.is_child:
        document |= {"parent": run.info["parent"], "to_forget": to_forget(run), "unlearner": run.info["unlearner"]}
        lines += [
            f"  parent        {run.info['parent']['name']}, digest {run.info['parent']['digest']}",
            *(f"  to forget     {in_words(row)}" for row in document["to_forget"]),
            f"  method        {run.info['unlearner']['use']} ({run.info['unlearner']['kind']})",
        ]
    lines += [
        f"  not here      {', '.join(lacking)}: the server may not be given them, and the operator has them",
        "  so who took part, who owned what, and how the model serves whom is not told",
    ]
    output.emit(document, lines)


def _made(run: Any, suite: str | None) -> list[str]:
    """Who made the sums of a run, how its messages are checked, and what that does not hide; empty without a suite."""
    if suite is None:
        return []
    verify = command("verify", run.path, spec="sealed-view" if run.sealed else "secure-aggregation")
    return [
        f"sums          made by the suite {suite}, as the ledger tells; "
        + (NO_MORE_MESSAGES if run.pruned else f"its messages are checked by: {verify}"),
        "simulated     whoever ran this training saw every row; the suite shows what others would have seen",
    ]


def _noise_of(run: Any) -> str | None:
    """How much noise is on the sums of a suite, in words; None for none."""
    from fuaudit.runs.noise import noise_of  # imports what no other run needs

    noise = noise_of(run)
    return noise.in_words if noise else None


def _noise(told: str | None, path: Path, never: str) -> list[str]:
    """How much noise is on sums of a suite, and how to ask what it hides, where there can be a child.

    ``never`` says why there can be none.
    """
    ask = command("budget run", path, delta="1e-5")
    return [
        *([] if told is None else [f"noise         {told}"]),
        *([f"requests      {never}"] if never else []),
        *([] if told is None or never else [
            f"epsilon       tells what sums of parent and child can say together, and can be large: {ask}"
        ]),
    ]  # fmt: skip


def _never(run: Any) -> str:
    """Why no request can be carried out on a run; empty where one can, and of what is shown without its secrets."""
    from fuaudit.runs.ledger import suite_of

    if suite_of(run.ledger) is None or run.sealed or run.redacted:
        return ""
    from fuaudit.workflow.secured import never_unlearned  # imports cryptography, which no other run needs

    return never_unlearned(run)


def _requests(run: Any) -> list[str]:
    """Every request that the run carries out, the last one last; by number where there are several."""
    if len(run.requests) == 1:
        return [f"  request       {run.request}"]
    return [f"  request {number:<5} {request}" for number, request in enumerate(run.requests, 1)]


def _kept(run: Any) -> str:
    """What is left of the parent's rounds, in words."""
    if run.info["unlearner"]["kind"] == "editor":
        return "no plan: the parent's last model was edited"
    rounds = max(0, min(run.info["first_change"][0], run.rounds_executed + 1) - 1)
    return f"{rounds} of {counted(run.plan.law.rounds, 'round')}"


def _computed_anew(run: Any) -> dict[str, int | None] | None:
    """From which round on a rewriter's child was computed anew, and how much that was; None of an editor's.

    Execution went on from the last model that was kept, so rounds behind it are computed again as they were drawn.
    """
    if run.info["unlearner"]["kind"] == "editor":
        return None
    (told,) = run.ledger.of_kind("unlearning")
    kept, has = told["kept_rounds"], run.plan.retained.samples
    cohorts = run.participation["cohorts"][kept:]
    steps = run.plan.law.steps * sum(bool(has.get(client)) for cohort in cohorts for client in cohort)
    as_drawn = max(0, min(run.info["first_change"][0] - 1, run.rounds_executed) - kept)
    anew = {"from_round": kept + 1 if cohorts else None, "rounds": len(cohorts), "client_steps": steps}
    return anew | {"drawn_as_before": as_drawn}


def _anew(computed: dict[str, Any] | None) -> list[str]:
    """The same in words; nothing where nothing was."""
    if not computed or not computed["rounds"]:
        return []
    steps = f"{computed['client_steps']:,} client step{'s' * (computed['client_steps'] != 1)}"
    rounds = counted(computed["rounds"], "round")
    from fuaudit.budgets.family import rounds_in_words

    first, again = computed["from_round"], computed["drawn_as_before"]
    which = rounds_in_words(range(first, first + again))
    why = f"; {which} as drawn before, because no model after round {first - 1} was kept" if again else ""
    return [f"  computed anew from round {first} on: {rounds}, {steps}{why}"]


def _participation(told: dict[str, Any], own: dict[str, float | None], info: dict[str, Any]) -> list[str]:
    """Who took part, and how the final model serves the clients."""
    cohorts, shares = told["cohorts"], [share for share in own.values() if share is not None]
    count, empty = sum(map(len, cohorts)), sum(not cohort for cohort in cohorts)
    never = " (of a client who never took part)" if told["largest_gap"] > len(cohorts) else ""
    lines = [
        f"participants  {count} in {counted(len(cohorts), 'round')}, {empty} of them empty; largest gap "
        f"{counted(told['largest_gap'], 'round')}{never}; "
        f"{counted(max(told['uploads'], default=0), 'upload')}{', before the edit' if 'edited_by' in info else ''}"
        if count
        else "participants  none in any round: the model is the initial one"
    ]
    if shares:
        lines.append(
            f"own accuracy  {min(shares):.4f} to {max(shares):.4f} on the rows of {counted(len(shares), 'client')}"
        )
    return lines


def _concluded(run: Any) -> list[str]:
    """What the learner concludes of the run; its words are those of its paper."""
    from fuaudit.formats.schema import PARTICIPATION, SALT

    told, by = run.participation, f"by {run.config.learner['use']}, in the terms of its paper"
    own = sorted(told.keys() - PARTICIPATION.keys() - {SALT})
    return [f"concluded     {by}: {_in_words(name)}: {_in_words(told[name])}" for name in own]


def _in_words(value: object) -> str:
    """What a learner concludes, a document of its own words, for people."""
    if isinstance(value, dict):
        return ", ".join(f"{_in_words(key)} {_in_words(inner)}" for key, inner in value.items())
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return value.replace("_", " ") if isinstance(value, str) else json.dumps(value)


def _exchange(run: Any) -> dict[str, Any]:
    """The parts of a round, how clients' secrets were made, and how many events of each kind there are."""
    from fuaudit.config import CLEAR
    from fuaudit.runs.layout import SECRETS
    from fuaudit.runs.procedure import in_words, parts_of

    kinds = [event["kind"] for line in run.ledger.of_kind("round") for event in line.get("told", [])]
    return {
        "solver": run.config.solver["use"],
        "client": [stage["use"] for stage in run.config.client],
        "server": [stage["use"] for stage in run.config.server],
        "transport": (run.config.transport or CLEAR)["use"],
        "parts": parts_of(run.config),
        "in_words": in_words(run.config),
        "secrets": run.document(SECRETS)["made"] if run.exchange.has_secrets and not run.redacted else None,
        "events": {kind: kinds.count(kind) for kind in sorted({*kinds})},
    }


def _failed(rounds: Sequence[int], run: Any) -> list[str]:
    """Which of the rounds that a run executed itself failed, and what that means where all did."""
    if not rounds:
        return []
    executed = [line["round"] for line in run.ledger.of_kind("round")]
    if len(rounds) < len(executed):
        share = f"{len(rounds)} of {counted(len(executed), 'round')}"
        return [f"failed        {share}: nothing of them was applied, and the model stayed as it was"]
    before = executed[0] - 1
    stayed = f"that of round {before}" if before else "the initial one"
    return [f"failed        all rounds from {executed[0]} on: nothing was applied, and the model is {stayed}"]


HELD = (
    "holds the clients' secrets: whoever reads them knows all draws, and no epsilon holds against him. fuaudit redact "
    "leaves them out"
)


def _confidential(run: Any) -> list[str]:
    """The folders at hand that are the clients' own: the operator, and auditors whom clients trust, may read them."""
    from fuaudit.runs.layout import is_clients_own

    if run.redacted:
        return []
    return sorted({name.partition("/")[0] for name in run.files if is_clients_own(name)})


def _sent(exchange: dict[str, Any]) -> list[str]:
    """The round in words; nothing where every row comes as the solver leaves it, without draws and events."""
    made = f"; clients' secrets were made {exchange['secrets']}" * bool(exchange["secrets"])
    told = [f"{count} {kind}" for kind, count in exchange["events"].items()]
    events = f"; events: {', '.join(told)}" * bool(told)
    plain = not exchange["client"] and exchange["transport"] == "clear"
    return [] if plain and not made and not events else [f"round         {exchange['in_words']}{made}{events}"]


def _traffic(told: dict[str, Any] | None) -> list[str]:
    """Bytes of a participation, on average; nothing where the run executed no round."""
    if not told or not told["participations"]:
        return []
    printed = f" (FedREP's paper counts {told['printed_each']:,.0f} B)" if told["printed"] else ""
    up, down = (f"{told[name]:,.0f} B {name.partition('_')[0]}" for name in ("up_each", "down_each"))
    return [f"traffic       a client and round {up}, {down}, in the plain form{printed}"]


def _cuts(run: Any) -> dict[str, float] | None:
    """The chances that batches are cut, rounded up; None where none is."""
    from dataclasses import asdict

    from fuaudit.plans.availability import chance_of_cuts

    found = chance_of_cuts(run.plan.law, run.plan.widest)
    return None if found is None else asdict(found)


def _of_cuts(cuts: dict[str, float] | None, law: Any) -> list[str]:
    """The same in words; it is said where a law cuts, and how often is not known."""
    if not cuts:
        unknown = "cut batches   with a chance that is not known: the law is no code of fuaudit's"
        return [unknown] if says(law, "cuts") else []
    from fuaudit.statistics.rounding import up

    return [
        f"cut batches   any in the run with chance {up(cuts['any_batch'])} at most, any of one client "
        f"{up(cuts['any_of_one'])}: an account for Poisson batches adds 1 + e^epsilon times this to delta"
    ]


def _stability(run: Any) -> list[str]:
    """How often one more request would make an exact rewriter compute again, where the learner can say it.

    Of a child only where its method keeps rounds and is exact: retraining computes all again, and others nothing.
    """
    describe = says(run.learner, "stability")
    return describe(run.plan.retained) if describe and (not run.is_child or _keeps(run)) else []


def _keeps(run: Any) -> bool:
    """Whether the method that made a child claims exactness and is no retraining."""
    from fuaudit.registry import find

    try:
        method = find("unlearners", run.info["unlearner"]["use"]).load()
    except FuauditError:
        return False
    return method is not find("unlearners", "retrain").load() and bool(says(method, "exact_for"))
