"""Finds the application that a command is given as `module:name`."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

from tailrace.cli.output import fail
from tailrace.core.errors import CallerError, TailraceError
from tailrace.settings import read_settings


def load(name: str) -> Any:
    """The Tailrace application; a wrong name ends the command with a sentence."""
    try:
        return find_app(name)
    except TailraceError as error:
        fail(str(error))


def find_app(name: str) -> Any:
    """The Tailrace application; a `CallerError` says what to write instead of a wrong name."""
    from tailrace.app import Tailrace

    module, _, attribute = name.partition(":")
    if module.endswith(".py"):
        raise CallerError(f"{name!r} names a file; {_of_file(Path(module), attribute or 'app')}.")
    if not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise CallerError(
            f"{name!r} is not an application; write module:name, for example main:app."
        )
    sys.path.insert(0, str(Path.cwd()))
    try:
        loaded = importlib.import_module(module)
    except ImportError as error:
        raise CallerError(_failed_import(module, error)) from error
    except SyntaxError as error:
        place = f"{error.filename}, line {error.lineno}"
        raise CallerError(f"{module} cannot be read: {error.msg}. Correct {place}.") from error
    except TailraceError as error:
        place = "" if str(error) == _wrong_setting() else _place(error)
        raise CallerError(f"{error}{place}") from error
    except Exception as error:
        what = traceback.format_exception_only(error)[-1].strip()
        message = f"{module} could not be imported: {what}{_place(error)}."
        raise CallerError(message) from error
    found = getattr(loaded, attribute, None)
    if found is None:
        raise CallerError(f"Module {module} has no {attribute!r}; {_instead(loaded, Tailrace)}.")
    if not isinstance(found, Tailrace):
        raise CallerError(
            f"{name} ({type(found).__name__}) is not a Tailrace application; "
            f"{_instead(loaded, Tailrace)}."
        )
    return found


def _wrong_setting() -> str | None:
    """What is wrong with the variables or the file of settings, whatever the code says."""
    try:
        read_settings({})
    except TailraceError as error:
        return str(error)
    return None


def _of_file(path: Path, attribute: str) -> str:
    """What to write instead of a path, and in which folder."""
    if not path.stem.isidentifier():
        return f"Python cannot import it: name it main.py, and write main:{attribute}"
    path, here = path.resolve(), Path.cwd().resolve()
    inside = path.relative_to(here).with_suffix("").parts if path.is_relative_to(here) else ()
    if inside and all(part.isidentifier() for part in inside):
        return f"write {'.'.join(inside)}:{attribute}"
    return f"in the folder {path.parent}, write {path.stem}:{attribute}"


def _instead(module: Any, kind: type) -> str:
    """What to write instead: the applications that the module has."""
    found = [name for name, value in vars(module).items() if isinstance(value, kind)]
    if found:
        return "write " + " or ".join(f"{module.__name__}:{name}" for name in found)
    return "make one there: app = Tailrace([agent])"


def _failed_import(module: str, error: ImportError) -> str:
    """The error message: `module` itself is missing, or something that it imports."""
    asked = [module.rsplit(".", cut)[0] for cut in range(module.count(".") + 1)]
    if isinstance(error, ModuleNotFoundError) and error.name in asked:
        package, _, name = error.name.rpartition(".")
        if package:
            return f"Module {error.name!r} was not found: {package} has no {name}.py."
        part = f"the folder {name}" if name != module else f"{name}.py"
        return f"Module {name!r} was not found; run this in the folder that has {part} in it."
    place = _place(error)
    if isinstance(error, ModuleNotFoundError):
        return f"{module} imports {error.name!r}, which is not installed{place}."
    return f"{module} could not be imported: {error}{place}."


def _place(error: Exception) -> str:
    """The last line of the user's own code in the traceback."""
    ours = str(Path(__file__).parents[1])
    frames = [
        frame
        for frame in reversed(traceback.extract_tb(error.__traceback__))
        if frame.line and not frame.filename.startswith(ours)
    ]
    own = [frame for frame in frames if "site-packages" not in frame.filename]
    for frame in own or frames:
        return f" ({frame.filename}, line {frame.lineno})"
    return ""
