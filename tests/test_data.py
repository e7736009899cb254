"""Data sets from files in their real formats, owners, and partitions.

With FUAUDIT_DATA=ROOT, where ROOT holds shakespeare/roles.json.gz, the real texts are read as well.
"""

import gzip
import json
import os
import shutil
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.stats import beta, kstest
from sklearn.datasets import load_digits

from fuaudit import registry
from fuaudit.data import images
from fuaudit.data.dataset import Dataset, padded, require_sound
from fuaudit.data.images import Cifar10, Cifar100, Digits
from fuaudit.data.leaf import Femnist, Shakespeare
from fuaudit.data.partition import ByOwner, DirichletByClass, Iid, KClasses, OneHolder, Shards, TwoLevel, partition
from fuaudit.data.tensors import Tensors
from fuaudit.data.text import ALPHABET, MOST_TEXT, OTHER, TOKENS, ShakespeareRoles, encode, windows
from fuaudit.draws import Keyed
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.plans import Population, Request
from fuaudit.runs.encoding import population_of, population_tensors
from fuaudit.runs.names import request_of
from fuaudit.verification.verify import verify
from fuaudit.workflow.prune import prune
from fuaudit.workflow.train import train
from fuaudit.workflow.unlearn import unlearn

ROOT = os.environ.get("FUAUDIT_DATA")
SECRET = b"fuaudit: the key of a data test "


def random(seed=0):
    return np.random.Generator(np.random.Philox(seed))


def labelled(targets, owners=None):
    """A data set of which only targets and owners matter."""
    rows = torch.zeros(len(targets), 1)
    column = torch.as_tensor(np.asarray(targets, dtype=np.int64))
    held = None if owners is None else torch.as_tensor(np.asarray(owners, dtype=np.int64))
    return Dataset(rows, column, rows[:1], column[:1], int(column.max()) + 1, owners=held)


class TestText:
    def test_tokens_are_places_in_a_fixed_alphabet(self):
        assert len(ALPHABET) == 96
        assert (OTHER, TOKENS) == (96, 97)
        text = "To be,\nor not — to be\ud800\U0001f600?\t"
        expected = [ALPHABET.index(c) if c in ALPHABET else OTHER for c in text]
        assert encode(text).tolist() == expected
        assert encode(text).dtype == torch.uint8
        assert encode("").tolist() == []
        assert encode(ALPHABET).tolist() == list(range(96))

    @pytest.mark.parametrize("width", [1, 3, 8])
    @pytest.mark.parametrize("stride", [1, 3, 5, 20])
    @pytest.mark.parametrize("length", [0, 1, 3, 4, 8, 9, 17])
    def test_windows_are_what_a_loop_cuts(self, length, width, stride):
        text = random().integers(97, size=length).astype(np.uint8)
        inputs, targets = windows(torch.from_numpy(text), width, stride)
        starts = [at for at in range(0, length, stride) if at + width < length]
        assert inputs.tolist() == [text[at : at + width].tolist() for at in starts]
        assert targets.tolist() == [int(text[at + width]) for at in starts]
        assert inputs.shape == (len(starts), width)


def write_roles(root, content):
    (root / "shakespeare").mkdir(exist_ok=True)
    (root / "shakespeare/roles.json.gz").write_bytes(content)
    return root


def roles(texts):
    return gzip.compress(json.dumps(texts).encode())


class TestShakespeareRoles:
    TEXTS: ClassVar = {"B": "".join(map(str, range(10))) * 10, "A": "abcde" * 40, "short": "x" * 10}

    def test_a_window_is_a_sample_and_a_role_an_owner(self, tmp_path):
        data = ShakespeareRoles(window=20, stride=7, test_stride=5).load(write_roles(tmp_path, roles(self.TEXTS)))
        assert data.owner_names == ("A", "B", "short")
        cut = {name: text[: len(text) - len(text) // 5] for name, text in self.TEXTS.items()}
        rest = {name: text[len(text) - len(text) // 5 :] for name, text in self.TEXTS.items()}
        expected, owners = [], []
        for owner, name in enumerate(data.owner_names):
            starts = [at for at in range(0, len(cut[name]), 7) if at + 20 < len(cut[name])]
            expected += [(cut[name][at : at + 20], cut[name][at + 20]) for at in starts]
            owners += [owner] * len(starts)
        found = [
            ("".join(ALPHABET[t] for t in row), ALPHABET[target])
            for row, target in zip(data.inputs.tolist(), data.targets.tolist(), strict=True)
        ]
        assert found == expected
        assert data.owners.tolist() == owners
        assert (data.inputs.dtype, data.targets.dtype, data.classes) == (torch.uint8, torch.int64, 97)
        tests = {"".join(ALPHABET[t] for t in row) for row in data.test_inputs.tolist()}
        assert tests
        alphabets = ["".join(ALPHABET[t] for t in row) in rest["A"] for row in data.test_inputs.tolist()]
        assert alphabets == [owner == 0 for owner in data.test_owners.tolist()]
        assert all(any(window in text for text in rest.values()) for window in tests)

    def test_the_first_owners_alone(self, tmp_path):
        root = write_roles(tmp_path, roles(self.TEXTS))
        data = ShakespeareRoles(window=20, owners=1, test_stride=1).load(root)
        assert data.owner_names == ("A",)
        assert data.size == 2  # windows begin every 80 of 160 characters
        assert len(data.test_inputs) == 20
        assert set(data.owners.tolist()) == set(data.test_owners.tolist()) == {0}

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (roles({"A": "text"})[:-9], "cut short or is no gzipped JSON"),
            (gzip.compress(b"{"), "cut short or is no JSON"),
            (b'{"A": "text"}', "cut short or is no gzipped JSON"),
            (gzip.compress(b"\xff\xfe\xfa"), "cut short or is no JSON"),
            (roles(["text"]), "one object of role -> text"),
            (roles({"A": 3}), "one object of role -> text"),
            (roles({}), "one object of role -> text"),
            (roles({"A": "x" * 80}), "no role with more than 80 characters to train on"),
            (roles({"A": "x" * 200}), "no role with more than 80 characters to test on"),
            (gzip.compress(b"[" * 10**6), "cut short or is no JSON: maximum recursion"),
            (gzip.compress(b'{"A": "x", "A": "y"}'), "the key 'A' occurs twice"),
            (gzip.compress(bytes(MOST_TEXT + 1), 1), "more than 64 MiB of text"),
        ],
        ids=lambda value: value if isinstance(value, str) else "content",  # gzip writes the time into its bytes
    )
    def test_what_is_no_such_file_is_refused(self, tmp_path, content, said):
        with pytest.raises(UsageError, match=said):
            ShakespeareRoles().load(write_roles(tmp_path, content))

    def test_what_is_missing_is_named(self, tmp_path):
        with pytest.raises(UsageError, match=r"there is no .*roles\.json\.gz(.|\n)*--data"):
            ShakespeareRoles().load(tmp_path)
        with pytest.raises(UsageError, match="--data ROOT"):
            ShakespeareRoles().load(None)
        for options in ({"window": 0}, {"stride": 0}, {"test_stride": -1}, {"owners": 0}):
            with pytest.raises(UsageError, match="at least 1"):
                ShakespeareRoles(**options)

    @pytest.mark.skipif(not ROOT, reason="set FUAUDIT_DATA to a folder that holds shakespeare/roles.json.gz")
    def test_the_real_texts(self):
        data = ShakespeareRoles().load(Path(ROOT))
        assert len(data.owner_names) == 658
        assert (data.size, len(data.test_inputs)) == (41_642, 2_293)
        assert data.inputs.numel() * data.inputs.element_size() < 4_000_000
        dense = ShakespeareRoles(stride=1).load(Path(ROOT))
        assert dense.size == 3_305_423
        assert dense.inputs.element_size() == 1
        assert len(partition(ByOwner(minimum=100), data, Keyed(SECRET)).clients) == 137


def leaf_file(users, lists):
    counts = [len(lists[user][1]) for user in users]
    return {
        "users": users,
        "num_samples": counts,
        "user_data": {user: {"x": lists[user][0], "y": lists[user][1]} for user in users},
    }


def write_leaf(root, name, train_files, test_files):
    for kind, files in (("train", train_files), ("test", test_files)):
        folder = root / name / "data" / kind
        folder.mkdir(parents=True)
        for number, content in enumerate(files):
            text = content if isinstance(content, str) else json.dumps(content)
            (folder / f"all_data_{number}_niid_0_keep_100_{kind}_9.json").write_text(text)
    return root


def writers(users):
    """user -> images and labels; every number of an image tells the user and the place."""
    return {
        user: (
            [[(10 * at + place) / 100] * 784 for place in range(count)],
            [(at + place) % 62 for place in range(count)],
        )
        for at, (user, count) in enumerate(users.items())
    }


class TestFemnist:
    LISTS = writers({"f3_w": 2, "f1_w": 3, "f2_w": 1, "f0_none": 0})

    def load(self, root, **options):
        files = [leaf_file(["f3_w", "f0_none"], self.LISTS), leaf_file(["f1_w", "f2_w"], self.LISTS)]
        test = writers({"f1_w": 1, "f3_w": 2})
        return Femnist(**options).load(write_leaf(root, "femnist", files, [leaf_file(list(test), test)]))

    def test_writers_are_owners_in_the_order_of_names(self, tmp_path):
        data = self.load(tmp_path)
        assert data.owner_names == ("f1_w", "f2_w", "f3_w")
        assert data.owners.tolist() == [0, 0, 0, 1, 2, 2]
        assert data.targets.tolist() == [1, 2, 3, 2, 0, 1]
        assert data.inputs[:, 0, 0, 0].tolist() == pytest.approx([0.10, 0.11, 0.12, 0.20, 0.00, 0.01])
        assert (data.shape, data.inputs.dtype, data.classes) == ((1, 28, 28), torch.float32, 62)
        assert data.test_targets.tolist() == [0, 1, 2]
        assert data.test_owners.tolist() == [0, 2, 2]

    def test_the_first_owners_alone(self, tmp_path):
        data = self.load(tmp_path, owners=1)
        assert (data.owner_names, data.size, len(data.test_targets)) == (("f1_w",), 3, 1)
        with pytest.raises(UsageError, match="at least 1"):
            Femnist(owners=0)

    def test_the_first_owners_are_those_of_training(self, tmp_path):
        """Test files may hold others, earlier by name: their rows are not those of the owners that were asked for."""
        train, test = writers({"b": 2, "c": 2}), writers({"a": 3, "b": 1, "c": 1})
        write_leaf(tmp_path, "femnist", [leaf_file(["b", "c"], train)], [leaf_file(["a", "b", "c"], test)])
        data = Femnist(owners=1).load(tmp_path)
        assert data.owner_names == ("b",)
        assert data.test_inputs[:, 0, 0, 0].tolist() == pytest.approx([0.1])
        write_leaf(tmp_path / "other", "femnist", [leaf_file(["b"], train)], [leaf_file(["a"], test)])
        with pytest.raises(UsageError, match="hold no sample of the 1 users"):
            Femnist(owners=1).load(tmp_path / "other")

    GOOD = leaf_file(["a"], {"a": ([[0.5] * 784], [3])})

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            ('{"users": ["a"], "num_sam', "cut short or is no JSON"),
            (GOOD | {"num_samples": [2]}, "'a' shall have 2 samples, not 1, 1"),
            (GOOD | {"num_samples": []}, "not in LEAF's form"),
            (GOOD | {"user_data": {}}, "do not name the same users"),
            (GOOD | {"user_data": {"a": {}}}, "not in LEAF's form"),
            ([1, 2], "not in LEAF's form"),
            (leaf_file(["a"], {"a": ([[0.5] * 783], [3])}), "samples of user 'a' are not femnist's"),
            *((leaf_file(["a"], {"a": ([[0.5] * 784], [y])}), "from 0 to 61") for y in (62, -1, 3.7, "3", True, [3])),
            *(
                (leaf_file(["a"], {"a": ([[x] * 784], [3])}), "outside 0 to 1")
                for x in (200, -1e30, float("nan"), float("inf"))
            ),
            *(
                (leaf_file(["a"], {"a": ([[x] * 784], [3])}), "not a list of 784 numbers")
                for x in ("0.5", True, None, [0.5])
            ),
            (leaf_file(["a"], {"a": ([[[0.5] * 28] * 28], [3])}), "not a list of 784 numbers"),
            (leaf_file(["a"], {"a": ("x", [3])}), "x and y of user 'a' must be lists"),
            (GOOD | {"users": ["a", "a"], "num_samples": [1, 1]}, "'a' is listed twice in users"),
            (GOOD | {"user_data": GOOD["user_data"] | {"b": {"x": [], "y": []}}}, "do not name the same users"),
            ('{"users": [], "users": ["a"]}', "the key 'users' occurs twice"),
            ("[" * 100_000, "cut short or is no JSON: maximum recursion"),
            (leaf_file(["a"], {"a": ([["x"] * 784], [3])}), "samples of user 'a' are not femnist's"),
            (leaf_file(["a"], {"a": ([], [])}), "hold no sample"),
        ],
    )
    def test_what_is_no_such_file_is_refused(self, tmp_path, content, said):
        write_leaf(tmp_path, "femnist", [content], [self.GOOD])
        with pytest.raises(UsageError, match=said) as error:
            Femnist().load(tmp_path)
        assert str(tmp_path / "femnist/data/train") in str(error.value)

    def test_a_user_in_two_files_is_refused(self, tmp_path):
        write_leaf(tmp_path, "femnist", [self.GOOD, self.GOOD], [self.GOOD])
        with pytest.raises(UsageError, match="user 'a' was in an earlier file"):
            Femnist().load(tmp_path)

    def test_what_is_missing_is_named(self, tmp_path):
        with pytest.raises(UsageError, match="--data ROOT"):
            Femnist().load(None)
        with pytest.raises(UsageError, match=r"no files \*\.json in .*femnist/data/train(.|\n)*LEAF"):
            Femnist().load(tmp_path)
        write_leaf(tmp_path, "femnist", [self.GOOD], [])
        with pytest.raises(UsageError, match="femnist/data/test"):
            Femnist().load(tmp_path)


class TestLeafShakespeare:
    def test_windows_become_tokens(self, tmp_path):
        text = "O, she doth teach the torches to burn bright! It seems she hangs upon the cheek of night — "
        lists = {"ROMEO": ([text[at : at + 80] for at in range(9)], [text[at + 80] for at in range(9)])}
        write_leaf(tmp_path, "shakespeare", [leaf_file(["ROMEO"], lists)], [leaf_file(["ROMEO"], lists)])
        data = Shakespeare().load(tmp_path)
        assert torch.equal(data.inputs, encode(text)[:89].unfold(0, 80, 1)[:9])
        assert data.targets.tolist() == encode(text)[80:89].tolist()
        assert (data.inputs.dtype, data.shape, data.owner_names) == (torch.uint8, (80,), ("ROMEO",))

    @pytest.mark.parametrize(
        "lists",
        [
            (["ab", "abc"], ["c", "d"]),
            (["ab", "bc"], ["c", "de"]),
            ([1, 2], ["a", "b"]),
            (["ab"], [7]),
            ([["a", "b"]], ["c"]),
            (["ab"], [["c"]]),
            (["", ""], ["a", "b"]),
        ],
    )
    def test_what_is_no_text_is_refused(self, tmp_path, lists):
        good = leaf_file(["a"], {"a": (["ab"], ["c"])})
        write_leaf(tmp_path, "shakespeare", [leaf_file(["a"], {"a": lists})], [good])
        with pytest.raises(UsageError, match="samples of user 'a' are not shakespeare's"):
            Shakespeare().load(tmp_path)

    def test_users_must_have_windows_of_one_length(self, tmp_path):
        files = [leaf_file(["a", "b"], {"a": (["ab"], ["c"]), "b": (["abc"], ["d"])})]
        write_leaf(tmp_path, "shakespeare", files, files)
        with pytest.raises(UsageError, match="several shapes"):
            Shakespeare().load(tmp_path)


def records(count, label_bytes, seed):
    rows = random(seed).integers(256, size=(count, label_bytes + 3072)).astype(np.uint8)
    rows[:, :label_bytes] %= 10
    return rows


class Few10(Cifar10):
    rows = (15, 2)


class Few100(Cifar100):
    rows = (3, 2)


class TestCifar:
    def binary(self, plugin, root):
        each = plugin.rows[0] // len(plugin.train_files)
        (root / plugin.binary).mkdir()
        rows = {name: records(each, plugin.label_bytes, at) for at, name in enumerate(plugin.train_files)}
        rows |= {name: records(2, plugin.label_bytes, 90) for name in plugin.test_files}
        for name, content in rows.items():
            (root / plugin.binary / name).write_bytes(content.tobytes())
        return rows

    @pytest.mark.parametrize("plugin", [Few10(), Few100()])
    def test_the_binary_version(self, tmp_path, plugin):
        rows = self.binary(plugin, tmp_path)
        data = plugin.load(tmp_path)
        every = np.concatenate([rows[name] for name in plugin.train_files])
        assert data.targets.tolist() == every[:, plugin.label_bytes - 1].tolist()
        assert (data.size, data.shape, len(data.test_targets)) == (len(every), (3, 32, 32), 2)
        for at in ((0, 0, 0), (1, 0, 5), (2, 31, 31)):
            place = plugin.label_bytes + at[0] * 1024 + at[1] * 32 + at[2]
            assert torch.equal(data.inputs[:, *at], torch.from_numpy(every[:, place].astype(np.float32) / 255))

    def test_broken_records_are_refused(self, tmp_path):
        self.binary(Few10(), tmp_path)
        path = tmp_path / Cifar10.binary / "data_batch_3.bin"
        content = path.read_bytes()
        cut = "cut short or has surplus"
        for broken, said in (
            (content[:-1], cut),
            (b"", cut),
            (content[:-3073], cut),
            (content + content[:3073], cut),
            (b"\x0a" + content[1:], "class 10 is"),
        ):
            path.write_bytes(broken)
            with pytest.raises(UsageError, match=said):
                Few10().load(tmp_path)
        path.write_bytes(content)
        with pytest.raises(UsageError, match="cut short"):
            Cifar10().load(tmp_path)  # 15 images are not the authors' 50,000
        path.unlink()
        with pytest.raises(UsageError, match=r"cannot read .*data_batch_3\.bin"):
            Few10().load(tmp_path)

    def test_what_is_missing_is_named(self, tmp_path):
        with pytest.raises(UsageError, match="--data ROOT"):
            Cifar10().load(None)
        with pytest.raises(UsageError, match=r"no .*cifar-100-binary(.|\n)*cifar-100-binary\.tar\.gz"):
            Cifar100().load(tmp_path)

    @pytest.mark.parametrize("options", [{}, {"download": True}])
    def test_a_folder_of_pickles_is_not_read_and_nothing_is_fetched(self, tmp_path, options):
        folder = tmp_path / "cifar-10-batches-py"
        folder.mkdir()
        for name in [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch", "batches.meta"]:
            (folder / name).write_bytes(f"cos\nmkdir\n(S'{tmp_path}/executed'\ntR.".encode())
        with pytest.raises(UsageError, match=r"no option 'download'|cifar-10-binary\.tar\.gz"):
            registry.build("datasets", {"use": "cifar-10", **options}).load(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["cifar-10-batches-py"]

    def test_an_audit_of_a_run_that_asks_for_a_download_does_not_begin(self, fuaudit, trained, reseal, tmp_path):
        """The config is the run's own: it cannot make the auditor's machine fetch or unpickle anything."""
        shutil.copytree(trained.path, tmp_path / "run")
        config = tmp_path / "run/config.toml"
        config.write_text(config.read_text().replace('use = "digits"', 'use = "cifar-10"\ndownload = true'))
        reseal(tmp_path / "run")
        (tmp_path / "data").mkdir()
        code, _, err = fuaudit("verify", tmp_path / "run", "--data", tmp_path / "data")
        assert (code, "has no option 'download'" in err) == (4, True)
        assert not list((tmp_path / "data").iterdir())


class TestTensors:
    def write(self, root, **tensors):
        base = {
            "inputs": torch.arange(12, dtype=torch.int32).view(4, 3),
            "targets": torch.tensor([0, 1, 0, 1]),
            "test_inputs": torch.zeros(1, 3, dtype=torch.int32),
            "test_targets": torch.zeros(1, dtype=torch.int64),
        }
        save_file(base | tensors, root / "data.safetensors")
        return root

    def test_integers_and_owners_under_stable_ids(self, tmp_path):
        ids, owners = torch.tensor([4, 0, 2, 1]), torch.tensor([1, 0, 0, 1])
        data = padded(Tensors(2).load(self.write(tmp_path, ids=ids, owners=owners)), 6)
        assert padded(data, 3) is data
        gone = torch.iinfo(torch.int32).max
        assert data.inputs.tolist() == [[3, 4, 5], [9, 10, 11], [6, 7, 8], [gone] * 3, [0, 1, 2], [gone] * 3]
        assert data.owners.tolist() == [0, 1, 0, -1, 1, -1]
        assert data.absent == {3, 5}
        require_sound(data)
        with pytest.raises(UsageError, match="2 of 6 rows are not at hand"):
            partition(ByOwner(), data, Keyed(SECRET))

    def test_a_run_cannot_choose_how_much_memory_is_used(self, tmp_path):
        data = Tensors(2).load(self.write(tmp_path))
        with pytest.raises(UsageError, match="99999996 rows are missing beside the 4 at hand"):
            padded(data, 10**8)
        with pytest.raises(UsageError, match="rows are missing"):
            Tensors(2).load(self.write(tmp_path, ids=torch.tensor([0, 1, 2, 2**40])))

    @pytest.mark.parametrize(
        ("tensors", "said"),
        [
            ({"ids": torch.tensor([0, 1, 2, -1])}, "one id of its own, from 0"),
            ({"ids": torch.tensor([0, 1, 2, 2])}, "one id of its own"),
            ({"ids": torch.tensor([0, 1, 2])}, "one id of its own"),
            ({"ids": torch.tensor([0.0, 1, 2, 3])}, "ids must be integers"),
            ({"targets": torch.tensor([0.0, 1, 0, 1])}, "targets must be integers"),
            ({"targets": torch.tensor([True, False, True, True])}, "targets must be integers"),
            ({"targets": torch.zeros(4, 1, dtype=torch.int64)}, "targets must be integers"),
            ({"targets": torch.tensor([0, 1])}, "do not fit together"),
            ({"inputs": torch.zeros(4)}, "cannot be used"),
            ({"inputs": torch.zeros(4, 3, dtype=torch.bool)}, "cannot be used"),
            ({"inputs": torch.zeros(4, 3, dtype=torch.bfloat16)}, "cannot be used"),
            ({"inputs": torch.zeros(0, 3), "targets": torch.zeros(0, dtype=torch.int64)}, "cannot be used"),
            ({"test_targets": torch.tensor([0.5])}, "test_targets must be integers"),
            ({"more": torch.zeros(4, 3)}, "holds tensors that nothing reads: more"),
            ({"lines": torch.zeros(4, 3)}, "lines must be integers"),
            ({"lines": torch.zeros(4, 3, dtype=torch.int64)}, "lines must be integers"),
            ({"lines": torch.arange(9)}, "one line of a file for each of the targets"),
            ({"test_lines": torch.zeros(2)}, "test_lines must be integers"),
            ({"test_lines": torch.arange(9)}, "one line of a file for each of the test_targets"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, tmp_path, tensors, said):
        with pytest.raises(UsageError, match=said):
            Tensors(2).load(self.write(tmp_path, **tensors))

    @pytest.mark.parametrize("notes", [{"rows": "[[1, 2, 3]]"}, {"format": "[[1, 2, 3]]"}, {"format": "pt", "x": ""}])
    def test_notes_in_its_header_are_refused(self, tmp_path, notes):
        path = self.write(tmp_path) / "data.safetensors"
        save_file(load_file(path), path, metadata=notes)
        with pytest.raises(UsageError, match="notes that nothing reads"):
            Tensors(2).load(tmp_path)
        save_file(load_file(path), path, metadata={"format": "pt"})  # many programs write that
        assert Tensors(2).load(tmp_path).size == 4

    @pytest.mark.parametrize("more", [b" \t\n\r" * 20, b" " * 72])
    def test_a_header_of_spaces_is_refused(self, tmp_path, more):
        path = self.write(tmp_path) / "data.safetensors"
        content = path.read_bytes()
        end = 8 + int.from_bytes(content[:8], "little")
        header = content[8:end]
        spaced = json.dumps(json.loads(header)).encode()
        spaced += b" " * (-len(spaced) % 8)
        path.write_bytes(len(spaced).to_bytes(8, "little") + spaced + content[end:])
        assert Tensors(2).load(tmp_path).size == 4  # as other programs may write it
        path.write_bytes((len(header) + len(more)).to_bytes(8, "little") + header + more + content[end:])
        with pytest.raises(UsageError, match="header is longer than what it says"):
            Tensors(2).load(tmp_path)

    def test_more_words_on_a_tensor_in_its_header_are_refused(self, tmp_path):
        path = self.write(tmp_path) / "data.safetensors"
        content = path.read_bytes()
        end = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:end])
        header["targets"]["rows"] = "[[1, 2, 3]]"
        longer = json.dumps(header).encode()
        longer += b" " * (-len(longer) % 8)
        path.write_bytes(len(longer).to_bytes(8, "little") + longer + content[end:])
        with pytest.raises(UsageError, match="says more of a tensor than data_offsets, dtype, shape"):
            Tensors(2).load(tmp_path)

    def test_what_is_no_such_file_is_refused(self, tmp_path):
        (tmp_path / "data.safetensors").write_bytes(b"no tensors")
        with pytest.raises(UsageError, match="is no safetensors file"):
            Tensors(2).load(tmp_path)
        for root, said in ((None, "there is no data.safetensors"), (tmp_path / "x", f"there is no {tmp_path}/x/data")):
            with pytest.raises(UsageError, match=said):
                Tensors(2).load(root)

    def test_owners_must_fit(self, tmp_path):
        with pytest.raises(UsageError, match="one owner a training row"):
            Tensors(2).load(self.write(tmp_path, owners=torch.tensor([1, 0])))
        with pytest.raises(UsageError, match="4 samples cannot have owners of shape"):
            Dataset(torch.zeros(4, 1), torch.zeros(4), torch.zeros(1, 1), torch.zeros(1), 2, owners=torch.zeros(3))


WHOLE = {
    "inputs": torch.rand(4, 3, generator=torch.Generator().manual_seed(0)),
    "targets": torch.tensor([0, 1, 0, 1]),
    "test_inputs": torch.zeros(2, 3),
    "test_targets": torch.tensor([0, 1]),
    "classes": 2,
}
TOKENS_IN = {"inputs": torch.ones(4, 3, dtype=torch.uint8), "test_inputs": torch.ones(2, 3, dtype=torch.uint8)}


def with_one(inputs, number):
    return torch.cat([inputs[:1].new_full((1, 3), number), inputs[1:]])


class TestSoundness:
    def test_whole_data_is_sound(self):
        require_sound(Dataset(**WHOLE))
        require_sound(Dataset(**WHOLE | TOKENS_IN))
        marked = WHOLE | {"inputs": with_one(WHOLE["inputs"], torch.nan)}
        require_sound(Dataset(**marked, absent=frozenset({0})))

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"targets": torch.tensor([0, 1, -100, 1])}, "training target is -100, outside 0 to 1"),
            ({"targets": torch.tensor([0, 1, 2, 1])}, "training target is 2, outside"),
            ({"targets": torch.tensor([0, 1])}, "4 training rows need as many targets"),
            ({"targets": torch.zeros(4, 1, dtype=torch.int64)}, "need as many targets"),
            ({"targets": torch.zeros(4)}, "not torch.float32"),
            ({"test_targets": torch.tensor([0, 200])}, "test target is 200"),
            ({"test_targets": torch.tensor([0])}, "2 test rows need as many targets"),
            ({"test_inputs": torch.zeros(2, 4)}, r"test inputs torch\.float32 of shape \(4,\)"),
            ({"test_inputs": torch.zeros(2, 3, dtype=torch.float64)}, r"test inputs torch\.float64"),
            ({"test_inputs": torch.zeros(0, 3), "test_targets": torch.zeros(0, dtype=torch.int64)}, "no test rows"),
            ({"inputs": torch.zeros(4)}, "no training rows, or no numbers"),
            ({"inputs": torch.zeros(4, 0)}, "no numbers"),
            ({"inputs": torch.zeros(4, 3, dtype=torch.complex64)}, "training inputs are torch.complex64"),
            ({"test_inputs": torch.zeros(2, 3, dtype=torch.bool)}, "test inputs are torch.bool"),
            ({"inputs": WHOLE["inputs"].numpy()}, "inputs must be a torch tensor, not numpy.ndarray"),
            ({"test_targets": [0, 1]}, "test_targets must be a torch tensor, not list"),
            ({"owners": WHOLE["targets"].numpy()}, "owners must be a torch tensor"),
            ({"classes": "2"}, "classes must be a whole number, not str"),
            ({"inputs": with_one(WHOLE["inputs"], torch.nan)}, "training row 0 are NaN or infinite"),
            ({"test_inputs": with_one(WHOLE["test_inputs"], -torch.inf)}, "test row 0 are NaN or infinite"),
            (TOKENS_IN | {"inputs": with_one(TOKENS_IN["inputs"], 255)}, "or 255, the mark of erased rows"),
            ({"inputs": -torch.ones(4, 3).long(), "test_inputs": torch.ones(2, 3).long()}, "below 0"),
            ({"absent": frozenset({4})}, "cannot be the absent ones"),
            ({"absent": frozenset(range(4))}, "cannot be the absent ones"),
            ({"owners": torch.tensor([0, -2, 0, 0])}, "owners must be int64"),
            ({"owners": torch.zeros(4)}, "owners must be int64"),
        ],
    )
    def test_what_is_wrong_is_said_before_a_folder_is_made(self, tmp_path, tiny, changes, said):
        with pytest.raises(UsageError, match=said):
            train(tiny.tables, tmp_path / "run", data=Dataset(**WHOLE | changes), secret=SECRET)
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize(
        ("dataset", "said"),
        [
            (Dataset(**WHOLE), "an embedding reads tokens"),
            (
                Dataset(
                    **WHOLE
                    | {"inputs": torch.full((4, 3), 7, dtype=torch.uint8)}
                    | {"test_inputs": TOKENS_IN["test_inputs"]}
                ),
                "token 7; the model knows 0 to 6",
            ),
            (Dataset(**WHOLE | TOKENS_IN | {"test_inputs": torch.full((2, 3), 9, dtype=torch.uint8)}), "token 9"),
        ],
    )
    def test_a_model_must_know_the_tokens(self, tmp_path, tiny, dataset, said):
        tables = tiny.tables | {"model": {"use": "lstm", "tokens": 7, "width": 2, "hidden": 2, "layers": 1}}
        with pytest.raises(UsageError, match=said):
            train(tables, tmp_path / "run", data=dataset, secret=SECRET)
        assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def handed_over(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("handover")
    data = tiny.dataset
    every = {n: getattr(data, n).clone() for n in ("inputs", "targets", "test_inputs", "test_targets")}
    (folder / "all").mkdir()
    save_file(every, folder / "all/data.safetensors")
    run = train(tiny.tables, folder / "run", data=folder / "all", secret=SECRET)
    last = run.plan.retained.owner[11]
    child = unlearn(run, "fats", Request.of([last]), folder / "child", data=folder / "all")
    noop = unlearn(run, "noop", Request.of([last]), folder / "noop", data=folder / "all")
    kept = torch.tensor(sorted(child.plan.retained.owner))
    rows = {n: every[n][kept] for n in ("inputs", "targets")}
    (folder / "kept").mkdir()
    save_file(every | rows | {"ids": kept}, folder / "kept/data.safetensors")
    return folder, child, noop


class TestHandOver:
    """Retained rows alone, in ``tensors``: whoever holds them cannot know how many rows there were."""

    def verdicts(self, run, spec, **folders):
        return {f.audit: str(f.verdict) for f in verify(run, spec, save=False, **folders).findings}

    def test_the_last_row_may_be_among_the_erased(self, handed_over, quick):
        folder, child, noop = handed_over
        assert 11 not in Tensors(2).load(folder / "kept").absent  # the folder cannot know of it
        for folders in ({}, {"erased": folder / "all"}):
            found = self.verdicts(child, quick, data=folder / "kept", **folders)
            assert found == self.verdicts(child, quick, data=folder / "all")
            assert found["replay"] == "PASS"
            assert self.verdicts(noop, quick, data=folder / "kept", **folders)["replay"] == "FAIL"

    def test_retained_rows_are_enough_to_go_on(self, handed_over):
        folder, child, _ = handed_over
        other = child.plan.retained.clients[0]
        again = unlearn(child, "noop", Request.of([other]), folder / "again", data=folder / "kept")
        assert again.plan.retained.clients == child.plan.retained.clients[1:]

    def test_after_a_prune_the_ids_are_unknown_and_the_rows_still_suffice(self, handed_over, quick):
        folder, child, _ = handed_over
        request = child.request
        pruned, _ = prune(
            unlearn(folder / "run", "fats", request, folder / "pruned", data=folder / "all"), allow_orphans=True
        )
        assert pruned.rows == 12
        found = self.verdicts(pruned, quick, data=folder / "kept")
        assert found == self.verdicts(pruned, quick, data=folder / "all")
        assert "ERROR" not in found.values()

    def test_other_data_beside_it_is_refused(self, handed_over, quick, tmp_path):
        folder, child, _ = handed_over
        other = {"inputs": torch.zeros(2, 5), "targets": torch.tensor([0, 1])}
        save_file(
            other | {"test_inputs": torch.zeros(1, 5), "test_targets": torch.tensor([0])}, tmp_path / "data.safetensors"
        )
        with pytest.raises(UsageError, match="their inputs differ in shape"):
            verify(child, quick, data=folder / "kept", erased=tmp_path, save=False)


def test_a_negative_id_cannot_stand_for_a_row(tmp_path):
    """-2 would be another name of a row: retained by it, though erased by its id. -1 stands for no id at all."""
    table = population_tensors(Population({0: (0, 1), 1: (-2,)}))
    with pytest.raises(EvidenceError, match="is not a partition"):
        population_of(table, tmp_path / "partition.safetensors")


LABELS = np.arange(1_200) % 10
ALL = {
    "iid": Iid(30),
    "one-holder": OneHolder(30),
    "dirichlet": registry.build("partitions", {"use": "dirichlet", "clients": 30}),
    "dirichlet-by-class": DirichletByClass(30, 0.5),
    "two-level": TwoLevel(30, ((1, 5, 7), (2,)), 0.5),
    "shards": Shards(30, 2),
    "pure shards": Shards(30, 2, pure=True),
    "k-classes": KClasses(30, 3),
    "by-owner": ByOwner(30),
}


@pytest.mark.parametrize("name", ALL)
class TestEveryPartition:
    DATA = labelled(LABELS, owners=np.arange(1_200) % 47)

    def test_every_client_has_samples_and_no_sample_two_owners(self, name):
        dealt = partition(ALL[name], self.DATA, Keyed(SECRET))
        if name == "by-owner":  # clients keep the numbers of their owners
            assert len(dealt.clients) == 30
            assert all(self.DATA.owners[list(rows)].eq(client).all() for client, rows in dealt.samples.items())
        else:
            assert dealt.clients == tuple(range(30))
        assert all(samples == tuple(sorted(samples)) and samples for samples in dealt.samples.values())
        assert len(dealt.owner) == dealt.size <= 1_200

    def test_the_key_decides(self, name):
        dealt = partition(ALL[name], self.DATA, Keyed(SECRET))
        assert partition(ALL[name], self.DATA, Keyed(SECRET)) == dealt
        assert partition(ALL[name], self.DATA, Keyed(bytes(32))) != dealt

    def test_it_is_registered_with_these_options(self, name):
        plugin = ALL[name]
        entries = registry.entries("partitions").values()
        assert [entry.name for entry in entries if entry.load() is type(plugin)] == [name.removeprefix("pure ")]


@dataclass(frozen=True)
class Deals:
    """A partition of a stranger."""

    hands: tuple

    def deal(self, labels, draws):
        return self.hands


@pytest.mark.parametrize(
    ("hands", "said"),
    [
        (((0, 1), (1, 2)), "one sample to two clients"),
        (((0, 0),), "one sample to two clients"),
        (((0,), ()), "leaves 1 of 2 clients without samples"),
        ((), "leaves all of 0 clients without samples"),
        (((0,), (4,)), "samples that do not exist: there are 0 to 3"),
        (((0,), (-1,)), "samples that do not exist"),
    ],
)
def test_what_a_partition_deals_is_checked(hands, said):
    with pytest.raises(UsageError, match=said):
        partition(Deals(hands), labelled([0, 1, 0, 1]), Keyed(SECRET))


class TestDirichletByClass:
    def test_all_rows_are_dealt_and_sizes_differ(self):
        dealt = partition(DirichletByClass(20, 0.5), labelled(LABELS), Keyed(SECRET))
        assert dealt.size == 1_200
        assert len({len(samples) for samples in dealt.samples.values()}) > 5

    def test_the_minimum_holds(self):
        dealt = partition(DirichletByClass(20, 0.5, minimum=25), labelled(LABELS), Keyed(SECRET))
        assert min(map(len, dealt.samples.values())) >= 25

    def test_shares_of_a_class_have_the_law(self):
        """One class, two clients: the share of the first is Beta(c, c). False alarms: at most 1e-6, keys fixed."""
        for concentration, other in ((2.0, 8.0), (8.0, 2.0)):
            plugin, data = DirichletByClass(2, concentration), labelled(np.zeros(4_000))
            keys = [Keyed(bytes([at % 256, at // 256]) * 16) for at in range(400)]
            shares = [len(partition(plugin, data, key).samples[0]) / 4_000 for key in keys]
            assert kstest(shares, beta(concentration, concentration).cdf).pvalue > 1e-6
            assert kstest(shares, beta(other, other).cdf).pvalue < 1e-6  # another concentration would have been seen

    def test_it_gives_up(self):
        begin = time.monotonic()
        with pytest.raises(UsageError, match="in 1000 draws"):
            partition(DirichletByClass(100, 0.01, minimum=10), labelled(LABELS), Keyed(SECRET))
        assert time.monotonic() - begin < 20
        for wrong in (0.0, float("nan"), float("inf"), 1e308):
            for plugin in (DirichletByClass(3, wrong), TwoLevel(4, ((1,),), wrong)):
                with pytest.raises(UsageError, match="concentration of a Dirichlet partition must be above 0"):
                    partition(plugin, labelled(LABELS), Keyed(SECRET))
        with pytest.raises(UsageError, match="minimum of samples a client must be at least 1"):
            partition(DirichletByClass(3, 1.0, minimum=0), labelled(LABELS), Keyed(SECRET))
        with pytest.raises(UsageError, match="cannot share"):
            partition(DirichletByClass(121, minimum=10), labelled(LABELS), Keyed(SECRET))


class TestTwoLevel:
    def test_groups_differ_and_members_are_alike(self):
        """At most 0.35 inside a group, at least 0.5 between groups, in total variation; the key is fixed."""
        labels = np.tile(LABELS, 10)
        dealt = partition(TwoLevel(10, ((3, 4, 8),), 0.1), labelled(labels), Keyed(SECRET))
        group = {3, 4, 8}
        mixture = {c: np.bincount(labels[list(s)], minlength=10) / len(s) for c, s in dealt.samples.items()}
        assert dealt.size == len(labels)
        for one in mixture:
            for other in mixture:
                gap = np.abs(mixture[one] - mixture[other]).sum() / 2
                assert gap < 0.35 if (one in group) == (other in group) else gap > 0.5
        for members in (group, set(range(10)) - group):
            sizes = [len(dealt.samples[client]) for client in members]
            assert max(sizes) - min(sizes) <= 1

    def test_shares_of_a_group_have_the_law(self):
        """One class: the share of 3 of 10 clients is Beta(0.6 c, 1.4 c). False alarms: at most 1e-6, keys fixed."""
        plugin, data = TwoLevel(10, ((3, 4, 8),), 2.0), labelled(np.zeros(4_000))
        keys = [Keyed(bytes([at % 256, at // 256]) * 16) for at in range(400)]
        shares = [sum(len(partition(plugin, data, key).samples[c]) for c in (3, 4, 8)) / 4_000 for key in keys]
        assert kstest(shares, beta(1.2, 2.8).cdf).pvalue > 1e-6
        assert kstest(shares, beta(2, 2).cdf).pvalue < 1e-6

    def test_all_clients_may_be_named(self):
        dealt = partition(TwoLevel(4, ((0, 2), (1, 3)), 100.0), labelled(LABELS), Keyed(SECRET))
        assert dealt.clients == (0, 1, 2, 3)
        assert all(abs(len(samples) - 300) < 60 for samples in dealt.samples.values())

    @pytest.mark.parametrize("groups", [((1, 1),), ((1,), (1, 2)), ((4,),), ((-1,),), ((),)])
    def test_wrong_groups_are_refused(self, groups):
        with pytest.raises(UsageError, match="groups must be lists of clients 0 to 3"):
            partition(TwoLevel(4, groups), labelled(LABELS), Keyed(SECRET))

    def test_groups_come_from_a_table(self):
        table = {"use": "two-level", "clients": 10, "groups": [[3, 4, 8]]}
        assert registry.build("partitions", table) == TwoLevel(10, ((3, 4, 8),))


class TestShards:
    def test_the_papers_shards(self):
        """MimiC's Table II: 30 clients, 2 of 60 shards of one class: 2,000 and 1,666 samples a client."""
        for rows, size in ((60_000, 2_000), (50_000, 1_666)):
            labels = np.arange(rows) % 10
            dealt = partition(Shards(30, 2, pure=True), labelled(labels), Keyed(SECRET))
            assert {len(samples) for samples in dealt.samples.values()} == {size}
            for samples in dealt.samples.values():
                counts = Counter(labels[list(samples)].tolist())
                assert set(counts.values()) <= {size // 2, size}

    def test_pure_shards_of_unequal_classes(self):
        labels = np.repeat([0, 1, 2], [7, 50, 143])
        dealt = partition(Shards(10, 1, pure=True), labelled(labels), Keyed(SECRET))
        assert {len(samples) for samples in dealt.samples.values()} == {17}  # 0 + 2 + 8 shards; of 18 there are 9
        assert all(len(set(labels[list(samples)].tolist())) == 1 for samples in dealt.samples.values())

    def test_a_shard_may_straddle_two_classes(self):
        labels = np.repeat([0, 1], [30, 10])
        dealt = partition(Shards(2, 1), labelled(labels), Keyed(SECRET))
        assert sorted(labels[list(samples)].sum() for samples in dealt.samples.values()) == [0, 10]
        assert dealt.size == 40

    def test_surplus_shards_stay_unused(self):
        assert partition(Shards(601, 1), labelled(LABELS), Keyed(SECRET)).size == 601

    def test_two_pure_shards_may_be_of_one_class(self):
        """At the paper's setting 30 x 5 / 59 clients on average; 300 deals, the mean within five standard errors."""
        data = labelled(np.arange(600) % 10)
        found = []
        for at in range(300):
            dealt = partition(Shards(30, 2, pure=True), data, Keyed(bytes([at % 256, at // 256]) * 16))
            found.append(sum(len({row % 10 for row in rows}) == 1 for rows in dealt.samples.values()))
        assert abs(np.mean(found) - 30 * 5 / 59) < 5 * np.std(found) / 300**0.5

    @pytest.mark.parametrize("wrong", [Shards(0), Shards(3, 0), Shards(601, 2)])
    def test_too_many_shards_are_refused(self, wrong):
        with pytest.raises(UsageError, match="shards each"):
            partition(wrong, labelled(LABELS), Keyed(SECRET))


class TestKClasses:
    @pytest.mark.parametrize("each", [1, 2, 10])
    def test_every_client_holds_so_many_classes_and_shares_them_evenly(self, each):
        dealt = partition(KClasses(25, each), labelled(LABELS), Keyed(SECRET))
        held = {client: Counter(LABELS[list(samples)].tolist()) for client, samples in dealt.samples.items()}
        assert {len(counts) for counts in held.values()} == {each}
        assert dealt.size == 1_200
        for label in range(10):
            parts = [counts[label] for counts in held.values() if label in counts]
            assert max(parts) - min(parts) <= 1
            assert len(parts) >= 2  # 25 clients go round ten classes twice

    def test_fewer_clients_than_classes_leave_rows_unused(self):
        dealt = partition(KClasses(3, 1), labelled(LABELS), Keyed(SECRET))
        assert dealt.size == 360

    def test_impossible_numbers_are_refused(self):
        for each in (0, 11):
            with pytest.raises(UsageError, match=f"1 to 10 classes, not {each}"):
                partition(KClasses(5, each), labelled(LABELS), Keyed(SECRET))
        few = labelled(np.concatenate([LABELS[LABELS != 3], [3, 3, 3]]))
        with pytest.raises(UsageError, match="class 3 has 3 samples for the"):
            partition(KClasses(30, 2), few, Keyed(SECRET))


class TestByOwner:
    OWNERS = np.array([2, 0, -1, 2, 5, 0, 2, -1, 5, 7])

    def data(self):
        return labelled(np.zeros(10), self.OWNERS)

    def test_clients_are_owners(self):
        dealt = partition(ByOwner(), self.data(), Keyed(SECRET))
        assert dealt.samples == {0: (1, 5), 2: (0, 3, 6), 5: (4, 8), 7: (9,)}

    def test_small_owners_are_left_out(self):
        assert partition(ByOwner(minimum=2), self.data(), Keyed(SECRET)).samples == {0: (1, 5), 2: (0, 3, 6), 5: (4, 8)}

    def test_so_many_owners_are_drawn(self):
        """All six pairs of the four owners occur in 100 keys; missing one has probability below 1e-6."""
        hands = {0: (1, 5), 2: (0, 3, 6), 5: (4, 8), 7: (9,)}
        found = {
            tuple(partition(ByOwner(2), self.data(), Keyed(bytes([at]) * 32)).samples.values()) for at in range(100)
        }
        assert found == {(hands[a], hands[b]) for a in hands for b in hands if a < b}

    def test_too_many_clients_are_refused(self):
        with pytest.raises(UsageError, match="3 of 4 owners have 2 samples; 4 clients"):
            partition(ByOwner(4, minimum=2), self.data(), Keyed(SECRET))
        with pytest.raises(UsageError, match="0 of 4 owners"):
            partition(ByOwner(minimum=99), self.data(), Keyed(SECRET))
        with pytest.raises(UsageError, match="no natural owners"):
            partition(ByOwner(), labelled(LABELS), Keyed(SECRET))


def test_a_role_is_trained_and_forgotten_from_files(tmp_path):
    """The whole way from roles.json.gz: a config, a run, a child in which the role is gone."""
    texts = {f"ROLE {n}": "".join(ALPHABET[(n * 7 + i * i) % 96] for i in range(120 + 10 * n)) for n in range(4)}
    write_roles(tmp_path, roles(texts))
    tables = {
        "data": {"use": "shakespeare-roles", "window": 8, "stride": 9, "test_stride": 9},
        "partition": {"use": "by-owner"},
        "model": {"use": "lstm", "width": 2, "hidden": 3, "layers": 1},
        "learner": {"use": "fats", "rounds": 2, "cohort": 2, "steps": 1, "batch": 4, "step_size": 0.5},
        "run": {"engine": "reference", "device": "cpu"},
    }
    run = train(tables, tmp_path / "run", data=tmp_path, secret=SECRET)
    data = ShakespeareRoles(window=8, stride=9, test_stride=9).load(tmp_path)
    assert [len(run.original.samples[c]) for c in run.original.clients] == np.bincount(data.owners).tolist()
    child = unlearn(run, "fats", request_of(run, clients=(2,)), tmp_path / "child", data=tmp_path)
    assert child.plan.retained.clients == (0, 1, 3)
    assert bool(torch.isfinite(child.model).all())


def test_owners_below_zero_are_refused(tmp_path):
    """They would belong to nobody, and their rows would be left out without a word."""
    rows = {"inputs": torch.zeros(4, 2), "targets": torch.zeros(4, dtype=torch.int64)}
    tests = {"test_inputs": torch.zeros(1, 2), "test_targets": torch.zeros(1, dtype=torch.int64)}
    save_file(rows | tests | {"owners": torch.tensor([0, -1, 1, 1])}, tmp_path / "data.safetensors")
    with pytest.raises(UsageError, match="an owner is -1"):
        Tensors(classes=2).load(tmp_path)


@pytest.mark.parametrize(("option", "value", "said"), [("cohort", 6, "6 clients a round"), ("batch", 2000, "of 2000")])
def test_sizes_beyond_the_federation_are_refused(small_config, tmp_path, option, value, said):
    with pytest.raises(UsageError, match=said):
        train(small_config(learner={option: value}), tmp_path / "run", secret=bytes(32))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("there", [True, False], ids=["its file is read", "it is kept elsewhere"])
def test_digits_are_those_of_the_library(there, monkeypatch):
    if not there:
        monkeypatch.setattr(images, "find_spec", lambda name: None)
    images._digits.cache_clear()
    library, found = load_digits(), Digits().load(None)
    test = np.arange(len(library.target)) % 5 == 4
    for inputs, targets, rows in ((found.inputs, found.targets, ~test), (found.test_inputs, found.test_targets, test)):
        assert np.array_equal(inputs.numpy() * 16, library.data[rows])
        assert np.array_equal(targets.numpy(), library.target[rows])
    images._digits.cache_clear()
