"""A reader sees the old file or the new one, never half of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from splinecut.errors import InputError, unknown
from splinecut.files import WriteError, write_atomically, write_json, write_text
from splinecut.locking import RunLocked, locked


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = write_text(tmp_path / "a.txt", "old")

    def fails(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(WriteError, match="No space left on device; what stood there before is intact"):
        write_atomically(path, fails)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_an_error_inside_the_writer_is_not_disguised(tmp_path: Path) -> None:
    def fails(temporary: Path) -> None:
        raise KeyError("ours")

    with pytest.raises(KeyError, match="ours"):
        write_atomically(tmp_path / "a", fails)
    assert os.listdir(tmp_path) == []


def test_a_place_that_cannot_be_written_is_one_line() -> None:
    with pytest.raises(WriteError, match=r"cannot write /proc/nowhere/a.txt: .*; choose a writable folder"):
        write_text("/proc/nowhere/a.txt", "x")


def test_json_round_trips_large_integers_and_refuses_nan(tmp_path: Path) -> None:
    path = write_json(tmp_path / "a.json", {"flops": 2**80})
    assert json.loads(path.read_text()) == {"flops": 2**80}
    with pytest.raises(InputError, match=r"test.1.loss is nan"):
        write_json(path, {"test": [{"loss": 1.0}, {"loss": float("nan")}]})
    with pytest.raises(InputError, match="value is inf"):
        write_json(path, float("inf"))
    assert json.loads(path.read_text()) == {"flops": 2**80}


def test_a_written_file_is_readable_as_the_umask_says(tmp_path: Path) -> None:
    mask = os.umask(0o022)
    try:
        assert (write_text(tmp_path / "a", "x").stat().st_mode & 0o777) == 0o644
    finally:
        os.umask(mask)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    error = unknown("model", "vgg61", ["mlp", "vgg16"])
    assert isinstance(error, InputError)
    assert str(error) == "unknown model 'vgg61'; did you mean 'vgg16'? known: mlp, vgg16"
    assert "did you mean" not in str(unknown("model", "zzz", ["mlp", "vgg16"]))


def test_a_folder_is_held_by_one_process_and_given_back_by_a_killed_one(tmp_path: Path) -> None:
    code = "import sys, time\nfrom splinecut.locking import locked\n"
    code += "with locked(sys.argv[1]): print('held', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline()
        for _ in range(2):  # the first one refused leaves the holder's number for the second
            with pytest.raises(RunLocked, match=f"is in use by process {holder.pid};"), locked(tmp_path):
                pass
        holder.kill()
    with locked(tmp_path):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    with locked(tmp_path, wait=True):
        pass
