//! Multimodal checkpoints (images, sound): extracts their text model.

use std::borrow::Cow;

use refrain_formats::JsonObject;
use serde_json::Value;

use crate::family::Family;

/// Returns the `config.json` of the text model, and whether it is only a part of `object`. It is the object under
/// `text_config` if only that has a supported architecture, completed with values of the outer object.
pub(crate) fn text_config<'o>(object: &'o JsonObject, families: &[&'static Family]) -> (Cow<'o, JsonObject>, bool) {
    let name = |object: &JsonObject| object.get("model_type").and_then(Value::as_str).map(str::to_owned);
    let (whole, own) = (name(object), object.get("text_config").and_then(Value::as_object));
    let is_text = whole
        .as_ref()
        .is_some_and(|whole| families.iter().any(|family| family.name == whole));
    let Some(own) = own.filter(|_| !is_text) else {
        return (Cow::Borrowed(object), false);
    };
    // mlx-lm does not need the text model's own name.
    let named = name(own).or_else(|| {
        let mut wrapped = families
            .iter()
            .filter(|family| family.wrapper.is_some_and(|[_, name]| Some(name) == whole.as_deref()));
        wrapped.next().map(|family| family.name.to_owned())
    });
    let Some(named) = named.filter(|name| families.iter().any(|family| family.is_named(name))) else {
        return (Cow::Borrowed(object), false);
    };
    let mut text = own.clone();
    text.insert("model_type".to_owned(), Value::String(named));
    // The outer object's values take precedence; those of the text model are often defaults.
    for key in ["bos_token_id", "eos_token_id", "quantization", "quantization_config"] {
        if let Some(value) = object.get(key).filter(|value| !value.is_null()) {
            text.insert(key.to_owned(), value.clone());
        }
    }
    (Cow::Owned(text), true)
}

/// Returns the text model's name of a tensor or layer; `None` if it belongs to another part.
pub(crate) fn text_name(name: &str) -> Option<String> {
    let name = match name.strip_prefix("language_model.") {
        Some(own) => own.to_owned(),
        None => match name.strip_prefix("model.language_model.") {
            Some(own) => format!("model.{own}"),
            None => name.to_owned(),
        },
    };
    let text = ["model.embed_tokens", "model.layers.", "model.norm.", "lm_head", "mtp."];
    text.iter().any(|start| name.starts_with(start)).then_some(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::families::FAMILIES;

    #[test]
    fn text_models_are_found_by_any_of_their_names() {
        for (whole, own, expected) in [
            ("qwen3_5", Some("qwen3_5_text"), Some("qwen3_5_text")),
            ("qwen3_5", Some("qwen3_5"), Some("qwen3_5")),
            ("qwen3_5_moe", None, Some("qwen3_5_moe_text")),
            ("gemma3", Some("gemma3_text"), Some("gemma3_text")),
            ("gemma3", None, None),
            ("llama", Some("qwen3_5"), None),
            ("unknown", Some("unknown"), None),
        ] {
            let mut text = json!({ "hidden_size": 64 });
            if let Some(own) = own {
                text["model_type"] = json!(own);
            }
            let object = json!({ "model_type": whole, "text_config": text });
            let Value::Object(object) = object else { continue };
            let (found, is_part) = text_config(&object, FAMILIES);
            assert_eq!(is_part, expected.is_some(), "{whole} {own:?}");
            if is_part {
                assert_eq!(found.get("model_type").and_then(Value::as_str), expected, "{whole}");
            }
        }
    }

    #[test]
    fn text_model_prefixes_are_removed() {
        for (name, expected) in [
            (
                "language_model.model.layers.3.mlp.up_proj.weight",
                Some("model.layers.3.mlp.up_proj.weight"),
            ),
            (
                "model.language_model.embed_tokens.weight",
                Some("model.embed_tokens.weight"),
            ),
            ("language_model.lm_head.weight", Some("lm_head.weight")),
            ("lm_head.weight", Some("lm_head.weight")),
            ("model.norm.weight", Some("model.norm.weight")),
            ("vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight", None),
            ("model.vision_tower.patch_conv.weight", None),
            ("multi_modal_projector.linear_1.weight", None),
        ] {
            assert_eq!(text_name(name).as_deref(), expected, "{name}");
        }
    }
}
