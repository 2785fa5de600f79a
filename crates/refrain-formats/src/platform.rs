//! Operating system features that not every system has, with fallbacks.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;

/// Drops the pages of a range of a mapped file; they are read again on access. Ignores failures, since this is only a
/// hint. No effect on other systems.
pub(crate) fn drop_pages(map: &Mmap, range: Range<usize>) {
    #[cfg(unix)]
    // SAFETY: only `mmap.rs` creates mappings, of files that are never written to. Dropped pages come back with the
    // same contents, so references stay valid.
    let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, range.len()) };
    #[cfg(not(unix))]
    let _ = (map, range);
}

/// Gives a temporary directory the default permissions of new directories (before the umask) instead of private ones.
pub(crate) fn make_public(builder: &mut tempfile::Builder<'_, '_>) {
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
    #[cfg(not(unix))]
    let _ = builder;
}

/// Makes a directory, and those above it, that only this user may use. An existing one stays as it is.
///
/// # Errors
/// If it cannot be made.
pub fn make_private_directory(directory: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(directory)
}

/// Opens a file for writing. If it is created, only this user may read it.
///
/// # Errors
/// If it cannot be opened.
pub fn private_file(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options.write(true).open(path)
}

/// Whether only this user may use a file or directory; true where files have no modes.
pub fn is_private(path: &Path) -> bool {
    #[cfg(unix)]
    return path.metadata().is_ok_and(|file| {
        let mode = std::os::unix::fs::PermissionsExt::mode(&file.permissions());
        mode & 0o077 == 0
    });
    #[cfg(not(unix))]
    path.exists()
}

/// Opens a directory so that it can be locked, where the system supports that.
pub(crate) fn lockable_directory(path: &Path) -> io::Result<File> {
    #[cfg(unix)]
    return File::open(path);
    #[cfg(not(unix))]
    Err(io::Error::new(io::ErrorKind::Unsupported, path.display().to_string()))
}

/// Atomically swaps two paths of one file system. Returns an error if the system cannot.
pub(crate) fn swap_paths(one: &Path, other: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use std::ffi::CString;
        use std::os::unix::ffi::OsStrExt;

        let [one, other] = [one, other].map(|path| CString::new(path.as_os_str().as_bytes()));
        let (one, other) = (one?, other?);
        // SAFETY: both strings are null-terminated and outlive the call, which keeps neither.
        let failed = unsafe {
            libc::syscall(
                libc::SYS_renameat2,
                libc::AT_FDCWD,
                one.as_ptr(),
                libc::AT_FDCWD,
                other.as_ptr(),
                libc::RENAME_EXCHANGE,
            )
        };
        match failed {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (one, other);
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }
}

/// Returns free memory of the C library's allocator to the system. Other allocators do so by themselves.
pub fn return_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the function may be called at any time, from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Sets the C library's allocator up for a server, in the whole process. Call it before threads are started.
///
/// Buffers of 1 MiB and more return to the system as soon as they are freed. By default it keeps buffers of up to 32 MiB
/// once one of them was freed, with small ones among them that pin them: a server that had refused bodies of 15 MB kept
/// 50 to 230 MB more, and 2 MB with this.
///
/// Small blocks are merged as soon as they are freed, and each thread has a heap of its own. By default small blocks are
/// kept apart until [`return_free_memory`], which then held a heap for up to 162 ms, and any thread that shared it. With
/// this it takes up to 31 ms.
pub fn tune_allocator_for_servers() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the function may be called at any time, from any thread.
    unsafe {
        // By default eight heaps for each core. More threads share them.
        const MAX_HEAPS: i32 = 64;
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
        libc::mallopt(libc::M_MXFAST, 0);
        libc::mallopt(libc::M_ARENA_MAX, MAX_HEAPS);
    }
}

/// Exits immediately without running exit handlers. Libraries' handlers are unsafe while other threads still use the
/// libraries.
pub fn exit_immediately(code: u8) -> ! {
    #[cfg(unix)]
    // SAFETY: `_exit` takes a number and does not return.
    unsafe {
        libc::_exit(code.into())
    }
    #[cfg(not(unix))]
    std::process::exit(code.into())
}

/// Asks a process to terminate (SIGTERM), like Ctrl-C there.
///
/// # Errors
/// If there is no such process, it belongs to another user, or the system has no such signal.
pub fn terminate_process(process: u32) -> io::Result<()> {
    #[cfg(unix)]
    {
        let process = process.try_into().map_err(io::Error::other)?;
        // SAFETY: `kill` takes two numbers.
        match unsafe { libc::kill(process, libc::SIGTERM) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
    #[cfg(not(unix))]
    {
        let _ = process;
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }
}

/// Makes a command run in a process group of its own, so that Ctrl-C on the terminal does not reach it. Does nothing
/// on systems without process groups.
pub fn separate_process_group(command: &mut std::process::Command) {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    #[cfg(not(unix))]
    let _ = command;
}

/// Raises the limit on open files to the hard limit. For servers.
pub fn raise_open_file_limit() {
    #[cfg(unix)]
    {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: both calls get the address of a struct that outlives them. On failure the limit stays.
        unsafe {
            if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
                limit.rlim_cur = limit.rlim_max;
                libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
            }
        }
    }
}

#[cfg(unix)]
pub use truncation::report_truncated_files;
#[cfg(unix)]
pub(crate) use truncation::{Watched, watch};

/// Reports a truncated checkpoint file as an error message instead of a crash by signal. Programs call this once,
/// before they open files. Has no effect outside Unix, where open files cannot be truncated.
#[cfg(not(unix))]
pub fn report_truncated_files() {}

/// Result of [`watch`] on systems without this check.
#[cfg(not(unix))]
#[derive(Debug)]
pub(crate) struct Watched;

/// Registers a mapped file.
#[cfg(not(unix))]
pub(crate) fn watch(_: &Mmap, _: &Path) -> Watched {
    Watched
}

/// Handles SIGBUS, which the system sends on access to pages beyond the end of a truncated file.
#[cfg(unix)]
mod truncation {
    use std::path::Path;
    use std::ptr;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

    use memmap2::Mmap;

    /// A mapped file, readable by the signal handler without locks or allocation.
    struct WatchedRange {
        /// 0: the slot is free; 1: it is being filled; else the start address.
        start: AtomicUsize,
        end: AtomicUsize,
        /// The error message and its length; never freed.
        message: AtomicPtr<u8>,
        length: AtomicUsize,
    }

    /// The watched files. Files beyond this number are not watched.
    static WATCHED: [WatchedRange; 256] = [const {
        WatchedRange {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            message: AtomicPtr::new(ptr::null_mut()),
            length: AtomicUsize::new(0),
        }
    }; 256];

    /// The signal's previous action.
    static PREVIOUS_ACTION: OnceLock<libc::sigaction> = OnceLock::new();

    /// Keeps a file watched until dropped.
    #[derive(Debug)]
    pub(crate) struct Watched(Option<usize>);

    impl Drop for Watched {
        fn drop(&mut self) {
            if let Some(index) = self.0 {
                WATCHED[index].start.store(0, Ordering::Release);
            }
        }
    }

    /// Registers a mapped file.
    pub(crate) fn watch(map: &Mmap, path: &Path) -> Watched {
        if PREVIOUS_ACTION.get().is_none() {
            return Watched(None);
        }
        let free = WATCHED.iter().position(|slot| {
            let taken = slot.start.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
            taken.is_ok()
        });
        if let Some(slot) = free.map(|index| &WATCHED[index]) {
            let text = format!(
                "\nerror: cannot read {}: it was truncated while it was being read\n",
                path.display().to_string().escape_debug()
            );
            let text: &'static mut str = text.leak();
            slot.end.store(map.as_ptr() as usize + map.len(), Ordering::Relaxed);
            slot.message.store(text.as_mut_ptr(), Ordering::Relaxed);
            slot.length.store(text.len(), Ordering::Relaxed);
            slot.start.store(map.as_ptr() as usize, Ordering::Release);
        }
        Watched(free)
    }

    /// Reports a truncated checkpoint file as an error message instead of a crash by signal. Programs call this once,
    /// before they open files.
    pub fn report_truncated_files() {
        PREVIOUS_ACTION.get_or_init(|| {
            // SAFETY: `sigaction` is a struct of numbers and addresses, for which zeros are valid.
            let [mut ours, mut before]: [libc::sigaction; 2] = unsafe { std::mem::zeroed() };
            ours.sa_sigaction = on_signal as extern "C" fn(_, _, _) as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            // SAFETY: the handler only makes async-signal-safe calls, and both structs outlive the call.
            unsafe { libc::sigaction(libc::SIGBUS, &ours, &mut before) };
            before
        });
    }

    extern "C" fn on_signal(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the system passes a valid `siginfo_t` to `SA_SIGINFO` handlers.
        let address = unsafe { (*info).si_addr() } as usize;
        for slot in &WATCHED {
            let start = slot.start.load(Ordering::Acquire);
            if start > 1 && (start..slot.end.load(Ordering::Relaxed)).contains(&address) {
                let (message, length) = (
                    slot.message.load(Ordering::Relaxed),
                    slot.length.load(Ordering::Relaxed),
                );
                // SAFETY: both calls are async-signal-safe; the message was leaked, so it is still valid.
                unsafe {
                    libc::write(libc::STDERR_FILENO, message.cast_const().cast(), length);
                    libc::_exit(1);
                }
            }
        }
        if let Some(before) = PREVIOUS_ACTION.get() {
            // SAFETY: this restores the previous action. The faulting access then repeats under it.
            unsafe { libc::sigaction(libc::SIGBUS, before, ptr::null_mut()) };
        }
    }
}
