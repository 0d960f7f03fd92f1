"""Whether tokens that megalith generated are the greedy ones, by PyTorch's logits."""
import dataclasses

import torch

import megalith
import peers
from common import progress


@dataclasses.dataclass
class Verdict:
    """Of `count` tokens, how many are the argmax of the logits in fp32 and in bf16, and the
    indices of those that bf16's own error does not explain."""
    count: int
    exact: int
    rounded: int
    wrong: list

    def __str__(self):
        text = (f"{self.exact} of {self.count} tokens are the argmax in fp32, "
                f"{self.rounded} in bf16")
        if self.wrong:
            return f"{text}; WRONG: tokens {', '.join(map(str, self.wrong[:8]))}"
        return f"{text}; the others are ties up to the error of bf16"


def rows(model, prompt, tokens):
    """The logits after each of `tokens`, teacher-forced, in f32: [len(tokens), vocab]."""
    ids = torch.tensor([prompt + tokens[:-1]], device=model.device)
    return model(input_ids=ids, use_cache=False, logits_to_keep=len(tokens)).logits[0].float()


def judge(exact, rounded, tokens):
    """A token may fall behind the best one in fp32 by twice the largest error of the row in
    bf16: two logits with that error can change places."""
    picked = torch.tensor(tokens, device=exact.device)
    gap = exact.max(-1).values - exact.gather(1, picked[:, None])[:, 0]
    error = (rounded - exact).abs().max(-1).values
    return Verdict(len(tokens), int((exact.argmax(-1) == picked).sum()),
                   int((rounded.argmax(-1) == picked).sum()),
                   torch.nonzero(gap > 2 * error)[:, 0].tolist())


def check(model, config, context, tokens):
    """Verdict on `tokens`, which megalith generated after its prompt of `context` tokens.
    `model` is the one in bf16."""
    prompt = megalith.prompt(context, config["vocab_size"])
    model.set_attn_implementation("sdpa")
    progress("checking the tokens: the model in fp32")
    exact = peers.build_model(config, model.device, "float32")
    verdict = judge(rows(exact, prompt, tokens), rows(model, prompt, tokens), tokens)
    del exact
    peers.release()
    return verdict
