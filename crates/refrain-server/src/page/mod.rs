//! The web page: files without a build step, which ask for nothing but this server.

pub(crate) mod markdown;

use axum::Json;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::{Body, Refusal};

/// Nothing from elsewhere, nothing inline; what the page asks goes to its own server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Names below `/page`, their types and texts.
const FILES: [(&str, &str, &str); 13] = [
    ("answer.js", SCRIPT, include_str!("answer.js")),
    ("icon.svg", "image/svg+xml", include_str!("icon.svg")),
    ("index.html", HTML, include_str!("index.html")),
    ("live.js", SCRIPT, include_str!("live.js")),
    ("main.js", SCRIPT, include_str!("main.js")),
    ("markdown.js", SCRIPT, include_str!("markdown.js")),
    ("messages.js", SCRIPT, include_str!("messages.js")),
    ("page.css", "text/css; charset=utf-8", include_str!("page.css")),
    ("server.js", SCRIPT, include_str!("server.js")),
    ("settings.js", SCRIPT, include_str!("settings.js")),
    ("store.js", SCRIPT, include_str!("store.js")),
    ("transfer.js", SCRIPT, include_str!("transfer.js")),
    ("tree.js", SCRIPT, include_str!("tree.js")),
];

/// `GET /`.
pub(crate) async fn index() -> Result<Response, Refusal> {
    file(Ok(Path("index.html".to_owned()))).await
}

/// `GET /page/NAME`.
pub(crate) async fn file(name: Result<Path<String>, PathRejection>) -> Result<Response, Refusal> {
    let Path(name) = name?;
    let found = FILES.iter().find(|(known, ..)| *known == name);
    let (_, kind, text) = found.ok_or_else(|| Refusal::NoSuchPath(format!("/page/{name}")))?;
    let headers = [
        (CONTENT_TYPE, *kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        // A newer server has newer files.
        (CACHE_CONTROL, "no-cache"),
    ];
    Ok((headers, *text).into_response())
}

/// A text in markdown.
#[derive(Deserialize)]
pub(crate) struct RenderRequest {
    text: String,
}

/// `POST /render`: markdown and LaTeX as HTML and MathML.
pub(crate) async fn render(Body(request): Body<RenderRequest>) -> Result<Json<Value>, Refusal> {
    let html = tokio::task::spawn_blocking(move || markdown::html(&request.text));
    Ok(Json(json!({"html": html.await.map_err(|_| Refusal::Silence)?})))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_another_names_is_there_and_nothing_is_inline_or_from_elsewhere() {
        for (name, _, text) in FILES {
            for quoted in text.split(['"', '\'']) {
                let named = quoted.strip_prefix("./").or(quoted.strip_prefix("page/"));
                let is_there = |file| FILES.iter().any(|(known, ..)| *known == file);
                assert!(named.is_none_or(is_there), "{name} names {quoted}");
                let is_address = quoted.starts_with("http") && !quoted.starts_with("http://www.w3.org/");
                let is_host = quoted.starts_with("//") && !quoted.starts_with("// ");
                assert!(!is_address && !is_host, "{name}: {quoted}");
            }
            for inline in ["<style", "style=", "onclick=", "eval(", "<script>"] {
                assert!(!text.contains(inline), "{name} has {inline}");
            }
        }
    }
}
