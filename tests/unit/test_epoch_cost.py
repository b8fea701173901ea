"""The predicted cost of a shuffled epoch: against what is really read, and against numbers worked out by hand."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from benchmarks import epoch_cost as benchmark

from helpers import RowReader, epoch_cost
from helpers.places import find_places

IO = Path("/proc/self/io")
NEEDS_IO = pytest.mark.skipif(not IO.exists(), reason="the system counts no reads here: needs /proc/self/io of Linux")


def predicted(path: Path, shape, dtype="u1", written=True, **options) -> epoch_cost.EpochCost | None:
    """The prediction for a dataset of zeros."""
    with h5py.File(path, "w") as file:
        data = file.create_dataset("x", shape, dtype, **options)
        if written:
            data[...] = np.zeros(shape, data.dtype)
    with h5py.File(path) as file:
        return epoch_cost.epoch_cost(file["x"], find_places(file["x"], path, "x"), None, path)


@NEEDS_IO
@pytest.mark.parametrize("way", benchmark.ways(1, (1, 1, 3)))
def test_prediction_is_what_is_read(tmp_path, way):
    """For every way to store images: bytes, reads and inflations within a factor of 2 of a real epoch."""
    shape = (48, 48, 3)
    path = benchmark.make_file(tmp_path / "x.h5", 200, shape, benchmark.ways(200, shape)[way])
    result = benchmark.compare(way, path)
    assert result.ok, benchmark.table([result])
    assert result.measured["reads"] > 0
    assert (result.measured["inflations"] > 0) == ("gzip" in way)


@NEEDS_IO
def test_chunk_cache_is_the_one_that_was_asked_for(tmp_path):
    """Chunks of 1.5 MB through HDF5: each is read once a batch, not once a row, and the cache stays bounded."""
    shape = (128, 128, 3)
    options = {"chunks": (32, *shape), "compression": "lzf"}
    path = benchmark.make_file(tmp_path / "x.h5", 128, shape, options)
    with RowReader(path, "train_img") as rows:
        assert not rows.direct
        order = np.random.default_rng(0).permutation(128)
        before = benchmark.io_counts()
        for start in (0, 64):
            rows.read(order[start : start + 64])
        reads = benchmark.io_counts()[1] - before[1]
        _, size, policy = rows._data().id.get_access_plist().get_chunk_cache()
    assert reads < 30  # 8 chunks and the index; a chunk for each row would be 128
    assert size == 2 * 32 * 128 * 128 * 3
    assert policy < 1  # with 1, HDF5 1.14.6 lets the cache grow past its size


def test_raw_images_cost_themselves(tmp_path):
    """One image a chunk or contiguous: as many reads as rows, nothing to unpack."""
    for options in ({"chunks": (1, 10, 10, 3)}, {"chunks": (7, 10, 10, 3)}, {}):
        assert predicted(tmp_path / "x.h5", (100, 10, 10, 3), **options) == epoch_cost.EpochCost(
            bytes_read=30_000, reads=100, inflations=0, inflated_bytes=0, own_bytes=30_000, rows=100
        )


def test_large_gzip_chunks_are_unpacked_once_a_batch(tmp_path):
    """256 rows in chunks of 64: four batches unpack four chunks each."""
    cost = predicted(tmp_path / "x.h5", (256, 10, 10, 3), chunks=(64, 10, 10, 3), compression="gzip")
    assert (cost.reads, cost.inflations, cost.inflated_bytes) == (16, 16, 16 * 64 * 300)


def test_a_file_of_one_gzip_chunk_is_unpacked_once(tmp_path):
    """The reader keeps the last chunk."""
    cost = predicted(tmp_path / "x.h5", (256, 10, 10, 3), chunks=(256, 10, 10, 3), compression="gzip")
    assert (cost.reads, cost.inflations) == (1, 1)


def test_small_chunks_that_fit_into_the_cache_are_read_once(tmp_path):
    """300 kB in 40 chunks stay in HDF5's cache of 1 MiB, however often a row needs them."""
    cost = predicted(tmp_path / "x.h5", (1000, 10, 10, 3), chunks=(100, 10, 5, 2), shuffle=True)
    assert (cost.reads, cost.ratio) == (40, pytest.approx(4 / 3))  # chunks of 2 and 2 channels, where there are 3


def test_long_epochs_are_scaled_from_their_first_batches(tmp_path):
    """200,000 rows are not counted one by one, and the result is that of all rows."""
    options = {"chunks": (1000, 2, 2, 3), "compression": "gzip"}
    cost = predicted(tmp_path / "x.h5", (200_000, 2, 2, 3), **options)
    batches = 200_000 / 64
    distinct = 200 * (1 - (1 - 1 / 200) ** 64)  # chunks that 64 random rows touch
    assert cost.inflations == pytest.approx(batches * distinct, rel=0.02)


def test_chunks_above_the_cache_are_read_in_pieces(tmp_path):
    """An unfiltered chunk of 70 MB is not read whole for one image, but in pieces of 64 kB or more."""
    cost = predicted(tmp_path / "x.h5", (70, 1000, 1000, 3), chunks=(70, 1000, 1000, 1), written=False)
    assert cost is None  # nothing was written
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        file["x"][:, 0, 0] = 1
        places = find_places(file["x"], tmp_path / "x.h5", "x")
        cost = epoch_cost.epoch_cost(file["x"], places, None, tmp_path / "x.h5")
    assert cost.ratio == pytest.approx(1, rel=0.05)
    assert not cost.is_much


@pytest.mark.parametrize("dtype", [h5py.string_dtype(), h5py.ref_dtype], ids=["text", "reference"])
def test_what_is_no_image_has_no_prediction(tmp_path, dtype):
    """Texts and references have no size that the index knows."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (4,), dtype)
        assert epoch_cost.epoch_cost(file["x"], find_places(file["x"], tmp_path / "x.h5", "x"), None, tmp_path) is None


def test_words():
    """Bytes, reads, inflations, and the ratio that counts."""
    raw = epoch_cost.EpochCost(27_100_000_000, 101_000, 0, 0, 27_100_000_000, 101_000)
    packed = epoch_cost.EpochCost(9_000_000, 250, 250, 90_000_000, 30_000_000, 1000)
    assert str(raw) == "reads 27.1 GB in 101,000 pieces, unpacks 0 chunks; 1x the images' own bytes"
    assert str(packed) == "reads 9 MB in 250 pieces, unpacks 250 chunks to 90 MB; 3x the images' own bytes"


@NEEDS_IO
def test_benchmark_program(tmp_path, capsys, monkeypatch):
    """The table has every way; exit status 1 when a prediction is far off."""
    arguments = ["--images", "150", "--side", "48", "--folder", str(tmp_path), "--json", str(tmp_path / "x.json")]
    assert benchmark.main(arguments) == 0
    assert "all within a factor of 2" in capsys.readouterr().out
    stored = json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))
    assert [result["name"] for result in stored["files"]] == list(benchmark.ways(1, (1, 1, 3)))
    monkeypatch.setattr(benchmark, "FACTOR", 1.0)
    assert benchmark.main(arguments) == 1
    assert "off by more than a factor of 1: " in capsys.readouterr().out
