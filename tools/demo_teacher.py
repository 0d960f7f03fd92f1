"""The demo model as a teacher: what it says about a text, and texts of its own."""
import torch
import torch.nn.functional as F

from byte_llama import BYTES, load


class Teacher:
    """A frozen model, and windows to learn from it: of its training text, and of what it writes itself.

    Who drafts for a model is asked about the model's own text, which is another one than what it was trained on:
    greedy decoding likes to repeat itself.
    """

    def __init__(self, directory, text, own):
        self.model, self.text = load(directory).to(text.device), text
        self.own = torch.cat([self.write(text.some(text.seen, own // 2), greedy) for greedy in (True, False)])
        self.own_held_out = self.write(text.some(text.held_out, min(own, 128)), True)
        print(f"{len(self.own)} windows of the model's own, {text.length // 2} bytes of each are a prompt; one begins\n"
              + bytes(self.own[0].tolist()).decode(errors="replace")[:400], flush=True)

    @torch.no_grad()
    def write(self, windows, greedy):
        """The windows, whose second halves the model wrote."""
        with self.text.cast():
            for at in range(self.text.length // 2, windows.shape[1]):
                last = self.model.hidden(windows[:, :at])[:, -1]
                logits = self.model.logits(last)[:, :BYTES].float()
                windows[:, at] = logits.argmax(-1) if greedy else torch.multinomial(
                    logits.softmax(-1), 1, generator=self.text.generator)[:, 0]
        return windows

    def some(self, count):
        """Windows to learn from: a quarter of them are the model's own."""
        own = count // 4
        picked = torch.randint(len(self.own), (own,), device=self.text.device, generator=self.text.generator)
        return torch.cat((self.text.some(self.text.seen, count - own), self.own[picked]))

    @torch.no_grad()
    def read(self, windows):
        """Final hidden states and logits at every position but the last one."""
        hidden = self.model.hidden(windows[:, :-1])
        return hidden, self.model.logits(hidden)


def divergence(teacher, student):
    """KL divergence in nats, a mean over all rows."""
    return F.kl_div(student.flatten(0, -2).float().log_softmax(-1), teacher.flatten(0, -2).float().log_softmax(-1),
                    log_target=True, reduction="batchmean")


def accepted(teacher, student, after=0):
    """Which share of drafts is accepted: the likeliest token against the likeliest, and one drawn at temperature 1
    against exact rejection. Of each window the rows from `after` count."""
    teacher, student = teacher[:, after:], student[:, after:]
    greedy = (teacher.argmax(-1) == student.argmax(-1)).float().mean().item()
    drawn = torch.minimum(teacher.float().softmax(-1), student.float().softmax(-1)).sum(-1).mean().item()
    return greedy, drawn


def percent(shares):
    return "{:.1f} % greedy, {:.1f} % drawn".format(*(100 * share for share in shares))
