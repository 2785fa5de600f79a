//! Words of other programs.

use crate::support::run;

#[test]
fn help_and_version_may_be_typed_as_commands() {
    assert_eq!(run(&["help"]).done(), run(&["--help"]).done());
    assert_eq!(run(&["help", "run"]).done(), run(&["run", "--help"]).done());
    assert_eq!(run(&["version"]).done(), run(&["--version"]).done());
    run(&["help", "server"]).failed(2, &["`refrain serve MODEL`"]);
}

#[test]
fn commands_of_other_programs_get_the_right_word() {
    for (typed, word) in [
        ("api", "`refrain serve MODEL`"),
        ("llama-server", "`refrain serve MODEL`"),
        ("mlx_lm.server", "`refrain serve MODEL`"),
        ("unload", "`refrain stop` ends one"),
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
        ("push", "nothing is uploaded"),
        ("search", "https://huggingface.co/models"),
        ("model.gguf", "`refrain run model.gguf \"PROMPT\"`"),
        ("Qwen/Qwen3-0.6B", "`refrain run Qwen/Qwen3-0.6B"),
        ("demo", "`refrain run demo"),
    ] {
        run(&[typed, "anything"]).failed(2, &[&format!("no command `{typed}`"), word]);
    }
}

#[test]
fn other_words_are_unknown_and_typing_errors_get_the_nearest() {
    run(&["dance"]).failed(2, &["'dance'"]);
    run(&["benhc"]).failed(2, &["bench"]);
}

#[test]
fn embeddings_are_a_servers() {
    run(&["embed", "demo"]).failed(2, &["`refrain serve MODEL`", "/v1/embeddings"]);
}

#[test]
fn a_model_given_by_an_option_is_told_where_it_stands() {
    for arguments in [
        &["bench", "-m", "demo"][..],
        &["inspect", "--model", "demo"],
        &["-m", "demo"],
    ] {
        run(arguments).failed(2, &["the model stands behind the command"]);
    }
}
