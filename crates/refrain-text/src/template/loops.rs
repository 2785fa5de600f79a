//! `for` loops and the `loop` variable.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use super::budget::{BoundedText, enter_level, spend};
use super::calls::{CallArguments, Callable};
use super::compare;
use super::error::{RenderError, Try};
use super::render::{Flow, Renderer, Variables};
use super::syntax::ForLoop;
use super::value::{Items, ItemsBuilder, TemplateText, Value};

/// The variable `loop`.
#[derive(Debug)]
pub(super) struct LoopState {
    pub items: Rc<Items>,
    at: Cell<usize>,
    /// Number of enclosing iterations of the same recursive loop.
    depth: usize,
    /// The last arguments of `loop.changed`. Cleared when the loop ends: otherwise loops that outlive their block
    /// could form unbounded chains.
    last_changed: RefCell<Option<Vec<Value>>>,
    over: Cell<bool>,
    /// The loop that `loop(…)` runs, if it is recursive.
    source: Option<(Rc<ForLoop>, Weak<Variables>)>,
}

impl LoopState {
    /// Returns `loop.NAME`, methods excluded.
    pub fn attribute(&self, name: &str) -> Option<Value> {
        let (at, length) = (self.at.get(), self.items.len());
        let item = |at: Option<usize>| at.and_then(|at| self.items.get(at)).cloned().unwrap_or_default();
        Some(match name {
            "index" => Value::count(at + 1),
            "index0" => Value::count(at),
            "revindex" => Value::count(length - at),
            "revindex0" => Value::count(length - at - 1),
            "first" => Value::Bool(at == 0),
            "last" => Value::Bool(at + 1 == length),
            "length" => Value::count(length),
            "depth" => Value::count(self.depth + 1),
            "depth0" => Value::count(self.depth),
            "previtem" => item(at.checked_sub(1)),
            "nextitem" => item(Some(at + 1)),
            _ => return None,
        })
    }

    /// Returns how it prints.
    pub fn display(&self) -> String {
        format!("{}/{}", self.at.get() + 1, self.items.len())
    }

    /// `loop.cycle(…)` and `loop.changed(…)`.
    pub fn call(&self, method: &str, arguments: CallArguments) -> Try<Value> {
        let values = arguments.positional;
        if method == "cycle" {
            return match values.len() {
                0 => Err(RenderError::invalid("cycle needs at least one item")),
                count => Ok(values[self.at.get() % count].clone()),
            };
        }
        let mut last_changed = self.last_changed.borrow_mut();
        if let Some(before) = &*last_changed
            && before.len() == values.len()
        {
            let mut same = true;
            for (before, now) in before.iter().zip(&values) {
                same &= compare::equal(before, now)?;
            }
            if same {
                return Ok(Value::Bool(false));
            }
        }
        if !self.over.get() {
            *last_changed = Some(values);
        }
        Ok(Value::Bool(true))
    }
}

impl Renderer {
    pub(super) fn run_for(
        &mut self,
        source: &Rc<ForLoop>,
        variables: &Rc<Variables>,
        out: &mut BoundedText,
    ) -> Try<()> {
        let items = self.evaluate(&source.items, variables)?;
        self.run_loop(source, &items, 0, variables, out)
    }

    fn run_loop(
        &mut self,
        source: &Rc<ForLoop>,
        items: &Value,
        depth: usize,
        around: &Rc<Variables>,
        out: &mut BoundedText,
    ) -> Try<()> {
        let mut items = items.iterate()?;
        if let Some(filter) = &source.filter {
            let mut kept = ItemsBuilder::new();
            for item in items.iter() {
                let inner = Variables::child_of(around);
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
            last_changed: RefCell::new(None),
            over: Cell::new(false),
            source: source.recursive.then(|| (source.clone(), Rc::downgrade(around))),
        });
        let done = self.run_iterations(source, &state, around, out);
        state.over.set(true);
        state.last_changed.take();
        if done? {
            Ok(())
        } else {
            self.run(&source.otherwise, &Variables::child_of(around), out).map(drop)
        }
    }

    /// Runs the loop. Returns whether the body was completed at least once, without `break` or `continue`.
    fn run_iterations(
        &mut self,
        source: &Rc<ForLoop>,
        state: &Rc<LoopState>,
        around: &Rc<Variables>,
        out: &mut BoundedText,
    ) -> Try<bool> {
        let mut completed = false;
        let name = TemplateText::new("loop")?;
        for (at, item) in state.items.iter().enumerate() {
            spend(1)?;
            state.at.set(at);
            let variables = Variables::child_of(around);
            variables.set(&name, Value::Loop(state.clone()))?;
            self.assign(&source.target, item.clone(), &variables)?;
            match self.run(&source.body, &variables, out)? {
                Flow::Normal => completed = true,
                Flow::Continue => {}
                Flow::Break => break,
            }
        }
        Ok(completed)
    }

    /// `loop(items)`: runs the same loop over other items.
    pub(super) fn recurse(&mut self, state: &LoopState, items: &Value) -> Try<Value> {
        let _level = enter_level()?;
        let source = state
            .source
            .as_ref()
            .and_then(|(source, around)| Some((source, around.upgrade()?)));
        let Some((source, around)) = source else {
            return Err(RenderError::invalid("only recursive loops can be called"));
        };
        let mut out = BoundedText::new();
        self.run_loop(source, items, state.depth + 1, &around, &mut out)?;
        Value::built(out)
    }
}

/// Returns a method of `loop`.
pub(super) fn method(state: &Rc<LoopState>, name: &TemplateText) -> Option<Value> {
    matches!(&**name, "cycle" | "changed")
        .then(|| Value::Callable(Rc::new(Callable::Method(Value::Loop(state.clone()), name.clone()))))
}
