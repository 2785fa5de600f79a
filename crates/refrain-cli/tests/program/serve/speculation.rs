//! Speculation: answers stay the same, whatever guesses.

use serde_json::json;

use super::Server;
use crate::support::{fixture, refrain, run};

#[test]
fn speculation_changes_no_answer_and_is_counted() {
    let [plain, ngram, model] = [&[][..], &["--speculate", "ngram"], &["--draft", "demo"]].map(Server::start);
    check_speculation("demo", &plain, &ngram, 0);
    // A model guesses its own tokens.
    check_speculation("demo", &plain, &model, 50);
}

#[test]
fn a_head_of_the_checkpoint_drafts_unless_told_otherwise() {
    let name = "qwen3.5-mtp-f16";
    let path = fixture(name);
    let path = path.to_str().expect("UTF-8");
    let serve = |options: &[&str]| {
        let server = [&["serve", path, "--port", "0", "--device", "cpu", "-q"], options].concat();
        Server::of(refrain(&server))
    };
    let [plain, auto, asked] = [&["--speculate", "off"][..], &[], &["--speculate", "mtp"]].map(serve);
    check_speculation(name, &plain, &auto, 0);
    check_speculation(name, &plain, &asked, 0);
    let none = format!("vllm:spec_decode_num_drafts_total{{model_name=\"{name}\"}} 0");
    plain.wait_for_metric(&none);
}

/// Checks that drafts change no answer, and that at least a share of their tokens is accepted.
fn check_speculation(name: &str, plain: &Server, drafting: &Server, percent: u64) {
    let body = json!({"model": name, "temperature": 0, "max_tokens": 60, "prompt": "12 + 30 = 42; ".repeat(6)});
    // The first steps are measured without drafts.
    for _ in 0..3 {
        let [expected, found] = [plain, drafting].map(|server| server.post("/v1/completions", &body).1);
        assert_eq!(found["choices"], expected["choices"]);
    }
    // An answer may be there before its last step is counted.
    let label = format!("model_name=\"{name}\"");
    drafting.wait_for_metric(&format!("vllm:num_requests_running{{{label}}} 0"));
    let metrics = drafting.get("/metrics").1;
    let value = |name: &str| {
        let line = format!("vllm:spec_decode_num_{name} ");
        let found = metrics.lines().find_map(|found| found.strip_prefix(&line));
        found.and_then(|value| value.parse::<u64>().ok()).expect(name)
    };
    let total = |name: &str| value(&format!("{name}_total{{{label}}}"));
    assert!(
        total("drafts") > 0 && total("draft_tokens") >= total("drafts"),
        "{metrics}"
    );
    let by_position = |position| {
        value(&format!(
            "accepted_tokens_per_pos_total{{{label},position=\"{position}\"}}"
        ))
    };
    assert_eq!(
        (0..7).map(by_position).sum::<u64>(),
        total("accepted_tokens"),
        "{metrics}"
    );
    assert!(
        100 * total("accepted_tokens") >= percent * total("draft_tokens"),
        "{metrics}"
    );
}

#[test]
fn rejects_a_draft_model_with_other_tokens_before_loading() {
    let [small, llama, hybrid] = ["qwen3-bf16", "llama-f32", "qwen3.5-bf16"].map(fixture);
    let [small, llama, hybrid] = [&small, &llama, &hybrid].map(|path| path.to_str().expect("UTF-8"));
    let serve = |model, draft| run(&["serve", model, "--draft", draft, "--device", "cpu", "--port", "0"]);
    serve("demo", small).failed(1, &["--draft", "cannot draft for demo", "vocabulary", "311"]);
    serve(small, llama).failed(1, &["--draft", "token", "other model"]);
    serve(small, hybrid).failed(1, &["--draft", "it has recurrent states"]);
    serve("demo", "synthetic:tiny:f16").failed(1, &["--draft", "tokenizer"]);
    serve("demo", "no-such-model").failed(1, &["--draft", "no-such-model"]);
    run(&["serve", "demo", "--draft", "demo", "--speculate", "ngram"]).failed(2, &["--draft", "--speculate"]);
}
