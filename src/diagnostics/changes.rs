//! Notes about change channels: how to have one, and why one announces nothing.

use resourcesync::uri::{Topic, Uri};

use crate::diagnostics::Diagnostic;

/// Notes that sets have Change Lists and no change channel (C9).
pub fn changes_not_enabled(sets: &[Uri]) -> Option<Diagnostic> {
    let message = match sets {
        [] => return None,
        [set] => format!("{set} has a Change List, and its changes are not announced one by one"),
        [set, ..] => format!(
            "{count} sets such as {set} have Change Lists, and their changes are not announced one by one",
            count = sets.len()
        ),
    };
    Some(Diagnostic::note(
        message,
        "change_notifications = true in the [[source]] gives each set a channel for changes of resources",
    ))
}

/// Notes that sets with a change channel have no Change List (C1).
pub fn no_change_list(channels: &[(Topic, Uri)]) -> Option<Diagnostic> {
    let message = match channels {
        [] => return None,
        [(topic, set)] => format!("{set} has the change channel {topic} and no Change List"),
        [(topic, set), ..] => format!(
            "{count} sets have a change channel and no Change List, such as {set} with {topic}",
            count = channels.len()
        ),
    };
    let remedy = "nothing is announced there until the generator writes one";
    Some(Diagnostic::note(message, remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_counted_and_one_is_named() {
        let set = Uri::parse("https://e.org/a/capabilitylist.xml").unwrap();
        let topic = Topic::new("https://e.org/changes/a/");
        assert_eq!(changes_not_enabled(&[]), None);
        assert_eq!(no_change_list(&[]), None);
        let one = changes_not_enabled(std::slice::from_ref(&set)).unwrap();
        assert_eq!(
            one.message,
            "https://e.org/a/capabilitylist.xml has a Change List, and its changes are not announced one by one"
        );
        let two = changes_not_enabled(&[set.clone(), set.clone()]).unwrap();
        assert!(two.message.starts_with("2 sets such as https://e.org/a/"));
        let channels = [(topic.clone(), set.clone()), (topic, set)];
        let two = no_change_list(&channels).unwrap();
        assert!(two.message.starts_with("2 sets have a change channel"));
    }
}
