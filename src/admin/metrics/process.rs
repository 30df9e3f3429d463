//! Metrics of the process, named as in Prometheus' client libraries. Values that the system does not provide are
//! left out.

use std::fs;

use jiff::Timestamp;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::admin::metrics::count;
use crate::admin::metrics::exposition::{Exposition, seconds};

pub fn expose(exposition: &mut Exposition, began: Timestamp) {
    exposition.gauge(
        "process_start_time_seconds",
        "Start time of the process",
        seconds(began),
    );
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    if let Ok(spent) = std::time::Duration::try_from(spent) {
        exposition.counter(
            "process_cpu_seconds_total",
            "Processor time used by the process",
            spent.as_secs_f64(),
        );
    }
    if let Some(bytes) = resident() {
        exposition.gauge(
            "process_resident_memory_bytes",
            "Resident memory of the process",
            bytes,
        );
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        exposition.gauge(
            "process_open_fds",
            "Open file descriptors",
            count(open.count()),
        );
    }
    if let Some(limit) = getrlimit(Resource::Nofile).current {
        exposition.gauge("process_max_fds", "Limit of open file descriptors", limit);
    }
}

fn resident() -> Option<i64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: i64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kilobytes.checked_mul(1024)
}
