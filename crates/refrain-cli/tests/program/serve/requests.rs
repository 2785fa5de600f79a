//! Request ids, logs, CORS, keys and metrics.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use super::{Server, chat};
use crate::support::{Outcome, refrain, run};

#[test]
fn request_id_is_in_response_and_log() {
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
    // The same in the names of OpenTelemetry.
    for (name, expected) in [
        ("http.response.status_code", json!(200)),
        ("url.path", json!("/v1/chat/completions")),
        ("gen_ai.operation.name", json!("chat")),
        ("gen_ai.request.model", json!("demo")),
        ("gen_ai.response.model", json!("demo")),
        ("gen_ai.usage.input_tokens", noted["prompt_tokens"].clone()),
        ("gen_ai.usage.output_tokens", noted["tokens"].clone()),
        ("gen_ai.usage.cache_read.input_tokens", json!(0)),
        ("gen_ai.response.finish_reasons", json!(["stop"])),
    ] {
        assert_eq!(noted[name], expected, "{name}: {noted}");
    }
    assert!(
        noted["gen_ai.server.time_to_first_token"].as_f64() > Some(0.0),
        "{noted}"
    );
    // A stream is logged when it ends.
    let mut streamed = body.clone();
    streamed["stream"] = true.into();
    server.events("/v1/chat/completions", &streamed);
    let of_stream = line();
    assert_eq!(of_stream["tokens"], noted["tokens"]);
    // An invalid request id is replaced, a missing one is created.
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
fn cors_allows_only_configured_origins() {
    let server = Server::start(&["--cors", "https://example.org", "--api-key", "SECRET"]);
    let asks = "access-control-request-method: POST\r\naccess-control-request-headers: authorization\r\n";
    let known = "origin: https://example.org\r\n";
    let (head, _) = server.exchange("OPTIONS", "/v1/chat/completions", &format!("{known}{asks}"), "");
    assert!(head.starts_with("HTTP/1.1 204"), "{head}");
    for reply in [
        "access-control-allow-origin: https://example.org\r\n",
        "access-control-allow-headers: authorization\r\n",
        "access-control-allow-methods: GET, POST\r\n",
    ] {
        assert!(head.contains(reply), "{head}");
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
fn rejects_an_empty_key_and_accepts_localhost() {
    run(&["serve", "demo", "--api-key", ""]).failed(2, &["protects nothing"]);
    let output = refrain(&["serve", "demo"]).env("REFRAIN_API_KEY", "").output();
    Outcome::from(output.unwrap()).failed(2, &["--api-key", "protects nothing"]);
    let server = Server::start(&["--host", "localhost"]);
    assert!(server.address.starts_with("127.0.0.1:"), "{}", server.address);
}

#[test]
fn page_needs_no_key_and_has_a_strict_content_policy() {
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
fn rejects_a_model_without_tokenizer_before_loading() {
    let mut command = refrain(&["serve", "synthetic:qwen3-8b:q4_0", "--device", "cpu", "--port", "0"]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let begin = std::time::Instant::now();
    let outcome = child.wait_with_output().expect("ends");
    let reply = String::from_utf8_lossy(&outcome.stderr);
    assert!(!outcome.status.success() && reply.contains("tokenizer"), "{reply}");
    // Generous, for busy machines: generating the weights takes minutes.
    assert!(begin.elapsed().as_secs() < 120, "{:?}", begin.elapsed());
}

#[test]
fn metrics_have_request_latencies() {
    let server = Server::start(&[]);
    server.post("/v1/chat/completions", &chat("What is 12 + 30?"));
    let metrics = server.get("/metrics").1;
    for line in [
        "vllm:time_to_first_token_seconds_count{model_name=\"demo\"} 1",
        "vllm:e2e_request_latency_seconds_bucket{model_name=\"demo\",le=\"+Inf\"} 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{metrics}");
    }
    let read = metrics
        .lines()
        .find_map(|line| line.strip_prefix("refrain:weight_bytes_read_total{model_name=\"demo\"} "));
    assert!(read.and_then(|read| read.parse::<f64>().ok()) > Some(1e6), "{metrics}");
}
