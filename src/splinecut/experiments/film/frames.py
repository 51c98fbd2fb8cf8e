"""Partitions of one network over training and pruning, as one compact file that is read without torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np
from jaxtyping import Float, Float32, Int32, UInt8, UInt16

from splinecut.errors import InputError
from splinecut.files import write_atomically

SCHEMA = 1
FILE = "frames.npz"  # in a run folder

Stage = Literal["train", "prune"]


@dataclass(frozen=True)
class FoldingLayer:
    """A layer whose units fold space: `units` channels, each at `positions` places of an image (1 if it has none)."""

    name: str
    units: int
    positions: int = 1


@dataclass(frozen=True, eq=False)
class Frame:
    """One partition; its regions have `corners` vertices each, listed one region after the other in `ring`.

    vertices: (V, 2) in (u, v).  hue: a tint that a region keeps as long as its code stays.
    edge_layer, edge_unit: whose cut the edge from each place of `ring` to the next lies on; layer -1 is the window.
    affine: output = a u + b v + c on each region.
    boundary: ends of the decision boundary's segments; boundary_region: the region each lies in.
    origin: for every layer, which unit of the dense network each unit is; shorter than the layer once it was cut.
    facts: what else is known of this moment, by name, such as {"test accuracy": 0.97}.
    """

    stage: Stage
    step: int
    keep: float
    vertices: Float[np.ndarray, "vertices 2"]
    corners: UInt16[np.ndarray, " regions"]
    ring: Int32[np.ndarray, " places"]
    edge_layer: Int32[np.ndarray, " places"]
    edge_unit: Int32[np.ndarray, " places"]
    affine: Float32[np.ndarray, "regions outputs 3"]
    hue: UInt8[np.ndarray, " regions"]
    boundary: Float[np.ndarray, "segments 2 2"]
    boundary_region: Int32[np.ndarray, " segments"]
    origin: tuple[Int32[np.ndarray, " units"], ...]
    facts: Mapping[str, float] = field(default_factory=dict)

    def __len__(self) -> int:
        """The number of regions."""
        return len(self.corners)

    def arrays(self) -> dict[str, np.ndarray]:
        """Every array by name; `origin` is one of them for each layer."""
        values = {name: getattr(self, name) for name in ARRAYS}
        return values | {f"origin_{layer}": units for layer, units in enumerate(self.origin)}

    def about(self) -> dict[str, Any]:
        """Everything but the arrays."""
        return {"stage": self.stage, "step": self.step, "keep": self.keep, "facts": dict(self.facts)}

    @staticmethod
    def of(about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Frame:
        """The frame that `about` and `arrays` describe."""
        n_layers = sum(name.startswith("origin_") for name in arrays)
        origin = tuple(arrays[f"origin_{layer}"] for layer in range(n_layers))
        values: dict[str, Any] = {name: arrays[name] for name in ARRAYS}
        return Frame(**about, **values, origin=origin)


ARRAYS = (
    "vertices",
    "corners",
    "ring",
    "edge_layer",
    "edge_unit",
    "affine",
    "hue",
    "boundary",
    "boundary_region",
)


@dataclass(frozen=True, eq=False)
class Redundancy:
    """How far the cuts of one layer's units lie apart, by form of N_rho, and an order that puts near ones together."""

    layer: int
    order: Int32[np.ndarray, " units"]
    distances: Mapping[str, Float32[np.ndarray, "units units"]]


@dataclass(frozen=True, eq=False)
class Frames:
    """A network's partitions at chosen moments, on one slice, with the data that lie in it.

    points: (n, 2) in (u, v), labels: their classes.
    about: in plain words, what the "slice" is and how the "cuts" were made.
    """

    name: str
    layers: tuple[FoldingLayer, ...]
    frames: tuple[Frame, ...]
    points: Float[np.ndarray, "points 2"] = field(default_factory=lambda: np.zeros((0, 2)))
    labels: Int32[np.ndarray, " points"] = field(default_factory=lambda: np.zeros(0, np.int32))
    class_names: tuple[str, ...] = ()
    redundancy: tuple[Redundancy, ...] = ()
    about: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.frames)

    def __iter__(self) -> Iterator[Frame]:
        return iter(self.frames)

    def save(self, path: str | Path) -> Path:
        """Writes an .npz file: arrays and JSON, no pickle."""
        header = {
            "schema": SCHEMA,
            "kind": "frames",
            "name": self.name,
            "layers": [asdict(layer) for layer in self.layers],
            "frames": [frame.about() for frame in self.frames],
            "class_names": list(self.class_names),
            "redundancy": [{"layer": each.layer, "forms": list(each.distances)} for each in self.redundancy],
            "about": dict(self.about),
        }
        arrays: dict[str, Any] = {"points": self.points, "labels": self.labels}
        for number, frame in enumerate(self.frames):
            arrays |= {f"frame_{number}_{name}": array for name, array in frame.arrays().items()}
        for each in self.redundancy:
            arrays |= {f"order_{each.layer}": each.order}
            arrays |= {f"distance_{each.layer}_{form}": matrix for form, matrix in each.distances.items()}
        text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)

        def write(temporary: Path) -> None:
            with open(temporary, "wb") as file:
                np.savez_compressed(file, header=text, **arrays)

        return write_atomically(path, write)


def load(path: str | Path) -> Frames:
    """Reads what `Frames.save` wrote."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        header = json.loads(arrays["header"].tobytes())
        schema = header["schema"] if header["kind"] == "frames" else None
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise InputError(f"{path} does not hold stored frames ({type(error).__name__}); write them again") from None
    if schema != SCHEMA:
        raise InputError(f"{path} has frames of schema {schema}, expected {SCHEMA}; write them again")
    return Frames(
        name=header["name"],
        layers=tuple(FoldingLayer(**layer) for layer in header["layers"]),
        frames=tuple(Frame.of(about, _part(arrays, f"frame_{i}_")) for i, about in enumerate(header["frames"])),
        points=arrays["points"],
        labels=arrays["labels"],
        class_names=tuple(header["class_names"]),
        redundancy=tuple(
            Redundancy(
                each["layer"],
                arrays[f"order_{each['layer']}"],
                {form: arrays[f"distance_{each['layer']}_{form}"] for form in each["forms"]},
            )
            for each in header["redundancy"]
        ),
        about=header["about"],
    )


def find(places: Iterable[str | Path]) -> tuple[list[Frames], list[str]]:
    """All frames in and below these folders, and one line on each file that cannot be read."""
    films: list[Frames] = []
    skipped: list[str] = []
    for place in map(Path, places):
        for file in [place] if place.is_file() else sorted(place.rglob(FILE)):
            try:
                films.append(load(file))
            except InputError as error:
                skipped.append(str(error))
    return films, skipped


def _part(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
