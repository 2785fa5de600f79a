//! Fuzzing with malformed requests.

mod bodies;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use refrain_testing::sample;
use serde_json::{Value, json};

use bodies::bodies;

use super::{Server, chat, content};

/// The error format of an API.
#[derive(Debug, Clone, Copy)]
enum ErrorForm {
    OpenAi,
    Anthropic,
    Ollama,
}

use ErrorForm::{Anthropic, Ollama, OpenAi};

impl ErrorForm {
    fn matches(self, reply: &Value) -> bool {
        match self {
            OpenAi => reply["error"]["message"].is_string() && reply["error"]["type"].is_string(),
            Anthropic => reply["type"] == "error" && reply["error"]["message"].is_string(),
            Ollama => reply["error"].is_string(),
        }
    }
}

/// JSON of all types, and invalid JSON, to replace fields with.
fn fragments() -> Vec<Vec<u8>> {
    let mut fragments: Vec<Vec<u8>> = [
        "null",
        "true",
        "\"\"",
        "\"x\"",
        "[]",
        "{}",
        "[null]",
        "[[]]",
        "[7]",
        "[\"x\"]",
        "[{}]",
        "{\"x\": {\"y\": []}}",
        "0",
        "-1",
        "1.5",
        "4294967296",
        "18446744073709551616",
        "-9223372036854775809",
        "1e39",
        "-1e308",
        "1e999",
        "NaN",
        "-Infinity",
        "\"\\u0000\"",
        "\"\\ud800\"",
        "\"<|im_end|>\"",
        "\"{{ 7 }}\"",
        "\"((\"",
        "undefined",
        "",
    ]
    .map(Into::into)
    .to_vec();
    fragments.extend([b"\"\xff\"".to_vec(), b"\"\xe2\x82\"".to_vec(), b"\xf8".to_vec()]);
    for (open, close, deep) in [("[", "]", 110), ("[", "]", 20_000), ("{\"items\":", "}", 110)] {
        fragments.push(format!("{}7{}", open.repeat(deep), close.repeat(deep)).into());
    }
    for text in ["x", "{", "(", "$", "\\\\", ">", "é"] {
        fragments.push(format!("\"{}\"", text.repeat(3000)).into());
    }
    fragments
}

/// Deterministic pseudo-random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// The JSON pointers of all values in a body.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    let within: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), value)).collect(),
        Value::Array(items) => (items.iter().enumerate())
            .map(|(index, value)| (index.to_string(), value))
            .collect(),
        _ => vec![],
    };
    for (name, value) in within {
        let pointer = format!("{at}/{name}");
        pointers(value, &pointer, found);
        found.push(pointer);
    }
}

fn replaced(body: &Value, pointer: &str, fragment: &[u8]) -> Vec<u8> {
    const MARK: &str = "the fragment stands here";
    let mut body = body.clone();
    *body.pointer_mut(pointer).unwrap() = MARK.into();
    let text = body.to_string();
    let (before, after) = text.split_once(&format!("\"{MARK}\"")).unwrap();
    [before.as_bytes(), fragment, after.as_bytes()].concat()
}

fn removed(body: &Value, pointer: &str) -> Vec<u8> {
    let mut body = body.clone();
    let (within, name) = pointer.rsplit_once('/').unwrap();
    match body.pointer_mut(within).unwrap() {
        Value::Object(fields) => drop(fields.remove(name)),
        Value::Array(items) => drop(items.remove(name.parse().unwrap())),
        _ => unreachable!("nothing is within"),
    }
    body.to_string().into()
}

/// Bodies that are damaged as a whole.
fn damaged(body: &Value, random: &mut Random) -> Vec<Vec<u8>> {
    let text = body.to_string().into_bytes();
    let mut all = vec![vec![], b"\xef\xbb\xbf{}".to_vec(), vec![0; 64], b"a=b&c=d".to_vec()];
    let fragments = fragments();
    all.extend((0..10).map(|_| fragments[random.below(fragments.len())].clone()));
    for behind in ["}", "x", "\0", "{}", ",", "\u{feff}"] {
        all.push([&text, behind.as_bytes()].concat());
    }
    for _ in 0..6 {
        all.push(text[..random.below(text.len())].to_vec());
        let mut flipped = text.clone();
        let position = random.below(text.len());
        flipped[position] = random.below(256) as u8;
        all.push(flipped);
    }
    let twice = String::from_utf8(text[..text.len() - 1].to_vec()).unwrap();
    all.push(format!("{twice},{}", &body.to_string()[1..]).into());
    all
}

/// A malformed request and the expected error format.
struct Malformed {
    head: String,
    body: Vec<u8>,
    form: ErrorForm,
}

impl Malformed {
    fn new(method: &str, path: &str, headers: &str, body: Vec<u8>, form: ErrorForm) -> Malformed {
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n"
        );
        Malformed { head, body, form }
    }

    /// What is wrong with the response, if anything.
    fn fault(&self, server: &Server) -> Option<String> {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let _ = stream.write_all(&[self.head.as_bytes(), &self.body].concat());
        let mut answer = vec![];
        let received = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        let status: Option<u16> = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        let reply = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let is_fine = match status {
            Some(200..300) => true,
            // Responses to HEAD have no body.
            Some(400..500) if self.head.starts_with("HEAD ") => true,
            Some(400..500) => serde_json::from_str(reply).is_ok_and(|reply| self.form.matches(&reply)),
            _ => false,
        };
        let body = String::from_utf8_lossy(&self.body);
        let short: String = body.chars().take(1500).collect();
        (!is_fine || received.is_err()).then(|| format!("{}{short}\n=> {received:?} {answer}", self.head))
    }
}

fn all_malformed() -> Vec<Malformed> {
    let (mut random, mut all) = (Random(7), vec![]);
    let fragments = fragments();
    for (path, form, body) in bodies() {
        let mut post = |headers: &str, body| all.push(Malformed::new("POST", path, headers, body, form));
        let mut found = vec![];
        pointers(&body, "", &mut found);
        for pointer in found {
            post("", removed(&body, &pointer));
            for _ in 0..2 {
                post("", replaced(&body, &pointer, &fragments[random.below(fragments.len())]));
            }
        }
        for body in damaged(&body, &mut random) {
            post("", body);
        }
        for headers in [
            "content-type: text/plain\r\n",
            "content-type: multipart/form-data\r\n",
            "content-encoding: gzip\r\n",
            "accept: image/png\r\n",
        ] {
            post(headers, body.to_string().into());
        }
        for method in ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"] {
            all.push(Malformed::new(method, path, "", vec![], form));
        }
    }
    for (path, form) in [
        ("/v1/messages/nothing", Anthropic),
        ("/api/nothing", Ollama),
        ("/v1/nothing", OpenAi),
        ("/v1/models/%ff", OpenAi),
        ("/page/%ff", OpenAi),
    ] {
        all.push(Malformed::new("GET", path, "", vec![], form));
    }
    all
}

#[test]
fn rejects_malformed_requests_in_each_apis_error_format() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let mut server = Server::start_logging(&["--ctx", "256"]);
    let question = chat("What is 12 + 30?");
    let answer = content(&server.post("/v1/chat/completions", &question).1).to_owned();
    for (path, form, body) in bodies() {
        let whole = Malformed::new("POST", path, "", body.to_string().into(), form);
        let (status, reply) = server.ask("POST", path, "", &body.to_string());
        assert_eq!(status, 200, "{path}: {reply}");
        assert_eq!(whole.fault(&server), None);
    }
    let all = sample(all_malformed(), 12);
    let (next, faults) = (AtomicUsize::new(0), Mutex::new(vec![]));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    faults.lock().unwrap().extend(one.fault(&server));
                }
            });
        }
    });
    let faults = faults.into_inner().unwrap();
    assert!(
        faults.is_empty(),
        "{} of {}: {:.20000}",
        faults.len(),
        all.len(),
        faults.join("\n\n")
    );
    assert_eq!(content(&server.post("/v1/chat/completions", &question).1), answer);
    let mut errors = server.child.stderr.take().expect("piped");
    drop(server);
    let mut reply = String::new();
    errors.read_to_string(&mut reply).unwrap();
    assert_eq!(reply, "", "the server logged no errors");
}

#[test]
fn rejects_grammars_that_exceed_limits() {
    let server = Server::start(&["--ctx", "256"]);
    let chained = |name: &str| {
        let rules: Vec<String> = (0..5000)
            .map(|rule| format!("{name}{rule}: {name}{}", rule + 1))
            .collect();
        format!("start: {name}0\n{}\n{name}5000: \"a\"", rules.join("\n"))
    };
    let deep = |open: &str, close: &str| format!("start: {}\"a\"{}", open.repeat(50_000), close.repeat(50_000));
    let nested = (0..60).fold(json!(true), |inner, _| json!({"not": inner}));
    for (field, value) in [
        ("grammar", json!(deep("(", ")"))),
        ("grammar", json!(deep("[", ""))),
        ("grammar", json!(chained("r"))),
        ("grammar", json!(chained("T"))),
        ("guided_regex", json!("(".repeat(50_000))),
        ("guided_regex", json!("((((a{1000}){1000}){1000}){1000})")),
        ("guided_json", nested),
        ("guided_json", json!({"type": "string", "minLength": 4_000_000_000u64})),
        ("guided_json", json!({"type": "array", "minItems": 1_000_000_000})),
    ] {
        let mut request = json!({"prompt": "a", "max_tokens": 1});
        request[field] = value;
        let text = request.to_string();
        let fault = Malformed::new("POST", "/v1/completions", "", text.into(), OpenAi).fault(&server);
        assert_eq!(fault, None);
    }
    assert_eq!(
        server
            .post("/v1/completions", &json!({"prompt": "a", "max_tokens": 1}))
            .0,
        200
    );
}
