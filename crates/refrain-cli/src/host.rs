//! Facts from the operating system: this process' memory use, and the directories for caches and state.

use std::env;
use std::fs;
use std::path::PathBuf;

/// Peak resident memory of this process in bytes, mapped files included; `None` if the system does not report it.
pub(crate) fn peak_resident() -> Option<u64> {
    kibibytes(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

/// Private resident memory of this process in bytes, mapped files excluded; `None` if the system does not report it.
pub(crate) fn own_resident() -> Option<u64> {
    kibibytes(&fs::read_to_string("/proc/self/status").ok()?, "RssAnon:")
}

/// The path of a loaded shared library whose file name starts with `name`; `None` if the system does not report it.
pub(crate) fn loaded_library(name: &str) -> Option<String> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let mut paths = maps.lines().filter_map(|line| Some(&line[line.find('/')?..]));
    let found = paths.find(|path| path.rsplit('/').next().is_some_and(|file| file.starts_with(name)));
    found.map(str::to_owned)
}

/// Parses a line such as `VmHWM:   1234 kB` into bytes.
fn kibibytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let number: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(number << 10)
}

/// Directory for compiled shaders: `refrain` in `$XDG_CACHE_HOME`, or in `~/.cache`.
pub(crate) fn cache_dir() -> Option<PathBuf> {
    base_dir("XDG_CACHE_HOME", ".cache")
}

/// Directory for chat histories: `refrain` in `$XDG_STATE_HOME`, or in `~/.local/state`.
pub(crate) fn state_dir() -> Option<PathBuf> {
    base_dir("XDG_STATE_HOME", ".local/state")
}

/// Directory for the records of running servers: `refrain` in `$XDG_RUNTIME_DIR`, or `running` in [`state_dir`].
pub(crate) fn runtime_dir() -> Option<PathBuf> {
    let given = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let below = |path: PathBuf| path.is_absolute().then(|| path.join("refrain"));
    given.and_then(below).or_else(|| Some(state_dir()?.join("running")))
}

/// The program's directory in one of the XDG base directories.
fn base_dir(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    let base = env::var_os(variable)
        .and_then(|path| absolute(path.into()))
        .or_else(|| env::home_dir().and_then(absolute).map(|home| home.join(below_home)))?;
    Some(base.join("refrain"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_proc_lines_into_bytes() {
        let text = "MemTotal:  8000000 kB\nMemAvailable:    4096 kB\n";
        assert_eq!(kibibytes(text, "MemAvailable:"), Some(4 << 20));
        assert_eq!(kibibytes(text, "VmHWM:"), None);
        assert_eq!(kibibytes("VmHWM: much kB", "VmHWM:"), None);
    }
}
