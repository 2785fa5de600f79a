#!/usr/bin/env python3
"""Load test of a server with an OpenAI-compatible API: measures throughput and latency.

    python3 bench/load.py http://127.0.0.1:8080 --streams 1,8,32 --prompt 512 --generate 128

Each of N clients sends one request after another, with random prompt tokens, until the time is over. Each number of
clients gives one row: total tokens per second, time to first token, and time between tokens. Needs only the Python
standard library.

With --prefill N, another client sends prompts of N tokens one after another. The time between tokens is then measured
while prompts are processed.

With --constrained K, each number of clients is measured twice: first all are free, then K of them send a JSON schema.
The row of the second says how much slower the free ones became, and how fast the constrained ones are beside them.

With --slow and --half-open, idle connections stay open: clients that do not read, or do not finish their request. With
--pid, the memory of a local server is sampled. It may grow by 5 % from the middle of a row to its end.
"""

import argparse
import asyncio
import json
import random
import sys
import time
import urllib.parse
from dataclasses import dataclass, field


@dataclass
class Timing:
    """Measurements of one request; times in seconds."""

    begin: float
    first: float = 0.0
    gaps: list = field(default_factory=list)
    tokens: int = 0
    end: float = 0.0
    text: str = ""
    error: str = ""
    is_constrained: bool = False


def arguments(values=None):
    """The options of the command line, or of `values`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="address of the server, such as http://127.0.0.1:8080")
    parser.add_argument("--model", help="model name [default: the first one that the server lists]")
    parser.add_argument("--api-key", help="API key")
    parser.add_argument("--streams", default="1,8,32,64,128", help="numbers of concurrent clients [%(default)s]")
    parser.add_argument("--prompt", type=int, default=512, help="tokens per prompt [%(default)s]")
    parser.add_argument("--generate", type=int, default=128, help="tokens to generate [%(default)s]")
    parser.add_argument("--prefix", type=int, default=0, help="tokens of a shared prefix, in addition to --prompt")
    parser.add_argument("--seconds", type=float, default=20, help="time in which requests are started [%(default)s]")
    parser.add_argument("--warm-up", type=float, default=0, help="seconds of load before each row [%(default)s]")
    parser.add_argument("--vocabulary", type=int, default=100_000, help="upper bound of prompt token ids [%(default)s]")
    parser.add_argument("--text", help="send this text as prompt instead of tokens")
    parser.add_argument(
        "--check",
        action="store_true",
        help="use a few fixed prompts; each answer must equal the one of a single client",
    )
    parser.add_argument(
        "--prefill",
        "--newcomer",
        dest="newcomer",
        type=int,
        default=0,
        help="prompt tokens of an additional client",
    )
    parser.add_argument("--constrained", type=int, default=0, help="clients that send a JSON schema [%(default)s]")
    parser.add_argument("--fields", type=int, default=50, help="properties of that schema [%(default)s]")
    parser.add_argument("--slow", type=int, default=0, help="additional clients that read nothing [%(default)s]")
    parser.add_argument(
        "--half-open",
        type=int,
        default=0,
        help="additional clients that never finish their request [%(default)s]",
    )
    parser.add_argument("--pid", type=int, help="process id of the server, to sample its memory (Linux)")
    parser.add_argument("--json", action="store_true", help="write one JSON object per row")
    return parser.parse_args(values)


def schema(fields):
    """A JSON schema with properties of different types. Texts are short: even random weights go through them."""
    types = [
        {"type": "string", "maxLength": 24},
        {"type": "integer", "minimum": 0, "maximum": 100_000},
        {"enum": ["small", "medium", "large", "extra large"]},
        {"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 2, "maxItems": 5},
        {"type": "object", "properties": {"x": {"type": "number", "minimum": 0, "maximum": 1}}, "required": ["x"],
         "additionalProperties": False},
        {"type": "string", "format": "date"},
        {"type": ["boolean", "null"]},
    ]
    properties = {f"field_{number}": types[number % len(types)] for number in range(fields)}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def rate(timings):
    """Tokens per second of one answer, after its first token."""
    seconds = sum(one.end - one.first - one.begin for one in timings)
    return sum(max(one.tokens - 1, 0) for one in timings) / seconds if seconds else 0.0


class Client:
    """Sends requests to one server."""

    def __init__(self, options):
        url = urllib.parse.urlsplit(options.url)
        if url.scheme != "http" or not url.hostname:
            sys.exit(f"{options.url}: not a server address, such as http://127.0.0.1:8080")
        self.host, self.port = url.hostname, url.port or 80
        self.options = options
        self.model = options.model
        # Other prompts in each run: those of an earlier one may be in the prefix cache.
        self.random = random.Random()
        self.prefix = self.ids(options.prefix)
        form = {"name": "record", "schema": schema(options.fields)}
        self.response_format = {"type": "json_schema", "json_schema": form}

    def ids(self, count):
        return [self.random.randrange(10, self.options.vocabulary) for _ in range(count)]

    def prompt(self):
        return self.options.text or self.prefix + self.ids(self.options.prompt)

    async def open(self, method, path, body=b""):
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=1 << 24)
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nConnection: close\r\n"
        if self.options.api_key:
            head += f"Authorization: Bearer {self.options.api_key}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        status = int((await reader.readline()).split()[1])
        while (await reader.readline()).strip():
            pass
        return status, reader, writer

    async def first_model(self):
        status, reader, writer = await self.open("GET", "/v1/models")
        text = (await reader.read()).decode()
        writer.close()
        if status != 200:
            sys.exit(f"/v1/models: status {status}: {text[:200]}")
        # The body may be chunked, so take the object from the first brace to the last.
        return json.loads(text[text.index("{") : text.rindex("}") + 1])["data"][0]["id"]

    async def complete(self, prompt, generate=None, constrained=False):
        """Sends one streaming completion request."""
        body = {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": generate or self.options.generate,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "ignore_eos": True,
        }
        if constrained:
            body["response_format"] = self.response_format
        timing = Timing(time.perf_counter(), is_constrained=constrained)
        status, reader, writer = await self.open("POST", "/v1/completions", json.dumps(body).encode())
        try:
            if status != 200:
                timing.error = f"status {status}: {(await reader.read()).decode(errors='replace')[:200]}"
                return timing
            last, events = 0.0, 0
            while line := await reader.readline():
                if not line.startswith(b"data:") or line.strip() == b"data: [DONE]":
                    continue
                now, event = time.perf_counter(), json.loads(line[5:])
                if "error" in event:
                    timing.error = str(event["error"])[:200]
                    return timing
                if usage := event.get("usage"):
                    timing.tokens = usage["completion_tokens"]
                if any(choice.get("text") for choice in event.get("choices", [])):
                    timing.text += event["choices"][0]["text"]
                    events += 1
                    if last:
                        timing.gaps.append(now - last)
                    else:
                        timing.first = now - timing.begin
                    last = now
            timing.end = time.perf_counter()
            timing.tokens = timing.tokens or events
            return timing
        finally:
            writer.close()


async def idlers(client):
    """Opens idle connections: clients that do not read, and clients that do not finish their request."""
    options = client.options
    request = {"model": client.model, "prompt": client.prompt(), "max_tokens": options.generate, "stream": True}
    body = json.dumps(request)
    key = f"Authorization: Bearer {options.api_key}\r\n" if options.api_key else ""
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {client.host}\r\n{key}Content-Length: {len(body)}\r\n\r\n"
    writers = []
    for number in range(options.slow + options.half_open):
        # With a minimal buffer, the system of the reader accepts little of what it does not read.
        _, writer = await asyncio.open_connection(client.host, client.port, limit=1)
        writer.write((head + body).encode() if number < options.slow else head[:30].encode())
        writers.append(writer)
    return writers


def memory(pid):
    """Resident anonymous memory of a process, in MiB."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("RssAnon:"))


async def watch(pid, held):
    """Samples the memory of a process twice a second."""
    while pid:
        held.append(memory(pid))
        await asyncio.sleep(0.5)


async def row(client, streams, constrained, expected_answers):
    """Runs `streams` concurrent clients until the time is over, and returns the row. The first ones are constrained."""
    options, begin, cpu = client.options, time.perf_counter(), time.process_time()
    timings, wrong, newcomers = [], 0, []

    async def one(is_constrained):
        nonlocal wrong
        done = None
        while done is None or time.perf_counter() - begin < options.seconds:
            prompt, expected = random.choice(expected_answers) if expected_answers else (client.prompt(), None)
            done = await client.complete(prompt, constrained=is_constrained)
            timings.append(done)
            wrong += expected is not None and not is_constrained and not done.error and done.text != expected

    async def newcomer():
        while options.newcomer and time.perf_counter() - begin < options.seconds:
            newcomers.append(await client.complete(client.ids(options.newcomer), 1))

    held = []
    watching = asyncio.create_task(watch(options.pid, held))
    await asyncio.gather(newcomer(), *(one(number < constrained) for number in range(streams)))
    elapsed = time.perf_counter() - begin
    watching.cancel()
    good = [one for one in timings if not one.error]
    errors = [one.error for one in timings + newcomers if one.error]
    first, gaps = sorted(one.first for one in good), sorted(gap for one in good for gap in one.gaps)
    percentile = lambda values, share: 1e3 * values[min(int(share * len(values)), len(values) - 1)] if values else 0.0
    return {
        "streams": streams,
        "constrained": constrained,
        "free_tokens_per_s_each": rate([one for one in good if not one.is_constrained]),
        "constrained_tokens_per_s_each": rate([one for one in good if one.is_constrained]),
        "requests": len(timings),
        "errors": len(errors),
        "first_error": errors[0] if errors else None,
        "wrong": wrong if expected_answers else None,
        "tokens_per_s": sum(one.tokens for one in good) / elapsed,
        "prompt_tokens_per_s": len(good) * (options.prompt + options.prefix) / elapsed,
        "first_ms_p50": percentile(first, 0.5),
        "first_ms_p99": percentile(first, 0.99),
        "first_ms_last": percentile(first, 1),
        "gap_ms_p50": percentile(gaps, 0.5),
        "gap_ms_p99": percentile(gaps, 0.99),
        "newcomers": len(newcomers),
        "newcomer_ms_p50": percentile(sorted(one.first for one in newcomers if not one.error), 0.5),
        # Near 1, this program is the limit.
        "client_cpu": (time.process_time() - cpu) / elapsed,
        "memory_mib": [held[0], held[len(held) // 2], held[-1]] if held else None,
    }


async def warm_up(client, streams):
    """Runs a row that is not measured, so that the server has met this number of clients."""
    if client.options.warm_up:
        own = {**vars(client.options), "model": client.model, "seconds": client.options.warm_up, "newcomer": 0}
        await row(Client(argparse.Namespace(**own)), streams, 0, [])


async def main():
    options = arguments()
    client = Client(options)
    client.model = client.model or await client.first_model()
    expected_answers = []
    if options.check:
        for prompt in [client.prompt() for _ in range(8)]:
            done = await client.complete(prompt)
            if done.error:
                sys.exit(done.error)
            expected_answers.append((prompt, done.text))
    if not options.json:
        print(f"{options.url}, {client.model}: {options.prefix} + {options.prompt} tokens in, {options.generate} out")
        print("streams requests errors  tokens/s  first ms p50     p99  between ms p50     p99")
    failed = False
    idle = await idlers(client)
    rows = [(int(streams), 0) for streams in options.streams.split(",")]
    if options.constrained:
        rows = [(streams, constrained) for streams, _ in rows for constrained in (0, min(options.constrained, streams))]
    free = 0.0
    for streams, constrained in rows:
        await client.complete(client.prompt(), constrained=constrained > 0)
        await warm_up(client, streams)
        found = await row(client, streams, constrained, expected_answers)
        if constrained == 0:
            free = found["free_tokens_per_s_each"]
        elif free:
            found["free_share"] = found["free_tokens_per_s_each"] / free
            found["constrained_share"] = found["constrained_tokens_per_s_each"] / free
        failed |= bool(found["errors"] or found["wrong"])
        first, middle, last = found["memory_mib"] or (0, 0, 0)
        failed |= last > 1.05 * middle
        if options.json:
            print(json.dumps(found), flush=True)
            continue
        print(
            "{streams:7} {requests:8} {errors:6} {tokens_per_s:9.1f} {first_ms_p50:13.1f} {first_ms_p99:7.1f}"
            " {gap_ms_p50:15.2f} {gap_ms_p99:7.2f}".format(**found),
            flush=True,
        )
        if constrained and free:
            print(
                "        {constrained} constrained: {constrained_tokens_per_s_each:.1f} tokens/s each,"
                " {constrained_share:.3f} of a free one before; free ones {free_tokens_per_s_each:.1f},"
                " {free_share:.3f} of before".format(**found)
            )
        if options.newcomer:
            print("        {newcomers} newcomer requests, first ms p50 {newcomer_ms_p50:.1f}".format(**found))
        if found["errors"]:
            print(f"        first error: {found['first_error']}")
        if options.pid:
            print(f"        memory: {first:.1f} MiB at the start, {middle:.1f} in the middle, {last:.1f} at the end")
        if found["wrong"]:
            print(f"        {found['wrong']} answers differ from those of a single client")
    for writer in idle:
        writer.close()
    sys.exit(failed)


if __name__ == "__main__":
    asyncio.run(main())
