//! Reads `Link` headers (RFC 8288) as servers write them, which is not always as they should.

/// One link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub target: String,
    /// Relation types, in lower case.
    pub relations: Vec<String>,
}

/// The links of all values of a `Link` header. What cannot be read is skipped.
pub fn links<'a>(values: impl IntoIterator<Item = &'a str>) -> Vec<Link> {
    values.into_iter().flat_map(links_of).collect()
}

/// The targets with a relation type.
pub fn targets<'a>(links: &'a [Link], relation: &str) -> impl Iterator<Item = &'a str> {
    links
        .iter()
        .filter(move |link| link.relations.iter().any(|own| own == relation))
        .map(|link| link.target.as_str())
}

fn links_of(value: &str) -> Vec<Link> {
    let mut links = Vec::new();
    let mut rest = value;
    while let Some((target, after)) = rest
        .split_once('<')
        .and_then(|(_, from)| from.split_once('>'))
    {
        let (relations, after) = parameters(after);
        links.push(Link {
            target: target.trim().to_owned(),
            relations: relations.unwrap_or_default(),
        });
        rest = after;
    }
    links
}

/// The relation types among a link's parameters, and what follows the link.
fn parameters(mut rest: &str) -> (Option<Vec<String>>, &str) {
    // RFC 8288 section 3.3: of several rel parameters the first counts.
    let mut relations = None;
    loop {
        rest = rest.trim_start();
        let Some(parameter) = rest.strip_prefix(';') else {
            return (relations, rest);
        };
        let end = parameter.find(['=', ';', ',']).unwrap_or(parameter.len());
        let (name, after) = parameter.split_at(end);
        let Some(after) = after.strip_prefix('=') else {
            rest = after;
            continue;
        };
        let (value, after) = value(after.trim_start());
        if name.trim().eq_ignore_ascii_case("rel") && relations.is_none() {
            let words = value.split_whitespace();
            relations = Some(words.map(str::to_ascii_lowercase).collect());
        }
        rest = after;
    }
}

/// A parameter's value, quoted or not, and what follows it.
fn value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([';', ',']).unwrap_or(text.len());
        let (token, rest) = text.split_at(end);
        return (token.trim().to_owned(), rest);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            c => value.push(c),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(&["<a>; rel=\"self\", <b>; rel=\"hub\""], "a self|b hub")]
    #[case(&["<a>; rel=\"self\"", "<b>;rel=hub"], "a self|b hub")]
    #[case(&["<a> ; rel=\"self\",\t<b> ; rel = hub"], "a self|b hub")]
    #[case(&["<a>;rel=self,<b>;rel=hub;type=x"], "a self|b hub")]
    #[case(&["<http://e/a,b;c>; rel=\"hub\""], "http://e/a,b;c hub")]
    #[case(&["<a>; title=\"x, <y>; rel=hub\"; rel=\"SELF  Hub\""], "a self hub")]
    #[case(&["<a>; title=\"\\\"\"; rel=self; rel=hub"], "a self")]
    #[case(&["<a>; crossorigin; rel=hub"], "a hub")]
    #[case(&["<a>"], "a")]
    #[case(&["<a>, , junk <b>; rel=hub,"], "a|b hub")]
    #[case(&["<a>; rel=\"self"], "a self")]
    #[case(&["", "rel=hub", "<never ended", ">"], "")]
    fn links_are_read_as_they_are_written(#[case] values: &[&str], #[case] want: &str) {
        let read = links(values.iter().copied())
            .iter()
            .map(|link| {
                format!("{} {}", link.target, link.relations.join(" "))
                    .trim()
                    .to_owned()
            })
            .collect::<Vec<_>>();
        assert_eq!(read.join("|"), want);
    }

    proptest! {
        #[test]
        fn any_header_is_survived(value in "[<>;=,\" \\\\a-cé]{0,40}") {
            links([value.as_str()]);
        }
    }
}
