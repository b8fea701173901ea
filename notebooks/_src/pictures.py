"""Draw the pictures that README shows: ``python notebooks/_src/pictures.py``."""

from pathlib import Path

from helpers.course import figures

FOLDER = Path(__file__).parents[1] / "images"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "batch_life.png").write_bytes(figures.png_bytes(figures.batch_life()))


if __name__ == "__main__":
    main()
