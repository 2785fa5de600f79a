"""Clients that send slowly, or that do not read what they asked for."""

import contextlib
import json
import random
import socket
import time

SOCKETS = 300


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def post(path, body):
    data = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data


def reader(port):
    """Asks for much text and reads nothing. A small receive buffer makes the server wait."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    body = {"prompt": "Once upon", "max_tokens": 200, "stream": True, "ignore_eos": True, "logprobs": 5}
    client.sendall(post("/v1/completions", body))
    return client


def head_sender(port):
    """Begins a head, which it goes on with byte by byte."""
    client = connect(port)
    client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nX-A: ")
    return client


def body_sender(port):
    """Begins a body of 15 MB, of which it sends a little."""
    client = connect(port)
    client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 15000000\r\n\r\n")
    client.sendall(b'{"prompt":"' + b"a" * random.choice([10, 60_000]))
    return client


def idle(port):
    return connect(port)


def run(attack):
    """Opens many slow connections, sends a byte on each now and then, and asks in between."""
    kinds = [reader, head_sender, body_sender, idle]
    clients = []
    for number in range(SOCKETS):
        with contextlib.suppress(OSError):
            clients.append(kinds[number % len(kinds)](attack.port))
            attack.outcomes.add("opened")
    while not attack.is_over():
        for client in clients:
            with contextlib.suppress(OSError):
                client.send(b"a")
        attack.send("beside slow clients", "/v1/completions", {"prompt": "Once", "max_tokens": 4}, allowed={200, 503})
        time.sleep(1)
    for client in clients:
        client.close()
