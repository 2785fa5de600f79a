//! Parsers of numeric command-line values, with error messages that say what is expected.

/// A count of 0 or more.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "not a whole number of 0 or more".to_owned())
}

/// A maximum number of tokens to generate. Rejects -1, which other programs take for no limit.
pub(crate) fn token_limit(text: &str) -> Result<usize, String> {
    match text {
        // llama.cpp's `-ngl N` (layers to offload) is parsed as `-n gl`.
        "gl" => Err("all layers always run on the device; leave -ngl out".to_owned()),
        _ if text.starts_with('-') => {
            Err("not a number of tokens; leave this option out to generate until the model ends the text".to_owned())
        }
        _ => count(text),
    }
}

/// A random seed. Rejects -1, which other programs take for a new seed each time.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    if text.starts_with('-') {
        Err("not a whole number of 0 or more; leave this option out for a new seed each time".to_owned())
    } else {
        text.parse().map_err(|_| "not a whole number of 0 or more".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_invalid_numbers_with_a_hint() {
        assert_eq!((count("7"), token_limit("0"), seed("7")), (Ok(7), Ok(0), Ok(7)));
        for text in ["-1", "x", "1.5", ""] {
            for error in [count(text).err(), token_limit(text).err(), seed(text).err()] {
                assert!(error.unwrap().contains("not a "), "{text}");
            }
        }
        assert!(token_limit("gl").unwrap_err().contains("leave -ngl out"));
        assert!(token_limit("-1").unwrap_err().contains("until the model ends"));
        assert!(seed("-1").unwrap_err().contains("a new seed each time"));
    }
}
