//! How clients ask the model to reason: whether, how much, and for how many tokens.

use refrain_text::ReasoningOptions;
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// The fields by which clients switch and limit reasoning. Budgets are numbers of tokens: 0 switches reasoning off,
/// -1 is no limit.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct ReasoningFields {
    /// Whether the model reasons before it answers.
    think: Option<bool>,
    enable_thinking: Option<bool>,
    reasoning_effort: Option<String>,
    reasoning: Option<NestedReasoning>,
    /// As Anthropic's clients have it.
    thinking: Option<ThinkingField>,
    /// The budget as Qwen's interface names it.
    #[serde(default, deserialize_with = "budget")]
    #[schemars(with = "Option<i64>", range(min = -1))]
    thinking_budget: Option<Budget>,
    /// The budget as vLLM names it.
    #[serde(default, deserialize_with = "budget")]
    #[schemars(with = "Option<i64>", range(min = -1))]
    thinking_token_budget: Option<Budget>,
    /// The budget as llama.cpp names it.
    #[serde(
        default,
        deserialize_with = "budget",
        alias = "reasoning_budget_tokens",
        alias = "thinking_budget_tokens"
    )]
    #[schemars(with = "Option<i64>", range(min = -1))]
    reasoning_budget: Option<Budget>,
}

/// `reasoning` of the Responses API, and of chats by way of routers.
#[derive(Debug, Default, Deserialize, JsonSchema)]
struct NestedReasoning {
    enabled: Option<bool>,
    effort: Option<String>,
    /// The budget in tokens.
    #[serde(default, deserialize_with = "budget")]
    #[schemars(with = "Option<i64>", range(min = -1))]
    max_tokens: Option<Budget>,
}

/// `thinking`: a switch, or Anthropic's object.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "thinking must be true, false or an object with a type")]
enum ThinkingField {
    Switch(bool),
    Object {
        /// `enabled`, `adaptive` or `disabled`.
        r#type: Option<String>,
        /// The budget in tokens.
        #[serde(default, deserialize_with = "budget")]
        #[schemars(with = "Option<i64>", range(min = -1))]
        budget_tokens: Option<Budget>,
    },
}

/// A number of tokens, or no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Budget(Option<usize>);

impl Budget {
    /// Reads a whole number from -1 on, which may be written as a float.
    fn of(value: &Value) -> Option<Budget> {
        let number = value
            .as_f64()
            .filter(|number| number.fract() == 0.0 && *number >= -1.0)?;
        Some(Budget((number >= 0.0).then_some(number as usize)))
    }
}

fn budget<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Budget>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        value => match Budget::of(&value) {
            Some(budget) => Ok(Some(budget)),
            None => Err(D::Error::custom(format!(
                "expected a number of tokens for reasoning, or -1 for no limit, not {value}"
            ))),
        },
    }
}

impl ReasoningFields {
    /// Returns the options of reasoning. Switches and budgets among the template's variables count, too.
    pub fn options(&self, variables: &Map<String, Value>) -> ReasoningOptions {
        let nested = self.reasoning.as_ref();
        let effort = self.reasoning_effort.clone();
        let effort = effort.or_else(|| nested?.effort.clone());
        let switches = ["enable_thinking", "thinking"].into_iter();
        let variable = switches.filter_map(|name| variables.get(name)?.as_bool()).next();
        let (thinking, thinking_budget) = match &self.thinking {
            None => (None, None),
            Some(ThinkingField::Switch(enabled)) => (Some(*enabled), None),
            Some(ThinkingField::Object { r#type, budget_tokens }) => {
                (r#type.as_deref().map(|kind| kind != "disabled"), *budget_tokens)
            }
        };
        let nested_budget = nested.and_then(|nested| nested.max_tokens);
        let budget = nested_budget
            .or(self.thinking_budget)
            .or(self.thinking_token_budget)
            .or(self.reasoning_budget)
            .or(thinking_budget)
            .or_else(|| Budget::of(variables.get("thinking_budget")?))
            .and_then(|budget| budget.0);
        let enabled = self
            .think
            .or(self.enable_thinking)
            .or_else(|| nested?.enabled)
            .or(thinking)
            .or(variable)
            // Routers ask for reasoning so.
            .or(nested_budget.and(Some(true)));
        let options = match effort {
            Some(effort) if effort == "none" => ReasoningOptions::switched(enabled.or(Some(false))),
            effort => ReasoningOptions {
                enabled,
                effort,
                budget: None,
            },
        };
        options.with_budget(budget)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn options(fields: Value, variables: Value) -> ReasoningOptions {
        let fields: ReasoningFields = serde_json::from_value(fields).unwrap();
        let Value::Object(variables) = variables else {
            unreachable!()
        };
        fields.options(&variables)
    }

    #[test]
    fn reasoning_is_switched_by_all_names() {
        let effort = |effort: &str| ReasoningOptions {
            effort: Some(effort.to_owned()),
            ..ReasoningOptions::default()
        };
        assert_eq!(options(json!({}), json!({})), ReasoningOptions::default());
        assert_eq!(options(json!({"reasoning_effort": "high"}), json!({})), effort("high"));
        assert_eq!(
            options(json!({"reasoning": {"effort": "low"}}), json!({})),
            effort("low")
        );
        for (fields, variables) in [
            (json!({"reasoning_effort": "none"}), json!({})),
            (json!({"enable_thinking": false}), json!({})),
            (json!({"think": false, "enable_thinking": true}), json!({})),
            (json!({"reasoning": {"enabled": false}}), json!({})),
            (json!({"thinking": {"type": "disabled"}}), json!({})),
            (json!({"thinking": false}), json!({})),
            (json!({}), json!({"enable_thinking": false})),
        ] {
            assert_eq!(options(fields, variables), ReasoningOptions::switched(Some(false)));
        }
    }

    #[test]
    fn reasoning_has_a_budget_by_all_names() {
        for (fields, enabled) in [
            (json!({"reasoning": {"max_tokens": 100}}), Some(true)),
            (json!({"thinking_budget": 100.0}), None),
            (json!({"thinking_token_budget": 100}), None),
            (json!({"reasoning_budget": 100}), None),
            (json!({"reasoning_budget_tokens": 100}), None),
            (
                json!({"thinking": {"type": "enabled", "budget_tokens": 100}}),
                Some(true),
            ),
        ] {
            let read = options(fields.clone(), json!({}));
            assert_eq!((read.budget, read.enabled), (Some(100), enabled), "{fields}");
        }
        let variable = options(json!({}), json!({"thinking_budget": 7}));
        assert_eq!(variable.budget, Some(7));
        let none = options(json!({"reasoning_budget": 0}), json!({}));
        assert_eq!((none.budget, none.enabled), (Some(0), Some(false)));
        let endless = json!({"reasoning_budget": -1, "thinking_budget": null});
        assert_eq!(options(endless, json!({})), ReasoningOptions::default());
        for wrong in [json!(-2), json!(1.5), json!("many")] {
            let fields = json!({"thinking_budget": wrong});
            assert!(serde_json::from_value::<ReasoningFields>(fields).is_err(), "{wrong}");
        }
    }
}
