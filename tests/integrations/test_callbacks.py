"""Early-bird detection in real trainings of Lightning and of transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from splinecut.pruning.detect import EarlyBird

POINTS = torch.randn(256, 2, generator=torch.Generator().manual_seed(0))
LABELS = (POINTS[:, 0] * POINTS[:, 1] > 0).long()


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))


@pytest.mark.parametrize("every", ["epoch", 4])
def test_lightning_stops_where_the_plain_loop_would(tmp_path: Path, every: object) -> None:
    lightning = pytest.importorskip("lightning.pytorch", reason="needs the extra splinecut[lightning]")
    from splinecut.integrations.lightning import EarlyBirdCallback

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def training_step(self, batch: list[Tensor], _: int) -> Tensor:
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.05)

    detector = EarlyBird(POINTS[:64], every=every)
    trainer = lightning.Trainer(
        max_epochs=20,
        callbacks=[EarlyBirdCallback(detector, network="net")],
        default_root_dir=tmp_path,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Module()
    trainer.fit(module, DataLoader(TensorDataset(POINTS, LABELS), batch_size=32))
    plain = EarlyBird(POINTS[:64], every=every)
    assert detector.verdict.drawn
    assert trainer.current_epoch == plain_loop(plain)
    assert detector.verdict == plain.verdict
    assert trainer.callback_metrics["spline_distance"] == pytest.approx(plain.verdict.distance)


def plain_loop(detector: EarlyBird) -> int:
    """Epochs until `bird` is drawn in a hand-written loop over the same batches."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(20):
        for x, y in DataLoader(TensorDataset(POINTS, LABELS), batch_size=32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            if detector.every != "epoch" and detector.observe(model).drawn:
                return epoch + 1
        if detector.every == "epoch" and detector.observe(model).drawn:
            return epoch + 1
    return 20


def test_transformers_stops_once_drawn(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs the extra splinecut[transformers]")
    pytest.importorskip("accelerate", reason="needs the extra splinecut[transformers]")
    from splinecut.integrations.transformers import EarlyBirdCallback

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
            logits = self.net(x)
            return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    class Rows(Dataset[dict[str, Tensor]]):
        def __len__(self) -> int:
            return len(POINTS)

        def __getitem__(self, i: int) -> dict[str, Tensor]:
            return {"x": POINTS[i], "labels": LABELS[i]}

    detector = EarlyBird(POINTS[:64])
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        num_train_epochs=20,
        learning_rate=1e-3,
        per_device_train_batch_size=32,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(
        model=Model(), args=arguments, train_dataset=Rows(), callbacks=[EarlyBirdCallback(detector, network="net")]
    )
    trainer.train()
    assert detector.verdict.drawn
    assert trainer.state.epoch == len(detector.seen) < 20
