"""What the scripted model is asked, and what it says. `serve::scripted_clients` writes the model."""

import pydantic

MODEL = "scripted"
QUESTION = "What is the weather in Ulm?"
ANSWER = "It is sunny in Ulm."
STORY_QUESTION = "Tell me a story."
STORY = "Pip the fox looked for a key."
DATA_QUESTION = "Describe Ulm as data."


class Weather(pydantic.BaseModel):
    """The weather in a city."""

    city: str
    warm: bool


DATA = Weather(city="Ulm", warm=True)


class Tool:
    """The weather tool's body, which records its calls. The model answers only if it gets the result."""

    def __init__(self):
        self.cities = []

    def __call__(self, city):
        self.cities.append(city)
        return f"sunny, 21 degrees in {city}"

    def assert_called(self, times=1):
        assert self.cities == ["Ulm"] * times, self.cities


def assert_streamed(pieces):
    """The story must arrive in more than one piece."""
    pieces = [piece for piece in pieces if piece]
    assert "".join(pieces) == STORY and len(pieces) > 1, pieces
