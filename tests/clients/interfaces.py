"""Tests a running server with the official Python clients of OpenAI, Anthropic and Ollama: interfaces.py URL KEY."""

import sys

import anthropic
import ollama
import openai
import pydantic
from document import Document

SUM = "What is 12 + 30?"
STORY = "Tell me a story about a fox named Pip who loses a key."
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class Weather(pydantic.BaseModel):
    city: str
    warm: bool


def assert_raises(kind, call, word):
    try:
        call()
    except kind as error:
        assert word in str(error), error
    else:
        raise AssertionError(f"{kind.__name__} was not raised")


def openai_chats(client):
    ask = dict(model="demo", temperature=0, messages=[{"role": "user", "content": SUM}])
    chat = client.chat.completions.create(**ask)
    answer = chat.choices[0].message.content
    assert "42" in answer and chat.choices[0].finish_reason == "stop" and chat.usage.completion_tokens > 0, chat
    stream = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    streamed = "".join(event.choices[0].delta.content or "" for event in stream if event.choices)
    usage = stream[-1].usage
    assert streamed == answer and usage.completion_tokens == chat.usage.completion_tokens, stream
    # It finds the prompt of the first request: only its last token is computed.
    assert usage.prompt_tokens == chat.usage.prompt_tokens == usage.prompt_tokens_details.cached_tokens + 1, stream
    function = {"name": "weather", "description": "The weather", "parameters": SCHEMA}
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Ulm"}'}}
    history = [ask["messages"][0], {"role": "assistant", "tool_calls": [call]},
               {"role": "tool", "tool_call_id": "c1", "content": "7"}]
    tools = [{"type": "function", "function": function}]
    chat = client.chat.completions.create(model="demo", messages=history, tools=tools, max_tokens=8, temperature=0)
    assert chat.choices[0].finish_reason in ("stop", "length", "tool_calls"), chat
    text = client.completions.create(model="demo", prompt="Once upon", max_tokens=4)
    assert text.usage.completion_tokens == 4, text
    texts = [SUM, STORY]
    embedded = client.embeddings.create(model="demo", input=texts)
    plain = client.embeddings.create(model="demo", input=texts, encoding_format="float")
    for entry, other in zip(embedded.data, plain.data, strict=True):
        # By default the client requests base64.
        assert entry.index == other.index and abs(sum(x * x for x in entry.embedding) - 1) < 1e-4, entry
        assert max(abs(x - y) for x, y in zip(entry.embedding, other.embedding, strict=True)) < 1e-4, entry
    assert embedded.usage.total_tokens > 20, embedded.usage
    assert len(client.embeddings.create(model="demo", input=SUM, dimensions=8).data[0].embedding) == 8
    assert_raises(openai.BadRequestError, lambda: client.embeddings.create(model="demo", input=[]), "no text")
    assert [model.id for model in client.models.list()] == ["demo"]
    assert_raises(openai.NotFoundError, lambda: client.chat.completions.create(**ask | {"model": "gpt-9"}), "gpt-9")
    assert_raises(openai.BadRequestError, lambda: client.chat.completions.create(**ask | {"temperature": -1}), "temperature")
    return answer


def openai_responses(client, answer):
    ask = dict(model="demo", temperature=0)
    response = client.responses.create(**ask, input=SUM)
    assert response.output_text == answer and response.status == "completed", response
    assert response.usage.output_tokens > 0, response
    with client.responses.stream(**ask, input=[{"role": "user", "content": SUM}]) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output_text == answer and final.usage == response.usage, final
    assert events[0].type == "response.created" and events[-1].type == "response.completed", events
    streamed = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert streamed == answer, streamed
    history = [{"role": "user", "content": SUM},
               {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Ulm"}'},
               {"type": "function_call_output", "call_id": "c1", "output": "7"}]
    tools = [{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": False}]
    response = client.responses.create(**ask, input=history, tools=tools, instructions="Be brief.", max_output_tokens=2)
    assert response.status == "incomplete" and response.incomplete_details.reason == "max_output_tokens", response
    parsed = client.responses.parse(**ask, input=STORY, text_format=Weather, max_output_tokens=200)
    assert isinstance(parsed.output_parsed, Weather), parsed
    with_logprobs = client.responses.create(**ask, input=SUM, include=["message.output_text.logprobs"], top_logprobs=2)
    logprobs = with_logprobs.output[0].content[0].logprobs
    assert len(logprobs) == with_logprobs.usage.output_tokens and len(logprobs[0].top_logprobs) == 2, with_logprobs
    call = client.responses.create(**ask, input=SUM, tools=tools, tool_choice="required", max_output_tokens=100)
    assert {item.type for item in call.output} == {"function_call"}, call
    assert_raises(openai.BadRequestError, lambda: client.responses.create(**ask, input=SUM, previous_response_id="r"), "not found")
    assert_raises(openai.BadRequestError, lambda: client.responses.create(**ask, input=[]), "no messages")
    short = client.responses.create(**ask, input=STORY, max_output_tokens=5)
    assert (short.status, short.output[0].status) == ("incomplete", "incomplete"), short
    count = client.responses.input_tokens.count(model="demo", input=STORY)
    assert count.input_tokens == short.usage.input_tokens, (count, short)
    question = {"type": "message", "role": "user", "content": SUM}
    conversation = client.conversations.create(items=[question], metadata={"topic": "sums"})
    assert client.conversations.update(conversation.id, metadata={"topic": "pears"}).metadata == {"topic": "pears"}
    client.responses.create(**ask, input=[], conversation=conversation.id)
    for number in range(24):
        client.conversations.items.create(conversation.id, items=[question])
    page = client.conversations.items.list(conversation.id, limit=5)
    assert len(page.data) == 5 and page.has_more and all(item.id for item in page.data), page
    every = list(client.conversations.items.list(conversation.id, order="asc"))
    assert len(every) == 26 and len({item.id for item in every}) == 26, every
    assert every[0].content[0].text == SUM and every[1].content[0].text == answer, every
    item = client.conversations.items.retrieve(every[1].id, conversation_id=conversation.id)
    assert item == every[1], item
    client.conversations.items.delete(item.id, conversation_id=conversation.id)
    assert len(list(client.conversations.items.list(conversation.id, limit=100))) == 25
    assert client.responses.input_items.list(short.id).data[0].content[0].text == STORY


def anthropic_messages(client, answer):
    ask = dict(model="demo", max_tokens=200, extra_body={"temperature": 0}, messages=[{"role": "user", "content": SUM}])
    message = client.messages.create(**ask)
    assert message.content[0].text == answer and message.stop_reason == "end_turn", message
    with client.messages.stream(**ask) as stream:
        streamed = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert streamed == answer and final.usage.output_tokens == message.usage.output_tokens, final
    count = client.messages.count_tokens(model="demo", messages=ask["messages"])
    usage = message.usage
    assert count.input_tokens == usage.input_tokens + usage.cache_read_input_tokens, (count, message)
    story = client.messages.create(**ask | {"messages": [{"role": "user", "content": STORY}], "stop_sequences": ["Pip"]})
    assert (story.stop_reason, story.stop_sequence) == ("stop_sequence", "Pip"), story
    history = [{"role": "user", "content": [{"type": "text", "text": SUM}]},
               {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Ulm"}}]},
               {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "7"}]}]
    tools = [{"name": "weather", "description": "The weather", "input_schema": SCHEMA}]
    short = client.messages.create(**ask | {"messages": history, "max_tokens": 2}, tools=tools, system="Be brief.")
    assert short.stop_reason in ("max_tokens", "end_turn"), short
    parsed = client.messages.parse(**ask, output_format=Weather)
    assert isinstance(parsed.parsed_output, Weather), parsed
    call = client.messages.create(**ask, tools=tools, tool_choice={"type": "tool", "name": "weather"})
    assert call.stop_reason == "tool_use" and "city" in call.content[0].input, call
    assert_raises(anthropic.NotFoundError, lambda: client.messages.create(**ask | {"model": "claude-9"}), "claude-9")
    image = {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}
    assert_raises(anthropic.BadRequestError,
            lambda: client.messages.create(**ask | {"messages": [{"role": "user", "content": [image]}]}), "image")
    assert message.id.startswith("msg_") and message._request_id, message
    try:
        client.messages.create(**ask | {"extra_body": {"temperature": -1}})
    except anthropic.BadRequestError as error:
        assert error.request_id and error.body["request_id"] == error.request_id, error.body
    [model] = client.models.list()
    assert (model.type, model.display_name) == ("model", "demo") and model.created_at, model
    assert client.models.retrieve("demo") == model
    wrong = anthropic.Anthropic(base_url=str(client.base_url), api_key="wrong", max_retries=0)
    assert_raises(anthropic.AuthenticationError, lambda: wrong.messages.create(**ask), "authentication_error")


def ollama_chats(client, answer):
    ask = dict(model="demo", messages=[{"role": "user", "content": SUM}], options={"temperature": 0})
    assert client.chat(**ask).message.content == answer
    assert "".join(part.message.content for part in client.chat(**ask, stream=True)) == answer
    assert client.generate(model="demo", prompt=SUM, options={"temperature": 0}).response == answer
    with_logprobs = client.chat(**ask, logprobs=True, top_logprobs=2)
    assert len(with_logprobs.logprobs) == with_logprobs.eval_count and len(with_logprobs.logprobs[0].top_logprobs) == 2, with_logprobs
    lines = list(client.generate(model="demo", prompt=SUM, options={"temperature": 0}, logprobs=True, stream=True))
    streamed = [entry.logprob for line in lines for entry in line.logprobs or []]
    assert streamed == [entry.logprob for entry in with_logprobs.logprobs], lines
    shaped = client.chat(**ask, format=Weather.model_json_schema())
    Weather.model_validate_json(shaped.message.content)
    embedded = client.embed(model="demo", input=[SUM, STORY])
    assert len(embedded.embeddings) == 2 and embedded.prompt_eval_count > 20, embedded
    old = client.embeddings(model="demo", prompt=SUM).embedding
    length = sum(x * x for x in old) ** 0.5
    assert max(abs(x / length - y) for x, y in zip(old, embedded.embeddings[0], strict=True)) < 1e-4, embedded
    assert client.pull("demo").status == "success"
    assert_raises(ollama.ResponseError, lambda: list(client.pull("hf.co/acme/tiny", stream=True)), "--allow-pull")
    assert_raises(ollama.ResponseError, lambda: client.delete("demo"), "never deletes models")
    assert client.list().models[0].model == "demo" and client.show("demo").details.family == "qwen3"
    assert_raises(ollama.ResponseError, lambda: client.chat(**ask | {"model": "llama9"}), "llama9")


def main(url, key):
    document = Document(url, key)
    http_client = openai.DefaultHttpxClient(event_hooks=document.hooks())
    with openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, http_client=http_client) as client:
        answer = openai_chats(client)
        openai_responses(client, answer)
    http_client = anthropic.DefaultHttpxClient(event_hooks=document.hooks())
    with anthropic.Anthropic(base_url=url, api_key=key, max_retries=0, http_client=http_client) as client:
        anthropic_messages(client, answer)
    headers = {"authorization": f"Bearer {key}"}
    ollama_chats(ollama.Client(host=url, headers=headers, event_hooks=document.hooks()), answer)
    assert document.checked > 30, document.checked
    print(f"all clients get the same answers, and {document.checked} exchanges conform to the OpenAPI document")


main(*sys.argv[1:])
