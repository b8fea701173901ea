"""Right and wrong answers to the exercises of lesson 08; a wrong one stands under the name of its mistake."""

from itertools import zip_longest

import numpy as np

# --- 08.1 -----------------------------------------------------------------------------------------------------------

TOOLS = {"A": (1, 128, None), "B": (2, 32, (1, 2)), "C": (3, 32, (0, 3)), "D": (4, 32, None)}


def with_part(case, tool=None, size=None, shard=...):
    """The right answer with one thing changed."""
    old = TOOLS[case]
    return {**TOOLS, case: (tool or old[0], size or old[1], old[2] if shard is ... else shard)}


# --- 08.2 -----------------------------------------------------------------------------------------------------------


def by_cards(order, batch_size, index, count):
    """The whole order is dealt out first, then cut: the same, if the rest is looked at."""
    n, size = len(order), batch_size * count
    served = n - n % size if n % size < count else n
    mine = order[:served][index::count]
    return [mine[start : start + batch_size].tolist() for start in range(0, len(mine), batch_size)]


def row_by_row(order, batch_size, index, count):
    """Asks for each row who reads it; hands out one batch after the other."""
    size = batch_size * count
    for start in range(0, len(order), size):
        part = list(order)[start : start + size]
        if len(part) < count:
            return
        yield tuple(row for place, row in reversed(list(enumerate(part))) if place % count == index)


def dealt(first=lambda part, size, index, count: part[index::count], keep=lambda part, size, count: len(part) >= count):
    """An answer to 08.2 with one thing done in another way."""

    def answer(order, batch_size, index, count):
        size = batch_size * count
        whole = [order[start : start + size] for start in range(0, len(order), size)]
        return [first(part, batch_size, index, count) for part in whole if keep(part, size, count)]

    return answer


def one_piece(order, batch_size, index, count):
    """A third of the order for each."""
    mine = np.array_split(order, count)[index]
    return [mine[start : start + batch_size] for start in range(0, len(mine), batch_size)]


def rest_not_dropped(order, batch_size, index, count):
    """Dealt out, then cut; nobody looks at the rest."""
    mine = order[index::count]
    return [mine[start : start + batch_size] for start in range(0, len(mine), batch_size)]


def small_global_batch(order, batch_size, index, count):
    """The global batch has batch_size rows in all."""
    return [order[start : start + batch_size][index::count] for start in range(0, len(order), batch_size)]


def twice_at_the_end(order, batch_size, index, count):
    """A short last batch is filled from the beginning."""
    batches = dealt()(order, batch_size, index, count)
    return [np.concatenate([batch, batches[0]])[:batch_size] for batch in batches]


# --- 08.3 -----------------------------------------------------------------------------------------------------------


def with_sets(parts, classes):
    """Sets instead of counts; gives a set."""
    rows = [int(row) for part in parts for batch in part for row in batch]
    found = set()
    if len(rows) != len(set(rows)):
        found.add("twice")
    if len(set(range(len(classes))) - set(rows)) >= len(parts):
        found.add("never")
    lengths = {len(part) for part in parts}
    if len(lengths) != 1:
        found.add("steps")
    for step in zip_longest(*parts):
        if len({len(batch) for batch in step if batch is not None}) > 1:
            found.add("sizes")
    for part in parts:
        met = {int(classes[row]) for batch in part for row in batch}
        if met < set(classes.tolist()):
            found.add("classes")
    return found


def with_arrays(parts, classes):
    """With NumPy; gives a tuple."""
    rows = [np.concatenate(part) for part in parts]
    different, times = np.unique(np.concatenate(rows), return_counts=True)
    sizes = np.array(list(zip_longest(*[map(len, part) for part in parts], fillvalue=-1)))
    unequal = [len(np.unique(step[step >= 0])) > 1 for step in sizes]
    tests = {
        "twice": (times > 1).any(),
        "never": len(classes) - len(different) >= len(parts),
        "steps": (sizes < 0).any(),
        "sizes": any(unequal),
        "classes": any(len(np.unique(classes[mine])) < len(np.unique(classes)) for mine in rows),
    }
    return tuple(np.array(list(tests))[list(tests.values())])


def blind_to(*words):
    """Never finds these."""
    return lambda parts, classes: with_sets(parts, classes) - set(words)


def also(word, when):
    """Finds this word too often."""
    return lambda parts, classes: with_sets(parts, classes) | ({word} if when(parts, classes) else set())


def instead(word, when):
    """Finds this word by another rule."""
    return lambda parts, classes: blind_to(word)(parts, classes) | ({word} if when(parts, classes) else set())


def reads(parts):
    """The number of reads."""
    return sum(len(batch) for part in parts for batch in part)


def doubles_between(parts, classes):
    """Rows of a process as a set, too early."""
    sets = [{int(row) for batch in part for row in batch} for part in parts]
    return sum(map(len, sets)) > len(set.union(*sets))


# --- 08.4 -----------------------------------------------------------------------------------------------------------


def weighted(weights_of=lambda sizes: np.array(sizes) / sum(sizes)):
    """A sum of the gradients with these weights."""

    def function(gradients, sizes):
        weights = weights_of(sizes)
        return [sum(w * part for w, part in zip(weights, parts, strict=True)) for parts in zip(*gradients, strict=True)]

    return function


def running(gradients, sizes):
    """A sum over rows, then divided; a tuple of float32."""
    total = [np.zeros_like(part) for part in gradients[0]]
    for of_process, size in zip(gradients, sizes, strict=True):
        for place, part in enumerate(of_process):
            total[place] += size * part
    return tuple((part / sum(sizes)).astype("float32") for part in total)


# --- 08.5 -----------------------------------------------------------------------------------------------------------


def with_loops(batches, classes, block_rows):
    """In plain Python; gives a list."""
    last, jumps, kinds = None, 0, 0
    for rows in batches:
        for row in sorted(rows.tolist()):
            jumps += last is not None and not last - block_rows <= row <= last + block_rows
            last = row
        kinds += len({int(classes[row]) for row in rows})
    return [jumps / len(batches), kinds / len(batches)]


def judged(visits=lambda batches: np.concatenate([np.sort(rows) for rows in batches]), jumps=None, kinds=None):
    """An answer to 08.5 with one thing done in another way."""
    jumps = jumps or (lambda steps, block_rows, count: np.count_nonzero(np.abs(steps) > block_rows) / count)
    kinds = kinds or (lambda batches, classes: np.mean([len(np.unique(classes[rows])) for rows in batches]))
    return lambda batches, classes, block_rows: (
        jumps(np.diff(visits(batches)), block_rows, len(batches)),
        kinds(batches, classes),
    )


def inside_of_batches(batches, classes, block_rows):
    """Each batch by itself."""
    long = sum(np.count_nonzero(np.diff(np.sort(rows)) > block_rows) for rows in batches)
    return long / len(batches), judged()(batches, classes, block_rows)[1]


# --- 08.6 -----------------------------------------------------------------------------------------------------------


def with_place(rows, row_bytes, machine):
    """Asks for the place first; rounds the seconds."""
    size = row_bytes * rows
    place = {True: "cache", False: "disk"}[size < machine["free"]]
    seconds = {"first": size / machine["disk"], "later": size / machine[place]}
    epochs = {name: np.round(np.maximum(value, machine["training"]), 3) for name, value in seconds.items()}
    return {**epochs, "memory": np.int64(24 * rows) * machine["processes"]}


def cost(
    seconds=max,
    pixels=lambda size, machine: size,
    first=lambda size, machine: "disk",
    later=lambda size, machine: "cache" if size <= machine["free"] else "disk",
    memory=lambda rows, row_bytes, processes: 24 * rows * processes,
):
    """An answer to 08.6 with one thing done in another way."""

    def answer(rows, row_bytes, machine):
        size, training = rows * row_bytes, machine["training"]
        epochs = {
            name: seconds(pixels(size, machine) / machine[place(size, machine)], training)
            for name, place in (("first", first), ("later", later))
        }
        return {**epochs, "memory": memory(rows, row_bytes, machine["processes"])}

    return answer


def partly_cached(rows, row_bytes, machine):
    """As if the cache always held what it can."""
    cached = min(rows * row_bytes, machine["free"])
    later = cached / machine["cache"] + (rows * row_bytes - cached) / machine["disk"]
    return {**cost()(rows, row_bytes, machine), "later": max(later, machine["training"])}


RIGHT = {
    "08.1": {
        "as asked": TOOLS,
        "lists, a shard that says none": {**{k: list(v) for k, v in TOOLS.items()}, "D": [np.int64(4), 32, [0, 1]]},
    },
    "08.2": {"dealt out, then cut": by_cards, "a generator of tuples": row_by_row, "as in the lesson": dealt()},
    "08.3": {"sets": with_sets, "arrays": with_arrays},
    "08.4": {
        "running sum": (running, "GFA"),
        "shares, set": [weighted(), {"a", "f", "g"}],
        "by average": (lambda gradients, sizes: [np.average(p, 0, sizes) for p in zip(*gradients)], "a, f, g"),  # noqa: B905
    },
    "08.5": {"loops": with_loops, "arrays": judged()},
    "08.6": {"place first": with_place, "by rules": cost()},
}
WRONG = {
    "08.1": {
        "wrong type": {**TOOLS, "A": ("MirroredStrategy", 128, None)},
        "wrong shape": {**TOOLS, "A": (1, 128)},
        "fails with Keras 3": with_part("C", tool=5),
        "a tool of one machine": with_part("B", tool=1),
        "gradients nobody needs": with_part("D", tool=5),
        "another tool": with_part("A", tool=4),
        "batch of one device": with_part("A", size=32),
        "batch of all processes": with_part("B", size=64),
        "another batch_size": with_part("C", size=11),
        "rows for one process alone": with_part("A", shard=(0, 4)),
        "no agreement": with_part("B", shard=None),
        "numbers from 1": with_part("B", shard=(2, 2)),
        "another shard": with_part("C", shard=(3, 0)),
        "separate trainings share rows": with_part("D", shard=(0, 10)),
    },
    "08.2": {
        "wrong type": lambda order, batch_size, index, count: {index: order},
        "everybody reads everything": lambda order, batch_size, index, count: dealt()(order, batch_size, 0, 1),
        "one piece for each": one_piece,
        "pieces of a global batch": dealt(lambda part, size, index, count: part[index * size : (index + 1) * size]),
        "global batch too small": small_global_batch,
        "order ignored": lambda order, batch_size, index, count: by_cards(
            np.arange(len(order)), batch_size, index, count
        ),
        "rows twice": twice_at_the_end,
        "unequal numbers of batches": rest_not_dropped,
        "an empty batch": dealt(keep=lambda part, size, count: True),
        "rest always dropped": dealt(keep=lambda part, size, count: len(part) == size),
        "other rows": dealt(lambda part, size, index, count: part[count - 1 - index :: count]),
    },
    "08.3": {
        "wrong type": lambda parts, classes: "twice",
        "unknown word": lambda parts, classes: ["missing"],
        "false alarm": also("classes", lambda parts, classes: len(parts) == 2),
        "dropped rest taken for lost": instead("never", lambda parts, classes: reads(parts) < len(classes)),
        "a smaller last step": also("sizes", lambda parts, classes: len({len(b) for part in parts for b in part}) > 1),
        "doubles unseen": blind_to("twice"),
        "doubles of one process unseen": instead("twice", doubles_between),
        "lost rows unseen": blind_to("never"),
        "reads counted, not rows": instead("never", lambda parts, cl: len(cl) - reads(parts) >= len(parts)),
        "waiting unseen": blind_to("steps"),
        "sizes unseen": instead("sizes", lambda parts, classes: len({len(part[0]) for part in parts}) > 1),
        "lost classes unseen": instead(
            "classes",
            lambda parts, classes: len(set(classes)) > len(set(classes[np.concatenate([b for p in parts for b in p])])),
        ),
    },
    "08.4": {
        "wrong type": lambda gradients, sizes: gradients[0],
        "wrong shape": (lambda gradients, sizes: [np.concatenate([np.ravel(p) for p in gradients[0]])], "afg"),
        "plain mean": (weighted(lambda sizes: np.ones(len(sizes)) / len(sizes)), "afg"),
        "a sum": (weighted(lambda sizes: np.ones(len(sizes))), "afg"),
        "weights do not add up": (weighted(lambda sizes: np.array(sizes) / sum(sizes) / len(sizes)), "afg"),
        "one process alone": (lambda gradients, sizes: gradients[0], "afg"),
        "another gradient": (weighted(lambda sizes: np.array(sizes[::-1]) / sum(sizes)), "afg"),
        "unequal last step unseen": (weighted(), "abfg"),
        "own seeds": (weighted(), "acfg"),
        "batch normalisation": (weighted(), "adfg"),
        "dropout": (weighted(), "aefg"),
        "nothing is exact": (weighted(), ""),
        "weights distrusted": (weighted(), "ag"),
        "augmentation suspected": (weighted(), "af"),
        "not a letter": (weighted(), "a and f"),
    },
    "08.5": {
        "wrong shape": lambda batches, classes, block_rows: [1.0],
        "in the order served": judged(visits=np.concatenate),
        "order of the whole epoch": judged(visits=lambda batches: np.sort(np.concatenate(batches))),
        "jumps between batches": inside_of_batches,
        "jumps backwards": judged(jumps=lambda steps, rows, count: np.sum(steps > rows) / count),
        "short jumps counted": judged(jumps=lambda steps, rows, count: np.sum(np.abs(steps) > 1) / count),
        "of the whole epoch": judged(jumps=lambda steps, rows, count: np.sum(np.abs(steps) > rows)),
        "other jumps": judged(jumps=lambda steps, rows, count: np.abs(steps).mean()),
        "classes of the epoch": judged(kinds=lambda batches, classes: len(set(classes[np.concatenate(batches)]))),
        "classes not divided": judged(kinds=lambda batches, classes: sum(len(set(classes[rows])) for rows in batches)),
        "rows counted": judged(kinds=lambda batches, classes: np.mean([len(classes[rows]) for rows in batches])),
        "other classes": judged(kinds=lambda batches, classes: len(set(classes[batches[0]]))),
    },
    "08.6": {
        "wrong type": lambda rows, row_bytes, machine: (1.0, 1.0, 1.0),
        "from the cache at once": cost(first=lambda size, machine: "cache"),
        "a cache too small": cost(later=lambda size, machine: "cache"),
        "cache never used": cost(later=lambda size, machine: "disk"),
        "part from the cache": partly_cached,
        "divided by processes": cost(pixels=lambda size, machine: size / machine["processes"]),
        "each reads everything": cost(pixels=lambda size, machine: size * machine["processes"]),
        "reading and training added": cost(seconds=lambda reading, training: reading + training),
        "training forgotten": cost(seconds=lambda reading, training: reading),
        "reading forgotten": cost(seconds=lambda reading, training: training),
        "pixels as floats": cost(pixels=lambda size, machine: 4 * size),
        "memory of one process": cost(memory=lambda rows, row_bytes, processes: 24 * rows),
        "order of one epoch": cost(memory=lambda rows, row_bytes, processes: 16 * rows * processes),
        "labels left out": cost(memory=lambda rows, row_bytes, processes: 8 * rows * processes),
        "pixels in memory": cost(memory=lambda rows, row_bytes, processes: (24 + row_bytes) * rows * processes),
        "other seconds": cost(pixels=lambda size, machine: 8 * size),
        "other bytes": cost(memory=lambda rows, row_bytes, processes: 3 * rows * processes),
    },
}
