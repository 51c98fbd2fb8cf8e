"""Applying a keep map to a network: `mask` it reversibly, or `cut` it into a smaller one; both give equal outputs."""

from splinecut.networks.surgery.cut import cut as cut
from splinecut.networks.surgery.mask import Mask as Mask
from splinecut.networks.surgery.mask import mask as mask
from splinecut.networks.surgery.mask import mask_weights as mask_weights
from splinecut.networks.surgery.save import load as load
from splinecut.networks.surgery.save import save as save
