//! The baseline of the comparison: a loop that waits for inotify's events and posts one prepared request for each, with
//! nothing read, decided or saved.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use inotify::{EventMask, Inotify, WatchMask};

/// The loop; it ends when it is dropped.
pub struct Bare {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Bare {
    /// Watches each directory below `root`, and posts to `hub`.
    pub fn start(root: &Path, hub: SocketAddr) -> Bare {
        let mut inotify = Inotify::init().expect("inotify");
        let directories = std::fs::read_dir(root).expect("a tree").flatten();
        for directory in directories {
            let mask = WatchMask::MOVED_TO | WatchMask::ONLYDIR;
            let _ = inotify.watches().add(directory.path(), mask);
        }
        let ended = Arc::new(AtomicBool::new(false));
        let thread = {
            let ended = Arc::clone(&ended);
            std::thread::spawn(move || {
                let mut hub = TcpStream::connect(hub).expect("a hub");
                hub.set_nodelay(true).expect("an option");
                let request = prepared();
                let mut buffer = vec![0; 64 << 10];
                while !ended.load(Ordering::Relaxed) {
                    let events: usize = match inotify.read_events(&mut buffer) {
                        Ok(events) => events.filter(|it| is_document(it.mask, it.name)).count(),
                        Err(_) => {
                            wait(&inotify);
                            0
                        }
                    };
                    for _ in 0..events {
                        hub.write_all(&request).expect("a hub");
                        await_answer(&mut hub);
                    }
                }
            })
        };
        Bare {
            ended,
            thread: Some(thread),
        }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn is_document(mask: EventMask, name: Option<&OsStr>) -> bool {
    mask.contains(EventMask::MOVED_TO)
        && name.is_some_and(|name| name.as_encoded_bytes().ends_with(b".xml"))
}

/// A notification of one change.
fn prepared() -> Vec<u8> {
    let body = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
        <urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
        xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\n\
        <rs:ln rel=\"up\" href=\"https://source.example/s0/d0.xml\"/>\n\
        <rs:md capability=\"framework-notification\" until=\"2026-11-20T00:00:00.000Z\"/>\n\
        <url><loc>https://source.example/s0/d1.xml</loc>\
        <rs:md change=\"updated\" capability=\"changelist\" datetime=\"2026-11-20T00:00:00.000Z\"/></url>\n</urlset>\n";
    format!(
        "POST / HTTP/1.1\r\nHost: hub\r\nContent-Type: application/xml\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn await_answer(hub: &mut TcpStream) {
    let (mut answer, mut chunk) = (Vec::new(), [0; 1024]);
    while !answer.ends_with(b"\r\n\r\n") {
        let read = hub.read(&mut chunk).expect("an answer");
        answer.extend_from_slice(&chunk[..read]);
    }
}

/// Waits for events, but not for ever: it may have ended.
fn wait(inotify: &Inotify) {
    use std::os::fd::AsFd;
    let ready =
        rustix::event::PollFd::from_borrowed_fd(inotify.as_fd(), rustix::event::PollFlags::IN);
    let left = rustix::event::Timespec::try_from(Duration::from_millis(100)).ok();
    let _ = rustix::event::poll(&mut [ready], left.as_ref());
}
