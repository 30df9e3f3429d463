//! Documents are well-formed: compared with libxml2, over mutated documents.
//!
//! libxml2 (2.9) and rsnotify differ where [`Difference`] says, and nowhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use resourcesync::document::{Malformed, NotADocument};
use resourcesync::parse::{ReadError, parse};
use tempfile::TempDir;

use crate::needs;

const MUTANTS: usize = 12_000;

/// A document with everything that markup can be.
const SEED: &str = r#"<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<?xml-stylesheet type="text/xsl" href="style.xsl"?>
<!-- a set -->
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"
        xmlns:rs="http://www.openarchives.org/rs/terms/">
  <rs:ln rel='up' href="https://e.org/?a=1&amp;b=2"/>
  <rs:md capability="changelist" from="2026-11-20T09:00:00Z" />
  <url>
    <loc>https://e.org/&#x65;.xml</loc><!-- - -->
    <é:x xmlns:é="urn:é" é:ü="ä">text ]] > <![CDATA[ <a> & ]]> é</é:x >
    <?target data?>
  </url>
</urlset>
<!-- end -->
"#;

/// Texts that are inserted into a document, separated by bars.
const TOKENS: &str = "<|>|&|'|\"|=|/|?|!|-|--|->|]|]]>| |\n|\r|\t|:|.|0|;|#|x|&#0;|&#x1F600;|&#xFFFE;|&#x;|&lt;|&nbsp;|&amp|\
    <a>|</a>|<a/>|<a b='c'/>| a='b'| xml:lang='en'| xmlns=''| xmlns:a=''|<!---->|<!-- -->|<!--->|<!-- -- -->|<??>|<? ?>|\
    <?a?>|<?a:b?>|<?xml?>|<?XML ?>|<?xml version='1.0'?>|<![CDATA[|<![CDATA[]]>|<![cdata[]]>|<!x>|é|\u{d7}|\u{b7}|\
    \u{300}|\u{37e}|\u{2028}|\u{fffe}|\u{10400}|version=|encoding=";

/// Intended differences between the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Difference {
    /// A DOCTYPE is never accepted (R2).
    Doctype,
    /// Namespaces in XML 1.0 asks for more than XML itself: prefixes are declared, and no name but an element's or an
    /// attribute's has a colon, at most one. To libxml2 these are errors that leave a document well-formed.
    Namespaces,
    /// Encodings are those of the WHATWG, as in browsers: more names, and others for ISO-8859-1 and US-ASCII. A
    /// document that declares UTF-16 and is readable as ASCII is UTF-8. libxml2 knows those of iconv.
    Encoding,
    /// libxml2 does not ask for white space before `standalone` in an XML declaration; XML does (section 2.8).
    Declaration,
}

fn mutant(seed: &[u8], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..random.usize(1..4) {
        let at = random.usize(..=bytes.len());
        let end = (at + random.usize(..8)).min(bytes.len());
        match random.u8(..6) {
            0 => drop(bytes.drain(at..end)),
            1 => bytes.truncate(at),
            2 => {
                let copied = bytes[at..end].to_vec();
                let to = random.usize(..=bytes.len());
                bytes.splice(to..to, copied);
            }
            3 if at < bytes.len() => bytes[at] ^= 1 << random.u8(..8),
            _ => {
                let count = TOKENS.split('|').count();
                let token = TOKENS.split('|').nth(random.usize(..count)).unwrap();
                bytes.splice(at..end.min(at + random.usize(..3)), token.bytes());
            }
        }
        if bytes.is_empty() {
            bytes.push(b'<');
        }
    }
    bytes
}

/// Returns the result of rsnotify; `None` where it does not read to the end.
fn verdict(bytes: &[u8]) -> Option<Result<(), Malformed>> {
    match parse(bytes) {
        Ok(Err(
            NotADocument::ForeignRoot | NotADocument::Namespace { .. } | NotADocument::Gzip,
        )) => None,
        Ok(_) => Some(Ok(())),
        Err(ReadError::Malformed(malformed)) => Some(Err(malformed)),
        Err(ReadError::Io(error)) => panic!("{error}"),
    }
}

/// The documents that libxml2 finds ill-formed, with its words.
fn refused_by_libxml2<'a>(documents: impl Iterator<Item = &'a Vec<u8>>) -> BTreeMap<usize, String> {
    let directory = TempDir::new().unwrap();
    let write = |(number, bytes): (usize, &Vec<u8>)| {
        let name = format!("{number}.xml");
        fs::write(directory.path().join(&name), bytes).unwrap();
        name
    };
    let names: Vec<String> = documents.enumerate().map(write).collect();
    let mut refused = BTreeMap::new();
    for names in names.chunks(1_000) {
        let output = Command::new("xmllint")
            .args(["--noout", "--nonet"])
            .args(names)
            .current_dir(&directory)
            .output()
            .unwrap();
        for line in String::from_utf8_lossy(&output.stderr).lines() {
            let Some((name, rest)) = line.split_once(".xml:") else {
                continue;
            };
            let is_error = [" parser error :", " I/O error :", " encoding error :"];
            if let Ok(number) = name.parse()
                && is_error.iter().any(|kind| rest.contains(kind))
            {
                refused.entry(number).or_insert_with(|| rest.to_owned());
            }
        }
    }
    refused
}

/// Returns the reason why only rsnotify refuses a document.
fn stricter(bytes: &[u8], malformed: &Malformed) -> Option<Difference> {
    let message = match malformed {
        Malformed::Doctype { .. } => return Some(Difference::Doctype),
        Malformed::Encoding { .. } => return Some(Difference::Encoding),
        Malformed::Syntax { message, .. } => message.as_str(),
        _ => "",
    };
    let namespaces = [
        "is not declared",
        "a prefix is declared with no namespace",
        "cannot be declared",
        "has a colon in its name",
        "occurs twice",
    ];
    let is_about_name = message.contains("proper name") || message.contains("no target");
    if is_about_name && bytes.contains(&b':')
        || namespaces.iter().any(|words| message.contains(words))
    {
        return Some(Difference::Namespaces);
    }
    if message == "white space is missing in the XML declaration" {
        return Some(Difference::Declaration);
    }
    message
        .contains("the encoding")
        .then_some(Difference::Encoding)
}

/// Returns the reason why only libxml2 refuses a document.
fn laxer(bytes: &[u8]) -> Option<Difference> {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).to_lowercase();
    let declared = head.split_once("encoding=").map(|(_, rest)| rest);
    let is_other = declared.is_some_and(|rest| !rest.starts_with(r#""utf-8""#));
    is_other.then_some(Difference::Encoding)
}

#[test]
fn each_difference_is_one() {
    if needs::program("xmllint").is_none() {
        return;
    }
    let document = |prolog: &str, child: &str| {
        format!(
            "{prolog}<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' \
             xmlns:rs='http://www.openarchives.org/rs/terms/'><rs:md capability='changelist'/>{child}</urlset>"
        )
    };
    let ascii = document("<?xml version='1.0' encoding='US-ASCII'?>", "\u{e9}");
    let latin1 = ascii.chars().map(|c| u8::try_from(c).unwrap());
    let strict = |prolog, child, difference| (document(prolog, child).into(), false, difference);
    let cases: Vec<(Vec<u8>, bool, Difference)> = vec![
        strict("<!DOCTYPE urlset>", "", Difference::Doctype),
        strict("", "<x:y/>", Difference::Namespaces),
        strict("", "<a:b:c/>", Difference::Namespaces),
        strict("", "<?a:b?>", Difference::Namespaces),
        strict("", "<a xmlns:b=''/>", Difference::Namespaces),
        strict(
            "<?xml version='1.0' encoding='UTF-8'standalone='yes'?>",
            "",
            Difference::Declaration,
        ),
        (latin1.collect(), true, Difference::Encoding),
    ];
    let refused = refused_by_libxml2(cases.iter().map(|(bytes, ..)| bytes));
    for (number, (bytes, is_taken, difference)) in cases.iter().enumerate() {
        let text = bytes.escape_ascii();
        let theirs = refused.get(&number);
        let found = match (verdict(bytes).unwrap(), theirs) {
            (Ok(()), Some(_)) => (true, laxer(bytes)),
            (Err(malformed), None) => (false, stricter(bytes, &malformed)),
            (ours, theirs) => panic!("{text}: ours {ours:?}, theirs {theirs:?}"),
        };
        assert_eq!(found, (*is_taken, Some(*difference)), "{text}: {theirs:?}");
    }
}

#[test]
fn what_is_taken_for_well_formed_is_so_to_libxml2() {
    if needs::program("xmllint").is_none() {
        return;
    }
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/parse");
    let mut files: Vec<_> = fs::read_dir(corpus)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    // The first byte says how the others arrive.
    let mut seeds: Vec<Vec<u8>> = files
        .iter()
        .map(|path| fs::read(path).unwrap()[1..].to_vec())
        .collect();
    seeds.push(SEED.into());
    assert_eq!(verdict(SEED.as_bytes()), Some(Ok(())));
    let whole = seeds.len() - 1;
    let mut random = fastrand::Rng::with_seed(33);
    let mutants: Vec<Vec<u8>> = (0..MUTANTS)
        .map(|number| {
            let seed = if number % 3 == 0 {
                random.usize(..seeds.len())
            } else {
                whole
            };
            mutant(&seeds[seed], &mut random)
        })
        .collect();
    let refused = refused_by_libxml2(mutants.iter());
    let mut agreed = [0, 0];
    let mut differ: BTreeMap<Difference, usize> = BTreeMap::new();
    let mut unexplained = BTreeSet::new();
    for (number, mutant) in mutants.iter().enumerate() {
        let Some(ours) = verdict(mutant) else {
            continue;
        };
        let difference = match (&ours, refused.get(&number)) {
            (Ok(()), None) | (Err(_), Some(_)) => {
                agreed[usize::from(ours.is_ok())] += 1;
                continue;
            }
            (Ok(()), Some(_)) => laxer(mutant),
            (Err(malformed), None) => stricter(mutant, malformed),
        };
        match difference {
            Some(difference) => *differ.entry(difference).or_default() += 1,
            None => {
                let theirs = refused.get(&number);
                unexplained.insert(format!(
                    "ours {ours:?}, theirs {theirs:?}:\n{}\n",
                    mutant.escape_ascii()
                ));
            }
        }
    }
    println!(
        "agreed on {} well-formed and {} ill-formed; {differ:?}",
        agreed[1], agreed[0]
    );
    let count = unexplained.len();
    let unexplained = Vec::from_iter(unexplained).join("\n");
    assert_eq!(count, 0, "differ:\n{unexplained}");
    assert!(
        agreed.iter().all(|&count| count > MUTANTS / 20),
        "{agreed:?}"
    );
}
