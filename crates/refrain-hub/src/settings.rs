//! Settings from the environment: the variables of `huggingface_hub`, with its defaults.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Error;

/// Default read timeout in seconds.
const DEFAULT_READ_TIMEOUT_SECONDS: f64 = 10.0;
/// Default wait after the first failure in seconds; each further failure doubles it.
const DEFAULT_BACKOFF_SECONDS: f64 = 1.0;

/// Addresses, access token and timeouts.
#[derive(Debug, Clone)]
pub struct HubSettings {
    /// The hub's URL without a trailing slash: `HF_ENDPOINT`, or `https://huggingface.co`.
    pub endpoint: String,
    /// The cache: `HF_HUB_CACHE`, or `hub` below `HF_HOME`, `$XDG_CACHE_HOME/huggingface` or
    /// `~/.cache/huggingface`.
    pub cache: PathBuf,
    /// The user's access token, if any.
    pub token: Option<AccessToken>,
    /// Make no requests: `HF_HUB_OFFLINE`.
    pub offline: bool,
    /// Use symbolic links in snapshots: off with `HF_HUB_DISABLE_SYMLINKS`. Snapshots hold the contents anyway if the
    /// system has no links.
    pub links: bool,
    /// Timeout of connecting, and of each read and write: `HF_HUB_DOWNLOAD_TIMEOUT`, in seconds.
    pub read_timeout: Duration,
    /// Wait after the first failure: `REFRAIN_RETRY_WAIT`, in seconds.
    pub initial_backoff: Duration,
}

/// An access token. `Debug` does not print its value.
#[derive(Clone)]
pub struct AccessToken {
    /// The token. It is sent to the hub and to no other host.
    pub value: String,
    /// The variable or file that it came from, for messages.
    pub source: String,
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token from {}", self.source)
    }
}

impl HubSettings {
    /// Reads the environment and the token file.
    ///
    /// # Errors
    /// If a variable's value is invalid, or the token file is unreadable.
    pub fn from_environment() -> Result<Self, Error> {
        let home = env::home_dir();
        let variables = |name: &str| env::var_os(name)?.into_string().ok();
        Self::read(&Environment {
            variables: &variables,
            home: home.as_deref(),
        })
    }

    fn read(environment: &Environment<'_>) -> Result<Self, Error> {
        let home = match environment.path("HF_HOME") {
            Some(home) => home,
            None => match (environment.path("XDG_CACHE_HOME"), environment.home) {
                (Some(cache), _) => cache.join("huggingface"),
                (None, Some(home)) => home.join(".cache/huggingface"),
                (None, None) => {
                    let reason = "no home directory; set HF_HOME to a directory for downloads".to_owned();
                    let setting = "HF_HOME".to_owned();
                    return Err(Error::Setting { setting, reason });
                }
            },
        };
        Ok(Self {
            endpoint: environment.endpoint()?,
            cache: environment
                .path("HF_HUB_CACHE")
                .or_else(|| environment.path("HUGGINGFACE_HUB_CACHE"))
                .unwrap_or_else(|| home.join("hub")),
            token: environment.token(&home)?,
            offline: ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"].map(|name| environment.is_on(name)) != [false; 2],
            links: !environment.is_on("HF_HUB_DISABLE_SYMLINKS"),
            read_timeout: environment.seconds("HF_HUB_DOWNLOAD_TIMEOUT", DEFAULT_READ_TIMEOUT_SECONDS)?,
            initial_backoff: environment.seconds("REFRAIN_RETRY_WAIT", DEFAULT_BACKOFF_SECONDS)?,
        })
    }
}

struct Environment<'a> {
    variables: &'a dyn Fn(&str) -> Option<String>,
    home: Option<&'a Path>,
}

impl Environment<'_> {
    /// Returns a variable's value; an empty one counts as unset.
    fn get(&self, name: &str) -> Option<String> {
        (self.variables)(name).filter(|value| !value.is_empty())
    }

    /// Returns a path, with `~` and variables replaced as `huggingface_hub` does.
    fn path(&self, name: &str) -> Option<PathBuf> {
        let value = self.get(name)?;
        let (home, rest) = match (value.strip_prefix('~'), self.home) {
            (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => (Some(home), rest),
            _ => (None, value.as_str()),
        };
        let rest = self.expand_variables(rest);
        Some(match home {
            Some(home) if rest.is_empty() => home.to_owned(),
            Some(home) => home.join(rest.trim_start_matches('/')),
            None => PathBuf::from(rest),
        })
    }

    /// Replaces `$NAME` and `${NAME}` by the variables' values. Unknown ones stay as they are, as in Python's
    /// `os.path.expandvars`.
    fn expand_variables(&self, text: &str) -> String {
        let mut expanded = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            expanded.push_str(&rest[..at]);
            let after = &rest[at + 1..];
            let (name, length) = match after.strip_prefix('{') {
                Some(braced) => braced.find('}').map_or(("", 0), |end| (&braced[..end], end + 2)),
                None => {
                    let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
                    let end = after.find(is_end).unwrap_or(after.len());
                    (&after[..end], end)
                }
            };
            let value = (self.variables)(name).filter(|_| !name.is_empty());
            expanded.push_str(value.as_deref().unwrap_or(&rest[at..=at + length]));
            rest = &after[length..];
        }
        expanded.push_str(rest);
        expanded
    }

    fn is_on(&self, name: &str) -> bool {
        let value = self.get(name).unwrap_or_default().to_ascii_uppercase();
        ["1", "ON", "YES", "TRUE"].contains(&value.as_str())
    }

    fn seconds(&self, name: &str, default: f64) -> Result<Duration, Error> {
        let Some(value) = self.get(name) else {
            return Ok(Duration::from_secs_f64(default));
        };
        let seconds = value.parse().ok().filter(|seconds| *seconds > 0.0);
        seconds
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .ok_or_else(|| Error::Setting {
                setting: name.to_owned(),
                reason: format!("{value:?} is not a number of seconds"),
            })
    }

    fn endpoint(&self) -> Result<String, Error> {
        let Some(value) = self.get("HF_ENDPOINT") else {
            return Ok("https://huggingface.co".to_owned());
        };
        let address = value.trim_end_matches('/');
        if address.starts_with("https://") || address.starts_with("http://") {
            Ok(address.to_owned())
        } else {
            Err(Error::Setting {
                setting: "HF_ENDPOINT".to_owned(),
                reason: format!("{value:?} is not a URL: it must start with https:// or http://"),
            })
        }
    }

    /// Returns the token from the environment, or from the file of `hf auth login`.
    fn token(&self, home: &Path) -> Result<Option<AccessToken>, Error> {
        let variable = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"]
            .into_iter()
            .find_map(|name| Some((self.get(name)?, name.to_owned())));
        let (text, source) = match variable {
            Some(found) => found,
            None => {
                let path = self.path("HF_TOKEN_PATH").unwrap_or_else(|| home.join("token"));
                match fs::read_to_string(&path) {
                    Ok(text) => (text, path.display().to_string()),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                    Err(error) => return Err(Error::io("read the access token in", &path)(error)),
                }
            }
        };
        let value = text.trim().to_owned();
        if !value.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::Setting {
                setting: source,
                reason: "the access token contains invalid characters".to_owned(),
            });
        }
        Ok((!value.is_empty()).then_some(AccessToken { value, source }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Result<HubSettings, Error> {
        let get = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        HubSettings::read(&Environment {
            variables: &get,
            home: Some(Path::new("/nowhere/me")),
        })
    }

    #[test]
    fn cache_path_matches_huggingface_hub() {
        let cache = |variables: &[(&str, &str)]| settings(variables).unwrap().cache.display().to_string();
        assert_eq!(cache(&[]), "/nowhere/me/.cache/huggingface/hub");
        assert_eq!(cache(&[("XDG_CACHE_HOME", "/x")]), "/x/huggingface/hub");
        assert_eq!(
            cache(&[("XDG_CACHE_HOME", "/x"), ("HF_HOME", "~/h")]),
            "/nowhere/me/h/hub"
        );
        assert_eq!(cache(&[("HF_HOME", "/h"), ("HUGGINGFACE_HUB_CACHE", "/old")]), "/old");
        assert_eq!(
            cache(&[("HUGGINGFACE_HUB_CACHE", "/old"), ("HF_HUB_CACHE", "/c")]),
            "/c"
        );
        assert_eq!(cache(&[("HF_HUB_CACHE", ""), ("HF_HOME", "/h")]), "/h/hub");
    }

    /// The paths are those that huggingface_hub's constants have.
    #[test]
    fn paths_may_hold_variables() {
        let cache = |value: &str| {
            let variables = [("HF_HUB_CACHE", value), ("HOME", "/home/me"), ("A_1", "x")];
            settings(&variables).unwrap().cache.display().to_string()
        };
        assert_eq!(cache("$HOME/models"), "/home/me/models");
        assert_eq!(cache("${HOME}/${A_1}$A_1-y"), "/home/me/xx-y");
        assert_eq!(cache("/data/$NOT_SET/${NEITHER}"), "/data/$NOT_SET/${NEITHER}");
        assert_eq!(cache("/a$/b${/$"), "/a$/b${/$");
        assert_eq!(cache("~/$A_1"), "/nowhere/me/x");
        assert_eq!(cache("~"), "/nowhere/me");
        assert_eq!(cache("~other/x"), "~other/x");
        let home = settings(&[("HF_HOME", "$D/hf"), ("D", "/disk")]).unwrap();
        assert_eq!(home.cache, Path::new("/disk/hf/hub"));
    }

    #[test]
    fn token_comes_from_the_variable_or_the_file() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().to_str().unwrap();
        let token = |variables: &[(&str, &str)]| settings(variables).unwrap().token.map(|token| token.value);
        assert_eq!(token(&[("HF_HOME", home)]), None);
        fs::write(Path::new(home).join("token"), "hf_file\n").unwrap();
        fs::write(Path::new(home).join("other"), " hf_other ").unwrap();
        let other = format!("{home}/other");
        assert_eq!(token(&[("HF_HOME", home)]).unwrap(), "hf_file");
        assert_eq!(
            token(&[("HF_HOME", home), ("HF_TOKEN_PATH", &other)]).unwrap(),
            "hf_other"
        );
        assert_eq!(token(&[("HF_HOME", home), ("HF_TOKEN", "hf_set")]).unwrap(), "hf_set");
        assert!(settings(&[("HF_TOKEN", "two words")]).is_err());
        let shown = format!("{:?}", settings(&[("HF_TOKEN", "hf_secret")]).unwrap());
        assert!(!shown.contains("hf_secret"), "{shown}");
    }

    #[test]
    fn offline_mode_and_timeouts_are_read() {
        assert!(!settings(&[("HF_HUB_OFFLINE", "0")]).unwrap().offline);
        assert!(settings(&[("HF_HUB_OFFLINE", "1")]).unwrap().offline);
        assert!(settings(&[("TRANSFORMERS_OFFLINE", "yes")]).unwrap().offline);
        let read_timeout =
            |value| settings(&[("HF_HUB_DOWNLOAD_TIMEOUT", value)]).map(|settings| settings.read_timeout);
        assert_eq!(read_timeout("0.5").unwrap(), Duration::from_millis(500));
        for nonsense in ["soon", "-1", "0", "nan", "inf", "1e300"] {
            assert!(read_timeout(nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn endpoint_has_no_trailing_slash() {
        let endpoint = |value| settings(&[("HF_ENDPOINT", value)]).map(|settings| settings.endpoint);
        assert_eq!(endpoint("").unwrap(), "https://huggingface.co");
        assert_eq!(endpoint("http://mirror:8080/").unwrap(), "http://mirror:8080");
        assert!(endpoint("mirror").unwrap_err().to_string().contains("https://"));
    }
}
