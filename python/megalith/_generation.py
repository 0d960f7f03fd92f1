"""`generation_config.json`: what of it counts for requests that say nothing, and what is not done."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

from ._files import read_object

# Each key of the class `GenerationConfig`, from 4.46 to 5.24 of `transformers`, stands in one of these lists.

_COUNTED = {
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "do_sample",
    "max_new_tokens",
    "max_length",
    "eos_token_id",
}

# The values, beside null, with which they ask for nothing.
_NOT_DONE: dict[str, tuple[Any, ...]] = {
    "bad_words_ids": ([],),
    "begin_suppress_tokens": ([],),
    "constraints": ([],),
    "diversity_penalty": (0,),
    "dola_layers": (),
    "encoder_repetition_penalty": (1,),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "exponential_decay_length_penalty": (),
    "force_words_ids": ([],),
    "forced_bos_token_id": (),
    "forced_decoder_ids": ([],),
    "forced_eos_token_id": (),
    "generation_kwargs": ({},),
    "guidance_scale": (1,),
    "max_time": (),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "no_repeat_ngram_size": (0,),
    "num_beam_groups": (1,),
    "num_beams": (1,),
    "num_return_sequences": (1,),
    "penalty_alpha": (0,),
    "remove_invalid_values": (False,),
    "sequence_bias": ({}, []),
    "stop_strings": ([], ""),
    "suppress_tokens": ([],),
    "token_healing": (False,),
    "top_h": (),
    "typical_p": (1,),
    "watermarking_config": (),
}

# They change no token: names, speed, what a call of Python returns, encoders' inputs, and details of what is told above.
_NO_MATTER = {
    "assistant_confidence_threshold",
    "assistant_early_exit",
    "assistant_ensemble_weight",
    "assistant_lookbehind",
    "bos_token_id",
    "cache_config",
    "cache_implementation",
    "compile_config",
    "continuous_batching_config",
    "decoder_start_token_id",
    "disable_compile",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "is_assistant",
    "length_penalty",
    "low_memory",
    "max_cache_len",
    "max_matching_ngram_size",
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "output_attentions",
    "output_hidden_states",
    "output_logits",
    "output_scores",
    "pad_token_id",
    "prefill_chunk_size",
    "prompt_lookup_num_tokens",
    "renormalize_logits",
    "return_dict_in_generate",
    "return_legacy_cache",
    "speculation_type",
    "target_lookbehind",
    "transformers_version",
    "trust_remote_code",
    "use_cache",
    "use_mtp",
}

_KNOWN = _COUNTED | _NOT_DONE.keys() | _NO_MATTER


@dataclass(frozen=True)
class GenerationDefaults:
    """For requests that say nothing."""

    temperature: float = 1.0
    """0: the best token."""
    top_p: float = 1.0
    top_k: int = 0
    """0: all tokens."""
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    do_sample: bool | None = None
    """What the file says. False is why `temperature` is 0."""
    max_new_tokens: int | None = None
    max_length: int | None = None
    """Of the prompt and the new tokens together; `max_new_tokens` goes first, as in `transformers`."""
    eos: frozenset[int] = frozenset()
    untold: list[str] = field(default_factory=list)
    """A sentence of each key that asks for something that is not done."""

    def budget(self, prompt_tokens: int, room: int) -> int:
        """New tokens of a request that names no number, where there is room for so many."""
        if self.max_new_tokens is not None:
            return min(self.max_new_tokens, room)
        if self.max_length is not None and self.max_length > prompt_tokens:
            return min(self.max_length - prompt_tokens, room)
        return room


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _asks_for_nothing(value: Any, nothing: tuple[Any, ...]) -> bool:
    """0 == False in Python, so types are looked at, too."""
    return value is None or any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in nothing)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


def _not_done(name: str, value: Any, where: str) -> str:
    return f"`{name}` of {where} is {_short(value)}, and that is not done"


def eos_of(said: Any) -> frozenset[int]:
    """Of `eos_token_id`: a number, or several."""
    several = said if isinstance(said, list) else [said]
    return frozenset(each for each in several if isinstance(each, int) and not isinstance(each, bool) and each >= 0)


def read_generation_config(
    folder: Union[str, os.PathLike[str]], samples: bool = True, edits: Collection[str] = ()
) -> GenerationDefaults:
    """What `generation_config.json` of a checkpoint's folder says; without it the same keys of config.json, as
    `transformers` takes them. `samples`: the pipeline draws tokens by the settings of requests. `edits`: settings that it
    honours, as `Program.edits` has them. A `GenerationDefaults` without a file is that of the API. Raises
    `megalith.text.TextError` of a file that cannot be read."""
    path = Path(folder) / "generation_config.json"
    said: Mapping[str, Any]
    if path.exists():
        said = read_object(path)
    else:
        path = Path(folder) / "config.json"
        said = {key: value for key, value in read_object(path).items() if key in _KNOWN}
    untold = []
    where = f"`{path.name}`"

    def number(name: str, default: float, least: float, most: float, limits: str, whole: bool = False) -> Any:
        value = said.get(name)
        if value is None:
            return default
        if not _is_number(value) or not least <= value <= most or whole and value != int(value):
            untold.append(f"`{name}` of {where} must be {limits}, found {_short(value)}; it does not count")
            return default
        return int(value) if whole else value

    temperature = number("temperature", 1.0, 0, 1e6, "a number from 0 to 1000000")
    top_p = number("top_p", 1.0, 1e-9, 1, "a number above 0, up to 1")
    top_k = max(0, number("top_k", 0, -1, 2**31 - 1, "a whole number, 0 or more", whole=True))
    min_p = number("min_p", 0.0, 0, 1, "a number from 0 to 1")
    repetition_penalty = number("repetition_penalty", 1.0, 0.001, 1000, "a number from 0.001 to 1000")
    if repetition_penalty != 1 and "repetition_penalty" not in edits:
        untold.append(_not_done("repetition_penalty", repetition_penalty, where))
        repetition_penalty = 1.0
    max_new_tokens = number("max_new_tokens", 0, 1, 2**31 - 1, "a whole number, 1 or more", whole=True) or None
    max_length = number("max_length", 0, 1, 2**63 - 1, "a whole number, 1 or more", whole=True) or None
    do_sample = said.get("do_sample")
    if do_sample is not None and not isinstance(do_sample, bool):
        untold.append(f"`do_sample` of {where} must be true or false, found {_short(do_sample)}; it does not count")
        do_sample = None
    if do_sample is False or not samples:
        drawn = [name for name in ("temperature", "top_p", "top_k", "min_p") if said.get(name) is not None]
        if do_sample is not False and temperature != 0 and (drawn or do_sample):
            names = ", ".join(f"`{name}`" for name in drawn or ["do_sample"])
            untold.append(
                f"{names} of {where} {'do' if len(drawn) > 1 else 'does'} not count: the pipeline takes the best token"
            )
        temperature, top_p, top_k, min_p = 0.0, 1.0, 0, 0.0
    for name, value in said.items():
        if name in _NOT_DONE:
            if not _asks_for_nothing(value, _NOT_DONE[name]):
                untold.append(_not_done(name, value, where))
        elif name not in _KNOWN and not name.startswith("_"):
            untold.append(f"`{name}` of {where} is not known; it does not count")
    return GenerationDefaults(
        temperature=float(temperature),
        top_p=float(top_p),
        top_k=top_k,
        min_p=float(min_p),
        repetition_penalty=float(repetition_penalty),
        do_sample=do_sample,
        max_new_tokens=max_new_tokens,
        max_length=max_length,
        eos=eos_of(said.get("eos_token_id")),
        untold=untold,
    )
