//! The Responses API as agents use it.

use serde_json::{Value, json};

use super::openai::{TOOLS_TEMPLATE, with_template};
use super::{Server, content};
use crate::support::run;

const PATH: &str = "/v1/responses";

/// A request as Codex sends it: developer messages, functions without parameters, a namespace, a hosted tool.
fn agents_request() -> Value {
    let text = json!([{"type": "input_text", "text": "text"}]);
    let message = |role: &str| json!({"type": "message", "id": "msg_1", "role": role, "content": text});
    json!({
        "instructions": "Be brief.",
        "input": [message("developer"), message("developer"), message("user"), message("user")],
        "tools": [
            {"type": "function", "name": "exec", "strict": false, "parameters": {"type": "object", "properties": {}}},
            {"type": "function", "name": "write", "description": "text", "strict": false},
            {"type": "namespace", "name": "agents", "description": "text", "tools": [
                {"type": "function", "name": "wait", "strict": false,
                    "parameters": {"type": "object", "properties": {}, "additionalProperties": false}},
                {"type": "custom", "name": "say", "format": {"type": "grammar", "syntax": "regex", "definition": "ab"}},
            ]},
            {"type": "local_shell"},
            {"type": "web_search", "external_web_access": false},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": true,
        "reasoning": {"summary": "auto"},
        "store": false,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "key",
        "max_output_tokens": 8,
    })
}

#[test]
fn tools_of_agents_are_offered_and_their_names_carried_back() {
    let (_copy, server) = with_template(TOOLS_TEMPLATE);
    let mut request = agents_request();
    let (status, response) = server.post(PATH, &request);
    assert_eq!(status, 200, "{response}");
    assert_eq!(
        (&response["tools"], &response["store"]),
        (&request["tools"], &json!(false)),
        "tools are echoed"
    );
    assert_eq!(response["prompt_cache_key"], "key");
    request["max_output_tokens"] = 300.into();
    request["parallel_tool_calls"] = false.into();
    request["tool_choice"] = json!({"type": "function", "namespace": "agents", "name": "wait"});
    let (_, response) = server.post(PATH, &request);
    let call = &response["output"][0];
    assert_eq!(
        (&call["type"], &call["name"]),
        (&json!("function_call"), &json!("wait")),
        "{response}"
    );
    assert_eq!(call["namespace"], "agents", "{response}");
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).expect("JSON");
    assert_eq!(arguments, json!({}));

    request["tool_choice"] = json!({"type": "custom", "namespace": "agents", "name": "say"});
    request["stream"] = true.into();
    let events = server.named_events(PATH, &request);
    let names: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(names, expected);
    assert_eq!(
        (&events[4]["input"], &events[5]["item"]["namespace"]),
        (&json!("ab"), &json!("agents"))
    );

    // The calls come back in the next request.
    request["stream"] = false.into();
    request["tool_choice"] = "none".into();
    request["max_output_tokens"] = 1.into();
    let input = request["input"].as_array_mut().unwrap();
    let custom = events[5]["item"].clone();
    input.extend([
        json!({"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}),
        call.clone(),
        json!({"type": "function_call_output", "call_id": call["call_id"], "output": "7"}),
        custom.clone(),
        json!({"type": "custom_tool_call_output", "call_id": custom["call_id"], "output": "ok"}),
        json!({"type": "web_search_call", "id": "ws_1", "status": "completed"}),
    ]);
    let (status, response) = server.post(PATH, &request);
    assert_eq!(status, 200, "{response}");
}

#[test]
fn responses_are_kept_for_the_key_that_made_them() {
    let server = Server::start(&["--api-key", "A", "--api-key", "B"]);
    let ask = |method: &str, path: &str, key: &str, body: &Value| {
        let (status, body) = server.ask(
            method,
            path,
            &format!("authorization: Bearer {key}\r\n"),
            &body.to_string(),
        );
        (status, serde_json::from_str::<Value>(&body).expect(&body))
    };
    let first = json!({"input": "What is 12 + 30?", "temperature": 0});
    let (status, response) = ask("POST", PATH, "A", &first);
    assert_eq!((status, &response["store"]), (200, &json!(true)), "{response}");
    let id = response["id"].as_str().unwrap().to_owned();
    let kept = format!("{PATH}/{id}");
    assert_eq!(ask("GET", &kept, "A", &json!({})), (200, response.clone()));
    assert_eq!(ask("GET", &kept, "B", &json!({})).0, 404);
    let (_, items) = ask("GET", &format!("{kept}/input_items"), "A", &json!({}));
    assert_eq!(items["data"][0]["content"][0]["text"], "What is 12 + 30?", "{items}");

    // The next question is that of the whole conversation.
    let answer = response["output"][0]["content"][0]["text"].as_str().unwrap();
    let messages = json!([
        {"role": "user", "content": "What is 12 + 30?"},
        {"role": "assistant", "content": answer},
        {"role": "user", "content": "What is 5 + 6?"},
    ]);
    let (_, whole) = ask(
        "POST",
        "/v1/chat/completions",
        "A",
        &json!({"messages": messages, "temperature": 0}),
    );
    let mut next = json!({"input": "What is 5 + 6?", "previous_response_id": id, "temperature": 0});
    let (status, second) = ask("POST", PATH, "A", &next);
    assert_eq!(status, 200, "{second}");
    assert_eq!(second["output"][0]["content"][0]["text"], content(&whole));
    assert_eq!(second["usage"]["input_tokens"], whole["usage"]["prompt_tokens"]);
    assert_eq!(second["previous_response_id"], id.as_str());
    assert_eq!(ask("POST", PATH, "B", &next).0, 400);

    assert_eq!(ask("DELETE", &kept, "B", &json!({})).0, 404);
    assert_eq!(ask("DELETE", &kept, "A", &json!({})).1["deleted"], true);
    assert_eq!(ask("POST", PATH, "A", &next).0, 400, "it is not there any more");
    next["previous_response_id"] = second["id"].clone();
    next["store"] = false.into();
    let (status, third) = ask("POST", PATH, "A", &next);
    assert_eq!(status, 200, "{third}");
    assert_eq!(
        ask(
            "GET",
            &format!("{PATH}/{}", third["id"].as_str().unwrap()),
            "A",
            &json!({})
        )
        .0,
        404
    );
}

#[test]
fn conversations_grow_with_their_responses() {
    let server = Server::start(&[]);
    let items = json!([{"type": "message", "role": "user", "content": "What is 12 + 30?"}]);
    let (status, conversation) = server.post("/v1/conversations", &json!({"items": items, "metadata": {"a": "b"}}));
    assert_eq!((status, &conversation["metadata"]["a"]), (200, &json!("b")));
    let path = format!("/v1/conversations/{}", conversation["id"].as_str().unwrap());
    let request = json!({"conversation": conversation["id"], "input": [], "temperature": 0, "stream": true});
    let events = server.named_events(PATH, &request);
    let last = &events[events.len() - 1];
    assert_eq!(
        (&last["type"], &last["response"]["conversation"]["id"]),
        (&json!("response.completed"), &conversation["id"])
    );
    let list = |query: &str| -> Value { serde_json::from_str(&server.get(&format!("{path}/items{query}")).1).unwrap() };
    let items = list("");
    assert_eq!(items["data"][0]["content"][0]["text"], "12 + 30 = 42", "{items}");
    let (answer, question) = (&items["data"][0], &items["data"][1]);
    assert_eq!(
        question["content"],
        json!([{"type": "input_text", "text": "What is 12 + 30?"}])
    );
    assert_eq!(
        (&items["first_id"], &items["last_id"]),
        (&answer["id"], &question["id"])
    );
    let first = list("?limit=1&order=asc");
    assert_eq!((&first["data"], &first["has_more"]), (&json!([question]), &json!(true)));
    let after = format!("?order=asc&after={}", question["id"].as_str().expect("an id"));
    assert_eq!(list(&after)["data"], json!([answer]));
    assert!(list("?limit=0")["error"]["message"].as_str().unwrap().contains("limit"));
    assert_eq!(server.ask("DELETE", &path, "", "").0, 200);
    assert_eq!(server.post(PATH, &request).0, 404);
}

#[test]
fn conversations_and_their_items_change() {
    let server = Server::start(&[]);
    let question = json!({"type": "message", "role": "user", "content": "What is 12 + 30?"});
    let (_, conversation) = server.post("/v1/conversations", &json!({"items": [question, question]}));
    let path = format!("/v1/conversations/{}", conversation["id"].as_str().unwrap());
    let ask = |method: &str, path: &str| {
        let (status, body) = server.ask(method, path, "", "");
        (status, serde_json::from_str::<Value>(&body).expect(&body))
    };
    let (status, changed) = server.post(&path, &json!({"metadata": {"topic": "sums"}}));
    assert_eq!(
        (status, &changed["metadata"]),
        (200, &json!({"topic": "sums"})),
        "{changed}"
    );
    assert_eq!(ask("GET", &path), (200, changed.clone()));
    let (status, refused) = server.post(&path, &json!({"metadata": {"topic": 7}}));
    assert_eq!(
        (status, &refused["error"]["param"]),
        (400, &json!("metadata.topic")),
        "{refused}"
    );

    let (_, items) = ask("GET", &format!("{path}/items"));
    let first = &items["data"][0];
    let item = format!("{path}/items/{}", first["id"].as_str().unwrap());
    assert_eq!(ask("GET", &item), (200, first.clone()));
    assert_eq!(ask("DELETE", &item), (200, changed));
    assert_eq!(ask("GET", &item).0, 404);
    assert_eq!(ask("DELETE", &item).0, 404);
    let (_, items) = ask("GET", &format!("{path}/items"));
    assert_eq!(items["data"].as_array().map(Vec::len), Some(1), "{items}");
}

#[test]
fn input_tokens_are_those_of_the_response() {
    let server = Server::start(&[]);
    let request = json!({"input": "What is 12 + 30?", "instructions": "Be brief.", "max_output_tokens": 1});
    let (_, response) = server.post(PATH, &request);
    let (status, count) = server.post("/v1/responses/input_tokens", &request);
    assert_eq!(status, 200, "{count}");
    assert_eq!(count["object"], "response.input_tokens");
    assert_eq!(count["input_tokens"], response["usage"]["input_tokens"]);
    assert_eq!(
        (&response["status"], &response["output"][0]["status"]),
        (&json!("incomplete"), &json!("incomplete"))
    );
    let (status, refused) = server.post("/v1/responses/compact", &request);
    assert_eq!(status, 400, "{refused}");
    let stream = server.get(&format!("{PATH}/{}?stream=true", response["id"].as_str().unwrap()));
    assert!(stream.0 == 400 && stream.1.contains("stream"), "{stream:?}");
}

#[test]
fn stored_responses_outlive_the_server_in_their_directory() {
    let directory = tempfile::tempdir().unwrap();
    let kept = directory.path().join("responses");
    let options = [
        "--response-store",
        kept.to_str().unwrap(),
        "--api-key",
        "A",
        "--api-key",
        "B",
    ];
    let ask = |server: &Server, method: &str, path: &str, key: &str, body: &Value| -> (u16, Value) {
        let header = format!("authorization: Bearer {key}\r\n");
        let (status, answer) = server.ask(method, path, &header, &body.to_string());
        (status, serde_json::from_str(&answer).unwrap())
    };
    let first = Server::start(&options);
    let body = json!({"input": "What is 12 + 30?", "temperature": 0});
    let (status, response) = ask(&first, "POST", PATH, "A", &body);
    assert_eq!(status, 200, "{response}");
    let id = response["id"].as_str().unwrap().to_owned();
    let taken = run(&[
        "serve", "demo", "--device", "cpu", "--port", "0", options[0], options[1],
    ]);
    assert!(taken.stderr.contains("another server"), "{}", taken.stderr);
    assert_eq!(first.end("-TERM"), Some(0));
    let second = Server::start(&options);
    let path = format!("{PATH}/{id}");
    assert_eq!(
        ask(&second, "GET", &path, "A", &json!({})).1["output"],
        response["output"]
    );
    assert_eq!(ask(&second, "GET", &path, "B", &json!({})).0, 404);
    let next = json!({"input": "What is 5 + 6?", "previous_response_id": id, "temperature": 0});
    assert_eq!(ask(&second, "POST", PATH, "A", &next).0, 200);
    assert_eq!(ask(&second, "POST", PATH, "B", &next).0, 400);
    assert_eq!(ask(&second, "DELETE", &path, "A", &json!({})).0, 200);
    assert_eq!(ask(&second, "GET", &path, "A", &json!({})).0, 404);
}
