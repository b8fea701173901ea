"""Groups of pictures: what is broken is told from what is lost."""

from __future__ import annotations

import errno
import os
import pickle

import cv2
import numpy as np
import pytest
from photos import folder_of

from data_scripts import reading
from data_scripts.reading import Group, Picture, PictureReader, SourceLostError
from helpers.images import ImageError, decode_jpeg, read_image

GONE = "it cannot be read: No such file or directory"


def reader_of(source, storage="raw", compression=None):
    """A reader whose only group is all of the source, in the order of names."""
    paths = sorted(path.relative_to(source).as_posix() for path in source.rglob("*.*"))
    group = Group("train", tuple(Picture(path, 0) for path in paths))
    return PictureReader(source, [group], 8, "stretch", storage, compression)


@pytest.fixture
def source(tmp_path):
    return folder_of(tmp_path / "photos", {"a": 6, "b": 6})


def test_good_pictures_lie_together_and_the_others_have_reasons(source):
    """Rows are in the order of the group, without gaps for those that are broken."""
    (source / "a" / "0001.png").write_bytes(b"")
    (source / "a" / "0003.png").write_bytes(b"x")
    answer = reader_of(source).read(0)
    assert answer.failures == (
        (1, "the file is empty"),
        (3, "its bytes are not those of a PNG, JPEG, WebP, BMP or GIF picture"),
    )
    assert answer.lost == ()
    assert [tuple(row[0, 0]) for row in answer.rows.stored] == [(0, n, 0) for n in (0, 2, 4, 5)] + [
        (40, n, 0) for n in range(6)
    ]


def test_a_group_without_a_good_picture_is_no_rows(source):
    """For each storage."""
    for path in source.rglob("*.png"):
        path.write_bytes(b"")
    for storage, compression in (("raw", None), ("raw", "gzip"), ("jpeg", None)):
        answer = reader_of(source, storage, compression).read(0)
        assert (len(answer.rows.stored), len(answer.failures), answer.rows.sums) == (0, 12, (0, 0, 0))


def test_a_picture_that_is_gone_is_lost(source):
    """It was there when the build was planned: deleted, or the disk is going."""
    reader = reader_of(source)
    (source / "a" / "0001.png").unlink()
    (source / "b" / "0001.png").write_bytes(b"")
    answer = reader.read(0)
    assert (answer.failures, answer.lost) == (((1, GONE), (7, "the file is empty")), (1,))


def rename_source(source):
    source.rename(source.with_name("elsewhere"))


def remove_class(source):
    (source / "b").rename(source.with_name("elsewhere"))


def empty_class(source):
    for path in (source / "b").iterdir():
        path.unlink()


@pytest.mark.parametrize(
    ("lose", "first"),
    [(rename_source, "a/0000.png"), (remove_class, "b/0000.png"), (empty_class, "b/0000.png")],
)
def test_a_folder_that_is_gone_is_the_loss_of_the_source(source, lose, first):
    """Also when only a class is gone, on a disk of its own perhaps: no picture of it is called broken."""
    reader = reader_of(source)
    lose(source)
    with pytest.raises(SourceLostError) as raised:
        reader.read(0)
    assert raised.value.errno == errno.ENOENT
    assert str(raised.value) == (
        f"{source} cannot be read any more ({first}: No such file or directory). Is its disk still there?"
    )
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)  # it comes from another process


@pytest.mark.parametrize(
    ("number", "lost"), [(errno.EIO, (1,)), (errno.ESTALE, (1,)), (errno.EACCES, ()), (errno.ENAMETOOLONG, ())]
)
def test_what_the_system_says_tells_lost_from_broken(source, monkeypatch, number, lost):
    """A disk that does not answer is a loss; a picture that this user may not read is skipped for good."""

    def read(path):
        if path.name != "0001.png" or path.parent.name != "a":
            return read_image(path)
        reason = OSError(number, os.strerror(number))
        raise ImageError(f"it cannot be read: {reason.strerror}") from reason

    monkeypatch.setattr(reading, "read_image", read)
    answer = reader_of(source).read(0)
    assert answer.failures == ((1, f"it cannot be read: {os.strerror(number)}"),)
    assert answer.lost == lost


def test_storages_hold_the_same_pictures(source):
    """JPEG bytes are of the resized picture, gzip bytes of the same pixels as raw."""
    raw, jpeg = reader_of(source).read(0).rows, reader_of(source, "jpeg").read(0).rows
    packed = reader_of(source, compression="gzip").read(0).rows
    decoded = np.stack([decode_jpeg(row) for row in jpeg.stored])
    assert np.abs(decoded.astype(int) - raw.stored).max() <= 4
    assert jpeg.sums == tuple(int(n) for n in cv2.sumElems(decoded.reshape(-1, 8, 3))[:3])
    assert (packed.sums, packed.crc32.tolist()) == (raw.sums, raw.crc32.tolist())


def test_mean_bytes_are_of_readable_pictures(source):
    """A sample that cannot be read does not count; without any there is no mean."""
    reader = reader_of(source, "jpeg")
    sizes = [len(row) for row in reader.read(0).rows.stored]
    (source / "a" / "0001.png").write_bytes(b"")
    assert reader.mean_bytes([(0, 0), (0, 1), (0, 2)]) == (sizes[0] + sizes[2]) / 2
    assert reader.mean_bytes([(0, 1)]) == 0


def test_a_group_says_which_pictures_it_has(source):
    """For the sentences of errors."""
    assert reader_of(source).groups[0].describe() == "the pictures a/0000.png to b/0005.png (12 of train)"
