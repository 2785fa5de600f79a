"""More streams than the server has slots, with log probabilities, stop strings and several answers."""

import json
import random
import socket

from slow import post

QUESTION = "What is 12 + 30?"
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["a"],
    "additionalProperties": False,
}


def bodies(number):
    """Streamed requests of all interfaces."""
    messages = [{"role": "user", "content": QUESTION}]
    stream = {"stream": True, "max_tokens": 40}
    tools = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]
    json_schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
    chat = {"messages": messages, **stream}
    yield "/v1/chat/completions", {**chat, "n": 4, "seed": number}
    yield "/v1/chat/completions", {**chat, "logprobs": True, "top_logprobs": 20}
    yield "/v1/chat/completions", {**chat, "response_format": json_schema}
    yield "/v1/chat/completions", {**chat, "tools": tools, "tool_choice": "required"}
    yield "/v1/completions", {"prompt": ["Once", "Twice"] * 8, "logprobs": 5, **stream}
    yield "/v1/completions", {"prompt": "Once", "echo": True, "logprobs": 1, **stream}
    yield "/v1/responses", {"input": QUESTION, "max_output_tokens": 40, "stream": True}
    yield "/v1/messages", {"messages": messages, **stream}
    yield "/api/chat", {"messages": messages, "options": {"num_predict": 40}}
    yield "/completion", {"prompt": "Once", "n_predict": 40, "n_probs": 5, "stream": True}


def read(port, path, body):
    """Reads a stream to its end. Returns its status and whether it ended as its interface says."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as client:
        client.sendall(post(path, body))
        answer = b""
        # The last chunk has no bytes. Responses that are not streams have a length.
        while not answer.endswith(b"0\r\n\r\n"):
            piece = client.recv(65536)
            if not piece:
                break
            answer += piece
            head, _, rest = answer.partition(b"\r\n\r\n")
            if b"content-length: " in head:
                length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
                if len(rest) >= length:
                    break
    head, _, rest = answer.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    ends = [b"[DONE]", b"response.completed", b"response.incomplete", b"message_stop", b'"done":true', b'"stop":true']
    is_whole = status != 200 or any(end in rest for end in ends)
    return status, is_whole, rest[-200:]


def run(attack):
    def stream(request):
        path, body = request
        status, is_whole, last = read(attack.port, path, body)
        is_fine = status in (200, 503) and is_whole
        attack.outcomes.add(status, None if is_fine else f"{path} {json.dumps(body)[:100]}: {status} {last!r}")

    while not attack.is_over():
        wave = [request for number in range(20) for request in bodies(number)]
        random.shuffle(wave)
        attack.each(wave, stream, threads=200)
