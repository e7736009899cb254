"""Every way to alter messages of a small run: ``python benchmarks/tampering.py --report docs/results/tampering.md``.

Of each suite a run of two rounds is trained, four clients in buffers of two. Then every message of its transcript is
altered in every way: left out, sent twice, swapped with its neighbour, replayed in the later round, exchanged between
two clients of a buffer or a lot, one bit flipped in every field of its head, and one in its body at three places, with
the digest in the head made to fit. Whoever does it has no key of a party. He makes everything else anew: the lines of
the chain, the heads that the ledger tells, the seal and the manifest. Each is judged as anybody would: the run is
opened, and audited by `transcript` without rows and without secrets. Every one has to be refused or a FAIL.

The same again where nothing else is made anew: new lines under an old ledger, and other envelopes under old lines. Then
tails: the transcript is cut at every line, and the ledger tells
that fewer buffers were opened. Here the audit has the rows; with a ledger head that was kept outside, and without.

``--suite`` chooses some, ``--every 10`` takes every tenth case. It takes some minutes. tests/test_tampered_runs.py has
the same cases, most of them judged without opening a run for each.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from machine import hardware

from fuaudit.audits.transcript.audit import Transcript
from fuaudit.draws import Keyed
from fuaudit.errors import EvidenceError
from fuaudit.formats.files import write_bytes
from fuaudit.runs.layout import BODIES, CHAIN, LEDGER, MANIFEST, TRANSCRIPT_FOLDER, of_round
from fuaudit.runs.ledger import Ledger, read_ledger
from fuaudit.runs.run import Run, load_run
from fuaudit.runs.transcripts import body_of, chain_of
from fuaudit.secure.envelope import FRONT_BYTES, envelope, parsed
from fuaudit.secure.messages import Message
from fuaudit.secure.names import EXACT
from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.terms import LIBRARY
from fuaudit.secure.transcript import ENDS, GENESIS, Entry, messages_of, read_chain
from fuaudit.testing.tiny import tiny_config, tiny_dataset
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence, Known
from fuaudit.workflow.append import append
from fuaudit.workflow.train import train
from fuaudit.workflow.writer import RunWriter

TABLES = tiny_config(
    learner={"use": "fedrep", "rounds": 2, "cohort": 4, "steps": 2, "batch": 2, "step_size": 0.2},
    client=[
        {"use": "error-feedback"},
        {"use": "consensus", "per_client": 2, "alpha": 0.5},
        {"use": "quantise", "clip": 1.0, "bits": 12},
    ],
    transport={"use": "secure-sum", "size": 2},
    server=[{"use": "coordinate-median"}],
    run={"checkpoint_every": 1, "engine": "reference", "device": "cpu", "requests": 2},
)
FIELDS = {
    "magic": 3, "version": 7, "step": 8, "sender": 16, "receiver": 24, "round": 32, "buffer": 40, "terms": 50,
    "length": 80, "digest": 100, "signature": 130, "body": FRONT_BYTES,
}  # fmt: skip
"""A byte of each part of an envelope."""

BY_CLIENTS = ("lot", "announce", "share", "send", "unmask")

Pair = tuple[Message, bytes]
"""What a line tells of, and the envelope that lies in its place."""

Case_ = tuple[str, Sequence[Pair]]
"""The step of what was altered, and the whole transcript."""


def messages(run: Run) -> list[Message]:
    """All messages of a run, in order."""
    chain = chain_of(run.path)
    return [one for n in chain.rounds for one in messages_of(chain.of_round(n), body_of(run.path, n) or b"", run.path)]


# ways to alter them


def whole(said: Sequence[Message]) -> list[Pair]:
    """Messages with their envelopes."""
    return [(message, envelope(message)) for message in said]


def flipped(content: bytes, at: int) -> bytes:
    """One bit of a byte."""
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def dropped(said: Sequence[Message]) -> Iterator[Case_]:
    pairs = whole(said)
    for place, one in enumerate(said):
        yield one.step, pairs[:place] + pairs[place + 1 :]


def doubled(said: Sequence[Message]) -> Iterator[Case_]:
    """Behind itself, and at the end of its round."""
    pairs = whole(said)
    for place, one in enumerate(said):
        end = max(at for at, other in enumerate(said) if other.round == one.round) + 1
        for at in (place, end):
            yield one.step, [*pairs[:at], pairs[place], *pairs[at:]]


def swapped(said: Sequence[Message]) -> Iterator[Case_]:
    pairs = whole(said)
    for place, one in enumerate(said[:-1]):
        yield one.step, [*pairs[:place], pairs[place + 1], pairs[place], *pairs[place + 2 :]]


def replayed(said: Sequence[Message]) -> Iterator[Case_]:
    """A message of the first round in the second, in the place of its like and beside it: as it is, and moved.

    Moved in its head, or in its line alone. And the whole first round once more.
    """
    pairs, half = whole(said), next(at for at, one in enumerate(said) if one.round == 2)
    for place, old in enumerate(said[:half]):
        moved = replace(old, round=2)
        for new in ((moved, envelope(moved)), (moved, envelope(old)), (old, envelope(old))):
            for behind in (half + place, half + place + 1):
                yield old.step, [*pairs[:behind], new, *pairs[half + place + 1 :]]
    yield "round", whole([*said[:half], *(replace(one, round=2) for one in said[:half])])


def exchanged(said: Sequence[Message]) -> Iterator[Case_]:
    """Between two clients of a buffer or a lot: bodies, names, and all but names."""
    for (at, one), (where, other) in combinations(enumerate(said), 2):
        if one.step in BY_CLIENTS and (one.step, one.terms) == (other.step, other.terms):
            for names in (("body",), ("sender",), ("body", "signature")):
                changed = list(said)
                changed[at] = replace(one, **{name: getattr(other, name) for name in names})
                changed[where] = replace(other, **{name: getattr(one, name) for name in names})
                yield one.step, whole(changed)


def fields(said: Sequence[Message]) -> Iterator[Case_]:
    """One bit in every field of every envelope. Its line tells of it as before; and as it is now, if it can be read."""
    pairs = whole(said)
    for place, one in enumerate(said):
        for at in FIELDS.values():
            content = flipped(envelope(one), at)
            yield one.step, [*pairs[:place], (one, content), *pairs[place + 1 :]]
            try:
                yield one.step, [*pairs[:place], (parsed(content), content), *pairs[place + 1 :]]
            except RefusedError:
                continue


def bodies(said: Sequence[Message]) -> Iterator[Case_]:
    """One bit in every body and ciphertext: in its first byte, the one in the middle, the last one."""
    pairs = whole(said)
    for place, one in enumerate(said):
        for at in {0, len(one.body) // 2, len(one.body) - 1}:
            altered = replace(one, body=flipped(one.body, at))
            yield one.step, [*pairs[:place], (altered, envelope(altered)), *pairs[place + 1 :]]


WAYS: Mapping[str, Callable[[Sequence[Message]], Iterator[Case_]]] = {
    "left out": dropped,
    "sent twice": doubled,
    "swapped with its neighbour": swapped,
    "replayed in the later round": replayed,
    "exchanged between two clients": exchanged,
    "one bit of a field": fields,
    "one bit of a body": bodies,
}


# a transcript, written anew


@dataclass(frozen=True)
class Written:
    """The lines of a chain, and the envelopes of each round."""

    content: bytes
    bodies: Mapping[int, bytes]

    @property
    def heads(self) -> dict[int, str] | None:
        """After both rounds; None where the chain is none."""
        try:
            chain = read_chain(self.content, Path(CHAIN))
        except EvidenceError:
            return None
        return {number: chain.head_after(number) for number in (1, 2)}


def remade(pairs: Sequence[Pair]) -> Written:
    """A transcript of these envelopes, whose lines follow from each other."""
    lines, found, previous = list[bytes](), dict[int, bytes](), GENESIS
    for number, (message, content) in enumerate(pairs, 1):
        entry = Entry.of(message, content, number, previous)
        found[message.round] = found.get(message.round, b"") + content
        lines.append(entry.line)
        previous = entry.digest
    return Written(b"".join(line + b"\n" for line in lines), found)


def put(path: Path, made: Written) -> None:
    """In the place of the transcript of a run."""
    shutil.rmtree(path / TRANSCRIPT_FOLDER)
    (path / TRANSCRIPT_FOLDER).mkdir()
    (path / CHAIN).write_bytes(made.content)
    for number, body in made.bodies.items():
        (path / of_round(BODIES, number)).write_bytes(body)


def sealed_again(path: Path, events: Sequence[Mapping[str, Any]], heads: Mapping[int, str] | None) -> None:
    """A ledger with these events, but for other heads of the transcript, where some are given, and its seal."""
    (path / LEDGER).unlink(missing_ok=True)
    (path / MANIFEST).unlink(missing_ok=True)
    ledger = Ledger()
    for event in events:
        facts = {name: value for name, value in event.items() if name not in ("event", "previous", "time")}
        if heads is not None and event["event"] == "round":
            facts["transcript"] = heads[event["round"]]
        if event["event"] != "sealed":
            ledger = append(path, ledger, event["event"], **facts)
    RunWriter(path, read_ledger(path)).close("sealed")


def judged(path: Path, rows: bool = False, head: str | None = None) -> str:
    """The verdict of `transcript` on a folder; "refused" where it is no run."""
    try:
        run = load_run(path)
        evidence = Evidence(run, None, tiny_dataset() if rows else None, Known(ledger_head=head))
        return str(Transcript().examine(Case(evidence, Keyed(bytes(32)))).verdict)
    except EvidenceError:
        return "refused"


def fewer(events: Sequence[Mapping[str, Any]], said: Sequence[Message]) -> list[Mapping[str, Any]]:
    """Events that tell of so many buffers as messages have ended: those that are gone are told as discarded."""
    found = list[Mapping[str, Any]]()
    for event in events:
        ends = {one.buffer for one in said if one.round == event.get("round") and one.step in ENDS}
        told = [
            one | {"discarded": len(one["rows"]) - len(ends)} if one["kind"] == "summed" else one
            for one in event.get("told", ())
        ]
        found.append({**event, "told": told} if told else event)
    return found


# the page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=EXACT, action="append", help="by default all")
    parser.add_argument("--every", type=int, default=1, help="take one of so many cases")
    parser.add_argument("--report", type=Path, metavar="FILE")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counts = {suite: counted(Path(folder) / suite, suite, given.every) for suite in given.suite or EXACT}
    text = page(counts, given.every)
    print(text)
    if given.report:
        write_bytes(given.report, text.encode())
    if wrong := sum(
        found[verdict] for ways in counts.values() for found in ways.values() for verdict in ("PASS", "other")
    ):
        raise SystemExit(f"{wrong} cases are neither refused nor a FAIL")


Counts = Mapping[str, Counter[str]]
TAIL, HEAD, PLAINLY = "its tail cut off", "its tail cut off, with a kept head", "any of these, nothing made anew"


def counted(folder: Path, suite: str, every: int) -> Counts:
    """Way -> how often each verdict came."""
    run = train(TABLES, folder / "run", tiny_dataset(), bytes([1]) * 32, secure=suite)
    path, said, found = shutil.copytree(run.path, folder / "copy"), messages(run), dict[str, Counter[str]]()
    events, manifest, ledger = (
        run.ledger.events[:],
        (run.path / MANIFEST).read_bytes(),
        (run.path / LEDGER).read_bytes(),
    )
    for way, cases in WAYS.items():
        found[way] = Counter()
        for _, pairs in list(cases(said))[::every]:
            put(path, made := remade(pairs))
            sealed_again(path, events, made.heads)
            found[way][_word(judged(path))] += 1
        print(suite, way, dict(found[way]), flush=True)
    (path / MANIFEST).write_bytes(manifest)
    (path / LEDGER).write_bytes(ledger)
    found[PLAINLY], right = Counter(), remade(whole(said))
    for cases in WAYS.values():
        for _, pairs in list(cases(said))[::every]:
            for made in (remade(pairs), Written(right.content, remade(pairs).bodies)):
                if made != right:  # the last message of a round and the first of the next lie in two files
                    put(path, made)
                    found[PLAINLY][_word(judged(path))] += 1
    found |= {TAIL: Counter(), HEAD: Counter()}
    for length in range(0, len(said), every):
        put(path, made := remade(whole(said[:length])))
        sealed_again(path, fewer(events, said[:length]), made.heads)
        found[TAIL][_word(judged(path, rows=True))] += 1
        found[HEAD][_word(judged(path, rows=True, head=run.ledger.head))] += 1
    print(suite, {way: dict(found[way]) for way in (PLAINLY, TAIL, HEAD)}, flush=True)
    put(path, remade(whole(said)))
    sealed_again(path, events, None)
    if judged(path, rows=True) != "PASS":
        raise SystemExit(f"{suite}: what was not altered does not pass")
    return found


def _word(verdict: str) -> str:
    return verdict if verdict in ("refused", "FAIL", "PASS") else "other"


def page(counts: Mapping[str, Counts], every: int) -> str:
    """docs/results/tampering.md."""
    here = hardware()
    some = f" --every {every}" * (every > 1)
    lines = [
        "# Altered messages",
        "",
        f"    python benchmarks/tampering.py{some} --report docs/results/tampering.md",
        "",
        f"fuaudit {here['fuaudit']}, tenseal {LIBRARY}, python {here['python']}. A run of two rounds, four clients in "
        "buffers of two, for each suite. Each case alters one message of its transcript; whoever does it has no key of "
        "a party, and makes chain, ledger and manifest anew. The run is opened, and audited by `transcript` without "
        "rows. The table has numbers of cases: refused when the run was opened, plus FAIL. There is no other outcome: "
        "the command would end with an error. What was not altered passes, by the same hand.",
        "",
        "| what was done to a message | " + " | ".join(f"`{suite}`" for suite in counts) + " |",
        "| --- |" + " --- |" * len(counts),
    ]
    for way in next(iter(counts.values())):
        cells = [" + ".join(map(str, (found[way]["refused"], found[way]["FAIL"]))) for found in counts.values()]
        lines.append(f"| {way} | {' | '.join(cells)} |")
    total = sum(sum(found.values()) for ways in counts.values() for found in ways.values())
    lines += [
        "",
        f"{total:,} cases. A tail is cut off at every line, and the ledger tells that fewer buffers were opened; here "
        "the audit has the rows of the clients. Without them the stored models tell, for they are not made of the sums "
        "that are left. What no case here is: a run that is cut off as a whole, with all files as if training had been "
        "stopped earlier, passes; a kept head tells of it "
        "([Secure aggregation](../secure-aggregation.md#a-head-that-was-kept)).",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
