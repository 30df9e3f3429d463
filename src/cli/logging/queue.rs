//! Queue of log lines: logging never waits for the reader. When too much waits, new lines are dropped and
//! counted.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum bytes that may wait.
const MAX_WAITING: usize = 4 << 20;

/// A queue of lines, which a thread of its own writes. Each change of what waits is signalled.
#[derive(Clone, Default)]
pub struct LineQueue(Arc<(Mutex<WaitingLines>, Condvar)>);

#[derive(Default)]
struct WaitingLines {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    dropped: u64,
    is_writing: bool,
}

impl LineQueue {
    /// Writes to `target`. `tell_dropped` logs how many lines were dropped, once there is room for that.
    pub fn start(
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
    pub fn flush(&self, patience: Duration) {
        let end = Instant::now() + patience;
        let mut waiting = self.waiting();
        while waiting.is_writing || !waiting.lines.is_empty() || waiting.dropped > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let woken = self.0.1.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingLines> {
        let waiting = self.0.0.lock();
        waiting.unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: &[u8]) {
        let mut waiting = self.waiting();
        if waiting.bytes + line.len() > MAX_WAITING {
            waiting.dropped += 1;
        } else {
            waiting.bytes += line.len();
            waiting.lines.push_back(line.to_vec());
        }
        self.0.1.notify_all();
    }

    fn drain(&self, mut target: impl Write, tell_dropped: impl Fn(u64)) {
        loop {
            let mut waiting = self.waiting();
            waiting.is_writing = false;
            self.0.1.notify_all();
            while waiting.lines.is_empty() && waiting.dropped == 0 {
                let woken = self.0.1.wait(waiting);
                waiting = woken.unwrap_or_else(PoisonError::into_inner);
            }
            waiting.is_writing = true;
            let lines = std::mem::take(&mut waiting.lines);
            let dropped = std::mem::take(&mut waiting.dropped);
            drop(waiting);
            for line in lines {
                // The reader is gone, so there is nowhere to report that.
                let _ = target.write_all(&line);
                self.waiting().bytes -= line.len();
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
        self.push(line);
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
