//! Web pages of other sites, hosts, keys, and connections that are half-closed or refused.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Server;
use crate::support::{refrain, run};

/// Sends bytes and returns the response.
fn send(server: &Server, request: &str) -> String {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

/// A request to tokenize, with these headers.
fn tokenize(version: &str, headers: &str) -> String {
    let body = "{\"prompt\": \"a\"}";
    let length = body.len();
    format!("POST /tokenize HTTP/{version}\r\n{headers}connection: close\r\ncontent-length: {length}\r\n\r\n{body}")
}

fn status(response: &str) -> u16 {
    let status = response.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.unwrap_or_else(|| panic!("no status: {response:?}"))
}

#[test]
fn web_pages_of_other_sites_are_refused() {
    let server = Server::start(&[]);
    let own = format!("host: {}\r\n", server.address);
    let status = |headers: &str| status(&send(&server, &tokenize("1.1", headers)));
    let with = |headers: &str| status(&format!("{own}{headers}"));
    assert_eq!(with(""), 200);
    assert_eq!(
        with("content-type: application/x-www-form-urlencoded\r\n"),
        200,
        "curl -d"
    );
    assert_eq!(
        with(&format!(
            "origin: http://{}\r\nsec-fetch-site: same-origin\r\n",
            server.address
        )),
        200
    );
    for headers in [
        "origin: https://example.org\r\ncontent-type: text/plain\r\n",
        "origin: https://example.org\r\nsec-fetch-site: cross-site\r\n",
        "origin: null\r\n",
        "origin: http://localhost:3000\r\n",
        "sec-fetch-site: cross-site\r\nsec-fetch-mode: no-cors\r\n",
    ] {
        assert_eq!(with(headers), 403, "{headers}");
    }
    // A page whose name resolves to this computer is of the same origin.
    assert_eq!(status("host: example.org\r\norigin: http://example.org\r\n"), 403);
    assert_eq!(status("host: example.org\r\n"), 403);
    let (port, link) = (
        server.address.rsplit(':').next().unwrap(),
        "GET http://example.org/health HTTP/1.1\r\n",
    );
    assert_eq!(status(&format!("host: localhost:{port}\r\n")), 200);
    assert_eq!(status(&format!("host: [::1]:{port}\r\n")), 200);
    assert_eq!(
        self::status(&send(&server, &format!("{link}{own}connection: close\r\n\r\n"))),
        403
    );
    let link = "sec-fetch-site: cross-site\r\nsec-fetch-mode: navigate\r\n";
    let page = format!("GET / HTTP/1.1\r\n{own}{link}connection: close\r\n\r\n");
    assert_eq!(self::status(&send(&server, &page)), 200, "a link opens the page");
    let response = send(&server, &tokenize("1.1", "host: example.org\r\n"));
    assert!(response.contains("allow that host name"), "{response}");
}

#[test]
fn hosts_and_origins_can_be_allowed() {
    let server = Server::start(&["--allowed-host", "gpu.lan", "--cors", "https://example.org"]);
    let status = |headers: &str| status(&send(&server, &tokenize("1.1", headers)));
    assert_eq!(status("host: gpu.lan:8080\r\n"), 200);
    assert_eq!(status("host: example.org\r\norigin: https://example.org\r\n"), 200);
    assert_eq!(status("host: localhost\r\norigin: https://example.com\r\n"), 403);
    assert_eq!(status("host: other.lan\r\n"), 403);
    let keyed = Server::start(&["--api-key", "SECRET"]);
    let headers = "host: example.org\r\norigin: https://example.com\r\nauthorization: bearer SECRET\r\n";
    assert_eq!(
        self::status(&send(&keyed, &tokenize("1.1", headers))),
        200,
        "pages do not know the key"
    );
    run(&["serve", "demo", "--allowed-host", "http://x"]).failed(2, &["--allowed-host"]);
}

#[test]
fn requests_need_exactly_one_host() {
    let server = Server::start(&[]);
    for (version, headers, expected) in [
        ("1.1", "", 400),
        ("1.1", "host: localhost\r\nhost: localhost\r\n", 400),
        ("1.1", "host: localhost\r\n", 200),
        ("1.0", "", 200),
    ] {
        assert_eq!(
            status(&send(&server, &tokenize(version, headers))),
            expected,
            "{version} {headers}"
        );
    }
}

#[test]
fn keys_come_from_a_file_and_models_are_not_shown_without_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    std::fs::write(&file, "# THREE\nONE\n\n  TWO \n").unwrap();
    let server = Server::start(&["--api-key-file", file.to_str().unwrap()]);
    let (head, _) = server.exchange("GET", "/v1/models", "", "");
    assert!(
        head.starts_with("HTTP/1.1 401") && head.contains("www-authenticate: Bearer"),
        "{head}"
    );
    for header in ["authorization: bearer ONE\r\n", "x-api-key: TWO\r\n"] {
        assert_eq!(server.ask("GET", "/v1/models", header, "").0, 200);
        let health: Value = serde_json::from_str(&server.ask("GET", "/health", header, "").1).unwrap();
        assert_eq!(health, json!({"status": "ok", "models": {"demo": "ok"}}));
    }
    let comment = server.ask("GET", "/v1/models", "authorization: Bearer # THREE\r\n", "");
    assert_eq!(comment.0, 401, "comments are no keys");
    let health: Value = serde_json::from_str(&server.get("/health").1).unwrap();
    assert_eq!(health, json!({"status": "ok"}));
    std::fs::write(&file, "#\n").unwrap();
    run(&["serve", "demo", "--api-key-file", file.to_str().unwrap()]).failed(1, &["no keys"]);
}

#[test]
fn half_closed_clients_get_their_response() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let server = Server::start(&[]);
    let ask = |body: Value| {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let body = body.to_string();
        let length = body.len();
        let head = format!("POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    };
    let response = ask(json!({"prompt": "a", "max_tokens": 1}));
    assert!(response.contains("text_completion"), "{response}");
    let long = json!({"prompt": "a", "max_tokens": 900, "ignore_eos": true});
    let response = ask(long);
    assert!(
        response.contains("HTTP/1.1 200") && response.contains("text_completion"),
        "{response}"
    );
    let response = ask(json!({"prompt": "a", "max_tokens": 3, "stream": true}));
    assert!(response.contains("[DONE]"), "{response}");
}

#[test]
fn clients_that_leave_are_noticed_at_once() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let server = Server::start(&["--parallel", "1"]);
    let metric = |name: &str| {
        let metrics = server.get("/metrics").1;
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix(&format!("vllm:{name}{{model_name=\"demo\"}} ")));
        line.and_then(|value| value.parse::<f64>().ok()).expect(&metrics)
    };
    let busy = || metric("num_requests_running") + metric("num_requests_waiting");
    let messages = json!([{"role": "user", "content": "Tell me a story."}]);
    for (path, mut body) in [
        ("/v1/completions", json!({"prompt": "a", "ignore_eos": true})),
        (
            "/v1/chat/completions",
            json!({"messages": messages, "ignore_eos": true}),
        ),
        (
            "/v1/responses",
            json!({"input": "Tell me a story.", "ignore_eos": true}),
        ),
        ("/v1/messages", json!({"messages": messages, "max_tokens": 1000})),
        ("/api/chat", json!({"messages": messages})),
        ("/api/generate", json!({"prompt": "a", "raw": true})),
    ] {
        for stream in [false, true] {
            body["stream"] = stream.into();
            let body = body.to_string();
            let length = body.len();
            let open = || {
                let mut stream = TcpStream::connect(&server.address).unwrap();
                let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n");
                stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
                stream
            };
            // One is computed, the others wait.
            let clients: Vec<TcpStream> = (0..4).map(|_| open()).collect();
            thread::sleep(Duration::from_millis(100));
            drop(clients);
            let left = Instant::now();
            while busy() > 0.0 {
                assert!(left.elapsed() < Duration::from_secs(3), "{path}, stream {stream}");
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

#[test]
fn a_stopping_server_refuses_connections() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let mut server = Server::start(&[]);
    let body = json!({"prompt": "a", "max_tokens": 900, "ignore_eos": true, "stream": true}).to_string();
    let mut running = TcpStream::connect(&server.address).unwrap();
    let length = body.len();
    write!(
        running,
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    running.read_exact(&mut [0; 16]).unwrap();
    let id = server.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let signalled = Instant::now();
    while TcpStream::connect(&server.address).is_ok() {
        assert!(
            signalled.elapsed() < Duration::from_secs(1),
            "new connections are accepted"
        );
        assert!(server.child.try_wait().unwrap().is_none());
    }
    let mut rest = String::new();
    running.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("[DONE]"), "{rest}");
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn a_unix_socket_is_for_its_owner() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("refrain.sock");
    let mut command = refrain(&[
        "serve",
        "demo",
        "--host",
        &format!("unix:{}", path.display()),
        "--device",
        "cpu",
    ]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    refrain_testing::wait_until("the socket is there", || path.exists());
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    child.kill().unwrap();
    child.wait().unwrap();
}
