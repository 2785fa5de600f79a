//! The distinct epilogues of the sections of one call.

use super::problem::SectionPlan;
use crate::elementwise;

/// An epilogue, and the sections of a call that share it.
pub(crate) struct Epilogue<'s, 'a> {
    /// Indices of the sections.
    pub sections: Vec<usize>,
    /// The first of the sections.
    pub first: &'s SectionPlan<'a>,
    /// Number of extra inputs of the preceding epilogues.
    pub extras: usize,
    /// Number of constants of the preceding epilogues.
    pub constants: usize,
}

/// Groups sections by epilogue.
pub(crate) fn epilogues<'s, 'a>(sections: &[&'s SectionPlan<'a>]) -> Vec<Epilogue<'s, 'a>> {
    let mut epilogues: Vec<Epilogue<'s, 'a>> = Vec::new();
    for (number, &section) in sections.iter().enumerate() {
        match epilogues
            .iter_mut()
            .find(|epilogue| epilogue.first.same_epilogue(section))
        {
            Some(epilogue) => epilogue.sections.push(number),
            None => epilogues.push(Epilogue {
                sections: vec![number],
                first: section,
                extras: epilogues.iter().map(|epilogue| epilogue.first.extras.len()).sum(),
                constants: epilogues
                    .iter()
                    .map(|epilogue| elementwise::constant_bits(&epilogue.first.epilogue).len())
                    .sum(),
            }),
        }
    }
    epilogues
}
