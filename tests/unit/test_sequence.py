"""HDF5Sequence: right pixels with right labels, once an epoch, the same in every thread and process."""

import multiprocessing
import pickle
import threading

import children
import h5py
import keras
import numpy as np
import pytest
from coded import CLASS_NAMES, class_of_row, classes_of, coded_images, make_coded_file, one_hot, rows_of

from helpers import Augment, CenterCrop, HDF5Sequence
from helpers.images import encode_jpeg
from helpers.layout import DatasetNotFoundError, HDF5FileError, IncompleteFileError, LayoutError
from helpers.sequence import KerasPoolWarning
from helpers.writer import HDF5Writer

AUGMENT = Augment(rotation=10, horizontal_flip=True, zoom=(0.9, 1))


def served_rows(sequence, epoch=0):
    """Rows of an epoch as the pixels say, in the order served."""
    return [row for index in range(len(sequence)) for row in rows_of(sequence.batch(epoch, index)[0]).tolist()]


@pytest.mark.parametrize("augment", [None, AUGMENT], ids=["plain", "augmented"])
def test_every_image_comes_once_with_its_own_label(coded_file, augment):
    """Over an epoch every row is served once, and the class in its pixels is the class of its label."""
    with HDF5Sequence(coded_file, batch_size=10, augment=augment) as sequence:
        seen = []
        for index in range(len(sequence)):
            images, labels = sequence[index]
            assert (images.dtype, labels.dtype) == (np.uint8, np.float32)
            assert labels.sum(axis=1).tolist() == [1.0] * len(images)
            assert classes_of(images).tolist() == labels.argmax(axis=1).tolist()
            seen += rows_of(images).tolist()
    assert sorted(seen) == list(range(103))
    assert seen != list(range(103))


def test_pixels_are_those_of_the_file(coded_file):
    """Without augmentation an image is the file's row, byte for byte, and rows_of() names it."""
    with HDF5Sequence(coded_file, "valid", 16) as sequence:
        images, _ = sequence[1]
        np.testing.assert_array_equal(images, coded_images(sequence.rows_of(0, 1), "valid"))


def test_sparse_labels_are_class_numbers(coded_file):
    """label_kind="sparse" gives int64 class numbers of shape (batch,)."""
    with HDF5Sequence(coded_file, batch_size=10, label_kind="sparse") as sequence:
        images, labels = sequence[0]
    assert (labels.shape, labels.dtype) == ((10,), np.int64)
    assert labels.tolist() == classes_of(images).tolist()


def test_file_with_class_numbers_gives_onehot(tmp_path):
    """A file that stores class numbers serves one-hot labels of the full width when asked to."""
    path = make_coded_file(tmp_path / "sparse.h5", label_kind="sparse")
    with HDF5Sequence(path, batch_size=103, shuffle=None) as sequence:
        _, labels = sequence[0]
    np.testing.assert_array_equal(labels, one_hot(class_of_row(np.arange(103))))


def test_auto_shuffle_is_full_for_train_and_none_for_the_rest(coded_file):
    """Training rows are shuffled, validation and test rows come in file order, so predictions line up."""
    with HDF5Sequence(coded_file) as train, HDF5Sequence(coded_file, "valid") as valid:
        assert (train.shuffle, valid.shuffle) == ("full", None)
        assert served_rows(valid, 0) == served_rows(valid, 3) == list(range(40))
    with HDF5Sequence(coded_file, "test", rows=[3, 1]) as some:
        assert some.shuffle == "full"


def test_rows_split_one_dataset_in_two(coded_file):
    """rows= serves exactly the listed rows; the caller's array is neither sorted nor kept."""
    rows = np.array([50, 3, 99, 7, 8])
    with HDF5Sequence(coded_file, batch_size=2, rows=rows) as sequence:
        rows[:] = 0
        assert sorted(served_rows(sequence)) == [3, 7, 8, 50, 99]
        assert sequence.class_numbers.tolist() == class_of_row([50, 3, 99, 7, 8]).tolist()
    assert len(sequence) == 3


def test_foreign_names_and_jpeg_bytes(tmp_path):
    """A file of somebody else: other names, class numbers, JPEG bytes of mixed sizes."""
    path = tmp_path / "foreign.h5"
    with h5py.File(path, "w") as file:
        data = file.create_dataset("data/pictures", (6,), dtype=h5py.vlen_dtype(np.uint8))
        for row in range(6):
            side = 20 + 2 * row
            data[row] = np.frombuffer(encode_jpeg(np.full((side, side, 3), 30 * row, np.uint8)), np.uint8)
        file["data/kind"] = np.array([0, 1, 2, 0, 1, 2], np.int32)
    names = {"images": "data/pictures", "labels": "data/kind"}
    with HDF5Sequence(path, batch_size=6, **names, classes=["a", "b", "c"], size=(16, 16), shuffle=None) as sequence:
        images, labels = sequence[0]
        assert sequence.class_names == ("a", "b", "c")
    assert images[:, 8, 8, 0].tolist() == [0, 30, 60, 90, 120, 150]
    assert labels.argmax(axis=1).tolist() == [0, 1, 2, 0, 1, 2]


def test_augmentation_depends_on_seed_epoch_and_row_alone(coded_file):
    """The same row in the same epoch looks the same in any batch size; another epoch or seed changes it."""
    with (
        HDF5Sequence(coded_file, batch_size=10, augment=AUGMENT, shuffle=None) as tens,
        HDF5Sequence(coded_file, batch_size=7, augment=AUGMENT, shuffle=None) as sevens,
        HDF5Sequence(coded_file, batch_size=10, augment=AUGMENT, shuffle=None, seed=1) as other_seed,
    ):
        epoch_0 = tens.batch(0, 0)[0]
        np.testing.assert_array_equal(sevens.batch(0, 0)[0], epoch_0[:7])
        assert not np.array_equal(tens.batch(1, 0)[0], epoch_0)
        assert not np.array_equal(other_seed.batch(0, 0)[0], epoch_0)


def test_twin_images_are_augmented_differently(tmp_path):
    """Equal pixels in different rows get different random numbers: no twins."""
    path = tmp_path / "twins.h5"
    with h5py.File(path, "w") as file:
        file["train_img"] = np.repeat(np.random.default_rng(0).integers(0, 256, (1, 16, 16, 3), np.uint8), 8, axis=0)
        file["train_labels"] = one_hot(np.zeros(8, int))
    with HDF5Sequence(path, batch_size=8, augment=AUGMENT) as sequence:
        images, _ = sequence[0]
    assert len({image.tobytes() for image in images}) == 8


def test_crop_changes_the_served_shape(coded_file):
    """With a crop, image_shape and the batches have the crop's size; a function may change it too."""
    with HDF5Sequence(coded_file, augment=Augment(crop=(8, 12))) as sequence:
        assert sequence.image_shape == (8, 12, 3)
        assert sequence[0][0].shape == (32, 8, 12, 3)
    with HDF5Sequence(coded_file, "valid", augment=CenterCrop((8, 8))) as sequence:
        np.testing.assert_array_equal(sequence[0][0], coded_images(np.arange(32), "valid")[:, 4:12, 4:12])


def hash_batches(batches):
    """Bytes of images and labels, comparable over processes."""
    return [(images.tobytes(), labels.tobytes()) for images, labels in batches]


ASKED = [(epoch, index) for epoch in (0, 1, 2) for index in (0, 3, 10)]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12+ warns of fork with threads
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX does, where it is the backend
def test_child_processes_serve_the_same_batches(coded_file, method):
    """A sequence that was used already travels to a process of any start method and serves equal bytes there."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"needs {method}")
    context = multiprocessing.get_context(method)
    with HDF5Sequence(coded_file, batch_size=10, augment=AUGMENT) as sequence:
        expected = hash_batches(sequence.batch(*asked) for asked in ASKED)
        receiving, sending = context.Pipe(duplex=False)
        child = context.Process(target=children.serve_batches, args=(sequence, ASKED, sending))
        child.start()
        sending.close()
        assert hash_batches(receiving.recv()) == expected
        receiving.close()
        child.join()
        assert hash_batches([sequence.batch(0, 0)]) == expected[:1]


def test_threads_serve_the_same_batches(coded_file):
    """Four threads over two epochs, in any order, give what one thread gives."""
    with HDF5Sequence(coded_file, batch_size=10, augment=AUGMENT) as sequence:
        asked = [(epoch, index) for epoch in (0, 1) for index in range(len(sequence))]
        expected = hash_batches(sequence.batch(*each) for each in asked)
        results = {}

        def work(part):
            for each in asked[part::4]:
                results[each] = hash_batches([sequence.batch(*each)])[0]

        threads = [threading.Thread(target=work, args=(part,)) for part in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [results[each] for each in asked] == expected


def test_pickle_before_and_after_use(coded_file):
    """A sequence pickles at any time, without its handle, and its copy serves equal bytes."""
    with HDF5Sequence(coded_file, batch_size=10) as sequence, pickle.loads(pickle.dumps(sequence)) as fresh:
        expected = hash_batches([sequence[0]])
        assert hash_batches([fresh[0]]) == expected
        with pickle.loads(pickle.dumps(sequence)) as used:
            assert hash_batches([used[0]]) == expected


def test_shards_share_an_epoch(coded_file):
    """Two shards of 5 serve together what one process serves in batches of 10."""
    with HDF5Sequence(coded_file, batch_size=10) as whole:
        expected = [whole.rows_of(1, index) for index in range(len(whole))]
    for number in range(2):
        with HDF5Sequence(coded_file, batch_size=5, shard=(number, 2)) as shard:
            assert len(shard) == len(expected)
            for index, rows in enumerate(expected):
                assert rows_of(shard.batch(1, index)[0]).tolist() == rows[number::2].tolist()


# --- epochs


class FitLog(keras.callbacks.Callback):
    """Epoch of the sequence at the end of each epoch of Keras, before Keras moves it on."""

    def __init__(self, sequence):
        super().__init__()
        self.sequence = sequence
        self.epochs = []

    def on_epoch_begin(self, epoch, logs=None):
        self.epochs.append(self.sequence.epoch)


@pytest.fixture
def model():
    """The smallest model that trains on the coded file."""
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Rescaling(1 / 255), keras.layers.Flatten(), keras.layers.Dense(5, activation="softmax")]
    model = keras.Sequential([keras.Input((16, 16, 3)), *layers])
    model.compile("sgd", "categorical_crossentropy")
    return model


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("batch_size", [10, 35], ids=["11 batches", "3 batches"])
def test_plain_fit_trains_each_epoch_in_its_own_order(coded_file, model, workers, batch_size):
    """Through Keras' own fit, over two calls, epoch k of Keras is epoch k of the sequence."""
    with HDF5Sequence(coded_file, batch_size=batch_size, workers=workers) as sequence:
        log = FitLog(sequence)
        model.fit(sequence, epochs=3, verbose=0, callbacks=[log], shuffle=False)
        assert log.epochs == [0, 1, 2]
        model.fit(sequence, epochs=2, verbose=0, callbacks=[log], shuffle=False)
        assert log.epochs == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("batch_size", [52, 103], ids=["2 batches", "1 batch"])
def test_plain_fit_of_very_short_sequences_moves_on(coded_file, model, batch_size):
    """With one or two batches the first on_epoch_end() is Keras' early call, and every later one counts."""
    with HDF5Sequence(coded_file, batch_size=batch_size) as sequence:
        log = FitLog(sequence)
        model.fit(sequence, epochs=3, verbose=0, callbacks=[log], shuffle=False)
        assert log.epochs == [0, 1, 2]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_plain_fit_with_keras_own_processes_moves_on(coded_file, model):
    """Keras' worker processes ask out of sight: still each epoch has its own order. One warning names the danger."""
    with HDF5Sequence(coded_file, batch_size=10, workers=1, use_multiprocessing=True) as sequence:
        log = FitLog(sequence)
        with pytest.warns(KerasPoolWarning) as caught:
            model.fit(sequence, epochs=3, verbose=0, callbacks=[log], shuffle=False)
        assert log.epochs == [0, 1, 2]
    assert [str(warning.message) for warning in caught if warning.category is KerasPoolWarning] == [
        "Keras' own worker processes read this HDF5Sequence: they are started anew in every epoch, on Linux by a fork "
        "of the process that runs TensorFlow, and when one dies, fit waits for ever. Train with "
        "helpers.fit_generator(model, sequence), or leave use_multiprocessing out."
    ]


def test_on_epoch_end_by_hand(coded_file):
    """A loop by hand over all batches, with on_epoch_end(), goes from epoch to epoch; a call too early does nothing."""
    with HDF5Sequence(coded_file, batch_size=10) as sequence:
        sequence.on_epoch_end()
        sequence[0], sequence[1]
        sequence.on_epoch_end()
        assert sequence.epoch == 0
        for _ in range(2):
            for index in range(len(sequence)):
                sequence[index]
            sequence.on_epoch_end()
        assert sequence.epoch == 2
        np.testing.assert_array_equal(sequence[0][0], sequence.batch(2, 0)[0])


def test_set_position_goes_anywhere(coded_file):
    """set_position() jumps to an epoch and a batch; outside an epoch it is refused with the range."""
    with HDF5Sequence(coded_file, batch_size=10) as sequence:
        sequence.set_position(7, batch=4)
        assert (sequence.epoch, sequence.position) == (7, (7, 4))
        with pytest.raises(ValueError, match=r"batch from 0 to 10; got \(7, 11\)"):
            sequence.set_position(7, batch=11)


@pytest.mark.parametrize("index", [-1, 11])
def test_batch_outside_the_epoch_is_an_index_error(coded_file, index):
    """Neither a negative nor a too large batch number wraps around."""
    with HDF5Sequence(coded_file, batch_size=10) as sequence, pytest.raises(IndexError, match="batches 0 to 10"):
        sequence[index]


# --- refusals

ROW_ERRORS = {
    "mask": (np.ones(103, bool), TypeError, "Turn a mask into rows with np.flatnonzero"),
    "float rows": ([1.5], TypeError, "rows must be a one-dimensional integer array"),
    "beyond the end": ([103], IndexError, r"rows holds 103, but train_img in .* has rows 0 to 102"),
    "negative": ([-1], IndexError, "rows holds -1"),
    "none at all": ([], ValueError, "^rows is empty: there is nothing to serve.$"),
}


@pytest.mark.parametrize("case", ROW_ERRORS)
def test_bad_rows_are_refused(coded_file, case):
    """rows= that are no rows of the dataset are refused when the sequence is made."""
    rows, error, message = ROW_ERRORS[case]
    with pytest.raises(error, match=message):
        HDF5Sequence(coded_file, rows=rows)


REFUSED = {
    "unknown split": ({"split": "validation"}, LayoutError, "split must be one of train, valid, test"),
    "unknown dataset": ({"images": "img", "labels": "lab"}, DatasetNotFoundError, "Datasets in it: test_img"),
    "only one name": ({"images": "train_img"}, LayoutError, "give both or neither"),
    "unknown label kind": ({"label_kind": "int"}, ValueError, 'label_kind must be "onehot" or "sparse"; got \'int\''),
    "augment is no function": ({"augment": 3}, TypeError, "augment must be callable"),
    "wrong number of classes": ({"classes": 6}, LayoutError, "has 5 columns, but there are 6 classes"),
    "one name for all classes": ({"classes": "pizza"}, LayoutError, "must be a list of names, or their number; got 'p"),
    "half a class": ({"classes": 4.5}, LayoutError, "must be a list of names, or their number; got 4.5."),
    "no class": ({"classes": 0}, LayoutError, "classes must be at least 1; got 0."),
    "size is one number": ({"size": 16}, LayoutError, r"size must be \(height, width\) in whole pixels, .*; got 16."),
    "size 0": ({"size": (0, 8)}, LayoutError, r"at least 1 each; got \(0, 8\)."),
    "workers -1": ({"workers": -1}, ValueError, "workers must be at least 0; got -1."),
    "workers in words": ({"workers": "2"}, TypeError, "workers must be a whole number; got '2'."),
    "no queue": ({"max_queue_size": 0}, ValueError, "max_queue_size must be at least 1; got 0."),
    "no patience": ({"stall_timeout_s": 0}, ValueError, "stall_timeout_s must be a number of seconds above 0; got 0."),
    "endless patience": ({"stall_timeout_s": None}, ValueError, "stall_timeout_s must be a number .*; got None."),
    "batch_size 0": ({"batch_size": 0}, ValueError, "batch_size must be at least 1; got 0."),
    "augment returns floats": ({"augment": lambda image, rng: image / 255}, TypeError, "augment must return a"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_arguments_are_refused_at_construction(coded_file, case):
    """Nothing wrong waits until the first batch."""
    arguments, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        HDF5Sequence(coded_file, **arguments)


def test_a_file_written_anew_is_not_read_with_the_old_labels(tmp_path):
    """Labels are read at once and images later: between them the file may have been built again."""
    path = tmp_path / "food.h5"

    def build(numbers):
        with HDF5Writer(path, (8, 8, 3), ["a", "b"]) as writer:
            writer.append("train", np.zeros((4, 8, 8, 3), np.uint8), numbers)

    build([0, 0, 1, 1])
    with HDF5Sequence(path) as sequence:
        build([1, 1, 0, 0])
        with pytest.raises(HDF5FileError) as caught:
            sequence.batch(0, 0)
    assert str(caught.value) == (
        f"{path} was written anew since this reader was made: labels read before would no longer fit its images. "
        "Make a new one."
    )


def test_a_split_without_rows_is_refused_by_name(tmp_path):
    """It says so, instead of advice on batch sizes."""
    path = tmp_path / "valid_only.h5"
    with HDF5Writer(path, (8, 8, 3), ["a", "b"]) as writer:
        writer.append("valid", np.zeros((2, 8, 8, 3), np.uint8), [0, 1])
    with pytest.raises(ValueError, match=f"^train_img in {path} has no rows: there is nothing to serve.$"):
        HDF5Sequence(path)


def test_missing_and_incomplete_files_are_refused(tmp_path):
    """A missing file and one whose writer was stopped are errors when the sequence is made."""
    with pytest.raises(HDF5FileError, match="does not exist"):
        HDF5Sequence(tmp_path / "nowhere.h5")
    with pytest.raises(IncompleteFileError, match="is incomplete"):
        HDF5Sequence(make_coded_file(tmp_path / "half.h5", complete=False))


def spoil(path, name, change):
    """Change a dataset of the file in place."""
    with h5py.File(path, "r+") as file:
        values = file[name][:]
        del file[name]
        file[name] = change(values)


BAD_LABELS = {
    "all-zero row": (
        lambda v: np.where(np.arange(103)[:, None] == 100, 0, v),
        "row 100 of train_labels .* not one-hot",
    ),
    "soft labels": (lambda v: v * 0.9, "is not one-hot"),
    "one row fewer": (lambda v: v[:-1], "train_img has 103 rows but train_labels has 102"),
    "numbers from 1": (lambda v: v.argmax(axis=1) + 1, "Labels that start at 1 must be lowered by 1"),
    "text": (lambda v: np.array([b"apple"] * 103), "expected one-hot rows"),
}


@pytest.mark.parametrize("case", BAD_LABELS)
def test_labels_that_cannot_be_right_are_refused(coded_file, case):
    """Labels are checked once, when the sequence is made, and the first bad row is named."""
    change, message = BAD_LABELS[case]
    spoil(coded_file, "train_labels", change)
    with pytest.raises(LayoutError, match=message):
        HDF5Sequence(coded_file)


def test_class_numbers_without_class_count_ask_for_classes(tmp_path):
    """Class numbers in a file without class names need classes=; the largest number seen is not taken as a guess."""
    path = make_coded_file(tmp_path / "sparse.h5", label_kind="sparse")
    with h5py.File(path, "r+") as file:
        del file.attrs["class_names"]
    with pytest.raises(LayoutError, match="Pass classes="):
        HDF5Sequence(path)
    with HDF5Sequence(path, classes=9) as sequence:
        assert sequence[0][1].shape == (32, 9)


def test_error_of_an_augmentation_names_batch_rows_and_file(coded_file):
    """An exception in a worker's code carries epoch, batch, rows and file as a note."""

    def fails_on_class_2(image, rng):
        if image[8, 8, 1] == 2:
            raise RuntimeError("no cheese")
        return image

    with HDF5Sequence(coded_file, batch_size=4, augment=fails_on_class_2, shuffle=None) as sequence:
        index = next(i for i in range(len(sequence)) if 2 in class_of_row(sequence.rows_of(0, i)))
        row = next(row for row in sequence.rows_of(0, index) if class_of_row(row) == 2)
        rows = ", ".join(str(row) for row in sequence.rows_of(0, index))
        with pytest.raises(RuntimeError, match="no cheese") as caught:
            sequence[index]
    assert caught.value.__notes__ == [
        f"while making batch {index} of epoch 0 (rows {rows}) of train_img in {coded_file}",
        f"while augmenting row {row}",
    ]


def test_close_twice_is_quiet_and_use_after_is_an_error(coded_file):
    """A closed sequence says that it is closed."""
    sequence = HDF5Sequence(coded_file)
    sequence[0]
    sequence.close()
    sequence.close()
    with pytest.raises(ValueError, match=f"^this HDF5Sequence on {coded_file} is closed. Make a new one.$"):
        sequence[0]


def test_attributes_describe_the_data(coded_file):
    """Number of rows, classes and shapes are there to build a model from."""
    with HDF5Sequence(coded_file, batch_size=10) as sequence:
        assert (sequence.n, sequence.num_classes, sequence.image_shape) == (103, 5, (16, 16, 3))
        assert sequence.class_names == CLASS_NAMES
        assert repr(sequence) == (
            "HDF5Sequence('coded.h5', 'train_img'): 103 images (16, 16, 3), 11 batches of 10, shuffle='full', epoch 0"
        )
