"""What a sequence must be like when several processes share a training."""

from __future__ import annotations

import keras


def check_hosts(sequence, name: str = "generator") -> None:
    """Compare a sequence with the processes that share a training, ``keras.distribution.DataParallel`` on JAX.

    Raises
    ------
    ValueError
        The shard is not that of this process; or the processes would get last batches of different sizes, from which
        each of them would compute other gradients, without a word (Keras 3.15).
    """
    if keras.backend.backend() != "jax" or not isinstance(
        keras.distribution.distribution(), keras.distribution.DataParallel
    ):
        return
    import jax  # only where it is the backend

    here = jax.process_index(), jax.process_count()
    order = sequence.source.order
    if here[1] > 1 and tuple(order.shard) != here:
        raise ValueError(
            f"this is process {here[0]} of {here[1]} and {name} has shard={order.shard}: make it with shard={here}, so "
            "that each process reads its own part of every batch."
        )
    last = order.n % (order.batch_size * here[1])
    if here[1] > 1 and last >= here[1] and last % here[1] and not order.drop_last:
        raise ValueError(
            f"the last batch of a pass over {name} has {last} rows for {here[1]} processes, which is not the same for "
            "all of them: their weights would drift apart without a word. Make the sequence with drop_last=True, or "
            f"leave {last % here[1]} rows out (rows=)."
        )
