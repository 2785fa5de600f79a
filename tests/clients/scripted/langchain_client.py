"""LangChain, and its agents on LangGraph: langchain_client.py URL."""

import sys

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from script import ANSWER, DATA, DATA_QUESTION, MODEL, QUESTION, STORY_QUESTION, Tool, Weather, assert_streamed


def main(url):
    record = Tool()

    @tool
    def weather(city: str) -> str:
        """The weather in a city."""
        return record(city)

    for responses in (False, True):
        record.cities.clear()
        model = ChatOpenAI(
            model=MODEL, base_url=f"{url}/v1", api_key="none", max_retries=0, temperature=0, use_responses_api=responses
        )
        agent = create_agent(model, [weather], system_prompt="Be brief.")
        answer = agent.invoke({"messages": [{"role": "user", "content": QUESTION}]})["messages"][-1]
        assert answer.text == ANSWER and answer.usage_metadata["output_tokens"] > 0, answer
        record.assert_called()
        pieces = list(model.stream(STORY_QUESTION))
        assert_streamed([piece.text for piece in pieces])
        for method in ("json_schema", "function_calling"):
            assert model.with_structured_output(Weather, method=method).invoke(DATA_QUESTION) == DATA, method
        # A stream with a tool call.
        steps = agent.stream({"messages": [{"role": "user", "content": QUESTION}]}, stream_mode="messages")
        kinds = {kind: "".join(piece.text for piece, _ in group) for kind, group in by_kind(steps).items()}
        assert kinds["AIMessageChunk"] == ANSWER and "sunny" in kinds["ToolMessage"], kinds
        record.assert_called(2)
    print("LangChain works")


def by_kind(steps):
    groups = {}
    for piece, about in steps:
        groups.setdefault(type(piece).__name__, []).append((piece, about))
    return groups


main(sys.argv[1])
