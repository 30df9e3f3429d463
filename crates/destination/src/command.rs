//! The command of `--exec`: runs once for each notification, and decides by its exit code if that was handed over.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use resourcesync::datetime::format_duration;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::signal::unix::{SignalKind, signal};

use crate::ExecOptions;

/// Time that a running command has to end after the signal to stop.
pub const STOP_GRACE: Duration = Duration::from_secs(5);
/// Time between SIGTERM and SIGKILL for a command that is ended.
pub const KILL_AFTER: Duration = Duration::from_secs(2);

/// The input and environment of one run.
#[derive(Debug, Clone, Default)]
pub struct CommandInput<'a> {
    /// Lines of JSON, one per notification.
    pub input: String,
    pub topic: &'a str,
    pub kind: &'a str,
    /// Start of the first notification.
    pub from: Option<&'a str>,
    /// End of the last one.
    pub until: Option<&'a str>,
}

impl CommandInput<'_> {
    /// Runs a command by the shell, in a process group of its own. It is ended with that group when its time is over, or
    /// [`STOP_GRACE`] after `stop`. An error says why it did not exit with 0.
    pub async fn execute(
        self,
        command: &ExecOptions,
        stop: impl Future<Output = ()>,
    ) -> Result<(), String> {
        let mut running = RunningCommand::start(&command.line, self)
            .map_err(|error| format!("cannot run it: {error}"))?;
        let stopped = async {
            stop.await;
            tokio::time::sleep(STOP_GRACE).await;
        };
        let time = tokio::select! {
            biased;
            status = running.exit_status() => return match status {
                Ok(status) if status.success() => Ok(()),
                Ok(status) => Err(status.to_string()),
                Err(error) => Err(format!("cannot wait for it: {error}")),
            },
            () = tokio::time::sleep(command.timeout) => format_duration(command.timeout),
            () = stopped => format!("{} after the signal", format_duration(STOP_GRACE)),
        };
        running.terminate().await;
        let reason = format!("it was killed, because it did not end within {time}");
        Err(reason)
    }
}

/// A running command and what it has started, killed when dropped.
struct RunningCommand {
    child: Child,
    /// The process group, which has the id of the child.
    group: Pid,
    /// The end of any child.
    children: tokio::signal::unix::Signal,
    /// True once the status was taken: the id of the group may belong to others then.
    is_over: bool,
}

impl RunningCommand {
    fn start(command: &str, run: CommandInput<'_>) -> io::Result<RunningCommand> {
        // Before the start, so that no end is missed.
        let children = signal(SignalKind::child())?;
        // No variable can have a NUL, which a header can.
        let environment = [
            ("RSNOTIFY_TOPIC", run.topic),
            ("RSNOTIFY_KIND", run.kind),
            ("RSNOTIFY_FROM", run.from.unwrap_or_default()),
            ("RSNOTIFY_UNTIL", run.until.unwrap_or_default()),
        ]
        .map(|(name, value)| (name, value.replace('\0', "\u{fffd}")));
        let mut child = Command::new("/bin/sh")
            .args(["-c", command])
            .envs(environment)
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            std::thread::spawn(move || {
                // A command need not read its input to its end.
                let _ = stdin.write_all(run.input.as_bytes());
            });
        }
        Ok(RunningCommand {
            group: Pid::from_child(&child),
            child,
            children,
            is_over: false,
        })
    }

    /// Waits until the command has ended, and takes its status.
    async fn exit_status(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.is_over = true;
                return Ok(status);
            }
            wait_for_child(&mut self.children).await;
        }
    }

    /// Waits until the command has ended, and leaves its status, so that nothing else gets its id.
    async fn wait_for_end(&mut self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while let Ok(None) = waitid(WaitId::Pid(self.group), options) {
            wait_for_child(&mut self.children).await;
        }
    }

    /// Ends the command and all that it has started: first by SIGTERM, then by SIGKILL.
    async fn terminate(&mut self) {
        self.signal(Signal::TERM);
        let _ = tokio::time::timeout(KILL_AFTER, self.wait_for_end()).await;
        self.signal(Signal::KILL);
        let _ = tokio::time::timeout(KILL_AFTER, self.exit_status()).await;
    }

    fn signal(&self, signal: Signal) {
        if !self.is_over {
            // Fails if all have ended.
            let _ = kill_process_group(self.group, signal);
        }
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

async fn wait_for_child(children: &mut tokio::signal::unix::Signal) {
    if children.recv().await.is_none() {
        // No further one can be noticed.
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::{CommandInput, Duration, ExecOptions};

    const LONG: Duration = Duration::from_secs(600);

    fn command(line: &str, timeout: Duration) -> ExecOptions {
        ExecOptions {
            line: line.to_owned(),
            is_batch: false,
            timeout,
        }
    }

    fn run(input: &str) -> CommandInput<'_> {
        CommandInput {
            input: input.to_owned(),
            topic: "https://e.org/t",
            kind: "a\0b",
            ..CommandInput::default()
        }
    }

    #[tokio::test]
    async fn only_exit_code_0_is_success() {
        let long = "x".repeat(1 << 20);
        for (line, input, want) in [
            ("test \"$RSNOTIFY_TOPIC\" = https://e.org/t", "", None),
            ("test \"$RSNOTIFY_KIND\" = a\u{fffd}b", "", None),
            ("read line; test \"$line\" = one", "one\ntwo\n", None),
            ("true", long.as_str(), None),
            ("exit 7", "", Some("exit status: 7")),
            ("kill -9 $$", "", Some("signal: 9 (SIGKILL)")),
        ] {
            let outcome = run(input).execute(&command(line, LONG), pending()).await;
            assert_eq!(outcome.err().as_deref(), want, "{line}");
        }
    }

    #[tokio::test]
    async fn a_command_that_does_not_end_in_time_is_killed() {
        let long = "x".repeat(1 << 20);
        for line in ["sleep 1000", "trap '' TERM; sleep 1000 & wait; wait"] {
            let command = command(line, Duration::from_millis(100));
            let outcome = run(&long).execute(&command, pending()).await;
            let reason = "it was killed, because it did not end within 100ms";
            assert_eq!(outcome, Err(reason.to_owned()), "{line}");
        }
    }

    #[tokio::test]
    async fn a_command_may_end_after_the_signal_to_stop() {
        let command = command("sleep 0.1", LONG);
        let outcome = run("").execute(&command, ready(())).await;
        assert_eq!(outcome, Ok(()));
    }
}
