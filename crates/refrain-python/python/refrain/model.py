"""Models: `load` and `serve`, and what one does with them.

A model runs in the engine of `refrain serve`, within this process. Requests of several threads are decoded together.
"""

import json
import os
import secrets
import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeAlias

from refrain._core import _Server
from refrain.arguments import checked_number, checked_options, messages_of, prompt_of, texts_of
from refrain.transport import Error as Error
from refrain.transport import Transport

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"

MAX_PARALLEL = 256

Message: TypeAlias = Mapping[str, Any]
"""A message of a conversation, as in OpenAI's API: `{"role": "user", "content": "Hello"}`."""

Progress: TypeAlias = Callable[[int, int], None]
"""A function of the bytes that are downloaded, and of all bytes."""


@dataclass(frozen=True)
class ToolCall:
    """A call that the model wrote."""

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """Generated text; `str(answer)` and `print(answer)` give the text alone."""

    text: str
    finish_reason: str
    """"stop", "length" or "tool_calls"."""
    prompt_tokens: int
    tokens: int
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)

    def __str__(self) -> str:
        return self.text


class Model:
    """A loaded model. It is freed by `close`, at the end of a `with` block, or with its last reference."""

    def __init__(self, name: str, server: _Server, transport: Transport, folder: str | None = None):
        self.name = name
        self._transport = transport
        self._server = server
        self._known: dict[str, frozenset[str]] = {}
        self._close = weakref.finalize(self, _stop, os.getpid(), server, transport, folder)

    def generate(self, prompt: str | Sequence[int], **options: Any) -> Answer:
        """Continues a text, or token ids.

        Options are the fields of OpenAI's completions API and their extensions by vLLM: `max_tokens`, `temperature`,
        `top_p`, `top_k`, `min_p`, `seed`, `stop`, `repetition_penalty`, `response_format` and others. Others than these
        raise TypeError.
        """
        body = self._body("generate", COMPLETIONS, options, prompt=prompt_of(prompt))
        response = self._transport.post(COMPLETIONS, body)
        choice = response["choices"][0]
        return Answer(choice["text"], choice["finish_reason"], *_usage(response))

    def stream(self, prompt: str | Sequence[int] | Sequence[Message], **options: Any) -> Iterator[str]:
        """Yields the text that continues a text or token ids, or that answers messages, piece by piece.

        The request is cancelled when the iterator is closed. Options are those of `generate` and `chat`.
        """
        if _is_conversation(prompt):
            body = self._body("stream", CHAT, options, messages=messages_of(prompt))
            return self._answer(body)
        return self._continuation(self._body("stream", COMPLETIONS, options, prompt=prompt_of(prompt)))

    def _answer(self, body: dict[str, Any]) -> Iterator[str]:
        for event in self._transport.stream(CHAT, body):
            for choice in event["choices"]:
                if text := choice["delta"].get("content"):
                    yield text

    def _continuation(self, body: dict[str, Any]) -> Iterator[str]:
        for event in self._transport.stream(COMPLETIONS, body):
            for choice in event["choices"]:
                if choice["text"]:
                    yield choice["text"]

    def chat(self, messages: str | Sequence[Message], **options: Any) -> Answer:
        """Answers a question, or the last of several messages.

        Options are the fields of OpenAI's chat completions API: those of `generate`, `tools`, `tool_choice`,
        `response_format`, `reasoning_effort` and others. A call of a tool that the limit of tokens cut off is left out of
        the answer, whose `finish_reason` is "length" then.
        """
        body = self._body("chat", CHAT, options, messages=messages_of(messages))
        response = self._transport.post(CHAT, body)
        choice = response["choices"][0]
        message = choice["message"]
        return Answer(
            message.get("content") or "",
            choice["finish_reason"],
            *_usage(response),
            reasoning=message.get("reasoning_content") or "",
            tool_calls=_calls(message.get("tool_calls") or []),
        )

    def embed(self, texts: str | Sequence[str]) -> list[list[float]]:
        """Returns a vector of unit length for each text."""
        response = self._transport.post("/v1/embeddings", {"model": self.name, "input": texts_of(texts)})
        return [item["embedding"] for item in response["data"]]

    def close(self) -> None:
        """Waits for running requests, and frees the model. Streams that nobody is reading are cancelled."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def _body(self, method: str, path: str, options: dict[str, Any], **fields: Any) -> dict[str, Any]:
        """A request's body. Options that the server would ignore are errors."""
        if options:
            if path not in self._known:
                self._known[path] = self._transport.fields(path)
            options = checked_options(method, options, self._known[path])
        return {"model": self.name, **fields, **options}


class Server(Model):
    """A model that is served over HTTP."""

    @property
    def url(self) -> str:
        """The server's address, such as `http://127.0.0.1:8080`; OpenAI's API is below `/v1`."""
        return f"http://{self._server.address}"

    def wait(self) -> None:
        """Serves until the process is interrupted."""
        try:
            self._server.wait()
        finally:
            self.close()


def load(
    model: str | Path,
    *,
    device: str = "auto",
    context: int | None = None,
    parallel: int | None = None,
    kv_type: str | None = None,
    progress: Progress | None = None,
) -> Model:
    """Loads a model: a directory, a `.gguf` file, `demo`, or a name on the Hugging Face hub, such as `Qwen/Qwen3-8B`.

    A model of the hub is downloaded if it is not in the cache; `progress` is told how far. `device` is "auto" (the best
    GPU, else the CPU), "cpu", "gpu", a number or a part of a name. `context` is the limit of tokens of a request, and
    `parallel` that of requests that are decoded together. `kv_type` is the type of the KV cache: f16, bf16, q8_0 or q4_0.

    Raises ValueError if a number is out of range, TypeError if `model` is no name or path, and RuntimeError if it is not
    found, damaged or not supported, or does not fit the device.
    """
    # Other users of the computer cannot open a socket in this folder.
    folder = tempfile.mkdtemp(prefix="refrain-")
    try:
        server = _start(model, device, context, parallel, kv_type, progress, socket=f"{folder}/socket")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Model(str(model), server, Transport(server.address), folder)


def serve(
    model: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    api_key: str | None = None,
    device: str = "auto",
    context: int | None = None,
    parallel: int | None = None,
    kv_type: str | None = None,
    progress: Progress | None = None,
) -> Server:
    """Loads a model as `load` does and serves it with OpenAI's, Anthropic's and Ollama's APIs, in the background.

    Port 0 picks a free port. With `api_key`, clients need it.

    Raises as `load`, and if the address is in use. An empty `api_key` is a ValueError.
    """
    if api_key == "":
        raise ValueError("api_key is empty, which protects nothing: give a key, or leave it out to need none")
    # The key of this process, besides that of the clients.
    keys = [] if api_key is None else [api_key, secrets.token_urlsafe()]
    host = "127.0.0.1" if host == "localhost" else host
    server = _start(model, device, context, parallel, kv_type, progress, host=host, port=port, api_keys=keys)
    return Server(str(model), server, Transport(server.address, keys[-1] if keys else None))


def _start(
    model: str | Path,
    device: str,
    context: int | None,
    parallel: int | None,
    kv_type: str | None,
    progress: Progress | None,
    *,
    host: str = "",
    port: int = 0,
    socket: str | None = None,
    api_keys: Sequence[str] = (),
) -> _Server:
    """Loads a model and serves it at a Unix socket, or at a host and port."""
    if not isinstance(model, str | os.PathLike):
        raise TypeError(f"the model must be a name or a path, not {type(model).__name__}")
    return _Server(
        str(model),
        device=device,
        context=checked_number("context", context),
        parallel=checked_number("parallel", parallel, MAX_PARALLEL),
        kv_type=kv_type,
        host=host,
        port=port,
        socket=socket,
        api_keys=list(api_keys),
        progress=progress or _show_progress,
    )


def _stop(process: int, server: _Server, transport: Transport, folder: str | None) -> None:
    # A process that was forked has neither the server's threads nor a right to its folder.
    if os.getpid() != process:
        return
    transport.close()
    server.stop()
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _show_progress(done: int, total: int) -> None:
    """Shows a download on a terminal."""
    if total and sys.stderr.isatty():
        end = "\n" if done >= total else ""
        print(f"\rdownloading: {done / total:.0%} of {total / 1e9:.1f} GB", end=end, file=sys.stderr, flush=True)


def _is_conversation(prompt: Any) -> bool:
    return isinstance(prompt, Sequence) and len(prompt) > 0 and isinstance(prompt[0], Mapping)


def _usage(response: Mapping[str, Any]) -> tuple[int, int]:
    usage = response["usage"]
    return usage["prompt_tokens"], usage["completion_tokens"]


def _calls(calls: Sequence[Mapping[str, Any]]) -> list[ToolCall]:
    """The calls whose arguments are complete."""
    complete = []
    for call in calls:
        function = call["function"]
        try:
            arguments = json.loads(function["arguments"] or "{}")
        except ValueError:
            continue
        complete.append(ToolCall(call["id"], function["name"], arguments))
    return complete
