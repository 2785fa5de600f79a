//! Numbers on the command line, refused in the words of what they count.

/// A count, of which negative numbers make none.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "not a whole number of 0 or more".to_owned())
}

/// How many tokens to generate. Other programs take -1 for no limit.
pub(crate) fn most_tokens(text: &str) -> Result<usize, String> {
    match text {
        // What is left of llama.cpp's -ngl, the layers to put on the device.
        "gl" => Err("all layers are on the device always; leave -ngl out".to_owned()),
        _ if text.starts_with('-') => {
            Err("not a number of tokens; without this option, a text goes on until the model ends it".to_owned())
        }
        _ => count(text),
    }
}

/// The seed of random numbers. Other programs take -1 for another one each time.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    if text.starts_with('-') {
        Err("not a whole number of 0 or more; without this option, it is another one each time".to_owned())
    } else {
        text.parse().map_err(|_| "not a whole number of 0 or more".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_count_is_refused_with_what_to_do() {
        assert_eq!((count("7"), most_tokens("0"), seed("7")), (Ok(7), Ok(0), Ok(7)));
        for text in ["-1", "x", "1.5", ""] {
            for error in [count(text).err(), most_tokens(text).err(), seed(text).err()] {
                assert!(error.unwrap().contains("not a "), "{text}");
            }
        }
        assert!(most_tokens("gl").unwrap_err().contains("leave -ngl out"));
        assert!(most_tokens("-1").unwrap_err().contains("until the model ends"));
        assert!(seed("-1").unwrap_err().contains("another one each time"));
    }
}
