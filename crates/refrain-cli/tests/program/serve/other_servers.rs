//! Routes of llama-server and vLLM, and what of them is refused by name.

use serde_json::{Value, json};

use super::{Server, chat};

#[test]
fn routes_of_llama_server_and_vllm() {
    let server = Server::start(&["--ctx", "256", "--parallel", "3"]);
    let get = |path: &str| serde_json::from_str::<Value>(&server.get(path).1).expect("JSON");
    let props = get("/props");
    assert_eq!(props["default_generation_settings"]["n_ctx"], 256, "{props}");
    assert!(props["chat_template"].as_str().unwrap().contains("im_start"), "{props}");
    assert_eq!(get("/tokenizer_info")["eos_token"], "<|im_end|>");
    assert_eq!(get("/version")["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        (get("/load")["server_load"].clone(), get("/ping")),
        (json!(0), json!({}))
    );
    let request = json!({"prompt": "Once upon", "n_predict": 5, "temperature": 0});
    let (status, answer) = server.post("/completion", &request);
    assert_eq!(
        (status, &answer["stop_type"], &answer["tokens_predicted"]),
        (200, &json!("limit"), &json!(5)),
        "{answer}"
    );
    let expected = json!({"prompt": "Once upon", "max_tokens": 5, "temperature": 0});
    assert_eq!(
        answer["content"],
        server.post("/v1/completions", &expected).1["choices"][0]["text"]
    );
    assert_eq!(get("/models"), get("/v1/models"));
    assert_eq!(get("/v1/health"), get("/health"));
    assert_eq!(get("/slots").as_array().map(Vec::len), Some(3));
    let timings = &answer["timings"];
    assert_eq!(timings["predicted_n"], 5, "{timings}");
    assert!(timings["predicted_per_second"].as_f64() > Some(0.0), "{timings}");
    // What was cached is not processed again.
    let long = json!({"prompt": vec![5; 150], "n_predict": 1, "n_probs": 10});
    let counts = [(); 2].map(|()| {
        let (_, answer) = server.post("/completion", &long);
        [&answer["timings"]["prompt_n"], &answer["tokens_cached"]].map(|count| count.as_u64().unwrap_or(0))
    });
    assert!(
        counts.iter().all(|[processed, cached]| processed + cached == 150),
        "{counts:?}"
    );
    assert!(counts[1][1] >= 64, "{counts:?}");
    let streamed = json!({"prompt": "Once upon", "n_predict": 5, "temperature": 0, "stream": true});
    let events = server.named_events("/completion", &streamed);
    let texts = events.iter().filter_map(|event| event["content"].as_str());
    assert_eq!(texts.collect::<String>(), answer["content"].as_str().unwrap());
    let request = json!({"content": "Once", "with_pieces": true, "add_special": false});
    let pieces = server.post("/tokenize", &request).1["tokens"].clone();
    let text = pieces
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|token| token["piece"].as_str());
    assert_eq!(text.collect::<String>().trim(), "Once");
    let (_, chat) = server.post("/tokenize", &chat("Hi"));
    let (_, text) = server.post("/tokenize", &json!({"prompt": "Hi"}));
    assert!(chat["count"].as_u64() > text["count"].as_u64(), "{chat}");
}

#[test]
fn prompts_of_llama_server_mix_texts_and_tokens() {
    let server = Server::start(&[]);
    let tokens = |text: &str, added: bool| {
        let request = json!({"content": text, "add_special": added});
        let (_, reply) = server.post("/tokenize", &request);
        reply["tokens"].as_array().expect("tokens").clone()
    };
    let ask = |prompt: Value| {
        server.post(
            "/completion",
            &json!({"prompt": prompt, "n_predict": 4, "temperature": 0}),
        )
    };
    let (once, upon) = (tokens("Once", true), tokens(" upon a time", false));
    let alone = ask([once.clone(), upon.clone()].concat().into());
    assert_eq!(alone.0, 200, "{}", alone.1);
    let mixed = ask([once.clone(), vec![json!(" upon a time")]].concat().into());
    let begun_by_text = ask([vec![json!("Once")], upon].concat().into());
    for other in [&mixed, &begun_by_text] {
        assert_eq!(
            (&other.1["content"], &other.1["tokens_evaluated"]),
            (&alone.1["content"], &alone.1["tokens_evaluated"]),
            "{}",
            other.1
        );
    }
    assert_eq!(ask(json!({"prompt_string": "Once"})).1["tokens_evaluated"], once.len());
    for refused in [json!(["a", "b"]), json!([[1], [2]]), json!({"text": "a"}), json!([1.5])] {
        assert_eq!(ask(refused.clone()).0, 400, "{refused}");
    }
}

#[test]
fn fields_without_effect_are_refused_by_name() {
    let server = Server::start(&[]);
    for (path, field, value) in [
        ("/v1/completions", "allowed_token_ids", json!([5, 6])),
        ("/v1/completions", "bad_words", json!(["a"])),
        ("/v1/completions", "include_stop_str_in_output", json!(true)),
        ("/v1/completions", "return_token_ids", json!(true)),
        ("/v1/completions", "include_reasoning", json!(false)),
        ("/v1/completions", "reasoning_format", json!("none")),
        (
            "/v1/completions",
            "stream_options",
            json!({"continuous_usage_stats": true}),
        ),
        ("/completion", "return_tokens", json!(true)),
        ("/tokenize", "parse_special", json!(false)),
    ] {
        let request = |value: Value| server.post(path, &json!({"prompt": "a", "max_tokens": 1, (field): value}));
        let (status, reply) = request(value);
        assert_eq!(status, 400, "{field}: {reply}");
        assert!(reply.to_string().contains(field), "{field}: {reply}");
        assert_eq!(request(Value::Null).0, 200, "{field}");
    }
    let unknown = json!({"input": [{"type": "item_reference", "id": "msg_none"}], "max_output_tokens": 1});
    assert_eq!(server.post("/v1/responses", &unknown).0, 404);
}
