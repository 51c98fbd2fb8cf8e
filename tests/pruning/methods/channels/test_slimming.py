"""Network slimming, its rounds and its early bird: the penalty, the kept set, when a mask has settled, collapse."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import splinecut as sc
from splinecut.errors import InputError
from splinecut.experiments.measurements import pruning_facts
from splinecut.networks import models
from splinecut.networks.groups.read import groups as read_groups
from splinecut.pruning.budget import Budget, Keep, select
from splinecut.pruning.draw_ticket import ticket_from_evidence
from splinecut.pruning.engine.driver import PruningResult, prune
from splinecut.pruning.engine.schedules import geometric, shortened
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.methods.catalogue import resolve_method
from splinecut.pruning.methods.channels.early_bird import EarlyBirdTicket, StopWhenSettled, mask_distance
from splinecut.pruning.methods.channels.slimming import ShrinkScales, Slimming, SlimmingIterative
from splinecut.pruning.methods.channels.spline import Spline
from splinecut.pruning.ticket import emptied
from splinecut.training.config import Optimizer, Schedule, TrainingConfig
from splinecut.training.ledger import Ledger
from splinecut.training.loop import train
from support.contexts import NETWORKS, context, said

QUICK = settings(derandomize=True, deadline=None, max_examples=25)


def scattered(network: str, seed: int = 0) -> tuple[nn.Module, Tensor]:
    """A network whose batch norms have scattered scales, shifts and statistics, and a batch for it."""
    model = models.build(classes=4, seed=seed, **NETWORKS[network])
    generator = torch.Generator().manual_seed(seed)
    for norm in (module for module in model.modules() if isinstance(module, nn.BatchNorm2d)):
        norm.weight.data = torch.rand(norm.weight.shape, generator=generator) - 0.5
        norm.bias.data = torch.rand(norm.bias.shape, generator=generator) - 0.3
        norm.running_mean = torch.rand(norm.weight.shape, generator=generator)
    return model.eval(), torch.randn(16, *NETWORKS[network]["input_shape"], generator=generator)


def scales_by_group(evidence: Evidence) -> dict[str, np.ndarray]:
    """|gamma| of the one norm of each group, in plain words: behind its layer, or in front of its selector."""
    found = {}
    for group in evidence.groups:
        (producer,) = group.producers
        norm = evidence.model.get_submodule(str(producer.norm))
        assert isinstance(norm, nn.BatchNorm2d)
        found[group.name] = norm.weight.detach().abs().double().numpy()
    return found


@pytest.fixture(scope="module", params=NETWORKS)
def evidence(request: pytest.FixtureRequest) -> Evidence:
    model, example = scattered(request.param)
    return Evidence(model, read_groups(model, example, Slimming.residual), example)


def test_what_stays_is_the_k_largest_scales_of_the_whole_network(evidence: Evidence) -> None:
    ticket = ticket_from_evidence(evidence, "slimming", Slimming(), Budget(0.6, floor=0))
    expected = scales_by_group(evidence)
    everything = np.concatenate(list(expected.values()))
    kth = np.sort(everything)[::-1][round(0.6 * everything.size) - 1]
    assert ticket.keep.keys() == expected.keys()
    assert all(np.array_equal(ticket.keep[name], values >= kth) for name, values in expected.items())


def test_layer_by_layer_it_is_the_k_largest_of_each(evidence: Evidence) -> None:
    ticket = ticket_from_evidence(evidence, "slimming", Slimming(), Budget(0.5, scope="layer"))
    for name, values in scales_by_group(evidence).items():
        kth = np.sort(values)[::-1][max(1, round(0.5 * values.size)) - 1]
        assert np.array_equal(ticket.keep[name], values >= kth)


def test_cut_and_mask_agree(evidence: Evidence) -> None:
    model, ticket = evidence.model, ticket_from_evidence(evidence, "slimming", Slimming(), Budget(0.5))
    smaller = sc.cut(model, ticket)
    with torch.no_grad(), sc.mask(model, ticket):
        assert torch.allclose(smaller(evidence.probe), model(evidence.probe), atol=1e-5)


def test_a_tied_stream_without_norms_of_its_own_is_ranked_by_the_norms_that_read_it() -> None:
    model, example = scattered("preresnet")
    found = read_groups(model, example)
    (group,) = [group for group in found if "blocks.0.conv3" in {producer.path for producer in group.producers}]
    # The first stage has one block here: what it writes is read by the next block's first norm alone.
    expected = model.get_submodule("blocks.1.bn1").weight.detach().abs().double().numpy()  # type: ignore[operator]
    assert np.allclose(Slimming().score(Evidence(model, found, example), Budget(0.5))[group.name], expected)


class Mute(nn.Module):
    """Norms whose scales no loss depends on."""

    input_shape = (1, 8, 8)

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(64)
        self.norm.weight.data = torch.linspace(-1, 1, 64)
        self.last = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(0 * self.norm(x.flatten(1)))


def test_one_step_moves_a_scale_by_the_penalty_and_weight_decay_alone() -> None:
    here, model = context(), Mute().double()
    before = model.norm.weight.detach().clone()
    optimizer = Optimizer(lr=0.1, momentum=0.0, weight_decay=0.02)
    images = len(here.dataset.train)
    plan = TrainingConfig(
        epochs=1, batch_size=images, optimizer=optimizer, precision="float64", schedule=Schedule(name="constant")
    )
    train(model, here.dataset, plan, hooks=[ShrinkScales(0.03)])
    expected = before - 0.1 * (0.03 * before.sign() + 0.02 * before)
    assert torch.equal(model.norm.weight.detach(), expected) or torch.allclose(
        model.norm.weight.detach(), expected, rtol=0, atol=1e-16
    )


def test_the_penalty_is_in_the_first_training_and_not_in_the_last() -> None:
    here = context()
    slimming = Slimming(l1=1e-2)
    assert [type(hook) for hook in slimming.hooks(here, here.build(0), Budget(0.5))] == [ShrinkScales]
    assert slimming.retrain_hooks(here, here.build(0), Budget(0.5)) == ()
    assert slimming.first_training(Budget(0.5)) == {"l1": 1e-2}
    assert Slimming(l1=0).first_training(Budget(0.5)) == {} == Slimming(l1=0).first_training(Budget(0.9))


def run(
    method: Any, network: str = "convnet", budget: Budget | None = None, **options: Any
) -> tuple[PruningResult, Ledger]:
    here = context(network, residual=method.residual, **options)
    return prune(here, "method", method, budget or Budget(0.5)), here.ledger


def test_one_round_is_network_slimming_bit_by_bit() -> None:
    (once, cost), (rounds, cost_of_rounds) = run(Slimming()), run(SlimmingIterative(n_rounds=1))
    assert all(np.array_equal(once.ticket.keep[name], kept) for name, kept in rounds.ticket.keep.items())
    left, right = once.final.model.state_dict(), rounds.final.model.state_dict()
    assert left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)
    assert cost.without_time() == cost_of_rounds.without_time()


@dataclass(frozen=True)
class Remembering(SlimmingIterative):
    """Keeps what every round kept."""

    kept: list[Keep] = field(default_factory=list)

    def select(self, *arguments: Any) -> Keep:
        self.kept.append(super().select(*arguments))
        return self.kept[-1]


@pytest.mark.parametrize(
    ("network", "budget"),
    [
        ("convnet", Budget(0.3)),
        ("convnet", Budget(0.4, scope="layer")),
        ("convnet", Budget(0.3, of="flops")),
        ("preresnet", Budget(0.3)),
    ],
    ids=str,
)
def test_rounds_keep_nested_sets_and_end_at_the_budget(network: str, budget: Budget) -> None:
    method = Remembering(n_rounds=3)
    ticket = run(method, network, budget, epochs=1)[0].ticket
    assert len(method.kept) == 3
    for earlier, later in zip(method.kept, method.kept[1:], strict=False):
        assert all((earlier[name] >= later[name]).all() for name in later)
        assert sum(k.sum() for k in later.values()) < sum(k.sum() for k in earlier.values())
    assert all(np.array_equal(ticket.keep[name], kept) for name, kept in method.kept[-1].items())
    if budget.of == "channels":
        at_once = select({name: np.zeros(len(kept)) for name, kept in ticket.keep.items()}, budget, ticket.groups)
        assert ticket.achieved.kept == sum(int(kept.sum()) for kept in at_once.values())
    else:
        assert ticket.groups is not None and ticket.groups.flops(ticket.keep) <= 0.3 * ticket.groups.flops()


def test_geometric_rounds_by_hand() -> None:
    assert [turn.budget.keep for turn in geometric(Budget(0.125), 3)] == pytest.approx([0.5, 0.25, 0.125])
    assert geometric(Budget(0.3, floor=2), 4)[-1].budget == Budget(0.3, floor=2)
    assert [turn.budget.floor for turn in geometric(Budget(0.3, floor=0), 3)] == [1, 1, 0]
    with pytest.raises(InputError, match="n_rounds of SlimmingIterative must be at least 1, got 0"):
        SlimmingIterative(n_rounds=0)


def test_a_squeezed_plan_drops_its_rate_at_the_same_shares() -> None:
    plan = TrainingConfig(epochs=160, schedule=Schedule(milestones=(80, 0.75, 400), warmup=8))
    short = shortened(plan, 40)
    assert short.epochs == 40 and short.schedule.milestones == (0.5, 0.75) and short.schedule.warmup == 2
    rates = [plan.schedule.factor(4 * step, 160, 1) for step in range(2, 40)]
    assert rates == [short.schedule.factor(step, 40, 1) for step in range(2, 40)]
    assert shortened(plan, 160).schedule.factor(100, 160, 1) == plan.schedule.factor(100, 160, 1)


def test_spline_cuts_in_rounds_with_a_quarter_of_the_plan_between() -> None:
    outcome, ledger = run(Spline(n_rounds=2), epochs=4, refit="least_squares")
    assert outcome.ticket.achieved.kept == round(0.5 * outcome.ticket.achieved.of)
    images = len(context().dataset.train)
    assert ledger.phases["train"].images == 4 * images == 4 * ledger.phases["round-1"].images
    assert Spline().between(TrainingConfig(epochs=3)).epochs == 1
    assert Spline(between_epochs=7).between(TrainingConfig(epochs=3)).epochs == 7


def moments() -> SimpleNamespace:
    return SimpleNamespace(history=[{}])


def test_a_constant_order_is_drawn_exactly_when_the_queue_first_fills() -> None:
    mask = {"a": np.array([True, False, True]), "b": np.array([False])}
    hook = StopWhenSettled(lambda state: mask, window=5, threshold=0.0)
    assert [hook.after_epoch(moments()) for _ in range(7)] == [False] * 4 + [True] * 3  # type: ignore[arg-type]


def test_one_far_mask_in_the_queue_puts_the_drawing_off_until_it_has_left() -> None:
    still, other = {"a": np.arange(20) < 10}, {"a": np.arange(20) >= 10}
    seen = iter([still, other, *[still] * 10])
    hook = StopWhenSettled(lambda state: next(seen), window=5, threshold=0.1)
    assert [hook.after_epoch(moments()) for _ in range(8)] == [False] * 6 + [True] * 2  # type: ignore[arg-type]


def test_a_restored_queue_goes_on_where_it_stood() -> None:
    mask = {"a": np.array([True, False])}
    first, second = (StopWhenSettled(lambda state: mask, 3, 0.0) for _ in range(2))
    first.after_epoch(moments())  # type: ignore[arg-type]
    first.after_epoch(moments())  # type: ignore[arg-type]
    second.restore(first.state())
    assert second.after_epoch(moments())  # type: ignore[arg-type]


masks = st.integers(1, 40).flatmap(lambda n: st.tuples(*[st.lists(st.booleans(), min_size=n, max_size=n)] * 2))


@QUICK
@given(masks)
def test_mask_distance_is_symmetric_within_one_and_zero_only_for_equal_masks(pair: tuple[list[bool], ...]) -> None:
    a, b = (np.array(bits) for bits in pair)
    assert mask_distance(a, b) == mask_distance(b, a) and 0 <= mask_distance(a, b) <= 1
    assert (mask_distance(a, b) == 0) == np.array_equal(a, b)


@QUICK
@given(st.integers(2, 50), st.integers(0, 10**6))
def test_exchanging_a_kept_and_a_removed_channel_is_two_nths(n: int, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(n)
    mask = np.arange(n) % 2 == 0
    a = mask[order]
    b = a.copy()
    b[[int(np.flatnonzero(a)[0]), int(np.flatnonzero(~a)[0])]] = [False, True]
    assert mask_distance(a, b) == pytest.approx(2 / n)


def test_the_early_bird_costs_the_search_and_what_is_left_of_the_plan() -> None:
    still = TrainingConfig(
        epochs=8, batch_size=32, optimizer=Optimizer(lr=1e-9)
    )  # scales that hardly move keep their order
    method = EarlyBirdTicket(window=3, threshold=0.05)
    here = context(plan=still)
    outcome = prune(here, "early-bird", method, Budget(0.5, floor=2))
    assert outcome.dense is not None and outcome.dense.history[-1]["epoch"] == 3
    assert outcome.dense.history[-1]["mask_distance"] <= 0.05
    assert [row["epoch"] for row in outcome.final.history] == [4, 5, 6, 7, 8]
    images, dense = len(here.dataset.train), here.flops(here.build(0))
    assert here.ledger.phases["train"].paper_flops == 3 * dense * images * 3
    assert here.ledger.phases["retrain"].paper_flops == 3 * here.flops(outcome.final.model) * images * 5
    assert here.ledger.phases["detect"].paper_flops == 0
    assert pruning_facts(outcome, None)["is_early"]


def test_the_early_birds_penalty_stays_on_after_the_cut_and_its_training_is_its_budgets_own() -> None:
    here, bird = context(), EarlyBirdTicket()
    assert [type(hook) for hook in bird.retrain_hooks(here, here.build(0), Budget(0.5))] == [ShrinkScales]
    assert bird.first_training(Budget(0.5)) != bird.first_training(Budget(0.3))


@pytest.mark.parametrize("name", ["slimming", "slimming-iterative", "early-bird", "sfp", "gdp", "spline"])
def test_a_tenth_of_vgg16_still_tells_inputs_apart(name: str) -> None:
    small = {
        "slimming-iterative": {"n_rounds": 2},
        "gdp": {"batches": 2},
        "early-bird": {"window": 2, "threshold": 1.0},
    }
    method = resolve_method(name, small.get(name, {}), Budget(0.1))[1]
    here = context("vgg", residual=method.residual, refit=None if method.refit == "none" else method.refit)
    outcome = prune(here, name, method, Budget(0.1))
    assert outcome.ticket.achieved.kept == round(0.1 * outcome.ticket.achieved.of)
    assert not emptied(outcome.ticket.keep) and min(int(k.sum()) for k in outcome.ticket.keep.values()) >= 1
    example = here.probe()
    with torch.no_grad():
        logits = outcome.final.model.train()(example)  # batch statistics: two epochs are too few for running ones
    assert logits.isfinite().all() and logits.std(0).max() > 1e-4


@pytest.mark.parametrize("method", [Slimming(), SlimmingIterative(n_rounds=2)], ids=["once", "rounds"])
def test_without_a_floor_slimming_empties_layers_of_vgg16_and_says_so(method: Slimming) -> None:
    here = context("vgg", epochs=1, plan=TrainingConfig(epochs=1, batch_size=24, optimizer=Optimizer(lr=1e-4)))

    def with_late_scales_small(seed: int, build: Any = here.build) -> nn.Module:
        model = build(seed)
        norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
        for depth, norm in enumerate(norms):  # as the penalty leaves deep layers of little use
            norm.weight.data = (
                torch.rand(norm.weight.shape, generator=torch.Generator().manual_seed(depth)) * 0.8**depth
            )
        return model

    here = replace(here, build=with_late_scales_small)
    seen: list[nn.Module] = []
    outcome = prune(here, "slimming", method, Budget(0.1, floor=0), see=seen.append)
    gone = pruning_facts(outcome, None)["emptied"]
    assert gone and gone == [name for name, kept in outcome.ticket.keep.items() if not kept.any()]
    assert "layer collapse: nothing is left of" in said(here) and gone[0] in said(here)
    with torch.no_grad():
        logits = seen[0].eval()(here.probe())
    assert torch.equal(logits, logits[:1].expand_as(logits))  # one answer for every input


def test_bad_options_are_refused_in_one_line() -> None:
    for bad, message in (
        (lambda: Slimming(l1=-1.0), "l1 of Slimming must be at least 0, got -1.0"),
        (lambda: EarlyBirdTicket(window=1), "window of EarlyBirdTicket must be at least 2, got 1"),
        (lambda: EarlyBirdTicket(threshold=2.0), "threshold of EarlyBirdTicket must be in"),
        (lambda: Spline(n_rounds=0), "n_rounds of Spline must be at least 1, got 0"),
        (lambda: Spline(between_epochs=-1), "between_epochs of Spline must be at least 0, got -1"),
    ):
        with pytest.raises(InputError, match=message.replace("(", r"\(")):
            bad()
