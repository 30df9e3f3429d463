//! The statements of steps, and what they would scan.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use rusqlite::Connection;
use rusqlite::trace::{TraceEvent, TraceEventCodes};

/// Tables that grow with the configuration alone.
const SMALL: &str = "census clock daemon hub json_each mount nested_file_system seeing source";

/// Statements that pass over a table that grows, each by its beginning, with the reason.
const WHOLE_PASSES: [(&str, &str); 1] = [(
    "SELECT 0, a.channel, c.topic, a.seq",
    "at a start, what is remembered of the last notifications",
)];

/// Statements whose plans are known to be right.
static KNOWN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// The statements that a connection executes.
#[derive(Debug, Default)]
pub struct Statements(Arc<Mutex<BTreeSet<String>>>);

impl Statements {
    /// Collects the statements from now on.
    pub fn collect(&self, connection: &mut Connection) {
        let collected = self.0.clone();
        let note = move |event: TraceEvent<'_>| {
            // What begins with a comment is a trigger.
            if let TraceEvent::Stmt(_, sql) = event
                && !sql.starts_with("--")
            {
                let mut collected = collected.lock().unwrap();
                if !collected.contains(sql) {
                    collected.insert(sql.to_owned());
                }
            }
        };
        let codes = TraceEventCodes::SQLITE_TRACE_STMT;
        connection.trace_v2(codes, Some(note)).unwrap();
    }

    /// Checks what was collected: no statement of a step scans a table that grows; one of a start passes over one at most,
    /// once.
    pub fn check(&self, connection: &mut Connection, is_start: bool) {
        let none: Option<fn(TraceEvent<'_>)> = None;
        let codes = TraceEventCodes::SQLITE_TRACE_STMT;
        connection.trace_v2(codes, none).unwrap();
        for sql in std::mem::take(&mut *self.0.lock().unwrap()) {
            let is_exempt = WHOLE_PASSES.iter().any(|(start, _)| sql.starts_with(start));
            let key = format!("{is_start} {sql}");
            if is_exempt || KNOWN.lock().unwrap().contains(&key) {
                continue;
            }
            let plan = plan(connection, &sql);
            let scans = plan.iter().filter_map(|line| scanned(line, &sql));
            let scans: Vec<_> = scans.collect();
            let max = usize::from(is_start);
            assert!(scans.len() <= max, "{sql}\n  scans {scans:?}: {plan:#?}");
            KNOWN.lock().unwrap().insert(key);
        }
    }
}

/// Returns the lines of a statement's plan; none for what has none, such as `BEGIN`.
pub fn plan(connection: &Connection, sql: &str) -> Vec<String> {
    let Ok(mut statement) = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")) else {
        return Vec::new();
    };
    let mut rows = statement.raw_query();
    let mut lines = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        lines.push(row.get("detail").unwrap());
    }
    lines
}

/// Returns the table that grows, or its alias, that a line of a plan scans.
fn scanned<'l>(line: &'l str, sql: &str) -> Option<&'l str> {
    let name = line.strip_prefix("SCAN ")?.split(' ').next()?;
    let is_small = |table: &str| name == table || sql.contains(&format!("{table} {name}"));
    let is_row =
        name.starts_with('(') || name == "CONSTANT" || name.chars().all(|c| c.is_numeric());
    (!is_row && !SMALL.split(' ').any(is_small)).then_some(name)
}
