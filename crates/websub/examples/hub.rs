//! A topic with a hub: `cargo run --example hub -- 127.0.0.1:8400 https://example.org/capabilitylist.xml` publishes each
//! line of its input at `/topic/`, and delivers it to the subscribers at `/hub`, which have their callbacks on this machine.

use std::error::Error;

use resourcesync::uri::Uri;
use tokio::net::TcpListener;
use websub::hub::callback::CallbackPolicy;
use websub::hub::topic_hub::TopicHub;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(list)) = (arguments.next(), arguments.next()) else {
        return Err("usage: hub ADDRESS CAPABILITY_LIST".into());
    };
    let listener = TcpListener::bind(address).await?;
    let policy = CallbackPolicy::on_this_machine();
    let mut hub = TopicHub::start(listener, Uri::parse(&list)?, policy, |callback| {
        println!("{callback} subscribed")
    })?;
    println!("lines are published at {}", hub.topic());
    for line in std::io::stdin().lines() {
        hub.publish(line?.into_bytes());
    }
    Ok(())
}
