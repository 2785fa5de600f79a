//! The small model that is built into the programs.

use refrain_formats::Error;

use crate::Checkpoint;

/// The name that users open the model by.
pub const NAME: &str = "demo";

macro_rules! files {
    ($($name:literal)*) => {
        [$(($name, include_bytes!(concat!("../../../demo/model/", $name)).as_slice()),)*]
    };
}

/// Opens the built-in model.
///
/// # Errors
/// Only if the program was built from damaged files.
pub fn checkpoint() -> Result<Checkpoint, Error> {
    Checkpoint::from_files(files! {
        "config.json"
        "generation_config.json"
        "model.safetensors"
        "tokenizer.json"
        "tokenizer_config.json"
    })
}
