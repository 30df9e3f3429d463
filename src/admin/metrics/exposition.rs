//! The exposition of metrics, which were counted elsewhere, in the two formats of Prometheus.

use std::fmt;

use jiff::Timestamp;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use websub::counts::DurationHistogram;

/// Exposition format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpositionFormat {
    OpenMetrics,
    /// The older text format, which command-line tools read.
    Text,
}

impl ExpositionFormat {
    /// Returns the format that the `Accept` header asks for. Prometheus asks for OpenMetrics.
    pub fn accepted(accept: &str) -> ExpositionFormat {
        if accept.contains("application/openmetrics-text") {
            ExpositionFormat::OpenMetrics
        } else {
            ExpositionFormat::Text
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            ExpositionFormat::OpenMetrics => {
                "application/openmetrics-text; version=1.0.0; charset=utf-8"
            }
            ExpositionFormat::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// A value of a metric.
#[derive(Debug)]
pub enum MetricValue {
    Whole(u64),
    Seconds(f64),
    Histogram(DurationHistogram),
}

/// Metrics in the order in which they are defined.
#[derive(Debug, Default)]
pub struct Exposition(Vec<Family>);

/// A metric with its values by labels.
#[derive(Debug)]
struct Family {
    name: &'static str,
    kind: MetricType,
    help: &'static str,
    values: Vec<(Vec<(&'static str, String)>, MetricValue)>,
}

impl Exposition {
    /// Defines metrics, each in a line with its name, type and description. They are exposed even without values.
    pub fn define(&mut self, metrics: &'static str) {
        self.0.extend(metrics.lines().map(|line| {
            let (name, rest) = line.split_once(' ').unwrap_or_default();
            let (kind, help) = rest.split_once(' ').unwrap_or_default();
            Family {
                name,
                kind: match kind {
                    "counter" => MetricType::Counter,
                    "histogram" => MetricType::Histogram,
                    _ => MetricType::Gauge,
                },
                help,
                values: Vec::new(),
            }
        }));
    }

    /// Adds a value of a metric that was defined, and is named without `rsnotify_`.
    pub fn add(
        &mut self,
        name: &str,
        labels: &[(&'static str, &str)],
        value: impl Into<MetricValue>,
    ) {
        let mut families = self.0.iter_mut();
        let family = families.find(|family| family.name.strip_prefix("rsnotify_") == Some(name));
        debug_assert!(family.is_some(), "{name} is not defined");
        if let Some(family) = family {
            let labels = labels
                .iter()
                .map(|(name, value)| (*name, (*value).to_owned()));
            family.values.push((labels.collect(), value.into()));
        }
    }

    /// Defines a metric without labels, and adds its value.
    pub fn add_single(&mut self, metric: &'static str, value: impl Into<MetricValue>) {
        self.define(metric);
        if let Some(family) = self.0.last_mut() {
            family.values.push((Vec::new(), value.into()));
        }
    }

    pub fn encode(self, format: ExpositionFormat) -> String {
        let mut registry = Registry::default();
        for family in self.0 {
            // OpenMetrics names a counter without the suffix of its values.
            let name = family.name.strip_suffix("_total").unwrap_or(family.name);
            registry.register(name, family.help, family);
        }
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &registry);
        match format {
            ExpositionFormat::OpenMetrics => text,
            ExpositionFormat::Text => to_text_format(&text),
        }
    }
}

impl EncodeMetric for Family {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (labels, value) in &self.values {
            if labels.is_empty() {
                value.encode(self.kind, &mut encoder)?;
            } else {
                value.encode(self.kind, &mut encoder.encode_family(labels)?)?;
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        self.kind
    }
}

impl MetricValue {
    fn encode(&self, kind: MetricType, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        let is_counter = matches!(kind, MetricType::Counter);
        match self {
            MetricValue::Whole(value) if is_counter => {
                encoder.encode_counter::<NoLabelSet, _, f64>(value, None)
            }
            MetricValue::Whole(value) => encoder.encode_gauge(value),
            MetricValue::Seconds(value) if is_counter => {
                encoder.encode_counter::<NoLabelSet, _, f64>(value, None)
            }
            MetricValue::Seconds(value) => encoder.encode_gauge(value),
            MetricValue::Histogram(histogram) => {
                let buckets: Vec<(f64, u64)> = histogram.buckets().collect();
                let (sum, count) = (histogram.sum, histogram.count());
                encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
            }
        }
    }
}

impl From<u64> for MetricValue {
    fn from(value: u64) -> MetricValue {
        MetricValue::Whole(value)
    }
}

impl From<usize> for MetricValue {
    fn from(value: usize) -> MetricValue {
        MetricValue::Whole(value as u64)
    }
}

impl From<bool> for MetricValue {
    fn from(value: bool) -> MetricValue {
        MetricValue::Whole(value.into())
    }
}

/// A Unix time in seconds, as Prometheus has it.
impl From<Timestamp> for MetricValue {
    fn from(at: Timestamp) -> MetricValue {
        MetricValue::Seconds(at.as_duration().as_secs_f64())
    }
}

impl From<&DurationHistogram> for MetricValue {
    fn from(histogram: &DurationHistogram) -> MetricValue {
        MetricValue::Histogram(histogram.clone())
    }
}

/// Converts to the text format, which names a counter like its values and has no end mark.
fn to_text_format(open_metrics: &str) -> String {
    let lines: Vec<&str> = open_metrics.lines().collect();
    let is_counter = |line: Option<&&str>| line.is_some_and(|line| line.ends_with(" counter"));
    let mut text = String::with_capacity(open_metrics.len());
    for (at, line) in lines.iter().enumerate() {
        let names_counter = match line.split_once(' ') {
            Some(("#", rest)) if rest.starts_with("HELP ") => is_counter(lines.get(at + 1)),
            Some(("#", rest)) if rest.starts_with("TYPE ") => is_counter(Some(line)),
            Some(("#", _)) => continue,
            _ => false,
        };
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some(mark), Some(what), Some(name), Some(rest)) if names_counter => {
                text.extend([mark, " ", what, " ", name, "_total ", rest]);
            }
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_open_metrics_names_a_counter_without_its_suffix_and_marks_the_end() {
        for (format, name, end) in [
            (ExpositionFormat::OpenMetrics, "rsnotify_a", "# EOF\n"),
            (ExpositionFormat::Text, "rsnotify_a_total", ""),
        ] {
            let mut exposition = Exposition::default();
            exposition.define("rsnotify_a_total counter Told of a counter");
            exposition.add("a_total", &[("path", "\"\\\n")], 2_u64);
            exposition.add_single("b gauge Not a counter", 1_u64);
            let want = format!(
                "# HELP {name} Told of a counter.\n# TYPE {name} counter\nrsnotify_a_total{{path=\"\\\"\\\\\\n\"}} 2\n\
                 # HELP b Not a counter.\n# TYPE b gauge\nb 1\n{end}"
            );
            assert_eq!(exposition.encode(format), want);
        }
    }

    #[test]
    fn open_metrics_is_written_on_request() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, format) in [
            (prometheus, ExpositionFormat::OpenMetrics),
            ("*/*", ExpositionFormat::Text),
            ("", ExpositionFormat::Text),
        ] {
            assert_eq!(ExpositionFormat::accepted(accept), format, "{accept}");
        }
    }
}
