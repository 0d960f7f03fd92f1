"""Cases for the pipelines of pipelines/verify, and what Python says of them. Nothing but Python is needed.

A case is `(b, g, w, draft, target, kv)`: sizes, `b` rows of `g` drafts, `b` rows of `g + 1` tokens of the model, and the rows of
K and V as bytes, two for each of the b * g * w numbers. `cases(all)` has them, always the same ones in the same order:

  edges     nothing to do, one of everything, odd widths, drafts around a ballot of 32, each number of accepted drafts, tokens at
            the ends of an i32, right drafts behind a wrong one
  random    20 of small sizes
  grid      with `all`: the sizes that the course project "Batched Speculative Decoding Verification Kernels" measured: b x
            drafts x rate x width, and more drafts at b = 32. Its report does not say which of these its 43 tests and 216
            checks are, so here are all. Drafts are made as there: each of a sequence counts as right with the probability of
            the rate, and so many leading ones are; tokens are from 4,096
  large     with `all`: more sequences than a GPU has warps, and as many drafts as the files take

A test writes a case with `tensors(case)` and `save`, and compares what comes back with `expected(case)`. Tensors are
`{name: (dtype, shape, bytes)}`.
"""
import itertools
import json
import math
import random
import struct

VOCABULARY = 4096
GRID = {"b": (1, 4, 16, 32), "g": (8, 64, 128), "alpha": (0.3, 0.6, 0.9), "w": (128, 512, 1024, 2048)}
MORE_DRAFTS = (4, 16, 32)  # at b = 32; 8, 64 and 128 are in the grid


def drafts(rng, g, right, vocabulary=VOCABULARY):
    """Drafts of a sequence of which the first `right` are right, and what the model says. Later ones may be right again."""
    draft = [rng.randrange(vocabulary) for _ in range(g)]
    target = [token if rng.random() < 0.5 else rng.randrange(vocabulary) for token in draft] + [rng.randrange(vocabulary)]
    target[:right] = draft[:right]
    if right < g:
        target[right] = (draft[right] + rng.randrange(1, vocabulary)) % vocabulary
    return draft, target


def case(rng, b, g, w, right):
    """A case in which sequence i accepts `right(i)` drafts."""
    pairs = [drafts(rng, g, right(i)) for i in range(b)]
    return b, g, w, [d for d, _ in pairs], [t for _, t in pairs], rng.randbytes(2 * b * g * w)


def edges():
    rng = random.Random(1)
    for b, g, w in (0, 0, 1), (0, 5, 3), (3, 0, 2), (1, 0, 1):
        yield case(rng, b, g, w, lambda i: 0)
    for b, g, w in (1, 1, 1), (4, 8, 5), (5, 3, 129), (33, 2, 1), (2, 33, 7):
        for right in 0, g:  # the first draft is wrong; all are right
            yield case(rng, b, g, w, lambda i: right)
    for g in 31, 32, 33, 64, 65, 96:  # sequence i accepts i drafts, in another order
        numbers = list(range(g + 1))
        rng.shuffle(numbers)
        yield case(rng, g + 1, g, 3, numbers.__getitem__)
    yield case(rng, 40, 40, 2, lambda i: 40 if i % 2 else 0)
    least, most = -(2 ** 31), 2 ** 31 - 1
    draft = [[least, most, 0, -1], [1, 1, 1, 1], [most, least, least, 7]]
    target = [[least, most, 0, -1, least], [1, 1 + 2 ** 16, 1, 1, 1], [most, least, least + 2 ** 30, 7, most]]
    yield 3, 4, 6, draft, target, rng.randbytes(2 * 3 * 4 * 6)
    # Each half is a number that is not equal to itself, and the copy has its bits.
    yield 2, 2, 5, [[1, 2], [3, 4]], [[1, 2, 9], [3, 5, 9]], bytes.fromhex("017c ff7f") * 10


def randoms(count=20):
    rng = random.Random(2)
    for _ in range(count):
        b, g, w = rng.randrange(41), rng.randrange(41), rng.randrange(1, 10)
        alpha = rng.random()
        yield case(rng, b, g, w, lambda i: next((j for j in range(g) if rng.random() > alpha), g))


def grid():
    rng = random.Random(7)
    points = [*itertools.product(*GRID.values()), *itertools.product((32,), MORE_DRAFTS, GRID["alpha"], (128,))]
    for b, g, alpha, w in points:
        yield case(rng, b, g, w, lambda i: sum(rng.random() < alpha for _ in range(g)))


def large():
    rng = random.Random(3)
    for b, g, w in (2048, 5, 4), (4097, 3, 2), (3, 1024, 8), (300, 70, 33), (2, 2, 65536), (65536, 1, 1):
        yield case(rng, b, g, w, lambda i: rng.randrange(g + 1))


def cases(all=False):
    yield from edges()
    yield from randoms()
    if all:
        yield from grid()
        yield from large()


def i32s(values):
    return struct.pack(f"<{len(values)}i", *values)


def i64s(values):
    return struct.pack(f"<{len(values)}q", *values)


def guesses(b, g, lengths, seed=4):
    """What a caller guesses that each sequence accepts: often right, sometimes not."""
    rng = random.Random(seed)
    return [n if rng.random() < 0.7 else rng.randrange(-1, g + 2) for n in lengths]


def accepted(case):
    _, g, _, draft, target, _ = case
    return [next((j for j in range(g) if d[j] != t[j]), g) for d, t in zip(draft, target)]


def tensors(case, names, filler=None):
    """The buffers of `names` that a caller brings. `filler`: a byte that all of `packed` has before the call."""
    b, g, w, draft, target, kv = case
    given = {"draft": ("I64", [b, g], i64s([*itertools.chain(*draft)])),
             "target": ("I64", [b, g + 1], i64s([*itertools.chain(*target)])),
             "kv": ("F16", [b, g, w], kv), "guess": ("I32", [b], i32s(guesses(b, g, accepted(case))))}
    if filler is not None:
        given["packed"] = ("F16", [b * g, w], bytes([filler]) * (2 * b * g * w))
    return {name: tensor for name, tensor in given.items() if name in names}


def expected(case, names, filler=None):
    """What the buffers of `names` that stages write have after the call."""
    b, g, w, _, target, kv = case
    lengths = accepted(case)
    guess = guesses(b, g, lengths)
    keep = [j < n for n in lengths for j in range(g)]
    row = 2 * w
    rows = b"".join(kv[i * g * row:(i * g + n) * row] for i, n in enumerate(lengths))
    rows += bytes([filler or 0]) * (2 * b * g * w - len(rows))
    wanted = {"accepted": ("I64", [b], i64s(lengths)), "mismatch": ("BOOL", [b], bytes(n < g for n in lengths)),
              "next": ("I64", [b], i64s([t[n] for t, n in zip(target, lengths)])),
              "order": ("I32", [b], i32s(sorted(range(b), key=guess.__getitem__))),
              "offset": ("I32", [b + 1], i32s([0, *itertools.accumulate(lengths)])),
              "keep": ("BOOL", [b * g], bytes(keep)), "place": ("I32", [b * g + 1], i32s([0, *itertools.accumulate(keep)])),
              "packed": ("F16", [b * g, w], rows)}
    return {name: tensor for name, tensor in wanted.items() if name in names}


def save(path, tensors):
    header, end = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        assert len(data) == math.prod(shape) * {"I64": 8, "I32": 4, "F16": 2, "BOOL": 1}[dtype], (name, shape, len(data))
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            out.write(data)


def load(path):
    with open(path, "rb") as file:
        data = file.read()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    return {name: (entry["dtype"], entry["shape"], data[begin + entry["data_offsets"][0]:begin + entry["data_offsets"][1]])
            for name, entry in json.loads(data[8:begin]).items()}
