#!/usr/bin/env python3
"""The law of `sample`: chi squared of many draws against exact probabilities in f64, for many seeds.

On a vocabulary of 64. (law.cu does the same on a GPU, for 64 and for the 200 likeliest of 128 K tokens.)
"""
import argparse
import math
import pathlib
import random
import struct
import subprocess
import tempfile
from array import array

root = pathlib.Path(__file__).resolve().parents[2]


def gamma_q(a, x):
    """The upper regularised incomplete gamma function: Q(k / 2, chi / 2) is the p-value."""
    if x <= 0:
        return 1.0
    if x < a + 1:
        term = total = 1 / a
        n = a
        while term > total * 1e-15:
            n += 1
            term *= x / n
            total += term
        return 1 - total * math.exp(-x + a * math.log(x) - math.lgamma(a))
    b, c = x + 1 - a, 1e300
    d = h = 1 / b
    for i in range(1, 100000):
        an = -i * (i - a)
        b += 2
        d = 1 / (an * d + b)
        c = b + an / c
        h *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return h * math.exp(-x + a * math.log(x) - math.lgamma(a))


def p_value(counts, p):
    n, chi, cells, rest_p, rest = sum(counts), 0.0, 0, 0.0, 0
    for count, probability in zip(counts, p):
        if probability * n >= 10:
            chi += (count - probability * n) ** 2 / (probability * n)
            cells += 1
        else:
            rest_p += probability
            rest += count
    if rest_p * n > 1:
        chi += (rest - rest_p * n) ** 2 / (rest_p * n)
        cells += 1
    return gamma_q((cells - 1) / 2, chi / 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=200000)
    parser.add_argument("--seeds", type=int, default=20)
    args = parser.parse_args()
    vocab, rows = 64, []
    rng = random.Random(7)
    for seed in range(args.seeds):
        logits = array("f", (rng.gauss(0, 2) for _ in range(vocab)))
        rows.append(((0.5 + 0.05 * seed, 0, 1.0, 0.0), seed, logits))
    data = struct.pack("<iii", len(rows), vocab, args.draws)
    for settings, seed, logits in rows:
        data += struct.pack("<fiffI", *settings, seed) + logits.tobytes()
    with tempfile.TemporaryDirectory() as folder:
        tool = pathlib.Path(folder) / "reduce_rows"
        subprocess.run(["c++", "-std=c++20", "-O2", "-ffp-contract=off", f"-I{root}/include", f"-I{root}",
                        "-DFMT_HEADER_ONLY", f"{root}/tools/acceptance/reduce_rows.cpp",
                        f"{root}/lib/Reference/Reduce.cpp", "-o", tool], check=True)
        out = subprocess.run([tool], input=data, stdout=subprocess.PIPE, check=True).stdout
    values = []
    for number, (settings, _, logits) in enumerate(rows):
        counts = struct.unpack_from(f"<{vocab}i", out, 4 * vocab * number)
        temperature = struct.unpack("<f", struct.pack("<f", settings[0]))[0]
        weights = [math.exp(z / temperature - max(logits) / temperature) for z in logits]
        values.append(p_value(counts, [w / sum(weights) for w in weights]))
    print("p:", " ".join(f"{p:.3f}" for p in sorted(values)))
    if not all(0.001 < p < 0.999 for p in values):
        raise SystemExit("a p-value is not between 0.001 and 0.999")


if __name__ == "__main__":
    main()
