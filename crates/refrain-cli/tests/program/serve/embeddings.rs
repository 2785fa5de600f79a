//! Embeddings of the OpenAI and Ollama APIs.

use serde_json::{Value, json};

use super::{Server, chat, content};

fn numbers(embedding: &Value) -> Vec<f64> {
    let numbers = embedding.as_array().expect("a list").iter();
    numbers.map(|number| number.as_f64().expect("a number")).collect()
}

fn product(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The embedding of each text, in order.
fn embeddings(answer: &Value) -> Vec<Vec<f64>> {
    let data = answer["data"].as_array().expect("a list").iter().enumerate();
    let one = |(index, entry): (usize, &Value)| {
        assert_eq!(
            (&entry["object"], &entry["index"]),
            (&json!("embedding"), &json!(index))
        );
        numbers(&entry["embedding"])
    };
    data.map(one).collect()
}

#[test]
fn embeddings_are_normalised_and_distinguish_texts() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let server = Server::start(&["--ctx", "256"]);
    let texts = [
        "What is 12 + 30?",
        "What is 12 + 31?",
        "Once upon a time there was a fox.",
    ];
    let request = json!({"model": "demo", "input": texts});
    let (status, answer) = server.post("/v1/embeddings", &request);
    assert_eq!((status, &answer["object"]), (200, &json!("list")), "{answer}");
    let found = embeddings(&answer);
    for one in &found {
        assert!((product(one, one) - 1.0).abs() < 1e-5);
    }
    let near = product(&found[0], &found[1]);
    assert!(near > product(&found[0], &found[2]) && near < 0.99999, "{near}");
    let tokens = |text: &str| server.post("/tokenize", &json!({"prompt": text})).1["tokens"].clone();
    let lists: Vec<Value> = texts.iter().map(|text| tokens(text)).collect();
    let count: usize = lists.iter().map(|list| list.as_array().unwrap().len()).sum();
    assert_eq!(answer["usage"], json!({"prompt_tokens": count, "total_tokens": count}));

    // As tokens, alone, beside a chat, and more than fit at once: equal up to rounding of sums in another order.
    let question = chat("What is 348 + 276?");
    let chat_alone = server.post("/v1/chat/completions", &question).1;
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| server.post("/v1/chat/completions", &question).1);
        let same = |input: Value, expected: &[f64]| {
            let (status, answer) = server.post("/v1/embeddings", &json!({"input": input}));
            assert_eq!(status, 200, "{answer}");
            for found in embeddings(&answer) {
                assert!(product(&found, expected) > 0.99999, "{input}");
            }
        };
        same(json!(texts[0]), &found[0]);
        same(lists[2].clone(), &found[2]);
        same(json!(vec![&lists[1]; 300]), &found[1]);
        assert_eq!(content(&beside.join().unwrap()), content(&chat_alone));
    });

    let first: Vec<f64> = found[0][..16].to_vec();
    let length = product(&first, &first).sqrt();
    let mut fewer = request.clone();
    fewer["dimensions"] = 16.into();
    let (_, answer) = server.post("/v1/embeddings", &fewer);
    for (found, first) in embeddings(&answer)[0].iter().zip(first) {
        assert!((found - first / length).abs() < 1e-4);
    }
    for (field, value, why) in [
        ("dimensions", json!(0), "from 1 to"),
        ("dimensions", json!(100_000), "from 1 to"),
        ("encoding_format", json!("hex"), "base64"),
        ("input", json!([]), "no text"),
        ("input", json!([[]]), ""),
        ("input", json!([1_000_000]), "1000000"),
        ("input", json!({"text": "a"}), "neither a text nor tokens"),
        ("input", json!("word ".repeat(300)), "maximum context length is 256"),
        ("input", json!(vec!["a"; 2049]), "2048"),
    ] {
        let mut wrong = request.clone();
        wrong[field] = value;
        let (status, reply) = server.post("/v1/embeddings", &wrong);
        let message = reply["error"]["message"].as_str().expect("a message");
        assert!(status == 400 && message.contains(why), "{field}: {status} {reply}");
    }
    server.wait_for_metric("vllm:num_requests_running{model_name=\"demo\"} 0");
}

#[test]
fn ollama_clients_get_the_same_embeddings() {
    let server = Server::start(&["--ctx", "64"]);
    let texts = ["What is 12 + 30?", "Once upon a time"];
    let (_, expected) = server.post("/v1/embeddings", &json!({"input": texts}));
    let expected = embeddings(&expected);
    let (status, answer) = server.post("/api/embed", &json!({"model": "demo:latest", "input": texts}));
    assert_eq!(status, 200, "{answer}");
    let found: Vec<Vec<f64>> = answer["embeddings"].as_array().unwrap().iter().map(numbers).collect();
    assert_eq!(found.len(), 2);
    for (found, expected) in found.iter().zip(&expected) {
        assert!(product(found, expected) > 0.99999);
    }
    assert!(answer["prompt_eval_count"].as_u64().unwrap() > 8 && answer["total_duration"].is_u64());
    // The older endpoint does not normalise.
    let (_, old) = server.post("/api/embeddings", &json!({"model": "demo", "prompt": texts[0]}));
    let old = numbers(&old["embedding"]);
    let length = product(&old, &old).sqrt();
    assert!(
        product(&old, &expected[0]) / length > 0.99999 && (length - 1.0).abs() > 1e-3,
        "{length}"
    );
    // Long texts are truncated unless `truncate` is false.
    let long = "What is 12 + 30? ".repeat(40);
    assert_eq!(
        server.post("/api/embed", &json!({"input": long})).1["prompt_eval_count"],
        64
    );
    let (status, reply) = server.post("/api/embed", &json!({"input": long, "truncate": false}));
    assert!(
        status == 400 && reply["error"].as_str().unwrap().contains("context of 64"),
        "{reply}"
    );
    for nothing in [json!([]), json!(""), Value::Null] {
        assert_eq!(
            server.post("/api/embed", &json!({"input": nothing})).1["embeddings"],
            json!([])
        );
    }
    assert_eq!(
        server.post("/api/embeddings", &json!({"prompt": ""})).1["embedding"],
        json!([])
    );
}
