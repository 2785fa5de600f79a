"""OpenAI's Agents SDK, over the Responses API and over chat completions: openai_agents_sdk.py URL."""

import asyncio
import sys

import agents
import openai
from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
from agents.models.openai_responses import OpenAIResponsesModel

from script import ANSWER, DATA, DATA_QUESTION, MODEL, QUESTION, STORY_QUESTION, Tool, Weather, assert_streamed


async def check(model):
    tool = Tool()

    @agents.function_tool
    def weather(city: str) -> str:
        """The weather in a city."""
        return tool(city)

    agent = agents.Agent(name="Forecaster", instructions="Be brief.", model=model, tools=[weather])
    result = await agents.Runner.run(agent, QUESTION)
    assert result.final_output == ANSWER, result
    tool.assert_called()
    storyteller = agents.Agent(name="Storyteller", model=model)
    stream = agents.Runner.run_streamed(storyteller, STORY_QUESTION)
    events = [event.data async for event in stream.stream_events() if event.type == "raw_response_event"]
    assert_streamed([event.delta for event in events if event.type == "response.output_text.delta"])
    describer = agents.Agent(name="Describer", model=model, output_type=Weather)
    assert (await agents.Runner.run(describer, DATA_QUESTION)).final_output == DATA
    # A stream with a tool call.
    stream = agents.Runner.run_streamed(agent, QUESTION)
    kinds = [event.item.type async for event in stream.stream_events() if event.type == "run_item_stream_event"]
    assert kinds == ["tool_call_item", "tool_call_output_item", "message_output_item"], kinds
    assert stream.final_output == ANSWER, stream
    tool.assert_called(2)


async def main(url):
    agents.set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    await check(OpenAIResponsesModel(MODEL, client))
    await check(OpenAIChatCompletionsModel(MODEL, client))
    print("the Agents SDK works")


asyncio.run(main(sys.argv[1]))
