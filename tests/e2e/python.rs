//! The Python environment in which software runs that nobody here wrote.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const REQUIREMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/requirements.txt");

/// The interpreter of an environment with what `requirements.txt` names, made once; nothing where there is no
/// Python with pip.
pub fn python() -> Option<&'static Path> {
    static PYTHON: OnceLock<Option<PathBuf>> = OnceLock::new();
    PYTHON.get_or_init(environment).as_deref()
}

fn environment() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
    let environment = target.join("python");
    let python = environment.join("bin/python");
    // Two test processes may want it at once. The lock goes with the file, whatever becomes of us.
    let lock = File::create(target.join("python.lock")).unwrap();
    lock.lock().unwrap();
    let imports =
        "import celery, distutils.dir_util, flask_websub, resync, simulator, tornado, yaml";
    if succeeds(&python, imports) {
        return Some(python);
    }
    if !succeeds(Path::new("python3"), "import ensurepip, venv") {
        assert!(
            std::env::var_os("CI").is_none(),
            "there is no Python with pip"
        );
        // Not `eprintln!`, which the test runner keeps to itself.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: there is no Python with pip, so nothing that others wrote was run"
        );
        return None;
    }
    let mut make = Command::new("python3");
    finish(make.args(["-m", "venv", "--clear"]).arg(&environment));
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet"]);
    finish(install.args(["--disable-pip-version-check", "--requirement", REQUIREMENTS]));
    Some(python)
}

fn succeeds(python: &Path, code: &str) -> bool {
    let output = Command::new(python).args(["-c", code]).output();
    output.is_ok_and(|output| output.status.success())
}

/// Runs a command that must succeed.
pub fn finish(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}
