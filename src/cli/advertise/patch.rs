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

    #[track_caller]
    fn assert_patch(path: &str, before: &str, after: &str, wanted: &str) {
        let patch = unified(Path::new(path), before.as_bytes(), after.as_bytes());
        assert_eq!(String::from_utf8(patch).unwrap(), wanted);
    }

    #[test]
    fn lines_end_in_lf_only() {
        assert_patch(
            "/a.xml",
            "1\r2\r\n3\r\n",
            "1\r2\r\nnew\r\n3\r\n",
            "--- /a.xml\n+++ /a.xml\n@@ -1,2 +1,3 @@\n 1\r2\r\n+new\r\n 3\r\n",
        );
    }

    #[test]
    fn a_line_without_an_end_is_marked() {
        assert_patch(
            "/a.xml",
            "1\n2",
            "1\n3\r",
            "--- /a.xml\n+++ /a.xml\n@@ -1,2 +1,2 @@\n 1\n-2\n\\ No newline at end of file\n\
             +3\r\n\\ No newline at end of file\n",
        );
    }

    #[test]
    fn a_name_with_anything_odd_in_it_is_quoted() {
        for (name, written) in [
            ("/srv/a-b_c.xml", "/srv/a-b_c.xml"),
            ("/a b.xml", "\"/a b.xml\""),
            ("/é\n\t\"\\", r#""/\303\251\012\011\042\134""#),
        ] {
            let wanted = format!("--- {written}\n+++ {written}\n@@ -1 +1 @@\n-1\n+2\n");
            assert_patch(name, "1\n", "2\n", &wanted);
        }
    }
}
