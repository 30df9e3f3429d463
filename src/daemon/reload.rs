//! Reload: another configuration takes effect, all of it or nothing.

use anyhow::bail;
use jiff::Timestamp;
use tracing::{error, info, warn};

use crate::config::Config;
use crate::config::address::Address;
use crate::config::error::ConfigError;
use crate::daemon::difference::difference;
use crate::daemon::event_loop::reload::saved_subscriptions;
use crate::daemon::listen::{BoundListener, ServedListener, bind};
use crate::daemon::log::error_chain;
use crate::daemon::{Daemon, admin_pages, loaded, prepared_hub, public_url, settings, start_hub};
use crate::hub::SavedHub;
use crate::report::status::RefusedConfiguration;
use crate::websub::hub::PreparedHub;
use crate::websub::publish::HubClients;

impl Daemon {
    /// Reloads the configuration, or keeps the previous one if that fails.
    pub fn reload(&mut self, reread: impl Fn() -> Result<Config, ConfigError>) {
        match self.change_configuration(reread) {
            Ok(changes) => info!(changes, "reloaded the configuration: {changes}"),
            Err(error) => {
                let error = error_chain(error.as_ref());
                error!(
                    error,
                    "configuration not reloaded, keeping the previous one: {error}"
                );
                let at = Timestamp::now();
                let refused = RefusedConfiguration { at, error };
                self.event_loop.configuration_refused(refused);
            }
        }
    }

    /// Puts another configuration into effect. Returns what that changes, in words.
    fn change_configuration(
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
        let lines = HubClients::new(settings::publishers(&config)?)?;
        let brokers = settings::brokers(&config)?;
        let public = self.bound(&self.public, &config.server.listen, "public")?;
        let admin = self.bound(&self.admin, &config.server.admin_listen, "admin")?;
        let tcp = match &public {
            Some(elsewhere) => elsewhere.tcp_address(),
            None => self.public.tcp,
        };
        let public_url = public_url(&config, tcp)?;
        let prepared_hub = prepared_hub(&config, &public_url)?;
        let is_first_hub = prepared_hub.is_some() && self.hub.is_none();
        let saved = saved_subscriptions(self.event_loop.store(), is_first_hub)?;
        let plan = config.plan(&public_url);
        let is_same_plan = plan == self.config.plan(&self.public_url);
        if !is_same_plan || config.sources != self.config.sources {
            self.event_loop.change_plan(&config, plan)?;
        }

        // Nothing fails from here on.
        self.publisher.change(lines);
        self.brokers.change(brokers, &self.submission_runtime);
        let changed = config.hubs.iter().filter(|hub| {
            let before = self.config.hubs.iter().find(|before| before.hub == hub.hub);
            before.is_some_and(|before| before != *hub)
        });
        let changed = changed.map(|hub| hub.hub.clone());
        let changed_brokers = config.brokers.iter().filter(|broker| {
            let mut before = self.config.brokers.iter();
            let before = before.find(|before| before.plan.name == broker.plan.name);
            before.is_some_and(|before| before != *broker)
        });
        let changed_brokers = changed_brokers.map(|broker| broker.plan.name.clone());
        self.event_loop.hubs_changed(changed.chain(changed_brokers));
        self.change_hub(prepared_hub, saved);
        if let Some(elsewhere) = public {
            elsewhere.log_address();
            let hub = self.open_hub.subscribe();
            let (listener, served) = elsewhere.serve_public(self.topics.clone(), hub);
            self.public = listener;
            self.served.push(served);
        }
        if let Some(elsewhere) = admin {
            elsewhere.log_address();
            let pages = admin_pages(&config, &self.readiness, &self.inputs);
            let (listener, served) = elsewhere.serve_admin(pages);
            self.admin = listener;
            self.served.push(served);
        }
        self.served.retain(|task| !task.is_finished());
        self.event_loop
            .configuration_loaded(loaded(config.effective()));
        let changes = difference(&self.config, &config);
        let (old, new) = (&self.config.server, &config.server);
        if self.public.is_activated() && old.listen != new.listen {
            warn!(
                "server.listen is ignored: the socket passed by the service manager stays in use"
            );
        }
        if self.admin.is_activated() && old.admin_listen != new.admin_listen {
            warn!(
                "server.admin_listen is ignored: the socket passed by the service manager stays in use"
            );
        }
        self.config = config;
        self.public_url = public_url;
        Ok(changes)
    }

    /// Changes the settings of the embedded hub, or starts it; without settings, it takes no more subscriptions.
    fn change_hub(&mut self, prepared_hub: Option<PreparedHub>, saved: SavedHub) {
        let open = prepared_hub.map(|prepared_hub| match &self.hub {
            Some(hub) => {
                hub.apply(prepared_hub);
                hub.clone()
            }
            None => {
                let (topics, inputs) = (self.topics.clone(), self.inputs.clone());
                start_hub(prepared_hub, saved, topics, inputs, self.failpoints.clone())
            }
        });
        if open.is_some() {
            self.hub.clone_from(&open);
        }
        self.event_loop.change_hub(self.hub.clone(), open.is_some());
        self.open_hub.send_replace(open);
    }

    /// Binds a listener whose address has changed to the new one.
    fn bound(
        &self,
        served: &ServedListener,
        address: &Address,
        name: &'static str,
    ) -> anyhow::Result<Option<BoundListener>> {
        let elsewhere = (!served.is_at(address)).then(|| bind(address, name));
        elsewhere
            .map(|binding| self.runtime.block_on(binding))
            .transpose()
    }
}
