#!/usr/bin/env python3
"""Time greedy decoding with PyTorch and transformers, with the weights of weights.py.

    peers.py --shape llama-3.2-1b --context=128 --batch=1,8 --peers=eager,cuda-graph

Prints one JSON object per measurement on stdout; compare.py uses the functions and puts
`megalith bench` between them. README.md says what is measured.
"""
import argparse
import contextlib
import gc
import json
import time

import weights
from common import (PEERS, PREFILL_PEERS, Result, add_measuring_options,
                    check_measuring_options, combinations, fail, find_shape, progress)

try:
    import torch
    import transformers
    from transformers import AttentionInterface, AttentionMaskInterface
except ImportError as error:
    torch, missing = None, error.name

COMPILE_MODES = ("reduce-overhead", "max-autotune")
# Untimed steps before a measurement: compiling, recording, and clocks that went down.
WARMUP_STEPS = 8


def open_device(name):
    """Checks that the peers can run there; returns a line on the machine and the versions."""
    if torch is None:
        fail(f"the peers need PyTorch and transformers; there is no module `{missing}`")
    if name == "cuda" and not torch.cuda.is_available():
        fail(f"PyTorch {torch.__version__} finds no CUDA device; the peers are timed on a GPU "
             "(--device=cpu tries the scripts out)")
    if not hasattr(transformers.cache_utils.StaticLayer(1), "cumulative_length"):
        fail(f"transformers {transformers.__version__} is too old: its StaticCache does not keep "
             "its length on the device; 5.17 does")
    register_attention()
    transformers.logging.set_verbosity_error()
    torch.set_grad_enabled(False)
    chip = torch.cuda.get_device_name() if name == "cuda" else "CPU"
    return (f"{chip}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}, "
            f"transformers {transformers.__version__}")


def grouped_attention(module, query, key, value, attention_mask, scaling=None, **_):
    """SDPA of one query per sequence, without copies of K and V for each query head: the
    heads that share K and V become the rows of one query."""
    batch, heads, length, width = query.shape
    if length == 1:
        query = query.view(batch, key.shape[1], heads // key.shape[1], width)
        if attention_mask is not None:
            attention_mask = attention_mask.expand(-1, -1, query.shape[2], -1)
        out = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=attention_mask, scale=scaling)
        return out.reshape(batch, 1, heads, width), None
    return AttentionInterface()["sdpa"](module, query, key, value, attention_mask,
                                        scaling=scaling)


def causal_attention(module, query, key, value, attention_mask, scaling=None, **_):
    """SDPA with its own causal flag and no mask, so that it can take a flash kernel; under
    torch.compile transformers always makes a mask."""
    return AttentionInterface()["sdpa"](module, query, key, value, None, scaling=scaling)


def register_attention():
    AttentionInterface.register("grouped", grouped_attention)
    AttentionMaskInterface.register("grouped", AttentionMaskInterface()["sdpa"])
    AttentionInterface.register("causal", causal_attention)  # no mask function: no mask


def build_model(config, device, dtype="bfloat16"):
    """LlamaForCausalLM or Qwen3ForCausalLM with the weights of weights.py."""
    begin = time.monotonic()
    config = transformers.AutoConfig.for_model(**config)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(
            config, dtype=getattr(torch, dtype), attn_implementation="sdpa")
    count = weights.fill_model(model.eval())
    synchronize(device)
    progress(f"{type(model).__name__}: {count:,} parameters in {time.monotonic() - begin:.1f} s")
    return model


def synchronize(device):
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


@contextlib.contextmanager
def stopwatch(device):
    """Gives a list that holds the ms of the block after it: by CUDA events on a GPU."""
    elapsed = []
    if torch.device(device).type == "cuda":
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        yield elapsed
        end.record()
        torch.cuda.synchronize()
        elapsed.append(begin.elapsed_time(end))
    else:
        start = time.perf_counter()
        yield elapsed
        elapsed.append(1000 * (time.perf_counter() - start))


def cudagraph_skips():
    return torch._dynamo.utils.counters["inductor"]["cudagraph_skips"]


class Decoder:
    """A batch of sequences in the middle of greedy decoding: `context` positions of random K
    and V, then room for `steps` tokens. One step takes `tokens` to the next ones, in place."""

    def __init__(self, model, batch, context, steps, attention="grouped"):
        self.model, self.context, self.steps = model, context, steps
        self.device, config = model.device, model.config
        model.set_attn_implementation(attention)
        random = torch.Generator(self.device).manual_seed(1)
        self.first = torch.randint(config.vocab_size, (batch, 1), device=self.device,
                                   generator=random)
        self.tokens = self.first.clone()
        # Says to torch.compile what StaticCache says of K and V: CUDA graphs may write there.
        torch._dynamo.mark_static_address(self.tokens)
        self.cache = transformers.StaticCache(config=config, max_cache_len=context + steps)
        self.cache.early_initialization(
            batch, config.num_key_value_heads,
            getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
            model.dtype, self.device)
        for layer in self.cache.layers:
            layer.keys.normal_(generator=random)
            layer.values.normal_(generator=random)
        self.reset()

    def reset(self):
        self.tokens.copy_(self.first)
        for layer in self.cache.layers:
            layer.cumulative_length.fill_(self.context)

    def step_function(self):
        """A new function each time, so that each way of compiling has its own."""
        model, cache, tokens = self.model, self.cache, self.tokens

        def step():
            logits = model(input_ids=tokens, past_key_values=cache, use_cache=True).logits
            best = logits[:, -1].argmax(-1, keepdim=True)
            tokens.copy_(best)
            return best
        return step

    def warm_up(self, step):
        self.reset()
        for _ in range(min(WARMUP_STEPS, self.steps)):
            step()
        self.reset()

    def prepare(self, peer):
        """(step, seconds it took, note): `step` is ready to be timed."""
        begin, skips, step = time.monotonic(), cudagraph_skips(), self.step_function()
        if peer in COMPILE_MODES:
            step = torch.compile(step, mode=peer, fullgraph=True, dynamic=False)
        if peer == "cuda-graph":
            step = self.capture(step)
        self.warm_up(step)
        self.warm_up(step)
        synchronize(self.device)
        skipped = self.device.type == "cuda" and cudagraph_skips() > skips
        return step, time.monotonic() - begin, "ran without CUDA graphs" if skipped else ""

    def capture(self, step):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.warm_up(step)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph.replay

    def measure(self, step):
        """ms per token over all steps."""
        self.warm_up(step)
        with stopwatch(self.device) as elapsed:
            for _ in range(self.steps):
                step()
        return elapsed[0] / self.steps


class Prefill:
    """One forward over a prompt of `length` random tokens, which leaves K and V of all
    positions and the logits of the last."""

    def __init__(self, model, length):
        self.model, self.device = model, model.device
        model.set_attn_implementation("causal")
        random = torch.Generator(self.device).manual_seed(2)
        self.ids = torch.randint(model.config.vocab_size, (1, length), device=self.device,
                                 generator=random)

    def prepare(self, peer):
        model, begin = self.model, time.monotonic()

        def forward(ids):
            out = model(input_ids=ids, use_cache=True, logits_to_keep=1)
            layers = out.past_key_values.layers
            return out.logits.argmax(-1), [(layer.keys, layer.values) for layer in layers]

        if peer == "compiled":
            forward = torch.compile(forward, dynamic=False)
        for _ in range(3):
            forward(self.ids)
        synchronize(self.device)
        return forward, time.monotonic() - begin, ""

    def measure(self, forward):
        """ms per prompt."""
        forward(self.ids)
        with stopwatch(self.device) as elapsed:
            forward(self.ids)
        return elapsed[0]


def prepare_all(work, peers, place):
    """[(peer, what `work.prepare` gave)] of those that work, and results of those that do not.
    `place`: shape, phase, context and batch."""
    ready, failed = [], []
    for peer in peers:
        result = Result(*place, peer)
        try:
            step, result.setup_s, result.note = work.prepare(peer)
        except Exception as error:  # the others can still be timed
            summary = str(error).strip().split("\n")[0][:200]
            result.note = f"failed: {type(error).__name__}: {summary}"
            progress(f"{peer} {result.note}")
            failed.append(result)
            continue
        progress(f"{peer}: ready in {result.setup_s:.1f} s" +
                 (f"; {result.note}" if result.note else ""))
        ready.append((result, step))
    return ready, failed


def release():
    """Forgets compiled code and its graphs, so that the next shapes compile afresh."""
    torch._dynamo.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser(
        description="Time greedy decoding with PyTorch: " +
        "; ".join(f"{name}: {what}" for name, what in PEERS.items()) + ".")
    parser.add_argument("--shape", required=True, help="a name in shapes/, or a config.json")
    add_measuring_options(parser)
    args = parser.parse_args()
    check_measuring_options(parser, args)
    name, _, config = find_shape(args.shape)
    progress(open_device(args.device))
    model = build_model(config, args.device)
    failures = 0
    jobs = [("decode", batch, context) for batch, context in combinations(args)] + \
        [("prefill", 1, length) for length in args.prefill]
    for phase, batch, size in jobs:
        progress(f"{name}: {phase}, batch {batch}, {size} positions")
        if phase == "decode":
            work = Decoder(model, batch, size, args.tokens, args.attention)
            peers = args.peers
        else:
            work, peers = Prefill(model, size), PREFILL_PEERS
        ready, failed = prepare_all(work, peers, (name, phase, size, batch))
        for _ in range(args.repeats):
            for result, step in ready:
                result.times.append(work.measure(step))
        for result in [result for result, _ in ready] + failed:
            print(json.dumps(result.json()), flush=True)
        failures += len(failed)
        del work, ready
        release()
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
