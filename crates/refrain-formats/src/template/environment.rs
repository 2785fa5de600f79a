//! The template engine, set up as transformers sets up Jinja.

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value};

use super::{filters, json, methods};

/// Marks errors that a template raised itself.
#[derive(Debug, thiserror::Error)]
#[error("raised by the template")]
struct Raised;

/// Whether the template itself raised this error by `raise_exception`.
pub(super) fn is_raised(error: &Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.is::<Raised>())
}

/// An environment with the settings, filters and functions that transformers gives to templates.
pub(super) fn new<'a>() -> Result<Environment<'a>, Error> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
    environment.set_syntax(syntax);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(methods::call);
    environment.set_formatter(|out, _, value| out.write_str(&json::display(value)).map_err(Error::from));
    filters::register(&mut environment);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    Ok(environment)
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.to_string()).with_source(Raised))
}

/// The local time in a format of C's `strftime`.
fn strftime_now(_: &State, format: &str) -> Result<String, Error> {
    let now = jiff::Zoned::now();
    jiff::fmt::strtime::format(format, &now).map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
}
