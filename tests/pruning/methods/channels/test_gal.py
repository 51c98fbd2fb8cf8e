"""GAL: its optimiser against closed forms, mask 0 against removal, its adversary, and the bisection to a budget."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from splinecut.errors import InputError
from splinecut.networks import models, surgery
from splinecut.networks.groups.read import groups as read_groups
from splinecut.networks.groups.values import BLOCKS
from splinecut.pruning.budget import Budget
from splinecut.pruning.engine.driver import prune
from splinecut.pruning.method import NO_RETRAINING, Round
from splinecut.pruning.methods.channels.gal.adversary import Adversary, build_discriminator, discriminator_loss
from splinecut.pruning.methods.channels.gal.method import GAL, MaskSearch, kept_share
from splinecut.pruning.methods.channels.gal.soft_masks import Fista, SoftMasked
from splinecut.training.devices import SINGLE_PROCESS
from support.contexts import NETWORKS, context

SMALL = GAL(trials=3, batch_size=32, share=1.0)
HALF = Budget(0.5, "flops")


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.floats(0.2, 5), st.floats(-3, 3), st.floats(0, 2))
def test_fista_solves_a_lasso_in_one_dimension_to_its_closed_form(curvature: float, target: float, lam: float) -> None:
    """min over x >= 0 of curvature/2 (x - target)^2 + lam x  is  max(0, target - lam / curvature)."""
    at = Fista.of({"x": torch.ones(1, dtype=torch.float64)})
    for _ in range(400):
        at = at.step({"x": curvature * (at.ahead["x"] - target)}, 1 / curvature, lam)
    assert abs(float(at.value["x"]) - max(0.0, target - lam / curvature)) < 1e-9


def test_fista_converges_as_the_square_of_the_steps_on_an_ill_conditioned_lasso() -> None:
    """Beck & Teboulle (2009), Theorem 4.4: F(x_k) - F* <= 2 L |x_0 - x*|^2 / (k + 1)^2; gradient descent is slower."""
    curvature = torch.logspace(-3, 0, 20, dtype=torch.float64)
    best = torch.linspace(0, 1, 20, dtype=torch.float64)
    lam, rate = 0.0, 1.0

    def excess(x: torch.Tensor) -> float:
        return float((curvature / 2 * (x - best).square()).sum())

    fista, plain = Fista.of({"x": torch.ones(20).double()}), torch.ones(20).double()
    start = float((plain - best).square().sum())
    for k in range(1, 200):
        fista = fista.step({"x": curvature * (fista.ahead["x"] - best)}, rate, lam)
        plain = (plain - rate * (curvature * (plain - best) + lam)).clamp_min(0)
        assert excess(fista.value["x"]) <= 2 * start / (k + 1) ** 2
    assert excess(fista.value["x"]) < 0.2 * excess(plain)


def test_three_steps_of_fista_worked_by_hand() -> None:
    at = Fista.of({"x": torch.ones(1, dtype=torch.float64)})
    values = []
    for _ in range(3):
        at = at.step({"x": torch.zeros(1, dtype=torch.float64)}, 0.1, 1.0)
        values.append(float(at.value["x"]))
    t2 = (1 + math.sqrt(5)) / 2
    t3 = (1 + math.sqrt(1 + 4 * t2**2)) / 2
    # The first two steps have no momentum (t_1 = 1); the third starts 0.1 (t_2 - 1) / t_3 further on.
    assert values == pytest.approx([0.9, 0.8, 0.7 - 0.1 * (t2 - 1) / t3])


def test_on_the_sphere_masks_keep_their_ratios_and_zeros_stay() -> None:
    at = Fista({"a": torch.tensor([3.0, 0.0, 4.0, 0.0]), "b": torch.zeros(2)}, {"a": torch.ones(4), "b": torch.ones(2)})
    scaled = at.on_the_sphere()
    assert scaled.value["a"].tolist() == pytest.approx([1.2, 0, 1.6, 0])  # root mean square 2.5
    assert scaled.ahead["a"].tolist() == pytest.approx([0.4] * 4)
    assert not scaled.value["b"].any() and (scaled.ahead["b"] == 1).all()


def masked(network: str) -> tuple[SoftMasked, torch.Tensor]:
    asked = NETWORKS[network]
    model = models.build(classes=4, seed=0, **asked).double()
    x = torch.randn(6, *asked["input_shape"], generator=torch.Generator().manual_seed(1)).double()
    for module in model.modules():  # batch norms with something to leak
        if isinstance(module, nn.BatchNorm2d):
            torch.nn.init.uniform_(module.bias, 0.1, 1)
            module.running_mean.uniform_(-0.3, 0.3)
    return SoftMasked(model.eval(), read_groups(model, x, "inner")), x


def some_zeros(student: SoftMasked, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    masks = {}
    for name, mask in student.masks.items():
        drawn = torch.rand(mask.shape, generator=generator, dtype=torch.float64)
        masks[name] = torch.where(drawn < 0.4, 0.0, 0.5 + drawn).to(mask)
        masks[name][0] = 0.7
    return masks


@pytest.mark.parametrize("network", NETWORKS)
def test_masks_of_one_change_nothing(network: str) -> None:
    student, x = masked(network)
    assert torch.equal(student(x), student.net(x))


@pytest.mark.parametrize("network", NETWORKS)
def test_removing_channels_and_blocks_of_mask_zero_is_the_masked_network(network: str) -> None:
    student, x = masked(network)
    groups = read_groups(student.net, x, "inner")
    masks = some_zeros(student)
    student.put(masks)
    expected = student(x).detach()
    keep = {name: (mask > 0).numpy() for name, mask in masks.items()}
    assert all(not kept.all() for name, kept in keep.items() if len(kept) > 4)
    cut = surgery.cut(copy.deepcopy(student).fold(), groups, keep)
    assert torch.allclose(cut(x), expected, atol=1e-9)
    assert (BLOCKS in keep) == (network in ("preresnet", "resnet"))


@pytest.mark.parametrize("network", ["preresnet", "resnet"])
def test_a_block_of_mask_zero_leaves_its_shortcut(network: str) -> None:
    student, x = masked(network)
    groups = read_groups(student.net, x, "inner")
    none = {name: torch.zeros_like(m) if name == BLOCKS else torch.ones_like(m) for name, m in student.masks.items()}
    student.put(none)
    without = surgery.cut(student.net, groups, {BLOCKS: np.zeros(len(groups.branches), bool)})
    assert torch.allclose(student(x), without(x), atol=1e-9)
    assert groups.flops({BLOCKS: np.zeros(len(groups.branches), bool)}) < 0.5 * groups.flops()


def test_mask_gradients_are_those_of_finite_differences() -> None:
    student, x = masked("preresnet")
    student.put(some_zeros(student))
    student(x).square().sum().backward()
    for name, gradient in student.gradients().items():
        for unit in (0, len(gradient) - 1):
            ends = []
            for step in (1e-6, -1e-6):
                moved = {n: m.clone() for n, m in student.masks.items()}
                moved[name][unit] += step
                other = copy.deepcopy(student)
                other.put(moved)
                ends.append(float(other(x).square().sum().detach()))
            assert float(gradient[unit]) == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4, abs=1e-6)


def test_without_strength_an_identical_student_differs_by_nothing() -> None:
    """The squared difference and its gradient are exactly 0, so no mask has a reason to move."""
    student, x = masked("vgg")
    teacher = copy.deepcopy(student.net)
    difference = nn.functional.mse_loss(student(x), teacher(x).detach())
    difference.backward()
    assert difference.detach() == 0
    assert all(not gradient.any() for gradient in student.gradients().values())
    at = Fista.of(student.masks).step(student.gradients(), 0.1, 0.0)
    assert all((mask == 1).all() for mask in at.value.values())


def test_a_discriminator_shown_identical_outputs_says_one_half() -> None:
    torch.manual_seed(0)
    critic, outputs = build_discriminator(10), torch.randn(64, 10)
    optimizer = torch.optim.SGD(critic.parameters(), 0.05, momentum=0.9)
    for _ in range(300):
        optimizer.zero_grad()
        loss = discriminator_loss(critic, outputs, outputs)
        loss.backward()
        optimizer.step()
    assert (critic(outputs).sigmoid() - 0.5).abs().max() < 0.01
    assert float(loss.detach()) == pytest.approx(math.log(2), abs=1e-4)


def test_a_discriminator_learns_to_tell_different_outputs_apart() -> None:
    torch.manual_seed(0)
    critic, outputs = build_discriminator(10), torch.randn(64, 10)
    optimizer = torch.optim.SGD(critic.parameters(), 0.05, momentum=0.9)
    for _ in range(300):
        optimizer.zero_grad()
        loss = discriminator_loss(critic, outputs, outputs + 1)
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.2


def test_no_label_is_looked_at() -> None:
    there = context(epochs=1)
    model = there.build(0)
    student = SoftMasked(copy.deepcopy(model), there.evidence(model, SMALL).groups)

    class Unlabelled(Adversary):
        def loss(self, state, outputs, targets, loss):
            return super().loss(state, outputs, None, None)

    hook = Unlabelled(model.eval(), build_discriminator(10), 0.1, 1.0, 0.01, 1, SINGLE_PROCESS)
    there.train(student, "adversarial-1", [hook])
    assert hook.fista is not None and all((mask != 1).any() for mask in hook.fista.value.values())


def test_a_huge_strength_takes_every_mask_to_zero_and_none_leaves_them() -> None:
    kept = []
    for strength in (1e4, 0.0):
        there = context(epochs=1)
        found = replace(SMALL, strength=strength).search(there, there.build(0), Round(HALF))
        kept.append([(mask > 0).mean() for mask in found.masks.values()])
        assert len(found.trials) == 1
    assert kept[0] == [0, 0] and kept[1] == [1, 1]


def test_bisection_brackets_the_budget() -> None:
    there = context(epochs=6)
    model = there.build(0)
    there.train(model, "train")
    found = replace(SMALL, trials=6, tolerance=0.05).search(there, model, Round(HALF))
    order = [share for _, share in sorted(found.trials)]
    assert order == sorted(order, reverse=True)
    groups = there.evidence(model, SMALL).groups
    nearest = min(abs(share - 0.5) for _, share in found.trials)
    assert abs(kept_share(groups, found.masks, HALF) - 0.5) == nearest < 0.2


def test_searches_for_two_budgets_have_their_first_trial_in_common_and_both_pay(tmp_path: Path) -> None:
    strict = replace(SMALL, trials=2, tolerance=1e-9)
    bills, trials = [], []
    for keep in (0.5, 0.3):
        there = context(shared=tmp_path)
        trials.append(strict.search(there, there.build(0), Round(Budget(keep, "flops"))).trials)
        bills.append(there.ledger.total.flops)
    assert trials[0][0] == trials[1][0] and len(list(tmp_path.glob("adversarial-1-*"))) == 1
    assert bills[0] == bills[1] > 0
    alone = context()
    assert strict.search(alone, alone.build(0), Round(Budget(0.3, "flops"))).trials == trials[1]
    assert alone.ledger.total.flops == bills[1]


def test_cost_is_teacher_student_and_discriminator_of_every_trial_and_not_the_papers() -> None:
    there = context(epochs=2)
    replace(SMALL, trials=2, tolerance=1e-9).search(there, there.build(0), Round(HALF))
    whole, n = there.flops(there.build(0)), 2 * len(there.dataset.train)
    critic = 2 * (10 * 128 + 128 * 256 + 256 * 128 + 128)
    for trial in ("adversarial-1", "adversarial-2"):
        assert there.ledger.phases[trial].flops == 3 * whole * n
        assert there.ledger.phases[f"{trial}: teacher"].flops == whole * n
        assert there.ledger.phases[f"{trial}: discriminator"].flops == 3 * critic * 3 * n
    assert there.ledger.total.paper_flops == 0


def test_zero_branches_go_first_and_channels_fill_the_budget() -> None:
    student, x = masked("resnet")
    groups = read_groups(student.net, x, "inner")
    random = np.random.default_rng(0)
    masks = {group.name: random.random(group.size) for group in groups}
    masks[BLOCKS] = np.ones(len(groups.branches))
    masks[BLOCKS][3] = 0
    for keep in (0.75, 0.6, 0.45):
        budget = Budget(keep, "flops")
        scores = {name: mask for name, mask in masks.items() if name != BLOCKS}
        kept = GAL().select(scores, budget, groups, MaskSearch(masks, []))
        assert np.flatnonzero(~kept[BLOCKS]).tolist() == [3]
        assert groups.flops(kept) <= keep * groups.flops()
        inside = {name for name in scores if name.startswith(groups.branches[3].name + ".")}
        assert inside and all(kept[name].all() for name in inside)
        with_one_more = []
        for name in scores.keys() - inside:
            for unit in np.flatnonzero(~kept[name])[:1]:
                more = {**kept, name: kept[name] | (np.arange(len(kept[name])) == unit)}
                with_one_more.append(groups.flops(more))
        assert keep * groups.flops() < max(with_one_more)


def test_more_zero_branches_than_the_budget_wants_gone_do_not_all_go() -> None:
    student, x = masked("resnet")
    groups = read_groups(student.net, x, "inner")
    masks = {group.name: np.ones(group.size) for group in groups} | {BLOCKS: np.zeros(len(groups.branches))}
    kept = GAL().select({g.name: masks[g.name] for g in groups}, Budget(0.8, "flops"), groups, MaskSearch(masks, []))
    assert kept[BLOCKS].any() and not kept[BLOCKS].all()
    assert 0.7 * groups.flops() < groups.flops(kept) <= 0.8 * groups.flops()


@pytest.mark.parametrize("network", NETWORKS)
def test_it_prunes_every_architecture(network: str) -> None:
    there = replace(context(network, epochs=1), residual="inner")
    method = replace(SMALL, trials=2)
    outcome = prune(there, "gal", method, Budget(0.6, "flops"), recovery=NO_RETRAINING)
    achieved = outcome.ticket.achieved
    assert there.flops(outcome.final.model) == achieved.flops <= 0.6 * achieved.all_flops
    assert outcome.final.model.eval()(there.probe(4)).isfinite().all()


def test_a_budget_of_blocks_is_met_exactly_and_refused_where_there_are_none() -> None:
    there = replace(context("resnet", epochs=1), residual="inner")
    outcome = prune(there, "gal", replace(SMALL, trials=1), Budget(0.5, "blocks"), recovery=NO_RETRAINING)
    assert outcome.ticket.keep[BLOCKS].sum() == 4
    plain = context(epochs=1)
    with pytest.raises(InputError, match="residual branches"):
        SMALL.search(plain, plain.build(0), Round(Budget(0.5, "blocks")))


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(InputError, match="mask_rate of GAL must be positive"):
        GAL(mask_rate=0)
    with pytest.raises(InputError, match="strength of GAL must be at least 0"):
        GAL(strength=-1.0)
