"""Which rows an epoch reads, in which order: a pure function of (seed, epoch).

Workers, queues and resumed runs all ask here, so none of them can change the order. Three ways to shuffle:

- ``"full"``: every row can follow every other. The right choice wherever a random read is cheap: memory, SSD.
- ``"block"``: the file is cut into blocks of neighbouring rows, the blocks are permuted, a few are open at a time (a
  *group*) and their rows are mixed. For files larger than memory on slow disks (the idea of CorgiPile, Xu et al. 2022).
- ``None``: rows in the order of the file.

A group is served mixed, so reading it as it is served would still jump. :meth:`EpochOrder.read_ahead` is the other half
of block shuffle: while one group is served, it names the next one, share by share, in the order of the file. Whoever
brings these rows into the system's page cache lets the disk read long stretches, and finds them there later::

    served      | group 0, mixed         | group 1, mixed         | ...
    read ahead  | group 1, in file order | group 2, in file order | ...

The page cache must hold two groups for it: 2 x 8 blocks x 34 MB at the defaults and 299x299 pixels.

Why groups, and not a window that slides on by a block: the window mixes no better (measured: as many blocks a batch,
the same entropy of neighbours), and no moment is fixed at which a block must be there.
"""

from __future__ import annotations

import operator
from typing import NamedTuple

import numpy as np

from helpers.arguments import checked_flag, whole_number

SHUFFLES = ("full", "block", None)
DEFAULT_BLOCK_ROWS = 128  # 34 MB of 299x299 images: long enough for a spinning disk, short enough to hold eight
_EPOCHS_KEPT = 2  # prefetching workers stand on both sides of an epoch's end


class _Epoch(NamedTuple):
    order: np.ndarray  # (n,) int64: the row at each position
    edges: np.ndarray  # positions at which the groups of a block shuffle begin, and where the last one ends


class EpochOrder:
    """Batches of row numbers for every epoch, for one process out of several.

    Parameters
    ----------
    n : rows in the dataset.
    batch_size : rows a batch, for this process.
    shuffle : "full", "block" or None.
    seed : a non-negative integer; with the epoch it fixes the order.
    shard : (index, count). Batch b of shard (i, c) is rows ``[i::c]`` of the global batch b of size ``batch_size * c``.
        All shards have the same number of batches: a last global batch with fewer than c rows is dropped.
    drop_last : leave out a last batch that is not full.
    block_rows, open_blocks : rows a block and blocks mixed at a time, for ``shuffle="block"``.

    Raises
    ------
    ValueError, TypeError
        An argument is out of its range, or no batch is left.

    >>> [rows.tolist() for rows in EpochOrder(5, 2, None, seed=0).batches(epoch=0)]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, n, batch_size, shuffle, seed, shard=(0, 1), drop_last=False, block_rows=None, open_blocks=8):
        self.n = whole_number("n", n, 0)
        self.batch_size = whole_number("batch_size", batch_size, 1)
        if shuffle not in SHUFFLES:
            raise ValueError(f'shuffle must be "full", "block" or None; got {shuffle!r}.')
        self.shuffle = shuffle
        self.seed = whole_number("seed", seed, 0)
        self.shard = _checked_shard(shard)
        self.drop_last = checked_flag("drop_last", drop_last)
        self.block_rows = whole_number("block_rows", DEFAULT_BLOCK_ROWS if block_rows is None else block_rows, 1)
        self.open_blocks = whole_number("open_blocks", open_blocks, 1)
        self._epochs: dict[int, _Epoch] = {}
        if len(self) == 0:
            raise ValueError(
                f"no batch is left of {self.n} rows with batch_size={self.batch_size}, shard={self.shard} and "
                f"drop_last={self.drop_last}. Lower batch_size, or set drop_last=False."
            )

    def __len__(self) -> int:
        """Number of batches an epoch, the same for every shard."""
        full, rest = divmod(self.n, self._global_batch_size)
        return full + (not self.drop_last and rest >= self.shard[1])

    @property
    def dropped_rows(self) -> int:
        """Rows that no shard serves in an epoch (other rows in each epoch when shuffled)."""
        return max(0, self.n - len(self) * self._global_batch_size)

    def batches(self, epoch: int) -> list[np.ndarray]:
        """All batches of ``epoch``: int64 arrays of row numbers."""
        return [self.batch(epoch, index) for index in range(len(self))]

    def batch(self, epoch: int, index: int) -> np.ndarray:
        """Row numbers of batch ``index`` of ``epoch``, int64. Raises IndexError outside ``0 <= index < len(self)``."""
        start, stop = self._span(index)
        return self._epoch(epoch).order[start:stop][self.shard[0] :: self.shard[1]]

    def read_ahead(self, epoch: int, index: int) -> np.ndarray:
        """Rows to bring into memory while batch ``index`` of ``epoch`` is served: int64, unique, in file order.

        In a block shuffle it is this batch's share of the next group: the batches of one group name each row of the
        next one once. The last group of an epoch names the first one of the next epoch; batch 0 of epoch 0 also names
        its own. In the other orders, nothing. A shard names only rows that it will serve: the others may be served by
        another machine.

        Nothing remembers what was named before. A run that is resumed inside a group reads the rest of that group
        without help. Raises IndexError outside the epoch.
        """
        start, stop = self._span(index)
        if self.shuffle != "block":
            return np.empty(0, dtype=np.int64)
        edges = self._epoch(epoch).edges
        first, end = np.searchsorted(edges, [start, stop - 1], side="right") - 1
        named = [self._share_of_next(epoch, group, start, stop) for group in range(first, end + 1)]
        if epoch == index == 0:
            named.append(self._rows_of_group(0, 0))
        return np.unique(np.concatenate(named))

    def _share_of_next(self, epoch: int, group: int, start: int, stop: int) -> np.ndarray:
        """What the positions ``start`` to ``stop``, as far as they lie in ``group``, name of the group after it."""
        edges = self._epoch(epoch).edges
        begin, end = edges[group : group + 2].tolist()
        is_last = group + 2 == len(edges)
        rows = self._rows_of_group(epoch + 1, 0) if is_last else self._rows_of_group(epoch, group + 1)
        before, after = (len(rows) * (min(max(place, begin), end) - begin) // (end - begin) for place in (start, stop))
        return rows[before:after]

    def _rows_of_group(self, epoch: int, group: int) -> np.ndarray:
        """Rows that this shard serves of one group, in file order."""
        order, edges = self._epoch(epoch)
        begin, end = edges[group : group + 2].tolist()
        index, count = self.shard
        return np.sort(order[begin + (index - begin) % count : end : count])  # position p belongs to shard p % count

    def _span(self, index: int) -> tuple[int, int]:
        """Positions of the global batch ``index``."""
        index = operator.index(index)
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} was asked for, but an epoch has batches 0 to {len(self) - 1}.")
        return index * self._global_batch_size, min((index + 1) * self._global_batch_size, self.n)

    @property
    def _global_batch_size(self) -> int:
        return self.batch_size * self.shard[1]

    def _epoch(self, epoch: int) -> _Epoch:
        made = self._epochs.get(epoch)
        if made is None:
            made = self._make_epoch(whole_number("epoch", epoch, 0))
            made.order.setflags(write=False)  # batches are views of it: a caller that sorts one must get a copy
            # A new dict instead of a change in place: threads may be reading the old one.
            kept = dict(list(self._epochs.items())[1 - _EPOCHS_KEPT :])
            self._epochs = {**kept, epoch: made}
        return made

    def _make_epoch(self, epoch: int) -> _Epoch:
        rng = np.random.default_rng([self.seed, epoch])
        if self.shuffle == "block":
            groups = self._groups(rng)
            edges = np.cumsum([0, *map(len, groups)])
            served = self.n - self.dropped_rows
            return _Epoch(np.concatenate(groups), np.append(edges[edges < served], served))
        return _Epoch(rng.permutation(self.n) if self.shuffle == "full" else np.arange(self.n), np.array([0, self.n]))

    def _groups(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Rows of each group of open blocks, mixed."""
        starts = rng.permutation(np.arange(0, self.n, self.block_rows))
        # Groups of nearly equal size: a last group of one block would be served almost in file order.
        groups = np.array_split(starts, -(-len(starts) // self.open_blocks))
        return [rng.permutation(self._rows_of_blocks(group)) for group in groups]

    def _rows_of_blocks(self, starts: np.ndarray) -> np.ndarray:
        return np.concatenate([np.arange(start, min(start + self.block_rows, self.n)) for start in starts])

    def __getstate__(self):
        return {**self.__dict__, "_epochs": {}}  # cheap to make again, and large for large files

    def __repr__(self) -> str:
        return (
            f"EpochOrder(n={self.n}, batch_size={self.batch_size}, shuffle={self.shuffle!r}, seed={self.seed}, "
            f"shard={self.shard}, drop_last={self.drop_last}): {len(self)} batches an epoch"
        )


def _checked_shard(shard) -> tuple[int, int]:
    try:
        index, count = (operator.index(value) for value in shard)
    except (TypeError, ValueError):
        raise TypeError(f"shard must be a pair of integers (index, count); got {shard!r}.") from None
    if not 0 <= index < count:
        raise ValueError(f"shard must be (index, count) with 0 <= index < count; got {(index, count)}.")
    return index, count
