//! The document against the router and against itself.

use std::collections::{BTreeMap, BTreeSet};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{ALLOW, HOST};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use regex::Regex;
use serde_json::Value;

use super::document;
use crate::model_list::ModelList;
use crate::web_origin::WebPolicy;
use crate::{ServerOptions, router};

/// The methods of each path.
type Routes = BTreeMap<String, BTreeSet<String>>;

/// Returns the routes of the router. It tells their paths by its debug output only, and the methods of each path where
/// it refuses another one.
async fn routes(router: Router) -> Routes {
    let paths = Regex::new(r#"RouteId\(\d+\): "([^"]+)""#).expect("a pattern");
    let shown = format!("{router:?}");
    let paths = paths.captures_iter(&shown).map(|found| found[1].to_owned());
    let service = TowerToHyperService::new(router);
    let mut routes = Routes::new();
    for path in paths.filter(|path| !path.contains("__private")) {
        let path = path.replace("{*", "{");
        let request = Request::builder().method("OTHER").uri(path.replace(['{', '}'], ""));
        let request = request
            .header(HOST, "localhost")
            .body(Body::empty())
            .expect("a request");
        let response = service.call(request).await.expect("a response");
        assert_eq!(response.status(), 405, "{path}");
        let allowed = response.headers()[ALLOW].to_str().expect("ASCII").to_lowercase();
        let mut methods: BTreeSet<String> = allowed.split(',').map(str::to_owned).collect();
        // GET answers HEAD, too.
        if methods.contains("get") {
            methods.remove("head");
        }
        routes.entry(path).or_default().extend(methods);
    }
    routes
}

fn documented(document: &Value) -> Routes {
    let paths = document["paths"].as_object().expect("paths").iter();
    let methods = |operations: &Value| operations.as_object().expect("operations").keys().cloned().collect();
    paths
        .map(|(path, operations)| (path.clone(), methods(operations)))
        .collect()
}

#[test]
fn every_route_is_documented_and_no_other() {
    let router = router(ModelList::new(vec![]), &ServerOptions::default(), WebPolicy::default());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let routes = runtime.block_on(routes(router));
    assert!(routes.len() > 40, "{routes:?}");
    assert_eq!(documented(&document(false)), routes);
}

/// Calls `visit` with each value within `value`, and its key.
fn walk<'v>(key: &'v str, value: &'v Value, visit: &mut dyn FnMut(&'v str, &'v Value)) {
    visit(key, value);
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| walk(key, value, visit)),
        Value::Array(values) => values.iter().for_each(|value| walk("", value, visit)),
        _ => {}
    }
}

#[test]
fn references_resolve_and_every_definition_is_used() {
    let document = document(true);
    let mut used = BTreeSet::new();
    walk("", &document, &mut |key, value| {
        if key == "$ref" {
            let reference = value.as_str().expect("a reference");
            assert!(document.pointer(&reference[1..]).is_some(), "{reference}");
            used.insert(reference.rsplit('/').next().expect("a name"));
        }
    });
    for name in document["components"]["schemas"].as_object().expect("schemas").keys() {
        assert!(used.contains(name.as_str()), "{name} is not used");
        assert!(
            !name.ends_with(|last: char| last.is_ascii_digit()),
            "two types are called {name}"
        );
    }
}

#[test]
fn every_answer_lists_its_status_and_the_type_of_its_body() {
    let document = document(true);
    let mut ids = BTreeSet::new();
    for (path, operations) in document["paths"].as_object().expect("paths") {
        for (method, operation) in operations.as_object().expect("operations") {
            let name = format!("{method} {path}");
            assert!(ids.insert(operation["operationId"].to_string()), "{name}");
            let request = &operation["requestBody"]["content"]["application/json"]["schema"];
            assert!(
                operation.get("requestBody").is_none() || request["$ref"].is_string(),
                "{name}"
            );
            for (status, answer) in operation["responses"].as_object().expect("responses") {
                assert!(status.parse::<u16>().is_ok(), "{name}: {status}");
                let content = answer["content"].as_object();
                assert!(
                    method == "head" || content.is_some_and(|content| !content.is_empty()),
                    "{name}: {status}"
                );
                for (media_type, content) in content.into_iter().flatten() {
                    let schema = content.get("schema").or(content.get("itemSchema"));
                    let is_typed = schema
                        .and_then(Value::as_object)
                        .is_some_and(|schema| !schema.is_empty());
                    assert!(is_typed, "{name}: {status} {media_type}");
                }
            }
        }
    }
}

#[test]
fn keys_are_part_of_the_document_of_a_server_that_has_some() {
    assert_eq!(document(false).get("security"), None);
    let document = document(true);
    assert!(document["security"].as_array().is_some_and(|all| all.len() == 2));
    assert_eq!(document["paths"]["/health"]["get"]["security"], serde_json::json!([]));
    assert_eq!(document["paths"]["/v1/models"]["get"].get("security"), None);
}
