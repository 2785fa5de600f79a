//! The ways in which the sections of one call end.

use super::problem::SectionPlan;
use crate::elementwise;

/// Sections of one call that end alike.
pub(crate) struct End<'s, 'a> {
    /// Their numbers.
    pub sections: Vec<usize>,
    /// The first of them.
    pub like: &'s SectionPlan<'a>,
    /// Further inputs of the ends before.
    pub extras: usize,
    /// Constants of the ends before.
    pub constants: usize,
}

/// The ways in which sections end.
pub(crate) fn ends<'s, 'a>(sections: &[&'s SectionPlan<'a>]) -> Vec<End<'s, 'a>> {
    let mut ends: Vec<End<'s, 'a>> = Vec::new();
    for (number, &section) in sections.iter().enumerate() {
        match ends.iter_mut().find(|end| end.like.ends_like(section)) {
            Some(end) => end.sections.push(number),
            None => ends.push(End {
                sections: vec![number],
                like: section,
                extras: ends.iter().map(|end| end.like.extras.len()).sum(),
                constants: ends
                    .iter()
                    .map(|end| elementwise::constant_bits(&end.like.epilogue).len())
                    .sum(),
            }),
        }
    }
    ends
}
