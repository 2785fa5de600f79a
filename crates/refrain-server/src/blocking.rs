//! Work that takes long for long texts: parsing, rendering and tokenizing.
//!
//! It runs on threads of its own, never on those that serve connections. Its memory is bounded by how many bytes of text
//! are worked on at once. Short texts do not wait for long ones.

use std::sync::LazyLock;

use tokio::sync::{Semaphore, oneshot};

use crate::error::Refusal;
use crate::memory::FreedOnDrop;
use crate::record::RequestRecord;
use crate::workers;

/// Texts of more bytes are large.
const LARGE_TEXT_BYTES: usize = 64 << 10;
/// Maximum number of small texts that are worked on at once, for each core, and for all. Each thread remembers the tokens
/// of words, in up to 32 MB.
const MAX_SMALL_TEXTS_PER_CORE: usize = 4;
const MAX_SMALL_TEXTS: usize = 16;
/// Maximum number of bytes of large texts that are worked on at once. A larger one is worked on alone. Tokenizing
/// takes some 120 bytes of memory for a byte.
const MAX_LARGE_BYTES: usize = 4 << 20;

static SMALL: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new((workers::cores() * MAX_SMALL_TEXTS_PER_CORE).min(MAX_SMALL_TEXTS)));
static LARGE: Semaphore = Semaphore::const_new(MAX_LARGE_BYTES);

/// Runs `work` on a text of this many bytes, on a blocking thread. A large text gets a new thread, which ends with the
/// work: what it remembers of strange words ends too.
///
/// # Errors
/// If it panics, or the system cannot create a thread.
pub(crate) async fn run<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    let is_large = bytes > LARGE_TEXT_BYTES;
    let permit = if is_large {
        LARGE.acquire_many(bytes.min(MAX_LARGE_BYTES) as u32).await
    } else {
        SMALL.acquire().await
    };
    let permit = permit.map_err(|_| Refusal::Silence)?;
    RequestRecord::current().add_work(bytes);
    // The permit stays with the work, which goes on if the client leaves.
    let work = move || {
        let _permit = permit;
        let _freed = FreedOnDrop(bytes);
        work()
    };
    if !is_large {
        return tokio::task::spawn_blocking(work).await.map_err(|_| Refusal::Silence);
    }
    let (sender, done) = oneshot::channel();
    let thread = std::thread::Builder::new().name("large text".to_owned());
    // Nobody receives the result if the client has left.
    let started = thread.spawn(move || drop(sender.send(work())));
    started.map_err(|_| Refusal::Silence)?;
    done.await.map_err(|_| Refusal::Silence)
}
