//! Bodies of logged notifications, which stay in the state file until they are sent or served (C21, C23, C25).

use std::sync::Arc;

use resourcesync::change_payload::{merge, part};

use crate::announce::changes::log::{LogPart, LogRange};
use crate::announce::ids::ChannelId;
use crate::announce::plan::WindowPlan;
use crate::daemon::event_loop::state_saver::StateSaver;
use crate::daemon::log::error_chain;

/// Returns the body of a logged notification, or of a part of it.
pub fn logged_part(
    saver: &StateSaver,
    id: ChannelId,
    seq: u64,
    wanted: LogPart,
) -> Result<Arc<[u8]>, String> {
    reduced(logged(saver, id, seq)?, seq, wanted)
}

/// Returns the part of a logged notification.
pub fn reduced(body: Arc<[u8]>, seq: u64, wanted: LogPart) -> Result<Arc<[u8]>, String> {
    match wanted.range {
        LogRange::Whole { .. } => Ok(body),
        LogRange::Part { start, end } => {
            let part = part(&body, start..end).map(Arc::from);
            part.ok_or_else(|| format!("notification {seq} in the state file has no such entries"))
        }
    }
}

/// Returns consecutive notifications as one, as many of the last as fit. Reads no others, but one.
pub fn merged(
    saver: &StateSaver,
    id: ChannelId,
    (first, last): (u64, u64),
    window: &WindowPlan,
) -> Result<Arc<[u8]>, String> {
    let mut failed = None;
    let bodies = (first..=last).map(|seq| {
        // An empty body ends the union.
        logged(saver, id, seq).unwrap_or_else(|error| {
            failed = Some(error);
            Arc::from([])
        })
    });
    let merged = merge(bodies, window.max_entries, window.max_bytes);
    match (failed, merged) {
        (Some(error), _) => Err(error),
        (None, Some(merged)) => Ok(merged.into()),
        (None, None) => Err(format!(
            "notification {last} in the state file cannot be read"
        )),
    }
}

fn logged(saver: &StateSaver, id: ChannelId, seq: u64) -> Result<Arc<[u8]>, String> {
    // It may be in the transaction that is to come.
    if let Some(Some(row)) = saver.unsaved_changes().change_log.get(&(id, seq)) {
        return Ok(Arc::clone(&row.body));
    }
    match saver.store().logged_body(id, seq) {
        Ok(Some(body)) => Ok(body),
        Ok(None) => Err(format!("notification {seq} is not in the state file")),
        Err(error) => Err(error_chain(&error)),
    }
}
