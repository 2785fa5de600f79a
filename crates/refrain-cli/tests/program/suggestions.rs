//! Suggestions for commands and options of other programs.

use crate::support::run;

#[test]
fn help_and_version_work_as_commands() {
    if !refrain_testing::drawn(8) {
        return;
    }
    assert_eq!(run(&["help"]).done(), run(&["--help"]).done());
    assert_eq!(run(&["help", "run"]).done(), run(&["run", "--help"]).done());
    assert_eq!(run(&["version"]).done(), run(&["--version"]).done());
    run(&["help", "server"]).failed(2, &["`refrain serve MODEL`"]);
}

#[test]
fn suggests_commands_for_those_of_other_programs() {
    for (typed, word) in [
        ("api", "`refrain serve MODEL`"),
        ("llama-server", "`refrain serve MODEL`"),
        ("mlx_lm.server", "`refrain serve MODEL`"),
        ("unload", "`refrain stop` stops one"),
        ("show", "`refrain inspect MODEL`"),
        ("quantize", "`refrain convert MODEL OUT --format q4_k_m`"),
        ("llama-quantize", "`refrain convert"),
        ("convert_hf_to_gguf.py", "`refrain convert"),
        ("perplexity", "`refrain eval MODEL --text FILE`"),
        ("generate", "`refrain run MODEL \"PROMPT\"`"),
        ("mlx_lm.generate", "`refrain run MODEL"),
        ("llama-cli", "`refrain run MODEL"),
        ("create", "options of `refrain run`"),
        ("cp", "options of `refrain run`"),
        ("push", "uploading is not supported"),
        ("search", "https://huggingface.co/models"),
        ("model.gguf", "`refrain run model.gguf \"PROMPT\"`"),
        ("Qwen/Qwen3-0.6B", "`refrain run Qwen/Qwen3-0.6B"),
        ("demo", "`refrain run demo"),
    ] {
        run(&[typed, "anything"]).failed(2, &[&format!("unknown command `{typed}`"), word]);
    }
}

#[test]
fn unknown_commands_get_the_nearest_match() {
    run(&["dance"]).failed(2, &["'dance'"]);
    run(&["benhc"]).failed(2, &["bench"]);
}

#[test]
fn suggests_serve_for_embeddings() {
    run(&["embed", "demo"]).failed(2, &["`refrain serve MODEL`", "/v1/embeddings"]);
}

#[test]
fn rejects_a_model_given_as_an_option_with_a_hint() {
    for arguments in [
        &["bench", "-m", "demo"][..],
        &["inspect", "--model", "demo"],
        &["-m", "demo"],
    ] {
        run(arguments).failed(2, &["pass the model as an argument"]);
    }
}
