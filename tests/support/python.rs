//! The Python environment for software of others.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::needs;

/// The interpreter of an environment with what `requirements.txt` names, which `.ci/run` makes; nothing where there is
/// none. Tests download nothing.
pub fn python() -> Option<&'static Path> {
    static PYTHON: OnceLock<Option<PathBuf>> = OnceLock::new();
    let python = PYTHON.get_or_init(environment).as_deref();
    if python.is_none() {
        let reason = "target/python is not there with what tests/e2e/requirements.txt names";
        assert!(std::env::var_os("CI").is_none(), "{reason}");
        needs::skip(reason, "python3-venv");
    }
    python
}

fn environment() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
    let python = target.join("python/bin/python");
    let imports = "import celery, distutils.dir_util, feedparser, flask_websub, resync, simulator, tornado, yaml";
    succeeds(&python, imports).then_some(python)
}

fn succeeds(python: &Path, code: &str) -> bool {
    let output = Command::new(python).args(["-c", code]).output();
    output.is_ok_and(|output| output.status.success())
}
