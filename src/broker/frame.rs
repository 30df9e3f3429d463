//! Frames of STOMP 1.2: bytes become frames, and frames become bytes. Has no I/O and bounds what it reads.

/// Largest body that is read, in bytes (F7).
pub const MAX_BODY: usize = 1 << 20;
/// Maximum bytes of command and headers, together.
pub const MAX_HEAD: usize = 64 << 10;

/// A STOMP frame.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Frame {
    pub command: String,
    /// Names and values, unescaped. Of several with one name, the first counts.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// An error in received bytes. The connection cannot be used any further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame has more than {MAX_BODY} bytes, or headers of more than {MAX_HEAD}")]
    TooLarge,
    #[error("a frame has no command")]
    Command,
    #[error("a header has no colon")]
    Header,
    #[error("a header has an undefined escape")]
    Escape,
    #[error("a frame's command or headers are not UTF-8")]
    Encoding,
    #[error("a frame's content-length is no number")]
    Length,
    #[error("a frame does not end where its content-length says")]
    End,
}

impl Frame {
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
        let mut headers = self.headers.iter();
        let found = headers.find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the bytes of the frame. A body gets its `content-length`.
    pub fn encode(&self) -> Vec<u8> {
        let is_escaped = is_escaped(&self.command);
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

/// Returns true unless a frame's headers have no escapes, for compatibility with STOMP 1.0.
fn is_escaped(command: &str) -> bool {
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

fn unescape(text: &str) -> Result<String, FrameError> {
    let mut unescaped = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        unescaped.push(match character {
            '\\' => match characters.next() {
                Some('r') => '\r',
                Some('n') => '\n',
                Some('c') => ':',
                Some('\\') => '\\',
                _ => return Err(FrameError::Escape),
            },
            character => character,
        });
    }
    Ok(unescaped)
}

/// A decoder, which collects received bytes and takes frames from them.
#[derive(Debug, Default)]
pub struct Decoder {
    received: Vec<u8>,
    /// Bytes at the beginning of `received` that were taken.
    taken: usize,
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
        let rest = &self.received[self.taken..];
        let beats = rest.iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
        self.taken += beats.count();
        let rest = &self.received[self.taken..];
        let Some((frame, length)) = frame(rest)? else {
            return Ok(None);
        };
        self.taken += length;
        Ok(Some(frame))
    }
}

/// Returns the frame that the bytes begin with, and its length; nothing if it is not complete.
fn frame(bytes: &[u8]) -> Result<Option<(Frame, usize)>, FrameError> {
    let mut lines = Lines { bytes, at: 0 };
    let Some(command) = lines.next()? else {
        return Ok(None);
    };
    if command.is_empty() || !command.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Err(FrameError::Command);
    }
    let mut frame = Frame::new(command);
    let is_escaped = is_escaped(command);
    loop {
        let Some(line) = lines.next()? else {
            return Ok(None);
        };
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or(FrameError::Header)?;
        frame.headers.push(if is_escaped {
            (unescape(name)?, unescape(value)?)
        } else {
            (name.to_owned(), value.to_owned())
        });
    }
    let begin = lines.at;
    let length = match frame.header("content-length") {
        Some(length) => {
            let length = length.trim().parse::<usize>();
            let length = length.map_err(|_| FrameError::Length)?;
            if length > MAX_BODY {
                return Err(FrameError::TooLarge);
            }
            length
        }
        None => match bytes[begin..].iter().position(|byte| *byte == 0) {
            Some(length) if length > MAX_BODY => return Err(FrameError::TooLarge),
            Some(length) => length,
            None if bytes.len() - begin > MAX_BODY => return Err(FrameError::TooLarge),
            None => return Ok(None),
        },
    };
    match bytes.get(begin + length) {
        None => Ok(None),
        Some(0) => {
            frame.body = bytes[begin..begin + length].to_vec();
            Ok(Some((frame, begin + length + 1)))
        }
        Some(_) => Err(FrameError::End),
    }
}

/// The lines of a frame's command and headers.
struct Lines<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Lines<'a> {
    /// Returns the next line without its end, which may be CR LF; nothing if it is not complete.
    fn next(&mut self) -> Result<Option<&'a str>, FrameError> {
        let head = &self.bytes[..self.bytes.len().min(MAX_HEAD)];
        let rest = &head[self.at..];
        let Some(length) = rest.iter().position(|byte| *byte == b'\n') else {
            return if self.bytes.len() < MAX_HEAD {
                Ok(None)
            } else {
                Err(FrameError::TooLarge)
            };
        };
        self.at += length + 1;
        let line = &rest[..length];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        std::str::from_utf8(line)
            .map(Some)
            .map_err(|_| FrameError::Encoding)
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

    #[rstest]
    #[case(b"\0", None)]
    #[case(b"MESSAGE", None)]
    #[case(b"MESSAGE\na:b\n\nbody", None)]
    #[case(b"MESSAGE\ncontent-length:4\n\nbody", None)]
    #[case(b"message\n\n\0", Some(FrameError::Command))]
    #[case(b"\0\n", Some(FrameError::Command))]
    #[case(b"MESSAGE\nab\n\n\0", Some(FrameError::Header))]
    #[case(b"MESSAGE\na:\\t\n\n\0", Some(FrameError::Escape))]
    #[case(b"MESSAGE\na:\\\n\n\0", Some(FrameError::Escape))]
    #[case(b"MESSAGE\na:\xff\n\n\0", Some(FrameError::Encoding))]
    #[case(b"MESSAGE\ncontent-length:-1\n\n\0", Some(FrameError::Length))]
    #[case(b"MESSAGE\ncontent-length:1\n\nbody\0", Some(FrameError::End))]
    #[case(b"MESSAGE\ncontent-length:1048577\n\n", Some(FrameError::TooLarge))]
    #[case(
        b"MESSAGE\ncontent-length:99999999999999999999\n\n",
        Some(FrameError::Length)
    )]
    fn what_is_no_frame_is_refused_or_awaited(
        #[case] bytes: &[u8],
        #[case] want: Option<FrameError>,
    ) {
        assert_eq!(decode(bytes), want.map_or(Ok(None), Err));
    }

    #[test]
    fn a_frame_without_end_is_not_collected_for_ever() {
        for line in [&b"MESSAGE\n\n"[..], b"MESSAGE\na:", b"M"] {
            let endless = [line, &vec![b'X'; MAX_BODY + 1]].concat();
            assert_eq!(decode(&endless), Err(FrameError::TooLarge));
        }
    }

    #[test]
    fn frames_follow_each_other_in_pieces() {
        let frames: Vec<Frame> = (0..3)
            .map(|number| Frame {
                body: vec![0; number],
                ..Frame::new("MESSAGE").with("n", number.to_string())
            })
            .collect();
        let bytes: Vec<u8> = frames
            .iter()
            .flat_map(|frame| [frame.encode(), b"\n".to_vec()].concat())
            .collect();
        for chunk in [1, 2, 7, bytes.len()] {
            let mut decoder = Decoder::default();
            let mut read = Vec::new();
            for piece in bytes.chunks(chunk) {
                decoder.push(piece);
                while let Some(frame) = decoder.frame().unwrap() {
                    read.push((frame.header("n").unwrap().to_owned(), frame.body));
                }
            }
            let want = frames
                .iter()
                .map(|frame| (frame.header("n").unwrap().to_owned(), frame.body.clone()));
            assert_eq!(read, want.collect::<Vec<_>>());
        }
    }

    proptest! {
        #[test]
        fn every_frame_is_read_as_it_was_written(
            headers in proptest::collection::vec(("[^\0]{0,12}", "[^\0]{0,12}"), 0..6),
            body in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            prop_assume!(headers.iter().all(|(name, _)| name != "content-length"));
            let frame = Frame { headers, body, ..Frame::new("SEND") };
            let mut read = decode(&frame.encode()).unwrap().unwrap();
            read.headers.retain(|(name, _)| name != "content-length");
            prop_assert_eq!(read, frame);
        }
    }
}
