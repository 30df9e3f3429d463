//! The lines for Caddy, which compares paths without their escapes, and passes them on as they came.

use crate::cli::snippet::passing::{Behind, Site, pattern};

pub fn lines(site: &Site, behind: &Behind) -> String {
    let address = match behind {
        Behind::Tcp(address) => address.to_string(),
        Behind::Unix(path) => format!("unix/{path}"),
    };
    let below = site.below.iter().map(|path| pattern(&path.decoded));
    let exactly = site.exactly.iter();
    let exactly = exactly.map(|path| format!("{}$", pattern(&path.decoded)));
    let patterns: Vec<String> = below.chain(exactly).collect();
    format!(
        "@rsnotify path_regexp `^(?:{})`\n\
         handle @rsnotify {{\n\
         \x20   reverse_proxy {address} {{\n\
         \x20       header_up -Forwarded\n\
         \x20   }}\n\
         }}\n",
        patterns.join("|")
    )
}
