"""Two replicas behind SMG (Shepherd Model Gateway), which routes by cached prefixes: gateway.py REFRAIN."""

import contextlib
import json
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

SMG = Path(__file__).parents[2] / "target/clients/bin/smg"


def request(url, body=None, **headers):
    data = body and json.dumps(body).encode()
    prepared = urllib.request.Request(url, data, {"content-type": "application/json", **headers})
    with urllib.request.urlopen(prepared, timeout=30) as response:
        return response.read().decode()


def chat(gateway, text, **more):
    body = {"model": "demo", "temperature": 0, "messages": [{"role": "user", "content": text}], **more}
    return request(f"{gateway}/v1/chat/completions", body)


def requests_served(replica):
    found = re.search(r"^vllm:e2e_request_latency_seconds_count\S* (\d+)$", request(f"{replica}/metrics"), re.MULTILINE)
    return int(found[1])


@contextlib.contextmanager
def running(command, **options):
    process = subprocess.Popen(command, **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def replica(program):
    command = [program, "serve", "demo", "--port", "0", "--device", "cpu", "-q"]
    return running(command, stdout=subprocess.PIPE, text=True)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(gateway, workers):
    """Waits until all workers are healthy."""
    for _ in range(300):
        with contextlib.suppress(urllib.error.URLError, OSError):
            known = json.loads(request(f"{gateway}/workers"))["workers"]
            if sum(worker["is_healthy"] for worker in known) == workers:
                return
        time.sleep(0.1)
    raise AssertionError(f"expected {workers} healthy workers: {request(f'{gateway}/workers')}")


def main(program):
    with replica(program) as one, replica(program) as other, contextlib.ExitStack() as stack:
        processes = [one, other]
        urls = [process.stdout.readline().split()[-1] for process in processes]
        ports = [free_port(), free_port()]
        gateway = f"http://127.0.0.1:{ports[0]}"
        command = [sys.executable, SMG, "launch", "--host", "127.0.0.1", "--port", str(ports[0]), "--policy", "cache_aware",
                   "--prometheus-host", "127.0.0.1", "--prometheus-port", str(ports[1]), "--worker-urls", *urls]
        stack.enter_context(running(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        wait_for(gateway, 2)
        # Requests with the same prefix go to the replica that has it cached.
        for number in range(4):
            assert "42" in chat(gateway, "What is 12 + 30?")
        counts = [requests_served(url) for url in urls]
        assert sorted(counts) == [0, 4], counts
        for letter in "abcdefgh":
            chat(gateway, f"{letter * 20} is a word that nobody knows.", max_tokens=2)
        counts = [requests_served(url) for url in urls]
        assert sum(counts) == 12 and min(counts) > 0, counts
        assert "data: [DONE]" in chat(gateway, "What is 12 + 30?", stream=True)
        # The gateway continues after one replica ends.
        processes[0].terminate()
        processes[0].wait()
        for number in range(3):
            assert "42" in chat(gateway, "What is 12 + 30?")
    print("the gateway routes by prefix and continues with one replica")


main(sys.argv[1])
