"""Models by name, each with a width, an activation and the shape of the input it takes."""

from splinecut.networks.layers import Select as Select
from splinecut.networks.models.catalogue import MODELS as MODELS
from splinecut.networks.models.catalogue import build as build
from splinecut.networks.models.catalogue import check_input as check_input
from splinecut.networks.models.catalogue import describe as describe
