//! CORS: which web pages of other origins may read responses.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Lets pages of `origins` read responses; `*` is any origin.
pub(crate) async fn allow(State(origins): State<Arc<[String]>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let is_known = |origin: &&HeaderValue| {
        let known = |known: &String| known == "*" || known.as_bytes() == origin.as_bytes();
        origins.iter().any(known)
    };
    let Some(origin) = headers.get(ORIGIN).filter(is_known).cloned() else {
        return next.run(request).await;
    };
    let is_preflight = request.method() == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if is_preflight {
        let requested = headers.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned();
        let mut response = StatusCode::NO_CONTENT.into_response();
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
        requested.map(|requested| headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, requested));
        response
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(
        ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static("x-request-id, x-refrain-not-enforced"),
    );
    headers.append(VARY, HeaderValue::from_static("origin"));
    response
}
