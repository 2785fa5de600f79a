"""HTTP requests to the server within this process, at an address or a Unix socket."""

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

from refrain.arguments import plain_number

CLOSED = "the model is closed"


class Error(RuntimeError):
    """A request that was refused or failed. `status` is the HTTP status that a client over the network would get."""

    def __init__(self, message: str, status: int):
        super().__init__(message)
        self.status = status


class _SocketConnection(http.client.HTTPConnection):
    """A connection to a Unix socket."""

    def __init__(self, path: str):
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.connect(self._path)
        except FileNotFoundError as error:
            raise RuntimeError(CLOSED) from error


class Transport:
    """Sends requests, each on a connection of its own, so that any thread may send one."""

    def __init__(self, address: str, key: str | None = None):
        self._address = address
        self._is_closed = False
        self._streams: set[_Closing] = set()
        self._headers = {"Content-Type": "application/json"}
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Returns the JSON of the response."""
        connection, response = self._send("POST", path, body)
        with connection:
            return json.loads(response.read())

    def fields(self, path: str) -> frozenset[str]:
        """The names of all fields of a request to `path`, as the server describes them."""
        connection, response = self._send("GET", "/openapi.json")
        with connection:
            document = json.loads(response.read())
        content = document["paths"][path]["post"]["requestBody"]["content"]
        name = content["application/json"]["schema"]["$ref"].rpartition("/")[2]
        return frozenset(document["components"]["schemas"][name]["properties"])

    def stream(self, path: str, body: dict[str, Any]) -> Iterator[Any]:
        """Yields the JSON of each event. Closing the iterator cancels the request."""
        connection, _ = self._send("POST", path, body | {"stream": True})
        self._streams.add(connection)
        try:
            with connection:
                while line := connection.read_line():
                    data = line.removeprefix(b"data: ").strip()
                    if data == line.strip() or data == b"[DONE]":
                        continue
                    event = json.loads(data)
                    if "error" in event:
                        raise Error(_message(event), 500)
                    yield event
        finally:
            self._streams.discard(connection)

    def close(self) -> None:
        """Refuses further requests, and cancels streams that nobody is reading: the server would wait for them."""
        self._is_closed = True
        for stream in list(self._streams):
            stream.cancel_unread()

    def _send(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> "tuple[_Closing, http.client.HTTPResponse]":
        if self._is_closed:
            raise RuntimeError(CLOSED)
        text = None if body is None else json.dumps(body, allow_nan=False, default=plain_number)
        connection = self._connection()
        try:
            connection.request(method, path, text, self._headers)
            response = connection.getresponse()
            if response.status != 200:
                raise Error(_message(response.read()), response.status)
        except BaseException:
            connection.close()
            raise
        return _Closing(connection, response), response

    def _connection(self) -> http.client.HTTPConnection:
        path = self._address.removeprefix("unix:")
        if path != self._address:
            return _SocketConnection(path)
        return http.client.HTTPConnection(self._address)


class _Closing:
    """Closes a response and its connection."""

    def __init__(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse):
        self._response = response
        self._connection = connection
        self._is_reading = False
        self._is_cancelled = False

    def read_line(self) -> bytes:
        """The next line, empty at the end."""
        self._is_reading = True
        try:
            line = b"" if self._is_cancelled else self._response.readline()
        finally:
            self._is_reading = False
        if self._is_cancelled:
            raise RuntimeError(CLOSED)
        return line

    def cancel_unread(self) -> None:
        """Closes it unless a thread waits for a line."""
        if not self._is_reading:
            self._is_cancelled = True
            self.__exit__()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._response.close()
        self._connection.close()


def _message(body: Any) -> str:
    """What an error's body says."""
    try:
        error = body if isinstance(body, dict) else json.loads(body)
        return error["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace") if isinstance(body, bytes) else str(body)
