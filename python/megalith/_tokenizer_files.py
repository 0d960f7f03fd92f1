"""What a checkpoint's folder says of tokens and templates beside `tokenizer.json`, as `transformers` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._files import TextError, read_object, read_text

_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_LISTS = ("additional_special_tokens", "extra_special_tokens")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")

# Defaults of classes of `transformers`, without `Tokenizer` and `Fast` at the end of their names. They are not written
# into a folder.
_LLAMA = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
_ROBERTA = {**_LLAMA, "sep_token": "</s>", "cls_token": "<s>", "pad_token": "<pad>", "mask_token": "<mask>"}
_GPT2 = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
_QWEN2 = dict.fromkeys(("eos_token", "unk_token", "pad_token"), "<|endoftext|>")
_GEMMA = {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>"}
_COHERE = {"bos_token": "<BOS_TOKEN>", "eos_token": "<|END_OF_TURN_TOKEN|>", "unk_token": "<UNK>"}
_BERT = {name: f"[{name[:-6].upper()}]" for name in ("unk_token", "sep_token", "pad_token", "cls_token", "mask_token")}
_T5 = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
_CLASSES: dict[str, dict[str, str]] = {
    "Llama": _LLAMA,
    "CodeLlama": _LLAMA,
    "GPT2": _GPT2,
    "CodeGen": _GPT2,
    "Whisper": _GPT2,
    "GPTNeoX": _GPT2,
    "Qwen2": _QWEN2,
    "Gemma": _GEMMA,
    "Cohere": _COHERE,
    "Bloom": {**_LLAMA, "pad_token": "<pad>"},
    "XGLM": {**_LLAMA, "sep_token": "</s>", "cls_token": "<s>", "pad_token": "<pad>"},
    "OpenAIGPT": {"unk_token": "<unk>"},
    "Roberta": _ROBERTA,
    "Bart": _ROBERTA,
    "XLMRoberta": _ROBERTA,
    "Bert": _BERT,
    "DistilBert": _BERT,
    "Electra": _BERT,
    "T5": _T5,
    "MT5": _T5,
}
# Those that put BOS and EOS around a text as `add_bos_token` and `add_eos_token` say; whether BOS without a word.
_ADDS_BOS = {"Llama": True, "CodeLlama": True, "Gemma": True, "Cohere": True, "GPTNeoX": False}
# Those that leave `add_prefix_space` to `tokenizer.json`. For the others it is false without a word.
_KEEPS_SPACE = {"Llama", "CodeLlama"}
# Of folders that name no class.
_CLASS_OF_TYPE = {
    "codegen": "CodeGen",
    "cohere": "Cohere",
    "cohere2": "Cohere",
    "gemma": "Gemma",
    "gemma2": "Gemma",
    "gemma3": "Gemma",
    "gemma3_text": "Gemma",
    "gpt2": "GPT2",
    "gpt_bigcode": "GPT2",
    "gpt_neo": "GPT2",
    "gpt_neox": "GPTNeoX",
    "gptj": "GPT2",
    "granite": "GPT2",
    "llama": "Llama",
    "mistral": "Llama",
    "mixtral": "Llama",
    "olmo": "GPTNeoX",
    "olmo2": "GPTNeoX",
    "olmo3": "GPT2",
    "opt": "GPT2",
    "phi": "CodeGen",
    "phi3": "Llama",
    "qwen2": "Qwen2",
    "qwen2_moe": "Qwen2",
    "qwen3": "Qwen2",
    "qwen3_moe": "Qwen2",
    "stablelm": "GPTNeoX",
    "starcoder2": "GPT2",
}


@dataclass(frozen=True)
class CheckpointTokens:
    named: dict[str, Any]
    """Texts of tokens, as templates know them: `bos_token` and others; `additional_special_tokens` is a list."""
    added: list[Any]
    """Of the package's class, in the order in which they are added."""
    adds: tuple[bool, bool] | None
    """BOS in front of a text, and EOS after it. None: as `tokenizer.json` says."""
    adds_space: bool | None
    """In front of a text."""


def _token_of(package: Any, value: Any, where: str, special: bool | None = None) -> Any:
    """Of the package's class. `value`: a text, or an object with the text and flags."""
    flags: dict[str, Any] = {}
    if isinstance(value, Mapping):
        flags = {name: value[name] for name in _FLAGS if value.get(name) is not None}
        value = value.get("content")
        if not all(isinstance(flag, bool) for flag in flags.values()):
            raise TextError(f"{where}: {', '.join(_FLAGS)} of a token must be true or false")
    if not isinstance(value, str):
        raise TextError(f"{where} must be a text, or an object with the `content` of a token")
    if special is not None:
        flags["special"] = special
    return package.AddedToken(value, **flags)


def _content(value: Any) -> str:
    content = value.get("content") if isinstance(value, Mapping) else value
    return content if isinstance(content, str) else ""


def _several(value: Any, where: str) -> list[tuple[str | None, Any]]:
    """Tokens, each with its name if it has one."""
    if value is None:
        return []
    if isinstance(value, list):
        return [(None, each) for each in value]
    if isinstance(value, Mapping):
        return list(value.items())
    raise TextError(f"{where} must be a list of tokens, or an object of them")


def _names_a_token(name: str) -> bool:
    return name.endswith("_token") and not name.startswith("add_")


def _number_of(text: str, where: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise TextError(f"{where} has the key `{text[:40]}`, which is no token's number") from None


def _class_of(config: Mapping[str, Any], model: Mapping[str, Any]) -> tuple[str, bool]:
    """And whether the folder names it; else it is that of the model's type."""
    for said in (config.get("tokenizer_class"), model.get("tokenizer_class")):
        if isinstance(said, str):
            return said.removesuffix("Fast").removesuffix("Tokenizer"), True
    kind = model.get("model_type")
    return (_CLASS_OF_TYPE.get(kind, "") if isinstance(kind, str) else ""), False


def read_tokens(
    folder: Path, config: Mapping[str, Any], model: Mapping[str, Any], tokenizer: Any, package: Any
) -> CheckpointTokens:
    """`config` is tokenizer_config.json, `model` config.json, `tokenizer` that of `tokenizer.json`.

    A token's flags are those of `added_tokens_decoder`, then those with which it is named, then those of `tokenizer.json`.
    Without `added_tokens_decoder`, `tokenizer.json` goes first, `special_tokens_map.json` goes before the config, and
    `added_tokens.json` has tokens, too."""
    where = f"`{folder / 'tokenizer_config.json'}`"
    own = dict(tokenizer.get_added_tokens_decoder())
    said = {name: value for name, value in config.items() if name in _LISTS or _names_a_token(name)}
    origin = dict.fromkeys(said, where)
    decoder: dict[int, Any] = {}
    listed: Any = None
    others: dict[str, Any] = {}
    kind, is_named = _class_of(config, model)
    if config.get("added_tokens_decoder") is not None:
        listed = config["added_tokens_decoder"]
        if not isinstance(listed, Mapping):
            raise TextError(f"{where}: `added_tokens_decoder` must be an object")
        for key, value in listed.items():
            number = _number_of(key, f"{where}: `added_tokens_decoder`")
            decoder[number] = _token_of(package, value, f"{where}: `added_tokens_decoder`")
    else:
        path = folder / "special_tokens_map.json"
        for name, value in read_object(path).items():
            if name in _LISTS and isinstance(value, list):
                value = [*(each for _, each in _several(said.get(name), f"{where}: `{name}`")), *value]
            if name in _LISTS or _names_a_token(name):
                said[name] = value
                origin[name] = f"`{path}`"
        path = folder / "added_tokens.json"
        others = read_object(path)
        for content, number in others.items():
            if not isinstance(number, int) or isinstance(number, bool):
                raise TextError(f"`{path}`: the number of a token must be a whole number")
        special = {_content(value) for name, value in said.items() if name not in _LISTS}
        special |= {
            _content(each)
            for name in _LISTS
            for _, each in _several(said.get(name), f"{origin.get(name, where)}: `{name}`")
        }
        for content, number in others.items():
            is_special = content in special
            decoder[number] = package.AddedToken(content, normalized=not is_special, special=is_special)
        decoder.update(own)
    for name, value in _CLASSES.get(kind, {}).items():
        if name not in said and (value in others or tokenizer.token_to_id(value) is not None):
            said[name] = value

    named: dict[str, Any] = {}
    specials: list[Any] = []
    flagged: dict[str, Any] = {}
    # The order of `transformers`: tokens without a number get the next ones.
    order = {name: place for place, name in enumerate((*_NAMED, *_LISTS))}
    for name, value in sorted(said.items(), key=lambda each: order.get(each[0], len(order))):
        if name in _LISTS:
            for key, each in _several(value, f"{origin.get(name, where)}: `{name}`"):
                token = _token_of(package, each, f"{origin.get(name, where)}: `{name}`", special=True)
                specials.append(token)
                if key is not None:
                    named[key] = token.content
                else:
                    named.setdefault("additional_special_tokens", []).append(token.content)
        elif isinstance(value, (str, Mapping)):
            token = _token_of(package, value, f"{origin.get(name, where)}: `{name}`", special=True)
            named[name] = token.content
            specials.append(token)
            if isinstance(value, Mapping):
                flagged[token.content] = token
        elif name in _NAMED and value is not None:
            raise TextError(
                f"{origin.get(name, where)}: `{name}` must be a text, or an object with the `content` of a token"
            )
    contents = {token.content for token in specials}
    added = []
    for _, token in sorted(decoder.items(), key=lambda each: each[0]):
        token.special = token.special or token.content in contents
        added.append(token)
    there = {token.content for token in (*own.values(), *added)}
    for token in specials:
        if token.content and token.content not in there:
            there.add(token.content)
            added.append(token)
    # Those that `tokenizer.json` alone has.
    again = {token.content for token in added}
    for _, token in sorted(own.items()):
        if token.content in contents and token.content not in again and not token.special:
            token.special = True
            added.append(token)
    first = {token.content for token in (decoder if listed is not None else own).values()}
    added += [token for content, token in flagged.items() if content not in first]

    # Classes of `transformers` 4 always have their own way with BOS. What 5 has saved has it in `tokenizer.json`, and has
    # no word of `add_bos_token`; that it has saved it is seen by `backend`. Where no class is named, as 5 does it, too.
    adds = None
    said_adds = [config.get(name) for name in ("add_bos_token", "add_eos_token")]
    if kind in _ADDS_BOS and (
        any(each is not None for each in said_adds) or is_named and ("backend" not in config or not _ADDS_BOS[kind])
    ):
        bos = _ADDS_BOS[kind] if said_adds[0] is None else bool(said_adds[0])
        adds = bos and "bos_token" in named, bool(said_adds[1]) and "eos_token" in named
    space = config.get("add_prefix_space", False)
    return CheckpointTokens(named, added, adds, space if isinstance(space, bool) and kind not in _KEEPS_SPACE else None)


def _named_templates(value: Any, where: str) -> dict[str, str]:
    """Of a text, a list of objects with name and template, or an object of them."""
    if value is None:
        return {}
    if isinstance(value, str):
        return {"default": value}
    if isinstance(value, list) and all(isinstance(each, Mapping) for each in value):
        value = {each.get("name"): each.get("template") for each in value}
    if isinstance(value, Mapping) and all(isinstance(part, str) for each in value.items() for part in each):
        return dict(value)
    raise TextError(f"{where}: `chat_template` must be a text, or a list of objects with `name` and `template`")


def read_templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """By name; the one is `default`. Files of their own go before the config; the file of a processor is the last."""
    files = {"default": folder / "chat_template.jinja"} if (folder / "chat_template.jinja").exists() else {}
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        files[path.name.removesuffix(".jinja")] = path
    if files:
        return {name: read_text(path) for name, path in files.items()}
    if found := _named_templates(config.get("chat_template"), f"`{folder / 'tokenizer_config.json'}`"):
        return found
    path = folder / "chat_template.json"
    return _named_templates(read_object(path).get("chat_template"), f"`{path}`")
