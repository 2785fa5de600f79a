//! What is noted and said of each request, and what is checked before any.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use super::{Server, chat};
use crate::support::{Outcome, refrain, run};

#[test]
fn a_request_keeps_its_name_in_the_answer_and_in_the_log() {
    let mut server = Server::start_logging(&["--log"]);
    let mut log = BufReader::new(server.child.stderr.take().expect("piped")).lines();
    let mut line = || serde_json::from_str::<Value>(&log.next().expect("a line").expect("text")).expect("JSON");
    let body = chat("What is 12 + 30?");
    let (head, _) = server.exchange(
        "POST",
        "/v1/chat/completions",
        "x-request-id: mine-7\r\n",
        &body.to_string(),
    );
    assert!(head.contains("x-request-id: mine-7\r\n"), "{head}");
    let noted = line();
    assert_eq!(
        (&noted["id"], &noted["path"], &noted["status"], &noted["method"]),
        (
            &json!("mine-7"),
            &json!("/v1/chat/completions"),
            &json!(200),
            &json!("POST")
        )
    );
    assert!(
        noted["tokens"].as_u64() > Some(0) && noted["prompt_tokens"].as_u64() > Some(0),
        "{noted}"
    );
    assert!(noted["seconds"].as_f64() > Some(0.0), "{noted}");
    // A stream is over where it ends.
    let mut streamed = body.clone();
    streamed["stream"] = true.into();
    server.events("/v1/chat/completions", &streamed);
    let of_stream = line();
    assert_eq!(of_stream["tokens"], noted["tokens"]);
    // A name that would break the log is not kept, one that is missing is made.
    for given in ["", "x-request-id: a b\r\n"] {
        let (head, _) = server.exchange("GET", "/nothing", given, "");
        let id = head
            .lines()
            .find_map(|line| line.strip_prefix("x-request-id: "))
            .expect(&head);
        assert!(id.starts_with("req-"), "{head}");
        let noted = line();
        assert_eq!((&noted["id"], &noted["status"]), (&json!(id), &json!(404)));
    }
}

#[test]
fn pages_from_elsewhere_may_ask_where_their_origin_is_named() {
    let server = Server::start(&["--cors", "https://example.org", "--api-key", "SECRET"]);
    let asks = "access-control-request-method: POST\r\naccess-control-request-headers: authorization\r\n";
    let known = "origin: https://example.org\r\n";
    let (head, _) = server.exchange("OPTIONS", "/v1/chat/completions", &format!("{known}{asks}"), "");
    assert!(head.starts_with("HTTP/1.1 204"), "{head}");
    for said in [
        "access-control-allow-origin: https://example.org\r\n",
        "access-control-allow-headers: authorization\r\n",
        "access-control-allow-methods: GET, POST\r\n",
    ] {
        assert!(head.contains(said), "{head}");
    }
    let (head, _) = server.exchange("GET", "/v1/models", known, "");
    assert!(
        head.starts_with("HTTP/1.1 401") && head.contains("access-control-allow-origin"),
        "{head}"
    );
    let (head, _) = server.exchange("GET", "/health", "origin: https://example.com\r\n", "");
    assert!(!head.contains("access-control"), "{head}");
    let refused = run(&["serve", "demo", "--cors", "example.org/path"]);
    assert!(refused.stderr.contains("https://example.org"), "{}", refused.stderr);
}

#[test]
fn an_empty_key_is_none_and_localhost_is_an_address() {
    run(&["serve", "demo", "--api-key", ""]).failed(2, &["keeps nobody out"]);
    let output = refrain(&["serve", "demo"]).env("REFRAIN_API_KEY", "").output();
    Outcome::from(output.unwrap()).failed(2, &["--api-key", "keeps nobody out"]);
    let server = Server::start(&["--host", "localhost"]);
    assert!(server.address.starts_with("127.0.0.1:"), "{}", server.address);
}

#[test]
fn the_page_asks_for_no_key_and_lets_nothing_in() {
    let server = Server::start(&["--api-key", "SECRET"]);
    let (head, page) = server.exchange("GET", "/", "", "");
    assert!(
        head.starts_with("HTTP/1.1 200") && page.contains("page/main.js"),
        "{head}"
    );
    assert!(
        head.contains("content-security-policy: default-src 'none'; script-src 'self'"),
        "{head}"
    );
    assert_eq!(server.get("/page/main.js").0, 200);
    assert_eq!(server.get("/page/../secret").0, 404);
    assert_eq!(server.ask("POST", "/render", "", "{\"text\": \"a\"}").0, 401);
}

#[test]
fn a_model_without_a_tokenizer_is_refused_before_its_weights_are_read() {
    let mut command = refrain(&["serve", "synthetic:qwen3-8b:q4_0", "--device", "cpu", "--port", "0"]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let begin = std::time::Instant::now();
    let outcome = child.wait_with_output().expect("ends");
    let said = String::from_utf8_lossy(&outcome.stderr);
    assert!(!outcome.status.success() && said.contains("tokenizer"), "{said}");
    assert!(begin.elapsed().as_secs() < 20, "{:?}", begin.elapsed());
}

#[test]
fn figures_tell_how_long_requests_took() {
    let server = Server::start(&[]);
    server.post("/v1/chat/completions", &chat("What is 12 + 30?"));
    let figures = server.get("/metrics").1;
    for line in [
        "vllm:time_to_first_token_seconds_count{model_name=\"demo\"} 1",
        "vllm:e2e_request_latency_seconds_bucket{model_name=\"demo\",le=\"+Inf\"} 1",
    ] {
        assert!(figures.lines().any(|found| found == line), "{figures}");
    }
    let read = figures
        .lines()
        .find_map(|line| line.strip_prefix("refrain:weight_bytes_read_total{model_name=\"demo\"} "));
    assert!(read.and_then(|read| read.parse::<f64>().ok()) > Some(1e6), "{figures}");
}
