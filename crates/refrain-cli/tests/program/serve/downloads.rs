//! Model downloads by clients of the Ollama API.

use std::fs;

use serde_json::{Value, json};

use super::Server;
use crate::fake_hub::{COMMIT, FakeHub, HubFault};
use crate::support::{fixture, refrain};

/// A server, a fake hub with one model, and an empty cache.
struct PullingServer {
    server: Server,
    hub: FakeHub,
    cache: tempfile::TempDir,
}

impl PullingServer {
    fn start(arguments: &[&str]) -> PullingServer {
        let file = |quant: &str, name: &str| (format!("m-{quant}.gguf"), fs::read(fixture(name)).unwrap());
        let files = [
            file("Q4_0", "qwen3-gguf-q4_0/model.gguf"),
            file("Q8_0", "qwen3-gguf-q8_0/model.gguf"),
        ];
        let files: Vec<(&str, &[u8])> = files.iter().map(|(name, content)| (&name[..], &content[..])).collect();
        let (hub, cache) = (FakeHub::new("acme/tiny", &files), tempfile::tempdir().unwrap());
        let default = ["serve", "demo", "--port", "0", "--device", "cpu", "-q"];
        let mut command = refrain(&[&default, arguments].concat());
        command
            .env("HF_HUB_CACHE", cache.path())
            .env("HF_ENDPOINT", &hub.address)
            .env("HF_HUB_OFFLINE", "0")
            .env("HF_HUB_DOWNLOAD_TIMEOUT", "0.5")
            .env("REFRAIN_RETRY_WAIT", "0.02");
        PullingServer {
            server: Server::of(command),
            hub,
            cache,
        }
    }

    fn list(&self) -> String {
        let mut command = refrain(&["list"]);
        let output = command.env("HF_HUB_CACHE", self.cache.path()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn clients_download_models_with_progress() {
    let pulling = PullingServer::start(&["--allow-pull"]);
    let request = json!({"model": "hf.co/acme/tiny:Q8_0"});
    let lines = pulling.server.lines("/api/pull", &request);
    assert_eq!(lines[0], json!({"status": "pulling manifest"}));
    assert_eq!(lines[lines.len() - 1], json!({"status": "success"}), "{lines:?}");
    let size = fs::metadata(fixture("qwen3-gguf-q8_0/model.gguf")).unwrap().len();
    let printed: Vec<&Value> = lines.iter().filter(|line| line["total"].is_u64()).collect();
    assert!(!printed.is_empty(), "{lines:?}");
    for line in printed {
        assert_eq!((&line["total"], &line["digest"]), (&json!(size), &json!(COMMIT)));
        assert!(line["completed"].as_u64().unwrap() <= size);
    }
    assert!(pulling.list().contains("acme/tiny:Q8_0"), "{}", pulling.list());
    // The model is served without a restart, under both names.
    let tags: Value = serde_json::from_str(&pulling.server.get("/api/tags").1).expect("JSON");
    assert_eq!(tags["models"][1]["name"], "acme/tiny:Q8_0", "{tags}");
    for name in ["acme/tiny:Q8_0", "hf.co/acme/tiny:Q8_0"] {
        let body = json!({"model": name, "prompt": [1, 2, 3], "max_tokens": 2, "temperature": 0});
        let (status, answer) = pulling.server.post("/v1/completions", &body);
        assert_eq!(
            (status, &answer["usage"]["completion_tokens"]),
            (200, &json!(2)),
            "{answer}"
        );
    }

    // Without streaming, by the plain name. Served models need no download.
    let whole = |model: &str| {
        pulling
            .server
            .post("/api/pull", &json!({"model": model, "stream": false}))
    };
    assert_eq!(whole("acme/tiny:Q4_0"), (200, json!({"status": "success"})));
    assert!(pulling.list().contains("acme/tiny:Q4_0"), "{}", pulling.list());
    pulling.hub.take_requests();
    assert_eq!(whole("demo:latest"), (200, json!({"status": "success"})));
    assert_eq!(
        pulling.server.lines("/api/pull", &json!({"name": "demo"})),
        [json!({"status": "success"})]
    );
    for (model, status, why) in [
        ("llama3.2", 400, "hf.co/ORG/NAME"),
        ("llama3.2:latest", 400, "hf.co/ORG/NAME"),
        ("../../etc/passwd", 400, "model: "),
        ("https://example.org/a/b", 400, "model: "),
        ("", 400, "model: "),
    ] {
        let (found, reply) = whole(model);
        let error = reply["error"].as_str().expect("an error");
        assert!(found == status && error.contains(why), "{model}: {found} {reply}");
    }
    assert_eq!(
        pulling.hub.take_requests().len(),
        0,
        "invalid names are not requested from the hub"
    );
    for model in ["acme/other", "acme/tiny:Q2_K"] {
        let (status, reply) = whole(model);
        assert!(
            status == 502 && reply["error"].as_str().unwrap().contains("acme"),
            "{status} {reply}"
        );
        let lines = pulling.server.lines("/api/pull", &json!({"model": model}));
        assert!(lines[lines.len() - 1]["error"].is_string(), "{lines:?}");
    }
}

#[test]
fn downloads_one_model_at_a_time() {
    let pulling = PullingServer::start(&["--allow-pull"]);
    pulling.hub.fail("m-Q8_0", HubFault::Slow(2000));
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| pulling.server.lines("/api/pull", &json!({"model": "acme/tiny:Q8_0"})));
        let request = json!({"model": "acme/tiny:Q4_0", "stream": false});
        refrain_testing::wait_until("the hub is asked", || !pulling.hub.take_requests().is_empty());
        let mut refusals = 0;
        while let (503, reply) = pulling.server.post("/api/pull", &request) {
            assert!(reply["error"].as_str().unwrap().contains("another model"), "{reply}");
            refusals += 1;
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(refusals > 0);
        let lines = slow.join().unwrap();
        assert_eq!(lines[lines.len() - 1], json!({"status": "success"}), "{lines:?}");
    });
}

#[test]
fn rejects_downloads_and_changes_unless_allowed() {
    let pulling = PullingServer::start(&[]);
    for stream in [true, false] {
        let request = json!({"model": "hf.co/acme/tiny:Q8_0", "stream": stream});
        let (status, reply) = pulling.server.post("/api/pull", &request);
        assert!(
            status == 403 && reply["error"].as_str().unwrap().contains("--allow-pull"),
            "{status} {reply}"
        );
    }
    for (method, path, word) in [
        ("DELETE", "/api/delete", "deletes"),
        ("POST", "/api/create", "creates"),
        ("POST", "/api/copy", "copies"),
        ("POST", "/api/push", "pushes"),
        ("POST", "/api/blobs/sha256:00", "uploads of"),
    ] {
        let (status, reply) = pulling.server.ask(method, path, "", "{\"model\": \"demo\"}");
        let reply: Value = serde_json::from_str(&reply).expect("JSON");
        assert!(
            status == 403
                && [word, path]
                    .iter()
                    .all(|word| reply["error"].as_str().unwrap().contains(word)),
            "{path}: {status} {reply}"
        );
    }
    assert_eq!(
        pulling
            .server
            .post("/api/pull", &json!({"model": "demo", "stream": false}))
            .0,
        200
    );
    assert_eq!(pulling.hub.take_requests().len(), 0);
}
