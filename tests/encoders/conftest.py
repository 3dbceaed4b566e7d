"""Tiny transformers, built here so that nothing is fetched."""

from __future__ import annotations

from pathlib import Path

import pytest

WORDS = ["the", "a", "dog", "cat", "house", "good", "bad", "was", "is", "and", "not", "very"]
WORDS += ["##s", "##ly", "red", "blue", ",", ".", "!", "?"]


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plain Hugging Face folder (no pooling written anywhere): random BERT of two layers."""
    return build_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def bare_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a tokenizer that adds no special tokens, so that '' has no token at all."""
    return build_tiny(tmp_path_factory.mktemp("bare"), special=False)


def build_tiny(folder: Path, special: bool = True) -> Path:
    """Save a random two-layer BERT of 32 dimensions that reads 24 tokens, as safetensors."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    tokenizer = Tokenizer(
        models.WordPiece({w: i for i, w in enumerate(vocabulary)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if special:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
    names = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=24,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **{f"{kind}_token": token for kind, token in names.items()},
    ).save_pretrained(folder)
    torch.manual_seed(0)
    BertModel(
        BertConfig(
            vocab_size=len(vocabulary),
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=24,
            initializer_range=0.3,
        )
    ).save_pretrained(folder)
    return folder
