//! Printing on a thread of its own: a reader that pauses delays neither signals nor subscriptions.

use std::io::{self, Write};

use resourcesync::escape::escaped;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use crate::cli::listen::STOP_PRINTING_AFTER;
use crate::cli::listen::report::ListenEvent;
use crate::cli::output::Output;

/// Texts that wait at most. Further events are dropped, and further notifications wait to be handed over.
const WAITING: usize = 1_024;

/// A text to print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Text {
    /// A line for programs, on standard output.
    Line(String),
    /// Lines for people, on standard output.
    Lines(String),
    /// A document of others, on standard output.
    Document(Vec<u8>),
    /// A message on standard error.
    Message(String),
    /// A line of its own on standard error, whose parts are escaped.
    Announcement(String),
}

/// A text, with the receiver of the outcome if it is awaited.
type Job = (Text, Option<oneshot::Sender<io::Result<()>>>);

/// Prints texts in their order, and reports events: as lines of JSON on standard output, or as sentences on standard
/// error.
#[derive(Debug, Clone)]
pub struct Reporter {
    pub is_json: bool,
    jobs: mpsc::Sender<Job>,
}

impl Reporter {
    /// Starts the thread, which ends with the program.
    pub fn start(is_json: bool) -> io::Result<Reporter> {
        let (sender, mut jobs) = mpsc::channel::<Job>(WAITING);
        let print_all = move || {
            while let Some((text, outcome)) = jobs.blocking_recv() {
                let printed = text.print();
                if let Some(outcome) = outcome {
                    // Fails if nobody waits any more.
                    let _ = outcome.send(printed);
                }
            }
        };
        std::thread::Builder::new()
            .name("print".to_owned())
            .spawn(print_all)?;
        Ok(Reporter {
            is_json,
            jobs: sender,
        })
    }

    /// Reports an event. A closed standard output is noticed when a notification is printed.
    pub fn report(&self, event: &ListenEvent<'_>) {
        let text = if self.is_json {
            serde_json::to_string(event).ok().map(Text::Line)
        } else {
            event.sentence().map(|sentence| match event {
                // Awaited by scripts, as it was before there were others.
                ListenEvent::Subscribed { .. } => Text::Announcement(sentence),
                _ => Text::Message(sentence),
            })
        };
        if let Some(text) = text {
            self.print_later(text);
        }
    }

    /// Prints a text some time. It is dropped if too many are waiting.
    pub fn print_later(&self, text: Text) {
        let _ = self.jobs.try_send((text, None));
    }

    /// Prints a text and waits until its reader has it. Returns false if `stop` comes before that.
    ///
    /// # Errors
    ///
    /// If it cannot be printed, because the reader has closed the output for example.
    pub async fn print(&self, text: Text, stop: impl Future<Output = ()>) -> io::Result<bool> {
        let stopped = async {
            stop.await;
            sleep(STOP_PRINTING_AFTER).await;
        };
        tokio::select! {
            biased;
            printed = self.printed(text) => printed.map(|()| true),
            () = stopped => Ok(false),
        }
    }

    /// Waits until all is printed, but no longer than the time for that.
    pub async fn finish(&self) {
        let nothing = Text::Lines(String::new());
        let _ = tokio::time::timeout(STOP_PRINTING_AFTER, self.printed(nothing)).await;
    }

    async fn printed(&self, text: Text) -> io::Result<()> {
        let (outcome, printed) = oneshot::channel();
        let ended = || io::Error::other("the thread that prints has ended");
        let sent = self.jobs.send((text, Some(outcome))).await;
        sent.map_err(|_| ended())?;
        printed.await.unwrap_or_else(|_| Err(ended()))
    }
}

impl Text {
    fn print(&self) -> io::Result<()> {
        let mut out = Output::new();
        match self {
            Text::Message(text) => return writeln!(io::stderr(), "rsnotify: {}", escaped(text)),
            Text::Announcement(text) => return writeln!(io::stderr(), "{text}"),
            Text::Line(text) => {
                out.exact(text.as_bytes())?;
                out.exact(b"\n")?;
            }
            Text::Lines(text) => out.write_all(text.as_bytes())?,
            Text::Document(text) => {
                out.foreign(text)?;
                writeln!(out)?;
            }
        }
        out.flush()
    }
}
