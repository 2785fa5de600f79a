//! Protects servers without keys from web pages of other sites.
//!
//! A browser on the same computer lets any page send requests to `127.0.0.1`. Such requests carry the page's `Origin`,
//! or `Sec-Fetch-Site`. A page whose own name was made to resolve to this address ("DNS rebinding") is of the same
//! origin as the server to the browser, but its `Host` gives it away.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, Version};
use axum::middleware::Next;
use axum::response::Response;

use crate::connections::Connection;
use crate::error::{Refusal, refused};

/// Which host names and origins requests may have.
#[derive(Debug, Clone, Default)]
pub(crate) struct WebPolicy {
    /// Whether clients give keys, which pages of other sites do not know.
    pub has_keys: bool,
    /// Whether the server listens at a loopback address.
    pub is_loopback: bool,
    /// Host names that the server is reached by, beside those of the loopback; `*` is any.
    pub hosts: Vec<String>,
    /// Origins of pages that may ask; `*` is any.
    pub origins: Vec<String>,
}

/// Refuses requests with a wrong `Host`, and those that pages of other sites send.
pub(crate) async fn check(State(policy): State<Arc<WebPolicy>>, request: Request, next: Next) -> Response {
    if !has_one_host(&request) {
        let why = Refusal::Malformed("an HTTP/1.1 request needs exactly one Host header".to_owned());
        return refused(request.uri().path(), why);
    }
    // A page cannot connect to a Unix socket.
    let is_local = |connection: &Connection| connection.address.is_none();
    let is_socket = request.extensions().get::<Connection>().is_some_and(is_local);
    let fault = if policy.has_keys || is_socket {
        None
    } else {
        policy.fault(&request)
    };
    match fault {
        Some(why) => refused(request.uri().path(), Refusal::Forbidden(why)),
        None => next.run(request).await,
    }
}

/// RFC 9112 asks for this: proxies and servers must not disagree on where a request goes.
fn has_one_host(request: &Request) -> bool {
    let count = request.headers().get_all(HOST).iter().count();
    count == 1 || count == 0 && request.version() < Version::HTTP_11
}

impl WebPolicy {
    /// Why a request is refused.
    fn fault(&self, request: &Request) -> Option<String> {
        let header = request
            .headers()
            .get(HOST)
            .map(|host| host.to_str().unwrap_or_default());
        let named = request.uri().authority().map(Authority::as_str);
        let is_checked = self.is_loopback || !self.hosts.is_empty();
        if let Some(host) = [header, named]
            .into_iter()
            .flatten()
            .find(|host| !self.allows_host(host))
            && is_checked
        {
            return Some(format!(
                "this server does not serve the host {host:?}; its operator can allow that host name"
            ));
        }
        self.foreign_origin(request, header.unwrap_or_default())
    }

    fn allows_host(&self, host: &str) -> bool {
        let name = host_name(host);
        let is_loopback = name.eq_ignore_ascii_case("localhost")
            || (name.trim_matches(['[', ']']).parse()).is_ok_and(|address: IpAddr| address.is_loopback());
        is_loopback || self.is_named(name)
    }

    /// Whether this name is among the hosts or origins that the operator allowed.
    fn is_named(&self, name: &str) -> bool {
        let of_origin = |origin: &String| {
            origin
                .split_once("://")
                .map_or(origin.clone(), |(_, host)| host.to_owned())
        };
        let mut known = self.hosts.iter().cloned().chain(self.origins.iter().map(of_origin));
        known.any(|known| known == "*" || host_name(&known).eq_ignore_ascii_case(name))
    }

    /// Why a request that a page of another site sends is refused.
    fn foreign_origin(&self, request: &Request, host: &str) -> Option<String> {
        let headers = request.headers();
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        let refuse = |origin: &str| {
            Some(format!(
                "web pages of {origin} may not use this server; its operator can allow that origin"
            ))
        };
        if let Some(origin) = text(ORIGIN.as_str()) {
            return if self.allows_origin(origin, host) {
                None
            } else {
                refuse(origin)
            };
        }
        let is_foreign = matches!(text("sec-fetch-site"), Some("cross-site" | "same-site"));
        if is_foreign && !is_navigation(request.method(), headers) && !self.allows_any_origin() {
            return refuse("other sites");
        }
        None
    }

    fn allows_any_origin(&self) -> bool {
        self.origins.iter().any(|known| known == "*")
    }

    fn allows_origin(&self, origin: &str, host: &str) -> bool {
        let is_listed = self.origins.iter().any(|known| known == "*" || known == origin);
        let Some((scheme, site)) = origin.split_once("://") else {
            // `null`: a page in a sandbox, or from a file.
            return is_listed;
        };
        // Extensions and desktop programs have schemes of their own, which no web page can have.
        let is_web = matches!(scheme, "http" | "https" | "file");
        is_listed
            || !is_web
            || site.eq_ignore_ascii_case(host)
            || self.hosts.iter().any(|known| known == host_name(site))
    }
}

/// A link to the server's page may be anywhere.
fn is_navigation(method: &Method, headers: &HeaderMap) -> bool {
    let is_read = method == Method::GET || method == Method::HEAD;
    is_read && headers.get("sec-fetch-mode").is_some_and(|mode| mode == "navigate")
}

/// A `Host` or authority without its port.
fn host_name(host: &str) -> &str {
    match host.rsplit_once(':') {
        // The colons of an IPv6 address are within its brackets.
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn policy(hosts: &[&str], origins: &[&str]) -> WebPolicy {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        WebPolicy {
            has_keys: false,
            is_loopback: true,
            hosts: owned(hosts),
            origins: owned(origins),
        }
    }

    fn allows(policy: &WebPolicy, headers: &[(&str, &str)]) -> bool {
        let mut request = Request::post("/v1/completions");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        policy.fault(&request.body(Body::empty()).unwrap()).is_none()
    }

    #[test]
    fn loopback_hosts_and_named_hosts_are_allowed() {
        let strict = policy(&[], &[]);
        for host in [
            "localhost",
            "LOCALHOST:8080",
            "127.0.0.1:1",
            "127.0.0.1",
            "[::1]",
            "[::1]:80",
            "127.1.2.3",
        ] {
            assert!(allows(&strict, &[("host", host)]), "{host}");
        }
        for host in [
            "x",
            "example.org",
            "localhost.example.org",
            "127.0.0.1.example.org",
            "",
            "[::2]",
            "10.0.0.1",
        ] {
            assert!(!allows(&strict, &[("host", host)]), "{host}");
        }
        assert!(allows(&policy(&["gpu.lan"], &[]), &[("host", "gpu.lan:8080")]));
        assert!(allows(&policy(&["*"], &[]), &[("host", "example.org")]));
        assert!(allows(
            &policy(&[], &["https://example.org"]),
            &[("host", "example.org")]
        ));
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let strict = policy(&[], &[]);
        let host = ("host", "127.0.0.1:8080");
        for origin in [
            "https://example.org",
            "http://localhost:3000",
            "null",
            "http://127.0.0.1",
            "file://",
        ] {
            assert!(!allows(&strict, &[host, ("origin", origin)]), "{origin}");
        }
        for origin in [
            "http://127.0.0.1:8080",
            "tauri://localhost",
            "vscode-webview://1",
            "chrome-extension://a",
        ] {
            assert!(allows(&strict, &[host, ("origin", origin)]), "{origin}");
        }
        assert!(!allows(&strict, &[host, ("sec-fetch-site", "cross-site")]));
        assert!(allows(&strict, &[host, ("sec-fetch-site", "same-origin")]));
        assert!(allows(&strict, &[host, ("sec-fetch-site", "none")]));
        let listed = policy(&[], &["https://example.org"]);
        assert!(allows(&listed, &[host, ("origin", "https://example.org")]));
        assert!(!allows(&listed, &[host, ("origin", "https://example.com")]));
        assert!(allows(&policy(&[], &["*"]), &[host, ("origin", "https://example.com")]));
    }

    #[test]
    fn links_from_other_sites_open_the_page() {
        let from_elsewhere = |method: Method| {
            let request = Request::builder().method(method).uri("/").header("host", "localhost");
            let request = request
                .header("sec-fetch-site", "cross-site")
                .header("sec-fetch-mode", "navigate");
            policy(&[], &[]).fault(&request.body(Body::empty()).unwrap()).is_none()
        };
        assert!(from_elsewhere(Method::GET));
        assert!(!from_elsewhere(Method::POST));
    }
}
