"""Models by name, each with a width, an activation and the shape of the input it takes.

One module a family, and the catalogue. Layers that pruning adds are in `networks.layers`; no model needs a case of its
own anywhere else in the package.
"""

from splinecut.networks.layers import Select as Select
from splinecut.networks.models.catalogue import MODELS as MODELS
from splinecut.networks.models.catalogue import build as build
from splinecut.networks.models.catalogue import check_input as check_input
from splinecut.networks.models.catalogue import describe as describe
