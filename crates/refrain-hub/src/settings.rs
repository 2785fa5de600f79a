//! What the environment says: the variables that `huggingface_hub` reads, with its defaults.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Error;

/// Seconds without a byte after which a connection counts as stalled.
const STALL_SECONDS: f64 = 10.0;
/// Seconds to wait after the first failure; each further one doubles it.
const FIRST_WAIT_SECONDS: f64 = 1.0;

/// Where the hub and its cache are, and how patient to be.
#[derive(Debug, Clone)]
pub struct HubSettings {
    /// The hub's address without a slash at its end: `HF_ENDPOINT`, or `https://huggingface.co`.
    pub endpoint: String,
    /// The cache: `HF_HUB_CACHE`, or `hub` below `HF_HOME`, `$XDG_CACHE_HOME/huggingface` or
    /// `~/.cache/huggingface`.
    pub cache: PathBuf,
    /// The user's access token, if there is one.
    pub token: Option<AccessToken>,
    /// Make no request at all: `HF_HUB_OFFLINE`.
    pub offline: bool,
    /// Let snapshots link to contents instead of holding them: unless `HF_HUB_DISABLE_SYMLINKS`. Where the
    /// system has no links, snapshots hold contents in any case.
    pub links: bool,
    /// How long a connection may be silent: `HF_HUB_DOWNLOAD_TIMEOUT`, in seconds.
    pub stall: Duration,
    /// How long to wait before the second attempt: `REFRAIN_RETRY_WAIT`, in seconds.
    pub first_wait: Duration,
}

/// An access token. Its `Debug` form does not show it.
#[derive(Clone)]
pub struct AccessToken {
    /// What is sent to the hub, and to no other host.
    pub value: String,
    /// The variable or file that it was read from, for messages.
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
    /// If a variable's value cannot be meant, or the token file is unreadable.
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
                    let reason = "there is no home directory; set HF_HOME to a directory for downloads".to_owned();
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
            stall: environment.seconds("HF_HUB_DOWNLOAD_TIMEOUT", STALL_SECONDS)?,
            first_wait: environment.seconds("REFRAIN_RETRY_WAIT", FIRST_WAIT_SECONDS)?,
        })
    }
}

struct Environment<'a> {
    variables: &'a dyn Fn(&str) -> Option<String>,
    home: Option<&'a Path>,
}

impl Environment<'_> {
    /// A variable's value; an empty one counts as not set.
    fn get(&self, name: &str) -> Option<String> {
        (self.variables)(name).filter(|value| !value.is_empty())
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        let value = self.get(name)?;
        match (value.strip_prefix('~'), self.home) {
            (Some(""), Some(home)) => Some(home.to_owned()),
            (Some(rest), Some(home)) if rest.starts_with('/') => Some(home.join(&rest[1..])),
            _ => Some(PathBuf::from(value)),
        }
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
                reason: format!("{value:?} is no number of seconds"),
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
                reason: format!("{value:?} is no address; it must begin with https:// or http://"),
            })
        }
    }

    /// The token that the user set, or that `hf auth login` left.
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
        match value.bytes().all(|byte| byte.is_ascii_graphic()) {
            true if value.is_empty() => Ok(None),
            true => Ok(Some(AccessToken { value, source })),
            false => Err(Error::Setting {
                setting: source,
                reason: "the access token contains characters that no token has".to_owned(),
            }),
        }
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
    fn the_cache_is_where_huggingface_hub_looks_for_it() {
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

    #[test]
    fn the_token_comes_from_the_variable_else_from_the_file() {
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
    fn offline_mode_and_waiting_times_are_read() {
        assert!(!settings(&[("HF_HUB_OFFLINE", "0")]).unwrap().offline);
        assert!(settings(&[("HF_HUB_OFFLINE", "1")]).unwrap().offline);
        assert!(settings(&[("TRANSFORMERS_OFFLINE", "yes")]).unwrap().offline);
        let stall = |value| settings(&[("HF_HUB_DOWNLOAD_TIMEOUT", value)]).map(|settings| settings.stall);
        assert_eq!(stall("0.5").unwrap(), Duration::from_millis(500));
        for nonsense in ["soon", "-1", "0", "nan", "inf", "1e300"] {
            assert!(stall(nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn the_endpoint_is_an_address_without_a_slash_at_its_end() {
        let endpoint = |value| settings(&[("HF_ENDPOINT", value)]).map(|settings| settings.endpoint);
        assert_eq!(endpoint("").unwrap(), "https://huggingface.co");
        assert_eq!(endpoint("http://mirror:8080/").unwrap(), "http://mirror:8080");
        assert!(endpoint("mirror").unwrap_err().to_string().contains("https://"));
    }
}
