#!/usr/bin/env python3
"""Compares S, what top_k, top_p and min_p leave, with that of transformers' logits processors, on random rows.

Needs torch and transformers. A difference is allowed among ties at the border of top_p (transformers sorts them as it
likes), and where the mass before a token, or its probability, is within 1e-6 of the border.
"""
import argparse
import pathlib
import struct
import subprocess
import tempfile

import torch
from transformers.generation.logits_process import (MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper,
                                                    TopPLogitsWarper)

root = pathlib.Path(__file__).resolve().parents[2]


def build(folder):
    out = pathlib.Path(folder) / "reduce_rows"
    subprocess.run(["c++", "-std=c++20", "-O2", "-ffp-contract=off", f"-I{root}/include", f"-I{root}", "-DFMT_HEADER_ONLY",
                    f"{root}/tools/acceptance/reduce_rows.cpp", f"{root}/lib/Reference/Reduce.cpp", "-o", out], check=True)
    return out


def feed(rows, vocab, draws=0):
    data = [struct.pack("<iii", len(rows), vocab, draws)]
    for settings, seed, logits in rows:
        data.append(struct.pack("<fiffI", *settings, seed) + logits.numpy().astype("<f4").tobytes())
    return b"".join(data)


def theirs(settings, logits):
    temperature, top_k, top_p, min_p = settings
    scores = TemperatureLogitsWarper(temperature)(None, logits[None].clone())
    if top_k > 0:
        scores = TopKLogitsWarper(top_k)(None, scores)
    if top_p < 1:
        scores = TopPLogitsWarper(top_p)(None, scores)
    if min_p > 0:
        scores = MinPLogitsWarper(min_p)(None, scores)
    return set(torch.nonzero(scores[0] > -float("inf"))[:, 0].tolist())


def allowed(settings, logits, ours, other):
    """Why the sets may differ; empty when they may not."""
    temperature, top_k, top_p, min_p = settings
    y = logits.double() / temperature
    kept = y >= y.sort(descending=True).values[min(top_k, len(y)) - 1] if top_k > 0 else torch.ones_like(y, dtype=bool)
    p = torch.softmax(y.masked_fill(~kept, -float("inf")), 0)
    value, order = p.sort(descending=True, stable=True)
    before = torch.empty_like(p)
    before[order] = value.cumsum(0) - value
    for token in ours ^ other:
        ties = (logits == logits[token]).nonzero()[:, 0].tolist()
        same = len(ours & set(ties)) == len(other & set(ties))
        near = min(abs(float(before[t]) - top_p) for t in ties) < 1e-6 or abs(float(before[token] + p[token]) - top_p) < 1e-6
        low = min_p > 0 and abs(float(p[token] / p.max()) - min_p) < 1e-6
        if not (top_p < 1 and (same or near)) and not low:
            return f"token {token}: mass before {float(before[token])}, p {float(p[token])}, {len(ties)} ties"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    g = torch.Generator().manual_seed(args.seed)

    def number():
        return float(torch.rand((), generator=g))

    equal = small = differ = 0
    with tempfile.TemporaryDirectory() as folder:
        tool = build(folder)
        for vocab in (7, 64, 1000, 32000):
            rows = []
            count = args.rows * {7: 2, 64: 3, 1000: 4, 32000: 1}[vocab] // 10
            for _ in range(count):
                logits = torch.randn(vocab, generator=g) * (0.5 + 6 * number())
                if number() < 0.5:
                    logits = logits.bfloat16().float()  # with ties
                f32 = lambda x: struct.unpack("<f", struct.pack("<f", x))[0]
                settings = (f32(0.2 + 1.5 * number()), int(number() * vocab) + 1 if number() < 0.5 else 0,
                            f32(0.01 + 0.98 * number()) if number() < 0.7 else 1.0, f32(number() * 0.5) if number() < 0.5 else 0.0)
                rows.append((settings, 0, logits))
            out = subprocess.run([tool], input=feed(rows, vocab), stdout=subprocess.PIPE, check=True).stdout
            at = 0
            for settings, _, logits in rows:
                (n,) = struct.unpack_from("<i", out, at)
                ours = set(struct.unpack_from(f"<{n}i", out, at + 4))
                at += 4 + 4 * n
                other = theirs(settings, logits)
                small += len(ours) == 1
                if ours == other:
                    equal += 1
                    continue
                why = allowed(settings, logits, ours, other)
                if why:
                    raise SystemExit(f"vocabulary {vocab}, settings {settings}: {why}")
                differ += 1
    print(f"{equal} rows with equal sets ({small} of one token), {differ} that differ at the border as allowed")


if __name__ == "__main__":
    main()
