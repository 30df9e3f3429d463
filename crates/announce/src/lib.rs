//! The engine: decides which changes are announced to which hub, and when. Pure: no clock, network, randomness or logging,
//! and no disk but in [`state::open`]; time and chance arrive as arguments, and what is to be done leaves as effects.
//!
//! In reading order: a [`plan`] has the configuration, [`observation`]s the content of the tree, [`event`]s go in and
//! effects come out of the [`steps`], whose [`state`] is one SQLite database. [`delivery`] decides
//! when a hub is sent what, and [`changes`] compares Change Lists with what was taken of them.

pub mod candidates;
pub mod changes {
    //! Changes of resources, as Change Lists report them or Resource Lists differ: what is fresh, in which order it is told,
    //! and in which intervals (Change Notification 1.0.1; C1 to C29).
    //!
    //! Nothing of it is queued: [`taken_keys`] has the difference between what is listed and what was taken, [`inventory`] that
    //! between Resource Lists and those before, and a log keeps the notifications until every hub has heard them.

    pub mod inventory;
    pub mod round;
    pub mod selection;
    pub mod taken_keys;
}
pub mod delivery;
pub mod event;
pub mod finding;
pub mod history;
pub mod observation;
pub mod plan;
pub mod state;
pub mod steps {
    //! The engine: steps over the state, one SQLite database.
    //!
    //! A [step](step::Step) takes a batch of events in one transaction; its effects follow the commit. All that grows with the
    //! tree, the sets or the hubs is in the database alone, as `schema.sql` describes it; in memory is what grows with the
    //! configuration or with what is under way ([`live`]). A step that fails leaves nothing, and is tried again.
    //!
    //! | part | content |
    //! |---|---|
    //! | [`engine`] | the state under a plan; a plan that takes effect |
    //! | [`step`] | the order of a step, deadlines, effects |
    //! | [`documents`] | looks at documents, their versions, and those that cannot be read |
    //! | [`mounts`] | mounts, their roots, and the file systems below |
    //! | [`deletions`] | what is missing, and suspensions |
    //! | [`relations`] | indexes, sets, archives |
    //! | [`owed`] | what hubs were told, as a difference from what is seen; what is due |
    //! | [`routing`] | the channels that sets should have, and their topics |
    //! | [`channels`] | channels that open, retire, return and end; accounts that join and leave |
    //! | [`cut`] | notifications; [`served`] is what topics serve, and who fetches it |
    //! | [`delivery`] | submissions, answers, retries, commands of operators |
    //! | [`findings`] | what is wrong with documents, sets, lists, and the `url` of a mount |
    //! | [`change_sets`] | sets with a change channel: what makes their rounds due, and when |
    //! | [`rounds`] | rounds that begin and end; what was taken, and when it is forgotten |
    //! | [`lists`] | the lists of such a set, as far as they were taken; stale ones are read later |
    //! | [`change_log`] | the notifications of change channels, and what each hub has of them |

    pub mod change_log;
    pub mod change_sets;
    pub mod channels;
    pub mod cut;
    pub mod deletions;
    pub mod delivery;
    pub mod documents;
    pub mod engine;
    pub mod findings;
    pub mod lists;
    pub mod live;
    pub mod mounts;
    pub mod owed;
    pub mod relations;
    pub mod rounds;
    pub mod routing;
    pub mod served;
    pub mod step;

    pub use crate::steps::step::Step;
}
pub mod time;
