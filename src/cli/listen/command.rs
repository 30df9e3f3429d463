//! The command of `--exec`: runs once for each notification, and decides by its exit code if that was handed over.

use std::io::{self, ErrorKind, Write};
use std::process::{Command, ExitStatus, Stdio};

use tokio::sync::oneshot;

use crate::cli::listen::notification::Handed;

/// The input and environment of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Lines of JSON, one per notification.
    pub input: String,
    pub environment: Vec<(&'static str, String)>,
}

impl Run {
    /// Returns the run for notifications of one topic, which begins where the first does and ends with the last.
    pub fn of(notifications: &[Handed]) -> serde_json::Result<Run> {
        let mut input = String::new();
        for notification in notifications {
            input.push_str(&notification.json()?);
            input.push('\n');
        }
        let (first, last) = (notifications.first(), notifications.last());
        let text = |value: Option<&String>| value.cloned().unwrap_or_default();
        let environment = vec![
            ("RSNOTIFY_TOPIC", text(last.map(|last| &last.topic))),
            (
                "RSNOTIFY_KIND",
                last.map_or("", |last| last.kind.as_str()).to_owned(),
            ),
            (
                "RSNOTIFY_FROM",
                text(first.and_then(|first| first.from.as_ref())),
            ),
            (
                "RSNOTIFY_UNTIL",
                text(last.and_then(|last| last.until.as_ref())),
            ),
        ];
        Ok(Run { input, environment })
    }

    /// Runs a command by the shell. An error says why it did not exit with 0.
    pub async fn execute(self, command: &str) -> Result<(), String> {
        let (sender, receiver) = oneshot::channel();
        let command = command.to_owned();
        std::thread::spawn(move || {
            // Fails if the program is ending.
            let _ = sender.send(self.wait(&command));
        });
        match receiver.await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(status.to_string()),
            Ok(Err(error)) => Err(format!("cannot run it: {error}")),
            Err(_) => Err("its thread ended".to_owned()),
        }
    }

    fn wait(self, command: &str) -> io::Result<ExitStatus> {
        let mut child = Command::new("/bin/sh")
            .args(["-c", command])
            .envs(self.environment)
            .stdin(Stdio::piped())
            .spawn()?;
        let mut stdin = child.stdin.take();
        let written = stdin
            .as_mut()
            .map_or(Ok(()), |stdin| stdin.write_all(self.input.as_bytes()));
        drop(stdin);
        let status = child.wait()?;
        match written {
            // A command need not read its input to its end.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
            _ => Ok(status),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Run;

    fn run(input: &str) -> Run {
        Run {
            input: input.to_owned(),
            environment: vec![("RSNOTIFY_TOPIC", "https://e.org/t".to_owned())],
        }
    }

    #[tokio::test]
    async fn only_exit_code_0_is_success() {
        let long = "x".repeat(1 << 20);
        for (command, input, want) in [
            ("test \"$RSNOTIFY_TOPIC\" = https://e.org/t", "", None),
            ("read line; test \"$line\" = one", "one\ntwo\n", None),
            ("true", long.as_str(), None),
            ("exit 7", "", Some("exit status: 7")),
            ("kill -9 $$", "", Some("signal: 9 (SIGKILL)")),
        ] {
            let outcome = run(input).execute(command).await;
            assert_eq!(outcome.err().as_deref(), want, "{command}");
        }
    }
}
