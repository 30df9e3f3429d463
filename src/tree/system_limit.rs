//! What the system allows to be watched, and what an operator can do about it.

use std::fmt;

/// A sysctl that allows no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SystemLimit {
    pub sysctl: &'static str,
    /// What it is set to, as far as that can be read.
    pub allowed: Option<u64>,
}

impl SystemLimit {
    /// How many directories a user may watch.
    pub fn watches() -> SystemLimit {
        SystemLimit::tighter("fs.inotify.max_user_watches", "user.max_inotify_watches")
    }

    /// How many trees.
    pub fn instances() -> SystemLimit {
        SystemLimit::tighter(
            "fs.inotify.max_user_instances",
            "user.max_inotify_instances",
        )
    }

    /// How many events of a tree are kept until they are read.
    pub fn events() -> SystemLimit {
        SystemLimit::now("fs.inotify.max_queued_events")
    }

    /// A container may have a limit of its own, besides the one of the whole system.
    fn tighter(of_system: &'static str, of_namespace: &'static str) -> SystemLimit {
        let [of_system, of_namespace] = [of_system, of_namespace].map(SystemLimit::now);
        match (of_system.allowed, of_namespace.allowed) {
            (Some(all), Some(own)) if own < all => of_namespace,
            (None, Some(_)) => of_namespace,
            _ => of_system,
        }
    }

    /// The sysctl as it is set now.
    pub(super) fn now(sysctl: &'static str) -> SystemLimit {
        let path = format!("/proc/sys/{}", sysctl.replace('.', "/"));
        let text = std::fs::read_to_string(path).ok();
        SystemLimit {
            sysctl,
            allowed: text.and_then(|text| text.trim().parse().ok()),
        }
    }

    /// Twice as much, and no less than what a large site needs.
    fn enough(self) -> u64 {
        let large = match self.sysctl {
            "fs.inotify.max_user_instances" | "user.max_inotify_instances" => 1_024,
            "fs.inotify.max_queued_events" => 16_384,
            _ => 524_288,
        };
        self.allowed.unwrap_or(0).saturating_mul(2).max(large)
    }
}

impl fmt::Display for SystemLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sysctl = self.sysctl;
        let allowed = self.allowed.map(|allowed| allowed.to_string());
        let allowed = allowed.as_deref();
        let allowed = allowed.unwrap_or("used up, and hidden, as by ProcSubset=pid in a unit");
        let enough = self.enough();
        write!(
            f,
            "the sysctl {sysctl} is {allowed}; raise it, as by `sysctl -w {sysctl}={enough}`"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::SystemLimit;

    #[test]
    fn a_limit_says_what_to_set() {
        let limit = |sysctl, allowed| SystemLimit { sysctl, allowed }.to_string();
        assert_eq!(
            limit("fs.inotify.max_user_watches", Some(8_192)),
            "the sysctl fs.inotify.max_user_watches is 8192; raise it, as by \
             `sysctl -w fs.inotify.max_user_watches=524288`"
        );
        assert_eq!(
            limit("fs.inotify.max_user_watches", Some(600_000)),
            "the sysctl fs.inotify.max_user_watches is 600000; raise it, as by \
             `sysctl -w fs.inotify.max_user_watches=1200000`"
        );
        assert_eq!(
            limit("fs.inotify.max_user_instances", None),
            "the sysctl fs.inotify.max_user_instances is used up, and hidden, as by ProcSubset=pid in a unit; \
             raise it, as by `sysctl -w fs.inotify.max_user_instances=1024`"
        );
    }
}
