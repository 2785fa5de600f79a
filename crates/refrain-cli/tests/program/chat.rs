//! `refrain chat` with the bundled model.

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
fn each_line_is_answered_and_only_answers_are_written() {
    let told = chat(&[], "What is 12 + 30?\n\nWhat is 5 + 4?\n");
    assert_eq!(told.done(), "12 + 30 = 42\n5 + 4 = 9\n");
}

#[test]
fn answers_refer_to_what_was_said_before() {
    let questions: Vec<Value> = serde_json::from_str(include_str!("../../../../demo/questions.json")).unwrap();
    // A list in the first message, of several lines; later messages ask for what is in it.
    let turns = |question: &Value| question["messages"].as_array().unwrap().len();
    let long = questions.iter().find(|question| turns(question) > 4).unwrap();
    let said = |role: &str| -> Vec<&str> {
        let messages = long["messages"].as_array().unwrap().iter();
        let by = messages.filter(|message| message["role"] == role);
        by.map(|message| message["content"].as_str().unwrap()).collect()
    };
    let messages: Vec<String> = said("user")
        .iter()
        .map(|text| format!("\"\"\"{text}\"\"\"\n"))
        .collect();
    let mut expected = said("assistant");
    expected.push(long["answer"].as_str().unwrap());
    let told = chat(&[], &messages.concat()).done();
    assert_eq!(told.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn tokens_that_the_session_holds_are_not_computed_again() {
    let told = chat(&[], "What is 12 + 30?\nWhat is 5 + 4?\n/stats\n");
    let kept = told.stderr.lines().find_map(|line| {
        let rest = line.strip_prefix("last answer: ")?;
        rest.split_once(" tokens kept, ")
    });
    let (kept, rest) = kept.unwrap_or_else(|| panic!("{told:?}"));
    let new: usize = rest.split(' ').next().unwrap().parse().unwrap();
    assert!(kept.parse::<usize>().unwrap() > new, "{told:?}");
}

#[test]
fn a_conversation_is_saved_and_gone_on_with() {
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
    assert!(again.stderr.contains("the system message is: Be kind."), "{again:?}");
    // The state beside it spares computing what was said.
    assert!(!again.stderr.contains("last answer: 0 tokens kept"), "{again:?}");
    assert_eq!(again.done(), "5 + 4 = 9\n");
    fs::write(format!("{path}.state"), "damaged").unwrap();
    let again = chat(&["--load", path], "/regenerate\n/stats\n");
    assert!(again.stderr.contains("will be computed again: "), "{again:?}");
    assert!(again.stderr.contains("last answer: 0 tokens kept"), "{again:?}");
    assert_eq!(again.done(), "12 + 30 = 42\n");
}

#[test]
fn a_state_that_holds_for_another_device_is_computed_again_and_that_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.json");
    let path = path.to_str().unwrap();
    let question = "What is 12 + 30?\n";
    chat(&["--device", "cpu"], &format!("{question}/save {path}\n")).done();
    let said = "its tokens are computed again";
    // Keys and values have another precision there.
    let lines = format!("/load {path}\nWhat is 5 + 4?\n");
    let elsewhere = chat(&["--device", "0"], &lines);
    assert_eq!(elsewhere.stderr.matches(said).count(), 1, "{elsewhere:?}");
    assert_eq!(elsewhere.done(), "5 + 4 = 9\n");
    let here = chat(&["--device", "cpu"], &lines);
    assert!(!here.stderr.contains(said), "{here:?}");
    assert!(!chat(&["--device", "0", "-q"], &lines).stderr.contains(said));
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
    let told = run(&go_on);
    assert!(told.stderr.contains(said), "{told:?}");
}

#[test]
fn commands_do_what_the_help_says() {
    let told = chat(
        &[],
        "/help\nWhat is 12 + 30?\n/clear\n/stats\n/system Be kind.\n/system\n/exit\nWhat is 1 + 1?\n",
    );
    for word in ["/regenerate", ": 0 messages", "the system message is: Be kind."] {
        assert!(told.stderr.contains(word), "no {word:?} in {told:?}");
    }
    assert_eq!(told.done(), "12 + 30 = 42\n");
}

#[test]
fn what_goes_wrong_ends_a_script_with_what_to_do() {
    let failed = |arguments: &[&str], lines: &str, words: &[&str]| chat(arguments, lines).failed(1, words);
    failed(&[], "/dance\n", &["/dance", "/help"]);
    failed(&[], "/regenerate\n", &["no message to answer"]);
    failed(&[], "/load no/such/file.json\n", &["no/such/file.json"]);
    failed(&[], "/save no/such/folder/file.json\n", &["no/such/folder"]);
    failed(&["--ctx", "8"], "What is 12 + 30?\n", &["context holds 8", "--ctx"]);
    chat(&["--load", "no/such/file.json"], "").failed(1, &["no/such/file.json"]);
}

#[test]
fn a_long_answer_is_stopped_by_length_and_by_the_context() {
    let told = chat(&["-n", "2"], "What is 12 + 30?\n");
    assert!(
        told.stderr.contains("stopped after as many tokens as -n allows"),
        "{told:?}"
    );
    let told = chat(&["--ctx", "20"], "What is 12 + 30?\n");
    assert!(told.stderr.contains("the context is full: /ctx"), "{told:?}");
}

#[test]
fn ctrl_c_stops_an_answer_and_the_chat_goes_on() {
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
        stderr.contains("(stopped)") && stderr.contains("end: interrupted"),
        "{stderr}"
    );
}
