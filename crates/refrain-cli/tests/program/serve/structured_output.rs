//! Structured output: JSON schemas, grammars, choices and tool calls.

use serde_json::{Value, json};

use super::{Server, chat, content};

/// A schema that the demo model never follows by itself.
fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "colour": {"enum": ["red", "green"]},
            "count": {"$ref": "#/$defs/count"},
            "done": {"type": "boolean"},
        },
        "required": ["colour", "count", "done"],
        "additionalProperties": false,
        "$defs": {"count": {"type": "integer", "minimum": 10, "maximum": 99}},
    })
}

fn check(text: &str) {
    let answer: Value = serde_json::from_str(text).expect(text);
    assert!(
        ["red", "green"].contains(&answer["colour"].as_str().expect("a text")),
        "{text}"
    );
    assert!(
        (10..=99).contains(&answer["count"].as_i64().expect("a number")),
        "{text}"
    );
    assert!(
        answer["done"].is_boolean() && answer.as_object().unwrap().len() == 3,
        "{text}"
    );
}

#[test]
fn chat_responses_match_schemas_in_every_parameter() {
    let server = Server::start(&[]);
    let path = "/v1/chat/completions";
    let ask = |field: &str, value: Value| {
        let mut request = chat("Say something.");
        request[field] = value;
        request
    };
    let format = json!({"type": "json_schema", "json_schema": {"name": "thing", "schema": schema()}});
    for request in [
        ask("response_format", format.clone()),
        ask("response_format", json!({"type": "json_object", "schema": schema()})),
        ask("json_schema", schema()),
        ask("guided_json", schema().to_string().into()),
        ask("structured_outputs", json!({"json": schema()})),
    ] {
        let (status, answer) = server.post(path, &request);
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
        check(content(&answer));
    }
    // Sampled, streamed, several choices, with stops and logprobs.
    let mut drawn = ask("response_format", format);
    drawn["temperature"] = 1.5.into();
    drawn["n"] = 3.into();
    drawn["logprobs"] = true.into();
    let (_, answer) = server.post(path, &drawn);
    for choice in answer["choices"].as_array().expect("choices") {
        check(choice["message"]["content"].as_str().expect("a text"));
    }
    drawn["n"] = 1.into();
    drawn["stream"] = true.into();
    let events = server.events(path, &drawn);
    let pieces = events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str());
    check(&pieces.collect::<String>());

    let ollama = json!({"messages": chat("Say something.")["messages"], "format": schema(), "stream": false});
    check(
        server.post("/api/chat", &ollama).1["message"]["content"]
            .as_str()
            .expect("a text"),
    );
    let ollama = json!({"prompt": "Say something.", "format": schema(), "stream": false});
    check(
        server.post("/api/generate", &ollama).1["response"]
            .as_str()
            .expect("a text"),
    );
}

#[test]
fn responses_and_messages_match_schemas() {
    let server = Server::start(&[]);
    let format = json!({"type": "json_schema", "name": "thing", "strict": true, "schema": schema()});
    let mut request = json!({"input": "Say something.", "text": {"format": format}});
    let (status, response) = server.post("/v1/responses", &request);
    assert_eq!(status, 200, "{response}");
    check(response["output"][0]["content"][0]["text"].as_str().expect("a text"));
    assert_eq!(response["text"]["format"], format, "the requested format is echoed");
    request["stream"] = true.into();
    let events = server.named_events("/v1/responses", &request);
    let deltas = events
        .iter()
        .filter(|event| event["type"] == "response.output_text.delta");
    check(
        &deltas
            .map(|event| event["delta"].as_str().expect("a text"))
            .collect::<String>(),
    );

    let format = json!({"type": "json_schema", "schema": schema()});
    let messages = chat("Say something.")["messages"].clone();
    let request = json!({"messages": messages, "max_tokens": 200, "output_config": {"format": format}});
    let (status, message) = server.post("/v1/messages", &request);
    assert_eq!(
        (status, &message["stop_reason"]),
        (200, &json!("end_turn")),
        "{message}"
    );
    check(message["content"][0]["text"].as_str().expect("a text"));
    let request = json!({"messages": messages, "max_tokens": 200, "output_format": format, "stream": true});
    let events = server.named_events("/v1/messages", &request);
    let deltas = events.iter().filter_map(|event| event["delta"]["text"].as_str());
    check(&deltas.collect::<String>());

    let none = json!({"type": "json_schema", "schema": 7});
    for (path, field, request) in [
        (
            "/v1/responses",
            "text.format",
            json!({"input": "a", "text": {"format": none}}),
        ),
        (
            "/v1/responses",
            "text.format",
            json!({"input": "a", "text": {"format": {"type": "poem"}}}),
        ),
        ("/v1/responses", "text", json!({"input": "a", "text": "json"})),
        (
            "/v1/messages",
            "output_config.format",
            json!({"messages": messages, "output_config": {"format": none}}),
        ),
        (
            "/v1/messages",
            "output_format",
            json!({"messages": messages, "output_format": none}),
        ),
        (
            "/v1/messages",
            "output_format",
            json!({"messages": messages, "output_format": format, "output_config": {"format": format}}),
        ),
    ] {
        let (status, reply) = server.post(path, &request);
        let message = reply["error"]["message"].as_str().expect("a message");
        assert!(
            status == 400 && message.starts_with(&format!("{field}: ")),
            "{status} {reply}"
        );
    }
}

#[test]
fn completions_match_regex_grammar_and_choice() {
    let server = Server::start(&[]);
    let free = json!({"prompt": "Once upon", "max_tokens": 40, "temperature": 0});
    let (_, alone) = server.post("/v1/completions", &free);
    let reply = |field: &str, value: Value| {
        let mut request = json!({"prompt": "Once upon", "max_tokens": 40, "temperature": 0.8});
        request[field] = value;
        let (status, answer) = server.post("/v1/completions", &request);
        assert_eq!(status, 200, "{answer}");
        answer["choices"][0]["text"].as_str().expect("a text").to_owned()
    };
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| server.post("/v1/completions", &free).1);
        let date = reply("guided_regex", "[0-9]{4}-[0-9]{2}".into());
        let digits = |part: &str, count: usize| part.len() == count && part.bytes().all(|b| b.is_ascii_digit());
        let (year, month) = date.trim().split_once('-').expect(&date);
        assert!(digits(year, 4) && digits(month, 2), "{date}");
        let chosen = reply("guided_choice", json!(["north", "south"]));
        assert!(["north", "south"].contains(&chosen.trim()), "{chosen}");
        let grammar = "start: \"<\" word (\",\" word)~2 \">\"\nword: /[a-z]{1,4}/";
        let list = reply("grammar", grammar.into());
        assert!(
            list.starts_with('<') && list.ends_with('>') && list.matches(',').count() == 2,
            "{list}"
        );
        assert_eq!(
            beside.join().unwrap()["choices"],
            alone["choices"],
            "unconstrained requests are unaffected"
        );
    });
}

#[test]
fn required_tool_choice_forces_a_call() {
    let server = Server::start(&["--ctx", "1024"]);
    let tool = |name: &str, argument: &str| {
        let parameters = json!({
            "type": "object",
            "properties": {(argument): {"$ref": "#/$defs/city"}},
            "required": [argument],
            "additionalProperties": false,
            "$defs": {"city": {"enum": ["Rome", "Oslo"]}},
        });
        json!({"type": "function", "function": {"name": name, "parameters": parameters}})
    };
    let mut request = chat("What is 1 + 1?");
    request["tools"] = json!([tool("weather", "city"), tool("time", "place")]);
    let named = json!({"type": "function", "function": {"name": "time"}});
    for (choice, names) in [(json!("required"), &["weather", "time"][..]), (named, &["time"][..])] {
        request["tool_choice"] = choice;
        request["parallel_tool_calls"] = false.into();
        let (status, answer) = server.post("/v1/chat/completions", &request);
        assert_eq!(status, 200, "{answer}");
        let choice = &answer["choices"][0];
        assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
        assert_eq!(choice["message"]["content"], Value::Null);
        let calls = choice["message"]["tool_calls"].as_array().expect("calls");
        assert_eq!(calls.len(), 1);
        let function = &calls[0]["function"];
        assert!(names.contains(&function["name"].as_str().unwrap()), "{function}");
        let arguments: Value = serde_json::from_str(function["arguments"].as_str().unwrap()).expect("JSON");
        let argument = if function["name"] == "time" { "place" } else { "city" };
        assert!(
            arguments[argument] == "Rome" || arguments[argument] == "Oslo",
            "{arguments}"
        );
    }
    request["tool_choice"] = json!({"type": "function", "function": {"name": "sing"}});
    let (status, reply) = server.post("/v1/chat/completions", &request);
    assert!(
        status == 400 && reply["error"]["message"].as_str().unwrap().contains("sing"),
        "{reply}"
    );
}

#[test]
fn required_tool_choice_works_in_every_api() {
    let server = Server::start(&[]);
    let parameters = json!({"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"],
        "additionalProperties": false});
    let is_city = |arguments: &Value| arguments["city"] == "Rome" || arguments["city"] == "Oslo";
    let functions = ["weather", "time"].map(|name| json!({"type": "function", "name": name, "parameters": parameters}));
    for (choice, names) in [
        (json!("required"), &["weather", "time"][..]),
        (json!({"type": "function", "name": "time"}), &["time"]),
    ] {
        let request = json!({"input": "What is 1 + 1?", "tools": functions, "tool_choice": choice,
            "parallel_tool_calls": false});
        let (status, response) = server.post("/v1/responses", &request);
        assert_eq!(status, 200, "{response}");
        let [call] = &response["output"].as_array().expect("a list")[..] else {
            panic!("{response}");
        };
        assert!(names.contains(&call["name"].as_str().expect("a name")), "{call}");
        let arguments = serde_json::from_str(call["arguments"].as_str().expect("a text")).expect("JSON");
        assert!(is_city(&arguments), "{call}");
    }
    let tools = ["weather", "time"].map(|name| json!({"name": name, "input_schema": parameters}));
    let mut request = json!({"messages": chat("What is 1 + 1?")["messages"], "max_tokens": 200, "tools": tools});
    for (choice, names) in [
        (
            json!({"type": "any", "disable_parallel_tool_use": true}),
            &["weather", "time"][..],
        ),
        (json!({"type": "tool", "name": "time"}), &["time"]),
    ] {
        request["tool_choice"] = choice;
        let (status, message) = server.post("/v1/messages", &request);
        assert_eq!(
            (status, &message["stop_reason"]),
            (200, &json!("tool_use")),
            "{message}"
        );
        let [call] = &message["content"].as_array().expect("a list")[..] else {
            panic!("{message}");
        };
        assert!(
            names.contains(&call["name"].as_str().expect("a name")) && is_city(&call["input"]),
            "{call}"
        );
    }
    for choice in [
        json!({"type": "tool"}),
        json!({"type": "tool", "name": "sing"}),
        json!("any"),
        json!({}),
    ] {
        request["tool_choice"] = choice;
        let (status, reply) = server.post("/v1/messages", &request);
        assert!(
            status == 400 && reply["error"]["message"].as_str().unwrap().contains("tool_choice"),
            "{reply}"
        );
    }
}

#[test]
fn auto_tool_choice_calls_or_matches_the_schema() {
    let server = Server::start(&[]);
    let parameters = json!({"type": "object", "properties": {"city": {"enum": ["Rome"]}}, "required": ["city"],
        "additionalProperties": false});
    let tool = json!({"type": "function", "function": {"name": "weather", "parameters": parameters}});
    let mut request = chat("What is 1 + 1?");
    request["tools"] = json!([tool]);
    request["json_schema"] = schema();
    // The bias would have a call begin behind each call.
    request["parallel_tool_calls"] = false.into();
    let mut begin_with = |text: &str| {
        let body = json!({"prompt": text, "add_special_tokens": false});
        let token = server.post("/tokenize", &body).1["tokens"][0].to_string();
        request["logit_bias"] = json!({(token): 100});
        let (status, answer) = server.post("/v1/chat/completions", &request);
        assert_eq!(status, 200, "{answer}");
        answer
    };
    check(content(&begin_with("{")));
    let answer = begin_with("<");
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
    let arguments = choice["message"]["tool_calls"][0]["function"]["arguments"].as_str();
    let arguments: Value = serde_json::from_str(arguments.expect("a text")).expect("JSON");
    assert_eq!(arguments, json!({"city": "Rome"}));
}

#[test]
fn rejects_invalid_formats_and_names_the_field() {
    let server = Server::start(&[]);
    let deep = (0..60).fold(
        json!({"type": "string"}),
        |inner, _| json!({"type": "array", "items": inner}),
    );
    for (field, value, why) in [
        ("response_format", json!({"type": "json_schema"}), "schema"),
        (
            "response_format",
            json!({"type": "json_schema", "json_schema": {"schema": 7}}),
            "a JSON schema must be an object",
        ),
        ("response_format", json!("json"), "no type"),
        ("guided_json", json!("{"), "not valid JSON"),
        ("guided_regex", json!("(("), ""),
        ("grammar", json!("root ::= \"a\""), "GBNF"),
        ("grammar", json!("start: missing"), "missing"),
        ("grammar", json!("start: /a/\n".repeat(50_000)), "more than the limit"),
        ("guided_regex", json!("\\bfoo"), "word boundaries"),
        ("guided_choice", json!([]), ""),
        ("guided_choice", json!(["a", 1]), "item 1 is 1"),
        ("structured_outputs", json!({"structural_tag": "{}"}), "structural_tag"),
    ] {
        let mut request = chat("Say something.");
        request[field] = value;
        request["max_tokens"] = 4.into();
        let (status, reply) = server.post("/v1/chat/completions", &request);
        let message = reply["error"]["message"].as_str().expect("a message");
        assert!(
            status == 400 && reply["error"]["param"] == field && message.contains(why),
            "{field}: {status} {reply}"
        );
        assert!(message.len() < 300 && !message.contains(" | "), "{message}");
    }
    // What cannot be enforced is passed over; what is invalid is not.
    for (schema, expected) in [
        (json!({"type": "float"}), 200),
        (json!({"type": "string", "pattern": "(?=a)b"}), 200),
        (json!({"type": "poem"}), 400),
        (json!({"type": "string", "pattern": "("}), 400),
        (json!({"$ref": "http://example.com/x"}), 400),
    ] {
        let mut request = chat("Say something.");
        request["response_format"] = json!({"type": "json_object", "schema": schema});
        request["max_tokens"] = 4.into();
        assert_eq!(server.post("/v1/chat/completions", &request).0, expected, "{schema}");
    }
    let mut two = chat("Say something.");
    two["guided_regex"] = "a".into();
    two["guided_choice"] = json!(["a"]);
    assert_eq!(server.post("/v1/chat/completions", &two).0, 400);
    let mut nested = chat("Say something.");
    nested["guided_json"] = deep;
    nested["max_tokens"] = 70.into();
    assert_eq!(
        server.post("/v1/chat/completions", &nested).0,
        200,
        "deep nesting alone is accepted"
    );
    let (status, reply) = server.post("/api/chat", &json!({"messages": nested["messages"], "format": "poem"}));
    assert!(
        status == 400 && reply["error"].as_str().unwrap().contains("format"),
        "{reply}"
    );
}

#[test]
fn a_header_names_the_keywords_that_are_not_enforced() {
    let server = Server::start(&[]);
    let ask = |schema: Value| {
        let format = json!({"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": schema}});
        let request = json!({
            "messages": [{"role": "user", "content": "Hi."}], "max_tokens": 4, "response_format": format,
        });
        server
            .exchange("POST", "/v1/chat/completions", "", &request.to_string())
            .0
    };
    let items = json!({"enum": [1, 2], "not": {"const": 1}});
    let head = ask(json!({"type": "array", "items": items, "uniqueItems": true}));
    assert!(
        head.contains("x-refrain-not-enforced: uniqueItems, not at /items\r\n"),
        "{head}"
    );
    let head = ask(json!({"type": "array", "items": {"enum": [1, 2]}}));
    assert!(!head.contains("not-enforced"), "{head}");
}
