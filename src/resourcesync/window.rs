//! A window that slides over a file: whatever its encoding and line ends, what is seen through it is
//! UTF-8 with LF line ends, free of the characters that XML forbids (XML 1.0 sections 2.2, 2.11, 4.3.3),
//! and memory stays bounded.

use std::io::{self, Read};

use encoding_rs::{DecoderResult, Encoding, UTF_8};

use crate::resourcesync::characters::{
    first_forbidden, forbidden, is_space, newlines, unify_line_ends,
};
use crate::resourcesync::document::Malformed;
use crate::resourcesync::encoding::{Detected, detect};

/// What is read at first: enough for the root of most files that are none of ours.
const FIRST_SIZE: usize = 8 << 10;
/// What may be read before the root's start tag is known (R2).
const PROLOG_LIMIT: usize = 64 << 10;
/// What is read at a time of a document: it fits the processor's cache.
const SIZE: usize = 128 << 10;
/// The longest tag, comment or other markup that is accepted.
const LONGEST_MARKUP: usize = 4 << 20;

/// The byte order marks of UTF-8 and UTF-16.
const MARKS: [&[u8]; 3] = [b"\xef\xbb\xbf", b"\xfe\xff", b"\xff\xfe"];

/// The file from the first byte that is not yet taken.
pub(crate) struct Window<R> {
    source: R,
    /// `start..valid` is text, `valid..filled` are bytes that are not yet known to be.
    buffer: Vec<u8>,
    start: usize,
    valid: usize,
    filled: usize,
    /// Of a file that is not UTF-8: its decoder, and the bytes read but not yet decoded.
    decoder: Option<(encoding_rs::Decoder, Vec<u8>)>,
    /// The name of the declared encoding, if it is unknown.
    unknown_encoding: Option<String>,
    has_begun: bool,
    is_at_end: bool,
    /// How much was read.
    size: u64,
    /// How much may still be read.
    budget: usize,
    /// Whether the last character was a CR, so that a LF belongs to it.
    after_cr: bool,
    newlines_taken: u64,
    /// Characters that were taken of the line at the start.
    column_taken: u64,
    fault: Option<Fault>,
}

/// Why there is no text after the window's end, although the file does not end there.
enum Fault {
    Character(char),
    Encoding(&'static Encoding),
    Cut,
    TooLong,
}

impl<R: Read> Window<R> {
    pub(crate) fn new(source: R) -> Window<R> {
        Window {
            source,
            buffer: vec![0; FIRST_SIZE],
            start: 0,
            valid: 0,
            filled: 0,
            decoder: None,
            unknown_encoding: None,
            has_begun: false,
            is_at_end: false,
            size: 0,
            budget: PROLOG_LIMIT,
            after_cr: false,
            newlines_taken: 0,
            column_taken: 0,
            fault: None,
        }
    }

    /// The text that was read and not yet taken.
    pub(crate) fn text(&self) -> &str {
        // It is validated anew because `buffer` also holds what is not yet text; that costs next to nothing.
        std::str::from_utf8(&self.buffer[self.start..self.valid]).unwrap_or_default()
    }

    /// Takes the first `length` bytes away.
    pub(crate) fn take(&mut self, length: usize) {
        let taken = &self.buffer[self.start..self.start + length];
        self.newlines_taken += newlines(taken);
        self.column_taken = column(self.column_taken, taken);
        self.start += length;
    }

    /// What is wrong at `offset`.
    #[cold]
    pub(crate) fn flaw(&self, offset: usize, message: String) -> Malformed {
        let text = &self.buffer[self.start..self.valid];
        let before = &text[..offset.min(text.len())];
        Malformed::Syntax {
            line: self.line(offset),
            column: 1 + column(self.column_taken, before),
            message,
        }
    }

    /// The line of the byte at `offset`.
    pub(crate) fn line(&self, offset: usize) -> u64 {
        let text = &self.buffer[self.start..self.valid];
        1 + self.newlines_taken + newlines(&text[..offset.min(text.len())])
    }

    /// Lifts the limit that holds until the root's start tag is known.
    pub(crate) fn lift_limit(&mut self) {
        self.budget = usize::MAX;
    }

    /// How many bytes were read.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Whether the limit before the root's start tag is what keeps the window from growing.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.budget == 0 && !self.is_at_end && self.fault.is_none()
    }

    /// Whether all that there is of the file is white space and NULs, which is what a crash leaves of a
    /// file whose blocks were allocated, or the beginning of a byte order mark.
    pub(crate) fn is_blank(&self) -> bool {
        let is_closed = self.is_at_end || self.fault.is_some();
        let bytes = &self.buffer[self.start..self.filled];
        let is_cut_mark = MARKS.iter().any(|mark| mark.starts_with(bytes));
        let is_nothing = bytes.iter().all(|&byte| byte == 0 || is_space(byte));
        is_closed && (is_nothing || is_cut_mark)
    }

    /// Whether there is nothing to read.
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.filled
    }

    /// The first byte that is not white space, whether it is text or not.
    pub(crate) fn first_byte(&self) -> Option<u8> {
        self.buffer[self.start..self.filled]
            .iter()
            .copied()
            .find(|&byte| !is_space(byte))
    }

    /// The declared encoding, if it is unknown; the text is then decoded as far as ASCII goes.
    pub(crate) fn unknown_encoding(&self) -> Option<&str> {
        self.unknown_encoding.as_deref()
    }

    /// Why the text ends where it does, although the file goes on.
    pub(crate) fn fault(&self) -> Option<Malformed> {
        let line = self.line(usize::MAX);
        let message = match self.fault.as_ref()? {
            Fault::Cut => return Some(Malformed::Truncated { line }),
            Fault::Encoding(encoding) => {
                let encoding = encoding.name().to_owned();
                return Some(Malformed::Encoding { line, encoding });
            }
            Fault::Character(character) => forbidden(*character),
            Fault::TooLong => format!("markup longer than {LONGEST_MARKUP} bytes"),
        };
        Some(self.flaw(usize::MAX, message))
    }

    /// Reads on. Whether there is more text than before.
    pub(crate) fn grow(&mut self) -> io::Result<bool> {
        if self.is_at_end {
            // Most documents are small: the room to read on would be their greatest cost.
            return Ok(false);
        }
        self.make_room();
        let before = self.valid;
        while self.valid == before && self.fault.is_none() && !self.is_at_end && self.budget > 0 {
            if self.decoder.is_some() {
                self.transcode()?;
            } else {
                self.fill()?;
                if !self.has_begun {
                    self.begin();
                }
                if self.decoder.is_none() {
                    self.validate();
                }
            }
        }
        Ok(self.valid > before)
    }

    /// Moves what was not yet taken to the buffer's start, and enlarges a buffer that it half fills.
    fn make_room(&mut self) {
        self.buffer.copy_within(self.start..self.filled, 0);
        self.valid -= self.start;
        self.filled -= self.start;
        self.start = 0;
        if self.budget > PROLOG_LIMIT && self.buffer.len() < SIZE {
            // In steps: most documents are small, and room that is never used costs too.
            self.buffer.resize((self.buffer.len() * 4).min(SIZE), 0);
        }
        if self.filled > self.buffer.len() / 2 {
            if self.filled >= LONGEST_MARKUP {
                self.fault.get_or_insert(Fault::TooLong);
            } else {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let room = &mut self.buffer[self.filled..];
        let (read, is_at_end) = read_full(&mut self.source, room, self.budget)?;
        self.budget -= read;
        self.size += read as u64;
        self.filled += read;
        self.is_at_end = is_at_end;
        Ok(())
    }

    /// Decides on the encoding.
    fn begin(&mut self) {
        self.has_begun = true;
        let Detected {
            encoding,
            mark,
            unknown,
        } = detect(&self.buffer[..self.filled]);
        self.unknown_encoding = unknown;
        if encoding == UTF_8 {
            self.start = mark;
            self.valid = mark;
        } else {
            let decoder = encoding.new_decoder_without_bom_handling();
            let undecoded = self.buffer[mark..self.filled].to_vec();
            self.decoder = Some((decoder, undecoded));
            self.filled = 0;
            if let Some((_, undecoded)) = &self.decoder {
                let room = undecoded.len() * 4;
                self.buffer.resize(room.max(FIRST_SIZE), 0);
            }
            self.decode();
        }
    }

    /// Accepts what was read of a file in UTF-8, but for a character that is not complete.
    fn validate(&mut self) {
        let (length, fault) = match std::str::from_utf8(&self.buffer[self.valid..self.filled]) {
            Ok(text) => (text.len(), None),
            Err(error) if error.error_len().is_some() => {
                (error.valid_up_to(), Some(Fault::Encoding(UTF_8)))
            }
            Err(error) => (error.valid_up_to(), self.is_at_end.then_some(Fault::Cut)),
        };
        self.fault = fault;
        self.accept(self.valid + length);
    }

    fn transcode(&mut self) -> io::Result<()> {
        let Some((_, undecoded)) = &mut self.decoder else {
            return Ok(());
        };
        // No encoding needs more than three bytes of UTF-8 for one of its own.
        let room = (self.buffer.len() - self.filled) / 4;
        let from = undecoded.len();
        undecoded.resize(from + room, 0);
        let (read, is_at_end) = read_full(&mut self.source, &mut undecoded[from..], self.budget)?;
        undecoded.truncate(from + read);
        self.budget -= read;
        self.size += read as u64;
        self.is_at_end = is_at_end;
        self.decode();
        Ok(())
    }

    fn decode(&mut self) {
        let Some((decoder, undecoded)) = &mut self.decoder else {
            return;
        };
        let room = &mut self.buffer[self.valid..];
        let (result, read, written) =
            decoder.decode_to_utf8_without_replacement(undecoded, room, self.is_at_end);
        if let DecoderResult::Malformed(..) = result {
            let is_cut = self.is_at_end && read == undecoded.len();
            let encoding = decoder.encoding();
            self.fault = Some(if is_cut {
                Fault::Cut
            } else {
                Fault::Encoding(encoding)
            });
        }
        undecoded.drain(..read);
        self.filled = self.valid + written;
        self.accept(self.filled);
    }

    /// Makes the bytes up to `end` part of the text, unless a character is forbidden.
    fn accept(&mut self, end: usize) {
        let mut end = end;
        if let Some((at, character)) = first_forbidden(&self.buffer[self.valid..end]) {
            self.fault = Some(Fault::Character(character));
            end = self.valid + at;
        }
        let kept = unify_line_ends(&mut self.buffer[self.valid..end], &mut self.after_cr);
        let moved_to = self.valid + kept;
        if moved_to < end {
            self.buffer.copy_within(end..self.filled, moved_to);
            self.filled -= end - moved_to;
        }
        self.valid = moved_to;
    }
}

/// Reads until `room` is full, the file ends, or `budget` is used up. How much, and whether it ended.
fn read_full(source: &mut impl Read, room: &mut [u8], budget: usize) -> io::Result<(usize, bool)> {
    let wanted = room.len().min(budget);
    let mut read = 0;
    while read < wanted {
        match source.read(&mut room[read..wanted]) {
            Ok(0) => return Ok((read, true)),
            Ok(length) => read += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok((read, false))
}

/// How many characters of its last line there are once `text` comes after `before` of them.
fn column(before: u64, text: &[u8]) -> u64 {
    let line = text.iter().rposition(|&byte| byte == b'\n');
    let (before, line) = match line {
        Some(end) => (0, &text[end + 1..]),
        None => (before, text),
    };
    // All but the later bytes of a character (RFC 3629).
    let characters = line.iter().filter(|&&byte| byte & 0xc0 != 0x80).count();
    before + characters as u64
}
