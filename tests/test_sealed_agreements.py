"""Sealed views of configs with several agreements: each says on how many columns the stages behind it work."""

import shutil
from pathlib import Path

import pytest
from test_sealed import looked_at, sealed_again
from test_secured_runs import FEDREP, NOISE, QUANTISE, SHARES, THIN, trained

from fuaudit import load_run
from fuaudit.workflow.seal import seal

EIGHT_BITS = {"use": "quantise", "clip": 0.5, "bits": 8}


def consensus(per_client):
    return {"use": "consensus", "per_client": per_client, "alpha": 0.5}


MEMORY, SHARED = {"use": "error-feedback"}, SHARES["client"]
CHAINS = {
    "one behind the other": [MEMORY, consensus(4), consensus(2), QUANTISE],
    "rounded in between": [consensus(4), EIGHT_BITS, consensus(1), QUANTISE],
    "noise in between": [consensus(4), NOISE, consensus(1), *SHARED],
    "shares in between": [consensus(4), *SHARED, consensus(1), *SHARED],
    "largest in between": [consensus(4), {"use": "top-k", "per_client": 3}, consensus(1), QUANTISE],
    "three of them": [consensus(5), consensus(3), QUANTISE, consensus(1), EIGHT_BITS],
    "rounded in front": [QUANTISE, consensus(3), consensus(1), QUANTISE],
    "all, then some": [consensus(99), consensus(1), QUANTISE],
}


@pytest.mark.parametrize("name", CHAINS)
def test_several_agreements_pass(tmp_path, name):
    view = seal(trained(tmp_path / "run", FEDREP | {"client": CHAINS[name]}, "plain"), tmp_path / "view")
    found = looked_at(view)
    assert found.verdict == "PASS", (found.shows, found.details)
    assert sum("each agreement but the last" in line for line in found.assumptions) == 1


AGREES = {"use": "test-agreement", "per_client": 2}


@pytest.mark.parametrize(
    "client",
    [
        [AGREES, QUANTISE],
        [AGREES, EIGHT_BITS, consensus(1), QUANTISE],
        [consensus(4), QUANTISE, AGREES, QUANTISE],
        [AGREES, *SHARED, consensus(1), *SHARED],
    ],
)
@pytest.mark.parametrize("base", [FEDREP, THIN], ids=["sums", "rounds without a sum"])
def test_an_agreement_of_another_package_may_tell_nothing(tmp_path, monkeypatch, base, client):
    """How many columns are left behind it then nobody says, but where the server told those of a sum."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "stages"))
    view = seal(trained(tmp_path / "run", base | {"client": client}, "plain"), tmp_path / "view")
    found = looked_at(view)
    assert found.verdict == "PASS", (found.shows, found.details)
    assert any("'test-agreement'" in line and "as told" in line for line in found.assumptions)


@pytest.fixture(scope="module")
def middle(tmp_path_factory):
    """A view in which numbers and shares lie between two agreements, which nobody may change."""
    folder = tmp_path_factory.mktemp("middle")
    client = [consensus(2), *SHARED, consensus(1), *SHARED]
    return seal(trained(folder / "run", FEDREP | {"client": client}, "plain"), folder / "view")


@pytest.fixture
def copied(middle, tmp_path):
    return load_run(shutil.copytree(middle.path, tmp_path / "view"))


def told(view, number=1):
    return next(event["told"] for event in view.ledger.of_kind("round") if event["round"] == number)


def forged(view, change, number=1):
    """The verdict on a view whose ledger tells something else of a round, and what is wrong with it."""

    def course(event):
        if event["event"] != "round" or event["round"] != number:
            return event
        return event | {"told": [made for one in event["told"] if (made := change(one)) is not None]}

    found = looked_at(sealed_again(view.path, course))
    return found.verdict, found.details


def answer(part, what, columns):
    return lambda one: (
        one | {"size": 4 * columns} if (one["kind"], one["part"], one.get("what")) == ("answered", part, what) else one
    )


def agreed(view, part):
    (found,) = (one["size"] // 4 for one in told(view) if (one["part"], one.get("what")) == (part, "coordinates")
                and one["kind"] == "answered")  # fmt: skip
    return found


def test_the_numbers_are_apart(middle):
    """So that each of them, in the place of another, is a wrong one."""
    first, last = agreed(middle, "client.0"), agreed(middle, "client.2")
    assert middle.model.numel() > first > last > 0
    assert looked_at(middle).verdict == "PASS"


@pytest.mark.parametrize("what", ["coordinates", "values"])
@pytest.mark.parametrize("other", ["one more", "one fewer", "those of the end", "all"])
def test_another_number_in_the_middle_is_found(copied, what, other):
    first, last = agreed(copied, "client.0"), agreed(copied, "client.2")
    number = {"one more": first + 1, "one fewer": first - 1, "those of the end": last, "all": copied.model.numel()}
    verdict, details = forged(copied, answer("client.0", what, number[other]))
    assert (verdict, details[0][:14]) == ("FAIL", "round 1, told:"), details


@pytest.mark.parametrize("columns", ["dimension", "last"])
def test_sizes_in_the_middle_are_those_of_the_middle(copied, columns):
    """With one length before and one behind all agreements each of these passed."""
    number = {"dimension": copied.model.numel(), "last": agreed(copied, "client.2")}[columns]

    def change(one):
        sent = (one["kind"], one["part"]) == ("sent", "client.1")
        return one | {"size": (number * SHARED[0]["bits"] + 7) // 8} if sent else one

    verdict, details = forged(copied, change)
    assert (verdict, "client.1 sent update" in details[0]) == ("FAIL", True), details


@pytest.mark.parametrize("part", ["client.1", "client.2", "client.3"])
def test_releases_are_over_the_columns_of_their_place(copied, part):
    """Those of the whole model, and those of another place, are what the config does not have."""
    (own,) = (one for one in told(copied) if (one["kind"], one["part"]) == ("released", part))
    sizes = {copied.model.numel(), agreed(copied, "client.0"), agreed(copied, "client.2")}
    for dim in sizes - {own["parameters"]["dim"]}:
        verdict, details = forged(
            load_run(shutil.copytree(copied.path, copied.path.parent / str(dim))),
            lambda one, dim=dim: one | {"parameters": one["parameters"] | {"dim": dim}} if one == own else one,
        )
        assert (verdict, f"{part} tells that it releases" in details[0]) == ("FAIL", True), details


def test_who_agrees_tells_on_how_many(copied):
    """Else no size in the middle would be bound."""

    def change(one):
        return None if (one["kind"], one["part"]) == ("answered", "client.0") else one

    verdict, details = forged(copied, change)
    assert (verdict, "client.0 does not tell" in details[0]) == ("FAIL", True), details


def consistently(first, bits):
    """All that follows from the number in the middle told for another one, as whoever writes the ledger can."""

    def change(one):
        place = one["kind"], one["part"]
        if place == ("answered", "client.0"):
            return one | {"size": 4 * first}
        if place == ("sent", "client.1"):
            return one | {"size": (first * bits + 7) // 8}
        if one["kind"] == "released" and one["part"] in ("client.1", "client.2"):
            return one | {"parameters": one["parameters"] | {"dim": first}}
        return one

    return change


@pytest.mark.parametrize("way", ["more than are proposed", "fewer than are summed"])
def test_the_middle_lies_between_what_clients_propose_and_what_is_summed(copied, way):
    few, last = 4 * 2, agreed(copied, "client.2")
    number = few + 1 if way == "more than are proposed" else last - 1
    verdict, details = forged(copied, consistently(number, SHARED[0]["bits"]))
    assert (verdict, details[0][:14]) == ("FAIL", "round 1, told:"), details


def test_the_last_agreement_has_the_columns_that_the_server_told(copied):
    last = agreed(copied, "client.2")
    for number in (last - 1, last + 1):
        verdict, details = forged(copied, answer("client.2", "coordinates", number))
        assert (verdict, "client.2 answered coordinates" in details[0]) == ("FAIL", True), details
