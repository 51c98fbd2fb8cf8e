"""Starting wide helps k-means too: more centroids than needed, pruned one by one, against the right number at once.

    python -m studies.kmeans --out results

You et al. (2022), appendix: data from 64 Gaussians; start from 64 to 128 random centroids, let Lloyd's iteration
settle, remove the centroid whose loss raises the inertia least until 64 are left, settle again. k-means++ with 64 is
the yardstick. Every start and every seed sees the same data.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from rich.progress import track

from splinecut.experiments.summaries import Estimate
from splinecut.training.data.toy import CONTENTS, gaussian_mixture
from splinecut.training.seeding import generator
from studies.support.result_file import figure, write

CLUSTERS = 64
STARTS = (64, 72, 80, 88, 96, 104, 112, 120, 128)
SEEDS = 20

Points = Float[np.ndarray, "points 2"]
Centroids = Float[np.ndarray, "centroids 2"]


def settled(points: Points, start: Centroids | str, n: int, seed: int) -> tuple[Centroids, float]:
    """Centroids and inertia after Lloyd's iteration from `start`: centroids, "random" points or "k-means++"."""
    from sklearn.cluster import KMeans

    fitted = KMeans(n, init=start, n_init=1, random_state=seed, algorithm="lloyd", max_iter=1000).fit(points)
    return fitted.cluster_centers_, float(fitted.inertia_)


def pruned(points: Points, centroids: Centroids, n: int) -> Centroids:
    """The `n` centroids left when those whose removal raises the inertia least go, one by one.

    Without its nearest centroid a point pays for its second nearest; a removal costs the sum over the points it owns.
    Only points whose nearest or second nearest has gone need another look, so all removals together are quick.
    """
    squares = ((points[:, None] - centroids) ** 2).sum(2)
    alive = np.ones(len(centroids), dtype=bool)
    nearest = np.argsort(squares, axis=1, kind="stable")[:, :2]
    for _ in range(len(centroids) - n):
        first, second = np.take_along_axis(squares, nearest, 1).T
        rise = np.bincount(nearest[:, 0], weights=second - first, minlength=len(centroids))
        gone = int(np.argmin(np.where(alive, rise, np.inf)))
        alive[gone] = False
        squares[:, gone] = np.inf
        stale = (nearest == gone).any(1)
        nearest[stale] = np.argsort(squares[stale], axis=1, kind="stable")[:, :2]
    return centroids[alive]


def inertias(points: Points, seed: int, starts: Sequence[int] = STARTS, clusters: int = CLUSTERS) -> dict[str, float]:
    """The inertia that each way to `clusters` centroids ends with."""
    by_start = {"k-means++": settled(points, "k-means++", clusters, seed)[1]}
    for start in starts:
        wide, _ = settled(points, "random", start, seed)
        by_start[str(start)] = settled(points, pruned(points, wide, clusters), clusters, seed)[1]
    return by_start


def conclusions(by_seed: list[dict[str, float]]) -> dict[str, Any]:
    """Means with intervals, and by how much each start beats starting with the right number, paired by seed."""
    names = list(by_seed[0])
    means = {name: Estimate.of([seed[name] for seed in by_seed])._asdict() for name in names}
    gaps = {
        name: Estimate.of([seed[str(CLUSTERS)] - seed[name] for seed in by_seed])
        for name in names
        if name != str(CLUSTERS)
    }
    result = {name: {**gap._asdict(), "excludes_zero": gap.excludes_zero} for name, gap in gaps.items()}
    return {"inertia": means, f"inertia of {CLUSTERS} starts minus": result}


def draw(result: dict[str, Any], path: Path) -> None:
    """Inertia against the number of centroids at the start, with k-means++ as a band."""
    with figure(path, (5.2, 3.4)) as axes:
        starts = [name for name in result["inertia"] if name != "k-means++"]
        means = [result["inertia"][name]["mean"] for name in starts]
        halves = [result["inertia"][name]["half"] for name in starts]
        axes.errorbar([int(name) for name in starts], means, halves, marker="o", capsize=3, label="wide, then pruned")
        best = result["inertia"]["k-means++"]
        axes.axhline(best["mean"], color="tab:red", label="k-means++ with 64")
        axes.axhspan(best["mean"] - best["half"], best["mean"] + best["half"], color="tab:red", alpha=0.2, lw=0)
        axes.set(xlabel="centroids at the start (64 at the end)", ylabel="inertia", ylim=(0, None))
        axes.legend(frameon=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--out", type=Path, default=Path("results"))
    args = parser.parse_args()
    points = gaussian_mixture(generator(CONTENTS))[0].double().numpy()
    by_seed = [inertias(points, seed) for seed in track(range(args.seeds), "seeds")]
    result = conclusions(by_seed)
    write(args.out / "kmeans.json", __spec__, args, {**result, "inertia by seed": by_seed})
    draw(result, args.out / "kmeans.svg")


if __name__ == "__main__":
    main()
