//! Joins the parts: binds, starts, and stops them. The only loop is in `turns`.

mod descriptors;
mod listen;
pub mod report;
pub mod settings;
mod steps;
mod supervisor;
mod turns;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc;

use anyhow::Context;
use jiff::Timestamp;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::admin::{Admin, Health};
use crate::announce::engine::Engine;
use crate::announce::event::Event;
use crate::announce::subscription::HubRecord;
use crate::config::Config;
use crate::control;
use crate::daemon::steps::Step;
use crate::daemon::turns::{Input, Turns};
use crate::store::Store;
use crate::tree::Tree;
use crate::websub::hub::{EmbeddedHub, Restored};
use crate::websub::public::serve_public;
use crate::websub::publish::Publisher;
use crate::websub::server::Limits;
use crate::websub::topics::Topics;

pub use crate::daemon::turns::orders::{consult, no_hub, obey};

/// Runs until SIGTERM or SIGINT. Everything that can fail for want of permission or a free address does so
/// before the first file is looked at.
pub fn run(config: &Config) -> anyhow::Result<()> {
    let began = Timestamp::now();
    descriptors::take_all_granted();
    let hubs = settings::publishers(config)?;
    let store = Store::open(&config.state_dir)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the network threads")?;
    let _guard = runtime.enter();
    // Before anything is said: whoever hears of us may stop us.
    let terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let (inputs, received) = mpsc::channel();
    let (stop, stopped) = watch::channel(false);
    let public = runtime.block_on(listen::bind(&config.server.listen, "public"))?;
    let admin = runtime.block_on(listen::bind(&config.server.admin_listen, "admin"))?;
    let public_url = match (&config.server.public_url, public.tcp_address()) {
        (Some(url), _) => url.clone(),
        (None, Some(address)) => config.server.public_url_at(address),
        (None, None) => {
            anyhow::bail!("a Unix socket says nothing about how it is reached: set public_url")
        }
    };

    let state = store.load()?;
    let mut plan = config.plan(&public_url);
    plan.adopt(&state.mounts);
    let known_others: Vec<_> = state
        .others
        .iter()
        .map(|(path, (stat, at))| (path.clone(), *stat, *at))
        .collect();
    let (subscriptions, relays) = store.load_hub()?;
    let (engine, effects) = Engine::new(plan, state, Timestamp::now());

    let topics = Topics::new({
        let inputs = inputs.clone();
        move |topic| {
            // A stopped loop no longer cares.
            let _ = inputs.send(Input::Event(Event::Fetched(topic)));
        }
    });
    let publisher = Arc::new(Publisher::new(hubs)?);
    let health = Health::new();
    let mut turns = Turns::new(
        engine,
        store,
        topics.clone(),
        publisher,
        inputs.clone(),
        runtime.handle().clone(),
        health.clone(),
    );
    turns.began_at(began);
    turns.perform_first(effects);
    let hub = match &config.embedded_hub {
        Some(embedded) => {
            let records = inputs.clone();
            let steps = turns.steps();
            let hub = EmbeddedHub::start(
                settings::embedded_hub(embedded, &public_url),
                Restored {
                    subscriptions,
                    relays,
                },
                topics.clone(),
                move |changed| {
                    for record in &changed {
                        if matches!(record, HubRecord::Progressed(..)) {
                            steps.pass(Step::Relayed);
                        }
                    }
                    let _ = records.send(Input::HubRecords(changed));
                },
            )?;
            turns.set_hub(hub.clone());
            Some(hub)
        }
        None => None,
    };
    let until_stopped = |mut stopped: watch::Receiver<bool>| async move {
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    let admin_service = Admin::new(health, settings::hosts(config), {
        let inputs = inputs.clone();
        move |detail, answer| {
            let _ = inputs.send(Input::Ask(detail, answer));
        }
    });
    let mut served = vec![
        runtime.spawn(serve_public(
            public,
            topics,
            hub,
            Limits::default(),
            until_stopped(stopped.clone()),
        )),
        runtime.spawn(listen::serve_admin(
            admin,
            admin_service,
            until_stopped(stopped.clone()),
        )),
    ];
    let socket = match control::Server::bind(&config.state_dir) {
        Ok((server, socket)) => {
            let inputs = inputs.clone();
            let order = move |request, reply| {
                // A loop that has stopped answers by dropping the reply.
                let _ = inputs.send(Input::Order(request, reply));
            };
            served.push(runtime.spawn(server.serve(order, until_stopped(stopped))));
            Some(socket)
        }
        Err(error) => {
            let directory = config.state_dir.display();
            warn!(%error, "cannot listen in {directory} to commands such as `rsnotify accept`: {error}");
            None
        }
    };
    for source in 0..config.sources.len() {
        let tree = settings::tree(config, source, turns.engine().plan());
        let known = settings::known(turns.engine(), source, &known_others);
        let reports = inputs.clone();
        let tree = Tree::watch(tree, known, move |report| {
            match reports.send(Input::Tree(report)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        })?;
        turns.add_tree(tree);
    }
    drop(known_others);
    runtime.spawn(stop_on_signal(terminate, interrupt, inputs));

    turns.run(&received, config.server.shutdown_grace);

    // First nobody may come any more, then what they left is saved.
    let _ = stop.send(true);
    runtime.block_on(async {
        let all = async {
            for task in served {
                let _ = task.await;
            }
        };
        let _ = tokio::time::timeout(config.server.shutdown_grace, all).await;
    });
    drop(socket);
    listen::remove_socket(&config.server.listen);
    listen::remove_socket(&config.server.admin_listen);
    let finished = turns.finish(&received);
    drop(turns);
    runtime.shutdown_background();
    if let Err(trouble) = finished {
        anyhow::bail!("stopped with changes unsaved, they will be found again: {trouble}");
    }
    info!("stopped; everything is saved");
    Ok(())
}

async fn stop_on_signal(mut terminate: Signal, mut interrupt: Signal, inputs: mpsc::Sender<Input>) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    let _ = inputs.send(Input::Stop);
}
