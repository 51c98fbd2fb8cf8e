"""What criteria look at: the rows that reach a layer, and their moments."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from splinecut.pruning.activations import ConsumerLayer, RunningCovariance, stride


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


IMAGES, FLAT, TOKENS = draw(4, 6, 5, 3), draw(10, 12), draw(3, 7, 6)


@pytest.mark.parametrize("step", [1, 3, 7])
@pytest.mark.parametrize(
    ("x", "columns", "is_linear", "plain"),
    [
        (IMAGES, [[0], [1], [2], [3], [4], [5]], False, IMAGES.permute(0, 2, 3, 1).reshape(-1, 6)),
        (IMAGES, [[4], [1], [3]], False, IMAGES.permute(0, 2, 3, 1).reshape(-1, 6)[:, [4, 1, 3]]),
        (FLAT, [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]], True, FLAT.view(10, 4, 3).mT.reshape(-1, 4)),
        (TOKENS, [[5], [0]], True, TOKENS.reshape(-1, 6)[:, [5, 0]]),
    ],
    ids=["image", "some channels", "flattened image", "tokens"],
)
def test_rows_are_every_so_many_of_the_plain_ones(
    x: Tensor, columns: list[list[int]], is_linear: bool, plain: Tensor, step: int
) -> None:
    consumer = ConsumerLayer("group", "layer.weight", "layer", np.array(columns), is_linear)
    assert torch.equal(consumer.rows(x, step), plain[::step])
    assert consumer.n_rows(x) == len(plain)
    if x.dim() == 4:
        assert torch.equal(consumer.rows(x.to(memory_format=torch.channels_last), step), plain[::step])


def test_the_stride_is_odd_and_leaves_about_as_many_as_asked() -> None:
    assert [stride(n, 100) for n in (50, 100, 199, 200, 450, 1000)] == [1, 1, 1, 3, 5, 11]


def test_moments_over_batches_are_those_of_all_rows() -> None:
    rows = draw(300, 5).double() @ draw(5, 5).double() + 3
    moments = RunningCovariance.of(5)
    for part in rows.split(70):
        moments.add(part)
    assert np.allclose(moments.mean, rows.mean(0))
    assert np.allclose(moments.covariance, np.cov(rows.T.numpy(), bias=True))


def test_units_far_from_zero_keep_their_variance_in_single_precision() -> None:
    rows = 1000 + 0.01 * draw(500, 4).double()
    moments = RunningCovariance.of(4)
    for part in rows.float().split(100):
        moments.add(part)
    expected = np.cov(rows.float().double().T.numpy(), bias=True)
    assert np.abs(moments.covariance - expected).max() < 1e-4 * expected.diagonal().max()
