//! Another configuration takes over, all of it or nothing.

use anyhow::bail;
use jiff::Timestamp;
use tracing::{error, info, warn};

use crate::config::Config;
use crate::config::address::Address;
use crate::config::error::ConfigError;
use crate::daemon::difference::difference;
use crate::daemon::listen::{BoundListener, ServedListener, bind};
use crate::daemon::{Daemon, admin_pages, conduct, loaded, log, public_url, settings, start_hub};
use crate::report::status::RefusedConfiguration;
use crate::websub::hub::{Conduct, Restored};
use crate::websub::publish::Lines;

impl Daemon {
    /// Goes by what is configured now, or by what it went by, if that is not possible.
    pub fn reload(&mut self, reread: impl Fn() -> Result<Config, ConfigError>) {
        match self.take_over(reread) {
            Ok(changes) => info!(changes, "reloaded the configuration: {changes}"),
            Err(error) => {
                let error = log::error_chain(error.as_ref());
                error!(
                    error,
                    "configuration not reloaded, keeping the previous one: {error}"
                );
                let at = Timestamp::now();
                self.event_loop.refuse(RefusedConfiguration { at, error });
            }
        }
    }

    /// Takes over, and tells what that changes.
    fn take_over(
        &mut self,
        reread: impl Fn() -> Result<Config, ConfigError>,
    ) -> anyhow::Result<String> {
        let config = reread()?;
        let (before, after) = (&self.config.state_dir, &config.state_dir);
        if before != after {
            let (before, after) = (before.display(), after.display());
            bail!("state_dir is {after} now: restart rsnotify to leave {before}");
        }
        let handle = self.runtime.handle().clone();
        let _context = handle.enter();
        let lines = Lines::new(settings::publishers(&config)?)?;
        let public = self.bound(&self.public, &config.server.listen, "public")?;
        let admin = self.bound(&self.admin, &config.server.admin_listen, "admin")?;
        let tcp = match &public {
            Some(elsewhere) => elsewhere.tcp_address(),
            None => self.public.tcp,
        };
        let public_url = public_url(&config, tcp)?;
        let conduct = conduct(&config, &public_url)?;
        let is_first_hub = conduct.is_some() && self.hub.is_none();
        let restored = self.event_loop.saved_subscriptions(is_first_hub)?;
        let plan = config.plan(&public_url);
        let is_same_plan = plan == self.config.plan(&self.public_url);
        if !is_same_plan || config.sources != self.config.sources {
            self.event_loop.succeed(&config, plan)?;
        }

        // Nothing fails from here on.
        self.publisher.change(lines);
        let changed = config.hubs.iter().filter(|hub| {
            let before = self.config.hubs.iter().find(|own| own.hub == hub.hub);
            before.is_some_and(|before| before != *hub)
        });
        self.event_loop
            .hubs_changed(changed.map(|own| own.hub.clone()));
        self.take_hub(conduct, restored);
        if let Some(elsewhere) = public {
            elsewhere.tell();
            let hub = self.open_hub.subscribe();
            let (front, served) = elsewhere.serve_public(self.topics.clone(), hub);
            self.public = front;
            self.served.push(served);
        }
        if let Some(elsewhere) = admin {
            elsewhere.tell();
            let pages = admin_pages(&config, &self.readiness, &self.inputs);
            let (front, served) = elsewhere.serve_admin(pages);
            self.admin = front;
            self.served.push(served);
        }
        self.served.retain(|task| !task.is_finished());
        self.event_loop.set_configuration(loaded(&config));
        let changes = difference(&self.config, &config);
        let (old, new) = (&self.config.server, &config.server);
        if self.public.was_given() && old.listen != new.listen {
            warn!(
                "server.listen is ignored: the socket passed by the service manager stays in use"
            );
        }
        if self.admin.was_given() && old.admin_listen != new.admin_listen {
            warn!(
                "server.admin_listen is ignored: the socket passed by the service manager stays in use"
            );
        }
        self.config = config;
        self.public_url = public_url;
        Ok(changes)
    }

    /// The embedded hub behaves so from now on; without, none takes subscriptions.
    fn take_hub(&mut self, conduct: Option<Conduct>, restored: Restored) {
        let open = conduct.map(|conduct| match &self.hub {
            Some(hub) => {
                hub.change(conduct);
                hub.clone()
            }
            None => {
                let (topics, inputs) = (self.topics.clone(), self.inputs.clone());
                start_hub(
                    conduct,
                    restored,
                    topics,
                    inputs,
                    self.event_loop.failpoints(),
                )
            }
        });
        if open.is_some() {
            self.hub.clone_from(&open);
        }
        self.event_loop.set_hub(self.hub.clone(), open.is_some());
        self.open_hub.send_replace(open);
    }

    /// A listener that is to listen elsewhere, there.
    fn bound(
        &self,
        front: &ServedListener,
        address: &Address,
        name: &'static str,
    ) -> anyhow::Result<Option<BoundListener>> {
        let elsewhere = (!front.is_at(address)).then(|| bind(address, name));
        elsewhere
            .map(|binding| self.runtime.block_on(binding))
            .transpose()
    }
}
