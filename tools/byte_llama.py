"""What the tools/train_*.py share: the byte-level Llama in PyTorch, its training loop, its files.

Token i < 256 is the byte i; 256 begins a text, 257 ends it, 258 pads, and 259 is unused. A model's directory
loads in `transformers` as LlamaForCausalLM. Needs PyTorch.
"""
import argparse
import json
import math
import pathlib
import time

import torch
import torch.nn.functional as F
from torch import nn

from safetensors_io import decoder_shapes, read_bf16, write_bf16, write_configs

EPS, THETA, POSITIONS = 1e-5, 10000.0, 2048
BYTES = 256


def config_of(hidden, layers, heads, kv_heads, head_dim, ffn):
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "vocab_size": 260, "byte_vocabulary": True, "hidden_size": hidden,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "head_dim": head_dim, "intermediate_size": ffn, "hidden_act": "silu",
        "max_position_embeddings": POSITIONS, "rms_norm_eps": EPS, "rope_theta": THETA,
        "rope_scaling": None, "attention_bias": False, "mlp_bias": False,
        "attention_dropout": 0.0, "initializer_range": 0.02, "tie_word_embeddings": True,
        "bos_token_id": 256, "eos_token_id": 257, "pad_token_id": 258,
        "torch_dtype": "bfloat16", "use_cache": True,
    }


class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), EPS)


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


def rotate(x, cos, sin):
    """Rotates value i with value i + head_dim / 2, as Llama does."""
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, self.head_dim = config["hidden_size"], config["head_dim"]
        heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.shared_by = heads // kv_heads
        self.q_proj = linear(hidden, heads * self.head_dim)
        self.k_proj = linear(hidden, kv_heads * self.head_dim)
        self.v_proj = linear(hidden, kv_heads * self.head_dim)
        self.o_proj = linear(heads * self.head_dim, hidden)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape

        def heads(y):
            return y.view(batch, length, -1, self.head_dim).transpose(1, 2)

        q = rotate(heads(self.q_proj(x)), cos, sin)
        k = rotate(heads(self.k_proj(x)), cos, sin)
        v = heads(self.v_proj(x))
        k, v = (y.repeat_interleave(self.shared_by, dim=1) for y in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, -1))


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, ffn = config["hidden_size"], config["intermediate_size"]
        self.gate_proj = linear(hidden, ffn)
        self.up_proj = linear(hidden, ffn)
        self.down_proj = linear(ffn, hidden)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden = config["hidden_size"]
        self.input_layernorm, self.post_attention_layernorm = Norm(hidden), Norm(hidden)
        self.self_attn, self.mlp = Attention(config), Mlp(config)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Parameter names are those of the checkpoint, without `model.`."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        layers, head_dim = config["num_hidden_layers"], config["head_dim"]
        self.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.ModuleList(Layer(config) for _ in range(layers))
        self.norm = Norm(config["hidden_size"])
        frequency = THETA ** (-torch.arange(0, head_dim, 2) / head_dim)
        angle = torch.arange(POSITIONS)[:, None] * frequency
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                last = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(parameter, 0, 0.02 / math.sqrt(2 * layers) if last else 0.02)

    def hidden(self, tokens):
        """What the head reads: the last layer's output after the last norm."""
        x = self.embed_tokens(tokens)
        if torch.is_autocast_enabled(tokens.device.type):
            x = x.bfloat16()
        length = tokens.shape[1]
        cos, sin = self.cos[:length].to(x.dtype), self.sin[:length].to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)

    def logits(self, hidden):
        return F.linear(hidden, self.embed_tokens.weight)

    def forward(self, tokens):
        return self.logits(self.hidden(tokens))


def load(directory):
    """The model of a directory; it is only evaluated."""
    directory = pathlib.Path(directory)
    model = Decoder(json.loads((directory / "config.json").read_text()))
    tensors = {name: torch.frombuffer(data, dtype=torch.bfloat16).view(shape).float()
               for name, (shape, data) in read_bf16(directory / "model.safetensors").items()}
    model.load_state_dict({name.removeprefix("model."): tensor for name, tensor in tensors.items()})
    return model.requires_grad_(False)


def round_to_bf16(module):
    """What is judged after the training is what is written."""
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(p.bfloat16().float())


def write_tensors(path, named, shapes):
    """Writes (name, tensor) pairs; `shapes` says in which order, and of which shapes they must be."""
    weights = {name: p.detach().bfloat16().cpu() for name, p in named}
    assert {name: tuple(w.shape) for name, w in weights.items()} == shapes
    write_bf16(path, shapes, lambda name, shape: [weights[name].contiguous().view(torch.int16).numpy().tobytes()])
    print(f"wrote {path}: {path.stat().st_size:,} bytes")


def write(directory, model):
    write_configs(directory, model.config, model.config["eos_token_id"])
    write_tensors(directory / "model.safetensors", (("model." + name, p) for name, p in model.named_parameters()),
                  decoder_shapes(model.config))


def parser_of(doc, **defaults):
    """The options that all trainings have."""
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=7000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64, help="windows per step")
    parser.add_argument("--length", type=int, default=512, help="bytes per window")
    parser.add_argument("--lr", type=float, default=2e-3, help="highest learning rate")
    parser.add_argument("--max-seconds", type=float, default=0,
                        help="shorten the schedule to this time (0: no limit)")
    parser.set_defaults(**defaults)
    return parser


class Text:
    """The bytes of --text on the device, a part of them held out."""

    def __init__(self, args):
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.manual_seed(args.seed)
        torch.set_float32_matmul_precision("high")
        raw = torch.frombuffer(bytearray(args.text.read_bytes()), dtype=torch.uint8).to(self.device)
        # The middle hundredth is held out; both ends of the book are well known.
        begin, end = int(len(raw) * 0.50), int(len(raw) * 0.51)
        self.seen, self.held_out = torch.cat((raw[:begin], raw[end:])), raw[begin:end]
        self.length = args.length
        self.generator = torch.Generator(device=self.device).manual_seed(args.seed)

    def cast(self):
        return torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda")

    def windows(self, part, starts):
        """A byte more than --length each: the last one is only guessed."""
        return part[starts[:, None] + torch.arange(self.length + 1, device=self.device)].long()

    def some(self, part, count):
        return self.windows(part, torch.randint(len(part) - self.length - 1, (count,), device=self.device,
                                                generator=self.generator))

    def spread(self, part, step):
        """Windows over all of a part, in lots."""
        starts = torch.arange(0, len(part) - self.length - 1, step, device=self.device)
        return (self.windows(part, lot) for lot in starts.split(32) if len(lot))

    @torch.no_grad()
    def mean(self, values_of, lots):
        """The mean over the lots of what `values_of` gives for each."""
        with self.cast():
            values = [values_of(lot) for lot in lots]
        return torch.tensor(values).mean(0).tolist()


def train(module, loss_of, held_out, text, args):
    """Minimises `loss_of()`; `held_out()` is printed now and then."""
    matrices = [p for p in module.parameters() if p.dim() == 2]
    vectors = [p for p in module.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=args.lr, betas=(0.9, 0.95), fused=text.device == "cuda")
    warmup = min(300, args.steps // 10 + 1)
    start = time.time()
    for step in range(args.steps):
        # With a time limit, the schedule ends when the time does.
        elapsed = time.time() - start
        progress = step / args.steps
        if args.max_seconds:
            progress = max(progress, elapsed / args.max_seconds)
        if progress >= 1:
            print(f"step {step:6}  the time is over", flush=True)
            break
        rate = args.lr * min(1.0, (step + 1) / warmup)
        rate *= 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress))
        for group in optimizer.param_groups:
            group["lr"] = rate
        with text.cast():
            loss = loss_of()
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        # Reading the loss waits for the device, so it is read rarely.
        if step % 250 == 0 or step == args.steps - 1:
            print(f"step {step:6}  loss {loss.item():.4f}  rate {rate:.2e}  "
                  f"{time.time() - start:6.1f} s", flush=True)
        if step and step % 2000 == 0:
            print(f"step {step:6}  held out {held_out()}", flush=True)


@torch.no_grad()
def continue_text(model, prompt, count, length):
    tokens = list(prompt.encode())
    device = model.embed_tokens.weight.device
    for _ in range(count):
        logits = model(torch.tensor([tokens[-length:]], device=device))
        tokens.append(int(logits[0, -1, :BYTES].argmax()))
    return bytes(tokens).decode(errors="replace")
