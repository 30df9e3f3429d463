//! The lines for each web server, which differ in how it compares paths and passes them on.

use std::collections::BTreeSet;

use crate::cli::snippet::passing::{Site, pattern};
use crate::config::text::Address;

/// Returns the lines for nginx, which compares paths without their escapes, and passes them on as they came where
/// `proxy_pass` has no path.
pub fn nginx(site: &Site, behind: &Address) -> String {
    let address = match behind {
        Address::Tcp(address) => format!("http://{address}"),
        Address::Unix(path) => format!("http://unix:{}", path.display()),
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

/// Returns the lines for Apache: they compare the request line with a topic as it was sent, and pass it on likewise.
/// `ProxyPass` would undo the escapes and write others.
pub fn apache(site: &Site, behind: &Address) -> String {
    let address = match behind {
        Address::Tcp(address) => format!("http://{address}"),
        Address::Unix(path) => format!("unix:{}|http://localhost", path.display()),
    };
    let below = site.below.iter();
    let below = below.map(|path| format!("{}[^? ]*", pattern(&path.raw)));
    let exactly = site.exactly.iter().map(|path| pattern(&path.raw));
    // The query follows by itself: Apache refuses to put one into an address.
    let conditions = below
        .chain(exactly)
        .map(|path| format!("RewriteCond \"%{{THE_REQUEST}}\" \"^[A-Z]+ ({path})[? ]\""));
    let conditions: Vec<String> = conditions.collect();
    format!(
        "# a2enmod headers proxy proxy_http rewrite\n\
         RewriteEngine On\n\
         {}\n\
         RewriteRule \"^\" \"{address}%1\" [P,NE,E=rsnotify:1]\n\
         ProxyPreserveHost On\n\
         RequestHeader unset Forwarded env=rsnotify\n",
        conditions.join(" [OR]\n")
    )
}

/// Returns the lines for Caddy, which compares paths without their escapes, and passes them on as they came.
pub fn caddy(site: &Site, behind: &Address) -> String {
    let address = match behind {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(path) => format!("unix/{}", path.display()),
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

/// Quotes a text for nginx, which has no variables in a location's name.
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
