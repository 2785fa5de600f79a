use refrain_engine::{Device, LoadOptions, Model};
use refrain_text::ChatTemplate;

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
    let (tokenizer, prompter) = Prompter::new(template, tokenizer, None);
    let session = Session::new(&model, 256).unwrap();
    let mut dialogue = Dialogue::new(session, &tokenizer, prompter, Conversation::default(), OnFull::Shift);
    let options = greedy(&tokenizer, Some(40));
    let mut answer = |message: &&str| {
        dialogue.say(message);
        let answer = dialogue.answer(&options, &mut AnswerWriter::silent()).unwrap();
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

fn greedy(tokenizer: &Tokenizer, most: Option<usize>) -> GenerateOptions {
    GenerateOptions {
        max_tokens: most,
        stop_ids: tokenizer.eos_ids().to_vec(),
        ..GenerateOptions::default()
    }
}

/// Does something with a conversation of the demo model in a context of so many tokens.
fn with_dialogue(context: usize, on_full: OnFull, work: impl FnOnce(&mut Dialogue<'_>, &Tokenizer)) {
    let checkpoint = demo::checkpoint().unwrap();
    let model = Model::load(&checkpoint, &Device::cpu(), &LoadOptions::default()).unwrap();
    let template = checkpoint.chat_template().unwrap().unwrap();
    let (tokenizer, prompter) = Prompter::new(template, checkpoint.tokenizer().unwrap(), None);
    let session = Session::new(&model, context).unwrap();
    let conversation = Conversation::default();
    work(
        &mut Dialogue::new(session, &tokenizer, prompter, conversation, on_full),
        &tokenizer,
    );
}

#[test]
fn a_message_that_does_not_fit_is_refused_and_the_conversation_stays_as_it_was() {
    for on_full in [OnFull::Shift, OnFull::Stop] {
        with_dialogue(8, on_full, |dialogue, tokenizer| {
            dialogue.set_system("Be kind.");
            dialogue.say("What is 12 + 30? And what is 1 + 1?");
            let answer = dialogue.answer(&greedy(tokenizer, None), &mut AnswerWriter::silent());
            let error = answer.map(|_| ()).unwrap_err().to_string();
            assert!(
                error.contains("the context holds 8") && error.contains("/ctx"),
                "{error}"
            );
            assert_eq!(dialogue.conversation().messages.len(), 1);
            assert_eq!(dialogue.system(), Some("Be kind."));
            assert!(dialogue.take_back_answer().is_err());
        });
    }
}

#[test]
fn a_full_context_leaves_out_the_oldest_turns_and_the_conversation_goes_on() {
    with_dialogue(80, OnFull::Shift, |dialogue, tokenizer| {
        dialogue.set_system("Be kind.");
        for turn in 0..6 {
            dialogue.say(&format!("What is {turn} + 30?"));
            let mut writer = AnswerWriter::silent();
            let answer = dialogue.answer(&greedy(tokenizer, None), &mut writer).unwrap();
            assert_eq!(writer.answer, format!("{turn} + 30 = {}", turn + 30));
            assert_eq!(answer.generation.finish, Finish::Stop);
        }
        // All of it can be saved; the model sees the system message and the last turns.
        assert_eq!(dialogue.conversation().messages.len(), 13);
        assert!(dialogue.left_out() >= 2 && dialogue.left_out() % 2 == 0);
        let seen = dialogue.seen().messages;
        assert_eq!((&seen[0]["role"], &seen[1]["role"]), (&"system".into(), &"user".into()));
        assert_eq!(seen.len() + dialogue.left_out(), 13);
    });
}

#[test]
fn an_answer_goes_on_where_the_context_was_full() {
    with_dialogue(80, OnFull::Shift, |dialogue, tokenizer| {
        for question in QUESTIONS {
            dialogue.say(question);
            dialogue
                .answer(&greedy(tokenizer, None), &mut AnswerWriter::silent())
                .unwrap();
        }
        // The turns so far leave room for a part of it only.
        dialogue.say("Tell me a story.");
        let mut options = greedy(tokenizer, Some(30));
        options.stop_ids.clear();
        let mut writer = AnswerWriter::silent();
        let held = dialogue.tokens().unwrap().len();
        assert!(held < 80 && held + 30 > 80, "{held}");
        let answer = dialogue.answer(&options, &mut writer).unwrap();
        assert_eq!(answer.generation.finish, Finish::Length);
        assert_eq!(answer.generation.ids.len(), 30);
        assert!(dialogue.left_out() > 0);
        assert_eq!(writer.answer, tokenizer.decode(&answer.generation.ids, true).unwrap());
    });
}

#[test]
fn a_longer_context_brings_back_what_was_left_out() {
    with_dialogue(48, OnFull::Shift, |dialogue, tokenizer| {
        let model = dialogue.session().model().clone();
        for question in [QUESTIONS, QUESTIONS].concat() {
            dialogue.say(question);
            dialogue
                .answer(&greedy(tokenizer, None), &mut AnswerWriter::silent())
                .unwrap();
        }
        assert!(dialogue.left_out() > 0);
        assert!(
            dialogue
                .resize(1 << 30, |context| Session::new(&model, context))
                .is_err()
        );
        assert_eq!(dialogue.session().context(), 48);
        dialogue.resize(512, |context| Session::new(&model, context)).unwrap();
        assert_eq!((dialogue.left_out(), dialogue.session().context()), (0, 512));
    });
}

#[test]
fn the_last_token_is_always_computed() {
    assert_eq!(common(&[1, 2, 3], &[1, 2, 4, 5]), 2);
    assert_eq!(common(&[1, 2, 3], &[1, 2]), 1);
    assert_eq!(common(&[], &[1]), 0);
}

#[test]
fn what_the_first_answer_needs_is_made_before_the_message() {
    let checkpoint = demo::checkpoint().unwrap();
    let model = Model::load(&checkpoint, &Device::cpu(), &LoadOptions::default()).unwrap();
    // A message that is known, and one that is yet to be typed.
    for known in [QUESTIONS[0], ""] {
        let tokenizer = checkpoint.tokenizer().unwrap();
        let (tokenizer, prompter) = Prompter::new(checkpoint.chat_template().unwrap().unwrap(), tokenizer, None);
        let session = Session::new(&model, 256).unwrap();
        let mut dialogue = Dialogue::new(session, &tokenizer, prompter, Conversation::default(), OnFull::Shift);
        dialogue.prepare(known).unwrap();
        let made = dialogue.session().model_calls();
        assert!(dialogue.conversation().messages.is_empty() && dialogue.session().position() == 0);
        dialogue.say(QUESTIONS[0]);
        let options = greedy(&tokenizer, Some(40));
        let answer = dialogue.answer(&options, &mut AnswerWriter::silent()).unwrap();
        assert_eq!(answer.generation.text, "12 + 30 = 42");
        assert_eq!((made, dialogue.session().model_calls()), (2, 2), "{known:?}");
    }
}
