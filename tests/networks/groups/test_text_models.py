"""Networks that read token ids, several arguments, or half precision: the default method and the refit take them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import splinecut as sc
from splinecut.pruning.refit.batch_norms import recalibrate


def bert() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=16,
    )
    return transformers.BertModel(config).eval()


IDS = torch.randint(0, 50, (12, 8), generator=torch.Generator().manual_seed(1))
MASK = torch.ones_like(IDS)


@pytest.mark.parametrize("example", [IDS, (IDS, MASK)], ids=["ids", "ids and mask"])
def test_bert_is_drawn_and_refitted_by_token_ids(example: Tensor | tuple[Tensor, ...]) -> None:
    model = bert()
    ticket = sc.draw(model, example, keep=0.5)  # type: ignore[arg-type]
    smaller = sc.cut(model, ticket, refit="least_squares", probe=example)  # type: ignore[arg-type]
    arguments = example if isinstance(example, tuple) else (example,)
    out = smaller(*arguments).last_hidden_state
    assert out.shape[:2] == IDS.shape and out.isfinite().all()
    assert ticket.achieved.kept == round(0.5 * ticket.achieved.of)


class Gated(nn.Module):
    """Two arguments with rows of their own, and a third that has none."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Linear(12, 3)

    def forward(self, x: Tensor, gate: Tensor, scale: Tensor) -> Tensor:
        return self.second(self.norm(self.first(x)).relu() * gate) * scale


def test_a_tuple_is_split_where_it_has_rows_and_passed_whole_where_not() -> None:
    torch.manual_seed(0)
    model = Gated().eval()
    probe = (torch.randn(100, 6), torch.rand(100, 1), torch.full((1,), 2.0))
    ticket = sc.draw(model, probe, keep=0.5)
    smaller = sc.cut(model, ticket, refit="least_squares", probe=probe)
    plain = sc.cut(model, ticket)
    whole = model(*probe)
    assert (smaller(*probe) - whole).square().mean() < (plain(*probe) - whole).square().mean()
    recalibrate(smaller, probe)
    assert smaller(*probe).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_any_precision_is_drawn_and_refitted(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4)).to(dtype).eval()
    probe = torch.randn(200, 6)
    ticket = sc.draw(model, probe.to(dtype), keep=0.5)
    smaller = sc.cut(model, ticket, refit="least_squares", probe=probe)  # float32: moved to the network's precision
    assert all(p.dtype == dtype and p.isfinite().all() for p in smaller.parameters())
    error = (smaller(probe.to(dtype)) - model(probe.to(dtype))).float().square().mean()
    plain = (sc.cut(model, ticket)(probe.to(dtype)) - model(probe.to(dtype))).float().square().mean()
    assert error < 0.5 * plain
