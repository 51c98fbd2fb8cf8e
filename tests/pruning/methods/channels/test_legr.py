"""LeGR: what its ranking is invariant to, what its search promises, and that one search serves every budget."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from splinecut.errors import InputError
from splinecut.networks.groups.read import groups as read_groups
from splinecut.networks.groups.values import Groups
from splinecut.pruning.budget import Budget, select
from splinecut.pruning.engine.context import RunContext
from splinecut.pruning.engine.driver import prune
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.method import NO_RETRAINING, Round
from splinecut.pruning.methods.channels.baselines import L2
from splinecut.pruning.methods.channels.legr import LeGR, Ranking, evolve, identity, lifted, squared_norms
from support.contexts import NETWORKS, context, with_validation

SMALL = LeGR(candidates=8, population=4, tournament=2, steps=3, batch_size=32)
HALF = Budget(0.5, "flops")
SQUARES = {"a": np.array([4.0, 1.0, 9.0]), "b": np.array([0.5, 0.25])}


def evidence(there: RunContext) -> Evidence:
    return there.evidence(there.build(0), SMALL)


def order(scores: dict[str, np.ndarray]) -> list[int]:
    return np.argsort(-np.concatenate(list(scores.values())), kind="stable").tolist()


def test_a_rank_worked_by_hand() -> None:
    ranks = Ranking(np.array([2.0, 8.0]), np.array([-1.0, 3.0])).scores(SQUARES)
    assert ranks["a"].tolist() == [7.0, 1.0, 17.0] and ranks["b"].tolist() == [7.0, 5.0]


@pytest.mark.parametrize("network", NETWORKS)
def test_one_and_zero_rank_as_the_l2_norm_does_over_all_layers(network: str) -> None:
    seen = evidence(context(network))
    budget = Budget(0.5)
    assert order(LeGR().score(seen, budget)) == order(L2().score(seen, budget))


def test_layers_tied_by_a_stream_add_their_squares() -> None:
    seen = evidence(context("resnet"))
    stem = seen.groups[0]
    assert len(stem.producers) > 1
    by_hand = sum(
        seen.model.get_parameter(made.weight).detach().double().square().sum((1, 2, 3)) for made in stem.producers
    )
    assert np.allclose(squared_norms(seen.model, seen.groups)[stem.name], by_hand, rtol=1e-12)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.integers(0, 1000), st.floats(-50, 50), st.floats(0.01, 50))
def test_a_common_shift_or_a_common_scale_changes_no_selection(seed: int, shift: float, scale: float) -> None:
    there = _three_layers()
    random = np.random.default_rng(seed)
    squares = {group.name: random.random(group.size) for group in there}
    ranking = Ranking(np.exp(random.normal(size=len(there))), random.normal(size=len(there)))
    shifted = Ranking(ranking.alpha, ranking.kappa + shift)
    scaled = Ranking(scale * ranking.alpha, scale * ranking.kappa)
    kept = [LeGR().select(one.scores(squares), HALF, there, None) for one in (ranking, shifted, scaled)]
    for other in kept[1:]:
        assert all(np.array_equal(kept[0][name], other[name]) for name in kept[0])


def test_flops_are_at_most_the_target_and_within_one_unit_of_it() -> None:
    there = _three_layers()
    random = np.random.default_rng(0)
    for keep in (0.7, 0.5, 0.3):
        budget = Budget(keep, "flops")
        kept = LeGR().select({group.name: random.random(group.size) for group in there}, budget, there, None)
        saving = max(there.flops() - there.flops({g.name: np.arange(g.size) > 0}) for g in there)
        assert keep * there.flops() - saving < there.flops(kept) <= keep * there.flops()


def test_a_tenth_of_every_layer_stays_as_long_as_the_budget_allows() -> None:
    there = _three_layers()
    scores = {group.name: np.full(group.size, float(-number)) for number, group in enumerate(there)}
    plain, guarded = (select(s, Budget(0.35, "flops"), there) for s in (scores, lifted(scores, 0.25)))
    assert min(kept.sum() / kept.size for kept in plain.values()) < 0.25
    assert min(kept.sum() / kept.size for kept in guarded.values()) >= 0.25


@functools.cache
def _three_layers() -> Groups:
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU())
    return read_groups(nn.Sequential(*net, nn.Linear(8, 3)), torch.randn(2, 6))


def distance_to(target: np.ndarray):
    return lambda ranking: float(np.abs(np.log(ranking.alpha) - target).sum() + np.abs(ranking.kappa).sum())


def test_the_best_loss_never_rises_and_beats_the_identity() -> None:
    target = np.array([1.0, -1.0, 0.5])
    method = LeGR(candidates=150, population=20, tournament=5)
    found = evolve(method, np.full(3, 0.1), distance_to(target), np.random.default_rng(0))
    assert len(found.losses) == 150
    assert distance_to(target)(found.ranking) == min(found.losses)
    assert min(found.losses) < min(found.losses[:20]) < distance_to(target)(identity(3)) + 1e-12


def test_the_last_of_the_first_generation_is_the_identity() -> None:
    seen: list[Ranking] = []
    evolve(LeGR(candidates=6, population=4), np.ones(2), lambda r: seen.append(r) or 0.0, np.random.default_rng(0))
    assert seen[3].alpha.tolist() == [1, 1] and seen[3].kappa.tolist() == [0, 0]
    assert all((one.alpha > 0).all() for one in seen)


def test_a_child_changes_a_tenth_of_the_layers_of_one_parent() -> None:
    seen: list[Ranking] = []
    evolve(LeGR(candidates=40, population=5), np.ones(20), lambda r: seen.append(r) or 0.0, np.random.default_rng(0))
    for place, child in enumerate(seen[5:], 5):
        changed = [int((child.alpha != parent.alpha).sum()) for parent in seen[:place]]
        assert min(changed) == 2


def test_a_diverging_candidate_is_only_a_bad_one() -> None:
    there = with_validation(context(epochs=1))
    wild = replace(SMALL, learning_rate=1e12, candidates=2, population=2)
    found = wild.search(there, there.build(0), Round(HALF))
    assert all(loss > 1e3 for loss in found.losses)


def test_the_search_is_charged_in_full_and_never_as_the_paper_counts() -> None:
    there = with_validation(context(epochs=1))
    SMALL.search(there, there.build(0), Round(HALF))
    charged = there.ledger.phases["search"]
    assert charged.images == 8 * 3 * 32 and charged.paper_flops == 0
    whole = there.flops(there.build(0))
    assert 0.4 * 3 * whole * charged.images < charged.flops <= 0.5 * 3 * whole * charged.images


def test_without_steps_candidates_are_compared_right_after_the_cut() -> None:
    there = with_validation(context(epochs=1))
    replace(SMALL, steps=0).search(there, there.build(0), Round(HALF))
    assert there.ledger.phases["search"].images == 8 * len(there.dataset.validation)


def test_a_search_is_not_made_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = replace(with_validation(context(epochs=1)), shared=tmp_path)
    found = SMALL.search(first, first.build(0), Round(HALF))
    monkeypatch.setattr(LeGR, "_loss", lambda *_: pytest.fail("it was searched again"))
    second = replace(with_validation(context(epochs=1)), shared=tmp_path)
    again = SMALL.search(second, second.build(0), Round(Budget(0.3, "flops")))
    assert again.losses == found.losses and again.ranking.key == found.ranking.key
    assert second.ledger.without_time() == first.ledger.without_time()


def test_a_search_killed_half_way_goes_on_from_what_it_knew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = with_validation(context(epochs=1))
    expected = SMALL.search(whole, whole.build(0), Round(HALF))
    monkeypatch.setattr("splinecut.pruning.engine.search_cache.EVERY", 0.0)
    real, calls = LeGR._loss, []

    def deadly(*args):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(LeGR, "_loss", deadly)
    there = replace(with_validation(context(epochs=1)), folder=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        SMALL.search(there, there.build(0), Round(HALF))
    fresh = replace(with_validation(context(epochs=1)), folder=tmp_path)
    found = SMALL.search(fresh, fresh.build(0), Round(HALF))
    assert found.losses == expected.losses and len(calls) == 8 + 1  # the one that was interrupted is done again
    assert fresh.ledger.without_time() == whole.ledger.without_time()


@pytest.mark.parametrize("network", NETWORKS)
def test_it_prunes_every_architecture(network: str) -> None:
    there = with_validation(context(network, epochs=1))
    method = replace(SMALL, candidates=3, population=2, steps=1)
    outcome = prune(there, "legr", method, HALF, recovery=NO_RETRAINING)
    achieved = outcome.ticket.achieved
    assert there.flops(outcome.final.model) == achieved.flops <= 0.5 * achieved.all_flops
    assert outcome.final.model.eval()(there.probe(4)).isfinite().all()


def test_without_validation_images_it_says_what_to_do() -> None:
    there = context("vgg")
    with pytest.raises(InputError, match=r"set data\.validation"):
        SMALL.search(there, there.build(0), Round(HALF))


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(InputError, match="candidates of LeGR must be at least 1"):
        LeGR(candidates=0)
    with pytest.raises(InputError, match=r"search_keep of LeGR must be in \(0, 1\]"):
        LeGR(search_keep=1.5)
