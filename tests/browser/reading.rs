//! Reading the pages and following their links, with a pointer, a keyboard or a screen reader.

use std::collections::BTreeSet;

use crate::driver::Browser;
use crate::support::daemon::{assert_starts_with, count_of, get};
use crate::troubled::{HOSTILE, Troubled};

const TAB: char = '\u{e004}';
const ENTER: char = '\u{e007}';

/// Basic automatic accessibility checks; returns the problems.
const ACCESSIBILITY_CHECK: &str = r"
    const problems = [];
    const all = selector => [...document.querySelectorAll(selector)];
    const need = (selector, is_right, what) =>
        all(selector).filter(e => !is_right(e)).forEach(e => problems.push(what + ': ' + e.outerHTML.slice(0, 80)));
    const text = e => e && e.textContent.trim() !== '';
    need('html', e => e.lang === 'en', 'no language');
    need('table', e => text(e.caption), 'no caption');
    need('th', e => ['col', 'row'].includes(e.scope), 'no scope');
    need('td', e => text(e), 'an empty cell');
    need('a[href], button, summary', e => text(e), 'no name');
    need('input, select', e => e.labels.length === 1 && text(e.labels[0]), 'no label');
    need('section', e => text(document.getElementById(e.getAttribute('aria-labelledby'))), 'no heading');
    need('nav, form', e => e.ariaLabel, 'no label');
    need('time', e => !isNaN(Date.parse(e.dateTime)), 'no time');
    need('a', e => e.pathname !== location.pathname || !e.hash || document.getElementById(e.hash.slice(1)), 'leads nowhere');
    const ids = all('[id]').map(e => e.id);
    if (new Set(ids).size !== ids.length) problems.push('an id is there twice');
    const levels = all('h1, h2, h3').map(e => +e.tagName[1]);
    if (levels.filter(level => level === 1).length !== 1) problems.push('not one h1');
    if (levels.some((level, at) => level > (levels[at - 1] || 0) + 1)) problems.push('a level is skipped');
    for (const one of ['main', 'header', 'footer']) if (all(one).length !== 1) problems.push('not one ' + one);
    return problems;
";

#[test]
fn problems_are_shown_and_every_link_works() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let troubled = Troubled::start();
    browser.go(&troubled.url("/"));
    assert_eq!(browser.title(), "Action required – rsnotify");
    let headings =
        browser.texts("return [...document.querySelectorAll('h1, h2')].map(e => e.textContent)");
    assert_eq!(headings[0], "Action required");
    let parts = "Sources, Hubs, Broken documents, Channels, Last notifications, Configuration";
    for part in parts.split(", ") {
        assert!(headings.contains(&part.to_owned()), "{part}: {headings:?}");
    }
    let alerts =
        browser.texts("return [...document.querySelectorAll('.verdict li')].map(e => e.innerText)");
    assert_starts_with(&alerts[0], "/nowhere/at/all (archive) is not there");
    let refused = count_of(&alerts, "of 3 channels: it wants credentials");
    assert_eq!(refused, 1, "{alerts:?}");
    let mut seen = BTreeSet::new();
    for page in ["/", "/channels?text=set-1&state=&page=1"] {
        browser.go(&troubled.url(page));
        let local_links = "return [...document.links].map(e => e.href).filter(e => e.startsWith(location.origin))";
        seen.extend(browser.texts(local_links));
    }
    let kinds = "/channel? /payload? /configuration /status.json /metrics /channels";
    for kind in kinds.split(' ') {
        let is_linked = seen.iter().any(|url| url.contains(kind));
        assert!(is_linked, "no link to {kind}");
    }
    for url in &seen {
        let target = url.strip_prefix(&troubled.url("")).unwrap();
        let target = target.split('#').next().unwrap();
        let (head, _) = get(troubled.daemon.admin, target);
        assert!(head.starts_with("HTTP/1.1 200 "), "{url}: {head}");
    }
    let elsewhere = "return [...document.querySelectorAll('[src], link, script, img, iframe')].map(e => e.outerHTML)";
    assert_eq!(browser.texts(elsewhere), [""; 0], "nothing is loaded");
}

#[test]
fn what_a_file_is_called_is_only_text() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let troubled = Troubled::start();
    troubled.await_broken();
    browser.go(&troubled.url("/"));
    let file = browser
        .run("return document.querySelector('[aria-labelledby=broken] th[scope=row]').innerText");
    assert!(file.as_str().unwrap().contains(HOSTILE), "{file}");
    assert_eq!(
        browser.run("return document.querySelectorAll('img, script').length"),
        0
    );
    assert_eq!(browser.title(), "Action required – rsnotify");
}

#[test]
fn a_screen_reader_finds_names_captions_headings_and_landmarks() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let troubled = Troubled::start();
    troubled.await_broken();
    for page in ["/", "/channels", &troubled.a_channel()] {
        browser.go(&troubled.url(page));
        assert_eq!(browser.texts(ACCESSIBILITY_CHECK), [""; 0], "{page}");
    }
}

#[test]
fn a_keyboard_without_scripts_reaches_everything() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let troubled = Troubled::start();
    browser.without_scripts(true);
    browser.go(&troubled.url("/"));
    let focus = "const active = document.activeElement; const style = getComputedStyle(active); \
                 return [active.textContent.trim(), style.outlineStyle, String(active.getBoundingClientRect().left >= 0)]";
    browser.press(&[TAB]);
    assert_eq!(browser.texts(focus)[0], "Skip to the content");
    assert_eq!(
        browser.texts(focus)[1..],
        ["solid", "true"],
        "it shows when it has the focus"
    );
    browser.press(&[ENTER, TAB]);
    // After the heading.
    assert_starts_with(&browser.texts(focus)[0], "/nowhere/at/all");
    browser.press(&[ENTER]);
    assert!(browser.url().ends_with("/#sources"));
    // The payload of a notification opens, and is what was sent.
    browser.run("document.querySelector('summary').focus()");
    browser.press(&[ENTER]);
    browser.await_truth("return document.querySelector('details').open");
    let payload = browser.run("return document.querySelector('details pre').textContent");
    assert_starts_with(payload.as_str().unwrap(), "<?xml version=");
    // A form without scripts seeks channels.
    browser.go(&troubled.url("/channels"));
    browser.run("document.querySelector('#text').focus()");
    browser.press(&['s', 'e', 't', '-', '5', '9', ENTER]);
    browser.await_truth("return location.search.includes('text=set-59')");
    browser.await_truth("return document.querySelectorAll('th[scope=row]').length === 1");
    browser.click("th a");
    browser.await_truth("return document.querySelector('h1').textContent.includes('set-59')");
}
