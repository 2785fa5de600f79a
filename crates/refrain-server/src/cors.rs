//! Which web pages from elsewhere may ask.

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

/// Tells browsers that pages of these origins may read the answers; `*` is all of them.
pub(crate) async fn allow(State(origins): State<Arc<[String]>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let is_known = |origin: &&HeaderValue| {
        let known = |known: &String| known == "*" || known.as_bytes() == origin.as_bytes();
        origins.iter().any(known)
    };
    let Some(origin) = headers.get(ORIGIN).filter(is_known).cloned() else {
        return next.run(request).await;
    };
    let asks_first = request.method() == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if asks_first {
        let wanted = headers.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned();
        let mut response = StatusCode::NO_CONTENT.into_response();
        let said = response.headers_mut();
        said.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
        said.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
        wanted.map(|wanted| said.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted));
        response
    } else {
        next.run(request).await
    };
    let said = response.headers_mut();
    said.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    said.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("x-request-id"));
    said.append(VARY, HeaderValue::from_static("origin"));
    response
}
