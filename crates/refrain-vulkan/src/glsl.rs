//! GLSL to SPIR-V, in process.

use std::fmt;
use std::sync::Arc;

use glslang::{
    Compiler, CompilerOptions, ShaderInput, ShaderMessage, ShaderSource, ShaderStage, SourceLanguage, SpirvVersion,
    Target, VulkanVersion, error::GlslangError,
};
use xxhash_rust::xxh3::xxh3_128;

/// The shader compiler and how it is called: part of the key of cached SPIR-V. Change it when
/// anything below changes what comes out.
pub const COMPILER: &str = "glslang 0.9.1, Vulkan 1.3, SPIR-V 1.6";

/// A shader's text with its identity: a hash, made once, that stands for the text wherever kernels are looked for, in
/// memory and on disk.
#[derive(Clone)]
pub struct ShaderText {
    text: Arc<str>,
    identity: u128,
}

impl ShaderText {
    /// A text whose identity whoever made it has made with it: 128 bits that no other text has.
    pub fn identified(text: Arc<str>, identity: u128) -> ShaderText {
        ShaderText { text, identity }
    }

    /// The GLSL.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn identity(&self) -> u128 {
        self.identity
    }
}

impl From<&str> for ShaderText {
    fn from(text: &str) -> ShaderText {
        ShaderText::identified(text.into(), xxh3_128(text.as_bytes()))
    }
}

impl From<String> for ShaderText {
    fn from(text: String) -> ShaderText {
        ShaderText::from(text.as_str())
    }
}

impl fmt::Debug for ShaderText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shader {:032x}", self.identity)
    }
}

/// Compiles a compute shader. `defines` become `#define NAME VALUE` lines before the source.
///
/// # Errors
/// The compiler's log.
pub(crate) fn compile(source: &str, defines: &[(String, String)]) -> Result<Vec<u32>, String> {
    let texts = || defines.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]);
    if source.contains('\0') || texts().any(|text| text.contains('\0')) {
        return Err("the source contains a zero byte".to_owned());
    }
    let compiler = Compiler::acquire().ok_or("the shader compiler did not start")?;
    let options = CompilerOptions {
        source_language: SourceLanguage::GLSL,
        target: Target::Vulkan {
            version: VulkanVersion::Vulkan1_3,
            spirv_version: SpirvVersion::SPIRV1_6,
        },
        version_profile: None,
        messages: ShaderMessage::DEFAULT,
    };
    let source = ShaderSource::from(source);
    let no_defines: Option<&[(&str, Option<&str>)]> = None;
    let input = ShaderInput::new(&source, ShaderStage::Compute, &options, no_defines, None).map_err(readable)?;
    let mut shader = glslang::Shader::new(compiler, input);
    let preamble: String = defines
        .iter()
        .map(|(name, value)| format!("#define {name} {value}\n"))
        .collect();
    shader.preamble(&preamble);
    let shader = shader.parse().map_err(readable)?;
    let spirv = shader.compile().map_err(readable)?;
    if spirv.is_empty() {
        Err("the compiler produced nothing".to_owned())
    } else {
        Ok(spirv)
    }
}

fn readable(error: GlslangError) -> String {
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
        assert_eq!(seven[0], 0x0723_0203, "SPIR-V's magic number");
        assert_eq!(seven[1], 0x0001_0600, "version 1.6");
        assert_ne!(seven, eight);
        assert_eq!(seven, compile(SOURCE, &define("7")).unwrap(), "equal text, equal code");
    }

    #[test]
    fn an_error_names_the_line_and_the_symbol() {
        let log = compile(SOURCE, &[]).unwrap_err();
        assert!(log.contains("VALUE") && log.contains(":6:"), "{log}");
        assert!(compile("#version 460\0", &[]).unwrap_err().contains("zero byte"));
        assert!(compile("", &[]).is_err());
    }

    #[test]
    fn threads_compile_at_the_same_time() {
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
