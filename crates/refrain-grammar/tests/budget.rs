//! A limit of the tokens of reasoning: the closing mark is forced, and the answer goes on.

mod support;

use refrain_engine::TokenConstraint;
use refrain_grammar::{AnswerForm, Grammar, GrammarCompiler, ReasoningSource, ReasoningTokens, SpecialTokens};
use refrain_text::Tokenizer;
use refrain_text::dialects::{Dialect, Marks};
use support::{BYTES, special_tokens, tokens};

const MARKED: Dialect = Dialect {
    reasoning: Some(Marks {
        open: "<think>",
        close: "</think>",
    }),
    ..Dialect::PLAIN
};

/// A constraint with a budget of `limit` tokens.
struct Limited {
    constraint: Box<dyn TokenConstraint>,
    special: Vec<String>,
}

impl Limited {
    fn new(limit: usize, dialect: &Dialect, prompt_end: &str, form: Option<&Grammar>, special: Vec<String>) -> Limited {
        let tokenizer = support::tokenizer(&special);
        let compiler = GrammarCompiler::new(&tokenizer).unwrap();
        let source = ReasoningSource {
            dialect,
            may_call: false,
            prompt_end,
        };
        let budget = compiler
            .reasoning_budget(limit, source, &tokenizer)
            .expect("it reasons");
        let inner = form.map(|form| {
            let constraint = compiler
                .constraint(form, reasoning(dialect, prompt_end, &tokenizer))
                .unwrap();
            Box::new(constraint) as Box<dyn TokenConstraint>
        });
        Limited {
            constraint: budget.around(inner),
            special,
        }
    }

    fn allowed(&mut self) -> Vec<u32> {
        let count = BYTES + self.special.len() as u32 + 1;
        let mut bits = vec![0u32; count.div_ceil(32) as usize];
        self.constraint.fill_mask(&mut bits).unwrap();
        let is_allowed = |id: &u32| bits[*id as usize / 32] >> (id % 32) & 1 == 1;
        (0..count).filter(is_allowed).collect()
    }

    /// Takes a text; each of its tokens must be allowed.
    fn take(&mut self, text: &str) {
        for token in tokens(text, &self.special) {
            assert!(self.allowed().contains(&token), "{text:?}: {token} is not allowed");
            self.constraint.accept(token).unwrap();
        }
    }

    /// Takes the tokens that are forced, as text.
    fn forced(&mut self) -> String {
        let mut text = vec![];
        while let [only] = self.allowed()[..] {
            match only.checked_sub(BYTES) {
                None => text.push(only as u8),
                Some(number) => text.extend(self.special[number as usize].as_bytes()),
            }
            self.constraint.accept(only).unwrap();
        }
        String::from_utf8(text).unwrap()
    }
}

fn reasoning(dialect: &Dialect, prompt_end: &str, tokenizer: &Tokenizer) -> Option<ReasoningTokens> {
    let marks = dialect.reasoning?;
    let is_open = prompt_end.ends_with(marks.open);
    Some(ReasoningTokens {
        open: tokenizer.id(marks.open).filter(|_| !is_open),
        close: tokenizer.id(marks.close)?,
        is_open,
    })
}

fn marks() -> Vec<String> {
    ["<think>", "</think>"].map(str::to_owned).into()
}

#[test]
fn the_closing_mark_is_forced_when_the_tokens_are_used_up() {
    for special in [vec![], marks()] {
        for prompt in ["A:<think>", "A:"] {
            let mut limited = Limited::new(5, &MARKED, prompt, None, special.clone());
            if prompt == "A:" {
                limited.take("<think>");
            }
            limited.take("12345");
            assert!(limited.constraint.restricts());
            assert_eq!(limited.forced(), "\n</think>");
            limited.take("Four.");
            assert!(!limited.constraint.restricts());
        }
    }
}

#[test]
fn reasoning_that_ends_by_itself_is_not_touched() {
    let mut limited = Limited::new(5, &MARKED, "A:<think>", None, marks());
    limited.take("1234</think>");
    assert!(!limited.constraint.restricts());
    limited.take("An answer of many more tokens.");
    let mut without = Limited::new(0, &MARKED, "A:", None, marks());
    without.take("No reasoning at all.");
}

#[test]
fn without_any_token_reasoning_is_closed_at_once() {
    let mut limited = Limited::new(0, &MARKED, "A:<think>", None, marks());
    assert_eq!(limited.forced(), "\n</think>");
    let open = BYTES;
    assert!(!limited.allowed().contains(&open), "reasoning does not begin again");
    limited.take("4");
}

#[test]
fn a_character_is_completed_before_the_mark() {
    let mut limited = Limited::new(2, &MARKED, "A:<think>", None, marks());
    limited.take("a€");
    assert_eq!(limited.forced(), "\n</think>");
}

#[test]
fn a_form_holds_behind_reasoning_that_was_cut() {
    let form = Grammar::Choice(vec!["yes".to_owned(), "no".to_owned()]);
    let mut limited = Limited::new(3, &MARKED, "A:<think>", Some(&form), marks());
    limited.take("abc");
    assert_eq!(limited.forced(), "\n</think>");
    assert_eq!(limited.allowed(), [b'n', b'y'].map(u32::from));
}

#[test]
fn messages_of_reasoning_end_and_the_answer_begins() {
    let mut all = Dialect::all().into_iter();
    let harmony = all.find(|dialect| support::name(dialect) == "harmony").unwrap();
    let special = special_tokens(&harmony);
    let answer = "<|end|><|start|>assistant<|channel|>final<|message|>";
    let mut limited = Limited::new(3, &harmony, "<|start|>assistant", None, special.clone());
    limited.take("<|channel|>analysis<|message|>abc");
    assert_eq!(limited.forced(), answer);
    limited.take("Hello.");
    let form = AnswerForm {
        dialect: &harmony,
        functions: &[],
        several: false,
        text: Some(&Grammar::Lark("start: \"{\" inner \"}\"\ninner: /[0-9]+/".to_owned())),
    };
    let grammar = form.grammar(&SpecialTokens::of(&support::tokenizer(&special))).unwrap();
    let mut limited = Limited::new(3, &harmony, "<|start|>assistant", Some(&grammar), special);
    limited.take("<|channel|>analysis<|message|>abc");
    assert_eq!(limited.forced(), format!("{answer}{{"));
    limited.take("12");
    limited.take("}");
}
