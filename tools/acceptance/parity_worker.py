"""Compares logits of finished runs with `transformers`; started by parity.py.

The argument is a JSON file: a list of {"model", "directory", "logits", "requests":
[{"id", "prompt", "tokens"}]}. Prints one JSON line per model, with the relative error
of every row, ours and that of transformers in bf16, both against fp32.
"""
import json
import sys

import torch
import transformers

from common import read_logits, row_errors


def load(directory, dtype, attention, device):
    # Loaded twice rather than converted: a conversion would round the rotary
    # frequencies as well, which transformers keeps in fp32.
    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=dtype, attn_implementation=attention)
    return model.to(device).eval()


def rows_of(model, request):
    """The rows that predict each of our tokens, teacher-forced."""
    prompt, tokens = request["prompt"], request["tokens"]
    ids = torch.tensor([prompt + tokens[:-1]], device=model.device)
    logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1:]
    return logits.float().cpu().numpy()


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.set_grad_enabled(False)
    for job in json.load(open(sys.argv[1])):
        logits = read_logits(job["logits"])
        exact = load(job["directory"], torch.float32, "eager", device)
        rounded = load(job["directory"], torch.bfloat16, "sdpa", device)
        prompts = []
        for request in job["requests"]:
            prompts.append(row_errors(rows_of(exact, request), rows_of(rounded, request),
                                      logits[request["id"]], request["tokens"]))
        print(json.dumps({"model": job["model"], "prompts": prompts}), flush=True)
        del exact, rounded
        if device == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
