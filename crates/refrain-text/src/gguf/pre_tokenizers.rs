//! Splits text into words before BPE merging: one row for each value of `tokenizer.ggml.pre`.

/// How a model family splits text into words before merging.
pub(super) struct PreTokenizer {
    /// Its names in `tokenizer.ggml.pre`.
    pub names: &'static [&'static str],
    /// Split patterns, applied one after the other. Matches become pieces, and so does the text between them.
    pub patterns: &'static [&'static str],
    /// Whether text is first normalised to Unicode NFC.
    pub nfc: bool,
    /// Whether a word that is itself a token skips the merges (`ignore_merges`).
    pub whole_words: bool,
    /// Whether BOS is added when the file does not say.
    pub adds_bos: bool,
    /// Whether EOS is added when the file does not say.
    pub adds_eos: bool,
}

impl PreTokenizer {
    const fn new(names: &'static [&'static str], patterns: &'static [&'static str]) -> Self {
        PreTokenizer {
            names,
            patterns,
            nfc: false,
            whole_words: false,
            adds_bos: false,
            adds_eos: false,
        }
    }

    const fn nfc(mut self) -> Self {
        self.nfc = true;
        self
    }

    const fn whole_words(mut self) -> Self {
        self.whole_words = true;
        self
    }

    const fn adds_bos(mut self) -> Self {
        self.adds_bos = true;
        self
    }

    const fn adds_both(mut self) -> Self {
        self.adds_bos = true;
        self.adds_eos = true;
        self
    }
}

/// Finds the row with this name.
pub(super) fn find(name: &str) -> Option<&'static PreTokenizer> {
    PRE_TOKENIZERS.iter().find(|known| known.names.contains(&name))
}

/// Returns the name of the pre-tokenizer with these patterns, if any. Among several, `whole_words` decides.
pub fn name_of(patterns: &[&str], whole_words: bool) -> Option<&'static str> {
    let cutting = || PRE_TOKENIZERS.iter().filter(|known| known.patterns == patterns);
    let exact = cutting().find(|known| known.whole_words == whole_words);
    exact.or(cutting().next()).map(|known| known.names[0])
}

/// Returns all names, for error messages.
pub(super) fn names() -> String {
    let names: Vec<&str> = PRE_TOKENIZERS.iter().flat_map(|known| known.names).copied().collect();
    names.join(", ")
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const SEED_CODER: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
const BAILING: &str =
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const KIMI: &str = r"\p{Han}+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK_V3: [&str; 3] = [
    r"\p{N}{1,3}",
    r"[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
];
/// The cased letters of the Unicode version that this family was trained with.
const DEEPSEEK_LETTERS: &str = r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
const DEEPSEEK_CJK: &str = r"[\u{4e00}-\u{9fa5}\u{0800}-\u{4e00}\u{ac00}-\u{d7ff}]+";
/// [`GPT4O`] with single digits.
const YOUTU: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const JAIS2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}";
const EXAONE_MOE: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+";
const UFAKZEKA: &str = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const SPARK: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"##;
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";

/// All known pre-tokenizers. Add a row to support another family.
const PRE_TOKENIZERS: [PreTokenizer; 35] = [
    PreTokenizer::new(
        &["default"],
        &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    ),
    PreTokenizer::new(
        &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        &[LLAMA3],
    )
    .whole_words()
    .adds_bos(),
    PreTokenizer::new(&["dbrx", "smaug-bpe", "chatglm-bpe"], &[LLAMA3]),
    PreTokenizer::new(&["glm4", "glm5"], &[LLAMA3]).whole_words(),
    PreTokenizer::new(&["minicpm5"], &[r"\p{N}{1,3}", LLAMA3]).whole_words(),
    PreTokenizer::new(&["jais-2"], &[JAIS2]),
    PreTokenizer::new(
        &["qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2"],
        &[QWEN2],
    )
    .nfc(),
    PreTokenizer::new(&["hunyuan", "grok-2", "solar-open"], &[QWEN2]),
    PreTokenizer::new(&["laguna"], &[r"[^\n]+|\n+", QWEN2]),
    PreTokenizer::new(&["ufakzeka"], &[UFAKZEKA]),
    PreTokenizer::new(&["exaone-moe"], &[EXAONE_MOE]),
    PreTokenizer::new(&["qwen35"], &[QWEN35]),
    PreTokenizer::new(
        &[
            "gpt-2",
            "gpt2",
            "phi-2",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "exaone4",
            "jais",
            "trillion",
            "granite-docling",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
        ],
        &[GPT2],
    ),
    PreTokenizer::new(&["olmo", "mpt", "modern-bert"], &[GPT2]).nfc(),
    PreTokenizer::new(&["jina-v1-en", "jina-v2-code", "roberta-bpe"], &[GPT2]).adds_both(),
    PreTokenizer::new(
        &[
            "smollm",
            "starcoder",
            "refact",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        &[r"\p{N}", GPT2],
    ),
    PreTokenizer::new(&["command-r"], &[r"\p{N}", GPT2]).nfc(),
    PreTokenizer::new(
        &["deepseek-llm"],
        &[
            r"[\r\n]",
            DEEPSEEK_LETTERS,
            r"\s?[!-/:-~！-／：-～‘-‟\u{3000}-。]+",
            r"\s+$",
            DEEPSEEK_CJK,
            r"\p{N}+",
        ],
    ),
    PreTokenizer::new(
        &["deepseek-coder"],
        &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK, r"\p{N}"],
    ),
    PreTokenizer::new(&["deepseek-v3", "hunyuan-dense", "hy_v4", "joyai-llm"], &DEEPSEEK_V3),
    PreTokenizer::new(&["spark2_5"], &[DEEPSEEK_V3[0], DEEPSEEK_V3[1], SPARK, r"\p{N}"]),
    PreTokenizer::new(
        &["afmoe"],
        &[
            r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
            "[\u{4e00}-\u{9fff}\u{3400}-\u{4dbf}\u{f900}-\u{faff}぀-ゟ゠-ヿ･-ﾟ⼀-\u{2fdf}เ-\u{e7f}\u{e80}-\u{eff}ក-\u{17ff}က-႟ꩠ-ꩿꧠ-\u{a9ff}가-\u{d7af}ᄀ-ᇿ]+",
            DEEPSEEK_V3[2],
        ],
    ),
    PreTokenizer::new(&["falcon"], &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"]),
    PreTokenizer::new(&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], &[GPT4O]),
    PreTokenizer::new(&["granite-embed-multi-97m"], &[GPT4O]).whole_words(),
    PreTokenizer::new(
        &["youtu"],
        &[
            "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
            YOUTU,
        ],
    )
    .whole_words(),
    PreTokenizer::new(&["tiny_aya", "cohere2moe"], &[r"\d{1,3}(?=(?:\d{3})*\b)", GPT4O]),
    PreTokenizer::new(&["tekken"], &[TEKKEN]).whole_words().adds_bos(),
    PreTokenizer::new(&["kimi-k2"], &[KIMI]),
    PreTokenizer::new(&["superbpe"], &[r"\p{N}+", r"(?=(\d{3})+(?!\d))"]),
    PreTokenizer::new(&["bailingmoe", "bailingmoe2", "llada-moe"], &[BAILING]),
    PreTokenizer::new(&["seed-coder"], &[SEED_CODER]),
    PreTokenizer::new(&["poro-chat", "bloom", "gpt3-finnish"], &[BLOOM]),
    PreTokenizer::new(&["viking"], &[BLOOM, r"\p{N}"]),
    PreTokenizer::new(
        &["chameleon"],
        &[
            "<sentinel:[0-9]+>",
            "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
            r"([\t\n]|    |  )",
            r"\p{N}",
            r"[\p{P}!-/:-@\[-`{-~]",
            GPT2,
        ],
    )
    .adds_bos(),
];
