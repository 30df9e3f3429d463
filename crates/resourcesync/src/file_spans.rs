//! A reader of some spans of a file, one after the other.

use std::io::{self, BufReader, Read, Seek};
use std::ops::Range;
use std::vec::IntoIter;

/// Size of the reads, which is about that of a page.
const SIZE: usize = 8 << 10;

/// A span of a file, by its offsets.
pub(crate) type ByteSpan = Range<u64>;

/// The bytes of some spans, which ascend.
#[derive(Debug)]
pub(crate) struct SpanReader<F: Read + Seek> {
    file: BufReader<F>,
    /// Offset of the next byte.
    offset: u64,
    current: ByteSpan,
    rest: IntoIter<ByteSpan>,
}

impl<F: Read + Seek> SpanReader<F> {
    pub(crate) fn new(mut file: F, spans: Vec<ByteSpan>) -> io::Result<SpanReader<F>> {
        file.rewind()?;
        Ok(SpanReader {
            file: BufReader::with_capacity(SIZE, file),
            offset: 0,
            current: 0..0,
            rest: spans.into_iter(),
        })
    }

    /// Moves on to the span that has the next byte. Returns false after the last.
    fn advance(&mut self) -> io::Result<bool> {
        while self.current.is_empty() {
            let Some(next) = self.rest.next() else {
                return Ok(false);
            };
            self.current = next;
        }
        let distance = self.current.start.wrapping_sub(self.offset).cast_signed();
        if distance != 0 {
            self.file.seek_relative(distance)?;
            self.offset = self.current.start;
        }
        Ok(true)
    }
}

impl<F: Read + Seek> Read for SpanReader<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() || !self.advance()? {
            return Ok(0);
        }
        let left = self.current.end - self.current.start;
        let max = buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = self.file.read(&mut buffer[..max])?;
        let next = self.current.start + read as u64;
        self.offset = next;
        self.current.start = match read {
            // The file ends within the span.
            0 => self.current.end,
            _ => next,
        };
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Read};

    use proptest::prelude::*;

    use super::SpanReader;

    proptest! {
        #[test]
        fn the_bytes_of_the_spans_are_read(
            bytes in prop::collection::vec(any::<u8>(), 0..30_000),
            bounds in prop::collection::btree_set(0_u64..32_000, 0..20),
        ) {
            let bounds: Vec<u64> = bounds.into_iter().collect();
            let spans: Vec<_> = bounds.chunks_exact(2).map(|pair| pair[0]..pair[1]).collect();
            let inside = |at: usize| spans.iter().any(|span| span.contains(&(at as u64)));
            let wanted = bytes.iter().enumerate().filter(|(at, _)| inside(*at));
            let wanted: Vec<u8> = wanted.map(|(_, byte)| *byte).collect();
            let mut read = Vec::new();
            SpanReader::new(Cursor::new(&bytes), spans.clone()).unwrap().read_to_end(&mut read).unwrap();
            prop_assert_eq!(read, wanted);
        }
    }
}
