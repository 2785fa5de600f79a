//! API keys.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use axum::Extension;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::Response;

use crate::connections::Connection;
use crate::error::{Refusal, refused};
use crate::record::RequestRecord;

/// The keys of a server. Without any, everybody is allowed.
#[derive(Debug, Clone)]
pub(crate) struct ApiKeys(pub Arc<[String]>);

impl ApiKeys {
    /// Whether a request has one of the keys, as `Authorization: Bearer KEY` or `x-api-key: KEY`.
    pub fn allow(&self, headers: &HeaderMap) -> bool {
        let given = given_key(headers);
        // All keys are compared, so that the time does not tell which of them is similar.
        let equal = self
            .0
            .iter()
            .fold(false, |equal, key| equal | is_equal(key.as_bytes(), given.as_bytes()));
        self.0.is_empty() || equal
    }

    /// Returns a number that identifies the client: by its key if there are several, else by its address.
    fn client(&self, request: &Request) -> u64 {
        let mut hasher = DefaultHasher::new();
        if self.0.len() > 1 {
            given_key(request.headers()).hash(&mut hasher);
        } else {
            let connection = request.extensions().get::<Connection>();
            connection.and_then(|connection| connection.address).hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// Rejects requests without a key.
pub(crate) async fn check(Extension(keys): Extension<ApiKeys>, request: Request, next: Next) -> Response {
    if keys.allow(request.headers()) {
        RequestRecord::current().set_client(keys.client(&request));
        next.run(request).await
    } else {
        refused(request.uri().path(), Refusal::Unauthorized)
    }
}

/// The key of a request. The name of the scheme is case-insensitive.
pub(crate) fn given_key(headers: &HeaderMap) -> &str {
    let header = |name: &str| headers.get(name)?.to_str().ok();
    let bearer = header(AUTHORIZATION.as_str()).and_then(|value| {
        let (scheme, key) = value.trim_start().split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(key)
    });
    bearer.or_else(|| header("x-api-key")).unwrap_or_default().trim()
}

/// Whether both are equal, in a time that only depends on the length of `given`.
fn is_equal(key: &[u8], given: &[u8]) -> bool {
    let at = |index: usize| key.get(index).copied().unwrap_or_default();
    let differences = given
        .iter()
        .enumerate()
        .fold(0, |differences, (index, byte)| differences | (at(index) ^ byte));
    std::hint::black_box(differences) == 0 && key.len() == given.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_compared_whole() {
        assert!(is_equal(b"key", b"key"));
        assert!(!is_equal(b"key", b"kez") && !is_equal(b"key", b"ke") && !is_equal(b"key", b""));
        assert!(!is_equal(b"key", b"keyx") && !is_equal(b"key", b"key\0"));
    }

    #[test]
    fn keys_are_read_from_both_headers_and_any_case_of_the_scheme() {
        let keys = ApiKeys(["KEY".to_owned(), "OTHER".to_owned()].into());
        for (name, value, is_allowed) in [
            ("authorization", "Bearer KEY", true),
            ("authorization", "bearer OTHER", true),
            ("authorization", "BEARER  KEY ", true),
            ("x-api-key", "KEY", true),
            ("authorization", "Basic KEY", false),
            ("authorization", "KEY", false),
            ("authorization", "Bearer key", false),
            ("authorization", "Bearer ", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            assert_eq!(keys.allow(&headers), is_allowed, "{name}: {value}");
        }
        assert!(!keys.allow(&HeaderMap::new()));
        assert!(ApiKeys(Arc::default()).allow(&HeaderMap::new()));
    }
}
