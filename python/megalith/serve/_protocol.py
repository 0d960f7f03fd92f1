"""What the parts of the server say to each other: errors, limits, and what a call asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._generation import GenerationDefaults


class ApiError(Exception):
    """An answer that is an error, in the form of the API."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.status, self.kind, self.param, self.code = message, status, kind, param, code
        self.headers = dict(headers or {})

    def __reduce__(self) -> tuple[Any, ...]:
        return _error_of, (self.message, self.status, self.kind, self.param, self.code, self.headers)

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


def _error_of(message: str, status: int, kind: str, param: str | None, code: str | None, headers: Any) -> ApiError:
    return ApiError(message, status=status, kind=kind, param=param, code=code, headers=headers)


@dataclass(frozen=True)
class Limits:
    """What the server takes, and what it has."""

    model: str
    context: int
    """Tokens of a request, its prompt and its completion together."""
    prompt_tokens: int
    completion_tokens: int
    vocabulary: int
    samples: bool
    """The pipeline reads settings of sampling."""
    temperature: float
    """What a request that says nothing gets; so with the others."""
    top_p: float
    top_k: int
    ends: int
    """Words that the tokens and sequences that end a request take together."""
    eos: int
    """How many tokens end a text."""
    logit_lines: int = 0
    """Rows of logits that requests with logprobs share."""
    no_prompt_logprobs: str = ""
    """Why the pipeline has no logprobs of prompts; empty: it has."""
    min_p: float = 0.0
    usual: GenerationDefaults = GenerationDefaults()
    """How many tokens a chat gets that says nothing."""
    token_bytes: int = 0
    """The most that a token stands for: so a text is refused before it is made tokens. 0: that is not known."""


@dataclass
class Job:
    """One call of a client. It makes `len(prompts) * drawn` choices."""

    is_chat: bool
    prompts: list[Sequence[int]]
    n: int
    """Choices that are told of each prompt."""
    budgets: list[int]
    """By prompt."""
    settings: dict[str, Any]
    """For `Session.agenerate`, but for the seed."""
    seed: int | None
    stop: list[str]
    is_stream: bool
    wants_usage: bool
    logprobs: int | None = None
    """Likeliest tokens that are told of each, beside its own logprob; None: no logprobs."""
    echo: bool = False
    """The text begins with that of the prompt."""
    prompt_logprobs: int | None = None
    """As `logprobs`, of the tokens of the prompt."""
    drawn: int = 1
    """Choices that are made of each prompt. Of more than `n` the likeliest are told."""
    keeps_stop: bool = False
    """The text has the stop text at its end."""
    shows_special: bool = False
    """The text has special tokens."""
    usage_each: bool = False
    """Each chunk of a stream has `usage`."""
    names_tokens: bool = False
    """Logprobs call tokens `token_id:N`."""
    id: str | None = None
    """That the client gave."""
    seeds: list[int | None] = field(default_factory=list)
    """By choice."""

    @property
    def logprobs_of_prompt(self) -> int | None:
        """What the session is asked for."""
        echoed = self.logprobs if self.echo else None
        return echoed if self.prompt_logprobs is None else max(self.prompt_logprobs, echoed or 0)


<<<<<<< HEAD
def read_json(body: bytes) -> dict[str, Any]:
    def no(constant: str) -> Any:
        raise ValueError(f"{constant} is no number of JSON")

    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ApiError(f"the body is not UTF-8: {error.reason} at byte {error.start}") from error
    try:
        value = json.loads(text, parse_constant=no)
    except (ValueError, RecursionError) as error:
        raise ApiError(f"the body is not JSON: {error}") from error
    if text.count("[") + text.count("{") > MOST_DEPTH:
        _check_depth(value)
    if "\\ud" in text or "\\uD" in text:  # JSON can write half of a pair
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeError as error:
            raise ApiError("the body has half of a surrogate pair, which is no text") from error
    if not isinstance(value, dict):
        raise ApiError(f"the body must be a JSON object, found {_what(value)}")
    return value


def _check_depth(value: Any) -> None:
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MOST_DEPTH):
        inner: list[Any] = []
        for each in level:
            inner += each.values() if isinstance(each, dict) else each
        level = [each for each in inner if isinstance(each, (dict, list))]
        if not level:
            return
    raise ApiError(f"the body has arrays and objects {MOST_DEPTH} deep in each other, and that is too deep")


def _what(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return f"the number {value!r}"[:80]
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list) else "an object"


class Fields:
    """Members of a body. Each is taken once; what is left is refused. null is as good as nothing."""

    def __init__(self, body: Mapping[str, Any], at: str = "") -> None:
        self.left = {name: value for name, value in body.items() if value is not None}
        self.at = at

    def wrong(self, name: str, what: str, code: str | None = None) -> ApiError:
        path = self.at + name
        path = path if len(path) <= MOST_ID else path[:MOST_ID] + "..."  # a client may make any name up
        return ApiError(f"`{path}` {what}", param=path, code=code)

    def take(self, name: str, default: Any = None) -> Any:
        return self.left.pop(name, default)

    def number(self, name: str, default: float, least: float, most: float, *, above: bool = False) -> float:
        value = self.take(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.wrong(name, f"must be a number, found {_what(value)}")
        try:
            value = float(value)
        except OverflowError:
            value = math.inf
        if not (least < value if above else least <= value) or not value <= most:
            raise self.wrong(
                name, f"must be {'above' if above else 'from'} {least:g} {'and at most' if above else 'to'} {most:g}"
            )
        return value

    def integer(self, name: str, default: int | None, least: int, most: int | None = None) -> int | None:
        value = self.take(name)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(name, f"must be an integer, found {_what(value)}")
        if value < least or most is not None and value > most:
            raise self.wrong(name, f"must be {least} or more" if most is None else f"must be from {least} to {most}")
        return value

    def boolean(self, name: str, default: bool = False) -> bool:
        value = self.take(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, f"must be true or false, found {_what(value)}")
        return value

    def text(self, name: str, most: int) -> str | None:
        value = self.take(name)
        if value is not None and not (isinstance(value, str) and 0 < len(value) <= most and value.isprintable()):
            raise self.wrong(name, f"must be a string of up to {most} characters")
        return value

    def done(self) -> None:
        for name in self.left:
            raise self.wrong(name, "is not a field that this server knows", code="unknown_parameter")


# They say who asks, or how another server should keep what it has, and change no answer here.
_IGNORED = (
    "user",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "cache_salt",  # no request sees what another one left
    "include_reasoning",  # it is not told from the text
    "spaces_between_special_tokens",  # of tokenizers that are no `tokenizer.json`
)

# What is not done, and the values that ask for nothing of it.
_NOT_DONE: dict[str, tuple[Any, ...]] = {
    "allowed_token_ids": (),
    "audio": (),
    "bad_words": ([],),
    "chat_template": (),
    "documents": ([],),
    "early_stopping": (False,),
    "enable_thinking": (),
    "frequency_penalty": (0,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "guided_choice": (),
    "guided_decoding_backend": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_whitespace_pattern": (),
    "kv_transfer_params": ({},),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "logits_processors": ([],),
    "media_io_kwargs": ({},),
    "min_tokens": (0,),
    "mm_processor_kwargs": ({},),
    "modalities": (["text"],),
    "no_repeat_ngram_size": (0,),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "presence_penalty": (0,),
    "prompt_embeds": (),
    "reasoning": (),
    "reasoning_effort": (),
    "repetition_detection": ({},),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "return_token_ids": (False,),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "structural_tag": (),
    "structured_outputs": (),
    "suffix": ("",),
    "thinking": (),
    "thinking_token_budget": (),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "use_beam_search": (False,),
    "verbosity": (),
    "vllm_xargs": ({},),
    "web_search_options": (),
}
_WHY = {
    "chat_template": "the server's is the one that counts; see --chat-template",
    "documents": "say them in `chat_template_kwargs`, if the template has a place for them",
    **dict.fromkeys(
        ("enable_thinking", "thinking"), "what a chat template knows by this name is said in `chat_template_kwargs`"
    ),
}


def _refuse_what_is_not_done(fields: Fields) -> None:
    for name, nothing in _NOT_DONE.items():
        value = fields.take(name)
        # 0 == False, so types are looked at, too
        if value is None or any(
            value == each and isinstance(value, bool) == isinstance(each, bool) for each in nothing
        ):
            continue
        raise fields.wrong(name, f"is not supported: {_WHY.get(name, 'leave it out')}", code="unsupported_parameter")


def read_job(body: Mapping[str, Any], is_chat: bool, limits: Limits, tokenizer: Tokenizer) -> Job:
    fields = Fields(body)
    _check_model(fields, limits)
    for name in _IGNORED:
        fields.take(name)
    n = fields.integer("n", 1, 1, MOST_CHOICES)
    assert n is not None
    drawn = fields.integer("best_of", n, 1, MOST_CHOICES)
    assert drawn is not None
    _refuse_what_is_not_done(fields)
    logprobs = _read_logprobs(fields, is_chat, limits)
    is_stream = fields.boolean("stream")
    echo, prompt_logprobs = _read_of_prompt(fields, is_chat, is_stream, limits)
    _check_best_of(fields, n, drawn, is_stream, limits)
    wants_usage, usage_each = _read_stream_options(fields, is_stream)
    name = fields.text("request_id", MOST_ID)
    keeps_stop = fields.boolean("include_stop_str_in_output")
    shows_special = not fields.boolean("skip_special_tokens", True)
    names_tokens = fields.boolean("return_tokens_as_token_ids")
    most_prompt = fields.integer("truncate_prompt_tokens", None, -1)
    if most_prompt == 0:
        raise fields.wrong("truncate_prompt_tokens", "must be 1 or more, or -1: as many as the server takes")
    if most_prompt == -1:
        most_prompt = min(limits.prompt_tokens, limits.context - 1)
    settings = _read_sampling(fields, limits)
    seed = fields.integer("seed", None, -(2**63), 2**63 - 1)
    stop = _read_stop(fields)
    stop_tokens = fields.take("stop_token_ids", [])
    if not isinstance(stop_tokens, list) or not all(_is_token(each, limits) for each in stop_tokens):
        raise fields.wrong("stop_token_ids", f"must be an array of tokens, from 0 to {limits.vocabulary - 1}")
    settings["priority"] = fields.integer("priority", 0, -(2**31), 2**31 - 1)
    settings["inputs"] = _read_inputs(fields, tokenizer)
    if ignores_eos := fields.boolean("ignore_eos"):
        settings["eos"] = []
    settings["stop"] = _stops_of_the_engine(stop, stop_tokens, tokenizer, limits, ignores_eos)
    least = 0 if echo or prompt_logprobs is not None else 1  # the prompt may be all that is wanted
    budget_name, budget = "max_tokens", fields.integer("max_tokens", None, least)
    if is_chat and (newer := fields.integer("max_completion_tokens", None, least)) is not None:
        if budget is not None and budget != newer:
            raise fields.wrong(
                "max_tokens", "and `max_completion_tokens` say different things; `max_tokens` is the old name"
            )
        budget_name, budget = "max_completion_tokens", newer
    if is_chat:
        prompts, prompt_name = [_read_chat(fields, limits, tokenizer, cut=most_prompt is not None)], "messages"
    else:
        prompts, prompt_name = _read_prompts(fields, limits, tokenizer, cut=most_prompt is not None), "prompt"
        budget = 16 if budget is None else budget  # as the API has it
    fields.done()
    if most_prompt is not None:
        prompts = [prompt[-most_prompt:] for prompt in prompts]
    if len(prompts) * drawn > MOST_CHOICES:
        raise fields.wrong(
            "n" if drawn == n else "best_of",
            f"times {len(prompts)} prompts is more than the {MOST_CHOICES} choices that one call may ask for",
        )
    budgets = [_budget_of(prompt, prompt_name, budget, budget_name, limits) for prompt in prompts]
    if logprobs is not None or drawn > n:
        for most in budgets:
            _check_lines(most, budget_name, limits, "logprobs" if logprobs is not None else "`best_of` above `n`")
    if prompt_logprobs is not None or (echo and logprobs is not None):
        for prompt, most in zip(prompts, budgets):
            _check_prompt_lines(len(prompt), most, prompt_name, limits)
    job = Job(is_chat, prompts, n, budgets, settings, seed, stop, is_stream, wants_usage, logprobs)
    job.drawn, job.echo, job.prompt_logprobs = drawn, echo, prompt_logprobs
    job.keeps_stop, job.shows_special, job.usage_each = keeps_stop, shows_special, usage_each
    job.names_tokens, job.id = names_tokens, name
    job.seeds = [_seed_of(job, choice % drawn) for choice in range(len(prompts) * drawn)]
    return job


def _check_best_of(fields: Fields, n: int, drawn: int, is_stream: bool, limits: Limits) -> None:
    if drawn < n:
        raise fields.wrong("best_of", f"must be `n` or more; that is {n}")
    if drawn > n and is_stream:
        raise fields.wrong("best_of", "must be `n` in a stream: which choices are the best is known at the end")
    if drawn > n and limits.logit_lines == 0:
        raise fields.wrong(
            "best_of",
            "above `n` is not supported: this server keeps no logits; see --logit-lines",
            code="unsupported_parameter",
        )


def _check_model(fields: Fields, limits: Limits) -> None:
    model = fields.take("model")
    if not isinstance(model, str):
        raise fields.wrong("model", f"is missing; it is `{limits.model}` here" if model is None else "must be a string")
    if model != limits.model:
        raise no_such_model(model, limits)


=======
>>>>>>> w-clients
def no_such_model(model: str, limits: Limits) -> ApiError:
    return ApiError(
        f"the model `{model[:200]}` does not exist; this server has `{limits.model}`",
        status=404,
        param="model",
        code="model_not_found",
    )
<<<<<<< HEAD


def _read_stream_options(fields: Fields, is_stream: bool) -> tuple[bool, bool]:
    """Whether `usage` is wanted at the end, and with each chunk."""
    options = fields.take("stream_options")
    if options is None:
        return False, False
    if not isinstance(options, dict):
        raise fields.wrong("stream_options", f"must be an object, found {_what(options)}")
    if not is_stream:
        raise fields.wrong("stream_options", "needs `stream` to be true")
    inner = Fields(options, "stream_options.")
    wants_usage = inner.boolean("include_usage")
    if inner.boolean("include_obfuscation"):
        raise inner.wrong("include_obfuscation", "is not supported: leave it out", code="unsupported_parameter")
    usage_each = inner.boolean("continuous_usage_stats")
    inner.done()
    return wants_usage, wants_usage and usage_each


def _read_sampling(fields: Fields, limits: Limits) -> dict[str, Any]:
    given = [name for name in ("temperature", "top_p", "top_k", "min_p") if name in fields.left]
    temperature = fields.number("temperature", limits.temperature, 0, 1e6)
    top_p = fields.number("top_p", limits.top_p, 0, 1, above=True)
    top_k = fields.integer("top_k", limits.top_k, -1, 2**31 - 1)
    min_p = fields.number("min_p", limits.min_p, 0, 1)
    assert top_k is not None
    settings = {"temperature": temperature, "top_p": top_p, "top_k": max(0, top_k), "min_p": min_p}
    if not limits.samples:
        nothing = {"temperature": 0, "top_p": 1, "top_k": 0, "min_p": 0}
        for name in given:
            if settings[name] != nothing[name]:
                raise fields.wrong(
                    name,
                    f"is {settings[name]:g}, but the pipeline is greedy: it draws nothing by the settings of requests. "
                    f"Leave it out, or serve a pipeline that reads `sampling`",
                    code="unsupported_parameter",
                )
        return nothing
    return settings


def _read_inputs(fields: Fields, tokenizer: Tokenizer) -> dict[str, Any]:
    """As `Session.agenerate` takes them, at once."""
    inputs = fields.take("inputs", {})
    if not isinstance(inputs, dict):
        raise fields.wrong("inputs", f"must be an object, found {_what(inputs)}")
    out = {}
    for name, value in inputs.items():
        try:
            if isinstance(value, str):
                value = tokenizer.encode(value)
            if isinstance(value, list) and value:
                array = np.asarray(value)
                value = array if array.dtype.kind in "biuf" else value
        except (ValueError, TextError) as error:
            raise ApiError(f"`inputs.{name}` is no value of an input: {error}"[:500], param="inputs") from error
        out[name] = value
    return out


def _read_logprobs(fields: Fields, is_chat: bool, limits: Limits) -> int | None:
    if is_chat:
        is_wanted, top = fields.boolean("logprobs"), fields.integer("top_logprobs", 0, 0, MOST_LOGPROBS)
        if top and not is_wanted:
            raise fields.wrong("top_logprobs", "needs `logprobs` to be true")
        logprobs = top if is_wanted else None
    else:
        if fields.left.get("logprobs") is False:
            fields.take("logprobs")
        logprobs = fields.integer("logprobs", None, 0, MOST_LOGPROBS_OF_COMPLETIONS)
    if logprobs is not None and limits.logit_lines == 0:
        raise fields.wrong(
            "logprobs", "is not supported: this server keeps no logits; see --logit-lines", code="unsupported_parameter"
        )
    return logprobs


def _read_of_prompt(fields: Fields, is_chat: bool, is_stream: bool, limits: Limits) -> tuple[bool, int | None]:
    """`echo`, and `prompt_logprobs` of vLLM."""
    echo, most = fields.boolean("echo"), fields.integer("prompt_logprobs", None, 0, MOST_LOGPROBS)
    if echo and is_chat:
        raise fields.wrong("echo", "is not supported in a chat: leave it out", code="unsupported_parameter")
    if most is not None and limits.logit_lines == 0:
        raise fields.wrong(
            "prompt_logprobs",
            "is not supported: this server keeps no logits; see --logit-lines",
            code="unsupported_parameter",
        )
    for name, is_wanted in (("echo", echo), ("prompt_logprobs", most is not None)):
        if is_wanted and is_stream:
            raise fields.wrong(name, "is not supported in a stream", code="unsupported_parameter")
    return echo, most


def _check_prompt_lines(length: int, budget: int, prompt_name: str, limits: Limits) -> None:
    rows = length - 1 + max(1, budget)
    if rows > limits.logit_lines:
        raise ApiError(
            f"with logprobs of its prompt a request takes a row of logits for each token that it has or may generate: "
            f"{rows}, and this server has {limits.logit_lines}: send a shorter prompt, or start the server with greater "
            f"--logit-lines",
            param=prompt_name,
            code="too_many_logprobs",
        )


def _check_lines(budget: int, budget_name: str, limits: Limits, what: str) -> None:
    if budget > limits.logit_lines:
        raise ApiError(
            f"with {what} a request may generate {limits.logit_lines} tokens, and this one may {budget}: ask for fewer "
            f"with `{budget_name}`, or start the server with greater --logit-lines",
            param=budget_name,
            code="too_many_logprobs",
        )


def _read_stop(fields: Fields) -> list[str]:
    stop = fields.take("stop", [])
    stop = [stop] if isinstance(stop, str) else stop
    if not isinstance(stop, list) or not all(isinstance(each, str) for each in stop):
        raise fields.wrong("stop", "must be a string, or an array of strings")
    if len(stop) > MOST_STOPS or any(len(each) > MOST_STOP_LENGTH for each in stop):
        raise fields.wrong("stop", f"may have up to {MOST_STOPS} strings of up to {MOST_STOP_LENGTH} characters")
    if "" in stop:
        raise fields.wrong("stop", "has an empty string")
    return list(dict.fromkeys(stop))


def _stops_of_the_engine(
    stop: Sequence[str], tokens: Sequence[int], tokenizer: Tokenizer, limits: Limits, ignores_eos: bool
) -> list[list[int]]:
    """Sequences with which the engine itself ends the request. Texts are looked for in what it gives, so they may be
    missing here; tokens may not."""
    out = [[token] for token in dict.fromkeys(tokens)]
    room = limits.ends - (0 if ignores_eos else limits.eos) - 2 * len(out)
    if room < 0:
        most = (room + 2 * len(out)) // 2
        raise ApiError(
            f"`stop_token_ids` has {len(out)} tokens, and this server takes {most} beside those that end a text",
            param="stop_token_ids",
        )
    for text in stop:
        exact = tokenizer.exact(text)
        if exact and len(exact) + 1 <= room and max(exact) < limits.vocabulary:  # others never come
            room -= len(exact) + 1
            out.append(exact)
    return out


def _is_token(value: Any, limits: Limits) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limits.vocabulary


def _encode(text: str, special: bool, name: str, limits: Limits, tokenizer: Tokenizer, cut: bool) -> list[int]:
    """A text that is too long for certain is not made tokens, unless the client cuts it."""
    least = -(-len(text) // limits.token_bytes) if limits.token_bytes and not cut else 0
    if least > limits.prompt_tokens:
        raise ApiError(
            f"the prompt has {len(text)} characters, which are {least} tokens or more, and this server takes "
            f"{limits.prompt_tokens}",
            param=name,
            code="context_length_exceeded",
        )
    try:
        return tokenizer.encode(text, special=special)
    except TextError as error:
        raise ApiError(f"`{name}` cannot be made tokens: {error}", param=name) from error


def _read_prompts(fields: Fields, limits: Limits, tokenizer: Tokenizer, cut: bool = False) -> list[Sequence[int]]:
    """A text, tokens, or several of these."""
    prompt = fields.take("prompt")
    special = fields.boolean("add_special_tokens", True)
    if prompt is None:
        raise fields.wrong("prompt", "is missing")
    several = [prompt] if isinstance(prompt, str) or _looks_like_tokens(prompt) else prompt
    if not isinstance(several, list) or not all(isinstance(each, str) or _looks_like_tokens(each) for each in several):
        raise fields.wrong("prompt", "must be a string, an array of tokens, or an array of these")
    if not several:
        raise fields.wrong("prompt", "is empty")
    if len(several) > MOST_CHOICES:
        raise fields.wrong("prompt", f"has {len(several)} prompts; one call may have {MOST_CHOICES}")
    out: list[Sequence[int]] = []
    for each in several:
        if not isinstance(each, str):
            for token in each:
                if not _is_token(token, limits):
                    raise fields.wrong(
                        "prompt", f"has the token {token}, and the vocabulary is 0 to {limits.vocabulary - 1}"
                    )
        out.append(_encode(each, special, "prompt", limits, tokenizer, cut) if isinstance(each, str) else each)
    return out


def _looks_like_tokens(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(each) is int for each in value)


def _read_chat(fields: Fields, limits: Limits, tokenizer: Tokenizer, cut: bool = False) -> list[int]:
    if not tokenizer.has_chat_template:
        raise ApiError(
            "the checkpoint has no chat template; use /v1/completions, or start the server with --chat-template",
            param="messages",
            code="no_chat_template",
        )
    messages = fields.take("messages")
    if not isinstance(messages, list) or not messages:
        raise fields.wrong("messages", "is missing" if messages is None else "must be an array with messages")
    template = "\n".join(tokenizer._templates.sources.values()) if tokenizer._templates else ""
    read = [_read_message(message, f"messages[{number}]", template) for number, message in enumerate(messages)]
    variables = fields.take("chat_template_kwargs", {})
    if not isinstance(variables, dict):
        raise fields.wrong("chat_template_kwargs", f"must be an object, found {_what(variables)}")
    for name in variables:
        if name in _TAKEN or not name.isidentifier():
            raise fields.wrong("chat_template_kwargs", f"may not have `{name[:200]}`")
    continues = fields.boolean("continue_final_message")
    answer = fields.boolean("add_generation_prompt", not continues)
    special = fields.boolean("add_special_tokens", False)
    if continues and answer:
        raise fields.wrong("continue_final_message", "needs `add_generation_prompt` to be false")
    try:
        text = tokenizer.chat_text(read, answer=answer, **variables)
    except TextError as error:
        raise fields.wrong("messages", f"do not fit: {error}") from error
    except Exception as error:  # noqa: BLE001, a template may raise anything for a client's values
        raise fields.wrong("messages", f"do not fit: the chat template failed: {type(error).__name__}: {error}") from error
    if continues:
        text = _cut_behind(text, read[-1], fields)
    return _encode(text, special, "messages", limits, tokenizer, cut)


def _cut_behind(text: str, message: Mapping[str, Any], fields: Fields) -> str:
    """Behind the last message's content, which the model continues: as `transformers` does."""
    content = message["content"] or ""
    place = text.rfind(content.strip())
    if message["role"] != "assistant" or not content.strip():
        raise fields.wrong("continue_final_message", "needs a last message of the role `assistant`, with a text")
    if place < 0:
        raise fields.wrong("continue_final_message", "does not work: the chat template changes the last message")
    whole = content.lstrip()
    return text[: place + len(whole if text.startswith(whole, place) else content.strip())]


def _read_message(message: Any, at: str, template: str) -> dict[str, Any]:
    """As a template takes it."""
    if not isinstance(message, dict):
        raise ApiError(f"`{at}` must be an object, found {_what(message)}", param=at)
    fields = Fields(message, f"{at}.")
    role = fields.take("role")
    if role not in ROLES:
        raise fields.wrong("role", f"must be one of {', '.join(f'`{each}`' for each in ROLES)}")
    out: dict[str, Any] = {"role": role}
    if role == "developer" and "developer" not in template:
        out["role"] = "system"  # its older name
    content = fields.take("content")
    if isinstance(content, list):
        content = "".join(_read_part(part, f"{at}.content[{number}]") for number, part in enumerate(content))
    if content is None and role == "assistant":
        # Of an answer that had none, as calls of tools. Only templates that ask for it get the null.
        content = None if _ASKS_FOR_NONE.search(template) else ""
    elif not isinstance(content, str):
        raise fields.wrong("content", f"must be a string, or an array of texts, found {_what(content)}")
    out["content"] = content
    for key in ("name", "tool_call_id"):
        if (value := fields.take(key)) is not None:
            if not isinstance(value, str):
                raise fields.wrong(key, "must be a string")
            out[key] = value
    for key in ("refusal", "annotations", "audio"):  # of an answer that is sent back
        if fields.left.get(key) in ("", [], {}):
            fields.take(key)
    if role == "assistant":
        for key in ("reasoning_content", "reasoning"):
            if (value := fields.take(key)) is not None:
                if not isinstance(value, str):
                    raise fields.wrong(key, "must be a string")
                out[key] = value
        fields.take("reasoning_details")
        if calls := fields.take("tool_calls"):
            if not isinstance(calls, list):
                raise fields.wrong("tool_calls", f"must be an array, found {_what(calls)}")
            out["tool_calls"] = [_read_call(call, f"{at}.tool_calls[{number}]") for number, call in enumerate(calls)]
        if call := fields.take("function_call"):
            out["function_call"] = _read_function(call, f"{at}.function_call")
    for key in ("tool_calls", "function_call"):
        if fields.take(key):
            raise fields.wrong(key, "is for messages of the role `assistant`")
    fields.done()
    return out


_TAKEN = RESERVED | {"self", "answer", "tools", "documents", "chat_template"}
"""No names of a client's variables."""
_ASKS_FOR_NONE = re.compile(r"""content['"]?\]?\s+is\s+(not\s+)?none""", re.IGNORECASE)


def _read_call(call: Any, at: str) -> dict[str, Any]:
    if not isinstance(call, dict):
        raise ApiError(f"`{at}` must be an object, found {_what(call)}", param=at)
    if call.get("type", "function") != "function":
        raise ApiError(f"`{at}.type` must be `function`", param=f"{at}.type")
    return {**call, "function": _read_function(call.get("function"), f"{at}.function")}


def _read_function(function: Any, at: str) -> dict[str, Any]:
    """Templates expect arguments as an object, and the API has them as its text."""
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise ApiError(f"`{at}` must be an object with the string `name`", param=at)
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            read = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            read = arguments
        arguments = read if isinstance(read, dict) else arguments
    if not isinstance(arguments, (str, dict)):
        raise ApiError(f"`{at}.arguments` must be a string, found {_what(arguments)}", param=f"{at}.arguments")
    return {**function, "arguments": arguments}


def _read_part(part: Any, at: str) -> str:
    if not isinstance(part, dict):
        raise ApiError(f"`{at}` must be an object, found {_what(part)}", param=at)
    fields = Fields(part, f"{at}.")
    kind, text = fields.take("type"), fields.take("text")
    if kind != "text":
        raise fields.wrong("type", "must be `text`: this server reads nothing else", code="unsupported_parameter")
    if not isinstance(text, str):
        raise fields.wrong("text", f"must be a string, found {_what(text)}")
    fields.done()
    return text


def _budget_of(prompt: Sequence[int], prompt_name: str, budget: int | None, budget_name: str, limits: Limits) -> int:
    def too_long(what: str, param: str) -> ApiError:
        return ApiError(what, param=param, code="context_length_exceeded")

    count = len(prompt)
    if count == 0:
        raise ApiError("the prompt has no token", param=prompt_name)
    if count > limits.prompt_tokens:
        raise too_long(f"the prompt has {count} tokens, and this server takes {limits.prompt_tokens}", prompt_name)
    room = limits.context - count
    if room < 1:
        raise too_long(f"the prompt has {count} tokens; with a completion there may be {limits.context}", prompt_name)
    if budget is None:
        return limits.usual.budget(count, min(room, limits.completion_tokens))
    if budget > limits.completion_tokens:
        raise too_long(f"`{budget_name}` is {budget}, and this server gives {limits.completion_tokens}", budget_name)
    if budget > room:
        raise too_long(
            f"the prompt has {count} tokens and `{budget_name}` is {budget}; together there may be {limits.context}",
            budget_name,
        )
    return budget


def _seed_of(job: Job, choice: int) -> int | None:
    """The first choice of a prompt has the client's seed, if the engine has it: 32 bits."""
    if job.settings["temperature"] == 0:
        return None
    if job.seed is None:
        return secrets.randbits(32)
    return (job.seed + choice * 0x9E3779B9) % 2**32


# ===----------------------------------------------------------------------===#
# Tokens and texts
# ===----------------------------------------------------------------------===#


def read_tokenize(body: Mapping[str, Any], limits: Limits, tokenizer: Tokenizer) -> tuple[list[int], bool]:
    """Tokens of a text or of a chat, and whether their names are wanted."""
    fields = Fields(body)
    if "model" in fields.left:
        _check_model(fields, limits)
    wants_names = fields.boolean("return_token_strs")
    _refuse_what_is_not_done(fields)
    unlimited = replace(limits, token_bytes=0)
    if "messages" in fields.left:
        tokens: Sequence[int] = _read_chat(fields, unlimited, tokenizer)
    else:
        prompt = fields.take("prompt")
        if not isinstance(prompt, str):
            raise fields.wrong(
                "prompt", f"must be a string, found {_what(prompt)}; a chat has `messages`" if prompt is not None else "is missing"
            )
        tokens = _encode(prompt, fields.boolean("add_special_tokens", True), "prompt", unlimited, tokenizer, True)
    fields.done()
    return list(tokens), wants_names


def read_detokenize(body: Mapping[str, Any], limits: Limits) -> list[int]:
    fields = Fields(body)
    if "model" in fields.left:
        _check_model(fields, limits)
    tokens = fields.take("tokens")
    if not isinstance(tokens, list) or not all(_is_token(each, limits) for each in tokens):
        raise fields.wrong("tokens", f"must be an array of tokens, from 0 to {limits.vocabulary - 1}")
    fields.done()
    return tokens
=======
>>>>>>> w-clients
