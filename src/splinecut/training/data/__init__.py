"""Data sets as a value with three splits: embedded, generated, from a folder or from the Hugging Face Hub.

Reading, splitting, batch order and augmentation belong here; what a network does with a batch belongs in `training`.
"""

from splinecut.training.data.catalogue import DATA as DATA
from splinecut.training.data.catalogue import load as load
from splinecut.training.data.dataset import DataSet as DataSet
from splinecut.training.data.dataset import Split as Split
from splinecut.training.data.streamed_split import StreamedSplit as StreamedSplit
from splinecut.training.data.tensor_split import TensorSplit as TensorSplit
