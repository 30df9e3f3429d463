//! URL-encoded forms and query parameters.

use url::form_urlencoded;

/// Content type of a form.
pub const FORM_TYPE: &str = "application/x-www-form-urlencoded";

/// Returns `url` with parameters appended to its own query, which stays as it is.
pub fn with_parameters(url: &str, parameters: &[(&str, &str)]) -> String {
    let url = url.split('#').next().unwrap_or(url);
    let join = match url.split_once('?') {
        None => "?",
        Some((_, "")) => "",
        Some((_, query)) if query.ends_with('&') => "",
        Some(_) => "&",
    };
    format!("{url}{join}{}", encode_form(parameters))
}

/// Returns URL-encoded name-value pairs.
pub fn encode_form(parameters: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new())
        .extend_pairs(parameters)
        .finish()
}
