use crate::{Push, Traits, Unsupported};

/// The push constants of one call while they are collected, with names for the shader: addresses first,
/// then numbers, which go into a record where they are too many: that costs a load that others wait for.
pub(crate) struct PushArguments {
    /// Bytes of push constants that there are.
    most: usize,
    addresses: Vec<(String, Push)>,
    numbers: Vec<u32>,
    /// Names of numbers, as definitions.
    definitions: String,
}

impl PushArguments {
    /// None yet.
    pub(crate) fn new(traits: &Traits) -> PushArguments {
        PushArguments {
            most: traits.push_bytes as usize,
            addresses: Vec::new(),
            numbers: Vec::new(),
            definitions: String::new(),
        }
    }

    /// A member, as it is declared, that holds an address.
    pub(crate) fn address(&mut self, declaration: impl Into<String>, push: Push) {
        self.addresses.push((declaration.into(), push));
    }

    /// A number by its name.
    pub(crate) fn number(&mut self, name: &str, value: usize) {
        self.define(name, &format!("NUMBER({}u)", self.numbers.len()));
        self.numbers.push(value as u32);
    }

    /// A number of which 0 and 1 are so common that they have texts of their own.
    pub(crate) fn stride(&mut self, name: &str, value: usize) {
        match value {
            0 | 1 => self.define(name, &format!("{value}u")),
            _ => self.number(name, value),
        }
    }

    /// Numbers of which `name` is the first.
    pub(crate) fn numbers(&mut self, name: &str, values: Vec<u32>) {
        self.define(name, &format!("{}u", self.numbers.len()));
        self.numbers.extend(values);
    }

    fn define(&mut self, name: &str, value: &str) {
        self.definitions.push_str(&format!("#define {name} {value}\n"));
    }

    fn recorded(&self) -> bool {
        8 * self.addresses.len() + 4 * self.numbers.len() > self.most
    }

    /// Fails when the addresses alone are too many.
    pub(crate) fn check(&self, op: &'static str) -> Result<(), Unsupported> {
        let numbers = if self.recorded() { 8 } else { 4 * self.numbers.len() };
        match 8 * self.addresses.len() + numbers {
            bytes if bytes > self.most => Err(Unsupported::Size {
                op,
                what: format!("arguments take {bytes} bytes; the most is {}", self.most),
            }),
            _ => Ok(()),
        }
    }

    /// The members, in the order of the declaration.
    pub(crate) fn push(&self) -> Vec<Push> {
        let mut push: Vec<Push> = self.addresses.iter().map(|(_, push)| push.clone()).collect();
        if self.recorded() {
            push.push(Push::Record(self.numbers.clone()))
        } else {
            push.extend(self.numbers.iter().map(|&n| Push::U32(n)))
        }
        push
    }

    /// Their declaration as `pc`, with a definition for each number's name.
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
