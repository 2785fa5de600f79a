"""LiteLLM: OpenAI's and Anthropic's routes, and Ollama's: litellm_client.py URL."""

import json
import sys

import litellm

from script import ANSWER, DATA, DATA_QUESTION, MODEL, QUESTION, STORY_QUESTION, Tool, Weather, assert_streamed

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "The weather", "parameters": PARAMETERS}}


def check(ask):
    record = Tool()
    messages = [{"role": "user", "content": QUESTION}]
    answer = ask(messages=messages, tools=[WEATHER])
    assert answer.choices[0].finish_reason == "tool_calls", answer
    message = answer.choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    for call in message.tool_calls:
        result = record(**json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    record.assert_called()
    answer = ask(messages=messages, tools=[WEATHER])
    assert answer.choices[0].message.content == ANSWER and answer.usage.completion_tokens > 0, answer
    pieces = ask(messages=[{"role": "user", "content": STORY_QUESTION}], stream=True)
    assert_streamed([piece.choices[0].delta.content for piece in pieces])
    pieces = list(ask(messages=[{"role": "user", "content": QUESTION}], tools=[WEATHER], stream=True))
    whole = litellm.stream_chunk_builder(pieces).choices[0].message
    assert json.loads(whole.tool_calls[0].function.arguments) == {"city": "Ulm"}, whole
    answer = ask(messages=[{"role": "user", "content": DATA_QUESTION}], response_format=Weather)
    assert Weather.model_validate_json(answer.choices[0].message.content) == DATA, answer


def main(url):
    def through(provider, base):
        return lambda **fields: litellm.completion(
            model=f"{provider}/{MODEL}", api_base=base, api_key="none", num_retries=0, max_tokens=200, **fields
        )

    check(through("openai", f"{url}/v1"))
    check(through("hosted_vllm", f"{url}/v1"))
    check(through("ollama_chat", url))
    print("LiteLLM works")


main(sys.argv[1])
