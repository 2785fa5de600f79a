"""Pydantic AI, over chat completions and over the Responses API: pydantic_ai_client.py URL."""

import asyncio
import sys

from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from script import ANSWER, DATA, DATA_QUESTION, MODEL, QUESTION, STORY_QUESTION, Tool, Weather, assert_streamed


async def check(model):
    record = Tool()
    agent = Agent(model, instructions="Be brief.")

    @agent.tool_plain
    def weather(city: str) -> str:
        """The weather in a city."""
        return record(city)

    result = await agent.run(QUESTION)
    assert result.output == ANSWER, result
    record.assert_called()
    # A stream with a tool call.
    async with agent.run_stream(QUESTION) as stream:
        assert await stream.get_output() == ANSWER
    record.assert_called(2)
    async with Agent(model).run_stream(STORY_QUESTION) as stream:
        assert_streamed([piece async for piece in stream.stream_text(delta=True, debounce_by=None)])
    for output in (NativeOutput(Weather), ToolOutput(Weather, name="Weather")):
        result = await Agent(model, output_type=output).run(DATA_QUESTION)
        assert result.output == DATA, result


async def main(url):
    provider = OpenAIProvider(base_url=f"{url}/v1", api_key="none")
    await check(OpenAIChatModel(MODEL, provider=provider))
    await check(OpenAIResponsesModel(MODEL, provider=provider))
    print("Pydantic AI works")


asyncio.run(main(sys.argv[1]))
