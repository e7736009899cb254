"""Gaussian noise: the curve against fifty digits and the library, what a target needs, and who sees how much noise."""

import json
import math

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from fuaudit.budgets.gaussian.account import account
from fuaudit.budgets.gaussian.curve import (
    LARGEST_MU,
    ROUNDS,
    delta_of,
    epsilon_of,
    mu_for,
    mu_of,
    noise_for,
    rounds_for,
)
from fuaudit.budgets.gaussian.faces import statements
from fuaudit.budgets.gaussian.plot import curves
from fuaudit.budgets.shares import SHARED, SIMULATION, SUMS_ALONE, Shares, faces
from fuaudit.errors import UsageError


def exact(epsilon, mu):
    with mpmath.workdps(60):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.05, 0.7, 1.0, 4.0, 30.0, 500.0])
def test_the_curve_is_the_exact_one_rounded_up(mu):
    for share in (0.0, 0.3, 1.0, 3.0, 8.0, 20.0):
        for epsilon in (share * mu, mu * mu / 2 + share * mu):
            found, true = delta_of(epsilon, mu), exact(epsilon, mu)
            assert found >= true
            assert found - true <= 1e-9 * true + 1e-12 * math.exp(-((share / 1.5) ** 2) / 2)


def test_there_is_no_noise_without_an_end():
    assert delta_of(1.0, 0.0) == 0.0
    assert epsilon_of(0.0, 1e-5) == 0.0
    assert epsilon_of(math.inf, 1e-5) == math.inf
    assert epsilon_of(1.0, 0.0) == math.inf
    assert epsilon_of(2 * LARGEST_MU, 1e-5) == math.inf


@pytest.mark.parametrize(
    ("noise", "rounds", "delta"), [(1.0, 1, 1e-5), (4.0, 30, 1e-6), (20.0, 1000, 1e-9), (0.3, 2, 0.1)]
)
def test_epsilon_is_that_of_fifty_digits(noise, rounds, delta):
    found = epsilon_of(mu_of(noise, rounds), delta)
    mu = mpmath.sqrt(rounds) / mpmath.mpf(noise)
    with mpmath.workdps(50):
        true = float(mpmath.findroot(lambda e: exact(e, mu) - mpmath.mpf(delta), found))
    assert true <= found <= true * (1 + 1e-8)


def test_the_library_composes_to_the_same():
    rounds, noise = 25, 5.0
    one = pld.from_gaussian_mechanism(noise, value_discretization_interval=1e-4)
    above = one.self_compose(rounds).get_epsilon_for_delta(1e-5)
    found = epsilon_of(mu_of(noise, rounds), 1e-5)
    assert found <= above <= found + 1e-2
    assert found > 4.37  # one Gaussian with a multiplier of 1 at 1e-5


def test_several_participations_of_a_round_are_a_larger_sensitivity():
    assert account(6.0, 9, 1e-5, 3).epsilon == pytest.approx(account(2.0, 9, 1e-5).epsilon, rel=1e-9)
    assert account(6.0, 9, 1e-5, 3).epsilon > account(6.0, 27, 1e-5).epsilon


@pytest.mark.parametrize(
    ("epsilon", "delta", "rounds"), [(1.0, 1e-5, 100), (8.0, 1e-6, 7500), (0.0, 1e-2, 3), (50.0, 1e-9, 1)]
)
def test_targets_are_met_and_nothing_less_would_do(epsilon, delta, rounds):
    noise = noise_for(epsilon, delta, rounds)
    assert delta_of(epsilon, mu_of(noise, rounds)) <= delta < delta_of(epsilon, mu_of(noise * (1 - 1e-6), rounds))
    assert rounds_for(epsilon, delta, noise * (1 + 1e-9)) == rounds
    assert noise_for(epsilon, delta, rounds, 4) == pytest.approx(4 * noise, rel=1e-12)
    assert rounds_for(epsilon, delta, 4 * noise * (1 + 1e-9), 4) == rounds
    assert exact(epsilon, mu_for(epsilon, delta)) <= delta


def test_what_no_noise_keeps_is_refused():
    for ask in (
        lambda: noise_for(1.0, 0.0, 3),
        lambda: noise_for(-1.0, 1e-5, 3),
        lambda: noise_for(math.inf, 1e-5, 3),
        lambda: noise_for(1.0, 1e-5, 0),
        lambda: noise_for(1.0, 1e-5, 3, 0),
        lambda: rounds_for(0.1, 1e-5, 1.0),
        lambda: rounds_for(0.1, 1e-5, 0.0),
        lambda: account(-1.0, 3, 1e-5),
        lambda: account(math.nan, 3, 1e-5),
        lambda: account(1.0, ROUNDS + 1, 1e-5),
        lambda: account(1.0, 3, 1.0),
    ):
        with pytest.raises(UsageError):
            ask()


def test_no_guarantee_is_null_with_a_reason():
    for found, words in ((account(0.0, 3, 1e-5), "no noise"), (account(1.0, 3, 0.0), "no pure epsilon")):
        document = found.as_json()
        assert document["epsilon_total"] is None
        assert words in document["reason"]
    document = account(1.0, 3, 1e-5).as_json()
    assert document["reason"] is None
    assert "3 rounds" in document["statement"]["rounds covered"]
    assert "last bits" in document["statement"]["normal noise is assumed"]


# who sees what


def test_whoever_sees_less_of_the_sum_faces_less_noise():
    found = faces(8.0, Shares(clients=32, buffer=2))
    assert [face.unknown for face in found] == [32, 2, 1]
    assert [face.noise for face in found] == pytest.approx([8.0, 8.0 / 4, 8.0 / math.sqrt(32)], rel=1e-12)
    assert all(face.noise <= 8.0 * math.sqrt(face.unknown / 32) for face in found)
    told = statements(8.0, Shares(32, 2), 10, 1e-5, secrets_beside=False)
    assert [one.epsilon for one in told] == sorted(one.epsilon for one in told)
    assert told[0].epsilon == account(8.0, 10, 1e-5).epsilon
    assert told[2].epsilon == pytest.approx(account(8.0 / math.sqrt(32), 10, 1e-5).epsilon, rel=1e-9)


def test_who_colludes_and_who_did_not_come_is_taken_off():
    found = faces(1.0, Shares(32, 5, colluding=3, absent=1))
    assert [face.unknown for face in found] == [28, 1, 1]
    assert [face.unknown for face in faces(1.0, Shares(32, 5, colluding=31))] == [1, 1, 1]
    assert [face.unknown for face in faces(1.0, Shares(1, 1))] == [1, 1, 1]
    for wrong in ((32, 5, 32, 0), (32, 5, 30, 2), (32, 33, 0, 0), (32, 0, 0, 0), (32, 5, -1, 0)):
        with pytest.raises(UsageError):
            Shares(*wrong)


def test_shares_add_up_to_the_noise_that_is_told():
    """Drawn share by share: what is left of a buffer's noise when two of its five shares are subtracted."""
    draws = np.random.default_rng(1).normal(0, 8 / math.sqrt(20), (200_000, 5))
    (_, buffer, row) = faces(8.0, Shares(20, 5, colluding=2))
    left = (draws.sum(axis=1) - draws[:, :2].sum(axis=1)).std()
    assert left == pytest.approx(buffer.noise, rel=0.01)
    assert draws[:, 0].std() == pytest.approx(row.noise, rel=0.01)


def test_each_statement_says_who_sees_what_and_who_is_trusted():
    total, buffer, row = (one.as_json()["statement"] for one in statements(4.0, Shares(16, 4, 1), 3, 1e-5, True))
    assert "the sum of all 16 clients, of whose noise it does not know 15 shares of 16" in total["adversary"]
    assert "a buffer of 4 clients, of whose noise it does not know 3 shares of 16" in buffer["adversary"]
    assert "the row of a client, of whose noise it does not know 1 share of 16" in row["adversary"]
    assert all(each["trust model"].startswith(SIMULATION) for each in (total, buffer, row))
    apart = statements(4.0, Shares(16, 4), 3, 1e-5, False)
    assert [one.as_json()["statement"]["trust model"] for one in apart][1:] == [
        f"{SHARED}. Assumed: {SUMS_ALONE}",
        SHARED,
    ]
    assert "no amplification" in total["sampling assumption"]


# the command


def test_the_command_accounts_finds_noise_and_says_who_sees_what(fuaudit):
    def said(*arguments, expected=0):
        code, out, err = fuaudit("budget", "gaussian", "--rounds", 100, "--delta", "1e-5", *arguments)
        assert code == expected, err
        return out if expected == 0 else err

    document = json.loads(said("--noise", "20", "--json"))
    assert document["epsilon_total"] == account(20.0, 100, 1e-5).epsilon
    document = json.loads(said("--target", "1", "--json"))
    assert document["noise"] == noise_for(1.0, 1e-5, 100)
    assert document["epsilon_total"] <= 1
    shared = ("--noise", "20", "--clients", 16, "--buffer", 4, "--colluding", 1)
    document = json.loads(said(*shared, "--json"))
    told = statements(20.0, Shares(16, 4, 1), 100, 1e-5, True)
    assert [one["epsilon_total"] for one in document["faces"]] == [one.epsilon for one in told]
    text = said(*shared)
    for words in ("the sum of all 16 clients", "a buffer of 4 clients", "the row of a client", "simulation only"):
        assert words in text
    assert "simulation only" not in said(*shared, "--secrets-apart")
    assert "no guarantee" in said("--noise", "0")
    assert len(said("--noise", "20", "-q").splitlines()) == 1
    for wrong in (
        (),
        ("--noise", "20", "--target", "1"),
        ("--noise", "20", "--buffer", 4),
        ("--noise", "-1"),
        ("--target", "1", "--participations", 0),
        ("--noise", "20", "--clients", 16, "--participations", 2),
        ("--noise", "20", "--clients", 4, "--buffer", 5),
    ):
        said(*wrong, expected=2)


@pytest.mark.parametrize(
    ("target", "rounds", "delta"), [(1, 100, 1e-5), (2.7, 30, 1e-6), (0.1, 7, 1e-9), (8, 900, 1e-5)]
)
def test_the_noise_that_is_printed_keeps_to_the_target(target, rounds, delta, fuaudit):
    code, out, err = fuaudit("budget", "gaussian", "--target", target, "--rounds", rounds, "--delta", delta, "-q")
    assert code == 0, err
    printed = float(out.split("with noise ")[1].split(":")[0])
    assert account(printed, rounds, delta).epsilon <= target
    assert printed <= noise_for(target, delta, rounds) * (1 + 1e-5)


def test_a_target_finds_the_rounds_that_so_much_noise_allows(fuaudit):
    given = "budget", "gaussian", "--noise", "20", "--target", "1", "--delta", "1e-5"
    code, out, err = fuaudit(*given, "--json")
    assert code == 0, err
    document = json.loads(out)
    assert (document["found"], document["rounds"]) == ("rounds", rounds_for(1.0, 1e-5, 20.0))
    assert document["epsilon_total"] <= 1 < account(20.0, document["rounds"] + 1, 1e-5).epsilon
    assert f"{document['rounds']} rounds with noise 20" in fuaudit(*given, "-q")[1]
    several = json.loads(fuaudit(*given, "--participations", 2, "--json")[1])
    assert several["rounds"] == rounds_for(1.0, 1e-5, 20.0, 2) < document["rounds"]
    for wrong in (("--rounds", 5), ()):
        code, _, err = fuaudit(*(given if wrong else given[:4]), *wrong, "--delta", "1e-5")
        assert code == 2
        assert "--rounds" in err


def test_a_plot_has_a_curve_for_each_who_sees_something(fuaudit, tmp_path):
    given = "budget", "gaussian", "--noise", "20", "--rounds", 100, "--delta", "1e-5", "--plot"
    assert fuaudit(*given, tmp_path / "one.svg")[0] == 0
    assert fuaudit(*given, tmp_path / "three.png", "--clients", 16, "--buffer", 4)[0] == 0
    assert (tmp_path / "three.png").stat().st_size > 1000
    assert "<svg" in (tmp_path / "one.svg").read_text()
    found = curves([account(20.0, 100, 1e-5), account(5.0, 100, 1e-5)])
    assert found.numbers[0] == 1
    assert found.numbers[-1] == 100
    (one, _), (other, _) = found.lines
    assert one[-1] == account(20.0, 100, 1e-5).epsilon < other[-1]
    for path, more in (("none.svg", ("--noise", "0")), ("wrong.gif", ())):
        code, _, err = fuaudit(*given, tmp_path / path, *more)
        assert code == 2, err
        assert not (tmp_path / path).exists()
