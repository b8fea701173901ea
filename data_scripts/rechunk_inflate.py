"""Large gzip chunks of whole images, unpacked as a stream: HDF5 itself holds a chunk in memory whole, twice."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np

_READ_BYTES = 2**20  # of compressed bytes at once


class DamagedChunkError(Exception):
    """The chunk that holds rows ``first`` to ``last`` (not included) cannot be unpacked."""

    def __init__(self, first: int, last: int, reason: Exception):
        super().__init__(str(reason))
        self.first, self.last = first, last


def has_large_gzip_chunks(data: h5py.Dataset, limit: int) -> bool:
    """Whether chunks hold whole rows, more than ``limit`` bytes each, and gzip is all that was done to them."""
    if not data.chunks or data.dtype.hasobject or data.file.userblock_size:
        return False
    created = data.id.get_create_plist()
    gzip = created.get_nfilters() == 1 and created.get_filter(0)[0] == h5py.h5z.FILTER_DEFLATE
    whole = all(step >= side for side, step in zip(data.shape[1:], data.chunks[1:], strict=True))
    as_in_memory = data.id.get_type().equal(h5py.h5t.py_create(data.dtype))
    return gzip and whole and as_in_memory and math.prod(data.chunks) * data.dtype.itemsize > limit


def inflated_blocks(data: h5py.Dataset, start: int, most: int) -> Iterator[tuple[int, np.ndarray]]:
    """(first row, rows) of all rows from ``start`` on, at most ``most`` at once. Raises DamagedChunkError."""
    step, rest = data.chunks[0], data.chunks[1:]
    row_bytes = math.prod(rest) * data.dtype.itemsize
    crop = (slice(None), *map(slice, data.shape[1:]))  # a chunk may be larger than the images
    with Path(data.file.filename).open("rb", buffering=0) as raw:
        for first in range(start // step * step, len(data), step):
            last = min(first + step, len(data))
            info = data.id.get_chunk_info_by_coord((first, *(0 for _ in rest)))
            counts = [min(most, last - row) for row in range(first, last, most)]
            row = first
            try:
                for part in _parts(raw, info, [count * row_bytes for count in counts]):
                    rows = np.frombuffer(part, data.dtype).reshape(-1, *rest)
                    skip = max(0, start - row)
                    if skip < len(rows):
                        yield row + skip, np.ascontiguousarray(rows[crop][skip:])
                    row += len(rows)
            except (OSError, zlib.error) as error:
                raise DamagedChunkError(first, last, error) from error


def _parts(raw, info, sizes: list[int]) -> Iterator[bytearray]:
    """The unpacked bytes of one chunk, in parts of these sizes; what is behind them is checked and left out."""
    if info.byte_offset is None:  # never written
        raise OSError("the chunk was never written")
    if info.filter_mask:  # HDF5 left gzip out for this chunk
        for size, end in zip(sizes, itertools.accumulate(sizes), strict=True):
            yield bytearray(b"".join(_stored_bytes(raw, info.byte_offset + end - size, size)))
        return
    stored = _stored_bytes(raw, info.byte_offset, info.size)
    unpack, waiting = zlib.decompressobj(), b""
    for size in sizes:
        out = bytearray()
        while len(out) < size:
            waiting = waiting or next(stored, b"")
            more = unpack.decompress(waiting, size - len(out))
            if not more and not waiting:
                raise OSError("the compressed bytes end early")
            out += more
            waiting = unpack.unconsumed_tail
        yield out
    while not unpack.eof:  # its last bytes are a checksum of all
        waiting = waiting or next(stored, b"")
        if not unpack.decompress(waiting, _READ_BYTES) and not waiting:
            raise OSError("the compressed bytes end early")
        waiting = unpack.unconsumed_tail


def _stored_bytes(raw, offset: int, size: int) -> Iterator[bytes]:
    raw.seek(offset)
    while size:
        part = raw.read(min(size, _READ_BYTES))
        if not part:
            raise OSError("the file ends early")
        size -= len(part)
        yield part
