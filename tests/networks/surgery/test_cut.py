"""Cut equals mask, on every network and under every policy; what is kept is kept as it was."""

from __future__ import annotations

import copy
import gc
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim.optimizer import _global_optimizer_post_hooks as hooks

import splinecut as sc
from splinecut.networks.cost import cost
from splinecut.networks.groups.values import BLOCKS
from splinecut.networks.layers import Zero
from splinecut.networks.surgery import cut, mask, mask_weights
from splinecut.networks.surgery.cut import RewrapWarning
from support.coupled_networks import ZOO, draw, make, read

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=0, atol=TOLERANCE[a.dtype] * float(a.detach().abs().max().clamp(min=1)))


CASES = [(name, "tied") for name in ZOO] + [("preresnet11", "select"), ("preresnet11", "inner"), ("resnet18", "inner")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize(("name", "residual"), CASES)
def test_cut_equals_mask(name: str, residual: str, dtype: torch.dtype) -> None:
    groups = read(name, residual)
    for seed in range(2):
        model, x = make(name, dtype, seed)
        keep = draw(groups, seed, share=0.3 + 0.5 * seed)
        whole = model(x)
        with mask(model, groups, keep):
            expected = model(x)
        smaller = cut(model, groups, keep)
        assert close(smaller(x), expected)
        assert seed or not close(whole, expected)  # a third of the units cannot all have been dead
        assert torch.equal(model(x), whole)
        assert sum(p.numel() for p in smaller.parameters()) == groups.parameters(keep)
        assert seed or cost(smaller, x).flops == groups.flops(keep)


@pytest.mark.parametrize("name", sorted(set(ZOO) - {"mobilenetv2"}))  # which drops units at random in train mode
def test_cut_equals_mask_in_train_mode(name: str) -> None:
    groups, keep = read(name), draw(read(name), seed=5)
    model, x = make(name, torch.float64)
    model.train()
    smaller = cut(model, groups, keep)
    with mask(model, groups, keep):
        expected, got = model(x), smaller(x)
        expected.square().sum().backward()
    got.square().sum().backward()
    assert close(got, expected)
    slices = groups.slices(keep)
    full = dict(model.named_parameters())
    for key, parameter in smaller.named_parameters():
        gradient = full[key].grad
        for axis, stays in slices.get(key, {}).items():
            gradient = gradient.index_select(axis, torch.from_numpy(np.flatnonzero(stays)))
        assert torch.allclose(parameter.grad, gradient, rtol=1e-7, atol=1e-9 * float(gradient.abs().max().clamp(min=1)))


def test_under_a_mask_removed_units_get_no_gradient() -> None:
    groups, keep = read("vgg16"), draw(read("vgg16"), seed=1)
    model, x = make("vgg16")
    model.train()
    with mask(model, groups, keep):
        model(x).sum().backward()
    for group in groups:
        gone = np.flatnonzero(~keep[group.name])
        for m in group.members:
            parameter = dict(model.named_parameters()).get(m.key)
            if parameter is not None:
                places = torch.from_numpy(np.flatnonzero(np.isin(m.units, gone)))
                assert not parameter.grad.index_select(m.axis, places).any()


def test_a_mask_comes_off_without_a_trace() -> None:
    model, _ = make("convnext")
    before = copy.deepcopy(model.state_dict())
    masked = mask(model, read("convnext"), draw(read("convnext"), seed=0))
    masked.remove()
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())
    assert not any(parameter._backward_hooks for parameter in model.parameters())


def test_a_mask_outlives_its_handle_and_momentum() -> None:
    torch.manual_seed(0)
    model, x = make("convnet")
    groups, keep = read("convnet"), draw(read("convnet"), seed=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    model(x).square().sum().backward()
    optimizer.step()
    mask(model, groups, keep)
    optimizer.step()  # momentum alone would bring the weights back
    reader = next(m for m in groups[0].members if m.role == "consumer")
    places = torch.from_numpy(np.flatnonzero(~reader.stays(keep[groups[0].name])))
    assert not dict(model.named_parameters())[reader.key].index_select(reader.axis, places).any()


def test_a_mask_goes_with_its_network() -> None:
    gc.collect()  # masks of other tests
    before = len(hooks)
    model, _ = make("convnet")
    mask(model, read("convnet"), draw(read("convnet")))
    assert len(hooks) == before + 1
    del model
    gc.collect()
    assert len(hooks) == before


def test_single_weights_stay_at_zero_and_come_back() -> None:
    model, x = make("mlp")
    before = model[0].weight.detach().clone()
    keep = np.random.default_rng(0).random(before.shape) < 0.5
    optimizer = torch.optim.Adam(model.parameters())
    with mask_weights(model, {"0.weight": keep}):
        for _ in range(3):
            model(x).square().sum().backward()
            optimizer.step()
        assert np.array_equal(model[0].weight.detach().numpy() != 0, keep)
    assert torch.equal(model[0].weight.detach()[torch.from_numpy(~keep)], before[torch.from_numpy(~keep)])
    with pytest.raises(sc.InputError, match=r"did you mean '0\.weight'"):
        mask_weights(model, {"0.weigth": keep})
    with pytest.raises(sc.InputError, match="must have shape"):
        mask_weights(model, {"0.weight": keep[:2]})


@settings(derandomize=True, deadline=None, max_examples=3)
@given(seed=st.integers(0, 10**6))
def test_cutting_twice_is_cutting_once(seed: int) -> None:
    model, x = make("unet", torch.float64)
    groups = read("unet")
    first, both = draw(groups, seed, 0.8), draw(groups, seed + 1, 0.7)
    both = {name: first[name] & (both[name] | (np.cumsum(first[name]) == 1)) for name in first}
    once = cut(model, groups, both)
    halfway = cut(model, groups, first)
    rest = {name: both[name][first[name]] for name in first}
    twice = cut(halfway, sc.groups(halfway, x, prove=False), rest)
    assert all(torch.equal(a, b) for a, b in zip(once.state_dict().values(), twice.state_dict().values(), strict=True))


@pytest.mark.parametrize("name", ["convnext", "group-norm", "resnext"])
def test_a_masked_network_can_be_cut(name: str) -> None:
    model, x = make(name, torch.float64)
    groups = read(name)
    keep = draw(groups, 2)
    keep |= {BLOCKS: np.arange(len(groups.branches)) > 0} if groups.branches else {}
    with mask(model, groups, keep):
        expected = model(x)
        smaller = cut(model, groups, keep)
    assert close(smaller(x), expected)


def test_keeping_everything_changes_nothing() -> None:
    model, x = make("densenet")
    same = cut(model, read("densenet"), read("densenet").full_keep())
    assert torch.equal(same(x), model(x))


@pytest.mark.parametrize("name", ["vgg16", "densenet", "convnext", "preresnet11"])
def test_a_group_of_which_nothing_stays_counts_for_nothing(name: str) -> None:
    model, x = make(name, torch.float64)
    groups = read(name)
    keep = draw(groups, seed=0)
    keep[groups[1].name][:] = False
    with mask(model, groups, keep):
        expected = model(x)
    smaller = cut(model, groups, keep)
    assert close(smaller(x), expected)
    assert sum(p.numel() for p in smaller.parameters()) == groups.parameters(keep)


# Branches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["resnet18", "preresnet11", "resnext", "mobilenetv2", "vit"])
def test_dropping_branches_equals_masking_them(name: str) -> None:
    model, x = make(name, torch.float64)
    groups = read(name)
    keep = draw(groups, seed=3) | {BLOCKS: np.arange(len(groups.branches)) % 2 == 1}
    with mask(model, groups, keep):
        expected = model(x)
    smaller = cut(model, groups, keep)
    assert close(smaller(x), expected)
    assert sum(p.numel() for p in smaller.parameters()) == groups.parameters(keep)
    assert cost(smaller, x).flops == groups.flops(keep)
    assert isinstance(smaller.get_submodule(groups.branches[0].modules[0]), Zero)


# What a cut carries over -------------------------------------------------------------------------------------------


def test_a_cut_keeps_class_mode_precision_and_frozen_parameters() -> None:
    model, _ = make("resnext", torch.float64)
    model.train()
    model.blocks[0].bn1.eval()
    model.stem.weight.requires_grad_(False)
    smaller = cut(model, read("resnext"), draw(read("resnext"), 0))
    assert type(smaller) is type(model)
    assert [m.training for m in smaller.modules()] == [m.training for m in model.modules()]
    assert [p.requires_grad for p in smaller.parameters()] == [p.requires_grad for p in model.parameters()]
    assert all(p.dtype is torch.float64 and p.is_leaf for p in smaller.parameters())


def test_a_cut_keeps_the_memory_format() -> None:
    model, _ = make("vgg16")
    model = model.to(memory_format=torch.channels_last)
    smaller = cut(model, read("vgg16"), draw(read("vgg16"), 0))
    assert smaller.features[3].weight.is_contiguous(memory_format=torch.channels_last)
    assert not smaller.features[3].weight.is_contiguous()


def test_a_cut_keeps_hooks_and_gradients() -> None:
    model, x = make("mlp")
    seen = []
    model[0].register_forward_hook(lambda module, args, output: seen.append(output.shape[1]))
    model(x).sum().backward()
    keep = draw(read("mlp"), 1)
    smaller = cut(model, read("mlp"), keep)
    smaller(x)
    assert seen[-1] == keep["0"].sum()
    assert torch.equal(smaller[0].weight.grad, model[0].weight.grad[torch.from_numpy(keep["0"])])


def test_tied_parameters_stay_tied() -> None:
    model, _ = make("recurring")
    smaller = cut(model, read("recurring"), draw(read("recurring"), 0))
    assert smaller.twin_a.weight is smaller.twin_b.weight


@pytest.mark.parametrize("name", ["alexnet", "mobilenetv2", "group-norm", "unet", "convnext"])
def test_modules_of_a_cut_network_say_their_true_size(name: str) -> None:
    model, _ = make(name)
    smaller = cut(model, read(name), draw(read(name), 4))
    for module in smaller.modules():
        if isinstance(module, nn.Conv2d):
            assert tuple(module.weight.shape[:2]) == (module.out_channels, module.in_channels // module.groups)
        elif isinstance(module, nn.Linear):
            assert tuple(module.weight.shape) == (module.out_features, module.in_features)
        elif isinstance(module, nn.BatchNorm2d):
            assert len(module.weight) == len(module.running_mean) == module.num_features
        elif isinstance(module, nn.GroupNorm):
            assert len(module.weight) == module.num_channels
        elif isinstance(module, nn.LayerNorm):
            assert tuple(module.weight.shape) == module.normalized_shape


def test_a_cut_shares_no_memory_with_the_original() -> None:
    model, _ = make("convnet")
    smaller = cut(model, read("convnet"), draw(read("convnet"), 0))
    ours = {p.data_ptr() for p in [*model.parameters(), *model.buffers()]}
    assert not ours & {p.data_ptr() for p in [*smaller.parameters(), *smaller.buffers()]}


def test_wrappers_are_taken_off_and_the_message_says_how_to_wrap_again(tmp_path) -> None:  # type: ignore[no-untyped-def]
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model, x = make("convnet")
        keep = draw(read("convnet"), 0)
        wrapped = nn.parallel.DistributedDataParallel(model)
        with pytest.warns(RewrapWarning, match=r"wrap the result again: DistributedDataParallel\(smaller"):
            smaller = cut(wrapped, sc.groups(wrapped, x), keep)
        assert torch.equal(smaller(x), cut(model, read("convnet"), keep)(x))
    finally:
        torch.distributed.destroy_process_group()


def test_a_plain_cut_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cut(make("mlp")[0], read("mlp"), draw(read("mlp"), 0))


def test_another_architecture_is_refused() -> None:
    with pytest.raises(sc.InputError, match=r"features\.3\.weight must have shape .* uncut network"):
        cut(cut(make("vgg16")[0], read("vgg16"), draw(read("vgg16"), 0)), read("vgg16"), read("vgg16").full_keep())
    with pytest.raises(sc.InputError, match="unknown tensor of this network"):
        mask(make("mlp")[0], read("vgg16"), {})
    with pytest.raises(sc.InputError, match="one per unit"):
        cut(make("mlp")[0], read("mlp"), {"0": np.array([True])})
