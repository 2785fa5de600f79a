use super::*;

#[test]
fn quantisation_is_read_from_common_file_names() {
    for (stem, expected) in [
        ("llama-2-7b.Q4_K_M", "Q4_K_M"),
        ("qwen2.5-7b-instruct-q4_k_m", "Q4_K_M"),
        ("Qwen3-30B-A3B-UD-Q4_K_XL", "UD-Q4_K_XL"),
        ("Phi-3-mini-4k-instruct-fp16", "FP16"),
        ("gemma-3-4b-it-BF16", "BF16"),
        ("gpt-oss-20b-MXFP4_MOE", "MXFP4_MOE"),
        ("model_q8_0", "Q8_0"),
        ("Llama-3.2-1B-Instruct-IQ4_XS", "IQ4_XS"),
    ] {
        assert_eq!(label(stem).as_deref(), Some(expected), "{stem}");
    }
    assert_eq!(label("ggml-vocab"), None);
    assert_eq!(label("Mistral-7B-v0.1"), None);
}

#[test]
fn shards_of_a_split_model_form_one_set() {
    let file = |path: &str| File {
        path: path.to_owned(),
        size: 1,
    };
    let sets = gguf_sets(&[
        file("Q8_0/m-Q8_0-00002-of-00002.gguf"),
        file("m-F16-00001-of-00003.gguf"),
        file("m-F16-00003-of-00003.gguf"),
        file("Q8_0/m-Q8_0-00001-of-00002.gguf"),
        file("m-Q4_0.GGUF"),
        file("mmproj-m-f16.gguf"),
        file("README.md"),
    ]);
    let labels: Vec<(&str, bool)> = sets.iter().map(|set| (set.label.as_str(), set.is_complete)).collect();
    assert_eq!(labels, [("Q8_0", true), ("F16", false), ("Q4_0", true)]);
    assert_eq!(
        sets[0].files,
        ["Q8_0/m-Q8_0-00001-of-00002.gguf", "Q8_0/m-Q8_0-00002-of-00002.gguf"]
    );
    for name in ["q8_0", "M-q8_0", "m-Q8_0-00001-of-00002.gguf"] {
        assert!(sets[0].is_called(name), "{name}");
    }
    assert!(!sets[0].is_called("Q8"));
}
