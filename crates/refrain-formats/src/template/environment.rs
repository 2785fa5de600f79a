//! The template engine, set up as transformers sets up Jinja.

use std::time::SystemTime;

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value};

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
/// What asks for the time gets `time`, or else the present.
pub(super) fn new<'a>(time: Option<SystemTime>) -> Result<Environment<'a>, Error> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
    environment.set_syntax(syntax);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(methods::call);
    environment.set_formatter(|out, _, value| out.write_str(&json::display(value)).map_err(Error::from));
    filters::register(&mut environment);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", move |format: &str| strftime(time, format));
    Ok(environment)
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.to_string()).with_source(Raised))
}

/// A time (now unless given) as local time in a format of C's `strftime`.
fn strftime(time: Option<SystemTime>, format: &str) -> Result<String, Error> {
    let failed = |error: jiff::Error| Error::new(ErrorKind::InvalidOperation, error.to_string());
    let time = jiff::Zoned::try_from(time.unwrap_or_else(SystemTime::now)).map_err(failed)?;
    jiff::fmt::strtime::format(format, &time).map_err(failed)
}
