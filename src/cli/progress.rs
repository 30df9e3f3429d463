//! Progress of a sweep, on a terminal only; it leaves nothing behind.

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

use crate::tree::TreeReport;
use announce::event::Event;

/// Template if an earlier run knew the approximate number of files.
const OF_KNOWN: &str = "reading the tree [{bar:24}] {human_pos} of about {human_len} files";
/// Template if the number of files is unknown.
const OF_FOUND: &str = "reading the tree: {human_pos} of {human_len} files found so far";

/// Number of files that sweeps found and read, and the progress bar of a sweep that takes long.
#[derive(Default)]
pub struct SweepProgress {
    /// Number of files that an earlier run knew.
    known: u64,
    read: u64,
    /// Number of files found by sweeps that have ended.
    swept: u64,
    bar: Option<ProgressBar>,
}

impl SweepProgress {
    pub fn new(known: usize) -> SweepProgress {
        SweepProgress {
            known: known as u64,
            ..SweepProgress::default()
        }
    }

    pub fn note(&mut self, report: &TreeReport) {
        match report {
            TreeReport::Event(Event::Observed(observations)) => {
                self.read += observations.len() as u64
            }
            TreeReport::Sweeping { files, .. } => self.show(*files),
            TreeReport::Swept { files, .. } => self.swept += files,
            TreeReport::Event(_) | TreeReport::Notice(_) => {}
        }
    }

    fn show(&mut self, found: u64) {
        let bar = self.bar.get_or_insert_with(|| bar(self.known > 0));
        bar.update(|state| {
            state.set_len(self.known.max(self.swept + found));
            state.set_pos(self.read);
        });
    }
}

/// Makes a progress bar. It draws itself on standard error if that is a terminal, and clears itself when it is dropped.
fn bar(is_length_known: bool) -> ProgressBar {
    let template = if is_length_known { OF_KNOWN } else { OF_FOUND };
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::no_length()
        .with_style(style.progress_chars("=> "))
        .with_finish(ProgressFinish::AndClear)
}
