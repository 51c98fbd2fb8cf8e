"""Sets from the Hugging Face Hub, fetched once by its `datasets` library and kept in its cache."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from splinecut.errors import InputError
from splinecut.training.data.encoded_images import EncodedSet
from splinecut.training.data.folders import LABEL_COLUMNS, SPLITS, from_tables


def read_hub(hub_name: str) -> EncodedSet:
    """The image-classification set `owner/name`, or one configuration of it, `owner/name/configuration`."""
    # A progress bar would tear the lines of ours.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    import datasets

    owner, name, *configuration = hub_name.split("/")
    try:
        with contextlib.nullcontext() if _is_reachable() else _offline():
            fetched = datasets.load_dataset(f"{owner}/{name}", *configuration)
    except Exception as error:
        # Besides its own errors the library lets through those of every layer below it, down to the socket.
        reason = " ".join(str(error).split())[:150] or type(error).__name__
        raise InputError(
            f"cannot fetch {hub_name} from the Hugging Face Hub ({reason}); "
            "without a network, put the set in a folder and name that with --data-dir or SPLINECUT_DATA"
        ) from error
    return _from_splits({SPLITS[split]: part for split, part in fetched.items() if split in SPLITS}, hub_name)


def _is_reachable(seconds: float = 5.0) -> bool:
    """Whether the Hub's machine answers; behind a proxy we cannot tell and assume so."""
    address = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    if getproxies():
        return True
    try:
        with socket.create_connection((address.hostname or "", address.port or 443), timeout=seconds):
            return True
    except OSError:
        return False


@contextlib.contextmanager
def _offline() -> Iterator[None]:
    """`datasets` looks only into its cache, instead of retrying for half a minute."""
    from datasets import config
    from huggingface_hub import constants

    before = config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE
    config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE = before


def _from_splits(splits: dict[str, Any], hub_name: str) -> EncodedSet:
    if "train" not in splits:
        raise InputError(f"{hub_name} has no train split, got {', '.join(splits) or 'none'}; choose another set")
    features = splits["train"].features
    labelled = [features[column] for column in LABEL_COLUMNS if column in features]
    names = tuple(getattr(labelled[0], "names", None) or ()) if labelled else ()
    return from_tables({split: part.data.table for split, part in splits.items()}, hub_name, names)
