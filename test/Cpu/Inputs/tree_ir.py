"""Puts a tree of drafts in the place of decoding: `python3 tree_ir.py IN.ir OUT.ir ROWS CALLS SEED [canvas]`.

IN.ir is autoregressive.yaml, lowered. Up to four looked-up (or injected) drafts stand in rows here and there, each
hanging on the one before; all other rows are tokens that are mostly wrong, and hang anywhere. The accepted rows are kept.
The rows are fed by CALLS calls of one run. `canvas`: a chain instead, whose rows but the first see all of it; nothing is
kept of it but the first."""
import random
import re
import sys

source, target, rows, calls, seed = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
canvas = "canvas" in sys.argv[6:]
rnd = random.Random(seed)
text = open(source).read()
begin = text.index("  stage @decode")
end = text.index("\n  }\n", begin) + 5

drafts = min(4, rows - 1)
where = sorted(rnd.sample(range(1, rows), drafts))
parents = [-1] + [rnd.randrange(i) if rnd.random() < 0.5 else i - 1 for i in range(1, rows)]
for k, row in enumerate(where):
    parents[row] = where[k - 1] if k else 0

lines = []


def value(expression, type="i32", region=""):
    name = f"%g{len(lines)}"
    lines.append(f"{name} = {expression} : {type}{region}")
    return name


def number(i):
    return value(f"const {{value = {i}}}")


def token(of):
    return value(f"cast({of})", "token")


def sequence(items):
    return value(f"seq.make({', '.join(items)})", f"token<{len(items)}>")


tokens = value("tokens", "token<>")
length = value(f"seq.len({tokens})")
zero, one, width = number(0), number(1), number(drafts)
none = token(value(f"sub({value(f'sub({length}, {length})')}, {one})"))  # no constant: a token is not below 0
last = value(f"seq.at({tokens}, {value(f'sub({length}, {one})')})", "token")
found = value(f"ngram_lookup({tokens}, {width}) {{ngram = 3}}", f"token<{drafts}>")
padding = sequence([token(number(rnd.randrange(100))) for _ in range(drafts)])
padded = value(f"seq.concat({found}, {padding})", f"token<{2 * drafts}>")
draft = value(f"seq.slice({padded}, {zero}, {width})", f"token<{drafts}>")
fed = [last]
for i in range(1, rows):
    if i in where:
        fed.append(value(f"seq.at({draft}, {number(where.index(i))})", "token"))
    else:
        some = value(f"add({value(f'mul({length}, {number(rnd.randrange(1, 9))})')}, {number(rnd.randrange(200))})")
        fed.append(token(value(f"mod({some}, {number(250)})")))

best, size = None, 0
for site, upto in enumerate(sorted(rnd.sample(range(1, rows), calls - 1)) + [rows], 1):
    if canvas:
        seen = sequence([token(value(f"add({length}, {number(rows - 1 if i else 0)})")) for i in range(rows)])
    else:
        seen = sequence([token(number(p)) if p >= 0 else none for p in parents[size:upto]])
    what = "visible" if canvas else "parents"
    some = value(f'call @target({sequence(fed[size:upto])}, {seen}) {{kv = "draft", site = {site}, with = ["{what}"]}}',
                 f"token<{upto - size}>", " {\n      reduce @argmax\n    }")
    best = value(f"seq.concat({best}, {some})", f"token<{upto}>") if best else some
    size = upto

places = sequence([token(zero)] + [token(number(row)) for row in where])
accepted = zero if canvas else value(f"prefix_while({width})", "i32", f""" {{
      ^(%i : i32):
      %x = seq.at({draft}, %i) : token
      %place = seq.at({places}, %i) : token
      %row = cast(%place) : i32
      %y = seq.at({best}, %row) : token
      %q = eq(%x, %y) : bool
      yield(%q)
    }}""")
good = value(f"seq.slice({draft}, {zero}, {accepted})", f"token<{drafts}>")
leaf = value(f"cast({value(f'seq.at({places}, {accepted})', 'token')})")
bonus = sequence([value(f"seq.at({best}, {leaf})", "token")])
appended = value(f"append({value(f'seq.concat({good}, {bonus})', f'token<{drafts + 1}>')})")
lines.append(f"count.add @tokens_committed({appended})")
path = value(f"seq.slice({places}, {zero}, {value(f'add({accepted}, {one})')})", f"token<{drafts + 1}>")
kept = value(f"sub({value('seq.len(' + value('tokens', 'token<>') + ')')}, {one})")
lines.append(f"kv.keep @target({kept})" if canvas else f"kv.keep @target({kept}, {path})")
lines.append(f'goto({value("finished", "bool")}) {{to = ["COMPLETE", "DECODE"]}}')
stage = '  stage @decode {on = "DECODE"} {\n' + "".join(f"    {line}\n" for line in lines) + "  }\n"
text = re.sub(r"rows_beyond = \d+", f"rows_beyond = {rows}", text[:begin] + stage + text[end:])
open(target, "w").write(text)
