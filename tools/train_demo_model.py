#!/usr/bin/env python3
"""Train the byte-level demo model and write it in Hugging Face format.

    bible -f -l 100000 gen1:1-rev22:21 | sed 's/^[^ ]* //' > kjv.txt
    train_demo_model.py --text kjv.txt --out models/demo --steps 7000 --seed 1

`bible` comes from Debian's package `bible-kjv` (text: `bible-kjv-text`, public
domain); the second command drops the verse numbers and leaves a verse a line.

byte_llama.py says what the model is. Needs PyTorch; a GPU takes a few minutes.
"""
import torch.nn.functional as F

from byte_llama import Decoder, Text, config_of, continue_text, parser_of, round_to_bf16, train, write

CONFIG = config_of(hidden=256, layers=6, heads=8, kv_heads=4, head_dim=32, ffn=704)


def main():
    args = parser_of(__doc__).parse_args()
    text = Text(args)
    model = Decoder(CONFIG).to(text.device)
    count = sum(p.numel() for p in model.parameters())
    print(f"{count:,} parameters, {len(text.seen):,} bytes of text, on {text.device}", flush=True)

    def loss_of(window):
        return F.cross_entropy(model(window[:, :-1]).flatten(0, 1).float(), window[:, 1:].flatten())

    def loss_over(part, step):
        return text.mean(lambda lot: loss_of(lot).item(), text.spread(part, step))

    train(model, lambda: loss_of(text.some(text.seen, args.batch)),
          lambda: f"{loss_over(text.held_out, args.length):.4f}", text, args)
    round_to_bf16(model)
    print(f"final loss in nats per byte: training text {loss_over(text.seen, 40 * args.length):.4f}, "
          f"held out {loss_over(text.held_out, args.length):.4f}")
    write(args.out, model)
    for prompt in ("In the beginning ", "And Moses said unto ", "The LORD is my ",
                   "Now it came to pass "):
        print("---\n" + continue_text(model, prompt, 160, 512))


if __name__ == "__main__":
    main()
