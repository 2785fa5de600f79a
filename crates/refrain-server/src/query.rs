//! The query of a request's address.

use axum::http::Uri;
use percent_encoding::percent_decode_str;

/// Returns a parameter of the query; `None` if it is absent or empty.
pub(crate) fn parameter(uri: &Uri, name: &str) -> Option<String> {
    let mut pairs = uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(given, value)| *given == name && !value.is_empty())?;
    let value = value.replace('+', " ");
    Some(percent_decode_str(&value).decode_utf8_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let uri: Uri = "/v1/x?limit=5&after=msg%5F1+a&order=&order=asc".parse().unwrap();
        assert_eq!(parameter(&uri, "limit").as_deref(), Some("5"));
        assert_eq!(parameter(&uri, "after").as_deref(), Some("msg_1 a"));
        assert_eq!(parameter(&uri, "order").as_deref(), Some("asc"));
        assert_eq!(parameter(&uri, "include"), None);
    }
}
