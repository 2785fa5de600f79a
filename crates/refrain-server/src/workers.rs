//! The threads that requests are worked on, apart from those that serve connections.
//!
//! Reading, rendering and dropping a large request takes time. On threads of its own that delays neither other
//! connections nor `/health`.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::error::Refusal;
use crate::record::RequestRecord;

/// Number of threads that work on requests. More of them only take turns on the cores.
pub(crate) const THREADS: usize = 4;

/// The runtime of the threads that work on requests.
#[derive(Debug, Clone)]
pub(crate) struct Workers(pub Handle);

/// Works on a request on those threads, if the server has them. If the client leaves, the work ends.
pub(crate) async fn run(request: Request, next: Next) -> Response {
    let Some(Workers(workers)) = request.extensions().get::<Workers>().cloned() else {
        return next.run(request).await;
    };
    let record = RequestRecord::current();
    let work = AbortOnDrop(workers.spawn(record.within(next.run(request))));
    work.await.unwrap_or_else(|_| Refusal::Silence.into_response())
}

/// A task that ends when this is dropped.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Future for AbortOnDrop<T> {
    type Output = Result<T, tokio::task::JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_ends_with_its_caller() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (held, ended) = tokio::sync::oneshot::channel::<()>();
            let task = tokio::spawn(async move {
                let _held = held;
                std::future::pending::<()>().await;
            });
            drop(AbortOnDrop(task));
            assert!(ended.await.is_err(), "what the work held is dropped");
        });
    }
}
