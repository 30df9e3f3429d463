//! The change of one file in the form that `patch` and `git apply` take.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use similar::udiff::UnifiedHunkHeader;
use similar::{Algorithm, ChangeTag, capture_diff_slices, group_diff_ops};

/// Number of lines before and after a change. `patch` without `-p` uses only the last part of the path, and tolerates
/// two differing lines: no other Capability List has this many lines in common.
const CONTEXT: usize = 6;

/// Returns a unified diff. The path is absolute and leads through no link, or `patch` refuses it.
pub fn unified(path: &Path, before: &[u8], after: &[u8]) -> Vec<u8> {
    let (old, new) = (lines(before), lines(after));
    let changes = capture_diff_slices(Algorithm::Myers, &old, &new);
    let name = quoted(path.as_os_str().as_bytes());
    let mut patch = format!("--- {name}\n+++ {name}\n").into_bytes();
    let hunks = group_diff_ops(changes, CONTEXT);
    for hunk in hunks.into_iter().filter(|hunk| !hunk.is_empty()) {
        patch.extend(format!("{}\n", UnifiedHunkHeader::new(&hunk)).bytes());
        for change in hunk.iter().flat_map(|part| part.iter_changes(&old, &new)) {
            patch.push(match change.tag() {
                ChangeTag::Equal => b' ',
                ChangeTag::Delete => b'-',
                ChangeTag::Insert => b'+',
            });
            patch.extend(change.value());
            if !change.value().ends_with(b"\n") {
                patch.extend(b"\n\\ No newline at end of file\n");
            }
        }
    }
    patch
}

/// Splits a text into lines as `patch` does: they end in LF, whatever is before it.
fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|&byte| byte == b'\n').collect()
}

/// Returns a file's name as GNU diff writes it: one with special characters is quoted.
fn quoted(name: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    let is_quoted = !name.iter().all(is_plain);
    let mut quoted = String::new();
    for &byte in name {
        match byte {
            b' ' => quoted.push(' '),
            byte if is_plain(&byte) => quoted.push(char::from(byte)),
            byte => quoted.push_str(&format!("\\{byte:03o}")),
        }
    }
    if is_quoted {
        format!("\"{quoted}\"")
    } else {
        quoted
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::unified;

    #[test]
    fn a_patch_has_lines_that_end_in_lf_and_names_that_are_quoted_where_they_are_odd() {
        let ends = ("1\r2\r\n3\r\n", "1\r2\r\nnew\r\n3\r\n");
        let (no_end, other) = (("1\n2", "1\n3\r"), ("1\n", "2\n"));
        let unmarked = "@@ -1 +1 @@\n-1\n+2\n";
        let marked = "@@ -1,2 +1,2 @@\n 1\n-2\n\\ No newline at end of file\n+3\r\n\\ No newline at end of file\n";
        for ((before, after), name, written, wanted) in [
            (ends, "/a", "/a", "@@ -1,2 +1,3 @@\n 1\r2\r\n+new\r\n 3\r\n"),
            (no_end, "/a", "/a", marked),
            (other, "/srv/a-b_c.xml", "/srv/a-b_c.xml", unmarked),
            (other, "/a b.xml", "\"/a b.xml\"", unmarked),
            (
                other,
                "/é\n\t\"\\",
                r#""/\303\251\012\011\042\134""#,
                unmarked,
            ),
        ] {
            let patch = unified(Path::new(name), before.as_bytes(), after.as_bytes());
            let wanted = format!("--- {written}\n+++ {written}\n{wanted}");
            assert_eq!(String::from_utf8(patch).unwrap(), wanted);
        }
    }
}
