"""Layers as linear maps of rows: what a layer reads at a position, times its matrix, is what it gives there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from splinecut.networks.program import Program
from splinecut.pruning.refit.layer_rows import LayerRows

DOUBLE = torch.float64
QUICK = settings(derandomize=True, deadline=None, max_examples=30)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def rows_of(module: nn.Module, x: Tensor) -> LayerRows:
    program = Program(module, (x,), len(x))

    return LayerRows.of(program.layers["weight"], program.weights)


def check(module: nn.Module, x: Tensor, most: int = 7) -> None:
    """Rows times matrix, plus the bias, is the module's own output at the same positions; and back to the weight."""
    module = module.double().eval()
    rows = rows_of(module, x)
    weight, bias = module.weight.detach(), None if module.bias is None else module.bias.detach()
    with torch.no_grad():
        y = module(x)
    at = rows.positions(y.shape, most, torch.Generator().manual_seed(1))
    matrix, read, given_out = rows.matrix(weight), rows.inputs(x, at), rows.outputs(y, at)
    assert read.shape == (rows.n_groups, len(given_out), rows.n_columns)
    assert matrix.shape == (rows.n_groups, rows.n_columns, rows.n_outputs // rows.n_groups)
    made = (read @ matrix).transpose(0, 1).flatten(1)
    made = made if bias is None else made + bias
    assert given_out.abs().max() > 1e-3  # not a comparison of zeros
    torch.testing.assert_close(made, given_out, rtol=1e-12, atol=1e-12)
    assert torch.equal(rows.weight(matrix, weight), weight)


CONVOLUTIONS: dict[str, tuple[type[nn.Module], tuple[int, ...], dict[str, Any]]] = {
    "plain": (nn.Conv2d, (9, 8), {}),
    "a stride and padding on each axis": (nn.Conv2d, (9, 8), {"stride": (2, 3), "padding": (1, 2)}),
    "dilated": (nn.Conv2d, (9, 10), {"dilation": (2, 3), "padding": 2}),
    "same padding": (nn.Conv2d, (9, 8), {"padding": "same"}),
    "same padding of an even reach": (nn.Conv2d, (9, 8), {"kernel_size": (2, 4), "padding": "same", "dilation": 3}),
    "valid padding": (nn.Conv2d, (9, 8), {"padding": "valid", "stride": 2}),
    "an oblong kernel": (nn.Conv2d, (9, 8), {"kernel_size": (1, 5)}),
    "one tap with a stride": (nn.Conv2d, (9, 8), {"kernel_size": 1, "stride": 2}),
    "no bias": (nn.Conv2d, (9, 8), {"bias": False}),
    "grouped": (nn.Conv2d, (9, 8), {"groups": 2, "stride": 2, "padding": 1}),
    "depthwise": (nn.Conv2d, (9, 8), {"groups": 4, "out_channels": 4, "padding": 1}),
    "depthwise with two filters a channel": (nn.Conv2d, (9, 8), {"groups": 4, "out_channels": 8, "dilation": 2}),
    "1d": (nn.Conv1d, (17,), {"stride": 3, "padding": 2, "dilation": 2}),
    "1d grouped": (nn.Conv1d, (17,), {"groups": 2, "padding": "same"}),
    "3d": (nn.Conv3d, (5, 6, 4), {"stride": (2, 1, 2), "padding": 1}),
    "3d depthwise": (nn.Conv3d, (5, 6, 4), {"groups": 4, "out_channels": 8, "padding": (0, 1, 2)}),
    "transposed": (nn.ConvTranspose2d, (4, 5), {}),
    "transposed with a stride": (nn.ConvTranspose2d, (4, 5), {"stride": (2, 3), "padding": 1}),
    "transposed with output padding": (nn.ConvTranspose2d, (4, 5), {"stride": 2, "padding": 1, "output_padding": 1}),
    "transposed and dilated": (nn.ConvTranspose2d, (4, 5), {"stride": 2, "dilation": 2, "padding": (1, 0)}),
    "transposed by less than its padding": (nn.ConvTranspose2d, (4, 5), {"stride": 2, "padding": 3}),
    "transposed and grouped": (nn.ConvTranspose2d, (4, 5), {"stride": 2, "groups": 2}),
    "transposed depthwise": (nn.ConvTranspose2d, (4, 5), {"groups": 4, "out_channels": 8, "padding": 1}),
    "1d transposed": (nn.ConvTranspose1d, (7,), {"stride": 3, "padding": 1, "output_padding": 2, "groups": 2}),
    "3d transposed": (nn.ConvTranspose3d, (3, 2, 3), {"stride": (1, 2, 2), "padding": (1, 0, 1)}),
}


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_rows_times_the_matrix_are_the_outputs_of_a_convolution(kind: str) -> None:
    torch.manual_seed(0)
    make, sides, options = CONVOLUTIONS[kind]
    module = make(**{"in_channels": 4, "out_channels": 6, "kernel_size": 3} | options)
    check(module, drawn(3, 4, *sides))


@QUICK
@given(st.data(), st.booleans(), st.integers(1, 2))
def test_rows_times_the_matrix_are_the_outputs_whatever_the_shapes(
    data: st.DataObject, is_transposed: bool, n_axes: int
) -> None:
    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(data.draw(st.integers(low, high)) for _ in range(n_axes))

    groups = data.draw(st.integers(1, 3))
    kernel, stride, dilation, padding, sides = each(1, 4), each(1, 3), each(1, 2), each(0, 2), each(4, 8)
    options: dict[str, Any] = {"stride": stride, "dilation": dilation, "padding": padding, "groups": groups}
    if is_transposed:
        options["output_padding"] = tuple(
            data.draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True)
        )
        left = [
            (n - 1) * s + d * (k - 1) + 1 - 2 * p
            for n, s, d, k, p in zip(sides, stride, dilation, kernel, padding, strict=True)
        ]
    else:
        left = [n + 2 * p - d * (k - 1) for n, d, k, p in zip(sides, dilation, kernel, padding, strict=True)]
    assume(min(left) > 0)
    kinds = (nn.ConvTranspose1d, nn.ConvTranspose2d) if is_transposed else (nn.Conv1d, nn.Conv2d)
    torch.manual_seed(0)
    n_inputs, n_outputs = (groups * data.draw(st.integers(1, 3)) for _ in range(2))
    check(kinds[n_axes - 1](n_inputs, n_outputs, kernel, **options), drawn(2, n_inputs, *sides))


@pytest.mark.parametrize("shape", [(5, 4), (3, 6, 4), (2, 3, 5, 4)])
@pytest.mark.parametrize("bias", [True, False])
def test_rows_times_the_matrix_are_the_outputs_of_a_linear_layer(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    check(nn.Linear(4, 3, bias=bias), drawn(*shape))


def test_rows_of_a_sample_stand_together_in_the_order_of_positions() -> None:
    module, x = nn.Conv2d(2, 3, 1).double(), drawn(2, 2, 3, 3)
    rows = rows_of(module, x)
    at = torch.tensor([[2, 0], [1, 0]])
    expected = torch.stack([x[0, :, 2, 1], x[0, :, 0, 0], x[1, :, 2, 1], x[1, :, 0, 0]])
    assert torch.equal(rows.inputs(x, at)[0], expected)


def test_columns_are_channels_and_then_taps() -> None:
    module = nn.Conv1d(2, 1, 3, bias=False).double()
    rows = rows_of(module, drawn(1, 2, 3))
    x = torch.tensor([[[1.0, 2, 3], [10, 20, 30]]], dtype=DOUBLE)
    assert rows.inputs(x, torch.tensor([[0]])).tolist() == [[[1, 2, 3, 10, 20, 30]]]
    assert (rows.n_channels, rows.n_taps, rows.n_columns, rows.n_outputs) == (2, 3, 6, 1)


def test_positions_are_as_many_as_asked_for_and_none_comes_twice() -> None:
    module, x = nn.Conv2d(2, 3, 1).double(), drawn(1, 2, 4, 5)
    rows = rows_of(module, x)
    for most, expected in ((7, 7), (100, 20)):
        at = rows.positions((1, 3, 4, 5), most, torch.Generator().manual_seed(0))
        assert at is not None and at.shape == (2, expected)
        assert len({tuple(place) for place in at.T.tolist()}) == expected
        assert (at >= 0).all() and (at < torch.tensor([[4], [5]])).all()


def test_a_linear_layer_on_samples_has_one_position() -> None:
    rows = rows_of(nn.Linear(4, 3).double(), drawn(5, 4))
    assert rows.positions((5, 3), 7, torch.Generator()) is None
    x = drawn(5, 4)
    assert torch.equal(rows.inputs(x, None), x[None])


def test_the_weight_comes_back_in_the_type_it_had() -> None:
    module = nn.ConvTranspose1d(4, 6, 3, groups=2)
    rows = rows_of(module, drawn(2, 4, 5).float())
    matrix = rows.matrix(module.weight)
    assert matrix.dtype == DOUBLE
    back = rows.weight(matrix, module.weight)
    assert back.dtype == torch.float32 and back.is_contiguous() and torch.equal(back, module.weight.detach())
