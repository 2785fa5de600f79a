"""Instructor in its modes of tools and of schemas: instructor_client.py URL."""

import sys

import instructor
import openai

from script import DATA, DATA_QUESTION, MODEL, STORY, STORY_QUESTION, Weather


def main(url):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    ask = dict(model=MODEL, messages=[{"role": "user", "content": DATA_QUESTION}], max_retries=0)
    # Forced calls, with and without strict schemas, and structured output.
    for mode in (instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT, instructor.Mode.JSON_SCHEMA):
        shaped = instructor.from_openai(client, mode=mode)
        whole = shaped.create(response_model=Weather, **ask)
        # A class of its own, so that instances differ.
        assert whole.model_dump() == DATA.model_dump(), (mode, whole)
        # A stream of partial objects, which grow.
        partial = list(shaped.create_partial(response_model=Weather, **ask))
        assert partial[-1].model_dump() == DATA.model_dump() and len(partial) > 1, (mode, partial)
    shaped = instructor.from_openai(client)
    text = shaped.create(response_model=None, model=MODEL, messages=[{"role": "user", "content": STORY_QUESTION}])
    assert text.choices[0].message.content == STORY, text
    print("Instructor works")


main(sys.argv[1])
