//! Layout of the pages: small and large screens, light and dark.

use crate::driver::Browser;
use crate::troubled::Troubled;

/// Elements that reach beyond the right edge, and are meant to be seen.
const BEYOND: &str = r"
    return [...document.querySelectorAll('body *')]
        .filter(e => !e.closest('.unseen, .skip, thead') && e.getBoundingClientRect().right > innerWidth + 1)
        .map(e => e.outerHTML.slice(0, 120));
";

/// Texts with less contrast than WCAG 2.1 AA asks for, 4.5 to 1, however large they are.
const FAINT: &str = r"
    const parse = color => color.match(/[\d.]+/g).map(Number);
    const light = color => {
        const [r, g, b] = parse(color).map(part => {
            const share = part / 255;
            return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = element => {
        for (let ancestor = element; ancestor; ancestor = ancestor.parentElement) {
            const color = getComputedStyle(ancestor).backgroundColor;
            if (parse(color)[3] !== 0) return color;
        }
        return 'rgb(255, 255, 255)';
    };
    const faint = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement;
        if (!walker.currentNode.textContent.trim()) continue;
        const [one, other] = [light(getComputedStyle(element).color), light(behind(element))];
        const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
        if (contrast < 4.5) faint.push(contrast.toFixed(2) + ': ' + element.outerHTML.slice(0, 100));
    }
    return faint;
";

const BRIGHTNESS: &str = r"
    const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number);
    return (r + g + b) / 3;
";

#[test]
fn everything_fits_and_can_be_read_on_a_telephone_and_at_a_desk_in_light_and_dark() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let troubled = Troubled::start();
    troubled.await_broken();
    let channel = troubled.a_channel();
    for (name, page) in [
        ("status", "/"),
        ("channels", "/channels"),
        ("channel", &channel),
    ] {
        for width in [360, 1_280] {
            browser.be_wide(width);
            for scheme in ["light", "dark"] {
                browser.prefer(scheme);
                browser.go(&troubled.url(page));
                browser.run("document.querySelectorAll('details').forEach(e => e.open = true)");
                let at = format!("{name}-{width}-{scheme}");
                let fits = "return document.documentElement.scrollWidth <= innerWidth";
                assert_eq!(browser.run(fits), true, "{at}: {:?}", browser.texts(BEYOND));
                assert_eq!(browser.run("return innerWidth"), width, "{at}");
                assert_eq!(browser.texts(BEYOND), [""; 0], "{at}");
                assert_eq!(browser.texts(FAINT), [""; 0], "{at}");
                let brightness = browser.run(BRIGHTNESS).as_f64().unwrap();
                assert_eq!(brightness < 64.0, scheme == "dark", "{at}: {brightness}");
                browser.picture(&at);
            }
        }
    }
}
