"""A folder held by one process at a time; the lock goes with the process, however it ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from splinecut.errors import SplinecutError
from splinecut.files import WriteError


class RunLocked(SplinecutError):
    """Another process is at work in the folder."""


@contextmanager
def locked(folder: str | Path, wait: bool = False) -> Iterator[Path]:
    """Holds `folder` (made if missing) for this process; where another one does, waits for it or refuses."""
    import fcntl

    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise WriteError(f"cannot write in {folder}: {error.strerror}; choose another --out folder") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 64, 0).decode(errors="replace").strip()
            raise RunLocked(
                f"run folder {folder} is in use by process {holder or '?'}; wait for it, or choose another --out folder"
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield folder
    finally:
        os.close(handle)
