"""A run whose messages somebody alters: each message in each way, and each is refused or a FAIL, never a PASS.

The cases are those of benchmarks/tampering.py, which opens a run on disk for each. Here ``recheck`` judges them, with
the heads of the altered chain, and a run is opened and audited for one case of each way and step.
"""

import json
import shutil
import sys
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import pytest
from secure_transcripts import rechecked
from test_secured_runs import FEDREP, trained
from tests_support import reseal

from fuaudit import load_run, verify
from fuaudit.audits.transcript.known import known_of
from fuaudit.errors import EvidenceError
from fuaudit.formats.files import sha256
from fuaudit.runs.layout import LEDGER, MANIFEST
from fuaudit.secure.envelope import terms_message, terms_of
from fuaudit.secure.messages import Message
from fuaudit.secure.recheck.transcripts import added_apart
from fuaudit.secure.terms import new_attempt
from fuaudit.testing.tiny import tiny_dataset
from fuaudit.verification.spec import read_spec

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import tampering
from tampering import WAYS, Written, fewer, judged, put, remade, sealed_again, whole

SUITES = ("plain", "mask", "bfv+mask")


class Honest:
    """A small run, its messages, and what is known of it from elsewhere; nobody may change it."""

    def __init__(self, run):
        self.run, self.messages, self.sums = run, tampering.messages(run), {}

    @cached_property
    def known(self):
        return known_of(self.run)

    def added(self, summands, ring):
        """Sums as the checker has them made; of the same ciphertexts once."""
        asked = (ring, *((client, *parts) for client, parts in summands.items()))
        if asked not in self.sums:
            self.sums[asked] = added_apart(summands, ring)
        return self.sums[asked]

    def wrong(self, made, heads=None):
        """What is wrong with a transcript; the ledger tells its heads, or others."""
        known = replace(self.known, heads=heads or made.heads or self.known.heads)
        return rechecked(made.content, made.bodies.get, known, self.added).wrong

    def cases(self, way):
        """Those of a way; of flipped fields those of one message of each step."""
        firsts = {}
        for message in self.messages:
            firsts.setdefault(message.step, message)
        for step, pairs in WAYS[way](self.messages):
            if way != "one bit of a field" or self.altered(pairs) in firsts.values():
                yield step, pairs

    @cached_property
    def whole(self):
        return whole(self.messages)

    def altered(self, pairs):
        """The first message that is another one."""
        return next(right[0] for place, right in enumerate(self.whole) if pairs[place : place + 1] != [right])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return {s: Honest(trained(tmp_path_factory.mktemp("honest") / "run", FEDREP, s)) for s in SUITES}


@pytest.fixture(params=SUITES)
def honest(request, runs):
    return runs[request.param]


@pytest.fixture
def copied(runs, tmp_path):
    """The folder of a copy, to be altered."""
    return lambda suite: shutil.copytree(runs[suite].run.path, tmp_path / "copies" / suite)


def test_the_cases_are_made_of_every_message_and_what_was_not_altered_is_right(honest):
    assert honest.wrong(remade(honest.whole)) == ()
    steps = {message.step for message in honest.messages}
    for way in WAYS:
        cases = list(WAYS[way](honest.messages))
        due = steps & {*tampering.BY_CLIENTS} if "exchanged" in way else steps
        assert {step for step, _ in cases} - {"round"} == due, way
        assert all(list(pairs) != honest.whole for _, pairs in cases), way
        if way in ("left out", "one bit of a field", "one bit of a body"):
            assert {id(honest.altered(pairs)) for _, pairs in cases} == {*map(id, honest.messages)}, way


@pytest.mark.thorough
@pytest.mark.parametrize("way", WAYS)
def test_each_message_altered_though_all_around_it_is_made_anew(honest, way):
    for step, pairs in honest.cases(way):
        made = remade(pairs)
        assert honest.wrong(made), step
        assert made.heads != honest.known.heads, step  # so a ledger that fits it has another head


@pytest.mark.thorough
@pytest.mark.parametrize("suite", ["plain", "bfv+mask"])
def test_each_message_altered_where_lines_stay_as_they_are(runs, suite):
    honest = runs[suite]
    right, heads, same = remade(honest.whole), honest.known.heads, 0
    for way in WAYS:
        for step, pairs in honest.cases(way):
            bodies = remade(pairs).bodies
            same += bodies == right.bodies
            if bodies != right.bodies:
                assert honest.wrong(Written(right.content, bodies), heads), (way, step)
    assert same == 1  # the last message of a round and the first of the next, which lie in two files


def test_each_line_of_the_chain_altered(runs):
    """Left out, doubled, swapped, flipped and cut off."""
    honest = runs["mask"]
    made = remade(honest.whole)
    lines = made.content.splitlines(keepends=True)
    for place, line in enumerate(lines):
        before, behind = lines[:place], lines[place + 1 :]
        others = [[*before, *behind], [*before, line, line, *behind], [*before, tampering.flipped(line, 40), *behind]]
        others += [[*before, behind[0], line, *behind[1:]], before] if behind else [before]
        for changed in others:
            assert honest.wrong(Written(b"".join(changed), made.bodies), honest.known.heads), place


@pytest.mark.thorough
@pytest.mark.parametrize("suite", SUITES)
def test_a_run_that_was_altered_is_refused_or_fails(runs, copied, suite):
    """One case of each way and step; and what is left as it was is neither."""
    honest, path, seen = runs[suite], copied(suite), set()
    events = honest.run.ledger.events
    for way in WAYS:
        for step, pairs in WAYS[way](honest.messages):
            if (way, step) not in seen:
                seen.add((way, step))
                put(path, made := remade(pairs))
                sealed_again(path, events, made.heads)
                assert judged(path) in ("FAIL", "refused"), (way, step)
    assert len(seen) > 20
    put(path, remade(honest.whole))
    sealed_again(path, events, None)
    assert (judged(path), judged(path, rows=True)) == ("INCONCLUSIVE", "PASS")


@pytest.mark.parametrize("way", ["swapped with its neighbour", "one bit of a body"])
def test_verify_says_so(runs, copied, way):
    """By the spec of secure sums without attacks on small ones: all other audits pass."""
    honest, path = runs["bfv+mask"], copied("bfv+mask")
    spec = read_spec("secure-aggregation")
    checks = tuple(one for one in spec.checks if one.audit["use"] != "aggregation-attacks")
    made = remade(next(pairs for step, pairs in WAYS[way](honest.messages) if step == "send"))
    put(path, made)
    sealed_again(path, honest.run.ledger.events, made.heads)
    spec = replace(spec, id="messages", asks="run", checks=checks, origin="")
    result = verify(load_run(path), spec, data=tiny_dataset(), save=False)
    assert [found.audit for found in result.findings if found.verdict != "PASS"] == ["transcript"]
    assert result.verdict == "FAIL"


# tails


@pytest.mark.thorough
@pytest.mark.parametrize("suite", SUITES)
def test_a_tail_that_was_cut_off_is_found_and_by_a_kept_head_always(runs, copied, suite):
    """At every line; the ledger tells that fewer buffers were opened. Whole ones are missing in the models alone."""
    honest, path, unseen = runs[suite], copied(suite), []
    events = honest.run.ledger.events
    for length in range(len(honest.messages)):
        made = remade(honest.whole[:length])
        if not honest.wrong(made):
            unseen.append(length)
        elif suite != "plain" and length % 8:
            continue
        put(path, made)
        sealed_again(path, fewer(events, honest.messages[:length]), made.heads)
        assert judged(path) == judged(path, head=honest.run.ledger.head) == judged(path, rows=True) == "FAIL", length
    told, ends = (
        [at + 1 for at, one in enumerate(honest.messages) if one.step in steps]
        for steps in (("columns",), ("receipt", "opened"))
    )
    assert (len(told), len(ends)) == (2, 4)
    assert unseen == [told[-1] - 1, ends[2]]  # by messages alone: behind the lots, and between two buffers


def test_a_ledger_that_was_cut_off_is_no_run(runs, copied):
    """At every line: with the manifest as it was, with one that fits, and with a seal at its end."""
    honest, path = runs["plain"].run, copied("plain")
    lines = (honest.path / LEDGER).read_bytes().splitlines(keepends=True)
    manifest = json.loads((honest.path / MANIFEST).read_text())
    for length in range(1, len(lines)):
        (path / LEDGER).write_bytes(b"".join(lines[:length]))
        for head in (manifest["ledger"], sha256(lines[length - 1][:-1])):
            fitting = (honest.path / MANIFEST).read_text().replace(manifest["ledger"], head)
            (path / MANIFEST).write_text(fitting)
            with pytest.raises(EvidenceError):
                load_run(path)
        if length < len(lines) - 1:
            with pytest.raises(EvidenceError):
                reseal(path)


def test_a_run_that_was_cut_off_as_a_whole_is_seen_by_a_kept_head_alone(runs, tmp_path):
    """All files as if training had been stopped after its first round: nothing in it says that there was more."""
    honest, short = runs["mask"], trained(tmp_path / "run", FEDREP, "mask", stop_after=1)
    lines = (honest.run.path / LEDGER).read_bytes().splitlines(keepends=True)
    end = [event["event"] for event in honest.run.ledger.events].index("round") + 1
    put(short.path, remade(whole([one for one in honest.messages if one.round == 1])))
    (short.path / LEDGER).write_bytes(b"".join(lines[:end]))
    assert reseal(short.path).rounds_executed == 1
    assert judged(short.path, rows=True) == "PASS"
    for place, line in enumerate(lines):  # a head from before the cut shows nothing of what came behind it
        assert judged(short.path, rows=True, head=sha256(line[:-1])) == ("PASS" if place < end else "FAIL")


@pytest.mark.parametrize("suite", SUITES)
def test_an_attempt_that_nobody_answered_can_be_made_up_and_a_kept_head_alone_tells(runs, copied, suite):
    """Words of the server, which nobody signs: terms, and that nobody came. Three attempts of a buffer are the most."""
    honest, path = runs[suite], copied(suite)
    first = next(at for at, one in enumerate(honest.messages) if one.step == "terms")
    made_up, verdicts = [], []
    for _ in range(3):
        terms = replace(terms_of(honest.messages[first]), attempt=new_attempt())
        made_up += [terms_message(terms), Message.unsigned("discard", b"silent", terms)]
        put(path, made := remade(whole([*honest.messages[:first], *made_up, *honest.messages[first:]])))
        sealed_again(path, honest.run.ledger.events, made.heads)
        verdicts.append((judged(path, rows=True), judged(path, rows=True, head=honest.run.ledger.head)))
    assert verdicts == [("PASS", "FAIL"), ("PASS", "FAIL"), ("FAIL", "FAIL")]
