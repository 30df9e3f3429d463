//! Trees written by the reference library resync, and our payloads read by it.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::daemon::{Setup, finish};
use crate::documents::{Site, URL};
use crate::hub::FakeHub;
use crate::python::python;

/// Reads a payload as a Destination would, and prints what it found.
const READER: &str = "
import sys
from resync.resource_container import ResourceContainer
from resync.sitemap import Sitemap
container = Sitemap().parse_xml(fh=open(sys.argv[1], 'rb'), resources=ResourceContainer())
assert container.md['capability'] == 'framework-notification', container.md
for resource in container.resources:
    print(resource.change, resource.capability, resource.uri, resource.ts_datetime is not None)
";

/// A Source that publishes with the library's own command.
struct Generator<'a> {
    python: &'a Path,
    site: &'a Site,
}

impl Generator<'_> {
    fn build(&self, arguments: &[&str]) {
        let script = self.python.with_file_name("resync-build");
        let mut build = Command::new(self.python);
        build.arg(script).args(arguments);
        finish(build.current_dir(self.site.root.path()));
    }

    fn resource(&self, name: &str, content: &str) {
        let directory = self.site.path("files");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(name), content).unwrap();
    }

    /// One publishing run, as a cron job would do it: everything is written anew, in place.
    fn publish(&self, entries_at_most: usize) {
        let up = format!("--capabilitylist-link={URL}a/capabilitylist.xml");
        let map = format!("{URL}={}/", self.site.root.path().display());
        let most = format!("--max-sitemap-entries={entries_at_most}");
        let before = self.site.path("before.txt");
        let now = self.site.path("now.txt");
        let files = self.site.path("files");
        let files = files.to_str().unwrap();
        let absolute = |path: &str| self.site.path(path).to_str().unwrap().to_owned();
        let list_to = |path: &Path| {
            let path = path.to_str().unwrap().to_owned();
            self.build(&[
                "--write-resourcelist",
                "--outfile",
                &path,
                "--paths",
                files,
                &map,
            ]);
        };
        list_to(&now);
        let changes = [
            "--write-changelist",
            "--outfile",
            &absolute("a/changelist.xml"),
            &up,
        ];
        if before.exists() {
            let reference = format!("--reference={}", before.display());
            let new = format!("--newreference={}", now.display());
            self.build(&[&changes[..], &[&reference, &new, &map]].concat());
        } else {
            self.build(&[&changes[..], &["--empty"]].concat());
        }
        fs::rename(&now, &before).unwrap();
        self.build(&[
            "--write-resourcelist",
            "--outfile",
            &absolute("a/resourcelist.xml"),
            &up,
            &most,
            "--paths",
            files,
            &map,
        ]);
        self.build(&[
            "--write-capabilitylist",
            &format!("resourcelist={URL}a/resourcelist.xml,changelist={URL}a/changelist.xml"),
            &format!("--sourcedescription-link={URL}.well-known/resourcesync"),
            "--outfile",
            "a/capabilitylist.xml",
        ]);
        self.build(&[
            "--write-sourcedescription",
            &format!("{URL}a/capabilitylist.xml"),
            "--outfile",
            ".well-known/resourcesync",
        ]);
    }
}

#[test]
fn publishing_runs_of_the_reference_library_are_announced_as_a_careful_reader_would() {
    let Some(python) = python() else { return };
    let site = Site::empty();
    fs::create_dir_all(site.path("a")).unwrap();
    fs::create_dir_all(site.path(".well-known")).unwrap();
    let generator = Generator {
        python,
        site: &site,
    };
    for file in ["one", "two", "three"] {
        generator.resource(file, file);
    }
    generator.publish(50_000);

    let hub = FakeHub::start();
    // A run takes seconds here: one window holds it all.
    let mut setup = Setup::with_source(&site, "", &format!("[[hub]]\nurl = \"{}\"\n", hub.url()));
    setup.config = setup.config.replace("quiet = \"20ms\"", "quiet = \"4s\"");
    let _daemon = setup.start();
    assert!(
        setup
            .scan()
            .iter()
            .all(|document| document["state"] == "announced")
    );

    let runs: [(&str, usize, &[&str]); 4] = [
        // Two resources change: both lists are new; Capability List and Source Description are rewritten
        // and say the same.
        (
            "four",
            50_000,
            &[
                "updated changelist a/changelist.xml",
                "updated resourcelist a/resourcelist.xml",
            ],
        ),
        // The list outgrows its limit: its path becomes the index, and its parts are created.
        (
            "five",
            2,
            &[
                "created resourcelist a/resourcelist00002.xml",
                "updated changelist a/changelist.xml",
            ],
        ),
        // All parts are rewritten.
        (
            "six",
            2,
            &[
                "updated changelist a/changelist.xml",
                "updated resourcelist a/resourcelist00002.xml",
            ],
        ),
        // It shrinks again: the path is a list once more, and the parts stay behind.
        (
            "seven",
            50_000,
            &[
                "created resourcelist a/resourcelist.xml",
                "updated changelist a/changelist.xml",
            ],
        ),
    ];
    for (file, most, wanted) in runs {
        generator.resource(file, file);
        generator.publish(most);
        let request = hub.notification();
        let mut changes = request.changes();
        changes.sort();
        assert_eq!(changes, wanted, "after {file}");

        let payload = site.path("payload.txt");
        fs::write(&payload, &request.body).unwrap();
        let mut reader = Command::new(python);
        let read = finish(reader.args(["-c", READER]).arg(&payload));
        let mut lines: Vec<String> = String::from_utf8(read.stdout)
            .unwrap()
            .lines()
            .map(|line| line.replace(URL, "").replace(" True", ""))
            .collect();
        lines.sort();
        assert_eq!(lines, wanted, "as the library reads it");
    }
}
