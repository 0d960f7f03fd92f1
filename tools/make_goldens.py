#!/usr/bin/env python3
"""Record what `transformers` computes for a checkpoint, as a small JSON file.

    make_goldens.py --model models/demo --out test/Goldens/demo_transformers.json

Per prompt: its tokens, the tokens that greedy decoding in fp32 (the bf16 weights
widened) adds, and one row per added token with the logits that chose it:

    {"model": {...}, "prompts": [{"text"?, "tokens": [...], "greedy": [...], "rows": [
        {"position": p,         the input position, len(tokens) - 1 for the first
         "ids": [...],          the four best tokens, best first, then fixed ones
         "logits": [...],       their fp32 logits
         "norm": n,             L2 norm of the whole fp32 row
         "bf16_error": e}]}]}   ||bf16 row - fp32 row|| / n of transformers in bf16

Both rows come from one pass over prompt and greedy tokens, so a reader can feed
the same tokens and compare. Needs PyTorch and transformers; a GPU is optional.
"""
import argparse
import json
import pathlib

import torch
import transformers

TEXTS = (
    "In the beginning ",
    "And Moses said unto ",
    "The LORD is my shepherd; I shall ",
    "And it came to pass, when the king ",
    "Blessed are the ",
    "Now these are the generations of the sons of ",
    "Then answered Jesus and said unto them, ",
    "A",
)
TOP, FIXED = 4, 4


def prompts_of(path, vocab, count):
    """Text for byte vocabularies, else fixed pseudo-random token ids."""
    if json.loads((path / "config.json").read_text()).get("byte_vocabulary"):
        return [{"text": text, "tokens": list(text.encode())} for text in TEXTS[:count]]
    result, state = [], 12345
    for i in range(count):
        tokens = []
        for _ in range(1 + 5 * i):
            state = (state * 1103515245 + 12345) % (1 << 31)
            tokens.append((state >> 8) % vocab)
        result.append({"tokens": tokens})
    return result


def load(path, dtype, attention, device):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=dtype, attn_implementation=attention)
    return model.to(device).eval()


def logits_of(model, tokens):
    ids = torch.tensor([tokens], device=model.device)
    return model(input_ids=ids, use_cache=False).logits[0]


def short(number):
    return float(f"{number:.7g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--prompts", type=int, default=len(TEXTS))
    parser.add_argument("--bf16-attention", default="sdpa", choices=("sdpa", "eager"))
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.set_grad_enabled(False)

    exact = load(args.model, torch.float32, "eager", device)
    rounded = load(args.model, torch.bfloat16, args.bf16_attention, device)
    vocab = exact.config.vocab_size
    fixed = [(2 * i + 1) * vocab // (2 * FIXED) for i in range(FIXED)]
    prompts, errors = prompts_of(args.model, vocab, args.prompts), []
    for prompt in prompts:
        tokens = list(prompt["tokens"])
        for _ in range(args.new_tokens):
            tokens.append(int(logits_of(exact, tokens)[-1].argmax()))
        first = len(prompt["tokens"])
        prompt["greedy"] = tokens[first:]
        rows32 = logits_of(exact, tokens[:-1]).double().cpu()
        rows16 = logits_of(rounded, tokens[:-1]).double().cpu()
        prompt["rows"] = []
        for position in range(first - 1, len(tokens) - 1):
            row = rows32[position]
            best = row.topk(min(TOP, vocab)).indices.tolist()
            if best[0] != tokens[position + 1]:
                raise SystemExit(f"error: position {position}: one pass chooses {best[0]}, "
                                 f"decoding chose {tokens[position + 1]}")
            ids = best + [i for i in fixed if i not in best]
            norm = row.norm().item()
            errors.append((rows16[position] - row).norm().item() / norm)
            prompt["rows"].append({
                "position": position, "ids": ids,
                "logits": [short(row[i].item()) for i in ids],
                "norm": short(norm), "bf16_error": short(errors[-1])})

    golden = {
        "model": {"vocab_size": vocab, "transformers": transformers.__version__,
                  "torch": torch.__version__, "device": device,
                  "bf16_attention": args.bf16_attention},
        "prompts": prompts}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    # A row per line: small, and a change of one row is one line of a diff.
    text = json.dumps(golden, separators=(",", ":")).replace('{"position"', '\n{"position"')
    args.out.write_text(text.replace('{"text"', '\n{"text"') + "\n")
    print(f"wrote {args.out}: {args.out.stat().st_size:,} bytes, {len(errors)} rows; bf16 error "
          f"mean {sum(errors) / len(errors):.5f}, largest {max(errors):.5f}")


if __name__ == "__main__":
    main()
