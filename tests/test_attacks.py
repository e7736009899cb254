"""Attacks: what they are by plain loops, what they see, and federations in which they stand."""

from dataclasses import dataclass, replace
from statistics import mean, pstdev
from typing import ClassVar

import pytest
import torch
from click.testing import CliRunner
from fuaudit_plugins.alie import ALittleIsEnough, printed_z
from fuaudit_plugins.bit_flip import BitFlip
from fuaudit_plugins.conspar import Consensus
from fuaudit_plugins.coordinates import CoordinateAttack
from fuaudit_plugins.error_feedback import ErrorFeedback, shares
from fuaudit_plugins.gaussian import Gaussian
from fuaudit_plugins.ipm import InnerProductManipulation
from fuaudit_plugins.medians import TrimmedMean
from fuaudit_plugins.mimicry import Mimicry
from fuaudit_plugins.quantise import Quantise
from fuaudit_plugins.secure_sum import SecureSum
from fuaudit_plugins.sparse_sum import SparseSum
from tests_support import AUDIT_KEY, audits, broken, secret

from fuaudit import train, unlearn, verify
from fuaudit.cli.commands import cli
from fuaudit.errors import UsageError
from fuaudit.plans import Request
from fuaudit.plans.stage_draws import Part, PublicDraws
from fuaudit.reporting.contents import read_contents
from fuaudit.reporting.markdown import render
from fuaudit.runs.fears import fears_of
from fuaudit.testing import check_byzantine
from fuaudit.testing.contexts import context_of, shape_of, stacked, updates_of
from fuaudit.testing.tiny import tiny_config, tiny_dataset
from fuaudit.training.events import Rejected, Suspected
from fuaudit.training.exchange import Clear, Exchange
from fuaudit.training.one_round import client_half, delivered, exchanged, settled
from fuaudit.training.stages import Chain, Mean, Momentum, Stateless
from fuaudit.workflow.prune import prune

BAD = (3, 4)
ROWS = updates_of(0, 6, torch.float64)
"""Of clients 0 to 5; client 1 has no samples."""

VALUES = (
    BitFlip(BAD),
    ALittleIsEnough(BAD),
    ALittleIsEnough(BAD, 1.5, "theirs"),
    InnerProductManipulation(BAD, 2.0),
    Mimicry(BAD),
    Mimicry(BAD, 5),
    Gaussian(BAD, 3.0),
)
PROPOSALS = tuple(CoordinateAttack(BAD, proposes) for proposes in ("correct", "smallest", "random", "same"))


def seen_by(attack, clients=range(6)):
    return context_of([*clients], torch.float64).at(Part("client"), attack, attack.clients)


def sent(attack, clients=range(6)):
    """What the Byzantine clients of a round send, as lists."""
    places = [place for place, client in enumerate(clients) if client in BAD]
    rows = attack.apply(ROWS[[*clients]], seen_by(attack, clients), {})[0]
    return [rows[place].tolist() for place in places]


@pytest.mark.parametrize("attack", [*VALUES, *PROPOSALS], ids=str)
def test_attacks_keep_their_contract(attack):
    check_byzantine(attack)


# by plain loops


def alie(rows, z):
    return [mean(column) - z * pstdev(column) for column in zip(*rows, strict=True)]


def test_values_are_what_plain_loops_say():
    rows = ROWS.tolist()
    honest, theirs = [rows[place] for place in (0, 1, 2, 5)], [rows[place] for place in BAD]
    opposite = [-2 * mean(column) for column in zip(*honest, strict=True)]
    noise = [PublicDraws().own(1, Part("client"), client, 0).normal("row", 5) * 3 for client in BAD]
    expected = (
        [[-x for x in row] for row in theirs],
        [alie(honest, 0.0)] * 2,  # two of six need two of four honest ones: z = 0
        [alie(theirs, 1.5)] * 2,
        [opposite] * 2,
        [rows[0]] * 2,
        [rows[5]] * 2,
        [row.tolist() for row in noise],
    )
    for attack, wanted in zip(VALUES, expected, strict=True):
        for row, want in zip(sent(attack), wanted, strict=True):
            assert row == pytest.approx(want, rel=1e-12, abs=1e-12), attack


def test_the_printed_z_and_its_cure():
    """Values of the table of the normal distribution; where the formula gives 0 or less, or nothing, the cure."""
    printed = {(32, 7): 0.2533, (50, 24): 1.4261, (25, 5): 0.2533, (20, 4): 0.1573, (100, 20): 0.2858, (16, 7): 0.7647}
    for (rows, byzantine), z in printed.items():
        assert printed_z(rows, byzantine) == pytest.approx(z, abs=1e-4)
    assert [printed_z(*one) for one in ((10, 2), (10, 1), (32, 1), (2, 1), (3, 3), (4, 0))] == [0.0] * 6
    assert printed_z(9, 5) == pytest.approx(0.6745, abs=1e-4)  # a majority by itself: one honest one of four


def test_z_comes_from_the_round_that_there_is():
    clients = (0, 2, 3, 4, 5)  # two of five need one of three honest ones
    honest = [ROWS[client].tolist() for client in (0, 2, 5)]
    assert sent(ALittleIsEnough(BAD), clients)[0] == pytest.approx(alie(honest, printed_z(5, 2)), rel=1e-12)
    assert printed_z(5, 2) > 0.4


def test_nobody_left_does_nothing():
    for clients in ([0, 2, 5], [3, 4]):
        for attack in VALUES:
            made = attack.apply(ROWS[clients], seen_by(attack, clients), {})[0]
            bad = [client in BAD for client in clients]
            if not any(bad):
                exchange = Exchange(Chain((Mean(),)), Chain((attack,)), byzantine=frozenset({0}))
                context = context_of(clients, torch.float64)
                assert torch.equal(client_half(exchange, ROWS[clients], context, {}).rows, ROWS[clients])
            elif attack.sees == "all":
                assert torch.equal(made, ROWS[clients])


def test_who_is_copied():
    """The wanted client; where it is away the honest one with the lowest id that has samples."""
    for wanted, clients, place in (
        (5, (3, 5, 2), 1),
        (5, (3, 2, 0), 2),
        ("lowest", (1, 4, 5, 2), 3),
        (1, (1, 3, 2, 5), 2),
    ):
        assert sent(Mimicry(BAD, wanted), clients)[0] == ROWS[clients[place]].tolist()


# coordinates


def proposed(attack, key=1):
    context = seen_by(attack)
    found = Consensus(2).propose(
        ROWS, context_of([*range(6)], torch.float64, key).at(Part("client"), Consensus(2), None)
    )
    return [one.tolist() for one in found], [one.tolist() for one in attack.proposals(found, ROWS, context)]


def test_coordinates_are_what_print_says():
    for attack in PROPOSALS:
        found, made = proposed(attack)
        assert [made[place] for place in (0, 1, 2, 5)] == [found[place] for place in (0, 1, 2, 5)]
        for place in BAD:
            own = PublicDraws().own(1, Part("client"), place, 0)
            ranked = ROWS[place].abs().argsort().tolist()
            wanted = {
                "correct": sorted(ranked[-2:]),
                "smallest": ranked[:2],
                "random": own.subset("coordinates", 5, 2).tolist(),
                "same": found[0],
            }
            assert made[place] == wanted[attack.proposes]


def test_whoever_copies_copies_an_honest_client():
    for make in (lambda: Mimicry(BAD, 4), lambda: CoordinateAttack(BAD, "same", 3)):
        with pytest.raises(UsageError, match=r"copies an honest client, and client [34] is Byzantine"):
            make()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ALittleIsEnough(BAD, float("nan")), "alie needs a finite z"),
        (lambda: InnerProductManipulation(BAD, 0.0), "ipm needs a finite magnitude"),
        (lambda: Gaussian(BAD, float("inf")), "gaussian needs a finite deviation"),
    ],
)
def test_options_that_cannot_be(make, words):
    with pytest.raises(UsageError, match=words):
        make()


# what they see


@pytest.mark.parametrize(
    ("attack", "sees"),
    [
        (InnerProductManipulation(BAD), "theirs"),
        (Mimicry(BAD), "own"),
        (ALittleIsEnough(BAD, 1.0, "theirs"), "own"),
        (CoordinateAttack(BAD, "same"), "theirs"),
        (BitFlip(BAD), "much"),
    ],
)
def test_who_looks_further_than_it_says_is_found(attack, sees):
    blind = type("Blind", (type(attack),), {"sees": sees})(
        **vars(attack) | dict.fromkeys({"sees"} & {*vars(attack)}, sees)
    )
    told = "it sees 'much'" if sees == "much" else f"it looks at rows, proposals or memories that are not {sees}"
    broken(check_byzantine, blind, told)


# memories


@pytest.mark.parametrize("transport", [Clear(), SecureSum(2), SecureSum(2, byzantine=2)], ids=str)
@pytest.mark.parametrize("attack", [BitFlip(BAD), Gaussian(BAD), ALittleIsEnough(BAD)], ids=str)
def test_behind_the_memory_an_attack_changes_what_is_sent_alone(attack, transport):
    """The memory of a Byzantine client is that of an honest one: else one that flips would double in every round."""
    before = ErrorFeedback(), Consensus(1)
    honest = Exchange(Chain((Mean(),)), Chain(before), transport)
    attacked = replace(honest, client_stages=Chain((*before, attack)), byzantine=frozenset({2}))
    kept = [memories_after(exchange, 4) for exchange in (honest, attacked)]
    assert kept[0].any()
    assert torch.equal(*kept)


def memories_after(exchange, count):
    """What error feedback keeps after some rounds of the same updates."""
    memories = exchange.client_stages.init(shape_of(torch.float64))
    for number in range(1, count + 1):
        context = context_of([*range(6)], torch.float64, number)
        sending = client_half(exchange, updates_of(number, 6, torch.float64), context, memories)
        memories = settled(exchange, sending, delivered(exchange, sending), torch.zeros(1, 1))
    return memories["0.memory"]


@pytest.mark.parametrize(
    ("attack", "rounding"),
    [(InnerProductManipulation(BAD, 1e-300), (Quantise(2.0, 8),)), (Mimicry(BAD, 0), ())],
    ids=["rounded to zero", "the row of one who stands still"],
)
def test_a_row_of_zeros_that_came_is_one_that_came(attack, rounding):
    """The memory in front of the attack is told that what it left was sent, whatever numbers came."""
    stages, updates = (ErrorFeedback(), attack, *rounding), ROWS.clone()
    updates[0] = 0
    exchange = Exchange(Chain((Mean(),)), Chain(stages), byzantine=frozenset({1}))
    sending = client_half(exchange, updates, context_of([*range(6)], torch.float64), first_memories(exchange))
    delivery = delivered(exchange, sending)
    assert not delivery.sent[[*BAD]].any()
    assert not settled(exchange, sending, delivery, torch.zeros(1, 5))["0.memory"][[*BAD]].any()


def test_what_does_not_come_stays_in_the_memory():
    """Of a row that is rejected, of its buffer, which is discarded, and of a round that fails."""
    for transport, count in ((Clear(), 1), (SecureSum(3), 3), (SecureSum(2, byzantine=2), 6)):
        stages = ErrorFeedback(), BitFlip(BAD), Always((3,), torch.inf)
        exchange = Exchange(Chain((Mean(),)), Chain(stages), transport, frozenset({1, 2}))
        sending = client_half(exchange, ROWS, context_of([*range(6)], torch.float64), first_memories(exchange))
        delivery = delivered(exchange, sending)
        after = settled(exchange, sending, delivery, torch.zeros(1, 5))["0.memory"]
        stay = (~delivery.taken).nonzero()[:, 0].tolist()
        assert 3 in stay
        assert len(stay) == count
        assert torch.equal(after[stay], ROWS[stay])
        assert not after[delivery.taken].any()


def first_memories(exchange, dtype=torch.float64):
    return exchange.client_stages.init(shape_of(dtype))


# what is not finite


@dataclass(frozen=True)
class Always(Stateless):
    """Its clients send one number in all places."""

    clients: tuple[int, ...]
    value: float

    def apply(self, updates, context, state):
        return torch.full_like(updates, self.value), state


@dataclass(frozen=True)
class Overflows:
    """A client stage that remembers more than a float holds."""

    per_client_state: ClassVar[frozenset[str]] = frozenset({"memory"})

    def init(self, shape):
        return {"memory": shape.zeros(shape.clients, 1)}

    def apply(self, updates, context, state):
        return updates, {"memory": state["memory"] + torch.inf}


CLEAR = Clear()


def rounds_of(*stages, byzantine, count=1, dtype=torch.float32, transport=CLEAR, by="exchange"):
    """Rounds of six clients: what was told of each by the exchange itself or another part, and memories after it."""
    exchange = Exchange(Chain((Mean(),)), Chain(stages), transport, frozenset(byzantine))
    kept, server = first_memories(exchange, dtype), {}
    for number in range(1, count + 1):
        told = []
        context = replace(stacked([context_of([*range(6)], dtype, number)]), told=told)
        memories = {name: table[None] for name, table in kept.items()}
        made = exchanged(exchange, updates_of(number, 6, dtype)[None], context, memories, server)
        kept = {name: table[0] for name, table in made.memories.items()}
        yield [event for part, event in told if part == by], kept, made.row[0]


def test_a_row_that_is_not_finite_is_rejected_where_it_is_made():
    """In front of a memory and of a stage that clips: one would remember it, the other make it finite."""
    stages = Always((3,), torch.inf), ErrorFeedback(), Quantise(0.5, 8)
    for told, kept, row in rounds_of(*stages, byzantine={0}, count=3):
        assert told == [Rejected(3, "not finite")]
        assert kept["1.memory"].isfinite().all()
        assert not kept["1.memory"][3].any()
        assert row.isfinite().all()
        assert float(row.abs().max()) <= 0.5


def test_a_memory_that_a_byzantine_client_fills_up_is_emptied():
    """Each of her rows is finite; their sum is not, in every second round. Others keep theirs."""
    behind, large = (ErrorFeedback(), Quantise(0.5, 8)), 0.6 * torch.finfo(torch.float32).max
    honest = [kept for _, kept, _ in rounds_of(Always((), 0.0), *behind, byzantine={0}, count=4)]
    for number, (told, kept, _) in enumerate(rounds_of(Always((3,), large), *behind, byzantine={0}, count=4), 1):
        full = [Rejected(3, "not finite"), Rejected(3, "a memory that is not finite")]
        assert told == full * (number % 2 == 0)
        assert bool(kept["1.memory"][3].any()) == (number % 2 == 1)
        assert all(table.isfinite().all() for table in kept.values())
        others = [0, 1, 2, 4, 5]
        assert torch.equal(kept["1.memory"][others], honest[number - 1]["1.memory"][others])


@pytest.mark.parametrize("transport", [SecureSum(2), SparseSum(0.9)], ids=str)
def test_behind_sums_what_is_not_finite_names_nobody_alone(transport):
    """Stages see zeros in its place. Its sum is what it would be, not finite: it is discarded, with its suspects."""
    stages = Always((3,), torch.inf), ErrorFeedback(), Quantise(0.5, 8)
    sums, found = {"byzantine": {0}, "count": 8, "transport": transport}, []
    for (alone, kept, row), (told, _, _) in zip(
        rounds_of(*stages, **sums), rounds_of(*stages, **sums, by="transport"), strict=True
    ):
        assert not alone
        found += [event for event in told if isinstance(event, Suspected)]
        assert all(table.isfinite().all() for table in kept.values())
        assert not kept["1.memory"][3].any()
        assert row.isfinite().all()
    # a buffer with client 1, who has no samples, is not opened at all
    assert len(found) > 4
    assert all((3 in one.clients, len(one.clients) > 1, one.why) == (True, True, "not finite") for one in found)


def test_behind_sums_a_memory_that_fills_up_names_nobody():
    """It is emptied all the same. In the clear the ledger tells it; where sums are shown no ledger may."""
    large, behind = 0.6 * torch.finfo(torch.float32).max, (ErrorFeedback(), Quantise(0.5, 8))
    emptied, sums = 0, {"transport": SecureSum(2), "byzantine": {0}}
    for told, kept, _ in rounds_of(Always((3,), large), *behind, **sums, count=4):
        assert not told
        assert all(table.isfinite().all() for table in kept.values())
        emptied += not bool(kept["1.memory"][3].any())
    assert emptied == 2
    exchange = Exchange(Chain((Mean(),)), Chain((Always((3,), large), *behind)), byzantine=frozenset({0}))
    event = {"kind": "rejected", "part": "exchange", "client": 3, "why": "a memory that is not finite"}
    assert exchange.may_tell(event)
    assert not replace(exchange, transport=SecureSum(2)).may_tell(event)


@pytest.mark.parametrize("row", [2, 3], ids=["honest", "Byzantine"])
@pytest.mark.parametrize("server", [Chain((Mean(),)), Chain((TrimmedMean(1), Momentum()))], ids=["mean", "momentum"])
def test_the_mark_of_an_erased_row_is_left_by_no_client(server, row):
    """The whole model is NaN, whoever had the row; nobody's memory is emptied for it, and nothing is rejected."""
    stages = Always((3,), torch.inf), ErrorFeedback(), Quantise(0.5, 8)
    exchange = Exchange(server, Chain(stages), byzantine=frozenset({0}))
    told, updates = [], ROWS.clone()
    updates[row, 1] = torch.nan
    context = replace(stacked([context_of([*range(6)], torch.float64)]), told=told)
    empty = (part.init(shape_of(torch.float64)) for part in (exchange.client_stages, server))
    memories, kept = ({name: table[None] for name, table in state.items()} for state in empty)
    made = exchanged(exchange, updates[None], context, memories, kept)
    assert made.row.isnan().all()
    assert not told


def test_an_honest_memory_that_is_not_finite_stays_so():
    """Training stops then: it is her own, and nobody attacked."""
    ((told, kept, _),) = rounds_of(BitFlip(BAD), Overflows(), byzantine={0})
    assert told == [Rejected(client, "a memory that is not finite") for client in BAD]
    assert kept["1.memory"].isfinite()[:, 0].tolist() == [client in BAD for client in range(6)]


def test_a_share_that_is_lost_is_a_number_whatever_is_sent():
    """Squares of numbers above 1e154 are no numbers."""
    stages = Always((3,), 1e300), ErrorFeedback(), Quantise(0.5, 8)
    ((told, kept, _),) = rounds_of(*stages, byzantine={0}, dtype=torch.float64)
    assert not told
    assert kept["1.lost"][3].tolist() == [1.0]
    most = torch.finfo(torch.float64).max
    for left, whole, share in ((3e-200, 4e-200, 0.75), (3e200, 4e200, 0.75), (0.0, 0.0, 0.0), (1.0, 1e-320, most)):
        rows = (torch.tensor([row], dtype=torch.float64) for row in ([left, 0.0], [0.0, whole]))
        assert float(shares(*rows)) == share


# federations

LEARNER = {"use": "fedrep", "rounds": 2, "cohort": 12, "steps": 1, "batch": 2, "step_size": 0.2}
RULES = ({"use": "mean"}, {"use": "geometric-median"}, {"use": "trimmed-mean", "trim": 2})
TRANSPORTS = {"use": "clear"}, {"use": "secure-sum", "size": 2, "byzantine": 2}
MEMORY, AGREEMENT = {"use": "error-feedback"}, {"use": "consensus", "per_client": 3}
FIRST, SECOND, BOTH = ({"clients": clients} for clients in ([9], [4], [4, 9]))
CHAINS = (
    [{"use": "bit-flip"} | FIRST, MEMORY, AGREEMENT, {"use": "ipm"} | SECOND],
    [MEMORY, {"use": "bit-flip"} | FIRST, AGREEMENT, {"use": "mimic"} | SECOND],
    [MEMORY, AGREEMENT, {"use": "alie", "z": 1.5} | FIRST, {"use": "gaussian"} | SECOND],
)
PROPOSED = "same", "random", "smallest", "correct"
PAIRS = [
    (chain, rule, TRANSPORTS[(first + second) % 2], PROPOSED[(first + 2 * second) % 4])
    for first, chain in enumerate(CHAINS)
    for second, rule in enumerate(RULES)
]
"""Every attack with every rule; each of both with both transports."""


@pytest.mark.thorough
@pytest.mark.parametrize(("chain", "rule", "transport", "proposes"), PAIRS)
def test_an_attacked_federation_forgets(tmp_path, chain, rule, transport, proposes):
    """A client with an attack of its own, after which nobody is left for it, or one without."""
    client = [*chain, {"use": "coordinate-attack", "proposes": proposes} | BOTH]
    table = tiny_config(
        partition={"use": "iid", "clients": 12}, learner=LEARNER, client=client, transport=transport, server=[rule]
    )
    run = train(table, tmp_path / "run", data=tiny_dataset(), secret=secret(1))
    gone = 9 if proposes in ("same", "random") else 2
    child = unlearn(run, "fats", Request.of([gone]), tmp_path / "child", data=tiny_dataset())
    result, found = audits(child, data=tiny_dataset())
    assert result.verdict == "PASS", {name: (f.verdict, f.shows, f.details) for name, f in found.items()}


LOUD = {"use": "gaussian", "clients": [3], "deviation": 1e38}
"""Some of its numbers are above what a float32 holds, and sums of the others are."""
QUANTISED = [LOUD, MEMORY, AGREEMENT, {"use": "quantise", "clip": 0.5}]


@pytest.mark.thorough
@pytest.mark.parametrize("transport", TRANSPORTS, ids=["clear", "sums"])
def test_one_byzantine_client_does_not_stop_the_others(tmp_path, quick, transport):
    """In front of her memory she sends what no float holds, or sums up to it; the ledger tells it, and replay does.

    Behind sums it names her with others alone.
    """
    table = tiny_config(
        partition={"use": "iid", "clients": 12},
        learner=LEARNER | {"rounds": 6},
        client=QUANTISED,
        transport=transport,
        server=[{"use": "trimmed-mean", "trim": 2}],
    )
    run = train(table, tmp_path / "run", data=tiny_dataset(), secret=secret(1))
    told = [event for line in run.ledger.of_kind("round") for event in line["told"]]
    alone = [event for event in told if event["kind"] == "rejected"]
    among = [event["clients"] for event in told if event["kind"] == "suspected"]
    if transport == TRANSPORTS[0]:
        assert {event["why"] for event in alone} == {"not finite", "a memory that is not finite"}
        assert {event["client"] for event in alone} == {3}
        assert not among
    else:
        assert not alone
        assert among
        assert all(3 in clients and len(clients) > 1 for clients in among)
    child = unlearn(run, "retrain", Request.of([2]), tmp_path / "child", data=tiny_dataset())
    result, found = audits(child, data=tiny_dataset())
    assert result.verdict == "PASS", {name: (f.verdict, f.shows, f.details) for name, f in found.items()}
    pruned, _ = prune(child)
    assert str(verify(pruned, quick, key=AUDIT_KEY, save=False, data=tiny_dataset()).verdict) == "PASS"


@pytest.mark.thorough
@pytest.mark.parametrize("gone", [3, 2], ids=["hers", "another's"])
@pytest.mark.parametrize("momentum", [False, True])
def test_erased_rows_that_are_left_in_are_found_behind_byzantine_clients(tmp_path, gone, momentum):
    """Erased rows are NaN in audits: no rejection may hide them, also not of a Byzantine client."""
    table = tiny_config(
        partition={"use": "iid", "clients": 12},
        learner=LEARNER,
        client=QUANTISED,
        transport=TRANSPORTS[1],
        server=[{"use": "trimmed-mean", "trim": 2}],
        solver={"use": "local-momentum"} if momentum else {"use": "sgd"},
    )
    run = train(table, tmp_path / "run", data=tiny_dataset(), secret=secret(1))
    child = unlearn(run, "noop", Request.of([gone]), tmp_path / "child", data=tiny_dataset())
    result, found = audits(child, data=tiny_dataset())
    assert (result.verdict, found["replay"].verdict) == ("FAIL", "FAIL")


# what is told of a config


ALL_FOUR = {"use": "fedavg", "rounds": 1, "cohort": 4, "steps": 1, "batch": 2, "step_size": 0.2}
FLIPS = {"use": "bit-flip", "clients": [0, 3]}
TRIMS = [{"use": "trimmed-mean", "trim": 1}]
UNFEARED = "the config names 2 attackers (ids 0, 3), and the {} fears {}: no guarantee is about so many"
BEARS = "of 4 rows of a round 2 may be bad, and the aggregator {!r} bears {}: no guarantee is about so many"
IN_ONE = "all of a round are in one sum, so the aggregator 'trimmed-mean' gets one row, and can compare it with none"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"client": [FLIPS], "server": TRIMS}, [BEARS.format("trimmed-mean", 1)]),
        ({"client": [FLIPS | {"clients": [3]}], "server": TRIMS}, []),
        ({"client": [FLIPS], "server": [{"use": "trimmed-mean", "trim": 0.3}]}, [BEARS.format("trimmed-mean", 1)]),
        ({"client": [FLIPS], "server": [{"use": "coordinate-median"}]}, [BEARS.format("coordinate-median", 1)]),
        ({"client": [FLIPS], "server": [{"use": "mean"}]}, []),
        (
            {
                "client": [FLIPS | {"clients": [0]}],
                "adversary": [{"use": "label-flip", "clients": [3]}],
                "server": [{"use": "krum", "byzantine": 1}],
            },
            [BEARS.format("krum", 1)],
        ),
        (
            {"transport": {"use": "secure-sum"}, "client": [FLIPS], "server": [{"use": "mean"}]},
            [UNFEARED.format("transport 'secure-sum'", 0)],
        ),
        (
            {"transport": {"use": "secure-sum", "size": 9}, "server": [{"use": "trimmed-mean", "trim": 0.3}]},
            [IN_ONE],
        ),
        ({"transport": {"use": "secure-sum", "size": 9}, "server": [{"use": "mean"}]}, []),
    ],
)
def test_more_attackers_than_are_feared_are_told(tmp_path, changes, told):
    """A config may do so on purpose; whoever reads its accuracy has to know."""
    run = train(tiny_config(learner=ALL_FOUR, **changes), tmp_path / "run", data=tiny_dataset(), secret=secret(1))
    assert fears_of(run) == told


def test_an_erasure_that_leaves_a_rule_too_few_good_rows_is_noted(tmp_path):
    """A fraction of fewer rows trims fewer, and the attackers stay."""
    tables = tiny_config(learner=ALL_FOUR, client=[FLIPS | {"clients": [3]}], server=[TRIMS[0] | {"trim": 0.25}])
    run = train(tables, tmp_path / "run", data=tiny_dataset(), secret=secret(1))
    child = unlearn(run, "retrain", Request.of([0]), tmp_path / "child", data=tiny_dataset())
    assert not fears_of(run)
    assert fears_of(child) == [
        "of 3 rows of a round 1 may be bad, and the aggregator 'trimmed-mean' bears 0: no guarantee is about so many"
    ]


def test_what_is_not_feared_is_shown_and_reported_until_it_is_erased(tmp_path, quick):
    tables = tiny_config(learner=ALL_FOUR, client=[FLIPS], server=TRIMS)
    run = train(tables, tmp_path / "run", data=tiny_dataset(), secret=secret(1))
    told = BEARS.format("trimmed-mean", 1)
    assert f"note          {told}" in CliRunner().invoke(cli, ["show", str(run.path)]).output
    contents = read_contents(verify(run, quick, data=tiny_dataset(), key=AUDIT_KEY, save=False).as_json())
    assert contents.fears == (told,)
    assert f"O{told[1:]}." in render(contents)
    assert not fears_of(unlearn(run, "retrain", Request.of([3]), tmp_path / "child", data=tiny_dataset()))
