//! The lines for Apache: they compare the request line with a topic as it was sent, and pass it on likewise.
//! `ProxyPass` would undo the escapes and write others.

use crate::cli::snippet::passing::{Behind, Site, pattern};

pub fn lines(site: &Site, behind: &Behind) -> String {
    let address = match behind {
        Behind::Tcp(address) => format!("http://{address}"),
        Behind::Unix(path) => format!("unix:{path}|http://localhost"),
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
