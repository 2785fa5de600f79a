//! `refrain serve` over HTTP.

mod anthropic;
mod calls;
mod clients;
mod connections;
mod downloads;
mod echo;
mod embeddings;
mod fill;
mod load;
mod logprobs;
mod long_texts;
mod malformed;
mod multiple_models;
mod ollama;
mod openai;
mod other_servers;
mod prefixes;
mod ps_stop_top;
mod requests;
mod responses;
mod security;
mod speculation;
mod structured_output;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::{Value, json};

use super::support::{refrain, run};

/// A running server; dropping it kills it.
pub struct Server {
    child: Child,
    pub address: String,
}

impl Server {
    pub fn start(arguments: &[&str]) -> Server {
        Server::of(refrain(
            &[&["serve", "demo", "--port", "0", "--device", "cpu", "-q"], arguments].concat(),
        ))
    }

    /// A server whose standard error can be read.
    fn start_logging(arguments: &[&str]) -> Server {
        let mut command = refrain(&[&["serve", "demo", "--port", "0", "--device", "cpu", "-q"], arguments].concat());
        command.stderr(Stdio::piped());
        Server::of(command)
    }

    pub fn of(mut command: Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let (_, address) = line
            .trim()
            .strip_prefix("listening on ")
            .and_then(|url| url.split_once("://"))
            .expect(&line);
        let address = address.to_owned();
        Server { child, address }
    }

    /// Returns status and body of the response.
    fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let (head, body) = self.exchange(method, path, headers, body);
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.expect("a status"), body)
    }

    /// Returns head and body of the response.
    fn exchange(&self, method: &str, path: &str, headers: &str, body: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).expect("connects");
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n");
        write!(stream, "{head}{headers}\r\n{body}").expect("sends");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let body = if head.contains("transfer-encoding: chunked") {
            dechunked(body)
        } else {
            body.to_owned()
        };
        (format!("{head}\r\n"), body)
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, body) = self.ask("POST", path, "", &body.to_string());
        (status, serde_json::from_str(&body).expect(&body))
    }

    pub fn get(&self, path: &str) -> (u16, String) {
        self.ask("GET", path, "", "")
    }

    /// The data of a stream's events, which must end with `[DONE]`.
    fn events(&self, path: &str, body: &Value) -> Vec<Value> {
        let (status, body) = self.ask("POST", path, "", &body.to_string());
        assert_eq!(status, 200, "{body}");
        let mut events: Vec<&str> = body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!(events.pop(), Some("[DONE]"), "{body}");
        events
            .iter()
            .map(|event| serde_json::from_str(event).expect("JSON"))
            .collect()
    }

    /// The data of a stream's named events.
    fn named_events(&self, path: &str, body: &Value) -> Vec<Value> {
        let (status, body) = self.ask("POST", path, "", &body.to_string());
        assert_eq!(status, 200, "{body}");
        let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|event| serde_json::from_str(event).expect("JSON")).collect()
    }

    /// The lines of a JSON Lines stream.
    fn lines(&self, path: &str, body: &Value) -> Vec<Value> {
        let (status, body) = self.ask("POST", path, "", &body.to_string());
        assert_eq!(status, 200, "{body}");
        let parse = |line| serde_json::from_str(line).expect("JSON");
        body.lines().map(parse).collect()
    }

    /// Waits until `/metrics` has a line: counters are updated shortly after the response.
    fn wait_for_metric(&self, line: &str) {
        refrain_testing::wait_until(line, || {
            let metrics = self.get("/metrics").1;
            metrics.lines().any(|found| found == line)
        });
    }

    fn end(mut self, signal: &str) -> Option<i32> {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status();
        assert!(sent.expect("there is kill").success());
        let mut status = None;
        refrain_testing::wait_until("the server ends", || {
            status = self.child.try_wait().expect("a child");
            status.is_some()
        });
        status.and_then(|status| status.code())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn dechunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length.trim(), 16).expect("a length");
        whole.push_str(&rest[..length]);
        body = rest[length..].trim_start_matches("\r\n");
        if length == 0 {
            break;
        }
    }
    whole
}

fn chat(question: &str) -> Value {
    json!({"model": "demo", "temperature": 0, "messages": [{"role": "user", "content": question}]})
}

fn content(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().expect("a content")
}

#[test]
fn serves_the_same_text_as_run_whole_and_streamed() {
    let server = Server::start(&[]);
    let question = "What is 348 + 276?";
    let alone = run(&["run", "demo", question, "--temp", "0", "--device", "cpu", "--json"]).json();
    let (status, answer) = server.post("/v1/chat/completions", &chat(question));
    assert_eq!(status, 200, "{answer}");
    assert_eq!(content(&answer), alone["text"].as_str().unwrap());
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(answer["choices"][0]["message"].get("refusal"), Some(&json!(null)));
    assert_eq!(answer["usage"]["prompt_tokens"], alone["prompt_tokens"]);
    let tokens = alone["ids"].as_array().unwrap().len();
    assert_eq!(answer["usage"]["completion_tokens"], tokens);

    let mut streamed = chat(question);
    streamed["stream"] = true.into();
    streamed["stream_options"] = json!({"include_usage": true});
    let events = server.events("/v1/chat/completions", &streamed);
    let deltas = events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str());
    assert_eq!(deltas.collect::<String>(), content(&answer));
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    let (usage, last) = (&events[events.len() - 1], &events[events.len() - 2]);
    let (first, mut second) = (&answer["usage"], usage["usage"].clone());
    // It found the prompt of the first.
    let cached = std::mem::take(&mut second["prompt_tokens_details"]["cached_tokens"]);
    second["prompt_tokens_details"]["cached_tokens"] = 0.into();
    assert_eq!(
        (&second, cached.as_u64()),
        (first, first["prompt_tokens"].as_u64().map(|tokens| tokens - 1))
    );
    assert_eq!(last["choices"][0]["finish_reason"], "stop");
    assert_eq!(last.get("usage"), Some(&json!(null)));
}

#[test]
fn completions_accept_text_and_tokens_and_several_choices() {
    let server = Server::start(&["--alias", "small"]);
    let body = json!({"model": "small", "prompt": "Once upon", "max_tokens": 8, "temperature": 0.9, "seed": 7, "n": 2});
    let (status, answer) = server.post("/v1/completions", &body);
    assert_eq!(status, 200, "{answer}");
    let texts: Vec<&str> = answer["choices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts.len(), 2);
    assert_ne!(texts[0], texts[1], "each choice has its own seed");
    assert_eq!(
        server.post("/v1/completions", &body).1["choices"],
        answer["choices"],
        "the same seed gives the same text"
    );
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    let tokens = server.post("/tokenize", &json!({"prompt": "Once upon"})).1["tokens"].clone();
    let mut by_tokens = body.clone();
    by_tokens["prompt"] = tokens.clone();
    assert_eq!(
        server.post("/v1/completions", &by_tokens).1["choices"],
        answer["choices"]
    );
    let text = server.post("/detokenize", &json!({"tokens": tokens})).1["prompt"].clone();
    assert!(text.as_str().unwrap().contains("Once upon"), "{text}");
    let mut stopped = body.clone();
    stopped["n"] = 1.into();
    stopped["stop"] = texts[0].chars().nth(3).unwrap().to_string().into();
    let (_, answer) = server.post("/v1/completions", &stopped);
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert!(texts[0].starts_with(answer["choices"][0]["text"].as_str().unwrap()));
}

#[test]
fn parallel_requests_get_the_same_text_as_single_ones() {
    let server = Server::start(&["--parallel", "4"]);
    let question = |number: usize| format!("What is {} + {}?", 100 + 7 * number, 200 + 3 * number);
    let answers: Vec<String> = thread::scope(|scope| {
        let server = &server;
        let ask = |number| {
            scope.spawn(move || content(&server.post("/v1/chat/completions", &chat(&question(number))).1).to_owned())
        };
        let request: Vec<_> = (0..12).map(ask).collect();
        request.into_iter().map(|answer| answer.join().unwrap()).collect()
    });
    for (number, answer) in answers.iter().enumerate() {
        let (_, alone) = server.post("/v1/chat/completions", &chat(&question(number)));
        assert_eq!(answer, content(&alone), "{}", question(number));
    }
    // A client that disconnects during a stream frees its slot.
    let mut leaving = TcpStream::connect(&server.address).unwrap();
    let mut body = chat("Tell me a story.");
    body["stream"] = true.into();
    let body = body.to_string();
    write!(
        leaving,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    leaving.read_exact(&mut [0; 16]).unwrap();
    drop(leaving);
    server.wait_for_metric("vllm:num_requests_running{model_name=\"demo\"} 0");
}

#[test]
fn errors_have_their_own_status() {
    let server = Server::start(&["--ctx", "64", "--api-key", "SECRET"]);
    let key = "authorization: Bearer SECRET\r\n";
    let reply = |path: &str, body: &str| {
        let (status, body) = server.ask("POST", path, key, body);
        let json: Value = serde_json::from_str(&body).expect(&body);
        (status, json["error"]["message"].as_str().expect(&body).to_owned())
    };
    let chat_path = "/v1/chat/completions";
    for (body, why) in [
        ("{", "EOF"),
        ("[]", "must be a JSON object"),
        ("{\"messages\": []}", "there are none"),
        ("{\"messages\": [7]}", "message 0 is no object"),
        (
            "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]}",
            "image_url",
        ),
        (
            "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"temperature\": -1}",
            "temperature",
        ),
        (
            "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"n\": 0}",
            "n: 0 is not",
        ),
        (
            "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"logprobs\": 3}",
            "logprobs: 3 is neither",
        ),
        (
            "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"logit_bias\": {\"x\": 1}}",
            "no token",
        ),
        (
            "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"response_format\": {\"type\": \"poem\"}}",
            "poem",
        ),
    ] {
        let (status, message) = reply(chat_path, body);
        assert!(status == 400 && message.contains(why), "{body}: {status} {message}");
    }
    let long = json!({"prompt": "word ".repeat(200)}).to_string();
    let (status, message) = reply("/v1/completions", &long);
    assert!(
        status == 400 && message.contains("maximum context length is 64 tokens"),
        "{message}"
    );
    let other = json!({"model": "gpt-9", "prompt": "a"}).to_string();
    assert_eq!(
        reply("/v1/completions", &other),
        (404, "\"gpt-9\" is not served here; this server has \"demo\"".to_owned())
    );
    assert_eq!(reply("/v1/nothing", "").0, 404);
    assert_eq!(server.ask("GET", chat_path, key, "").0, 405);
    assert_eq!(server.ask("GET", "/v1/models", "", "").0, 401);
    assert_eq!(
        server.ask("GET", "/v1/models", "authorization: Bearer SECRE\r\n", "").0,
        401
    );
    assert_eq!(server.get("/health").0, 200, "/health needs no key");
    let (status, models) = server.ask("GET", "/v1/models", "x-api-key: SECRET\r\n", "");
    let models: Value = serde_json::from_str(&models).expect("JSON");
    assert_eq!((status, &models["data"][0]["max_model_len"]), (200, &json!(64)));
}

#[test]
fn sigterm_finishes_running_requests() {
    let server = Server::start(&[]);
    let mut body = chat("What is 12 + 30?");
    body["stream"] = true.into();
    let body = body.to_string();
    let mut stream = TcpStream::connect(&server.address).unwrap();
    write!(
        stream,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    stream.read_exact(&mut [0; 16]).unwrap();
    let code = server.end("-TERM");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("data: [DONE]"), "{rest}");
    assert_eq!(code, Some(0));
    let taken = refrain(&["serve", "demo", "--host", "256.0.0.1"]).output().unwrap();
    assert_eq!(taken.status.code(), Some(2));
}
