//! How many files and connections the process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

/// Takes all that the system grants: the lower, soft limit is only for programs that call `select`.
pub fn take_all_granted() {
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
