//! Every variant's shader compiles to valid SPIR-V, and mismatched operands are rejected.

use refrain_kernels::sample::{self, Settings};
use refrain_kernels::{DType, OperandSpec, Traits, Unsupported};

use crate::common::{Random, check_texts, variants};
use crate::support::Batch;

fn operands(vocabulary: usize) -> [OperandSpec; 10] {
    let settings = vec![Settings::default(); 2];
    Batch::new(&mut Random::new(1), vec![0.0; vocabulary], vocabulary, settings, 4).operands()
}

#[test]
fn shaders_compile() {
    let calls = |traits: Traits| {
        let of = |vocabulary| {
            sample::calls(&traits, operands(vocabulary).each_ref())
                .expect("supported")
                .0
        };
        [100, 151_936].map(of).concat()
    };
    check_texts(variants().into_iter().flat_map(calls).collect());
}

#[test]
fn rejects_mismatched_operands() {
    let rejected = |change: &dyn Fn(&mut [OperandSpec; 10])| {
        let mut operands = operands(100);
        change(&mut operands);
        sample::calls(&Traits::minimal(), operands.each_ref()).unwrap_err()
    };
    let words = |shape: &[usize]| OperandSpec::contiguous(DType::U32, shape);
    let settings = rejected(&|o| o[1] = words(&[2, 31]));
    assert!(settings.to_string().contains("settings"), "{settings}");
    let outbox = rejected(&|o| o[6] = words(&[2, 1]));
    assert!(outbox.to_string().contains("outbox"), "{outbox}");
    let counts = rejected(&|o| o[5] = words(&[2, 99]));
    assert!(counts.to_string().contains("counts"), "{counts}");
    let logits = rejected(&|o| o[0].dtype = DType::F16);
    assert_eq!(
        logits,
        Unsupported::DType {
            op: "sample",
            dtype: DType::F16
        }
    );
    let gaps = rejected(&|o| o[0].layout.strides[1] = 2);
    assert_eq!(
        gaps,
        Unsupported::NeedsContiguous {
            op: "sample",
            operand: 0
        }
    );
    // A software driver, which ends long loops.
    let software = Traits {
        vendor: 0x10005,
        ..Traits::minimal()
    };
    let huge = sample::calls(&software, operands(1 << 20).each_ref()).map(|_| ());
    assert!(huge.unwrap_err().to_string().contains("loop iterations"));
    assert!(sample::calls(&Traits::minimal(), operands(1 << 20).each_ref()).is_ok());
}
