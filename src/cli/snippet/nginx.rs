//! The lines for nginx, which compares paths without their escapes, and passes them on as they came where `proxy_pass`
//! has no path.

use std::collections::BTreeSet;

use crate::cli::snippet::passing::{Behind, Site};

pub fn lines(site: &Site, behind: &Behind) -> String {
    let address = match behind {
        Behind::Tcp(address) => format!("http://{address}"),
        Behind::Unix(path) => format!("http://unix:{path}"),
    };
    let below = site.below.iter().map(|path| ("^~", &path.decoded));
    // It refuses to start where two are the same.
    let exactly: BTreeSet<_> = site.exactly.iter().map(|path| &path.decoded).collect();
    let exactly = exactly.into_iter().map(|path| ("=", path));
    let mut lines =
        "# proxy_pass has no path, so that path and query are passed on as they came.\n".to_owned();
    for (modifier, path) in below.chain(exactly) {
        let path = quoted(path);
        lines += &format!(
            "location {modifier} {path} {{\n\
             \x20   proxy_pass {address};\n\
             \x20   proxy_set_header Host $http_host;\n\
             \x20   proxy_set_header Forwarded \"\";\n\
             \x20   proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n\
             \x20   proxy_cache off;\n\
             \x20   charset off;\n\
             \x20   gzip off;\n\
             }}\n"
        );
    }
    lines
}

/// Quotes a text for nginx, which has no variables in a location's name.
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
