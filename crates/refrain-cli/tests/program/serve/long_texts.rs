//! Texts that no context can hold, and many of them at once.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Server;

const MEGABYTE: usize = 1 << 20;

fn words(bytes: usize) -> String {
    "fox key boat ".repeat(bytes / 13)
}

/// Asks `/health` until `stop` says so; returns the longest time it took.
fn slowest_health(server: &Server, stop: &dyn Fn() -> bool) -> Duration {
    let mut slowest = Duration::ZERO;
    while !stop() {
        let begin = Instant::now();
        assert_eq!(server.get("/health").0, 200);
        slowest = slowest.max(begin.elapsed());
        thread::sleep(Duration::from_millis(10));
    }
    slowest
}

#[test]
fn long_texts_are_refused_without_blocking_others() {
    let server = Server::start(&[]);
    let text = words(8 * MEGABYTE);
    let messages = json!([{"role": "user", "content": text}]);
    let bodies: Vec<(&str, Value)> = vec![
        ("/v1/completions", json!({"prompt": text})),
        ("/v1/chat/completions", json!({"messages": messages})),
        ("/v1/responses", json!({"input": text})),
        ("/v1/messages", json!({"messages": messages, "max_tokens": 1})),
        ("/v1/embeddings", json!({"input": [text]})),
        ("/api/generate", json!({"prompt": text, "raw": true})),
        ("/api/chat", json!({"messages": messages})),
        ("/tokenize", json!({"prompt": text})),
    ];
    let begin = Instant::now();
    let slowest = thread::scope(|scope| {
        let server = &server;
        let requests: Vec<_> = bodies
            .iter()
            .map(|(path, body)| scope.spawn(move || (path, server.post(path, body))))
            .collect();
        let slowest = slowest_health(server, &|| requests.iter().all(|request| request.is_finished()));
        for request in requests {
            let (path, (status, answer)) = request.join().unwrap();
            assert_eq!(status, 400, "{path}: {answer}");
        }
        slowest
    });
    // Generous, for busy machines: it took the time of all texts.
    assert!(slowest < Duration::from_secs(2), "/health took {slowest:?}");
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
}

#[test]
fn many_large_bodies_take_limited_memory() {
    let server = Server::start(&[]);
    let Some(before) = server.memory() else { return };
    let body = json!({"prompt": words(15 * MEGABYTE)}).to_string();
    let peak = thread::scope(|scope| {
        let requests: Vec<_> = (0..8)
            .map(|_| {
                let (server, body) = (&server, &body);
                scope.spawn(move || server.ask("POST", "/v1/completions", "", body).0)
            })
            .collect();
        let mut peak = before;
        while !requests.iter().all(|request| request.is_finished()) {
            peak = peak.max(server.memory().unwrap_or_default());
            thread::sleep(Duration::from_millis(10));
        }
        for request in requests {
            assert_eq!(request.join().unwrap(), 400);
        }
        peak
    });
    // KiB: the bodies themselves are 120 MiB, and tokenizing all of them would take 14 GiB.
    assert!(peak - before < 1 << 20, "{before} KiB, then {peak}");
    // The memory goes back to the system.
    refrain_testing::wait_until("memory is returned", || {
        server.memory().unwrap_or_default() < before + (48 << 10)
    });
}

#[test]
fn embeddings_of_long_texts_are_truncated_for_ollama() {
    let server = Server::start(&[]);
    let body = json!({"input": words(2 * MEGABYTE)});
    let (status, answer) = server.post("/api/embed", &body);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["prompt_eval_count"], 1024);
}

#[test]
fn a_full_queue_refuses_texts_before_they_are_tokenized() {
    let server = Server::start(&["--parallel", "1", "--queue", "1"]);
    let endless = json!({"prompt": "Once upon", "max_tokens": 900, "stream": true, "ignore_eos": true}).to_string();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        endless.len()
    );
    let streams = [(); 2].map(|()| {
        let mut stream = std::net::TcpStream::connect(&server.address).unwrap();
        stream.write_all(format!("{head}{endless}").as_bytes()).unwrap();
        stream
    });
    server.wait_for_metric("vllm:num_requests_waiting{model_name=\"demo\"} 1");
    let text = words(2 * MEGABYTE);
    for (path, body) in [
        ("/v1/completions", json!({"prompt": text})),
        (
            "/v1/chat/completions",
            json!({"messages": [{"role": "user", "content": text}]}),
        ),
        ("/v1/responses", json!({"input": text})),
        ("/v1/embeddings", json!({"input": text})),
        ("/api/generate", json!({"prompt": text, "raw": true})),
        ("/completion", json!({"prompt": text})),
    ] {
        let (status, refused) = server.post(path, &body);
        assert_eq!(status, 503, "{path}: {refused}");
    }
    // What is only counted needs no place in the queue.
    assert_eq!(server.post("/tokenize", &json!({"prompt": "fox"})).0, 200);
    drop(streams);
}
