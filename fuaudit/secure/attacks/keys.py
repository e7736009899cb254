"""The secret key from sums and from what they were opened to (Li and Micciancio, EUROCRYPT 2021).

The server has ciphertexts, their sums, and the numbers that the key holder opened. CKKS opens them with the noise of
the ciphertext, so that linear equations have the key as their solution. BFV opens whole numbers without it: the same
equations have another solution, which is no key. That this attack fails there proves nothing about others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuaudit.secure import bfv, ckks
from fuaudit.secure.attacks.opening import VICTIM, Got, Opening
from fuaudit.secure.attacks.parties import Parties
from fuaudit.secure.names import SCARY
from fuaudit.secure.streams import Ints
from fuaudit.secure.terms import SLOTS, layout_of

Polynomial = list[int]
"""4,096 numbers modulo a prime: values at the roots of x**4096 + 1, in SEAL's order."""


class Reader:
    """Numbers in ciphertexts of TenSEAL, after a number-theoretic transform; whoever has a ciphertext can do this.

    ``modulus`` is that of the plaintexts of BFV.
    """

    def __init__(self, scheme: Any, moduli: Sequence[int], modulus: int = 0) -> None:
        from tenseal import sealapi as seal

        parameters = seal.EncryptionParameters(scheme)
        parameters.set_poly_modulus_degree(SLOTS)
        parameters.set_coeff_modulus(seal.CoeffModulus.Create(SLOTS, list(moduli)))
        if scheme == seal.SCHEME_TYPE.BFV:
            parameters.set_plain_modulus(seal.Modulus(modulus))
        self.context = seal.SEALContext(parameters, True, seal.SEC_LEVEL_TYPE.TC128)
        self.prime: int = parameters.coeff_modulus()[0].value()
        self.modulus = modulus

    def read(self, vector: bfv.Ciphertext) -> Any:
        """A copy of a ciphertext as SEAL has it: the sum of this one alone."""
        from tenseal import sealapi as seal

        found = seal.Ciphertext()
        seal.Evaluator(self.context).add_many(vector.ciphertext(), found)
        return found

    def numbers(self, found: Any) -> tuple[Polynomial, Polynomial]:
        """Both polynomials of a ciphertext."""
        from tenseal import sealapi as seal

        if not found.is_ntt_form():
            seal.Evaluator(self.context).transform_to_ntt_inplace(found)
        array = found.dyn_array()
        whole = [array.at(place) for place in range(2 * SLOTS)]
        return whole[:SLOTS], whole[SLOTS:]


def key_of_ckks(reader: Reader, sums: Sequence[Any], opened: Sequence[NDArray[np.float64]]) -> Polynomial:
    """The key from two sums and from what they were opened to.

    c0 + c1 key = plain, with the noise in it, and the opened numbers are its real parts. So plain + its mirror image is
    known, where the mirror exchanges places i and 4095 - i: one equation a sum with two unknowns, key(i) and its image.
    """
    (a, p), (b, q) = (_equations(reader, vector, numbers) for vector, numbers in zip(sums, opened, strict=True))
    key = []
    for i, j in zip(range(SLOTS), range(SLOTS - 1, -1, -1), strict=True):
        divisor = a[i] * b[j] - a[j] * b[i]
        key.append((p[i] * b[j] - q[i] * a[j]) * pow(divisor, -1, reader.prime) % reader.prime)
    return key


def _equations(reader: Reader, vector: Any, numbers: NDArray[np.float64]) -> tuple[Polynomial, Polynomial]:
    from tenseal import sealapi as seal

    found, plain = reader.read(vector), seal.Plaintext()
    encoder = seal.CKKSEncoder(reader.context)
    encoder.encode(list(numbers), reader.context.first_parms_id(), 2 * found.scale, plain)
    first, second = reader.numbers(found)
    array = plain.dyn_array()
    return second, [array.at(i) - first[i] - first[SLOTS - 1 - i] for i in range(SLOTS)]


def key_of_bfv(reader: Reader, vector: Any, opened: Sequence[int]) -> Polynomial:
    """The same with one sum: BFV opens all numbers of the plaintext, and none of the noise."""
    from tenseal import sealapi as seal

    plain, rest = seal.Plaintext(), seal.Ciphertext(reader.context)
    seal.BatchEncoder(reader.context).encode([int(number) % reader.modulus for number in opened], plain)
    seal.Evaluator(reader.context).sub_plain(reader.read(vector), plain, rest)
    first, second = reader.numbers(rest)
    return [-a * pow(b, -1, reader.prime) % reader.prime for a, b in zip(first, second, strict=True)]


def coefficients(values: Polynomial, prime: int) -> NDArray[np.object_]:
    """A polynomial from its values at the roots of x**4096 + 1; centred, up to an order of signs."""
    powers = (pow(base, (prime - 1) // (2 * SLOTS), prime) for base in range(2, 99))
    root = next(each for each in powers if pow(each, SLOTS, prime) != 1)
    order = [int(f"{place:012b}"[::-1], 2) for place in range(SLOTS)]
    found = _transform([values[place] for place in order], pow(root, -2, prime), prime)
    scale, step, inverse = [], pow(root, -1, prime), pow(SLOTS, -1, prime)
    for one in found:
        scale.append(one * inverse % prime)
        inverse = inverse * step % prime
    return np.array([one - prime if one > prime // 2 else one for one in scale], dtype=object)


def _transform(values: Polynomial, root: int, prime: int) -> Polynomial:
    """The sums of values times powers of a root of unity."""
    if len(values) == 1:
        return values
    even, odd = (_transform(values[start::2], root * root % prime, prime) for start in (0, 1))
    turned, power = [], 1
    for one in odd:
        turned.append(one * power % prime)
        power = power * root % prime
    both = list(zip(even, turned, strict=True))
    return [(a + b) % prime for a, b in both] + [(a - b) % prime for a, b in both]


def is_key(found: NDArray[np.object_]) -> bool:
    """Whether a polynomial may be a secret key: all of its coefficients are -1, 0 or 1, and not all are 0."""
    return {*found} <= {-1, 0, 1} and len({*found}) > 1


def key_recovery(suite: str, opening: Opening) -> Got:
    """The server computes the key from what it is given, and opens a row with it; the row's values come sorted.

    Rows have two ciphertexts of CKKS at least: 4,096 values.
    """
    due = np.sort(opening.row[: ckks.HALF])
    return Got(_opened_by_ckks(opening) if suite == SCARY else _opened_by_bfv(suite, opening), due)


def _opened_by_ckks(opening: Opening) -> Ints | None:
    import tenseal
    from tenseal import sealapi as seal

    holder = ckks.DemoKeyHolder(opening.bits, opening.most)
    reader = Reader(seal.SCHEME_TYPE.CKKS, ckks.MODULI)
    server = tenseal.context_from(holder.keyless(), n_threads=1)
    sent = [ckks.encrypted(holder.public(), row) for row in opening.rows]
    total = ckks.added(holder.keyless(), sent)[:2]
    opened = [*holder.opened(total).reshape(2, ckks.HALF)]
    key = key_of_ckks(reader, [tenseal.ckks_vector_from(server, one) for one in total], opened)
    if not is_key(coefficients(key, reader.prime)):
        return None
    first, second = reader.numbers(reader.read(tenseal.ckks_vector_from(server, sent[VICTIM][0])))
    plain = [(a + b * s) % reader.prime for a, b, s in zip(first, second, key, strict=True)]
    roots = np.exp(1j * np.pi * np.arange(SLOTS) / SLOTS)
    numbers = np.fft.fft(coefficients(plain, reader.prime).astype(float) / 2.0**ckks.SCALE_BITS * roots).real
    return np.rint(np.sort(numbers)[::2]).astype(np.int64)


def keys_of_bfv(suite: str, opening: Opening) -> list[NDArray[np.object_]]:
    """What the division gives of the first two sums under one key, or of the only one: each should be the key."""
    from tenseal import sealapi as seal

    ring, found = layout_of(opening.bits, opening.most).ring, []
    reader = Reader(seal.SCHEME_TYPE.BFV, bfv.MODULI, ring.modulus)
    with Parties(suite, opening.rows, opening.bits, opening.most) as some:
        announced, sent = some.sent()
        total = some.server.total(sent, announced)
        keys = some.holder._vault.get("keys", bfv.Keys)  # to open more than the key holder tells
        for one, vector in zip(total.ciphertexts[:2], some.parsed(total.ciphertexts[:2]), strict=True):
            (opened,) = bfv.decrypted(keys, [one], ring)
            found.append(coefficients(key_of_bfv(reader, vector, opened), reader.prime))
    return found


def _opened_by_bfv(suite: str, opening: Opening) -> Ints | None:
    """Whoever has the key has every row; what is no key opens nothing."""
    found = keys_of_bfv(suite, opening)
    return np.sort(opening.row[: ckks.HALF]) if any(map(is_key, found)) else None
