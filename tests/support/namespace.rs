//! Runs tests once more in a namespace with lower limits, or with its own mounts.

use std::process::Command;

use super::needs;

/// Runs the calling test once more in a shell that first does `before`, and says whether that has been done;
/// if not, this is that run. Where the system does not allow it, the test is skipped.
pub fn was_run_again(before: &str) -> bool {
    const AGAIN: &str = "TREE_TEST_AGAIN";
    if std::env::var_os(AGAIN).is_some() {
        return false;
    }
    let shell = |command: String| {
        let mut shell = Command::new("sh");
        shell
            .arg("-c")
            .arg(command)
            .arg(std::env::current_exe().unwrap());
        shell.env(AGAIN, "1").status().unwrap().success()
    };
    if needs::program("unshare").is_none() {
        return true;
    }
    if !shell(format!("{before} true")) {
        needs::skip(&format!("this system does not allow `{before}`"), "");
        return true;
    }
    let thread = std::thread::current();
    let test = thread.name().unwrap();
    assert!(
        shell(format!(
            "{before} \"$0\" --exact {test} --nocapture --test-threads 1"
        )),
        "the test failed under `{before}`"
    );
    true
}
