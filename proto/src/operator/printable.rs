//! What may act on a terminal does not get there: text of a peer, a file or a capture is printed without it.

use std::fmt::Write as _;

/// The text with U+FFFD in place of each character that a terminal acts on or hides: controls, format characters (direction, joiners,
/// zero width), and what has no glyph.
#[must_use]
pub fn printable(text: &str) -> String {
    text.replace(acts, "\u{fffd}")
}

/// The same document of JSON with an escape in place of each such character, which can be in its strings alone.
#[must_use]
pub fn printable_json(text: &str) -> String {
    let mut printed = String::with_capacity(text.len());
    for c in text.chars() {
        if acts(c) && !matches!(c, '\n' | '\r' | '\t') {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                _ = write!(printed, "\\u{unit:04x}");
            }
        } else {
            printed.push(c);
        }
    }
    printed
}

/// The library's list of what is not printable (Unicode's categories C and Z but the blank). Marks that combine with the character
/// before them are; alone they would be escaped, so the character stands behind another.
fn acts(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    let pair = String::from_iter(["a", c.encode_utf8(&mut [0; 4])]);
    pair.escape_debug().count() > 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_and_format_characters_are_replaced_and_languages_are_not() {
        let acting = "\0\t\n\r\u{1b}\u{7}\u{7f}\u{80}\u{85}\u{9b}\u{9f}\u{ad}\u{61c}\u{180e}\u{200b}\u{200d}\u{200e}\u{200f}\u{2028}\u{2029}\
            \u{202a}\u{202e}\u{2060}\u{2066}\u{2069}\u{feff}\u{fff9}\u{e0001}\u{e007f}";
        assert_eq!(printable(acting), "\u{fffd}".repeat(acting.chars().count()));
        let spoken = "a \"b\" 'c' \\d; Zürich, Zu\u{308}rich, Αθήνα, Москва, 東京, नमस्ते, ≥ – … € 🚀";
        assert_eq!(printable(spoken), spoken);
    }

    #[test]
    fn json_stays_the_same_document() {
        let raw = "{\n\t\"name\": \"a\u{9b}\u{202e}\u{e0001}\\u001b ü\"}";
        assert_eq!(printable_json(raw), "{\n\t\"name\": \"a\\u009b\\u202e\\udb40\\udc01\\u001b ü\"}");
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(read(&printable_json(raw)), read(raw));
    }
}
