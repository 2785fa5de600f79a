//! The files beside the weights of a directory: tokenizer, chat template, generation defaults.

use crate::files::directory::pretty;
use refrain_formats::Error;
use refrain_models::Checkpoint;
use serde_json::{Map, Value, json};

/// Copies a directory's own files; for a GGUF file, builds them from its metadata.
pub(super) fn files(source: &Checkpoint) -> Result<Vec<(String, Vec<u8>)>, Error> {
    if let Some(files) = source.files().side_files()? {
        return Ok(files);
    }
    if !source.files().has_tokenizer() {
        return Ok(Vec::new());
    }
    let tokenizer = source.tokenizer()?;
    let mut config = Map::new();
    config.insert("tokenizer_class".to_owned(), json!("PreTrainedTokenizerFast"));
    config.insert("clean_up_tokenization_spaces".to_owned(), json!(false));
    config.insert("model_max_length".to_owned(), json!(source.config().max_position));
    for (role, token) in source.special_tokens()? {
        config.insert(role, json!(token));
    }
    if let Some(template) = source.chat_template()? {
        let named = Vec::from_iter(template.sources());
        let value = match &named[..] {
            [("default", source)] => json!(source),
            many => Value::Array(
                many.iter()
                    .map(|(name, source)| json!({ "name": name, "template": source }))
                    .collect(),
            ),
        };
        config.insert("chat_template".to_owned(), value);
    }
    let mut generation = Map::new();
    if let Some(bos) = tokenizer.bos_id() {
        generation.insert("bos_token_id".to_owned(), json!(bos));
    }
    generation.insert("eos_token_id".to_owned(), json!(tokenizer.eos_ids()));
    Ok(vec![
        ("tokenizer.json".to_owned(), pretty(&tokenizer.to_json()?)),
        ("tokenizer_config.json".to_owned(), pretty(&Value::Object(config))),
        ("generation_config.json".to_owned(), pretty(&Value::Object(generation))),
    ])
}
