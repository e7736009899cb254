"""Commands about methods rather than runs: what is installed, proofs, the self-test."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fuaudit.cli.completion import plugin_of
from fuaudit.cli.options import Folder, Output, given, hexadecimal, options_of, options_option, output_options
from fuaudit.declared import WORDS, said
from fuaudit.errors import PluginError, UsageError
from fuaudit.text import counted, quoted_path

if TYPE_CHECKING:
    from fuaudit.describe import Description
    from fuaudit.proofs.prove import ElsewhereError, Proof, Proofs, Swept
    from fuaudit.registry import Entry
    from fuaudit.selftest.selftest import Selftest


@click.command()
@click.argument("name", required=False, shell_complete=plugin_of())
@click.option("--long", "long", is_flag=True, help="Import each, and list guarantee and paper; mutants are marked.")
@output_options
def plugins(name: str | None, long: bool, output: Output) -> None:
    """List what is installed: name, kind, distribution, version. Nothing is imported for it.

    With NAME: all that one plugin says of itself, with its options, their types, defaults and docs.
    """
    if name is not None:
        if long:
            raise UsageError("--long is for the list of all plugins", "One plugin is always described at length.")
        _describe(name, output)
        return
    from fuaudit import registry

    kinds = (*registry.KINDS, *registry.WORDS)
    found = [entry for kind in kinds for _, entry in sorted(registry.entries(kind).items())]
    if long:
        _plugins_at_length(found, output)
        return
    rows = [_named(entry) for entry in found]
    clashes, strays = [entry.clash for entry in found if entry.rivals], list(map(str, registry.strays()))
    lines = [*map(" ".join, _columns(rows)), *clashes, *strays]
    output.emit({"plugins": rows, "clashes": clashes, "strays": strays}, lines, lines)


def _plugins_at_length(found: list[Entry], output: Output) -> None:
    """What the plugins say of themselves, each imported. PluginError where some cannot be, after the others."""
    rows, broken = [], []
    for entry in found:
        try:
            words = said(entry.load(), entry.kind) if entry.kind in WORDS else {}
            _require_sound(entry)
        except PluginError as error:
            broken.append(str(error))
            continue
        own = {word: words.get(word, "") for word in ("guarantee", "cite")}
        rows.append(_named(entry) | own | {"mutant": words.get("mutant", False)})
    lines = []
    for row, (one, name, owner) in zip(rows, _columns(rows), strict=True):
        lines.append(f"{one} {name} {owner}{'  mutant: wrong on purpose' * row['mutant']}")
        if not output.quiet:
            lines += [f"{' ' * len(one + name)}  {row[word]}" for word in ("guarantee", "cite") if row[word]]
    output.emit({"plugins": rows, "broken": broken}, lines, lines)
    if broken:
        raise PluginError("\n".join(broken))


def _named(entry: Entry) -> dict[str, Any]:
    """A plugin by what the metadata of its distribution tell."""
    return {"kind": entry.one, "name": entry.name, "distribution": entry.distribution, "version": entry.version}


def _columns(rows: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Kind, name and distribution of plugins, the first two as wide as the longest."""
    kind, name = (max((len(row[word]) for row in rows), default=0) for word in ("kind", "name"))
    return [
        (f"{row['kind']:<{kind}}", f"{row['name']:<{name}}", f"{row['distribution']} {row['version']}") for row in rows
    ]


def _describe(name: str, output: Output) -> None:
    from fuaudit.describe import description, named

    entries = named(name)
    for entry in entries:
        _require_sound(entry)
    found = list(map(description, entries))
    each_described = list(map(described, found))
    lines = [line for one in each_described for line in one]
    output.emit({"plugins": [each.as_json() for each in found]}, lines, [one[0] for one in each_described])


def _require_sound(entry: Entry) -> None:
    """PluginError where an audit or an unlearner declares what is refused when it is used.

    What follows from options that have no defaults is not looked at.
    """
    if entry.kind not in ("audits", "unlearners"):
        return
    from fuaudit.options import required_options
    from fuaudit.registry import build

    if required_options(entry.load()):
        return
    plugin = build(entry.kind, entry.name)
    if entry.kind == "audits":
        from fuaudit.verification.audit import declared

        declared(plugin, str(entry))
    else:
        from fuaudit.unlearning.protocol import is_editor

        is_editor(plugin)


def described(plugin: Description) -> list[str]:
    """A plugin in words, the first line by its name."""
    mark = "  mutant: wrong on purpose" if plugin.mutant else ""
    lines = [f"{plugin.kind} {plugin.name}  {plugin.distribution} {plugin.version}{mark}"]
    facts = {"says": plugin.doc, "guarantee": plugin.guarantee, "paper": plugin.cite}
    lines += [f"  {word:<10} {text}" for word, text in facts.items() if text]
    if plugin.exact_for is not None:
        laws = [f"{law} ({', '.join(kinds)})" for law, kinds in plugin.exact_for.items()]
        lines += [f"  {'exact for' if not at else '':<10} {law}" for at, law in enumerate(laws or ["nothing"])]
    for at, (word, text) in enumerate(plugin.declares.items()):
        lines.append(f"  {'' if at else 'declares':<10} {word}: {text}")
    for at, option in enumerate(plugin.options):
        default = "required" if option.required else f"default {option.default_text}"
        lines.append(f"  {'' if at else 'options':<10} {option.name}: {option.type}, {default}")
        lines += [f"  {'':<14} {option.doc}"] if option.doc else []
    return [*lines, *([] if plugin.options else [f"  {'options':<10} none"])]


BEGUN = (
    *("unlearner", "editor", "client-stage", "agreement", "adversary", "byzantine-client", "transport"),
    *("aggregator", "audit", "model", "dataset"),
)
"""What `fuaudit new` begins."""


@click.command()
@click.argument("kind", type=click.Choice(BEGUN))
@click.argument("name")
@click.option("--out", type=Folder, help="Folder to write, a new one; default: NAME.")
@output_options
def new(kind: str, name: str, out: Path | None, output: Output) -> None:
    """Write a package with a plugin to begin with, its tests and its README. An editor is an unlearner of models."""
    from fuaudit.new.package import new as work

    folder = out or Path(name)
    names = work(kind, name, folder)
    where = quoted_path(folder)
    lines = [
        f"{folder} is written",
        *(f"  {each}" for each in names),
        "",
        f"pip install --no-deps --no-build-isolation --editable {where}",
        f"pytest {where}",
        f"fuaudit plugins {name}",
    ]
    output.emit({"folder": str(folder), "files": list(names)}, lines)


@click.command()
@click.argument("name", shell_complete=plugin_of("unlearners"))
@options_option
@click.option("--clients", type=click.IntRange(2), help="Default: 2; 3 where one is erased.")
@click.option("--samples", type=click.IntRange(1), help="Samples of every client. Default: 2, or one a request more.")
@click.option("--rounds", type=click.IntRange(1), default=1, show_default=True)
@click.option("--cohort", type=click.IntRange(1), default=1, show_default=True)
@click.option("--steps", type=click.IntRange(1), default=1, show_default=True)
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True)
@click.option(
    "--request",
    type=click.Choice(["sample", "client", "mixed"]),
    help="Default: client, then sample; mixed is not asked.",
)
@click.option("--requests", type=click.IntRange(1), default=1, show_default=True, help="How many, one after another.")
@click.option("--without-replacement", is_flag=True, help="Cohorts of distinct clients (FedAvg); default: FATS.")
@click.option("--up-to", type=click.IntRange(2), help="Sweep all federations up to a bound, 5 at most.")
@click.option("--leaves", type=click.IntRange(1), default=200_000, show_default=True, help="Budget of leaves.")
@output_options
def prove(
    name: str,
    options: tuple[str, ...],
    clients: int | None,
    samples: int | None,
    rounds: int,
    cohort: int,
    steps: int,
    batch: int,
    request: str | None,
    requests: int,
    without_replacement: bool,
    up_to: int | None,
    leaves: int,
    output: Output,
) -> None:
    """Compare the law of unlearner NAME with retraining, exactly, on small federations.

    Exit code 1 if they differ on one, also for a kind of request that NAME does not claim to be exact for; --request
    asks for one kind. Mixed requests are asked only so. Exit code 0 says nothing of federations that were not looked
    at, those that are too large for --leaves among them. Exit code 3: all were, or NAME made some too large by draws
    that it does not need.
    """
    # options that cannot be meant are refused before anything heavy is imported
    table = options_of(options) | {"use": name}

    from fuaudit.proofs.prove import ElsewhereError, Proofs
    from fuaudit.proofs.prove import prove as work
    from fuaudit.terminal import bars

    words = ("clients", "samples", "rounds", "cohort", "steps", "batch", "requests")
    if up_to is not None and (single := given(*words)):
        raise UsageError(
            f"--up-to sweeps all federations up to a bound, and {', '.join(single)} would say which one",
            f"Leave out {'it' if len(single) == 1 else 'them'}, or --up-to.",
        )
    sizes = dict(zip(words, (clients, samples, rounds, cohort, steps, batch, requests), strict=True))
    try:
        with bars(output.silent) as progress:
            found = work(
                table, request, up_to, not without_replacement, leaves, progress, **(sizes if up_to is None else {})
            )
    except ElsewhereError as error:
        error.hint = "\n  ".join(filter(None, (error.hint, *_elsewhere(error))))
        raise
    lines, short = _one(found, rounds) if isinstance(found, Proofs) else _many(found)
    lines += [NOT_ASKED] if found.not_asked else []
    output.emit(found.as_json(), lines, [short])
    raise click.exceptions.Exit({True: 0, False: 1, None: 3}[found.exact])


NOT_ASKED = "Not asked: a client and a sample in one request. --request mixed asks for that."
"""Behind a proof of the kinds of request that are asked by default."""


def _elsewhere(found: Proofs | Swept | ElsewhereError) -> list[str]:
    """In words: for which laws a method claims exactness that does not claim the one that was asked."""
    if not found.elsewhere:
        return []
    from fuaudit.proofs.prove import ASKED

    told = f"{found.unlearner} claims to be exact for {_quoted(found.elsewhere)}."
    if can := [law for law in found.elsewhere if law in ASKED]:
        told += f" Ask for {_quoted(can)} {'with' if can == [ASKED[1]] else 'without'} --without-replacement."
    if beyond := [law for law in found.elsewhere if law not in ASKED]:
        which = _quoted(beyond) if can else "that"
        told += f" prove cannot be asked for {which}: check_unlearner and the audit enumeration try it."
    return [told]


def _quoted(laws: Sequence[str]) -> str:
    return ", ".join(map(repr, laws))


def _one(found: Proofs, rounds: int) -> tuple[list[str], str]:
    """Proofs on one federation in words, and on one line."""
    lines = []
    for proof in found.proofs:
        lines += _lines(proof)
        if not proof.claimed:
            lines.append(f"  {found.unlearner} does not claim to be exact here ({found.law}, {proof.kind})")
    lines += _elsewhere(found)
    if found.exact:
        lines.append(
            f"One federation, of {counted(rounds, 'round')}, shows little: give --up-to, or more --rounds and --cohort."
        )
    return lines, "; ".join(map(_verdict, found.proofs))


def _verdict(proof: Proof) -> str:
    """What a proof found, on one line."""
    result = proof.result
    found = "proved on this one federation" if result.exact else "refuted"
    return f"{proof.kind}: {found}, total variation {result.total_variation}"


def _lines(proof: Proof) -> list[str]:
    """A proof in words."""
    result = proof.result
    lines = [
        _verdict(proof),
        f"  {counted(result.histories, 'history', 'histories')} compared; requests: "
        f"{'; '.join(map(str, proof.requests))}",
    ]
    if w := result.witness:
        lines += [
            f"  smallest witness: {w.draws}",
            f"    probability {w.unlearned} after unlearning, {w.retrained} after retraining",
        ]
    return lines


def _many(swept: Swept) -> tuple[list[str], str]:
    """Proofs on all federations up to a bound in words, and on one line."""
    found = swept.found
    short = (
        f"{counted(len(found.proved), 'federation')} proved exact, {len(found.refuted)} refuted, "
        f"{found.too_large} too large{f', {found.costly} by draws without need' if found.costly else ''}; "
        f"requests for a {' or a '.join(swept.kinds)}"
    )
    lines, asked = [short, *_elsewhere(swept)], len(found.proved) + len(found.refuted) + found.too_large + found.costly
    if found.too_large:
        left = f"{found.too_large:,} of {asked:,} federations"
        lines.append(f"Nothing is shown of {left}: they have more outcomes than --leaves. Give a larger number.")
    if found.costly:
        left = f"{found.costly:,} of {asked:,} federations"
        lines.append(f"Nothing is shown of {left}: on them {swept.unlearner} draws far more than it needs.")
        lines.append("That can hide where it is wrong, so the others are no proof. Let it draw only what it changes.")
    if not found.smallest:
        return lines, short
    toy, result = found.smallest
    return [*lines, f"smallest refutation: {toy}: total variation {result.total_variation}"], short


@click.command()
@click.option(
    "--with",
    "name",
    default="fats",
    show_default=True,
    shell_complete=plugin_of("unlearners"),
    help="A rewriter, whose relatives are spoilt.",
)
@click.option("--repetitions", type=click.IntRange(1), default=30, show_default=True, help="Of statistical levels.")
@click.option("--pairs", type=click.IntRange(2), default=32, show_default=True, help="Of runs in each of those.")
@click.option("--key", help="Key of everything that is drawn, 64 hex digits; default: zeros.")
@output_options
def selftest(name: str, repetitions: int, pairs: int, key: str | None, output: Output) -> None:
    """Plant known faults and see each caught by the level that is there for it. Exit code 1 if one is not."""
    chosen = hexadecimal(key, "--key") or bytes(32)
    from fuaudit.selftest import selftest as work
    from fuaudit.terminal import bars

    with bars(output.silent) as progress:
        result = work(name, chosen, repetitions, pairs, progress)
    document = {"unlearner": name, "held": result.held, "rows": [row.as_json() for row in result.rows]}
    lines = lines_of(result, output.quiet)
    output.emit(document, lines, lines)
    raise click.exceptions.Exit(0 if result.held else 1)


def lines_of(result: Selftest, quiet: bool) -> list[str]:
    """A self-test in words: a line for every fault, with level, power and cost, and one for its evidence."""
    lines = []
    for row in result.rows:
        hundredths = 100 * row.caught.times // row.caught.tries  # 399 of 400 are not all
        power = "certain" if row.certain else f"power {hundredths / 100:.2f}"
        cost = row.caught.cost or "no cost"
        lines.append(f"{'ok  ' if row.held else 'MISS'} {row.name:<32} {row.level:<18} {power:<10} {cost}")
        if not quiet:
            lines.append(f"{'':<5}{row.caught.evidence}")
    return lines
