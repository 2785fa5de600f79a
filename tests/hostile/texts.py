"""Texts that no context can hold, in every interface that tokenizes, and bodies that are expensive to parse."""

import json
import random

TEXTS = {
    "words": "fox key boat ",
    "a": "a",
    "spaces": " ",
    "digits": "1234567890",
    "Chinese": "狐狸和钥匙",
    "emoji": "🦊🔑",
    "lines": "\n",
    "mixed": "aB1 !?\n\t<|im_",
    "marks": "<|im_start|>user\n",
    "combining": "e\u0301\u0327",
}


def text(kind, megabytes):
    pattern = TEXTS[kind]
    return pattern * (int(megabytes * 1e6) // len(pattern.encode()) + 1)


def requests(kind, megabytes):
    """A body for each interface, with one text."""
    long = text(kind, megabytes)
    messages = [{"role": "user", "content": long}]
    tool = {"type": "function", "function": {"name": "f", "description": long, "parameters": {"type": "object"}}}
    return [
        ("/v1/completions", {"prompt": long, "max_tokens": 1}),
        ("/v1/completions", {"prompt": long, "suffix": long, "max_tokens": 1}),
        ("/v1/chat/completions", {"messages": messages, "max_tokens": 1}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "tools": [tool], "max_tokens": 1}),
        ("/v1/responses", {"input": long, "max_output_tokens": 1}),
        ("/v1/messages", {"messages": messages, "max_tokens": 1}),
        ("/v1/messages/count_tokens", {"messages": messages}),
        ("/v1/embeddings", {"input": long}),
        ("/api/embed", {"input": long}),
        ("/api/generate", {"prompt": long, "raw": True, "options": {"num_predict": 1}}),
        ("/api/generate", {"prompt": long, "options": {"num_predict": 1}}),
        ("/api/chat", {"messages": messages, "options": {"num_predict": 1}}),
        ("/tokenize", {"prompt": long}),
        ("/tokenize", {"messages": messages}),
        ("/completion", {"prompt": long, "n_predict": 1}),
        ("/infill", {"input_prefix": long, "input_suffix": long, "n_predict": 1}),
        ("/apply-template", {"messages": messages}),
        ("/render", {"text": long}),
        ("/detokenize", {"tokens": [7] * int(megabytes * 2e5)}),
    ]


def costly_bodies():
    """Bodies that are small for what they cost to parse, render or look at."""
    turns = [{"role": ("user", "assistant")[number % 2], "content": "x"} for number in range(100_000)]
    deep = b'{"prompt":' + b"[" * 1_000_000
    objects = b'{"prompt":"a","x":' + b'{"a":' * 200_000 + b"1" + b"}" * 200_000 + b"}"
    yield "100,000 messages", "/v1/chat/completions", {"messages": turns, "max_tokens": 1}
    yield "100,000 messages", "/v1/messages", {"messages": turns, "max_tokens": 1}
    yield "100,000 items", "/v1/responses", {"input": turns, "max_output_tokens": 1}
    yield "5,000,000 numbers", "/v1/completions", b'{"prompt":[' + b"1," * 5_000_000 + b"1]}"
    yield "3,000,000 lists", "/v1/completions", b'{"prompt":[' + b"[1]," * 3_000_000 + b"[1]]}"
    yield "3,000,000 objects", "/v1/chat/completions", b'{"messages":[' + b"{}," * 5_000_000 + b"{}]}"
    yield "1,000,000 fields", "/v1/completions", {"prompt": "a", **{f"x{n}": n for n in range(1_000_000)}}
    yield "256 answers", "/v1/completions", {"prompt": [[7] * 900] * 16, "n": 16, "max_tokens": 1}
    yield "8,000 fields, one of them wrong", "/v1/completions", {"n": "x", **{f"x{n}": n for n in range(5_000)}}
    many = [{"name": "f", "parameters": {"a": [1] * 4_000_000}}]
    yield "4,000,000 numbers in a tool", "/v1/chat/completions", {"messages": turns[:1], "tools": many}
    yield "4,000,000 numbers in a tool", "/v1/messages", {"messages": turns[:1], "max_tokens": 1, "tools": many}
    yield "deep lists", "/v1/completions", deep
    yield "deep objects", "/v1/completions", objects
    yield "a long number", "/v1/completions", b'{"prompt":"a","temperature":' + b"1" * 10_000_000 + b"}"
    yield "escapes", "/v1/completions", b'{"prompt":"' + b"\\u0061" * 2_500_000 + b'"}'
    yield "2,048 texts", "/v1/embeddings", {"input": ["fox key boat"] * 2048}
    yield "20,000 texts", "/v1/embeddings", {"input": ["x"] * 20_000}
    yield "1,000,000 stop strings", "/v1/completions", {"prompt": "a", "stop": ["x"] * 1_000_000}
    yield "a long stop string", "/v1/completions", {"prompt": "a", "stop": ["x" * 5_000_000], "max_tokens": 8}
    yield "600,000 biases", "/v1/completions", {"prompt": "a", "logit_bias": {str(n): 1 for n in range(600_000)}}
    yield "markdown", "/render", {"text": "\\(" * 500_000}
    yield "markdown", "/render", {"text": "*_`[" * 250_000}
    yield "markdown", "/render", {"text": "> " * 500_000}
    yield "a stored response", "/v1/responses", {"input": "x", "metadata": {"a": "x" * 8_000_000}, "max_output_tokens": 1}
    for _ in range(12):
        items = [{"role": "user", "content": "fox " * 1_000_000}]
        yield "a stored conversation", "/v1/conversations", {"items": items}


def run(attack):
    """Each kind of text in each interface, several at once, and the costly bodies between them."""
    kinds = list(TEXTS)
    random.shuffle(kinds)
    bodies = [(name, path, body) for name, path, body in costly_bodies()]
    random.shuffle(bodies)

    def send(job):
        name, path, body = job
        attack.send(f"{name} to {path}", path, body)

    attack.each(bodies[:8], send)
    while not attack.is_over():
        kind = kinds.pop() if kinds else random.choice(list(TEXTS))
        encode = lambda body: json.dumps(body, ensure_ascii=kind == "Chinese").encode()
        jobs = [(kind, path, encode(body)) for path, body in requests(kind, random.choice([2, 8, 15]))]
        random.shuffle(jobs)
        # Bodies over the limit are refused; others must be too, but by their tokens.
        attack.each(jobs, send)
        attack.each([bodies[number % len(bodies)] for number in range(8, 12)], send)
        random.shuffle(bodies)
