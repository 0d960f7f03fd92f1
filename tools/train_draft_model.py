#!/usr/bin/env python3
"""Train a small model that drafts for the demo model, and write it in Hugging Face format.

    train_draft_model.py --text kjv.txt --model models/demo --out models/demo-draft

kjv.txt is made as in train_demo_model.py. The small model learns the demo model's distributions, not the text:
a draft is good when the demo model would have said it. byte_llama.py says what both are. Needs PyTorch; a GPU
takes a few minutes.
"""
import pathlib

from byte_llama import Decoder, Text, config_of, continue_text, parser_of, round_to_bf16, train, write
from demo_teacher import Teacher, accepted, divergence, percent

CONFIG = config_of(hidden=128, layers=3, heads=4, kv_heads=2, head_dim=32, ffn=352)


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--model", type=pathlib.Path, required=True, help="directory of the model to draft for")
    parser.add_argument("--own", type=int, default=1024, help="windows of the model's own text")
    args = parser.parse_args()
    text = Text(args)
    teacher = Teacher(args.model, text, args.own)
    model = Decoder(CONFIG).to(text.device)
    count = sum(p.numel() for p in model.parameters())
    print(f"{count:,} parameters, {len(text.seen):,} bytes of text, on {text.device}", flush=True)

    def loss_of(windows):
        return divergence(teacher.read(windows)[1], model(windows[:, :-1]))

    def accepted_of(lots, after=0):
        return percent(text.mean(lambda lot: accepted(teacher.read(lot)[1], model(lot[:, :-1]), after), lots))

    def judge():
        return (f"{accepted_of(text.spread(text.held_out, args.length))}; the model's own text after held out prompts "
                f"{accepted_of([teacher.own_held_out], args.length // 2)}")

    train(model, lambda: loss_of(teacher.some(args.batch)), judge, text, args)
    round_to_bf16(model)
    print(f"accepted: training text {accepted_of(text.spread(text.seen, 40 * args.length))}; held out {judge()}")
    write(args.out, model)
    for prompt in ("In the beginning ", "And Moses said unto "):
        print("---\n" + continue_text(model, prompt, 160, 512))


if __name__ == "__main__":
    main()
