#!/usr/bin/env python3
"""Writes a tokenizer of the demo model's bytes into FOLDER, as `transformers` reads it: byte_tokenizer.py FOLDER.

The demo model has a byte vocabulary and no tokenizer. Programs that count tokens by themselves need one.
"""

import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode


def write(folder):
    vocabulary = {char: byte for byte, char in bytes_to_unicode().items()}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>").save_pretrained(folder)


if __name__ == "__main__":
    write(sys.argv[1])
