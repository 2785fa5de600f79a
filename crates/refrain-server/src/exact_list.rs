//! Lists in bodies of requests whose numbers keep all their digits.

use refrain_text::exact;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// A list whose numbers keep all their digits, as [`exact::parse`] keeps them: messages with arguments of calls.
#[derive(Debug, Default)]
pub(crate) struct ExactList(pub Vec<Value>);

impl<'de> Deserialize<'de> for ExactList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        match exact::parse(raw.get()).map_err(D::Error::custom)? {
            Value::Array(items) => Ok(ExactList(items)),
            _ => Err(D::Error::custom("invalid type: another value, expected a sequence")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Request {
        messages: Option<ExactList>,
        #[serde(flatten)]
        _rest: serde_json::Map<String, Value>,
    }

    #[test]
    fn numbers_keep_their_digits() {
        let text = r#"{"messages": [{"input": {"id": 98765432109876543210, "n": 1}}], "other": 1}"#;
        let request: Request = serde_json::from_str(text).unwrap();
        let messages = request.messages.unwrap().0;
        assert_eq!(
            exact::literal(&messages[0]["input"]["id"]),
            Some("98765432109876543210")
        );
        assert_eq!(messages[0]["input"]["n"], 1);
        let request = Request::deserialize(&json!({"messages": [1], "x": 2})).unwrap();
        assert_eq!(request.messages.unwrap().0, [json!(1)], "also of a value");
        assert!(
            serde_json::from_str::<Request>(r#"{"messages": null}"#)
                .unwrap()
                .messages
                .is_none()
        );
        let error = serde_json::from_str::<Request>(r#"{"messages": 7}"#)
            .unwrap_err()
            .to_string();
        assert!(error.contains("expected a sequence"), "{error}");
    }
}
