"""A certificate is worth what it refuses: every kind of damage is found, with its place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import splinecut as sc
from splinecut.geometry.codes import Codes
from support.exact_geometry import reference_network


@pytest.fixture(scope="module")
def model():
    return reference_network(12, 2)


@pytest.fixture(scope="module")
def partition(model):
    return sc.subdivide(model, sc.Slice.square())


def _moved(array: np.ndarray, index: int, by: float) -> np.ndarray:
    changed = array.copy()
    changed[index] += by
    return changed


def _flipped(codes: Codes, region: int) -> Codes:
    packed = codes.packed[1].copy()
    packed[region, 0] ^= 128
    return replace(codes, packed=(codes.packed[0], packed))


def _repeated(partition: sc.Partition) -> np.ndarray:
    """The corners with one region put in the place of another."""
    sizes = np.diff(partition.offsets)
    one, other = np.flatnonzero(sizes == 4)[[0, -1]]
    indices, offsets = partition.indices.copy(), partition.offsets
    indices[offsets[one] : offsets[one + 1]] = indices[offsets[other] : offsets[other + 1]]
    return indices


def _inner_place(partition: sc.Partition) -> int:
    return int(np.flatnonzero(partition.edge_layer >= 0)[5])


DAMAGE = {
    "value": lambda p: replace(p, outputs=_moved(p.outputs, 7, 1e-4)),
    "affine": lambda p: replace(p, thin=np.array([3]), thin_affine=p.affine[[3]] + 1e-3),
    "code": lambda p: replace(p, codes=_flipped(p.codes, 4)),
    "cut": lambda p: replace(p, edge_unit=_moved(p.edge_unit, _inner_place(p), 1) % 12),
    "neighbour": lambda p: replace(p, edge_unit=(p.edge_unit + (p.edge_layer == 0)) % 12),
    "area": lambda p: replace(p, vertices=p.vertices * (1 + 1e-6)),
    "seam": lambda p: replace(p, edge_layer=np.where(np.arange(len(p.indices)) == _inner_place(p), -1, p.edge_layer)),
    "overlap": lambda p: replace(p, indices=_repeated(p)),
    "convex": lambda p: replace(p, vertices=_moved(p.vertices, int(p.indices[p.offsets[20]]), 0.4)),
}


def test_a_right_partition_is_certified(partition, model):
    findings = sc.certify(partition, model)
    assert findings.ok
    assert len(findings) == 0
    assert str(findings) == f"certified: {len(partition)} regions"


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_found_with_its_place(kind, partition, model):
    findings = sc.certify(DAMAGE[kind](partition), model)
    assert not findings.ok
    found = [finding for finding in findings if finding.kind == kind]
    assert found and all(finding.magnitude > 0 for finding in found)
    assert f"{kind}: " in str(findings)


def test_the_vertex_with_a_wrong_value_is_named(partition, model):
    finding = next(iter(sc.certify(DAMAGE["value"](partition), model)))
    assert finding.place == "vertex 7"
    assert finding.uv == pytest.approx(tuple(partition.vertices[7]))
    assert finding.magnitude == pytest.approx(1e-4)


def test_a_partition_of_another_network_is_refused(partition):
    with pytest.raises(sc.InputError, match="other layers"):
        sc.certify(partition, reference_network(13, 2))


def test_a_partition_of_other_weights_fails(partition, model):
    other = reference_network(12, 2)
    other[0].weight.data.mul_(1.01)
    assert not sc.certify(partition, other).ok
