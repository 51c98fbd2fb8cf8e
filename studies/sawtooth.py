"""Why to start wide: a sawtooth that four units fit exactly, which training four units seldom finds.

    python -m studies.sawtooth --out results

You et al. (2022), appendix: a line with two teeth needs four ReLU units. Set by hand they fit it; trained from a random
start they mostly do not; a wide layer does, and pruned to four units, step by step with a little training after each
cut, it still can. All seeds of one width are trained side by side, as one batch of small networks.

The input's scale, the rate and the widths of NARROWING were chosen by looking at seeds 0 to 11; `unseen` in the result
counts the other seeds only. The pruned route trains about eleven times as many unit-steps as four units alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from rich.progress import track
from torch import Tensor, nn

from splinecut.pruning.apply import cut
from splinecut.pruning.draw_ticket import draw as draw_ticket
from splinecut.training.seeding import generator
from studies.support.result_file import figure, write

NEEDED = 4  # units for two teeth
WIDTHS = (4, 8, 16, 32, 64)
WIDE = 32
NARROWING = (16, 10, 7, 5, NEEDED)  # units left after each cut
SEEDS = 40
LOOKED_AT = 12  # seeds by which the settings below were chosen
STEPS = 3000
RATE = 0.02  # of Adam, down to zero along half a cosine
POINTS = 200
CENTRE, SCALE = 2.5, 1.25  # networks see (x - 2.5) / 1.25: with x itself most cuts would start outside the data
PRUNED = f"{WIDE} units pruned to {NEEDED}"
SOLVED = 0.02  # root mean square error; teeth are one high, and missing one costs 0.2 and more


@dataclass(frozen=True)
class Layers:
    """Networks x -> sum_k out_k relu(slope_k x + shift_k) + constant, one a row."""

    slope: Float[Tensor, "nets units"]
    shift: Float[Tensor, "nets units"]
    out: Float[Tensor, "nets units"]
    constant: Float[Tensor, " nets"]

    def __call__(self, x: Float[Tensor, " points"]) -> Float[Tensor, "nets points"]:
        hidden = torch.relu(self.slope[:, :, None] * x + self.shift[:, :, None])
        return (self.out[:, :, None] * hidden).sum(1) + self.constant[:, None]

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        return self.slope, self.shift, self.out, self.constant

    def module(self, net: int) -> nn.Sequential:
        """One of the networks as a module, for pruning."""
        first, last = nn.Linear(1, self.slope.shape[1]), nn.Linear(self.slope.shape[1], 1)
        rows = (self.slope[net][:, None], self.shift[net], self.out[net][None], self.constant[net][None])
        for parameter, values in zip((first.weight, first.bias, last.weight, last.bias), rows, strict=True):
            parameter.data = values.detach().clone()
        return nn.Sequential(first, nn.ReLU(), last).double().eval()


def by_hand(outgoing: Sequence[float] = (1, -2, 2, -2)) -> Layers:
    """Four units with cuts at 1, 2, 3, 4; the paper prints 1, -2, 1, -2 for `outgoing`, which makes no sawtooth."""
    cuts = torch.arange(1.0, NEEDED + 1, dtype=torch.float64)
    out = torch.tensor(outgoing, dtype=torch.float64)
    return Layers(torch.full_like(cuts, SCALE)[None], CENTRE - cuts[None], out[None], torch.zeros(1).double())


def fresh(width: int, seeds: int) -> Layers:
    """Networks initialised as torch does linear layers, the n-th by seed n: a wider one starts from other draws."""

    def drawn(seed: int) -> list[Tensor]:
        random = generator(seed, width)
        bounds = (1.0, 1.0, width**-0.5, width**-0.5)
        sizes = (width, width, width, 1)
        uniform = [torch.rand(n, generator=random, dtype=torch.float64) for n in sizes]
        return [bound * (2 * values - 1) for bound, values in zip(bounds, uniform, strict=True)]

    slope, shift, out, constant = (torch.stack(rows) for rows in zip(*map(drawn, range(seeds)), strict=True))
    return Layers(slope, shift, out, constant[:, 0])


def trained(nets: Layers, x: Tensor, y: Tensor, steps: int = STEPS) -> Layers:
    """The networks after Adam on the squared error over all points; each learns as if it were alone."""
    nets = Layers(*(values.clone().requires_grad_() for values in nets.parameters))
    optimizer = torch.optim.Adam(nets.parameters, lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        ((nets(x) - y) ** 2).mean(1).sum().backward()
        optimizer.step()
        schedule.step()
    return Layers(*(values.detach() for values in nets.parameters))


def errors(nets: Layers, x: Tensor, y: Tensor) -> list[float]:
    """The root mean square error of each network."""
    rms: list[float] = ((nets(x) - y) ** 2).mean(1).sqrt().tolist()
    return rms


def shrink_to_limit(nets: Layers, x: Tensor, y: Tensor, steps: int) -> Layers:
    """The networks at four units: cut and trained for a quarter of the steps, again and again, at last for all."""
    for units in NARROWING:
        nets = trained(pruned(nets, x, units), x, y, steps if units == NEEDED else steps // 4)
    return nets


def pruned(nets: Layers, x: Tensor, units: int) -> Layers:
    """Each network cut to `units` units by our default criterion, the rest refitted."""
    small = []
    for net in range(len(nets.slope)):
        module, probe = nets.module(net), x[:, None]
        ticket = draw_ticket(module, probe, keep=units / nets.slope.shape[1])
        small.append([p.detach() for p in cut(module, ticket, refit="least_squares", probe=probe).parameters()])
    slope, shift, out, constant = (torch.stack(rows) for rows in zip(*small, strict=True))
    return Layers(slope[:, :, 0], shift, out[:, 0], constant[:, 0])


def share(values: Sequence[float]) -> dict[str, Any]:
    """How many networks solved the task, with Wilson's 95 % interval of the share."""
    from scipy.stats import binomtest

    solved = sum(value < SOLVED for value in values)
    low, high = binomtest(solved, len(values)).proportion_ci(0.95, method="wilson")
    return {"solved": solved, "of": len(values), "share": solved / len(values), "interval": [low, high]}


def task() -> tuple[Float[Tensor, " points"], Float[Tensor, " points"]]:
    """What the networks see of x, and the sawtooth's height there."""
    x = torch.linspace(0, NEEDED + 1, POINTS, dtype=torch.float64)
    return (x - CENTRE) / SCALE, torch.where(x > 1, (x % 2 - 1).abs(), 0.0)


def study(seeds: int, steps: int = STEPS) -> dict[str, list[float]]:
    """Errors of every way to fit the sawtooth, by seed."""
    x, y = task()
    by_start = {"by hand": errors(by_hand(), x, y), "by hand, as printed": errors(by_hand((1, -2, 1, -2)), x, y)}
    nets = {width: trained(fresh(width, seeds), x, y, steps) for width in track(WIDTHS, "widths")}
    by_start |= {f"{width} units": errors(nets[width], x, y) for width in WIDTHS}
    by_start[PRUNED] = errors(shrink_to_limit(nets[WIDE], x, y, steps), x, y)
    return by_start


def draw(result: dict[str, list[float]], path: Path) -> None:
    """Left: the task and its fit by hand; right: errors against width, and after pruning to four units."""
    with figure(path, (8.4, 3.2), columns=2) as (left, right):
        seen, _ = task()
        x = CENTRE + SCALE * seen
        left.plot(x, by_hand()(seen)[0], label="four units by hand")
        left.plot(x, by_hand((1, -2, 1, -2))(seen)[0], "--", lw=1, label="weights as printed")
        left.set(xlabel="x", ylabel="height")
        left.legend(frameon=False)
        names = [*(f"{width} units" for width in WIDTHS), PRUNED]
        for place, name in enumerate(names):
            color = "tab:red" if "pruned" in name else "tab:blue"
            spread = place + 0.3 * (torch.rand(len(result[name]), generator=generator(place)) - 0.5)
            right.plot(spread, [max(value, 1e-8) for value in result[name]], ".", ms=4, color=color, alpha=0.6)
        right.axhline(SOLVED, color="grey", lw=0.8, ls=":")
        right.set_yscale("log")
        right.set_xticks(range(len(names)), [*map(str, WIDTHS), f"{WIDE} to {NEEDED}"])
        right.set(xlabel="units", ylabel="root mean square error, from 1e-8 up")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--out", type=Path, default=Path("results"))
    args = parser.parse_args()
    results = study(args.seeds, args.steps)
    shares = {name: share(values) for name, values in results.items() if len(values) > 1}
    unseen = {name: share(values[LOOKED_AT:]) for name, values in results.items() if len(values) > LOOKED_AT}
    result = {"solved below": SOLVED, "solved": shares, "solved, unseen seeds": unseen, "error": results}
    write(args.out / "sawtooth.json", __spec__, args, result)
    draw(results, args.out / "sawtooth.svg")
    for name, counted in shares.items():
        low, high = counted["interval"]
        print(f"{name}: {counted['solved']} of {counted['of']} solved (95 % interval {low:.0%} to {high:.0%})")


if __name__ == "__main__":
    main()
