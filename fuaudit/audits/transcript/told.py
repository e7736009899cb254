"""What a sealed view says beside its messages: names of parameters, and sizes that its ledger tells of.

Whoever writes a view could hide something in each. So names, shapes and order of parameters are those that the config's
model makes, and sizes are those that its stages can tell of. What is left is as told, and a PASS names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fuaudit import registry
from fuaudit.audits.transcript.agreed import COORDINATE_BYTES, At, just, silent, stages_at
from fuaudit.audits.transcript.known import cohort_of, told_rounds
from fuaudit.budgets.family import Release
from fuaudit.declared import says
from fuaudit.errors import FuauditError
from fuaudit.runs.layout import METRICS, MODEL
from fuaudit.runs.procedure import named_parts
from fuaudit.runs.released import release_of, releases_of
from fuaudit.runs.run import Run
from fuaudit.secure.recheck.shown import Checked, Wrong
from fuaudit.text import counted
from fuaudit.training.events import COORDINATES

Shapes = dict[str, tuple[int, ...]]
"""Names of parameters and their shapes, in their order."""

SIDES = (28, 32, 64, 8, 16, 24, 40, 48, 96, 128, 224, 256)
"""Of square images, which are tried."""
NUMBER_BYTES = 8
"""Of a number, at most, in the plain form."""
NAMES_TOLD = f"Names, shapes and order of the parameters in {MODEL} are as told: nothing here makes the config's model."
SHAPES_TOLD = (
    f"Where shapes of the parameters in {MODEL} depend on how large inputs are, and on how many classes there are, "
    "they are as told: a view holds none, and the same numbers can be parameters for others."
)
FIGURES_TOLD = (
    f"Figures of {METRICS}, and what the ledger tells of rounds beside what its messages show (sizes, such as the "
    "config allows; reasons; what parts of other packages tell; the order of all that), are as told: nothing in a view "
    "makes them again."
)

COLUMNS_TOLD = (
    "The columns that a round sums are those that its clients agreed on: which these are follows from their rows, and "
    "the server tells them. There are no more of them than its clients can propose. How many each agreement but the "
    "last leaves is as told, within the same limits."
)


@dataclass(frozen=True)
class Exported:
    """Whether the named parameters of a view are its last model.

    Attributes:
        wrong: whether they are not.
        trusts: what is as told, as a sentence; empty for nothing.
    """

    wrong: bool
    trusts: str = ""


def exported(run: Run) -> Exported:
    """Compare the named parameters of a view with what the config's model makes of the last model."""
    arrays, used = run.arrays(MODEL), run.config.model
    told: Shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    own, made = registry.find("models", used["use"]).own, made_like(registry.build("models", used), told)
    if made is None or (not own and told.keys() != made.names.keys()):
        return Exported(False, NAMES_TOLD)
    if told.keys() != made.names.keys():
        return Exported(True)
    if b"".join(arrays[name].tobytes() for name in made.names) != run.model.numpy().tobytes():
        return Exported(own, NAMES_TOLD)
    if told in made.candidates:
        return Exported(False, SHAPES_TOLD)
    return Exported(own and (made.flat or not _fits(told, made.candidates)), SHAPES_TOLD)


@dataclass(frozen=True)
class Made:
    """Parameters of a config's model for some inputs.

    Attributes:
        candidates: for inputs of which told parameters could be, one at least.
        flat: whether inputs of as many numbers make one model, so that there is no other candidate.
    """

    candidates: tuple[Shapes, ...]
    flat: bool

    @property
    def names(self) -> Shapes:
        """Any of them: names and order are the same in all."""
        return self.candidates[0]


def made_like(recipe: Any, told: Shapes) -> Made | None:
    """What a model makes for inputs and classes of which told parameters could be; None where it makes nothing."""
    flat = parameters_of(recipe, (1,), 2)
    probe = flat or parameters_of(recipe, (1, 64, 64), 2)
    if not probe:
        return None
    names = [*probe]
    first, last = told.get(names[0], ()), told.get(names[-1], ())
    classes, features = last[0] if last else 2, first[1] if len(first) > 1 else 1
    if flat:
        return Made((parameters_of(recipe, (features,), classes) or probe,), True)
    found = (parameters_of(recipe, (features, side, side), classes) for side in SIDES)
    return Made(tuple(filter(None, found)) or (probe,), False)


def parameters_of(recipe: Any, shape: tuple[int, ...], classes: int) -> Shapes | None:
    """The parameters of a model for inputs of a shape; None where it has none for such."""
    if not all(0 < size < 1 << 32 for size in (*shape, classes)):
        return None
    try:
        with torch.device("meta"):
            module = recipe.build(shape, classes)
        return {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    except Exception:  # of another package, or for other inputs
        return None


def _fits(told: Shapes, made: Sequence[Shapes]) -> bool:
    """Whether shapes are those of a model in all places that are equal for inputs of all sizes."""
    return all(
        len(told[name]) == len(made[0][name])
        and all(
            size == sizes[0] or len({*sizes}) > 1
            for size, *sizes in zip(told[name], *(one[name] for one in made), strict=True)
        )
        for name in made[0]
    )


def wrong_told(run: Run, checked: Checked) -> Iterator[Wrong]:
    """What the ledger of a sealed view tells of its rounds otherwise than stages of its config can."""
    cohort, outside = cohort_of(run), _outside(run)
    stages, dimension = run.exchange.client_stages.stages, run.model.numel()
    for event in told_rounds(run):
        number, clients = event["round"], len({*cohort(event["round"])})
        columns = checked.columns.get(number)
        summed = None if columns is None else len(columns)
        places = stages_at(stages, dimension, event, clients, summed, outside)
        most = min((at.most for at in places.values()), default=dimension)
        if summed is not None and summed > most:
            told = f"the server told {counted(summed, 'column')}, and the clients of the round agree on {most} at most"
            yield Wrong("told", told, number)
        for part in silent(event, places, outside):
            yield Wrong("told", f"{part} does not tell on how many columns its clients agreed", number)
        for one in event.get("told", ()):
            if one["kind"] not in ("sent", "answered") or one["part"] in outside:
                continue
            if not _has_size(one, places.get(one["part"]), dimension, len(run.view.clients)):
                told = f"the ledger tells that {one['part']} {one['kind']} {one['what']} of {one['size']} bytes"
                yield Wrong("told", f"{told}, and by the config it has another size", number)
        for release in releases_of(event):
            at = places.get(release.part)
            if at is None or not says(at.stage, "releases"):
                continue
            # when in a round one of another package tells, and so over which columns, is its own matter
            given = [one.given for one in places.values()] if release.part in outside else [at.given]
            if release.part in outside and any(len(columns) > 1 for columns in given):
                continue
            if not any(_can_release(release, at.stage, columns) for columns in given):
                yield Wrong("told", f"{release.part} tells that it releases what its config does not have", number)


def _can_release(release: Release, stage: Any, columns: range) -> bool:
    """Whether a stage releases that over some of these columns; fuaudit's own tell how many, where it matters."""
    told = {value for _, value in release.parameters if type(value) is int and value in columns}
    return any(_releases(release, stage, number) for number in {columns[0], columns[-1], *told})


def _releases(release: Release, stage: Any, columns: int) -> bool:
    try:
        return release_of(release.part, stage, columns) == release
    except FuauditError:
        return False


def sizes_told(run: Run) -> Iterator[str]:
    """Whose sizes a view takes on trust: those of parts of other packages, a sentence each."""
    for kind, name in _outside(run).values():
        yield f"Sizes that the {registry.singular(kind)} {name!r} tells of are as told: it is of another package."


def _outside(run: Run) -> dict[str, tuple[str, str]]:
    """Kind and name of the parts of a round that may tell of it and are of other packages, as the ledger names them."""
    named = named_parts(run.config)
    return {part: named[part] for part in sorted(run.exchange.telling) if not registry.find(*named[part]).own}


def _has_size(event: Mapping[str, Any], at: At | None, dimension: int, clients: int) -> bool:
    """Whether a message of a part of fuaudit's own can have the size that is told of it, in the plain form."""
    size, stage = int(event["size"]), None if at is None else at.stage
    given, left = (just(dimension), just(dimension)) if at is None else (at.given, at.left)
    bits: int = says(stage, "bits")
    few: int = says(stage, "per_client")
    if event["kind"] == "answered":
        widths = (COORDINATE_BYTES,) if event["what"] == COORDINATES else (1, 2, 4, 8)
        return any(not size % width and size // width in left for width in widths)
    if event["what"] == "update" and bits:
        columns = min(size * 8 // bits, given[-1])  # the most that have no more bytes
        return columns in given and (columns * bits + 7) // 8 == size
    numbers = min(few, given[-1]) if few else given[-1] * clients
    return 0 <= size <= NUMBER_BYTES * numbers
