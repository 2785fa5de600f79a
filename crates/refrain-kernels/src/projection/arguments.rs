use super::problem::{Problem, SectionPlan};
use super::{OP, Planes};
use crate::elementwise;
use crate::{Push, Unsupported};

/// The push constants of one call: addresses first, then numbers, in a record where they are too many.
pub(super) struct Arguments {
    addresses: Vec<(String, Push)>,
    numbers: Vec<u32>,
    /// Names of numbers, as definitions.
    definitions: String,
}

impl Arguments {
    pub(super) fn new(problem: &Problem<'_>, sections: &[&SectionPlan<'_>]) -> Result<Arguments, Unsupported> {
        let mut arguments = Arguments {
            addresses: Vec::new(),
            numbers: Vec::new(),
            definitions: String::new(),
        };
        arguments.address("x_ref x".into(), &problem.x.address);
        if let Some((_, Some((gain, _)))) = &problem.norm {
            arguments.address("gain_ref gain".into(), gain);
        }
        for (s, section) in sections.iter().enumerate() {
            arguments.section_addresses(s, section);
        }
        arguments.address("y_ref y".into(), &problem.out.address);
        arguments.sizes(problem, sections);
        for (s, section) in sections.iter().enumerate() {
            arguments.number(&format!("ROWS_{s}"), section.rows);
            arguments.number(&format!("COLUMN_{s}"), section.column);
        }
        for (e, extra) in sections[0].extras.iter().enumerate() {
            arguments.stride(
                &format!("EXTRA_STRIDE_{e}"),
                if problem.tokens == 1 { 0 } else { extra.strides[0] },
            );
            arguments.stride(&format!("EXTRA_WITHIN_{e}"), extra.strides[1]);
        }
        let first = arguments.numbers.len();
        arguments.define("FIRST_CONSTANT", &format!("{first}u"));
        arguments
            .numbers
            .extend(elementwise::constant_bits(&sections[0].epilogue));
        match arguments.bytes() {
            ..=128 => Ok(arguments),
            bytes => Err(Unsupported::Size {
                op: OP,
                what: format!("arguments take {bytes} bytes; the most is 128"),
            }),
        }
    }

    fn section_addresses(&mut self, s: usize, section: &SectionPlan<'_>) {
        for (p, part) in section.parts.iter().enumerate() {
            let types: &[&str] = match part.planes {
                Planes::Dense { .. } => &["w"],
                Planes::Quantised(_) => &["quants", "scales", "biases"],
            };
            for (name, address) in types.iter().zip(part.planes.addresses()) {
                let of = if *name == "quants" { "words" } else { name };
                self.address(format!("{of}_ref {name}_{s}_{p}"), &address);
            }
        }
        for (e, extra) in section.extras.iter().enumerate() {
            self.address(format!("extra{e}_ref extra{e}_{s}"), &extra.address);
        }
    }

    fn sizes(&mut self, problem: &Problem<'_>, sections: &[&SectionPlan<'_>]) {
        // Between tokens only where there are several.
        let between = |stride: usize| if problem.tokens == 1 { 0 } else { stride };
        self.number("COLUMNS", problem.columns);
        self.stride("X_STRIDE", between(problem.x.strides[0]));
        self.stride("X_WITHIN", problem.x.strides[1]);
        self.stride("Y_STRIDE", between(problem.out.strides[0]));
        self.stride("Y_WITHIN", problem.out.strides[1]);
        if let Planes::Dense { stride, .. } = sections[0].parts[0].planes {
            self.number("W_STRIDE", stride);
        }
        if let Some((eps, _)) = problem.norm {
            self.number("EPS", eps.to_bits() as usize);
        }
        if let Some(batch) = &problem.batch {
            self.number("BATCHES", batch.count());
            self.number("INNER_BATCHES", batch.extents[1]);
            for (name, [outer, inner]) in ["X", "W", "Y"].iter().zip(batch.strides) {
                self.stride(&format!("{name}_OUTER"), outer);
                self.stride(&format!("{name}_INNER"), inner);
            }
        }
    }

    fn address(&mut self, declaration: String, push: &Push) {
        self.addresses.push((declaration, push.clone()));
    }

    fn number(&mut self, name: &str, value: usize) {
        self.define(name, &format!("NUMBER({}u)", self.numbers.len()));
        self.numbers.push(value as u32);
    }

    /// A number of which 0 and 1 are so common that they have texts of their own.
    fn stride(&mut self, name: &str, value: usize) {
        match value {
            0 | 1 => self.define(name, &format!("{value}u")),
            _ => self.number(name, value),
        }
    }

    fn define(&mut self, name: &str, value: &str) {
        self.definitions.push_str(&format!("#define {name} {value}\n"));
    }

    fn recorded(&self) -> bool {
        8 * self.addresses.len() + 4 * self.numbers.len() > 128
    }

    fn bytes(&self) -> usize {
        8 * self.addresses.len() + if self.recorded() { 8 } else { 4 * self.numbers.len() }
    }

    /// The members, in the order of the declaration.
    pub(super) fn push(&self) -> Vec<Push> {
        let mut push: Vec<Push> = self.addresses.iter().map(|(_, push)| push.clone()).collect();
        match self.recorded() {
            true => push.push(Push::Record(self.numbers.clone())),
            false => push.extend(self.numbers.iter().map(|&n| Push::U32(n))),
        }
        push
    }

    /// Their declaration, with a definition for each number.
    pub(super) fn declaration(&self) -> String {
        let mut members: String = self
            .addresses
            .iter()
            .map(|(declaration, _)| format!("{declaration}; "))
            .collect();
        let number = match self.recorded() {
            true => {
                members.push_str("words_ref record; ");
                "pc.record.at[i]"
            }
            false => {
                members.push_str(&format!("uint numbers[{}]; ", self.numbers.len()));
                "pc.numbers[i]"
            }
        };
        format!(
            "layout(push_constant, scalar) uniform Push {{ {members}}} pc;\n#define NUMBER(i) {number}\n{}",
            self.definitions
        )
    }
}
