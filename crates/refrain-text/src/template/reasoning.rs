//! Prompts with reasoning switched on or off, by what the template itself knows.

use serde_json::Value;

use super::{ChatTemplate, Conversation};
use crate::Error;
use crate::dialects::Dialect;

/// The variables by which templates switch reasoning.
const SWITCHES: [&str; 2] = ["enable_thinking", "thinking"];
/// The variable by which templates set how much a model reasons.
const EFFORT: &str = "reasoning_effort";
/// The variable by which templates tell a model how many tokens its reasoning may have.
const BUDGET: &str = "thinking_budget";

/// How a model is asked to reason. What is `None` is left to the template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReasoningOptions {
    /// Whether it reasons before it answers.
    pub enabled: Option<bool>,
    /// How much it reasons: `low`, `medium`, `high`, or what else the template knows.
    pub effort: Option<String>,
    /// Maximum number of tokens of reasoning. The template is told; whoever generates the answer enforces it.
    pub budget: Option<usize>,
}

impl ReasoningOptions {
    /// Reasoning switched on or off, or left to the template.
    pub fn switched(enabled: Option<bool>) -> ReasoningOptions {
        ReasoningOptions {
            enabled,
            ..ReasoningOptions::default()
        }
    }

    /// Sets the budget of reasoning in tokens. Without any token there is no reasoning.
    #[must_use]
    pub fn with_budget(self, budget: Option<usize>) -> ReasoningOptions {
        ReasoningOptions {
            enabled: if budget == Some(0) { Some(false) } else { self.enabled },
            budget,
            ..self
        }
    }
}

impl ChatTemplate {
    /// Renders a conversation up to where the model's answer begins.
    ///
    /// Reasoning is switched by the variables that templates read. A template that writes reasoning but has no switch
    /// gets an empty block of reasoning where it is switched off. A model whose template knows no reasoning is left
    /// alone: the template decides, not the vocabulary.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`].
    pub fn render_for_answer(
        &self,
        conversation: &Conversation,
        options: &ReasoningOptions,
        dialect: &Dialect,
    ) -> Result<String, Error> {
        let mut conversation = conversation.clone();
        if let Some(effort) = &options.effort {
            let variable = conversation.variables.entry(EFFORT.to_owned());
            variable.or_insert_with(|| effort.as_str().into());
        }
        if let Some(budget) = options.budget {
            let variable = conversation.variables.entry(BUDGET.to_owned());
            variable.or_insert_with(|| budget.into());
        }
        let Some(enabled) = options.enabled else {
            return self.render(&conversation, true);
        };
        let text = self.render_switched(&conversation, enabled)?;
        let Some(marks) = dialect.reasoning.filter(|_| !enabled) else {
            return Ok(text);
        };
        // A variable that the template does not read changes nothing.
        if self.render_switched(&conversation, true).ok().as_ref() != Some(&text) {
            return Ok(text);
        }
        let text = text.trim_end().strip_suffix(marks.open).unwrap_or(&text);
        Ok(format!("{text}{}\n\n{}\n\n", marks.open, marks.close))
    }

    /// Whether the template has a switch for reasoning.
    pub fn switches_reasoning(&self, conversation: &Conversation) -> bool {
        let [on, off] = [true, false].map(|to| self.render_switched(conversation, to).ok());
        on != off
    }

    fn render_switched(&self, conversation: &Conversation, to: bool) -> Result<String, Error> {
        let mut conversation = conversation.clone();
        for name in SWITCHES {
            conversation.variables.insert(name.to_owned(), Value::Bool(to));
        }
        self.render(&conversation, true)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn render(source: &str, options: &ReasoningOptions) -> String {
        let template = ChatTemplate::new(source, BTreeMap::new());
        let dialect = Dialect::of(&template, None);
        let conversation = Conversation::from_prompt(None, "hi");
        template.render_for_answer(&conversation, options, &dialect).unwrap()
    }

    fn switched(source: &str, enabled: Option<bool>) -> String {
        render(source, &ReasoningOptions::switched(enabled))
    }

    #[test]
    fn a_template_with_a_switch_is_switched() {
        for name in SWITCHES {
            let source = format!("A:{{% if {name} is defined and not {name} %}}<think>\n\n</think>\n{{% endif %}}");
            assert_eq!(switched(&source, None), "A:");
            assert_eq!(switched(&source, Some(true)), "A:");
            assert_eq!(switched(&source, Some(false)), "A:<think>\n\n</think>\n");
        }
    }

    #[test]
    fn without_a_switch_an_empty_block_ends_the_reasoning() {
        // It removes the reasoning of earlier answers, so it knows the marks.
        let source = "{% set x = messages[0].content.split('</think>') %}A:{{ '<think>\n' }}";
        assert_eq!(switched(source, None), "A:<think>\n");
        assert_eq!(switched(source, Some(true)), "A:<think>\n");
        assert_eq!(switched(source, Some(false)), "A:<think>\n\n</think>\n\n");
    }

    #[test]
    fn a_template_that_knows_no_reasoning_is_left_alone() {
        assert_eq!(switched("A:", Some(false)), "A:");
        assert_eq!(switched("A:", Some(true)), "A:");
        let conversation = Conversation::from_prompt(None, "hi");
        let switches = |source: &str| ChatTemplate::new(source, BTreeMap::new()).switches_reasoning(&conversation);
        assert!(!switches("A:") && switches("{{ enable_thinking }}"));
    }

    #[test]
    fn the_effort_reaches_the_template_and_does_not_override_what_the_caller_set() {
        let budget = ReasoningOptions::default().with_budget(Some(100));
        assert_eq!(render("{{ thinking_budget }}", &budget), "100");
        let none = budget.with_budget(Some(0));
        assert_eq!((none.enabled, none.budget), (Some(false), Some(0)));
        let source = "{{ reasoning_effort | default('none') }}";
        let effort = |effort: &str| ReasoningOptions {
            effort: Some(effort.to_owned()),
            ..ReasoningOptions::default()
        };
        assert_eq!(render(source, &ReasoningOptions::default()), "none");
        assert_eq!(render(source, &effort("high")), "high");
        let template = ChatTemplate::new(source, BTreeMap::new());
        let mut conversation = Conversation::from_prompt(None, "hi");
        conversation.variables.insert(EFFORT.to_owned(), "low".into());
        let dialect = Dialect::of(&template, None);
        assert_eq!(
            template
                .render_for_answer(&conversation, &effort("high"), &dialect)
                .unwrap(),
            "low"
        );
    }
}
