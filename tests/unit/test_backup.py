"""A training that was stopped and goes on ends as one that was not, to the bit; what does not fit is refused."""

from __future__ import annotations

import json
import re

import backed_up
import h5py
import keras
import numpy as np
import pytest
from backed_up import EPOCHS, STEPS, Stop, StoppedError, sequence, small_model, train, variables
from coded import make_coded_file

from helpers import HDF5Sequence, fit_generator
from helpers.device import precision
from helpers.training import BackupAndResume, BackupError

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras' ReduceLROnPlateau, NumPy 2.4

STOPS = {  # case: steps of an epoch, save_freq, after how many steps each attempt is stopped
    "before the first save": (None, 5, [3]),
    "in the middle, twice": (None, 5, [8, 15]),
    "at the last step of an epoch": (None, 1, [STEPS]),
    "just after an epoch": (None, "epoch", [STEPS + 1]),
    "an epoch of less than a pass": (6, 4, [9]),
}
STOPS_AT_NIGHT = {"just after a save": (None, 5, [5]), "an epoch of more than a pass": (17, 4, [21])}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The coded file: 103 rows for training."""
    return make_coded_file(tmp_path_factory.mktemp("backup") / "coded.h5")


@pytest.fixture(scope="module")
def undisturbed(file):
    """``undisturbed(steps)``: variables and losses of a training that nobody stopped, and where the sequence stands."""
    known = {}

    def ends(steps):
        if steps not in known:
            model, data = small_model(), sequence(file)
            history = train(data, model, steps=steps)
            known[steps] = variables(model), history.history, data.position
        return known[steps]

    return ends


def assert_equal(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    assert len(found) == len(expected)
    assert [number for number, pair in enumerate(zip(found, expected, strict=True)) if not np.array_equal(*pair)] == []


def stop(file, folder, after: int, save_freq=5, steps=None) -> keras.Model:
    """A new model and sequence, as in a new process, and a training that ends in the middle."""
    model = small_model()
    with pytest.raises(StoppedError):
        train(sequence(file), model, BackupAndResume(folder, save_freq), Stop(after), steps=steps)
    return model


@pytest.mark.parametrize(
    ("steps", "save_freq", "stops"),
    [
        *(pytest.param(*stops, id=name) for name, stops in STOPS.items()),
        *(pytest.param(*stops, id=name, marks=pytest.mark.nightly) for name, stops in STOPS_AT_NIGHT.items()),
    ],
)
def test_a_stopped_training_ends_as_if_nothing_had_happened(file, undisturbed, tmp_path, steps, save_freq, stops):
    """Weights, optimizer, random layers, the logs of the last epoch and the place in the data, to the bit."""
    for after in stops:
        stop(file, tmp_path / "backup", after, save_freq, steps)
    model, data = small_model(), sequence(file)
    history = train(data, model, BackupAndResume(tmp_path / "backup", save_freq), steps=steps)
    expected, logs, position = undisturbed(steps)
    assert_equal(variables(model), expected)
    assert {name: values[-1] for name, values in history.history.items()} == {
        name: values[-1] for name, values in logs.items()
    }
    assert data.position == position
    assert not (tmp_path / "backup").exists()


def test_the_epoch_that_was_interrupted_is_logged_as_a_whole(file, undisturbed, tmp_path):
    """Its loss and accuracy are means over all its steps, also over those before the interruption."""
    stop(file, tmp_path, after=8)
    model = small_model()
    history = train(sequence(file), model, BackupAndResume(tmp_path))
    assert history.epoch == list(range(EPOCHS))
    assert history.history == undisturbed(None)[1]


def test_one_line_says_where_it_goes_on(file, tmp_path, capsys):
    """The epoch as Keras counts it, and the steps that are done."""
    stop(file, tmp_path, after=STEPS + 8)
    capsys.readouterr()
    callbacks = [*backed_up.counting_callbacks(), BackupAndResume(tmp_path)]
    fit_generator(small_model(), sequence(file), epochs=EPOCHS, callbacks=callbacks, verbose=2)
    assert capsys.readouterr().out.startswith(f"Training goes on in epoch 2 of {EPOCHS}, after 5 of {STEPS} steps.\n")


def test_the_end_of_a_training_deletes_its_file_and_nothing_else(file, tmp_path):
    """A folder that holds other things is left with them."""
    (tmp_path / "notes.txt").write_text("mine")
    train(sequence(file), small_model(), BackupAndResume(tmp_path, 5), epochs=1)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("policy", ["mixed_float16", "bfloat16"])
def test_half_precision_goes_on_with_its_loss_scale(file, tmp_path, policy):
    """The optimizer of a mixed_float16 model has a state within its state; HDF5 does not know bfloat16."""
    ends = []
    for stops in ([], [18]):
        for after in stops:
            with precision(policy), pytest.raises(StoppedError):
                train(sequence(file), small_model(), BackupAndResume(tmp_path, 5), Stop(after))
        with precision(policy):
            model = small_model()
        train(sequence(file), model, BackupAndResume(tmp_path, 5))
        ends.append(variables(model))
    assert_equal(*ends)


def test_half_a_save_is_no_harm(file, undisturbed, tmp_path):
    """What a kill left of the next save is ignored, and written over."""
    stop(file, tmp_path, after=8)
    (tmp_path / "training.part.h5").write_bytes(b"half")
    model = small_model()
    train(sequence(file), model, BackupAndResume(tmp_path))
    assert_equal(variables(model), undisturbed(None)[0])


OTHERS = {  # case: settings of the sequence or of the call, the sentence about them
    "batch size": ({"batch_size": 4}, "batch_size=8, and now it is 4"),
    "seed": ({"seed": 4}, "seed=3, and now it is 4"),
    "order": ({"shuffle": None}, "shuffle='full', and now it is None"),
    "rows": ({"rows": range(90)}, "rows=103, and now it is 90"),
    "shard": ({"shard": (1, 2)}, "shard=[0, 1], and now it is [1, 2]"),
}


@pytest.mark.parametrize(("settings", "sentence"), OTHERS.values(), ids=OTHERS)
def test_a_backup_of_other_data_is_refused(file, tmp_path, settings, sentence):
    """What would train on other rows is an error before the first step, and the backup stays."""
    stop(file, tmp_path, after=6)
    with pytest.raises(BackupError) as caught:
        train(sequence(file, **settings), small_model(), BackupAndResume(tmp_path), steps=STEPS)
    assert str(caught.value) == (
        f"the backup in {tmp_path} is of another training: it has {sentence}. Train with what it was begun with, or "
        "delete the folder to begin anew."
    )
    assert (tmp_path / "training.h5").exists()


def test_a_backup_of_other_steps_is_refused(file, tmp_path):
    """An epoch of another length would end elsewhere."""
    stop(file, tmp_path, after=6)
    with pytest.raises(BackupError, match="it has steps_per_epoch=13, and now it is 10. "):
        train(sequence(file), small_model(), BackupAndResume(tmp_path), steps=10)


def test_a_backup_of_another_optimizer_is_refused(file, tmp_path):
    """It has other variables."""
    stop(file, tmp_path, after=6)
    with pytest.raises(BackupError) as caught:
        train(sequence(file), small_model(optimizer="sgd"), BackupAndResume(tmp_path))
    assert str(caught.value) == (
        f"the backup in {tmp_path} has 10 variables of the optimizer and there are 2 now. Build and compile the model "
        "as before, or delete the folder to begin anew."
    )


def test_a_training_that_is_over_is_refused(file, tmp_path):
    """A smaller number of epochs than were begun."""
    stop(file, tmp_path, after=STEPS + 8)
    with pytest.raises(BackupError) as caught:
        train(sequence(file), small_model(), BackupAndResume(tmp_path), epochs=1)
    assert str(caught.value) == (
        f"the backup in {tmp_path} stands in epoch 1 (the first is 0), and epochs=1 ends before that. Pass a larger "
        "epochs, or delete the folder to begin anew."
    )


DAMAGES = {
    "not HDF5": lambda path: path.write_text("hello"),
    "no place": lambda path: h5py.File(path, "w").close(),
    "another place": lambda path: _write_place(path, {"epoch": 1}),
}


def _write_place(path, place: dict) -> None:
    with h5py.File(path, "w") as file:
        file.attrs["place"] = json.dumps(place)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_file_that_is_no_backup_is_named(file, tmp_path, damage):
    """The path, what went wrong, and what to do."""
    damage(tmp_path / "training.h5")
    with pytest.raises(BackupError) as caught:
        train(sequence(file), small_model(), BackupAndResume(tmp_path))
    assert str(caught.value).startswith(f"{tmp_path / 'training.h5'} cannot be read as a backup of a training (")
    assert str(caught.value).endswith("). Delete it to begin anew.")


def test_other_data_are_refused(file, tmp_path):
    """A generator cannot be asked for batch 17."""

    def batches():
        yield from iter(lambda: (np.zeros((4, 16, 16, 3), "uint8"), np.eye(5)[:4]), None)

    with pytest.raises(TypeError) as caught:
        train(batches(), small_model(), BackupAndResume(tmp_path), steps=3)
    assert str(caught.value) == (
        "BackupAndResume needs an HDF5Sequence, whose batches can be made again from their number; got generator. For "
        "other data there is keras.callbacks.BackupAndRestore."
    )


def test_plain_fit_is_refused(file, tmp_path):
    """fit alone does not know where the data stand."""
    with HDF5Sequence(file, workers=0) as data, pytest.raises(ValueError, match="works with helpers.fit_generator, "):
        small_model().fit(data, callbacks=[BackupAndResume(tmp_path)], verbose=0)


def test_two_backups_are_refused(file, tmp_path):
    """They would put the model and the data to different places."""
    both = BackupAndResume(tmp_path / "ours"), keras.callbacks.BackupAndRestore(tmp_path / "theirs")
    with pytest.raises(ValueError, match="got BackupAndResume and BackupAndRestore. Keep BackupAndResume."):
        train(sequence(file), small_model(), *both)


BAD_ARGUMENTS = {
    "no folder": ({"backup_dir": ""}, "backup_dir must be a folder; got an empty name."),
    "never": ({"save_freq": 0}, 'save_freq must be "epoch" or a number of steps of at least 1; got 0.'),
    "a word": ({"save_freq": "batch"}, "save_freq must be \"epoch\" or a number of steps of at least 1; got 'batch'."),
    "a yes": ({"save_freq": True}, 'save_freq must be "epoch" or a number of steps of at least 1; got True.'),
}


@pytest.mark.parametrize(("arguments", "message"), BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS)
def test_bad_arguments_are_named(arguments, message):
    """At the door, with what was found."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        BackupAndResume(**{"backup_dir": "backup", **arguments})
