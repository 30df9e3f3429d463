//! A window that slides over a file: whatever its encoding and line ends, the text is UTF-8 with LF line ends, without
//! characters that XML forbids (XML 1.0 sections 2.2, 2.11, 4.3.3), and memory stays bounded.

use std::io::{self, Read};

use encoding_rs::{DecoderResult, Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

use crate::document::Malformed;
use crate::markup::{self, find_any, first_forbidden, forbidden_message, is_space};

/// Size of the first read, enough for the root of most other files.
const FIRST_SIZE: usize = 8 << 10;
/// Most bytes read before the root's start tag is known (R2).
const PROLOG_LIMIT: usize = 64 << 10;
/// Size of the later reads, which fits the processor's cache.
const SIZE: usize = 128 << 10;
/// Longest tag, comment or other markup.
const LONGEST_MARKUP: usize = 4 << 20;

/// The byte order marks of UTF-8 and UTF-16.
const MARKS: [&[u8]; 3] = [b"\xef\xbb\xbf", b"\xfe\xff", b"\xff\xfe"];

/// The text from the first byte that is not yet taken.
pub(crate) struct TextWindow<R> {
    source: R,
    /// `start..valid` is text, `valid..filled` are bytes not yet validated.
    buffer: Vec<u8>,
    start: usize,
    valid: usize,
    filled: usize,
    /// The decoder of a file that is not UTF-8, and the bytes read but not yet decoded.
    decoder: Option<(encoding_rs::Decoder, Vec<u8>)>,
    /// The error of a declared encoding that is unknown; of the text only ASCII is then right.
    pub(crate) unknown_encoding: Option<Malformed>,
    has_begun: bool,
    is_at_end: bool,
    /// Number of bytes read.
    pub(crate) size: u64,
    /// Number of bytes that may still be read; limited until the root's start tag is known.
    pub(crate) budget: usize,
    /// True if the last character was a CR, so that a LF belongs to it.
    after_cr: bool,
    /// Length of the text that was taken, with the byte order mark before it. In a file in UTF-8 without CR, that is the
    /// offset of the rest.
    pub(crate) taken: u64,
    newlines_taken: u64,
    /// Number of characters taken of the line at the start.
    column_taken: u64,
    /// The reason why the text ends before the file.
    pub(crate) unreadable: Option<Malformed>,
}

impl<R: Read> TextWindow<R> {
    pub(crate) fn new(source: R) -> TextWindow<R> {
        TextWindow {
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
            taken: 0,
            newlines_taken: 0,
            column_taken: 0,
            unreadable: None,
        }
    }

    /// Returns the text that was read and not yet taken.
    pub(crate) fn text(&self) -> &str {
        // Validated again because `buffer` also holds bytes that are not yet text; that costs next to nothing.
        std::str::from_utf8(&self.buffer[self.start..self.valid]).unwrap_or_default()
    }

    /// Removes the first `length` bytes.
    pub(crate) fn take(&mut self, length: usize) {
        let taken = &self.buffer[self.start..self.start + length];
        self.newlines_taken += newlines(taken);
        self.column_taken = column(self.column_taken, taken);
        self.taken += length as u64;
        self.start += length;
    }

    /// Returns the error at `offset`.
    #[cold]
    pub(crate) fn error_at(&self, offset: usize, message: String) -> Malformed {
        let text = &self.buffer[self.start..self.valid];
        let before = &text[..offset.min(text.len())];
        Malformed::Syntax {
            line: self.line(offset),
            column: 1 + column(self.column_taken, before),
            message,
        }
    }

    /// Returns the line of the byte at `offset`.
    pub(crate) fn line(&self, offset: usize) -> u64 {
        let text = &self.buffer[self.start..self.valid];
        1 + self.newlines_taken + newlines(&text[..offset.min(text.len())])
    }

    /// Returns true if only the limit before the root's start tag keeps the window from growing.
    pub(crate) fn is_at_limit(&self) -> bool {
        self.budget == 0 && !self.is_at_end && self.unreadable.is_none()
    }

    /// Returns the error of a file that is all white space and NULs, as a crash leaves one whose blocks were allocated, or
    /// the beginning of a byte order mark.
    pub(crate) fn blank_error(&self) -> Option<Malformed> {
        let is_closed = self.is_at_end || self.unreadable.is_some();
        let bytes = &self.buffer[self.start..self.filled];
        let is_cut_mark = MARKS.iter().any(|mark| mark.starts_with(bytes));
        let is_nothing = bytes.iter().all(|&byte| byte == 0 || is_space(byte));
        let is_blank = is_closed && (is_nothing || is_cut_mark);
        is_blank.then(|| match bytes {
            [] => Malformed::Empty,
            _ => Malformed::Truncated {
                line: self.line(usize::MAX),
            },
        })
    }

    /// Returns the first byte that is not white space, validated or not.
    pub(crate) fn first_non_space(&self) -> Option<u8> {
        let mut bytes = self.buffer[self.start..self.filled].iter().copied();
        bytes.find(|&byte| !is_space(byte))
    }

    /// Reads on. Returns true if there is more text than before.
    pub(crate) fn grow(&mut self) -> io::Result<bool> {
        if self.is_at_end {
            // Most documents are small: the room to read on would be their greatest cost.
            return Ok(false);
        }
        self.make_room();
        let before = self.valid;
        while self.valid == before
            && self.unreadable.is_none()
            && !self.is_at_end
            && self.budget > 0
        {
            self.read_bytes()?;
            if !self.has_begun {
                self.detect_encoding();
            }
            self.decode_read_bytes();
        }
        Ok(self.valid > before)
    }

    /// Moves the rest to the buffer's start, and enlarges a buffer that it half fills.
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
                let message = format!("markup longer than {LONGEST_MARKUP} bytes");
                let too_long = self.error_at(usize::MAX, message);
                self.unreadable.get_or_insert(too_long);
            } else {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
        }
    }

    /// Reads until the buffer or the room of a decoder is full, the file ends, or the budget is used up.
    fn read_bytes(&mut self) -> io::Result<()> {
        let free = &mut self.buffer[self.filled..];
        let room = match &mut self.decoder {
            None => free,
            Some((_, undecoded)) => {
                let from = undecoded.len();
                // One byte of any encoding is at most three of UTF-8.
                undecoded.resize(from + free.len() / 4, 0);
                &mut undecoded[from..]
            }
        };
        let wanted = room.len().min(self.budget);
        let mut read = 0;
        while read < wanted && !self.is_at_end {
            match self.source.read(&mut room[read..wanted]) {
                Ok(length) => {
                    read += length;
                    self.is_at_end = length == 0;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let left = room.len() - read;
        match &mut self.decoder {
            None => self.filled += read,
            Some((_, undecoded)) => undecoded.truncate(undecoded.len() - left),
        }
        self.budget -= read;
        self.size += read as u64;
        Ok(())
    }

    /// Detects the encoding.
    fn detect_encoding(&mut self) {
        self.has_begun = true;
        let (encoding, mark, unknown) = encoding_of(&self.buffer[..self.filled]);
        self.unknown_encoding = unknown.map(|name| Malformed::Syntax {
            line: 1,
            column: 1,
            message: format!("the encoding {name} is unknown"),
        });
        if encoding == UTF_8 {
            self.start = mark;
            self.valid = mark;
            self.taken = mark as u64;
        } else {
            let decoder = encoding.new_decoder_without_bom_handling();
            let undecoded = self.buffer[mark..self.filled].to_vec();
            let room = undecoded.len() * 4;
            self.buffer.resize(room.max(FIRST_SIZE), 0);
            self.decoder = Some((decoder, undecoded));
            self.filled = 0;
        }
    }

    /// Makes the bytes read part of the text, up to a character that is forbidden or incomplete.
    fn decode_read_bytes(&mut self) {
        // A flaw is the encoding that the next ones are wrong in, or none where the file ends within a character.
        let (end, flaw) = match &mut self.decoder {
            None => match std::str::from_utf8(&self.buffer[self.valid..self.filled]) {
                Ok(_) => (self.filled, None),
                Err(error) => {
                    let wrong = error.error_len().map(|_| UTF_8);
                    let flaw = (wrong.is_some() || self.is_at_end).then_some(wrong);
                    (self.valid + error.valid_up_to(), flaw)
                }
            },
            Some((decoder, undecoded)) => {
                let room = &mut self.buffer[self.valid..];
                let (result, read, written) =
                    decoder.decode_to_utf8_without_replacement(undecoded, room, self.is_at_end);
                let is_cut = self.is_at_end && read == undecoded.len();
                undecoded.drain(..read);
                self.filled = self.valid + written;
                let is_malformed = matches!(result, DecoderResult::Malformed(..));
                let wrong = (!is_cut).then_some(decoder.encoding());
                (self.filled, is_malformed.then_some(wrong))
            }
        };
        let found = first_forbidden(&self.buffer[self.valid..end]);
        let end = found.map_or(end, |(at, _)| self.valid + at);
        let kept = unify_line_ends(&mut self.buffer[self.valid..end], &mut self.after_cr);
        let moved_to = self.valid + kept;
        if moved_to < end {
            self.buffer.copy_within(end..self.filled, moved_to);
            self.filled -= end - moved_to;
        }
        self.valid = moved_to;
        if let Some((_, character)) = found {
            self.unreadable = Some(self.error_at(usize::MAX, forbidden_message(character)));
        } else if let Some(wrong) = flaw {
            let line = self.line(usize::MAX);
            self.unreadable = Some(match wrong {
                None => Malformed::Truncated { line },
                Some(encoding) => Malformed::Encoding {
                    line,
                    encoding: encoding.name().to_owned(),
                },
            });
        }
    }
}

/// Returns the number of characters in the last line of `text`, which follows `before` of them.
fn column(before: u64, text: &[u8]) -> u64 {
    let end = text.iter().rposition(|&byte| byte == b'\n');
    let (before, line) = end.map_or((before, text), |end| (0, &text[end + 1..]));
    // Continuation bytes are not counted (RFC 3629).
    let characters = line.iter().filter(|&&byte| byte & 0xc0 != 0x80).count();
    before + characters as u64
}

/// Replaces CR LF and CR by LF (XML 1.0 section 2.11). Returns the new length.
fn unify_line_ends(text: &mut [u8], after_cr: &mut bool) -> usize {
    if text.is_empty() {
        return 0;
    }
    let mut at = usize::from(*after_cr && text[0] == b'\n');
    let mut kept = 0;
    *after_cr = false;
    loop {
        let cr = find_any(&text[at..], [b'\r']).map(|length| at + length);
        let end = cr.unwrap_or(text.len());
        if kept < at {
            text.copy_within(at..end, kept);
        }
        kept += end - at;
        if cr.is_none() {
            return kept;
        }
        text[kept] = b'\n';
        kept += 1;
        at = end + 1;
        match text.get(at) {
            Some(b'\n') => at += 1,
            Some(_) => {}
            None => *after_cr = true,
        }
    }
}

/// Returns the number of line ends in a text.
fn newlines(text: &[u8]) -> u64 {
    // Blocks whose count fits a byte, so that the compiler compares many bytes at once.
    text.chunks(255)
        .map(|block| {
            let count: u8 = block.iter().map(|&byte| u8::from(byte == b'\n')).sum();
            u64::from(count)
        })
        .sum()
}

// Encodings (XML 1.0 appendix F).

/// Detects the encoding by a byte order mark, the width of `<?`, the declaration, in this order. Returns it with the length
/// of the mark, and the name of a declared encoding that is unknown: then it decodes at least ASCII.
pub(crate) fn encoding_of(head: &[u8]) -> (&'static Encoding, usize, Option<String>) {
    let mut unknown = None;
    let (encoding, mark) = match head {
        [0xef, 0xbb, 0xbf, ..] => (UTF_8, 3),
        [0xfe, 0xff, ..] => (UTF_16BE, 2),
        [0xff, 0xfe, ..] => (UTF_16LE, 2),
        [0, b'<', 0, b'?', ..] => (UTF_16BE, 0),
        [b'<', 0, b'?', 0, ..] => (UTF_16LE, 0),
        _ => {
            // Errors in a declaration are found when it is read as text.
            let declared = || {
                let rest = head.strip_prefix(b"<?xml")?;
                let end = rest.windows(2).position(|pair| pair == b"?>")?;
                let encoding = markup::read_declaration(&rest[..end]).ok()??;
                Some(&rest[encoding])
            };
            let label = declared().unwrap_or(b"utf-8");
            let encoding = Encoding::for_label_no_replacement(label).unwrap_or_else(|| {
                unknown = Some(String::from_utf8_lossy(label).into_owned());
                WINDOWS_1252
            });
            // A document that declares UTF-16 and is readable without is UTF-8: a string that was written to a file.
            (encoding.output_encoding(), 0)
        }
    };
    (encoding, mark, unknown)
}
