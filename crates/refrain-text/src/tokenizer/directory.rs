//! The tokenizer files of a directory: `tokenizer.json`, `tokenizer_config.json`, `special_tokens_map.json` and the
//! chat template.

use std::collections::BTreeMap;
use std::path::PathBuf;

use refrain_formats::{FileSet, JsonObject, json_kind};
use serde::Deserialize;
use serde_json::Value;

use super::growth::{Growth, GrowthSettings};
use super::{BROKEN_TOKENIZER, Tokenizer, class};
use crate::{ChatTemplate, Error, guard};

/// Roles of special tokens, by the names that templates use.
const ROLES: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

/// The tokenizer files of a directory.
pub(crate) struct DirectoryFiles<'a> {
    pub set: &'a FileSet,
}

/// The fields of `tokenizer.json` that are read in addition to those of the `tokenizers` library.
#[derive(Deserialize)]
struct AddedTokens {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
}

impl DirectoryFiles<'_> {
    /// Builds the tokenizer of `tokenizer.json`.
    pub(crate) fn tokenizer(&self) -> Result<Tokenizer, Error> {
        // The library panics on some damaged files.
        guard::catch_panic(|| self.build_tokenizer())
            .unwrap_or_else(|| Err(Error::file(self.set.label("tokenizer.json"), BROKEN_TOKENIZER)))
    }

    fn build_tokenizer(&self) -> Result<Tokenizer, Error> {
        let label = self.set.label("tokenizer.json");
        let Some(file) = self.set.read("tokenizer.json")? else {
            return Err(Error::NotACheckpoint {
                path: PathBuf::from(self.set.name()),
                reason: "there is no tokenizer.json".to_owned(),
            });
        };
        if file.is_empty() {
            return Err(Error::file(label, "is empty"));
        }
        let broken = |error: &dyn std::fmt::Display| Error::file(&label, format!("is broken: {error}"));
        // Reading the file already normalises added tokens.
        let settings: GrowthSettings = serde_json::from_slice(&file).map_err(|error| broken(&error))?;
        Growth::of(&settings).map_err(|reason| broken(&reason))?;
        let mut inner = tokenizers::Tokenizer::from_bytes(&file).map_err(|error| broken(&error))?;
        let added: AddedTokens = serde_json::from_slice(&file).map_err(|error| broken(&error))?;
        // If an added token's id is not the next free one, the library assigns another id and only logs it.
        for token in &added.added_tokens {
            let found = inner.token_to_id(&token.content);
            if found != Some(token.id) {
                return Err(Error::file(
                    label,
                    format!(
                        "is broken: added token {:?} should have id {}, but its place in the \
                         vocabulary gives it {}",
                        token.content,
                        token.id,
                        found.map_or("none".to_owned(), |id| id.to_string())
                    ),
                ));
            }
        }
        let config = self.config()?;
        let roles = self.special_tokens()?;
        self.apply(&mut inner, &config, &roles)?;
        let id = |role: &str| roles.get(role).and_then(|token| inner.token_to_id(token));
        let (bos_id, eos_ids) = (id("bos_token"), id("eos_token").into_iter().collect());
        Tokenizer::new(inner, bos_id, eos_ids)
    }

    pub(crate) fn chat_template(&self) -> Result<Option<ChatTemplate>, Error> {
        let mut templates = BTreeMap::new();
        for (name, file) in [
            ("default", "chat_template.jinja"),
            ("tool_use", "additional_chat_templates/tool_use.jinja"),
        ] {
            if let Some(source) = self.set.text(file)? {
                templates.insert(name.to_owned(), source);
            }
        }
        if templates.is_empty() {
            templates = self.configured_templates()?;
        }
        if templates.is_empty() {
            return Ok(None);
        }
        let special_tokens = self.special_tokens()?;
        Ok(Some(ChatTemplate::named(templates, special_tokens)))
    }

    pub(crate) fn special_tokens(&self) -> Result<BTreeMap<String, String>, Error> {
        let config = self.config()?;
        // Configurations with a list of added tokens replaced the older file.
        let overrides = if config.contains_key("added_tokens_decoder") {
            JsonObject::new()
        } else {
            self.set.json("special_tokens_map.json")?.unwrap_or_default()
        };
        let defaults = class::default_roles(&config);
        let mut tokens = BTreeMap::new();
        for role in ROLES {
            let default = defaults.iter().find(|(known, _)| *known == role);
            let token = match overrides.get(role).or_else(|| config.get(role)) {
                Some(value) => token_text(value),
                None => default.map(|(_, token)| *token),
            };
            if let Some(token) = token {
                tokens.insert(role.to_owned(), token.to_owned());
            }
        }
        Ok(tokens)
    }

    fn config(&self) -> Result<JsonObject, Error> {
        Ok(self.set.json("tokenizer_config.json")?.unwrap_or_default())
    }

    /// Reads the templates in `tokenizer_config.json`: one, or a list of named ones.
    fn configured_templates(&self) -> Result<BTreeMap<String, String>, Error> {
        let wrong = |what: String| Error::file(self.set.label("tokenizer_config.json"), what);
        let mut templates = BTreeMap::new();
        match self.config()?.get("chat_template") {
            None | Some(Value::Null) => {}
            Some(Value::String(source)) => {
                templates.insert("default".to_owned(), source.clone());
            }
            Some(Value::Array(list)) => {
                for entry in list {
                    let text = |key: &str| entry.get(key).and_then(Value::as_str);
                    let (Some(name), Some(source)) = (text("name"), text("template")) else {
                        return Err(wrong(
                            "chat_template is a list, but not of objects with name and template".to_owned(),
                        ));
                    };
                    templates.insert(name.to_owned(), source.to_owned());
                }
            }
            Some(other) => {
                return Err(wrong(format!(
                    "chat_template is a {}, not a template",
                    json_kind(other)
                )));
            }
        }
        Ok(templates)
    }

    /// Applies `tokenizer_config.json` as transformers does: its class, tokens missing from `tokenizer.json`, and
    /// which tokens are special. Whether BOS and EOS are added is up to `tokenizer.json`, whatever `add_bos_token`
    /// says.
    fn apply(
        &self,
        inner: &mut tokenizers::Tokenizer,
        config: &JsonObject,
        roles: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        let broken = |error: tokenizers::Error| {
            Error::file(
                self.set.label("tokenizer_config.json"),
                format!("does not fit tokenizer.json: {error}"),
            )
        };
        class::apply(inner, config).map_err(broken)?;
        let missing = self.tokens_to_add(inner, config)?;
        inner.add_tokens(missing).map_err(broken)?;
        let known = inner.get_added_tokens_decoder();
        let known = |text: &str| known.values().find(|token| token.content == text).cloned();
        let extra = ["additional_special_tokens", "extra_special_tokens"]
            .into_iter()
            .filter_map(|key| config.get(key)?.as_array())
            .flatten()
            .filter_map(token_text);
        // Models have roles of their own too, such as `image_token`.
        let own = config
            .iter()
            .filter(|(key, _)| key.ends_with("_token") && !ROLES.contains(&key.as_str()))
            .filter_map(|(_, value)| token_text(value));
        let mut special = Vec::new();
        for text in roles.values().map(String::as_str).chain(extra).chain(own) {
            let token = known(text).unwrap_or_else(|| tokenizers::AddedToken::from(text, true).normalized(false));
            special.push(token.special(true));
        }
        inner.add_special_tokens(special).map_err(broken)?;
        Ok(())
    }

    /// Returns the tokens of `added_tokens_decoder` that `tokenizer.json` lacks, ordered by id.
    fn tokens_to_add(
        &self,
        inner: &tokenizers::Tokenizer,
        config: &JsonObject,
    ) -> Result<Vec<tokenizers::AddedToken>, Error> {
        let Some(Value::Object(map)) = config.get("added_tokens_decoder") else {
            return Ok(Vec::new());
        };
        let wrong = |id: &str, what: String| {
            let file = self.set.label("tokenizer_config.json");
            Error::file(file, format!("added_tokens_decoder: token {id} {what}"))
        };
        let mut tokens = BTreeMap::new();
        for (id, value) in map {
            let number: u32 = id
                .parse()
                .map_err(|_| wrong(id, "has an id that is not a number".to_owned()))?;
            let flag = |key: &str| value.get(key).and_then(Value::as_bool).unwrap_or(false);
            let Some(content) = token_text(value) else {
                return Err(wrong(id, "has no content".to_owned()));
            };
            if inner.token_to_id(content).is_some() {
                continue;
            }
            let token = tokenizers::AddedToken::from(content, flag("special"))
                .single_word(flag("single_word"))
                .lstrip(flag("lstrip"))
                .rstrip(flag("rstrip"))
                .normalized(flag("normalized"));
            tokens.insert(number, token);
        }
        Ok(tokens.into_values().collect())
    }
}

/// Returns a token given as a string, or as an object with `content`.
fn token_text(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content").and_then(Value::as_str))
}
