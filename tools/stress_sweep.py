"""A sweep whose worker processes are killed again and again, against the same sweep left in peace.

    python tests/disturb.py RECIPE --every 15 [--ray] [--set KEY=VALUE ...]

Ends with 0 if both are complete and every record, ticket and weight file is identical but for measured times,
energy and latency, and the commit.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from splinecut.training.ledger import Ledger

KEPT = (".safetensors", ".toml")
PATIENT = ("--retries", "20")  # on a busy machine the same run may be hit many times before it gets anywhere

Due = Callable[[float, int, int], bool]
"""(seconds since the last kill, runs finished, kills so far) -> whether to kill a worker now."""


def sweep(
    recipe: Path | str, out: Path, *options: str, is_due: Due = lambda seconds, runs, kills: False
) -> tuple[subprocess.Popen[str], int, str]:
    """Runs `splinecut sweep` to its end, killing a worker whenever one is due; (process, kills, what it said)."""
    command = [
        sys.executable,
        "-m",
        "splinecut",
        "sweep",
        str(recipe),
        "--out",
        str(out),
        "--workers",
        "2",
        *PATIENT,
        *options,
    ]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stderr=said, stdout=said, text=True)
        chance, kills, last = random.Random(0), 0, time.monotonic()
        try:
            while process.poll() is None:
                time.sleep(0.1)
                is_time = is_due(time.monotonic() - last, len(list(out.glob("*/record.json"))), kills)
                if is_time and (workers := busy_workers(process.pid)):
                    os.kill(chance.choice(workers), signal.SIGKILL)
                    kills, last = kills + 1, time.monotonic()
        finally:
            process.terminate()
        said.seek(0)
        return process, kills, said.read()


def busy_workers(parent: int) -> list[int]:
    """The processes below `parent` that do runs: spawned by multiprocessing, or named by Ray after the task."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    workers = []
    for process in parents:
        above = process
        while above in parents and above != parent:
            above = parents[above]
        if above == parent and process != parent and _does_runs(process):
            workers.append(process)
    return sorted(workers)


def _does_runs(process: int) -> bool:
    try:
        command = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return False
    return b"spawn_main" in command or command.startswith(b"ray::perform")


def outcomes(out: Path) -> dict[str, tuple[dict, dict[str, bytes]]]:
    """Run folder -> everything of it that must not depend on how it got there."""
    return {record.parent.name: _outcome(record) for record in sorted(out.glob("*/record.json"))}


def _outcome(path: Path) -> tuple[dict, dict[str, bytes]]:
    record = json.loads(path.read_text())
    ledger = Ledger.from_dict(record.pop("ledger")).without_time()
    for measured in ("energy", "latency", "commit"):
        record.pop(measured)
    # Hidden files are what a process was writing when it was killed; nobody reads them.
    files = {file.name: file.read_bytes() for file in path.parent.glob("[!.]*") if file.suffix in KEPT}
    return {**record, "ledger": ledger}, files


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--every", type=float, default=15.0, help="seconds between kills")
    parser.add_argument("--ray", action="store_true", help="disturb Ray's worker processes as well")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--out", type=Path, default=Path("runs/stress"))
    args = parser.parse_args(arguments)
    options = [word for value in args.set for word in ("--set", value)]
    places = {"in peace": [], "killed": [], **({"killed on Ray": ["--ray", "local"]} if args.ray else {})}
    expected: dict[str, tuple[dict, dict[str, bytes]]] = {}
    is_good = True
    for name, more in places.items():
        out = args.out / name.replace(" ", "-")
        every = args.every if name != "in peace" else float("inf")

        def is_due(seconds: float, runs: int, kills: int, every: float = every) -> bool:
            return seconds > every

        process, kills, said = sweep(args.recipe, out, *options, *more, is_due=is_due)
        results = outcomes(out)
        expected = expected or results
        is_same = process.returncode == 0 and results == expected
        is_good &= is_same
        print(f"{name}: {len(results)} runs, {kills} workers killed, {'same' if is_same else 'DIFFERENT'}", flush=True)
        if not is_same:
            print(said[-2000:])
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
