"""Which replica a call goes to (no cluster is needed)."""

import json
import random

import pytest
from megalith.serve._affinity import Table, key_of

NAMES = ["a", "b", "c", "d"]


def key(path="/v1/chat/completions", **body):
    return key_of(path, json.dumps(body).encode())


def test_a_talk_keeps_its_key():
    system, first = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}
    talk = [system, first]
    longer = [*talk, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "More"}]
    assert key(messages=talk) == key(messages=longer, temperature=1) != None  # noqa: E711
    assert key(messages=talk) != key(messages=[system, {"role": "user", "content": "Hallo"}])
    assert key(messages=talk) != key(messages=[first])
    assert key(messages=talk, cache_salt="x") not in (key(messages=talk), key(messages=talk, cache_salt="y"))
    assert key(messages=talk, prompt_cache_key="k") == key("/v1/completions", prompt="x", prompt_cache_key="k")


def test_prompts_of_all_kinds():
    text = "x" * 300
    completion = "/v1/completions"
    assert key(completion, prompt=text) == key(completion, prompt=text + "y") != key(completion, prompt=text[:200])
    assert key(completion, prompt=[text, "other"]) == key(completion, prompt=text)
    tokens = list(range(100))
    assert key(completion, prompt=tokens) == key(completion, prompt=tokens[:64]) != key(completion, prompt=tokens[1:])
    assert key(completion, prompt=[tokens, [1]]) == key(completion, prompt=tokens)
    response = "/v1/responses"
    assert key(response, input="a", instructions="b") != key(response, input="a")
    talk = [{"role": "user", "content": "Hello"}]
    assert key(response, input=talk) == key(response, input=[*talk, {"role": "assistant", "content": "x"}])
    assert key(response, input="Hello") == key(response, input=talk)
    parts = [{"type": "input_text", "text": "Hel"}, {"type": "input_text", "text": "lo"}]
    assert key(response, input=[{"role": "user", "content": parts}]) == key(response, input=talk)


def test_a_long_system_prompt_does_not_hide_the_user():
    system = {"role": "system", "content": "\u0436" * 20000}
    assert key(messages=[system, {"role": "user", "content": "a"}]) != key(messages=[system, {"role": "user", "content": "b"}])


def test_json_that_is_too_deep_raises_nothing():
    for depth in 10, 900, 985, 5000:
        deep = "[" * depth + "]" * depth
        for body in f'{{"input": [{{"role": "user", "content": {deep}}}]}}', f'{{"input": "a", "instructions": {deep}}}':
            made = key_of("/v1/responses", body.encode())
            assert depth > 10 or made  # whether there is one depends on Python's own limit


@pytest.mark.parametrize("body", [b"", b"[", b"[]", b"5", b"{}", b'{"messages": 5}', b'{"messages": [5]}', b'{"prompt": {}}', b"[" * 10000])
def test_what_says_nothing_has_no_key(body):
    assert key_of("/v1/chat/completions", body) is None and key_of("/v1/completions", body) is None


def test_all_tables_agree_and_few_keys_move():
    keys = [str(i).encode() for i in range(2000)]
    orders = [Table(spread=100).order(each, NAMES, {}) for each in keys]
    assert orders == [Table(spread=100).order(each, NAMES[::-1], {}) for each in keys]
    assert all(sorted(order) == NAMES for order in orders)
    for name in NAMES:
        assert 400 < sum(order[0] == name for order in orders) < 600
    # Only what a replica held that is gone moves, and to all others.
    fewer = [Table(spread=100).order(each, NAMES[:3], {}) for each in keys]
    assert all(a[0] == b[0] for a, b in zip(orders, fewer) if a[0] != "d")
    assert {b[0] for a, b in zip(orders, fewer) if a[0] == "d"} == set(NAMES[:3])


def test_no_replica_has_more_than_its_share_of_keys():
    for seed in range(50):
        rng, table, counts = random.Random(seed), Table(1.25), dict.fromkeys(NAMES, 0)
        where = {}
        for _ in range(50):
            each = rng.randbytes(8)
            where[each] = table.order(each, NAMES, {})[0]
            table.took(each, where[each])
            counts[where[each]] += 1
        assert max(counts.values()) <= 1.25 * 50 / 4 + 1
        assert all(table.order(each, NAMES, {})[0] == name for each, name in where.items())


def test_one_that_is_far_behind_comes_last():
    table = Table()
    (first, *others) = table.order(b"k", NAMES, {})
    table.took(b"k", first)
    assert table.order(b"k", NAMES, {first: 8})[0] == first
    assert table.order(b"k", NAMES, {first: 40})[-1] == first
    two = Table()
    (held, other) = two.order(b"k", NAMES[:2], {})
    assert two.order(b"k", NAMES[:2], {held: 9})[0] == other and two.order(b"k", NAMES[:2], {held: 9, other: 1})[0] == held
    table.took(b"k", others[0])  # it went elsewhere, and stays there
    assert table.order(b"k", NAMES, {})[0] == others[0]
    table.keep([name for name in NAMES if name != others[0]])
    assert table.order(b"k", [name for name in NAMES if name != others[0]], {})[0] == first
    assert table.order(None, NAMES, {"a": 3, "b": 1, "c": 2, "d": 9}) == ["b", "c", "a", "d"]
    assert table.order(b"k", [], {}) == []


def test_it_forgets_what_it_saw_longest_ago():
    table = Table(most=10)
    for i in range(100):
        table.took(str(i).encode(), NAMES[i % 4])
    assert len(table._held) == 10 and sum(table._counts.values()) == 10
    with pytest.raises(ValueError, match="1 or above"):
        Table(0.5)
