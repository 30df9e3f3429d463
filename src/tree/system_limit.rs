//! Limits of the system on watches, and how an operator raises them.

use std::fmt;

/// A sysctl that limits something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SystemLimit {
    pub sysctl: &'static str,
    /// Its value, as far as that can be read.
    pub allowed: Option<u64>,
}

impl SystemLimit {
    /// Returns the limit of directories that a user may watch.
    pub fn watches() -> SystemLimit {
        SystemLimit::tighter("fs.inotify.max_user_watches", "user.max_inotify_watches")
    }

    /// Returns the limit of trees that a user may watch.
    pub fn instances() -> SystemLimit {
        SystemLimit::tighter(
            "fs.inotify.max_user_instances",
            "user.max_inotify_instances",
        )
    }

    /// Returns the limit of events of a tree that are kept until they are read.
    pub fn events() -> SystemLimit {
        SystemLimit::now("fs.inotify.max_queued_events")
    }

    /// Returns the lower of two limits: a container may have one besides that of the whole system.
    fn tighter(of_system: &'static str, of_namespace: &'static str) -> SystemLimit {
        let [of_system, of_namespace] = [of_system, of_namespace].map(SystemLimit::now);
        match (of_system.allowed, of_namespace.allowed) {
            (Some(system), Some(namespace)) if namespace < system => of_namespace,
            (None, Some(_)) => of_namespace,
            _ => of_system,
        }
    }

    /// Reads a sysctl.
    fn now(sysctl: &'static str) -> SystemLimit {
        let path = format!("/proc/sys/{}", sysctl.replace('.', "/"));
        let text = std::fs::read_to_string(path).ok();
        SystemLimit {
            sysctl,
            allowed: text.and_then(|text| text.trim().parse().ok()),
        }
    }

    /// Returns the value to set: twice as much, and no less than a large site needs.
    fn recommended(self) -> u64 {
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
        let enough = self.recommended();
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
