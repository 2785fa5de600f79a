//! How an Anthropic client asks the model to reason.

use refrain_text::ReasoningOptions;
use serde_json::Value;

use crate::error::Refusal;

/// Budgets in tokens from which on an effort is called high, and medium, as LiteLLM has it.
const HIGH_BUDGET: u64 = 10_000;
const MEDIUM_BUDGET: u64 = 5_000;

/// Reads the fields `thinking` and `output_config`. Without the first there is no reasoning: a client that did not
/// ask for it does not expect it.
///
/// # Errors
/// Values that are not known.
pub(super) fn options(thinking: Option<&Value>, output_config: Option<&Value>) -> Result<ReasoningOptions, Refusal> {
    let null = Value::Null;
    let thinking = thinking.unwrap_or(&null);
    if !(thinking.is_null() || thinking.is_object()) {
        return Err(Refusal::field("thinking", "must be an object with a type"));
    }
    let enabled = match thinking["type"].as_str() {
        Some("enabled" | "adaptive") => true,
        None | Some("disabled") => false,
        Some(other) => {
            let why = format!("type {other:?} is not \"enabled\", \"adaptive\" or \"disabled\"");
            return Err(Refusal::field("thinking", why));
        }
    };
    let budget = match &thinking["budget_tokens"] {
        Value::Null => None,
        number => {
            Some(tokens(number).ok_or_else(|| Refusal::field("thinking", "budget_tokens must be a whole number"))?)
        }
    };
    let budget = budget.filter(|_| enabled);
    let effort = match effort(output_config.map_or(&null, |config| &config["effort"]))? {
        Some(effort) => Some(effort),
        None => budget.map(effort_of_budget),
    };
    let options = ReasoningOptions {
        enabled: Some(enabled),
        effort: effort.map(str::to_owned),
        budget: None,
    };
    Ok(options.with_budget(budget.map(|budget| usize::try_from(budget).unwrap_or(usize::MAX))))
}

/// A number of tokens; `1024.0` is one too.
fn tokens(number: &Value) -> Option<u64> {
    let whole = |number: f64| (number >= 0.0 && number.fract() == 0.0).then_some(number as u64);
    number.as_u64().or_else(|| whole(number.as_f64()?))
}

/// The effort in the words that templates know.
fn effort(effort: &Value) -> Result<Option<&'static str>, Refusal> {
    match effort {
        Value::Null => Ok(None),
        effort => match effort.as_str().unwrap_or_default() {
            "low" => Ok(Some("low")),
            "medium" => Ok(Some("medium")),
            "high" | "xhigh" | "max" => Ok(Some("high")),
            _ => {
                let why = format!("effort {effort} is not \"low\", \"medium\", \"high\", \"xhigh\" or \"max\"");
                Err(Refusal::field("output_config", why))
            }
        },
    }
}

fn effort_of_budget(budget: u64) -> &'static str {
    match budget {
        HIGH_BUDGET.. => "high",
        MEDIUM_BUDGET.. => "medium",
        _ => "low",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(thinking: Value, output_config: Value) -> (Option<bool>, Option<String>, Option<usize>) {
        let read = options(Some(&thinking), Some(&output_config)).unwrap();
        (read.enabled, read.effort, read.budget)
    }

    #[test]
    fn reads_switches_efforts_and_budgets() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(options(None, None).unwrap(), ReasoningOptions::switched(Some(false)));
        assert_eq!(read(Value::Null, Value::Null), (Some(false), None, None));
        assert_eq!(read(json!({"type": "disabled"}), json!({})), (Some(false), None, None));
        let adaptive = json!({"type": "adaptive", "display": "summarized"});
        assert_eq!(
            read(adaptive.clone(), json!({"effort": "xhigh"})),
            (Some(true), some("high"), None)
        );
        assert_eq!(read(adaptive, json!({"effort": null})), (Some(true), None, None));
        let enabled = |budget: Value| json!({"type": "enabled", "budget_tokens": budget});
        assert_eq!(
            read(enabled(json!(1024)), json!({})),
            (Some(true), some("low"), Some(1024))
        );
        assert_eq!(
            read(enabled(json!(5000.0)), json!({})),
            (Some(true), some("medium"), Some(5000))
        );
        let both = read(enabled(json!(32000)), json!({"effort": "medium"}));
        assert_eq!(both, (Some(true), some("medium"), Some(32000)));
    }

    #[test]
    fn refuses_unknown_values_by_their_field() {
        for (thinking, config, field) in [
            (json!("enabled"), json!({}), "thinking: "),
            (json!({"type": "often"}), json!({}), "thinking: "),
            (
                json!({"type": "enabled", "budget_tokens": "many"}),
                json!({}),
                "thinking: ",
            ),
            (json!(null), json!({"effort": "huge"}), "output_config: "),
        ] {
            let error = options(Some(&thinking), Some(&config)).unwrap_err().to_string();
            assert!(error.starts_with(field), "{error}");
        }
    }
}
