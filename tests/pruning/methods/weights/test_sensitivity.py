"""SNIP against gates and numbers worked by hand; GraSP against an explicit Hessian and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import splinecut as sc
from splinecut.networks import cost, models
from splinecut.pruning.budget import Budget
from splinecut.pruning.evidence import NO_GROUPS, Evidence
from splinecut.pruning.methods.weights.sensitivity import Grasp, Snip, first_of_each_class, scoring_copy

BUDGET = Budget(0.5, "weights")


def tanh_net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def batch(n: int = 12, inputs: int = 4, classes: int = 3, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, inputs, dtype=torch.float64, generator=generator)
    return x, torch.arange(n) % classes


def evidence(model: nn.Module, x: Tensor, y: Tensor | None) -> Evidence:
    return Evidence(model, NO_GROUPS, x, labels=y)


def gated_loss(model: nn.Module, gates: dict[str, Tensor], x: Tensor, y: Tensor, temperature: float = 1.0) -> Tensor:
    tensors = {name: p.detach() * gates.get(name, torch.ones(())) for name, p in model.named_parameters()}
    return F.cross_entropy(functional_call(model, tensors, (x,)) / temperature, y)


def test_snip_is_the_gradient_of_a_gate_on_each_weight() -> None:
    model, (x, y) = tanh_net(), batch()
    gates = {f"{i}.weight": torch.ones_like(model[i].weight, requires_grad=True) for i in (0, 2)}
    expected = torch.autograd.grad(gated_loss(model, gates, x, y), list(gates.values()))
    scores = Snip().score(evidence(model, x, y), BUDGET)
    assert list(scores) == list(gates)
    for found, gradient in zip(scores.values(), expected, strict=True):
        np.testing.assert_allclose(found, gradient.abs().numpy(), rtol=0, atol=1e-17)


def test_snip_of_a_linear_layer_is_the_number_worked_by_hand() -> None:
    # One input (1, 2), weights [[1, 0], [0, 1]], class 0: p = softmax(1, 2); g = (p - e0) x^T.
    model = nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.eye(2))
    x, y = torch.tensor([[1.0, 2.0]]).double(), torch.tensor([0])
    p1 = 1 / (1 + np.exp(-1.0))  # of class 1
    np.testing.assert_allclose(
        Snip().score(evidence(model, x, y), BUDGET)["weight"], [[p1 * 1 * 1, 0], [0, p1 * 2 * 1]], rtol=1e-12
    )


def test_snip_adds_gradients_with_their_signs_before_taking_their_size() -> None:
    model, (x, y) = tanh_net(), batch()
    whole = Snip(batch_size=12).score(evidence(model, x, y), BUDGET)
    parts = Snip(batch_size=5).score(evidence(model, x, y), BUDGET)
    apart = [Snip().score(evidence(model, x[i : i + 4], y[i : i + 4]), BUDGET) for i in (0, 4, 8)]
    for name in whole:
        np.testing.assert_allclose(parts[name], whole[name], rtol=1e-12, atol=1e-17)
        sizes_added = sum(part[name] for part in apart) / 3
        assert (sizes_added >= whole[name] - 1e-15).all() and not np.allclose(sizes_added, whole[name])


def hessian(model: nn.Module, x: Tensor, y: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, gradient and the whole Hessian of the two weight matrices, flat."""
    names = ["0.weight", "2.weight"]
    shapes = [model.get_parameter(name).shape for name in names]
    sizes = [shape.numel() for shape in shapes]

    def loss(flat: Tensor) -> Tensor:
        parts = [part.reshape(shape) for part, shape in zip(flat.split(sizes), shapes, strict=True)]
        tensors = {n: p.detach() for n, p in model.named_parameters()} | dict(zip(names, parts, strict=True))
        return F.cross_entropy(functional_call(model, tensors, (x,)) / temperature, y)

    flat = torch.cat([model.get_parameter(name).detach().flatten() for name in names])
    return flat, torch.func.grad(loss)(flat), torch.func.hessian(loss)(flat)


@pytest.mark.parametrize("temperature", [1.0, 200.0])
def test_grasp_is_the_product_with_an_explicit_hessian(temperature: float) -> None:
    model, (x, y) = tanh_net(), batch()
    w, g, h = hessian(model, x, y, temperature)
    scores = Grasp(temperature=temperature).score(evidence(model, x, y), BUDGET)
    found = np.concatenate([values.reshape(-1) for values in scores.values()])
    expected = (w * (h @ g)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-17)


def test_grasp_is_half_the_change_of_the_squared_gradient_as_a_weight_grows_by_its_value() -> None:
    """Their S is the change as it shrinks; a weight whose removal raises |g|^2 has a large S and leaves."""
    model, (x, y) = tanh_net(), batch()
    scores = Grasp(temperature=1.0).score(evidence(model, x, y), BUDGET)
    step = 1e-6

    def squared(scale: float) -> float:
        with torch.no_grad():
            was = model[0].weight[2, 1].item()
            model[0].weight[2, 1] = was * scale
        _, g, _ = hessian(model, x, y, 1.0)
        with torch.no_grad():
            model[0].weight[2, 1] = was
        return float(g @ g)

    change = (squared(1 + step) - squared(1 - step)) / (2 * step)
    assert scores["0.weight"][2, 1] == pytest.approx(change / 2, abs=1e-8)


def test_grasp_in_parts_is_the_hessian_of_the_whole_loss() -> None:
    model, (x, y) = tanh_net(), batch()
    rows = first_of_each_class(y, 10)
    whole = Grasp().score(evidence(model, x[rows], y[rows]), BUDGET)
    parts = Grasp(batch_size=5).score(evidence(model, x[rows], y[rows]), BUDGET)
    for name in whole:
        np.testing.assert_allclose(parts[name], whole[name], rtol=1e-9, atol=1e-20)


def test_grasp_looks_at_the_same_number_of_images_of_each_class() -> None:
    labels = torch.tensor([2, 0, 0, 1, 0, 2, 1, 0])
    assert first_of_each_class(labels, 2).tolist() == [1, 2, 3, 6, 0, 5]


@pytest.mark.parametrize("method", [Snip(), Grasp()])
def test_labels_are_asked_for_where_they_are_missing(method) -> None:
    x, _ = batch()
    with pytest.raises(sc.InputError, match="needs labels"):
        method.score(evidence(tanh_net(), x, None), BUDGET)


def test_batch_norm_scores_by_the_batch_and_keeps_its_statistics() -> None:
    model = models.build("convnet", preset="digits", seed=0)
    net, weights = scoring_copy(model)
    net(torch.randn(8, 1, 8, 8))
    assert all(module.training == isinstance(module, nn.BatchNorm2d) for module in net.modules())
    assert not model.features[1].running_mean.any() and net.features[1].running_mean.any()
    assert all(weight.requires_grad for weight in weights.values())
    assert not net.features[1].weight.requires_grad


@pytest.mark.parametrize(("method", "n_images"), [(Snip(), 60), (Grasp(per_class=2), 20)])
def test_flops_charged_for_a_score_are_what_a_counter_sees(method, n_images: int) -> None:
    """Less than the rule of three, as the first layer's inputs need no gradient; torch's second backward adds a bit."""
    model = models.build("convnet", preset="digits", seed=0)
    x, y = torch.randn(60, 1, 8, 8), torch.arange(60) % 10
    with FlopCounterMode(display=False) as counter:
        method.score(evidence(model, x, y), BUDGET)
    forward = cost.forward_flops(model, (1, 8, 8))
    charged = method.flops(evidence(model, x, y), forward)
    assert charged == (3 if isinstance(method, Snip) else 12) * forward * n_images
    assert 0.75 * charged < counter.get_total_flops() <= 1.05 * charged
