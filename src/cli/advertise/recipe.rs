//! Commands by which a Destination subscribes to a channel.

use resourcesync::document::Advertisement;

/// A placeholder for a Destination's callback.
const CALLBACK: &str = "https://destination.example.net/callback/";

/// Returns the channel's addresses, and the commands to discover it, to subscribe and to listen (WebSub sections 4 and
/// 5).
pub fn recipe(channel: &Advertisement) -> String {
    let topic = channel.topic.as_str();
    let mut recipe = format!("  topic      {topic} (kind {})\n", channel.kind);
    for hub in &channel.hubs {
        recipe += &format!("  hub        {hub}\n");
    }
    recipe += &format!("  discover   {}\n", curl(&["--head"], topic));
    for hub in &channel.hubs {
        let topic = format!("hub.topic={topic}");
        let callback = format!("hub.callback={CALLBACK}");
        let mut form = vec!["--data", "hub.mode=subscribe"];
        form.extend(["--data-urlencode", &topic, "--data-urlencode", &callback]);
        recipe += &format!("  subscribe  {}\n", curl(&form, hub.as_str()));
    }
    recipe + &format!("  listen     rsnotify listen {}", quoted(topic))
}

fn curl(arguments: &[&str], uri: &str) -> String {
    let mut command = "curl".to_owned();
    // Otherwise these are patterns of several URIs.
    if uri.contains(['[', ']', '{', '}']) {
        command += " --globoff";
    }
    for argument in arguments.iter().chain([&uri]) {
        command.push(' ');
        command += &quoted(argument);
    }
    command
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,".contains(c);
    if word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use insta::assert_snapshot;
    use resourcesync::channel_kind::ChannelKind;
    use resourcesync::document::Advertisement;
    use resourcesync::uri::{Hub, Topic};

    use super::{quoted, recipe};

    #[test]
    fn a_channel_is_discovered_subscribed_to_and_watched() {
        let channel = Advertisement {
            kind: ChannelKind::Framework,
            topic: Topic::new("https://e.org/t/?a=1&b='"),
            hubs: vec![Hub::new("https://h.example/"), Hub::new("http://[::1]/hub")],
        };
        assert_snapshot!(recipe(&channel), @r"
        topic      https://e.org/t/?a=1&b=' (kind framework)
        hub        https://h.example/
        hub        http://[::1]/hub
        discover   curl --head 'https://e.org/t/?a=1&b='\'''
        subscribe  curl --data hub.mode=subscribe --data-urlencode 'hub.topic=https://e.org/t/?a=1&b='\''' --data-urlencode hub.callback=https://destination.example.net/callback/ https://h.example/
        subscribe  curl --globoff --data hub.mode=subscribe --data-urlencode 'hub.topic=https://e.org/t/?a=1&b='\''' --data-urlencode hub.callback=https://destination.example.net/callback/ 'http://[::1]/hub'
        listen     rsnotify listen 'https://e.org/t/?a=1&b='\'''
        ");
    }

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        for word in [
            "plain", "a b", "it's", "$HOME", "`x`", "a&b;c", "é\"\\", "*", "~", "#",
        ] {
            let script = format!("printf %s {}", quoted(word));
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
    }
}
