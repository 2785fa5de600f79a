//! Every variant's text of the products, norms, rotations and attention compiles to valid SPIR-V.

use std::collections::HashMap;
use std::io::Write;
use std::process::{Command, Stdio};

use glslang::{
    Compiler, CompilerOptions, Shader, ShaderInput, ShaderMessage, ShaderSource, ShaderStage,
    SourceLanguage, SpirvVersion, Target, VulkanVersion,
};
use rayon::prelude::*;
use refrain_kernels::quantised::{self, QuantFormat};
use refrain_kernels::{
    Call, DType, Layout, Operand, Push, Traits, attention, matmul, rms_norm, rope,
};

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

fn traits() -> [Traits; 2] {
    let full = Traits {
        vendor: 0x10005,
        subgroup_size: 8,
        subgroup_arithmetic: true,
        storage16: true,
        storage8: true,
        max_invocations: 1024,
        shared_bytes: 32768,
    };
    [full, Traits::minimal()]
}

fn compile(call: &Call) -> Vec<u8> {
    let options = CompilerOptions {
        source_language: SourceLanguage::GLSL,
        target: Target::Vulkan {
            version: VulkanVersion::Vulkan1_3,
            spirv_version: SpirvVersion::SPIRV1_6,
        },
        version_profile: None,
        messages: ShaderMessage::DEFAULT,
    };
    let source = ShaderSource::from(&*call.kernel.source);
    let no_defines: Option<&[(&str, Option<&str>)]> = None;
    let input = ShaderInput::new(&source, ShaderStage::Compute, &options, no_defines, None)
        .expect("a compute shader");
    let compiler = Compiler::acquire().expect("glslang starts");
    let words = Shader::new(compiler, input)
        .parse()
        .and_then(|shader| shader.compile())
        .unwrap_or_else(|error| panic!("{}: {error:?}\n{}", call.kernel.name, call.kernel.source));
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

fn validate(name: &str, spirv: &[u8]) {
    let mut child = Command::new("spirv-val")
        .args(["--target-env", "vulkan1.3", "--scalar-block-layout", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("spirv-val is installed (package spirv-tools)");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(spirv)
        .expect("spirv-val reads");
    let output = child.wait_with_output().expect("spirv-val ends");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {log}");
}

fn check(calls: Vec<Call>) {
    let mut texts: HashMap<String, Call> = HashMap::new();
    for call in calls {
        let push: u32 = call.push.iter().map(Push::size).sum();
        assert!(
            push <= 128,
            "{}: {push} bytes of push constants",
            call.kernel.name
        );
        assert!(call.groups.iter().all(|&g| (1..=65_535).contains(&g)));
        if let Some(earlier) = texts.get(&call.kernel.name) {
            assert_eq!(
                earlier.kernel.source, call.kernel.source,
                "one name, one text"
            );
        }
        texts.insert(call.kernel.name.clone(), call);
    }
    assert!(!texts.is_empty());
    texts
        .par_iter()
        .for_each(|(name, call)| validate(name, &compile(call)));
}

fn transposed(dtype: DType, rows: usize, columns: usize) -> Operand {
    Operand {
        dtype,
        layout: Layout::contiguous(&[columns, rows]).permute(&[1, 0]),
    }
}

#[test]
fn matrix_products() {
    let mut calls = Vec::new();
    for traits in traits() {
        for a in FLOATS {
            for b in FLOATS {
                for c in FLOATS {
                    for (m, k) in [(1, 16), (1, 15), (100, 16)] {
                        let (x, w) = (Operand::contiguous(a, &[m, k]), transposed(b, k, 20));
                        let out = Operand::contiguous(c, &[m, 20]);
                        calls.extend(matmul::call(&traits, &x, &w, &out).expect("supported"));
                    }
                }
            }
        }
    }
    check(calls);
}

#[test]
fn quantised_products_and_rows() {
    let mut calls = Vec::new();
    for traits in traits() {
        for format in QuantFormat::ALL {
            let (n, k) = (40, 256);
            let quants = Operand::contiguous(DType::U32, &[n, k / format.per_word()]);
            for parameters in FLOATS {
                let scales = Operand::contiguous(parameters, &[n, k / format.group as usize]);
                let biases = format.has_biases().then_some(&scales);
                for dtype in FLOATS {
                    for (t, stride) in [(1, k), (3, k + 1), (100, k)] {
                        let mut x = Operand::contiguous(dtype, &[t, k]);
                        x.layout.strides[0] = stride;
                        let out = Operand::contiguous(dtype, &[t, n]);
                        let product =
                            quantised::matmul(&traits, &format, &x, &quants, &scales, biases, &out);
                        calls.extend(product.expect("supported"));
                    }
                    let indices = Operand::contiguous(DType::U32, &[5]);
                    let out = Operand::contiguous(dtype, &[5, k]);
                    let rows = quantised::take_rows(
                        &traits, &format, &quants, &scales, biases, &indices, &out,
                    );
                    calls.push(rows.expect("supported"));
                }
            }
        }
    }
    check(calls);
}

#[test]
fn norms_and_rotations() {
    let mut calls = Vec::new();
    for traits in traits() {
        for x in FLOATS {
            for y in FLOATS {
                let (input, output) = (
                    Operand::contiguous(x, &[3, 4, 64]),
                    Operand::contiguous(y, &[3, 4, 64]),
                );
                let weight = Operand::contiguous(y, &[64]);
                for weight in [None, Some(&weight)] {
                    let norm = rms_norm::call(&traits, &input, weight, &output, 1e-6);
                    calls.push(norm.expect("supported"));
                }
                for interleaved in [false, true] {
                    let params = rope::Params {
                        dims: 32,
                        interleaved,
                        scale: 1.0,
                    };
                    let positions = Operand::contiguous(DType::I32, &[3]);
                    let frequencies = Operand::contiguous(DType::F32, &[16]);
                    let rotation =
                        rope::call(&traits, &input, &positions, &frequencies, &output, &params);
                    calls.push(rotation.expect("supported"));
                }
            }
        }
    }
    check(calls);
}

#[test]
fn attentions() {
    let mut calls = Vec::new();
    for traits in traits() {
        for x in FLOATS {
            for state in FLOATS {
                for tokens in [1, 200] {
                    let q = Operand::contiguous(x, &[tokens, 8, 64]);
                    let cache = Operand::contiguous(state, &[128, 2, 64]);
                    let positions = Operand::contiguous(DType::I32, &[tokens]);
                    let sequences = Operand::contiguous(DType::U32, &[tokens]);
                    let pages = Operand::contiguous(DType::U32, &[2, 4]);
                    let params = attention::Params {
                        scale: 0.125,
                        page_size: 16,
                        window: None,
                    };
                    let call = attention::call(
                        &traits, &q, &cache, &cache, &positions, &sequences, &pages, &q, &params,
                    );
                    calls.push(call.expect("supported"));
                }
            }
        }
    }
    check(calls);
}
