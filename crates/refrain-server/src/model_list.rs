//! The models of a running server, to which downloads add.

use std::sync::{Arc, RwLock};

use axum::extract::FromRef;

use crate::served::{ServedModel, ServedModels};

/// The models of a server. Each request sees those that are served when it begins.
#[derive(Clone)]
pub(crate) struct ModelList(Arc<RwLock<Arc<ServedModels>>>);

impl ModelList {
    pub fn new(models: Vec<ServedModel>) -> ModelList {
        let models = models.into_iter().map(Arc::new).collect();
        ModelList(Arc::new(RwLock::new(Arc::new(ServedModels(models)))))
    }

    /// Returns the models that are served now.
    pub fn current(&self) -> Arc<ServedModels> {
        self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Serves another model, from the next request on, unless one of its name is served already.
    pub fn add(&self, model: ServedModel) {
        let mut list = self.0.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        if list.0.iter().all(|served| served.name() != model.name()) {
            let models = list.0.iter().cloned().chain([Arc::new(model)]);
            *list = Arc::new(ServedModels(models.collect()));
        }
    }
}

impl FromRef<ModelList> for Arc<ServedModels> {
    fn from_ref(list: &ModelList) -> Arc<ServedModels> {
        list.current()
    }
}
