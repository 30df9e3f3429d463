//! The status page and its subpages: HTML without JavaScript or external resources.
//!
//! The templates escape everything that comes from files, hubs or the configuration.

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
use crate::admin::page::channels::{ChannelFilter, ChannelPage, ChannelsPage};
use crate::admin::page::overview::Overview;
use crate::report::status::Detail;
use crate::report::status::notification::NotificationView;
use crate::resourcesync::escape::escaped_lines;

/// Serves `/`, the status page.
pub async fn overview(State(admin): State<Admin>) -> Response {
    match admin.status(Detail::Everything).await {
        Ok(status) => html(StatusCode::OK, &Overview::new(&status)),
        Err(refusal) => refusal.into_response(),
    }
}

/// Serves `/channels`, all channels page by page.
pub async fn channels(State(admin): State<Admin>, RawQuery(query): RawQuery) -> Response {
    match admin.status(Detail::Everything).await {
        Ok(status) => {
            let filter = ChannelFilter::from_query(&parameters(query));
            html(StatusCode::OK, &ChannelsPage::new(&status, filter))
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// Serves `/channel?topic=TOPIC`, one channel.
pub async fn channel(State(admin): State<Admin>, RawQuery(query): RawQuery) -> Response {
    let parameters = parameters(query);
    let Some(topic) = parameter(&parameters, "topic") else {
        return not_found("parameter topic is missing");
    };
    match admin.status(Detail::Everything).await {
        Ok(status) => match ChannelPage::new(&status, topic) {
            Some(page) => html(StatusCode::OK, &page),
            None => not_found("no channel has this topic"),
        },
        Err(refusal) => refusal.into_response(),
    }
}

/// Serves `/payload?topic=TOPIC&seq=NUMBER`, the payload of one of the last notifications as it was sent.
pub async fn payload(State(admin): State<Admin>, RawQuery(query): RawQuery) -> Response {
    let parameters = parameters(query);
    let topic = parameter(&parameters, "topic");
    let seq = parameter(&parameters, "seq").and_then(|seq| seq.parse::<u64>().ok());
    let (Some(topic), Some(seq)) = (topic, seq) else {
        return not_found("parameters topic and seq are missing");
    };
    let is_meant = |view: &&NotificationView| view.topic.as_str() == topic && view.seq == seq;
    match admin.status(Detail::Everything).await {
        Ok(status) => {
            let found = status.notifications.iter().find(is_meant);
            match found.and_then(|view| view.payload.as_ref()) {
                Some(body) => text(body.as_text().into_owned()),
                None => not_found("payload no longer kept"),
            }
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// Serves `/configuration`, the effective configuration with secrets masked.
pub async fn configuration(State(admin): State<Admin>) -> Response {
    match admin.status(Detail::Everything).await {
        Ok(status) => match status.configuration {
            Some(configuration) => text(configuration.in_force),
            None => not_found("no configuration is known"),
        },
        Err(refusal) => refusal.into_response(),
    }
}

fn html(status: StatusCode, page: &impl Template) -> Response {
    match page.render() {
        Ok(page) => {
            let headers = security_headers("text/html; charset=utf-8");
            (status, headers, escaped_lines(&page).into_owned()).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

fn text(text: String) -> Response {
    (security_headers("text/plain; charset=utf-8"), text).into_response()
}

fn not_found(message: &str) -> Response {
    let headers = security_headers("text/plain; charset=utf-8");
    (StatusCode::NOT_FOUND, headers, format!("{message}\n")).into_response()
}

/// Returns headers by which the browser runs and loads nothing, sniffs no type, caches nothing and sends no referrer.
fn security_headers(content_type: &'static str) -> [(axum::http::HeaderName, String); 5] {
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
    let found = parameters.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests;
