//! Digests that tell served models apart, in the form of Ollama's: 64 hexadecimal digits.

use refrain_models::Checkpoint;
use ring::digest::{Context, SHA256};

/// Maximum number of bytes of values that are hashed: norms, which differ between fine-tuned models.
const MAX_VALUE_BYTES: u64 = 64 << 10;

/// Returns the digest of a checkpoint that is served as `name`.
///
/// It is a hash of the name, the configuration, the tensors' names, shapes, encodings and sizes, and some of their
/// values. It is the same after a restart, and differs for every name of a server.
pub(crate) fn digest(name: &str, checkpoint: &Checkpoint) -> String {
    let mut hash = Context::new(&SHA256);
    hash.update(format!("{name}\n{:?}\n", checkpoint.config()).as_bytes());
    let mut left = MAX_VALUE_BYTES;
    for info in checkpoint.tensors() {
        let line = format!("{} {:?} {:?} {}\n", info.name, info.shape, info.encoding, info.bytes);
        hash.update(line.as_bytes());
        if info.shape.len() > 1 || info.bytes > left {
            continue;
        }
        if let Some(Ok(values)) = checkpoint
            .tensor(&info.name)
            .map(|tensor| tensor.data().map(|data| data.into_owned()))
        {
            hash.update(&values);
            left -= info.bytes;
        }
    }
    hexadecimal(hash.finish().as_ref())
}

/// Returns bytes as hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_tell_models_apart() {
        let one = Checkpoint::synthetic("tiny:f32").expect("a checkpoint");
        let other = Checkpoint::synthetic("tiny:q4_0").expect("a checkpoint");
        let first = digest("a", &one);
        assert!(
            first.len() == 64 && first.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "{first}"
        );
        assert_eq!(
            first,
            digest("a", &Checkpoint::synthetic("tiny:f32").expect("a checkpoint"))
        );
        assert_ne!(first, digest("b", &one));
        assert_ne!(first, digest("a", &other));
    }
}
