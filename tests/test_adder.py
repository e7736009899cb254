"""Ciphertexts of strangers are read by a process that has nothing, and cost it at most itself."""

import gc
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from secure_parties import Parties, rows_of
from tenseal import sealapi as seal

from fuaudit.secure import adder, adding, bfv
from fuaudit.secure.adder import Adder, adder_of, end_all
from fuaudit.secure.lines import NUMBER, BrokenLineError, Line
from fuaudit.secure.messages import Message
from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.terms import RINGS, SLOTS

RING = RINGS[0]
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="what Linux alone can do")
KEYS = bfv.new_keys(RING)
SLOTS_OF = np.arange(3 * SLOTS).reshape(3, SLOTS) % RING.modulus
GOOD = bfv.encrypted(KEYS.public, SLOTS_OF, RING)


@pytest.fixture(scope="module")
def one():
    made = Adder(bfv.keyless_part(RING), RING)
    yield made
    made.end()


@pytest.fixture
def taken_over(monkeypatch):
    """An adder whose process does what its parts say."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setattr(adder, "PROCESS", "secure_taken_over")
    made = Adder(bfv.keyless_part(RING), RING, answer=3.0)
    yield made
    made.end()


def status(pid, name):
    """What the system says of all threads of a process under a name."""
    texts = [(task / "status").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    return {line.split()[1] for text in texts for line in text.splitlines() if line.startswith(f"{name}:")}


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def children():
    """Processes of this one, by their numbers, zombies too."""
    found = set()
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(place.read_text().rsplit(")", 1)[1].split()[1]) == os.getpid():
                found.add(int(place.parent.name))
        except OSError:
            continue
    return found


def test_the_process_gives_the_sums_of_this_one_bit_for_bit(one):
    """And goes on from request to request."""
    context = bfv.loaded(bfv.keyless_part(RING))
    rows = {7: GOOD[:2], 3: GOOD[1:], 5: [GOOD[0], GOOD[0]]}
    due = tuple(bfv.added([[bfv.parsed(context, part) for part in parts] for parts in rows.values()]))
    assert one.sums(rows) == due
    assert one.sums(dict(sorted(rows.items()))) == due
    pid = one.pid
    assert one.sums(rows) == due
    assert one.pid == pid
    opened = bfv.decrypted(KEYS, one.sums({0: GOOD[:1], 1: GOOD[1:2]}), RING)
    assert np.array_equal(opened[0], (SLOTS_OF[0] + SLOTS_OF[1]) % RING.modulus)


@LINUX
def test_the_process_has_given_up_what_it_says(one):
    one.sums({0: GOOD, 1: GOOD})
    assert {"memory", "files", "descriptors", "cores", "privileges"} <= set(one.confined)
    limits = Path(f"/proc/{one.pid}/limits").read_text()
    for name, most in (("file size", 0), ("core file size", 0), ("open files", adding.DESCRIPTOR + 1)):
        assert f"Max {name:<22}{most:<21}{most:<21}"[:50] in limits, limits
    (room,) = (int(line.split()[3]) for line in limits.splitlines() if line.startswith("Max address space"))
    assert room < adding.ROOM + (1 << 30)
    assert status(one.pid, "NoNewPrivs") == {"1"}
    assert status(one.pid, "Seccomp") == ({"2"} if "calls" in one.confined else {"0"})


GIVEN_UP = {
    "a file": "open('/tmp/fuaudit-nothing', 'w')",
    "a file to read": "open('/etc/passwd')",
    "a socket": "socket.socket()",
    "a descriptor": "os.dup(3)",
    "a process": "os.fork()",
    "a program": "os.execv('/bin/true', ['true'])",
    "another's process": "os.kill(os.getppid(), 0)",
    "a thread": "threading.Thread(target=print).start()",
    "memory": "bytearray(1 << 30)",
}


@LINUX
@pytest.mark.parametrize("what", GIVEN_UP)
def test_code_in_the_process_gets_no_more(what):
    """It tries what bytes that took it over would try. What needs libseccomp is tried where that is."""
    script = (
        "import os, socket, sys, threading\nfrom fuaudit.secure.confinement import confine\n"
        "os.dup2(1, 3); os.closerange(4, 256)\nheld = confine(1 << 28, 4)\n"
        f"try:\n    {GIVEN_UP[what]}\nexcept (OSError, MemoryError, RuntimeError) as error:\n"
        "    os.write(3, b'refused')\nelse:\n    os.write(3, b'calls' if 'calls' in held else b'got it')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    needs_calls = what in ("a process", "a program", "another's process", "a thread")
    assert done.stdout == "refused" or (needs_calls and done.stdout == "got it"), done


def test_a_request_has_its_seconds():
    """A signal of the system ends a process that computes for longer, also within the library."""
    script = (
        "import sys\nfrom fuaudit.secure import adding\nadding.CPU_SECONDS = 0.3\n"
        "adding.answer = lambda *_: sum(range(10**12))\nadding.main(sys.argv[1])"
    )
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen([sys.executable, "-c", script, str(theirs.fileno())], pass_fds=[theirs.fileno()])
    with Line(ours, "it") as line:
        line.send([bfv.keyless_part(RING)])
        assert line.receive(16, 1000, 60)[0] == adding.READY
        line.send(GOOD)
        with pytest.raises(BrokenLineError, match="is gone"):
            line.receive(16, 1000, 60)
    assert process.wait(10) == -signal.SIGPROF


def flipped(part, bit):
    place = bit % (8 * len(part))
    return part[: place // 8] + bytes([part[place // 8] ^ 1 << place % 8]) + part[place // 8 + 1 :]


HOSTILE = st.one_of(
    st.binary(max_size=300),
    st.integers(0, len(GOOD[0]) - 1).map(lambda size: GOOD[0][:size]),
    st.integers(0).map(lambda bit: flipped(GOOD[0], bit)),
    st.integers(0, 8 * 200).map(lambda bit: flipped(GOOD[0], bit)),  # sizes and parameters are at the beginning
    st.tuples(st.integers(0, 200), st.binary(min_size=8, max_size=8)).map(
        lambda found: GOOD[0][: found[0]] + found[1] + GOOD[0][found[0] + 8 :]
    ),
    st.integers(0, 80).map(lambda place: GOOD[0][:place] + b"\xff" * 8 + GOOD[0][place + 8 :]),
    st.binary(min_size=1, max_size=9).map(lambda found: (found * bfv.CIPHERTEXT_BYTES)[: bfv.CIPHERTEXT_BYTES]),
)


class Raw:
    """The process itself, started again where it ended, and how often it did."""

    def __init__(self):
        self.ends, self.process = 0, None

    def answer(self, parts):
        if self.process is None:
            ours, theirs = socket.socketpair()
            with theirs:
                self.process, self.line = adder.started(adder.PROCESS, {"line": theirs}), Line(ours, "it")
            self.line.send([bfv.keyless_part(RING)])
            assert self.line.receive(16, 1000, 120)[0] == adding.READY
        try:
            self.line.send(parts, 60)
            return self.line.receive(16, bfv.CIPHERTEXT_BYTES + 3, 60)
        except BrokenLineError:
            self.end()
            self.ends += 1
            return []

    def end(self):
        if self.process is not None:
            self.line.close()
            adder.ended(self.process)
            self.process = None


@pytest.fixture(scope="module")
def raw():
    made = Raw()
    yield made
    made.end()


@settings(max_examples=150)
@given(HOSTILE)
def test_hostile_bytes_end_the_process_at_most(raw, part):
    """It answers that it cannot read them, or a sum of what they say, or ends; memory does not grow."""
    told = raw.answer([GOOD[1], part, GOOD[2]])
    if told:
        assert told == [adding.BAD, NUMBER.pack(1)] or (told[0] == adding.SUM and len(told) == 2), told[0]
        assert raw.answer(GOOD)[0] == adding.SUM
        if sys.platform == "linux":
            assert int(min(status(raw.process.pid, "VmHWM"))) < 300_000  # kB
    assert raw.ends < 20


@pytest.mark.parametrize(
    "part", [b"", b"hello", GOOD[0][:-1], GOOD[0][:40], bytes(bfv.CIPHERTEXT_BYTES), bytes(bfv.CIPHERTEXT_BYTES + 1)]
)
def test_who_signed_it_is_named(one, part):
    with pytest.raises(RefusedError, match="client 5") as caught:
        one.sums({3: GOOD[:1], 5: [part], 9: GOOD[1:2]})
    assert caught.value.blamed == 5
    assert one.sums({0: GOOD, 1: GOOD})


def cancelling(*parts):
    """A ciphertext whose second part is what others' lack to nothing: their sum is open to everybody."""
    shared, context = bfv._shared(RING), bfv.context_of(RING)
    found = seal.Ciphertext()
    seal.Evaluator(shared).negate(bfv.parsed(context, parts[0]).ciphertext()[0], found)
    for part in parts[1:]:
        seal.Evaluator(shared).sub_inplace(found, bfv.parsed(context, part).ciphertext()[0])
    return bfv._vector(bfv._saved(found))


def test_ciphertexts_that_cancel_each_other_are_refused_by_name(one):
    """Also where others follow; nobody alone is blamed, for who copied whom is not to be seen."""
    two, three = cancelling(GOOD[0]), cancelling(GOOD[0], GOOD[1])
    for rows, named in [
        ({3: GOOD[0], 9: two}, "clients 3, 9 add up"),
        ({9: two, 3: GOOD[0], 5: GOOD[1]}, "clients 3, 9 add up"),
        ({1: GOOD[0], 2: GOOD[1], 4: three, 6: GOOD[2]}, "clients 1, 2, 4 add up"),
    ]:
        with pytest.raises(RefusedError, match=named) as caught:
            one.sums({client: [part] for client, part in rows.items()})
        assert (caught.value.reason, caught.value.blamed) == ("wrong", None)
    assert one.sums({0: GOOD, 1: GOOD})


@pytest.mark.parametrize("way", "oq")
def test_who_takes_the_process_over_names_nobody_else(taken_over, way):
    """It says that others' ciphertexts cancel each other: of them alone that is not so."""
    with pytest.raises(RefusedError) as caught:
        taken_over.sums({2: GOOD[:1], 3: GOOD[1:2], 8: [way.encode() + b"!"]})
    assert "add up" not in caught.value.args[0]
    assert caught.value.blamed == 8


def test_a_client_is_named_by_the_server(one):
    four = Parties("bfv", rows_of(4, 9))
    _, sent = four.sent()
    body = sent[2].body[:36] + b"x" * (len(sent[2].body) - 36)
    sent[2] = Message.signed("send", 2, body, four.terms, four.identities[2])
    for _ in range(2):
        with pytest.raises(RefusedError, match="client 2") as caught:
            four.server.total(sent)
        assert caught.value.blamed == 2
    four.end()


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_somebody_ends_or_stops_costs_nobody_anything(number):
    made = Adder(bfv.keyless_part(RING), RING, answer=4.0)
    due = made.sums({0: GOOD, 1: GOOD})
    first = made.pid
    os.kill(first, number)
    assert made.sums({0: GOOD, 1: GOOD}) == due
    assert made.pid != first
    assert not alive(first)
    made.end()


def test_a_reader_that_somebody_ends_blames_nobody(one, monkeypatch):
    """One process broke off at the sum, and one at reading a right ciphertext: no client is behind that."""
    due, asked, kinds = one.sums({0: GOOD[:1], 1: GOOD[1:2]}), one._asked, []

    def broken(parts, kind):
        kinds.append(kind)
        return None if kinds.count(kind) == 1 else asked(parts, kind)

    monkeypatch.setattr(one, "_asked", broken)
    assert one.sums({0: GOOD[:1], 1: GOOD[1:2]}) == due
    assert kinds == [adding.SUM, adding.READ, adding.READ, adding.READ, adding.OPEN, adding.SUM]


def test_a_machine_that_ends_every_sum_is_no_clients_doing(one, monkeypatch):
    asked = one._asked
    monkeypatch.setattr(one, "_asked", lambda parts, kind: None if kind == adding.SUM else asked(parts, kind))
    with pytest.raises(RefusedError, match="gives no sum, and reads each of them") as caught:
        one.sums({0: GOOD[:1], 1: GOOD[1:2]})
    assert (caught.value.blamed, caught.value.reason) == (None, "broke")


def test_a_sum_that_fails_where_known_ones_do_not_is_of_wrong_ciphertexts(one, monkeypatch):
    """Whatever it is: the machine adds as many others. "Broke" would say that nothing is known of what was sent."""
    asked, theirs = one._asked, (GOOD[0], GOOD[1])
    monkeypatch.setattr(
        one, "_asked", lambda parts, kind: None if kind != adding.READ and theirs[0] in parts else asked(parts, kind)
    )
    with pytest.raises(RefusedError, match="give no sum, and as many that are known to be right do") as caught:
        one.sums({0: GOOD[:1], 1: GOOD[1:2]})
    assert (caught.value.blamed, caught.value.reason) == (None, "wrong")


def test_a_process_that_cannot_be_started_leaves_nothing_open(monkeypatch):
    def started(*_):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(adder, "started", started)
    before = sorted(os.listdir("/dev/fd"))
    with pytest.raises(BlockingIOError):
        Adder(bfv.keyless_part(RING), RING).sums({0: GOOD, 1: GOOD})
    assert sorted(os.listdir("/dev/fd")) == before


@pytest.mark.parametrize("way", "nelphctk")
def test_nonsense_is_no_answer(taken_over, way):
    """Nor is a frame that is too large: of it nothing is read, and no memory taken."""
    assert taken_over._asked([way.encode() + b"!"], adding.READ) is None
    assert taken_over.pid is None


@pytest.mark.thorough
@pytest.mark.parametrize("way", "hs")
def test_what_takes_the_process_over_costs_its_message(taken_over, way):
    """Its sender is named; what comes next is done by a fresh process."""
    due = taken_over.sums({0: GOOD, 1: GOOD})
    with pytest.raises(RefusedError, match="client 8") as caught:
        taken_over.sums({2: GOOD[:1], 8: [way.encode() + b"!"]})
    assert caught.value.blamed == 8
    assert taken_over.sums({0: GOOD, 1: GOOD}) == due


def test_a_process_that_was_taken_over_makes_no_wrong_sum(monkeypatch):
    """Not even where that of the witness was taken over too: what is opened fits its checks."""
    four = Parties("bfv", rows_of(4, 9))
    _, sent = four.sent()
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setattr(adder, "PROCESS", "secure_taken_over")
    end_all()
    try:
        body = sent[1].body[:36] + b"w!" + sent[1].body[38:]
        sent[1] = Message.signed("send", 1, body, four.terms, four.identities[1])
        server, witness = four.server, four.witness
        server._adder = witness._adder = Adder(four.holder.keyless(), RING)
        total = server.total(sent)
        assert total.ciphertexts == (bytes(bfv.CIPHERTEXT_BYTES),)
        with pytest.raises(RefusedError):
            four.holder.opened(total, witness.signature(sent, total))
        server._adder.end()
    finally:
        end_all()
        four.end()


def test_a_context_that_is_none_is_refused_and_no_client_named():
    for part in (b"", b"nothing of the kind", bfv.keyless_part(RING)[:50]):
        with pytest.raises(RefusedError, match="no process adds ciphertexts") as caught:
            Adder(part, RING).sums({0: GOOD, 1: GOOD})
        assert caught.value.blamed is None
    with pytest.raises(RefusedError, match="has keys"):
        Adder(KEYS.public, RING)


@pytest.mark.thorough
@LINUX
def test_nothing_is_left_behind():
    gc.collect()
    before = children(), set(os.listdir("/proc/self/fd"))
    for _ in range(2):
        made = Adder(bfv.keyless_part(RING), RING)
        made.sums({0: GOOD, 1: GOOD})
        with pytest.raises(RefusedError):
            made.sums({0: GOOD[:1], 1: [b"x"]})
        made.sums({0: GOOD, 1: GOOD})
        pid = made.pid
        del made
        gc.collect()
        assert not alive(pid)
    assert (children(), set(os.listdir("/proc/self/fd"))) == before


@LINUX
def test_a_process_ends_with_its_parent():
    script = (
        "import sys; from fuaudit.secure.adder import adder_of; from fuaudit.secure.terms import RINGS; "
        "from fuaudit.secure import bfv; "
        "made = adder_of('server', bfv.keyless_part(RINGS[0]), RINGS[0]); "
        "made.sums({0: [bfv.specimen(RINGS[0])], 1: [bfv.specimen(RINGS[0])]}); print(made.pid, flush=True); "
        "sys.stdin.read()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    pid = int(parent.stdout.readline())
    assert alive(pid)
    parent.kill()
    parent.communicate()
    until = time.monotonic() + 30
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(pid)


def test_a_role_keeps_its_process():
    keyless = bfv.keyless_part(RING)
    assert adder_of("server", keyless, RING) is adder_of("server", keyless, RING)
    assert adder_of("server", keyless, RING) is not adder_of("witness", keyless, RING)
    held = [adder_of("other", bytes([number]), RING) for number in range(5)]
    kept = [key for key in adder._held if key[1] == "other"]
    assert len(kept) <= len(RINGS)
    assert adder._held[kept[-1]] is held[-1]
    for key in kept:
        adder._held.pop(key)
