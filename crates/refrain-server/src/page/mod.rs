//! The web page: static files without a build step, and `POST /render`, which turns markdown into HTML.
//!
//! The page loads nothing from other servers. Conversations stay in the browser.

pub(crate) mod markdown;

use axum::Json;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::blocking;
use crate::error::{Body, Refusal};

/// Allows no inline scripts or styles, and no requests to other servers.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Maximum number of bytes of a text that `POST /render` converts.
const MAX_RENDERED_BYTES: usize = 2 << 20;

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// Name below `/page`, content type and text of each file.
const FILES: [(&str, &str, &str); 22] = [
    ("api.js", SCRIPT, include_str!("api.js")),
    ("attachments.js", SCRIPT, include_str!("attachments.js")),
    ("composer.js", SCRIPT, include_str!("composer.js")),
    ("dom.js", SCRIPT, include_str!("dom.js")),
    ("icon.svg", "image/svg+xml", include_str!("icon.svg")),
    ("index.html", HTML, include_str!("index.html")),
    ("languages.js", SCRIPT, include_str!("languages.js")),
    ("main.js", SCRIPT, include_str!("main.js")),
    ("markdown.js", SCRIPT, include_str!("markdown.js")),
    ("messages.js", SCRIPT, include_str!("messages.js")),
    ("metrics.js", SCRIPT, include_str!("metrics.js")),
    ("models.js", SCRIPT, include_str!("models.js")),
    ("page.css", STYLE, include_str!("page.css")),
    ("response.js", SCRIPT, include_str!("response.js")),
    ("settings.js", SCRIPT, include_str!("settings.js")),
    ("sidebar.js", SCRIPT, include_str!("sidebar.js")),
    ("store.js", SCRIPT, include_str!("store.js")),
    ("syntax.js", SCRIPT, include_str!("syntax.js")),
    ("text.css", STYLE, include_str!("text.css")),
    ("transfer.js", SCRIPT, include_str!("transfer.js")),
    ("tree.js", SCRIPT, include_str!("tree.js")),
    ("welcome.js", SCRIPT, include_str!("welcome.js")),
];

/// `GET /`.
pub(crate) async fn index() -> Result<Response, Refusal> {
    file(Ok(Path("index.html".to_owned()))).await
}

/// `GET /page/NAME`.
pub(crate) async fn file(name: Result<Path<String>, PathRejection>) -> Result<Response, Refusal> {
    let Path(name) = name?;
    let file = FILES.iter().find(|(known, ..)| *known == name);
    let (_, content_type, text) = file.ok_or_else(|| Refusal::NoSuchPath(format!("/page/{name}")))?;
    let headers = [
        (CONTENT_TYPE, *content_type),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        // After an upgrade of the server, browsers must fetch the new files.
        (CACHE_CONTROL, "no-cache"),
    ];
    Ok((headers, *text).into_response())
}

/// Body of `POST /render`.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct RenderRequest {
    text: String,
}

/// `POST /render`: converts markdown and LaTeX to HTML and MathML.
pub(crate) async fn render(Body(request): Body<RenderRequest>) -> Result<Json<Value>, Refusal> {
    if request.text.len() > MAX_RENDERED_BYTES {
        let why = format!("texts of more than {} MiB are not rendered", MAX_RENDERED_BYTES >> 20);
        return Err(Refusal::field("text", why));
    }
    let html = blocking::run(request.text.len(), move || markdown::html(&request.text)).await?;
    Ok(Json(json!({"html": html})))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_reference_only_each_other_and_contain_nothing_inline() {
        for (name, _, text) in FILES {
            for quoted in text.split(['"', '\'']) {
                let reference = quoted.strip_prefix("./").or(quoted.strip_prefix("page/"));
                let exists = |file| FILES.iter().any(|(known, ..)| *known == file);
                assert!(reference.is_none_or(exists), "{name} references {quoted}");
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
