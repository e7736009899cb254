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
from fuaudit.audits.transcript.known import cohort_of, told_rounds
from fuaudit.budgets.family import Release
from fuaudit.declared import is_agreement, says
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
COORDINATE_BYTES = 4
"""Of the number of a column."""
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
    "the server tells them. There are no more of them than its clients can propose."
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
    dimension, cohort, outside = run.model.numel(), cohort_of(run), _outside(run)
    for event in told_rounds(run):
        number = event["round"]
        agreed = checked.columns.get(number)
        most = _most_columns(run, len({*cohort(number)}), dimension)
        if agreed is not None and len(agreed) > most:
            told = f"the server told {counted(len(agreed), 'column')}, and the clients of the round agree on {most}"
            yield Wrong("told", f"{told} at most", number)
        lengths = {dimension, *(_agreed(event, most) if agreed is None else [len(agreed)])}
        for one in event.get("told", ()):
            if one["kind"] not in ("sent", "answered"):
                continue
            if one["part"] not in outside and one["size"] not in _sizes(run, one, lengths):
                told = f"the ledger tells that {one['part']} {one['kind']} {one['what']} of {one['size']} bytes"
                yield Wrong("told", f"{told}, and by the config it has another size", number)
        for release in releases_of(event):
            if (stage := _stage(run, release.part)) is None or not says(stage, "releases"):
                continue
            if not any(_can_release(release, stage, columns) for columns in lengths):
                yield Wrong("told", f"{release.part} tells that it releases what its config does not have", number)


def _agreed(event: Mapping[str, Any], most: int) -> Iterator[int]:
    """On how many columns clients agreed by the ledger, where the server told none: no sum was asked for."""
    for one in event.get("told", ()):
        if (one["kind"], one.get("what")) == ("answered", COORDINATES) and one["size"] <= most * COORDINATE_BYTES:
            yield one["size"] // COORDINATE_BYTES


def _most_columns(run: Run, clients: int, dimension: int) -> int:
    """On how many columns so many clients can agree: on all, where a stage does not say how many each proposes."""
    stages = run.exchange.client_stages.stages
    few: list[int] = [says(stage, "per_client") for stage in stages if is_agreement(stage)]
    return min([dimension, *(clients * number for number in few if number)])


def _can_release(release: Release, stage: Any, columns: int) -> bool:
    try:
        return release_of(release.part, stage, columns) == release
    except FuauditError:
        return False


def _stage(run: Run, part: str) -> Any:
    """The client stage of a name in the ledger; None where it is another part."""
    kind, _, place = part.partition(".")
    stages: tuple[Any, ...] = run.exchange.client_stages.stages
    return stages[int(place)] if kind == "client" and place.isdecimal() and int(place) < len(stages) else None


def sizes_told(run: Run) -> Iterator[str]:
    """Whose sizes a view takes on trust: those of parts of other packages, a sentence each."""
    for kind, name in _outside(run).values():
        yield f"Sizes that the {registry.singular(kind)} {name!r} tells of are as told: it is of another package."


def _outside(run: Run) -> dict[str, tuple[str, str]]:
    """Kind and name of the parts of a round that may tell of it and are of other packages, as the ledger names them."""
    named = named_parts(run.config)
    return {part: named[part] for part in sorted(run.exchange.telling) if not registry.find(*named[part]).own}


def _sizes(run: Run, event: Mapping[str, Any], lengths: set[int]) -> range | set[int]:
    """The sizes that a message of a part of fuaudit's own can have, in the plain form."""
    stage = _stage(run, event["part"])
    bits, few = says(stage, "bits"), says(stage, "per_client")
    if event["kind"] == "answered":
        return {width * length for length in lengths for width in (1, 2, 4, 8)}
    if event["what"] == "update" and bits:
        return {(length * bits + 7) // 8 for length in lengths}
    if few:
        return range(NUMBER_BYTES * min(few, max(lengths)) + 1)
    return range(NUMBER_BYTES * max(lengths) * len(run.view.clients) + 1)
