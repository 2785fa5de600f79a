"""`refrain.load` and `refrain.serve`, with the model that is built in. REFRAIN_DEVICE chooses the device."""

import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import pytest

import refrain

DEVICE = os.environ.get("REFRAIN_DEVICE", "auto")
QUESTION = "What is 12 + 30?"


@pytest.fixture(scope="module")
def model():
    with refrain.load("demo", device=DEVICE, context=512) as model:
        yield model


def test_answers_questions(model):
    answer = model.chat(QUESTION, temperature=0)
    assert "42" in str(answer)
    assert (answer.finish_reason, answer.reasoning, answer.tool_calls) == ("stop", "", [])
    assert answer.prompt_tokens > 5 and answer.tokens > 1


def test_streams_give_the_same_text(model):
    messages = [{"role": "user", "content": QUESTION}]
    pieces = list(model.stream(messages, temperature=0))
    assert len(pieces) > 1
    assert "".join(pieces) == str(model.chat(messages, temperature=0))
    options = {"max_tokens": 20, "temperature": 0.8, "seed": 7}
    text = str(model.generate("Once upon", **options))
    assert text and "".join(model.stream("Once upon", **options)) == text


def test_a_closed_stream_cancels_the_request(model):
    stream = model.stream("Once upon", max_tokens=400, ignore_eos=True)
    next(stream)
    stream.close()
    assert "42" in str(model.chat(QUESTION, temperature=0))


def test_options_are_those_of_the_api(model):
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    form = {"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}}
    answer = model.chat(QUESTION, response_format=form, temperature=0)
    assert isinstance(json.loads(str(answer))["sum"], int)
    assert model.generate("Once upon", max_tokens=3, ignore_eos=True).finish_reason == "length"
    with pytest.raises(refrain.Error, match="temperature") as caught:
        model.chat(QUESTION, temperature=-1)
    assert caught.value.status == 400
    tokens = model.generate([5, 6, 7], max_tokens=2, temperature=0)
    assert tokens.prompt_tokens == 3


def test_embeds_texts(model):
    one, other = model.embed(["a fox", "12 + 30"])
    assert len(one) == len(other) and one != other
    assert sum(value * value for value in one) == pytest.approx(1, abs=1e-3)
    assert model.embed("a fox")[0] == pytest.approx(one, abs=1e-4)


def test_the_cache_may_be_quantised():
    with refrain.load("demo", device=DEVICE, context=256, kv_type="q8_0") as model:
        assert "42" in str(model.chat(QUESTION, temperature=0))


def test_threads_are_served_together(model):
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(str(model.chat(QUESTION, temperature=0)))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 4 and all("42" in answer for answer in answers)


def test_serves_other_programs():
    with refrain.serve("demo", port=0, api_key="secret", device=DEVICE, context=256) as server:
        assert "42" in str(server.chat(QUESTION, temperature=0))
        body = json.dumps({"messages": [{"role": "user", "content": QUESTION}], "temperature": 0}).encode()
        request = urllib.request.Request(f"{server.url}/v1/chat/completions", body)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(request)
        request.add_header("Authorization", "Bearer secret")
        with urllib.request.urlopen(request) as response:
            assert "42" in json.load(response)["choices"][0]["message"]["content"]
        with pytest.raises(RuntimeError, match="in use"):
            refrain.serve("demo", port=int(server.url.rsplit(":", 1)[1]), device=DEVICE)
        url = server.url
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{url}/health")


def test_errors_say_what_to_do(monkeypatch, tmp_path):
    with pytest.raises(RuntimeError, match="neither a path nor a name"):
        refrain.load("./nowhere")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(RuntimeError, match="(?i)offline"):
        refrain.load("nobody/nothing")
    with pytest.raises(ValueError, match="q8_0"):
        refrain.load("demo", device=DEVICE, kv_type="q9")
    with pytest.raises(RuntimeError, match="context"):
        refrain.load("demo", device=DEVICE, context=10**9)


def test_a_closed_model_says_so():
    model = refrain.load("demo", device="cpu")
    model.close()
    with pytest.raises(RuntimeError, match="closed"):
        model.generate("x")


def test_a_program_of_five_lines():
    program = f"import refrain\nmodel = refrain.load('demo', device={DEVICE!r})\nprint(model.chat('{QUESTION}', temperature=0))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "42" in result.stdout
