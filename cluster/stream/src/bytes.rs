//! Big-endian fields, read and written in turn. A reader returns None at the end of its bytes; a
//! writer gets enough room.

#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteReader<'a>(pub(crate) &'a [u8]);

impl<'a> ByteReader<'a> {
    #[inline(always)]
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    #[inline(always)]
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    #[inline(always)]
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline(always)]
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    #[inline(always)]
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_be_bytes)
    }

    /// Returns the next field of type, length and value; the reader of the value ends with it. None
    /// at the end, and if the length reaches beyond the end.
    #[inline(always)]
    pub(crate) fn field(&mut self) -> Option<(u8, ByteReader<'a>)> {
        let [kind, length] = self.array()?;
        Some((kind, ByteReader(self.take(usize::from(length))?)))
    }
}

/// Writes from the start of a buffer on.
///
/// # Panics
/// Every write panics if the buffer is too short: the caller provides the length.
#[derive(Debug)]
pub(crate) struct ByteWriter<'a> {
    buffer: &'a mut [u8],
    length: usize,
}

impl<'a> ByteWriter<'a> {
    pub(crate) fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, length: 0 }
    }

    #[inline(always)]
    pub(crate) fn put(&mut self, bytes: &[u8]) -> &mut Self {
        self.buffer[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
        self
    }

    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.put(&[value])
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.put(&value.to_be_bytes())
    }

    #[inline(always)]
    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.put(&value.to_be_bytes())
    }

    #[inline(always)]
    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.put(&value.to_be_bytes())
    }

    pub(crate) fn u128(&mut self, value: u128) -> &mut Self {
        self.put(&value.to_be_bytes())
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }
}
