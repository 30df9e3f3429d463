//! Documents, other files, broken files, and changes of content.

use std::io::{self, Read};

use proptest::prelude::*;
use rstest::rstest;

use super::{ReadError, parse};
use crate::capability::Capability;
use crate::document::{Document, Form, Malformed, NotADocument, Oversize, is_structural};
use crate::fingerprint::Fingerprint;

const CAPABILITY_LIST: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<?xml-stylesheet type="text/xsl" href="style.xsl"?>
<!-- what this set offers -->
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"
        xmlns:rs="http://www.openarchives.org/rs/terms/">
  <rs:ln rel="describedby" href="https://e.org/info.xml"/>
  <rs:ln rel="up" href="HTTPS://e.org/.well-known/resourcesync"/>
  <rs:md capability="capabilitylist" from="2026-11-20T09:00:00Z"/>
  <url>
    <loc>https://e.org/rl.xml</loc>
    <rs:md capability="resourcelist"/>
  </url>
  <url>
    <loc>https://e.org/Topic/%7e?a=1&amp;b=2#c</loc>
    <rs:md type="application/xml"/>
    <rs:md capability="framework-notification"/>
    <rs:ln rel="self hub" href="https://HUB.example/"/>
    <rs:ln rel="hub" href=" https://hub.example/2 "/>
    <rs:ln rel="hub" href="/relative"/>
  </url>
  <!-- <url><loc>https://e.org/old.xml</loc></url> -->
  <url>
    <loc>
        <![CDATA[https://e.org/cl.xml?x&]]>amp&#x3b;<!-- split -->y
    </loc>
    <rs:md capability="changelist"/>
  </url>
  <url><loc>relative.xml</loc><rs:md capability="changedump"/></url>
  <url><rs:md capability="changedump"/></url>
</urlset>
"#;

fn list(children: &str) -> String {
    format!(
        "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' \
         xmlns:rs='http://www.openarchives.org/rs/terms/'>{children}</urlset>"
    )
}

fn index(children: &str) -> String {
    list(children).replace("urlset", "sitemapindex")
}

fn content(bytes: impl AsRef<[u8]>) -> Result<Document, NotADocument> {
    parse(bytes.as_ref()).unwrap()
}

fn document(bytes: impl AsRef<[u8]>) -> Document {
    match content(bytes) {
        Ok(document) => document,
        Err(other) => panic!("{other}"),
    }
}

fn fingerprint(bytes: impl AsRef<[u8]>) -> Fingerprint {
    document(bytes).fingerprint
}

/// Returns the error of [`malformed`] in a line.
fn syntax(line: u64, message: &str) -> Malformed {
    Malformed::Syntax {
        line,
        column: 0,
        message: message.to_owned(),
    }
}

/// Without the column: a test of its own is about that.
fn malformed(bytes: impl AsRef<[u8]>) -> Malformed {
    match malformed_at(bytes) {
        Malformed::Syntax { line, message, .. } => syntax(line, &message),
        malformed => malformed,
    }
}

fn malformed_at(bytes: impl AsRef<[u8]>) -> Malformed {
    match parse(bytes.as_ref()) {
        Err(ReadError::Malformed(malformed)) => malformed,
        other => panic!("{other:?}"),
    }
}

fn members(document: &Document) -> Vec<&str> {
    document.members.iter().map(|uri| uri.as_str()).collect()
}

mod documents {
    use super::*;

    #[test]
    fn a_capability_list_yields_members_and_channels() {
        let document = document(CAPABILITY_LIST);
        assert_eq!(document.capability, Capability::CapabilityList);
        assert_eq!(document.form, Form::List);
        let up = document.up.as_ref().map(|up| up.as_str());
        assert_eq!(up, Some("https://e.org/.well-known/resourcesync"));
        assert_eq!(document.index, None);
        assert_eq!(document.span.from.as_deref(), Some("2026-11-20T09:00:00Z"));
        let lists = ["https://e.org/rl.xml", "https://e.org/cl.xml?x&amp;y"];
        assert_eq!(members(&document), lists);
        let [channel] = &document.channels[..] else {
            panic!("{:?}", document.channels);
        };
        assert_eq!(channel.topic.as_str(), "https://e.org/Topic/%7e?a=1&b=2#c");
        let hubs: Vec<_> = channel.hubs.iter().map(|hub| hub.as_str()).collect();
        assert_eq!(hubs, ["https://HUB.example/", "https://hub.example/2"]);
    }

    #[test]
    fn every_capability_is_read_in_both_forms() {
        for capability in Capability::all() {
            let children = format!(
                "<rs:md capability='{capability}' at='1' from='2' until='3' completed='4'/>\
                 <url><loc>https://e.org/1</loc></url><sitemap><loc>https://e.org/2</loc></sitemap>"
            );
            let texts = [list(&children), index(&children)];
            for (form, text) in [Form::List, Form::Index].into_iter().zip(texts) {
                let document = document(text);
                assert_eq!((document.capability, document.form), (capability, form));
                let span = document.span.clone();
                let times = [span.at, span.from, span.until, span.completed];
                let times = times.map(|time| time.unwrap_or_default().to_string());
                assert_eq!(times, ["1", "2", "3", "4"]);
                let kept = usize::from(is_structural(capability, form)) * 2;
                assert_eq!(document.members.len(), kept, "{capability} {form:?}");
            }
        }
    }

    #[rstest]
    #[case::last("<url><loc>https://e.org/1</loc></url><rs:md capability='description'/>")]
    #[case::first("<rs:md capability='description'/><url><loc>https://e.org/1</loc></url>")]
    #[case::after_one_without(
        "<rs:md at='1'/><rs:md capability=''/><url><loc>https://e.org/1</loc></url><rs:md capability=' description '/><rs:md capability='changelist'/>"
    )]
    #[case::nested_ones_do_not_count(
        "<x><rs:md capability='changelist'/></x><url><loc>https://e.org/1</loc><rs:md capability='changelist'/></url><rs:md capability='description'/>"
    )]
    #[case::other_attributes_do_not_count(
        "<rs:md rs:capability='changelist'/><rs:md capability='description'/><url><loc>https://e.org/1</loc><loc>https://e.org/2</loc></url>"
    )]
    fn the_root_description_may_stand_anywhere(#[case] children: &str) {
        let document = document(list(children));
        assert_eq!(document.capability, Capability::SourceDescription);
        assert_eq!(members(&document), ["https://e.org/1"]);
    }

    #[test]
    fn the_first_usable_link_of_a_kind_counts() {
        let document = document(list(
            "<rs:ln href='relative' rel='up'/><rs:ln rel='x UP index' href=' https://e.org/1 '/>\
             <rs:md capability='resourcelist'/><rs:ln rel='up index' href='https://e.org/2'/>",
        ));
        let links = [document.up, document.index].map(|uri| uri.unwrap().to_string());
        assert_eq!(links, ["https://e.org/1", "https://e.org/1"]);
    }

    #[test]
    fn only_a_capability_list_advertises_channels() {
        let children = "<rs:md capability='description'/><url><loc>https://e.org/topic</loc>\
                        <rs:md capability='framework-notification'/></url>";
        let document = document(list(children));
        assert_eq!(members(&document), ["https://e.org/topic"]);
        assert_eq!(document.channels, []);
    }

    #[test]
    fn a_document_of_many_windows_is_read_whole() {
        let entry = |n: usize| format!("<url>\r\n<loc>https://e.org/é/{n}</loc>\r\n</url>");
        let entries: String = (0..20_000).map(entry).collect();
        let text = list(&format!("{entries}<rs:md capability='description'/>"));
        let whole = document(&text);
        assert_eq!(whole.members.len(), 20_000);
        let last = whole.members[19_999].as_str();
        assert_eq!(last, "https://e.org/%C3%A9/19999");
        // However the bytes arrive.
        let trickle = parse(Trickle(text.as_bytes())).unwrap();
        assert_eq!(trickle, Ok(whole));
    }
}

mod others {
    use super::*;

    #[test]
    fn another_root_is_not_ours_and_a_compressed_file_is_told() {
        for bytes in [
            &b"<feed xmlns='http://www.w3.org/2005/Atom'>broken"[..],
            b"<url xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'/>",
            b"<a b:c='d'>",
            b"<!DOCTYPE html PUBLIC '-//W3C//DTD XHTML 1.0 Strict//EN' 'x.dtd' [<!ENTITY a '>'>]>\n<html>",
            b"<!doctype html><p>",
            b"<html lang=en & b>",
            b"<html lang='",
            b"hello < world",
            b"\n\xef\xbb\xbfx",
            b"<?xml version=1.0?><? ?><!-- -- --><feed/>",
            b"\x89PNG\r\n\x1a\n\0\0",
            b" \xff\xd8\xff",
        ] {
            let foreign = Err(NotADocument::ForeignRoot);
            assert_eq!(content(bytes), foreign, "{}", bytes.escape_ascii());
        }
        let gzip = Err(NotADocument::Gzip);
        assert_eq!(content(b"\x1f\x8b\x08\0\0\0\0\0"), gzip);
    }

    #[test]
    fn another_namespace_is_told() {
        let sitemap = "write xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\"";
        let terms = "write rs:md, and xmlns:rs=\"http://www.openarchives.org/rs/terms/\"";
        let https =
            list("<rs:md capability='changelist'/>").replace("http://www.open", "https://www.open");
        let table = "
            <urlset> | root element urlset is in no namespace
            <a:urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' xmlns:a='a:'> | \
                root element urlset is in the namespace \"a:\"
            <sitemapindex xmlns='https://e.org/'> | root element sitemapindex is in the namespace \"https://e.org/\"
        ";
        let rows = table
            .trim()
            .lines()
            .map(|row| row.trim().split_once(" | ").unwrap());
        let rows = rows.map(|(text, which)| (text, which, sitemap));
        let md = "root-level md is in the namespace \"https://www.openarchives.org/rs/terms/\"";
        for (text, which, remedy) in rows.chain([(&*https, md, terms)]) {
            let Err(other) = content(text) else {
                panic!("{text}");
            };
            assert_eq!(other.to_string(), format!("its {which}: {remedy}"));
        }
    }

    #[test]
    fn little_is_read_of_a_file_that_is_not_ours() {
        let long = "<!-- long -->".repeat(50_000);
        let latin1 = "<?xml version='1.0' encoding='latin1'?>";
        for (text, limit) in [
            (format!("<feed>{long}"), 8 << 10),
            (format!("{long}<urlset/>"), 64 << 10),
            (format!("<!--{}--><urlset/>", " ".repeat(500_000)), 64 << 10),
            (format!("{latin1}{long}"), 64 << 10),
        ] {
            let mut rest = text.as_bytes();
            let other = parse(&mut rest).unwrap();
            let read = text.len() - rest.len();
            assert_eq!(other, Err(NotADocument::ForeignRoot));
            assert!(read <= limit, "{read}");
        }
    }

    #[test]
    fn a_plain_sitemap_is_read_to_its_end_and_is_no_document() {
        let sitemap = list("<url><loc>https://e.org/</loc></url>");
        let other = Err(NotADocument::NoCapability);
        assert_eq!(content(&sitemap), other);
        let cut = sitemap.replace("</urlset>", "");
        assert_eq!(malformed(cut), Malformed::Truncated { line: 1 });
    }

    #[test]
    fn an_unknown_capability_is_reported() {
        let others = "framework-notification change-notification changelist-notification resourcesync ResourceList";
        for value in others.split(' ') {
            let text = list(&format!("<url/><rs:md capability='{value}'/><url/>"));
            let other = NotADocument::Capability(value.into());
            assert_eq!(content(text), Err(other));
        }
    }
}

mod broken {
    use super::*;

    #[rstest]
    #[case("", Malformed::Empty)]
    #[case("\u{feff}", Malformed::Empty)]
    #[case(" \r\n\n\t", Malformed::Truncated { line: 3 })]
    #[case("\0\0\0\0", Malformed::Truncated { line: 1 })]
    #[case("\n\0\0\n", Malformed::Truncated { line: 2 })]
    #[case("<", Malformed::Truncated { line: 1 })]
    #[case("<?xml version='1.0'?>\n", Malformed::Truncated { line: 2 })]
    #[case("<!-- so\nfar", Malformed::Truncated { line: 2 })]
    #[case("<!", Malformed::Truncated { line: 1 })]
    #[case("<!DOCTYPE x [", Malformed::Truncated { line: 1 })]
    fn a_file_without_a_root_is_incomplete(#[case] text: &str, #[case] reason: Malformed) {
        assert_eq!(malformed(text), reason);
    }

    /// Each row is a message, and the texts that it is about, where `~` ends a line.
    fn refuses(table: &str, line: u64, whole: impl Fn(&str) -> String) {
        for row in table.trim().lines() {
            let mut cells = row.split('|').map(str::trim);
            let refusal = syntax(line, cells.next().unwrap());
            for text in cells {
                let told = malformed(whole(&text.replace('~', "\n")));
                assert_eq!(told, refusal, "{text}");
            }
        }
    }

    #[test]
    fn ill_formed_text_is_refused_with_its_line() {
        let table = "
            a second root element begins | </urlset>~<urlset>
            text stands outside the root element | </urlset>~x<a>
            a CDATA section stands outside the root element | </urlset>~<![CDATA[]]>
            a reference stands outside the root element | </urlset>~&amp;
            an end tag ends no element | </urlset>~</urlset>
            the character U+0000 is not allowed | </urlset>~\0 | ~\0\0\0
            the character U+001B is not allowed | ~<url>\u{1b}
            the character U+FFFF is not allowed | ~<!--\u{ffff}-->
            the character U+0001 is not allowed | ~<url>&#1;
            &#xd800; is no character | ~<url>&#xd800;
            &#+65; is no character | ~<url>&#+65;
            the entity nbsp is not defined | ~<url>&nbsp;
            the entity eacute is not defined | ~<url a='&eacute;'>
            bare \"&\": write &amp; | ~<url>& x</url> | ~<url a='?a&b'> | ~<url>a & b; c</url> | ~<url a='?a&b=c;d'>
            </url> is expected | <url>~</loc> | <url>~</urls> | <url>~</x:url>
            an attribute's value contains < | ~<url a='<'>
            an attribute's value is not quoted | ~<url a=b>
            an attribute has no value | ~<url a>
            white space is missing in a tag | ~<url a='b'c='d'>
            an attribute has no proper name | ~<url / > | ~<url a\u{f7}='b'> | ~<url \u{e000}='b'>
            a tag has no proper name | ~< url> | ~<1url> | ~<a:b:c> | ~<rs: > | ~<a\u{d7}/> | ~<\u{b7}/>
            a tag has no proper name | ~<a\u{2028}b/> | ~<rs:\u{300}md/>
            the attribute a occurs twice | ~<url a='1' b='2' a='3'>
            the attribute c occurs twice | ~<url xmlns:a='x:' xmlns:b='x:' a:c='1' b:c='2'>
            the prefix x is not declared | ~<x:url> | ~<url x:a=''> | <url xmlns:x='x:'/>~<x:url>
            a prefix is declared with no namespace | ~<url xmlns:x=''>
            ]]> stands in the text | ~<url>]]></url>
            the XML declaration is not at the start | ~<?xml version='1.0'?>
            a DOCTYPE stands inside the root | ~<!DOCTYPE x>
            forbidden string `--` was found in a comment | ~<!-- -- --> | ~<!-- --->
            the entity a is not defined | <url>~&a;</url>
            unknown or missed symbol in markup | ~<!x> | <url>~<![cdata[]]></url>
            a processing instruction has no target | ~<? x?> | ~<??> | ~<?1?>
            the target XML is reserved | ~<?XML x?>
            the processing instruction a:b has a colon in its name | ~<?a:b c?>
            the processing instruction a has no proper name | ~<?a\"b?>
        ";
        refuses(table, 2, list);
    }

    #[test]
    fn mistakes_are_reported_with_line_and_column() {
        // The second is longer than what is read at once.
        for (others, column) in [(0, 28), (30_000, 240_028)] {
            let others = "<x>é</x>".repeat(others);
            let list = list(&format!(
                "\n<url>{others}<loc>https://e.org/é?a&b</loc></url>"
            ));
            let want = format!("line 2, column {column}: bare \"&\": write &amp;");
            assert_eq!(malformed_at(&list).to_string(), want);
        }
    }

    #[test]
    fn an_ill_formed_prolog_is_refused() {
        let table = "
            a value of the XML declaration is not quoted | <?xml version='1.0' encoding=UTF-8?>
            a value of the XML declaration is not quoted | <?xml version=encoding='UTF-8'?>
            the XML declaration has no version | <?xml encoding='UTF-8'?> | <?xml?> | <?xml ?>
            the version of XML is not 1.0 | <?xml version='2.0'?> | <?xml version=''?>
            white space is missing in the XML declaration | <?xml version='1.0'encoding='UTF-8'?>
            the XML declaration has something else than version, encoding and standalone, in this order | <?xml version='1.0' standalone='yes' encoding='UTF-8'?>
            the encoding has no proper name | <?xml version='1.0' encoding='8859-1'?>
            standalone is neither yes nor no | <?xml version='1.0' standalone='true'?>
            a value of the XML declaration does not end | <?xml version='1.0?>
            the XML declaration is not at the start | <!-- --><?xml version='1.0'?>
            a processing instruction has no target | <? ?>
            forbidden string `--` was found in a comment | <!-- -- -->
        ";
        let list = list("<rs:md capability='changelist'/>");
        refuses(table, 1, |prolog| format!("{prolog}{list}"));
    }

    #[rstest]
    #[case("<?xml version='1.0'?>")]
    #[case("<?xml\tversion =\r\n\"1.1\"  encoding= 'utf-8' standalone='no' ?>")]
    #[case("<?xml version='1.0' standalone='yes'?>")]
    #[case("<?a?><?xml-stylesheet ?><?xmlx y??><!----><!-- - -->")]
    fn a_well_formed_prolog_is_read(#[case] prolog: &str) {
        let list = list("<rs:md capability='changelist'/>");
        document(format!("{prolog}{list}"));
    }

    #[test]
    fn a_name_may_hold_the_letters_of_any_script() {
        document(list(
            "<rs:md capability='changelist'/><\u{e9}l\u{e9}ment a\u{b7}b='' \u{4e2d}='' \u{10400}=''/><a\u{300}/>",
        ));
    }

    #[test]
    fn what_may_not_stand_in_a_text_is_found_across_windows() {
        let head = list("").replace("</urlset>", "<url>");
        for length in 8_180..8_200 {
            let text = "x".repeat(length - head.len());
            let text = format!("{head}{text}]]></url></urlset>");
            let expected = syntax(1, "]]> stands in the text");
            assert_eq!(malformed(text), expected, "{length}");
        }
    }

    #[test]
    fn the_line_is_right_beyond_the_first_window() {
        for line_end in ["\n", "\r\n", "\r"] {
            let entries = format!("<url></url>{line_end}").repeat(30_000);
            let line = 30_001;
            let ended = malformed(list(&format!("{entries}</url>")));
            assert_eq!(ended, syntax(line, "</urlset> is expected"));
            let cut = malformed(list(&entries).replace("</urlset>", ""));
            assert_eq!(cut, Malformed::Truncated { line });
        }
    }

    #[test]
    fn a_doctype_is_refused_only_before_a_root_of_ours() {
        let doctype = "<!-- x -->\n<!DOCTYPE urlset [\n<!ENTITY a 'b'>\n]>\n";
        let text = format!("{doctype}{}", list("<rs:md capability='changelist'/>&a;"));
        assert_eq!(malformed(text), Malformed::Doctype { line: 2 });
        let foreign = content(format!("{doctype}<feed/>"));
        assert_eq!(foreign, Err(NotADocument::ForeignRoot));
    }

    #[test]
    fn text_that_is_not_in_its_encoding_is_refused() {
        let text = list("\n<url>\u{e9}</url>");
        let mut utf8 = text.clone().into_bytes();
        let at = utf8.iter().position(|byte| *byte == 0xa9).unwrap();
        utf8[at] = b'x';
        let encoding = "UTF-8".to_owned();
        assert_eq!(malformed(utf8), Malformed::Encoding { line: 2, encoding });

        let mut utf16 = utf16(&text, u16::to_le_bytes, [0xff, 0xfe]);
        let at = utf16.windows(2).position(|pair| pair == [0xe9, 0]).unwrap();
        utf16[at + 1] = 0xd8;
        let encoding = "UTF-16LE".to_owned();
        assert_eq!(malformed(utf16), Malformed::Encoding { line: 2, encoding });

        let unknown = format!("<?xml version='1.0' encoding='x-klingon'?>{text}");
        let expected = syntax(1, "the encoding x-klingon is unknown");
        assert_eq!(malformed(&unknown), expected);
        let foreign = unknown.replace("urlset", "feed");
        assert_eq!(content(foreign), Err(NotADocument::ForeignRoot));
    }

    #[test]
    fn what_would_take_unbounded_memory_is_refused() {
        let deep = list(&"<a>".repeat(2_000));
        let long_text = list(&format!("<url>{}", "a&amp;".repeat(3 << 20)));
        let long_tag = list(&format!("<url a='{}", "a".repeat(9 << 20)));
        let names: String = (0..2_000).map(|n| format!(" xmlns:a{n}='b:{n}'")).collect();
        let names = list(&format!("<url{names}/>"));
        let long_names = list(&format!("<{0}><{0}>", "a".repeat(600_000)));
        let long_namespace = list(&format!("<url xmlns='{}'/>", "a".repeat(40_000)));
        for (text, expected) in [
            (deep, "elements are nested 1000 deep"),
            (long_text, "a text is longer than 4194304 bytes"),
            (long_tag, "markup longer than 4194304 bytes"),
            (names, "too many namespaces are declared"),
            (long_names, "the names of nested elements are too long"),
            (long_namespace, "a namespace is too long"),
        ] {
            assert_eq!(malformed(text), syntax(1, expected));
        }
    }

    #[test]
    fn beyond_the_protocol_entries_are_counted_and_not_kept() {
        let sets = "<rs:md capability='description'/>";
        let resources = "<rs:md capability='resourcelist'/>";
        let entry = "<url><loc>http://e.org/</loc></url>";
        let long = "<url><lastmod>x</lastmod></url><!-- long -->";
        for (before, entry, entries, after, kept) in [
            (sets, entry, 60_000, "", 50_000),
            ("", entry, 60_000, sets, 50_000),
            (resources, entry, 60_000, "", 0),
            ("", entry, 60_000, resources, 0),
            (sets, long, 1_200_000, "", 0),
            (sets, "<url/>", 50_000, "", 0),
        ] {
            let text = list(&format!("{before}{}{after}", entry.repeat(entries)));
            let size = text.len() as u64;
            let document = document(text);
            assert_eq!(document.members.len(), kept, "{before}{entry}");
            let oversize = (entries > 50_000).then_some(Oversize { entries, size });
            assert_eq!(document.oversize, oversize, "{before}{entry}");
        }
    }

    #[test]
    fn what_only_wastes_memory_is_not_kept() {
        let long = "x".repeat(10_000);
        let hub = format!("https://e.org/{}", "x".repeat(1_000));
        let hubs = format!("<rs:ln rel='hub' href='{hub}'/>").repeat(2_000);
        let document = document(list(&format!(
            "<rs:md capability='capabilitylist' from='{long}'/><rs:ln rel='up' href='https://e.org/{long}'/>\
             <url><loc>https://e.org/{long}</loc></url>\
             <url><loc>https://e.org/t</loc><rs:md capability='framework-notification'/>{hubs}</url>",
        )));
        assert_eq!((document.up, document.members), (None, Vec::new()));
        assert_eq!(document.span.from.map(|from| from.len()), Some(200));
        assert_eq!(document.channels[0].hubs.len(), (1 << 20) / 1_014);
    }

    #[test]
    fn an_error_of_the_reader_is_handed_on() {
        struct Failing;
        impl Read for Failing {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("stale handle"))
            }
        }
        let failing = list("").replace("</urlset>", "");
        let result = parse(failing.as_bytes().chain(Failing));
        assert!(matches!(result, Err(ReadError::Io(_))), "{result:?}");
    }

    #[test]
    fn no_prefix_of_a_document_is_a_document() {
        for text in [
            CAPABILITY_LIST.trim_end().as_bytes(),
            &utf16(CAPABILITY_LIST.trim_end(), u16::to_be_bytes, [0xfe, 0xff]),
        ] {
            assert!(content(text).is_ok());
            for length in 0..text.len() {
                let reason = malformed(&text[..length]);
                let is_incomplete =
                    matches!(reason, Malformed::Empty | Malformed::Truncated { .. });
                assert!(is_incomplete, "{length}: {reason:?}");
            }
        }
    }
}

mod changes {
    use super::*;

    #[test]
    fn what_reads_the_same_is_the_same() {
        let (_, bare) = CAPABILITY_LIST.split_once("?>").unwrap();
        let marked = format!("\u{feff}{CAPABILITY_LIST}");
        let mut others = vec![bare.trim_start().to_owned(), marked];
        // Of each row the first is replaced by the second, and so on; `~` ends a line.
        let rewritings = "
            rs: | sync: | xmlns:rs | xmlns:sync
            <url | <s:url | </url | </s:url | <loc | <s:loc | </loc | </s:loc | xmlns= | xmlns:s=
            <rs:md | <md xmlns='http://www.openarchives.org/rs/terms/'
            ~ | ~~ | <url> | <url>~\t ~
            \" | '
            <loc>https://e.org/rl | <loc>ht<!-- -->tps://e.org/rl | what | which
            &amp; | &#38; | //e.org/info | //&#x65;&#46;org/info | //e.org/rl | //&#x65;&#46;org/rl
            <loc>https://e.org/rl.xml | <loc><![CDATA[https://e]]>.org/rl.xml
            rel=\"hub\" href=\" https://hub.example/2 \" | href=\" https://hub.example/2 \"\trel = \"hub\"
            capability=\"changedump\"/> | capability=\"changedump\"  ></rs:md >
            style.xsl | other.xsl
            rel=\"self hub\" | rel=\"self~hub\"
        ";
        for row in rewritings.trim().lines() {
            let cells: Vec<String> = row
                .split('|')
                .map(|cell| cell.trim().replace('~', "\n"))
                .collect();
            let replace = |text: String, pair: &[String]| text.replace(&pair[0], &pair[1]);
            others.push(
                cells
                    .chunks_exact(2)
                    .fold(CAPABILITY_LIST.to_owned(), replace),
            );
        }
        others.extend([" ", "\r\n", "\r"].map(|end| CAPABILITY_LIST.replace('\n', end)));
        for other in others {
            assert_ne!(other, CAPABILITY_LIST);
            assert_eq!(document(&other), document(CAPABILITY_LIST), "{other}");
        }
    }

    #[test]
    fn what_reads_differently_is_a_change() {
        // What is replaced by what; `~` ends a line and indents the next.
        let differences = "
            09:00:00Z | 09:00:01Z
            from= | until=
            <rs:md capability=\"changelist\" | <rs:md x=\"\" capability=\"changelist\"
            rl.xml | rl2.xml
            <loc>https://e.org/rl.xml</loc> | <loc/>https://e.org/rl.xml
            rl.xml | rl .xml
            </loc> | </loc><x/>
            <loc>https://e.org/rl.xml</loc>~<rs:md capability=\"resourcelist\"/> | \
                <rs:md capability=\"resourcelist\"/><loc>https://e.org/rl.xml</loc>
            <rs:md type | <rs:md xmlns:rs=\"https://e.org/\" type
            <rs:md type | <rs:md rs:type
            </loc>~<rs:md capability=\"resourcelist\"/> | <rs:md capability=\"resourcelist\"/></loc>
            <!-- <url><loc>https://e.org/old.xml</loc></url> --> | <url><loc>https://e.org/old.xml</loc></url>
        ";
        for row in differences.trim().lines() {
            let row = row.replace('~', "\n    ");
            let (from, to) = row.split_once('|').unwrap();
            let other = CAPABILITY_LIST.replace(from.trim(), to.trim());
            assert_ne!(other, CAPABILITY_LIST, "{row}");
            assert_ne!(fingerprint(&other), fingerprint(CAPABILITY_LIST), "{row}");
        }
    }

    #[test]
    fn the_encoding_is_no_part_of_the_content() {
        let text = list("<rs:md capability='description'/><url><loc>https://e.org/é</loc></url>\n");
        let declared =
            |encoding: &str| format!("<?xml version=\"1.0\" encoding='{encoding}'?>\n{text}");
        let bytes =
            |text: &str| -> Vec<u8> { text.chars().map(|c| u8::try_from(c).unwrap()).collect() };
        let latin1 = |encoding: &str| bytes(&declared(encoding));
        let be = utf16(&declared("UTF-16"), u16::to_be_bytes, [0xfe, 0xff]);
        let le = utf16(&declared("utf-16"), u16::to_le_bytes, [0xff, 0xfe]);
        for bytes in [
            declared("UTF-8").into_bytes(),
            declared("utf8").into_bytes(),
            // A string that was written to a file.
            declared("utf-16").into_bytes(),
            latin1("ISO-8859-1"),
            latin1("latin1"),
            latin1("windows-1252"),
            latin1("ANSI_X3.4-1968"),
            be[2..].to_vec(),
            le[2..].to_vec(),
            be,
            le,
        ] {
            assert_eq!(
                document(&bytes),
                document(&text),
                "{}",
                bytes.escape_ascii()
            );
        }
        let escaped = declared("ANSI_X3.4-1968").replace('é', "&#233;");
        assert_eq!(document(escaped), document(&text));
        let mut long = declared("ISO-8859-1");
        long.insert_str(long.len() - 10, &"<x>é\u{ff}\n</x>".repeat(40_000));
        assert_eq!(
            document(bytes(&long)),
            document(long.replace("ISO-8859-1", "UTF-8"))
        );
    }

    #[test]
    fn windows_do_not_show_in_the_fingerprint() {
        // Text, tags, comments, references, marks and line ends meet the window's end in every way.
        let pieces = "<x a='1&amp;2'>é\u{feff}\r\n&#65;<!-- c --><![CDATA[\r\n]]>z</x>";
        let children = format!("<rs:md capability='changelist'/>{}", pieces.repeat(2_500));
        let expected = fingerprint(list(&children));
        for padding in 1..40 {
            let padded = list(&format!("{}{children}", " ".repeat(padding)));
            assert_eq!(fingerprint(&padded), expected, "{padding}");
            assert_eq!(document(padded.replace("\r\n", "\r")).fingerprint, expected);
        }
    }

    #[test]
    fn the_fingerprint_of_one_content_stays_the_same() {
        // If this fails, stored fingerprints need a migration.
        let expected = "ddb964137f56a9c547a6262458db06bf123d6a7a712b3529f8f73fa6f4334d30";
        let Fingerprint(bytes) = fingerprint(CAPABILITY_LIST);
        assert_eq!(blake3::Hash::from_bytes(bytes).to_hex().as_str(), expected);
    }
}

/// Yields one byte at a time.
struct Trickle<'a>(&'a [u8]);

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(1);
        self.0.read(&mut buffer[..length])
    }
}

fn utf16(text: &str, order: fn(u16) -> [u8; 2], mark: [u8; 2]) -> Vec<u8> {
    let units = text.encode_utf16().flat_map(order);
    mark.into_iter().chain(units).collect()
}

/// Pieces of markup, so that random texts reach beyond the first byte.
fn fragments() -> impl Strategy<Value = String> {
    let pieces = "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'|\
                  | xmlns:rs='http://www.openarchives.org/rs/terms/'|>|/>|</urlset>|<url|</url>|<rs:md|\
                  | capability='capabilitylist'|<rs:ln| rel='hub'| href=\"https://e.org/\"|<loc>|</loc>|\
                  |https://e.org/|&|amp;|#38;|<!--|-->|<![CDATA[|]]>|<?|?>|<!DOCTYPE|[|\"|'|=| |\n|\r|é|\
                  |\u{feff}|\0|<|xml|:|<?xml version='1.0'| encoding='latin1'";
    let pieces = pieces.split('|').filter(|piece| !piece.is_empty());
    let fragment = prop::sample::select(Vec::from_iter(pieces));
    prop::collection::vec(fragment, 0..40).prop_map(|fragments| fragments.concat())
}

/// An element, written in one way and in another that reads the same.
fn twice_written() -> impl Strategy<Value = (String, String)> {
    let leaf = "[a-z<&\"' é]{0,12}".prop_map(|text| {
        let escaped = text.replace('&', "&amp;").replace('<', "&lt;");
        let other: String = text
            .chars()
            .map(|c| match c {
                ' ' => c.to_string(),
                c => format!("<!-- x -->&#{};", u32::from(c)),
            })
            .collect();
        (escaped, format!("\r\n\t {other} "))
    });
    leaf.prop_recursive(4, 32, 4, |inner| {
        let attributes = prop::collection::btree_map("[a-d]", "[a-z>&\" ]{0,8}", 0..3);
        let children = prop::collection::vec(inner, 0..4);
        (any::<bool>(), "[a-c]", attributes, children).prop_map(
            |(is_rs, name, attributes, children)| {
                let quoted: Vec<String> = attributes
                    .iter()
                    .map(|(name, value)| {
                        let value = value.replace('&', "&amp;").replace('"', "&quot;");
                        format!(" {name}=\"{value}\"")
                    })
                    .collect();
                let reversed: String = quoted.iter().rev().map(|a| a.replace(' ', "\n")).collect();
                // White space around a text that stands between two elements would split it.
                let (one, other): (Vec<_>, Vec<_>) = children.into_iter().unzip();
                let (prefix, alias) = if is_rs { ("rs:", "x:") } else { ("", "sm:") };
                (
                    format!(
                        "<{prefix}{name}{}>{}</{prefix}{name}>",
                        quoted.concat(),
                        one.join("<i/>")
                    ),
                    format!(
                        "<{alias}{name}{reversed}>{}</{alias}{name}\n>",
                        other.join("<sm:i/>")
                    ),
                )
            },
        )
    })
}

proptest! {
    #[test]
    fn no_markup_makes_it_panic(text in fragments()) {
        let at_once = parse(text.as_bytes());
        let trickled = parse(Trickle(text.as_bytes()));
        prop_assert_eq!(format!("{at_once:?}"), format!("{trickled:?}"));
    }

    #[test]
    fn the_way_of_writing_is_no_change((one, other) in twice_written()) {
        let one = list(&format!("<rs:md capability='changelist'/>{one}"));
        let other = format!(
            "<?xml version='1.0'?><sm:urlset xmlns:x='http://www.openarchives.org/rs/terms/' \
             xmlns:sm='http://www.sitemaps.org/schemas/sitemap/0.9'>\n\
             <x:md capability='changelist'/>{other}</sm:urlset>\n"
        );
        prop_assert_eq!(fingerprint(one), fingerprint(other));
    }
}

mod with_keys {
    use super::*;
    use crate::change_list::read_keys;
    use crate::parse::{MAX_KEYS, parse_with_keys};

    const CHANGE_LIST: &str = "<rs:md capability='changelist'/>";

    fn entries(count: usize) -> String {
        let entry = |number| {
            format!("\n<url><loc>https://e.org/{number}</loc><rs:md change='updated'/></url><url/>")
        };
        (0..count).map(entry).collect()
    }

    /// Long enough for several windows.
    #[test]
    fn document_and_keys_are_those_of_passes_of_their_own() {
        let list = list(&format!("{CHANGE_LIST}{}", entries(5_000)));
        let (content, keys) = parse_with_keys(list.as_bytes(), true).unwrap();
        assert_eq!(content, parse(list.as_bytes()).unwrap());
        assert_eq!(keys, Some(read_keys(list.as_bytes()).unwrap()));
    }

    #[test]
    fn other_documents_have_no_keys() {
        let entries = entries(2);
        for other in [
            list(&format!("<rs:md capability='resourcelist'/>{entries}")),
            list(&format!("{entries}{CHANGE_LIST}")),
            list(&entries),
            index(CHANGE_LIST),
            "text".to_owned(),
        ] {
            let (content, keys) = parse_with_keys(other.as_bytes(), true).unwrap();
            assert_eq!(content, parse(other.as_bytes()).unwrap());
            assert_eq!(keys, None, "{other}");
        }
    }

    #[test]
    fn keys_of_a_list_that_is_too_long_are_not_kept() {
        let keys = |count| {
            let list = list(&format!("{CHANGE_LIST}{}", entries(count)));
            let (_, keys) = parse_with_keys(list.as_bytes(), true).unwrap();
            keys.map(|keys| keys.entries.len())
        };
        // The last `url` of each pair does not count, and comes after an entry that does.
        assert_eq!(keys(MAX_KEYS - 1), Some(MAX_KEYS - 1));
        assert_eq!(keys(MAX_KEYS), None);
    }
}
