//! Limits of grammars: what is admitted compiles within [`COMPILE_TIMEOUT`] and in less than 256 MB.
//!
//! The figures were measured with Qwen3's vocabulary of 151,643 tokens on one core of a Xeon, in a release build.

use std::time::Duration;

use llguidance::api::ParserLimits;

/// Factor of time limits: unoptimised builds are slower.
const SLOWNESS: u32 = if cfg!(debug_assertions) { 10 } else { 1 };
/// Limit of the time that a compilation may take, its first mask included.
pub(crate) const COMPILE_TIMEOUT: Duration = Duration::from_secs(2 * SLOWNESS as u64);
/// Limit of the time that one mask may take. The library's own limits of work stop almost all of them much earlier.
pub(crate) const MASK_TIMEOUT: Duration = Duration::from_secs(2 * SLOWNESS as u64);
/// Limit of the time that a grammar waits for its compilation.
pub(crate) const QUEUE_TIMEOUT: Duration = Duration::from_secs(10 * SLOWNESS as u64);
/// Stack of a thread that compiles, in bytes. It is reserved, and used only by deep grammars.
pub(crate) const COMPILE_STACK: usize = if cfg!(target_pointer_width = "64") {
    256 << 20
} else {
    32 << 20
};

/// Limit of a grammar's length, in bytes. Schemas count without their annotations.
pub(crate) const MAX_BYTES: usize = 256 << 10;
/// Limits of the nesting of groups and of the number of rules in Lark notation.
pub(crate) const MAX_NESTING: usize = 150;
pub(crate) const MAX_RULES: usize = 500;
/// Limit of a regular expression's length, in bytes.
pub(crate) const MAX_REGEX_BYTES: usize = 16 << 10;
/// Limit of the optional parts of a regular expression. Their cost is quadratic: 2,500 of `\p{L}?` took 2.2 s.
pub(crate) const MAX_REGEX_OPTIONS: u64 = 500;
/// Limit of the groups that enclose each other in a regular expression.
pub(crate) const MAX_REGEX_NESTING: u32 = 200;

/// Limit of a schema's properties, and of those of all functions together. The library needs four items a property
/// where all are optional: see [`parser`].
pub(crate) const MAX_PROPERTIES: usize = 2_000;
/// Limit of one object's optional properties.
pub(crate) const MAX_OPTIONAL_PROPERTIES: usize = 1_000;
/// Limit of the schemas in a schema, its own included.
pub(crate) const MAX_SCHEMAS: usize = 10_000;
/// Limit of the nesting of schemas in each other.
pub(crate) const MAX_SCHEMA_NESTING: usize = 64;
/// Limit of references that lead to references.
pub(crate) const MAX_REFERENCES: usize = 200;
/// Limit of the values of all `enum` keywords of a schema.
pub(crate) const MAX_ENUM_VALUES: usize = 20_000;
/// Limit of items, and of characters, that a schema may count. Larger bounds are ignored.
pub(crate) const MAX_COUNT: u64 = 1_000_000;
/// Limit of `multipleOf` without its decimal point, and of the sum over a schema. An automaton has as many states:
/// a hundred of 9,000 took 5.9 s and 296 MB.
pub(crate) const MAX_MULTIPLE: u64 = 1_000;
pub(crate) const MAX_MULTIPLES: u64 = 10_000;
/// Limit of steps while a schema is prepared.
pub(crate) const MAX_STEPS: usize = 500_000;
/// Number of literals above which a choice becomes one regular expression.
pub(crate) const MAX_LITERALS: usize = 500;

/// The library's limits of work. They bound each mask to some 20 ms, and the lexer's states to about 200 MB.
pub(crate) fn parser(limits: &mut ParserLimits) {
    limits.verbose_errors = false;
    // Four for each optional property.
    limits.max_items_in_row = 5_000;
    limits.max_lexer_states = 100_000;
}
