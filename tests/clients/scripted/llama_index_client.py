"""LlamaIndex: an agent with a tool, streams and structured output: llama_index_client.py URL."""

import asyncio
import sys

from llama_index.core.agent.workflow import AgentStream, FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.llms.openai_like import OpenAILike

from script import ANSWER, DATA, DATA_QUESTION, MODEL, QUESTION, STORY_QUESTION, Tool, Weather, assert_streamed


async def main(url):
    record = Tool()

    def weather(city: str) -> str:
        """The weather in a city."""
        return record(city)

    model = OpenAILike(
        model=MODEL,
        api_base=f"{url}/v1",
        api_key="none",
        is_chat_model=True,
        is_function_calling_model=True,
        max_retries=0,
        context_window=8192,
    )
    # The agent streams its requests.
    agent = FunctionAgent(tools=[weather], llm=model, system_prompt="Be brief.")
    handler = agent.run(QUESTION)
    streamed = "".join([event.delta async for event in handler.stream_events() if isinstance(event, AgentStream)])
    answer = await handler
    assert str(answer) == ANSWER and streamed == ANSWER, (answer, streamed)
    record.assert_called()
    pieces = model.stream_chat([ChatMessage(role="user", content=STORY_QUESTION)])
    assert_streamed([piece.delta for piece in pieces])
    assert model.structured_predict(Weather, PromptTemplate(DATA_QUESTION)) == DATA
    assert model.as_structured_llm(Weather).complete(DATA_QUESTION).raw == DATA
    print("LlamaIndex works")


asyncio.run(main(sys.argv[1]))
