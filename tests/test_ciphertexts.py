"""Ciphertexts are made below TenSEAL, in TenSEAL's bytes; what all openings share holds nothing of a key."""

import gc
import os
import stat
import subprocess
import sys
import tempfile

import numpy as np
import pytest
import tenseal
from hypothesis import given, settings
from hypothesis import strategies as st
from secure_parties import rows_of
from tenseal import sealapi as seal

from fuaudit.errors import UsageError
from fuaudit.secure import bfv
from fuaudit.secure.adder import Adder
from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.suites import Suite
from fuaudit.secure.terms import RINGS, SLOTS

RING = RINGS[0]
SHARED = bfv.context_of(RING).seal_context().data
MODULI = list(bfv.MODULI)


def slots_of(rows, seed=0, ring=RING):
    """Numbers modulo the prime, ``(rows, 4096)``; the first two of each row are its ends."""
    found = np.random.Generator(np.random.Philox(seed)).integers(0, ring.modulus, (rows, SLOTS))
    found[:, :2] = 0, ring.modulus - 1
    return found


@pytest.fixture(scope="module")
def keys():
    return bfv.new_keys(RING)


# the same bytes and numbers as TenSEAL


@pytest.mark.parametrize("ring", RINGS)
def test_tenseal_opens_what_is_made_here(ring):
    """By a context and keys of its own; and it writes the same bytes again."""
    own = tenseal.context(
        tenseal.SCHEME_TYPE.BFV, SLOTS, plain_modulus=ring.modulus, coeff_mod_bit_sizes=MODULI, n_threads=1
    )
    slots, public = slots_of(2, ring=ring), bfv._saved(own.public_key().data)
    for row, part in zip(slots, bfv.encrypted(public, slots, ring), strict=True):
        vector = tenseal.bfv_vector_from(own, part)
        assert np.array_equal(np.array(vector.decrypt()) % ring.modulus, row)
        assert vector.serialize() == part


@pytest.mark.parametrize("ring", RINGS)
def test_a_context_is_the_one_that_tenseal_makes(ring):
    own = tenseal.context(
        tenseal.SCHEME_TYPE.BFV, SLOTS, plain_modulus=ring.modulus, coeff_mod_bit_sizes=MODULI, n_threads=1
    )
    assert bfv.keyless_part(ring) == own.serialize(False, False, False, False)
    shared = bfv.context_of(ring).seal_context().data
    assert shared.parameters_set()
    assert list(shared.first_parms_id()) == list(own.seal_context().data.first_parms_id())


@settings(max_examples=15)
@given(st.integers(2, 8), st.integers(0, 2**32), st.sampled_from(["any", "least", "most"]))
def test_sums_are_those_of_whole_numbers(clients, seed, kind):
    keys, slots = bfv.new_keys(RING), slots_of(2 * clients, seed).reshape(clients, 2, SLOTS)
    slots = {"any": slots, "least": slots * 0, "most": slots * 0 + RING.modulus - 1}[kind]
    sent = [bfv.encrypted(keys.public, row, RING) for row in slots]
    total = bfv.added([[bfv.parsed(bfv.context_of(RING), part) for part in row] for row in sent])
    due = sum(row.astype(object) for row in slots) % RING.modulus
    assert np.array_equal(bfv.decrypted(keys, total, RING), due.astype(np.int64))


def test_no_ciphertext_is_made_twice(keys):
    """The library draws its noise anew, also for the same numbers under the same key."""
    slots = slots_of(1)
    made = [bfv.encrypted(keys.public, slots, RING)[0] for _ in range(4)]
    bodies = np.array([np.frombuffer(one, dtype=np.uint8) for one in made])
    assert all((bodies[0] == one).mean() < 0.2 for one in bodies[1:])
    assert bfv.new_keys(RING).public != keys.public


@given(st.integers(0, 2**40))
def test_lengths_are_those_of_protocol_buffers(number):
    found = bfv._varint(number)
    assert sum((byte & 127) << 7 * place for place, byte in enumerate(found)) == number
    assert [byte >> 7 for byte in found] == [1] * (len(found) - 1) + [0]


# what is no ciphertext, and no key


def made_of(thing):
    return bfv._vector(bfv._saved(thing))


def one_of(keys):
    """A ciphertext as SEAL has it."""
    return bfv.parsed(bfv.context_of(RING), bfv.encrypted(keys.public, slots_of(1), RING)[0]).ciphertext()[0]


def at_the_roots(keys):
    found = one_of(keys)
    seal.Evaluator(SHARED).transform_to_ntt_inplace(found)
    return made_of(found)


def of_size(keys, size):
    found = one_of(keys)
    found.resize(SHARED, size)
    return made_of(found)


def multiplied(keys):
    found = seal.Ciphertext()
    seal.Evaluator(SHARED).multiply(one_of(keys), one_of(keys), found)
    return made_of(found)


def transparent(_):
    """Whoever has it reads it without a key."""
    found = seal.Ciphertext(SHARED)
    found.resize(SHARED, 2)
    assert found.is_transparent()
    return made_of(found)


def of_other_moduli(_):
    """Of two ciphertext moduli; the plaintexts are the same."""
    own = tenseal.context(
        tenseal.SCHEME_TYPE.BFV, SLOTS, plain_modulus=RING.modulus, coeff_mod_bit_sizes=[36, 36, 37], n_threads=1
    )
    return tenseal.bfv_vector(own, [0] * SLOTS).serialize()


def beyond_its_modulus(keys):
    """One coefficient is 2**60: no number modulo a prime of 60 bits."""
    bare = bfv._saved(one_of(keys))
    assert bare[5] == 2, "compressed by zstd, which keeps random bytes as they are"
    start = bare.rindex(np.uint64(SLOTS * 2).tobytes(), 0, 400) + 8  # behind the number of coefficients
    found = bare[:start] + np.uint64(1 << 60).tobytes() + bare[start + 8 :]
    return bfv._vector(found)


def with_sizes(vector, sizes):
    """TenSEAL reads it, and writes sums that begin with it with all of these sizes."""
    packed = b"".join(map(bfv._varint, sizes))
    return b"\x0a" + bfv._varint(len(packed)) + packed + vector[len(bfv.VECTOR) - 1 :]


WRONG = {
    "nothing": lambda _: b"",
    "cut off": lambda keys: made_of(one_of(keys))[:-1],
    "half": lambda keys: made_of(one_of(keys))[:30_000],
    "its end alone": lambda keys: made_of(one_of(keys))[8:],
    "another ring": lambda _: bfv.specimen(RINGS[1]),
    "other moduli": of_other_moduli,
    "three parts": lambda keys: of_size(keys, 3),
    "a product": multiplied,
    "in another form": at_the_roots,
    "transparent": transparent,
    "a coefficient too large": beyond_its_modulus,
    "fewer slots": lambda keys: b"\x0a\x02\x80\x10" + made_of(one_of(keys))[4:],
    "slots of several vectors": lambda keys: with_sizes(made_of(one_of(keys)), [SLOTS, *[0] * 300]),
    "a field twice": lambda keys: bfv.VECTOR[:-1] + made_of(one_of(keys)),
    "two ciphertexts": lambda keys: made_of(one_of(keys)) + made_of(one_of(keys))[4:],
    "the public key": lambda keys: bfv._vector(keys.public),
    "a plaintext": lambda _: made_of(seal.Plaintext("1x^1")),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_ciphertext_is_refused(keys, name):
    part = WRONG[name](keys)
    with pytest.raises(RefusedError, match=r"no ciphertext of these terms|a ciphertext has \d+ bytes"):
        bfv.parsed(bfv.context_of(RING), part)
    with pytest.raises(RefusedError):
        bfv.decrypted(keys, [part], RING)


@pytest.mark.parametrize("wrong", [at_the_roots, transparent])
def test_who_signed_one_of_another_form_is_named(keys, wrong):
    """Values at the roots add up with no others: the process that adds would break off, and nobody could be blamed."""
    good, made = made_of(one_of(keys)), Adder(bfv.keyless_part(RING), RING)
    with pytest.raises(RefusedError, match="client 4") as caught:
        made.sums({1: [good], 4: [wrong(keys)]})
    assert caught.value.blamed == 4
    made.end()


@settings(max_examples=40)
@given(st.integers(0, 8 * 200 - 1), st.integers(0, 3))
def test_a_flipped_bit_of_a_head_makes_no_other_thing(place, kind):
    """In the first 200 bytes are all lengths, versions, sizes and parameters: it is refused, or a sum as it was due."""
    keys = bfv.new_keys(RING)
    slots = slots_of(2, kind)
    one, other = bfv.encrypted(keys.public, slots, RING)
    flipped = bytearray(one)
    flipped[place // 8] ^= 1 << place % 8
    context = bfv.context_of(RING)
    try:
        vector = bfv.parsed(context, bytes(flipped))
    except RefusedError:
        return
    (total,) = bfv.added([[vector], [bfv.parsed(context, other)]])
    assert len(total) <= bfv.CIPHERTEXT_BYTES
    assert bfv.decrypted(keys, [total], RING).shape == (1, SLOTS)


@pytest.mark.parametrize(
    "name", ["nothing", "cut off", "half", "another ring", "a ciphertext", "a secret key", "noise"]
)
def test_what_is_no_public_key_is_refused(keys, name):
    secret = seal.KeyGenerator(SHARED).secret_key()
    part = {
        "nothing": lambda: b"",
        "cut off": lambda: keys.public[:-1],
        "half": lambda: keys.public[:50_000],
        "another ring": lambda: bfv.new_keys(RINGS[1]).public,
        "a ciphertext": lambda: bfv._saved(one_of(keys)),
        "a secret key": lambda: bfv._saved(secret),
        "noise": lambda: bytes(range(256)) * 450,
    }[name]()
    with pytest.raises(RefusedError, match="no public key of these terms") as caught:
        bfv.encrypted(part, slots_of(1), RING)
    assert caught.value.__context__ is None


def test_another_key_opens_nothing(keys):
    (part,) = bfv.encrypted(keys.public, slots_of(1), RING)
    found = bfv.decrypted(bfv.new_keys(RING), [part], RING)
    assert (found == slots_of(1)).mean() < 0.01


# what is kept, and where keys go


def test_what_all_openings_share_has_no_key(keys):
    """It is one object before and after, and can neither make nor open a ciphertext."""
    context, part = bfv.context_of(RING), bfv.keyless_part(RING)
    bfv.decrypted(keys, bfv.encrypted(keys.public, slots_of(1), RING), RING)
    assert bfv.context_of(RING) is context
    assert bfv.keyless_part(RING) == part
    assert len(part) == len(bfv.serialized(context, public=False)) == bfv.KEYLESS_BYTES
    for has in (context.has_secret_key, context.has_public_key, context.has_galois_keys, context.has_relin_keys):
        assert not has()
    vector = bfv.parsed(context, bfv.specimen(RING))
    for attempt in (vector.decrypt, context.decryptor, context.encryptor, lambda: tenseal.bfv_vector(context, [1])):
        with pytest.raises((ValueError, RuntimeError)):
            attempt()
    assert not [name for name in dir(SHARED) if "secret" in name or "public" in name]


def test_a_context_with_a_key_is_refused():
    for scheme in (tenseal.SCHEME_TYPE.BFV, tenseal.SCHEME_TYPE.CKKS):
        own = tenseal.context(scheme, SLOTS, plain_modulus=RING.modulus, coeff_mod_bit_sizes=MODULI, n_threads=1)
        for public, secret in ((True, False), (False, True), (True, True)):
            with pytest.raises(RefusedError, match="has keys"):
                bfv.loaded(own.serialize(public, secret, False, False))


def held(kind):
    return [one for one in gc.get_objects() if isinstance(one, kind)]


@pytest.mark.thorough
@pytest.mark.parametrize("suite", ["bfv", "bfv+mask"])
def test_keys_are_gone_after_an_opening(suite):
    before = len(held(bfv.Keys))
    Suite(suite).sums(rows_of(3, 5), 12)
    gc.collect()
    assert len(held(bfv.Keys)) == before
    kept = bfv.new_keys(RING)
    assert len(held(bfv.Keys)) == before + 1, "a key that is kept is seen"
    assert repr(kept) == "Keys()"


@pytest.mark.parametrize("suite", ["bfv", "bfv+mask"])
def test_public_keys_and_ciphertexts_alone_go_through_files(monkeypatch, suite):
    """A secret key goes through none, not even one in memory."""
    kinds, right = set(), bfv._saved

    def saved(thing):
        kinds.add(type(thing))
        return right(thing)

    monkeypatch.setattr(bfv, "_saved", saved)
    assert np.array_equal(Suite(suite).sums(rows_of(3, 5), 12), rows_of(3, 5).sum(axis=0))
    assert kinds == {seal.PublicKey, seal.Ciphertext}


@pytest.mark.parametrize("memory", [True, False])
def test_files_leave_nothing_behind(monkeypatch, tmp_path, memory):
    """In memory where the system can, else a file that nobody else reads; after an error too."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if not memory:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    elif not hasattr(os, "memfd_create"):
        pytest.skip("the system has no files in memory")
    keys, slots = bfv.new_keys(RING), slots_of(2)
    before = os.listdir("/dev/fd")
    assert np.array_equal(bfv.decrypted(keys, bfv.encrypted(keys.public, slots, RING), RING), slots)
    with pytest.raises(RefusedError):
        bfv.encrypted(keys.public[:-1], slots, RING)
    with bfv._file() as (file, path):
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077 == 0 or memory
        assert [str(one) for one in tmp_path.iterdir()] == ([] if memory else [path])
    assert not list(tmp_path.iterdir())
    assert len(os.listdir("/dev/fd")) == len(before)


def test_without_room_there_is_an_error_and_no_ciphertext():
    """A part of one would be its sender's doing. With room the same is no error."""
    script = (
        "import resource\nfrom fuaudit.secure import bfv\nfrom fuaudit.secure.terms import RINGS\n"
        "one = bfv.parsed(bfv.context_of(RINGS[0]), bfv.specimen(RINGS[0])).ciphertext()[0]\n"
        "size = len(bfv._saved(one))\n"
        "for room in (size, size - 1, size // 2, 0):\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (room, size))\n"
        "    try:\n        print(len(bfv._saved(one)) == size)\n"
        "    except RuntimeError:\n        print('an error')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["True", "an error", "an error", "an error"]


def test_a_wrong_frame_is_seen_by_the_start_up_test(monkeypatch):
    """The margin is measured over the whole way: keys, ciphertexts, bytes, sum and opening."""
    wrong = lambda ciphertext: bfv.VECTOR + ciphertext  # noqa: E731
    monkeypatch.setattr(bfv, "_vector", wrong)
    with pytest.raises((RefusedError, UsageError)):
        bfv.require_margin.__wrapped__(RING)
