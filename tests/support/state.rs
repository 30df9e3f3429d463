//! The state file, as tests look into it beside a daemon, or after one.

use std::path::Path;

use rusqlite::types::FromSql;
use rusqlite::{Connection, OpenFlags, Params};

use crate::support::daemon::Setup;

/// The state file of a daemon, to be read.
#[derive(Debug)]
pub struct Saved(pub Connection);

impl Saved {
    pub fn of(setup: &Setup) -> Saved {
        Saved::at(&setup.state.path().join("state/state.sqlite"))
    }

    pub fn at(path: &Path) -> Saved {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY);
        let connection = connection.unwrap();
        connection
            .busy_timeout(std::time::Duration::from_secs(5))
            .unwrap();
        // All queries see the same commits.
        connection.execute_batch("BEGIN").unwrap();
        Saved(connection)
    }

    /// Returns the one value of the one row of a query.
    #[track_caller]
    pub fn value<T: FromSql>(&self, sql: &str, values: impl Params) -> T {
        self.0.query_row(sql, values, |row| row.get(0)).unwrap()
    }

    #[track_caller]
    pub fn count(&self, sql: &str) -> usize {
        usize::try_from(self.value::<i64>(sql, [])).unwrap()
    }

    /// Returns true if no hub, broker or subscriber has something in flight.
    pub fn is_at_rest(&self) -> bool {
        self.count("SELECT count(*) FROM account WHERE seq IS NOT NULL") == 0
            && self.count("SELECT count(*) FROM relay") == 0
    }
}
