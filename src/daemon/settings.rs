//! The settings of each adaptor, made from the configuration.

use jiff::Timestamp;
use reqwest::header::HeaderName;
use resourcesync::uri::{Hub, Uri};
use rustix::process::{Resource, getrlimit};
use url::Url;
use websub::http::server;
use websub::hub::http::settings::EmbeddedHubSettings;
use websub::publisher::settings::{
    HubCredentials, HubHeader, HubProxy, PublishSettings, PublishSettingsError,
};
use websub::secret::Secret;

use crate::announce::observation::{DocumentPath, Stat};
use crate::announce::plan::{Plan, SourcePlan};
use crate::announce::steps::documents::stat;
use crate::broker::settings::{
    self as broker, BrokerHeader, BrokerSettings, BrokerSettingsError, Login, Transport,
};
use crate::config::Config;
use crate::config::address::Address;
use crate::config::broker::Broker;
use crate::config::embedded_hub::EmbeddedHubConfig;
use crate::config::http;
use crate::config::hub::ExternalHub;
use crate::config::own_hub::OwnHubSettings;
use crate::config::server::ServerSettings;
use crate::config::source::Watch;
use crate::state::{self, Db, Sql};
use crate::tree::{self, KnownFile, RecentKeys, WatchMode};

/// Returns the settings of submissions to each hub. An error in them is an error of the configuration.
pub fn publish_settings(config: &Config) -> Result<Vec<PublishSettings>, PublishSettingsError> {
    config.hubs.iter().map(settings_of_hub).collect()
}

fn settings_of_hub(hub: &ExternalHub) -> Result<PublishSettings, PublishSettingsError> {
    let http = &hub.http;
    let publish_url =
        Url::parse(hub.publish_url.reveal()).map_err(|source| PublishSettingsError::Url {
            hub: hub.hub.clone(),
            source,
        })?;
    let headers = http.headers.iter().map(|header| {
        let name =
            HeaderName::try_from(&header.name).map_err(|_| PublishSettingsError::Header {
                hub: hub.hub.clone(),
                name: header.name.clone(),
            })?;
        Ok(HubHeader {
            name,
            value: header.value.clone(),
            is_public: header.holder.is_none(),
        })
    });
    let proxy = match &http.proxy {
        http::Proxy::Environment => HubProxy::Environment,
        http::Proxy::None => HubProxy::Direct,
        http::Proxy::Through(proxy) => HubProxy::Through(proxy.clone()),
    };
    let credentials = match &http.credentials {
        http::Credentials::None => None,
        http::Credentials::Bearer(token) => Some(HubCredentials::Bearer(token.content.clone())),
        http::Credentials::Basic { username, password } => Some(HubCredentials::Basic {
            username: username.clone(),
            password: password.content.clone(),
        }),
    };
    let settings = PublishSettings {
        hub: hub.hub.clone(),
        publish_url,
        timeout: http.timeout,
        proxy,
        headers: headers.collect::<Result<_, _>>()?,
        credentials,
        ca_pem: http
            .tls
            .ca
            .as_ref()
            .map(|ca| ca.reveal().as_bytes().to_vec()),
        identity_pem: http.tls.client_identity.as_ref().map(|identity| {
            Secret::new(format!(
                "{}\n{}",
                identity.certificate.reveal(),
                identity.key.reveal()
            ))
        }),
        danger_accept_invalid_certs: http.danger_accept_invalid_certs,
    };
    settings.check()?;
    Ok(settings)
}

/// Returns the settings of each broker. An error in them is an error of the configuration.
pub fn brokers(config: &Config) -> Result<Vec<BrokerSettings>, BrokerSettingsError> {
    config.brokers.iter().map(broker).collect()
}

fn broker(broker: &Broker) -> Result<BrokerSettings, BrokerSettingsError> {
    let identity = broker.tls.client_identity.as_ref();
    let headers = broker.headers.iter();
    let settings = BrokerSettings {
        name: broker.plan.name.clone(),
        host: broker.address.host.clone(),
        port: broker.address.port,
        transport: match broker.address.is_tls {
            false => Transport::Tcp,
            true => Transport::Tls {
                ca_pem: broker.tls.ca.as_ref().map(|ca| ca.content.clone()),
                identity: identity.map(|identity| broker::ClientCertificate {
                    certificate: identity.certificate.content.clone(),
                    key: identity.key.content.clone(),
                }),
            },
        },
        vhost: broker.vhost.clone(),
        login: broker.login.as_ref().map(|login| Login {
            username: login.username.clone(),
            password: login.password.content.clone(),
        }),
        destination: broker.destination.clone(),
        payload: broker.payload.clone(),
        headers: headers
            .map(|header| BrokerHeader {
                name: header.name.clone(),
                value: header.value.clone(),
                is_public: header.holder.is_none(),
            })
            .collect(),
        timeout: broker.timeout,
        heart_beat: broker::HEART_BEAT,
    };
    settings.check()?;
    Ok(settings)
}

/// Returns the settings of the embedded hub. Without a configuration file (`has_file`), requests must name a host of
/// ours: a browser on this machine may be led to it.
pub fn embedded_hub(
    embedded: &EmbeddedHubConfig,
    public_url: &Uri,
    has_file: bool,
) -> EmbeddedHubSettings {
    let own_hosts = || {
        let url = Url::parse(public_url.as_str()).ok();
        let host = url.and_then(|url| url.host_str().map(str::to_owned));
        host.into_iter().collect()
    };
    EmbeddedHubSettings {
        policy: embedded.callbacks.clone(),
        limits: embedded.limits.clone(),
        trusted_proxies: embedded.trusted_proxies.clone(),
        own_hosts: (!has_file).then(own_hosts),
        ..with_slots(embedded.hub(public_url))
    }
}

/// Returns the settings of `rsnotify hub` towards its subscribers.
pub fn own_hub(settings: &OwnHubSettings) -> EmbeddedHubSettings {
    EmbeddedHubSettings {
        policy: settings.subscribers.callbacks.clone(),
        limits: settings.subscribers.limits.clone(),
        trusted_proxies: settings.subscribers.trusted_proxies.clone(),
        ..with_slots(settings.url.clone())
    }
}

/// Returns the usual settings, with as many slots as there are file descriptors for.
fn with_slots(hub: Hub) -> EmbeddedHubSettings {
    let usual = EmbeddedHubSettings::new(hub);
    let spare = server::spare(getrlimit(Resource::Nofile).current);
    let share = |parts: usize, limit: usize| (spare / parts).clamp(1, limit);
    EmbeddedHubSettings {
        // As many deliveries again may be slow ones.
        concurrent_deliveries: share(8, usual.concurrent_deliveries),
        concurrent_verifications: share(32, usual.concurrent_verifications),
        concurrent_lookups: share(32, usual.concurrent_lookups),
        ..usual
    }
}

/// Returns the settings of a source's tree, with the mounts as the plan numbers them.
pub fn tree(config: &Config, source: usize, plan: &Plan) -> tree::TreeSettings {
    let settings = &config.sources[source].tree;
    tree::TreeSettings {
        mounts: plan.sources[source].mounts.clone(),
        candidates: plan.sources[source].candidates.clone(),
        watch: match settings.watch {
            Watch::Auto => WatchMode::Auto,
            Watch::Inotify => WatchMode::Inotify,
            Watch::Notify => WatchMode::Notify,
            Watch::Poll => WatchMode::Poll,
        },
        rescan_interval: settings.rescan_interval,
        poll_interval: settings.poll_interval,
        settle: settings.settle,
        open_writer: settings.open_writer,
        recent_keys: RecentKeys::default(),
    }
}

/// Returns the files of a source that earlier runs read, with the stat data that spares reading them again.
pub fn known(db: Db<'_>, source: &SourcePlan) -> state::Result<Vec<KnownFile>> {
    let mut known = Vec::new();
    for mount in &source.mounts {
        let files = db.all(
            "SELECT path, size, modified, changed, inode, looked FROM document \
             WHERE mount = ?1 AND presence = 1 \
             UNION ALL SELECT path, size, modified, changed, inode, looked FROM other_file WHERE mount = ?1",
            [Sql(mount.id)],
            |row| {
                Ok(KnownFile {
                    path: DocumentPath {
                        mount: mount.id,
                        below: row.bytes()?,
                    },
                    stat: stat(row)?,
                    read_at: row.sql()?,
                })
            },
        )?;
        known.extend(files);
        // No file has this size: it is read again, and missed if it is not there.
        let unknown = db.all(
            "SELECT path FROM trouble WHERE mount = ?1 \
             UNION SELECT path FROM document WHERE mount = ?1 AND presence IN (2, 3)",
            [Sql(mount.id)],
            |row| {
                Ok(KnownFile {
                    path: DocumentPath {
                        mount: mount.id,
                        below: row.bytes()?,
                    },
                    stat: Stat {
                        size: u64::MAX,
                        modified: Timestamp::MIN,
                        changed: Timestamp::MIN,
                        inode: 0,
                    },
                    read_at: Timestamp::MIN,
                })
            },
        )?;
        known.extend(unknown);
    }
    Ok(known)
}

/// Returns the names under which the admin listener may be addressed (a guard against DNS rebinding).
pub fn hosts(server: &ServerSettings) -> Vec<String> {
    let mut hosts = vec!["localhost".to_owned()];
    if let Address::Tcp(address) = &server.admin_listen {
        hosts.push(address.ip().to_string());
    }
    hosts
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::config::overrides::Overrides;

    use super::*;

    /// A configuration of one hub, with these keys.
    fn configured(directory: &tempfile::TempDir, keys: &str) -> Config {
        let path = directory.path().join("c.toml");
        let text = format!(
            "[[source]]\nname = \"main\"\nmount = [{{ path = \"www\", url = \"https://e.org\" }}]\n\
             [[hub]]\nurl = \"https://h.example/\"\n{keys}\n"
        );
        fs::write(&path, text).unwrap();
        Config::load(Some(&path), &Overrides::default()).unwrap()
    }

    #[test]
    fn accepting_invalid_certificates_reaches_the_publisher() {
        let directory = tempfile::tempdir().unwrap();
        for (keys, want) in [("", false), ("danger_accept_invalid_certs = true", true)] {
            let hubs = publish_settings(&configured(&directory, keys)).unwrap();
            assert_eq!(hubs[0].danger_accept_invalid_certs, want);
        }
    }

    #[test]
    fn a_certificate_that_is_none_is_an_error_of_the_configuration() {
        let directory = tempfile::tempdir().unwrap();
        let pem = |kind: &str, inside: &str| {
            format!("-----BEGIN {kind}-----\n{inside}\n-----END {kind}-----\n")
        };
        let key = pem("PRIVATE KEY", "aGVsbG8=");
        fs::write(directory.path().join("key.pem"), key).unwrap();
        // No base64, and base64 of something else.
        for inside in ["?", "aGVsbG8="] {
            let certificate = pem("CERTIFICATE", inside);
            fs::write(directory.path().join("cert.pem"), certificate).unwrap();
            for keys in [
                "ca_file = \"cert.pem\"",
                "ca_file = \"cert.pem\"\ndanger_accept_invalid_certs = true",
                "client_cert = \"cert.pem\"\nclient_key = \"key.pem\"",
            ] {
                let error = publish_settings(&configured(&directory, keys)).unwrap_err();
                assert!(
                    matches!(error, PublishSettingsError::Certificates { .. }),
                    "{keys}: {error:?}"
                );
            }
        }
    }
}
