"""MNIST in torchvision's layout: the reader, the partition, and one small run from training to audit.

With FUAUDIT_DATA=ROOT, where ROOT holds MNIST/raw, the run is made on the real images as well.
"""

import gzip
import os
import struct
import tracemalloc
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fuaudit.data.dataset import Dataset
from fuaudit.data.images import FashionMnist, Mnist, read_idx
from fuaudit.data.partition import Dirichlet, partition
from fuaudit.draws import Keyed
from fuaudit.errors import UsageError
from fuaudit.plans import Request
from fuaudit.plans.expanded import expand
from fuaudit.runs.names import request_of
from fuaudit.training.engines import engine
from fuaudit.training.execute import execute, initial_state
from fuaudit.training.setup import setup
from fuaudit.verification.spec import parse_spec
from fuaudit.verification.verify import verify
from fuaudit.workflow.train import train
from fuaudit.workflow.unlearn import unlearn

ROOT = os.environ.get("FUAUDIT_DATA")
FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
SECRET = b"fuaudit: the key of an MNIST run"


def idx(array: np.ndarray) -> bytes:
    return b"\x00\x00\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def mnist_like(root: Path, train: int, test: int, folder: str = "MNIST") -> Path:
    """Random images, the brighter on the left the higher the label, in torchvision's layout; half gzipped."""
    random = np.random.default_rng(0)
    raw = root / folder / "raw"
    raw.mkdir(parents=True)
    for names, count in ((FILES[:2], train), (FILES[2:], test)):
        labels = np.arange(count, dtype=np.uint8) % 10
        images = random.integers(0, 100, (count, 28, 28)).astype(np.uint8)
        images[:, :, :14] += (15 * labels)[:, None, None]
        (raw / names[0]).write_bytes(idx(images))
        (raw / f"{names[1]}.gz").write_bytes(gzip.compress(idx(labels)))
    return root


class FewMnist(Mnist):
    rows = (1250, 50)


@pytest.fixture(
    scope="module",
    params=[
        "generated",
        pytest.param(
            "real",
            marks=pytest.mark.skipif(not ROOT, reason="set FUAUDIT_DATA to a folder that holds MNIST/raw"),
        ),
    ],
)
def whole(request, tmp_path_factory):
    if request.param == "real":
        return Mnist().load(Path(ROOT))
    return FewMnist().load(mnist_like(tmp_path_factory.mktemp("data"), *FewMnist.rows))


@pytest.fixture(scope="module")
def data(whole):
    """With fewer test images, because every stored model is measured on all of them."""
    return replace(whole, test_inputs=whole.test_inputs[:500], test_targets=whole.test_targets[:500])


@pytest.fixture(scope="module")
def runs(data, tmp_path_factory):
    """A run of two rounds; a sample that its second round drew, forgotten by FATS and by noop."""
    folder = tmp_path_factory.mktemp("runs")
    clients = 300 if data.size == 60_000 else 12
    config = {
        "data": {"use": "mnist"},
        "partition": {"use": "dirichlet", "clients": clients, "concentration": 0.5},
        "model": {"use": "cnn"},
        "learner": {"use": "fats", "rounds": 2, "cohort": 3, "steps": 4, "batch": 10, "step_size": 0.05},
        "run": {"checkpoint_every": 1, "device": "cpu"},
    }
    origin = train(config, folder / "origin", secret=SECRET, data=data)
    request = drawn_in_round_two(origin)
    children = {name: unlearn(origin, name, request, folder / name, data=data) for name in ("fats", "noop")}
    return origin, request, children


def drawn_in_round_two(run) -> Request:
    """A sample that was drawn: the audits of the run are the subject here, not those of the algorithm."""
    first = {sample for client in run.plan.cohort(1) for sample in run.plan.retained.samples[client]}
    client = next(c for c in run.plan.cohort(2) if c not in run.plan.cohort(1))
    sample = run.plan.batch(2, 3, client, 0)[0]
    assert sample not in first
    return request_of(run, samples=((client, run.original.samples[client].index(sample)),))


OF_THE_RUN = parse_spec(
    {
        "id": "of-the-run",
        "asks": "run",
        "out_of_scope": ["the algorithm"],
        "check": [{"claim": use, "audit": {"use": use}} for use in ("integrity", "replay", "provenance", "lineage")],
    },
    "test",
)


def test_shapes_and_ranges(whole):
    assert whole.shape == (1, 28, 28)
    assert whole.classes == 10
    assert whole.inputs.dtype == torch.float32
    assert float(whole.inputs.min()) >= 0
    assert 0.4 < float(whole.inputs.max()) <= 1
    if whole.size == 60_000:
        assert len(whole.test_targets) == 10_000
        assert torch.bincount(whole.targets).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]


def test_a_run_unlearns_a_sample_and_replays_bit_for_bit(data, runs):
    origin, request, children = runs
    child = children["fats"]
    assert child.info["first_change"][0] == 2
    assert child.info["first_change"][1] >= 1  # inside the round: its cohort is kept
    assert child.plan.cohort(2) == origin.plan.cohort(2)
    assert not torch.equal(child.model, origin.model)

    # by hand, without an audit: the child's model from nothing, the erased rows overwritten
    ready = setup(child.config, data)
    start = initial_state(ready.procedure, [child.plan], child.plan.retained, torch.device("cpu"))
    retained = child.plan.retained
    problem, plan = ready.client_problem(retained), expand(child.plan)
    *_, (_, last) = execute(ready.procedure, problem, retained, plan, start, engine("reference"))
    assert torch.equal(last.vectors[0], child.checkpoint(2)[0])
    assert not set(request.samples) & set(retained.owner)


def test_the_audits_of_the_run_tell_fats_from_noop(data, runs):
    _, _, children = runs
    found = {
        name: {f.audit: str(f.verdict) for f in verify(run, OF_THE_RUN, data=data, save=False).findings}
        for name, run in children.items()
    }
    assert found["fats"] == dict.fromkeys(("integrity", "replay", "provenance", "lineage"), "PASS")
    assert found["noop"] == {"integrity": "PASS", "replay": "FAIL", "provenance": "FAIL", "lineage": "FAIL"}


class TestReader:
    ARRAY = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)

    def test_plain_and_gzipped_are_the_same(self, tmp_path):
        (tmp_path / "plain").write_bytes(idx(self.ARRAY))
        (tmp_path / "zipped.gz").write_bytes(gzip.compress(idx(self.ARRAY)))
        assert np.array_equal(read_idx(tmp_path / "plain", (2, 3, 4)), self.ARRAY)
        assert np.array_equal(read_idx(tmp_path / "zipped", (2, 3, 4)), self.ARRAY)

    def test_plain_comes_before_gzipped(self, tmp_path):
        (tmp_path / "both").write_bytes(idx(self.ARRAY))
        (tmp_path / "both.gz").write_bytes(gzip.compress(idx(self.ARRAY[:1])))
        assert np.array_equal(read_idx(tmp_path / "both", (2, 3, 4)), self.ARRAY)

    @pytest.mark.parametrize("zipped", [False, True])
    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (idx(ARRAY)[:-1], "cut short"),
            (idx(ARRAY) + b"\x00", "surplus"),
            (idx(ARRAY)[:12], "cut short"),
            (b"\x00\x00\x0d" + idx(ARRAY)[3:], "not an IDX file of bytes"),  # floats
            (b"PK\x03\x04" + idx(ARRAY), "not an IDX file of bytes"),
            (b"", "not an IDX file of bytes"),
            (idx(ARRAY[:1]), r"3 axes of lengths \(1, 3, 4\), not \(2, 3, 4\)"),
            (idx(ARRAY.reshape(6, 4)), "2 axes"),
            (b"\x00\x00\x08\x03" + struct.pack(">3I", 65536, 65536, 2**31), "not the authors' file"),
        ],
        ids=[
            "one byte short",
            "one byte more",
            "short header",
            "other type",
            "zip archive",
            "empty",
            "fewer rows",
            "rank",
            "wraps",
        ],
    )
    def test_what_is_no_such_file_is_refused(self, tmp_path, content, said, zipped):
        (tmp_path / ("file.gz" if zipped else "file")).write_bytes(gzip.compress(content) if zipped else content)
        with pytest.raises(UsageError, match=said):
            read_idx(tmp_path / "file", (2, 3, 4))

    def test_missing_says_where_to_look(self, tmp_path):
        with pytest.raises(UsageError, match=r"there is neither .*train-images.* nor .*\.gz"):
            Mnist().load(tmp_path)
        with pytest.raises(UsageError, match="--data ROOT"):
            Mnist().load(None)

    def test_fashion_mnist_has_a_folder_of_its_own(self, tmp_path):
        class Few(FashionMnist):
            rows = (20, 10)

        data = Few().load(mnist_like(tmp_path, 20, 10, "FashionMNIST"))
        assert (data.size, len(data.test_targets), data.shape) == (20, 10, (1, 28, 28))
        assert data.targets.tolist() == [i % 10 for i in range(20)]

    def test_only_the_authors_numbers_of_rows_are_read(self, tmp_path):
        mnist_like(tmp_path, 20, 10)
        with pytest.raises(UsageError, match=r"\(20, 28, 28\), not \(60000, 28, 28\)"):
            Mnist().load(tmp_path)

    def test_no_more_is_unpacked_than_the_array_needs(self, tmp_path):
        """A file of 200 MB of zeros behind an honest header: refused with less than 10 MB held at any time."""
        with gzip.open(tmp_path / "file.gz", "wb", compresslevel=1) as file:
            file.write(idx(self.ARRAY))
            for _ in range(200):
                file.write(bytes(10**6))
        tracemalloc.start()
        with pytest.raises(UsageError, match="surplus"):
            read_idx(tmp_path / "file", (2, 3, 4))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < 10**7


class TestDirichlet:
    LABELS = np.arange(6_000, dtype=np.int64) % 10

    def deal(self, clients, concentration, secret=SECRET, labels=LABELS):
        rows = torch.zeros(len(labels), 1)
        data = Dataset(rows, torch.from_numpy(labels), rows, torch.from_numpy(labels), classes=10)
        return partition(Dirichlet(clients, concentration), data, Keyed(secret))

    @pytest.mark.parametrize("concentration", [0.01, 0.5, 100.0])
    @pytest.mark.parametrize(("clients", "size"), [(30, 200), (7, 857), (1, 6000), (6000, 1)])
    def test_every_client_owns_equally_many(self, clients, size, concentration):
        population = self.deal(clients, concentration)
        assert population.clients == tuple(range(clients))
        assert {len(samples) for samples in population.samples.values()} == {size}
        assert len(population.owner) == population.size == clients * size  # nothing twice; the remainder is unused

    def test_a_low_concentration_gives_few_classes_to_each(self):
        def largest_share(concentration):
            hands = self.deal(30, concentration).samples.values()
            return np.mean([max(Counter(self.LABELS[list(hand)].tolist()).values()) / len(hand) for hand in hands])

        assert largest_share(0.05) > largest_share(0.5) > largest_share(50.0)
        assert largest_share(50.0) < 0.25

    def test_the_key_decides(self):
        assert self.deal(30, 0.5).samples == self.deal(30, 0.5).samples
        assert self.deal(30, 0.5).samples != self.deal(30, 0.5, secret=bytes(32)).samples

    def test_more_clients_than_samples_is_refused(self):
        with pytest.raises(UsageError, match="cannot share"):
            self.deal(6_001, 0.5)
        for concentration in (0.0, -1.0, float("nan"), float("inf"), 1e308):
            with pytest.raises(UsageError, match="concentration"):
                self.deal(3, concentration)

    def test_a_number_rounded_beyond_the_last_share_takes_the_last_class_left(self):
        """NumPy sums 200 shares pairwise; where that is more than the last running sum, no class would be found."""
        mixtures = np.random.Generator(np.random.Philox(0)).dirichlet(np.ones(200), 100) + 1e-12
        mixture = next(row for row in mixtures if row.sum() * (1 - 2**-53) >= np.cumsum(row)[-1])

        class Edge(np.random.Generator):
            def dirichlet(self, weights):
                return mixture - 1e-12

            def random(self, size):
                return np.full(size, 1 - 2**-53)

        hands = Dirichlet(1).deal(np.arange(200), Edge(np.random.Philox(0)))
        assert sorted(hands[0]) == list(range(200))
