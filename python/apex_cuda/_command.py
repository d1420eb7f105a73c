"""The command ``apex``: where it is, and what it prints."""

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path


class Error(RuntimeError):
    """``apex`` could not do what was asked; the text is what it said."""


def find() -> str:
    """The path of the command: that of this installation, else the first in ``PATH``.

    Raises:
        Error: there is none.
    """
    for candidate in _installed():
        if os.access(candidate, os.X_OK):
            return str(candidate)
    found = shutil.which("apex")
    if found is None:
        raise Error(
            "the command `apex` was not found: install it with `pip install apex-cuda`, "
            "or add its folder to PATH"
        )
    return found


def _installed() -> Iterator[Path]:
    """Where pip may have put the command: where it says so, and the environment's scripts."""
    try:
        files = metadata.files("apex-cuda") or []
    except metadata.PackageNotFoundError:
        return
    for file in files:
        if file.name == "apex" and file.parent.name in ("bin", "scripts"):
            yield Path(str(file.locate()))
    yield Path(sysconfig.get_path("scripts")) / "apex"


def version() -> str:
    """The version of the installed package; without one, that of the command.

    Raises:
        Error: there is neither.
    """
    try:
        return metadata.version("apex-cuda")
    except metadata.PackageNotFoundError:
        return output(["--version"]).decode().split()[-1]


def output(arguments: list[str]) -> bytes:
    """What ``apex`` prints.

    Raises:
        Error: it failed, with what it said.
    """
    done = subprocess.run(
        [find(), *arguments], env=environment(), stdin=subprocess.DEVNULL, capture_output=True
    )
    if done.returncode != 0:
        raise Error(
            said(done.stderr) or f"apex {arguments[0]} ended with exit status {done.returncode}"
        )
    return done.stdout


def said(stderr: bytes) -> str:
    """What ``apex`` said, without the prefix of its lines."""
    lines = stderr.decode(errors="replace").splitlines()
    return "\n".join(line[len("apex: ") :] if line.startswith("apex: ") else line for line in lines)


def environment() -> dict[str, str]:
    """This process's environment without what would change the answer: variables that stand for
    options of ``apex``, and libraries that are preloaded into the program that is recorded."""
    return {
        name: value
        for name, value in os.environ.items()
        if name != "LD_PRELOAD" and (not name.startswith("APEX_") or name == "APEX_LIB_DIR")
    }
