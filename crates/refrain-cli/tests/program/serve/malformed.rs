//! Fuzzing with malformed requests.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use refrain_testing::sample;
use serde_json::{Value, json};

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

/// A valid request body: its path, the API's error format, and the body.
type ValidBody = (&'static str, ErrorForm, Value);

/// Valid bodies that together use most fields.
fn bodies() -> Vec<ValidBody> {
    [openais_bodies(), anthropics_bodies(), ollamas_bodies(), own_bodies()].concat()
}

fn schema() -> Value {
    json!({"type": "object", "properties": {"x": {"enum": ["a", "b"]}}, "required": ["x"]})
}

/// A conversation with a tool call, and its tools.
fn chat_and_tools() -> (Value, Value) {
    let function = json!({"name": "f", "description": "does", "parameters": schema()});
    let tools = json!([{"type": "function", "function": function}]);
    let call = json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}});
    let messages = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "7"},
    ]);
    (messages, tools)
}

fn openais_bodies() -> Vec<ValidBody> {
    let (messages, tools) = chat_and_tools();
    let items = json!([
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "7"},
    ]);
    let flat_tools = json!([{"type": "function", "name": "f", "parameters": schema()}]);
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema()}});
    vec![
        (
            "/v1/chat/completions",
            OpenAi,
            json!({"model": "demo", "messages": messages, "tools": tools, "tool_choice": "auto", "max_tokens": 1, "n": 1,
                "temperature": 0, "top_p": 0.9, "min_p": 0.1, "top_k": 5, "seed": 1, "stop": ["x"], "stream": true,
                "stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 2, "logit_bias": {"5": 1},
                "presence_penalty": 0.1, "frequency_penalty": 0.1, "repetition_penalty": 1.1, "think": false,
                "chat_template_kwargs": {"x": 1}, "parallel_tool_calls": true}),
        ),
        (
            "/v1/chat/completions",
            OpenAi,
            json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "response_format": format}),
        ),
        (
            "/v1/completions",
            OpenAi,
            json!({"prompt": ["Once"], "max_tokens": 1, "logprobs": 2, "echo": false, "suffix": "", "guided_regex": "a+",
                "ignore_eos": false}),
        ),
        (
            "/v1/completions",
            OpenAi,
            json!({"prompt": [[5, 6]], "max_tokens": 1, "structured_outputs": {"choice": ["a", "b"]}}),
        ),
        (
            "/v1/responses",
            OpenAi,
            json!({"model": "demo", "input": items, "instructions": "Be brief.", "tools": flat_tools, "tool_choice": "auto",
                "max_output_tokens": 1, "temperature": 0, "stream": false, "text": {"format": {"type": "text"}},
                "metadata": {"a": "b"}, "background": false, "include": ["message.output_text.logprobs"],
                "top_logprobs": 2, "parallel_tool_calls": true, "previous_response_id": null}),
        ),
    ]
}

fn anthropics_bodies() -> Vec<ValidBody> {
    let blocks = json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm", "signature": ""},
            {"type": "tool_use", "id": "1", "name": "f", "input": {"x": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "7"}]},
    ]);
    let own_tools = json!([{"name": "f", "description": "does", "input_schema": schema()}]);
    vec![
        (
            "/v1/messages",
            Anthropic,
            json!({"model": "demo", "messages": blocks, "system": [{"type": "text", "text": "Be brief."}],
                "tools": own_tools, "tool_choice": {"type": "auto"}, "thinking": {"type": "disabled"}, "max_tokens": 1,
                "temperature": 0, "top_k": 1, "top_p": 0.5, "stop_sequences": ["x"], "stream": false,
                "output_config": {"format": {"type": "json_schema", "schema": schema()}}}),
        ),
        (
            "/v1/messages/count_tokens",
            Anthropic,
            json!({"messages": blocks, "system": "Be brief.", "tools": own_tools}),
        ),
    ]
}

fn ollamas_bodies() -> Vec<ValidBody> {
    let (messages, tools) = chat_and_tools();
    let options =
        json!({"num_predict": 1, "temperature": 0, "top_k": 1, "stop": ["x"], "seed": 1, "repeat_penalty": 1.1});
    vec![
        (
            "/api/chat",
            Ollama,
            json!({"model": "demo", "messages": messages, "tools": tools, "stream": false, "think": false, "format": "",
                "options": options}),
        ),
        (
            "/api/generate",
            Ollama,
            json!({"model": "demo", "prompt": "Hi", "system": "Be brief.", "suffix": "", "images": [], "raw": false,
                "format": schema(), "stream": false, "logprobs": true, "top_logprobs": 2, "options": {"num_predict": 1}}),
        ),
        ("/api/show", Ollama, json!({"model": "demo"})),
        ("/api/pull", Ollama, json!({"model": "demo", "stream": true})),
        (
            "/api/embed",
            Ollama,
            json!({"input": ["Hi"], "truncate": true, "dimensions": 8}),
        ),
        ("/api/embeddings", Ollama, json!({"model": "demo", "prompt": "Hi"})),
    ]
}

fn own_bodies() -> Vec<ValidBody> {
    vec![
        ("/tokenize", OpenAi, json!({"prompt": "Hi", "add_special_tokens": true})),
        (
            "/tokenize",
            OpenAi,
            json!({"messages": [{"role": "user", "content": "Hi"}]}),
        ),
        (
            "/v1/embeddings",
            OpenAi,
            json!({"model": "demo", "input": [[5, 6]], "dimensions": 8, "encoding_format": "base64", "user": "a"}),
        ),
        ("/detokenize", OpenAi, json!({"tokens": [5, 6]})),
        ("/render", OpenAi, json!({"text": "a $x$"})),
    ]
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
