//! Models that clients of Ollama's interface have brought to the server's computer.

use std::fs;

use serde_json::{Value, json};

use super::Server;
use crate::fake_hub::{COMMIT, FakeHub, HubFault};
use crate::support::{fixture, refrain};

/// A server beside a hub with one model, and an empty cache.
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
        let usual = ["serve", "demo", "--port", "0", "--device", "cpu", "-q"];
        let mut command = refrain(&[&usual, arguments].concat());
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

    fn here(&self) -> String {
        let mut command = refrain(&["list"]);
        let output = command.env("HF_HUB_CACHE", self.cache.path()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn clients_bring_models_here_where_they_may_and_hear_how_far_it_is() {
    let place = PullingServer::start(&["--allow-pull"]);
    let asked = json!({"model": "hf.co/acme/tiny:Q8_0"});
    let lines = place.server.lines("/api/pull", &asked);
    assert_eq!(lines[0], json!({"status": "pulling manifest"}));
    assert_eq!(lines[lines.len() - 1], json!({"status": "success"}), "{lines:?}");
    let size = fs::metadata(fixture("qwen3-gguf-q8_0/model.gguf")).unwrap().len();
    let told: Vec<&Value> = lines.iter().filter(|line| line["total"].is_u64()).collect();
    assert!(!told.is_empty(), "{lines:?}");
    for line in told {
        assert_eq!((&line["total"], &line["digest"]), (&json!(size), &json!(COMMIT)));
        assert!(line["completed"].as_u64().unwrap() <= size);
    }
    assert!(place.here().contains("acme/tiny:Q8_0"), "{}", place.here());

    // Whole, by the plain name; what is served is here already.
    let whole = |model: &str| {
        place
            .server
            .post("/api/pull", &json!({"model": model, "stream": false}))
    };
    assert_eq!(whole("acme/tiny:Q4_0"), (200, json!({"status": "success"})));
    assert!(place.here().contains("acme/tiny:Q4_0"), "{}", place.here());
    place.hub.seen();
    assert_eq!(whole("demo:latest"), (200, json!({"status": "success"})));
    assert_eq!(
        place.server.lines("/api/pull", &json!({"name": "demo"})),
        [json!({"status": "success"})]
    );
    for (model, status, why) in [
        ("llama3.2", 400, "hf.co/ORG/NAME"),
        ("llama3.2:latest", 400, "hf.co/ORG/NAME"),
        ("../../etc/passwd", 400, "model: "),
        ("https://example.org/a/b", 400, "model: "),
        ("", 400, "model: "),
    ] {
        let (found, said) = whole(model);
        let error = said["error"].as_str().expect("an error");
        assert!(found == status && error.contains(why), "{model}: {found} {said}");
    }
    assert_eq!(place.hub.seen().len(), 0, "nobody was asked for what is no name");
    for model in ["acme/other", "acme/tiny:Q2_K"] {
        let (status, said) = whole(model);
        assert!(
            status == 502 && said["error"].as_str().unwrap().contains("acme"),
            "{status} {said}"
        );
        let lines = place.server.lines("/api/pull", &json!({"model": model}));
        assert!(lines[lines.len() - 1]["error"].is_string(), "{lines:?}");
    }
}

#[test]
fn one_model_comes_at_a_time() {
    let place = PullingServer::start(&["--allow-pull"]);
    place.hub.fail("m-Q8_0", HubFault::Slow(2000));
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| place.server.lines("/api/pull", &json!({"model": "acme/tiny:Q8_0"})));
        let asked = json!({"model": "acme/tiny:Q4_0", "stream": false});
        refrain_testing::wait_until("the hub is asked", || !place.hub.seen().is_empty());
        let mut refusals = 0;
        while let (503, said) = place.server.post("/api/pull", &asked) {
            assert!(said["error"].as_str().unwrap().contains("another model"), "{said}");
            refusals += 1;
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(refusals > 0);
        let lines = slow.join().unwrap();
        assert_eq!(lines[lines.len() - 1], json!({"status": "success"}), "{lines:?}");
    });
}

#[test]
fn where_it_was_not_allowed_nothing_is_downloaded_and_models_stay_as_they_are() {
    let place = PullingServer::start(&[]);
    for stream in [true, false] {
        let asked = json!({"model": "hf.co/acme/tiny:Q8_0", "stream": stream});
        let (status, said) = place.server.post("/api/pull", &asked);
        assert!(
            status == 403 && said["error"].as_str().unwrap().contains("--allow-pull"),
            "{status} {said}"
        );
    }
    for (method, path, word) in [
        ("DELETE", "/api/delete", "deletes"),
        ("POST", "/api/create", "makes"),
        ("POST", "/api/copy", "copies"),
        ("POST", "/api/push", "uploads"),
        ("POST", "/api/blobs/sha256:00", "uploads"),
    ] {
        let (status, said) = place.server.ask(method, path, "", "{\"model\": \"demo\"}");
        let said: Value = serde_json::from_str(&said).expect("JSON");
        assert!(
            status == 403 && said["error"].as_str().unwrap().contains(word),
            "{path}: {status} {said}"
        );
    }
    assert_eq!(
        place
            .server
            .post("/api/pull", &json!({"model": "demo", "stream": false}))
            .0,
        200
    );
    assert_eq!(place.hub.seen().len(), 0);
}
