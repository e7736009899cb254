"""Measures of the house, and its picture: which room imports which, how long functions are, what is there twice.

    python benchmarks/house.py                                        of this checkout
    python benchmarks/house.py ~/fuaudit-0.1                          of another one, of any version
    python benchmarks/house.py --page b4ca81b 689c829                 writes docs/results/house.md, beside two commits
    python benchmarks/house.py --picture                              writes docs/architecture.svg

Everything is read from syntax trees, nothing is imported, and Python's own library is enough. The order of rooms is
``LEVELS`` in the checkout's own tests/test_layers.py. The measures show a direction. They are no gates.
"""

from __future__ import annotations

import argparse
import ast
import html
import itertools
import statistics
import subprocess
import tarfile
import tempfile
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from importlib.machinery import ModuleSpec, PathFinder
from io import BytesIO
from pathlib import Path
from typing import Any, TypeGuard

HERE = Path(__file__).parents[1]
PAGE, PICTURE = Path("docs/results/house.md"), Path("docs/architecture.svg")
NODES_IN_COMMON = 30
"""Statements in a row of this many nodes, with the same shape in two functions, are a duplicate."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


# A checkout


@dataclass(frozen=True)
class House:
    """The modules of a checkout, by dotted name, and the order of its rooms, lowest first."""

    root: Path
    trees: dict[str, ast.Module]
    paths: dict[str, Path]
    levels: list[set[str]]

    @property
    def rooms(self) -> set[str]:
        return set().union(*self.levels)

    def level(self, room: str) -> int:
        return next(number for number, rooms in enumerate(self.levels) if room in rooms)

    def lines(self, module: str) -> int:
        return len(self.paths[module].read_text().splitlines())

    def arrows(self, types: bool = False) -> set[tuple[str, str]]:
        """Which module imports which, also inside functions; for type checking alone where ``types`` count."""
        return {
            (module, found)
            for module, tree in self.trees.items()
            for name in imported(tree, types)
            if (found := self.module_of(name)) not in (None, module)
        }

    def module_of(self, name: str) -> str | None:
        """The module of a dotted name, which may go on with a name inside that module."""
        while name and name not in self.trees:
            name = name.rpartition(".")[0]
        return name or None

    def arrows_of_rooms(self) -> set[tuple[str, str]]:
        pairs = {(room(one), room(other)) for one, other in self.arrows()}
        return {(one, other) for one, other in pairs if one != other and {one, other} <= self.rooms}


def opened(root: Path) -> House:
    """The checkout in a folder."""
    paths = {dotted(path.relative_to(root)): path for path in root.glob("fuaudit/**/*.py")}
    paths |= {f"fuaudit_plugins.{path.stem}": path for path in root.glob("plugins/*.py")}
    paths = dict(sorted(paths.items()))
    trees = {name: ast.parse(path.read_text(), str(path)) for name, path in paths.items()}
    return House(root, trees, paths, levels_of(root / "tests" / "test_layers.py"))


def dotted(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def levels_of(path: Path) -> list[set[str]]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LEVELS":
            levels: list[set[str]] = ast.literal_eval(node.value)  # literals alone: nothing is executed
            return levels
    raise SystemExit(f"{path} has no LEVELS")


def room(module: str) -> str:
    """The second part of a dotted name; plugins are one room beside the house."""
    first, _, rest = module.partition(".")
    return rest.partition(".")[0] if first == "fuaudit" else "plugins"


def imported(tree: ast.Module, types: bool = False) -> Iterator[str]:
    for_types = (
        set[ast.AST]()
        if types
        else {
            inner
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            for inner in ast.walk(node)
        }
    )
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


# Measures


@dataclass(frozen=True)
class Measure:
    """One line of the table: a figure, and in which places it comes about."""

    name: str
    value: str
    places: list[str] = field(default_factory=list)


def measures(house: House) -> list[Measure]:
    """Every measure of a checkout."""
    rooms = lines_by_room(house)
    total = sum(rooms.values())
    (biggest, most), *_ = rooms.most_common(1)
    return [
        counted("circles among modules", circles(house.arrows())),
        counted("the same with imports for types", circles(house.arrows(types=True))),
        counted("imports upwards or sideways", upwards(house)),
        Measure("lines of fuaudit/ and plugins/", f"{total:,}", [f"{name} {n:,}" for name, n in rooms.most_common()]),
        Measure("biggest room, with its folders", f"{biggest}, {most / total:.1%}"),
        *functions_of(house),
        counted("plugin words read by getattr or hasattr", words(house)),
        counted("bare Any in signatures of public functions", bare_any(house)),
        counted("pairs of functions with duplicates", duplicates(house)),
    ]


def counted(name: str, places: Iterable[str]) -> Measure:
    found = sorted(places)
    return Measure(name, str(len(found)), found)


def circles(arrows: set[tuple[str, str]]) -> set[str]:
    """Groups of modules that reach each other."""
    reached = {start: reachable(arrows, start) for start, _ in arrows}
    circle = {one: {other for other in found if one in reached.get(other, ())} for one, found in reached.items()}
    return {" ".join(sorted(group)) for group in circle.values() if group}


def reachable(arrows: set[tuple[str, str]], start: str) -> set[str]:
    below = defaultdict(set)
    for one, other in arrows:
        below[one].add(other)
    found, waiting = set[str](), [start]
    while waiting:
        new = below[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def upwards(house: House) -> set[str]:
    """Imports among rooms that do not point to a lower level."""
    known = house.rooms
    return {
        f"{one} imports {other}"
        for one, other in house.arrows()
        if room(one) != room(other) and {room(one), room(other)} <= known
        if house.level(room(other)) >= house.level(room(one))
    }


def lines_by_room(house: House) -> Counter[str]:
    rooms = Counter[str]()
    for module in house.trees:
        rooms[room(module) or "__init__"] += house.lines(module)
    return rooms


def functions_of(house: House) -> Iterator[Measure]:
    """Lengths, parameters and methods."""
    found = [(place(house, module, node), node) for module, node in every(house, Function)]
    length = {where: length_of(node) for where, node in found}
    lengths = sorted(length.values())
    parameters = {where: len(parameters_of(node)) for where, node in found}
    methods = {
        place(house, module, node): sum(isinstance(inner, Function) for inner in node.body)
        for module, node in every(house, ast.ClassDef)
    }
    classes = {node.name: node for _, node in every(house, ast.ClassDef)}
    inherited = {
        place(house, module, node): len(methods_of(node, classes)) for module, node in every(house, ast.ClassDef)
    }
    ninth = lengths[int(0.9 * len(lengths))]
    yield Measure("functions", f"{len(found):,}")
    yield Measure("lines of a function: median, 90 %", f"{statistics.median(lengths):.0f}, {ninth}")
    yield largest("lines of the longest function", length)
    yield largest("parameters of a function, at most", parameters)
    yield largest("methods of a class, at most", methods)
    yield largest("methods of a class with those of its bases, at most", inherited)


def methods_of(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> set[str]:
    """The names of a class's methods, with those of its bases in the house."""
    bases = [classes[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in classes]
    own = {inner.name for inner in node.body if isinstance(inner, Function)}
    return own.union(*(methods_of(base, classes) for base in bases if base is not node))


def every(house: House, kind: Any) -> Iterator[tuple[str, Any]]:
    for module, tree in house.trees.items():
        yield from ((module, node) for node in ast.walk(tree) if isinstance(node, kind))


def place(house: House, module: str, node: ast.stmt | ast.expr) -> str:
    return f"{house.paths[module].relative_to(house.root).as_posix()}:{node.lineno} {getattr(node, 'name', '')}".strip()


def length_of(node: Function) -> int:
    """Lines of a body, with its docstring."""
    last = node.body[-1]
    return (last.end_lineno or last.lineno) - node.body[0].lineno + 1


def parameters_of(node: Function) -> list[ast.arg]:
    arguments = node.args
    return [each for each in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs] if each.arg != "self"]


def largest(name: str, sizes: dict[str, int]) -> Measure:
    most = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[:3]
    return Measure(name, str(most[0][1]), [f"{where}: {size}" for where, size in most])


OF_IMPORTS = {*dir(ModuleSpec("any", None)), *dir(PathFinder)}
"""Words of Python's import machinery."""


def words(house: House) -> set[str]:
    """Attributes that are asked for by a literal name, each with its places.

    Python's own words and those of its modules do not count.
    """
    places = defaultdict(list)
    table = {node.args[0].value for _, node in every(house, ast.Call) if ast.unparse(node.func) == "Word"}
    for module, tree in house.trees.items():
        for word, call in asked_for(tree, table):
            if (
                not word.startswith("_")
                and word not in OF_IMPORTS
                and ast.unparse(call.args[0]) not in imports_whole(tree)
            ):
                places[word].append(place(house, module, call))
    return {f"{word}: {', '.join(found)}" for word, found in places.items()}


def asked_for(tree: ast.Module, table: set[str]) -> Iterator[tuple[str, ast.Call]]:
    """Each literal name that a getattr or hasattr asks for; in a loop over literals, each that is in the table."""
    for node in ast.walk(tree):
        if asks(node) and isinstance(name := node.args[1], ast.Constant) and isinstance(name.value, str):
            yield name.value, node
        for loop in [node] if isinstance(node, ast.For) else getattr(node, "generators", []):
            found = [each for each in ast.walk(node) if asks(each)]
            for variable, word in literals(loop):
                yield from ((word, call) for call in found if word in table and ast.unparse(call.args[1]) == variable)


def parts(node: ast.expr) -> list[ast.expr]:
    return getattr(node, "elts", [node])


def asks(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr")


def literals(loop: ast.For | ast.comprehension) -> Iterator[tuple[str, str]]:
    """Name -> text, of all that a loop over a row of literals gives its names."""
    for row in getattr(loop.iter, "elts", []):
        for name, value in zip(parts(loop.target), parts(row), strict=False):
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield ast.unparse(name), value.value


def imports_whole(tree: ast.Module) -> set[str]:
    return {
        alias.asname or alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }


def bare_any(house: House) -> Iterator[str]:
    for module, node in every(house, Function):
        if not node.name.startswith("_"):
            hints = [each.annotation for each in parameters_of(node)] + [node.returns]
            yield from (place(house, module, node) for hint in hints if hint and ast.unparse(hint) == "Any")


# Duplicates


def duplicates(house: House) -> set[str]:
    """Pairs of functions that have statements in a row with the same shape, whatever names and constants they use."""
    seen = defaultdict(set)
    for module, tree in house.trees.items():
        for function in outer_functions(tree):
            for shape in shapes(function):
                seen[shape].add(place(house, module, function))
    return {
        f"{one} and {other}"
        for found in seen.values()
        if len(found) > 1
        for one, other in itertools.combinations(sorted(found), 2)
    }


def outer_functions(tree: ast.AST) -> Iterator[Function]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield node
        else:
            yield from outer_functions(node)


def shapes(function: Function) -> Iterator[tuple[str, ...]]:
    """Of every place where statements begin: the shortest row of at least ``NODES_IN_COMMON`` nodes."""
    for node in ast.walk(function):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if not isinstance(block, list) or not block:
                continue
            flat = [list(kinds(each)) for each in block if not is_text(each)]
            for start in range(len(flat)):
                row = []
                for each in flat[start:]:
                    row += each
                    if len(row) >= NODES_IN_COMMON:
                        yield tuple(row)
                        break


def is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def kinds(node: ast.AST) -> Iterator[str]:
    """The kinds of nodes of a tree, in order, without names, constants and annotations."""
    yield type(node).__name__
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "ctx", "decorator_list"):
            continue
        if isinstance(value, list):
            yield f"[{len(value)}]"
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, ast.AST):
                yield from kinds(inner)


# The picture


BOX, HIGH, GAP, STREET, SPACE, LEFT, RIGHT = 234, 84, 40, 6, 14, 52, 24
LETTERS, ROWS = 36, 4
LOWEST = "used by all"
STYLE = """
  .paper { fill: #fbfaf7 } .floor { fill: #f1eee6 } .box { fill: #ffffff; stroke: #b9b2a3 }
  .arrow { fill: none; stroke: #a9a08d; stroke-width: 1.1 } .tip { fill: #a9a08d }
  .name { fill: #1d2b3a; font: 600 14px system-ui, sans-serif }
  .says { fill: #4b5563; font: 11px system-ui, sans-serif }
  .level { fill: #8a8371; font: 11px system-ui, sans-serif }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #14181d } .floor { fill: #1b2027 } .box { fill: #242b34; stroke: #4a5563 }
    .arrow { stroke: #7c899b } .tip { fill: #7c899b }
    .name { fill: #f0ece2 } .says { fill: #b8c0cb } .level { fill: #7f8a99 }
  }
"""


def needed(house: House) -> set[tuple[str, str]]:
    """Arrows between rooms that do not follow from others, and not those to the lowest level, which all may use."""
    arrows = {(one, other) for one, other in house.arrows_of_rooms() if house.level(other)}
    below = {start: reachable(arrows, start) for start, _ in arrows}
    return {
        (one, other)
        for one, other in arrows
        if not any(other in below.get(through, ()) for start, through in arrows if start == one)
    }


def says(house: House, name: str) -> list[str]:
    """What a room says of itself, without its title: as many sentences of its docstring as fit into a box."""
    text = (ast.get_docstring(house.trees[f"fuaudit.{name}"]) or "").split("\n\n")[0]
    text = " ".join(text.replace("`", "").split())
    title, colon, rest = text.partition(": ")
    text = rest if colon and len(title) < 25 else text
    sentences = (text[:1].upper() + text[1:]).rstrip(".").split(". ")
    rows = [textwrap.wrap(". ".join(sentences[:number]), LETTERS) for number in range(1, len(sentences) + 1)]
    return next((each for each in reversed(rows) if len(each) <= ROWS), rows[0])


Spot = tuple[int, str]
"""A level and a room, or a level and the arrow that passes it."""


@dataclass
class Drawing:
    """Rooms and the arrows that pass a level, in rows; the middle of each, and who is joined to whom."""

    rows: list[list[Spot]]
    joined: dict[Spot, list[Spot]]
    middle: dict[Spot, float]

    @cached_property
    def wide(self) -> int:
        """The width of the paper: the longest row fits."""
        return max(LEFT + sum(self.width(spot) + SPACE for spot in row) - SPACE + RIGHT for row in self.rows)

    def width(self, spot: Spot) -> int:
        return STREET if "→" in spot[1] else BOX

    def pull(self, spot: Spot) -> float:
        """Where its neighbours would have it, and a little towards the middle of the paper."""
        near = [self.middle[each] for each in self.joined[spot]]
        return (sum(near) + 0.1 * self.wide / 2) / (len(near) + 0.1) if near else self.middle[spot]

    def settle(self, row: list[Spot]) -> None:
        """Every spot as near to where it is pulled as is possible without overlap, on the paper."""
        wished = {spot: self.pull(spot) for spot in row}
        row.sort(key=lambda spot: (wished[spot], spot[1]))
        offsets = [0.0]
        for one, other in itertools.pairwise(row):
            offsets.append(offsets[-1] + (self.width(one) + self.width(other)) / 2 + SPACE)
        first, last = LEFT + self.width(row[0]) / 2, self.wide - RIGHT - self.width(row[-1]) / 2 - offsets[-1]
        values = rising([wished[spot] - offset for spot, offset in zip(row, offsets, strict=True)])
        for spot, offset, value in zip(row, offsets, values, strict=True):
            self.middle[spot] = offset + min(max(value, first), last)


def rising(values: list[float]) -> list[float]:
    """The numbers that never fall and are nearest to these by the sum of squares: neighbours that fall are pooled."""
    pools: list[list[float]] = []
    for value in values:
        pools.append([value])
        while len(pools) > 1 and statistics.fmean(pools[-2]) > statistics.fmean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    return [statistics.fmean(pool) for pool in pools for _ in pool]


def drawn(house: House) -> Drawing:
    """Rooms on their levels; a long arrow has a street of its own on every level that it passes."""
    rows = [[(number, name) for name in sorted(rooms)] for number, rooms in enumerate(house.levels)]
    joined = defaultdict(list)
    for one, other in sorted(needed(house)):
        top, bottom = house.level(one), house.level(other)
        way = [(top, one), *((at, f"{one}→{other}") for at in range(top - 1, bottom, -1)), (bottom, other)]
        for at in way[1:-1]:
            rows[at[0]].append(at)
        for upper, lower in itertools.pairwise(way):
            joined[upper].append(lower)
            joined[lower].append(upper)
    drawing = Drawing(rows, joined, {})
    for row in rows:
        drawing.middle |= {spot: drawing.wide * (place + 1) / (len(row) + 1) for place, spot in enumerate(row)}
    for _ in range(40):
        for row in [*rows, *reversed(rows)]:
            drawing.settle(row)
    return drawing


def picture(house: House) -> str:
    """The house as SVG: levels, rooms with what they say of themselves, arrows to what they use."""
    drawing, top = drawn(house), len(house.levels)
    wide, high = drawing.wide, top * (HIGH + GAP) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" role="img">',
        "<title>The rooms of fuaudit: an arrow points to what a room uses</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>',
        f'<rect class="paper" width="{wide}" height="{high}" rx="14"/>',
        *(floor(number, top, wide) for number in range(top)),
        *(line(drawing, spot, top) for row in drawing.rows for spot in row if "→" not in spot[1]),
        *(box(house, drawing, spot, top) for row in drawing.rows for spot in row if "→" not in spot[1]),
        "</svg>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def height(level: int, top: int) -> int:
    return 14 + (top - 1 - level) * (HIGH + GAP)


def floor(level: int, top: int, wide: int) -> str:
    y = height(level, top)
    return (
        f'<rect class="floor" x="12" y="{y - 6}" width="{wide - 24}" height="{HIGH + 12}" rx="8"/>'
        f'<text class="level" x="24" y="{y + HIGH / 2 + 4:.0f}">{level + 1}</text>'
        + (f'<text class="level" x="{wide - 30}" y="{y + HIGH - 4}" text-anchor="end">{LOWEST}</text>' * (level == 0))
    )


def line(drawing: Drawing, spot: Spot, top: int) -> str:
    """The arrows that leave a room, side by side, each to its place at the room below."""
    return "\n".join(curve(drawing, spot, first, top) for first in lower(drawing, spot))


def lower(drawing: Drawing, spot: Spot) -> list[Spot]:
    return sorted((each for each in drawing.joined[spot] if each[0] < spot[0]), key=lambda each: drawing.middle[each])


def upper(drawing: Drawing, spot: Spot) -> list[Spot]:
    return sorted((each for each in drawing.joined[spot] if each[0] > spot[0]), key=lambda each: drawing.middle[each])


def port(drawing: Drawing, spot: Spot, others: list[Spot], other: Spot) -> float:
    """Where an arrow meets a box: the boxes' sides are shared out in the order of what is at the other end."""
    step = min(30, (BOX - 40) / max(1, len(others) - 1))
    return drawing.middle[spot] + (others.index(other) - (len(others) - 1) / 2) * step


def curve(drawing: Drawing, start: Spot, first: Spot, top: int) -> str:
    x, y = port(drawing, start, lower(drawing, start), first), height(start[0], top) + HIGH
    path, before, at = [f"M{x:.0f} {y}"], start, first
    while True:
        street = "→" in at[1]
        end = drawing.middle[at] if street else port(drawing, at, upper(drawing, at), before)
        below = height(at[0], top) - (0 if street else 1)
        path.append(f"C{x:.0f} {y + GAP / 2:.0f} {end:.0f} {below - GAP / 2:.0f} {end:.0f} {below}")
        x, y = end, below
        if not street:
            return f'<path class="arrow" d="{" ".join(path)}" marker-end="url(#tip)"/>'
        y += HIGH
        path.append(f"V{y}")
        before, at = at, lower(drawing, at)[0]


def box(house: House, drawing: Drawing, spot: Spot, top: int) -> str:
    level, name = spot
    x, y = round(drawing.middle[spot] - BOX / 2), height(level, top)
    rows = "".join(
        f'<text class="says" x="{x + 11}" y="{y + 37 + 13 * number}">{html.escape(row)}</text>'
        for number, row in enumerate(says(house, name))
    )
    return (
        f'<rect class="box" x="{x}" y="{y}" width="{BOX}" height="{HIGH}" rx="7"/>'
        f'<text class="name" x="{x + 11}" y="{y + 20}">{name}</text>{rows}'
    )


# The page


def at_commit(commit: str, folder: Path) -> House:
    """A commit of this repository, unpacked into a folder."""
    packed = subprocess.run(["git", "-C", str(HERE), "archive", commit], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return opened(folder)


def page(found: dict[str, list[Measure]], now: str) -> str:
    """Measures of several versions side by side, and the places of the last one."""
    names = [measure.name for measure in found[now]]
    table = {version: {measure.name: measure.value for measure in each} for version, each in found.items()}
    rows = [f"| {name} | {' | '.join(table[version][name] for version in found)} |" for name in names]
    places = [
        f"- {measure.name}:\n" + "\n".join(f"  - `{each}`" for each in measure.places)
        for measure in found[now]
        if measure.places and measure.name != "lines of fuaudit/ and plugins/"
    ]
    rooms = next(measure for measure in found[now] if measure.name.startswith("lines of fuaudit"))
    versions = " ".join(version for version in found if version != now)
    return "\n".join(
        [
            "# The house, measured\n",
            f"Written by `python benchmarks/house.py --page {versions}` at {now}, from syntax trees.",
            "A measure shows a direction and is no gate.\n",
            f"| | {' | '.join(found)} |",
            f"|---|{'---|' * len(found)}",
            *rows,
            "",
            *textwrap.dedent(RULES).strip().splitlines(),
            "",
            "## What did not fall, and why\n",
            *textwrap.dedent(REASONS).strip().splitlines(),
            "",
            f"## Rooms at {now}, by lines\n",
            ", ".join(rooms.places) + ".\n",
            f"## Places at {now}\n",
            *places,
            "",
        ]
    )


RULES = f"""
- A circle is a group of modules that reach each other by imports, those inside functions included. Imports for type
  checking alone count in the second line.
- A function's lines are those of its body, with the docstring.
- A plugin word is an attribute that is asked for by `getattr` or `hasattr` with a literal name, or in a loop over
  literal names that are in the table of words (b4ca81b has no table). Python's own words and those of its modules do
  not count. A test that an object has a method counts.
- A duplicate is a row of statements of at least {NODES_IN_COMMON} nodes that has the same shape in two functions.
  Names, constants and annotations may differ. Inner functions belong to the outer one.
"""


REASONS = """
b4ca81b is before the house was built, 4c7763c after it, d20287d with the places of a round.

- Lines grow with what can be asked: places of a round, private memories, robust rules, budgets, attacks, and what
  attacks on verdicts have found. The move by itself added 123 (longer names
  wrap), and twins that were joined in the rooms that it moved took 249 away.
- `says`, `must_say` and `offers` of `declared` ask a plugin for its words by its tables, and a name that is in no table
  is an error. What a stranger's part answers is asked for its type. Names that are left in the line above are those of
  errors, files and columns that happen to be called like a word, and of options of fuaudit's own laws.
- What is left of bare `Any` are values of JSON that a shape has been asked of, parts of plugins whose words are read by
  `declared.says`, and axes of a library that has no types.
- Most methods are questions to a thing: a plan, a tree of seeds, a run. A run has its own from five bases, one for each
  kind of its files. Parts in their place would change some two hundred calls.
- The biggest room is `audits`, with a folder for each level that has more than a file. It grows with the levels.
- Duplicates are rows of statements that look alike and ask for different things: `bearing` and `provenance` look at
  the initial segment, two loaders open two files. Twins of one idea were joined.
- Functions and parameters are longest where one place lists all that there is: the fields of a finding, the options of
  a command.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=HERE)
    parser.add_argument("--page", nargs="*", metavar="COMMIT", help=f"write {PAGE}, beside these commits")
    parser.add_argument("--picture", action="store_true", help=f"write {PICTURE}")
    given = parser.parse_args()
    house = opened(given.folder)
    if given.picture:
        (given.folder / PICTURE).write_text(picture(house))
    elif given.page is not None:
        found = {}
        for commit in given.page:
            with tempfile.TemporaryDirectory() as folder:
                found[commit] = measures(at_commit(commit, Path(folder)))
        head = ["git", "-C", str(given.folder), "rev-parse", "--short", "HEAD"]
        now = subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip()
        (given.folder / PAGE).write_text(page(found | {now: measures(house)}, now))
    else:
        for measure in measures(house):
            print(f"{measure.name}: {measure.value}", *measure.places, sep="\n    ")


if __name__ == "__main__":
    main()
