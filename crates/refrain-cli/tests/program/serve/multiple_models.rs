//! Several models on one server.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Server, chat, content};
use crate::support::{fixture, refrain, run};

impl Server {
    fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.get(path).1).expect("JSON")
    }

    /// Names in a list of models.
    fn named(&self, path: &str, list: &str, key: &str) -> Vec<String> {
        let found = self.json(path)[list].clone();
        let name = |model: &Value| model[key].as_str().expect("a name").to_owned();
        found.as_array().expect("a list").iter().map(name).collect()
    }

    fn loaded(&self) -> Vec<String> {
        self.named("/api/ps", "models", "name")
    }
}

/// A server with the models `demo` and `other`.
pub(super) fn two(arguments: &[&str]) -> Server {
    let other = fixture("qwen3-gguf-q4_0/model.gguf");
    let other = other.to_str().expect("a name");
    Server::start(&[&[other, "--alias", "demo", "--alias", "other"], arguments].concat())
}

fn completion(model: &str) -> Value {
    json!({"model": model, "prompt": [1, 2, 3], "max_tokens": 4, "temperature": 0})
}

#[test]
fn lists_several_models_and_loads_them_on_request() {
    let server = two(&[]);
    assert_eq!(server.named("/v1/models", "data", "id"), ["demo", "other"]);
    assert_eq!(server.named("/api/tags", "models", "name"), ["demo", "other"]);
    assert_eq!(server.loaded(), ["demo"]);
    let models = server.json("/v1/models");
    let context = |number: usize| models["data"][number]["max_model_len"].as_u64().expect("a number");
    assert_ne!(context(0), context(1), "each model has its own limit");
    assert_eq!(
        server.json("/health")["models"],
        json!({"demo": "ok", "other": "not loaded"})
    );
    // Requests that need no weights do not load the model.
    let (_, shown) = server.post("/api/show", &json!({"model": "other:latest"}));
    assert_eq!(shown["model_info"]["qwen3.context_length"], context(1));
    assert_eq!(
        server.post("/tokenize", &json!({"model": "other", "prompt": "a"})).1["max_model_len"],
        context(1)
    );
    assert_eq!(server.loaded(), ["demo"]);

    let (status, answer) = server.post("/v1/completions", &completion("other"));
    assert_eq!((status, &answer["model"]), (200, &json!("other")), "{answer}");
    assert_eq!(server.loaded(), ["demo", "other"]);
    let (_, answer) = server.post("/v1/chat/completions", &chat("What is 12 + 30?"));
    assert!(content(&answer).contains("42"), "{answer}");
    assert_eq!(answer["model"], "demo");
    server.wait_for_metric("vllm:generation_tokens_total{model_name=\"other\"} 4");
    server.wait_for_metric("vllm:num_requests_running{model_name=\"demo\"} 0");
    let metrics = server.get("/metrics").1;
    assert_eq!(metrics.matches("# TYPE vllm:num_requests_running").count(), 1);
    let (status, refused) = server.post("/v1/completions", &completion("third"));
    assert_eq!(status, 404);
    let why = "\"third\" is not served here; this server has \"demo\", \"other\"";
    assert_eq!(refused["error"]["message"], why);
}

#[test]
fn unloads_idle_models_and_reloads_them() {
    let server = two(&["--keep-alive", "1h"]);
    let expires = server.json("/api/ps")["models"][0]["expires_at"].clone();
    assert!(!expires.as_str().expect("a time").starts_with("9999"), "{expires}");
    let leave = json!({"model": "demo", "keep_alive": 0});
    let (_, printed) = server.post("/api/generate", &leave);
    assert_eq!(printed["done_reason"], "unload");
    refrain_testing::wait_until("the model is unloaded", || server.loaded().is_empty());
    assert_eq!(server.get("/health").0, 200, "it will be loaded again");
    let (_, printed) = server.post("/api/generate", &json!({"model": "other", "keep_alive": "5m"}));
    assert_eq!(printed["done_reason"], "load");
    assert_eq!(server.loaded(), ["other"]);
    let (status, answer) = server.post("/v1/completions", &completion("demo"));
    assert_eq!(status, 200, "{answer}");
    let (status, why) = server.post("/api/generate", &json!({"model": "demo", "keep_alive": "soon"}));
    assert!(
        status == 400 && why["error"].as_str().expect("a text").contains("soon"),
        "{why}"
    );
}

#[test]
fn a_model_answers_to_its_aliases() {
    let server = Server::start(&["--alias", "mine,gpt-4o", "--alias", "*"]);
    assert_eq!(server.named("/v1/models", "data", "id"), ["mine", "gpt-4o"]);
    for name in ["mine", "gpt-4o", "gpt-4o:latest", "claude-opus-4-5", "../../etc/passwd"] {
        let (status, answer) = server.post("/v1/completions", &completion(name));
        assert_eq!(status, 200, "{name}: {answer}");
    }
    let server = two(&[]);
    for (name, status) in [("other", 200), ("demo:latest", 200), ("gpt-4o", 404), ("*", 404)] {
        assert_eq!(server.post("/v1/completions", &completion(name)).0, status, "{name}");
    }
}

#[test]
fn serves_the_models_of_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("serve.toml");
    let text = "[[models]]\nmodel = \"demo\"\nalias = [\"mine\", \"*\"]\nctx = 64\npin = true\n\n\
                [models.sampler]\ntemperature = 0.0\n";
    std::fs::write(&file, text).expect("writes");
    let config = file.to_str().expect("a name");
    let server = Server::of(refrain(&[
        "serve", "--config", config, "--port", "0", "--device", "cpu", "-q",
    ]));
    let models = server.json("/v1/models");
    assert_eq!(
        (&models["data"][0]["id"], &models["data"][0]["max_model_len"]),
        (&json!("mine"), &json!(64))
    );
    let body = json!({"model": "any", "prompt": "Once upon", "max_tokens": 16});
    let texts = [0, 1].map(|_| server.post("/v1/completions", &body).1["choices"][0]["text"].clone());
    assert_eq!(texts[0], texts[1], "the temperature is 0");
    std::fs::write(&file, format!("{text}warmth = 1\n")).expect("writes");
    let outcome = run(&["serve", "--config", config]);
    outcome.failed(1, &["serve.toml", "[models.sampler] has no setting warmth"]);
    std::fs::write(&file, text.replace("0.0", "-3")).expect("writes");
    let outcome = run(&["serve", "--config", config]);
    outcome.failed(1, &["serve.toml", "temperature is -3"]);
    std::fs::write(&file, format!("{text}[[models]]\nmodel = \"demo\"\nalias = \"*\"\n")).expect("writes");
    let outcome = run(&["serve", "--config", config]);
    outcome.failed(1, &["two models have the name *", "alias in the file of --config"]);
}

#[test]
fn keeps_the_only_model_loaded() {
    let server = Server::start(&[]);
    server.post("/api/generate", &json!({"keep_alive": 0}));
    thread::sleep(Duration::from_millis(600));
    assert_eq!(server.loaded(), ["demo"]);
    assert_eq!(
        server.json("/api/ps")["models"][0]["expires_at"],
        "9999-12-31T23:59:59Z"
    );
}

#[test]
fn rejects_models_with_the_same_name() {
    let failed = |arguments: &[&str]| {
        let output =
            refrain(&[&["serve", "demo", "demo", "--port", "0", "--device", "cpu"], arguments].concat()).output();
        String::from_utf8(output.expect("runs").stderr).expect("text")
    };
    assert!(failed(&[]).contains("two models have the name demo"), "{}", failed(&[]));
    let many = failed(&["--alias", "a", "--alias", "b", "--alias", "c"]);
    assert!(many.contains("--alias is given more often"), "{many}");
    assert!(failed(&["--keep-alive", "soon"]).contains("\"soon\" is not a time"));
}
