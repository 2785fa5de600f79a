//! A conversation beside the session that computes it.

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{anyhow, bail};
use refrain_engine::{GenerateOptions, Generation, Session, Snapshot, generate};
use refrain_formats::{ChatTemplate, Conversation, Tokenizer};
use serde_json::{Value, json};

/// The messages so far, and the tokens that the session holds of them.
///
/// Each turn the template renders the whole conversation, and only what differs from the tokens held
/// is computed. So it does not matter what a template makes of earlier turns (some leave out what the
/// model thought): the session goes back to where the texts part.
pub(super) struct Dialogue<'a> {
    session: Session<'a>,
    tokenizer: &'a Tokenizer,
    template: ChatTemplate,
    conversation: Conversation,
}

/// An answer of the model.
pub(super) struct Answer {
    pub generation: Generation,
    /// Tokens of the prompt that the session held already.
    pub kept: usize,
}

impl<'a> Dialogue<'a> {
    /// A conversation, of which the session holds nothing yet.
    pub fn new(
        session: Session<'a>,
        tokenizer: &'a Tokenizer,
        template: ChatTemplate,
        conversation: Conversation,
    ) -> Self {
        Self {
            session,
            tokenizer,
            template,
            conversation,
        }
    }

    pub fn session(&self) -> &Session<'a> {
        &self.session
    }

    pub fn conversation(&self) -> &Conversation {
        &self.conversation
    }

    /// Goes on with another conversation.
    pub fn replace(&mut self, conversation: Conversation) {
        self.conversation = conversation;
    }

    /// Writes what the session holds to a file, so that [`Dialogue::restore`] spares computing it again.
    ///
    /// # Errors
    /// If the device fails, or the file cannot be written.
    pub fn keep(&mut self, path: &Path) -> Result<(), refrain_engine::Error> {
        self.session.snapshot()?.save(path)
    }

    /// Brings back what [`Dialogue::keep`] wrote. Whatever conversation it belongs to: tokens that differ
    /// are computed.
    ///
    /// # Errors
    /// If the file is damaged, or does not fit model, device or context. Nothing is lost then.
    pub fn restore(&mut self, path: &Path) -> Result<(), refrain_engine::Error> {
        self.session.restore(&Snapshot::open(path)?)?;
        Ok(())
    }

    /// Forgets all messages but the system message.
    pub fn clear(&mut self) {
        self.conversation.messages.retain(is_system);
    }

    /// The system message.
    pub fn system(&self) -> Option<&str> {
        let system = self.conversation.messages.first().filter(|message| is_system(message));
        system?["content"].as_str()
    }

    /// Sets the system message, or replaces it.
    pub fn set_system(&mut self, text: &str) {
        let message = message("system", text);
        let messages = &mut self.conversation.messages;
        match messages.first_mut().filter(|message| is_system(message)) {
            Some(system) => *system = message,
            None => messages.insert(0, message),
        }
    }

    /// Adds a message of the user.
    pub fn say(&mut self, text: &str) {
        self.conversation.messages.push(message("user", text));
    }

    /// Takes the model's last answer back.
    ///
    /// # Errors
    /// If there is nothing to answer.
    pub fn take_back_answer(&mut self) -> anyhow::Result<()> {
        let messages = &mut self.conversation.messages;
        let by_user = |message: &Value| message["role"] == "user";
        let last = messages.iter().rposition(by_user);
        let last = last.ok_or_else(|| anyhow!("there is no message to answer yet"))?;
        messages.truncate(last + 1);
        Ok(())
    }

    /// Lets the model answer the last message. If it fails or there is no text, that message is taken
    /// back, so that the conversation stays one.
    ///
    /// # Errors
    /// If the template refuses the conversation, the context is full, or the session fails.
    pub fn answer(
        &mut self,
        options: &GenerateOptions<'_>,
        on_text: &mut dyn FnMut(&str, u32) -> ControlFlow<()>,
    ) -> anyhow::Result<Answer> {
        let answer = self.generate(options, on_text);
        match &answer {
            Ok(answer) if !answer.generation.text.is_empty() => {
                let text = &answer.generation.text;
                self.conversation.messages.push(message("assistant", text));
            }
            _ => {
                self.conversation.messages.pop();
            }
        }
        answer
    }

    fn generate(
        &mut self,
        options: &GenerateOptions<'_>,
        on_text: &mut dyn FnMut(&str, u32) -> ControlFlow<()>,
    ) -> anyhow::Result<Answer> {
        let rendered = self.template.render(&self.conversation, true)?;
        let tokens = self.tokenizer.encode_rendered(&rendered)?;
        if tokens.len() > self.session.context() {
            bail!(
                "the conversation has {} tokens, but the context holds {}: /clear begins anew, --ctx makes it longer",
                tokens.len(),
                self.session.context()
            );
        }
        let common = common(self.session.tokens(), &tokens);
        self.session.rewind(common);
        // Recurrent states do not go back: then nothing is kept, and the session computes it again.
        let kept = self.session.position();
        let generation = generate(&mut self.session, &tokens[common..], options, on_text)?;
        Ok(Answer { generation, kept })
    }
}

fn message(role: &str, content: &str) -> Value {
    json!({ "role": role, "content": content })
}

fn is_system(message: &Value) -> bool {
    message["role"] == "system"
}

/// How many tokens at the beginning need not be computed again; the last one must be, for its logits.
fn common(held: &[u32], tokens: &[u32]) -> usize {
    let equal = held
        .iter()
        .zip(tokens)
        .take_while(|(held, token)| held == token)
        .count();
    equal.min(tokens.len().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use refrain_engine::{Device, LoadOptions, Model, Sampler, SamplerOptions};

    use super::*;
    use crate::demo;

    /// Talks with the demo model by `template`; returns the answers and how many tokens were kept.
    fn talk(template: &str, messages: &[&str]) -> (Vec<String>, Vec<usize>) {
        let checkpoint = demo::checkpoint().unwrap();
        let tokenizer = checkpoint.tokenizer().unwrap();
        let model = Model::load(&checkpoint, &Device::cpu(), &LoadOptions::default()).unwrap();
        let template = match template {
            "" => checkpoint.chat_template().unwrap().unwrap(),
            source => ChatTemplate::new(source, Default::default()),
        };
        let session = Session::new(&model, 256).unwrap();
        let mut dialogue = Dialogue::new(session, &tokenizer, template, Conversation::default());
        let options = GenerateOptions {
            max_tokens: Some(40),
            sampler: Sampler::new(SamplerOptions {
                temperature: 0.0,
                ..SamplerOptions::default()
            })
            .unwrap(),
            stop_ids: tokenizer.eos_ids().to_vec(),
            stop_strings: vec![],
            tokenizer: &tokenizer,
        };
        let mut answer = |message: &&str| {
            dialogue.say(message);
            let answer = dialogue
                .answer(&options, &mut |_, _| ControlFlow::Continue(()))
                .unwrap();
            (answer.generation.text, answer.kept)
        };
        messages.iter().map(&mut answer).unzip()
    }

    const QUESTIONS: [&str; 2] = ["What is 12 + 30?", "What is 5 + 4?"];

    #[test]
    fn only_new_tokens_are_computed() {
        let (answers, kept) = talk("", &QUESTIONS);
        assert_eq!(answers, ["12 + 30 = 42", "5 + 4 = 9"]);
        // All of the first turn but the token that ended it.
        assert!(kept[0] == 0 && kept[1] > 20, "{kept:?}");
    }

    #[test]
    fn a_template_that_rewrites_earlier_turns_is_followed() {
        // Of earlier answers nothing is left but a dash.
        let rewriting = "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}\
            {%- if m.role == 'assistant' %}{{- '-' }}{%- else %}{{- m.content }}{%- endif %}\
            {{- '<|im_end|>\\n' }}{%- endfor %}{{- '<|im_start|>assistant\\n' }}";
        let (answers, kept) = talk(rewriting, &QUESTIONS);
        // As if it were computed anew: the session went back to the dash.
        let checkpoint = demo::checkpoint().unwrap();
        let tokenizer = checkpoint.tokenizer().unwrap();
        let turn = format!("<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n", QUESTIONS[0]);
        assert_eq!(kept[1], tokenizer.encode_rendered(&turn).unwrap().len());
        assert_eq!(answers[1], "5 + 4 = 9");
    }

    #[test]
    fn a_conversation_that_does_not_fit_is_refused_and_stays_as_it_was() {
        let checkpoint = demo::checkpoint().unwrap();
        let tokenizer = checkpoint.tokenizer().unwrap();
        let model = Model::load(&checkpoint, &Device::cpu(), &LoadOptions::default()).unwrap();
        let template = checkpoint.chat_template().unwrap().unwrap();
        let session = Session::new(&model, 8).unwrap();
        let mut dialogue = Dialogue::new(session, &tokenizer, template, Conversation::default());
        dialogue.set_system("Be kind.");
        dialogue.say("What is 12 + 30? And what is 1 + 1?");
        let options = GenerateOptions {
            max_tokens: None,
            sampler: Sampler::new(SamplerOptions::default()).unwrap(),
            stop_ids: vec![],
            stop_strings: vec![],
            tokenizer: &tokenizer,
        };
        let answer = dialogue.answer(&options, &mut |_, _| ControlFlow::Continue(()));
        let error = answer.map(|_| ()).unwrap_err().to_string();
        assert!(
            error.contains("the context holds 8") && error.contains("/clear"),
            "{error}"
        );
        assert_eq!(dialogue.conversation().messages.len(), 1);
        assert_eq!(dialogue.system(), Some("Be kind."));
        assert!(dialogue.take_back_answer().is_err());
    }

    #[test]
    fn the_last_token_is_always_computed() {
        assert_eq!(common(&[1, 2, 3], &[1, 2, 4, 5]), 2);
        assert_eq!(common(&[1, 2, 3], &[1, 2]), 1);
        assert_eq!(common(&[], &[1]), 0);
    }
}
