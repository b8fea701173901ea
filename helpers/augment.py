"""Change training images a little, differently in every epoch: uint8 in, uint8 out, labels never touched.

All geometric changes of an image are one affine map, so the pixels are interpolated once (``cv2.warpAffine``, more than
5 times the speed of Keras 2's ``ImageDataGenerator.apply_transform``). What happens to an image is a pure function of
the random generator it comes with; :class:`helpers.HDF5Sequence` makes one for each (seed, epoch, row).
"""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple

import cv2
import numpy as np

from helpers.arguments import checked_flag

# Most that zoom and brightness take: a tenth of the size, and white from 26 on. OpenCV 5.0 makes black of what becomes
# a billion times as bright, and takes minutes for an image a billion times as small. (80, 120) is meant as per cent.
LARGEST_FACTOR = 10
_BY_CHANCE = "Every other image is mirrored, by chance."
FILLS = {
    "reflect": cv2.BORDER_REFLECT_101,
    "nearest": cv2.BORDER_REPLICATE,
    "wrap": cv2.BORDER_WRAP,
    "constant": cv2.BORDER_CONSTANT,
}


class Augment:
    """Random crop, rotation, shift, shear, zoom, flips and brightness; then a function of your own.

    Parameters
    ----------
    crop : (height, width) of a window cut out at a random place.
    rotation : degrees; each image is turned by an angle between -rotation and +rotation.
    width_shift, height_shift : fractions of the side; moved by up to this much either way.
    shear : degrees, either way, along the x axis.
    zoom : (low, high) factors up to 10, the same for both axes: (0.8, 1) shows the central 80 % up to all of the image.
    horizontal_flip, vertical_flip : mirror every other image, by chance.
    brightness : (low, high) factors up to 10 on the pixel values, cut off at 255.
    fill : what fills places outside the image: "reflect", "nearest", "wrap" or "constant" (black).
    function : called last as ``function(image, rng)``; returns a (height, width, 3) uint8 image.

    Raises
    ------
    ValueError, TypeError
        An argument is out of its range.

    ``Augment(horizontal_flip=True)(image, np.random.default_rng(0))`` gives a new image; ``image`` is not changed.
    """

    def __init__(
        self,
        *,
        crop: tuple[int, int] | None = None,
        rotation: float = 0,
        width_shift: float = 0,
        height_shift: float = 0,
        shear: float = 0,
        zoom: tuple[float, float] = (1, 1),
        horizontal_flip: bool = False,
        vertical_flip: bool = False,
        brightness: tuple[float, float] | None = None,
        fill: str = "reflect",
        function: Callable | None = None,
    ):
        self.crop = None if crop is None else _checked_size("crop", crop)
        self.rotation = _checked_limit("rotation", rotation, 180, "degrees")
        self.width_shift = _checked_limit("width_shift", width_shift, 1, "of the width")
        self.height_shift = _checked_limit("height_shift", height_shift, 1, "of the height")
        self.shear = _checked_limit("shear", shear, 60, "degrees")
        self.zoom = _checked_factors("zoom", zoom)
        self.horizontal_flip = checked_flag("horizontal_flip", horizontal_flip, _BY_CHANCE)
        self.vertical_flip = checked_flag("vertical_flip", vertical_flip, _BY_CHANCE)
        self.brightness = None if brightness is None else _checked_factors("brightness", brightness)
        if fill not in FILLS:
            raise ValueError(f"fill must be one of {', '.join(FILLS)}; got {fill!r}.")
        self.fill = fill
        if function is not None and not callable(function):
            raise TypeError(f"function must be callable as function(image, rng); got {function!r}.")
        self.function = function

    def __call__(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Augment one image.

        Parameters
        ----------
        image : (height, width, 3) uint8; not changed.
        rng : the only source of chance.

        Returns
        -------
        (height, width, 3) uint8, or (crop height, crop width, 3): a new array.

        Raises
        ------
        TypeError, ValueError
            Not a uint8 colour image, smaller than the crop, or the own function returned something else.
        """
        check_image(image)
        # Always all draws: switching one change on leaves the others as they were.
        draw = _Draws(*rng.random(len(_Draws._fields)))
        result = self._move(image, draw)
        if self.brightness is not None:
            result = cv2.convertScaleAbs(result, alpha=_between(self.brightness, draw.brightness))
        if self.function is not None:
            result = self.function(result, rng)
            check_image(result, "the augment function must return")
        return result

    def output_shape(self, image_shape: tuple[int, int, int]) -> tuple[int, int, int]:
        """Shape of the augmented image for an image of ``image_shape``. An own function is not asked."""
        return (*self._output_size(image_shape), 3)

    def __repr__(self) -> str:
        untouched = vars(Augment())
        changed = [f"{name}={value!r}" for name, value in vars(self).items() if value != untouched[name]]
        return f"Augment({', '.join(changed)})"

    def _output_size(self, image_shape) -> tuple[int, int]:
        if self.crop is None:
            return image_shape[0], image_shape[1]
        return _checked_fit("crop", self.crop, image_shape)

    def _move(self, image: np.ndarray, draw: _Draws) -> np.ndarray:
        height, width = self._output_size(image.shape)
        top = math.floor(draw.top * (image.shape[0] - height + 1))
        left = math.floor(draw.left * (image.shape[1] - width + 1))
        flip_x = self.horizontal_flip and draw.flip_x < 0.5
        flip_y = self.vertical_flip and draw.flip_y < 0.5
        if not self._warps:
            window = image[top : top + height, left : left + width]
            return window[:: -1 if flip_y else 1, :: -1 if flip_x else 1].copy()
        centre_y, centre_x = (image.shape[0] - 1) / 2, (image.shape[1] - 1) / 2
        matrix = (
            _shift(centre_x + self._shift_x(image, draw), centre_y + self._shift_y(image, draw))
            @ self._turn(draw, flip_x, flip_y)
            @ _shift(left - centre_x, top - centre_y)
        )
        return _warped(image, matrix[:2], (width, height), FILLS[self.fill])

    @property
    def _warps(self) -> bool:
        return bool(self.rotation or self.width_shift or self.height_shift or self.shear) or self.zoom != (1, 1)

    def _shift_x(self, image: np.ndarray, draw: _Draws) -> float:
        return _either_way(self.width_shift, draw.shift_x) * image.shape[1]

    def _shift_y(self, image: np.ndarray, draw: _Draws) -> float:
        return _either_way(self.height_shift, draw.shift_y) * image.shape[0]

    def _turn(self, draw: _Draws, flip_x: bool, flip_y: bool) -> np.ndarray:
        """Map of output to input around the centre: flip, zoom, shear, turn; (3, 3) float64."""
        angle = math.radians(_either_way(self.rotation, draw.angle))
        shear = math.radians(_either_way(self.shear, draw.shear))
        zoom = _between(self.zoom, draw.zoom)
        turned = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        sheared = np.array([[1, math.tan(shear)], [0, 1]])
        matrix = np.eye(3)
        matrix[:2, :2] = zoom * turned @ sheared @ np.diag([-1 if flip_x else 1, -1 if flip_y else 1])
        return matrix


class CenterCrop:
    """The middle of an image, without chance: for validation, when training uses ``Augment(crop=...)``.

    ``CenterCrop((224, 224))`` is called like an :class:`Augment`; the random generator is not used.
    """

    def __init__(self, size: tuple[int, int]):
        self.size = _checked_size("size", size)

    def __call__(self, image: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:  # noqa: ARG002 - called like Augment
        """Cut the middle ``size`` out of a (height, width, 3) uint8 image. Raises ValueError if it is smaller."""
        check_image(image)
        height, width, _ = self.output_shape(image.shape)
        top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
        return image[top : top + height, left : left + width].copy()

    def output_shape(self, image_shape: tuple[int, int, int]) -> tuple[int, int, int]:
        """Shape of the cropped image for an image of ``image_shape``."""
        return (*_checked_fit("size", self.size, image_shape), 3)

    def __repr__(self) -> str:
        return f"CenterCrop({self.size})"


class _Draws(NamedTuple):
    """One number in [0, 1) for each thing that chance decides."""

    top: float
    left: float
    flip_x: float
    flip_y: float
    angle: float
    shear: float
    shift_x: float
    shift_y: float
    zoom: float
    brightness: float


def check_image(image, rule: str = "augment needs") -> None:
    """Raise TypeError unless ``image`` is a (height, width, 3) uint8 array, ValueError if it has no pixels.

    ``rule`` begins the sentence.
    """
    if isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3:
        if image.size == 0:
            raise ValueError(f"{rule} an image of at least 1 pixel; got shape {image.shape}.")
        return
    got = f"shape {image.shape} of {image.dtype}" if isinstance(image, np.ndarray) else type(image).__name__
    raise TypeError(
        f"{rule} a (height, width, 3) uint8 array; got {got}. Scaling to float belongs into the model: "
        "helpers.models.normalization."
    )


def _warped(image: np.ndarray, matrix: np.ndarray, size: tuple[int, int], border: int) -> np.ndarray:
    """``cv2.warpAffine`` by the map of output to input, (2, 3), to ``size`` (width, height)."""
    # OpenCV 5.0 warps four channels in half the time of three (225 against 505 us at 299x299), and gives the same
    # bytes. That is lost again when the arrays between are new each time: their pages have to be mapped.
    source = cv2.cvtColor(image, cv2.COLOR_RGB2RGBA, dst=_scratch("source", image.shape[:2]))
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    target = _scratch("target", size[::-1])
    return cv2.cvtColor(
        cv2.warpAffine(source, matrix, size, dst=target, flags=flags, borderMode=border), cv2.COLOR_RGBA2RGB
    )


_LOCAL = threading.local()  # threads augment at the same time


def _scratch(name: str, size: tuple[int, int]) -> np.ndarray:
    """An array (height, width, 4) of this thread, used again and again."""
    array = getattr(_LOCAL, name, None)
    if array is None or array.shape[:2] != size:
        array = np.empty((*size, 4), np.uint8)
        setattr(_LOCAL, name, array)
    return array


def _shift(x: float, y: float) -> np.ndarray:
    return np.array([[1, 0, x], [0, 1, y], [0, 0, 1]], dtype=np.float64)


def _between(bounds: tuple[float, float], draw: float) -> float:
    return bounds[0] + (bounds[1] - bounds[0]) * draw


def _either_way(limit: float, draw: float) -> float:
    return limit * (2 * draw - 1)


def _checked_size(name: str, size) -> tuple[int, int]:
    try:
        height, width = (operator.index(side) for side in size)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be two integers (height, width); got {size!r}.") from None
    if height < 1 or width < 1:
        raise ValueError(f"{name} must be at least 1 pixel each way; got {(height, width)}.")
    return height, width


def _checked_fit(name: str, size: tuple[int, int], image_shape) -> tuple[int, int]:
    if size[0] > image_shape[0] or size[1] > image_shape[1]:
        raise ValueError(f"{name} {size} is larger than the image, {tuple(image_shape[:2])}. Lower {name}.")
    return size


def _checked_limit(name: str, value, most: float, unit: str) -> float:
    if not _is_number(value) or not 0 <= value <= most:
        raise ValueError(f"{name} must be a number from 0 to {most} {unit}; got {value!r}.")
    return float(value)


def _checked_factors(name: str, bounds) -> tuple[float, float]:
    pair = list(bounds) if isinstance(bounds, Iterable) else []
    if len(pair) != 2 or not all(map(_is_number, pair)):
        raise ValueError(f"{name} must be two factors (low, high); got {bounds!r}.")
    low, high = map(float, pair)
    if not 0 < low <= high:
        raise ValueError(f"{name} must be (low, high) with 0 < low <= high; got {(low, high)}.")
    if high > LARGEST_FACTOR:
        raise ValueError(
            f"{name} must be at most {LARGEST_FACTOR}; got {(low, high)}. It is a factor: 1 changes nothing, 0.8 is 80 "
            "per cent."
        )
    return low, high


def _is_number(value) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
