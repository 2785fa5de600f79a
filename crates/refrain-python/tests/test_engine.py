"""`refrain.load` and `refrain.serve`, with the model that is built in. REFRAIN_DEVICE chooses the device."""

import json
import os
import subprocess
import sys
import textwrap
import threading
import time
import urllib.error
import urllib.request

import numpy
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


def test_close_cancels_streams_that_nobody_reads():
    model = refrain.load("demo", device="cpu")
    stream = model.stream("Once upon", max_tokens=1000, ignore_eos=True)
    next(stream)
    begun = time.monotonic()
    model.close()
    # The server would wait 30 seconds for the request.
    assert time.monotonic() - begun < 20
    with pytest.raises(RuntimeError, match="closed"):
        next(stream)


def test_a_call_that_is_cut_off_is_left_out(model):
    parameters = {"type": "object", "properties": {"x": {"type": "string", "minLength": 50}}, "required": ["x"]}
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    answer = model.chat("hi", tools=tools, tool_choice="required", max_tokens=12, temperature=0)
    assert (answer.finish_reason, answer.tool_calls) == ("length", [])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
def test_a_forked_process_leaves_the_model_alone():
    program = f"""
        import os, sys, refrain
        model = refrain.load("demo", device={DEVICE!r})
        child = os.fork()
        if child == 0:
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(model.generate("Once", max_tokens=2, ignore_eos=True).tokens)
    """
    # Python 3.12 warns of forks where threads run.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(program)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (result.stdout.strip(), result.stderr) == ("2", "")


def test_arguments_are_checked_before_a_model_is_loaded():
    with pytest.raises(ValueError, match="api_key"):
        refrain.serve("demo", port=0, api_key="")
    with pytest.raises(ValueError, match="parallel must be from 1 to 256, but is 0"):
        refrain.load("demo", parallel=0)
    with pytest.raises(ValueError, match="context must be at least 1"):
        refrain.load("demo", context=-1)
    with pytest.raises(TypeError, match="not NoneType"):
        refrain.load(None)


def test_a_program_of_five_lines():
    program = f"import refrain\nmodel = refrain.load('demo', device={DEVICE!r})\nprint(model.chat('{QUESTION}', temperature=0))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "42" in result.stdout


def test_options_that_do_not_exist_are_errors(model):
    with pytest.raises(TypeError, match=r"generate\(\) has no option 'max_token': did you mean 'max_tokens'\?"):
        model.generate("Once upon", max_token=5)
    with pytest.raises(TypeError, match=r"chat\(\) has no option 'qwertz'$"):
        model.chat(QUESTION, qwertz=1)
    with pytest.raises(TypeError, match=r"stream\(\) has no option 'temprature': did you mean 'temperature'"):
        model.stream("Once upon", temprature=0)
    with pytest.raises(TypeError, match=r"generate\(\) has no option 'n': an answer has one text"):
        model.generate("Once upon", n=2)
    with pytest.raises(ValueError, match="temperature must be a finite number"):
        model.generate("Once upon", temperature=float("nan"))
    numbers = {"temperature": numpy.float32(0.5), "seed": numpy.int64(3), "max_tokens": numpy.int32(2), "n": 1}
    assert model.generate("Once upon", **numbers, ignore_eos=True).tokens == 2
    with pytest.raises(TypeError, match=r"call stream\(\)"):
        model.generate("Once upon", stream=True)
    with pytest.raises(TypeError, match="has no option 'tools'"):
        model.generate("Once upon", tools=[])
    with pytest.raises(TypeError, match="has no option 'model'"):
        model.chat(QUESTION, model="other")
    assert model.chat(QUESTION, tools=None, max_tokens=None, temperature=0).text
    with refrain.serve("demo", port=0, api_key="secret", device=DEVICE, context=256) as server:
        with pytest.raises(TypeError, match="max_tokens"):
            server.chat(QUESTION, max_token=5)
        body = json.dumps({"prompt": "Once upon", "max_tokens": 1, "max_token": 5}).encode()
        request = urllib.request.Request(f"{server.url}/v1/completions", body, {"Authorization": "Bearer secret"})
        with urllib.request.urlopen(request) as response:
            assert response.status == 200


@pytest.mark.parametrize("value", [-1, -1.0])
def test_negative_numbers_of_tokens_are_errors(model, value):
    for name in ("max_tokens", "max_completion_tokens", "min_tokens"):
        with pytest.raises(ValueError, match=f"{name} must not be negative"):
            model.generate("Once upon", **{name: value})
    with pytest.raises(TypeError, match="max_tokens must be an integer, not '5'"):
        model.generate("Once upon", max_tokens="5")


def test_prompts_must_be_texts_tokens_or_messages(model):
    for call in (model.generate, model.stream):
        for prompt in (None, 5, b"text", {"role": "user"}):
            with pytest.raises(TypeError, match="the prompt must be a text or token ids, not"):
                call(prompt)
        with pytest.raises(TypeError, match="token 1 of the prompt must be an integer, not str"):
            call([5, "six"])
        with pytest.raises(ValueError, match="token 0 of the prompt is -1"):
            call([-1])
        with pytest.raises(ValueError, match=r"the prompt has the surrogate '\\ud800' at 2"):
            call("ab\ud800")
    with pytest.raises(TypeError, match="messages must be a text or a list of dictionaries, not None"):
        model.chat(None)
    with pytest.raises(TypeError, match=r"messages\[0\] must be a dictionary, not int"):
        model.chat([5])
    with pytest.raises(ValueError, match=r"messages\[0\]\['content'\] has the surrogate"):
        model.chat("\ud800")
    with pytest.raises(ValueError, match=r"stop\[1\] has the surrogate"):
        model.chat(QUESTION, stop=["a", "\udfff"])
    with pytest.raises(TypeError, match="texts must be a text or a list of texts, not None"):
        model.embed(None)
    with pytest.raises(TypeError, match=r"texts\[1\] must be a text, not int"):
        model.embed(["a", 5])
    with pytest.raises(ValueError, match=r"texts\[0\] has the surrogate"):
        model.embed("\ud800")
