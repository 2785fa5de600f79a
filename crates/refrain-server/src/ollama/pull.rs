//! `POST /api/pull`: a model is brought to this computer. What else would change which models there are is refused.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body as ResponseBody;
use axum::extract::State;
use axum::http::Uri;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};

use super::refusal::OllamaRefusal;
use crate::downloads::{DownloadNews, Downloads, Heard};
use crate::error::{Body, Refusal};
use crate::served::ServedModels;

#[derive(Deserialize)]
pub(crate) struct PullRequest {
    #[serde(alias = "name")]
    model: String,
    stream: Option<bool>,
}

/// A model that is served is here already; others are brought here for servers that are started later.
pub(crate) async fn pull(
    State(models): State<Arc<ServedModels>>,
    Extension(downloads): Extension<Downloads>,
    request: Result<Body<PullRequest>, Refusal>,
) -> Result<Response, OllamaRefusal> {
    let Body(request) = request?;
    let streamed = request.stream.unwrap_or(true);
    let name = request
        .model
        .strip_suffix(":latest")
        .unwrap_or(&request.model)
        .to_owned();
    let plain = name.strip_prefix("hf.co/").unwrap_or(&name);
    if models.named(Some(plain)).is_ok() {
        let success = json!({"status": "success"});
        return Ok(if streamed {
            lines(ResponseBody::from(format!("{success}\n")))
        } else {
            Json(success).into_response()
        });
    }
    let mut heard = downloads.begin(name)?;
    if streamed {
        let first = json!({"status": "pulling manifest"});
        let mut digest = String::new();
        let news = stream::unfold(heard, |mut heard| async { Some((heard.recv().await?, heard)) });
        let said = news.map(move |heard| said(heard, &mut digest));
        let said = stream::iter([first]).chain(said);
        let said = said.map(|line| Ok::<String, Infallible>(format!("{line}\n")));
        return Ok(lines(ResponseBody::from_stream(said)));
    }
    while let Some(heard) = heard.recv().await {
        if let Heard::Ended(ended) = heard {
            ended.map_err(Refusal::from)?;
            return Ok(Json(json!({"status": "success"})).into_response());
        }
    }
    Err(Refusal::Silence.into())
}

fn lines(body: ResponseBody) -> Response {
    ([(CONTENT_TYPE, "application/x-ndjson")], body).into_response()
}

/// A line about a download; `digest` is of what it brings.
fn said(heard: Heard, digest: &mut String) -> Value {
    let status = |digest: &str| format!("pulling {}", digest.chars().take(12).collect::<String>());
    match heard {
        Heard::News(DownloadNews::Found(found)) => {
            *digest = found;
            json!({"status": status(digest)})
        }
        Heard::News(DownloadNews::Progress(done, total)) => {
            json!({"status": status(digest), "digest": digest, "total": total, "completed": done})
        }
        Heard::News(DownloadNews::Notice(line)) => json!({"status": line}),
        Heard::Ended(Ok(())) => json!({"status": "success"}),
        Heard::Ended(Err(failure)) => OllamaRefusal(failure.into()).json(),
    }
}

/// What only whoever runs the server may do.
pub(crate) async fn keeps_its_models(uri: Uri) -> OllamaRefusal {
    let what = match uri.path() {
        "/api/delete" => "deletes",
        "/api/create" => "makes",
        "/api/copy" => "copies",
        _ => "uploads",
    };
    OllamaRefusal(Refusal::Forbidden(format!(
        "this server {what} no models; whoever runs it does"
    )))
}
