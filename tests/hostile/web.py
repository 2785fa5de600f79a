"""Requests of web pages of other sites, names that are not this server's, and bytes that are not HTTP."""

import os
import random
import socket

BODY = b'{"prompt":"Hi","max_tokens":1}'


def foreign():
    """Headers that must be refused."""
    for host in ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::2]", "169.254.169.254"]:
        yield {"host": host}
    for origin in ["http://evil.example", "https://localhost.evil.example", "null", "file://"]:
        yield {"host": "localhost", "origin": origin}
        yield {"host": "127.0.0.1", "origin": origin, "content-type": "text/plain"}


def post(headers=b"", body=BODY, path=b"/v1/completions", length=True):
    head = b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\n"
    head += b"Content-Length: %d\r\n" % len(body) if length else b""
    return head + headers + b"Connection: close\r\n\r\n" + body


def get(headers, path=b"/health", version=b"HTTP/1.1"):
    return b"GET " + path + b" " + version + b"\r\n" + headers + b"\r\n"


def malformed():
    host = b"Host: localhost\r\n"
    chunked = b"Transfer-Encoding: chunked\r\n"
    yield post(chunked, b"0\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    yield post(b"Transfer-Encoding: xchunked\r\n")
    yield post(b"Transfer-Encoding : chunked\r\n", length=False)
    yield post(b"Content-Length: 5\r\n")
    for length in [b"+5", b"-1", b"18446744073709551616", b"1000000000000000", b"0x10", b"5 5"]:
        yield b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + length + b"\r\n\r\n{}"
    yield b"GET /health HTTP/1.1\nHost: localhost\n\n"
    yield get(host + b"X-A: a\r\n b\r\n")
    yield get(host + b"X-A: a\0b\r\n")
    yield get(b"")
    yield get(host + host)
    yield get(host, b"http://evil/health")
    yield b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: x\r\n\r\n"
    yield b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    yield b"GET /health\r\n\r\n"
    yield get(b"", version=b"HTTP/1.0")
    yield get(host + b"Connection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n")
    yield os.urandom(400) + b"\r\n\r\n"
    yield bytes.fromhex("1603010200010001fc0303") + os.urandom(300)
    yield get(host + b"X-A: " + b"a" * 200_000 + b"\r\n")
    yield get(host + b"".join(b"X-%d: a\r\n" % number for number in range(1000)))
    yield get(host, b"/" + b"a" * 70_000)
    yield get(host) * 50
    yield post(chunked, b"ffffffffffffffffff\r\n", length=False)
    yield post(chunked, b"1;" + b"a" * 1_000_000 + b"\r\n", length=False)
    yield post(chunked, b"%x\r\n" % len(BODY) + BODY + b"\r\n0\r\nX-T: " + b"a" * 100_000 + b"\r\n\r\n", length=False)
    yield post(b"Content-Encoding: gzip\r\n")
    yield post(b"Expect: 200-maybe\r\n")
    yield post(body=b"[" * 1_000_000)
    yield post(body=b'{"prompt":"a\0b"}')
    yield post(body=b'{"prompt":"a\xff\xfe"}')
    yield post(body=b'{"prompt":"\\ud800"}')
    yield post(body=b"\xef\xbb\xbf" + BODY)
    yield post(body=b'{"prompt":"a","temperature":1e400}')
    yield post(body=b"")
    for path in [b"/../../etc/passwd", b"/page/..%2f..%2fetc%2fpasswd", b"/v1/models/../../../x", b"/%00", b"//", b"*"]:
        yield get(host, path)


def exchange(port, data):
    """Sends bytes and reads what comes back. Returns the statuses of the responses."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.settimeout(3)
        answer = b""
        try:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            while piece := client.recv(65536):
                answer += piece
        except OSError:
            # The server may close the connection while bytes are on their way.
            pass
    lines = answer.split(b"\r\n")
    return [int(line.split()[1]) for line in lines if line.startswith(b"HTTP/1") and len(line.split()) > 1]


def run(attack):
    def send(data):
        for status in exchange(attack.port, data):
            attack.outcomes.add(status, f"{data[:80]!r}: {status}" if status >= 500 else None)

    def refused(headers):
        for path, body in [("/v1/completions", BODY), ("/api/pull", b'{"model":"a/b"}'), ("/tokenize", BODY)]:
            attack.send(f"foreign {headers}", path, body, allowed={403, 400, 404}, headers=headers)

    while not attack.is_over():
        attack.each(list(foreign()), refused, threads=8)
        inputs = list(malformed())
        random.shuffle(inputs)
        attack.each(inputs, send, threads=8)
