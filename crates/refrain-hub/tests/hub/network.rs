//! Connections that stall or break, and servers that send wrong data.

use std::fs;

use crate::fake::{FakeHub, HubFault, etag};
use crate::support::{REPO, RecordingWatcher, TestUser, random_bytes};

const FILE: &str = "m-Q4_0.gguf";

fn hub(content: &[u8]) -> (FakeHub, TestUser) {
    let hub = FakeHub::new(REPO, &[(FILE, content)]);
    let user = TestUser::of(&hub);
    (hub, user)
}

/// Downloads the model and asserts its content. Returns the notices.
#[track_caller]
fn pulls(user: &TestUser, content: &[u8]) -> Vec<String> {
    let notices = RecordingWatcher::default();
    let model = user.pull_watched(REPO, &notices).unwrap();
    assert!(fs::read(model.path).unwrap() == content, "the content differs");
    let size = content.len() as u64;
    assert_eq!(notices.positions.lock().unwrap().last(), Some(&(size, size)));
    notices.lines.into_inner().unwrap()
}

#[test]
fn broken_connections_are_resumed() {
    let content = random_bytes(300_000, 1);
    let (hub, user) = hub(&content);
    hub.fail(FILE, HubFault::Cut(100_000));
    hub.fail(FILE, HubFault::Cut(50_000));
    let lines = pulls(&user, &content);
    assert_eq!(lines.len(), 2, "{lines:?}");
    let ranges: Vec<Option<String>> = hub.take_requests().into_iter().skip(1).map(|seen| seen.range).collect();
    let bytes = |from: u32| Some(format!("bytes={from}-"));
    assert_eq!(ranges, [None, bytes(100_000), bytes(150_000)]);
}

#[test]
fn stalled_connections_are_resumed() {
    let content = random_bytes(50_000, 2);
    let (hub, user) = hub(&content);
    hub.fail(FILE, HubFault::Stall(20_000));
    hub.fail("/api/", HubFault::Stall(10));
    let lines = pulls(&user, &content);
    // A busy machine may also be slow to connect.
    let is_stall = |line: &String| line.contains("stalled") || line.contains("does not respond");
    assert!(lines.len() >= 2 && lines.iter().all(is_stall), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("stalled")), "{lines:?}");
    assert_eq!(
        hub.take_requests().last().unwrap().range.as_deref(),
        Some("bytes=20000-")
    );
}

#[test]
fn servers_without_ranges_restart_the_download() {
    let content = random_bytes(50_000, 3);
    let (hub, user) = hub(&content);
    hub.fail(FILE, HubFault::Cut(20_000));
    hub.fail(FILE, HubFault::NoRanges);
    pulls(&user, &content);
}

#[test]
fn busy_and_failing_servers_are_retried() {
    let content = random_bytes(50_000, 4);
    let (hub, user) = hub(&content);
    hub.fail("/api/", HubFault::Status(500, ""));
    hub.fail("/api/", HubFault::Status(429, "Retry-After: 1\r\n"));
    hub.fail(FILE, HubFault::Status(503, ""));
    hub.fail(FILE, HubFault::Status(504, ""));
    let lines = pulls(&user, &content);
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(
        lines[1].contains("too many requests") && lines[1].contains("1.0 s"),
        "{lines:?}"
    );
}

#[test]
fn gives_up_after_repeated_errors_and_keeps_the_partial_file() {
    let content = random_bytes(50_000, 5);
    let (hub, user) = hub(&content);
    hub.fail(FILE, HubFault::Cut(30_000));
    for _ in 0..6 {
        hub.fail(FILE, HubFault::Status(500, ""));
    }
    let error = user.pull(REPO).unwrap_err().to_string();
    assert!(
        error.contains("500") && error.contains("resume the download"),
        "{error}"
    );
    assert_eq!(
        fs::read(user.blob(&(etag(&content) + ".incomplete"))).unwrap(),
        content[..30_000]
    );
    assert_eq!(user.find(REPO), None);
    let notices = pulls(&user, &content);
    assert!(notices.len() < 3, "{notices:?}");
}

#[test]
fn corrupt_downloads_are_retried_once() {
    let content = random_bytes(50_000, 6);
    let (hub, user) = hub(&content);
    hub.fail(FILE, HubFault::WrongByte);
    let lines = pulls(&user, &content);
    assert!(lines[0].contains("corrupt"), "{lines:?}");

    let content = random_bytes(50_000, 7);
    let (hub, user) = self::hub(&content);
    hub.fail(FILE, HubFault::WrongByte);
    hub.fail(FILE, HubFault::WrongByte);
    let error = user.pull(REPO).unwrap_err().to_string();
    assert!(error.contains(FILE) && error.contains(&etag(&content)), "{error}");
    assert_eq!((user.find(REPO), user.tree()), (None, vec![]));
}

#[test]
fn corrupt_partial_files_are_discarded() {
    let content = random_bytes(50_000, 8);
    for prefix in [random_bytes(20_000, 9), random_bytes(60_000, 9)] {
        let (_hub, user) = hub(&content);
        let partial = user.blob(&(etag(&content) + ".incomplete"));
        fs::create_dir_all(partial.parent().unwrap()).unwrap();
        fs::write(partial, prefix).unwrap();
        pulls(&user, &content);
    }
}

#[test]
fn small_files_are_verified() {
    let content = random_bytes(500, 10);
    let (hub, user) = hub(&content);
    hub.fail(FILE, HubFault::WrongByte);
    hub.fail(FILE, HubFault::WrongByte);
    assert!(user.pull(REPO).unwrap_err().to_string().contains(&etag(&content)));
    pulls(&user, &content);
    let (_hub, user) = self::hub(b"");
    pulls(&user, b"");
}

#[test]
fn rejects_wrong_sizes() {
    let content = random_bytes(50_000, 11);
    for cut in [None, Some(10_000)] {
        let (hub, user) = hub(&content);
        if let Some(bytes) = cut {
            hub.fail(FILE, HubFault::Cut(bytes));
        }
        hub.fail(FILE, HubFault::Longer(5));
        let error = user.pull(REPO).unwrap_err().to_string();
        assert!(error.contains("50000") && error.contains("50005"), "{error}");
        assert_eq!(user.find(REPO), None);
    }
}

#[test]
fn redirects_to_other_hosts_carry_no_token() {
    let content = random_bytes(50_000, 12);
    let (hub, user) = hub(&content);
    let user = user.with_token();
    let store = FakeHub::new(REPO, &[(FILE, &content)]);
    let path = format!("/{REPO}/resolve/{}/{FILE}", crate::fake::COMMIT);
    hub.fail(FILE, HubFault::Elsewhere(path.clone()));
    hub.fail(FILE, HubFault::Elsewhere(format!("{}{path}", store.address)));
    pulls(&user, &content);
    let sent = |hub: &FakeHub| -> Vec<Option<String>> {
        hub.take_requests().into_iter().map(|seen| seen.authorization).collect()
    };
    assert_eq!(sent(&hub), vec![Some("Bearer hf_secret".to_owned()); 3]);
    assert_eq!(sent(&store), [None]);
}

#[test]
fn redirect_loops_end() {
    let (hub, user) = hub(b"x");
    for _ in 0..20 {
        hub.fail(
            FILE,
            HubFault::Elsewhere(format!("/{REPO}/resolve/{}/{FILE}", crate::fake::COMMIT)),
        );
    }
    assert!(user.pull(REPO).unwrap_err().to_string().contains("redirects"));
}

#[test]
fn unreachable_hosts_are_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut user = hub(b"x").1;
    user.settings.endpoint = format!("http://{address}");
    let error = user.pull(REPO).unwrap_err().to_string();
    assert!(error.contains("127.0.0.1") && error.contains("5 attempts"), "{error}");
}

/// Writes to /dev/full fail like writes to a full disk.
#[cfg(target_os = "linux")]
#[test]
fn full_disk_is_an_error_and_leaves_no_model() {
    let content = random_bytes(50_000, 13);
    let (_hub, user) = hub(&content);
    let partial = user.blob(&(etag(&content) + ".incomplete"));
    fs::create_dir_all(partial.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/dev/full", &partial).unwrap();
    let error = user.pull(REPO).unwrap_err().to_string();
    assert!(error.contains("No space left"), "{error}");
    assert_eq!(user.find(REPO), None);
    assert!(!user.blob(&etag(&content)).exists());
    fs::remove_file(partial).unwrap();
    pulls(&user, &content);
}
