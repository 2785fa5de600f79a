//! What only some systems have, each with what the others do instead.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;

/// Has the operating system drop the pages of a range of a mapped file; they are read again when touched. A
/// hint: failure is ignored, and other systems drop pages when they must.
pub(crate) fn drop_pages(map: &Mmap, range: Range<usize>) {
    #[cfg(unix)]
    // SAFETY: mappings are made in `mmap.rs` alone, of files, and never written to, so dropped pages come back
    // with the same contents, and references into them stay valid.
    let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, range.len()) };
    #[cfg(not(unix))]
    let _ = (map, range);
}

/// Gives a directory the permissions that new ones get (before the user's mask), where private ones differ.
pub(crate) fn make_public(builder: &mut tempfile::Builder<'_, '_>) {
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
    #[cfg(not(unix))]
    let _ = builder;
}

/// Opens a directory as something that can be locked, where the system has such.
pub(crate) fn lockable_directory(path: &Path) -> io::Result<File> {
    #[cfg(unix)]
    return File::open(path);
    #[cfg(not(unix))]
    Err(io::Error::new(io::ErrorKind::Unsupported, path.display().to_string()))
}

/// Gives two existing paths of one file system each other's contents, at once; fails where the system cannot.
pub(crate) fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use std::ffi::CString;
        use std::os::unix::ffi::OsStrExt;

        let [one, other] = [one, other].map(|path| CString::new(path.as_os_str().as_bytes()));
        let (one, other) = (one?, other?);
        // SAFETY: both are strings that end in a zero, and outlive the call, which keeps neither.
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

/// Ends the program at once: nothing that libraries have registered for its end is run, as is needed where other threads
/// are still using them.
pub fn end_at_once(code: u8) -> ! {
    #[cfg(unix)]
    // SAFETY: the call takes a number and does not return.
    unsafe {
        libc::_exit(code.into())
    }
    #[cfg(not(unix))]
    std::process::exit(code.into())
}

/// Asks a process to end, as pressing Ctrl-C there would, if the system knows such a wish.
///
/// # Errors
/// If there is no such process, it is somebody else's, or the system has no such wish.
pub fn ask_to_end(process: u32) -> io::Result<()> {
    #[cfg(unix)]
    {
        let process = process.try_into().map_err(io::Error::other)?;
        // SAFETY: the call takes two numbers.
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

/// Lets the program hold as many files and connections open as the system's administrator allows, where it would have to
/// ask for that many. For programs to call that serve others.
pub fn allow_open_files() {
    #[cfg(unix)]
    {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: both calls get the address of a limit that outlives them. Where the system refuses, the limit stays.
        unsafe {
            if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
                limit.rlim_cur = limit.rlim_max;
                libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
            }
        }
    }
}

#[cfg(unix)]
pub use cut_short::say_when_files_are_cut_short;
#[cfg(unix)]
pub(crate) use cut_short::{Watched, watch};

/// Has the program end with a message, not by a signal, when a checkpoint's file turns out to have been cut short by
/// somebody else while it is read. For programs to call once, before they open any; elsewhere than on Unix, a file
/// that is open in this way cannot be cut short.
#[cfg(not(unix))]
pub fn say_when_files_are_cut_short() {}

/// What [`watch`] gives where there is nothing to watch.
#[cfg(not(unix))]
#[derive(Debug)]
pub(crate) struct Watched;

/// Notes that a file is mapped.
#[cfg(not(unix))]
pub(crate) fn watch(_: &Mmap, _: &Path) -> Watched {
    Watched
}

/// The signal that the system sends for pages which their file no longer has.
#[cfg(unix)]
mod cut_short {
    use std::path::Path;
    use std::ptr;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

    use memmap2::Mmap;

    /// A mapped file, as the signal's handler can read it: without locks, without allocating.
    struct WatchedRange {
        /// 0: the slot is free; 1: it is being filled.
        start: AtomicUsize,
        end: AtomicUsize,
        /// What is to be said, and its length; never freed.
        message: AtomicPtr<u8>,
        length: AtomicUsize,
    }

    /// Files that are watched at the same time; more are not.
    static SLOTS: [WatchedRange; 256] = [const {
        WatchedRange {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            message: AtomicPtr::new(ptr::null_mut()),
            length: AtomicUsize::new(0),
        }
    }; 256];

    /// What was done with the signal before.
    static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

    /// A file is watched as long as this lives.
    #[derive(Debug)]
    pub(crate) struct Watched(Option<usize>);

    impl Drop for Watched {
        fn drop(&mut self) {
            if let Some(index) = self.0 {
                SLOTS[index].start.store(0, Ordering::Release);
            }
        }
    }

    /// Notes that a file is mapped.
    pub(crate) fn watch(map: &Mmap, path: &Path) -> Watched {
        if BEFORE.get().is_none() {
            return Watched(None);
        }
        let free = SLOTS.iter().position(|slot| {
            let taken = slot.start.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
            taken.is_ok()
        });
        if let Some(slot) = free.map(|index| &SLOTS[index]) {
            let text = format!(
                "\nerror: cannot read {}: it was cut short while it was being read\n",
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

    /// Has the program end with a message, not by a signal, when a checkpoint's file turns out to have been cut
    /// short by somebody else while it is read. For programs to call once, before they open any.
    pub fn say_when_files_are_cut_short() {
        BEFORE.get_or_init(|| {
            // SAFETY: `sigaction` is a structure of numbers and addresses, for which zeros are valid.
            let [mut ours, mut before]: [libc::sigaction; 2] = unsafe { std::mem::zeroed() };
            ours.sa_sigaction = on_signal as extern "C" fn(_, _, _) as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            // SAFETY: the handler does only what handlers may, and both structures outlive the call.
            unsafe { libc::sigaction(libc::SIGBUS, &ours, &mut before) };
            before
        });
    }

    extern "C" fn on_signal(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the system gives handlers of this kind a whole `siginfo_t`.
        let address = unsafe { (*info).si_addr() } as usize;
        for slot in &SLOTS {
            let start = slot.start.load(Ordering::Acquire);
            if start > 1 && (start..slot.end.load(Ordering::Relaxed)).contains(&address) {
                let (message, length) = (
                    slot.message.load(Ordering::Relaxed),
                    slot.length.load(Ordering::Relaxed),
                );
                // SAFETY: both calls are allowed in handlers; the message was leaked, so that it is still there.
                unsafe {
                    libc::write(libc::STDERR_FILENO, message.cast_const().cast(), length);
                    libc::_exit(1);
                }
            }
        }
        if let Some(before) = BEFORE.get() {
            // SAFETY: this is what the system gave. Whatever went wrong happens again, and goes to whom it did before.
            unsafe { libc::sigaction(libc::SIGBUS, before, ptr::null_mut()) };
        }
    }
}
