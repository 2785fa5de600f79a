//! Decoding: `explain`, `--verify`, modes, saved states and `soak`.

use refrain_testing::sample;
use serde_json::Value;

use super::support::{fixture, refrain, run};

const QUESTION: &str = "What is 348 + 276?";

/// Runs the program on the first Vulkan device.
fn on_vulkan(arguments: &[&str]) -> super::support::Outcome {
    refrain(arguments).env("REFRAIN_DEVICE", "0").output().unwrap().into()
}

#[test]
fn explain_prints_every_pass_and_the_cost_of_a_token() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let explained = |arguments: &[&str]| {
        let arguments = [&["explain", "synthetic:tiny:q4_0", "--device", "null"], arguments].concat();
        run(&arguments).done()
    };
    for stage in sample(refrain::passes::STAGE_NAMES, 8) {
        let text = explained(&["--after", stage]);
        assert!(text.contains("f32[1, 256]"), "{stage}: {text}");
    }
    let plan = explained(&[]);
    assert!(
        plan.contains("decode_attention") && plan.contains("---- barrier"),
        "{plan}"
    );
    assert!(!plan.contains("unfused"), "{plan}");
    let dot = explained(&["--dot"]);
    assert!(dot.starts_with("digraph") && dot.contains("->"), "{dot}");
    let json: Value = serde_json::from_str(&explained(&["--json"])).unwrap();
    let token = &json["token"];
    assert!(token["dispatches"].as_u64().unwrap() <= 7 * 6, "{token}");
    assert!(token["barriers"].as_u64().unwrap() <= 6 * 6, "{token}");
    assert_eq!((&token["copies"], &token["transfers"]), (&0.into(), &0.into()));
    let number = |key: &str| token[key].as_f64().unwrap();
    assert!(number("weight_bytes") > 0.0 && number("kv_bytes") > 0.0, "{token}");
    let floor = (number("weight_bytes") + number("kv_bytes")) / (number("read_gbps") * 1e6);
    assert!((number("floor_ms") - floor).abs() < 1e-9 * floor, "{token}");
    // Disabled features are not used, and no model is too large to inspect.
    let kernels = explained(&["--disable", "integer-dot,subgroup-arithmetic"]);
    assert!(
        plan.contains("+dot") && !kernels.contains("+dot") && !kernels.contains("+subgroup"),
        "{kernels}"
    );
    let large = ["explain", "synthetic:qwen3-32b:bf16", "--device", "null", "--summary"];
    assert!(run(&large).done().contains("weights read 59."));
    // Norms of outputs and of whole projections match no fusion pattern.
    let olmo = run(&[
        "explain",
        super::support::fixture("olmo2-bf16").to_str().unwrap(),
        "--device",
        "null",
    ])
    .done();
    assert!(olmo.contains("unfused") && olmo.contains("rms_norm"), "{olmo}");
    run(&["explain", "demo", "--after", "nothing"]).failed(2, &["unknown pass", "schedule"]);
}

#[test]
fn explain_shows_the_cost_of_a_prompt_a_batch_and_drafts() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let explained = |arguments: &[&str]| {
        let arguments = [
            &["explain", "synthetic:tiny:q4_0", "--device", "null", "--json"],
            arguments,
        ]
        .concat();
        run(&arguments).json()
    };
    let of = [
        &["-d", "0"][..],
        &["--prompt", "64"],
        &["--batch", "8", "-d", "0"],
        &["--drafts", "7", "-d", "0"],
    ];
    let [one, prompt, batch, drafts] = of.map(explained);
    let cost = |of: &Value, key: &str| of["token"][key].as_u64().unwrap();
    assert_eq!(
        (prompt["prompt"].as_u64(), prompt["mode"].as_str()),
        (Some(64), Some("eager"))
    );
    assert_eq!(drafts["drafts"].as_u64(), Some(7));
    for (of, tokens) in [(&prompt, 64), (&batch, 8), (&drafts, 8)] {
        let (least, most) = (tokens * 3 / 4, tokens * 3 / 2);
        let times = cost(of, "multiplications") / cost(&one, "multiplications");
        // Only the last token of a prompt has logits, and its attention does not see the whole context.
        assert!(of["prompt"].is_number() || (least..=most).contains(&times), "{times}");
        assert!(times > tokens / 3 && times <= most, "{times} for {tokens} tokens");
    }
    let text = run(&["explain", "synthetic:tiny:q4_0", "--device", "null", "--prompt", "64"]).done();
    assert!(text.contains("prompt     ") && text.contains("[64, "), "{text}");
    let traced = [
        "explain",
        "synthetic:tiny:q4_0",
        "--device",
        "null",
        "--prompt",
        "64",
        "--after",
        "trace",
    ];
    assert!(run(&traced).done().contains("input"));
    run(&["explain", "demo", "--prompt", "2049"]).failed(2, &["2049", "2048"]);
    run(&["explain", "demo", "--prompt", "5", "--batch", "2"]).failed(2, &["--batch"]);
    run(&["explain", "demo", "--drafts", "8"]).failed(2, &["8", "7"]);
}

#[test]
fn explain_profiles_every_step_of_a_token_and_a_prompt() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let model = fixture("qwen3-gguf-q4_0/model.gguf");
    let model = model.to_str().unwrap();
    for of in [&["--batch", "3"][..], &["--drafts", "3"], &["--prompt", "20"]] {
        let profiled = on_vulkan(&[&["explain", model, "--profile", "--json"], of].concat()).json();
        let steps = profiled["steps"].as_array().unwrap();
        assert!(steps.len() > 6, "{profiled}");
        let us: Vec<f64> = steps.iter().map(|step| step["us"].as_f64().unwrap()).collect();
        assert!(us.iter().all(|us| *us >= 0.0) && us.iter().sum::<f64>() > 0.0, "{us:?}");
        assert!(steps.iter().any(|step| step["multiplications"].as_u64() > Some(1000)));
    }
    let deep = on_vulkan(&["explain", model, "--profile", "--depth", "1000000"]);
    deep.failed(1, &["1000001 tokens do not fit in a context of"]);
}

#[test]
fn profile_sums_equal_steps_of_all_layers() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let text = on_vulkan(&["explain", "demo", "--profile"]).done();
    let (_, profile) = text.split_once("profile ").unwrap();
    let numbers = |line: &str| -> Vec<f64> {
        let words = line.split(|c: char| !c.is_ascii_digit() && c != '.');
        words.filter_map(|word| word.parse().ok()).collect()
    };
    let mut lines = profile.lines();
    let head = numbers(lines.next().unwrap());
    let [total, steps, kinds] = head[..] else {
        panic!("{profile}");
    };
    // Count, microseconds each, total microseconds, and share.
    let lines: Vec<_> = lines.map(|line| (line, numbers(line))).collect();
    let sum = |column: usize| lines.iter().map(|(_, numbers)| numbers[column]).sum::<f64>();
    assert_eq!((sum(0), lines.len() as f64), (steps, kinds), "{profile}");
    assert!(
        (sum(2) - total).abs() < 0.1 * kinds && (sum(3) - 100.0).abs() < 0.1 * kinds,
        "{profile}"
    );
    // The demo model's 8 layers are equal, so each projection but the output's occurs in all of them.
    let projections = lines.iter().filter(|(line, _)| line.contains("projection"));
    let counts: Vec<f64> = projections.map(|(_, numbers)| numbers[0]).collect();
    assert!(
        counts.contains(&1.0) && counts.iter().all(|&count| count == 1.0 || count == 8.0),
        "{profile}"
    );
    assert!(counts.len() >= 3, "{profile}");
}

#[test]
fn verify_names_an_injected_fault() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let ask = |more: &[&str]| on_vulkan(&[&["run", "demo", QUESTION, "--temp", "0", "-q", "--verify"], more].concat());
    assert_eq!(ask(&[]).done(), "348 + 276 = 624\n");
    let found = ask(&["--inject-fault", "decode_attention:2"]);
    found.failed(
        1,
        &["replay and eager differ at token 0", "decode_attention", "12345.67"],
    );
    ask(&["--inject-fault", "nonsense:0"]).failed(1, &["no region", "nonsense"]);
    let frozen = ask(&["--freeze", "input", "-n", "3"]);
    assert_eq!(frozen.code, Some(0), "{frozen:?}");
}

#[test]
fn modes_and_submission_sizes_do_not_change_tokens() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let model = fixture("qwen3-bf16");
    let model = model.to_str().unwrap();
    let story = |more: &[&str]| {
        let arguments = [
            "run", model, "a b c", "--raw", "-n", "110", "--seed", "3", "--temp", "0.9", "-q",
        ];
        on_vulkan(&[&arguments, more].concat()).done()
    };
    let eager = story(&["--mode", "eager"]);
    assert_eq!(story(&["--mode", "replay", "--tokens-per-submit", "8"]), eager);
    assert_eq!(story(&["--mode", "auto"]), eager);
}

#[test]
fn speculation_does_not_change_texts() {
    let draft = concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/draft");
    let head = fixture("qwen3.5-mtp-f16");
    let head = head.to_str().unwrap();
    let story = |model: &str, more: &[&str]| {
        let arguments = [
            "run",
            model,
            "Tell me a story.",
            "-n",
            "40",
            "--seed",
            "3",
            "-q",
            "--device",
            "cpu",
        ];
        run(&[&arguments, more].concat()).done()
    };
    let plain = story("demo", &["--speculate", "off"]);
    assert_eq!(story("demo", &["--speculate", "ngram"]), plain);
    assert_eq!(story("demo", &["--draft", draft]), plain);
    let raw = ["--raw", "--temp", "0"];
    assert_eq!(
        story(head, &[&raw[..], &["--speculate", "off"]].concat()),
        story(head, &raw)
    );
    let asked = run(&["run", "demo", "2 + 2", "-n", "1", "--speculate", "mtp"]);
    assert!(
        asked
            .stderr
            .contains("--speculate has no effect: its checkpoint has no"),
        "{asked:?}"
    );
    run(&["run", "demo", "2 + 2", "--draft", draft, "--speculate", "ngram"]).failed(2, &["--draft", "--speculate"]);
    let other = fixture("qwen3-bf16");
    run(&["run", "demo", "2 + 2", "--draft", other.to_str().unwrap()]).failed(1, &["cannot draft for this model"]);
}

#[test]
fn explain_shows_the_measured_mode() {
    if !refrain_testing::drawn(12) {
        return;
    }
    // Nothing is cached at first, not even the directory exists.
    let cache = tempfile::tempdir().unwrap();
    let within = |arguments: &[&str]| {
        let mut command = refrain(arguments);
        command.env("REFRAIN_DEVICE", "0");
        command.env("XDG_CACHE_HOME", cache.path().join("empty"));
        super::support::Outcome::from(command.output().unwrap())
    };
    let model = super::support::fixture("qwen3-bf16");
    let model = model.to_str().unwrap();
    let explained = |model: &str| within(&["explain", model, "--summary"]).done();
    let bench = ["bench", model, "-p", "0", "-n", "110", "-r", "1"];
    within(&[&bench[..], &["--mode", "replay"]].concat()).done();
    assert!(explained(model).contains("not measured yet"));

    within(&bench).done();
    let json = within(&["explain", model, "--json"]).json();
    let time = |mode: &str| json["measured"]["us"][mode].as_f64().unwrap();
    let (eager, replay) = (time("eager"), time("replay"));
    assert!(eager > 0.0 && replay > 0.0, "{json}");
    let faster = if eager < 0.95 * replay { "eager" } else { "replay" };
    assert_eq!(json["mode"], faster);
    let line = format!("{faster} (measured: eager {eager:.0} µs, replay {replay:.0} µs)");
    assert!(explained(model).contains(&line), "{line}");
    // An explicit mode overrides the measurement, and other models have their own.
    let requested = within(&["explain", model, "--summary", "--mode", "eager"]).done();
    assert!(requested.contains("mode       eager"), "{requested}");
    assert!(explained("synthetic:tiny:q4_0").contains("not measured yet"));
    // Texts are generated in the mode that was measured.
    within(&["run", model, "a b c", "--raw", "-n", "5", "-q"]).done();
}

#[test]
fn state_continues_in_the_next_run_and_a_damaged_one_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let path = state.to_str().unwrap();
    let ask = |arguments: &[&str]| run(&[&["run", "demo", "--raw", "--temp", "0", "-q", "--json"], arguments].concat());
    let ids = |outcome: super::support::Outcome| outcome.json()["ids"].clone();
    let whole = ids(ask(&["Once upon a time", "-n", "12"]));
    let first = ask(&["Once upon a", "-n", "1", "--save-state", path]).json();
    assert_eq!(first["finish"], "length");
    // The state holds the prompt but not the last generated token.
    let rest = ids(ask(&[" time", "-n", "12", "--load-state", path]));
    assert_eq!(rest, whole);
    // A state without a response holds the computed prompt.
    let whole_size = std::fs::metadata(&state).unwrap().len();
    let nothing = ids(ask(&["Once upon a", "-n", "0", "--save-state", path]));
    assert_eq!(
        (nothing, std::fs::metadata(&state).unwrap().len()),
        (serde_json::json!([]), whole_size)
    );
    assert_eq!(ids(ask(&[" time", "-n", "12", "--load-state", path])), whole);
    let mut bytes = std::fs::read(&state).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&state, &bytes).unwrap();
    ask(&[" time", "--load-state", path]).failed(1, &["state file", "corrupt"]);
    ask(&[" time", "--load-state", "no/such/file"]).failed(1, &["no/such/file"]);
    bytes[middle] ^= 1;
    std::fs::write(&state, &bytes).unwrap();
    let other = super::support::fixture("qwen3-bf16");
    let other = ["run", other.to_str().unwrap(), "a", "--raw", "--load-state", path];
    run(&other).failed(1, &["saved state does not fit", "another model"]);
}

#[test]
fn soak_passes_and_fails_on_a_timeout() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let sound = on_vulkan(&[
        "soak",
        "synthetic:tiny:q4_0",
        "-n",
        "60",
        "--ctx",
        "24",
        "--verify",
        "2",
        // A busy machine may stall any token.
        "--timeout",
        "inf",
        "--json",
    ])
    .json();
    assert_eq!(sound["verdict"], "sound", "{sound}");
    assert_eq!(
        (sound["tokens"].as_u64(), sound["contexts"].as_u64()),
        (Some(60), Some(3))
    );
    assert!(sound["verified_tokens"].as_u64().unwrap() >= 2, "{sound}");
    let slow = run(&["soak", "demo", "-n", "5", "--timeout", "0"]);
    assert_eq!(slow.code, Some(1), "{slow:?}");
    assert!(slow.stdout.contains("verdict: failed"), "{slow:?}");
}
