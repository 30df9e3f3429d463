//! The state: one SQLite database, opened by [`open`], and its values in Rust.

use std::sync::Arc;

use crate::announce::difference::{Told, Version};
use jiff::Timestamp;
use resourcesync::capability::Capability;
use resourcesync::channel_kind::ChannelKind;
use resourcesync::document::Form;
use resourcesync::fingerprint::Fingerprint;
use resourcesync::uri::{Hub, Topic, Uri};
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, Params, Row};

pub mod hub;
pub mod lock;
pub mod open;

/// A failed statement: the step did not happen, and is tried again.
#[derive(Debug, thiserror::Error)]
#[error("cannot read or write the state")]
pub struct StateError(#[from] pub rusqlite::Error);

pub type Result<T, E = StateError> = std::result::Result<T, E>;

/// Row number of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DocId(pub i64);

/// Row number of a hub or broker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HubId(pub i64);

/// A value that a column has in another form: a time as nanoseconds, a kind as its number, a URI as text.
#[derive(Debug, Clone, Copy)]
pub struct Sql<T>(pub T);

macro_rules! integers {
    ($($type:ty: $to:expr, $from:expr;)*) => {$(
        impl ToSql for Sql<$type> {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                let to: fn(&$type) -> i64 = $to;
                Ok(to(&self.0).into())
            }
        }
        impl FromSql for Sql<$type> {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                let from: fn(i64) -> Option<$type> = $from;
                from(value.as_i64()?).map(Sql).ok_or(FromSqlError::InvalidType)
            }
        }
    )*};
}

integers! {
    Timestamp: nanoseconds, |number| Timestamp::from_nanosecond(number.into()).ok();
    Capability: |capability| Capability::all().position(|one| one == *capability).unwrap_or_default() as i64,
        |number| Capability::all().nth(usize::try_from(number).ok()?);
    Form: |form| *form as i64, |number| [Form::List, Form::Index].get(usize::try_from(number).ok()?).copied();
    ChannelKind: |kind| *kind as i64, |number| ChannelKind::ALL.get(usize::try_from(number).ok()?).copied();
    DocId: |id| id.0, |number| Some(DocId(number));
    HubId: |id| id.0, |number| Some(HubId(number));
    crate::announce::ids::ChannelId: |id| id.0.cast_signed(),
        |number| Some(crate::announce::ids::ChannelId(number.cast_unsigned()));
    crate::announce::observation::MountId: |id| id.0.into(),
        |number| u32::try_from(number).ok().map(crate::announce::observation::MountId);
}

fn nanoseconds(time: &Timestamp) -> i64 {
    i64::try_from(time.as_nanosecond()).unwrap_or(if *time < Timestamp::UNIX_EPOCH {
        i64::MIN
    } else {
        i64::MAX
    })
}

macro_rules! texts {
    ($($type:ty: $from:expr;)*) => {$(
        impl ToSql for Sql<&$type> {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                Ok(self.0.as_str().into())
            }
        }
        impl FromSql for Sql<$type> {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                let from: fn(&str) -> Option<$type> = $from;
                from(value.as_str()?).map(Sql).ok_or(FromSqlError::InvalidType)
            }
        }
    )*};
}

texts! {
    Uri: |text| Uri::parse(text).ok();
    Topic: |text| Some(Topic::new(text));
    Hub: |text| Some(Hub::new(text));
}

impl ToSql for Sql<Fingerprint> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Blob(&self.0.0)))
    }
}

impl FromSql for Sql<Fingerprint> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let bytes = value
            .as_blob()?
            .try_into()
            .map_err(|_| FromSqlError::InvalidType)?;
        Ok(Sql(Fingerprint(bytes)))
    }
}

/// The columns of a row in order.
#[derive(Debug)]
pub struct Columns<'a> {
    row: &'a Row<'a>,
    next: usize,
}

impl<'a> Columns<'a> {
    pub fn of(row: &'a Row<'a>) -> Columns<'a> {
        Columns { row, next: 0 }
    }

    pub fn take<T: FromSql>(&mut self) -> rusqlite::Result<T> {
        self.next += 1;
        self.row.get(self.next - 1)
    }

    /// Reads a value that has another form in the database.
    pub fn sql<T>(&mut self) -> rusqlite::Result<T>
    where
        Sql<T>: FromSql,
    {
        Ok(self.take::<Sql<T>>()?.0)
    }

    pub fn option<T>(&mut self) -> rusqlite::Result<Option<T>>
    where
        Sql<T>: FromSql,
    {
        Ok(self.take::<Option<Sql<T>>>()?.map(|value| value.0))
    }

    pub fn count(&mut self) -> rusqlite::Result<usize> {
        Ok(usize::try_from(self.take::<i64>()?).unwrap_or_default())
    }

    pub fn bytes(&mut self) -> rusqlite::Result<Arc<[u8]>> {
        Ok(Arc::from(self.take::<Vec<u8>>()?))
    }

    /// Reads capability, form and fingerprint, where all are there.
    pub fn version(&mut self) -> rusqlite::Result<Option<Version>> {
        let (capability, form, fingerprint) = (self.option()?, self.option()?, self.option()?);
        Ok(capability
            .zip(form)
            .zip(fingerprint)
            .map(|((capability, form), fingerprint)| Version {
                capability,
                form,
                fingerprint,
            }))
    }

    pub fn told(&mut self) -> rusqlite::Result<Option<Told>> {
        let (capability, form, fingerprint) = (self.option()?, self.option()?, self.option()?);
        Ok(capability.zip(form).map(|(capability, form)| Told {
            capability,
            form,
            fingerprint,
        }))
    }
}

/// Statements on the transaction of a step, or of a reader.
#[derive(Debug, Clone, Copy)]
pub struct Db<'a>(pub &'a Connection);

impl<'a> Db<'a> {
    pub fn statement(self, sql: &str) -> Result<CachedStatement<'a>> {
        Ok(self.0.prepare_cached(sql)?)
    }

    /// Executes a statement, and returns the number of rows that it changed.
    pub fn run(self, sql: &str, values: impl Params) -> Result<usize> {
        Ok(self.statement(sql)?.execute(values)?)
    }

    pub fn all<T>(
        self,
        sql: &str,
        values: impl Params,
        mut read: impl FnMut(&mut Columns<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        let mut statement = self.statement(sql)?;
        let rows = statement.query_map(values, |row| read(&mut Columns::of(row)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    pub fn first<T>(
        self,
        sql: &str,
        values: impl Params,
        read: impl FnOnce(&mut Columns<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>> {
        let mut statement = self.statement(sql)?;
        let mut rows = statement.query(values)?;
        Ok(rows
            .next()?
            .map(|row| read(&mut Columns::of(row)))
            .transpose()?)
    }

    pub fn exists(self, sql: &str, values: impl Params) -> Result<bool> {
        Ok(self.statement(sql)?.exists(values)?)
    }
}

/// Returns the last time saved: the next run begins no earlier.
pub fn last_time_saved(connection: &Connection) -> Result<Option<Timestamp>> {
    Db(connection).first("SELECT now FROM clock", [], |row| row.sql())
}

/// Notes a time as saved: the clock, and the wall clock.
pub fn save_time(db: Db<'_>, now: Timestamp, wall: Timestamp) -> Result<()> {
    db.run(
        "INSERT INTO clock VALUES (1, ?1, ?2) ON CONFLICT (id) DO UPDATE SET now = max(now, excluded.now), \
         said = max(said, excluded.said)",
        rusqlite::params![Sql(now), Sql(wall)],
    )?;
    Ok(())
}
