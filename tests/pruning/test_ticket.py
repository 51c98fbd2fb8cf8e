"""Tickets that survive printing, saving, comparing and replaying."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import splinecut as sc
from splinecut.networks.cost import cost
from splinecut.networks.groups.values import BLOCKS
from splinecut.pruning.budget import select
from support.coupled_networks import make, random_scores, read


def draw(name: str, keep: float = 0.5, seed: int = 0, residual: str = "tied") -> sc.Ticket:
    groups, budget = read(name, residual), sc.Budget(keep)
    return sc.Ticket(select(random_scores(groups, seed), budget, groups), groups, "random", budget, {"seed": seed})


@pytest.mark.parametrize("name", ["vgg16", "resnext", "preresnet11", "unet"])
def test_a_ticket_achieves_what_it_reports(name: str) -> None:
    ticket = draw(name)
    model, x = make(name)
    smaller = sc.cut(model, ticket)
    assert ticket.achieved.kept == round(0.5 * read(name).n_units)
    assert ticket.achieved.parameters == sum(p.numel() for p in smaller.parameters())
    assert ticket.achieved.flops == cost(smaller, x).flops
    assert ticket.achieved.all_flops == cost(model, x).flops


@pytest.mark.parametrize(("name", "residual"), [("vgg16", "tied"), ("preresnet11", "select"), ("shufflenet", "tied")])
def test_a_ticket_comes_back_from_its_file_and_cuts_a_fresh_network_alike(
    name: str, residual: str, tmp_path: Path
) -> None:
    ticket = draw(name, residual=residual)
    again = sc.Ticket.load(ticket.save(tmp_path / "ticket.json"))
    assert again == ticket
    assert str(again) == str(ticket)
    fresh, x = make(name, seed=3)
    assert torch.equal(sc.cut(fresh, again)(x), sc.cut(fresh, ticket)(x))
    with sc.mask(fresh, again):
        assert torch.allclose(fresh(x), sc.cut(fresh, ticket)(x), atol=1e-5)


def test_a_ticket_of_channels_and_blocks_comes_back(tmp_path: Path) -> None:
    groups = read("resnet18")
    ticket = sc.Ticket({BLOCKS: np.arange(8) > 2}, groups, "first blocks out")
    again = sc.Ticket.load(ticket.save(tmp_path / "ticket.json"))
    assert again == ticket
    assert (again.kind, again.achieved.kept, again.achieved.of) == ("blocks", 5, 8)
    model, _ = make("resnet18")
    assert sum(p.numel() for p in sc.cut(model, again).parameters()) == again.achieved.parameters


def test_a_ticket_of_weights_comes_back_one_bit_each(tmp_path: Path) -> None:
    keep = {"0.weight": np.random.default_rng(0).random((9, 4)) < 0.5, "2.weight": np.ones((7, 9), bool)}
    ticket = sc.Ticket(keep, method="magnitude", budget=sc.Budget(0.5, of="weights"))
    path = ticket.save(tmp_path / "ticket.safetensors")
    assert sc.Ticket.load(path) == ticket
    assert path.stat().st_size < 1200
    model, _ = make("mlp")
    with sc.mask(model, ticket):
        assert np.array_equal(model[0].weight.detach().numpy() != 0, keep["0.weight"])
    with pytest.raises(sc.InputError, match=r"apply it with sc\.mask"):
        sc.cut(model, ticket)


def test_a_ticket_prints_its_budget_counts_and_costs() -> None:
    text = str(draw("mlp"))
    assert text.splitlines()[0] == "ticket of random: keep 0.5 of channels, global, floor 1"
    assert "keeps 8 of 16 channels (50.0%)" in text
    assert "parameters" in text
    assert "FLOPs" in text


def test_distance_is_the_share_of_units_that_differ() -> None:
    a = draw("mlp")
    name = next(name for name, kept in a.keep.items() if kept.any() and not kept.all())
    kept = a.keep[name].copy()
    kept[[np.flatnonzero(kept)[0], np.flatnonzero(~kept)[0]]] ^= True
    b = sc.Ticket({**a.keep, name: kept}, a.groups, a.method, a.budget, a.options)
    assert a.distance(b) == b.distance(a) == 2 / 16
    assert a.distance(a) == 0
    assert a != b
    with pytest.raises(sc.InputError, match="same units"):
        a.distance(draw("vgg16"))


@settings(derandomize=True, deadline=None, max_examples=10)
@given(seeds=st.tuples(*[st.integers(0, 99)] * 3))
def test_distance_is_a_metric(seeds: tuple[int, int, int]) -> None:
    tickets = [draw("vgg16", seed=seed) for seed in seeds]
    for a, b, c in itertools.permutations(tickets):
        assert a.distance(c) <= a.distance(b) + b.distance(c) + 1e-12
        assert (a.distance(b) == 0) == all(np.array_equal(a.keep[n], b.keep[n]) for n in a.keep)


def test_a_ticket_cannot_be_altered() -> None:
    ticket = draw("mlp")
    with pytest.raises(ValueError, match="read-only"):
        ticket.keep["0"][0] = True


def test_groups_a_ticket_does_not_name_stay_whole() -> None:
    ticket = sc.Ticket({"0": np.arange(9) > 3}, read("mlp"))
    assert ticket.keep["2"].all()


def test_tickets_do_not_fit_other_networks_and_say_so(tmp_path: Path) -> None:
    with pytest.raises(sc.InputError, match="apply the ticket to"):
        draw("vgg16").check(make("mlp")[0])
    with pytest.raises(sc.InputError, match="did you mean 'features"):
        sc.Ticket({"feature.0": np.ones(4)}, read("vgg16"))
    with pytest.raises(sc.InputError, match=r"use ticket\.json"):
        draw("mlp").save(tmp_path / "ticket.pt")


def test_files_that_are_no_tickets_are_refused(tmp_path: Path) -> None:
    path = draw("mlp").save(tmp_path / "ticket.json")
    body = json.loads(path.read_text())
    path.write_text(json.dumps(body | {"schema": 99}))
    with pytest.raises(sc.InputError, match="schema 99, expected 1"):
        sc.Ticket.load(path)
    path.write_text("{")
    with pytest.raises(sc.InputError, match=r"write one with Ticket\.save"):
        sc.Ticket.load(path)
    with pytest.raises(sc.InputError, match="cannot be read"):
        sc.Ticket.load(tmp_path / "absent.safetensors")
