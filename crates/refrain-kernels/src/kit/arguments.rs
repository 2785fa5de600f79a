use crate::{Push, Traits, Unsupported};

/// Collects the push constants of a call, with names for the shader: addresses first, then numbers. If they do not fit,
/// the numbers go to a record in memory, which costs a dependent load.
pub(crate) struct PushArguments {
    /// Size of the push constants in bytes.
    max_bytes: usize,
    addresses: Vec<(String, Push)>,
    numbers: Vec<u32>,
    /// `#define` lines that name the numbers.
    definitions: String,
}

impl PushArguments {
    /// Starts without arguments.
    pub(crate) fn new(traits: &Traits) -> PushArguments {
        PushArguments {
            max_bytes: traits.push_bytes as usize,
            addresses: Vec::new(),
            numbers: Vec::new(),
            definitions: String::new(),
        }
    }

    /// Adds an address, declared as `declaration`.
    pub(crate) fn address(&mut self, declaration: impl Into<String>, push: Push) {
        self.addresses.push((declaration.into(), push));
    }

    /// Adds a named number.
    pub(crate) fn number(&mut self, name: &str, value: usize) {
        self.define(name, &format!("NUMBER({}u)", self.numbers.len()));
        self.numbers.push(value as u32);
    }

    /// Adds a number whose common values 0 and 1 are compiled into the kernel.
    pub(crate) fn stride(&mut self, name: &str, value: usize) {
        match value {
            0 | 1 => self.define(name, &format!("{value}u")),
            _ => self.number(name, value),
        }
    }

    /// Adds numbers; `name` is the index of the first.
    pub(crate) fn numbers(&mut self, name: &str, values: Vec<u32>) {
        self.define(name, &format!("{}u", self.numbers.len()));
        self.numbers.extend(values);
    }

    fn define(&mut self, name: &str, value: &str) {
        self.definitions.push_str(&format!("#define {name} {value}\n"));
    }

    fn recorded(&self) -> bool {
        8 * self.addresses.len() + 4 * self.numbers.len() > self.max_bytes
    }

    /// Fails if the addresses alone exceed the push constants.
    pub(crate) fn check(&self, op: &'static str) -> Result<(), Unsupported> {
        let numbers = if self.recorded() { 8 } else { 4 * self.numbers.len() };
        let bytes = 8 * self.addresses.len() + numbers;
        if bytes > self.max_bytes {
            return Err(Unsupported::Size {
                op,
                what: format!("arguments take {bytes} bytes; the maximum is {}", self.max_bytes),
            });
        }
        Ok(())
    }

    /// Returns the members in the order of the declaration.
    pub(crate) fn push(&self) -> Vec<Push> {
        let mut push: Vec<Push> = self.addresses.iter().map(|(_, push)| push.clone()).collect();
        if self.recorded() {
            push.push(Push::Record(self.numbers.clone()))
        } else {
            push.extend(self.numbers.iter().map(|&n| Push::U32(n)))
        }
        push
    }

    /// Returns the declaration of the members as `pc`, with definitions of the numbers' names.
    pub(crate) fn declaration(&self) -> String {
        let mut members: String = self
            .addresses
            .iter()
            .map(|(declaration, _)| format!("{declaration}; "))
            .collect();
        let number = if self.recorded() {
            members.push_str("words_ref record; ");
            "pc.record.at[i]"
        } else {
            if !self.numbers.is_empty() {
                members.push_str(&format!("uint numbers[{}]; ", self.numbers.len()));
            }
            "pc.numbers[i]"
        };
        format!(
            "layout(push_constant, scalar) uniform Push {{ {members}}} pc;\n#define NUMBER(i) {number}\n{}",
            self.definitions
        )
    }
}
