//! A Destination that mirrors a set of resources: `cargo run --example mirror -- TOPIC DIRECTORY` subscribes to a topic of
//! change notifications, copies the Resource Lists' resources, and then follows each change. The hub must reach this
//! machine by the callback.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use resourcesync::capability::Capability;
use resourcesync::document::Form;
use resourcesync::listing::Listing;
use resourcesync::payload::ChangeKind;
use resourcesync::receive::Notification;
use resourcesync::uri::Topic;
use tokio::fs;
use url::Url;
use websub::http::client;
use websub::subscriber::retrieve::{AllowedOrigins, Retriever, discover};
use websub::subscriber::{CallbackKey, HttpSubscriber, SignatureCheck};

const LEASE: Duration = Duration::from_secs(3_600);

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let (Some(topic), Some(directory)) = (arguments.next(), arguments.next()) else {
        return Err("usage: mirror TOPIC DIRECTORY".into());
    };
    let destination = HttpSubscriber::bind(([127, 0, 0, 1], 0).into(), None).await?;
    let report = |done: String| println!("{done}");
    mirror(&destination, &Topic::new(topic), directory.as_ref(), report).await
}

/// Mirrors a set until the hub denies a renewal. `report` is called after each file.
pub async fn mirror(
    destination: &HttpSubscriber,
    topic: &Topic,
    directory: &Path,
    report: impl Fn(String),
) -> Result<(), Failure> {
    let found = discover(topic).await?;
    let hub = found.hubs.first().ok_or("the topic names no hub")?;
    let list = found
        .capability_list
        .ok_or("the topic names no Capability List")?;
    let topic = &found.self_uri;
    let (mut subscription, mut requests) = destination.open_callback(&CallbackKey::random(), topic);
    destination.serve();
    destination
        .subscribe(&mut subscription, hub, topic, LEASE)
        .await?;
    // Subscribed first, so that no change is missed between.
    let copy = Copy::new(directory)?;
    for loc in resources(list.as_str()).await? {
        copy.update(&loc).await?;
        report(format!("copied {loc}"));
    }
    loop {
        let request = tokio::time::timeout(LEASE / 2, requests.recv()).await;
        let notification = match request {
            Ok(Some(SignatureCheck::Notification(notification))) => notification,
            Ok(Some(SignatureCheck::BadSignature { .. })) => continue,
            Ok(None) => return Ok(()),
            Err(_) => {
                destination
                    .subscribe(&mut subscription, hub, topic, LEASE)
                    .await?;
                continue;
            }
        };
        if let Notification::Change(changes) = Notification::parse(&notification.body)? {
            for change in changes.changes {
                match change.change {
                    ChangeKind::Deleted => copy.delete(&change.loc).await?,
                    ChangeKind::Created | ChangeKind::Updated => copy.update(&change.loc).await?,
                }
                report(format!("{} {}", change.change, change.loc));
            }
        }
        // Not before it is done: otherwise the hub would not deliver it again.
        notification.acknowledge();
    }
}

/// Returns the URIs of the resources that the Resource Lists of a set name, by its Capability List.
async fn resources(capability_list: &str) -> Result<Vec<String>, Failure> {
    let retriever = Retriever::new(AllowedOrigins::of([capability_list]))?;
    let mut documents = vec![capability_list.to_owned()];
    let mut resources = Vec::new();
    while let Some(url) = documents.pop() {
        let bytes = retriever.get(&url).await?;
        let listing = Listing::parse(&bytes)?.ok_or_else(|| format!("{url} is no document"))?;
        let is_resource_list = listing.known_capability() == Some(Capability::ResourceList);
        for entry in listing.entries {
            let is_wanted = entry.known_capability() == Some(Capability::ResourceList);
            match entry.loc {
                Some(loc) if is_resource_list && listing.form == Form::List => resources.push(loc),
                Some(loc) if is_resource_list || is_wanted => documents.push(loc),
                _ => {}
            }
        }
    }
    Ok(resources)
}

struct Copy<'a> {
    client: reqwest::Client,
    directory: &'a Path,
}

impl Copy<'_> {
    fn new(directory: &Path) -> Result<Copy<'_>, Failure> {
        let make = || client::builder(Duration::from_secs(60));
        let client = client::build_or_plain_http(make)?;
        Ok(Copy { client, directory })
    }

    /// Returns the file of a resource. The path of a URL has no `..`.
    fn file(&self, loc: &str) -> Result<PathBuf, Failure> {
        let url = Url::parse(loc)?;
        Ok(self.directory.join(url.path().trim_start_matches('/')))
    }

    async fn update(&self, loc: &str) -> Result<(), Failure> {
        let answer = self.client.get(loc).send().await?.error_for_status()?;
        let (file, content) = (self.file(loc)?, answer.bytes().await?);
        fs::create_dir_all(file.parent().ok_or("a URI without a path")?).await?;
        Ok(fs::write(file, content).await?)
    }

    async fn delete(&self, loc: &str) -> Result<(), Failure> {
        match fs::remove_file(self.file(loc)?).await {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}
