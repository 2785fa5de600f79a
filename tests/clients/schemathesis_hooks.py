"""Hooks of schemathesis, which schemathesis.toml names: most requests are made acceptable, and answers are short."""

import json

import jsonschema_rs
import schemathesis

# Where the routes that generate text take the maximum number of tokens.
LIMITS = {
    "/v1/chat/completions": ["max_tokens"],
    "/v1/completions": ["max_tokens"],
    "/v1/responses": ["max_output_tokens"],
    "/v1/messages": ["max_tokens"],
    "/completion": ["n_predict"],
    "/completions": ["n_predict"],
    "/infill": ["n_predict"],
    "/api/chat": ["options", "num_predict"],
    "/api/generate": ["options", "num_predict"],
}
TOKENS = 8
# Fields of which a request may have one.
FORMS = ["response_format", "json_schema", "guided_json", "grammar", "guided_grammar", "guided_regex", "guided_choice",
         "structured_outputs"]
# Fields that are valid with certain others, or name what the server does not have.
RARE = ["add_generation_prompt", "continue_final_message", "previous_response_id", "conversation", "best_of", "min_tokens",
        "tool_choice", "function_call", "prompt", "suffix", "logit_bias", "dimensions", "echo", *FORMS]
# Routes whose prompt or suffix is needed.
WITH_PROMPT = ["/v1/completions", "/completion", "/completions", "/infill", "/tokenize", "/api/generate", "/api/embeddings"]
# One request in this many is sent as it was generated.
AS_GENERATED = 8
calls = 0


@schemathesis.hook
def before_call(context, case, kwargs):
    """Names the model that is served, leaves out most of the fields that exclude others, and limits the answer.

    A schema cannot say which names a server has, or that fields exclude each other: as they are generated, nearly all
    requests are refused for such reasons, and what follows is not tried.
    """
    global calls
    body, path = case.body, case.operation.path
    if not isinstance(body, dict) or not {"model", "messages", "input", "tokens"} & body_fields(case):
        return
    calls += 1
    if calls % AS_GENERATED == 0:
        return
    if isinstance(body.get("model", ""), str):
        body["model"] = "demo"
    if isinstance(body.get("name"), str):
        body.pop("name")
    present = [name for name in RARE if name in body and not (name == "prompt" and path in WITH_PROMPT)]
    kept = present[calls % len(present)] if present else None
    for name in present:
        if name != kept:
            body.pop(name)
    if path == "/v1/responses" and body.get("input") is None and kept not in ("previous_response_id", "conversation"):
        body["input"] = "Say hi."
    if body.get("stream") is False and calls % 3 == 0:
        body["stream"] = True
    # The smallest numbers above 0 are 0 once they are rounded.
    for fields in [body, body.get("options")]:
        for name in ["repetition_penalty", "repeat_penalty"]:
            if isinstance(fields, dict) and isinstance(fields.get(name), (int, float)) and abs(fields[name]) < 1e-30:
                fields.pop(name)
    fields = body
    *outer, limit = LIMITS.get(path, [None])
    if limit is None:
        return
    for name in outer:
        fields = fields.setdefault(name, {})
        if not isinstance(fields, dict):
            return
    if fields.get(limit, -1) is None or isinstance(fields.get(limit, 0), (int, float)):
        fields[limit] = min(TOKENS, fields.get(limit) or TOKENS)


def body_fields(case):
    schema = case.operation.definition.raw["requestBody"]["content"]["application/json"]["schema"]
    name = schema["$ref"].rsplit("/", 1)[1]
    return set(case.operation.schema.raw_schema["components"]["schemas"][name]["properties"])


@schemathesis.check
def lines_conform(ctx, response, case):
    """Each line of a stream of JSON lines conforms to the schema of its items."""
    if response.headers.get("content-type", [""])[0] != "application/x-ndjson":
        return
    document = case.operation.schema.raw_schema
    content = case.operation.definition.raw["responses"]["200"]["content"]["application/x-ndjson"]
    validator = jsonschema_rs.Draft202012Validator({**content["itemSchema"], "components": document["components"]})
    lines = response.text.splitlines()
    assert lines, "no line"
    for line in lines:
        error = next(iter(validator.iter_errors(json.loads(line))), None)
        assert error is None, f"{error}: {line}"
