//! Requests to the hub: redirects, the user's token, and what the answers mean.

use std::io::{self, ErrorKind, Read};
use std::time::Duration;

use ureq::http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, LOCATION, RANGE, RETRY_AFTER};
use ureq::http::{HeaderMap, Response, Uri};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body};

use crate::Error;
use crate::retry::Trouble;
use crate::settings::{AccessToken, HubSettings};

const MAX_REDIRECTS: usize = 10;

/// Makes requests.
pub(crate) struct Client {
    agent: Agent,
    endpoint: String,
    token: Option<AccessToken>,
}

/// What is asked for.
pub(crate) struct Request<'a> {
    pub url: &'a str,
    /// The model or file, for messages.
    pub what: &'a str,
    /// ORG/NAME.
    pub repo: &'a str,
    /// The first byte wanted.
    pub from: u64,
    /// The byte after the last one wanted; without it, the file's end.
    pub to: Option<u64>,
}

impl Request<'_> {
    /// The value of the `Range` header; none where everything is wanted.
    fn range(&self) -> Option<String> {
        match (self.from, self.to) {
            (0, None) => None,
            (from, None) => Some(format!("bytes={from}-")),
            (from, Some(to)) => Some(format!("bytes={from}-{}", to.saturating_sub(1))),
        }
    }
}

/// An answer of 200, 206 or 416.
pub(crate) struct HubResponse {
    pub status: u16,
    /// Bytes of the body, if it says so.
    pub length: Option<u64>,
    /// First byte and size of the whole, of an answer of 206.
    pub range: Option<(u64, u64)>,
    pub body: Box<dyn Read>,
}

impl Client {
    pub fn new(settings: &HubSettings) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(settings.stall))
            .timeout_per_read(Some(settings.stall))
            .timeout_per_write(Some(settings.stall))
            .user_agent(concat!("refrain/", env!("CARGO_PKG_VERSION")))
            .tls_config(TlsConfig::builder().root_certs(root_certificates()).build())
            .build();
        Self {
            agent: config.new_agent(),
            endpoint: settings.endpoint.clone(),
            token: settings.token.clone(),
        }
    }

    /// One attempt, redirects included. The token goes to the endpoint's own host only.
    pub fn get(&self, request: &Request<'_>) -> Result<HubResponse, Trouble> {
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
                .map_err(|error| unreachable_host(request.what, &url, error))?;
            match response.status().as_u16() {
                301 | 302 | 303 | 307 | 308 => url = redirected(request.what, &url, response.headers())?,
                200 | 206 | 416 => return Ok(HubResponse::from(response)),
                status => return Err(self.refused(request, &url, status, response.headers())),
            }
        }
        Err(Trouble::Final(Error::Answer {
            what: request.what.to_owned(),
            reason: format!("more than {MAX_REDIRECTS} redirects"),
        }))
    }

    /// What a status other than success means.
    fn refused(&self, request: &Request<'_>, url: &str, status: u16, headers: &HeaderMap) -> Trouble {
        let host = host(url);
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
        let said = match text("x-error-message") {
            "" => String::new(),
            message => format!(" ({message})"),
        };
        let what = request.what.to_owned();
        match status {
            408 | 429 | 500.. => Trouble::Passing {
                reason: match status {
                    429 => format!("{host} has had too many requests from here{said}"),
                    _ => format!("{host} answered with status {status}{said}"),
                },
                wait: asked_wait(headers),
            },
            401 | 403 if same_origin(url, &self.endpoint) => {
                let gated = text("x-error-code") == "GatedRepo";
                let reason = self.denial(request.repo, status, gated);
                Trouble::Final(Error::Denied { what, reason })
            }
            404 => Trouble::Final(Error::NotFound {
                what,
                reason: match text("x-error-code") {
                    "RevisionNotFound" => format!("{host} has no such revision of {}", request.repo),
                    "EntryNotFound" => format!("{host} has no such file in {}", request.repo),
                    _ => format!("{host} has no model of this name{said}; check its spelling"),
                },
            }),
            _ => Trouble::Final(Error::Answer {
                what,
                reason: format!("{host} answered with status {status}{said}"),
            }),
        }
    }

    fn denial(&self, repo: &str, status: u16, gated: bool) -> String {
        let page = format!("{}/{repo}", self.endpoint);
        match (&self.token, gated) {
            (None, true) => format!(
                "its authors want to know who uses it: accept the licence at {page}, then set HF_TOKEN to an access token \
                 (from {}/settings/tokens)",
                self.endpoint
            ),
            (Some(token), true) => format!(
                "the user of the token in {} has no access yet: accept the licence at {page}",
                token.source
            ),
            (None, false) => format!(
                "no such model, or it is private: check its spelling, or set HF_TOKEN to an access token that may read it \
                 (from {}/settings/tokens)",
                self.endpoint
            ),
            (Some(token), false) if status == 401 => format!(
                "no such model, or the token in {} is not valid: check the name, or take a new token from {}/settings/tokens",
                token.source, self.endpoint
            ),
            (Some(token), false) => format!("the token in {} may not read it", token.source),
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

/// The system's certificates, so that those of a company's proxy count; Mozilla's where there are none.
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

/// First byte and whole size of `bytes FIRST-LAST/SIZE`.
fn content_range(text: &str) -> Option<(u64, u64)> {
    let (range, size) = text.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.parse().ok()?, size.parse().ok()?))
}

/// How long the server asks to wait: `Retry-After` in seconds, or `t` of the hub's `RateLimit`.
fn asked_wait(headers: &HeaderMap) -> Option<Duration> {
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

/// Scheme, host and port.
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

/// Where a redirect leads.
fn redirected(what: &str, from: &str, headers: &HeaderMap) -> Result<String, Trouble> {
    let refuse = |reason: String| {
        let what = what.to_owned();
        Trouble::Final(Error::Answer { what, reason })
    };
    let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
    let Some(location) = location else {
        return Err(refuse(format!("{} redirects to nowhere", host(from))));
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
            "{} redirects to an address without encryption: {url}",
            host(from)
        )))
    } else {
        Ok(url)
    }
}

/// What it means that there was no answer at all.
fn unreachable_host(what: &str, url: &str, error: ureq::Error) -> Trouble {
    let host = host(url);
    let no_address = match &error {
        ureq::Error::HostNotFound => true,
        // Of the kind of the error, the standard library tells nothing.
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
        ureq::Error::Timeout(_) => format!("{host} does not answer"),
        _ if no_address => format!("no address is known for {host}; is this computer online?"),
        ureq::Error::Io(cause) => format!("no connection to {host}: {cause}"),
        other => format!("no answer from {host}: {other}"),
    };
    let broken_certificate = matches!(&error, ureq::Error::Io(cause) if cause.kind() == ErrorKind::InvalidData);
    match error {
        ureq::Error::Tls(_)
        | ureq::Error::Rustls(_)
        | ureq::Error::BadUri(_)
        | ureq::Error::Http(_)
        | ureq::Error::InvalidProxyUrl => Trouble::Final(Error::Answer {
            what: what.to_owned(),
            reason,
        }),
        _ if broken_certificate => Trouble::Final(Error::Answer {
            what: what.to_owned(),
            reason,
        }),
        _ if no_address || no_way => Trouble::NoNetwork { reason },
        _ => Trouble::passing(reason),
    }
}

/// What it means that the body of an answer could not be read to its end.
pub(crate) fn broken_off(error: &io::Error) -> Trouble {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    Trouble::passing(match inner {
        Some(ureq::Error::Timeout(_)) => "the connection stalled".to_owned(),
        _ => format!("the connection broke off ({error})"),
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
    fn redirects_may_be_relative_but_never_leave_encryption() {
        let to = |from, location| redirected("x", from, &headers("location", location));
        assert_eq!(to("https://a/b/c?d", "/e").unwrap(), "https://a/e");
        assert_eq!(to("https://a:8/b/c?d/e", "f").unwrap(), "https://a:8/b/f");
        assert_eq!(to("http://a", "//b/c").unwrap(), "http://b/c");
        assert_eq!(to("http://a/b", "https://c").unwrap(), "https://c");
        assert!(to("https://a/b", "http://a/b").is_err());
        assert!(redirected("x", "https://a", &HeaderMap::new()).is_err());
    }

    #[test]
    fn the_token_is_for_one_scheme_host_and_port() {
        assert!(same_origin("https://A/b", "https://a:443"));
        for other in ["http://a", "https://b", "https://a:8443", "https://a.b", "nonsense"] {
            assert!(!same_origin(other, "https://a"), "{other}");
        }
    }

    #[test]
    fn servers_say_how_long_to_wait_in_two_ways() {
        let seconds = |name, value| asked_wait(&headers(name, value)).map(|wait| wait.as_secs());
        assert_eq!(seconds("retry-after", "7"), Some(7));
        assert_eq!(seconds("ratelimit", "\"api\";r=0;t=55"), Some(55));
        assert_eq!(seconds("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT"), None);
    }

    #[test]
    fn ranges_name_first_byte_and_whole_size() {
        assert_eq!(content_range("bytes 5-9/10"), Some((5, 10)));
        assert_eq!(content_range("bytes */10"), None);
    }
}
