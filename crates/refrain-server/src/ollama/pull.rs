//! `POST /api/pull`: downloads a model. Other requests that would change the server's models are refused.

use std::convert::Infallible;

use axum::body::Body as ResponseBody;
use axum::extract::State;
use axum::http::Uri;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::{StreamExt, stream};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::options::ModelFields;
use super::refusal::OllamaRefusal;
use crate::downloads::{DownloadEvent, DownloadNews, Downloads};
use crate::error::{Body, Refusal};
use crate::model_list::ModelList;

/// A model to download.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct PullRequest {
    #[serde(flatten)]
    model: ModelFields,
    stream: Option<bool>,
}

/// Downloads a model, unless it is served already.
pub(crate) async fn pull(
    State(models): State<ModelList>,
    Extension(downloads): Extension<Downloads>,
    request: Result<Body<PullRequest>, Refusal>,
) -> Result<Response, OllamaRefusal> {
    let Body(request) = request?;
    let is_streamed = request.stream.unwrap_or(true);
    let name = request
        .model
        .name()
        .ok_or_else(|| Refusal::field("model", "is required"))?;
    let name = name.strip_suffix(":latest").unwrap_or(name).to_owned();
    let plain = name.strip_prefix("hf.co/").unwrap_or(&name);
    if models.current().names().any(|(served, _)| served == plain) {
        let success = json!({"status": "success"});
        return Ok(if is_streamed {
            lines(ResponseBody::from(format!("{success}\n")))
        } else {
            Json(success).into_response()
        });
    }
    let mut events = downloads.begin(name, models)?;
    if is_streamed {
        let first = json!({"status": "pulling manifest"});
        let mut digest = String::new();
        let events = stream::unfold(events, |mut events| async { Some((events.recv().await?, events)) });
        let reported = events.map(move |event| reported(event, &mut digest));
        let all = stream::iter([first]).chain(reported);
        let all = all.map(|line| Ok::<String, Infallible>(format!("{line}\n")));
        return Ok(lines(ResponseBody::from_stream(all)));
    }
    while let Some(event) = events.recv().await {
        if let DownloadEvent::Ended(ended) = event {
            ended.map_err(Refusal::from)?;
            return Ok(Json(json!({"status": "success"})).into_response());
        }
    }
    Err(Refusal::Silence.into())
}

fn lines(body: ResponseBody) -> Response {
    ([(CONTENT_TYPE, "application/x-ndjson")], body).into_response()
}

/// The line that reports an event. `digest` is that of the files being downloaded.
fn reported(event: DownloadEvent, digest: &mut String) -> Value {
    let status = |digest: &str| format!("pulling {}", digest.chars().take(12).collect::<String>());
    match event {
        DownloadEvent::News(DownloadNews::Found(found)) => {
            *digest = found;
            json!({"status": status(digest)})
        }
        DownloadEvent::News(DownloadNews::Progress(done, total)) => {
            json!({"status": status(digest), "digest": digest, "total": total, "completed": done})
        }
        DownloadEvent::News(DownloadNews::Notice(line)) => json!({"status": line}),
        DownloadEvent::Ended(Ok(())) => json!({"status": "success"}),
        DownloadEvent::Ended(Err(failure)) => OllamaRefusal(failure.into()).json(),
    }
}

/// Refuses what would change the models: only the server's operator may.
pub(crate) async fn change_models(uri: Uri) -> OllamaRefusal {
    let what = match uri.path() {
        "/api/delete" => "deletes",
        "/api/create" => "creates",
        "/api/copy" => "copies",
        "/api/push" => "pushes",
        _ => "takes uploads of",
    };
    let path = uri.path();
    OllamaRefusal(Refusal::Forbidden(format!(
        "{path} is not supported: this server never {what} models; its operator chooses them when it starts"
    )))
}

/// Answers whether a blob of this digest was uploaded: none is.
pub(crate) async fn no_blob(uri: Uri) -> OllamaRefusal {
    OllamaRefusal(Refusal::NoSuchPath(uri.path().to_owned()))
}
