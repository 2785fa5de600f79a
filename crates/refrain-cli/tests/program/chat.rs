//! `refrain chat` with the built-in model.

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Outcome, refrain, run, run_with_input};

fn chat(arguments: &[&str], lines: &str) -> Outcome {
    run_with_input(
        &[&["chat", "demo", "--temp", "0"], arguments].concat(),
        lines.as_bytes(),
    )
}

#[test]
fn answers_each_line_and_prints_only_responses() {
    let printed = chat(&[], "What is 12 + 30?\n\nWhat is 5 + 4?\n");
    assert_eq!(printed.done(), "12 + 30 = 42\n5 + 4 = 9\n");
}

#[test]
fn responses_refer_to_earlier_messages() {
    let questions: Vec<Value> = serde_json::from_str(include_str!("../../../../demo/questions.json")).unwrap();
    // The first message is a list of several lines; later messages ask about it.
    let turns = |question: &Value| question["messages"].as_array().unwrap().len();
    let long = questions.iter().find(|question| turns(question) > 4).unwrap();
    let reply = |role: &str| -> Vec<&str> {
        let messages = long["messages"].as_array().unwrap().iter();
        let by = messages.filter(|message| message["role"] == role);
        by.map(|message| message["content"].as_str().unwrap()).collect()
    };
    let messages: Vec<String> = reply("user")
        .iter()
        .map(|text| format!("\"\"\"{text}\"\"\"\n"))
        .collect();
    let mut expected = reply("assistant");
    expected.push(long["answer"].as_str().unwrap());
    let printed = chat(&[], &messages.concat()).done();
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn does_not_process_cached_tokens_again() {
    let printed = chat(&[], "What is 12 + 30?\nWhat is 5 + 4?\n/stats\n");
    let kept = printed.stderr.lines().find_map(|line| {
        let rest = line.strip_prefix("last response: ")?;
        rest.split_once(" prompt tokens cached, ")
    });
    let (kept, rest) = kept.unwrap_or_else(|| panic!("{printed:?}"));
    let new: usize = rest.split(' ').next().unwrap().parse().unwrap();
    assert!(kept.parse::<usize>().unwrap() > new, "{printed:?}");
}

#[test]
fn saves_and_resumes_a_conversation() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.json");
    let path = path.to_str().unwrap();
    chat(&["--system", "Be kind."], &format!("What is 12 + 30?\n/save {path}\n")).done();
    let saved: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let roles = saved["messages"].as_array().unwrap().iter();
    let roles: Vec<&Value> = roles.map(|message| &message["role"]).collect();
    assert_eq!(roles, ["system", "user", "assistant"]);
    assert_eq!(saved["messages"][2]["content"], "12 + 30 = 42");
    let again = chat(&["--load", path], "/system\nWhat is 5 + 4?\n/stats\n");
    assert!(again.stderr.contains("system message: Be kind."), "{again:?}");
    // The saved state avoids processing the conversation again.
    assert!(
        !again.stderr.contains("last response: 0 prompt tokens cached"),
        "{again:?}"
    );
    assert_eq!(again.done(), "5 + 4 = 9\n");
    // Saving what was loaded keeps its state.
    let state = fs::read(format!("{path}.state")).unwrap();
    let loaded = chat(&["--load", path], &format!("/stats\n/save {path}\n"));
    assert!(!loaded.stderr.contains(", 0 of "), "{loaded:?}");
    assert_eq!(fs::read(format!("{path}.state")).unwrap().len(), state.len());
    fs::write(format!("{path}.state"), "damaged").unwrap();
    let again = chat(&["--load", path], "/regenerate\n/stats\n");
    assert!(again.stderr.contains("will be recomputed: "), "{again:?}");
    assert!(
        again.stderr.contains("last response: 0 prompt tokens cached"),
        "{again:?}"
    );
    assert_eq!(again.done(), "12 + 30 = 42\n");
}

#[test]
fn recomputes_a_state_of_another_device_with_a_notice() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.json");
    let path = path.to_str().unwrap();
    let question = "What is 12 + 30?\n";
    chat(&["--device", "cpu"], &format!("{question}/save {path}\n")).done();
    let reply = "its tokens are recomputed";
    // The KV cache has another precision there.
    let lines = format!("/load {path}\nWhat is 5 + 4?\n");
    let elsewhere = chat(&["--device", "0"], &lines);
    assert_eq!(elsewhere.stderr.matches(reply).count(), 1, "{elsewhere:?}");
    assert_eq!(elsewhere.done(), "5 + 4 = 9\n");
    let here = chat(&["--device", "cpu"], &lines);
    assert!(!here.stderr.contains(reply), "{here:?}");
    assert!(!chat(&["--device", "0", "-q"], &lines).stderr.contains(reply));
    let state = format!("{path}.state");
    let go_on = [
        "run",
        "demo",
        "--raw",
        " more",
        "-n",
        "1",
        "--load-state",
        &state,
        "--device",
        "0",
    ];
    let printed = run(&go_on);
    assert!(printed.stderr.contains(reply), "{printed:?}");
}

#[test]
fn commands_work_as_documented() {
    let printed = chat(
        &[],
        "/help\nWhat is 12 + 30?\n/clear\n/stats\n/system Be kind.\n/system\n/exit\nWhat is 1 + 1?\n",
    );
    for word in ["/regenerate", ": 0 messages", "system message: Be kind."] {
        assert!(printed.stderr.contains(word), "no {word:?} in {printed:?}");
    }
    assert_eq!(printed.done(), "12 + 30 = 42\n");
}

#[test]
fn errors_end_a_script_with_a_hint() {
    let failed = |arguments: &[&str], lines: &str, words: &[&str]| chat(arguments, lines).failed(1, words);
    failed(&[], "/dance\n", &["/dance", "/help"]);
    failed(&[], "/regenerate\n", &["no message to respond to"]);
    failed(&[], "/load no/such/file.json\n", &["no/such/file.json"]);
    failed(&[], "/save no/such/folder/file.json\n", &["no/such/folder"]);
    failed(&["--ctx", "8"], "What is 12 + 30?\n", &["context holds 8", "--ctx"]);
    chat(&["--load", "no/such/file.json"], "").failed(1, &["no/such/file.json"]);
}

#[test]
fn response_stops_at_token_limit_and_at_full_context() {
    let printed = chat(&["-n", "2"], "What is 12 + 30?\n");
    assert!(
        printed.stderr.contains("stopped at the token limit (-n)"),
        "{printed:?}"
    );
    let printed = chat(&["--ctx", "20"], "What is 12 + 30?\n");
    assert!(printed.stderr.contains("the context is full: use /ctx"), "{printed:?}");
}

#[test]
fn ctrl_c_stops_a_response_and_the_chat_continues() {
    let mut command = refrain(&["chat", "demo", "--temp", "2", "--seed", "1", "--device", "cpu"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"Tell me a story.\n").unwrap();
    let mut first = [0];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
    stdin.write_all(b"/stats\n").unwrap();
    drop(stdin);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(
        stderr.contains("(interrupted)") && stderr.contains("finish reason: interrupted"),
        "{stderr}"
    );
}
