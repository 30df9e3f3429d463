//! A headless browser, driven by the W3C's WebDriver protocol over plain HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::DEADLINE;
use crate::support::needs;

/// WebDriver's key of an element in JSON.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// The driver and the browser that it started; both end with it.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: TempDir,
}

impl Browser {
    /// Nothing where there is no browser, and nobody asks for all tests.
    pub fn start() -> Option<Browser> {
        let chromedriver = needs::program("chromedriver")?;
        needs::program("chromium")?;
        let mut driver = Command::new(chromedriver)
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.find_map(|line| {
            let line = line.ok()?;
            let (_, port) = line.split_once("started successfully on port ")?;
            port.trim_end_matches('.').parse().ok()
        });
        // Whatever else it says must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let profile = TempDir::new().unwrap();
        let mut browser = Browser {
            driver,
            port: port.expect("chromedriver says where it listens"),
            session: String::new(),
            _profile: profile,
        };
        browser.open_session();
        Some(browser)
    }

    fn open_session(&mut self) {
        let profile = self._profile.path().display();
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            &format!("--user-data-dir={profile}"),
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": arguments},
        }}});
        let session = self.request("POST", "/session", &wanted);
        self.session = session["sessionId"].as_str().unwrap().to_owned();
    }

    pub fn go(&self, url: &str) {
        self.command("url", &json!({"url": url}));
    }

    pub fn title(&self) -> String {
        let title = self.ask("title");
        title.as_str().unwrap().to_owned()
    }

    pub fn url(&self) -> String {
        let url = self.ask("url");
        url.as_str().unwrap().to_owned()
    }

    /// Presses keys wherever the focus is.
    pub fn press(&self, keys: &[char]) {
        let presses = keys.iter().flat_map(|key| {
            ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key.to_string()}))
        });
        let presses: Vec<Value> = presses.collect();
        let keyboard = json!({"type": "key", "id": "keyboard", "actions": presses});
        self.command("actions", &json!({"actions": [keyboard]}));
    }

    /// Clicks on the first element that a selector finds.
    pub fn click(&self, selector: &str) {
        let sought = json!({"using": "css selector", "value": selector});
        let found = self.command("element", &sought);
        let element = found[ELEMENT].as_str().unwrap();
        self.command(&format!("element/{element}/click"), &json!({}));
    }

    /// Returns the result of a function body. It runs beside the page, whose own policy forbids every script.
    pub fn run(&self, script: &str) -> Value {
        self.command("execute/sync", &json!({"script": script, "args": []}))
    }

    /// As [`Browser::run`], of what is a list of texts.
    pub fn texts(&self, script: &str) -> Vec<String> {
        let texts = self.run(script);
        let texts = texts.as_array().unwrap().iter();
        texts
            .map(|text| text.as_str().unwrap().to_owned())
            .collect()
    }

    /// Waits until a function body returns true.
    pub fn await_truth(&self, script: &str) {
        let deadline = Instant::now() + DEADLINE;
        while self.run(script) != true {
            assert!(Instant::now() < deadline, "never true: {script}");
            std::thread::sleep(Duration::from_millis(20)); // poll
        }
    }

    /// Makes the window as wide as a telephone, or as a desk's screen.
    pub fn be_wide(&self, width: u32) {
        let size =
            json!({"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500});
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
    }

    pub fn prefer(&self, scheme: &str) {
        let wanted = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.devtools("Emulation.setEmulatedMedia", &wanted);
    }

    pub fn without_scripts(&self, without: bool) {
        self.devtools(
            "Emulation.setScriptExecutionDisabled",
            &json!({"value": without}),
        );
    }

    /// A picture of the whole page, for developers: written where `RSNOTIFY_TEST_SCREENSHOTS` says, if it does.
    pub fn picture(&self, name: &str) {
        let Some(directory) = std::env::var_os("RSNOTIFY_TEST_SCREENSHOTS") else {
            return;
        };
        let options = json!({"captureBeyondViewport": true, "format": "png"});
        let picture = self.devtools("Page.captureScreenshot", &options);
        let picture = picture["data"].as_str().unwrap();
        let picture = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, picture).unwrap();
        let path = std::path::Path::new(&directory).join(format!("{name}.png"));
        std::fs::write(path, picture).unwrap();
    }

    fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.command(
            "goog/cdp/execute",
            &json!({"cmd": command, "params": parameters}),
        )
    }

    fn command(&self, command: &str, body: &Value) -> Value {
        self.request(
            "POST",
            &format!("/session/{}/{command}", self.session),
            body,
        )
    }

    fn ask(&self, what: &str) -> Value {
        self.request(
            "GET",
            &format!("/session/{}/{what}", self.session),
            &Value::Null,
        )
    }

    fn request(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        // The driver keeps the connection, whatever it is asked.
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let read = reader.read_line(&mut head).unwrap();
            assert!(read > 0, "{method} {path}: {head}");
        }
        let length = head.to_lowercase();
        let (_, length) = length.split_once("content-length:").unwrap();
        let length: usize = length.lines().next().unwrap().trim().parse().unwrap();
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let body = String::from_utf8(body).unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{method} {path}: {body}");
        let mut answer: Value = serde_json::from_str(&body).unwrap();
        answer["value"].take()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Asked to end the session, the driver ends the browser; whether it can is no matter any more.
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
            let end = format!(
                "DELETE /session/{} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
                self.session
            );
            let _ = stream.write_all(end.as_bytes());
            let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
            let _ = stream.read(&mut [0; 1024]);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
