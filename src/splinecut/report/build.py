"""Records and frames as one HTML file: page, style sheet, script and data, under a policy that fetches nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from splinecut import __version__
from splinecut.errors import InputError
from splinecut.experiments.film.frames import Frame, Frames, Redundancy
from splinecut.experiments.records import Record
from splinecut.files import write_text
from splinecut.report import html_tables as tables
from splinecut.report import rows as facts
from splinecut.report.array_packing import Blob, pack
from splinecut.report.frame_selection import thinned
from splinecut.report.script_bundle import bundle

PAGE = Path(__file__).parent / "page"
LIMIT = 15_000_000  # characters; a larger page is slow to open and to send


def write(
    path: str | Path,
    records: Sequence[Record] = (),
    films: Sequence[Frames] = (),
    title: str = "splinecut report",
    notes: Sequence[str] = (),
) -> Path:
    """Writes the report of these runs and stored partitions; `notes` are shown at its top."""
    text = page(records, films, title, notes)
    if len(text) > LIMIT:
        raise InputError(
            f"the page would have {len(text) / 1e6:.0f} MB, at most {LIMIT / 1e6:.0f} open well; "
            "store partitions of a smaller window, or give fewer runs"
        )
    return write_text(path, text)


def viewer(frames: Frames, path: str | Path) -> Path:
    """Writes a page that shows the partitions of one network and nothing else."""
    return write(path, films=[frames], title=frames.name)


def page(records: Sequence[Record], films: Sequence[Frames], title: str, notes: Sequence[str] = ()) -> str:
    """The report as the text of one HTML file; of more partitions than fit, some are left out and it says so."""
    packed = {frame: pack(_arrays(frame)) for film in films for frame in film}
    films, left_out = thinned(films, {frame: len(blob.text) for frame, blob in packed.items()})
    groups, rows = facts.grouped(records), [facts.row(record) for record in records]
    detections = [each for each in map(facts.detection, records) if each is not None]
    blobs: list[Blob] = []
    header = {
        "groups": groups,
        "runs": rows,
        "detections": detections,
        "films": [_film(film, packed, blobs) for film in films],
        "blobs": [blob.entries for blob in blobs],
    }
    script = bundle(PAGE)
    style = (PAGE / "style.css").read_text(encoding="utf-8")
    slots = {
        "policy": _policy(script, style),
        "title": escape(title),
        "about": escape(_about(records, films)),
        "notes": "".join(f"<p>{escape(note)}</p>" for note in (*notes, *left_out)),
        "style": style,
        "comparison": tables.comparison(groups) if records else "",
        "runs": tables.runs(rows) if records else "",
        "detections": tables.detections(detections) if detections else "",
        "partitions": tables.partitions(films) if films else "",
        "provenance": tables.provenance(records),
        "facts": _for_script(header),
        "blobs": "\n".join(
            f'<script type="text/plain" id="blob-{number}">{blob.text}</script>' for number, blob in enumerate(blobs)
        ),
        "script": script,
    }
    return _filled((PAGE / "index.html").read_text(encoding="utf-8"), slots)


def _filled(text: str, slots: Mapping[str, str]) -> str:
    """`text` with each {{slot}} filled, in one pass: what is filled in is not looked at again."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: slots[match[1]], text)


def _policy(script: str, style: str) -> str:
    """Nothing may be fetched, and only the script and the styles we wrote may run."""
    return (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _for_script(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _about(records: Sequence[Record], films: Sequence[Frames]) -> str:
    n_frames = sum(len(film) for film in films)
    contents = [f"{len(records)} runs" if records else "", f"{n_frames} stored partitions" if films else ""]
    today = datetime.now(UTC).date().isoformat()
    return f"{' and '.join(filter(None, contents)) or 'nothing to show'}; written by splinecut {__version__} on {today}"


def _film(film: Frames, packed: Mapping[Frame, Blob], blobs: list[Blob]) -> dict[str, Any]:
    """The header of one network's frames; its arrays go to `blobs` and are named by their number there."""
    return {
        "name": film.name,
        "layers": [[layer.name, layer.units, layer.positions] for layer in film.layers],
        "classes": list(film.class_names),
        "about": dict(film.about),
        "points": _add(blobs, pack({"uv": film.points, "label": film.labels})),
        "frames": [{**_about_frame(frame), "blob": _add(blobs, packed[frame])} for frame in film],
        "redundancy": [_redundancy(each, blobs) for each in film.redundancy],
    }


def _about_frame(frame: Frame) -> dict[str, Any]:
    origin = [units.tolist() for units in frame.origin]
    return {**frame.about(), "outputs": frame.affine.shape[1], "origin": origin, "regions": len(frame)}


def _arrays(frame: Frame) -> dict[str, np.ndarray]:
    return {
        "vertices": frame.vertices,
        "affine": frame.affine,
        "boundary": frame.boundary,
        "ring": frame.ring,
        "edge_unit": frame.edge_unit,
        "boundary_region": frame.boundary_region,
        "edge_layer": frame.edge_layer.astype(np.int16),
        "corners": frame.corners,
        "hue": frame.hue,
    }


def _redundancy(each: Redundancy, blobs: list[Blob]) -> dict[str, Any]:
    number = _add(blobs, pack({"order": each.order, **each.distances}))
    return {"layer": each.layer, "forms": list(each.distances), "blob": number}


def _add(blobs: list[Blob], blob: Blob) -> int:
    blobs.append(blob)
    return len(blobs) - 1
