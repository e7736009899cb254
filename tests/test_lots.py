"""Identities and lots: what follows from secrets, what the commitment fixes, and what a round's key depends on."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st
from tests_support import reseal, secret

from fuaudit import load_run, train, unlearn, verify
from fuaudit.commitments.contents import Contents
from fuaudit.commitments.identities import PARTIES, identity_of, public_key
from fuaudit.commitments.keys import derive
from fuaudit.commitments.lots import Lots, chain_end
from fuaudit.draws import Keyed
from fuaudit.draws.chains import Chain, back, before, fits, lot_key
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.plans import Plan, Request, UniformLaw
from fuaudit.plans.stage_draws import Part, PlannedDraws
from fuaudit.proofs.toys import federation
from fuaudit.runs.layout import CONTENTS, SECRETS
from fuaudit.runs.receipts import not_hers, read_receipt, receipt_of
from fuaudit.runs.roster import lines_of
from fuaudit.testing.tiny import tiny_config, tiny_dataset
from fuaudit.workflow import begin
from fuaudit.workflow.prune import prune
from fuaudit.workflow.redact import redact
from fuaudit.workflow.writer import RunWriter

TRANSPORT = Part("transport")
QUANTISE = {"use": "quantise", "clip": 1.0, "bits": 12}
TABLES = tiny_config(
    learner={"use": "fedavg", "cohort": 4, "steps": 1, "batch": 2, "step_size": 0.2, "rounds": 2},
    client=[QUANTISE],
    transport={"use": "secure-sum", "size": 2},
    server=[{"use": "mean"}],
    run={"checkpoint_every": 1, "engine": "reference", "device": "cpu", "requests": 2},
)
INFINITE = TABLES | {"client": [QUANTISE, {"use": "test-infinite", "clients": [3]}]}
"""The sum with client 3 in it is not finite, and the ledger tells who else was in it."""


def trained(path, tables=TABLES, number=1, **others):
    return train(tables, path, tiny_dataset(), secret(number), **others)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("lots") / "run")


def asked(run, quick, **given):
    """The finding of provenance."""
    result = verify(run, quick, data=tiny_dataset(), budget=0, save=False, **given)
    return next(finding for finding in result.findings if finding.audit == "provenance")


# chains


@settings(deadline=None, max_examples=60)
@given(st.binary(min_size=32, max_size=32), st.integers(1, 90), st.data())
def test_a_chain_is_what_hashing_step_by_step_gives(last, length, choose):
    """The dumb form: all elements in a list."""
    elements = [last]
    for _ in range(length):
        elements.append(hashlib.sha256(b"fuaudit lot" + elements[-1]).digest())
    elements.reverse()
    chain = Chain(last, length)
    assert chain.end == elements[0] == back(last, length)
    asked = choose.draw(st.lists(st.integers(0, length), max_size=20))
    assert [chain.element(number) for number in asked] == [elements[number] for number in asked]
    assert [chain.element(number) for number in range(length + 1)] == elements
    for number in asked:
        assert fits(elements[number], number, chain.end)
        assert not fits(elements[number], number + 1, chain.end)
        assert not fits(bytes([elements[number][0] ^ 1]) + elements[number][1:], number, chain.end)


@pytest.mark.parametrize("number", [-1, 4])
def test_a_chain_has_no_other_elements(number):
    with pytest.raises(IndexError, match="has no number"):
        Chain(bytes(32), 3).element(number)


def test_who_knows_an_element_knows_those_before_and_needs_a_secret_for_the_next():
    """An element is the hash of the next one, and so follows from it; the next one follows from the secret alone."""
    lots = Lots({1: secret(1)}, rounds=3, requests=1)
    known = lots.contribution(1, 0, 2)
    assert before(known) == lots.contribution(1, 0, 1)
    assert before(lots.contribution(1, 0, 3)) == known
    # the one place from which it can be made: no hash of what was revealed leads there
    forward, made = lots.contribution(1, 0, 3), known
    for _ in range(20):
        made = before(made)
        assert made != forward
    assert lots.chain(1).element(6) == derive(secret(1), "lot")
    assert secret(1) not in vars(lots.chain(1)).values()
    assert secret(1).hex() not in repr(lots)


def test_a_long_chain_keeps_few_elements_and_hashes_little(monkeypatch):
    """A million would keep 2,000: here 10,000, counted."""
    from fuaudit.draws import chains

    counted, honest = [0], chains.before

    def counting(element):
        counted[0] += 1
        return honest(element)

    monkeypatch.setattr(chains, "before", counting)
    length = 10_000
    chain = Chain(bytes(32), length)
    assert counted[0] == length
    for number in range(1, length + 1):
        chain.element(number)
        assert len(chain._firsts) + len(chain._segment) <= 2 * 32 * 102
    assert counted[0] <= 2 * length
    counted[0] = 0
    for number in range(1, length + 1, 500):
        chain.element(number)
    assert counted[0] <= 20 * 101


def test_generations_never_share_a_contribution():
    lots = Lots({1: secret(1), 2: secret(2)}, rounds=4, requests=3)
    every = [lots.contribution(c, g, r) for c in (1, 2) for g in range(4) for r in range(1, 5)]
    assert len(set(every)) == len(every)
    for number in (0, 5):
        with pytest.raises(UsageError, match="has no lot"):
            lots.contribution(1, 0, number)
    with pytest.raises(EvidenceError, match="the secret of client 3, by which it contributes to lots"):
        lots.contribution(3, 0, 1)


# keys of lots


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(st.integers(0, 2**40), st.binary(min_size=32, max_size=32), min_size=1, max_size=5), st.data())
def test_the_key_of_a_lot_hangs_on_everything(given_, choose):
    """Every contribution, who gave it, the round, the generation and the commitment; not on the order of a table."""
    commitment, context = "ab" * 32, "cd" * 32
    key = lot_key(commitment, context, 3, given_)
    assert key == lot_key(commitment, context, 3, dict(reversed(given_.items())))
    client = choose.draw(st.sampled_from(sorted(given_)))
    place, bit = choose.draw(st.integers(0, 31)), choose.draw(st.integers(0, 7))
    flipped = bytearray(given_[client])
    flipped[place] ^= 1 << bit
    without = {other: part for other, part in given_.items() if other != client}
    others = [
        lot_key(commitment, context, 3, given_ | {client: bytes(flipped)}),
        lot_key(commitment, context, 3, without),
        lot_key(commitment, context, 3, without | {2**40 + 1: given_[client]}),
        lot_key(commitment, context, 4, given_),
        lot_key(commitment, "", 3, given_),
        lot_key(commitment, "ce" * 32, 3, given_),
        lot_key("bb" * 32, context, 3, given_),
    ]
    assert len({key, *others}) == 1 + len(others)


def order(draws, number, clients, size=24):
    return draws.lot(number, TRANSPORT, clients).permutation("order", size).tolist()


def test_who_is_with_whom_depends_on_every_contribution(run):
    """The permutation of a run, of which one client after the other has another secret."""
    (draws,) = run.stage_draws(run.plan)
    whole, first = order(draws, 1, [0, 1, 2, 3]), run.secrets.generations[0]
    for client in range(4):
        other = replace(run.secrets, generations=(dict(first) | {client: bytes(32)},))
        lots = other.lots(run.law.rounds, run.config.run.requests)
        changed = other.draws(run.plan, run.commitment, run.contexts, lots)
        assert order(changed, 1, [0, 1, 2, 3]) != whole
        others = [one for one in range(4) if one != client]
        assert order(changed, 1, others) == order(draws, 1, others), "who is not there adds nothing"
    assert order(draws, 2, [0, 1, 2, 3]) != whole
    shared = draws.shared(1, TRANSPORT).permutation("order", 24).tolist()
    assert shared != whole, "what all draw with is no lot: whoever has the seeds knows it"


def test_plans_of_statistics_have_lots_of_flat_keys():
    """Uniform orders by a key of their source, which hang on who is there as those of runs do."""
    plan = Plan.fresh(UniformLaw(1200, 2, 3, 1), federation((3, 3, 3)), Keyed(bytes(32)))
    draws, other = (PlannedDraws.flat(plan, [Keyed(key)]) for key in (bytes(32), bytes(range(32))))
    asked_ = [(draws, 1, [1, 2]), (draws, 2, [1, 2]), (draws, 1, [1, 3]), (draws, 1, [1]), (other, 1, [1, 2])]
    assert len({tuple(order(*one)) for one in asked_}) == len(asked_)
    counts = np.zeros((3, 3), dtype=int)
    for number_ in range(1, 1201):
        for place, rank in enumerate(draws.lot(number_, TRANSPORT, [1, 2, 3]).permutation("order", 3)):
            counts[place, rank] += 1
    # 400 each, with a standard deviation of 16.3: six of them
    assert abs(counts - 400).max() < 98


def test_a_child_and_its_parent_share_the_lots_of_kept_rounds_alone(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "parent")
    child = unlearn(tmp_path / "parent", "retrain", Request.of([2]), tmp_path / "child", data=tiny_dataset())
    (before_,), (after,) = run.stage_draws(run.plan), child.stage_draws(child.plan)
    assert all(order(before_, n, [0, 1, 3]) != order(after, n, [0, 1, 3]) for n in (1, 2))
    (kept,) = child.stage_draws(run.plan)
    assert all(order(before_, n, [0, 1, 2, 3]) == order(kept, n, [0, 1, 2, 3]) for n in (1, 2))
    pruned, _ = prune(child)
    (left,) = pruned.stage_draws(pruned.plan)
    assert all(order(after, n, [0, 1, 3]) == order(left, n, [0, 1, 3]) for n in (1, 2))
    with pytest.raises(EvidenceError, match="the secret of client 2, by which it contributes to lots"):
        order(left, 1, [0, 1, 2, 3])
    assert pruned.contents.root == run.contents.root
    assert set(pruned.secrets.generations[0]) == {0, 1, 3}
    assert pruned.secrets.parties == run.secrets.parties


def test_a_method_that_trains_beyond_the_chain_is_refused(run, tmp_path):
    """Its rounds would have the contributions of the next request."""
    few = unlearn(run, "finetune", Request.of([2]), tmp_path / "few", {"rounds": 2}, data=tiny_dataset())
    assert not few.model.eq(run.model).all()
    with pytest.raises(UsageError, match="round 3 has no lot"):
        unlearn(run, "finetune", Request.of([2]), tmp_path / "many", {"rounds": 3}, data=tiny_dataset())


# the commitment


def test_identities_follow_from_secrets_and_sign(run):
    table = run.contents.tensors()
    assert {name: table[name].shape for name in ("identities", "lots", "parties")} == {
        "identities": (4, 32),
        "lots": (4, 32),
        "parties": (2, 32),
    }
    for client, own in run.secrets.generations[0].items():
        seed = derive(own, "identity")
        public = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
        assert run.contents.own_of(client).identity == public == public_key(own)
        assert run.contents.own_of(client).lot == chain_end(own, 2 * 3)
        with identity_of(own) as identity:
            Ed25519PublicKey.from_public_bytes(public).verify(identity.signature(b"said"), b"said")
    assert run.contents.party_keys == b"".join(map(public_key, run.secrets.parties))
    every = [*run.secrets.generations[0].values(), *run.secrets.parties]
    assert len(set(every)) == 6
    assert run.secrets.parties == tuple(derive(secret(1), "party", name) for name in PARTIES)


def test_without_a_secret_parties_make_their_own(tmp_path):
    one, other = (train(TABLES, tmp_path / name, tiny_dataset()) for name in ("one", "other"))
    assert one.secrets.made == "apart"
    assert not set(one.secrets.parties) & set(other.secrets.parties)


@pytest.mark.parametrize("tensor", ["identities", "lots", "parties"])
@pytest.mark.parametrize("place", [0, 1])
def test_another_key_or_end_breaks_the_commitment(run, tmp_path, quick, tensor, place):
    """One bit, in a run that was sealed again: its own files say that it committed to something else."""
    shutil.copytree(run.path, tmp_path / "run")
    table = {name: array.copy() for name, array in run.arrays(CONTENTS).items()}
    table[tensor][place, 5] ^= 1
    RunWriter(tmp_path / "run").write(CONTENTS, table)
    forged = reseal(tmp_path / "run")
    assert forged.commitment != run.commitment
    assert asked(run, quick).verdict == "PASS"
    found = asked(forged, quick)
    assert (found.verdict, "committed to" in found.shows) == ("FAIL", True)


def replaced(contents, name, place):
    table = getattr(contents, name).copy()
    table[place] = np.frombuffer(hashlib.sha256(b"another").digest(), dtype=np.uint8)
    return replace(contents, **{name: table})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("identities", "with a key that her secret does not give"),
        ("lots", "the end of another chain"),
        ("parties", "Witness or key holder"),
    ],
)
def test_who_commits_to_what_follows_from_no_secret_is_found(tmp_path, quick, monkeypatch, name, words):
    honest = begin.commit

    def committed(*given):
        contents, opening = honest(*given)
        return replaced(contents, name, 1), opening

    monkeypatch.setattr(begin, "commit", committed)
    forged = trained(tmp_path / "run")
    monkeypatch.undo()
    found = asked(load_run(forged.path), quick)
    assert (found.verdict, words in found.shows) == ("FAIL", True)


def test_contents_that_do_not_fit_together_are_refused(run):
    whole = run.contents.tensors()
    short = {name: whole[name][:-1] for name in ("identities", "lots", "parties")}
    wrong = [whole | {name: table} for name, table in short.items()]
    wrong += [{name: table for name, table in whole.items() if name != left} for left in ("identities", "parties")]
    wrong += [whole | {"lots": np.zeros((4, 31), dtype=np.uint8)}]
    for tables in wrong:
        with pytest.raises(EvidenceError, match="run"):
            Contents.of_tensors(tables, "run")


def _without(run, path, *names):
    """A run as another state of fuaudit would have written it: without some tensors and secrets."""
    shutil.copytree(run.path, path)
    tables = {name: table for name, table in run.arrays(CONTENTS).items() if name not in names}
    RunWriter(path).write(CONTENTS, tables)
    table = {name: value for name, value in json.loads((path / SECRETS).read_text()).items() if name not in names}
    RunWriter(path).write(SECRETS, table)
    return path


def test_a_run_of_before_is_refused_in_words(run, tmp_path):
    with pytest.raises(EvidenceError, match=r"from before they were committed to[^\n]*\n  Nobody can add them"):
        reseal(_without(run, tmp_path / "old", "identities", "lots", "parties"))
    with pytest.raises(EvidenceError, match="or lacks lots"):
        reseal(_without(run, tmp_path / "half", "lots"))


def test_secrets_of_the_parties_are_there_or_not(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    RunWriter(tmp_path / "run").write(SECRETS, replace(run.secrets, parties=()).table(run.opening))
    with pytest.raises(EvidenceError, match="lacks secrets of witness and key holder"):
        reseal(tmp_path / "run")


def test_where_the_server_sees_rows_nobody_signs(tmp_path):
    clear = {name: table for name, table in TABLES.items() if name != "transport"}
    run = trained(tmp_path / "run", clear)
    assert run.contents.tensors().keys() == {"clients", "ends", "names", "rows", "tests", "secrets"}
    assert (run.lots, run.secrets.parties) == (None, ())
    (draws,) = run.stage_draws(run.plan)
    with pytest.raises(EvidenceError, match="nobody contributes to the lot of round 1"):
        order(draws, 1, [0])


# receipts


def test_a_receipt_has_her_key_and_the_end_of_her_chain(run, tmp_path):
    receipt, own = receipt_of(run, 2), run.secrets.generations[0][2]
    assert (receipt.own.identity, receipt.own.lot) == (public_key(own), chain_end(own, 6))
    assert receipt.parties == run.contents.party_keys
    path = tmp_path / "receipt.json"
    path.write_bytes(receipt.content())
    assert read_receipt(path) == receipt
    table = json.loads(receipt.content())
    for name in ("identity", "lot", "parties"):
        changed = table | {name: ("0" if table[name][0] != "0" else "1") + table[name][1:]}
        path.write_text(json.dumps(changed, indent=1, sort_keys=True) + "\n")
        with pytest.raises(EvidenceError, match="does not open"):
            read_receipt(path)
        path.write_text(json.dumps({k: v for k, v in table.items() if k != name}, indent=1, sort_keys=True) + "\n")
        with pytest.raises(EvidenceError):
            read_receipt(path)


def test_she_compares_a_receipt_with_her_secret(fuaudit, tmp_path):
    tables = TABLES | {"data": {"use": "digits"}, "partition": {"use": "iid", "clients": 4}}
    run = train(tables, tmp_path / "run", None, secret(1))
    receipt, own = receipt_of(run, 2), run.secrets.generations[0][2]
    assert not_hers(receipt, own) == ()
    assert not_hers(receipt, bytes(32)) == ("secret", "key", "end of her chain")
    fake = replace(run.contents, lots=replaced(run.contents, "lots", 2).lots).own_of(2)
    object.__setattr__(receipt, "own", fake)
    assert not_hers(receipt, own) == ("end of her chain",)
    file, mine = tmp_path / "receipt.json", tmp_path / "mine"
    assert fuaudit("receipt", run.path, "--client", "2", "--out", file)[0] == 0
    for content, code, words in (
        (own.hex(), 3, "secret, key and chain follow"),
        ("00" * 32, 1, "of another than has this secret: secret, key, end of her chain"),
        ("00", 2, "64"),
    ):
        mine.write_text(content + "\n")
        found, out, err = fuaudit("receipt", "--check", file, "--own-secret", mine)
        assert (found, words in out + err) == (code, True), (out, err)
    assert fuaudit("receipt", run.path, "--client", "2", "--own-secret", mine)[0] == 2


# the list from outside


def listed(fuaudit, run, path):
    code, out, err = fuaudit("show", run.path, "--roster")
    assert code == 0, err
    path.write_text(out)
    return path


def test_a_list_from_outside_is_compared(fuaudit, run, tmp_path, quick):
    path = listed(fuaudit, run, tmp_path / "roster.txt")
    lines = path.read_text().splitlines()
    assert [line.rsplit(" ", 1)[0] for line in lines] == ["0", "1", "2", "3", "witness", "key holder"]
    invented = "so the operator can have invented clients"
    without, right = asked(run, quick), asked(run, quick, roster=path)
    assert (without.verdict, right.verdict) == ("PASS", "PASS")
    assert [any(invented in line for line in one.assumptions) for one in (without, right)] == [True, False]
    assert any(hashlib.sha256(path.read_bytes()).hexdigest() in line for line in right.assumptions)
    other = Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()
    wrong = {
        "Client 2 is not in the list": [line for line in lines if not line.startswith("2 ")],
        "Client 1 was committed to with another key": [
            f"1 {other}" if line.startswith("1 ") else line for line in lines
        ],
        "The list has 'ann', and nobody": [*lines, f"ann {other}"],
        "The witness was committed to with another": [
            f"witness {other}" if line.startswith("witness") else line for line in lines
        ],
        "The key holder is not in the list": lines[:-1],
    }
    for words, left in wrong.items():
        path.write_text("\n".join(left))
        found = asked(run, quick, roster=path)
        assert (found.verdict, words in found.shows) == ("FAIL", True), found.shows
    named = [line.rsplit(" ", 1) for line in reversed(lines)]
    path.write_text("\n\n".join(f"  {name}   {key.upper()} " for name, key in named))
    assert asked(run, quick, roster=path).verdict == "PASS"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ann", "line 1"),
        ("1 abc", "line 1"),
        ("\n" + "0" * 64, "line 2"),
        (f"1 {'0' * 64}\n1 {'1' * 64}", "line 2 .* is the second for '1'"),
        ("\udcff", "UTF-8"),
    ],
)
def test_what_is_no_list_is_refused(run, tmp_path, quick, text, words):
    (tmp_path / "roster.txt").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(EvidenceError, match=words):
        asked(run, quick, roster=tmp_path / "roster.txt")


def test_where_nobody_signs_there_is_no_list(fuaudit, tiny, tmp_path, quick):
    plain = tiny(tmp_path / "plain")
    assert fuaudit("show", plain.path, "--roster")[0] == 2
    (tmp_path / "roster.txt").write_text(f"1 {'0' * 64}")
    with pytest.raises(UsageError, match="nobody signs"):
        asked(plain, quick, roster=tmp_path / "roster.txt")
    code, _, err = fuaudit("verify", plain.path, "--roster", tmp_path / "roster.txt")
    assert (code, "nobody signs" in err) == (2, True)


def test_findings_name_the_option(run, tmp_path, quick):
    (tmp_path / "roster.txt").write_text("\n".join(lines_of(run)))
    result = verify(run, quick, data=tiny_dataset(), budget=0, save=False, roster=tmp_path / "roster.txt")
    assert result.context["arguments"][:2] == ["--roster", "ROSTER"]


def test_a_list_holds_after_a_prune_and_not_for_a_redacted_run(fuaudit, run, tmp_path, quick):
    path = listed(fuaudit, run, tmp_path / "roster.txt")
    shutil.copytree(run.path, tmp_path / "parent")
    child = unlearn(tmp_path / "parent", "retrain", Request.of([2]), tmp_path / "child", data=tiny_dataset())
    pruned, _ = prune(child)
    found = asked(pruned, quick, roster=path)
    assert found.verdict == "PASS"
    closed = next(line for line in found.assumptions if "what a prune closes" in line)
    assert "names, rows, secrets, keys and ends of chains" in closed
    without = redact(run, tmp_path / "without")
    assert asked(without, quick, roster=path).verdict == "INCONCLUSIVE"
    assert fuaudit("show", without.path, "--roster")[1] == path.read_text()


# the format, computed without fuaudit


def framed(text):
    return len(text.encode()).to_bytes(8, "little") + text.encode()


def derived(key, *texts):
    """As docs/run-format.md has it."""
    return hashlib.blake2b(b"".join(map(framed, texts)), key=key, digest_size=32, person=b"fuaudit keys").digest()


def number(value):
    return value.to_bytes(8, "little")


def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def tree(digests):
    level = list(digests)
    while len(level) > 1:
        pairs = [sha(b"\1", a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[2 * len(pairs) :]
    return level[0]


def safetensors(path):
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    kinds = {"I64": "<i8", "U8": "u1"}
    return {
        name: np.frombuffer(content[8 + size :][slice(*entry["data_offsets"])], dtype=kinds[entry["dtype"]]).reshape(
            entry["shape"]
        )
        for name, entry in json.loads(content[8 : 8 + size]).items()
    }


def test_the_written_format_of_identities_and_lots(tmp_path, monkeypatch):
    """By hashlib, json, NumPy and Ed25519: the root, the commitment, and who was with client 3 in each round."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "stages"))
    rounds, requests = 6, 2
    tables = INFINITE | {"learner": TABLES["learner"] | {"rounds": rounds}}
    path = trained(tmp_path / "run", tables).path
    stored, table = safetensors(path / "contents.safetensors"), json.loads((path / "clients/secrets.json").read_text())
    master, clients = secret(1), stored["clients"].tolist()
    first = {client: derived(master, "client", str(client)) for client in clients}
    assert table["generations"] == [{str(client): own.hex() for client, own in first.items()}]
    assert table["parties"] == [derived(master, "party", name).hex() for name in ("witness", "key holder")]

    def public(own):
        return Ed25519PrivateKey.from_private_bytes(derived(own, "identity")).public_key().public_bytes_raw()

    assert stored["identities"].tobytes() == b"".join(public(first[client]) for client in clients)
    assert stored["parties"].tobytes() == b"".join(public(bytes.fromhex(own)) for own in table["parties"])
    length, chains = rounds * (requests + 1), {}
    for client in clients:
        chain = [derived(first[client], "lot")]
        for _ in range(length):
            chain.insert(0, sha(b"fuaudit lot", chain[0]))
        chains[client] = chain
    assert stored["lots"].tobytes() == b"".join(chains[client][0] for client in clients)
    nodes, begin_ = [], 0
    for place, end in enumerate(stored["ends"].tolist()):
        leaves = [leaf.tobytes() for leaf in stored["rows"][begin_:end]]
        own = b"".join(stored[name][place].tobytes() for name in ("secrets", "identities", "lots"))
        count = number(clients[place]) + number(end - begin_)
        nodes.append(sha(b"\x08", count, stored["names"][place].tobytes(), tree(leaves), own))
        begin_ = end
    tests = [leaf.tobytes() for leaf in stored["tests"]]
    counts = number(len(nodes)) + number(len(tests))
    root = sha(b"\x09", counts, tree(nodes), tree(tests), stored["parties"].tobytes()).hex()
    lines = [json.loads(line) for line in (path / "ledger.jsonl").read_bytes().splitlines()]
    commitment, run = lines[0]["commitment"], load_run(path)
    parts = run.keys.partition_digest, run.keys.seeds.root, hashlib.sha256((path / "config.toml").read_bytes())
    said = f"fuaudit commitment {parts[0]} {parts[1]} {parts[2].hexdigest()} {root} none"
    assert commitment == hashlib.sha256(said.encode()).hexdigest()

    cohorts = json.loads((path / "participation.json").read_text())["cohorts"]
    partners = set()
    for line in (line for line in lines if line["event"] == "round"):
        r, cohort = line["round"], cohorts[line["round"] - 1]
        key = b"fuaudit key of a lot" + commitment.encode() + framed("") + number(r)
        key = sha(key, *(number(client) + chains[client][r] for client in sorted(set(cohort))))
        said = b"".join(map(framed, ("stage", "permutation", "order")))
        said += b"".join(number(value + 1) for value in (r, 1 + 1, -1, 0, 0)) + number(0)
        drawn = hashlib.shake_256(b"fuaudit stage draws" + key + said).digest(8 * len(cohort))
        words = np.frombuffer(drawn, dtype="<u8")
        places = np.argsort(words, kind="stable").tolist()
        buffers = [{cohort[place] for place in places[at : at + 2]} for at in (0, 2)]
        with_three = next(sorted(buffer) for buffer in buffers if 3 in buffer)
        (told,) = (event["clients"] for event in line["told"] if event["kind"] == "suspected")
        assert told == with_three
        partners.update(told)
    assert len(partners) > 2, "rounds have other partners"
