"""The command: `python -m shardrt`, and `shardrt` where the wheel is installed. The program takes this one's place."""

import os
import sys
from pathlib import Path

from shardrt import library

_NAME = "shardrt"


def _program() -> Path | None:
    """In a wheel it lies in the package; of the tree it is in build/; or it is beside the library."""
    package = Path(__file__).resolve().parent
    folders = [package, package.parent.parent / "build"]
    if os.environ.get("SHARDRT_LIBRARY"):
        folders.insert(0, Path(library.place).resolve().parent)
    return next((folder / _NAME for folder in folders if os.access(folder / _NAME, os.X_OK)), None)


def main() -> None:
    program = _program()
    if program is None:
        sys.exit(f"shardrt: there is no program beside {library.place}; `make` builds it, and `make wheel` packs it")
    os.execv(program, [_NAME, *sys.argv[1:]])


if __name__ == "__main__":
    main()
