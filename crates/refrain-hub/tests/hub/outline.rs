//! Downloads of headers and configuration only.

use std::fs;
use std::path::Path;

use refrain_hub::{Hub, Outline};

use crate::fake::{FakeHub, HubFault};
use crate::support::{REPO, TestUser, random_bytes};

const GGUF: &str = "m-Q4_0.gguf";
const GGUF_HEADER: usize = 3 << 20;
const SIZE: usize = 8 << 20;

fn outline(hub: &FakeHub) -> Outline {
    let user = TestUser::of(hub);
    let client = Hub::new(user.settings.clone());
    let plan = client.plan(&REPO.parse().unwrap(), &()).unwrap();
    hub.sent_bytes();
    let is_complete = |here: &[u8]| here.len() >= GGUF_HEADER;
    let outline = client.outline(&plan, &is_complete, &()).unwrap();
    assert!(!user.repository().exists());
    outline
}

/// Asserts that the file has the size of `content` and starts with its first `needed` bytes.
#[track_caller]
fn starts_with(path: &Path, content: &[u8], needed: usize) {
    let found = fs::read(path).unwrap();
    assert_eq!(found.len(), content.len());
    assert!(found[..needed] == content[..needed]);
    assert!(found[content.len() - 1000..] == [0; 1000]);
}

fn ranges(hub: &FakeHub, file: &str) -> Vec<String> {
    let seen = hub.take_requests().into_iter().filter(|seen| seen.path.ends_with(file));
    seen.filter_map(|seen| seen.range).collect()
}

#[test]
fn downloads_at_most_twice_the_gguf_header() {
    let content = random_bytes(SIZE, 1);
    let hub = FakeHub::new(REPO, &[(GGUF, &content)]);
    let outline = outline(&hub);
    starts_with(&outline.path, &content, GGUF_HEADER);
    let asked = ["bytes=0-1048575", "bytes=1048576-2097151", "bytes=2097152-4194303"];
    assert_eq!(ranges(&hub, GGUF), asked);
    assert_eq!(hub.sent_bytes(), 4 << 20);
}

#[test]
fn downloads_exactly_the_safetensors_header() {
    let header = 200_000;
    let content = [&(header as u64).to_le_bytes()[..], &random_bytes(SIZE, 2)].concat();
    let files: [(&str, &[u8]); 3] = [
        ("config.json", b"{}"),
        ("model.safetensors", &content),
        ("tokenizer.json", &[b' '; 100_000]),
    ];
    let hub = FakeHub::new(REPO, &files);
    let outline = outline(&hub);
    starts_with(&outline.path.join("model.safetensors"), &content, 8 + header);
    assert_eq!(fs::read(outline.path.join("config.json")).unwrap(), b"{}");
    assert_eq!(hub.sent_bytes(), 8 + header + 2);
}

#[test]
fn outline_survives_lost_connections_and_servers_without_ranges() {
    let content = random_bytes(SIZE, 3);
    for fault in [
        HubFault::Cut(1000),
        HubFault::NoRanges,
        HubFault::Status(503, ""),
        HubFault::Stall(10),
    ] {
        let hub = FakeHub::new(REPO, &[(GGUF, &content)]);
        hub.fail(GGUF, fault);
        starts_with(&outline(&hub).path, &content, GGUF_HEADER);
    }
}
