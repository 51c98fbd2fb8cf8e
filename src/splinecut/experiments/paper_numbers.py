"""The paper's numbers for a run with the same network, data, method and budget, at the paper's full scale."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("paper_numbers.toml")


def published(spec: dict[str, Any], quantity: str = "top1") -> float | None:
    """The paper's number for a run's spec; None where there is none.

    quantity: "top1" or "top5" in per cent, or "petaflops" of training. Widths, epochs and subsets are not looked at:
    the paper's runs are full-sized whatever ours are.
    """
    values = (_value(result, spec, quantity) for result in _results() if _is_about(result, spec))
    return next((value for value in values if value is not None), None)


def _is_about(result: dict[str, Any], spec: dict[str, Any]) -> bool:
    """Whether a result was made under the conditions of `spec`, as far as the paper tells them apart."""
    method = spec.get("method") or {}
    if method.get("name") == "spline" and method.get("form") != "paper":
        return False  # our own forms are not in the paper
    ours = {
        "model": spec["model"]["name"],
        "data": spec["data"]["name"],
        "optimizer": spec["training"]["optimizer"]["name"],
        "activation": spec["model"].get("activation", "relu"),
        "start": spec.get("start", {}).get("name", "kaiming"),
    }
    theirs = {"optimizer": "sgd", "activation": "relu", "start": "kaiming", **result}
    if method:
        ours["scope"] = spec["budget"]["scope"]  # what selected; 0.1.0 ignored a scope among the method's options
        ours["is_factor_analysis"] = method.get("reduce") == "fa"
        ours["retrained_from"] = _retrained_from(spec.get("retrain", {}))
        is_factor_analysis = result.get("reduce") == "fa"
        theirs = {"scope": "global", "is_factor_analysis": is_factor_analysis, "retrained_from": "own", **theirs}
    return all(theirs[key] == value for key, value in ours.items())


def _retrained_from(retrain: dict[str, Any]) -> str:
    """Which weights the cut network was trained from: the method's own, or others that a table compares."""
    weights, start = retrain.get("weights"), retrain.get("start", {}).get("name", "kaiming")
    return {None: "own", "inherit": "own", "rewind": "lottery"}.get(weights, start)


def _value(result: dict[str, Any], spec: dict[str, Any], quantity: str) -> float | None:
    method = spec.get("method")
    if method is None:
        return result.get("dense") if quantity == "top1" else None
    row = result.get(quantity, {}).get(("eb-" if spec.get("detector") else "") + method["name"])
    keep = round(spec["budget"]["keep"], 6)
    return float(row[result["keeps"].index(keep)]) if row and keep in result["keeps"] else None


@cache
def _results() -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = tomllib.loads(FILE.read_text(encoding="utf-8"))["result"]
    return results
