//! Compilation and validation of shaders.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use glslang::{
    Compiler, CompilerOptions, Shader, ShaderInput, ShaderMessage, ShaderSource, ShaderStage, SourceLanguage,
    SpirvVersion, Target, VulkanVersion,
};
use rayon::prelude::*;
use refrain_kernels::{Architecture, Call, MemoryKind, Push, Traits};
use refrain_testing::sample;

/// Checks that each call's shader compiles to valid SPIR-V, that its identity belongs to one text, and that push
/// constants and grids stay within Vulkan's guaranteed limits.
pub fn check_texts(calls: Vec<Call>) {
    let mut texts: BTreeMap<u128, Call> = BTreeMap::new();
    for call in calls {
        let name = &call.kernel.name;
        let push: u32 = call.push.iter().map(Push::size).sum();
        assert!(push <= 128, "{name}: {push} bytes of push constants");
        assert!(call.groups.iter().all(|&g| (1..=65_535).contains(&g)));
        if let Some(earlier) = texts.get(&call.kernel.identity()) {
            assert_eq!(
                earlier.kernel.source(),
                call.kernel.source(),
                "{name}: one identity, one text"
            );
        }
        texts.insert(call.kernel.identity(), call);
    }
    assert!(!texts.is_empty());
    let texts: Vec<Call> = sample(texts.into_values(), 8);
    texts.par_iter().for_each(|call| {
        let spirv = compile(call);
        // Distributions' validators may predate cooperative matrices.
        if !call.kernel.source().contains("GL_KHR_cooperative_matrix") {
            validate(&call.kernel.name, &spirv);
        }
    });
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
    let source = ShaderSource::from(&**call.kernel.source());
    let no_defines: Option<&[(&str, Option<&str>)]> = None;
    let input = ShaderInput::new(&source, ShaderStage::Compute, &options, no_defines, None).expect("a compute shader");
    let compiler = Compiler::acquire().expect("glslang starts");
    let words = Shader::new(compiler, input)
        .parse()
        .and_then(|shader| shader.compile())
        .unwrap_or_else(|error| panic!("{}: {error:?}\n{}", call.kernel.name, call.kernel.source()));
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
    let mut input = child.stdin.take().expect("piped");
    input.write_all(spirv).expect("spirv-val reads");
    drop(input);
    let output = child.wait_with_output().expect("spirv-val ends");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {log}");
}

/// Returns the traits of a device with all features except matrix cores.
pub fn all_features() -> Traits {
    Traits {
        vendor: 0x10005,
        architecture: Architecture::Unknown,
        compute_units: None,
        memory: MemoryKind::Unified,
        subgroup_size: 8,
        subgroup_required: false,
        full_subgroups: true,
        subgroup_uniform_flow: true,
        subgroup_arithmetic: true,
        subgroup_shuffle: true,
        storage16: true,
        storage8: true,
        integer_dot: true,
        exact_halves: true,
        tickets: true,
        max_invocations: 1024,
        push_bytes: 256,
        shared_bytes: 32768,
        matrix_cores: None,
        tuning: None,
    }
}

/// Returns the traits with all features, and the minimum that Vulkan guarantees.
pub fn both_traits() -> [Traits; 2] {
    [all_features(), Traits::minimal()]
}
