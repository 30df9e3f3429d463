//! Frames of STOMP 1.2: bytes become frames, and frames become bytes. Has no I/O and bounds what it reads.

/// Largest body that is read, in bytes (F7).
pub const MAX_BODY: usize = 1 << 20;
/// Maximum bytes of command and headers, together.
pub const MAX_HEAD: usize = 64 << 10;

/// A STOMP frame.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Frame {
    /// The first line, such as `SEND`.
    pub command: String,
    /// Names and values, unescaped. Of several with one name, the first counts.
    pub headers: Vec<(String, String)>,
    /// Content after the headers.
    pub body: Vec<u8>,
    /// The error in a frame that was received only in part: without a body or header that is wrong or too long.
    pub damage: Option<FrameError>,
}

/// The headers that are read of a frame that has too many.
const NEEDED_HEADERS: &str = "ack content-length destination message receipt-id";

/// An error in received bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// More than what is read.
    #[error("a frame has more than {MAX_BODY} bytes, or headers of more than {MAX_HEAD}")]
    TooLarge,
    /// Bytes that do not make a frame: why.
    #[error("{0}")]
    Malformed(&'static str),
}

impl Frame {
    /// Returns a frame of this command, with no header and no body.
    pub fn new(command: &str) -> Frame {
        Frame {
            command: command.to_owned(),
            ..Frame::default()
        }
    }

    /// Adds a header.
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Frame {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Returns the value of a header; of several, the first.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the bytes of the frame. A body gets its `content-length`.
    pub fn encode(&self) -> Vec<u8> {
        let is_escaped = has_escapes(&self.command);
        let mut bytes = Vec::with_capacity(self.body.len() + 1_024);
        bytes.extend_from_slice(self.command.as_bytes());
        bytes.push(b'\n');
        for (name, value) in &self.headers {
            escape(name, is_escaped, &mut bytes);
            bytes.push(b':');
            escape(value, is_escaped, &mut bytes);
            bytes.push(b'\n');
        }
        if !self.body.is_empty() && self.header("content-length").is_none() {
            bytes.extend_from_slice(format!("content-length:{}\n", self.body.len()).as_bytes());
        }
        bytes.push(b'\n');
        bytes.extend_from_slice(&self.body);
        bytes.push(0);
        bytes
    }
}

fn is_command(line: &[u8]) -> bool {
    !line.is_empty() && line.iter().all(u8::is_ascii_uppercase)
}

/// Returns true unless a frame's headers have no escapes, for compatibility with STOMP 1.0.
fn has_escapes(command: &str) -> bool {
    command != "CONNECT" && command != "CONNECTED"
}

/// Appends the name or the value of a header. Where there are no escapes, drops characters that would end the header.
fn escape(text: &str, is_escaped: bool, bytes: &mut Vec<u8>) {
    for byte in text.bytes() {
        match (byte, is_escaped) {
            (b'\r', true) => bytes.extend_from_slice(b"\\r"),
            (b'\n', true) => bytes.extend_from_slice(b"\\n"),
            (b':', true) => bytes.extend_from_slice(b"\\c"),
            (b'\\', true) => bytes.extend_from_slice(b"\\\\"),
            (0 | b'\r' | b'\n', false) | (0, true) => {}
            (byte, _) => bytes.push(byte),
        }
    }
}

fn unescape(text: &str) -> Result<String, &'static str> {
    let mut unescaped = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        unescaped.push(match character {
            '\\' => match characters.next() {
                Some('r') => '\r',
                Some('n') => '\n',
                Some('c') => ':',
                Some('\\') => '\\',
                _ => return Err("a header has an undefined escape"),
            },
            character => character,
        });
    }
    Ok(unescaped)
}

/// A decoder, which collects received bytes and takes frames from them, of each as much as is bounded.
#[derive(Debug, Default)]
pub struct Decoder {
    received: Vec<u8>,
    /// Bytes at the beginning of `received` that were taken.
    taken: usize,
    /// The frame that is being read.
    frame: Frame,
    part: OpenPart,
    /// Bytes of its command and headers.
    head: usize,
    /// True if the beginning of a line was left out, because it is too long.
    is_cut: bool,
}

/// The part of a frame that is read next.
#[derive(Debug, Default)]
enum OpenPart {
    #[default]
    Command,
    Headers,
    /// The body, with its remaining bytes if its length is known; else it ends at a NUL.
    Body(Option<usize>),
}

impl Decoder {
    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.received.drain(..self.taken);
        self.taken = 0;
        self.received.extend_from_slice(bytes);
    }

    /// Takes the next frame; nothing until it is complete. Line ends between frames are heart-beats, and ignored.
    ///
    /// # Errors
    ///
    /// If the received bytes can never become a frame.
    pub fn frame(&mut self) -> Result<Option<Frame>, FrameError> {
        loop {
            match self.part {
                OpenPart::Command => {
                    let rest = &self.received[self.taken..];
                    let beats = rest.iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
                    self.taken += beats.count();
                    let command = match self.line() {
                        None if !self.is_cut => return Ok(None),
                        Some(line) if !self.is_cut && is_command(&line) => line,
                        _ => return Err(FrameError::Malformed("a frame has no command")),
                    };
                    self.frame = Frame::new(&String::from_utf8_lossy(&command));
                    self.part = OpenPart::Headers;
                }
                OpenPart::Headers => match self.line() {
                    None => return Ok(None),
                    Some(_) if std::mem::take(&mut self.is_cut) => {}
                    Some(line) if line.is_empty() => self.part = OpenPart::Body(self.body_length()),
                    Some(line) => match header(&line, has_escapes(&self.frame.command)) {
                        Ok(header) => self.frame.headers.push(header),
                        Err(damage) => self.record_damage(FrameError::Malformed(damage)),
                    },
                },
                OpenPart::Body(left) => {
                    if !self.take_body(left) {
                        return Ok(None);
                    }
                    self.part = OpenPart::Command;
                    self.head = 0;
                    return Ok(Some(std::mem::take(&mut self.frame)));
                }
            }
            if self.head > MAX_HEAD {
                self.record_damage(FrameError::TooLarge);
                let mut missing = Vec::from_iter(NEEDED_HEADERS.split(' '));
                self.frame.headers.retain(|(name, _)| {
                    let needed = missing.iter().position(|missing| missing == name);
                    needed.map(|at| missing.swap_remove(at)).is_some()
                });
            }
        }
    }

    /// Takes the next line without its end, which may be CR LF; nothing if it is not complete.
    fn line(&mut self) -> Option<Vec<u8>> {
        let rest = &self.received[self.taken..];
        let end = rest.iter().position(|byte| *byte == b'\n');
        let length = end.unwrap_or(rest.len());
        if length > MAX_HEAD {
            self.is_cut = true;
        }
        let line = end
            .map(|_| {
                rest[..length]
                    .strip_suffix(b"\r")
                    .unwrap_or(&rest[..length])
            })
            .map(<[u8]>::to_vec);
        if line.is_some() || self.is_cut {
            self.taken += length + usize::from(line.is_some());
            self.head += length + 1;
        }
        line
    }

    /// Returns the length that a frame says its body has.
    fn body_length(&mut self) -> Option<usize> {
        let length = self.frame.header("content-length")?.trim().parse();
        if length.is_err() {
            let damage = "a frame's content-length is no number";
            self.record_damage(FrameError::Malformed(damage));
        }
        length.ok()
    }

    /// Takes bytes of a body. Returns true at its end.
    fn take_body(&mut self, left: Option<usize>) -> bool {
        let rest = &self.received[self.taken..];
        let nul = || rest.iter().position(|byte| *byte == 0);
        let end = left.or_else(nul).unwrap_or(rest.len());
        let length = end.min(rest.len());
        self.frame.body.extend_from_slice(&rest[..length]);
        let after = rest.get(length).copied();
        self.taken += length;
        self.part = OpenPart::Body(left.map(|left| left - length));
        if self.frame.body.len() > MAX_BODY {
            self.record_damage(FrameError::TooLarge);
        }
        if self.frame.damage == Some(FrameError::TooLarge) {
            self.frame.body.clear();
        }
        if after.is_some_and(|byte| byte != 0) {
            let damage = "a frame does not end where its content-length says";
            self.record_damage(FrameError::Malformed(damage));
            return self.take_body(None);
        }
        self.taken += usize::from(after.is_some());
        after.is_some()
    }

    /// Notes the first damage of the frame; that it is too large counts before all.
    fn record_damage(&mut self, damage: FrameError) {
        if self.frame.damage.is_none() || damage == FrameError::TooLarge {
            self.frame.damage = Some(damage);
        }
    }
}

/// Returns the name and value of a header.
fn header(line: &[u8], is_escaped: bool) -> Result<(String, String), &'static str> {
    let line =
        std::str::from_utf8(line).map_err(|_| "a frame's command or headers are not UTF-8")?;
    let (name, value) = line.split_once(':').ok_or("a header has no colon")?;
    if is_escaped {
        Ok((unescape(name)?, unescape(value)?))
    } else {
        Ok((name.to_owned(), value.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn decode(bytes: &[u8]) -> Result<Option<Frame>, FrameError> {
        let mut decoder = Decoder::default();
        decoder.push(bytes);
        decoder.frame()
    }

    #[test]
    fn a_frame_is_written_with_escapes_and_the_length_of_its_body() {
        let mut frame = Frame::new("SEND").with("destination", "/topic/a:b");
        frame.headers.push(("a\\b".into(), "1\r\n2".into()));
        frame.body = b"<a/>\0".to_vec();
        assert_eq!(
            String::from_utf8(frame.encode()).unwrap(),
            "SEND\ndestination:/topic/a\\cb\na\\\\b:1\\r\\n2\ncontent-length:5\n\n<a/>\0\0"
        );
        assert_eq!(Frame::new("BEGIN").encode(), b"BEGIN\n\n\0");
    }

    #[test]
    fn nothing_is_escaped_on_connecting_and_nothing_can_end_a_header_there() {
        let frame = Frame::new("CONNECT").with("login", "a:b\\c\nhost:x");
        assert_eq!(frame.encode(), b"CONNECT\nlogin:a:b\\chost:x\n\n\0");
        let connected = decode(b"CONNECTED\nsession:a\\b:c\n\n\0").unwrap().unwrap();
        assert_eq!(connected.header("session"), Some("a\\b:c"));
    }

    #[rstest]
    #[case(b"MESSAGE\r\na:1\r\na:2\r\n\r\nbody\0", "1", b"body")]
    #[case(b"\n\r\n\nMESSAGE\na:\\c\\n\\r\\\\\n\n\0", ":\n\r\\", b"")]
    #[case(b"MESSAGE\na: x \ncontent-length:3\n\n\0\0\0\0rest", " x ", b"\0\0\0")]
    #[case(b"MESSAGE\na:x:y\n\nunlimited\0", "x:y", b"unlimited")]
    fn a_frame_is_read(#[case] bytes: &[u8], #[case] value: &str, #[case] body: &[u8]) {
        let frame = decode(bytes).unwrap().unwrap();
        assert_eq!(frame.command, "MESSAGE");
        assert_eq!(frame.header("a"), Some(value));
        assert_eq!(frame.body, body);
        assert_eq!(frame.header("b"), None);
    }

    #[test]
    fn what_is_no_frame_is_refused_or_awaited() {
        for awaited in [
            "\0",
            "MESSAGE",
            "MESSAGE\na:b\n\nbody",
            "MESSAGE\ncontent-length:4\n\nbody",
            "MESSAGE\ncontent-length:1048577\n\n",
        ] {
            assert_eq!(decode(awaited.as_bytes()), Ok(None), "{awaited}");
        }
        for refused in ["message\n\n\0", "\0\n", &"M".repeat(MAX_HEAD + 2)] {
            let error = decode(refused.as_bytes()).unwrap_err().to_string();
            assert_eq!(error, "a frame has no command", "{refused}");
        }
    }

    #[test]
    fn a_damaged_frame_says_so_and_the_next_one_is_read() {
        let long = "x".repeat(MAX_BODY + 1);
        let counted = format!("content-length:{}\nack:7\n\n{long}", long.len());
        let wide = "x".repeat(MAX_HEAD);
        let many = "a:b\n".repeat(MAX_HEAD);
        let escape = FrameError::Malformed("a header has an undefined escape");
        let length = FrameError::Malformed("a frame's content-length is no number");
        let end = FrameError::Malformed("a frame does not end where its content-length says");
        let header = FrameError::Malformed("a header has no colon");
        for (damaged, damage) in [
            ("ack:7\nab\n\nbody", header),
            ("a:\\t\nack:7\n\nbody", escape.clone()),
            ("a:\\\nack:7\n\nbody", escape),
            ("content-length:-1\nack:7\n\nbody", length.clone()),
            ("content-length:99999999999999999999\nack:7\n\n", length),
            ("content-length:1\nack:7\n\nbody", end),
            (&counted, FrameError::TooLarge),
            (&format!("ack:7\n\n{long}"), FrameError::TooLarge),
            (&format!("ack:7\nab\n\n{long}"), FrameError::TooLarge),
            (&format!("a:{wide}\nack:7\n\nbody"), FrameError::TooLarge),
            (&format!("{many}ack:7\n\nbody"), FrameError::TooLarge),
        ] {
            let bytes = format!("MESSAGE\n{damaged}\0\nMESSAGE\na:b\n\nnext\0");
            for chunk in [1_000, bytes.len()] {
                let mut decoder = Decoder::default();
                let mut read = Vec::new();
                for piece in bytes.as_bytes().chunks(chunk) {
                    decoder.push(piece);
                    read.extend(std::iter::from_fn(|| decoder.frame().unwrap()));
                    let kept = decoder.received.len() + decoder.frame.body.len();
                    assert!(chunk > 1_000 || kept <= MAX_BODY + 2 * chunk);
                }
                let [first, next] = &read[..] else {
                    panic!("{} frames", read.len());
                };
                assert_eq!(first.damage, Some(damage.clone()));
                assert_eq!(first.header("ack"), Some("7"));
                assert_eq!((next.body.as_slice(), &next.damage), (&b"next"[..], &None));
            }
        }
        let mut decoder = Decoder::default();
        decoder.push(b"MESSAGE\na:\xff\nack:7\n\n\0");
        let frame = decoder.frame().unwrap().unwrap();
        let encoding = FrameError::Malformed("a frame's command or headers are not UTF-8");
        assert_eq!(frame.damage, Some(encoding));
        assert_eq!(frame.header("ack"), Some("7"));
    }

    proptest! {
        #[test]
        fn every_frame_is_read_as_it_was_written(
            headers in proptest::collection::vec(("[^\0]{0,12}", "[^\0]{0,12}"), 0..6),
            body in proptest::collection::vec(any::<u8>(), 0..64),
            piece in 1..64_usize,
        ) {
            prop_assume!(headers.iter().all(|(name, _)| name != "content-length"));
            let frame = Frame { headers, body, ..Frame::new("SEND") };
            let bytes = [&frame.encode()[..], b"\n"].concat().repeat(3);
            let mut decoder = Decoder::default();
            let mut read = Vec::new();
            for piece in bytes.chunks(piece) {
                decoder.push(piece);
                read.extend(std::iter::from_fn(|| decoder.frame().unwrap()));
            }
            for frame in &mut read {
                frame.headers.retain(|(name, _)| name != "content-length");
            }
            prop_assert_eq!(read, vec![frame; 3]);
        }
    }
}
