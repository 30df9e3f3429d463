//! The exposition of metrics, which were counted elsewhere, in the two formats of Prometheus.

use std::fmt;

use jiff::Timestamp;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{
    EncodeCounterValue, EncodeGaugeValue, EncodeMetric, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Metric, Registry};
use websub::counts::Histogram;

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

/// A label's name and value.
pub type Label = (&'static str, String);

/// Metrics in the order in which they are added.
#[derive(Debug, Default)]
pub struct Exposition {
    registry: Registry,
}

impl Exposition {
    pub fn gauge<V: EncodeGaugeValue + Value>(&mut self, name: &str, help: &str, value: V) {
        self.registry.register(name, help, ConstGauge::new(value));
    }

    pub fn gauges<V: EncodeGaugeValue + Value, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = ([Label; N], V)>,
    ) {
        let values = values.into_iter();
        let gauges = values.map(|(labels, value)| (labels, ConstGauge::new(value)));
        self.series(name, help, gauges);
    }

    pub fn counter<V: EncodeCounterValue + Value>(&mut self, name: &str, help: &str, value: V) {
        let name = bare(name);
        self.registry.register(name, help, ConstCounter::new(value));
    }

    pub fn counters<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = ([Label; N], u64)>,
    ) {
        let values = values.into_iter();
        let counters = values.map(|(labels, value)| (labels, ConstCounter::new(value)));
        self.series(bare(name), help, counters);
    }

    pub fn histogram(&mut self, name: &str, help: &str, value: &Histogram) {
        self.registry.register(name, help, Observed(value.clone()));
    }

    pub fn histograms<'a, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = ([Label; N], &'a Histogram)>,
    ) {
        let values = values.into_iter();
        let histograms = values.map(|(labels, value)| (labels, Observed(value.clone())));
        self.series(name, help, histograms);
    }

    fn series<M: Metric + TypedMetric, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        all: impl Iterator<Item = ([Label; N], M)>,
    ) {
        self.registry.register(name, help, Series(all.collect()));
    }

    pub fn encode(&self, format: ExpositionFormat) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        match format {
            ExpositionFormat::OpenMetrics => text,
            ExpositionFormat::Text => as_text(&text),
        }
    }
}

/// Returns a counter's name without the suffix of its values, as OpenMetrics names it.
fn bare(name: &str) -> &str {
    name.strip_suffix("_total").unwrap_or(name)
}

/// Converts to the text format, which names a counter like its values and has no end mark.
fn as_text(open_metrics: &str) -> String {
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

/// Bounds of every metric value.
pub trait Value: fmt::Debug + Send + Sync + 'static {}

impl<V: fmt::Debug + Send + Sync + 'static> Value for V {}

/// Metrics of one name with different labels.
#[derive(Debug)]
struct Series<M, const N: usize>(Vec<([Label; N], M)>);

impl<M: Metric + TypedMetric, const N: usize> EncodeMetric for Series<M, N> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let Series(all) = self;
        for (labels, metric) in all {
            metric.encode(encoder.encode_family(labels)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }
}

/// A histogram that was filled elsewhere.
#[derive(Debug)]
struct Observed(Histogram);

impl TypedMetric for Observed {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Observed {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let Observed(histogram) = self;
        let buckets: Vec<(f64, u64)> = histogram.buckets().collect();
        encoder.encode_histogram::<NoLabelSet>(histogram.sum, histogram.count(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Observed::TYPE
    }
}

/// Returns a Unix time in seconds, as Prometheus has it.
pub fn seconds(at: Timestamp) -> f64 {
    at.as_duration().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exposition() -> Exposition {
        let mut exposition = Exposition::default();
        exposition.counters(
            "a_total",
            "Told of a counter",
            [([("path", "\"\\\n".to_owned())], 2)],
        );
        exposition.gauge("b", "Not a counter", 1);
        exposition
    }

    #[test]
    fn open_metrics_names_a_counter_without_its_suffix_and_marks_the_end() {
        assert_eq!(
            exposition().encode(ExpositionFormat::OpenMetrics),
            "# HELP a Told of a counter.\n# TYPE a counter\na_total{path=\"\\\"\\\\\\n\"} 2\n\
             # HELP b Not a counter.\n# TYPE b gauge\nb 1\n# EOF\n"
        );
    }

    #[test]
    fn the_older_format_names_a_counter_as_its_values_are_named() {
        assert_eq!(
            exposition().encode(ExpositionFormat::Text),
            "# HELP a_total Told of a counter.\n# TYPE a_total counter\na_total{path=\"\\\"\\\\\\n\"} 2\n\
             # HELP b Not a counter.\n# TYPE b gauge\nb 1\n"
        );
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
