#!/usr/bin/env python3
"""Train the byte-level demo model and write it in Hugging Face format.

    bible -f -l 100000 gen1:1-rev22:21 | sed 's/^[^ ]* //' > kjv.txt
    train_demo_model.py --text kjv.txt --out models/demo --steps 7000 --seed 1

`bible` comes from Debian's package `bible-kjv` (text: `bible-kjv-text`, public
domain); the second command drops the verse numbers and leaves a verse a line.

The model is a Llama whose token i < 256 is the byte i; 256 begins a text, 257 ends
it, 258 pads, and 259 is unused. The directory loads in `transformers` as
LlamaForCausalLM. Needs PyTorch; a GPU takes a few minutes.
"""
import argparse
import math
import pathlib
import time

import torch
import torch.nn.functional as F
from torch import nn

from safetensors_io import decoder_shapes, write_bf16, write_configs

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "vocab_size": 260, "byte_vocabulary": True, "hidden_size": 256,
    "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4,
    "head_dim": 32, "intermediate_size": 704, "hidden_act": "silu",
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "rope_scaling": None, "attention_bias": False, "mlp_bias": False,
    "attention_dropout": 0.0, "initializer_range": 0.02, "tie_word_embeddings": True,
    "bos_token_id": 256, "eos_token_id": 257, "pad_token_id": 258,
    "torch_dtype": "bfloat16", "use_cache": True,
}
HIDDEN, HEADS, KV_HEADS = 256, 8, 4
HEAD_DIM, FFN, EPS = 32, 704, 1e-5


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x):
        return F.rms_norm(x, (HIDDEN,), self.weight.to(x.dtype), EPS)


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


def rotate(x, cos, sin):
    """Rotates value i with value i + head_dim / 2, as Llama does."""
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = linear(HIDDEN, HEADS * HEAD_DIM)
        self.k_proj = linear(HIDDEN, KV_HEADS * HEAD_DIM)
        self.v_proj = linear(HIDDEN, KV_HEADS * HEAD_DIM)
        self.o_proj = linear(HEADS * HEAD_DIM, HIDDEN)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape

        def heads(y):
            return y.view(batch, length, -1, HEAD_DIM).transpose(1, 2)

        q = rotate(heads(self.q_proj(x)), cos, sin)
        k = rotate(heads(self.k_proj(x)), cos, sin)
        v = heads(self.v_proj(x))
        k, v = (y.repeat_interleave(HEADS // KV_HEADS, dim=1) for y in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, -1))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = linear(HIDDEN, FFN)
        self.up_proj = linear(HIDDEN, FFN)
        self.down_proj = linear(FFN, HIDDEN)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(), Norm()
        self.self_attn, self.mlp = Attention(), Mlp()

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Parameter names are those of the checkpoint, without `model.`."""

    def __init__(self, layers, length):
        super().__init__()
        self.embed_tokens = nn.Embedding(CONFIG["vocab_size"], HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.norm = Norm()
        frequency = CONFIG["rope_theta"] ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        angle = torch.arange(length)[:, None] * frequency
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                last = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(parameter, 0, 0.02 / math.sqrt(2 * layers) if last else 0.02)

    def forward(self, tokens):
        x = self.embed_tokens(tokens)
        if torch.is_autocast_enabled(tokens.device.type):
            x = x.bfloat16()
        length = tokens.shape[1]
        cos, sin = self.cos[:length].to(x.dtype), self.sin[:length].to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.linear(self.norm(x), self.embed_tokens.weight)


def loss_of(model, text, starts, length):
    window = text[starts[:, None] + torch.arange(length + 1, device=text.device)].long()
    logits = model(window[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1).float(), window[:, 1:].flatten())


@torch.no_grad()
def held_out_loss(model, text, length, cast):
    starts = torch.arange(0, len(text) - length - 1, length, device=text.device)
    with cast():
        losses = [loss_of(model, text, part, length).item() for part in starts.split(32)
                  if len(part)]
    return sum(losses) / len(losses)


@torch.no_grad()
def continue_text(model, prompt, count, length):
    tokens = list(prompt.encode())
    device = model.embed_tokens.weight.device
    for _ in range(count):
        logits = model(torch.tensor([tokens[-length:]], device=device))
        tokens.append(int(logits[0, -1, :256].argmax()))
    return bytes(tokens).decode(errors="replace")


def train(model, text, held_out, args, cast):
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=args.lr, betas=(0.9, 0.95), fused=text.is_cuda)
    warmup = min(300, args.steps // 10 + 1)
    generator = torch.Generator(device=text.device).manual_seed(args.seed)
    start = time.time()
    for step in range(args.steps):
        # With a time limit, the schedule ends when the time does.
        elapsed = time.time() - start
        progress = step / args.steps
        if args.max_seconds:
            progress = max(progress, elapsed / args.max_seconds)
        if progress >= 1:
            break
        rate = args.lr * min(1.0, (step + 1) / warmup)
        rate *= 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress))
        for group in optimizer.param_groups:
            group["lr"] = rate
        starts = torch.randint(len(text) - args.length - 1, (args.batch,),
                               device=text.device, generator=generator)
        with cast():
            loss = loss_of(model, text, starts, args.length)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        # Reading the loss waits for the device, so it is read rarely.
        if step % 250 == 0 or step == args.steps - 1:
            print(f"step {step:6}  loss {loss.item():.4f}  rate {rate:.2e}  "
                  f"{time.time() - start:6.1f} s", flush=True)
        if step and step % 2000 == 0:
            print(f"step {step:6}  held out "
                  f"{held_out_loss(model, held_out, args.length, cast):.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=7000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64, help="windows per step")
    parser.add_argument("--length", type=int, default=512, help="bytes per window")
    parser.add_argument("--lr", type=float, default=2e-3, help="highest learning rate")
    parser.add_argument("--max-seconds", type=float, default=0,
                        help="shorten the schedule to this time (0: no limit)")
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")

    def cast():
        return torch.autocast(device, torch.bfloat16, enabled=device == "cuda")

    raw = torch.frombuffer(bytearray(args.text.read_bytes()), dtype=torch.uint8).to(device)
    # The middle hundredth is held out; both ends of the book are well known.
    begin, end = int(len(raw) * 0.50), int(len(raw) * 0.51)
    text, held_out = torch.cat((raw[:begin], raw[end:])), raw[begin:end]
    layers = CONFIG["num_hidden_layers"]
    model = Decoder(layers, 2048).to(device)
    count = sum(p.numel() for p in model.parameters())
    print(f"{count:,} parameters, {len(text):,} bytes of text, on {device}", flush=True)
    train(model, text, held_out, args, cast)

    # What is judged below is what is written: weights rounded to bf16.
    weights = {"model." + name: p.detach().bfloat16().cpu()
               for name, p in model.named_parameters()}
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.bfloat16().float())
    sample = torch.arange(0, len(text) - args.length - 1, 40 * args.length, device=device)
    with torch.no_grad(), cast():
        seen = [loss_of(model, text, part, args.length).item() for part in sample.split(32)]
    print(f"final loss in nats per byte: training text {sum(seen) / len(seen):.4f}, held out "
          f"{held_out_loss(model, held_out, args.length, cast):.4f}")

    shapes = decoder_shapes(CONFIG)
    assert {name: tuple(w.shape) for name, w in weights.items()} == shapes
    write_configs(args.out, CONFIG, CONFIG["eos_token_id"])
    write_bf16(args.out / "model.safetensors", shapes,
               lambda name, shape: [weights[name].contiguous().view(torch.int16).numpy().tobytes()])
    print(f"wrote {args.out}: {(args.out / 'model.safetensors').stat().st_size:,} bytes")
    for prompt in ("In the beginning ", "And Moses said unto ", "The LORD is my ",
                   "Now it came to pass "):
        print("---\n" + continue_text(model, prompt, 160, 512))


if __name__ == "__main__":
    main()
