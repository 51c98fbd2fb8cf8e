"""A checkpoint comes back bit for bit, or does not count."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch

from splinecut.errors import SplinecutError
from splinecut.training import checkpoint
from splinecut.training.optimizer_state import optimizer_state, restore_optimizer


def state(step: int) -> dict:
    return {"weights": {"w": torch.full((3, 2), float(step))}, "step": step, "rows": [{"loss": 0.1 * step}, None]}


def test_what_was_saved_is_loaded_bit_for_bit(tmp_path: Path) -> None:
    saved = {"a": torch.randn(4, 3, dtype=torch.float64), "b": [torch.tensor(True), 0.1, 2**70, "x", None], "c": {}}
    checkpoint.save(tmp_path, 7, saved)
    loaded = checkpoint.load_newest(tmp_path)
    assert loaded is not None
    assert torch.equal(loaded["a"], saved["a"]) and loaded["a"].dtype == torch.float64
    assert bool(loaded["b"][0]) and loaded["b"][1:] == [0.1, 2**70, "x", None]


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    for step in range(5):
        checkpoint.save(tmp_path, step, state(step))
    assert sorted(f.name for f in tmp_path.iterdir()) == [
        f"{step:012d}{suffix}" for step in (3, 4) for suffix in (".json", ".safetensors")
    ]


@pytest.mark.parametrize("victim", [".safetensors", ".json"])
@pytest.mark.parametrize("damage", ["truncate", "alter", "remove"])
def test_a_damaged_newest_falls_back_to_the_one_before_and_says_so(tmp_path: Path, victim: str, damage: str) -> None:
    for step in (1, 2):
        checkpoint.save(tmp_path, step, state(step))
    file = tmp_path / f"{2:012d}{victim}"
    content = file.read_bytes()
    if damage == "truncate":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "alter":
        file.write_bytes(content[:-4] + b"\x00\x01\x02\x03")
    else:
        file.unlink()
    said: list[str] = []
    loaded = checkpoint.load_newest(tmp_path, said.append)
    assert loaded is not None and loaded["step"] == 1
    if (victim, damage) != (".json", "remove"):  # without its JSON there is no second checkpoint to speak of
        assert len(said) == 1 and "going back to the one before it" in said[0]


def test_no_flipped_bit_anywhere_loads_as_another_state(tmp_path: Path) -> None:
    """600 random flips over both files, in proportion to their length, and every bit of the JSON's first 300 bytes."""
    for step in (1, 2):
        checkpoint.save(tmp_path, step, state(step))
    files = [tmp_path / f"{2:012d}{suffix}" for suffix in (".json", ".safetensors")]
    contents = [file.read_bytes() for file in files]
    sizes = [8 * len(content) for content in contents]
    drawn = random.Random(0).sample(range(sum(sizes)), 600)
    for bit in sorted({*drawn, *range(8 * 300)}):
        number, place = (0, bit) if bit < sizes[0] else (1, bit - sizes[0])
        flipped = bytearray(contents[number])
        flipped[place // 8] ^= 1 << place % 8
        files[number].write_bytes(flipped)
        said: list[str] = []
        loaded = checkpoint.load_newest(tmp_path, said.append)
        assert loaded is not None and loaded["step"] == 1 and loaded["rows"] == [{"loss": 0.1}, None], (number, place)
        assert torch.equal(loaded["weights"]["w"], state(1)["weights"]["w"])
        assert len(said) == 1 and "000000000002" in said[0]
        for file, content in zip(files, contents, strict=True):
            file.write_bytes(content)
    whole = checkpoint.load_newest(tmp_path)
    assert whole is not None and whole["step"] == 2


def as_in_0_1_0(folder: Path, step: int) -> Path:
    """Takes the digest of the JSON out again; returns the file."""
    file = folder / f"{step:012d}.json"
    header = json.loads(file.read_text())
    file.write_text(json.dumps({key: header[key] for key in ("schema", "sha256", "state")}, indent=2) + "\n")
    return file


def test_a_checkpoint_from_before_the_digest_of_the_json_still_loads(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, state(1))
    as_in_0_1_0(tmp_path, 1)
    loaded = checkpoint.load_newest(tmp_path)
    assert loaded is not None and loaded["step"] == 1 and loaded["weights"]["w"].shape == (3, 2)


def test_an_old_checkpoint_that_names_no_tensor_is_damaged_and_not_a_traceback(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, state(1))
    file = as_in_0_1_0(tmp_path, 1)
    file.write_text(file.read_text().replace('"weights/w"', '"weights/v"'))
    with pytest.warns(checkpoint.CheckpointWarning, match="000000000001"):
        assert checkpoint.load_newest(tmp_path) is None


def test_an_empty_folder_has_no_checkpoint(tmp_path: Path) -> None:
    assert checkpoint.load_newest(tmp_path / "none") is None


def test_another_schema_is_refused_rather_than_misread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SCHEMA", 99)
    checkpoint.save(tmp_path, 1, state(1))
    monkeypatch.undo()
    with pytest.raises(SplinecutError, match="schema 99, expected 1"):
        checkpoint.load_newest(tmp_path)


def test_tensors_that_share_memory_can_be_saved(tmp_path: Path) -> None:
    shared = torch.arange(4.0)
    checkpoint.save(tmp_path, 1, {"a": shared, "b": shared, "c": shared[1:3]})
    loaded = checkpoint.load_newest(tmp_path)
    assert loaded is not None and torch.equal(loaded["c"], shared[1:3])


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.Adagrad, torch.optim.RMSprop])
def test_an_optimiser_taken_back_steps_bit_identically(tmp_path: Path, kind: type) -> None:
    def make() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        net = torch.nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
        options = {"momentum": 0.9} if kind in (torch.optim.SGD, torch.optim.RMSprop) else {}
        return net, kind(net.parameters(), lr=0.01, weight_decay=1e-3, **options)

    def step(net: torch.nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
        x = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(seed))
        optimizer.zero_grad()
        net(x).square().sum().backward()
        optimizer.step()

    net, optimizer = make()
    for seed in range(3):
        step(net, optimizer, seed)
    checkpoint.save(tmp_path, 3, {"weights": net.state_dict(), "optimizer": optimizer_state(optimizer)})
    loaded = checkpoint.load_newest(tmp_path)
    assert loaded is not None
    other, its_optimizer = make()
    other.load_state_dict(loaded["weights"])
    restore_optimizer(its_optimizer, loaded["optimizer"])
    for seed in range(3, 6):
        step(net, optimizer, seed)
        step(other, its_optimizer, seed)
    for a, b in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
