//! Short load tests; `bench/load.py` runs longer ones.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use refrain_testing::share;
use serde_json::json;

use super::{Server, chat, content};

impl Server {
    /// Private memory in KiB; `None` if the system does not report it.
    pub(super) fn memory(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        line.split_whitespace().next()?.parse().ok()
    }
}

/// The text of a streamed response.
fn streamed(server: &Server, question: &str) -> String {
    let mut body = chat(question);
    body["stream"] = true.into();
    let events = server.events("/v1/chat/completions", &body);
    let texts = events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str());
    texts.collect()
}

#[test]
fn parallel_streams_are_correct_and_memory_stays_constant() {
    if !refrain_testing::drawn(24) {
        return;
    }
    let server = Server::start(&["--parallel", "16"]);
    let questions: Vec<String> = (0..8)
        .map(|n| format!("What is {} + {}?", 31 * n + 4, 17 * n + 9))
        .collect();
    let alone: Vec<String> = questions
        .iter()
        .map(|question| content(&server.post("/v1/chat/completions", &chat(question)).1).to_owned())
        .collect();
    let round = |seconds: usize| {
        let begin = Instant::now();
        thread::scope(|scope| {
            for first in 0..64 {
                let (server, questions, alone) = (&server, &questions, &alone);
                scope.spawn(move || {
                    let mut number = first;
                    while number == first || begin.elapsed() < Duration::from_secs(seconds as u64) {
                        let one = number % questions.len();
                        assert_eq!(streamed(server, &questions[one]), alone[one], "{}", questions[one]);
                        number += 1;
                    }
                });
            }
        });
        server.memory()
    };
    if let Some((steady, end)) = round(share(2, 2)).zip(round(share(4, 2))) {
        assert!(end as f64 <= 1.05 * steady as f64 + 2048.0, "{steady} KiB, then {end}");
    }
}

#[test]
fn slow_clients_cost_little_memory_and_do_not_block_others() {
    if !refrain_testing::drawn(24) {
        return;
    }
    const EACH: usize = 200;
    let server = Server::start(&["--parallel", "16", "--queue", "400"]);
    let question = "What is 12 + 30?";
    let alone = streamed(&server, question);
    let before = server.memory();
    let body = json!({"prompt": "Once upon", "max_tokens": 32, "stream": true, "ignore_eos": true}).to_string();
    let length = body.len();
    let whole = format!("POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}");
    let open = |text: &str| {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    };
    let mut slow: Vec<TcpStream> = (0..EACH).map(|_| open(&whole)).collect();
    let half: Vec<TcpStream> = (0..EACH).map(|_| open(&whole[..whole.len() / 2])).collect();
    assert_eq!(streamed(&server, question), alone);
    if let Some((before, after)) = before.zip(server.memory()) {
        let each = after.saturating_sub(before) / (2 * EACH) as u64;
        assert!(each <= 64, "{each} KiB of each");
    }
    // A client that reads late still gets everything.
    let last = slow.last_mut().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut text = vec![];
    let mut piece = [0; 4096];
    while !text.windows(6).any(|end| end == b"[DONE]") {
        let read = last.read(&mut piece).expect("goes on");
        assert!(read > 0, "{}", String::from_utf8_lossy(&text));
        text.extend(&piece[..read]);
    }
    drop(half);
}
