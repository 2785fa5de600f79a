//! Atomic writes to links and devices.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;

use refrain_formats::AtomicFile;

#[test]
fn writes_through_links_and_devices_without_replacing_them() {
    let full = Path::new("/dev/full");
    let error = AtomicFile::write(full, b"a").unwrap_err().to_string();
    assert!(
        error.contains("cannot write /dev/full: No space left on device"),
        "{error}"
    );
    assert!(fs::metadata(full).unwrap().file_type().is_char_device());
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link");
    symlink("/dev/null", &link).unwrap();
    AtomicFile::write(&link, b"a").unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let file = folder.path().join("file");
    fs::write(&file, b"old").unwrap();
    fs::remove_file(&link).unwrap();
    symlink("file", &link).unwrap();
    AtomicFile::write(&link, b"new").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"new");
}
