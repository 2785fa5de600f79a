//! `POST /v1/responses`: answers to conversations of items, and the responses that are kept.

mod items;
mod output;
mod pages;
mod reply;
mod request;
pub(crate) mod routes;
mod store;

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::{Extension, Json};
use refrain_engine::EngineRequest;
use refrain_text::Conversation;
use serde_json::{Value, json};

use super::structure::RequestedAnswer;
use crate::answer::AnswerFormat;
use crate::error::{Body, Refusal};
use crate::events;
use crate::served::{ServedModel, ServedModels};
use output::Output;
use reply::Reply;
pub(crate) use request::ResponsesRequest;
pub(crate) use routes::{ConversationChange, ConversationRequest};
pub use store::ResponseStore;
use store::{Owner, StoredEntry, StoredItem};

pub(crate) async fn responses(
    State(models): State<Arc<ServedModels>>,
    Extension(store): Extension<ResponseStore>,
    headers: HeaderMap,
    Body(request): Body<ResponsesRequest>,
) -> Result<Response, Refusal> {
    request.check()?;
    let owner = Owner::of(&headers);
    let generation = request.generation()?;
    let model = models.named(generation.model.as_deref())?;
    model.reserve()?;
    let options = generation.options(&model)?.swap_remove(0);
    let top_logprobs = generation.logprobs.of_chat()?;
    let tools = request.tools()?;
    let RequestedAnswer {
        tools: functions,
        constraint,
    } = request.answer_form(&model, &tools)?;
    let history = History::of(&request, &store, owner)?;
    let (mut prompt, format) = render(&request, &history.values(), functions, &model).await?;
    generation.truncate(&mut prompt, &model);
    let constraint = model.constraint(constraint, &format).await?;
    let output = Output::new(
        tools,
        request.parallel_tool_calls.unwrap_or(true),
        request.wants_encrypted_reasoning(),
    );
    let response = Reply::new(request.echo(&model), prompt.len(), output).keeping(history.kept(&request, store));
    let asked = EngineRequest {
        top_logprobs,
        ..generation.request(prompt, options, &constraint)
    };
    let engine = model.engine().await?;
    let events = events::stream(model.ask(&engine, asked, format)?);
    reply::reply(response, events, request.stream).await
}

/// `POST /v1/responses/input_tokens`: the number of tokens of a request's prompt.
pub(crate) async fn input_tokens(
    State(models): State<Arc<ServedModels>>,
    Extension(store): Extension<ResponseStore>,
    headers: HeaderMap,
    Body(request): Body<ResponsesRequest>,
) -> Result<Json<Value>, Refusal> {
    request.check()?;
    let model = models.named(request.generation()?.model.as_deref())?;
    let functions = request.answer_form(&model, &request.tools()?)?.tools;
    let history = History::of(&request, &store, Owner::of(&headers))?;
    let (prompt, _) = render(&request, &history.values(), functions, &model).await?;
    Ok(Json(
        json!({"object": "response.input_tokens", "input_tokens": prompt.len()}),
    ))
}

/// `POST /v1/responses/compact`, which needs a model of OpenAI's that compresses conversations.
pub(crate) async fn compact() -> Refusal {
    Refusal::Malformed("compaction is not supported; send a shorter conversation".to_owned())
}

/// Renders items as a prompt, and says how the answer is read.
async fn render(
    request: &ResponsesRequest,
    items: &[Value],
    functions: Option<Vec<Value>>,
    model: &Arc<ServedModel>,
) -> Result<(Vec<u32>, AnswerFormat), Refusal> {
    let conversation = Conversation {
        messages: items::read(request.instructions.as_deref(), items)?,
        tools: functions,
        variables: request.chat_template_kwargs.clone(),
        ..Conversation::default()
    };
    model.render(conversation, request.reasoning_options()?).await
}

/// Reads a body as [`responses`] does, up to where a model is needed.
#[cfg(feature = "fuzzing")]
pub(crate) fn exercise(request: &ResponsesRequest) -> Result<(), Refusal> {
    request.check()?;
    request.generation()?;
    request.tools()?;
    request.reasoning_options()?;
    request.conversation_id()?;
    items::read(request.instructions.as_deref(), &request.input_items()?).map(drop)
}

/// The items that a request continues, and its own.
struct History {
    owner: Owner,
    earlier: Vec<Arc<StoredItem>>,
    /// The request's own, which become text only if they are kept.
    own: Vec<Value>,
    /// The conversation that the items belong to.
    conversation: Option<StoredEntry>,
}

impl History {
    /// Collects the items: those of `previous_response_id` or `conversation`, then those of `input`.
    fn of(request: &ResponsesRequest, store: &ResponseStore, owner: Owner) -> Result<History, Refusal> {
        let conversation = match request.conversation_id()? {
            Some(id) => {
                let missing = || Refusal::NoSuchObject(format!("conversation {id:?}"));
                Some(store.get(&owner, &id).ok_or_else(missing)?)
            }
            None => None,
        };
        let previous = match &request.previous_response_id {
            Some(_) if conversation.is_some() => {
                let why = "cannot be combined with conversation";
                return Err(Refusal::field("previous_response_id", why));
            }
            Some(id) => {
                let why = format!("response {id:?} not found; the server keeps a limited number of responses");
                let missing = || Refusal::field("previous_response_id", why);
                Some(store.get(&owner, id).ok_or_else(missing)?)
            }
            None => None,
        };
        let before = conversation.as_ref().or(previous.as_ref());
        let earlier = before.map(|entry| entry.items.clone()).unwrap_or_default();
        let mut own = vec![];
        for item in request.input_items()? {
            let reference = item["id"].as_str().filter(|_| item["type"] == "item_reference");
            own.push(match reference {
                Some(id) => store
                    .item(&owner, id)
                    .ok_or_else(|| Refusal::NoSuchObject(format!("item {id:?}")))?
                    .value(),
                None => items::stored(item),
            });
        }
        Ok(History {
            owner,
            earlier,
            own,
            conversation,
        })
    }

    /// Returns all items.
    fn values(&self) -> Vec<Value> {
        let earlier = self.earlier.iter().map(|item| item.value());
        earlier.chain(self.own.iter().cloned()).collect()
    }

    /// Returns how the response is kept, if it is.
    fn kept(self, request: &ResponsesRequest, store: ResponseStore) -> Option<KeptHistory> {
        let keeps_response = request.store.unwrap_or(true);
        (keeps_response || self.conversation.is_some()).then_some(KeptHistory {
            store,
            history: self,
            keeps_response,
        })
    }
}

/// Where a response is kept once it has ended.
struct KeptHistory {
    store: ResponseStore,
    history: History,
    /// Whether the response itself is kept, or its conversation alone.
    keeps_response: bool,
}

impl KeptHistory {
    fn keep(self, response: &Value) {
        let History {
            owner,
            earlier: mut items,
            own,
            conversation,
        } = self.history;
        let earlier = items.len();
        let output = response["output"].as_array().into_iter().flatten();
        items.extend(own.iter().chain(output).map(StoredItem::new));
        if let Some(conversation) = conversation {
            self.store.put(StoredEntry {
                items: items.clone(),
                ..conversation
            });
        }
        if self.keeps_response {
            self.store.put(StoredEntry {
                id: response["id"].as_str().unwrap_or_default().to_owned(),
                owner,
                object: response.clone(),
                items,
                earlier,
            });
        }
    }
}
