use crate::plan::{Plan, Range};

/// Puts a barrier before each step that conflicts with a step since the last barrier: it reads bytes
/// that one wrote, or writes bytes that one read or wrote.
pub fn schedule(mut plan: Plan) -> Plan {
    let (mut read, mut written): (Vec<Range>, Vec<Range>) = (vec![], vec![]);
    let meets = |ranges: &[Range], range: &Range| ranges.iter().any(|r| r.overlaps(range));
    for step in &mut plan.steps {
        let conflict =
            step.reads().any(|r| meets(&written, &r)) || step.writes().any(|w| meets(&written, &w) || meets(&read, &w));
        step.barrier = conflict;
        if conflict {
            read.clear();
            written.clear();
        }
        read.extend(step.reads());
        written.extend(step.writes());
    }
    plan
}
