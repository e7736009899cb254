"""The contract of transports whose sums a suite makes: the guide's and fuaudit's keep it, each wrong one is named."""

import importlib.util
import sys
from itertools import count

import pytest
from fuaudit_plugins.secure_sum import SecureSum
from test_guide import listings
from tests_support import broken

from fuaudit.testing import check_transport

RIGHT = listings("docs/plugin-guide.md")["trios.py"]
NUMBERS = count()


def made(folder, *changes):
    """The transport of the guide, with some of its text changed."""
    text = RIGHT
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    name = f"wrong_trios_{next(NUMBERS)}"
    (folder / f"{name}.py").write_text(text)
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Trios()


@pytest.mark.parametrize("right", [SecureSum(), SecureSum(4, 3), SecureSum(3, byzantine=2), SecureSum(17)], ids=repr)
def test_the_transport_that_there_is(right):
    check_transport(right)


REVEAL = "self.books.kept.reveal(context.number, sorted(context.cohort.clients.tolist()))"
TELL = "self.books.kept.tell(context.number, sorted(clients.tolist()), columns.cpu().numpy())"
TOLD = f"            if opened and self.books.kept is not None:\n                {TELL}\n"
BUFFERS = "return [(size, max(size, 3)) for size in sizes]"
SIZES = "size for size, _ in self.buffers(len(places))"
PUT = "return [tuple(places[at] for at in order[a:b])"
MOST = "suite = replace(self.suite, most=max(size for size, _ in self.buffers(len(rows))))"
ANY = "most: ClassVar[int] = 5"
MEAN = "return (summed / rows).to(like)"
ROUNDED = "return (torch.from_numpy(total).to(like) * self.numbers.step_of(len(total))) / rows"
AT = "at = clients[some].tolist(), (context.number, n)"
EACH = "for n, some in opened.items():\n            named"
FAILED = "        opened = {} if failed else opened\n"
OPENED = "        if failed:\n            self.means(rows, opened, context)\n            opened = {}\n"
KEPT = "if self.books.kept is not None:\n            self"


def failing(below):
    """With a word of when rounds fail."""
    word = f"    def fails(self, counted: int, known: int) -> bool:\n        return counted < {below}\n\n"
    return [("    def mean(self", f"{word}    def mean(self")]


WRONG = {
    "no part in the lot": ([(REVEAL, "pass")], "secured: its deliver has no client reveal her part in the lot"),
    "others reveal": ([(REVEAL, REVEAL.replace("tolist())", "tolist()[1:])"))], "reveal their parts in the lot. Call"),
    "revealed in no order": ([(REVEAL, REVEAL.replace("sorted(", "list("))], "ascending, once"),
    "another round": ([(REVEAL, REVEAL.replace("context.number,", "context.number + 1,"))], "ascending, once"),
    "drawn first": (
        [(REVEAL, f"context.shared.permutation('order', 2); {REVEAL}")],
        "secured: its deliver draws by context.shared before clients reveal",
    ),
    "another label": (
        [('lot.permutation("order"', 'lot.permutation("order" if isinstance(places, range) else "other"')],
        "members: it says",
    ),
    "by ascending clients": (
        [("tuple(places[at] for", "tuple((places if isinstance(places, range) else sorted(places))[at] for")],
        "members: it says",
    ),
    "one is left out": (
        [("for a, b in pairwise(ends)]", "for a, b in pairwise(ends)][: None if isinstance(places, range) else -1]")],
        "members: it puts",
    ),
    "another order of buffers": (
        [(BUFFERS, BUFFERS.replace("in sizes", "in reversed(sizes)")),
         (SIZES, SIZES.replace("in self.buffers(len(places))", "in reversed(self.buffers(len(places)))"))],
        "buffers: it says sizes",
    ),
    "opens from two": ([(BUFFERS, "return [(size, 2) for size in sizes]")], "buffers: it says that buffer"),
    "counted from one": ([(AT, AT.replace(", n)", ", n + 1)"))], "buffer 0 of members is opened under the number 1"),
    "those that open are counted": (
        [(EACH, EACH.replace("opened.items()", "enumerate(opened.values())"))],
        "where n counts all buffers of the round from 0, also those that are not opened",
    ),
    "of another round": ([(AT, AT.replace("(context.number", "(context.number - 1"))], "say at=(context.number, n)"),
    "the most of any round": ([(MOST, "suite = self.suite")], "Take replace(suite, most=largest) in each round"),
    "too small a most": ([(ANY, ANY.replace("5", "4"))], "summable: it says that a buffer has 4 clients at most, and"),
    "twice the mean": ([(MEAN, MEAN.replace("/ rows", "/ rows * 2"))], "mean_of: of a sum of"),
    "a mean in float32": ([(MEAN, ROUNDED)], "mean_of: of a sum of"),
    "added up in float32": ([("rows.double().sum(0)", "rows.sum(0)")], "mean_of: of a sum of"),
    "means in another order": (
        [("return means", "return means[::-1]"), ("in opened.values()]", "in reversed(opened.values())]")],
        "mean_of: of a sum of",
    ),
    "delivers otherwise": (
        [("return means", "return [2 * mean for mean in means]")],
        "secured: it makes other deliveries than in_the_clear, bit",
    ),
    "needs a keeper": (
        [("opened(whole, ", "opened(whole if self.books.kept else whole + (whole < 9), ")],
        "secured: it makes other deliveries than in_the_clear where books.kept is None",
    ),
    "fails without a keeper": ([(KEPT, KEPT.replace("self.books.kept is not None", "True"))], "no attribute 'reveal'"),
    "columns are not told": ([(TELL, "pass")], "call books.kept.tell"),
    "columns are told twice": ([(TOLD, TOLD + TOLD)], "once and before the first sum"),
    "columns are told without a sum": ([("if opened and self.books.kept", "if self.books.kept")], "a sum is opened"),
    "no digest of columns": ([("coordinates=digest", "coordinates=None")], "coordinates=coordinates_digest(columns)"),
    "other bits": ([("opened(whole, self.bits,", "opened(0 * whole, 12,")], "with 12 bits of a value, and summable"),
    "opened for nothing": ([(FAILED, OPENED)], "secured: it opens"),
    "says that rounds fail": (failing(2), "fails: with 1 sums left"),
    "says nothing of sums": ([("context.tell(Summed(", "(Summed(")], "Tell Summed once, of all buffers"),
    "says wrongly how many": ([("len(drawn) - len(opened), failed", "0, failed")], "Tell how many were discarded"),
    "another suite": ([("Suite(suite,", 'Suite("mask",')], "terms: the terms have another suite"),
    "too many bits": ([("return self.numbers.bits", "return self.numbers.bits + 1")], "a secure sum have 2 to 24 bits"),
    "rows are doubled": ([("numbers(rows[some],", "numbers(rows[some] * 2,")], "leaves what it does not declare"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named(tmp_path, changes, words):
    broken(check_transport, made(tmp_path, *changes), words)


@pytest.mark.parametrize(
    "changes",
    [
        [],
        [(PUT, "return [tuple(sorted((places[at] for at in order[a:b]), reverse=True))")],
        failing(1),
    ],
    ids=["the guide's", "members in another order", "a true word of failing"],
)  # fmt: skip
def test_the_guides_transport_and_others_like_it(tmp_path, changes):
    check_transport(made(tmp_path, *changes))
