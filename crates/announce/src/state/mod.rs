//! The state: one SQLite database, opened by [`open`], and its values in Rust.

use std::sync::Arc;

use crate::observation::MountId;
use jiff::Timestamp;
use resourcesync::capability::{Capability, ChannelKind};
use resourcesync::document::Form;
use resourcesync::fingerprint::Fingerprint;
use resourcesync::uri::{Hub, Topic, Uri};
use rusqlite::types::{FromSqlError, FromSqlResult, ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, Row, Statement};

pub mod hub;
pub mod open;

/// A failed statement: the step did not happen, and is tried again.
#[derive(Debug, thiserror::Error)]
#[error("cannot read or write the state")]
pub struct StatementError(#[from] pub rusqlite::Error);

pub type Result<T, E = StatementError> = std::result::Result<T, E>;

/// Row number of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DocId(pub i64);

/// Row number of a channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(pub u64);

/// An account, by its channel and its hub or broker.
pub type AccountId = (ChannelId, HubId);

/// Row number of a hub or broker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HubId(pub i64);

/// A value that is written as one column: a time as nanoseconds, a kind as its number, a URI as text.
pub trait ToColumn {
    fn to_column(&self) -> ValueRef<'_>;
}

/// A value that is read from one column.
pub trait FromColumn: Sized {
    fn from_column(value: ValueRef<'_>) -> FromSqlResult<Self>;
}

/// The parameters of a statement: one, or a tuple of several.
pub trait Parameters {
    /// Binds them to the parameters after the first `bound`, which it counts.
    fn bind(&self, statement: &mut Statement<'_>, bound: &mut usize) -> rusqlite::Result<()>;
}

/// A value that is read from one or more columns in order. A tuple reads its members one after another.
pub trait FromRow: Sized {
    fn from_row(row: &mut Columns<'_>) -> rusqlite::Result<Self>;
}

/// The columns of a row that are not read yet.
#[derive(Debug)]
pub struct Columns<'a> {
    row: &'a Row<'a>,
    next: usize,
}

/// Reads a row.
pub fn read<T: FromRow>(row: &Row<'_>) -> rusqlite::Result<T> {
    Columns { row, next: 0 }.read()
}

impl Columns<'_> {
    pub fn read<T: FromRow>(&mut self) -> rusqlite::Result<T> {
        T::from_row(self)
    }
}

impl<T: FromColumn> FromRow for T {
    fn from_row(row: &mut Columns<'_>) -> rusqlite::Result<T> {
        let (at, value) = (row.next, row.row.get_ref(row.next)?);
        row.next += 1;
        T::from_column(value).map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(at, value.data_type(), Box::new(error))
        })
    }
}

impl<T: ToColumn> Parameters for T {
    fn bind(&self, statement: &mut Statement<'_>, bound: &mut usize) -> rusqlite::Result<()> {
        *bound += 1;
        statement.raw_bind_parameter(*bound, ToSqlOutput::Borrowed(self.to_column()))
    }
}

impl Parameters for () {
    fn bind(&self, _: &mut Statement<'_>, _: &mut usize) -> rusqlite::Result<()> {
        Ok(())
    }
}

/// Nothing where one of the two is NULL.
impl<A: FromColumn, B: FromColumn> FromRow for Option<(A, B)> {
    fn from_row(row: &mut Columns<'_>) -> rusqlite::Result<Option<(A, B)>> {
        Ok(row.read::<Option<A>>()?.zip(row.read()?))
    }
}

/// NULL twice for nothing.
impl<A: ToColumn, B: ToColumn> Parameters for Option<(A, B)> {
    fn bind(&self, statement: &mut Statement<'_>, bound: &mut usize) -> rusqlite::Result<()> {
        let (first, second) = self.as_ref().map(|(first, second)| (first, second)).unzip();
        (first, second).bind(statement, bound)
    }
}

/// Reads the fields of a struct in the order in which they are given.
macro_rules! from_row {
    ($type:ident { $($field:ident),* }) => {
        impl $crate::state::FromRow for $type {
            fn from_row(row: &mut $crate::state::Columns<'_>) -> rusqlite::Result<$type> {
                Ok($type { $($field: row.read()?),* })
            }
        }
    };
}
pub(crate) use from_row;

/// Writes the fields of a struct in the order in which they are given.
macro_rules! parameters {
    ($type:ident { $($field:ident),* }) => {
        impl $crate::state::Parameters for &$type {
            fn bind(&self, statement: &mut rusqlite::Statement<'_>, bound: &mut usize) -> rusqlite::Result<()> {
                ($(&self.$field),*).bind(statement, bound)
            }
        }
    };
}
pub(crate) use parameters;

macro_rules! tuples {
    ($first:ident) => {};
    ($first:ident $($more:ident)+) => {
        impl<$first: FromRow, $($more: FromRow),+> FromRow for ($first, $($more),+) {
            fn from_row(row: &mut Columns<'_>) -> rusqlite::Result<Self> {
                Ok((row.read::<$first>()?, $(row.read::<$more>()?),+))
            }
        }
        impl<$first: Parameters, $($more: Parameters),+> Parameters for ($first, $($more),+) {
            #[expect(non_snake_case, reason = "the members have the names of their types")]
            fn bind(&self, statement: &mut Statement<'_>, bound: &mut usize) -> rusqlite::Result<()> {
                let ($first, $($more),+) = self;
                $first.bind(statement, bound)?;
                $($more.bind(statement, bound)?;)+
                Ok(())
            }
        }
        tuples! { $($more)+ }
    };
}

tuples! { A B C D E F G H I J K L }

/// Reads values of these types from a column.
macro_rules! columns {
    ($($type:ty: $read:expr;)*) => {$(
        impl $crate::state::FromColumn for $type {
            fn from_column(value: rusqlite::types::ValueRef<'_>) -> rusqlite::types::FromSqlResult<$type> {
                let read: fn(rusqlite::types::ValueRef<'_>) -> rusqlite::types::FromSqlResult<$type> = $read;
                read(value)
            }
        }
    )*};
}
pub(crate) use columns;

columns! {
    Vec<u8>: |value| value.as_blob().map(Vec::from);
    Arc<[u8]>: |value| value.as_blob().map(Arc::from);
    String: |value| value.as_str().map(String::from);
    Box<str>: |value| value.as_str().map(Box::from);
    Fingerprint: |value| FromColumn::from_column(value).map(Fingerprint);
    Uri: |value| Uri::parse(value.as_str()?).map_err(|_| FromSqlError::InvalidType);
    Topic: |value| value.as_str().map(Topic::new);
    Hub: |value| value.as_str().map(Hub::new);
}

impl<const N: usize> FromColumn for [u8; N] {
    fn from_column(value: ValueRef<'_>) -> FromSqlResult<[u8; N]> {
        let bytes = value.as_blob()?.try_into();
        bytes.map_err(|_| FromSqlError::InvalidType)
    }
}

impl<T: FromColumn> FromColumn for Option<T> {
    fn from_column(value: ValueRef<'_>) -> FromSqlResult<Option<T>> {
        match value {
            ValueRef::Null => Ok(None),
            value => T::from_column(value).map(Some),
        }
    }
}

impl<T: ToColumn> ToColumn for Option<T> {
    fn to_column(&self) -> ValueRef<'_> {
        self.as_ref().map_or(ValueRef::Null, T::to_column)
    }
}

impl<T: ToColumn + ?Sized> ToColumn for &T {
    fn to_column(&self) -> ValueRef<'_> {
        T::to_column(self)
    }
}

macro_rules! to_column {
    ($($type:ty: $as:ident, |$this:ident| $to:expr;)*) => {$(
        impl $crate::state::ToColumn for $type {
            fn to_column(&self) -> rusqlite::types::ValueRef<'_> {
                let $this = self;
                rusqlite::types::ValueRef::$as($to)
            }
        }
    )*};
}
pub(crate) use to_column;

to_column! {
    [u8]: Blob, |bytes| bytes;
    [u8; 16]: Blob, |bytes| bytes;
    [u8; 32]: Blob, |bytes| bytes;
    Vec<u8>: Blob, |bytes| bytes;
    Arc<[u8]>: Blob, |bytes| bytes;
    Fingerprint: Blob, |fingerprint| &fingerprint.0;
    str: Text, |text| text.as_bytes();
    String: Text, |text| text.as_bytes();
    Uri: Text, |uri| uri.as_str().as_bytes();
    Topic: Text, |topic| topic.as_str().as_bytes();
    Hub: Text, |hub| hub.as_str().as_bytes();
}

/// Writes values of these types as a number, and reads them from it.
macro_rules! integers {
    ($($type:ty: |$this:ident| $to:expr, $from:expr;)*) => {
        $crate::state::to_column! { $($type: Integer, |$this| $to;)* }
        $crate::state::columns! { $($type: |value| {
            let from: fn(i64) -> Option<$type> = $from;
            from(value.as_i64()?).ok_or(rusqlite::types::FromSqlError::InvalidType)
        };)* }
    };
}
pub(crate) use integers;

integers! {
    i64: |number| *number, Some;
    u64: |number| number.cast_signed(), |number| Some(number.cast_unsigned());
    u32: |number| (*number).into(), |number| number.try_into().ok();
    u8: |number| (*number).into(), |number| number.try_into().ok();
    usize: |count| i64::try_from(*count).unwrap_or(i64::MAX), |count| Some(count.try_into().unwrap_or_default());
    bool: |is| (*is).into(), |is| Some(is != 0);
    Timestamp: |time| nanoseconds(time), |number| Timestamp::from_nanosecond(number.into()).ok();
    Capability: |capability| Capability::all().position(|one| one == *capability).unwrap_or_default() as i64,
        |number| Capability::all().nth(usize::try_from(number).ok()?);
    Form: |form| *form as i64, |number| nth(&[Form::List, Form::Index], number);
    ChannelKind: |kind| *kind as i64, |number| nth(&ChannelKind::ALL, number);
    DocId: |id| id.0, |number| Some(DocId(number));
    HubId: |id| id.0, |number| Some(HubId(number));
    ChannelId: |id| id.0.cast_signed(), |number| Some(ChannelId(number.cast_unsigned()));
    MountId: |id| id.0.into(), |number| number.try_into().ok().map(MountId);
}

/// Returns the value with this number, from zero.
pub fn nth<T: Copy>(values: &[T], number: i64) -> Option<T> {
    values.get(usize::try_from(number).ok()?).copied()
}

fn nanoseconds(time: &Timestamp) -> i64 {
    i64::try_from(time.as_nanosecond()).unwrap_or(if *time < Timestamp::UNIX_EPOCH {
        i64::MIN
    } else {
        i64::MAX
    })
}

/// Statements on the transaction of a step, or of a reader.
#[derive(Debug, Clone, Copy)]
pub struct Db<'a>(pub &'a Connection);

impl<'a> Db<'a> {
    /// Returns a statement with its parameters.
    pub fn statement(self, sql: &str, parameters: impl Parameters) -> Result<CachedStatement<'a>> {
        let mut statement = self.0.prepare_cached(sql)?;
        let mut bound = 0;
        parameters.bind(&mut statement, &mut bound)?;
        match statement.parameter_count() {
            count if count == bound => Ok(statement),
            count => Err(rusqlite::Error::InvalidParameterCount(bound, count).into()),
        }
    }

    /// Executes a statement.
    pub fn run(self, sql: &str, parameters: impl Parameters) -> Result<()> {
        self.statement(sql, parameters)?.raw_execute()?;
        Ok(())
    }

    /// Executes a statement, and returns the number of rows that it changed.
    pub fn run_and_count(self, sql: &str, parameters: impl Parameters) -> Result<usize> {
        Ok(self.statement(sql, parameters)?.raw_execute()?)
    }

    /// Reads all rows.
    pub fn all<C>(self, sql: &str, parameters: impl Parameters) -> Result<C>
    where
        C: IntoIterator<Item: FromRow> + FromIterator<C::Item>,
    {
        let mut statement = self.statement(sql, parameters)?;
        let rows = statement.raw_query().mapped(read);
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Reads the first row, if there is one.
    pub fn first<T: FromRow>(self, sql: &str, parameters: impl Parameters) -> Result<Option<T>> {
        let mut statement = self.statement(sql, parameters)?;
        let mut rows = statement.raw_query();
        Ok(rows.next()?.map(read).transpose()?)
    }

    /// Reads a row that is there.
    pub fn one<T: FromRow>(self, sql: &str, parameters: impl Parameters) -> Result<T> {
        let row = self.first(sql, parameters)?;
        Ok(row.ok_or(rusqlite::Error::QueryReturnedNoRows)?)
    }

    /// Reads the first row; where there is none, the default.
    pub fn value<T: FromRow + Default>(self, sql: &str, parameters: impl Parameters) -> Result<T> {
        Ok(self.first(sql, parameters)?.unwrap_or_default())
    }

    pub fn exists(self, sql: &str, parameters: impl Parameters) -> Result<bool> {
        let mut statement = self.statement(sql, parameters)?;
        Ok(statement.raw_query().next()?.is_some())
    }
}

/// Returns the last time saved: the next run begins no earlier.
pub fn last_time_saved(connection: &Connection) -> Result<Option<Timestamp>> {
    Db(connection).first("SELECT now FROM clock", ())
}

/// Returns the counts of the last day, as they were saved.
pub fn last_day(db: Db<'_>) -> Result<Option<String>> {
    db.first("SELECT intervals FROM last_day", ())
}

/// Saves the counts of the last day.
pub fn save_last_day(db: Db<'_>, intervals: &str) -> Result<()> {
    db.run(
        "INSERT INTO last_day VALUES (1, ?1) ON CONFLICT (id) DO UPDATE SET intervals = excluded.intervals",
        intervals,
    )
}

/// Notes a time as saved: the clock, and the wall clock.
pub fn save_time(db: Db<'_>, now: Timestamp, wall: Timestamp) -> Result<()> {
    db.run(
        "INSERT INTO clock VALUES (1, ?1, ?2) ON CONFLICT (id) DO UPDATE SET now = max(now, excluded.now), \
         said = max(said, excluded.said)",
        (now, wall),
    )
}
