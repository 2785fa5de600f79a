"""SIGTERM while streams run: newcomers are refused at once, streams end whole, and a new server starts at once."""

import contextlib
import json
import os
import signal
import socket
import time

from slow import post
from target import Server, request

STREAMS = 12


def begin(port):
    """Starts a stream, and returns once its first bytes are there."""
    client = socket.create_connection(("127.0.0.1", port), timeout=60)
    body = {"prompt": "Once upon", "max_tokens": 120, "stream": True, "ignore_eos": True}
    client.sendall(post("/v1/completions", body))
    return client, client.recv(65536)


def finish(client, answer):
    while piece := client.recv(65536):
        answer += piece
    client.close()
    return b"[DONE]" in answer


def refused(port):
    """Whether a new connection is refused or closed without an answer."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return not client.recv(100)
    except (ConnectionError, OSError):
        return True


def run(attack):
    """Uses servers of its own: the one under test must not be stopped."""
    check = attack.outcomes.check
    while not attack.is_over():
        with Server(attack.program, ["--parallel", str(STREAMS)], os.sched_getaffinity(0)) as server:
            streams = [begin(server.port) for _ in range(STREAMS)]
            # A connection that waits for its next request is closed.
            idle = socket.create_connection(("127.0.0.1", server.port), timeout=30)
            os.kill(server.pid, signal.SIGTERM)
            asked = time.monotonic()
            is_refused = False
            while not is_refused and time.monotonic() - asked < 2 and server.is_running():
                is_refused = refused(server.port)
            check(is_refused or not server.is_running(), "new connections are accepted 2 s after SIGTERM")
            whole = [finish(*stream) for stream in streams]
            check(all(whole), f"{whole.count(False)} of {STREAMS} streams were cut off by SIGTERM")
            with contextlib.suppress(OSError):
                check(not idle.recv(10), "an idle connection got an answer")
            idle.close()
            code = server.process.wait(60)
            check(code == 0, f"the server ended with {code} after SIGTERM")
        with Server(attack.program, ["--parallel", "2"], os.sched_getaffinity(0)) as server:
            status, answer = request(server.port, "POST", "/v1/completions", {"prompt": "Once", "max_tokens": 2})
            check(status == 200, f"a new server answers {status} {json.dumps(answer.decode())[:100]}")
