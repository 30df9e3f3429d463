//! Which characters XML admits, and where lines end (XML 1.0 sections 2.2, 2.3 and 2.11).

use crate::resourcesync::scan::find;

/// Whether XML 1.0 section 2.3 counts a byte as white space.
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Whether XML 1.0 section 2.2 admits a character.
pub(crate) fn is_allowed(character: char) -> bool {
    match character {
        '\t' | '\n' | '\r' => true,
        '\u{fffe}' | '\u{ffff}' => false,
        character => character >= ' ',
    }
}

/// Whether a name may begin with a character (XML 1.0 section 2.3, fifth edition, which admits all that the ones
/// before it did). The colon is left to the caller.
pub(crate) fn is_name_start(character: char) -> bool {
    matches!(character,
        'A'..='Z' | 'a'..='z' | '_'
        | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{2ff}' | '\u{370}'..='\u{37d}'
        | '\u{37f}'..='\u{1fff}' | '\u{200c}'..='\u{200d}' | '\u{2070}'..='\u{218f}'
        | '\u{2c00}'..='\u{2fef}' | '\u{3001}'..='\u{d7ff}' | '\u{f900}'..='\u{fdcf}'
        | '\u{fdf0}'..='\u{fffd}' | '\u{10000}'..='\u{effff}')
}

/// Whether a name may contain a character; as [`is_name_start`].
pub(crate) fn is_in_name(character: char) -> bool {
    is_name_start(character)
        || matches!(character,
            '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}' | '\u{203f}'..='\u{2040}')
}

/// The message about a character that XML does not admit.
pub(crate) fn forbidden(character: char) -> String {
    format!(
        "the character U+{:04X} is not allowed",
        u32::from(character)
    )
}

/// Where the first character is that XML does not admit.
pub(crate) fn first_forbidden(text: &[u8]) -> Option<(usize, char)> {
    let is_suspect = |&byte: &u8| {
        (byte < b' ') & (byte != b'\t') & (byte != b'\n') & (byte != b'\r') | (byte == 0xef)
    };
    // Without an early exit the compiler compares many bytes at once.
    if text
        .iter()
        .fold(0, |found, byte| found | u8::from(is_suspect(byte)))
        == 0
    {
        return None;
    }
    // The caller has validated it, or an encoder has written it.
    let text = std::str::from_utf8(text).ok()?;
    text.char_indices()
        .find(|(_, character)| !is_allowed(*character))
}

/// XML 1.0 section 2.11: CR LF and CR become LF. Returns the new length.
pub(crate) fn unify_line_ends(text: &mut [u8], after_cr: &mut bool) -> usize {
    if text.is_empty() {
        return 0;
    }
    let mut at = usize::from(*after_cr && text[0] == b'\n');
    let mut kept = 0;
    *after_cr = false;
    loop {
        let cr = find(&text[at..], [b'\r']).map(|length| at + length);
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

/// How many lines end in a text.
pub(crate) fn newlines(text: &[u8]) -> u64 {
    // Blocks whose count fits a byte, so that the compiler compares many bytes at once.
    text.chunks(255)
        .map(|block| {
            let count: u8 = block.iter().map(|&byte| u8::from(byte == b'\n')).sum();
            u64::from(count)
        })
        .sum()
}
