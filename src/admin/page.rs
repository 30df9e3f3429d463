//! The status page and what it leads to: HTML that needs no JavaScript, and nothing from elsewhere.
//!
//! Whatever comes from files, hubs or the configuration is escaped by the templates.

mod channels;
mod overview;
mod parts;

use askama::Template;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};
use url::form_urlencoded;

use crate::admin::Admin;
use crate::admin::page::channels::{ChannelPage, ChannelsPage, Filter};
use crate::admin::page::overview::Overview;
use crate::report::status::Detail;
use crate::report::status::notification::NotificationView;
use crate::resourcesync::escape::escaped_lines;

/// `/`: how everything stands.
pub async fn overview(State(admin): State<Admin>) -> Response {
    match admin.status(Detail::Everything).await {
        Ok(status) => html(StatusCode::OK, &Overview::new(&status)),
        Err(refusal) => refusal.into_response(),
    }
}

/// `/channels`: all of them, some at a time.
pub async fn channels(State(admin): State<Admin>, RawQuery(query): RawQuery) -> Response {
    match admin.status(Detail::Everything).await {
        Ok(status) => {
            let filter = Filter::from_query(&parameters(query));
            html(StatusCode::OK, &ChannelsPage::new(&status, filter))
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// `/channel?topic=TOPIC`: one of them.
pub async fn channel(State(admin): State<Admin>, RawQuery(query): RawQuery) -> Response {
    let parameters = parameters(query);
    let Some(topic) = parameter(&parameters, "topic") else {
        return nothing("no topic is named");
    };
    match admin.status(Detail::Everything).await {
        Ok(status) => match ChannelPage::new(&status, topic) {
            Some(page) => html(StatusCode::OK, &page),
            None => nothing("no channel has this topic any more"),
        },
        Err(refusal) => refusal.into_response(),
    }
}

/// `/payload?topic=TOPIC&seq=NUMBER`: what one of the last notifications says, as it was sent.
pub async fn payload(State(admin): State<Admin>, RawQuery(query): RawQuery) -> Response {
    let parameters = parameters(query);
    let topic = parameter(&parameters, "topic");
    let seq = parameter(&parameters, "seq").and_then(|seq| seq.parse::<u64>().ok());
    let (Some(topic), Some(seq)) = (topic, seq) else {
        return nothing("no notification is named");
    };
    let is_meant = |own: &&NotificationView| own.topic.as_str() == topic && own.seq == seq;
    match admin.status(Detail::Everything).await {
        Ok(status) => {
            let found = status.notifications.iter().find(is_meant);
            match found.and_then(|own| own.payload.as_ref()) {
                Some(body) => text(body.as_text().into_owned()),
                None => nothing("this payload is not kept any more"),
            }
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// `/configuration`: the one in force, secrets masked.
pub async fn configuration(State(admin): State<Admin>) -> Response {
    match admin.status(Detail::Everything).await {
        Ok(status) => match status.configuration {
            Some(configuration) => text(configuration.in_force),
            None => nothing("no configuration is known"),
        },
        Err(refusal) => refusal.into_response(),
    }
}

fn html(status: StatusCode, page: &impl Template) -> Response {
    match page.render() {
        Ok(page) => {
            let headers = guarded("text/html; charset=utf-8");
            (status, headers, escaped_lines(&page).into_owned()).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

fn text(text: String) -> Response {
    (guarded("text/plain; charset=utf-8"), text).into_response()
}

fn nothing(why: &str) -> Response {
    let headers = guarded("text/plain; charset=utf-8");
    (StatusCode::NOT_FOUND, headers, format!("{why}\n")).into_response()
}

/// The browser runs nothing and loads nothing, takes the answer for what it says it is, keeps no copy, and tells no
/// other server where a link was followed.
fn guarded(content_type: &'static str) -> [(axum::http::HeaderName, String); 5] {
    let style = BASE64_STANDARD.encode(Sha256::digest(parts::STYLE));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{style}'; form-action 'self'; base-uri 'none'; \
         frame-ancestors 'none'"
    );
    [
        (CONTENT_TYPE, content_type.to_owned()),
        (CONTENT_SECURITY_POLICY, policy),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (CACHE_CONTROL, "no-store".to_owned()),
        (REFERRER_POLICY, "no-referrer".to_owned()),
    ]
}

fn parameters(query: Option<String>) -> Vec<(String, String)> {
    let query = query.unwrap_or_default();
    form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect()
}

fn parameter<'a>(parameters: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = parameters.iter().find(|(own, _)| own == name);
    found.map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests;
