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

/// Returns the first value of a name.
pub fn form_value(form: &[u8], name: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(form);
    let (_, value) = pairs.find(|(found, _)| found == name)?;
    Some(value.into_owned())
}

/// Returns a content type without its parameters.
pub fn media_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

/// Returns true if a body of this content type is a form.
pub fn is_form(content_type: &str) -> bool {
    media_type(content_type).eq_ignore_ascii_case(FORM_TYPE)
}

/// Returns URL-encoded name-value pairs.
pub fn encode_form(parameters: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new())
        .extend_pairs(parameters)
        .finish()
}
