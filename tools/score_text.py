#!/usr/bin/env python3
"""How well a model guesses a text of bytes: nats a byte, over windows spread over the text.

    score_text.py --text kjv.txt --model models/demo --model /tmp/fp8 [--windows 40] [--length 512]

The models are byte-level, as models/demo (train_demo_model.py says where the text comes from). Needs the Python module. The
tokens of a window are a request's prompt. The middle hundredth of the text, which training did not see, is told apart.
"""
import argparse
import pathlib

import megalith


def windows(text, count, length):
    step = max(1, (len(text) - length) // count)
    return [text[at:at + length] for at in range(0, len(text) - length, step)][:count]


def loss(session, lots):
    total = guessed = 0
    for window in lots:
        scored = session.generate(list(window), max_new_tokens=0, prompt_logprobs=0)
        list(scored)
        found = [of.logprob for of in scored.prompt_logprobs if of.logprob is not None]
        total, guessed = total - sum(found), guessed + len(found)
    return total / guessed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--model", action="append", required=True, metavar="DIR")
    parser.add_argument("--windows", type=int, default=40)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    text = args.text.read_bytes()
    middle = slice(len(text) // 2, len(text) * 51 // 100)
    seen, held_out = text[:middle.start] + text[middle.stop:], text[middle]
    for model in args.model:
        program = megalith.compile(megalith.pipeline("sampled"), model=model)
        with program.load(device=args.device).session(logit_lines=args.length + 1) as session:
            print(f"{model}: training text {loss(session, windows(seen, args.windows, args.length)):.4f}, held out "
                  f"{loss(session, windows(held_out, args.windows, args.length)):.4f} nats a byte", flush=True)


if __name__ == "__main__":
    main()
