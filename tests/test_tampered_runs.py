"""A run whose transcript somebody alters: each message in each way, and each is refused or a FAIL, never a PASS.

Whoever alters it has no key of a party. He can make everything else anew: the lines of the chain, the heads that the
ledger tells, and the manifest. ``recheck`` judges every case, with the heads of the altered chain; a run on disk is
opened and audited for a case of each kind and step.
"""

import json
import shutil
from dataclasses import dataclass, field, replace
from itertools import combinations

import pytest
from secure_transcripts import Kept
from test_secure_recheck import FIELDS
from test_secured_runs import FEDREP, trained
from tests_support import AUDIT_KEY, of_the_run, reseal, told

from fuaudit import load_run, verify
from fuaudit.audits.transcript.audit import AS_IT_RAN, Transcript
from fuaudit.audits.transcript.known import known_of
from fuaudit.draws import Keyed
from fuaudit.errors import EvidenceError
from fuaudit.formats.files import sha256
from fuaudit.runs.layout import BODIES, CHAIN, LEDGER, MANIFEST, of_round
from fuaudit.runs.transcripts import body_of, chain_of
from fuaudit.secure.envelope import envelope, parsed
from fuaudit.secure.messages import STEPS
from fuaudit.secure.recheck import added_apart, recheck
from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.transcript import Entry, messages_of
from fuaudit.testing.tiny import tiny_dataset
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence, Known
from fuaudit.verification.spec import read_spec

SUITES = ("plain", "mask", "bfv+mask")
WAYS = ("dropped", "doubled", "swapped", "replayed", "exchanged", "fields", "bodies")
SIGNED = ("lot", "announce", "share", "send", "unmask")
"""Steps of clients."""


@dataclass
class Honest:
    """A small run, its messages, and what is known of it elsewhere; nobody may change it."""

    run: object
    messages: list = field(default_factory=list)
    known: object = None
    sums: dict = field(default_factory=dict)

    def __post_init__(self):
        chain, path = chain_of(self.run.path), self.run.path
        self.messages = [m for n in chain.rounds for m in messages_of(chain.of_round(n), body_of(path, n), path)]
        self.known = known_of(self.run, None)

    def added(self, summands, ring):
        """Sums as the checker has them made; of the same ciphertexts once."""
        asked = (ring, *((client, *parts) for client, parts in summands.items()))
        if asked not in self.sums:
            self.sums[asked] = added_apart(summands, ring)
        return self.sums[asked]

    def checked(self, kept, heads=None):
        """What a transcript shows whose heads the ledger tells as they are, or as others."""
        return recheck(kept.content, kept.bodies.get, replace(self.known, heads=heads or told_heads(self, kept)), self.added)


def told_heads(honest, kept):
    """The heads that whoever altered a chain puts into the ledger; those that were there where it is none."""
    try:
        chain = kept.chain()
    except EvidenceError:
        return honest.known.heads
    return {number: chain.head_after(number) for number in honest.known.heads}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return {s: Honest(trained(tmp_path_factory.mktemp("honest") / "run", FEDREP, s)) for s in SUITES}


@pytest.fixture(params=SUITES)
def honest(request, runs):
    return runs[request.param]


# ways to alter it: each case is its name, and the messages with the bytes of their envelopes


def whole(messages):
    return [(message, envelope(message)) for message in messages]


def dropped(messages):
    for place, one in enumerate(messages):
        yield one.step, whole(messages[:place] + messages[place + 1 :])


def doubled(messages):
    """Behind itself, and at the end of its round."""
    for place, one in enumerate(messages):
        yield one.step, whole([*messages[:place], one, *messages[place:]])
        end = max(at for at, other in enumerate(messages) if other.round == one.round) + 1
        yield one.step, whole([*messages[:end], one, *messages[end:]])


def swapped(messages):
    for place, one in enumerate(messages[:-1]):
        yield one.step, whole([*messages[:place], messages[place + 1], one, *messages[place + 2 :]])


def replayed(messages):
    """Each message of the first round in the second: in the place of its like and beside it; as it is, and moved."""
    half = next(at for at, one in enumerate(messages) if one.round == 2)
    pairs = whole(messages)
    for place, old in enumerate(messages[:half]):
        moved = replace(old, round=2)
        for new in ((moved, envelope(moved)), (moved, envelope(old)), (old, envelope(old))):
            yield old.step, [*pairs[: half + place], new, *pairs[half + place + 1 :]]
            yield old.step, [*pairs[: half + place + 1], new, *pairs[half + place + 1 :]]
    yield "round", whole([*messages[:half], *(replace(one, round=2) for one in messages[:half])])


def exchanged(messages):
    """Two clients of one buffer, or of one lot: their bodies, their names, all but their names."""
    for (at, one), (where, other) in combinations(enumerate(messages), 2):
        if one.step in SIGNED and (one.step, one.terms) == (other.step, other.terms):
            for names in (("body",), ("sender",), ("body", "signature")):
                changed = list(messages)
                changed[at] = replace(one, **{name: getattr(other, name) for name in names})
                changed[where] = replace(other, **{name: getattr(one, name) for name in names})
                if changed != messages:
                    yield one.step, whole(changed)


def fields(messages):
    """One flipped bit in each field, of one message of each step: told as before, and told as it is now if it reads."""
    pairs = whole(messages)
    for step in STEPS:
        for place in [at for at, one in enumerate(messages) if one.step == step][:1]:
            for at in FIELDS.values():
                content = flipped(envelope(messages[place]), at)
                yield step, [*pairs[:place], (messages[place], content), *pairs[place + 1 :]]
                try:
                    yield step, [*pairs[:place], (parsed(content), content), *pairs[place + 1 :]]
                except RefusedError:
                    continue


def bodies(messages):
    """One flipped bit in each body and ciphertext, first, middle and last; its digest in the head is made to fit."""
    pairs = whole(messages)
    for place, one in enumerate(messages):
        for at in {0, len(one.body) // 2, len(one.body) - 1}:
            altered = replace(one, body=flipped(one.body, at))
            yield one.step, [*pairs[:place], (altered, envelope(altered)), *pairs[place + 1 :]]


def flipped(content, at):
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


CASES = {"dropped": dropped, "doubled": doubled, "swapped": swapped, "replayed": replayed}
CASES |= {"exchanged": exchanged, "fields": fields, "bodies": bodies}


def remade(pairs):
    """A transcript of these envelopes, whose lines follow from each other."""
    kept, previous = Kept(), "0" * 64
    for number, (message, content) in enumerate(pairs, 1):
        entry = Entry.of(message, content, number, previous)
        kept.keep(message.round, content, entry.line)
        previous = entry.digest
    return kept


def test_the_cases_are_made_of_every_message(honest):
    """And what is not altered passes: each of the cases below is about what was altered."""
    assert not honest.checked(remade(whole(honest.messages))).findings
    steps = {message.step for message in honest.messages}
    for name in WAYS:
        found = [step for step, _ in CASES[name](honest.messages)]
        assert len(found) >= len(honest.messages) // 2
        assert {*found} - {"round"} == (steps & {*SIGNED} if name == "exchanged" else steps), name


@pytest.mark.parametrize("way", WAYS)
def test_each_message_altered_though_all_around_it_is_made_anew(honest, way):
    right = chain_of(honest.run.path).head
    for step, pairs in CASES[way](honest.messages):
        kept = remade(pairs)
        assert honest.checked(kept).findings, step
        assert sha256(kept.lines[-1]) != right, step  # so a ledger that tells of it has another head


def test_each_message_altered_where_lines_stay_as_they_are(honest):
    """Of chain and bodies one is altered at a time: lines dropped, doubled, swapped and flipped, and envelopes too."""
    chain, run = chain_of(honest.run.path), honest.run
    lines = [entry.line for entry in chain.entries]
    was = {number: body_of(run.path, number) for number in chain.rounds}
    for place, line in enumerate(lines):
        rest = lines[place + 1 :]
        others = [[*lines[:place], *rest], [*lines[:place], line, line, *rest], [*lines[:place], flipped(line, 40), *rest]]
        others += [[*lines[:place], rest[0], line, *rest[1:]]] if rest else []
        others += [lines[:place]]
        for changed in others:
            kept = Kept()
            kept.lines, kept.bodies = changed, was
            assert honest.checked(kept, honest.known.heads).findings, place
    for number in chain.rounds:
        contents = [envelope(message) for message in honest.messages if message.round == number]
        for place, one in enumerate(contents):
            rest = contents[place + 1 :]
            others = [[*contents[:place], *rest], [*contents[:place], one, one, *rest]]
            others += [[*contents[:place], rest[0], one, *rest[1:]]] if rest else []
            others += [[*contents[:place], flipped(one, at), *rest] for at in (*FIELDS.values(), len(one) - 1)]
            for changed in others:
                kept = Kept()
                kept.lines, kept.bodies = lines, was | {number: b"".join(changed)}
                assert honest.checked(kept, honest.known.heads).findings, (number, place)


# on disk


def put(path, kept):
    """Another transcript in the place of that of a run."""
    shutil.rmtree(path / "transcript")
    (path / "transcript").mkdir()
    (path / CHAIN).write_bytes(kept.content)
    for number, body in kept.bodies.items():
        (path / of_round(BODIES, number)).write_bytes(body)


def judged(path, heads, data=False, head=None):
    """What becomes of a run whose ledger tells these heads of its rounds, sealed again: a verdict, or "refused"."""

    def course(events):
        return [one | ({"transcript": heads[one["round"]]} if one["event"] == "round" else {}) for one in events]

    try:
        return str(examined(told(path, course), data, head).verdict)
    except EvidenceError:
        return "refused"


def examined(run, data, head=None):
    dataset = tiny_dataset() if data else None
    return Transcript().examine(Case(Evidence(run, None, dataset, Known(ledger_head=head)), Keyed(AUDIT_KEY)))


@pytest.fixture
def copied(runs, tmp_path):
    """The folder of a copy, to be altered."""
    return lambda suite: shutil.copytree(runs[suite].run.path, tmp_path / "copies" / suite)


@pytest.mark.parametrize("suite", SUITES)
def test_a_run_that_was_altered_is_refused_or_fails(runs, copied, suite):
    """One case of each way and step; what is left as it was is neither."""
    honest, path, seen = runs[suite], copied(suite), set()
    for way in WAYS:
        for step, pairs in CASES[way](honest.messages):
            if (way, step) not in seen:
                seen.add((way, step))
                put(path, kept := remade(pairs))
                assert judged(path, told_heads(honest, kept)) in ("FAIL", "refused"), (way, step)
    put(path, remade(whole(honest.messages)))
    assert judged(path, honest.known.heads) == "INCONCLUSIVE"  # of rows, which were not given
    assert judged(path, honest.known.heads, data=True) == "PASS"


def test_a_run_that_was_altered_and_not_sealed_again_is_refused_or_fails(runs, copied):
    honest, path = runs["plain"], copied("plain")
    for way in WAYS:
        for _, pairs in [*CASES[way](honest.messages)][::7]:
            put(path, remade(pairs))
            try:
                assert examined(load_run(path), data=False).verdict == "FAIL"
            except EvidenceError:
                continue
    shutil.rmtree(path / "transcript")
    shutil.copytree(honest.run.path / "transcript", path / "transcript")
    assert examined(load_run(path), data=True).verdict == "PASS"


@pytest.mark.parametrize("way", ["swapped", "bodies"])
def test_verify_says_so(runs, copied, way):
    """The command's way: a run with all audits of a run."""
    honest, path = runs["bfv+mask"], copied("bfv+mask")
    spec = read_spec("secure-aggregation")
    checks = tuple(one for one in spec.checks if one.audit["use"] != "aggregation-attacks")
    spec = replace(of_the_run(), id="messages", asks="run", checks=checks)
    step, pairs = next(case for case in CASES[way](honest.messages) if case[0] == "send")
    put(path, remade(pairs))
    judged(path, told_heads(honest, remade(pairs)))
    result = verify(load_run(path), spec, data=tiny_dataset(), save=False)
    assert {f.audit: str(f.verdict) for f in result.findings if f.verdict == "FAIL"} == {"transcript": "FAIL"}
    assert result.verdict == "FAIL"


# tails


def discarded(event, missing):
    """A line of the ledger that tells of so many buffers less: as if they had not been opened."""
    if not missing or event["event"] != "round":
        return event
    fewer = [one | ({"discarded": one["discarded"] + missing} if one["kind"] == "summed" else {}) for one in event["told"]]
    return event | {"told": fewer}


@pytest.mark.parametrize("suite", SUITES)
def test_a_tail_that_was_cut_off_is_found_and_by_a_kept_head_always(runs, copied, suite):
    """At every line; the ledger fits it, and tells that fewer buffers were opened. Whole buffers need the rows."""
    honest, path = runs[suite], copied(suite)
    found = []
    for length in range(len(honest.messages)):
        kept = remade(whole(honest.messages[:length]))
        if not honest.checked(kept).findings:
            found.append(length)
        elif length % 5:
            continue
        heads = told_heads(honest, kept)
        opened = [{m.buffer for m in honest.messages[:length] if m.round == n and m.buffer >= 0} for n in (1, 2)]

        def course(events, heads=heads, opened=opened):
            for one in events:
                told_ = one | {"transcript": heads[one["round"]]} if one["event"] == "round" else one
                yield discarded(told_, 2 - len(opened[one["round"] - 1])) if one["event"] == "round" else told_

        put(path, kept)
        run = told(path, course)
        told(path, lambda events: honest.run.ledger.events[:-1])
        assert examined(run, data=True).verdict == "FAIL", length
        kept_head = examined(run, data=True, head=honest.run.ledger.head)
        assert (kept_head.verdict, "--ledger-head" in kept_head.shows) == ("FAIL", True), length
    ends = [at + 1 for at, one in enumerate(honest.messages) if one.step in ("receipt", "opened")]
    assert found == ends[2:3]  # behind the first buffer of the last round: every other cut is found without any row


def test_a_ledger_that_was_cut_off_is_no_run(runs, copied):
    """At every line, with the manifest as it was and with one that fits, and a seal at its end."""
    honest, path = runs["plain"].run, copied("plain")
    lines = (honest.path / LEDGER).read_bytes().splitlines(keepends=True)
    for length in range(len(lines)):
        (path / LEDGER).write_bytes(b"".join(lines[:length]))
        with pytest.raises(EvidenceError):
            load_run(path)
        manifest = json.loads((honest.path / MANIFEST).read_text())
        if length:
            (path / MANIFEST).write_text(json.dumps(manifest | {"ledger": sha256(lines[length - 1][:-1])}))
            with pytest.raises(EvidenceError):
                load_run(path)
        if length < len(lines) - 1:
            with pytest.raises(EvidenceError):
                reseal(path)
        shutil.copy(honest.path / MANIFEST, path / MANIFEST)


def test_a_run_that_was_cut_off_as_a_whole_is_seen_by_a_kept_head_alone(runs, tmp_path):
    """All files as if training had been stopped after its first round: nothing in it says that there was more."""
    honest = runs["mask"].run
    short = trained(tmp_path / "run", FEDREP, "mask", stop_after=1)
    lines = (honest.path / LEDGER).read_bytes().splitlines(keepends=True)
    kinds = [event["event"] for event in honest.ledger.events]
    end = kinds.index("round") + 1
    put(short.path, remade(whole([one for one in runs["mask"].messages if one.round == 1])))
    (short.path / LEDGER).write_bytes(b"".join(lines[:end]))
    cut = reseal(short.path)
    assert cut.rounds_executed == 1
    without = examined(cut, data=True)
    assert (without.verdict, without.assumptions) == ("PASS", (AS_IT_RAN,))
    for line in lines[:end]:  # a head that was kept before the end shows nothing of what came behind it
        assert examined(cut, data=True, head=sha256(line[:-1])).verdict == "PASS"
    for line in lines[end:]:
        assert examined(cut, data=True, head=sha256(line[:-1])).verdict == "FAIL"
