//! Anthropic's Messages API, as its clients use it.

use serde_json::{Value, json};

use super::{Server, chat, content};
use crate::support::{Copy, refrain};

/// A template that writes everything that messages hold, and the effort.
pub(super) const VERBOSE: &str = "{% for m in messages %}{{ m.role }}:{{ m.content }}{{ m.reasoning_content or '' }}\
                                  {% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %};\
                                  {% endfor %}{{ reasoning_effort or '' }}{{ thinking_budget or '' }}";

/// A server of the demo model with another chat template.
pub(super) fn with_template(template: &str) -> (Copy, Server) {
    let copy = Copy::of("../../demo/model");
    copy.write("chat_template.jinja", template);
    let server = serve(&copy);
    (copy, server)
}

fn serve(copy: &Copy) -> Server {
    Server::of(refrain(&[
        "serve",
        copy.path(),
        "--alias",
        "demo",
        "--port",
        "0",
        "--device",
        "cpu",
        "-q",
    ]))
}

/// The demo model, with marks of reasoning in its vocabulary that its template does not know.
pub(super) fn with_unused_marks() -> (Copy, Server) {
    let copy = Copy::of("../../demo/model");
    copy.change_json("tokenizer.json", |tokenizer| {
        let merges = tokenizer["model"]["merges"].as_array_mut().unwrap();
        merges.truncate(merges.len() - 2);
        let vocabulary = tokenizer["model"]["vocab"].as_object_mut().unwrap();
        vocabulary.retain(|_, id| id.as_u64().unwrap() < 2046);
        for (mark, id) in [("<think>", 2046), ("</think>", 2047)] {
            tokenizer["model"]["vocab"][mark] = id.into();
            let flags = json!({"id": id, "content": mark, "special": false, "single_word": false, "lstrip": false,
                               "rstrip": false, "normalized": false});
            tokenizer["added_tokens"].as_array_mut().unwrap().push(flags);
        }
    });
    let server = serve(&copy);
    (copy, server)
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

impl Server {
    /// The tokens of a prompt of `/v1/messages`.
    pub(super) fn input_tokens(&self, body: &Value) -> u64 {
        let (status, counted) = self.post("/v1/messages/count_tokens", body);
        assert_eq!(status, 200, "{counted}");
        counted["input_tokens"].as_u64().expect("a number")
    }
}

#[test]
fn a_last_message_of_the_assistant_is_continued() {
    let server = Server::start(&[]);
    let question = "What is 12 + 30?";
    let (_, whole) = server.post("/v1/chat/completions", &chat(question));
    let whole = content(&whole);
    let beginning = &whole[..whole.find(" =").expect(whole)];
    let messages = json!([user(question), {"role": "assistant", "content": [{"type": "text", "text": beginning}]}]);
    let request = json!({"messages": messages, "max_tokens": 20, "temperature": 0});
    let (status, message) = server.post("/v1/messages", &request);
    assert_eq!(status, 200, "{message}");
    let rest = message["content"][0]["text"].as_str().expect("a text");
    assert_eq!(format!("{beginning}{rest}"), whole);
    // The turn of the assistant is not closed and not opened again.
    let alone = server.input_tokens(&json!({"messages": [user(question)]}));
    let prefilled = server.input_tokens(&json!({"messages": messages}));
    let (_, tokens) = server.post("/tokenize", &json!({"prompt": beginning}));
    assert_eq!(prefilled - alone, tokens["tokens"].as_array().unwrap().len() as u64);

    let options = json!({"temperature": 0, "num_predict": 20});
    let messages = json!([user(question), {"role": "assistant", "content": beginning}]);
    let request = json!({"messages": messages, "stream": false, "options": options});
    let (status, answer) = server.post("/api/chat", &request);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(
        format!("{beginning}{}", answer["message"]["content"].as_str().unwrap()),
        whole
    );
}

#[test]
fn usage_and_the_stop_sequence_are_reported() {
    let server = Server::start(&[]);
    let mut request = json!({
        "messages": [user("What is 12 + 30?")], "max_tokens": 50, "temperature": 0,
        "stop_sequences": ["nothing", " =", ""], "metadata": {"user_id": "u"}, "stream": null,
    });
    let (status, message) = server.post("/v1/messages", &request);
    assert_eq!(status, 200, "{message}");
    assert_eq!(
        (&message["stop_reason"], &message["stop_sequence"]),
        (&json!("stop_sequence"), &json!(" ="))
    );
    let tokens = server.input_tokens(&request);
    assert_eq!(message["usage"]["input_tokens"], tokens);
    for cache in ["cache_creation_input_tokens", "cache_read_input_tokens"] {
        assert!(message["usage"][cache].is_u64(), "{message}");
    }
    request["stream"] = true.into();
    let events = server.named_events("/v1/messages", &request);
    assert_eq!(events[0]["message"]["usage"]["input_tokens"], tokens);
    let delta = &events[events.len() - 2];
    // The second request finds the prompt of the first: only its last token is input.
    let usage = &delta["usage"];
    let cached = usage["cache_read_input_tokens"].as_u64().unwrap();
    assert_eq!(
        (&delta["type"], &usage["input_tokens"], cached + 1),
        (&json!("message_delta"), &json!(1), tokens)
    );
    assert_eq!(delta["delta"]["stop_sequence"], " =");
}

#[test]
fn errors_have_the_words_that_clients_look_for() {
    let server = Server::start(&["--ctx", "64"]);
    let long = json!({"messages": [user(&"fox ".repeat(200))], "max_tokens": 4});
    let (status, error) = server.post("/v1/messages", &long);
    assert_eq!(
        (status, &error["type"], &error["error"]["type"]),
        (400, &json!("error"), &json!("invalid_request_error"))
    );
    let message = error["error"]["message"].as_str().unwrap();
    let numbers = message
        .strip_prefix("prompt is too long: ")
        .and_then(|rest| rest.split_once(" tokens > "));
    let (tokens, maximum) = numbers.expect(message);
    assert!(
        tokens.parse::<usize>().unwrap() > 200 && maximum == "64 maximum",
        "{message}"
    );

    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x"}});
    let in_result = json!([{"type": "tool_result", "tool_use_id": "x", "content": [image]}]);
    for (field, body) in [
        ("image", json!({"messages": [{"role": "user", "content": [image]}]})),
        (
            "tool result",
            json!({"messages": [{"role": "user", "content": in_result}]}),
        ),
        ("messages", json!({"messages": []})),
        ("messages", json!({})),
        (
            "thinking",
            json!({"messages": [user("a")], "thinking": {"type": "often"}}),
        ),
        (
            "output_config",
            json!({"messages": [user("a")], "output_config": {"effort": "huge"}}),
        ),
        (
            "input_schema",
            json!({"messages": [user("a")], "tools": [{"name": "f"}]}),
        ),
        (
            "tool_choice",
            json!({"messages": [user("a")], "tool_choice": {"type": "tool"}}),
        ),
        (
            "tool_choice",
            json!({"messages": [user("a")], "tool_choice": {"type": "any"}}),
        ),
        ("max_tokens", json!({"messages": [user("a")], "max_tokens": "many"})),
    ] {
        let (status, error) = server.post("/v1/messages", &body);
        let message = error["error"]["message"].as_str().expect("a message");
        assert!(status == 400 && message.contains(field), "{body}: {status} {error}");
        assert_eq!(error["error"]["type"], "invalid_request_error");
    }
}

#[test]
fn a_model_without_reasoning_gets_no_empty_thought() {
    let (_copy, server) = with_unused_marks();
    let body = |fields: Value| {
        let mut body = json!({"messages": [user("q")], "max_tokens": 1, "temperature": 0});
        body.as_object_mut()
            .unwrap()
            .extend(fields.as_object().cloned().unwrap());
        body
    };
    let (_, plain) = server.post("/v1/chat/completions", &body(json!({})));
    let plain = plain["usage"]["prompt_tokens"].as_u64().unwrap();
    for thinking in [
        json!({}),
        json!({"thinking": {"type": "disabled"}}),
        json!({"thinking": {"type": "adaptive"}}),
    ] {
        assert_eq!(server.input_tokens(&body(thinking.clone())), plain, "{thinking}");
    }
    for think in [
        json!({}),
        json!({"think": false}),
        json!({"think": true}),
        json!({"think": "high"}),
    ] {
        let mut request = body(think.clone());
        request["stream"] = false.into();
        request["options"] = json!({"num_predict": 1});
        let (status, answer) = server.post("/api/chat", &request);
        assert_eq!(
            (status, answer["prompt_eval_count"].as_u64()),
            (200, Some(plain)),
            "{think} {answer}"
        );
    }
    let (_, shown) = server.post("/api/show", &json!({"model": "demo"}));
    assert_eq!(shown["capabilities"], json!(["completion"]));
}

#[test]
fn system_blocks_reasoning_efforts_and_long_numbers_reach_the_template() {
    let (_copy, server) = with_template(VERBOSE);
    let tokens = |fields: Value| {
        let mut body = json!({"messages": [user("q")], "max_tokens": 1});
        body.as_object_mut()
            .unwrap()
            .extend(fields.as_object().cloned().unwrap());
        server.input_tokens(&body)
    };
    let cached = json!({"type": "ephemeral"});
    let system = json!([{"type": "text", "text": "be brief", "cache_control": cached}]);
    let billing = json!({"type": "text", "text": "x-anthropic-billing-header: cch=12345;"});
    assert_eq!(tokens(json!({"system": system})), tokens(json!({"system": "be brief"})));
    assert_eq!(
        tokens(json!({"system": [billing, system[0]]})),
        tokens(json!({"system": "be brief"}))
    );
    // A system message behind the user's, as Claude Code sends it.
    let late = json!([user("q"), {"role": "system", "content": system}]);
    let text = json!([user("q"), {"role": "system", "content": "be brief"}]);
    assert_eq!(tokens(json!({"messages": late})), tokens(json!({"messages": text})));
    assert_eq!(tokens(json!({"messages": late})), tokens(json!({"system": "be brief"})));

    let effort = |effort: &str| tokens(json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": effort}}));
    let by_openai = |effort: &str| {
        let mut body = json!({"messages": [user("q")], "max_tokens": 1});
        body["chat_template_kwargs"] = json!({"reasoning_effort": effort});
        server.post("/v1/chat/completions", &body).1["usage"]["prompt_tokens"]
            .as_u64()
            .unwrap()
    };
    for name in ["low", "medium", "high"] {
        assert_eq!(effort(name), by_openai(name), "{name}");
    }
    assert_eq!(effort("max"), by_openai("high"));
    let budget = tokens(json!({"thinking": {"type": "enabled", "budget_tokens": 12345}}));
    assert!(budget > by_openai("high"), "the budget is written too");

    let history = |thinking: Value| {
        let blocks = json!([thinking, {"type": "text", "text": "a"}]);
        tokens(json!({"messages": [user("q"), {"role": "assistant", "content": blocks}, user("q")]}))
    };
    let thought = history(json!({"type": "thinking", "thinking": "hm hm", "signature": "s"}));
    let redacted = history(json!({"type": "redacted_thinking", "data": "x"}));
    let (_, hm) = server.post("/tokenize", &json!({"prompt": "ahm hm;"}));
    let (_, without) = server.post("/tokenize", &json!({"prompt": "a;"}));
    let difference = hm["tokens"].as_array().unwrap().len() - without["tokens"].as_array().unwrap().len();
    assert_eq!(thought - redacted, difference as u64);

    let number = "98765432109876543210";
    let call = |number: &str| {
        let call = format!(r#"{{"type": "tool_use", "id": "abcdefgh1", "name": "f", "input": {{"id": {number}}}}}"#);
        let body = format!(
            r#"{{"messages": [{{"role": "user", "content": "q"}}, {{"role": "assistant", "content": [{call}]}},
                {{"role": "user", "content": [{{"type": "tool_result", "tool_use_id": "abcdefgh1"}}]}}]}}"#
        );
        let (status, counted) = server.ask("POST", "/v1/messages/count_tokens", "", &body);
        assert_eq!(status, 200, "{counted}");
        serde_json::from_str::<Value>(&counted).unwrap()["input_tokens"]
            .as_u64()
            .unwrap()
    };
    let arguments = |text: &str| {
        let (_, tokens) = server.post("/tokenize", &json!({"prompt": text}));
        tokens["tokens"].as_array().unwrap().len() as u64
    };
    let expected = arguments(&format!("assistant:{{\"id\": {number}}};")) - arguments("assistant:{\"id\": 1};");
    assert_eq!(call(number) - call("1"), expected);
}

#[test]
fn tools_of_anthropics_own_servers_are_passed_over() {
    let server = Server::start(&["--ctx", "1024"]);
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false});
    let f = json!({"name": "f", "description": "d", "input_schema": schema, "cache_control": {"type": "ephemeral"}});
    let own = json!([{"type": "web_search_20250305", "name": "web_search"}, {"type": "bash_20250124", "name": "bash"}]);
    let ask = |tools: Value, choice: Value| {
        let body = json!({"messages": [user("q")], "max_tokens": 120, "temperature": 0, "tools": tools, "tool_choice": choice});
        server.post("/v1/messages", &body)
    };
    let (status, message) = ask(own.clone(), json!({"type": "auto"}));
    assert_eq!(status, 200, "{message}");
    let (status, message) = ask(
        json!([own[0], f]),
        json!({"type": "any", "disable_parallel_tool_use": true}),
    );
    assert_eq!(status, 200, "{message}");
    let calls: Vec<&Value> = message["content"].as_array().unwrap().iter().collect();
    assert!(
        calls.len() == 1 && calls[0]["type"] == "tool_use" && calls[0]["input"]["n"].is_i64(),
        "{message}"
    );
    assert_eq!(message["stop_reason"], "tool_use");
    assert_eq!(ask(json!([f]), json!({"type": "tool", "name": "g"})).0, 400);
    let (status, message) = ask(json!([f]), json!({"type": "none"}));
    assert!(
        status == 200 && message["content"][0]["type"] != "tool_use",
        "{message}"
    );
}

#[test]
fn an_effort_that_the_template_refuses_is_left_out() {
    let template = "{% if reasoning_effort is defined and reasoning_effort != 'high' %}\
                    {{ raise_exception('unknown effort') }}{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}";
    let (_copy, server) = with_template(template);
    let body = |effort: &str| json!({"messages": [user("q")], "output_config": {"effort": effort}});
    assert_eq!(server.input_tokens(&body("medium")), server.input_tokens(&body("high")));
    let options = json!({"num_predict": 1});
    let request = json!({"messages": [user("q")], "think": "low", "stream": false, "options": options});
    let (status, answer) = server.post("/api/chat", &request);
    assert_eq!(status, 200, "{answer}");
}

#[test]
fn usage_tells_computed_from_cached_tokens() {
    let server = Server::start(&[]);
    let mut request = json!({"messages": [user(&"fox key boat ".repeat(60))], "max_tokens": 4, "temperature": 0});
    let tokens = server.input_tokens(&request);
    assert!(tokens > 128, "the prefix cache keeps steps of 64 tokens");
    let first = server.post("/v1/messages", &request).1["usage"].clone();
    assert_eq!(
        (&first["input_tokens"], &first["cache_read_input_tokens"]),
        (&json!(tokens), &json!(0))
    );
    let second = server.post("/v1/messages", &request).1["usage"].clone();
    let number = |usage: &Value, name: &str| usage[name].as_u64().unwrap();
    assert!(number(&second, "cache_read_input_tokens") >= 64, "{second}");
    let sum = number(&second, "input_tokens") + number(&second, "cache_read_input_tokens");
    assert_eq!((sum, &second["cache_creation_input_tokens"]), (tokens, &json!(0)));
    request["stream"] = true.into();
    let events = server.named_events("/v1/messages", &request);
    assert_eq!(events[events.len() - 2]["usage"], second);
}

#[test]
fn requests_have_ids_and_models_the_form_that_clients_expect() {
    let server = Server::start(&[]);
    let body = json!({"max_tokens": 2, "messages": [user("a")], "stop_sequences": vec!["x"; 17]}).to_string();
    let (head, body) = server.exchange("POST", "/v1/messages", "x-request-id: req-7\r\n", &body);
    let error: Value = serde_json::from_str(&body).expect(&body);
    assert!(head.contains("\r\nrequest-id: req-7\r\n"), "{head}");
    assert_eq!(error["request_id"], "req-7", "{error}");
    let message = error["error"]["message"].as_str().expect("a message");
    assert!(message.starts_with("stop_sequences: "), "{message}");
    let (_, message) = server.post("/v1/messages", &json!({"max_tokens": 2, "messages": [user("a")]}));
    assert!(message["id"].as_str().expect("an id").starts_with("msg_"), "{message}");

    let models = |headers: &str, path: &str| -> Value {
        let (_, body) = server.ask("GET", path, headers, "");
        serde_json::from_str(&body).expect(&body)
    };
    let version = "anthropic-version: 2023-06-01\r\n";
    let list = models(version, "/v1/models");
    let model = &list["data"][0];
    assert_eq!(
        (&model["type"], &model["display_name"]),
        (&json!("model"), &json!("demo")),
        "{list}"
    );
    assert!(
        model["created_at"].as_str().is_some_and(|time| time.ends_with('Z')),
        "{list}"
    );
    assert_eq!((&list["has_more"], &list["first_id"]), (&json!(false), &json!("demo")));
    assert_eq!(models(version, "/v1/models/demo"), *model);
    assert_eq!(models("", "/v1/models")["data"][0]["object"], "model");
}
