//! `listen` as a process: a Destination that prints its notifications.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::DEADLINE;

/// A running `listen`; killed when dropped.
pub struct Listener {
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

impl Listener {
    /// Subscribes to a topic, and waits until the hub has agreed.
    pub fn start(topic: &str) -> Listener {
        let listener = Listener::spawn(topic);
        let first = listener.says();
        assert!(first.starts_with("listening to "), "{first}");
        listener
    }

    pub fn spawn(topic: &str) -> Listener {
        Listener::with(&[topic])
    }

    /// Starts it with these arguments, and waits for nothing.
    pub fn with(arguments: &[&str]) -> Listener {
        let mut listen = Command::new(env!("CARGO_BIN_EXE_rsnotify"));
        Listener::of(listen.arg("listen").args(arguments))
    }

    /// Starts this command, and waits for nothing.
    pub fn of(command: &mut Command) -> Listener {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = lines(child.stdout.take().unwrap());
        let stderr = lines(child.stderr.take().unwrap());
        Listener {
            child,
            stdout,
            stderr,
        }
    }

    /// Kills it as a crash does.
    pub fn crash(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends SIGTERM. Returns the exit code, once nothing has its standard output open: no command is left.
    pub fn terminate(self) -> Option<i32> {
        self.signal();
        self.finish()
    }

    /// As `terminate`, after a signal.
    pub fn finish(mut self) -> Option<i32> {
        let code = self.child.wait().unwrap().code();
        let mut lines = std::iter::repeat_with(|| self.stdout.recv_timeout(DEADLINE));
        let ended = lines.find(Result::is_err);
        assert_eq!(ended, Some(Err(RecvTimeoutError::Disconnected)));
        code
    }

    /// Sends SIGTERM.
    pub fn signal(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }

    /// Waits until it ends by itself. Returns the exit code, and the next line on its standard error.
    pub fn ended(mut self) -> (Option<i32>, String) {
        let said = self.says();
        (self.child.wait().unwrap().code(), said)
    }

    /// Returns the next line of JSON on its standard output that has this event.
    pub fn event(&self, event: &str) -> Value {
        let mut lines = std::iter::repeat_with(|| self.json());
        lines.find(|line| line["event"] == event).unwrap()
    }

    /// Returns the next line of JSON on its standard output.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.line()).unwrap()
    }

    /// Returns what it has printed since, without waiting.
    pub fn printed(&self) -> impl Iterator<Item = Value> {
        let lines = self.stdout.try_iter();
        lines.map(|line| serde_json::from_str(&line).unwrap())
    }

    /// Returns the next line on its standard error.
    pub fn says(&self) -> String {
        self.stderr
            .recv_timeout(DEADLINE)
            .expect("a word from listen in time")
    }

    /// The next line on its standard output.
    pub fn line(&self) -> String {
        self.stdout
            .recv_timeout(DEADLINE)
            .expect("a line from listen in time")
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the lines that come on a stream.
pub fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
