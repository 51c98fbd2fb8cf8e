"""The detector says when a partition has settled, and only then."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from splinecut.errors import InputError
from splinecut.geometry.codes import Codes, distance
from splinecut.pruning.detect import EarlyBird, consecutive, image_grid, newest_against_each
from splinecut.training import checkpoint
from support.exact_geometry import pack


def net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))


PROBE = torch.randn(50, 3, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("rule", "first"), [("paper", 3), ("authors", 4)])
def test_a_constant_stream_fires_when_the_queue_first_fills(rule: str, first: int) -> None:
    bird, model = EarlyBird(PROBE, rule=rule), net()
    drawn = [bird.observe(model).drawn for _ in range(first + 1)]
    assert drawn == [False] * (first - 1) + [True, True]


@pytest.mark.parametrize("rule", ["paper", "authors"])
def test_an_alternating_stream_never_fires(rule: str) -> None:
    bird, models = EarlyBird(PROBE, rule=rule), (net(0), net(1))
    assert not any(bird.observe(models[i % 2]).drawn for i in range(12))


def test_a_constant_stream_has_distance_zero_and_an_alternating_one_the_distance_of_its_two_networks() -> None:
    bird, models = EarlyBird(PROBE), (net(0), net(1))
    for i in range(4):
        verdict = bird.observe(models[i % 2])
    assert verdict.distance == distance(bird.seen[0], bird.seen[1]) > 0.2
    assert verdict.step == 4


def flips(n: int) -> Codes:
    """A code of 100 bits whose first n are on."""
    return pack(["layer"], [np.arange(100)[None] < n])


def test_the_two_rules_measure_what_they_say() -> None:
    seen = [flips(n) for n in (0, 10, 30, 35)]
    assert consecutive(seen, 2) == pytest.approx([0.2, 0.05])
    assert newest_against_each(seen, 3) == pytest.approx([0.35, 0.25, 0.05])
    assert consecutive(seen[:2], 2) is None and newest_against_each(seen[:3], 3) is None


def test_a_rule_may_be_a_function() -> None:
    bird = EarlyBird(PROBE, rule=newest_against_each, window=1, threshold=0.01)
    assert [bird.observe(net()).drawn for _ in range(2)] == [False, True]


def test_every_n_steps_looks_at_each_nth_call() -> None:
    bird, model = EarlyBird(PROBE, every=5), net()
    verdicts = [bird.observe(model) for _ in range(15)]
    assert bird.steps == [5, 10, 15]
    assert [v.drawn for v in verdicts].index(True) == 14


def test_the_network_is_left_as_found() -> None:
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 2)).train()
    model(torch.randn(4, 3)).sum().backward()
    before, gradients = copy.deepcopy(model), [p.grad.clone() for p in model.parameters()]
    state = torch.get_rng_state()
    EarlyBird(PROBE).observe(model)
    assert all(
        torch.equal(a, b) for a, b in zip(model.state_dict().values(), before.state_dict().values(), strict=True)
    )
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), gradients, strict=True))
    assert all(module.training for module in model.modules())
    assert torch.equal(torch.get_rng_state(), state)


def test_the_matrix_is_symmetric_zero_on_the_diagonal_and_stretched_on_request() -> None:
    bird = EarlyBird(PROBE)
    for seed in range(4):
        bird.observe(net(seed))
    matrix = bird.matrix()
    assert np.array_equal(matrix, matrix.T) and not matrix.diagonal().any()
    assert matrix[0, 1] == distance(bird.seen[0], bird.seen[1])
    stretched = bird.matrix(normalised=True)
    assert stretched.min() == 0 and stretched.max() == 1
    assert np.allclose(stretched * matrix.max(), matrix)


def test_the_history_by_layer_averages_to_the_distance() -> None:
    bird = EarlyBird(PROBE)
    for seed in range(3):
        bird.observe(net(seed))
    layers = bird.by_layer()
    assert len(layers) == 2
    means = np.mean(list(layers.values()), axis=0)
    assert means == pytest.approx([distance(bird.seen[0], bird.seen[1]), distance(bird.seen[1], bird.seen[2])])


def test_state_saved_in_a_checkpoint_resumes_the_detector_exactly(tmp_path: Path) -> None:
    models = [net(0), net(1), net(1), net(1)]
    whole, first = EarlyBird(PROBE, per_layer=8), EarlyBird(PROBE, per_layer=8)
    expected = [whole.observe(model) for model in models]
    for model in models[:2]:
        first.observe(model)
    checkpoint.save(tmp_path, 1, {"bird": first.state()})
    loaded = checkpoint.load_newest(tmp_path)
    assert loaded is not None
    second = EarlyBird(PROBE, per_layer=8)
    second.restore(loaded["bird"])
    assert [second.observe(model) for model in models[2:]] == expected[2:]
    assert np.array_equal(second.matrix(), whole.matrix())
    assert expected[-1].drawn


def test_another_architecture_midway_is_refused_in_words() -> None:
    bird = EarlyBird(PROBE)
    bird.observe(net())
    bird.observe(net())
    with pytest.raises(InputError, match="codes must come from the same layers"):
        bird.observe(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "papre"}, "did you mean 'paper'?"),
        ({"threshold": 0.0}, "threshold must be in"),
        ({"window": 0}, "window must be at least 1"),
        ({"every": 0}, "every must be 'epoch' or a number of steps"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        EarlyBird(PROBE, **options)


def test_the_image_grid_spans_the_two_images() -> None:
    a, b = torch.ones(1, 2, 2), 2 * torch.ones(1, 2, 2)
    grid = image_grid(a, b, side=3)
    assert grid.shape == (9, 1, 2, 2)
    assert grid[:, 0, 0, 0].tolist() == [0, 1, 2, 0.5, 1.5, 2.5, 1, 2, 3]
