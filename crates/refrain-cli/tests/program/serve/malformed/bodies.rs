//! Valid request bodies, of which malformed ones are made.

use serde_json::{Value, json};

use super::ErrorForm::{self, Anthropic, Ollama, OpenAi};

/// A valid request body: its path, the API's error format, and the body.
pub(super) type ValidBody = (&'static str, ErrorForm, Value);

/// Valid bodies that together use most fields.
pub(super) fn bodies() -> Vec<ValidBody> {
    [openais_bodies(), anthropics_bodies(), ollamas_bodies(), own_bodies()].concat()
}

fn schema() -> Value {
    json!({"type": "object", "properties": {"x": {"enum": ["a", "b"]}}, "required": ["x"]})
}

/// A conversation with a tool call, and its tools.
fn chat_and_tools() -> (Value, Value) {
    let function = json!({"name": "f", "description": "does", "parameters": schema()});
    let tools = json!([{"type": "function", "function": function}]);
    let call = json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}});
    let messages = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "7"},
    ]);
    (messages, tools)
}

fn openais_bodies() -> Vec<ValidBody> {
    let (messages, tools) = chat_and_tools();
    let items = json!([
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "7"},
    ]);
    let flat_tools = json!([{"type": "function", "name": "f", "parameters": schema()}]);
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema()}});
    vec![
        (
            "/v1/chat/completions",
            OpenAi,
            json!({"model": "demo", "messages": messages, "tools": tools, "tool_choice": "auto", "max_tokens": 1, "n": 1,
                "temperature": 0, "top_p": 0.9, "min_p": 0.1, "top_k": 5, "seed": 1, "stop": ["x"], "stream": true,
                "stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 2, "logit_bias": {"5": 1},
                "presence_penalty": 0.1, "frequency_penalty": 0.1, "repetition_penalty": 1.1, "think": false,
                "chat_template_kwargs": {"x": 1}, "parallel_tool_calls": true}),
        ),
        (
            "/v1/chat/completions",
            OpenAi,
            json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "response_format": format}),
        ),
        (
            "/v1/completions",
            OpenAi,
            json!({"prompt": ["Once"], "max_tokens": 1, "logprobs": 2, "echo": false, "suffix": "", "guided_regex": "a+",
                "ignore_eos": false}),
        ),
        (
            "/v1/completions",
            OpenAi,
            json!({"prompt": "Once upon", "max_tokens": 1, "echo": true, "logprobs": 1, "min_tokens": 1, "best_of": 1,
                "truncate_prompt_tokens": 3, "stop_token_ids": [5]}),
        ),
        (
            "/v1/chat/completions",
            OpenAi,
            json!({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "I"}], "max_tokens": 1,
                "continue_final_message": true, "add_generation_prompt": false, "reasoning_effort": "low"}),
        ),
        (
            "/v1/responses",
            OpenAi,
            json!({"input": "Hi", "max_output_tokens": 1, "store": true, "reasoning": {"effort": "low"}, "tools": [
                {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]},
                {"type": "custom", "name": "c", "format": {"type": "grammar", "syntax": "regex", "definition": "a"}},
                {"type": "local_shell"}, {"type": "web_search"}]}),
        ),
        (
            "/v1/completions",
            OpenAi,
            json!({"prompt": [[5, 6]], "max_tokens": 1, "structured_outputs": {"choice": ["a", "b"]}}),
        ),
        (
            "/v1/responses",
            OpenAi,
            json!({"model": "demo", "input": items, "instructions": "Be brief.", "tools": flat_tools, "tool_choice": "auto",
                "max_output_tokens": 1, "temperature": 0, "stream": false, "text": {"format": {"type": "text"}},
                "metadata": {"a": "b"}, "background": false, "include": ["message.output_text.logprobs"],
                "top_logprobs": 2, "parallel_tool_calls": true, "previous_response_id": null}),
        ),
    ]
}

fn anthropics_bodies() -> Vec<ValidBody> {
    let blocks = json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm", "signature": ""},
            {"type": "tool_use", "id": "1", "name": "f", "input": {"x": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "7"}]},
    ]);
    let own_tools = json!([{"name": "f", "description": "does", "input_schema": schema()}]);
    vec![
        (
            "/v1/messages",
            Anthropic,
            json!({"model": "demo", "messages": blocks, "system": [{"type": "text", "text": "Be brief."}],
                "tools": own_tools, "tool_choice": {"type": "auto"}, "thinking": {"type": "disabled"}, "max_tokens": 1,
                "temperature": 0, "top_k": 1, "top_p": 0.5, "stop_sequences": ["x"], "stream": false,
                "output_config": {"format": {"type": "json_schema", "schema": schema()}}}),
        ),
        (
            "/v1/messages/count_tokens",
            Anthropic,
            json!({"messages": blocks, "system": "Be brief.", "tools": own_tools}),
        ),
    ]
}

fn ollamas_bodies() -> Vec<ValidBody> {
    let (messages, tools) = chat_and_tools();
    let options =
        json!({"num_predict": 1, "temperature": 0, "top_k": 1, "stop": ["x"], "seed": 1, "repeat_penalty": 1.1});
    vec![
        (
            "/api/chat",
            Ollama,
            json!({"model": "demo", "messages": messages, "tools": tools, "stream": false, "think": false, "format": "",
                "options": options}),
        ),
        (
            "/api/generate",
            Ollama,
            json!({"model": "demo", "prompt": "Hi", "system": "Be brief.", "suffix": "", "images": [], "raw": false,
                "format": schema(), "stream": false, "logprobs": true, "top_logprobs": 2, "options": {"num_predict": 1}}),
        ),
        ("/api/show", Ollama, json!({"model": "demo"})),
        ("/api/pull", Ollama, json!({"model": "demo", "stream": true})),
        (
            "/api/embed",
            Ollama,
            json!({"input": ["Hi"], "truncate": true, "dimensions": 8}),
        ),
        ("/api/embeddings", Ollama, json!({"model": "demo", "prompt": "Hi"})),
    ]
}

fn own_bodies() -> Vec<ValidBody> {
    vec![
        ("/tokenize", OpenAi, json!({"prompt": "Hi", "add_special_tokens": true})),
        (
            "/tokenize",
            OpenAi,
            json!({"messages": [{"role": "user", "content": "Hi"}]}),
        ),
        (
            "/v1/embeddings",
            OpenAi,
            json!({"model": "demo", "input": [[5, 6]], "dimensions": 8, "encoding_format": "base64", "user": "a"}),
        ),
        ("/detokenize", OpenAi, json!({"tokens": [5, 6]})),
        (
            "/tokenize",
            OpenAi,
            json!({"content": "Hi", "with_pieces": true, "add_special": false, "return_token_strs": true}),
        ),
        (
            "/completion",
            OpenAi,
            json!({"prompt": "Hi", "n_predict": 1, "n_probs": 1, "repeat_penalty": 1.1, "stop": ["x"], "logit_bias": [[5, 1]]}),
        ),
        (
            "/apply-template",
            OpenAi,
            json!({"messages": [{"role": "user", "content": "Hi"}], "chat_template_kwargs": {"x": 1}}),
        ),
        (
            "/v1/conversations",
            OpenAi,
            json!({"items": [{"type": "message", "role": "user", "content": "Hi"}], "metadata": {"a": "b"}}),
        ),
        ("/render", OpenAi, json!({"text": "a $x$"})),
    ]
}
