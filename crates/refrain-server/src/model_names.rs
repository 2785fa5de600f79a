//! The models of a server, and the names that clients may use for them.

use std::sync::Arc;

use crate::error::Refusal;
use crate::record::RequestRecord;
use crate::served::ServedModel;

/// The alias that stands for any name.
const ANY_NAME: &str = "*";

/// The models of a server, at least one.
pub(crate) struct ServedModels(pub Vec<Arc<ServedModel>>);

impl ServedModels {
    /// Returns the model of a name; the first model if no name is given. Ollama's clients may append `:latest`. The
    /// present request's record notes both.
    ///
    /// Names are only compared: they never reach the file system.
    ///
    /// # Errors
    /// A name that no model has.
    pub fn named(&self, asked: Option<&str>) -> Result<Arc<ServedModel>, Refusal> {
        let found = self.find(asked)?;
        RequestRecord::current().set_models(asked, &found.name);
        Ok(found)
    }

    fn find(&self, asked: Option<&str>) -> Result<Arc<ServedModel>, Refusal> {
        let Some(asked) = asked else {
            return Ok(self.0[0].clone());
        };
        let named = |name: &str| self.0.iter().find(|model| model.name == name);
        let with_alias = |name: &str| {
            self.0
                .iter()
                .find(|model| model.aliases.iter().any(|alias| alias == name))
        };
        let find = |name: &str| named(name).or_else(|| with_alias(name));
        let found = find(asked)
            .or_else(|| find(asked.strip_suffix(":latest")?))
            .or_else(|| with_alias(ANY_NAME));
        found.cloned().ok_or_else(|| Refusal::NoSuchModel {
            asked: asked.to_owned(),
            served: self.0.iter().map(|model| model.name.clone()).collect(),
        })
    }

    /// Returns all names with their models, each model's own name before its aliases.
    pub fn names(&self) -> impl Iterator<Item = (&str, &Arc<ServedModel>)> {
        self.0.iter().flat_map(|model| {
            let aliases = model
                .aliases
                .iter()
                .map(String::as_str)
                .filter(|alias| *alias != ANY_NAME);
            std::iter::once(&model.name[..])
                .chain(aliases)
                .map(move |name| (name, model))
        })
    }
}
