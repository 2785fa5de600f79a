//! Logprobs in every API.

use serde_json::{Value, json};

use super::{Server, chat, content};

fn entries(answer: &Value) -> &Vec<Value> {
    let output = &answer["choices"][0]["logprobs"]["content"];
    output.as_array().expect("a list")
}

#[test]
fn chat_returns_logprobs_whole_and_streamed() {
    let server = Server::start(&[]);
    let question = "What is 348 + 276?";
    let path = "/v1/chat/completions";
    let (_, silent) = server.post(path, &chat(question));
    assert_eq!(silent["choices"][0]["logprobs"], Value::Null);
    let mut request = chat(question);
    request["logprobs"] = true.into();
    request["top_logprobs"] = 20.into();
    let (status, answer) = server.post(path, &request);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(content(&answer), content(&silent), "logprobs do not change the text");
    let output = entries(&answer);
    assert_eq!(
        output.len() as u64,
        answer["usage"]["completion_tokens"].as_u64().unwrap()
    );
    let mut bytes = vec![];
    for entry in output {
        let top = entry["top_logprobs"].as_array().unwrap();
        let likely = |entry: &Value| entry["logprob"].as_f64().unwrap();
        assert_eq!(top.len(), 20);
        assert_eq!(
            (&top[0]["token"], &top[0]["logprob"]),
            (&entry["token"], &entry["logprob"]),
            "temperature 0"
        );
        assert!(top.is_sorted_by(|a, b| likely(a) >= likely(b)));
        let sum: f64 = top.iter().map(|entry| likely(entry).exp()).sum();
        assert!(sum > 0.5 && sum < 1.0001, "{sum}");
        bytes.extend(
            entry["bytes"]
                .as_array()
                .unwrap()
                .iter()
                .map(|byte| byte.as_u64().unwrap() as u8),
        );
    }
    // The tokenizer drops the first blank of a text.
    assert_eq!(
        String::from_utf8(bytes).unwrap().trim_start(),
        content(&answer).trim_start()
    );

    request["stream"] = true.into();
    let events = server.events(path, &request);
    let streamed = events
        .iter()
        .filter_map(|event| event["choices"][0]["logprobs"]["content"].as_array());
    assert_eq!(&streamed.flatten().cloned().collect::<Vec<_>>(), output);
    request["stream"] = false.into();
    request["top_logprobs"] = 0.into();
    let (_, alone) = server.post(path, &request);
    assert_eq!(entries(&alone)[0]["logprob"], output[0]["logprob"]);
    assert_eq!(entries(&alone)[0]["top_logprobs"], json!([]));
    for (field, value) in [
        ("top_logprobs", json!(21)),
        ("top_logprobs", json!("all")),
        ("logprobs", json!(false)),
    ] {
        let mut wrong = request.clone();
        wrong["top_logprobs"] = 2.into();
        wrong[field] = value;
        let (status, reply) = server.post(path, &wrong);
        assert!(
            status == 400 && reply["error"]["param"] == "top_logprobs",
            "{status} {reply}"
        );
    }
}

#[test]
fn completions_return_logprobs() {
    let server = Server::start(&[]);
    let request = json!({"prompt": "Once upon", "max_tokens": 6, "temperature": 0.7, "seed": 3, "logprobs": 2});
    let (status, answer) = server.post("/v1/completions", &request);
    assert_eq!(status, 200, "{answer}");
    let output = &answer["choices"][0]["logprobs"];
    let column = |name: &str| output[name].as_array().unwrap();
    let tokens: String = column("tokens").iter().map(|token| token.as_str().unwrap()).collect();
    assert_eq!(
        tokens.trim_start(),
        answer["choices"][0]["text"].as_str().unwrap().trim_start()
    );
    let offsets: Vec<u64> = column("text_offset")
        .iter()
        .map(|offset| offset.as_u64().unwrap())
        .collect();
    assert_eq!((offsets.len(), offsets[0]), (6, 0));
    assert_eq!(
        offsets[5] as usize + column("tokens")[5].as_str().unwrap().chars().count(),
        tokens.chars().count()
    );
    for (at, top) in column("top_logprobs").iter().enumerate() {
        let token = column("tokens")[at].as_str().unwrap();
        assert_eq!(top[token], column("token_logprobs")[at], "{top}");
        assert!((2..=3).contains(&top.as_object().unwrap().len()), "{top}");
    }
    let streamed = {
        let mut request = request.clone();
        request["stream"] = true.into();
        server.events("/v1/completions", &request)
    };
    let offsets_streamed = streamed
        .iter()
        .filter_map(|event| event["choices"][0]["logprobs"]["text_offset"].as_array());
    assert_eq!(
        &offsets_streamed.flatten().cloned().collect::<Vec<_>>(),
        column("text_offset")
    );
    let mut wrong = request;
    wrong["logprobs"] = 21.into();
    assert_eq!(server.post("/v1/completions", &wrong).0, 400);
}

#[test]
fn ollama_and_responses_apis_return_the_same_logprobs() {
    let server = Server::start(&[]);
    let question = "What is 348 + 276?";
    let mut request = chat(question);
    request["logprobs"] = true.into();
    request["top_logprobs"] = 3.into();
    let (_, answer) = server.post("/v1/chat/completions", &request);
    let output = entries(&answer);

    let mut ollamas = json!({"messages": request["messages"], "prompt": question, "options": {"temperature": 0},
        "logprobs": true, "top_logprobs": 3});
    for path in ["/api/chat", "/api/generate"] {
        ollamas["stream"] = false.into();
        let (status, whole) = server.post(path, &ollamas);
        assert_eq!((status, whole["logprobs"].as_array()), (200, Some(output)), "{path}");
        ollamas["stream"] = true.into();
        let lines = server.lines(path, &ollamas);
        let streamed = lines.iter().filter_map(|line| line["logprobs"].as_array()).flatten();
        assert_eq!(&streamed.cloned().collect::<Vec<_>>(), output);
        let with_text = lines.iter().filter(|line| line["done"] == false);
        assert!(
            with_text.into_iter().all(|line| line["logprobs"].is_array()),
            "{lines:?}"
        );
    }
    ollamas["logprobs"] = false.into();
    let silent = server.lines("/api/chat", &ollamas);
    assert!(silent.iter().all(|line| line["logprobs"].is_null()), "{silent:?}");
    ollamas["top_logprobs"] = 21.into();
    let (status, reply) = server.post("/api/chat", &ollamas);
    assert!(
        status == 400 && reply["error"].as_str().unwrap().contains("from 0 to 20"),
        "{reply}"
    );

    let mut request = json!({"input": question, "temperature": 0, "top_logprobs": 3,
        "include": ["message.output_text.logprobs"]});
    let (status, response) = server.post("/v1/responses", &request);
    assert_eq!(status, 200, "{response}");
    assert_eq!(response["output"][0]["content"][0]["logprobs"].as_array(), Some(output));
    request["stream"] = true.into();
    let events = server.named_events("/v1/responses", &request);
    let of_kind = |kind: &'static str| events.iter().filter(move |event| event["type"] == kind);
    let streamed =
        of_kind("response.output_text.delta").flat_map(|event| event["logprobs"].as_array().expect("a list"));
    assert_eq!(&streamed.cloned().collect::<Vec<_>>(), output);
    let done = of_kind("response.output_text.done").next().expect("an event");
    assert_eq!(done["logprobs"].as_array(), Some(output));
}
