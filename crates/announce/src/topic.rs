//! Topics of channels: those of sets that advertise none, and problems of those that are advertised (R9).

use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::{Topic, Uri, is_clean};
use url::{Position, Url};

use crate::finding::Finding;
use crate::plan::{MountPlan, Plan, SourcePlan};

/// Returns what is wrong with the topic of a set of a source, if anything is.
pub fn problem(plan: &Plan, source: &SourcePlan, set: &Uri, topic: &Topic) -> Option<Finding> {
    let (set, topic) = (set.clone(), topic.clone());
    let text = topic.as_str();
    let forbidden = text.chars().find(|c| !is_clean(c.encode_utf8(&mut [0; 4])));
    let is_served = |uri: &Uri| uri.is_below(&plan.public_url) || source.mount_of(uri).is_some();
    match Uri::parse(text) {
        Ok(uri) if !is_served(&source.canonical(&uri)) => {
            Some(Finding::ForeignTopic { set, topic })
        }
        Ok(_) if forbidden.is_none() => {
            let requested = requested_otherwise(text)?;
            Some(Finding::UnrequestableTopic {
                set,
                topic,
                requested,
            })
        }
        _ => Some(Finding::InvalidTopic {
            set,
            topic,
            forbidden,
        }),
    }
}

/// Returns what clients request instead of a URI: they escape what is not ASCII, resolve `..`, and drop fragments.
fn requested_otherwise(text: &str) -> Option<String> {
    let mut url = Url::parse(text).ok()?;
    url.set_fragment(None);
    let (_, rest) = text.split_once("://")?;
    let written = rest
        .find(['/', '?', '#'])
        .map_or("", |start| &rest[start..]);
    // Without a path, they request `/`.
    let is_same =
        written == &url[Position::BeforePath..] || (written.is_empty() && url.path() == "/");
    (!is_same).then(|| url.into())
}

/// Returns the topics that a set without an advertisement may have: the one that a new channel gets comes first, then
/// the one that it keeps if it has it already.
///
/// With several mounts in a source, the prefix of the list's mount is part of it, so that it depends on no other
/// mount and on no order; a channel that was opened when there was one mount stays as it was.
pub fn default_topics(
    plan: &Plan,
    source: &SourcePlan,
    set: &Uri,
    kind: ChannelKind,
) -> Option<[Topic; 2]> {
    let mount = source.mount_of(set)?;
    let path = set.as_str().strip_prefix(mount.prefix.as_str())?;
    let path = path.strip_suffix(".xml").unwrap_or(path);
    let name = match kind {
        ChannelKind::Framework => Uri::below(&plan.public_url, b"topics/"),
        ChannelKind::Change => Uri::below(&plan.public_url, b"changes/"),
    };
    let name = Uri::below(&name, source.name.as_bytes());
    let mount_name = mount_name(mount);
    let plain = Topic::new(format!("{name}/{path}/"));
    let named = Topic::new(format!("{name}/{mount_name}{path}/"));
    Some(match source.mounts.len() {
        1 => [plain, named],
        _ => [named, plain],
    })
}

/// Returns the name of a mount, which is where it is published, without the usual scheme.
fn mount_name(mount: &MountPlan) -> String {
    let prefix = mount.prefix.as_str();
    let name = match prefix.split_once("://") {
        Some(("https", name)) => name.to_owned(),
        Some((scheme, name)) => format!("{scheme}:{name}"),
        None => prefix.to_owned(),
    };
    // They stand in an authority, and in no path.
    name.replace('[', "%5B").replace(']', "%5D")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::requested_otherwise;

    #[rstest]
    #[case("https://e.org/t/", None)]
    #[case("https://e.org", None)]
    #[case("https://e.org/t?a=1&b=/../", None)]
    #[case("https://e.org/t/%C3%A9/~x/(1)/", None)]
    #[case("https://e.org:443/T/", None)]
    #[case("https://e.org/t/é/", Some("https://e.org/t/%C3%A9/"))]
    #[case("https://e.org/t/../dots/", Some("https://e.org/dots/"))]
    #[case("https://e.org/t/./dots/", Some("https://e.org/t/dots/"))]
    #[case("https://e.org/t/%2e%2e/dots/", Some("https://e.org/dots/"))]
    #[case("https://e.org/t/#part", Some("https://e.org/t/"))]
    #[case("https://e.org/t\\x", Some("https://e.org/t/x"))]
    #[case("https://e.org/t/{x}", Some("https://e.org/t/%7Bx%7D"))]
    #[case("https://e.org/t?é", Some("https://e.org/t?%C3%A9"))]
    fn what_clients_request_is_what_is_served(
        #[case] topic: &str,
        #[case] requested: Option<&str>,
    ) {
        assert_eq!(requested_otherwise(topic).as_deref(), requested);
    }
}
