//! `for` and what it knows of itself.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use super::budget::{BoundedText, deeper, spend};
use super::calls::{CallArguments, Callable};
use super::compare;
use super::failure::{Attempt, RenderError};
use super::render::{Flow, Renderer, Variables};
use super::syntax::ForLoop;
use super::value::{Datum, Gathered, Items, TemplateText};

/// The variable `loop`.
#[derive(Debug)]
pub(super) struct LoopState {
    pub items: Rc<Items>,
    at: Cell<usize>,
    /// Loops of the same `for` around this one.
    depth: usize,
    /// What `loop.changed` was asked for last. Nothing once the loop is over: a loop that outlives itself could hold
    /// another one there, that one another, without end.
    asked: RefCell<Option<Vec<Datum>>>,
    over: Cell<bool>,
    /// What `loop(…)` runs, if the loop is recursive.
    source: Option<(Rc<ForLoop>, Weak<Variables>)>,
}

impl LoopState {
    /// `loop.NAME`, methods aside.
    pub fn attribute(&self, name: &str) -> Option<Datum> {
        let (at, length) = (self.at.get(), self.items.len());
        let item = |at: Option<usize>| at.and_then(|at| self.items.get(at)).cloned().unwrap_or_default();
        Some(match name {
            "index" => Datum::count(at + 1),
            "index0" => Datum::count(at),
            "revindex" => Datum::count(length - at),
            "revindex0" => Datum::count(length - at - 1),
            "first" => Datum::Bool(at == 0),
            "last" => Datum::Bool(at + 1 == length),
            "length" => Datum::count(length),
            "depth" => Datum::count(self.depth + 1),
            "depth0" => Datum::count(self.depth),
            "previtem" => item(at.checked_sub(1)),
            "nextitem" => item(Some(at + 1)),
            _ => return None,
        })
    }

    /// How it prints.
    pub fn place(&self) -> String {
        format!("{}/{}", self.at.get() + 1, self.items.len())
    }

    /// `loop.cycle(…)` and `loop.changed(…)`.
    pub fn call(&self, method: &str, arguments: CallArguments) -> Attempt<Datum> {
        let values = arguments.positional;
        if method == "cycle" {
            return match values.len() {
                0 => Err(RenderError::invalid("no items for cycling given")),
                count => Ok(values[self.at.get() % count].clone()),
            };
        }
        let mut asked = self.asked.borrow_mut();
        if let Some(before) = &*asked
            && before.len() == values.len()
        {
            let mut same = true;
            for (before, now) in before.iter().zip(&values) {
                same &= compare::equal(before, now)?;
            }
            if same {
                return Ok(Datum::Bool(false));
            }
        }
        if !self.over.get() {
            *asked = Some(values);
        }
        Ok(Datum::Bool(true))
    }
}

impl Renderer {
    pub(super) fn run_for(
        &mut self,
        source: &Rc<ForLoop>,
        variables: &Rc<Variables>,
        out: &mut BoundedText,
    ) -> Attempt<()> {
        let items = self.evaluate(&source.items, variables)?;
        self.run_loop(source, &items, 0, variables, out)
    }

    fn run_loop(
        &mut self,
        source: &Rc<ForLoop>,
        items: &Datum,
        depth: usize,
        around: &Rc<Variables>,
        out: &mut BoundedText,
    ) -> Attempt<()> {
        let mut items = items.iterate()?;
        if let Some(filter) = &source.filter {
            let mut kept = Gathered::new();
            for item in items.iter() {
                let inner = Variables::within(around);
                self.assign(&source.target, item.clone(), &inner)?;
                if self.evaluate(filter, &inner)?.is_true() {
                    kept.push(item.clone())?;
                }
            }
            items = kept.items();
        }
        let state = Rc::new(LoopState {
            items: items.clone(),
            at: Cell::new(0),
            depth,
            asked: RefCell::new(None),
            over: Cell::new(false),
            source: source.recursive.then(|| (source.clone(), Rc::downgrade(around))),
        });
        let done = self.run_rounds(source, &state, around, out);
        state.over.set(true);
        state.asked.take();
        if done? {
            Ok(())
        } else {
            self.run(&source.otherwise, &Variables::within(around), out).map(drop)
        }
    }

    /// Run the loop; returns whether it went through its body at least once, without `break` or `continue`.
    fn run_rounds(
        &mut self,
        source: &Rc<ForLoop>,
        state: &Rc<LoopState>,
        around: &Rc<Variables>,
        out: &mut BoundedText,
    ) -> Attempt<bool> {
        let mut through = false;
        let name = TemplateText::new("loop")?;
        for (at, item) in state.items.iter().enumerate() {
            spend(1)?;
            state.at.set(at);
            let variables = Variables::within(around);
            variables.set(&name, Datum::Loop(state.clone()))?;
            self.assign(&source.target, item.clone(), &variables)?;
            match self.run(&source.body, &variables, out)? {
                Flow::Through => through = true,
                Flow::Continue => {}
                Flow::Break => break,
            }
        }
        Ok(through)
    }

    /// `loop(items)`: the same loop over other items.
    pub(super) fn recurse(&mut self, state: &LoopState, items: &Datum) -> Attempt<Datum> {
        let _level = deeper()?;
        let source = state
            .source
            .as_ref()
            .and_then(|(source, around)| Some((source, around.upgrade()?)));
        let Some((source, around)) = source else {
            return Err(RenderError::invalid(
                "only a loop that is marked recursive can be called",
            ));
        };
        let mut out = BoundedText::new();
        self.run_loop(source, items, state.depth + 1, &around, &mut out)?;
        Datum::built(out)
    }
}

/// The methods of `loop`.
pub(super) fn method(state: &Rc<LoopState>, name: &TemplateText) -> Option<Datum> {
    matches!(&**name, "cycle" | "changed")
        .then(|| Datum::Callable(Rc::new(Callable::Method(Datum::Loop(state.clone()), name.clone()))))
}
