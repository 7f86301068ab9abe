//! Memory of another process, read by a system call: the slow way, for what can't be mapped.

use std::io;

/// A number in another process's memory.
#[derive(Debug, Clone, Copy)]
pub struct Remote {
    pid: u32,
    address: u64,
    width: usize,
}

impl Remote {
    /// `width` bytes (1, 2, 4 or 8) at `address` of process `pid`; read once, to see that it can be.
    pub fn open(pid: u32, address: u64, width: usize) -> io::Result<Self> {
        if !matches!(width, 1 | 2 | 4 | 8) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a number has 1, 2, 4 or 8 bytes",
            ));
        }
        let remote = Self {
            pid,
            address,
            width,
        };
        remote.read()?;
        Ok(remote)
    }

    /// The number now: about half a microsecond. Only whole if it is aligned to its width.
    pub fn read(&self) -> io::Result<u64> {
        let mut bytes = [0u8; 8];
        read(self.pid, self.address, &mut bytes[..self.width])?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// All ones in as many bits as it has.
    #[must_use]
    pub fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.width * 8)
    }
}

/// Fills `into` from another process's memory.
///
/// # Errors
/// The process is gone or may not be read, or not all of these bytes are mapped.
pub fn read(pid: u32, address: u64, into: &mut [u8]) -> io::Result<()> {
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: into.len(),
    };
    // SAFETY: `into` is ours alone while the call lasts; the other address is looked up in the other
    // process, and is an error if it has none.
    let done = unsafe {
        libc::process_vm_readv(
            pid as libc::pid_t,
            &raw const local,
            1,
            &raw const remote,
            1,
            0,
        )
    };
    match done {
        n if n < 0 => Err(io::Error::last_os_error()),
        n if n as usize == into.len() => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_memory_is_read_like_any_others() {
        let there = 0x1122_3344_5566_7788_u64;
        let at = std::ptr::from_ref(&there) as u64;
        let pid = std::process::id();
        assert_eq!(
            Remote::open(pid, at, 8).expect("ours").read().ok(),
            Some(there)
        );
        assert_eq!(
            Remote::open(pid, at, 2).expect("ours").read().ok(),
            Some(0x7788)
        );
    }

    #[test]
    fn what_is_not_mapped_is_an_error() {
        assert!(Remote::open(std::process::id(), 8, 8).is_err());
        assert!(Remote::open(u32::MAX >> 1, 4096, 8).is_err());
    }
}
