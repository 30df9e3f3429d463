//! Log lines on standard error: as text, as JSON or for the journal. Logging never waits for the reader: when too much
//! waits in the queue, new lines are dropped and counted.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use resourcesync::escape::escaped;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber, warn};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry};
use websub::http::lock;

use crate::cli::output::counted;
use crate::config::server::{Log, LogFormat, LogLevel, word};

/// Longest time for which the end of the process waits until lines are read.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum bytes that may wait.
const MAX_WAITING: usize = 4 << 20;

/// A guard that writes the queued lines when it is dropped at the end of the process.
pub struct LogGuard(Option<LineQueue>);

impl Drop for LogGuard {
    fn drop(&mut self) {
        if let Some(queue) = &self.0 {
            queue.flush(PATIENCE);
        }
    }
}

/// What is logged, once logging has started.
static FILTER: OnceLock<Handle<EnvFilter, Registry>> = OnceLock::new();

/// Starts logging for this process.
pub fn start(log: Log) -> LogGuard {
    let is_journal = is_journal();
    let (filter, handle) = reload::Layer::new(filter(log.level));
    let _ = FILTER.set(handle);
    let all = tracing_subscriber::registry().with(filter);
    let lines = tracing_subscriber::fmt::layer().with_target(false);
    let queue = LineQueue::start(io::stderr(), |lines| {
        warn!(
            lines,
            "dropped {} of the log: nobody reads it as fast as it is written",
            counted(lines, "line")
        );
    })
    .ok();
    let lines = lines.with_writer(match queue.clone() {
        Some(queue) => BoxMakeWriter::new(move || queue.clone()),
        // Without a thread to spare, lines are written where they are logged.
        None => BoxMakeWriter::new(io::stderr),
    });
    match log.format {
        LogFormat::Human => {
            let is_terminal = std::io::stderr().is_terminal();
            let lines = lines.fmt_fields(FieldFormat);
            all.with(lines.map_event_format(|format| OneLineFormat {
                format: format.with_ansi(is_terminal),
                is_journal,
                has_colours: is_terminal,
            }))
            .init();
        }
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true);
            all.with(lines.map_event_format(|format| OneLineFormat {
                format,
                is_journal,
                has_colours: false,
            }))
            .init();
        }
    }
    LogGuard(queue)
}

/// Changes the level from now on.
pub fn set_level(level: LogLevel) {
    if let Some(handle) = FILTER.get() {
        // It fails only if nothing is logged any more.
        let _ = handle.reload(filter(level));
    }
}

fn filter(level: LogLevel) -> EnvFilter {
    let level = word(level);
    // The `notify` crate warns of each removed directory, because it removes the watch twice. The certificate verifier
    // names no hub; its result is logged elsewhere with the hub's name.
    EnvFilter::new(format!(
        "warn,notify=error,rustls_platform_verifier=off,rsnotify={level},websub={level},\
         messaging={level},destination={level}"
    ))
}

/// Returns true if standard error leads to the journal, as systemd says and the file confirms (systemd.exec(5)).
fn is_journal() -> bool {
    let stream = std::env::var("JOURNAL_STREAM");
    rustix::fs::fstat(std::io::stderr())
        .is_ok_and(|stat| stream == Ok(format!("{}:{}", stat.st_dev, stat.st_ino)))
}

/// The message of an event, and those of its fields that it does not say, escaped for a terminal.
struct FieldFormat;

impl<'writer> FormatFields<'writer> for FieldFormat {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut line = FieldLine {
            writer,
            is_empty: true,
            message: String::new(),
            words: Vec::new(),
            written: Ok(()),
        };
        fields.record(&mut line);
        line.written
    }
}

/// The line that [`FieldFormat`] writes.
struct FieldLine<'writer> {
    writer: Writer<'writer>,
    is_empty: bool,
    /// The message, which comes first.
    message: String,
    /// Its words that stand for no field so far.
    words: Vec<String>,
    written: fmt::Result,
}

impl FieldLine<'_> {
    /// Returns true if the message has this value: each of its words stands for one field.
    fn message_says(&mut self, value: &str) -> bool {
        let value = value.trim_matches('"');
        if value.contains(char::is_whitespace) {
            return self.message.contains(value);
        }
        let word = self.words.iter().position(|word| word == value);
        word.map(|at| self.words.swap_remove(at)).is_some()
    }

    fn write_field(&mut self, field: &Field, value: &str) -> fmt::Result {
        if field.name() == "message" {
            let words = value.split_whitespace();
            let plain = words.map(|word| word.trim_matches(|c| ":,;.()\"'`".contains(c)));
            self.words = plain.map(str::to_owned).collect();
            value.clone_into(&mut self.message);
        } else if self.message_says(value) {
            return Ok(());
        }
        if !std::mem::take(&mut self.is_empty) {
            self.writer.write_char(' ')?;
        }
        let value = escaped(value);
        match field.name() {
            "message" => self.writer.write_str(&value),
            name if self.writer.has_ansi_escapes() => {
                write!(
                    self.writer,
                    "\u{1b}[3m{name}\u{1b}[0m\u{1b}[2m=\u{1b}[0m{value}"
                )
            }
            name => write!(self.writer, "{name}={value}"),
        }
    }
}

impl Visit for FieldLine<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // The fields in which the `log` crate records its caller.
        if self.written.is_ok() && !field.name().starts_with("log.") {
            self.written = self.write_field(field, &format!("{value:?}"));
        }
    }
}

/// One line for each event, whatever it holds: a file whose name has a line break cannot write lines of its own. For
/// the journal each begins with its priority (sd-daemon(3)), so that `journalctl -p warning` finds it.
struct OneLineFormat<F> {
    format: F,
    is_journal: bool,
    has_colours: bool,
}

impl<S, N, F> FormatEvent<S, N> for OneLineFormat<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.format
            .format_event(context, Writer::new(&mut line), event)?;
        if self.is_journal {
            writer.write_str(match *event.metadata().level() {
                Level::ERROR => "<3>",
                Level::WARN => "<4>",
                Level::INFO => "<6>",
                Level::DEBUG | Level::TRACE => "<7>",
            })?;
        }
        let line = line.strip_suffix('\n').unwrap_or(&line);
        // The colours are ours, and the fields are escaped.
        if self.has_colours {
            writer.write_str(line)?
        } else {
            writer.write_str(&escaped(line))?
        }
        writer.write_char('\n')
    }
}

/// A queue of lines, which a thread of its own writes. Each change of what waits is signalled.
#[derive(Clone, Default)]
struct LineQueue(Arc<(Mutex<WaitingLines>, Condvar)>);

#[derive(Default)]
struct WaitingLines {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    dropped: u64,
    is_writing: bool,
}

impl WaitingLines {
    fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.dropped == 0
    }
}

impl LineQueue {
    /// Writes to `target`. `tell_dropped` logs how many lines were dropped, once there is room for that.
    fn start(
        target: impl Write + Send + 'static,
        tell_dropped: impl Fn(u64) + Send + 'static,
    ) -> io::Result<LineQueue> {
        let queue = LineQueue::default();
        let drained = queue.clone();
        std::thread::Builder::new()
            .name("log".into())
            .spawn(move || drained.drain(target, tell_dropped))?;
        Ok(queue)
    }

    /// Waits until everything is written, but no longer than this.
    fn flush(&self, patience: Duration) {
        let is_behind = |waiting: &mut WaitingLines| waiting.is_writing || !waiting.is_empty();
        let (waiting, changed) = (lock(&self.0.0), &self.0.1);
        drop(changed.wait_timeout_while(waiting, patience, is_behind));
    }

    fn drain(&self, mut target: impl Write, tell_dropped: impl Fn(u64)) {
        loop {
            let mut waiting = lock(&self.0.0);
            waiting.is_writing = false;
            self.0.1.notify_all();
            let woken = self.0.1.wait_while(waiting, |waiting| waiting.is_empty());
            let mut waiting = woken.unwrap_or_else(PoisonError::into_inner);
            waiting.is_writing = true;
            let lines = std::mem::take(&mut waiting.lines);
            let dropped = std::mem::take(&mut waiting.dropped);
            drop(waiting);
            for line in lines {
                // The reader is gone, so there is nowhere to report that.
                let _ = target.write_all(&line);
                lock(&self.0.0).bytes -= line.len();
            }
            let _ = target.flush();
            if dropped > 0 {
                tell_dropped(dropped);
            }
        }
    }
}

/// Each call writes one whole line.
impl Write for LineQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut waiting = lock(&self.0.0);
        if waiting.bytes + line.len() > MAX_WAITING {
            waiting.dropped += 1;
        } else {
            waiting.bytes += line.len();
            waiting.lines.push_back(line.to_vec());
        }
        self.0.1.notify_all();
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    #[derive(Clone, Default)]
    struct LoggedLines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for LoggedLines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the output of `log`.
    fn written(is_journal: bool, has_colours: bool, log: impl FnOnce()) -> String {
        let lines = LoggedLines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(Level::TRACE)
            .with_writer(move || writer.clone())
            .with_target(false)
            .without_time()
            .fmt_fields(FieldFormat)
            .map_event_format(|format| OneLineFormat {
                format: format.with_ansi(has_colours),
                is_journal,
                has_colours,
            })
            .finish();
        tracing::subscriber::with_default(subscriber, log);
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn what_the_message_says_is_not_said_again() {
        let (topic, reason) = ("https://e.org/t/", "it is down: HTTP 503");
        let line = written(false, false, || {
            tracing::info!(
                topic,
                lists = 1,
                undated = 1,
                reason,
                "took 1 lists of {topic}: {reason}"
            );
            tracing::info!(topic, seq = 61, "cut notification 6, {topic}x");
        });
        let want = " INFO took 1 lists of https://e.org/t/: it is down: HTTP 503 undated=1\n \
                    INFO cut notification 6, https://e.org/t/x topic=\"https://e.org/t/\" seq=61\n";
        assert_eq!(line, want);
    }

    #[test]
    fn each_level_has_its_priority_in_the_journal_and_none_elsewhere() {
        let log = || {
            tracing::error!("one");
            tracing::warn!("two");
            tracing::info!("three");
            tracing::debug!("four");
            tracing::trace!("five");
        };
        let want = "<3>ERROR one\n<4> WARN two\n<6> INFO three\n<7>DEBUG four\n<7>TRACE five\n";
        assert_eq!(written(true, false, log), want);
        let want = "ERROR one\n WARN two\n INFO three\nDEBUG four\nTRACE five\n";
        assert_eq!(written(false, false, log), want);
    }

    #[test]
    fn what_is_logged_writes_no_lines_of_its_own() {
        let path = "a\n<0>2026-11-21 ERROR all is lost\r\n.xml";
        let log = || tracing::info!(next = %path, "read b{path}", path = &path[1..]);
        let rest = "\\n<0>2026-11-21 ERROR all is lost\\r\\n.xml";
        let want = format!("<6> INFO read b{rest} next=a{rest}\n");
        assert_eq!(written(true, false, log), want);
    }

    #[test]
    fn what_is_logged_commands_no_terminal() {
        let path = "a\u{1b}[2J\u{9b}31m\u{202e}\u{7}.xml";
        let log = || tracing::warn!(%path, text = path, "read {}", &path[1..]);
        let shown = "a\\u001b[2J\\u009b31m\\u202e\\u0007.xml";
        let quoted = "\"a\\u{1b}[2J\\u{9b}31m\\u{202e}\\u{7}.xml\"";
        let want = format!(" WARN read {} path={shown} text={quoted}\n", &shown[1..]);
        assert_eq!(written(false, false, log), want);
        let mut coloured = written(false, true, log);
        for code in ["[33m", "[0m", "[3m", "[2m"] {
            coloured = coloured.replace(&format!("\u{1b}{code}"), "");
        }
        assert_eq!(coloured, want);
    }

    /// Passes written bytes on once it is opened.
    struct Gate {
        open: Receiver<()>,
        written: Sender<Vec<u8>>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.open.recv();
            self.written.send(bytes.to_vec()).unwrap();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn logging_never_waits_and_reports_the_number_of_dropped_lines() {
        let (opener, open) = channel();
        let (written, lines) = channel();
        let (teller, told) = channel();
        let gate = Gate { open, written };
        let tell = move |dropped| teller.send(dropped).unwrap();
        let mut queue = LineQueue::start(gate, tell).unwrap();
        let line = [b'x'; 1 << 10];
        let count = 3 * MAX_WAITING / line.len();
        for _ in 0..count {
            queue.write_all(&line).unwrap();
        }
        // Nobody reads, and this returns nevertheless.
        queue.flush(Duration::from_millis(10));
        drop(opener);
        queue.flush(Duration::from_secs(30));
        let dropped: u64 = told.try_iter().sum();
        assert_eq!(lines.try_iter().count() as u64 + dropped, count as u64);
        assert!(dropped as usize >= count / 2, "{dropped} of {count}");
    }

    #[test]
    fn lines_come_out_in_their_order_and_a_flush_waits_for_the_last() {
        let (opener, open) = channel();
        drop(opener);
        let (written, lines) = channel();
        let gate = Gate { open, written };
        let mut queue = LineQueue::start(gate, |_| panic!("nothing is dropped")).unwrap();
        for number in 0..100_u8 {
            queue.write_all(&[number]).unwrap();
        }
        queue.flush(Duration::from_secs(30));
        assert!(lines.try_iter().eq((0..100_u8).map(|number| vec![number])));
    }
}
