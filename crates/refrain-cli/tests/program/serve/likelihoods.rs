//! How likely tokens were, as clients ask for it.

use serde_json::{Value, json};

use super::{Server, chat, content};

fn entries(answer: &Value) -> &Vec<Value> {
    let told = &answer["choices"][0]["logprobs"]["content"];
    told.as_array().expect("a list")
}

#[test]
fn a_chat_is_told_how_likely_its_tokens_were_whole_and_streamed() {
    let server = Server::start(&[]);
    let question = "What is 348 + 276?";
    let path = "/v1/chat/completions";
    let (_, silent) = server.post(path, &chat(question));
    assert_eq!(silent["choices"][0]["logprobs"], Value::Null);
    let mut asked = chat(question);
    asked["logprobs"] = true.into();
    asked["top_logprobs"] = 20.into();
    let (status, answer) = server.post(path, &asked);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(content(&answer), content(&silent), "who asks hears the same text");
    let told = entries(&answer);
    assert_eq!(
        told.len() as u64,
        answer["usage"]["completion_tokens"].as_u64().unwrap()
    );
    let mut bytes = vec![];
    for entry in told {
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

    asked["stream"] = true.into();
    let events = server.events(path, &asked);
    let streamed = events
        .iter()
        .filter_map(|event| event["choices"][0]["logprobs"]["content"].as_array());
    assert_eq!(&streamed.flatten().cloned().collect::<Vec<_>>(), told);
    asked["stream"] = false.into();
    asked["top_logprobs"] = 0.into();
    let (_, alone) = server.post(path, &asked);
    assert_eq!(entries(&alone)[0]["logprob"], told[0]["logprob"]);
    assert_eq!(entries(&alone)[0]["top_logprobs"], json!([]));
    for (field, value) in [
        ("top_logprobs", json!(21)),
        ("top_logprobs", json!("all")),
        ("logprobs", json!(false)),
    ] {
        let mut wrong = asked.clone();
        wrong["top_logprobs"] = 2.into();
        wrong[field] = value;
        let (status, said) = server.post(path, &wrong);
        assert!(
            status == 400 && said["error"]["param"] == "top_logprobs",
            "{status} {said}"
        );
    }
}

#[test]
fn a_completion_is_told_how_likely_its_tokens_were() {
    let server = Server::start(&[]);
    let asked = json!({"prompt": "Once upon", "max_tokens": 6, "temperature": 0.7, "seed": 3, "logprobs": 2});
    let (status, answer) = server.post("/v1/completions", &asked);
    assert_eq!(status, 200, "{answer}");
    let told = &answer["choices"][0]["logprobs"];
    let column = |name: &str| told[name].as_array().unwrap();
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
        let mut asked = asked.clone();
        asked["stream"] = true.into();
        server.events("/v1/completions", &asked)
    };
    let offsets_streamed = streamed
        .iter()
        .filter_map(|event| event["choices"][0]["logprobs"]["text_offset"].as_array());
    assert_eq!(
        &offsets_streamed.flatten().cloned().collect::<Vec<_>>(),
        column("text_offset")
    );
    let mut wrong = asked;
    wrong["logprobs"] = 6.into();
    assert_eq!(server.post("/v1/completions", &wrong).0, 400);
}

#[test]
fn clients_of_ollama_and_of_responses_are_told_what_chats_are() {
    let server = Server::start(&[]);
    let question = "What is 348 + 276?";
    let mut asked = chat(question);
    asked["logprobs"] = true.into();
    asked["top_logprobs"] = 3.into();
    let (_, answer) = server.post("/v1/chat/completions", &asked);
    let told = entries(&answer);

    let mut ollamas = json!({"messages": asked["messages"], "prompt": question, "options": {"temperature": 0},
        "logprobs": true, "top_logprobs": 3});
    for path in ["/api/chat", "/api/generate"] {
        ollamas["stream"] = false.into();
        let (status, whole) = server.post(path, &ollamas);
        assert_eq!((status, whole["logprobs"].as_array()), (200, Some(told)), "{path}");
        ollamas["stream"] = true.into();
        let lines = server.lines(path, &ollamas);
        let streamed = lines.iter().filter_map(|line| line["logprobs"].as_array()).flatten();
        assert_eq!(&streamed.cloned().collect::<Vec<_>>(), told);
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
    let (status, said) = server.post("/api/chat", &ollamas);
    assert!(
        status == 400 && said["error"].as_str().unwrap().contains("from 0 to 20"),
        "{said}"
    );

    let mut asked = json!({"input": question, "temperature": 0, "top_logprobs": 3,
        "include": ["message.output_text.logprobs"]});
    let (status, response) = server.post("/v1/responses", &asked);
    assert_eq!(status, 200, "{response}");
    assert_eq!(response["output"][0]["content"][0]["logprobs"].as_array(), Some(told));
    asked["stream"] = true.into();
    let events = server.named_events("/v1/responses", &asked);
    let of_kind = |kind: &'static str| events.iter().filter(move |event| event["type"] == kind);
    let streamed =
        of_kind("response.output_text.delta").flat_map(|event| event["logprobs"].as_array().expect("a list"));
    assert_eq!(&streamed.cloned().collect::<Vec<_>>(), told);
    let done = of_kind("response.output_text.done").next().expect("an event");
    assert_eq!(done["logprobs"].as_array(), Some(told));
}
