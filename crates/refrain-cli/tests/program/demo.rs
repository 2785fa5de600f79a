//! `refrain run` with the built-in model.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use refrain_testing::sample;
use serde_json::Value;

use crate::support::{Outcome, refrain, run, run_with_input};

const SUM: &str = "What is 12 + 30?";

#[test]
fn built_in_model_answers_a_sum() {
    assert_eq!(run(&["run", "demo", SUM, "--temp", "0"]).done(), "12 + 30 = 42\n");
}

/// The first held-out question on each subject.
fn questions() -> Vec<Value> {
    let all: Vec<Value> = serde_json::from_str(include_str!("../../../../demo/questions.json")).unwrap();
    let mut seen = HashSet::new();
    all.into_iter()
        .filter(|question| seen.insert(question["subject"].to_string()))
        .collect()
}

fn prompt(question: &Value) -> &str {
    question["messages"][0]["content"].as_str().unwrap()
}

fn is_one_turn(question: &Value) -> bool {
    question["messages"].as_array().unwrap().len() == 1
}

#[test]
fn answers_are_correct_on_the_cpu_executor() {
    let questions = questions();
    assert!(questions.len() > 8);
    for question in sample(questions.iter().filter(|question| is_one_turn(question)), 8) {
        let answer = run(&["run", "demo", prompt(question), "--temp", "0"]).done();
        assert_eq!(answer.trim_end(), question["answer"], "{question}");
    }
}

#[test]
fn answers_are_correct_on_vulkan() {
    if !refrain_testing::drawn(6) {
        return;
    }
    // Software drivers take seconds for a long list.
    let short = |question: &&Value| is_one_turn(question) && prompt(question).len() < 200;
    let (sums, recall): (Vec<Value>, Vec<Value>) = questions()
        .iter()
        .filter(short)
        .cloned()
        .partition(|question| question["subject"].as_str().unwrap().starts_with("sums"));
    for question in [sums.last(), recall.first()].map(Option::unwrap) {
        let output = refrain(&["run", "demo", prompt(question), "--temp", "0", "--device", "0"]).output();
        assert_eq!(
            Outcome::from(output.unwrap()).done().trim_end(),
            question["answer"],
            "{question}"
        );
    }
}

#[test]
fn continues_a_rendered_multi_turn_conversation() {
    let questions = questions();
    let question = questions.iter().find(|question| !is_one_turn(question)).unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(question["messages"].to_string().as_bytes()).unwrap();
    let rendered = run(&["template", "demo", "--messages", file.path().to_str().unwrap()]).done();
    let answer = run_with_input(&["run", "demo", "--raw", "--temp", "0"], rendered.as_bytes()).done();
    assert_eq!(answer.trim_end(), question["answer"], "{question}");
}

#[test]
fn reads_the_prompt_from_standard_input() {
    let expected = run(&["run", "demo", SUM, "--temp", "0"]).done();
    let input = format!("{SUM}\n");
    assert_eq!(
        run_with_input(&["run", "--temp", "0"], input.as_bytes()).done(),
        expected
    );
    assert_eq!(
        run_with_input(&["run", "demo", "-", "--temp", "0"], input.as_bytes()).done(),
        expected
    );
}

#[test]
fn json_has_text_tokens_timings_and_finish_reason() {
    let result = run(&["run", "demo", SUM, "--temp", "0", "--json"]).json();
    assert_eq!(result["text"], "12 + 30 = 42");
    assert_eq!(result["finish"], "stop");
    assert!(result["ids"].as_array().unwrap().len() > 2);
    assert!(result["prompt_tokens"].as_u64().unwrap() > 5);
    for key in ["load_s", "time_to_first_token_s", "decode_s", "decode_tokens_per_s"] {
        assert!(result["timings"][key].as_f64().unwrap() > 0.0, "{key}: {result}");
    }
    assert!(result["memory"]["weight_bytes"].as_u64().unwrap() > 1 << 20);
    assert_eq!(result["sampling"]["temperature"], 0.0);
    assert_eq!(result["sampling"]["top_p"].to_string(), "0.9");
}

#[test]
fn prints_speed_unless_quiet_and_memory_if_verbose() {
    let printed = run(&["run", "demo", SUM, "--temp", "0"]);
    for word in ["tokens/s", "time to first token", "finish reason: stop"] {
        assert!(printed.stderr.contains(word), "{printed:?}");
    }
    let more = run(&["run", "demo", SUM, "--temp", "0", "-v"]);
    for word in ["tokens/s", "loaded in", "memory:"] {
        assert!(more.stderr.contains(word), "{more:?}");
    }
    assert_eq!(run(&["run", "-q", "demo", SUM, "--temp", "0"]).stderr, "");
}

#[test]
fn same_seed_gives_same_text() {
    let story = |seed: &str| {
        let arguments = [
            "run",
            "demo",
            "Tell me a story.",
            "--temp",
            "1.5",
            "-n",
            "12",
            "--seed",
            seed,
        ];
        run(&arguments).done()
    };
    assert_eq!(story("1"), story("1"));
    assert!((2..6).any(|seed| story(&seed.to_string()) != story("1")));
}

#[test]
fn logit_bias_bans_and_forces_tokens() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let ids = |arguments: &[&str]| {
        let fixed = ["run", "demo", SUM, "--temp", "0", "-n", "3", "--json"];
        let result = run(&[&fixed, arguments].concat()).json();
        let ids = result["ids"].as_array().unwrap().iter();
        ids.map(|id| id.as_u64().unwrap()).collect::<Vec<u64>>()
    };
    let default = ids(&[]);
    let forbidden = ids(&["--logit-bias", &format!("{}-inf", default[0])]);
    assert!(!forbidden.contains(&default[0]), "{forbidden:?}, {default:?}");
    assert_eq!(ids(&["--logit-bias", "40+1000"]), [40; 3]);
    let verified = ids(&["--logit-bias", "40+1000", "--device", "0", "--verify"]);
    assert_eq!(verified, [40; 3]);
    // After one penalty the bias still prevails, after two it no longer does.
    let falling = ids(&["--logit-bias", "40+1000", "--frequency-penalty", "900"]);
    assert!(falling[..2] == [40; 2] && falling[2] != 40, "{falling:?}");
}

#[test]
fn stops_at_token_limit_stop_string_and_full_context() {
    let finish = |arguments: &[&str]| {
        let fixed = ["run", "demo", SUM, "--temp", "0", "--json"];
        let result = run(&[&fixed, arguments].concat()).json();
        (result["finish"].clone(), result["text"].as_str().unwrap().to_owned())
    };
    assert_eq!(finish(&["-n", "2"]).0, "length");
    assert_eq!(finish(&["-n", &usize::MAX.to_string()]).0, "stop");
    assert_eq!(finish(&["--stop", " = "]), ("stop_string".into(), "12 + 30".to_owned()));
    let prompt = run(&["run", "demo", SUM, "--json", "-n", "0"]).json()["prompt_tokens"].clone();
    let room_for_one = (prompt.as_u64().unwrap() + 1).to_string();
    assert_eq!(finish(&["--ctx", &room_for_one]).0, "context");
    run(&["run", "demo", SUM, "--ctx", &prompt.to_string()]).failed(1, &["response included", "--ctx"]);
}

#[test]
fn raw_prompts_bypass_the_chat_template() {
    let tokens = |arguments: &[&str]| {
        let fixed = ["run", "demo", "once", "-n", "0", "--json"];
        run(&[&fixed, arguments].concat()).json()["prompt_tokens"]
            .as_u64()
            .unwrap()
    };
    assert!(tokens(&["--raw"]) < tokens(&[]));
    assert!(tokens(&[]) < tokens(&["--system", "Be kind."]));
}

#[test]
fn closed_standard_output_ends_the_program_quietly() {
    let mut command = refrain(&["run", "-q", "demo", "Tell me a story.", "-n", "400", "--device", "cpu"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    // The reading end of the pipe is dropped: the next write fails.
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[test]
fn ctrl_c_stops_after_the_current_token_and_prints_a_summary() {
    let mut command = refrain(&["run", "demo", "Tell me a story.", "--temp", "2", "--device", "cpu"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(rest.ends_with('\n'));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("finish reason: interrupted")
    );
}

#[test]
fn second_ctrl_c_ends_the_program_at_once() {
    // A pipe that nobody reads: the first word blocks forever.
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&[0; 1 << 16]).unwrap();
    let mut command = refrain(&["run", "demo", "Tell me a story.", "--device", "cpu", "-q"]);
    let mut child = command.stdout(writer).spawn().unwrap();
    let interrupt = |child: &std::process::Child| {
        let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    };
    let pause = || std::thread::sleep(std::time::Duration::from_millis(100));
    let status = format!("/proc/{}/status", child.id());
    let listens = || {
        let status = std::fs::read_to_string(&status).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & 2 != 0
    };
    refrain_testing::wait_until("the program listens", listens);
    pause();
    interrupt(&child);
    pause();
    assert_eq!(child.try_wait().unwrap(), None, "the first Ctrl-C waits for the write");
    let start = std::time::Instant::now();
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    // Generous, for busy machines: without the signal it would wait forever.
    assert!(start.elapsed().as_secs() < 120);
    drop(reader);
}

#[test]
fn bench_measures_loading_prompt_and_decoding() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let rows = run(&["bench", "demo", "-p", "16", "-n", "4", "-d", "0,8", "-r", "2", "--json"]).json();
    let tests: Vec<String> = (rows.as_array().unwrap().iter())
        .map(|row| format!("{} {}", row["test"].as_str().unwrap(), row["depth"]))
        .collect();
    assert_eq!(tests, ["pp16 0", "pp16 8", "tg4 0", "tg4 8"]);
    for key in [
        "tokens_per_s",
        "ms_per_token_p50",
        "weight_bytes_per_token",
        "probe_gbps",
        "bandwidth_share",
        "prepare_ms",
        "ttft_cold_ms",
        "ttft_warm_ms",
    ] {
        assert!(rows[3][key].as_f64().unwrap() > 0.0, "{key}: {rows}");
    }
    let table = run(&["bench", "demo", "-p", "0", "-n", "2", "-r", "1"]).done();
    assert!(table.contains("tg2") && !table.contains("pp"), "{table}");
    let csv = run(&["bench", "demo", "-p", "4", "-n", "0", "-r", "1", "--csv"]).done();
    assert!(csv.starts_with("model,arch,format,"), "{csv}");
}
