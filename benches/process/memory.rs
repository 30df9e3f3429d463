//! Resident memory for documents, and for lists beyond the protocol.

use std::fs;
use std::io::Write;
use std::time::Duration;

use crate::hub::Hub;
use crate::stage::{Daemon, Stage, current_memory_mib, peak_memory_mib};

/// A first start and a restart over `documents` documents.
pub fn documents(documents: usize, target_mb: u32) {
    let hub = Hub::start(Duration::ZERO);
    let stage = Stage::new(documents / 10, 10);
    stage.age();
    for start in ["first start", "restart"] {
        let daemon = stage.start(&hub);
        tell(
            &format!("{documents} documents, {start}"),
            &daemon,
            target_mb,
        );
    }
}

/// Three Capability Lists of a million entries, 83 MB each.
pub fn large_lists() {
    let hub = Hub::start(Duration::ZERO);
    let stage = Stage::new(1, 2);
    for list in 0..3 {
        let directory = stage.root().join(format!("large{list}"));
        fs::create_dir_all(&directory).expect("a directory");
        let file = fs::File::create(directory.join("capabilitylist.xml")).expect("a file");
        let mut file = std::io::BufWriter::new(file);
        let head = "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
                    xmlns:rs=\"http://www.openarchives.org/rs/terms/\"><rs:md capability=\"capabilitylist\"/>";
        file.write_all(head.as_bytes()).expect("room");
        for entry in 0..1_000_000 {
            writeln!(
                file,
                "<url><loc>https://source.example/large{list}/document-{entry:020}.xml</loc></url>"
            )
            .expect("room");
        }
        file.write_all(b"</urlset>").expect("room");
        file.flush().expect("room");
    }
    stage.age();
    for start in ["first start", "restart"] {
        let daemon = stage.start(&hub);
        tell(
            &format!("three lists of 1,000,000 entries, {start}"),
            &daemon,
            150,
        );
    }
}

fn tell(what: &str, daemon: &Daemon, target_mb: u32) {
    std::thread::sleep(Duration::from_secs(2)); // what was needed only for the start is given back
    println!(
        "memory: {what}: {:.0} MiB resident (target {target_mb} MB), {:.0} MiB at its peak",
        current_memory_mib(daemon.id()),
        peak_memory_mib(daemon.id()),
    );
}
