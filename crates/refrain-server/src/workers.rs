//! The threads that requests are worked on, apart from those that serve connections.
//!
//! Reading, rendering and dropping a large request takes time. On threads of its own that delays neither other
//! connections nor `/health`.

use std::future::Future;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::error::Refusal;
use crate::record::RequestRecord;

/// Maximum number of threads that work on requests.
const MAX_THREADS: usize = 4;

/// Number of threads that work on requests. More threads than cores only take turns, and a thread that serves
/// connections would wait for each of them.
pub(crate) fn thread_count() -> usize {
    cores().clamp(2, MAX_THREADS)
}

/// Number of cores that this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The runtime of the threads that work on requests.
#[derive(Debug, Clone)]
pub(crate) struct Workers(pub Handle);

/// Works on a request on those threads, if the server has them. If the client leaves, the work ends.
pub(crate) async fn run(request: Request, next: Next) -> Response {
    let Some(Workers(workers)) = request.extensions().get::<Workers>().cloned() else {
        return next.run(request).await;
    };
    let record = RequestRecord::current();
    let work = on(&workers, record.within(next.run(request)));
    work.await.unwrap_or_else(|| Refusal::Silence.into_response())
}

/// Returns the output of work on other threads; `None` if it panics. The work ends when this future is dropped.
async fn on<T: Send + 'static>(threads: &Handle, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
    let mut tasks = JoinSet::new();
    tasks.spawn_on(work, threads);
    tasks.join_next().await?.ok()
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll};

    use super::*;

    #[test]
    fn the_work_ends_with_its_caller() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (held, ended) = tokio::sync::oneshot::channel::<()>();
            let threads = Handle::current();
            let mut work = Box::pin(on(&threads, async move {
                let _held = held;
                std::future::pending::<()>().await;
            }));
            let begin = |context: &mut Context<'_>| Poll::Ready(work.as_mut().poll(context).is_pending());
            assert!(std::future::poll_fn(begin).await, "it runs");
            drop(work);
            assert!(ended.await.is_err(), "what the work held is dropped");
        });
    }
}
