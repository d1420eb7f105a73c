"""``python -m apex_cuda …``: the command ``apex``, where a program that ends in ``.py`` is run by
this interpreter."""

import os
import sys

from ._command import Error, find


def main() -> None:
    """Becomes ``apex``."""
    try:
        apex = find()
    except Error as error:
        sys.exit(f"apex: {error}")
    os.execve(apex, ["apex", *sys.argv[1:]], {**os.environ, "APEX_PYTHON": sys.executable})


if __name__ == "__main__":
    main()
