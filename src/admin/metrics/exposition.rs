//! The exposition of metrics, which were counted elsewhere, in the two formats of Prometheus.

use std::fmt;

use jiff::Timestamp;
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
#[derive(Debug)]
pub struct Exposition {
    format: ExpositionFormat,
    text: String,
}

impl Exposition {
    pub fn new(format: ExpositionFormat) -> Exposition {
        Exposition {
            format,
            text: String::new(),
        }
    }

    pub fn gauge(&mut self, name: &str, help: &str, value: impl fmt::Debug) {
        self.gauges(name, help, [([], value)]);
    }

    pub fn gauges<V: fmt::Debug, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = ([Label; N], V)>,
    ) {
        self.describe(name, help, "gauge");
        for (labels, value) in values {
            self.add(name, &labels, value);
        }
    }

    pub fn counter(&mut self, name: &str, help: &str, value: impl fmt::Debug) {
        self.counters(name, help, [([], value)]);
    }

    pub fn counters<V: fmt::Debug, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = ([Label; N], V)>,
    ) {
        // OpenMetrics names a counter without the suffix of its values.
        let described = match self.format {
            ExpositionFormat::OpenMetrics => name.trim_end_matches("_total"),
            ExpositionFormat::Text => name,
        };
        self.describe(described, help, "counter");
        for (labels, value) in values {
            self.add(name, &labels, value);
        }
    }

    pub fn histogram(&mut self, name: &str, help: &str, value: &Histogram) {
        self.histograms(name, help, [([], value)]);
    }

    pub fn histograms<'a, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = ([Label; N], &'a Histogram)>,
    ) {
        self.describe(name, help, "histogram");
        for (labels, histogram) in values {
            self.add(&format!("{name}_sum"), &labels, histogram.sum);
            self.add(&format!("{name}_count"), &labels, histogram.count());
            let mut within = 0;
            for (bound, count) in histogram.buckets() {
                within += count;
                let bound = match bound {
                    f64::INFINITY => "+Inf".to_owned(),
                    bound => format!("{bound:?}"),
                };
                let labels = [&[("le", bound)], &labels[..]].concat();
                self.add(&format!("{name}_bucket"), &labels, within);
            }
        }
    }

    fn describe(&mut self, name: &str, help: &str, kind: &str) {
        self.text += &format!("# HELP {name} {help}.\n# TYPE {name} {kind}\n");
    }

    fn add(&mut self, name: &str, labels: &[Label], value: impl fmt::Debug) {
        let labels = labels.iter().map(|(name, value)| {
            let value = value.replace('\\', r"\\").replace('"', "\\\"");
            format!("{name}=\"{}\"", value.replace('\n', r"\n"))
        });
        let labels = match labels.collect::<Vec<_>>().join(",").as_str() {
            "" => String::new(),
            labels => format!("{{{labels}}}"),
        };
        self.text += &format!("{name}{labels} {value:?}\n");
    }

    /// Returns the text, with the end mark that OpenMetrics has.
    pub fn finish(self) -> String {
        match self.format {
            ExpositionFormat::OpenMetrics => self.text + "# EOF\n",
            ExpositionFormat::Text => self.text,
        }
    }
}

/// Returns a Unix time in seconds, as Prometheus has it.
pub fn seconds(at: Timestamp) -> f64 {
    at.as_duration().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exposition(format: ExpositionFormat) -> String {
        let mut exposition = Exposition::new(format);
        exposition.counters(
            "a_total",
            "Told of a counter",
            [([("path", "\"\\\n".to_owned())], 2)],
        );
        exposition.gauge("b", "Not a counter", 1);
        exposition.finish()
    }

    #[test]
    fn open_metrics_names_a_counter_without_its_suffix_and_marks_the_end() {
        assert_eq!(
            exposition(ExpositionFormat::OpenMetrics),
            "# HELP a Told of a counter.\n# TYPE a counter\na_total{path=\"\\\"\\\\\\n\"} 2\n\
             # HELP b Not a counter.\n# TYPE b gauge\nb 1\n# EOF\n"
        );
    }

    #[test]
    fn the_older_format_names_a_counter_as_its_values_are_named() {
        assert_eq!(
            exposition(ExpositionFormat::Text),
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

    #[test]
    fn a_histogram_counts_what_lies_within_each_bound() {
        let mut durations = Histogram::default();
        for seconds in [0.5, 0.75, 7_200.0] {
            durations.observe(std::time::Duration::from_secs_f64(seconds));
        }
        let mut exposition = Exposition::new(ExpositionFormat::Text);
        let labels = [("hub", "a".to_owned())];
        exposition.histograms("took", "Told of durations", [(labels, &durations)]);
        let text = exposition.finish();
        for line in [
            "took_sum{hub=\"a\"} 7201.25",
            "took_count{hub=\"a\"} 3",
            "took_bucket{le=\"0.005\",hub=\"a\"} 0",
            "took_bucket{le=\"0.5\",hub=\"a\"} 1",
            "took_bucket{le=\"1.0\",hub=\"a\"} 2",
            "took_bucket{le=\"3600.0\",hub=\"a\"} 2",
            "took_bucket{le=\"+Inf\",hub=\"a\"} 3",
        ] {
            assert!(text.lines().any(|told| told == line), "{line}: {text}");
        }
    }
}
