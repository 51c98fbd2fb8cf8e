"""A cut network calibrated on unlabelled inputs comes closer to the dense one, and never further away."""

from __future__ import annotations

import copy
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import splinecut as sc
from splinecut.networks.cost import forward_flops
from splinecut.networks.inputs import held_out, take
from splinecut.pruning.calibration import steps as calibration_steps
from splinecut.pruning.calibration.augmentation import flip_and_shift, resolve_augment
from splinecut.pruning.calibration.imitation import common_blocks, divergence, relative_error, run
from splinecut.pruning.calibration.parameters import step_size
from splinecut.pruning.calibration.steps import HELD_OUT
from splinecut.training import checkpoint
from splinecut.training.ledger import Ledger
from splinecut.training.loop import Diverged
from splinecut.training.seeding import generator


class Block(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.stage = nn.Sequential(Block(), Block())
        self.dropout, self.head = nn.Dropout(0.5), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.dropout(self.stage(torch.relu(self.stem(x))).mean((2, 3))))


class Tokens(nn.Module):
    """A transformer in miniature: token ids and a mask in, a dict of hidden states and scores out."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.feed_forward = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, ids: Tensor, mask: Tensor) -> dict[str, Tensor]:
        x = self.embedding(ids) * mask[..., None]
        hidden = self.norm(x + self.feed_forward(x))
        return {"hidden": hidden, "scores": self.head(hidden.mean(1))}


def trained_looking(model: nn.Module, seed: int = 0) -> nn.Module:
    """Batch norms with statistics and weights that no new network has."""
    draws = generator(seed)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor, low in ((module.running_mean, -0.2), (module.running_var, 0.5), (module.bias.data, -0.2)):
                tensor.uniform_(low, low + 0.7, generator=draws)
    return model


def pair(model: nn.Module, probe: Tensor, keep: float = 0.5) -> nn.Module:
    ticket = sc.draw(model, probe, method="l2", keep=keep, residual="inner")
    return sc.cut(model, ticket)


@pytest.fixture(scope="module")
def images() -> Tensor:
    return torch.randn(64, 3, 8, 8, generator=generator(1))


@pytest.fixture(scope="module")
def dense() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return trained_looking(Residual()).eval()


@pytest.fixture(scope="module")
def small(dense: nn.Module, images: Tensor) -> nn.Module:
    return pair(dense, images)


@torch.no_grad()
def held_out_loss(model: nn.Module, dense: nn.Module, probe: Tensor) -> float:
    rows = probe[held_out(len(probe), HELD_OUT)]
    return float(divergence(copy.deepcopy(model).eval()(rows), copy.deepcopy(dense).eval()(rows)))


def is_same(one: nn.Module, other: nn.Module) -> bool:
    first, second = one.state_dict(), other.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


def test_a_cut_network_comes_closer_to_the_dense_one_on_inputs_held_out(dense, small, images) -> None:
    before = held_out_loss(small, dense, images)
    after = held_out_loss(sc.calibrate(small, dense, images, steps=60), dense, images)
    assert after < 0.5 * before


@pytest.mark.parametrize("rate", [1e-5, 2e-3, 3.0])
def test_the_held_out_loss_is_never_worse_whatever_the_rate(dense, small, images, rate) -> None:
    calibrated = sc.calibrate(small, dense, images, steps=20, learning_rate=rate)
    assert held_out_loss(calibrated, dense, images) <= held_out_loss(small, dense, images) * (1 + 1e-6)


def test_a_rate_that_gains_nothing_is_lowered_once(dense, small, images, monkeypatch) -> None:
    rates: list[float] = []
    check = calibration_steps.Calibration._check

    def watched(self: calibration_steps.Calibration, targets: list[Tensor]) -> None:
        check(self, targets)
        rates.append(self.rate)

    monkeypatch.setattr(calibration_steps.Calibration, "_check", watched)
    monkeypatch.setattr(calibration_steps, "WORSE", math.inf)
    sc.calibrate(small, dense, images, steps=24, learning_rate=1.0)
    assert rates == [1.0] * 4 + [0.25] * 9


def test_the_dense_network_as_its_own_student_is_returned_as_it_is(dense, images) -> None:
    assert is_same(sc.calibrate(dense, dense, images, steps=5), dense)


def test_both_networks_are_left_as_found_and_modes_gradients_and_statistics_stay(dense, small, images) -> None:
    small, dense = copy.deepcopy(small).train(), copy.deepcopy(dense).train()
    small.stage[0].bn1.eval()
    small.stem.weight.requires_grad_(False)
    copies = copy.deepcopy(small), copy.deepcopy(dense)
    random = torch.get_rng_state()
    calibrated = sc.calibrate(small, dense, images, steps=20)
    assert is_same(small, copies[0]) and is_same(dense, copies[1]) and torch.equal(random, torch.get_rng_state())
    assert all(parameter.grad is None for model in (small, dense, calibrated) for parameter in model.parameters())
    assert [m.training for m in calibrated.modules()] == [m.training for m in small.modules()]
    assert [m.training for m in dense.modules()] == [m.training for m in copies[1].modules()]
    assert not any(module._forward_hooks for model in (small, dense, calibrated) for module in model.modules())
    assert not calibrated.stem.weight.requires_grad and torch.equal(calibrated.stem.weight, small.stem.weight)
    assert calibrated.stage[1].conv2.weight.requires_grad and not is_same(calibrated, small)
    assert torch.equal(calibrated.stage[0].bn1.running_var, small.stage[0].bn1.running_var)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_precision_of_the_network_stays(dense, small, images, dtype) -> None:
    calibrated = sc.calibrate(copy.deepcopy(small).to(dtype), copy.deepcopy(dense).to(dtype), images, steps=10)
    assert {parameter.dtype for parameter in calibrated.parameters()} == {dtype}


def test_the_same_call_gives_the_same_network_and_another_seed_another(dense, small, images) -> None:
    first, second, third = (sc.calibrate(small, dense, images, steps=15, seed=seed) for seed in (3, 3, 4))
    assert is_same(first, second) and not is_same(first, third)


VICTIM = """
import os, signal, sys, torch
sys.path.insert(0, {tests!r})
torch.set_num_threads(1)
import splinecut as sc
from pruning.test_calibrate import Residual, pair, trained_looking
from splinecut.pruning.calibration.steps import Calibration
from splinecut.training.seeding import generator
images = torch.randn(64, 3, 8, 8, generator=generator(1))
torch.manual_seed(0)
dense = trained_looking(Residual()).eval()
small = pair(dense, images)
left, step = int(sys.argv[2]), Calibration._step
def counted(self):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self)
Calibration._step = counted
sc.save(sc.calibrate(small, dense, images, steps=24, checkpoint=sys.argv[1] or None), sys.argv[3])
"""


def test_a_killed_call_goes_on_to_the_identical_result(tmp_path: Path) -> None:
    code = VICTIM.format(tests=str(Path(__file__).parents[1]))

    def run(folder: str, kill_at: int, out: str) -> int:
        command = [sys.executable, "-c", code, folder, str(kill_at), str(tmp_path / out)]
        return subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=120).returncode

    assert run("", -1, "whole.safetensors") == 0
    folder = str(tmp_path / "checkpoint")
    assert run(folder, 8, "killed.safetensors") == -9 and run(folder, 10, "killed.safetensors") == -9
    assert not (tmp_path / "killed.safetensors").exists()
    assert run(folder, -1, "killed.safetensors") == 0
    assert (tmp_path / "killed.safetensors").read_bytes() == (tmp_path / "whole.safetensors").read_bytes()


def test_a_finished_call_is_read_not_run_again(dense, small, images, tmp_path, monkeypatch) -> None:
    first = sc.calibrate(small, dense, images, steps=6, checkpoint=tmp_path)
    monkeypatch.setattr(calibration_steps.Calibration, "_step", lambda self: pytest.fail("a step was taken"))
    assert is_same(first, sc.calibrate(small, dense, images, steps=6, checkpoint=tmp_path))
    assert {file.suffix for file in tmp_path.iterdir()} <= {".json", ".safetensors", ""}


@pytest.mark.parametrize("change", [{"steps": 7}, {"seed": 1}, {"augment": None}, {"probe": None}, {"small": None}])
def test_the_checkpoint_of_another_call_is_refused_in_one_line(dense, small, images, tmp_path, change) -> None:
    call: dict[str, Any] = {"small": small, "dense": dense, "probe": images, "steps": 4, "checkpoint": tmp_path}
    sc.calibrate(**call)
    others = {"probe": images + 1, "small": dense}
    name, value = next(iter(change.items()))
    with pytest.raises(sc.InputError, match=f"another call of calibrate: it has .*{name}") as refused:
        sc.calibrate(**{**call, name: others.get(name, value)})
    assert "\n" not in str(refused.value)


def test_every_pass_is_charged(dense, small, images) -> None:
    ledger, n_held = Ledger(), 8
    sc.calibrate(small, dense, images, steps=24, batch=16, ledger=ledger)
    ours, theirs = forward_flops(small, images), forward_flops(dense, images)
    flops = {name: charge.flops for name, charge in ledger}
    assert flops == {
        "calibrate": 3 * ours * 24 * 16,
        "calibrate: teacher": theirs * (24 * 16 + n_held),
        "calibrate: validate": ours * n_held * 13,
    }
    assert ledger.total.seconds > 0


def test_a_resumed_call_charges_what_an_uninterrupted_one_does(dense, small, images, tmp_path, monkeypatch) -> None:
    whole, resumed = Ledger(), Ledger()
    call = {"small": small, "dense": dense, "probe": images, "steps": 12}
    sc.calibrate(**call, ledger=whole)
    step = calibration_steps.Calibration._step

    def interrupted(self: calibration_steps.Calibration) -> float:
        if self.step == 7:
            raise KeyboardInterrupt
        return step(self)

    monkeypatch.setattr(calibration_steps.Calibration, "_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sc.calibrate(**call, ledger=resumed, checkpoint=tmp_path)
    monkeypatch.setattr(calibration_steps.Calibration, "_step", step)
    sc.calibrate(**call, ledger=resumed, checkpoint=tmp_path)
    assert resumed.without_time() == whole.without_time()


def test_token_ids_and_masks_pass_unchanged_and_a_named_output_is_imitated() -> None:
    torch.manual_seed(0)
    dense = Tokens().eval()
    small = copy.deepcopy(dense)
    small.feed_forward = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
    probe = (torch.randint(20, (96, 6), generator=generator(2)), torch.ones(96, 6, dtype=torch.bool))
    rows = take(probe, torch.nonzero(held_out(96, HELD_OUT))[:, 0])
    for output, loss in (("scores", divergence), (None, relative_error)):
        calibrated = sc.calibrate(small, dense, probe, steps=60, output=output)
        key = output or "hidden"
        before, after = (loss(model(*rows)[key], dense(*rows)[key]).item() for model in (small, calibrated))
        assert after < 0.7 * before


def test_plain_layers_are_calibrated_by_their_output_alone() -> None:
    torch.manual_seed(0)
    dense = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1)).eval()
    probe = torch.randn(128, 6, generator=generator(3))
    small = pair(dense, probe)
    assert common_blocks(dense, small, (probe[:2],), None) == []
    calibrated = sc.calibrate(small, dense, probe, steps=100)
    held = probe[held_out(128, HELD_OUT)]
    before, after = (relative_error(model(held), dense(held)).item() for model in (small, calibrated))
    assert after < 0.5 * before


def test_blocks_are_compared_once_each_and_layers_inside_them_are_not(dense, small, images) -> None:
    assert common_blocks(dense, small, (images[:2],), None) == ["stage.0", "stage.1"]


def test_a_head_as_in_the_dense_network_stays_and_one_that_was_changed_learns(dense, small, images) -> None:
    assert torch.equal(sc.calibrate(small, dense, images, steps=20).head.weight, dense.head.weight)
    changed = copy.deepcopy(small)
    changed.head.weight.data.mul_(0.9)
    assert not torch.equal(sc.calibrate(changed, dense, images, steps=20).head.weight, changed.head.weight)


def test_no_gradient_of_the_output_reaches_layers_before_the_last_block(dense, small, images) -> None:
    given = run(small, (images[:4],), ["stage.0", "stage.1"], None)
    given.output.sum().backward()
    assert small.stem.weight.grad is None and small.head.weight.grad is not None
    small.zero_grad(set_to_none=True)


def test_a_step_is_relative_to_the_weights_of_its_unit() -> None:
    layer = nn.Parameter(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    assert step_size(layer).flatten().tolist() == pytest.approx([12.5**0.5, 0.1 * 6.25**0.5])
    assert step_size(nn.Parameter(torch.zeros(3))).item() == pytest.approx(0.01)


def test_relative_error_and_divergence_worked_by_hand() -> None:
    assert relative_error(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])).item() == pytest.approx(8 / 25)
    assert relative_error(torch.zeros(2), torch.zeros(2)).item() == 0
    # Probabilities 1/2, 1/2 against 3/4, 1/4 at temperature 2: scores are twice the logarithms.
    ours, theirs = torch.zeros(1, 2), 2 * torch.log(torch.tensor([[0.75, 0.25]]))
    expected = 4 * (0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5))
    assert divergence(ours, theirs).item() == pytest.approx(expected, rel=1e-5)


def test_images_are_flipped_and_shifted_and_nothing_else_is() -> None:
    x = torch.arange(2.0 * 16 * 16).reshape(2, 1, 16, 16)
    (varied,) = flip_and_shift((x,), generator(5))
    assert varied.shape == x.shape and set(varied.flatten().tolist()) <= set(x.flatten().tolist())
    assert resolve_augment("auto", (x,)) is flip_and_shift
    others = [(x.long(),), (torch.zeros(2, 4, 16, 16),), (torch.zeros(2, 3),), (x, torch.zeros(2))]
    assert all(resolve_augment("auto", other) is None for other in others)


def test_an_augmentation_of_ones_own_is_used(dense, small, images) -> None:
    seen: list[int] = []

    def brighter(arguments: tuple[Any, ...], draws: torch.Generator) -> tuple[Any, ...]:
        seen.append(len(arguments[0]))
        return (arguments[0] + torch.rand((), generator=draws),)

    sc.calibrate(small, dense, images, steps=3, batch=16, augment=brighter)
    assert seen == [16, 16, 16]
    with pytest.raises(sc.InputError, match="as many inputs as it gets, got 1 for 16"):
        sc.calibrate(small, dense, images, steps=3, batch=16, augment=lambda arguments, draws: (arguments[0][:1],))


def test_a_loss_that_is_not_finite_stops_with_its_step_and_keeps_the_best(dense, small, images, tmp_path) -> None:
    calls = iter(range(100))

    def breaking(arguments: tuple[Any, ...], draws: torch.Generator) -> tuple[Any, ...]:
        return (arguments[0] * (math.nan if next(calls) == 5 else 1.0),)

    with pytest.raises(Diverged, match=r"nan at step 5; lower learning_rate.*the best weights so far are in"):
        sc.calibrate(small, dense, images, steps=12, augment=breaking, checkpoint=tmp_path)
    saved = checkpoint.load_newest(tmp_path)
    assert saved is not None and saved["best"].keys() == small.state_dict().keys()
    assert all(bool(torch.isfinite(tensor.float()).all()) for tensor in saved["best"].values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps must be a whole number from 1 on, got 0"),
        ({"batch": 1.5}, "batch must be a whole number from 1 on, got 1.5"),
        ({"learning_rate": -1.0}, "learning_rate must be a positive number, got -1.0"),
        ({"augment": "autp"}, "unknown augment 'autp'; did you mean 'auto'"),
        ({"loss": "mse"}, "unknown loss 'mse'"),
        ({"output": "scores"}, "an output 'scores' of floats"),
        ({"probe": "images"}, "inputs must be a tensor"),
        ({"probe": torch.full((4, 3, 8, 8), math.nan)}, "the probe must be finite"),
        ({"probe": torch.zeros(1, 3, 8, 8)}, "needs two inputs or more"),
        ({"dense": nn.Sequential(nn.Flatten(), nn.Linear(192, 7))}, "outputs of one shape"),
    ],
)
def test_what_cannot_be_calibrated_is_refused(dense, small, images, change, message) -> None:
    with pytest.raises(sc.InputError, match=message):
        sc.calibrate(**{"small": small, "dense": dense, "probe": images, "steps": 2, **change})


def test_a_network_without_parameters_to_train_is_refused(dense, small, images) -> None:
    with pytest.raises(sc.InputError, match=r"none does; call small.requires_grad_\(True\)"):
        sc.calibrate(copy.deepcopy(small).requires_grad_(False), dense, images)
