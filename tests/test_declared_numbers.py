"""What a client stage says of its whole numbers is so: by its check, before training, and behind sums."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from fuaudit_plugins.quantise import Quantise
from fuaudit_plugins.skellam import SkellamNoise
from test_secured_runs import FEDAVG
from tests_support import broken, installed

from fuaudit.errors import AnswerError, PluginError
from fuaudit.plugins import Sent, Stateless
from fuaudit.testing import check_client_stage
from fuaudit.testing.tiny import tiny_dataset
from fuaudit.training.grid import Grid, grid_of, whole_numbers
from fuaudit.workflow.train import train

STEP = 2.0**-9


@dataclass(frozen=True)
class Whole(Stateless):
    """Eight bits of a step of 2 to the minus 9."""

    abrupt: ClassVar[bool] = True
    bits: ClassVar[int] = 8

    def step_of(self, columns):
        return STEP

    def apply(self, updates, context, state):
        for client in context.cohort.clients.tolist():
            context.tell(Sent(client, "update", updates.shape[-1]))
        return (updates / STEP).round().clamp(-127, 127) * STEP, state


def mutant(**body):
    return dataclass(frozen=True)(type("Wrong", (Whole,), {"__doc__": "A mutant."} | body))()


def rows_by(made):
    """A stage that tells what it should, and leaves other rows."""

    def apply(self, updates, context, state):
        told = Whole.apply(self, updates, context, state)[0]
        return made(updates, told, context.number), state

    return apply


def moving():
    asked = []

    def step_of(self, columns):
        asked.append(columns)
        return 2.0 ** -(9 + len(asked) % 3)

    return step_of


def raising(self, columns):
    raise KeyError(columns)


BEYOND = "no whole multiples of the step 0.001953125 from -127 to 127"
ROWS = {
    "beyond": lambda rows, told, number: (rows / STEP).round() * STEP,
    "beyond by one": lambda rows, told, number: (rows / STEP).round().clamp(-128, 127) * STEP,
    "half steps": lambda rows, told, number: (rows * 1024).round().clamp(-254, 254) / 1024,
    "as they are": lambda rows, told, number: rows.clamp(-0.2, 0.2),
}
"""What is left of rows, by what is wrong with it."""
STEPS = {
    "a third": (lambda self, columns: 1 / 300, "not a power of two"),
    "zero": (lambda self, columns: 0.0, "not a power of two"),
    "a whole number": (lambda self, columns: 1, "not a power of two"),
    "another each time": (moving(), "step_of, says"),
    "none": (raising, "step_of, raised KeyError"),
}


def test_a_stage_that_keeps_its_word():
    check_client_stage(Whole())
    check_client_stage(SkellamNoise(1.0, 0.5, 16))
    check_client_stage(Quantise(1.0, 24))


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_the_whole_numbers_that_a_stage_declares(name):
    broken(check_client_stage, mutant(apply=rows_by(ROWS[name])), BEYOND, "clamp")


def test_a_row_of_many_columns_is_looked_at_too():
    wrong = mutant(apply=rows_by(lambda rows, told, number: told / (1 + (rows.shape[-1] > 100))))
    broken(check_client_stage, wrong, BEYOND)


@pytest.mark.parametrize("name", STEPS)
def test_a_step_is_one_power_of_two(name):
    step_of, words = STEPS[name]
    broken(check_client_stage, mutant(step_of=step_of), words)


@pytest.mark.parametrize("bits", [0, 1, 25])
def test_a_step_comes_with_as_many_bits_as_sums_have(bits):
    wrong = mutant(bits=bits)
    broken(check_client_stage, wrong, f"has the method step_of, and declares {bits} bits")
    with pytest.raises(PluginError, match="2 to 24 bits"):
        grid_of(wrong)


def test_whoever_declares_bits_tells_of_sizes():
    broken(
        check_client_stage, mutant(apply=lambda s, u, c, state: (u * 0, state)), 'Tell Sent(client, "update", bytes)'
    )


def test_the_range_is_symmetric():
    grid, most = Grid(Whole(), 8), torch.tensor([[127 * STEP, -127 * STEP, 0.0]])
    assert whole_numbers(most, grid, [4], 1).tolist() == [[127, -127, 0]]
    assert whole_numbers(most[:, :0], grid, [4], 1).shape == (1, 0)
    with pytest.raises(AnswerError, match=r"round 3, .* of client 4 1 of 3 numbers .* is -0\.25\n") as error:
        whole_numbers(torch.tensor([[0.0, -128 * STEP, STEP]]), grid, [4], 3)
    assert "never cut" in error.value.hint


STRANGER = """
from dataclasses import dataclass
from typing import ClassVar

from fuaudit.plugins import Sent, Stateless


@dataclass(frozen=True)
class Eighths(Stateless):
    '''Leaves numbers of a step of 2 to the minus 9, from a round on more than it declares.'''

    since: int = 9
    tells: bool = True
    bits: ClassVar[int] = 8
    abrupt: ClassVar[bool] = True

    def step_of(self, columns):
        return 2.0**-9

    def apply(self, updates, context, state):
        for client in context.cohort.clients.tolist() if self.tells else ():
            context.tell(Sent(client, "update", updates.shape[-1]))
        whole = (updates * 512).round()
        return (whole * 40 if context.number >= self.since else whole.clamp(-127, 127)) / 512, state
"""
ENTRIES = "[fuaudit.client_stages]\neighths = eighths_of:Eighths\n"


@pytest.fixture
def eighths(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(installed(tmp_path / "site", "eighths_of", STRANGER, ENTRIES)))

    def run(since, path, secure="plain", rounds=2, **options):
        learner = FEDAVG["learner"] | {"rounds": rounds}
        tables = FEDAVG | {"client": [{"use": "eighths", "since": since, **options}], "learner": learner}
        return train(tables, path, tiny_dataset(), bytes(32), secure=secure)

    return run


@pytest.mark.parametrize("secure", ["plain", None])
def test_a_miniature_finds_numbers_beyond_their_bits_before_anything_is_committed_to(eighths, tmp_path, secure):
    with pytest.raises(AnswerError, match="client stage 'eighths', apply in round 2, leaves what it does not declare"):
        eighths(2, tmp_path / "run", secure)
    assert not Path(tmp_path / "run").exists()


def test_a_sum_names_the_stage_that_declares_too_few_bits(eighths, tmp_path):
    """In a round that a miniature has not: an error of the plugin, and not of its transport."""
    with pytest.raises(
        AnswerError, match=r"^client stage 'eighths', apply in round 5, .* of client \d+ \d+ of \d+ num"
    ):
        eighths(5, tmp_path / "run", rounds=5)


@pytest.mark.parametrize("secure", ["plain", None])
def test_a_stage_that_tells_no_sizes_is_refused_before_anything_is_committed_to(eighths, tmp_path, secure):
    """Traffic counted whole numbers of the run's type, and nothing in a report said that it did not know better."""
    words = "^client stage 'eighths', apply in round 1, declares bits, and does not tell how large the update of client"
    with pytest.raises(AnswerError, match=words) as caught:
        eighths(9, tmp_path / "run", secure, tells=False)
    assert 'Tell Sent(client, "update", bytes)' in caught.value.hint
    assert not Path(tmp_path / "run").exists()
