//! What OpenAI's, vLLM's and llama-server's clients send beside the basics.

use serde_json::{Value, json};

use super::{Server, chat, content};
use crate::support::{Copy, refrain};

const CHAT: &str = "/v1/chat/completions";

/// A template with tools, of which it writes the names alone.
pub const TOOLS_TEMPLATE: &str = concat!(
    "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}",
    "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\n{\"name\": \"",
    "{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}{% endfor %}",
);

/// Serves the demo model with another chat template.
pub fn with_template(template: &str) -> (Copy, Server) {
    let copy = Copy::of("../../demo/model");
    copy.write("chat_template.jinja", template);
    let server = Server::of(refrain(&[
        "serve",
        copy.path(),
        "--alias",
        "demo",
        "--port",
        "0",
        "--device",
        "cpu",
        "-q",
    ]));
    (copy, server)
}

/// Returns the prompt of a chat, or the error.
fn prompt(server: &Server, messages: Value, fields: Value) -> String {
    let mut request = json!({"messages": messages});
    request
        .as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    let (status, reply) = server.post("/apply-template", &request);
    let field = if status == 200 {
        &reply["prompt"]
    } else {
        &reply["error"]["message"]
    };
    field.as_str().expect("a text").to_owned()
}

#[test]
fn null_fields_are_absent_and_numbers_may_be_written_in_any_way() {
    let server = Server::start(&["--ctx", "256"]);
    let question = chat("What is 12 + 30?");
    let greedy = content(&server.post(CHAT, &question).1).to_owned();
    for (fields, is_greedy) in [
        (
            json!({"stream": null, "chat_template_kwargs": null, "tools": null, "stop": null, "n": null}),
            true,
        ),
        (json!({"top_p": 0, "temperature": 2, "seed": 1}), true),
        (json!({"top_k": 40.0, "seed": 18446744073709551615u64, "n": 1.0}), true),
        (json!({"max_tokens": -1, "top_k": -1}), true),
        (
            json!({"stream_options": {"include_usage": null}, "best_of": 1, "function_call": "none"}),
            true,
        ),
        (json!({"temperature": 1, "seed": -1, "max_tokens": 3.0}), false),
    ] {
        let mut request = question.clone();
        request
            .as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        let (status, answer) = server.post(CHAT, &request);
        assert_eq!(status, 200, "{fields}: {answer}");
        assert!(!is_greedy || content(&answer) == greedy, "{fields}: {answer}");
    }
}

#[test]
fn errors_name_the_field() {
    let server = Server::start(&["--ctx", "256"]);
    for (path, field, request) in [
        (CHAT, "max_tokens", json!({"max_tokens": "1"})),
        (CHAT, "top_k", json!({"top_k": "2"})),
        (CHAT, "top_p", json!({"top_p": 1.5})),
        (CHAT, "stop", json!({"stop": 7})),
        (CHAT, "best_of", json!({"best_of": 4})),
        (CHAT, "prompt_logprobs", json!({"prompt_logprobs": 1})),
        (CHAT, "tool_choice", json!({"tool_choice": "sometimes"})),
        (CHAT, "continue_final_message", json!({"continue_final_message": true})),
        (CHAT, "guided_json", json!({"guided_regex": "a", "guided_json": {}})),
        ("/v1/completions", "suffix", json!({"suffix": "end"})),
        ("/v1/completions", "logit_bias", json!({"logit_bias": {"1": "x"}})),
        ("/v1/responses", "background", json!({"background": true})),
        ("/v1/responses", "prompt", json!({"prompt": {"id": "pmpt_1"}})),
        (
            "/v1/responses",
            "previous_response_id",
            json!({"previous_response_id": "resp_1"}),
        ),
        ("/v1/responses", "max_output_tokens", json!({"max_output_tokens": "1"})),
    ] {
        let mut body = json!({"messages": [{"role": "user", "content": "a"}], "input": "a"});
        if path == "/v1/completions" {
            body = json!({"prompt": "a"});
        }
        body.as_object_mut()
            .unwrap()
            .extend(request.as_object().unwrap().clone());
        let (status, reply) = server.post(path, &body);
        let message = reply["error"]["message"].as_str().unwrap_or_default();
        assert!(
            status == 400 && message.contains(field),
            "{path} {field}: {status} {reply}"
        );
        assert!(!message.contains("usize") && !message.contains("Some("), "{message}");
    }
    for path in [
        "/rerank",
        "/v1/rerank",
        "/v2/rerank",
        "/v1/reranking",
        "/score",
        "/v1/score",
    ] {
        let (status, reply) = server.post(path, &json!({"query": "a", "documents": ["b"]}));
        assert!(
            status == 400 && reply["error"]["message"].as_str().unwrap().contains("not supported"),
            "{reply}"
        );
    }
}

#[test]
fn a_full_context_is_told_in_words_that_clients_look_for() {
    let server = Server::start(&["--ctx", "64"]);
    let (status, reply) = server.post(CHAT, &chat(&"word ".repeat(200)));
    let error = &reply["error"];
    assert_eq!(
        (status, &error["code"]),
        (400, &json!("context_length_exceeded")),
        "{reply}"
    );
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("maximum context length is 64 tokens"),
        "{reply}"
    );
}

#[test]
fn histories_of_all_clients_reach_the_template() {
    let (_copy, server) = with_template(concat!(
        "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}",
        "{% if m.reasoning_content %}({{ m.reasoning_content }},{{ m.reasoning }},{{ m.thinking }}){% endif %}",
        "{% if 'tool_calls' in m %}{% for c in m.tool_calls %}[{{ c.function.name }}",
        "{% for k, v in c.function.arguments|items %} {{ k }}={{ v }}{% endfor %}]{% endfor %}{% endif %};{% endfor %}",
        "{{ reasoning_effort or '' }}{{ enable_thinking if enable_thinking is defined else '' }}",
    ));
    let user = json!({"role": "user", "content": "q"});
    let with = |fields: Value| {
        let mut message = json!({"role": "assistant", "content": "a"});
        message
            .as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        prompt(&server, json!([user, message]), json!({}))
    };
    let call = |arguments: Value| {
        with(json!({"tool_calls": [{"id": "1", "function": {"name": "f", "arguments": arguments}}]}))
    };
    for arguments in [json!(""), Value::Null, json!("{}"), json!({})] {
        assert_eq!(call(arguments), "u:q;a:a[f];");
    }
    let number = "123456789012345678901234567890123456789012";
    assert_eq!(
        call(format!("{{\"id\": {number}}}").into()),
        format!("u:q;a:a[f id={number}];")
    );
    assert_eq!(with(json!({"tool_calls": []})), "u:q;a:a;");
    for name in ["reasoning_content", "reasoning", "thinking"] {
        assert_eq!(with(json!({name: "hm"})), "u:q;a:a(hm,hm,hm);");
    }
    assert_eq!(
        with(json!({"content": [{"type": "refusal", "refusal": "no"}]})),
        "u:q;a:no;"
    );
    assert_eq!(
        with(json!({"content": null, "function_call": {"name": "f", "arguments": "{\"x\": 1}"}})),
        "u:q;a:[f x=1];"
    );
    let system = |content: &str| json!({"role": "system", "content": content});
    let late = json!([system("a"), user, {"role": "developer", "content": [{"type": "text", "text": "b"}]}]);
    assert_eq!(prompt(&server, late, json!({})), "s:a\n\nb;u:q;");
    for fields in [
        json!({"reasoning_effort": "high"}),
        json!({"reasoning": {"effort": "high"}}),
        json!({"chat_template_kwargs": {"reasoning_effort": "high"}}),
    ] {
        assert_eq!(prompt(&server, json!([user]), fields), "u:q;high");
    }
    assert_eq!(
        prompt(&server, json!([user]), json!({"reasoning_effort": "none"})),
        "u:q;False"
    );
}

#[test]
fn an_answer_that_is_begun_is_continued() {
    let server = Server::start(&[]);
    let begun = json!([{"role": "user", "content": "What is 12 + 30?"}, {"role": "assistant", "content": "12 + 30"}]);
    let continued = prompt(&server, begun.clone(), json!({"continue_final_message": true}));
    assert!(continued.ends_with("<|im_start|>assistant\n12 + 30"), "{continued}");
    let request =
        json!({"messages": begun, "continue_final_message": true, "add_generation_prompt": false, "temperature": 0});
    let (status, answer) = server.post(CHAT, &request);
    assert_eq!((status, content(&answer)), (200, " = 42"), "{answer}");
}

#[test]
fn calls_are_written_as_the_client_offered_the_tools() {
    let (_copy, server) = with_template(TOOLS_TEMPLATE);
    let parameters = json!({"type": "object", "properties": {"city": {"enum": ["Rome"]}}, "required": ["city"],
        "additionalProperties": false});
    let function = json!({"name": "weather", "parameters": parameters});
    let ask = |fields: Value| {
        let mut request = chat("What is 1 + 1?");
        request
            .as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        let (status, answer) = server.post(CHAT, &request);
        assert_eq!(status, 200, "{answer}");
        let mut streamed = request.clone();
        streamed["stream"] = true.into();
        (answer["choices"][0].clone(), server.events(CHAT, &streamed))
    };
    let (choice, events) = ask(json!({"functions": [function], "function_call": {"name": "weather"}}));
    let arguments = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    let call = &choice["message"]["function_call"];
    assert_eq!(
        (&call["name"], &choice["finish_reason"]),
        (&json!("weather"), &json!("function_call"))
    );
    assert_eq!(arguments(call["arguments"].as_str().unwrap()), json!({"city": "Rome"}));
    let deltas = events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["function_call"]["arguments"].as_str());
    assert_eq!(arguments(&deltas.collect::<String>()), json!({"city": "Rome"}));

    let format = json!({"type": "grammar", "grammar": {"syntax": "regex", "definition": "[ab]{3}"}});
    let custom = json!({"type": "custom", "custom": {"name": "say", "format": format}});
    let tool = json!({"type": "function", "function": function});
    let (choice, events) =
        ask(json!({"tools": [tool, custom], "tool_choice": {"type": "custom", "custom": {"name": "say"}}}));
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!(
        (&call["type"], &call["custom"]["name"]),
        (&json!("custom"), &json!("say")),
        "{choice}"
    );
    let input = call["custom"]["input"].as_str().unwrap();
    assert!(
        input.len() == 3 && input.bytes().all(|byte| b"ab".contains(&byte)),
        "{input}"
    );
    let deltas = events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["tool_calls"][0]["custom"]["input"].as_str());
    assert_eq!(deltas.collect::<String>(), input);
    let lark = "start: \"say \\\"\" WORD \"\\\"\" LF\nWORD: /[ab\\\\]{3}/\n%import common.LF";
    let format = json!({"type": "grammar", "grammar": {"syntax": "lark", "definition": lark}});
    let form = json!({"type": "custom", "custom": {"name": "say", "format": format}});
    let (choice, _) = ask(json!({"tools": [form], "tool_choice": "required"}));
    let input = choice["message"]["tool_calls"][0]["custom"]["input"].as_str();
    let word = input.and_then(|input| input.strip_prefix("say \"")?.strip_suffix("\"\n"));
    let is_of_form = |word: &str| word.len() == 3 && word.bytes().all(|byte| b"ab\\".contains(&byte));
    assert!(word.is_some_and(is_of_form), "{choice}");

    // Without parallel calls there is one, and a form for text does not stop a forced call.
    let allowed = json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [tool]}});
    let format = json!({"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}});
    let (choice, _) = ask(
        json!({"tools": [tool, custom], "tool_choice": allowed, "parallel_tool_calls": false,
        "response_format": format}),
    );
    let calls = choice["message"]["tool_calls"].as_array().unwrap();
    assert_eq!(
        (calls.len(), &calls[0]["function"]["name"]),
        (1, &json!("weather")),
        "{choice}"
    );
    let id = calls[0]["id"].as_str().unwrap();
    assert!(
        id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()),
        "{id}"
    );
}

#[test]
fn one_form_in_two_fields_is_one() {
    let server = Server::start(&[]);
    let mut request = json!({"prompt": "Once", "guided_choice": ["yes"], "structured_outputs": {"choice": ["yes"]}});
    let (status, answer) = server.post("/v1/completions", &request);
    assert_eq!(
        (status, &answer["choices"][0]["text"]),
        (200, &json!("yes")),
        "{answer}"
    );
    request["structured_outputs"] = json!({"choice": ["no"]});
    assert_eq!(server.post("/v1/completions", &request).0, 400);
}

#[test]
fn answers_have_a_minimal_length_and_prompts_a_maximal_one() {
    let server = Server::start(&[]);
    let mut request = chat("What is 12 + 30?");
    let tokens = |request: &Value| {
        server.post(CHAT, request).1["usage"]["completion_tokens"]
            .as_u64()
            .unwrap()
    };
    let shortest = tokens(&request);
    request["min_tokens"] = (shortest + 10).into();
    request["max_tokens"] = (shortest + 20).into();
    assert!(tokens(&request) >= shortest + 10);
    // Stop strings are ordinary text until then.
    request["stop"] = json!([" ", "4", "."]);
    assert!(tokens(&request) >= shortest + 10);
    let request = json!({"prompt": "one two three four five six", "max_tokens": 1, "truncate_prompt_tokens": 2});
    assert_eq!(server.post("/v1/completions", &request).1["usage"]["prompt_tokens"], 2);
}

#[test]
fn more_prompts_than_places_wait_for_their_turn() {
    let server = Server::start(&["--ctx", "64", "--parallel", "2", "--queue", "2"]);
    let prompts = vec!["a"; 30];
    let mut request = json!({"prompt": prompts, "max_tokens": 1, "temperature": 0});
    let (status, answer) = server.post("/v1/completions", &request);
    assert_eq!(status, 200, "{answer}");
    let indices: Vec<_> = answer["choices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|choice| &choice["index"])
        .collect();
    assert!(
        indices.len() == 30 && indices.iter().enumerate().all(|(at, index)| **index == at),
        "{indices:?}"
    );
    request["stream"] = true.into();
    let events = server.events("/v1/completions", &request);
    let ends = events
        .iter()
        .filter(|event| event["choices"][0]["finish_reason"] == "length");
    assert_eq!(ends.count(), 30, "{events:?}");
}

#[test]
fn usage_counts_cached_tokens() {
    let server = Server::start(&["--ctx", "1024"]);
    let long = chat(&"What is 12 + 30? ".repeat(30));
    let cached = || server.post(CHAT, &long).1["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
    assert_eq!(cached(), Some(0));
    assert!(cached() >= Some(64));
}
