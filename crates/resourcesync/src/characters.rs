//! The characters that XML admits in text and in names (XML 1.0 sections 2.2 and 2.3).

/// Returns true if a byte is white space (XML 1.0 section 2.3).
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Returns true if a character is allowed in text (XML 1.0 section 2.2).
pub(crate) fn is_allowed(character: char) -> bool {
    match character {
        '\t' | '\n' | '\r' => true,
        '\u{fffe}' | '\u{ffff}' => false,
        character => character >= ' ',
    }
}

/// Returns true if a name may begin with a character (XML 1.0 section 2.3, fifth edition, which admits all that the
/// ones before it did). The colon is left to the caller.
pub(crate) fn is_name_start(character: char) -> bool {
    matches!(character,
        'A'..='Z' | 'a'..='z' | '_'
        | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{2ff}' | '\u{370}'..='\u{37d}'
        | '\u{37f}'..='\u{1fff}' | '\u{200c}'..='\u{200d}' | '\u{2070}'..='\u{218f}'
        | '\u{2c00}'..='\u{2fef}' | '\u{3001}'..='\u{d7ff}' | '\u{f900}'..='\u{fdcf}'
        | '\u{fdf0}'..='\u{fffd}' | '\u{10000}'..='\u{effff}')
}

/// Returns true if a name may contain a character; as [`is_name_start`].
pub(crate) fn is_in_name(character: char) -> bool {
    is_name_start(character)
        || matches!(character,
            '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}' | '\u{203f}'..='\u{2040}')
}

/// Returns the message about a character that is not allowed.
pub(crate) fn forbidden(character: char) -> String {
    format!(
        "the character U+{:04X} is not allowed",
        u32::from(character)
    )
}

/// Finds the first character that is not allowed.
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
    // The text was validated by the caller, or written by an encoder.
    let text = std::str::from_utf8(text).ok()?;
    text.char_indices()
        .find(|(_, character)| !is_allowed(*character))
}
