//! Slow clients, large bodies, Unix sockets and fairness.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::Server;
use crate::support::{refrain, run};

/// Reads the rest of a response; returns it and the time it took.
fn rest(mut stream: TcpStream) -> (String, Duration) {
    let begin = Instant::now();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut text = vec![];
    match stream.read_to_end(&mut text) {
        Err(why) if why.kind() != ErrorKind::ConnectionReset => panic!("{why}"),
        _ => (String::from_utf8_lossy(&text).into_owned(), begin.elapsed()),
    }
}

#[test]
fn closes_connections_with_unfinished_requests() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let server = Server::start(&["--timeout", "1"]);
    let begun = |text: &str| {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    };
    let silent = begun("");
    let half = begun("POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n");
    let bodiless = begun("POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{\"mess");
    let idle = begun("GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert_eq!(server.get("/health").0, 200, "other clients are served meanwhile");
    for (stream, reply) in [
        (silent, ""),
        (half, ""),
        (bodiless, "HTTP/1.1 408"),
        (idle, "HTTP/1.1 200"),
    ] {
        let (text, took) = rest(stream);
        assert!(
            text.starts_with(reply) && took < Duration::from_secs(20),
            "{took:?}: {text}"
        );
    }
}

#[test]
fn an_answer_to_a_body_that_is_not_read_ends_the_connection() {
    let server = Server::start(&["--api-key", "SECRET"]);
    // The head alone: clients send bodies behind it.
    let answer = |head: &str, body: &str| {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        let head =
            format!("{head} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer SECRET\r\ncontent-length: 20\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let lines = BufReader::new(stream).lines().map_while(Result::ok);
        let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        let is_closed = head.iter().any(|line| line.eq_ignore_ascii_case("connection: close"));
        (head[0].clone(), is_closed)
    };
    for (head, status) in [
        ("DELETE /api/delete", "403"),
        ("POST /nowhere", "404"),
        ("GET /rerank", "405"),
    ] {
        let (line, is_closed) = answer(head, "");
        assert!(line.contains(status) && is_closed, "{head}: {line}");
    }
    let (line, is_closed) = answer("POST /tokenize", r#"{"prompt": "ab cde"}"#);
    assert!(line.contains("200") && !is_closed, "{line}");
}

#[test]
fn unfinished_bodies_take_limited_memory() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let server = Server::start(&[]);
    let body = format!("{{\"prompt\": \"{}", "x".repeat(15 << 20));
    let head =
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 16000000\r\n\r\n";
    let mut open: Vec<(TcpStream, bool)> = (0..20)
        .map(|_| {
            let mut stream = TcpStream::connect(&server.address).unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            let sent = stream
                .write_all(head.as_bytes())
                .and_then(|()| stream.write_all(body.as_bytes()));
            (stream, sent.is_ok())
        })
        .collect();
    let is_refused = |(stream, sent): &mut (TcpStream, bool)| {
        let mut reply = [0; 12];
        !*sent || stream.read_exact(&mut reply).is_ok() && reply.ends_with(b"503")
    };
    let refused = open.iter_mut().map(is_refused).filter(|refused| *refused).count();
    assert!((1..=4).contains(&refused), "{refused}");
    assert_eq!(server.get("/health").0, 200);
    drop(open);
    let (status, _) = server.post("/v1/completions", &json!({"prompt": "a", "max_tokens": 1}));
    assert_eq!(status, 200, "freed memory is available again");
}

#[test]
fn closes_connections_of_clients_that_do_not_read() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let server = Server::start(&["--timeout", "1"]);
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    // More than the system buffers for a client that does not read.
    let request = 4000;
    let requests = "GET /page/markdown.js HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(request);
    let _ = stream.write_all(requests.as_bytes());
    thread::sleep(Duration::from_secs(3));
    let (text, took) = rest(stream);
    let answers = text.matches("HTTP/1.1 200").count();
    assert!(
        answers < request && took < Duration::from_secs(20),
        "{answers} in {took:?}"
    );
    assert_eq!(server.get("/health").0, 200);
}

#[test]
fn serves_on_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("refrain.sock");
    let host = format!("unix:{}", path.display());
    // A socket file left by a killed server does not matter.
    drop(UnixListener::bind(&path).unwrap());
    let start = || {
        let mut command = refrain(&["serve", "demo", "--host", &host, "--device", "cpu", "-q"]);
        command.stdout(Stdio::piped()).spawn().expect("starts")
    };
    let mut server = start();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, format!("listening on {host}\n"));
    let mut stream = UnixStream::connect(&path).unwrap();
    stream
        .write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    run(&["serve", "demo", "--host", &host]).failed(1, &["refrain.sock", "another server"]);
    let id = server.id().to_string();
    Command::new("kill").args(["-TERM", &id]).status().unwrap();
    assert!(server.wait().unwrap().success());
    assert!(!path.exists(), "the server removes its socket");
}

#[test]
fn api_keys_are_served_fairly() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let server = Server::start(&["--parallel", "1", "--api-key", "MUCH", "--api-key", "LITTLE"]);
    let ask = |key: &str| {
        let body = json!({"prompt": "Once upon", "max_tokens": 60, "temperature": 0, "ignore_eos": true}).to_string();
        let header = format!("authorization: Bearer {key}\r\n");
        let (status, answer) = server.ask("POST", "/v1/completions", &header, &body);
        assert_eq!(status, 200, "{answer}");
        Instant::now()
    };
    // At some time all but one or two of them wait.
    let most_wait = || {
        let (_, metrics) = server.ask("GET", "/metrics", "authorization: Bearer MUCH\r\n", "");
        [6, 7]
            .iter()
            .any(|count| metrics.contains(&format!("num_requests_waiting{{model_name=\"demo\"}} {count}\n")))
    };
    thread::scope(|scope| {
        let much: Vec<_> = (0..8).map(|_| scope.spawn(|| ask("MUCH"))).collect();
        refrain_testing::wait_until("six requests wait", most_wait);
        let little = scope.spawn(|| ask("LITTLE")).join().unwrap();
        let later = much
            .into_iter()
            .map(|one| one.join().unwrap())
            .filter(|end| *end > little);
        assert!(
            later.count() >= 3,
            "one request of a key does not wait for all earlier ones of another key"
        );
    });
}
