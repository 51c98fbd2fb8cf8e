"""Slices: the way into input space and back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import splinecut as sc


def test_embed_and_coordinates_are_inverse():
    window = sc.Slice(np.zeros((2, 3)), np.arange(12.0).reshape(2, 2, 3) ** 2, sc.Slice.square().window)
    uv = np.array([[0.5, -1.0], [2.0, 3.0]])
    assert window.embed(uv).shape == (2, 2, 3)
    np.testing.assert_allclose(window.coordinates(window.embed(uv)), uv, atol=1e-12)


def test_through_holds_the_three_inputs_in_true_distances():
    a, b, c = torch.randn(3, 1, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    window = sc.Slice.through(a, b, c, margin=0.1)
    uv = window.coordinates(torch.stack([a, b, c]))
    np.testing.assert_allclose(window.embed(uv), torch.stack([a, b, c]), atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(uv[1] - uv[2]), float((b - c).norm()))
    np.testing.assert_allclose(uv[0], 0, atol=1e-12)
    low, high = window.window.min(axis=0), window.window.max(axis=0)
    assert (uv > low).all() and (uv < high).all()
    np.testing.assert_allclose(high - low, 1.2 * np.ptp(uv, axis=0))


def test_span_mixes_two_inputs():
    a, b = torch.eye(4)[0], torch.ones(4)
    window = sc.Slice.span(a, b)
    np.testing.assert_allclose(window.embed(np.array([[1, 0], [0, 1], [2, -1]])), torch.stack([a, b, 2 * a - b]))


def test_a_clockwise_window_is_turned():
    window = sc.Slice(np.zeros(2), np.eye(2), sc.Slice.square().window[::-1])
    assert window.area == 4


@pytest.mark.parametrize(
    ("origin", "basis", "window", "says"),
    [
        (np.zeros(3), np.eye(2), [[0, 0], [1, 0], [0, 1]], "basis must be"),
        (np.zeros(2), [[1, 2], [2, 4]], [[0, 0], [1, 0], [0, 1]], "parallel"),
        (np.zeros(2), [[0, 0], [2, 4]], [[0, 0], [1, 0], [0, 1]], "parallel"),
        (np.zeros(2), np.eye(2), [[0, 0], [1, 0]], "k >= 3"),
        (np.zeros(2), np.eye(2), [[0, 0], [1, 1], [1, 0], [0, 1]], "convex"),
        (np.zeros(2), np.eye(2), [[0, 0], [2, 0], [0.5, 0.5], [0, 2]], "convex"),
        (np.full(2, np.nan), np.eye(2), [[0, 0], [1, 0], [0, 1]], "finite"),
    ],
)
def test_a_slice_that_is_none_is_refused_in_one_line(origin, basis, window, says):
    with pytest.raises(sc.InputError, match=says) as refusal:
        sc.Slice(origin, basis, window)
    assert "\n" not in str(refusal.value)


def test_three_inputs_on_a_line_are_refused():
    a = torch.ones(3)
    with pytest.raises(sc.InputError, match="parallel"):
        sc.Slice.through(a, 2 * a, 3 * a)
