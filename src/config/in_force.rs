//! The configuration in force, as a file would say it: every key that has a value, and no secret.

mod hub;

use std::fmt::Display;

use toml::Value;

use crate::announce::plan::{ChannelPlan, MassDeletion, MountPlan, WindowPlan};
use crate::config::Config;
use crate::config::duration;
use crate::config::embedded_hub::EmbeddedHub;
use crate::config::server::Server;
use crate::config::source::{Source, WATCHES};

/// A key with where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// The table's name; empty for the top level.
    pub table: &'static str,
    /// Which of the tables of that name, from 0.
    pub entry: usize,
    pub name: &'static str,
}

impl Config {
    /// TOML that gives this configuration when it is read again, unless a secret in it is masked. A secret that is
    /// held elsewhere is named by what holds it.
    pub fn in_force(&self) -> String {
        self.in_force_with(&|_| None)
    }

    /// As [`Config::in_force`], with a comment behind each key that `remark` has one for.
    pub fn in_force_with(&self, remark: &dyn Fn(Key) -> Option<String>) -> String {
        let mut page = Page {
            text: String::new(),
            table: "",
            entry: 0,
            remark,
        };
        page.key("state_dir", quoted(self.state_dir.display()));
        page.table("server", "[server]", 0);
        server(&mut page, &self.server);
        for (position, own) in self.sources.iter().enumerate() {
            page.table("source", "[[source]]", position);
            source(&mut page, own);
        }
        page.table("window", "[window]", 0);
        window(&mut page, &self.window);
        page.table("embedded_hub", "[embedded_hub]", 0);
        match &self.embedded_hub {
            Some(own) => embedded_hub(&mut page, own),
            None => page.key("enabled", false),
        }
        for (position, own) in self.hubs.iter().enumerate() {
            page.table("hub", "[[hub]]", position);
            hub::hub(&mut page, own);
        }
        for (position, own) in self.channels.iter().enumerate() {
            page.table("channel", "[[channel]]", position);
            channel(&mut page, own);
        }
        page.text
    }
}

struct Page<'a> {
    text: String,
    table: &'static str,
    entry: usize,
    remark: &'a dyn Fn(Key) -> Option<String>,
}

impl Page<'_> {
    fn table(&mut self, name: &'static str, header: &str, entry: usize) {
        self.table = name;
        self.entry = entry;
        self.text.push_str(&format!("\n{header}\n"));
    }

    fn key(&mut self, name: &'static str, value: impl Display) {
        let key = Key {
            table: self.table,
            entry: self.entry,
            name,
        };
        let remark = (self.remark)(key).map(|remark| format!("  # {remark}"));
        let remark = remark.unwrap_or_default();
        self.text.push_str(&format!("{name} = {value}{remark}\n"));
    }
}

// Each of these takes its struct apart, so that a field that is added to it cannot be forgotten here.

fn server(page: &mut Page<'_>, server: &Server) {
    let Server {
        listen,
        admin_listen,
        public_url: _,
        topic_window,
        retired_topic,
        shutdown_grace,
    } = server;
    page.key("listen", quoted(listen));
    // Where the port is any free one, only the running daemon knows.
    if let Some(public_url) = server.known_public_url() {
        page.key("public_url", quoted(public_url));
    }
    page.key("admin_listen", quoted(admin_listen));
    for (name, value) in [
        ("topic_window", topic_window),
        ("retired_topic", retired_topic),
        ("shutdown_grace", shutdown_grace),
    ] {
        page.key(name, quoted(duration::display(*value)));
    }
}

fn source(page: &mut Page<'_>, Source { plan, tree }: &Source) {
    page.key("name", quoted(&plan.name));
    let mounts: Vec<String> = plan.mounts.iter().map(mount).collect();
    page.key("mount", format!("[{}]", mounts.join(", ")));
    page.key("include", list(plan.candidates.include()));
    page.key("exclude", list(plan.candidates.exclude()));
    page.key("watch", quoted(word(&WATCHES, tree.watch)));
    for (name, value) in [
        ("rescan_interval", tree.rescan_interval),
        ("poll_interval", tree.poll_interval),
        ("settle", tree.settle),
        ("open_writer", tree.open_writer),
        ("broken_after", plan.broken_after),
        ("deletion_grace", plan.deletion_grace),
    ] {
        page.key(name, quoted(duration::display(value)));
    }
    let mass_deletion = match plan.mass_deletion {
        MassDeletion::Percent(percent) => format!("{percent}%"),
        MassDeletion::Never => "never".to_owned(),
    };
    page.key("mass_deletion", quoted(mass_deletion));
    page.key("announce_existing", plan.announce_existing);
    page.key("announce_all_deletions", plan.announce_all_deletions);
    page.key("announce_all_components", plan.announce_all_components);
    page.key("unadvertised_channels", plan.unadvertised_channels);
    page.key("acknowledged", list(&plan.acknowledged));
}

fn mount(mount: &MountPlan) -> String {
    let path = quoted(mount.directory.display());
    let (url, aliases) = (quoted(&mount.prefix), list(&mount.aliases));
    format!("{{ path = {path}, url = {url}, aliases = {aliases} }}")
}

fn window(page: &mut Page<'_>, window: &WindowPlan) {
    let WindowPlan {
        quiet,
        max_wait,
        hold,
        max_entries,
        max_bytes: _,
    } = window;
    for (name, value) in [("quiet", quiet), ("max_wait", max_wait), ("hold", hold)] {
        page.key(name, quoted(duration::display(*value)));
    }
    page.key("max_entries", max_entries);
}

fn embedded_hub(page: &mut Page<'_>, hub: &EmbeddedHub) {
    let EmbeddedHub {
        path,
        callbacks,
        limits,
        trusted_proxies,
    } = hub;
    page.key("enabled", true);
    page.key("path", quoted(format_args!("/{path}")));
    page.key("https_callbacks_only", callbacks.https_only);
    let ports = callbacks.ports.iter().map(|ports| match ports {
        ports if ports.start() == ports.end() => ports.start().to_string(),
        ports => format!("{}-{}", ports.start(), ports.end()),
    });
    page.key("callback_ports", list(ports));
    page.key("allow_callback_networks", list(&callbacks.allowed));
    page.key("trusted_proxies", list(trusted_proxies));
    let most = limits.subscriptions;
    page.key("max_subscriptions", most.in_all);
    page.key("max_subscriptions_per_host", most.per_host);
    page.key("max_subscriptions_per_address", most.per_address);
    page.key("max_requests_per_minute", limits.requests_per_minute);
}

fn channel(page: &mut Page<'_>, channel: &ChannelPlan) {
    let ChannelPlan {
        capability_list,
        topic,
        hubs,
    } = channel;
    page.key("capability_list", quoted(capability_list));
    page.key("topic", quoted(topic));
    page.key("hubs", list(hubs));
}

/// A text as TOML writes it.
fn quoted(text: impl Display) -> Value {
    Value::String(text.to_string())
}

fn list(texts: impl IntoIterator<Item = impl Display>) -> Value {
    Value::Array(texts.into_iter().map(quoted).collect())
}

/// The word for one of a few choices.
fn word<T: Copy + PartialEq>(choices: &[(&'static str, T)], choice: T) -> &'static str {
    let written = choices.iter().find(|(_, own)| *own == choice);
    written.map_or("", |(word, _)| *word)
}
