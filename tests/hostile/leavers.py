"""Clients that leave: in the queue, while their prompt is computed, within a tool call, while a grammar is compiled."""

import contextlib
import http.client
import json
import random
import socket
import time

import grammars

WORDS = ["fox", "key", "boat", "hill", "lamp", "pie"]
# Seconds after which a request whose client left must be gone.
GONE = 10


def prompt(words):
    return " ".join(random.choice(WORDS) for _ in range(words))


def bodies(stream):
    """Requests that take long, of each interface."""
    long = prompt(700)
    messages = [{"role": "user", "content": long}]
    parameters = {"type": "object", "properties": {"text": {"type": "string", "minLength": 2000}}, "required": ["text"]}
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    ask = [{"role": "user", "content": "call f"}]
    compiled = {"messages": ask, "tools": [{"type": "function", "function": {"name": "f", "parameters": grammars.required(1500)}}]}
    return [
        ("/v1/completions", {"prompt": long, "max_tokens": 300, "ignore_eos": True, "stream": stream}),
        ("/v1/completions", {"prompt": [prompt(300) for _ in range(20)], "max_tokens": 100, "stream": stream}),
        ("/v1/chat/completions", {"messages": messages, "max_tokens": 300, "ignore_eos": True, "stream": stream}),
        ("/v1/chat/completions", {"messages": ask, "tools": tools, "tool_choice": "required", "stream": stream}),
        ("/v1/chat/completions", {**compiled, "tool_choice": "required", "stream": stream}),
        ("/v1/responses", {"input": long, "max_output_tokens": 300, "stream": stream}),
        ("/v1/messages", {"messages": messages, "max_tokens": 300, "stream": stream}),
        ("/v1/embeddings", {"input": [prompt(600) for _ in range(30)]}),
        ("/api/chat", {"messages": messages, "stream": stream, "options": {"num_predict": 300}}),
        ("/api/generate", {"prompt": long, "stream": stream, "options": {"num_predict": 300}}),
        ("/completion", {"prompt": long, "n_predict": 300, "ignore_eos": True, "stream": stream}),
    ]


def leave(attack, path, body):
    """Sends a request and leaves after some time, with a close or a reset."""
    try:
        with socket.create_connection(("127.0.0.1", attack.port), timeout=30) as client:
            data = json.dumps(body).encode()
            head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(data)}\r\n\r\n".encode()
            # Some leave within the body.
            cut = random.choice([len(data)] * 7 + [len(data) // 2])
            client.sendall(head + data[:cut])
            client.settimeout(random.choice([0.01, 0.1, 0.3, 1, 2]))
            with contextlib.suppress(TimeoutError):
                client.recv(random.choice([1, 200, 4000]))
            if random.random() < 0.5:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        attack.outcomes.add("left")
    except OSError as why:
        attack.outcomes.add(type(why).__name__, f"{path}: {why!r}")


def run(attack):
    """Waves of clients that leave. After each wave the server must have nothing left to do."""
    while not attack.is_over():
        wave = bodies(True) * 3 + bodies(False) * 3
        random.shuffle(wave)
        attack.each(wave, lambda request: leave(attack, *request), threads=24)
        begin = time.monotonic()
        left = lambda: open_requests(attack.port)
        while left() and time.monotonic() - begin < GONE:
            time.sleep(0.1)
        remaining = left()
        attack.outcomes.check(not remaining, f"{remaining} requests are left {GONE} s after their clients")


def open_requests(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith("vllm:num_requests_"))
