//! `refrain serve`, asked by HTTP.

mod clients;
mod connections;
mod embeddings;
mod forms;
mod likelihoods;
mod load;
mod malformed;
mod pulls;
mod requests;
mod servers;
mod several;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::{Value, json};

use super::support::{refrain, run};

/// A running server; it ends with this.
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

    /// One whose standard error can be read.
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

    /// Status and body of an answer.
    fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let (head, body) = self.exchange(method, path, headers, body);
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.expect("a status"), body)
    }

    /// Head and body of an answer.
    fn exchange(&self, method: &str, path: &str, headers: &str, body: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).expect("connects");
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n");
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

    /// What the events of a stream hold; the last of them says that it is done.
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

    /// What the events of a stream hold that have names.
    fn named_events(&self, path: &str, body: &Value) -> Vec<Value> {
        let (status, body) = self.ask("POST", path, "", &body.to_string());
        assert_eq!(status, 200, "{body}");
        let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|event| serde_json::from_str(event).expect("JSON")).collect()
    }

    /// The lines of JSON of a stream.
    fn lines(&self, path: &str, body: &Value) -> Vec<Value> {
        let (status, body) = self.ask("POST", path, "", &body.to_string());
        assert_eq!(status, 200, "{body}");
        let parse = |line| serde_json::from_str(line).expect("JSON");
        body.lines().map(parse).collect()
    }

    /// Waits until `/metrics` has a line: who is answered is counted out a little later.
    fn comes_to(&self, line: &str) {
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
fn a_server_answers_as_run_does_whole_and_streamed() {
    let server = Server::start(&[]);
    let question = "What is 348 + 276?";
    let alone = run(&["run", "demo", question, "--temp", "0", "--device", "cpu", "--json"]).json();
    let (status, answer) = server.post("/v1/chat/completions", &chat(question));
    assert_eq!(status, 200, "{answer}");
    assert_eq!(content(&answer), alone["text"].as_str().unwrap());
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
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
    assert_eq!(usage["usage"], answer["usage"]);
    assert_eq!(last["choices"][0]["finish_reason"], "stop");
}

#[test]
fn completions_go_on_from_texts_and_tokens_with_several_choices() {
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
    assert_ne!(texts[0], texts[1], "each choice has a seed of its own");
    assert_eq!(
        server.post("/v1/completions", &body).1["choices"],
        answer["choices"],
        "a seed gives its text"
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
fn many_at_once_hear_what_each_hears_alone() {
    let server = Server::start(&["--parallel", "4"]);
    let question = |number: usize| format!("What is {} + {}?", 100 + 7 * number, 200 + 3 * number);
    let answers: Vec<String> = thread::scope(|scope| {
        let server = &server;
        let ask = |number| {
            scope.spawn(move || content(&server.post("/v1/chat/completions", &chat(&question(number))).1).to_owned())
        };
        let asked: Vec<_> = (0..12).map(ask).collect();
        asked.into_iter().map(|answer| answer.join().unwrap()).collect()
    });
    for (number, answer) in answers.iter().enumerate() {
        let (_, alone) = server.post("/v1/chat/completions", &chat(&question(number)));
        assert_eq!(answer, content(&alone), "{}", question(number));
    }
    // A client that leaves in mid-stream takes no place.
    let mut leaving = TcpStream::connect(&server.address).unwrap();
    let mut body = chat("Tell me a story.");
    body["stream"] = true.into();
    let body = body.to_string();
    write!(
        leaving,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    leaving.read_exact(&mut [0; 16]).unwrap();
    drop(leaving);
    server.comes_to("vllm:num_requests_running{model_name=\"demo\"} 0");
}

#[test]
fn what_cannot_be_answered_is_told_with_a_status_of_its_own() {
    let server = Server::start(&["--ctx", "64", "--api-key", "SECRET"]);
    let key = "authorization: Bearer SECRET\r\n";
    let said = |path: &str, body: &str| {
        let (status, body) = server.ask("POST", path, key, body);
        let json: Value = serde_json::from_str(&body).expect(&body);
        (status, json["error"]["message"].as_str().expect(&body).to_owned())
    };
    let chat_path = "/v1/chat/completions";
    for (body, why) in [
        ("{", "EOF"),
        ("[]", "invalid"),
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
        let (status, message) = said(chat_path, body);
        assert!(status == 400 && message.contains(why), "{body}: {status} {message}");
    }
    let long = json!({"prompt": "word ".repeat(200)}).to_string();
    let (status, message) = said("/v1/completions", &long);
    assert!(status == 400 && message.contains("context of 64"), "{message}");
    let other = json!({"model": "gpt-9", "prompt": "a"}).to_string();
    assert_eq!(
        said("/v1/completions", &other),
        (404, "\"gpt-9\" is not served here; this server has \"demo\"".to_owned())
    );
    assert_eq!(said("/v1/nothing", "").0, 404);
    assert_eq!(server.ask("GET", chat_path, key, "").0, 405);
    assert_eq!(server.ask("GET", "/v1/models", "", "").0, 401);
    assert_eq!(
        server.ask("GET", "/v1/models", "authorization: Bearer SECRE\r\n", "").0,
        401
    );
    assert_eq!(server.get("/health").0, 200, "health needs no key");
    let (status, models) = server.ask("GET", "/v1/models", "x-api-key: SECRET\r\n", "");
    let models: Value = serde_json::from_str(&models).expect("JSON");
    assert_eq!((status, &models["data"][0]["max_model_len"]), (200, &json!(64)));
}

#[test]
fn clients_of_ollama_find_the_model_and_what_it_is() {
    let server = Server::start(&[]);
    let get = |path: &str| serde_json::from_str::<Value>(&server.get(path).1).expect("JSON");
    assert_eq!(get("/api/version")["version"], env!("CARGO_PKG_VERSION"));
    let tags = get("/api/tags");
    assert_eq!(tags["models"][0]["name"], "demo");
    assert_eq!(tags["models"][0]["details"]["family"], "qwen3");
    assert_eq!(get("/api/ps")["models"][0]["context_length"], 1024);
    let (_, shown) = server.post("/api/show", &json!({"model": "demo:latest"}));
    assert_eq!(shown["model_info"]["general.architecture"], "qwen3");
}

#[test]
fn clients_of_ollama_hear_what_openais_do_whole_and_in_lines() {
    let server = Server::start(&[]);
    let question = "What is 348 + 276?";
    let (_, expected) = server.post("/v1/chat/completions", &chat(question));
    let messages = json!([{"role": "user", "content": question}]);
    let options = json!({"temperature": 0, "num_predict": -1});
    let whole = json!({"model": "demo:latest", "messages": messages, "options": options, "stream": false});
    let (status, answer) = server.post("/api/chat", &whole);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["message"]["content"], content(&expected));
    assert_eq!(
        (&answer["done"], &answer["done_reason"]),
        (&json!(true), &json!("stop"))
    );
    assert_eq!(answer["eval_count"], expected["usage"]["completion_tokens"]);
    assert_eq!(answer["prompt_eval_count"], expected["usage"]["prompt_tokens"]);

    // Lines, unless told otherwise.
    let streamed = server.lines("/api/chat", &json!({"messages": messages, "options": options}));
    let texts = streamed.iter().filter_map(|line| line["message"]["content"].as_str());
    assert_eq!(texts.collect::<String>(), content(&expected));
    let last = &streamed[streamed.len() - 1];
    assert!(streamed.len() > 2 && streamed[0]["done"] == false, "{streamed:?}");
    assert_eq!(
        (&last["done"], &last["eval_count"]),
        (&json!(true), &answer["eval_count"])
    );

    let asked = server.lines("/api/generate", &json!({"prompt": question, "options": options}));
    let texts = asked.iter().filter_map(|line| line["response"].as_str());
    assert_eq!(texts.collect::<String>(), content(&expected));
    let options = json!({"num_predict": 3, "temperature": 0});
    let raw = json!({"prompt": "Once upon", "raw": true, "stream": false, "options": options});
    let (_, answer) = server.post("/api/generate", &raw);
    assert_eq!(
        (&answer["eval_count"], &answer["done_reason"]),
        (&json!(3), &json!("length"))
    );
    let (_, loaded) = server.post("/api/generate", &json!({"model": "demo"}));
    assert_eq!(
        (&loaded["done_reason"], &loaded["response"]),
        (&json!("load"), &json!(""))
    );
}

#[test]
fn clients_of_ollama_are_told_what_cannot_be() {
    let server = Server::start(&[]);
    for (path, body, status, why) in [
        ("/api/chat", "{", 400, "EOF"),
        ("/api/chat", "{\"model\": \"gpt-9\", \"messages\": []}", 404, "gpt-9"),
        ("/api/chat", "{\"messages\": [7]}", 400, "message 0 is no object"),
        (
            "/api/chat",
            "{\"messages\": [{\"role\": \"user\", \"images\": [\"x\"]}]}",
            400,
            "images",
        ),
        (
            "/api/generate",
            "{\"prompt\": \"a\", \"format\": \"poem\"}",
            400,
            "format",
        ),
        (
            "/api/generate",
            "{\"prompt\": \"a\", \"options\": {\"temperature\": \"hot\"}}",
            400,
            "options",
        ),
        ("/api/generate", "{\"prompt\": \"a\", \"suffix\": \"b\"}", 400, "suffix"),
    ] {
        let (found, said) = server.ask("POST", path, "", body);
        let said: Value = serde_json::from_str(&said).expect(&said);
        let said = said["error"].as_str().expect("a text");
        assert!(found == status && said.contains(why), "{body}: {found} {said}");
    }
}

#[test]
fn a_server_that_is_told_to_end_finishes_what_it_has_begun() {
    let server = Server::start(&[]);
    let mut body = chat("What is 12 + 30?");
    body["stream"] = true.into();
    let body = body.to_string();
    let mut stream = TcpStream::connect(&server.address).unwrap();
    write!(
        stream,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
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
