//! Reads a log line by line, without copying.

use std::io::{ErrorKind, Read};

/// Longest line, in bytes. Records are shorter: longer lines are cut off and their rest is skipped.
const LINE_BYTES_MAX: usize = 4096;
const BUFFER_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct Lines<R> {
    input: R,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    has_ended: bool,
    bytes_read: u64,
    /// True while the rest of a line that is longer than the buffer is skipped.
    is_passing: bool,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(input: R) -> Self {
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        Self { input, buffer, start: 0, end: 0, has_ended: false, bytes_read: 0, is_passing: false }
    }

    /// Returns the bytes read so far: at the end of a log, its length.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// Returns the next line with its newline, if it has one.
    pub(crate) fn next(&mut self) -> std::io::Result<Option<&[u8]>> {
        let mut looked = self.start;
        loop {
            if let Some(newline) = memchr::memchr(b'\n', &self.buffer[looked..self.end]) {
                let line = self.start..looked + newline + 1;
                self.start = line.end;
                looked = line.end;
                if !std::mem::take(&mut self.is_passing) {
                    return Ok(Some(cut_off(&self.buffer[line])));
                }
            } else if self.has_ended {
                let line = self.start..self.end;
                self.start = self.end;
                let is_one = !line.is_empty() && !std::mem::take(&mut self.is_passing);
                return Ok(is_one.then(|| cut_off(&self.buffer[line])));
            } else if self.start == 0 && self.end == self.buffer.len() {
                self.start = self.end;
                if !std::mem::replace(&mut self.is_passing, true) {
                    return Ok(Some(cut_off(&self.buffer)));
                }
            } else {
                self.fill()?;
                looked = 0;
            }
        }
    }

    /// Moves the incomplete line to the front and reads more. Its bytes are searched for a newline
    /// again; it is short.
    fn fill(&mut self) -> std::io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        loop {
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(count) => {
                    self.has_ended = count == 0;
                    self.end += count;
                    self.bytes_read += count as u64;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn cut_off(line: &[u8]) -> &[u8] {
    &line[..line.len().min(LINE_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns its bytes in small pieces.
    struct Drip<'a>(&'a [u8], usize);

    impl Read for Drip<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let count = self.0.len().min(self.1).min(into.len());
            into[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn lengths(text: &[u8], piece: usize) -> Vec<usize> {
        let mut lines = Lines::new(Drip(text, piece));
        let mut lengths = Vec::new();
        while let Some(line) = lines.next().expect("memory is read") {
            lengths.push(line.len());
        }
        lengths
    }

    #[test]
    fn lines_come_whole_however_they_are_read() {
        for piece in [1, 2, 7, 1 << 20] {
            assert_eq!(lengths(b"", piece), [0_usize; 0]);
            assert_eq!(lengths(b"one\n\nthree", piece), [4, 1, 5]);
            assert_eq!(lengths(b"one\ntwo\n", piece), [4, 4]);
        }
    }

    #[test]
    fn a_line_too_long_is_cut_off_and_the_next_one_is_whole() {
        for long in [LINE_BYTES_MAX, BUFFER_BYTES - 5, BUFFER_BYTES, 3 * BUFFER_BYTES + 1] {
            let mut text = b"one\n".to_vec();
            text.extend(vec![b'x'; long]);
            text.extend(b"\nthree\n");
            assert_eq!(lengths(&text, 100_000), [4, LINE_BYTES_MAX, 6], "{long}");
            text.extend(vec![b'x'; long]);
            assert_eq!(lengths(&text, 100_000), [4, LINE_BYTES_MAX, 6, LINE_BYTES_MAX], "{long}");
        }
    }
}
