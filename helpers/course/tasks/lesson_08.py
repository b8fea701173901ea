"""Questions on lesson 08: one file for several processes, what a step of theirs is worth, and what an epoch costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from helpers.course.probes import (
    Wrong,
    a_dict,
    a_function,
    a_list,
    a_number,
    a_text,
    a_whole_number,
    an_array,
    describe,
    run,
    same,
    task,
    that,
)
from helpers.order import EpochOrder

# --- 08.1 -----------------------------------------------------------------------------------------------------------

_MIRRORED, _ON_JAX, _OWN_LOOP, _NOTHING, _MULTI_WORKER = 1, 2, 3, 4, 5
_TOOLS = {"A": _MIRRORED, "B": _ON_JAX, "C": _OWN_LOOP, "D": _NOTHING}
_SIZES = {"A": 4 * 32, "B": 32, "C": 32, "D": 32}
_SHARDS = {"A": None, "B": (1, 2), "C": (0, 3), "D": None}
_MACHINES = {"A": 1, "B": 2, "C": 3, "D": 10}


@task(
    "08.1",
    "Four ways to have more devices",
    objective=6,
    points=2,
    hints={
        "fails with Keras 3": "The table of section 6 names a gap: where does `fit` fail under this strategy?",
        "a tool of one machine": "This strategy is one process with several devices. Can it reach another machine?",
        "gradients nobody needs": "Must these trainings know anything of each other? See the last line of the table.",
        "another tool": "Look in the table of section 6: how many machines are there, and which backend has Keras?",
        "batch of one device": "`MirroredStrategy` cuts each batch into pieces, one a device. Of what size must it be?",
        "batch of all processes": "A process passes the batch_size of its own batches. Who makes the others?",
        "another batch_size": "32 images for each GPU in each step. How many GPUs does the batch of one process feed?",
        "rows for one process alone": "With one process there is one reader, and nothing to deal out.",
        "no agreement": "Each of these processes opens the file. How does it know which rows it shall read?",
        "numbers from 1": "`shard` is (index, count): indices begin at 0, so the largest one is count - 1.",
        "another shard": "`shard` is (index, count): the number of this process, and how many there are.",
        "separate trainings share rows": "Each of these trainings needs all rows: they share no step.",
    },
    note="Devices of one machine share a batch, processes share an epoch, and separate trainings share nothing.",
)
def which_tool(answer):
    given = a_dict(answer, list(_TOOLS), "your answer")
    parts = {case: _three(given[case], case) for case in _TOOLS}
    for case, (tool, _, _) in parts.items():
        that(tool == _TOOLS[case], _wrong_tool(case, tool), f"{case}: the number of the tool that fits", tool)
    yield
    for case, (_, size, shard) in parts.items():
        name = {_MACHINES[case] * 32: "batch of all processes", 32: "batch of one device"}.get(size)
        that(size == _SIZES[case], name or "another batch_size", f"{case}: batch_size for 32 images a GPU", size)
        that(shard == _SHARDS[case], _wrong_shard(case, shard), f"{case}: shard", describe(shard))
    yield


def _three(value: object, case: str) -> tuple[int, int, tuple[int, int] | None]:
    """(tool, batch_size, shard)."""
    parts = a_list(value, f"{case}: (tool, batch_size, shard)")
    that(len(parts) == 3, "wrong shape", f"{case}: three things, (tool, batch_size, shard)", f"{len(parts)} of them")
    tool, size = (
        a_whole_number(one, f"{case}: {what}") for one, what in zip(parts, ("tool", "batch_size"), strict=False)
    )
    return tool, size, _shard_of(parts[2], case)


def _wrong_tool(case: str, tool: int) -> str:
    if case == "D" and tool in range(1, 6):
        return "gradients nobody needs"
    if case in "BC" and tool == _MIRRORED:
        return "a tool of one machine"
    return "fails with Keras 3" if case == "C" and tool == _MULTI_WORKER else "another tool"


def _shard_of(value: object, case: str) -> tuple[int, int] | None:
    """(index, count), or None for none, which (0, 1) also says."""
    if value is None:
        return None
    pair = a_list(value, f"{case}: shard, a pair (index, count) or None")
    that(len(pair) == 2, "wrong shape", f"{case}: shard is a pair (index, count) or None", f"{len(pair)} values")
    shard = tuple(a_whole_number(one, f"{case}: a number of shard") for one in pair)
    return None if shard == (0, 1) else shard


def _wrong_shard(case: str, shard: tuple[int, int] | None) -> str:
    if case in "AD":
        return "rows for one process alone" if case == "A" else "separate trainings share rows"
    if shard is None:
        return "no agreement"
    index, count = _SHARDS[case]
    return "numbers from 1" if shard == (index + 1, count) else "another shard"


# --- 08.2 -----------------------------------------------------------------------------------------------------------

_DEALS = [  # rows, batch_size, count: with no rest, one that is dropped, one that is dealt out, one of a batch and more
    (12, 2, 3),
    (14, 2, 3),
    (16, 2, 3),
    (23, 4, 2),
    (50, 5, 4),
    (9, 3, 1),
    (10, 3, 1),
]


@task(
    "08.2",
    "Who reads which rows?",
    objective=1,
    points=4,
    hints={
        "everybody reads everything": "All processes got the same rows. What does `index` change?",
        "one piece for each": "You cut the order into count parts. A global batch comes first, dealt out to all.",
        "pieces of a global batch": "You cut a global batch into neighbouring pieces. It is dealt out like cards: one "
        "row to each process in turn, then again.",
        "global batch too small": "A global batch has batch_size rows for each process.",
        "order ignored": "Rows are dealt out in the order that was given: look up the rows at these places in it.",
        "rows twice": "Put the rows of all processes together. Some come more than once.",
        "unequal numbers of batches": "One process has a batch more than another, and would wait for it for ever. "
        "What happens to a rest with fewer rows than processes?",
        "an empty batch": "A process without rows has no gradient. What happens to a rest that is too short for all?",
        "rest always dropped": "A rest with at least count rows gives every process a batch, a smaller one.",
        "other rows": "Deal out 16 rows to three processes by hand, two rows a batch, and compare.",
    },
    note="Every global batch is dealt out in turn, and what is too short for all is read by nobody.",
)
def deal_out(answer):
    function = a_function(answer, "order, batch_size, index, count")
    cases = [_Deal(n, size, count, seed) for seed, (n, size, count) in enumerate(_DEALS)]
    found = [case.dealt_by(function) for case in cases]
    yield
    for case, parts in zip(cases, found, strict=True):
        _compare_first(case, parts)
    yield
    for case, parts in zip(cases, found, strict=True):
        counts = [len(part) for part in parts]
        expected = f"{case}: {len(case.right[0])} batches for each process"
        that(len(set(counts)) == 1, "unequal numbers of batches", expected, counts)
        that(
            all(map(all, map(_lengths, parts))),
            "an empty batch",
            f"{case}: a row at least in each batch",
            "none in one",
        )
        rows = [row for part in parts for batch in part for row in batch]
        that(len(rows) == len(set(rows)), "rows twice", f"{case}: no row twice", "some rows twice")
    yield
    for case, parts in zip(cases, found, strict=True):
        dropped = "rest always dropped" if len(parts[0]) < len(case.right[0]) else "other rows"
        same(_sorted(parts), _sorted(case.right), dropped, f"{case}: batches of each process")
    yield


@dataclass
class _Deal:
    """One epoch that is dealt out, and how it should be."""

    n: int
    batch_size: int
    count: int
    seed: int
    order: np.ndarray = field(init=False)
    right: list = field(init=False)

    def __post_init__(self):
        self.order = np.random.default_rng([3, self.seed]).permutation(self.n)
        places = [
            EpochOrder(self.n, self.batch_size, None, 0, shard=(index, self.count)).batches(0)
            for index in range(self.count)
        ]
        self.right = [[self.order[batch].tolist() for batch in part] for part in places]

    def dealt_by(self, function: Callable) -> list[list[list[int]]]:
        """The batches of each process, as the answer gives them."""
        return [self._part(function, index) for index in range(self.count)]

    def _part(self, function, index: int) -> list[list[int]]:
        call = f"answer(order, {self.batch_size}, {index}, {self.count}) with {self.n} rows"
        got = run(function, self.order, self.batch_size, index, self.count, call=call)
        got = a_list(list(got) if isinstance(got, Iterator) else got, call)
        batches = [a_list(batch, f"{call}: a batch") for batch in got]
        return [[a_whole_number(row, f"{call}: a row") for row in batch] for batch in batches]

    def __str__(self):
        return f"{self.n} rows, batch_size {self.batch_size}, {self.count} processes"


def _lengths(part: list) -> list[int]:
    return [len(batch) for batch in part]


def _sorted(parts: list) -> list:
    """The order of rows inside of a batch does not matter."""
    return [[sorted(batch) for batch in part] for part in parts]


def _compare_first(case: _Deal, parts: list) -> None:
    """The first global batch is dealt out as it should be, or it is one of the known other ways."""
    first = [sorted(part[0]) if part else [] for part in parts]
    right = [sorted(part[0]) for part in case.right]
    if first == right:
        return
    n, size, count, order = case.n, case.batch_size, case.count, case.order
    ways = {
        "everybody reads everything": [order[:size]] * count,
        "pieces of a global batch": [order[index * size : (index + 1) * size] for index in range(count)],
        "global batch too small": [order[:size][index::count] for index in range(count)],
        "order ignored": [np.arange(size * count)[index::count] for index in range(count)],
    }
    for length in {n // count, -(-n // count)}:
        ways |= {
            f"one piece for each, of {length}": [order[i * length : (i + 1) * length][:size] for i in range(count)]
        }
    names = [name for name, rows in ways.items() if first == [sorted(part.tolist()) for part in rows]]
    if len(set(map(str, first))) == 1 < count:
        names.insert(0, "everybody reads everything")
    name = names[0].partition(",")[0] if names else "other rows"
    raise Wrong(name, f"{case}: of the first batches each row by the right process", f"{first}")


# --- 08.3 -----------------------------------------------------------------------------------------------------------

_WORDS = ("twice", "never", "steps", "sizes", "classes")


@dataclass
class _Division:
    """A way to divide a file, what is wrong with it, and the name of the mistake to be blind to that."""

    what: str
    parts: list
    classes: np.ndarray
    faults: set
    unseen: dict = field(default_factory=dict)  # fault -> the mistake of not finding it here
    false_alarm: dict = field(default_factory=dict)  # word -> the mistake of finding it here


_UNSEEN = {
    "twice": "doubles unseen",
    "never": "lost rows unseen",
    "steps": "waiting unseen",
    "sizes": "sizes unseen",
    "classes": "lost classes unseen",
}


def _ordered(n: int, size: int, seeds, shards, shuffle="full") -> list[list[np.ndarray]]:
    return [
        EpochOrder(n, size, shuffle, seed=seed, shard=shard).batches(0)
        for seed, shard in zip(seeds, shards, strict=True)
    ]


def _cut(rows, size: int) -> list[np.ndarray]:
    return [np.asarray(rows)[start : start + size] for start in range(0, len(rows), size)]


def _divisions() -> list[_Division]:
    """Fresh divisions: faultless ones first, then each fault by itself where it can be."""
    two, three = [(0, 2), (1, 2)], [(0, 3), (1, 3), (2, 3)]
    kinds = np.arange(1_000) // 2 % 4  # every process meets all of them
    by_class = np.repeat(np.arange(4), 30)
    mixed = by_class[np.random.default_rng(5).permutation(120)]
    late = np.arange(6, 126)
    halves = [_cut(np.arange(60), 10), _cut(np.arange(60, 120), 10)]
    evens, odds = np.arange(0, 120, 2), np.arange(1, 120, 2)
    return [
        _Division("a faultless one", _ordered(120, 10, [0, 0, 0], three), kinds[:120], set()),
        _Division(
            "122 rows, of which 2 are too few for three",
            _ordered(122, 10, [0, 0, 0], three),
            kinds[:122],
            set(),
            false_alarm={"never": "dropped rest taken for lost"},
        ),
        _Division(
            "all have a smaller last batch",
            _ordered(96, 10, [0, 0, 0], three),
            kinds[:96],
            set(),
            false_alarm={"sizes": "a smaller last step"},
        ),
        _Division("halves of a mixed file", halves, mixed, set()),
        _Division("shard forgotten", _ordered(120, 10, [0, 0], [(0, 1)] * 2), kinds[:120], {"twice"}),
        _Division(
            "a row twice in one process",
            [_cut([*evens[:-1], 0], 10), _cut(odds, 10)],
            kinds[:120],
            {"twice"},
            {"twice": "doubles of one process unseen"},
        ),
        _Division("rows 0 to 5 left out", [_cut(late[i::2], 10) for i in range(2)], kinds[:126], {"never"}),
        _Division("the last 20 rows left out", _ordered(120, 10, [0, 0], two), kinds[:140], {"never"}),
        _Division(
            "a seed for each process",
            _ordered(120, 10, [0, 1, 2], three),
            kinds[:120],
            {"twice", "never"},
            {"never": "reads counted, not rows"},
        ),
        _Division(
            "order[i::3] cut into batches", [_cut(np.arange(121)[i::3], 10) for i in range(3)], kinds[:121], {"steps"}
        ),
        _Division("a last step of 7, 7 and 6", _ordered(140, 20, [0, 0, 0], three), kinds[:140], {"sizes"}),
        _Division(
            "a last step that two of three take, 20 and 10",
            [_cut(np.arange(60), 20), _cut(np.arange(60, 110), 20), _cut(np.arange(110, 150), 20)],
            np.arange(150) % 3,
            {"sizes", "steps"},
        ),
        _Division("two batch_sizes", [_cut(evens, 15), _cut(odds, 12)], kinds[:120], {"sizes", "steps"}),
        _Division("halves of a file sorted by class", halves, by_class, {"classes"}),
    ]


@task(
    "08.3",
    "Mistakes that nobody reports",
    objective=2,
    points=5,
    hints={
        "unknown word": "The findings are some of the five words of the task, spelled as there.",
        "false alarm": "Nothing of this kind is wrong with this division. Which line of yours says so?",
        "dropped rest taken for lost": "A rest with fewer rows than processes is dropped by right. How many rows may "
        "be left?",
        "a smaller last step": "The last batches are smaller, and all equally. Compare batches of one step with each "
        "other, not with the first step.",
        "reads counted, not rows": "As many rows were read as the file has; but are they all different?",
        "doubles unseen": "Two processes read the same rows. Put the rows of all of them together and count.",
        "doubles of one process unseen": "A row can also come twice in one process. Did you make sets too early?",
        "lost rows unseen": "Some rows are in no batch. From where do you know which rows there are?",
        "waiting unseen": "The processes have different numbers of batches: one waits for the others in the last step.",
        "sizes unseen": "In some step the batches differ in size. Look at all steps, the last one too.",
        "lost classes unseen": "A class is missing in the batches of one process. Look at each process by itself.",
    },
    note="What no process can see for itself is seen at once when the rows of all are put side by side.",
)
def silent_mistakes(answer):
    function = a_function(answer, "parts, classes")
    divisions = _divisions()
    found = [_findings(function, division) for division in divisions]
    yield
    for words in (("twice",), ("never",), ("steps", "sizes"), ("classes",)):
        for division, got in zip(divisions, found, strict=True):
            _compare_findings(division, got, words)
        yield


def _findings(function, division: _Division) -> set[str]:
    call = f"answer(parts, classes), {division.what}"
    words = a_list(run(function, division.parts, division.classes, call=call), call)
    for word in words:
        that(
            isinstance(word, str) and word in _WORDS,
            "unknown word",
            f"{call}: words out of {', '.join(_WORDS)}",
            describe(word),
        )
    return set(words)


def _compare_findings(division: _Division, got: set[str], words: tuple) -> None:
    for word in words:
        what = f"{division.what}: " + (f"{word!r} is found" if word in division.faults else f"no {word!r}")
        seen = f"{sorted(got)}"
        alarm = division.false_alarm.get(word, "false alarm")
        that(word in division.faults or word not in got, alarm, what, seen)
        unseen = division.unseen.get(word, _UNSEEN[word])
        that(word not in division.faults or word in got, unseen, what, seen)


# --- 08.4 -----------------------------------------------------------------------------------------------------------

_EXACT = set("afg")
_NOT_EXACT = {  # set-up -> the mistake to call it exact
    "b": "unequal last step unseen",
    "c": "own seeds",
    "d": "batch normalisation",
    "e": "dropout",
}
_TOO_STRICT = {"a": "nothing is exact", "f": "weights distrusted", "g": "augmentation suspected"}


@task(
    "08.4",
    "Exactly like one",
    objective=3,
    points=4,
    hints={
        "plain mean": "An image in a smaller batch then counts more than the others. Give each gradient its weight.",
        "a sum": "A gradient of the mean loss does not grow with the number of processes.",
        "weights do not add up": "Your weights have the right proportions. What do they add up to?",
        "one process alone": "That is the gradient of one process. Those of the others belong in as well.",
        "another gradient": "Two processes, sizes 3 and 1, gradients 1.0 and 5.0: all four images together give 2.0.",
        "unequal last step unseen": "1,400 rows are 23 global batches of 60 and a rest. How is it dealt out? What "
        "does the plain mean do with it?",
        "own seeds": "Each process now deals out another order. Are the batches still thirds of one global batch?",
        "batch normalisation": "This layer subtracts a mean over the images of a batch. Over which images here?",
        "dropout": "This layer draws random numbers. Would three processes draw those of one?",
        "nothing is exact": "Compare the steps of a with those of one process, batches of 60: same rows, equal sizes?",
        "weights distrusted": "With unequal sizes, which mean of the three gradients is right?",
        "augmentation suspected": "Which numbers decide how an image is changed? Do they depend on the process?",
        "not a letter": "The second part is a text of letters from a to g, such as 'abc'.",
    },
    note="Same rows, gradients weighted by size, and no layer that mixes images or throws dice: then many are one.",
)
def exactly_like_one(answer):
    that(isinstance(answer, tuple | list), "wrong type", "a pair, (function, text)", describe(answer))
    pair = list(answer)
    that(len(pair) == 2, "wrong shape", "two things: a function and a text of letters", f"{len(pair)} of them")
    function = a_function(pair[0], "gradients, sizes")
    text = pair[1] if isinstance(pair[1], str) else "".join(map(str, a_list(pair[1], "the set-ups: a text of letters")))
    chosen = set(a_text(text, "the set-ups").lower()) - set(" ,;")
    that(chosen <= set("abcdefg"), "not a letter", "a text of letters from a to g", describe(text))
    found = [_averaged(function, *case) for case in _gradients()]
    yield
    for (gradients, sizes), got in zip(_gradients(), found, strict=True):
        _compare_gradients(gradients, sizes, got)
    yield
    for letter, name in _NOT_EXACT.items():
        that(letter not in chosen, name, f"set-up {letter}: exact, or not", "exact")
    yield
    for letter in sorted(_EXACT):
        that(letter in chosen, _TOO_STRICT[letter], f"set-up {letter}: exact, or not", "not exact")
    yield


def _gradients() -> list[tuple[list, list]]:
    """(gradients, sizes): of each process a list of arrays, one a weight of the model."""
    cases = []
    for seed, sizes in enumerate([[20, 20, 20], [7, 7, 6], [1, 3], [26]]):
        rng = np.random.default_rng([4, seed])
        shapes = [(3, 3, 2, 4), (4,), (8, 5)]
        cases.append(([[rng.normal(1, 1, shape) for shape in shapes] for _ in sizes], sizes))
    return cases


def _averaged(function, gradients: list, sizes: list) -> list[np.ndarray]:
    call = f"the function(gradients, {sizes})"
    got = a_list(run(function, gradients, sizes, call=call), f"{call}: a list of arrays")
    that(len(got) == 3, "wrong shape", f"{call}: 3 arrays, one a weight", f"{len(got)} of them")
    shapes = [part.shape for part in gradients[0]]
    return [
        an_array(part, f"{call}: gradient of weight {place}", shape=shape)
        for place, (part, shape) in enumerate(zip(got, shapes, strict=True))
    ]


def _compare_gradients(gradients: list, sizes: list, got: list[np.ndarray]) -> None:
    share = np.array(sizes) / sum(sizes)
    mistakes = [  # the weights of the processes that some people's code gives
        ("plain mean", np.full(len(sizes), 1 / len(sizes))),
        ("a sum", np.ones(len(sizes))),
        ("weights do not add up", np.array(sizes)),
        ("weights do not add up", share / len(sizes)),
        *(("one process alone", weights) for weights in np.eye(len(sizes))),
    ]

    def is_mean(weights) -> bool:
        means = [sum(w * part[place] for w, part in zip(weights, gradients, strict=True)) for place in range(3)]
        return all(np.allclose(one, mean, rtol=1e-4) for one, mean in zip(got, means, strict=True))

    if not is_mean(share):
        known = [name for name, weights in mistakes if is_mean(weights)]
        name = known[0] if known else "another gradient"
        raise Wrong(name, f"batches of {sizes} rows: the gradient of one batch of {sum(sizes)}", "another one")


# --- 08.5 -----------------------------------------------------------------------------------------------------------


@task(
    "08.5",
    "What block shuffle saves, and what it gives up",
    objective=5,
    points=3,
    hints={
        "in the order served": "The rows of a batch are visited in the order of the file, whatever their order in it.",
        "order of the whole epoch": "Only the rows of one batch are visited in the order of the file; then the next "
        "batch begins.",
        "jumps between batches": "From the last row of a batch to the first one of the next can be a jump, too.",
        "jumps backwards": "A jump towards the beginning of the file is as long as one towards its end.",
        "short jumps counted": "A jump is long when it passes more than block_rows rows.",
        "of the whole epoch": "Asked for are jumps a batch, not of the epoch.",
        "other jumps": "Count by hand: batches [0, 500, 1] and [900], block_rows=128. Which rows follow which?",
        "classes of the epoch": "Count the classes of each batch by itself, then take the mean over the batches.",
        "classes not divided": "That is a sum over the batches. Asked for is their mean.",
        "rows counted": "Two rows of one class are one class. Count the different ones.",
        "other classes": "Look up the classes of one batch with its row numbers, and count the different ones.",
    },
    note="Fewer long jumps for fewer neighbours: in a mixed file that costs little, in a sorted one the classes.",
)
def block_shuffle(answer):
    function = a_function(answer, "batches, classes, block_rows")
    cases = _epochs()
    found = [_jumps_and_classes(function, *case) for case in cases]
    yield
    for (batches, _, block_rows), (jumps, _) in zip(cases, found, strict=True):
        _compare_jumps(batches, block_rows, jumps)
    yield
    for (batches, classes, _), (_, kinds) in zip(cases, found, strict=True):
        _compare_classes(batches, classes, kinds)
    yield


def _epochs() -> list[tuple[list, np.ndarray, int]]:
    """(batches, classes, block_rows): a few by hand, then mixed, in blocks, and in the order of the file."""
    by_hand = [np.array(rows) for rows in ([0, 500, 1], [900, 700, 901], [100, 400], [950, 5, 980])]
    mixed = np.random.default_rng(6).integers(0, 10, 2_000)
    cases = [(by_hand, np.arange(1_000) % 7, 128)]
    for shuffle, classes, block_rows in (("full", mixed, 50), ("block", np.sort(mixed), 50), (None, mixed, 128)):
        order = EpochOrder(2_000, 30, shuffle, seed=1, block_rows=block_rows, open_blocks=4)
        cases.append((order.batches(0), classes, block_rows))
    return cases


def _jumps_and_classes(function, batches: list, classes: np.ndarray, block_rows: int) -> tuple[float, float]:
    call = f"answer(batches, classes, {block_rows})"
    pair = a_list(run(function, batches, classes, block_rows, call=call), call)
    that(len(pair) == 2, "wrong shape", f"{call}: two numbers, (jumps, kinds)", f"{len(pair)} of them")
    return tuple(a_number(one, f"{call}: {what}") for one, what in zip(pair, ("jumps", "kinds"), strict=True))


def _compare_jumps(batches: list, block_rows: int, got: float) -> None:
    ordered = [np.sort(rows) for rows in batches]
    steps = np.diff(np.concatenate(ordered))
    inside = sum(np.count_nonzero(np.diff(rows) > block_rows) for rows in ordered)
    long = np.count_nonzero(np.abs(steps) > block_rows)
    served = np.count_nonzero(np.abs(np.diff(np.concatenate(batches))) > block_rows)
    whole = np.count_nonzero(np.diff(np.sort(np.concatenate(batches))) > block_rows)
    mistakes = {
        "in the order served": served,
        "jumps between batches": inside,
        "jumps backwards": np.count_nonzero(steps > block_rows),
        "short jumps counted": np.count_nonzero(steps != 1),
        "of the whole epoch": long * len(batches),
        "order of the whole epoch": whole,
    }
    known = {name: number / len(batches) for name, number in mistakes.items()}
    _is_number(got, long / len(batches), known, "other jumps", "jumps")


def _compare_classes(batches: list, classes: np.ndarray, got: float) -> None:
    kinds = [len(np.unique(classes[rows])) for rows in batches]
    mistakes = {
        "classes of the epoch": len(np.unique(classes[np.concatenate(batches)])),
        "classes not divided": sum(kinds),
        "rows counted": np.mean([len(rows) for rows in batches]),
    }
    _is_number(got, float(np.mean(kinds)), mistakes, "other classes", "kinds")


def _is_number(got: float, right: float, mistakes: Mapping[str, float], otherwise: str, what: str) -> None:
    if not np.isclose(got, right, rtol=5e-3, atol=5e-3):
        known = [name for name, value in mistakes.items() if np.isclose(got, value, rtol=5e-3, atol=5e-3)]
        raise Wrong(known[0] if known else otherwise, f"{what}: {right:.4g}", f"{got:.4g}")


# --- 08.6 -----------------------------------------------------------------------------------------------------------

_KEYS = ("first", "later", "memory")
_MACHINE = {"disk": 1e8, "cache": 4e9, "free": 5e9, "processes": 5, "training": 2.0}
_COSTS = [  # rows, bytes a row, the machine: fits and does not, waits and does not, one process and several
    (70_700, 268_203, _MACHINE),
    (10_000, 268_203, _MACHINE),
    (10_000, 268_203, _MACHINE | {"processes": 1, "training": 0.5}),
    (10_000, 268_203, _MACHINE | {"training": 600.0}),
    (2_000_000, 12_288, _MACHINE | {"free": 64e9, "processes": 8, "disk": 5e8, "training": 40.0}),
]


@task(
    "08.6",
    "An epoch of your own file",
    objective=4,
    points=5,
    hints={
        "from the cache at once": "In the first epoch nothing has been read before. Where do the bytes come from?",
        "a cache too small": "The page cache holds only what fits into free memory. Compare bytes with bytes.",
        "part from the cache": "The next epoch asks for its rows in another order. The task says what to count on "
        "when the file does not fit.",
        "cache never used": "The first epoch left a file that fits into free memory there. Where do others read it?",
        "divided by processes": "The processes share one disk. Together they still read every row once.",
        "each reads everything": "With `shard` every row is read by one process. How many bytes is that in all?",
        "reading and training added": "Workers read while the model trains. Which of the two does an epoch wait for?",
        "training forgotten": "An epoch also trains. It ends when both are done.",
        "reading forgotten": "An epoch also reads. It ends when both are done.",
        "pixels as floats": "The file holds bytes: row_bytes is all that a row takes there.",
        "memory of one process": "Every process makes the order for itself, and keeps the labels for itself.",
        "order of one epoch": "Workers read ahead, over the end of the epoch. Orders of how many epochs are in memory?",
        "labels left out": "Beside the order each row has its label, a number of 8 bytes.",
        "pixels in memory": "Pixels stay in the file. What is kept for each row are three numbers of 8 bytes.",
        "other seconds": "Take one row by hand: its bytes, its seconds on the disk, then those of all rows.",
        "other bytes": "Count the numbers that are kept for a row, times 8 bytes, times rows, times processes.",
    },
    note="A first epoch costs what the disk gives; a later one may be cheaper, but only if the file fits into memory.",
)
def cost_of_an_epoch(answer):
    function = a_function(answer, "rows, row_bytes, machine")
    found = [_cost(function, *case) for case in _COSTS]
    yield
    for case, got in zip(_COSTS, found, strict=True):
        _compare_seconds(*case, got["first"], first=True)
    yield
    for fits in (True, False):  # a point for each
        for (rows, row_bytes, machine), got in zip(_COSTS, found, strict=True):
            if fits == (rows * row_bytes <= machine["free"]):
                _compare_seconds(rows, row_bytes, machine, got["later"], first=False)
        yield
    for (rows, row_bytes, machine), got in zip(_COSTS, found, strict=True):
        of_each, processes = 24 * rows, machine["processes"]
        mistakes = {
            "memory of one process": of_each,
            "order of one epoch": 16 * rows * processes,
            "labels left out": 8 * rows * processes,
            "pixels in memory": (row_bytes + 24) * rows * processes,
        }
        what = f"bytes in memory, {_words(rows, machine)}"
        _is_cost(got["memory"], of_each * processes, mistakes, "other bytes", what)
    yield


def _cost(function, rows: int, row_bytes: int, machine: dict) -> dict[str, float]:
    call = f"answer({rows}, {row_bytes}, machine)"
    got = a_dict(run(function, rows, row_bytes, machine, call=call), _KEYS, call)
    return {key: a_number(got[key], f"{call}: {key!r}") for key in _KEYS}


def _compare_seconds(rows: int, row_bytes: int, machine: dict, got: float, *, first: bool) -> None:
    size, training, processes = rows * row_bytes, machine["training"], machine["processes"]
    from_disk, from_cache = size / machine["disk"], size / machine["cache"]
    fits = not first and size <= machine["free"]
    reading, other = (from_cache, from_disk) if fits else (from_disk, from_cache)
    of_place = "cache never used" if fits else "from the cache at once" if first else "a cache too small"
    mistakes = {
        of_place: max(other, training),
        "divided by processes": max(reading / processes, training),
        "each reads everything": max(reading * processes, training),
        "reading and training added": reading + training,
        "pixels as floats": max(4 * reading, training),
        "training forgotten": reading,
        "reading forgotten": training,
        "part from the cache": max(_partly_cached(size, machine), training),
    }
    which = "first epoch" if first else "later epochs"
    _is_cost(got, max(reading, training), mistakes, "other seconds", f"seconds, {which}, {_words(rows, machine)}")


def _partly_cached(size: int, machine: dict) -> float:
    """Seconds of reading if the cache always had as much of the file as it can hold."""
    cached = min(size, machine["free"])
    return cached / machine["cache"] + (size - cached) / machine["disk"]


def _is_cost(got: float, right: float, mistakes: Mapping[str, float], otherwise: str, what: str) -> None:
    if not np.isclose(got, right, rtol=1e-3):
        known = [name for name, value in mistakes.items() if np.isclose(got, value, rtol=1e-3)]
        raise Wrong(known[0] if known else otherwise, f"{what}: {right:,.1f}", f"{got:,.1f}")


def _words(rows: int, machine: dict) -> str:
    return f"{rows:,} rows, processes: {machine['processes']}, training {machine['training']:g} s"
