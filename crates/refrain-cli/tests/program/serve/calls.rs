//! Calls that a model begins by itself are kept well-formed, and reasoning keeps to its budget.

use serde_json::{Value, json};

use super::Server;
use crate::scripted::{Script, Scripted, Text, Token};
use crate::support::{refrain, run, run_with_input};

const CHAT: &str = "/v1/chat/completions";

fn serve(model: &Scripted) -> Server {
    Server::of(refrain(&[
        "serve",
        model.path(),
        "--port",
        "0",
        "--device",
        "cpu",
        "-q",
    ]))
}

/// A model that misspells the function's name.
fn misspelling() -> Scripted {
    let model = Script {
        says: vec![
            Text("I look. "),
            Token("<tool_call>"),
            Text("{\"name\": \""),
            Text("get_wether"),
            Text("\", \"arguments\": {}}"),
            Token("</tool_call>"),
        ],
        template: "{% for m in messages %}{{ m.content }}{% for call in m.tool_calls %}<tool_call>\
            {{ call.function | tojson }}</tool_call>{% endfor %}{% endfor %}{% if tools %}{% endif %}t"
            .to_owned(),
        plain: vec!["<tool_call>", "</tool_call>"],
        ..Script::default()
    };
    model.write()
}

#[test]
fn a_call_that_the_model_begins_is_one_of_the_functions() {
    let model = misspelling();
    let server = serve(&model);
    let parameters = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let function = json!({"name": "get_weather", "parameters": parameters, "strict": true});
    let mut request = json!({
        "messages": [{"role": "user", "content": "Hi."}],
        "tools": [{"type": "function", "function": function}],
        "parallel_tool_calls": false,
        "max_tokens": 300,
    });
    let (status, reply) = server.post(CHAT, &request);
    assert_eq!(status, 200, "{reply}");
    let choice = &reply["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{reply}");
    assert_eq!(choice["message"]["content"], "I look.", "{reply}");
    let call = &choice["message"]["tool_calls"][0]["function"];
    assert_eq!(
        (&call["name"], &call["arguments"]),
        (&json!("get_weather"), &json!("{}")),
        "{reply}"
    );
    request["tool_choice"] = "none".into();
    let (_, reply) = server.post(CHAT, &request);
    assert!(
        reply["choices"][0]["message"]["content"]
            .as_str()
            .unwrap()
            .contains("get_wether"),
        "{reply}"
    );
}

#[test]
fn a_call_that_is_cut_off_has_the_arguments_that_the_model_wrote() {
    let says = vec![
        Token("<tool_call>"),
        Text("\n{\"name\": \"f\", "),
        Text("\"arguments\": "),
        Text("{\"a\": 1}}"),
        Text("\n"),
        Token("</tool_call>"),
    ];
    let template = "{% for m in messages %}{{ m.content }}{% for call in m.tool_calls %}<tool_call>\
        {{ call.function | tojson }}</tool_call>{% endfor %}{% endfor %}{% if tools %}{% endif %}t";
    let model = Script {
        says,
        template: template.to_owned(),
        plain: vec!["<tool_call>", "</tool_call>"],
        ..Script::default()
    };
    let model = model.write();
    let server = serve(&model);
    let parameters = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
    let function = json!({"name": "f", "parameters": parameters});
    let is_part = |arguments: &Value| "{\"a\":1}".starts_with(arguments.as_str().unwrap());
    for tokens in 1..=24 {
        let chat = json!({
            "messages": [{"role": "user", "content": "Hi."}], "max_tokens": tokens,
            "tools": [{"type": "function", "function": function}],
        });
        let (_, reply) = server.post(CHAT, &chat);
        let message = &reply["choices"][0]["message"];
        assert_eq!(message["content"].as_str().unwrap_or_default(), "", "{reply}");
        let mut calls = message["tool_calls"].as_array().into_iter().flatten();
        assert!(calls.all(|call| is_part(&call["function"]["arguments"])), "{reply}");
        let own = json!({
            "messages": [{"role": "user", "content": "Hi."}], "max_tokens": tokens,
            "tools": [{"name": "f", "input_schema": parameters}],
        });
        let (_, reply) = server.post("/v1/messages", &own);
        let mut blocks = reply["content"].as_array().into_iter().flatten();
        assert!(blocks.all(|block| block["input"] == json!({"a": 1})), "{reply}");
        let mut flat = function.clone();
        flat["type"] = "function".into();
        let response = json!({"input": "Hi.", "max_output_tokens": tokens, "tools": [flat]});
        let (_, reply) = server.post("/v1/responses", &response);
        let mut items = reply["output"].as_array().into_iter().flatten();
        assert!(
            items.all(|item| item["type"] == "function_call" && is_part(&item["arguments"])),
            "{reply}"
        );
    }
}

#[test]
fn functions_whose_calls_could_not_be_read_are_refused() {
    let model = misspelling();
    let server = serve(&model);
    for (name, expected) in [
        ("a b.c/ü", 400),
        ("", 400),
        (&"x".repeat(201), 400),
        ("mcp__a.b-c", 200),
    ] {
        let request = json!({
            "messages": [{"role": "user", "content": "Hi."}], "max_tokens": 1,
            "tools": [{"type": "function", "function": {"name": name}}],
        });
        let (status, reply) = server.post(CHAT, &request);
        assert_eq!(status, expected, "{name}: {reply}");
    }
}

/// A model that reasons in five tokens.
fn reasoning() -> Scripted {
    let model = Script {
        says: vec![
            Token("<think>"),
            Text("aa"),
            Text("bb"),
            Text("cc"),
            Text("dd"),
            Text("ee"),
            Token("</think>"),
            Text("Forty-two."),
        ],
        template: "{% for m in messages %}{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>\
            {% endif %}{{ m.content }}{% endfor %}t"
            .to_owned(),
        ..Script::default()
    };
    model.write()
}

#[test]
fn reasoning_ends_when_its_budget_is_used_up() {
    let model = reasoning();
    let server = serve(&model);
    let messages = json!([{"role": "user", "content": "Hi."}]);
    let mut asks = vec![
        (json!({}), "aabbccddee"),
        (json!({"reasoning_budget": -1}), "aabbccddee"),
    ];
    for limited in [
        json!({"reasoning": {"max_tokens": 2}}),
        json!({"thinking_budget": 2}),
        json!({"thinking_token_budget": 2}),
        json!({"reasoning_budget": 2}),
        json!({"thinking": {"type": "enabled", "budget_tokens": 2}}),
        json!({"chat_template_kwargs": {"thinking_budget": 2}}),
    ] {
        asks.push((limited, "aabb"));
    }
    for (mut request, expected) in asks {
        request["messages"] = messages.clone();
        let (status, reply) = server.post(CHAT, &request);
        assert_eq!(status, 200, "{request}: {reply}");
        let message = &reply["choices"][0]["message"];
        assert_eq!(message["reasoning_content"], expected, "{request}: {reply}");
        assert_eq!(message["content"], "Forty-two.", "{request}: {reply}");
    }
    let form = json!({
        "messages": messages,
        "thinking_budget": 3,
        "response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": [42]}}},
    });
    let (_, reply) = server.post(CHAT, &form);
    let message = &reply["choices"][0]["message"];
    assert_eq!(
        (&message["reasoning_content"], &message["content"]),
        (&json!("aabbcc"), &json!("42")),
        "{reply}"
    );
    let request = json!({
        "messages": messages, "max_tokens": 50, "thinking": {"type": "enabled", "budget_tokens": 2},
    });
    let (_, reply) = server.post("/v1/messages", &request);
    assert_eq!(reply["content"][0]["thinking"], "aabb", "{reply}");
    assert_eq!(reply["content"][1]["text"], "Forty-two.", "{reply}");
    let request = json!({"input": "Hi.", "reasoning": {"max_tokens": 2}});
    let (_, reply) = server.post("/v1/responses", &request);
    assert!(reply["output"].to_string().contains("aabb\""), "{reply}");
    let request = json!({"messages": messages, "thinking_budget": -2});
    assert_eq!(server.post(CHAT, &request).0, 400);
}

#[test]
fn run_and_chat_keep_to_the_budget_of_reasoning() {
    let model = reasoning();
    let ask = |more: &[&str]| run(&[&["run", model.path(), "hi", "--temp", "0", "--json"], more].concat()).json();
    assert_eq!(ask(&[])["reasoning"], "aabbccddee");
    let limited = ask(&["--reasoning-budget", "2"]);
    assert_eq!(
        (&limited["reasoning"], &limited["text"]),
        (&json!("aabb"), &json!("Forty-two."))
    );
    assert_eq!(ask(&["--reasoning-budget", "-1"])["reasoning"], "aabbccddee");
    run(&["run", model.path(), "hi", "--reasoning-budget", "-2"]).failed(2, &["--reasoning-budget"]);
    run(&["run", model.path(), "hi", "--raw", "--reasoning-budget", "2"]).failed(2, &["--reasoning-budget", "--raw"]);
    let chat = [
        "chat",
        model.path(),
        "--temp",
        "0",
        "--reasoning",
        "show",
        "--reasoning-budget",
        "3",
        "--no-history",
    ];
    let said = run_with_input(&chat, b"hi\nhi\n").done();
    assert_eq!(said.matches("aabbcc\n").count(), 2, "{said:?}");
    assert!(!said.contains("dd"), "{said:?}");
}

/// What a model says that is asked to go on with its prompt, greedily, under penalties.
fn penalised(server: &Server, path: &str, more: &Value) -> String {
    // What comes next is a word of the prompt.
    let prompt = "Once upon a time, there was a little girl named Lily. Lily loved to play. One day,";
    let mut request = json!({"prompt": prompt, "max_tokens": 24, "n_predict": 24, "temperature": 0});
    let (Value::Object(fields), Value::Object(more)) = (&mut request, more) else {
        unreachable!()
    };
    fields.extend(more.clone());
    let (status, reply) = server.post(path, &request);
    assert_eq!(status, 200, "{reply}");
    let text = reply["choices"][0]["text"].as_str().or(reply["content"].as_str());
    text.unwrap_or_else(|| panic!("{reply}")).to_owned()
}

#[test]
fn penalties_count_what_was_generated_or_the_last_tokens() {
    let server = Server::start(&["--ctx", "256"]);
    let path = "/v1/completions";
    let of = |path: &str, more: Value| penalised(&server, path, &more);
    let one = |name: &str, value: f64| json!({name: value, "max_tokens": 1, "n_predict": 1});
    let plain = of(path, json!({"max_tokens": 1}));
    // The first token follows the prompt alone, which these penalties do not count.
    for name in ["presence_penalty", "frequency_penalty"] {
        assert_eq!(of(path, one(name, 2.0)), plain, "{name}");
        assert_eq!(of(path, one(name, 50.0)), plain, "{name}");
    }
    let mut with_window = one("presence_penalty", 50.0);
    with_window["repeat_last_n"] = 64.into();
    let windowed = of(path, with_window);
    assert_eq!(of("/completion", one("presence_penalty", 50.0)), windowed);
    assert_ne!(windowed, plain, "a window counts the prompt");
    assert_ne!(
        of(path, one("repetition_penalty", 1e6)),
        plain,
        "so does the repetition penalty"
    );
    let text = of(path, json!({"presence_penalty": 50.0}));
    assert_ne!(text, of(path, json!({})), "what was generated counts");
}
