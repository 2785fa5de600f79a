"""Checks of what programs pass to models, before it becomes a request: the server ignores fields it does not know."""

import difflib
import math
import operator
from collections.abc import Collection, Iterable, Mapping
from typing import Any

# Arguments of the methods, or chosen by which method is called.
OWN = frozenset({"messages", "model", "prompt", "stream"})

# Options whose results an answer does not hold, with the values that ask for nothing.
UNSHOWN = {"n": (None, 1), "best_of": (None, 1), "logprobs": (None, False), "top_logprobs": (None, 0)}

# Numbers of which the server takes negative ones for no limit.
COUNTS = ("max_tokens", "max_completion_tokens", "min_tokens")


def checked_options(method: str, options: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """The options of a request.

    Raises TypeError if one is not of `known`, and ValueError if a number of tokens is negative or a number not finite.
    """
    known = frozenset(known) - OWN
    checked = {}
    for name, value in options.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            if name == "stream":
                hint = ": call stream() for pieces of the text"
            raise TypeError(f"{method}() has no option {name!r}{hint}")
        if value not in UNSHOWN.get(name, (value,)):
            hint = "an answer has one text alone, use serve() with a client of OpenAI's API"
            raise TypeError(f"{method}() has no option {name!r}: {hint}")
        check_text(name, value)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} must be a finite number, not {value}")
        checked[name] = _count(name, value) if name in COUNTS and value is not None else value
    return checked


def checked_number(name: str, value: int | None, most: int | None = None) -> int | None:
    """A number of at least 1, or None.

    Raises TypeError if it is no integer, and ValueError if it is less than 1 or more than `most`.
    """
    if value is None:
        return None
    number = _integer(name, value)
    if number < 1 or (most is not None and number > most):
        wanted = "at least 1" if most is None else f"from 1 to {most}"
        raise ValueError(f"{name} must be {wanted}, but is {number}")
    return number


def plain_number(value: Any) -> Any:
    """What JSON has for one of NumPy's numbers.

    Raises TypeError for values that are none.
    """
    try:
        return value.item()
    except (AttributeError, ValueError):
        raise TypeError(f"{_kind(value)} is not a value of JSON: {value!r}") from None


def _integer(name: str, value: Any) -> int:
    """An integer, of Python's or NumPy's."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {value!r}") from None


def _count(name: str, value: Any) -> int:
    """A number of tokens, of Python's integers or NumPy's."""
    whole = isinstance(value, float) and value.is_integer()
    count = int(value) if whole else _integer(name, value)
    if count < 0:
        raise ValueError(f"{name} must not be negative, but is {value}: leave it out for no limit of your own")
    return count


def check_text(name: str, value: Any) -> None:
    """Raises ValueError if a text, or one within lists and dictionaries, cannot be encoded."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            reason = f"{name} has the surrogate {value[error.start]!r} at {error.start}, which belongs to no character"
            raise ValueError(reason) from None
    elif isinstance(value, Mapping):
        for key, item in value.items():
            check_text(f"a key of {name}", key)
            check_text(f"{name}[{key!r}]", item)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            check_text(f"{name}[{index}]", item)


def prompt_of(prompt: Any) -> str | list[int]:
    """A text, or token ids as a list."""
    if isinstance(prompt, str):
        check_text("the prompt", prompt)
        return prompt
    if isinstance(prompt, bytes | bytearray | Mapping) or not isinstance(prompt, Iterable):
        raise TypeError(f"the prompt must be a text or token ids, not {_kind(prompt)}")
    return [_token(index, token) for index, token in enumerate(prompt)]


def messages_of(messages: Any) -> list[Mapping[str, Any]]:
    """Messages as a list; a text is the only message, of the user."""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    if isinstance(messages, bytes | bytearray | Mapping) or not isinstance(messages, Iterable):
        raise TypeError(f"messages must be a text or a list of dictionaries, not {_kind(messages)}")
    messages = list(messages)
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise TypeError(f"messages[{index}] must be a dictionary, not {_kind(message)}")
    check_text("messages", messages)
    return messages


def texts_of(texts: Any) -> list[str]:
    """Texts as a list; one text is a list of one."""
    if isinstance(texts, str):
        texts = [texts]
    if isinstance(texts, bytes | bytearray | Mapping) or not isinstance(texts, Iterable):
        raise TypeError(f"texts must be a text or a list of texts, not {_kind(texts)}")
    texts = list(texts)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"texts[{index}] must be a text, not {_kind(text)}")
    check_text("texts", texts)
    return texts


def _token(index: int, token: Any) -> int:
    """A token id, of Python's integers or NumPy's."""
    try:
        number = operator.index(token)
    except TypeError:
        raise TypeError(f"token {index} of the prompt must be an integer, not {_kind(token)}") from None
    if number < 0:
        raise ValueError(f"token {index} of the prompt is {number}: token ids are not negative")
    return number


def _kind(value: Any) -> str:
    return "None" if value is None else type(value).__name__
