"""Right and wrong answers to the exercises of lesson 07; a wrong one stands under the name of its mistake."""

import csv
import math
from collections import Counter

import h5py
import numpy as np

from helpers import inspect_file

# --- 07.2 -----------------------------------------------------------------------------------------------------------


def looked_at(
    end=True,
    lengths=("train", "valid", "test"),
    is_label=None,
    labels_of=("train", "valid", "test"),
    runs=None,
    missing=("train",),
    first=False,
):
    """With h5py alone; each argument takes a look away, or looks in another way."""
    is_label = is_label or (lambda y: (y.max(axis=1) == 1) & (np.count_nonzero(y, axis=1) == 1))
    runs = runs or (lambda numbers: np.count_nonzero(np.diff(numbers)) + 1 == len(np.unique(numbers)))

    def answer(path):
        found = []
        with h5py.File(path, "r") as file:
            if end and not file.attrs["complete"]:
                found.append("incomplete")
            rows = {split: file[f"{split}_labels"][:] for split in ("train", "valid", "test")}
            if any(len(file[f"{split}_img"]) != len(rows[split]) for split in lengths):
                found.append("lengths-differ")
        if any(not is_label(rows[split]).all() for split in labels_of):
            found.append("labels")
        if any(runs(y.argmax(axis=1)) for y in rows.values()):
            found.append("class-sorted")
        if any((rows[split].sum(axis=0) == 0).any() for split in missing):
            found.append("missing-class")
        return found[:1] if first else found

    return answer


def by_report(faults=True, warnings=True, words=True):
    """With inspect_file."""

    def answer(path):
        report = inspect_file(path)
        codes = [one.code for one in report.faults * faults + report.warnings * warnings]
        if words:
            codes = ["labels" if code in {"onehot-sum", "soft-labels"} else code for code in codes]
            codes = [code for code in codes if code != "no-class-names"]
        classes = len(report.class_names)
        if Counter(np.flatnonzero(report.splits["train"].counts).tolist()).total() < classes:
            codes.append("missing-class")
        return set(codes)

    return answer


def always_doubts(path):
    """Each file has the labels' problem."""
    return sorted({*looked_at()(path), "labels"})


def classes_of_a_whole_file(path):
    """Does not count in a file whose writer was stopped."""
    found = looked_at()(path)
    return [one for one in found if one != "missing-class" or "incomplete" not in found]


def doubts_the_faulty(path):
    """Whatever is wrong, the order is wrong, too."""
    found = looked_at()(path)
    return found + ["class-sorted"] * ("class-sorted" not in found and bool(found))


# --- 07.3 -----------------------------------------------------------------------------------------------------------


def batch(gb=1e9, copies=4, kept=1, width=4, rounded=math.floor, least=0, power=True, guard=True):
    """The largest batch, with a mistake if one is asked for."""

    def answer(free_gb, weights, frozen, outputs):
        left = free_gb * gb - 4 * copies * (weights - frozen) - 4 * kept * frozen
        images = left / (width * outputs)
        if images < 1 and guard:
            return least
        return int(2 ** rounded(math.log2(images))) if power else int(images)

    return answer


def by_bits(free_gb, weights, frozen, outputs):
    """The highest bit of the number of images."""
    images = max(0, int((free_gb * 1000 - (16 * weights - 12 * frozen) / 1e6) / (outputs * 4 / 1e6)))
    return np.int64(1 << images.bit_length() >> 1)


def by_trying(free_gb, weights, frozen, outputs):
    """From a large batch down."""
    for size in (2**k for k in range(20, -1, -1)):
        if 16 * (weights - frozen) + 4 * frozen + size * 4 * outputs <= free_gb * 1e9:
            return size
    return 0


def fits_in_part(free_gb, weights, frozen, outputs):
    """A power of two, of half an image, too."""
    left = free_gb * 1e9 - 16 * (weights - frozen) - 4 * frozen
    return 2 ** math.floor(math.log2(left / (4 * outputs))) if left > 0 else 0


# --- 07.4 -----------------------------------------------------------------------------------------------------------


def clock(share=None, gain=None, side=None):
    """The verdict, with another rule for one of its parts."""

    def answer(waits, steps):
        w, s = np.array(waits), np.array(steps)
        a = share(w, s) if share else w[1:].sum() / s[1:].sum()
        b = gain(w, s) if gain else s[1:].sum() / (s - w)[1:].sum()
        return a, b, side(a, b) if side else ("feed" if b > 1.1 else "model")

    return answer


def with_numpy(waits, steps):
    """From the share, as a list."""
    share = np.float32(np.sum(waits[1:], dtype=np.float32) / np.sum(steps[1:], dtype=np.float32))
    return [share, 1 / (1 - share), str(np.where(1 / (1 - share) > 1.1, "feed", "model"))]


SIDES = ("feed", "model")


# --- 07.5 -----------------------------------------------------------------------------------------------------------


def judged(matrix=None, recall=None, top5=None, worst=None, drop=None):
    """The four things, with another rule for one of them."""

    def answer(batches):
        p, y = (np.concatenate(parts) for parts in zip(*batches, strict=True))
        truth, said = y.argmax(axis=1), p.argmax(axis=1)
        m = np.array([[np.sum((truth == i) & (said == j)) for j in range(p.shape[1])] for i in range(p.shape[1])])
        hits = (np.argsort(p, axis=1)[:, -5:] == truth[:, None]).any(axis=1)
        wrong = np.flatnonzero(said != truth)
        rows = wrong[np.argsort(p[wrong].max(axis=1))[::-1]]
        result = {
            "matrix": matrix(m) if matrix else m,
            "recall": recall(m) if recall else np.diag(m) / m.sum(axis=1),
            "top5": top5(p, truth, hits, batches) if top5 else hits.mean(),
            "worst": worst(p, truth, rows, batches) if worst else rows[:3],
        }
        return {key: value for key, value in result.items() if key != drop}

    return answer


def in_loops(batches):
    """Plain Python, batch by batch."""
    classes = len(batches[0][0][0])
    matrix, hits, mistakes, row = [[0] * classes for _ in range(classes)], 0, [], 0
    for probabilities, labels in batches:
        for p, y in zip(probabilities.tolist(), labels.tolist(), strict=True):
            truth, said = y.index(1), p.index(max(p))
            matrix[truth][said] += 1
            hits += sum(one > p[truth] for one in p) < 5
            mistakes += [(-max(p), row)] if truth != said else []
            row += 1
    recall = [matrix[one][one] / sum(matrix[one]) for one in range(classes)]
    return {"matrix": matrix, "recall": recall, "top5": hits / row, "worst": [one for _, one in sorted(mistakes)[:3]]}


def with_keras(batches):
    """Keras' metric for the top five, and partition."""
    import keras

    metric = keras.metrics.TopKCategoricalAccuracy(k=5)
    for p, y in batches:
        metric.update_state(y, p)
    return {**judged()(batches), "top5": metric.result()}


def labels_as_they_are(batches):
    """One-hot rows where class numbers are meant."""
    p, y = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    matrix = np.zeros((p.shape[1], p.shape[1]), int)
    np.add.at(matrix, (y.astype(int), p.argmax(axis=1)), 1)
    return {"matrix": matrix}


def pairs_counted_once(batches):
    """``matrix[truth, said] += 1``."""
    return {**judged()(batches), "matrix": np.minimum(judged()(batches)["matrix"], 1)}


def starts_of(batches):
    return np.repeat(np.cumsum([0] + [len(p) for p, _ in batches[:-1]]), [len(p) for p, _ in batches])


# --- 07.6 -----------------------------------------------------------------------------------------------------------


def going_on(
    best=True,
    last=True,
    rate=True,
    stop=True,
    log=True,
    done=len,
    epochs=lambda done, more: done + more,
    weights=lambda counts: {k: sum(counts) / (len(counts) * n) for k, n in enumerate(counts)},
    threshold=lambda values: max(values, default=None),
    guard=True,
    files=("best.keras", "last.keras"),
):
    """The arguments; ``best`` and the like are settings of one callback to change, or False for none."""

    def answer(folder, counts, more, patience):
        from keras.callbacks import CSVLogger, EarlyStopping, ModelCheckpoint, ReduceLROnPlateau

        path, lines = folder / "log.csv", []
        if path.exists() or not guard:
            with path.open() as file:
                lines = list(csv.DictReader(file))
        value = threshold([float(line["val_accuracy"]) for line in lines])
        watch = {"monitor": "val_accuracy", "save_best_only": True, "initial_value_threshold": value}
        settings = [
            (best, lambda s: ModelCheckpoint(folder / files[0], **{**watch, **s})),
            (last, lambda s: ModelCheckpoint(folder / files[1], **s)),
            (rate, lambda s: ReduceLROnPlateau(**{"monitor": "val_loss", "patience": 2, **s})),
            (stop, lambda s: EarlyStopping(**{"monitor": "val_accuracy", "patience": patience, **s})),
            (log, lambda s: CSVLogger(path, **{"append": True, **s})),
        ]
        return {
            "initial_epoch": done(lines),
            "epochs": epochs(done(lines), more),
            "class_weight": weights(counts),
            "callbacks": [make({} if how is True else how) for how, make in settings if how is not False],
        }

    return answer


def by_hand(folder, counts, more, patience):
    """One callback that does it all, with the best in a file of its own."""
    import keras

    class Guard(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.save(folder / "last.keras")
            note = folder / "best.txt"
            value, low = logs["val_accuracy"], getattr(self, "low", (np.inf, 0))
            if not note.exists() or value > float(note.read_text()):
                note.write_text(str(value))
                self.model.save(folder / "best.keras")
            if value > getattr(self, "high", -1):
                self.high, self.since = value, 0
            else:
                self.since += 1
            self.low = (logs["val_loss"], 0) if logs["val_loss"] < low[0] else (low[0], low[1] + 1)
            if self.low[1] == 2:
                self.model.optimizer.learning_rate = 0.5 * float(self.model.optimizer.learning_rate)
            self.model.stop_training = self.since >= patience
            with (folder / "log.csv").open("a") as file:
                if not file.tell():
                    file.write("epoch,val_accuracy\n")
                file.write(f"{epoch},{value}\n")

    log = folder / "log.csv"
    done = max(0, len(log.read_text().splitlines()) - 1) if log.is_file() else 0
    share = np.mean(counts) / np.array(counts)
    return {
        "initial_epoch": np.int64(done),
        "epochs": done + more,
        "class_weight": dict(zip(np.arange(len(counts)), share, strict=True)),
        "callbacks": (Guard(),),
        "verbose": 2,
    }


def without_csv(folder, counts, more, patience):
    """The last line alone says how many epochs are done; the old best is set by hand."""
    from keras.callbacks import CSVLogger, EarlyStopping, ModelCheckpoint, ReduceLROnPlateau

    best = ModelCheckpoint(str(folder / "best.keras"), "val_accuracy", save_best_only=True, mode="max", verbose=1)
    try:
        table = np.genfromtxt(folder / "log.csv", delimiter=",", names=True, ndmin=1)
        done, best.best = int(table["epoch"][-1]) + 1, table["val_accuracy"].max()
    except (OSError, ValueError, IndexError, TypeError, StopIteration):
        done = 0
    weights = {k: float(w) for k, w in enumerate(sum(counts) / len(counts) / np.array(counts))}
    stop = EarlyStopping("val_accuracy", patience=patience, restore_best_weights=True, verbose=1)
    rate = ReduceLROnPlateau("val_loss", patience=2, factor=0.1, verbose=1)
    log = CSVLogger(str(folder / "log.csv"), append=True)
    callbacks = [log, rate, ModelCheckpoint(str(folder / "last.keras")), best, stop]
    return {"callbacks": callbacks, "class_weight": weights, "epochs": done + more, "initial_epoch": done}


def last_line_of_the_log(folder, counts, more, patience):
    """Where there is a log, it has a line."""
    log = folder / "log.csv"
    done = int(log.read_text().splitlines()[-1].split(",")[0]) + 1 if log.exists() else 0
    return going_on(done=lambda lines: done)(folder, counts, more, patience)


def lines_without_a_heading(folder, counts, more, patience):
    """All lines but the heading, also where none is."""
    log = folder / "log.csv"
    done = len(log.read_text().splitlines()) - 1 if log.exists() else 0
    return going_on(done=lambda lines: done)(folder, counts, more, patience)


def stops_below_the_old_best(folder, counts, more, patience):
    """Progress is what beats all runs."""
    seen = []
    going_on(best=False, threshold=seen.extend)(folder, counts, more, patience)
    return going_on(stop={"baseline": max(seen, default=None)})(folder, counts, more, patience)


def saved_at_the_start(folder, counts, more, patience):
    """Saves before the first epoch."""
    import keras

    start = keras.callbacks.LambdaCallback(on_train_begin=lambda logs: start.model.save(folder / "best.keras"))
    returned = going_on(best=False)(folder, counts, more, patience)
    return {**returned, "callbacks": [start, *returned["callbacks"]]}


def not_saved_again(values):
    """A threshold that no accuracy reaches, once there is a log."""
    return 1.1 if values else None


RIGHT = {
    "07.1": {"a set": {"i", "g", "d", "b"}, "a tuple": ("B", "D", "G", "I"), "letter by letter": list("bdgi")},
    "07.2": {
        "h5py alone": looked_at(),
        "the report": by_report(),
        "each finding": lambda path: 2 * looked_at()(path),
    },
    "07.3": {
        "logarithm": batch(),
        "bits": by_bits,
        "by trying": by_trying,
        "whole floats": lambda *card: float(by_bits(*card)),
    },
    "07.4": {
        "arrays": clock(),
        "from the share": with_numpy,
        "rounded": lambda waits, steps: [one if one in SIDES else round(one, 3) for one in clock()(waits, steps)],
    },
    "07.5": {"comparisons": judged(), "loops": in_loops, "Keras' metric": with_keras},
    "07.6": {
        "by line": going_on(),
        "restores the best": going_on(stop={"restore_best_weights": True}, rate={"factor": 0.5}),
        "by hand": by_hand,
        "NumPy reads": without_csv,
    },
}
WRONG = {
    "07.1": {
        "wrong type": "bdgi",
        "all lines": list("abcdefghij"),
        "settings left to themselves": ["a", "b", "d", "g", "i"],
        "the file left to itself": ["b", "d", "e", "g", "i"],
        "a rounded quotient": ["b", "d", "i"],
        "fails at the end": ["b", "d", "g"],
        "a number by hand": ["d", "g", "i"],
    },
    "07.2": {
        "forgot to return": lambda path: print(inspect_file(path)),
        "wrong type": lambda path: inspect_file(path).ok,
        "a sound file refused": always_doubts,
        "floats refused": looked_at(is_label=lambda y: np.full(len(y), y.dtype == np.uint8)),
        "other splits' classes": looked_at(missing=("train", "valid", "test")),
        "words of its own": by_report(words=False),
        "stopped writer not seen": looked_at(end=False),
        "lengths not compared": looked_at(lengths=()),
        "only train looked at": looked_at(lengths=("train",), labels_of=("train",)),
        "rows of zeros passed": looked_at(is_label=lambda y: y.argmax(axis=1) < y.shape[1]),
        "soft labels passed": looked_at(is_label=lambda y: y.sum(axis=1) == 1),
        "several ones passed": looked_at(is_label=lambda y: y.max(axis=1) == 1),
        "order not looked at": by_report(warnings=False),
        "sorted only upwards": looked_at(runs=lambda numbers: (np.diff(numbers) >= 0).all()),
        "missing class not seen": looked_at(missing=()),
        "stopped at the first problem": looked_at(first=True),
        "sorted, and a class missing": looked_at(
            runs=lambda numbers: np.count_nonzero(np.diff(numbers)) == 4  # of five classes
        ),
        "a problem hidden by others": classes_of_a_whole_file,
        "another problem named": doubts_the_faulty,
        "KeyError": lambda path: [inspect_file(path).splits["training"].counts],
    },
    "07.3": {
        "wrong type": lambda free_gb, weights, frozen, outputs: f"{batch()(free_gb, weights, frozen, outputs)} images",
        "less than one image": fits_in_part,
        "a part of an image": lambda free_gb, weights, frozen, outputs: free_gb * 1e9 / (4 * outputs),
        "forgets Adam's two numbers": batch(copies=2),
        "forgets one number of Adam": batch(copies=3),
        "forgets gradient and Adam": batch(copies=1),
        "forgets the weights": batch(copies=0, kept=0),
        "frozen weights count fully": batch(kept=4),
        "forgets the frozen weights": batch(kept=0),
        "one byte a number": batch(width=1),
        "half precision": batch(width=2),
        "eight bytes a number": batch(width=8),
        "GiB for GB": batch(gb=2**30),
        "rounded up": batch(rounded=math.ceil),
        "rounded to the nearest": batch(rounded=round),
        "one image that does not fit": batch(least=1),
        "no power of two": batch(power=False),
        "another batch": lambda free_gb, weights, frozen, outputs: 4,
        "ValueError": batch(guard=False),
    },
    "07.4": {
        "wrong type": lambda waits, steps: "feed",
        "wrong shape": lambda waits, steps: (sum(waits[1:]) / sum(steps[1:]), "feed"),
        "the first step counted": clock(share=lambda w, s: w.sum() / s.sum()),
        "first step dropped on one side": clock(share=lambda w, s: w[1:].sum() / s.sum()),
        "mean of the shares": clock(share=lambda w, s: np.mean(w[1:] / s[1:])),
        "waiting by working": clock(share=lambda w, s: w[1:].sum() / (s - w)[1:].sum()),
        "in percent": clock(share=lambda w, s: 100 * w[1:].sum() / s[1:].sum()),
        "share of the work": clock(share=lambda w, s: (s - w)[1:].sum() / s[1:].sum()),
        "seconds, not a share": clock(share=lambda w, s: w[1:].sum()),
        "another share": clock(share=lambda w, s: w[-1] / s[-1]),
        "share added to one": clock(gain=lambda w, s: 1 + w[1:].sum() / s[1:].sum()),
        "waiting only": clock(gain=lambda w, s: s[1:].sum() / max(w[1:].sum(), 1e-9)),
        "the time left": clock(gain=lambda w, s: 1 - w[1:].sum() / s[1:].sum()),
        "rounded": clock(gain=lambda w, s: round(s[1:].sum() / (s - w)[1:].sum(), 2)),
        "another gain": clock(gain=lambda w, s: s[1:].mean() / (s - w).mean()),
        "sides swapped": clock(side=lambda share, gain: "model" if gain > 1.1 else "feed"),
        "limit on the share": clock(side=lambda share, gain: "feed" if share > 0.1 else "model"),
        "another side": clock(side=lambda share, gain: "GPU"),
    },
    "07.5": {
        "wrong type": judged(drop="worst"),
        "wrong shape": judged(recall=lambda m: np.diag(m).sum() / m.sum(axis=1, keepdims=True)),
        "rows and columns swapped": judged(matrix=np.transpose),
        "counts as shares": judged(matrix=lambda m: m / m.sum(axis=1, keepdims=True)),
        "another matrix": pairs_counted_once,
        "precision for recall": judged(recall=lambda m: np.diag(m) / m.sum(axis=0)),
        "accuracy for recall": judged(recall=lambda m: np.diag(m) / m.sum()),
        "another recall": judged(recall=lambda m: 1 - np.diag(m) / m.sum(axis=1)),
        "the five least likely": judged(
            top5=lambda p, truth, hits, batches: (np.argsort(p, axis=1)[:, :5] == truth[:, None]).any(axis=1).mean()
        ),
        "top one": judged(top5=lambda p, truth, hits, batches: (p.argmax(axis=1) == truth).mean()),
        "mean of the batches": judged(
            top5=lambda p, truth, hits, batches: np.mean([
                part.mean() for part in np.split(hits, np.cumsum([len(p) for p, _ in batches])[:-1])
            ])
        ),
        "another top five": judged(
            top5=lambda p, truth, hits, batches: (np.argsort(p)[:, -3:] == truth[:, None]).any(axis=1).mean()
        ),
        "rows of a batch": judged(worst=lambda p, truth, rows, batches: (rows - starts_of(batches)[rows])[:3]),
        "positions among the mistakes": judged(
            worst=lambda p, truth, rows, batches: np.argsort(-p[np.sort(rows)].max(axis=1))[:3]
        ),
        "least sure first": judged(worst=lambda p, truth, rows, batches: rows[::-1][:3]),
        "right answers among them": judged(worst=lambda p, truth, rows, batches: np.argsort(-p.max(axis=1))[:3]),
        "by the true class": judged(
            worst=lambda p, truth, rows, batches: np.sort(rows)[np.argsort(p[np.sort(rows), truth[np.sort(rows)]])][:3]
        ),
        "in another order": judged(worst=lambda p, truth, rows, batches: np.sort(rows[:3])),
        "not three": judged(worst=lambda p, truth, rows, batches: rows[:8]),
        "other rows": judged(worst=lambda p, truth, rows, batches: np.sort(rows)[:3]),
        "IndexError": labels_as_they_are,
    },
    "07.6": {
        "wrong type": going_on(weights=lambda counts: [sum(counts) / (len(counts) * n) for n in counts]),
        "other arguments": lambda folder, patience: {},
        "keys of text": going_on(weights=lambda counts: {str(k): 100 / n for k, n in enumerate(counts)}),
        "common classes count more": going_on(weights=lambda counts: {k: 4 * n / 600 for k, n in enumerate(counts)}),
        "weights not scaled": going_on(weights=lambda counts: {k: max(counts) / n for k, n in enumerate(counts)}),
        "other weights": going_on(weights=lambda counts: {k: (150 / n) ** 0.5 for k, n in enumerate(counts)}),
        "epochs is how many more": going_on(epochs=lambda done, more: more),
        "last epoch once more": going_on(done=lambda lines: int(lines[-1]["epoch"]) if lines else 0),
        "heading counted": going_on(done=lambda lines: len(lines) + bool(lines)),
        "negative epochs": lines_without_a_heading,
        "starts at 0 again": going_on(done=lambda lines: 0),
        "other epochs": going_on(epochs=lambda done, more: done + more - 1),
        "empty log": last_line_of_the_log,
        "FileNotFoundError": going_on(guard=False),
        "unknown name": going_on(stop={"monitor": "val_acc"}),
        "no best model": going_on(files=("best.hdf5", "last.keras")),
        "no last model": going_on(last=False),
        "watches the loss": going_on(best={"monitor": "val_loss"}),
        "watches the training": going_on(best={"monitor": "accuracy"}),
        "wrong direction": going_on(best={"mode": "min"}),
        "keeps the last epoch": going_on(best={"save_best_only": False}),
        "last is the best": going_on(last={"monitor": "val_accuracy", "save_best_only": True}),
        "another best": saved_at_the_start,
        "no log": going_on(log=False),
        "steps as large as before": going_on(rate=False),
        "smaller steps too early": going_on(rate={"patience": 1}),
        "smaller steps without need": going_on(rate={"mode": "max"}),
        "never stops": going_on(stop={"monitor": "val_loss"}),
        "stops too early": going_on(stop={"patience": 1}),
        "stops too late": going_on(stop={"patience": 6}),
        "stopping looks at older runs": stops_below_the_old_best,
        "log overwritten": going_on(log={"append": False}),
        "forgets the best of before": going_on(threshold=lambda values: None),
        "never saves again": going_on(threshold=not_saved_again),
    },
}
