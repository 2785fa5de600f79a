//! Who may ask.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::Response;

use crate::connections::Connection;
use crate::error::{Refusal, refused};
use crate::record::RequestRecord;

/// Lets a request pass that gives one of the keys, as `Authorization: Bearer KEY` or `x-api-key: KEY`.
pub(crate) async fn check(State(keys): State<Arc<[String]>>, request: Request, next: Next) -> Response {
    if is_allowed(&keys, request.headers()) {
        RequestRecord::current().set_client(client(&keys, &request));
        next.run(request).await
    } else {
        refused(request.uri().path(), Refusal::Unauthorized)
    }
}

fn is_allowed(keys: &[String], headers: &HeaderMap) -> bool {
    let given = given(headers);
    keys.is_empty() || keys.iter().any(|key| same(key.as_bytes(), given.as_bytes()))
}

/// The key that a request gives.
fn given(headers: &HeaderMap) -> &str {
    let header = |name: &str| headers.get(name)?.to_str().ok();
    let bearer = header(AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix("Bearer "));
    bearer.or_else(|| header("x-api-key")).unwrap_or_default().trim()
}

/// A number for who asks: clients are told apart by their keys where there are several, else by their addresses.
fn client(keys: &[String], request: &Request) -> u64 {
    let mut hasher = DefaultHasher::new();
    match keys.len() {
        0 | 1 => {
            let connection = request.extensions().get::<Connection>();
            connection.and_then(|connection| connection.address).hash(&mut hasher);
        }
        _ => given(request.headers()).hash(&mut hasher),
    }
    hasher.finish()
}

/// Whether both are equal, in a time that does not tell where they differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::same;

    #[test]
    fn keys_are_compared_as_a_whole() {
        assert!(same(b"key", b"key"));
        assert!(!same(b"key", b"kez") && !same(b"key", b"ke") && !same(b"key", b""));
    }
}
