//! Compiles GLSL to SPIR-V, in process.

use std::fmt;
use std::sync::Arc;

use glslang::{
    Compiler, CompilerOptions, ShaderInput, ShaderMessage, ShaderSource as GlslangSource, ShaderStage, SourceLanguage,
    SpirvVersion, Target, VulkanVersion, error::GlslangError,
};
use xxhash_rust::xxh3::xxh3_128;

/// Version and settings of the shader compiler, part of the cache key of SPIR-V. Change it whenever a change below
/// alters the generated code.
pub const COMPILER: &str = "glslang 0.9.1, Vulkan 1.3, SPIR-V 1.6";

/// GLSL source with a hash of it. The hash is computed once and identifies the source in the caches in memory and on
/// disk.
#[derive(Clone)]
pub struct ShaderSource {
    text: Arc<str>,
    hash: u128,
}

impl ShaderSource {
    /// Wraps `text` with a 128-bit hash that the caller computed. Different texts must have different hashes.
    pub fn with_hash(text: Arc<str>, hash: u128) -> ShaderSource {
        ShaderSource { text, hash }
    }

    /// The GLSL.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn hash(&self) -> u128 {
        self.hash
    }
}

impl From<&str> for ShaderSource {
    fn from(text: &str) -> ShaderSource {
        ShaderSource::with_hash(text.into(), xxh3_128(text.as_bytes()))
    }
}

impl From<String> for ShaderSource {
    fn from(text: String) -> ShaderSource {
        ShaderSource::from(text.as_str())
    }
}

impl fmt::Debug for ShaderSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shader {:032x}", self.hash)
    }
}

/// Compiles a compute shader. `defines` become `#define NAME VALUE` lines before the source.
///
/// # Errors
/// The compiler's log.
pub(crate) fn compile(source: &str, defines: &[(String, String)]) -> Result<Vec<u32>, String> {
    let strings = || defines.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]);
    if source.contains('\0') || strings().any(|string| string.contains('\0')) {
        return Err("the source contains a NUL byte".to_owned());
    }
    let compiler = Compiler::acquire().ok_or("the shader compiler failed to start")?;
    let options = CompilerOptions {
        source_language: SourceLanguage::GLSL,
        target: Target::Vulkan {
            version: VulkanVersion::Vulkan1_3,
            spirv_version: SpirvVersion::SPIRV1_6,
        },
        version_profile: None,
        messages: ShaderMessage::DEFAULT,
    };
    let source = GlslangSource::from(source);
    let no_defines: Option<&[(&str, Option<&str>)]> = None;
    let input = ShaderInput::new(&source, ShaderStage::Compute, &options, no_defines, None).map_err(error_log)?;
    let mut shader = glslang::Shader::new(compiler, input);
    let preamble: String = defines
        .iter()
        .map(|(name, value)| format!("#define {name} {value}\n"))
        .collect();
    shader.preamble(&preamble);
    let shader = shader.parse().map_err(error_log)?;
    let spirv = shader.compile().map_err(error_log)?;
    if spirv.is_empty() {
        Err("the shader compiler produced no code".to_owned())
    } else {
        Ok(spirv)
    }
}

fn error_log(error: GlslangError) -> String {
    match error {
        GlslangError::ParseError(log) | GlslangError::LinkError(log) => log.log.trim().to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "#version 460\n#extension GL_EXT_buffer_reference : require\n\
        layout(local_size_x = 8) in;\n\
        layout(buffer_reference) buffer Words { uint word[]; };\n\
        layout(push_constant) uniform Push { Words words; };\n\
        void main() { words.word[gl_GlobalInvocationID.x] = VALUE; }\n";

    fn define(value: &str) -> Vec<(String, String)> {
        vec![("VALUE".to_owned(), value.to_owned())]
    }

    #[test]
    fn defines_reach_the_source() {
        let seven = compile(SOURCE, &define("7")).unwrap();
        let eight = compile(SOURCE, &define("8")).unwrap();
        assert_eq!(seven[0], 0x0723_0203, "SPIR-V magic number");
        assert_eq!(seven[1], 0x0001_0600, "version 1.6");
        assert_ne!(seven, eight);
        assert_eq!(
            seven,
            compile(SOURCE, &define("7")).unwrap(),
            "equal source gives equal code"
        );
    }

    #[test]
    fn errors_name_the_line_and_the_symbol() {
        let log = compile(SOURCE, &[]).unwrap_err();
        assert!(log.contains("VALUE") && log.contains(":6:"), "{log}");
        assert!(compile("#version 460\0", &[]).unwrap_err().contains("NUL byte"));
        assert!(compile("", &[]).is_err());
    }

    #[test]
    fn compiles_on_several_threads_at_once() {
        std::thread::scope(|scope| {
            let compile_both = |value: &'static str| {
                scope.spawn(move || (0..5).map(|_| compile(SOURCE, &define(value))).collect::<Vec<_>>())
            };
            let threads = ["1", "2", "3"].map(compile_both);
            for thread in threads {
                assert!(thread.join().unwrap().iter().all(Result::is_ok));
            }
        });
    }
}
