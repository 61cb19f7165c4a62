//! Lines that wait to be written to the file.
//!
//! A write may take only part of the bytes or none (disk full). The backlog keeps the rest and
//! never tears a line: within one file it continues at the exact byte, in a new file it repeats the
//! line from its start.

use std::io::{ErrorKind, Write};

/// With this many bytes the backlog takes no more records from the rings.
const BACKLOG_BYTES_MAX: usize = 1 << 20;

/// Whole lines; the bytes before `sent` are written, of the first line perhaps only a part.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    bytes: Vec<u8>,
    sent: usize,
}

impl Backlog {
    pub(crate) fn has_room(&self) -> bool {
        self.bytes.len() < BACKLOG_BYTES_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the buffer to which the next line is to be appended, with its newline.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Returns the number of lines that are not written completely.
    pub(crate) fn lines(&self) -> u64 {
        newlines(&self.bytes)
    }

    /// Writes all lines. Returns how many were completed, and why the rest was not written.
    pub(crate) fn write_to(&mut self, file: &mut impl Write) -> (u64, std::io::Result<()>) {
        let result = loop {
            if self.sent == self.bytes.len() {
                break Ok(());
            }
            match file.write(&self.bytes[self.sent..]) {
                Ok(0) => break Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        let written = &self.bytes[..self.sent];
        let lines = newlines(written);
        let whole =
            written.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        self.bytes.drain(..whole);
        self.sent -= whole;
        (lines, result)
    }

    /// Repeats a line of which the old file has a part, for a new file.
    pub(crate) fn begin_line_again(&mut self) {
        self.sent = 0;
    }
}

fn newlines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes `room` bytes, three at a time, then fails.
    struct Disk {
        room: usize,
        content: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let count = bytes.len().min(3).min(self.room);
            if count == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            self.room -= count;
            self.content.extend(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_tears_no_line() {
        for room in 0..18 {
            let mut backlog = Backlog::default();
            backlog.bytes().extend(b"first\nsecond\nthird\n");
            let mut disk = Disk { room, content: Vec::new() };
            let (before, result) = backlog.write_to(&mut disk);
            assert!(result.is_err());
            disk.room = 100;
            let (after, result) = backlog.write_to(&mut disk);
            assert!(result.is_ok() && backlog.is_empty());
            assert_eq!(
                (before + after, disk.content.as_slice()),
                (3, &b"first\nsecond\nthird\n"[..])
            );
        }
    }

    #[test]
    fn a_new_file_begins_with_a_whole_line() {
        let mut backlog = Backlog::default();
        backlog.bytes().extend(b"first\nsecond\n");
        let mut full = Disk { room: 8, content: Vec::new() };
        assert_eq!(backlog.write_to(&mut full).0, 1);
        assert_eq!((full.content.as_slice(), backlog.lines()), (&b"first\nse"[..], 1));
        backlog.begin_line_again();
        let mut new = Disk { room: 100, content: Vec::new() };
        assert_eq!(backlog.write_to(&mut new).0, 1);
        assert_eq!(new.content, b"second\n");
    }
}
