use refrain_engine::{Device, EngineOptions, LoadOptions, Model};
use refrain_text::ChatTemplate;

use super::*;
use refrain_models::demo;

/// Starts an engine for one request at a time.
fn start(model: &Model, context: usize) -> Result<Engine, Error> {
    Engine::start(model, &EngineOptions::single(context))
}

/// Chats with the demo model using `template`; returns the responses and the numbers of cached tokens.
fn chat(template: &str, messages: &[&str]) -> (Vec<String>, Vec<usize>) {
    let checkpoint = demo::checkpoint().unwrap();
    let tokenizer = checkpoint.tokenizer().unwrap();
    let model = Model::load(&checkpoint, &Device::cpu(), &LoadOptions::default()).unwrap();
    let template = match template {
        "" => checkpoint.chat_template().unwrap().unwrap(),
        source => ChatTemplate::new(source, Default::default()),
    };
    let (tokenizer, renderer) = PromptRenderer::new(template, tokenizer, None);
    let engine = start(&model, 256).unwrap();
    let mut chat_session = ChatSession::new(engine, &tokenizer, renderer, Conversation::default(), OnFull::Shift);
    let options = greedy(&tokenizer, Some(40));
    let mut answer = |message: &&str| {
        chat_session.add_message(message);
        let answer = chat_session.respond(&options, &mut ResponseWriter::silent()).unwrap();
        (answer.generation.text, answer.cached)
    };
    messages.iter().map(&mut answer).unzip()
}

const QUESTIONS: [&str; 2] = ["What is 12 + 30?", "What is 5 + 4?"];

#[test]
fn processes_only_new_tokens() {
    let (answers, cached) = chat("", &QUESTIONS);
    assert_eq!(answers, ["12 + 30 = 42", "5 + 4 = 9"]);
    // All of the first turn but its last tokens.
    assert!(cached[0] == 0 && cached[1] > 20, "{cached:?}");
}

#[test]
fn follows_a_template_that_rewrites_earlier_turns() {
    // This template replaces earlier responses by a dash.
    let rewriting = "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}\
        {%- if m.role == 'assistant' %}{{- '-' }}{%- else %}{{- m.content }}{%- endif %}\
        {{- '<|im_end|>\\n' }}{%- endfor %}{{- '<|im_start|>assistant\\n' }}";
    let (answers, cached) = chat(rewriting, &QUESTIONS);
    // As if processed from scratch: what precedes the dash was cached.
    let checkpoint = demo::checkpoint().unwrap();
    let tokenizer = checkpoint.tokenizer().unwrap();
    let turn = format!("<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n", QUESTIONS[0]);
    assert_eq!(cached[1], tokenizer.encode_rendered(&turn).unwrap().len());
    assert_eq!(answers[1], "5 + 4 = 9");
}

fn greedy(tokenizer: &Tokenizer, max_tokens: Option<usize>) -> GenerateOptions {
    GenerateOptions {
        max_tokens,
        stop_ids: tokenizer.eos_ids().to_vec(),
        ..GenerateOptions::default()
    }
}

/// Runs `work` on a chat with the demo model in a context of `context` tokens.
fn with_chat_session(context: usize, on_full: OnFull, work: impl FnOnce(&mut ChatSession<'_>, &Tokenizer)) {
    let checkpoint = demo::checkpoint().unwrap();
    let model = Model::load(&checkpoint, &Device::cpu(), &LoadOptions::default()).unwrap();
    let template = checkpoint.chat_template().unwrap().unwrap();
    let (tokenizer, renderer) = PromptRenderer::new(template, checkpoint.tokenizer().unwrap(), None);
    let engine = start(&model, context).unwrap();
    let conversation = Conversation::default();
    work(
        &mut ChatSession::new(engine, &tokenizer, renderer, conversation, on_full),
        &tokenizer,
    );
}

#[test]
fn rejects_a_message_that_does_not_fit_and_keeps_the_conversation() {
    for on_full in [OnFull::Shift, OnFull::Stop] {
        with_chat_session(8, on_full, |chat_session, tokenizer| {
            chat_session.set_system("Be kind.");
            chat_session.add_message("What is 12 + 30? And what is 1 + 1?");
            let answer = chat_session.respond(&greedy(tokenizer, None), &mut ResponseWriter::silent());
            let error = answer.map(|_| ()).unwrap_err().to_string();
            assert!(
                error.contains("the context holds 8") && error.contains("/ctx"),
                "{error}"
            );
            assert_eq!(chat_session.conversation().messages.len(), 1);
            assert_eq!(chat_session.system(), Some("Be kind."));
            assert!(chat_session.drop_last_response().is_err());
        });
    }
}

#[test]
fn full_context_drops_the_oldest_turns() {
    with_chat_session(80, OnFull::Shift, |chat_session, tokenizer| {
        chat_session.set_system("Be kind.");
        for turn in 0..6 {
            chat_session.add_message(&format!("What is {turn} + 30?"));
            let mut writer = ResponseWriter::silent();
            let answer = chat_session.respond(&greedy(tokenizer, None), &mut writer).unwrap();
            assert_eq!(writer.answer, format!("{turn} + 30 = {}", turn + 30));
            assert_eq!(answer.generation.finish, Finish::Stop);
        }
        // The whole conversation can be saved; the model sees the system message and the last turns.
        assert_eq!(chat_session.conversation().messages.len(), 13);
        assert!(chat_session.dropped_messages() >= 2 && chat_session.dropped_messages() % 2 == 0);
        let visible = chat_session.visible().messages;
        assert_eq!(
            (&visible[0]["role"], &visible[1]["role"]),
            (&"system".into(), &"user".into())
        );
        assert_eq!(visible.len() + chat_session.dropped_messages(), 13);
    });
}

#[test]
fn response_continues_after_the_context_was_full() {
    with_chat_session(80, OnFull::Shift, |chat_session, tokenizer| {
        for question in QUESTIONS {
            chat_session.add_message(question);
            chat_session
                .respond(&greedy(tokenizer, None), &mut ResponseWriter::silent())
                .unwrap();
        }
        // The turns so far leave space for a part of the response only.
        chat_session.add_message("Tell me a story.");
        let mut options = greedy(tokenizer, Some(30));
        options.stop_ids.clear();
        let mut writer = ResponseWriter::silent();
        let held = chat_session.tokens().unwrap().len();
        assert!(held < 80 && held + 30 > 80, "{held}");
        let answer = chat_session.respond(&options, &mut writer).unwrap();
        assert_eq!(answer.generation.finish, Finish::Length);
        assert_eq!(answer.generation.ids.len(), 30);
        assert!(chat_session.dropped_messages() > 0);
        assert_eq!(writer.answer, tokenizer.decode(&answer.generation.ids, true).unwrap());
    });
}

#[test]
fn longer_context_restores_dropped_messages() {
    with_chat_session(48, OnFull::Shift, |chat_session, tokenizer| {
        let checkpoint = demo::checkpoint().unwrap();
        let model = Model::load(&checkpoint, &Device::cpu(), &LoadOptions::default()).unwrap();
        for question in [QUESTIONS, QUESTIONS].concat() {
            chat_session.add_message(question);
            chat_session
                .respond(&greedy(tokenizer, None), &mut ResponseWriter::silent())
                .unwrap();
        }
        assert!(chat_session.dropped_messages() > 0);
        assert!(chat_session.resize(1 << 30, |context| start(&model, context)).is_err());
        assert_eq!(chat_session.context(), 48);
        chat_session.resize(512, |context| start(&model, context)).unwrap();
        assert_eq!((chat_session.dropped_messages(), chat_session.context()), (0, 512));
    });
}

#[test]
fn responds_as_usual_after_compiling_ahead() {
    let checkpoint = demo::checkpoint().unwrap();
    let model = Model::load(&checkpoint, &Device::cpu(), &LoadOptions::default()).unwrap();
    // A known message, and one that is yet to be typed.
    for known in [QUESTIONS[0], ""] {
        let tokenizer = checkpoint.tokenizer().unwrap();
        let (tokenizer, renderer) = PromptRenderer::new(checkpoint.chat_template().unwrap().unwrap(), tokenizer, None);
        let engine = start(&model, 256).unwrap();
        let mut chat_session = ChatSession::new(engine, &tokenizer, renderer, Conversation::default(), OnFull::Shift);
        chat_session.prepare(known).unwrap();
        assert!(chat_session.conversation().messages.is_empty() && chat_session.used() == 0);
        chat_session.add_message(QUESTIONS[0]);
        let options = greedy(&tokenizer, Some(40));
        let answer = chat_session.respond(&options, &mut ResponseWriter::silent()).unwrap();
        assert_eq!(answer.generation.text, "12 + 30 = 42");
    }
}
