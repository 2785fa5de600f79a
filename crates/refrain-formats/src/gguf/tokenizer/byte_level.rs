//! Byte-level BPE (`gpt2`): tokens in the byte-to-character alphabet, and a list of merges.

use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{SplitDelimiterBehavior, Tokenizer};

use super::{Gguf, Vocabulary};
use crate::Error;

/// How a family cuts text into words before merging.
struct PreTokenizer {
    /// Its names in `tokenizer.ggml.pre`.
    names: &'static [&'static str],
    /// Patterns to cut by, one after the other.
    patterns: &'static [&'static str],
    /// Whether text is first brought into Unicode's NFC.
    nfc: bool,
    /// Whether a word that is a token is taken whole, though merges would not build it.
    whole_words: bool,
    /// Whether BOS is added unless the file says otherwise.
    adds_bos: bool,
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The known ways to cut. To support another family, add a row.
const PRE_TOKENIZERS: [PreTokenizer; 6] = [
    PreTokenizer {
        names: &["llama-bpe", "llama3", "llama-v3", "dbrx", "smaug-bpe"],
        patterns: &[LLAMA3],
        nfc: false,
        whole_words: true,
        adds_bos: true,
    },
    PreTokenizer {
        names: &["qwen2", "deepseek-r1-qwen"],
        patterns: &[QWEN2],
        nfc: true,
        whole_words: false,
        adds_bos: false,
    },
    PreTokenizer {
        names: &["gpt-2", "gpt2", "olmo", "jais", "phi-2", "mpt"],
        patterns: &[GPT2],
        nfc: false,
        whole_words: false,
        adds_bos: false,
    },
    PreTokenizer {
        names: &["smollm", "starcoder", "refact", "command-r", "codeshell"],
        patterns: &[r"\p{N}", GPT2],
        nfc: false,
        whole_words: false,
        adds_bos: false,
    },
    PreTokenizer {
        names: &["tekken"],
        patterns: &[TEKKEN],
        nfc: false,
        whole_words: true,
        adds_bos: true,
    },
    PreTokenizer {
        names: &["default"],
        patterns: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
        nfc: false,
        whole_words: false,
        adds_bos: false,
    },
];

/// Build the tokenizer; also says whether it adds BOS unless the file says otherwise.
pub(super) fn build(gguf: &Gguf, bytes: &[u8], vocabulary: &Vocabulary<'_>) -> Result<(Tokenizer, bool), Error> {
    let name = gguf.metadata.string("tokenizer.ggml.pre")?.unwrap_or("default");
    let known = PRE_TOKENIZERS.iter().find(|known| known.names.contains(&name));
    let Some(pre) = known else {
        let names: Vec<&str> = PRE_TOKENIZERS
            .iter()
            .flat_map(|known| known.names.iter().copied())
            .collect();
        return Err(gguf.error(format!(
            "pre-tokenizer {name:?} is not supported (supported: {})",
            names.join(", ")
        )));
    };
    let Some(merges) = gguf.metadata.strings("tokenizer.ggml.merges", bytes)? else {
        return Err(gguf.error("its tokenizer has no merges (metadata tokenizer.ggml.merges)"));
    };
    let merges: Option<Vec<(String, String)>> = merges
        .iter()
        // A merged piece may itself begin with a space only in damaged files: bytes that are
        // spaces have another character in this alphabet.
        .map(|merge| merge.split_once(' '))
        .map(|pair| pair.map(|(left, right)| (left.to_owned(), right.to_owned())))
        .collect();
    let Some(merges) = merges else {
        return Err(gguf.error("its tokenizer's merges are not pairs"));
    };
    let broken = |error: &dyn std::fmt::Display| gguf.error(format!("broken tokenizer: {error}"));
    let model = BPE::builder()
        .vocab_and_merges(vocabulary.ids(gguf)?.into_iter().collect::<Vocab>(), merges)
        .ignore_merges(pre.whole_words)
        .build()
        .map_err(|error| broken(&error))?;
    let mut tokenizer = Tokenizer::new(model);
    if pre.nfc {
        tokenizer.with_normalizer(Some(NFC)).map_err(|error| broken(&error))?;
    }
    let mut steps: Vec<PreTokenizerWrapper> = Vec::new();
    for pattern in pre.patterns {
        let split = Split::new(
            SplitPattern::Regex((*pattern).to_owned()),
            SplitDelimiterBehavior::Isolated,
            false,
        );
        steps.push(split.map_err(|error| broken(&error))?.into());
    }
    steps.push(ByteLevel::new(false, false, false).into());
    tokenizer.with_pre_tokenizer(Some(Sequence::new(steps)));
    tokenizer.with_decoder(Some(ByteLevel::new(false, false, false)));
    Ok((tokenizer, pre.adds_bos))
}
