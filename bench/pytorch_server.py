#!/usr/bin/env python3
"""Serve an open loop of requests with plain PyTorch: the peer of `megalith bench --live=open-loop`.

    pytorch_server.py --shape=llama-3.2-1b --slots=16 --tokens=128 --loads=0.5,1

One loop with continuous batching: what has arrived takes a free slot and is prefilled, then all slots make
a token together. Arrivals, lengths and the JSON are those of `megalith bench`. README.md says what is measured.
"""
import argparse
import collections
import contextlib
import json
import math
import os
import time

import control_modes
import megalith
import peers
from common import fail, find_shape, progress
from weights import hash32

torch = peers.torch
STEPS = {
    "eager": "as it stands",
    "cuda-graph": "decode and prefill captured in CUDA graphs, prompts padded",
    "compile": "the same, compiled before (torch.compile, max-autotune)",
}


def open_arrivals(number, per_second, shortest, longest, seed):
    """[(seconds, tokens of the prompt)], as openArrivals in include/megalith/Tools.h."""
    at, out = 0.0, []
    for index in range(number):
        def draw(what, index=index):
            return hash32((2 * index + what) ^ hash32(seed + 1))
        out.append((at, shortest + draw(1) % (longest - shortest + 1)))
        at -= math.log((draw(0) + 0.5) / 2**32) / per_second
    return out


def spread(values):
    """Percentiles between two neighbours on the line through them; None without a value."""
    values = sorted(values)

    def at(percent):
        place = percent / 100 * (len(values) - 1)
        below, above = values[int(place)], values[min(int(place) + 1, len(values) - 1)]
        return significant(below + (above - below) * (place - int(place)))
    return {"p50": at(50), "p95": at(95), "p99": at(99), "max": significant(values[-1])} if values else None


def significant(value):
    return float(f"{value:.6g}")


class Slots:
    """A Llama or Qwen3 of transformers whose sequences stand in slots: K and V of `length` positions each, the last
    token of each, and how many positions are there."""

    def __init__(self, model, slots, length):
        config, self.device = model.config, model.device
        self.head, self.embedding, self.norm = model.lm_head, model.model.embed_tokens, model.model.norm
        self.rotary = model.model.rotary_emb
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.width = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.layers = model.model.layers
        with torch.device(self.device):
            self.joined = [(torch.cat([layer.self_attn.q_proj.weight, layer.self_attn.k_proj.weight,
                                       layer.self_attn.v_proj.weight]),
                            torch.cat([layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight])) for layer in self.layers]
            shape = (slots, self.kv_heads, length, self.width)
            self.keys = [torch.zeros(shape, dtype=model.dtype) for _ in self.layers]
            self.values = [torch.zeros(shape, dtype=model.dtype) for _ in self.layers]
            self.tokens, self.lengths, self.active = (torch.zeros(slots, dtype=torch.int64) for _ in range(3))
            self.numbers, self.positions = torch.arange(slots), torch.arange(length)
            # Of a prefill.
            self.slot, self.count = torch.zeros(1, dtype=torch.int64), torch.ones(1, dtype=torch.int64)

    def run(self, x, positions, attend):
        """[batch, tokens, hidden] through all layers. `attend`: (layer, q, k, v) -> what attention gives."""
        def normed(x, norm):
            return torch.nn.functional.rms_norm(x, x.shape[-1:], norm.weight, norm.variance_epsilon)
        batch, count, _ = x.shape
        cos, sin = self.rotary(x, positions)
        cos, sin = cos[:, None], sin[:, None]

        def rotated(x):
            first, second = x.chunk(2, -1)
            return x * cos + torch.cat([-second, first], -1) * sin
        for index, (layer, (qkv, gate_up)) in enumerate(zip(self.layers, self.joined)):
            own = torch.nn.functional.linear(normed(x, layer.input_layernorm), qkv)
            q, k, v = own.view(batch, count, -1, self.width).split([self.heads, self.kv_heads, self.kv_heads], 2)
            if hasattr(layer.self_attn, "q_norm"):
                q, k = normed(q, layer.self_attn.q_norm), normed(k, layer.self_attn.k_norm)
            q, k, v = rotated(q.transpose(1, 2)), rotated(k.transpose(1, 2)), v.transpose(1, 2)
            out = attend(index, q, k, v).transpose(1, 2).reshape(batch, count, -1)
            x = x + layer.self_attn.o_proj(out)
            gate, up = torch.nn.functional.linear(normed(x, layer.post_attention_layernorm), gate_up).chunk(2, -1)
            x = x + layer.mlp.down_proj(torch.nn.functional.silu(gate) * up)
        return normed(x, self.norm)

    def decode(self):
        """The next token of all slots, those without a request included: they stay where they are."""
        mask = (self.positions <= self.lengths[:, None])[:, None, None]

        def attend(index, q, k, v):
            # The heads that share K and V are rows of one query.
            keys, values = self.keys[index], self.values[index]
            keys[self.numbers, :, self.lengths] = k[:, :, 0]
            values[self.numbers, :, self.lengths] = v[:, :, 0]
            grouped = q.view(len(keys), self.kv_heads, -1, self.width)
            return torch.nn.functional.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask).view(q.shape)
        x = self.run(self.embedding(self.tokens)[:, None], self.lengths[:, None], attend)
        self.tokens.copy_(self.head(x)[:, -1].argmax(-1))
        self.lengths += self.active

    def prefill(self, ids):
        """Feeds `ids`, [1, padded], of which `count` count, into slot `slot`."""
        padded = ids.shape[1]

        def attend(index, q, k, v):
            self.keys[index][:, :, :padded].index_copy_(0, self.slot, k)
            self.values[index][:, :, :padded].index_copy_(0, self.slot, v)
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = self.run(self.embedding(ids), self.positions[None, :padded], attend)
        last = x[0].index_select(0, self.count - 1)
        self.tokens.index_copy_(0, self.slot, self.head(last).argmax(-1))
        self.lengths.index_copy_(0, self.slot, self.count)
        self.active.index_fill_(0, self.slot, 1)


class Server:
    """Slots with steps that are ready to be run: decode, and prefill of prompts up to `longest`."""

    def __init__(self, slots, longest, step, pad):
        self.slots, self.pad = slots, pad
        padded = [pad * n for n in range(1, (longest + pad - 1) // pad + 1)]
        self.ids = {size: torch.zeros((1, size), dtype=torch.int64, device=slots.device) for size in padded}
        self.decode = self.ready(slots.decode, step)
        self.prefills = {size: self.ready(lambda ids=ids: slots.prefill(ids), step) for size, ids in self.ids.items()}
        self.reset()

    def ready(self, function, step):
        if step == "compile":
            function = torch.compile(function, mode="max-autotune-no-cudagraphs", fullgraph=True, dynamic=False)
        if step == "eager" or self.slots.device.type != "cuda":
            function()
            return function
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                function()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            function()
        return graph.replay

    def reset(self):
        for state in (self.slots.tokens, self.slots.lengths, self.slots.active):
            state.zero_()

    def admit(self, slot, prompt):
        """Feeds a prompt, and returns its first token."""
        size = -(-len(prompt) // self.pad) * self.pad
        self.ids[size][0, :len(prompt)].copy_(prompt)
        self.slots.slot.fill_(slot)
        self.slots.count.fill_(len(prompt))
        self.prefills[size]()
        return int(self.slots.tokens[slot])

    def leave(self, slot):
        self.slots.active[slot] = 0
        self.slots.lengths[slot] = 0

    def serve(self, prompts, due, tokens, prefills=1):
        """Serves all, and returns of each (tokens, times of its tokens). `due`: seconds from the begin on."""
        slots = self.slots
        self.reset()
        out = [([], []) for _ in prompts]
        waiting, free, running, come = collections.deque(), list(range(len(slots.numbers)))[::-1], {}, 0
        begin = time.perf_counter()

        def add(number, token):
            out[number][0].append(token)
            out[number][1].append(time.perf_counter() - begin)
            return len(out[number][0]) == tokens
        while come < len(prompts) or waiting or running:
            while come < len(prompts) and due[come] <= time.perf_counter() - begin:
                waiting.append(come)
                come += 1
            if not waiting and not running:
                time.sleep(max(0, min(due[come] - (time.perf_counter() - begin) - 2e-4, 1)))
                continue
            for _ in range(prefills):
                if waiting and free:
                    slot, number = free.pop(), waiting.popleft()
                    running[slot] = number
                    if add(number, self.admit(slot, prompts[number])):
                        self.leave(slot)
                        free.append(slot)
                        del running[slot]
            if running:
                self.decode()
                for slot, token in enumerate(slots.tokens.tolist()):
                    if slot in running and add(running[slot], token):
                        self.leave(slot)
                        free.append(slot)
                        del running[slot]
        return out


def measure(server, args, prompts, load, rate, busy):
    """One open loop as a JSON object. `rate` None: all come at once."""
    arrivals = open_arrivals(args.requests, rate or 1, *args.prompts, args.arrival_seed)
    due = [at if rate else 0 for at, _ in arrivals]
    with control_modes.Busy(os.cpu_count()) if busy else contextlib.nullcontext():
        served = server.serve(prompts, due, args.tokens, args.prefills)
    seconds = max(times[-1] for _, times in served)
    return {"part": "open-loop", "device": args.machine, "shape": args.name, "server": "pytorch " + args.step,
            "load": load, "rate": rate and significant(rate), "busy": busy, "slots": args.slots,
            "requests": args.requests, "prompts": args.prompts, "tokens": args.tokens, "seed": args.arrival_seed,
            "seconds": significant(seconds), "requests_per_s": significant(args.requests / seconds),
            "tokens_per_s": significant(args.requests * args.tokens / seconds),
            "ttft_ms": spread([1000 * (times[0] - at) for (_, times), at in zip(served, due)]),
            "itl_ms": spread([1000 * (b - a) for _, times in served for a, b in zip(times, times[1:])])}


def numbers(kind):
    def read(text):
        values = [kind(part) for part in text.split(",")]
        if min(values) <= 0:
            raise ValueError
        return values
    read.__name__ = "list of positive numbers"  # what argparse says was wrong
    return read


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", required=True, help="a name in shapes/, or a config.json")
    parser.add_argument("--slots", type=int, default=16, help="requests at a time (default 16)")
    parser.add_argument("--requests", type=int, default=400, help="of each loop (default 400)")
    parser.add_argument("--prompts", type=numbers(int), default=[64, 512], metavar="N,M",
                        help="shortest and longest prompt (default 64,512)")
    parser.add_argument("--tokens", type=int, default=128, help="new ones of each request (default 128)")
    parser.add_argument("--loads", type=numbers(float), default=[0.25, 0.5, 0.75, 0.9, 1.0],
                        help="shares of what is served when all come at once (default 0.25,0.5,0.75,0.9,1)")
    parser.add_argument("--rates", type=numbers(float), default=[], help="the same in requests per second")
    parser.add_argument("--arrival-seed", type=int, default=0)
    parser.add_argument("--busy", action="store_true", help="each loop once more with all cores busy")
    parser.add_argument("--step", choices=STEPS, help="; ".join(f"{name}: {what}" for name, what in STEPS.items()) +
                        " (default cuda-graph, on a CPU eager)")
    parser.add_argument("--prefills", type=int, default=1, metavar="N",
                        help="prompts that are fed between two steps (default 1)")
    parser.add_argument("--pad", type=int, default=64, metavar="N", help="prompts are padded to multiples (default 64)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda",
                        help="cpu is for trying the script out only")
    args = parser.parse_args()
    args.step = args.step or ("cuda-graph" if args.device == "cuda" else "eager")
    if len(args.prompts) != 2 or args.prompts[0] > args.prompts[1]:
        parser.error("--prompts: the shortest and the longest one are expected")
    if min(args.slots, args.requests, args.tokens, args.prefills, args.pad) < 1 or args.arrival_seed < 0:
        parser.error("counts must be at least 1")
    if args.device == "cpu" and args.step == "cuda-graph":
        fail("a CPU has no CUDA graphs")
    return args


def main():
    args = arguments()
    args.name, _, config = find_shape(args.shape)
    progress(peers.open_device(args.device))
    args.machine = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    model = peers.build_model(config, args.device)
    begin = time.monotonic()
    longest = -(-args.prompts[1] // args.pad) * args.pad
    server = Server(Slots(model, args.slots, longest + args.tokens), longest, args.step, args.pad)
    progress(f"{args.step}: ready in {time.monotonic() - begin:.1f} s")
    lengths = [length for _, length in open_arrivals(args.requests, 1, *args.prompts, args.arrival_seed)]
    prompts = [torch.tensor(megalith.prompt(length, config["vocab_size"], number))
               for number, length in enumerate(lengths)]
    server.serve(prompts[:args.slots], [0] * args.slots, min(args.tokens, 8))  # clocks that went down

    def loop(load, rate):
        found = [measure(server, args, prompts, load, rate, busy) for busy in (False, True)[:1 + args.busy]]
        for line in found:
            print(json.dumps(line), flush=True)
        return found[0]["requests_per_s"]
    if args.rates:
        rates = [(None, rate) for rate in args.rates]
    else:
        most = loop(None, None)
        rates = [(load, load * most) for load in args.loads]
    for load, rate in rates:
        progress(f"{rate:.4g} requests/s")
        loop(load, rate)


if __name__ == "__main__":
    raise SystemExit(main())
