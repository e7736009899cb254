"""Data sets from files in their real formats, owners, and partitions.

With FUAUDIT_DATA=ROOT, where ROOT holds shakespeare/roles.json.gz, the real texts are read as well.
"""

import gzip
import hashlib
import json
import os
import pickle
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from scipy.stats import beta, kstest

from fuaudit import registry
from fuaudit.data.dataset import Dataset
from fuaudit.data.images import Cifar10, Cifar100
from fuaudit.data.leaf import Femnist, Shakespeare
from fuaudit.data.partition import ByOwner, DirichletByClass, Iid, KClasses, OneHolder, Shards, TwoLevel, partition
from fuaudit.data.tensors import Tensors
from fuaudit.data.text import ALPHABET, OTHER, TOKENS, ShakespeareRoles, encode, windows
from fuaudit.draws import Keyed
from fuaudit.errors import UsageError
from fuaudit.workflow.train import train
from fuaudit.workflow.unlearn import request_of, unlearn

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
        assert all(any(window in text for text in rest.values()) for window in tests)

    def test_the_first_owners_alone(self, tmp_path):
        root = write_roles(tmp_path, roles(self.TEXTS))
        data = ShakespeareRoles(window=20, owners=1, test_stride=1).load(root)
        assert data.owner_names == ("A",)
        assert data.size == 2  # windows begin every 80 of 160 characters
        assert len(data.test_inputs) == 20
        assert set(data.owners.tolist()) == {0}

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (roles({"A": "text"})[:-9], "cut short or is no gzipped JSON"),
            (gzip.compress(b"{"), "cut short or is no gzipped JSON"),
            (b'{"A": "text"}', "cut short or is no gzipped JSON"),
            (gzip.compress(b"\xff\xfe\xfa"), "cut short or is no gzipped JSON"),
            (roles(["text"]), "one object of role -> text"),
            (roles({"A": 3}), "one object of role -> text"),
            (roles({}), "one object of role -> text"),
            (roles({"A": "x" * 80}), "no role with more than 80 characters"),
        ],
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

    def test_the_first_owners_alone(self, tmp_path):
        data = self.load(tmp_path, owners=1)
        assert (data.owner_names, data.size, len(data.test_targets)) == (("f1_w",), 3, 1)
        with pytest.raises(UsageError, match="at least 1"):
            Femnist(owners=0)

    GOOD = leaf_file(["a"], {"a": ([[0.5] * 784], [3])})

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            ('{"users": ["a"], "num_sam', "cut short or is no JSON"),
            (GOOD | {"num_samples": [2]}, "'a' shall have 2 samples, not 1, 1"),
            (GOOD | {"num_samples": []}, "not in LEAF's form"),
            (GOOD | {"user_data": {}}, "not in LEAF's form"),
            ([1, 2], "not in LEAF's form"),
            (leaf_file(["a"], {"a": ([[0.5] * 783], [3])}), "samples of user 'a' are not femnist's"),
            (leaf_file(["a"], {"a": ([[0.5] * 784], [62])}), "outside 0 to 61"),
            (leaf_file(["a"], {"a": ([[float("nan")] * 784], [3])}), "holds NaN"),
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
        "lists", [(["ab", "abc"], ["c", "d"]), (["ab", "bc"], ["c", "de"]), ([1, 2], ["a", "b"]), (["ab"], [7])]
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


class TestCifar:
    def binary(self, plugin, root, each=3):
        (root / plugin.binary).mkdir()
        rows = {name: records(each, plugin.label_bytes, at) for at, name in enumerate(plugin.train_files)}
        rows |= {name: records(2, plugin.label_bytes, 90) for name in plugin.test_files}
        for name, content in rows.items():
            (root / plugin.binary / name).write_bytes(content.tobytes())
        return rows

    @pytest.mark.parametrize("plugin", [Cifar10(), Cifar100()])
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
        self.binary(Cifar10(), tmp_path)
        path = tmp_path / Cifar10.binary / "data_batch_3.bin"
        content = path.read_bytes()
        for broken, said in ((content[:-1], "cut short"), (b"", "cut short"), (b"\x0a" + content[1:], "class 10 is")):
            path.write_bytes(broken)
            with pytest.raises(UsageError, match=said):
                Cifar10().load(tmp_path)
        path.unlink()
        with pytest.raises(UsageError, match=r"there is no .*data_batch_3\.bin"):
            Cifar10().load(tmp_path)

    def test_what_is_missing_is_named(self, tmp_path):
        with pytest.raises(UsageError, match="--data ROOT"):
            Cifar10().load(None)
        with pytest.raises(
            UsageError, match=r"neither .*cifar-100-binary nor .*cifar-100-python(.|\n)*download = true"
        ):
            Cifar100().load(tmp_path)

    def test_a_changed_pickle_is_refused_and_not_executed(self, tmp_path):
        folder = tmp_path / Cifar10.pickled
        folder.mkdir()
        for name in [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch", "batches.meta"]:
            (folder / name).write_bytes(f"cos\nmkdir\n(S'{tmp_path}/executed'\ntR.".encode())
        with pytest.raises(UsageError, match="does not hold the authors' files"):
            Cifar10().load(tmp_path)
        assert not (tmp_path / "executed").exists()

    def test_the_python_version_by_torchvision(self, tmp_path, monkeypatch):
        """Small files in the real format; torchvision is told their checksums instead of the authors'."""
        from torchvision import datasets

        folder = tmp_path / Cifar10.pickled
        folder.mkdir()
        rows = {"data_batch_1": records(4, 1, 1), "data_batch_2": records(3, 1, 2), "test_batch": records(2, 1, 3)}
        for name, content in rows.items():
            table = {"data": content[:, 1:], "labels": content[:, 0].tolist()}
            (folder / name).write_bytes(pickle.dumps(table))
        (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list("0123456789")}))
        sums = {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in folder.iterdir()}
        lists = {"train_list": ["data_batch_1", "data_batch_2"], "test_list": ["test_batch"]}
        for attribute, names in lists.items():
            monkeypatch.setattr(datasets.CIFAR10, attribute, [[name, sums[name]] for name in names])
        monkeypatch.setitem(datasets.CIFAR10.meta, "md5", sums["batches.meta"])
        data = Cifar10().load(tmp_path)
        every = np.concatenate([rows["data_batch_1"], rows["data_batch_2"]])
        assert data.targets.tolist() == every[:, 0].tolist()
        expected = every[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / 255
        assert data.inputs.numpy().tobytes() == expected.tobytes()
        assert data.test_targets.tolist() == rows["test_batch"][:, 0].tolist()


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
        data = Tensors(2, size=6).load(self.write(tmp_path, ids=ids, owners=owners))
        gone = torch.iinfo(torch.int32).max
        assert data.inputs.tolist() == [[3, 4, 5], [9, 10, 11], [6, 7, 8], [gone] * 3, [0, 1, 2], [gone] * 3]
        assert data.owners.tolist() == [0, 1, 0, -1, 1, -1]
        assert data.absent == {3, 5}
        assert partition(ByOwner(), data, Keyed(SECRET)).samples == {0: (0, 2), 1: (1, 4)}

    def test_owners_must_fit(self, tmp_path):
        with pytest.raises(UsageError, match="one owner a training row"):
            Tensors(2).load(self.write(tmp_path, owners=torch.tensor([1, 0])))
        with pytest.raises(UsageError, match="4 samples cannot have owners of shape"):
            Dataset(torch.zeros(4, 1), torch.zeros(4), torch.zeros(1, 1), torch.zeros(1), 2, owners=torch.zeros(3))


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
        for wrong in (DirichletByClass(3, 0.0), DirichletByClass(3, 1.0, minimum=0)):
            with pytest.raises(UsageError, match="above 0"):
                partition(wrong, labelled(LABELS), Keyed(SECRET))
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
        with pytest.raises(UsageError, match="without samples"):
            partition(KClasses(11, 1), labelled(np.arange(10).repeat(2)[:11] % 10), Keyed(SECRET))


class TestByOwner:
    OWNERS = np.array([2, 0, -1, 2, 5, 0, 2, -1, 5, 7])

    def data(self):
        return labelled(np.zeros(10), self.OWNERS)

    def test_clients_are_owners(self):
        dealt = partition(ByOwner(), self.data(), Keyed(SECRET))
        assert dealt.samples == {0: (1, 5), 1: (0, 3, 6), 2: (4, 8), 3: (9,)}

    def test_small_owners_are_left_out(self):
        assert partition(ByOwner(minimum=2), self.data(), Keyed(SECRET)).samples == {0: (1, 5), 1: (0, 3, 6), 2: (4, 8)}

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
    run = train(tables, tmp_path / "run", root=tmp_path, secret=SECRET)
    data = ShakespeareRoles(window=8, stride=9, test_stride=9).load(tmp_path)
    assert [len(run.original.samples[c]) for c in run.original.clients] == np.bincount(data.owners).tolist()
    child = unlearn(run, "fats", request_of(run, clients=(2,)), tmp_path / "child", root=tmp_path)
    assert child.plan.retained.clients == (0, 1, 3)
    assert bool(torch.isfinite(child.model).all())
