//! A running command with its output so far.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::NamedTempFile;

use crate::DEADLINE;

pub struct Terminal {
    process: Child,
    screen: NamedTempFile,
}

impl Terminal {
    pub fn start(mut command: Command) -> Terminal {
        let screen = NamedTempFile::new().unwrap();
        // Both append, so that neither writes over the other.
        let open = || File::options().append(true).open(screen.path()).unwrap();
        command
            .stdin(Stdio::null())
            .stdout(open())
            .stderr(open())
            .process_group(0);
        Terminal {
            process: command.spawn().unwrap(),
            screen,
        }
    }

    pub fn shown(&self) -> String {
        String::from_utf8(fs::read(self.screen.path()).unwrap()).unwrap()
    }

    /// Waits until the output is as wanted, or returns the output at the timeout.
    pub fn wait(&mut self, is_wanted: impl Fn(&str) -> bool) -> Result<(), String> {
        let started = Instant::now();
        loop {
            // Whether it has ended is asked first: what it showed last is then there.
            let has_ended = self.process.try_wait().unwrap().is_some();
            let shown = self.shown();
            if is_wanted(&shown) {
                return Ok(());
            }
            if has_ended || started.elapsed() > DEADLINE {
                return Err(shown);
            }
            std::thread::sleep(Duration::from_millis(10)); // poll: a file cannot be awaited
        }
    }

    /// Waits for the end of the command, and returns its exit code.
    pub fn end(&mut self) -> Result<i32, String> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code().ok_or_else(|| status.to_string());
            }
            if started.elapsed() > DEADLINE {
                return Err("it does not end".to_owned());
            }
            std::thread::sleep(Duration::from_millis(10)); // poll: there is no wait with a deadline
        }
    }

    /// Sends Ctrl-C, and waits for the end of the command.
    pub fn interrupt(&mut self) -> Result<i32, String> {
        self.signal(Signal::INT);
        self.end()
    }

    fn signal(&self, signal: Signal) {
        let group = i32::try_from(self.process.id())
            .ok()
            .and_then(Pid::from_raw);
        // It may have ended by itself.
        let _ = kill_process_group(group.unwrap(), signal);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.process.wait();
    }
}
