//! The limit of open files and connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

/// Raises the soft limit to the hard one: the soft limit is only for programs that call `select`.
pub fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    let shown = |limit: Option<u64>| limit.map_or("any number of".to_owned(), |n| n.to_string());
    let (before, granted) = (shown(current), shown(maximum));
    let wanted = Rlimit {
        current: maximum,
        maximum,
    };
    match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => info!(
            before,
            granted, "{granted} files may be open instead of {before}"
        ),
        Err(error) => warn!(
            %error,
            "cannot raise the limit of open files from {before} to {granted}: {error}; \
             this may be too low for many connections, see LimitNOFILE of systemd or `ulimit -n`"
        ),
    }
}
