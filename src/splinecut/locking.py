"""A folder held by one process at a time; the lock is released when the process ends, however it ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from splinecut.errors import SplinecutError
from splinecut.files import WriteError


class RunLocked(SplinecutError):
    """Another process is at work in the folder."""


@contextmanager
def locked(folder: str | Path, wait: bool = False) -> Iterator[Path]:
    """Holds `folder` (made if missing) for this process; where another one does, waits for it or refuses."""
    from filelock import FileLock, Timeout

    folder = Path(folder)
    file = folder / "lock"
    # No soft lock where the system has none of its own: that one would outlive a killed process and block the next.
    lock = FileLock(file, blocking=wait, fallback_to_soft=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise RunLocked(
            f"run folder {folder} is in use by process {_holder(file)}; wait for it, or choose another --out folder"
        ) from None
    except OSError as error:
        raise WriteError(f"cannot write in {folder}: {error.strerror}; choose another --out folder") from None
    try:
        with suppress(OSError):  # Windows refuses to write to a locked file; the number is for the message only
            file.write_text(f"{os.getpid()}\n", encoding="ascii")
        yield folder
    finally:
        lock.release()


def _holder(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip() or "?"
    except OSError:
        return "?"
