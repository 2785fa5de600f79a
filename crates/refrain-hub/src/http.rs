//! Requests to the hub: redirects, access token, and errors.

use std::io::{self, ErrorKind, Read};
use std::time::Duration;

use ureq::http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, LOCATION, RANGE, RETRY_AFTER};
use ureq::http::{HeaderMap, Response, Uri};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body};

use crate::Error;
use crate::retry::Failure;
use crate::settings::{AccessToken, HubSettings};

const MAX_REDIRECTS: usize = 10;

/// The HTTP client.
pub(crate) struct Client {
    agent: Agent,
    endpoint: String,
    token: Option<AccessToken>,
}

/// A GET request.
pub(crate) struct Request<'a> {
    pub url: &'a str,
    /// The model or file, for messages.
    pub what: &'a str,
    /// ORG/NAME.
    pub repo: &'a str,
    /// First byte of the range.
    pub from: u64,
    /// Byte after the last one of the range; `None` means the end of the file.
    pub to: Option<u64>,
}

impl Request<'_> {
    /// Value of the `Range` header; `None` for the whole file.
    fn range(&self) -> Option<String> {
        match (self.from, self.to) {
            (0, None) => None,
            (from, None) => Some(format!("bytes={from}-")),
            (from, Some(to)) => Some(format!("bytes={from}-{}", to.saturating_sub(1))),
        }
    }
}

/// A response of status 200, 206 or 416.
pub(crate) struct HubResponse {
    pub status: u16,
    /// `Content-Length`, if present.
    pub length: Option<u64>,
    /// First byte and size of the whole file, from `Content-Range` of status 206.
    pub range: Option<(u64, u64)>,
    pub body: Box<dyn Read>,
}

impl Client {
    pub fn new(settings: &HubSettings) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(settings.read_timeout))
            .timeout_per_read(Some(settings.read_timeout))
            .timeout_per_write(Some(settings.read_timeout))
            .user_agent(concat!("refrain/", env!("CARGO_PKG_VERSION")))
            .tls_config(TlsConfig::builder().root_certs(root_certificates()).build())
            .build();
        Self {
            agent: config.new_agent(),
            endpoint: settings.endpoint.clone(),
            token: settings.token.clone(),
        }
    }

    /// Makes one attempt and follows redirects. Sends the token only to the endpoint's own origin.
    pub fn get(&self, request: &Request<'_>) -> Result<HubResponse, Failure> {
        let mut url = request.url.to_owned();
        for _ in 0..=MAX_REDIRECTS {
            let mut call = self.agent.get(&url).header(ACCEPT_ENCODING, "identity");
            if let Some(token) = self.token.as_ref().filter(|_| same_origin(&url, &self.endpoint)) {
                call = call.header(AUTHORIZATION, format!("Bearer {}", token.value));
            }
            if let Some(range) = request.range() {
                call = call.header(RANGE, range);
            }
            let response = call
                .call()
                .map_err(|error| connection_error(request.what, &url, error))?;
            match response.status().as_u16() {
                301 | 302 | 303 | 307 | 308 => url = redirected(request.what, &url, response.headers())?,
                200 | 206 | 416 => return Ok(HubResponse::from(response)),
                status => return Err(self.refused(request, &url, status, response.headers())),
            }
        }
        Err(Failure::Permanent(Error::Response {
            what: request.what.to_owned(),
            reason: format!("more than {MAX_REDIRECTS} redirects"),
        }))
    }

    /// Maps an error status to a failure.
    fn refused(&self, request: &Request<'_>, url: &str, status: u16, headers: &HeaderMap) -> Failure {
        let host = host(url);
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
        let said = match text("x-error-message") {
            "" => String::new(),
            message => format!(" ({message})"),
        };
        let what = request.what.to_owned();
        match status {
            408 | 429 | 500.. => Failure::Transient {
                reason: match status {
                    429 => format!("{host} reports too many requests{said}"),
                    _ => format!("{host} answered with status {status}{said}"),
                },
                wait: retry_after(headers),
            },
            401 | 403 if same_origin(url, &self.endpoint) => {
                let gated = text("x-error-code") == "GatedRepo";
                let reason = self.denial(request.repo, status, gated);
                Failure::Permanent(Error::Denied { what, reason })
            }
            404 => Failure::Permanent(Error::NotFound {
                what,
                reason: match text("x-error-code") {
                    "RevisionNotFound" => format!("{} has no such revision on {host}", request.repo),
                    "EntryNotFound" => format!("{} has no such file on {host}", request.repo),
                    _ => format!("no such model on {host}{said}; check the spelling"),
                },
            }),
            _ => Failure::Permanent(Error::Response {
                what,
                reason: format!("{host} answered with status {status}{said}"),
            }),
        }
    }

    fn denial(&self, repo: &str, status: u16, gated: bool) -> String {
        let page = format!("{}/{repo}", self.endpoint);
        match (&self.token, gated) {
            (None, true) => format!(
                "the model is gated: accept the licence at {page}, then set HF_TOKEN to an access token \
                 (from {}/settings/tokens)",
                self.endpoint
            ),
            (Some(token), true) => format!(
                "the model is gated, and the user of the token in {} has no access: accept the licence at {page}",
                token.source
            ),
            (None, false) => format!(
                "no such model, or it is private: check the spelling, or set HF_TOKEN to an access token with access \
                 (from {}/settings/tokens)",
                self.endpoint
            ),
            (Some(token), false) if status == 401 => format!(
                "no such model, or the token in {} is not valid: check the spelling, or create \
                 a new token at {}/settings/tokens",
                token.source, self.endpoint
            ),
            (Some(token), false) => format!("the token in {} has no permission to read it", token.source),
        }
    }
}

impl From<Response<Body>> for HubResponse {
    fn from(response: Response<Body>) -> Self {
        let headers = response.headers();
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        Self {
            status: response.status().as_u16(),
            length: text(CONTENT_LENGTH).and_then(|length| length.parse().ok()),
            range: text(CONTENT_RANGE).and_then(content_range),
            body: Box::new(response.into_body().into_reader()),
        }
    }
}

/// Returns the system's certificates, which include those of a company's proxy; Mozilla's if the system has none.
fn root_certificates() -> RootCerts {
    let certificates = rustls_native_certs::load_native_certs().certs;
    if certificates.is_empty() {
        RootCerts::WebPki
    } else {
        certificates
            .iter()
            .map(|certificate| Certificate::from_der(certificate).to_owned())
            .into()
    }
}

/// Parses first byte and total size from `bytes FIRST-LAST/SIZE`.
fn content_range(text: &str) -> Option<(u64, u64)> {
    let (range, size) = text.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.parse().ok()?, size.parse().ok()?))
}

/// Returns how long the server asks to wait: `Retry-After` in seconds, or `t` of the hub's `RateLimit`.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let seconds = text(RETRY_AFTER.as_str())
        .and_then(|value| value.trim().parse().ok())
        .or_else(|| {
            let fields = text("ratelimit")?.split(';');
            fields
                .filter_map(|field| field.trim().strip_prefix("t="))
                .next()?
                .parse()
                .ok()
        });
    seconds.map(Duration::from_secs)
}

/// Returns scheme, host and port.
fn origin(url: &str) -> Option<(String, String, u16)> {
    let uri: Uri = url.parse().ok()?;
    let scheme = uri.scheme_str()?.to_ascii_lowercase();
    let port = uri.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
    Some((scheme, uri.host()?.to_ascii_lowercase(), port))
}

fn same_origin(a: &str, b: &str) -> bool {
    origin(a).is_some_and(|a| Some(a) == origin(b))
}

fn host(url: &str) -> String {
    origin(url).map_or_else(|| url.to_owned(), |(_, host, _)| host)
}

/// Resolves a redirect's target.
fn redirected(what: &str, from: &str, headers: &HeaderMap) -> Result<String, Failure> {
    let refuse = |reason: String| {
        let what = what.to_owned();
        Failure::Permanent(Error::Response { what, reason })
    };
    let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
    let Some(location) = location else {
        return Err(refuse(format!("{} sent a redirect without a location", host(from))));
    };
    let (scheme, rest) = from.split_once("://").unwrap_or(("https", from));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let url = match location {
        _ if location.starts_with("http://") || location.starts_with("https://") => location.to_owned(),
        _ if location.starts_with("//") => format!("{scheme}:{location}"),
        _ if location.starts_with('/') => format!("{scheme}://{authority}{location}"),
        _ => {
            let path = path.split(['?', '#']).next().unwrap_or("");
            let folder = &path[..path.rfind('/').map_or(0, |slash| slash + 1)];
            format!("{scheme}://{authority}/{}{location}", folder.trim_start_matches('/'))
        }
    };
    if scheme == "https" && !url.starts_with("https://") {
        Err(refuse(format!(
            "{} redirects from https to an unencrypted address: {url}",
            host(from)
        )))
    } else {
        Ok(url)
    }
}

/// Maps an error without any response to a failure.
fn connection_error(what: &str, url: &str, error: ureq::Error) -> Failure {
    let host = host(url);
    let no_address = match &error {
        ureq::Error::HostNotFound => true,
        // The standard library does not expose the kind of this error.
        ureq::Error::Io(cause) => cause.to_string().starts_with("failed to lookup address"),
        _ => false,
    };
    let no_way = matches!(
        &error,
        ureq::Error::Io(cause) if matches!(
            cause.kind(),
            ErrorKind::NetworkDown | ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable
        )
    );
    let reason = match &error {
        ureq::Error::Timeout(_) => format!("{host} does not respond"),
        _ if no_address => format!("cannot resolve {host}; is this computer online?"),
        ureq::Error::Io(cause) => format!("cannot connect to {host}: {cause}"),
        other => format!("no response from {host}: {other}"),
    };
    let broken_certificate = matches!(&error, ureq::Error::Io(cause) if cause.kind() == ErrorKind::InvalidData);
    match error {
        ureq::Error::Tls(_)
        | ureq::Error::Rustls(_)
        | ureq::Error::BadUri(_)
        | ureq::Error::Http(_)
        | ureq::Error::InvalidProxyUrl => Failure::Permanent(Error::Response {
            what: what.to_owned(),
            reason,
        }),
        _ if broken_certificate => Failure::Permanent(Error::Response {
            what: what.to_owned(),
            reason,
        }),
        _ if no_address || no_way => Failure::NoNetwork { reason },
        _ => Failure::transient(reason),
    }
}

/// Maps an error while reading a response's body to a failure.
pub(crate) fn body_error(error: &io::Error) -> Failure {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    Failure::transient(match inner {
        Some(ureq::Error::Timeout(_)) => "the connection stalled".to_owned(),
        _ => format!("the connection was lost ({error})"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        headers
    }

    #[test]
    fn redirects_may_be_relative_but_never_downgrade_to_http() {
        let to = |from, location| redirected("x", from, &headers("location", location));
        assert_eq!(to("https://a/b/c?d", "/e").unwrap(), "https://a/e");
        assert_eq!(to("https://a:8/b/c?d/e", "f").unwrap(), "https://a:8/b/f");
        assert_eq!(to("http://a", "//b/c").unwrap(), "http://b/c");
        assert_eq!(to("http://a/b", "https://c").unwrap(), "https://c");
        assert!(to("https://a/b", "http://a/b").is_err());
        assert!(redirected("x", "https://a", &HeaderMap::new()).is_err());
    }

    #[test]
    fn token_is_bound_to_scheme_host_and_port() {
        assert!(same_origin("https://A/b", "https://a:443"));
        for other in ["http://a", "https://b", "https://a:8443", "https://a.b", "nonsense"] {
            assert!(!same_origin(other, "https://a"), "{other}");
        }
    }

    #[test]
    fn retry_after_and_ratelimit_headers_are_read() {
        let seconds = |name, value| retry_after(&headers(name, value)).map(|wait| wait.as_secs());
        assert_eq!(seconds("retry-after", "7"), Some(7));
        assert_eq!(seconds("ratelimit", "\"api\";r=0;t=55"), Some(55));
        assert_eq!(seconds("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT"), None);
    }

    #[test]
    fn content_range_has_first_byte_and_total_size() {
        assert_eq!(content_range("bytes 5-9/10"), Some((5, 10)));
        assert_eq!(content_range("bytes */10"), None);
    }
}
