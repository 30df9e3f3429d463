//! Documents that are compressed with gzip (R1), unpacked while they are read, up to a limit.

use std::io::{self, ErrorKind, Read, Take};

use flate2::read::MultiGzDecoder;

use crate::document::{MAX_SIZE, Malformed};
use crate::parse::ReadError;

/// First bytes of what gzip compressed.
pub const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Largest unpacked size: ten times what the protocol allows.
const MAX_UNPACKED: u64 = 10 * MAX_SIZE;
/// Largest ratio of unpacked to packed size beyond [`SMALL`]. Lists have 10 to 50.
const MAX_TIMES: u64 = 200;
/// Unpacked size below which any ratio is accepted.
const SMALL: u64 = 1 << 20;

/// Reads a compressed file as `parse` does, one of the functions that read a document.
///
/// # Errors
///
/// If `parse` fails, or the data is broken or beyond the limit.
pub fn parse_gzip<T>(
    reader: impl Read,
    parse: impl FnOnce(&mut dyn Read) -> Result<T, ReadError>,
) -> Result<T, ReadError> {
    parse(&mut unpacked(reader)).map_err(|error| match error {
        ReadError::Io(error) => match error.downcast::<Malformed>() {
            Ok(malformed) => malformed.into(),
            Err(error) => error.into(),
        },
        error @ ReadError::Malformed(_) => error,
    })
}

/// Returns a reader of what a compressed file holds, up to a limit.
pub fn unpacked(reader: impl Read) -> impl Read {
    Unpacked {
        decoder: MultiGzDecoder::new(reader.take(u64::MAX)),
        count: 0,
    }
}

/// Its errors hold a [`Malformed`] where the data is broken.
struct Unpacked<R> {
    /// The limit of what it reads only counts that.
    decoder: MultiGzDecoder<Take<R>>,
    count: u64,
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.decoder.read(buffer);
        let packed = u64::MAX - self.decoder.get_ref().limit();
        let malformed = match read {
            Ok(read) => {
                self.count += read as u64;
                let unpacked = self.count;
                let is_bomb =
                    unpacked > MAX_UNPACKED || unpacked > SMALL && unpacked / MAX_TIMES > packed;
                if !is_bomb {
                    return Ok(read);
                }
                Malformed::Bomb { unpacked, packed }
            }
            Err(error) => match error.kind() {
                ErrorKind::UnexpectedEof if packed == 0 => Malformed::Empty,
                ErrorKind::UnexpectedEof => Malformed::Gzip("it ends too early".to_owned()),
                ErrorKind::InvalidInput | ErrorKind::InvalidData => {
                    Malformed::Gzip(error.to_string())
                }
                _ => return Err(error),
            },
        };
        Err(io::Error::other(malformed))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use crate::document::{Document, Malformed, NotADocument};
    use crate::parse::{ReadError, parse};

    const LIST: &str = "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' \
                        xmlns:rs='http://www.openarchives.org/rs/terms/'>\
                        <rs:md capability='changelist'/></urlset>";

    fn parse_gzip(bytes: &[u8]) -> Result<Result<Document, NotADocument>, ReadError> {
        super::parse_gzip(bytes, |reader| parse(reader))
    }

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn malformed(bytes: &[u8]) -> Malformed {
        match parse_gzip(bytes) {
            Err(ReadError::Malformed(malformed)) => malformed,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_packed_document_reads_as_it_does_unpacked() {
        let plain = parse(LIST.as_bytes()).unwrap();
        assert_eq!(parse_gzip(&packed(LIST.as_bytes())[..]).unwrap(), plain);
        let (begin, end) = LIST.as_bytes().split_at(50);
        let members = [packed(begin), packed(end)].concat();
        assert_eq!(parse_gzip(&members[..]).unwrap(), plain);
        let other = parse_gzip(&packed(b"hello")[..]).unwrap();
        assert_eq!(other, Err(NotADocument::ForeignRoot));
        let twice = parse_gzip(&packed(&packed(LIST.as_bytes()))[..]).unwrap();
        assert_eq!(twice, Err(NotADocument::Gzip));
    }

    #[test]
    fn no_part_of_a_packed_document_is_one() {
        let packed = packed(LIST.as_bytes());
        for length in 0..packed.len() {
            malformed(&packed[..length]);
        }
        assert_eq!(malformed(b""), Malformed::Empty);
        let mut wrong = packed.clone();
        let at = wrong.len() - 6;
        wrong[at] ^= 1;
        let followed = [&packed[..], b"garbage"].concat();
        for bytes in [&wrong[..], LIST.as_bytes(), &followed] {
            assert!(matches!(malformed(bytes), Malformed::Gzip(_)));
        }
    }

    #[test]
    fn a_bomb_is_not_unpacked() {
        let spaces = " ".repeat(4 << 20);
        let bomb = LIST.replace("</urlset>", &format!("{spaces}</urlset>"));
        let refused = malformed(&packed(bomb.as_bytes()));
        assert!(matches!(refused, Malformed::Bomb { .. }), "{refused:?}");
        // A list of that size is accepted.
        let entry = |n: u32| {
            let other = n.wrapping_mul(2_654_435_761);
            format!("<url><loc>https://e.org/{n}/{other}</loc></url>")
        };
        let entries: String = (0..40_000).map(entry).collect();
        let list = LIST.replace("</urlset>", &format!("{entries}</urlset>"));
        let plain = parse(list.as_bytes()).unwrap();
        assert_eq!(parse_gzip(&packed(list.as_bytes())[..]).unwrap(), plain);
    }
}
