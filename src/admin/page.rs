//! The status page and its subpages: HTML without JavaScript or external resources.
//!
//! The templates escape everything that comes from files, hubs or the configuration.

mod channels;
mod day;
mod overview;
mod parts;

use askama::Template;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::StatusCode;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use resourcesync::escape::escaped_lines;
use sha2::{Digest, Sha256};
use url::form_urlencoded;
use websub::hub::subscriptions::view::SubscriptionView;

use crate::admin::page::channels::{ChannelPage, ChannelsPage};
use crate::admin::page::overview::OverviewPage;
use crate::admin::{AdminResponse, page_of, plain};
use crate::report::status::Status;

/// Returns the page at a path. The status page renews itself unless the query is `refresh=no`; `/channels` has all channels,
/// page by page, `/channel?topic=TOPIC` one of them, `/payload?topic=TOPIC&seq=NUMBER` the payload of one of the last
/// notifications as it was sent, and `/configuration` the effective configuration with secrets masked.
pub(super) fn page(path: &str, query: &str, status: &Status) -> AdminResponse {
    let query: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect();
    let topic = parameter(&query, "topic");
    match path {
        "/channels" => html(&ChannelsPage::new(status, &query)),
        "/channel" => match topic.map(|topic| ChannelPage::new(status, topic)) {
            Some(Some(page)) => html(&page),
            Some(None) => not_found("no channel has this topic"),
            None => not_found("parameter topic is missing"),
        },
        "/subscriptions" => html(&SubscriptionsPage::new(status)),
        "/payload" => {
            let seq = parameter(&query, "seq").and_then(|seq| seq.parse::<u64>().ok());
            let (Some(topic), Some(seq)) = (topic, seq) else {
                return not_found("parameters topic and seq are missing");
            };
            let mut views = status.notifications.iter();
            let found = views.find(|view| view.topic.as_str() == topic && view.seq == seq);
            match found.and_then(|view| view.payload.as_ref()) {
                Some(body) => text(body.as_text().into_owned()),
                None => not_found("payload no longer kept"),
            }
        }
        "/configuration" => match &status.configuration {
            Some(configuration) => text(configuration.effective.clone()),
            None => not_found("no configuration is known"),
        },
        _ => {
            let is_still = parameter(&query, "refresh") == Some("no");
            html(&OverviewPage::new(status, is_still))
        }
    }
}

/// The subscriptions, failing ones first.
#[derive(Template)]
#[template(path = "subscriptions.html")]
struct SubscriptionsPage<'a> {
    page: &'static str,
    address: &'static str,
    status: &'a Status,
    listed: &'a [SubscriptionView],
    /// Number of others.
    more: usize,
}

impl<'a> SubscriptionsPage<'a> {
    fn new(status: &'a Status) -> SubscriptionsPage<'a> {
        let all = &status.subscriptions.subscriptions;
        let listed = &all[..all.len().min(parts::PER_PAGE)];
        SubscriptionsPage {
            page: "subscriptions",
            address: "/subscriptions",
            status,
            listed,
            more: all.len() - listed.len() + status.subscriptions.more,
        }
    }
}

fn html(page: &impl Template) -> AdminResponse {
    match page.render() {
        Ok(page) => {
            let page = escaped_lines(&page).into_owned();
            secured(page_of("text/html; charset=utf-8", page))
        }
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

fn text(text: String) -> AdminResponse {
    secured(plain(StatusCode::OK, text))
}

fn not_found(message: &str) -> AdminResponse {
    secured(plain(StatusCode::NOT_FOUND, format!("{message}\n")))
}

/// Adds headers by which the browser runs and loads nothing, sniffs no type, caches nothing and sends no referrer.
fn secured(mut page: AdminResponse) -> AdminResponse {
    let style = BASE64_STANDARD.encode(Sha256::digest(parts::STYLE));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{style}'; form-action 'self'; base-uri 'none'; \
         frame-ancestors 'none'"
    );
    let policy = HeaderValue::try_from(policy).expect("base64 is valid in a header");
    let fixed = |name: HeaderName, value| (name, HeaderValue::from_static(value));
    page.headers_mut().extend([
        (CONTENT_SECURITY_POLICY, policy),
        fixed(X_CONTENT_TYPE_OPTIONS, "nosniff"),
        fixed(CACHE_CONTROL, "no-store"),
        fixed(REFERRER_POLICY, "no-referrer"),
    ]);
    page
}

fn parameter<'a>(parameters: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = parameters.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests;
