#!/usr/bin/env python3
"""Train heads that guess the tokens after the demo model's next one, and write a directory of the model with them.

    train_heads.py --text kjv.txt --model models/demo --out models/demo-heads

kjv.txt is made as in train_demo_model.py. Head k reads what the model's own head reads, the final hidden state, and
guesses the token k after the one that is next: a residual block `x + silu(W x + b)` and a projection, as in Medusa-1
(arXiv 2401.10774), with its names of tensors. The model is frozen. The heads learn the distribution that the model
has at that later place.

The directory has the heads' tensors in a file of their own, and a link to the model's file: nothing is stored twice.
Needs PyTorch; a GPU takes a few minutes.
"""
import json
import os
import pathlib

import torch
import torch.nn.functional as F
from torch import nn

from byte_llama import Text, parser_of, round_to_bf16, train, write_tensors
from demo_teacher import Teacher, accepted, divergence, percent
from safetensors_io import decoder_shapes, write_configs


class Block(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.linear = nn.Linear(hidden, hidden)
        # Such a block changes nothing at first.
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x):
        return x + F.silu(self.linear(x))


class Heads(nn.Module):
    """Parameter names are those of the checkpoint."""

    def __init__(self, count, model):
        super().__init__()
        vocab, hidden = model.embed_tokens.weight.shape
        self.medusa_head = nn.ModuleList(
            nn.Sequential(Block(hidden), nn.Linear(hidden, vocab, bias=False)) for _ in range(count))
        with torch.no_grad():
            for head in self.medusa_head:
                head[1].weight.copy_(model.embed_tokens.weight)

    def forward(self, hidden):
        return [head(hidden) for head in self.medusa_head]


def write_heads(out, heads, base):
    config = json.loads((base / "config.json").read_text())
    names = list(decoder_shapes(config))
    config |= {"architectures": ["MedusaModelLlama"], "medusa_num_heads": len(heads.medusa_head),
               "medusa_num_layers": 1}
    write_configs(out, config, config["eos_token_id"])
    write_tensors(out / "heads.safetensors", heads.named_parameters(),
                  {name: tuple(p.shape) for name, p in heads.named_parameters()})
    link = out / "base.safetensors"
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(base / "model.safetensors", out))
    places = {name: link.name for name in names} | {name: "heads.safetensors" for name, _ in heads.named_parameters()}
    (out / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": places}, indent=2) + "\n")


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--model", type=pathlib.Path, required=True, help="directory of the model")
    parser.add_argument("--heads", type=int, default=3)
    parser.add_argument("--own", type=int, default=1024, help="windows of the model's own text")
    args = parser.parse_args()
    text = Text(args)
    teacher = Teacher(args.model, text, args.own)
    heads = Heads(args.heads, teacher.model).to(text.device)
    count = sum(p.numel() for p in heads.parameters())
    print(f"{count:,} parameters, {len(text.seen):,} bytes of text, on {text.device}", flush=True)

    def pairs(windows):
        """For each head: what the model says later, and what the head guesses now."""
        hidden, logits = teacher.read(windows)
        return [(logits[:, k:], guess[:, :-k]) for k, guess in enumerate(heads(hidden), 1)]

    def judge(lots, after=0):
        shares = text.mean(lambda lot: [accepted(*pair, after) for pair in pairs(lot)], lots)
        return ", ".join(f"head {k} {percent(share)}" for k, share in enumerate(shares, 1))

    def judge_held_out():
        return judge(text.spread(text.held_out, args.length))

    train(heads, lambda: sum(divergence(*pair) for pair in pairs(teacher.some(args.batch))), judge_held_out, text,
          args)
    round_to_bf16(heads)
    print(f"right: training text {judge(text.spread(text.seen, 40 * args.length))}\nheld out {judge_held_out()}\n"
          f"the model's own text after held out prompts {judge([teacher.own_held_out], args.length // 2)}")
    write_heads(args.out, heads, args.model)


if __name__ == "__main__":
    main()
