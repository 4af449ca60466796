//! A load as a picture: response times at each level, their distribution at one level, and the throughput of
//! closed runs.

use core::fmt::Write as _;

use super::{Level, Load};
use crate::picture::{distance, escaped, time};

/// The width of the picture, and the height of a panel, in pixels.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 330.0;
/// The space above the panels, for the title.
const ABOVE: f64 = 44.0;
/// The space around the axes of a panel: left, top, right, bottom.
const AROUND: [f64; 4] = [74.0, 48.0, 26.0, 46.0];

/// Colours: of what was measured, of its slow calls, and of the models of both.
const MEAN: &str = "#2b6cb0";
const SLOW: &str = "#c05621";
const OTHER: &str = "#718096";

/// A line, or points.
struct Series {
    name: &'static str,
    colour: &'static str,
    points: Vec<(f64, f64)>,
    /// Whether the points are marked. Otherwise, a dashed line connects them.
    is_measured: bool,
}

/// An axis.
struct Axis {
    from: f64,
    to: f64,
    is_logarithmic: bool,
    title: &'static str,
    /// Where marks are, and what they say.
    marks: Vec<(f64, String)>,
}

impl Axis {
    /// Returns where a value is, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.is_logarithmic { value.max(1e-9).ln() } else { value };
        (scale(value) - scale(self.from)) / (scale(self.to) - scale(self.from))
    }

    /// Returns a logarithmic axis of times that has all of these values.
    fn of_times(values: impl Iterator<Item = f64> + Clone, title: &'static str) -> Self {
        let least = values.clone().fold(f64::INFINITY, f64::min).max(1.0);
        let most = values.fold(least * 2.0, f64::max);
        // Marks at 1, 2 and 5 times the powers of ten, or only at the powers if these are many.
        let powers = || (0..13).map(|power| 10_f64.powi(power));
        let all = powers().flat_map(|power| [1.0, 2.0, 5.0].map(|times| times * power));
        let inside = |mark: &f64| *mark >= least * 0.7 && *mark <= most * 1.4;
        let mut marks: Vec<f64> = all.filter(inside).collect();
        if marks.len() > 8 {
            marks = powers().filter(inside).collect();
        }
        let marks = marks.into_iter().map(|mark| (mark, short(mark))).collect();
        Self { from: least * 0.7, to: most * 1.4, is_logarithmic: true, title, marks }
    }
}

/// Returns a time of an axis: without needless digits.
fn short(ns: f64) -> String {
    match ns {
        ..1e3 => format!("{ns:.0} ns"),
        ..1e6 => format!("{:.0} us", ns / 1e3),
        ..1e9 => format!("{:.0} ms", ns / 1e6),
        _ => format!("{:.0} s", ns / 1e9),
    }
}

/// Draws a panel.
fn panel(
    out: &mut String,
    (x, y): (f64, f64),
    width: f64,
    title: &str,
    axes: [&Axis; 2],
    series: &[Series],
) {
    let [left, top, right, bottom] = AROUND;
    let [horizontal, vertical] = axes;
    let across = |value: f64| x + left + horizontal.place(value) * (width - left - right);
    let up = |value: f64| y + HEIGHT - bottom - vertical.place(value) * (HEIGHT - top - bottom);
    let (low, high) = (y + HEIGHT - bottom, y + top);
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"{}\" font-weight=\"600\" fill=\"#2d3748\">{}</text>",
        x + left,
        y + 16.0,
        escaped(title)
    );
    for (mark, text) in &horizontal.marks {
        let _ = writeln!(
            out,
            "<line x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{high}\" y2=\"{low}\" stroke=\"#edf2f7\"/>\
             <text x=\"{0:.1}\" y=\"{1}\" text-anchor=\"middle\" fill=\"#718096\">{2}</text>",
            across(*mark),
            low + 16.0,
            escaped(text),
        );
    }
    for (mark, text) in &vertical.marks {
        let _ = writeln!(
            out,
            "<line x1=\"{1:.1}\" x2=\"{2:.1}\" y1=\"{0:.1}\" y2=\"{0:.1}\" stroke=\"#edf2f7\"/>\
             <text x=\"{3:.1}\" y=\"{4:.1}\" text-anchor=\"end\" fill=\"#718096\">{5}</text>",
            up(*mark),
            x + left,
            x + width - right,
            x + left - 6.0,
            up(*mark) + 4.0,
            escaped(text),
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#4a5568\">{}</text>\
         <text transform=\"translate({:.1} {:.1}) rotate(-90)\" text-anchor=\"middle\" fill=\"#4a5568\">{}</text>",
        x + left + (width - left - right) / 2.0,
        low + 36.0,
        horizontal.title,
        x + 14.0,
        (low + high) / 2.0,
        vertical.title,
    );
    let mut legend = x + left;
    for one in series {
        let points =
            one.points.iter().map(|(at, value)| (across(*at), up(*value).clamp(high, low)));
        let places: Vec<String> =
            points.clone().map(|(at, value)| format!("{at:.1},{value:.1}")).collect();
        let dashes = if one.is_measured { "" } else { " stroke-dasharray=\"5 4\"" };
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\"{dashes}/>",
            places.join(" "),
            one.colour,
        );
        if one.is_measured && one.points.len() <= 20 {
            for (at, value) in points {
                let _ = writeln!(
                    out,
                    "<circle cx=\"{at:.1}\" cy=\"{value:.1}\" r=\"3\" fill=\"{}\"/>",
                    one.colour
                );
            }
        }
        let _ = writeln!(
            out,
            "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2}\" y2=\"{2}\" stroke=\"{3}\" stroke-width=\"1.6\"{dashes}/>\
             <text x=\"{4}\" y=\"{5}\" fill=\"#2d3748\">{6}</text>",
            legend,
            legend + 24.0,
            y + 31.0,
            one.colour,
            legend + 30.0,
            y + 35.0,
            escaped(one.name),
        );
        // A letter is about 6.6 pixels wide.
        legend += 52.0 + 6.6 * one.name.len() as f64;
    }
}

fn series(
    name: &'static str,
    colour: &'static str,
    is_measured: bool,
    points: Vec<(f64, f64)>,
) -> Series {
    Series { name, colour, points, is_measured }
}

/// The response times of all levels.
fn levels(out: &mut String, load: &Load) {
    let of = |what: fn(&Level) -> f64| {
        load.levels.iter().map(|level| (level.utilization, what(level))).collect::<Vec<_>>()
    };
    let all = [
        series("measured, p99", SLOW, true, of(|level| level.response.p99_ns)),
        series("M/D/1, p99", SLOW, false, of(|level| level.constant.p99_ns)),
        series("measured, mean", MEAN, true, of(|level| level.response.mean_ns)),
        series("M/D/1, mean", MEAN, false, of(|level| level.constant.mean_ns)),
        series("s / (1 - u)", OTHER, false, of(|level| level.markov_ns)),
    ];
    let marks = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0].map(|part| (part, format!("{:.0} %", 100.0 * part)));
    let horizontal = Axis {
        from: 0.0,
        to: 1.0,
        is_logarithmic: false,
        title: "part of the capacity",
        marks: marks.to_vec(),
    };
    let values = all.iter().flat_map(|one| one.points.iter().map(|(_, value)| *value));
    let vertical = Axis::of_times(values, "response time");
    panel(
        out,
        (0.0, ABOVE),
        WIDTH,
        "Response times of calls that are due at random moments",
        [&horizontal, &vertical],
        &all,
    );
}

/// The distribution of the response times at the level that is nearest to 80 %.
fn distribution(out: &mut String, load: &Load, width: f64) {
    let distance = |level: &Level| (level.utilization - 0.8).abs();
    let Some(level) =
        load.levels.iter().min_by(|one, other| distance(one).total_cmp(&distance(other)))
    else {
        return;
    };
    // The axis counts the calls of which one is slower: 1 / (1 - p).
    let last = (level.calls as f64).log10().floor().clamp(1.0, 5.0);
    let places = (1..=(last * 10.0) as u32).map(|tenth| 10_f64.powf(f64::from(tenth) / 10.0));
    let of = |which: usize| {
        let point = |place: f64| (place, level.quantile_ns(1.0 - 1.0 / place)[which]);
        places.clone().map(point).collect::<Vec<_>>()
    };
    let all = [series("measured", MEAN, true, of(0)), series("M/D/1", MEAN, false, of(1))];
    let marks = (0..=last as i32).map(|power| {
        let digits = usize::try_from(power - 2).unwrap_or(0);
        let place = 10_f64.powi(power);
        (place, format!("{:.digits$} %", 100.0 * (1.0 - 1.0 / place)))
    });
    let horizontal = Axis {
        from: 1.0,
        to: 10_f64.powf(last),
        is_logarithmic: true,
        title: "part of the calls that are at most as long",
        marks: marks.collect(),
    };
    let values = all.iter().flat_map(|one| one.points.iter().map(|(_, value)| *value));
    let vertical = Axis::of_times(values, "response time");
    let title = format!("All response times at {:.0} % of the capacity", 100.0 * level.utilization);
    panel(out, (0.0, ABOVE + HEIGHT), width, &title, [&horizontal, &vertical], &all);
}

/// The throughput of closed runs without pauses.
fn throughput(out: &mut String, load: &Load) {
    let runs = || load.closed.iter().filter(|run| run.think_ns == 0.0);
    let measured: Vec<_> = runs().map(|run| (run.callers as f64, run.calls_per_s)).collect();
    let alone = measured.first().map_or(1.0, |(_, calls)| *calls);
    let most = measured.iter().map(|(_, calls)| *calls).fold(1.0, f64::max);
    let mut all = vec![series("measured", MEAN, true, measured.clone())];
    if let Some(law) = load.amdahl {
        let law = |(callers, _): &(f64, f64)| {
            (*callers, alone / (law.serial + (1.0 - law.serial) / callers))
        };
        all.push(series("Amdahl's law", MEAN, false, measured.iter().map(law).collect()));
    }
    let last = load.callers.max(2) as f64;
    let marks = measured.iter().map(|(callers, _)| (*callers, format!("{callers}"))).collect();
    let horizontal = Axis {
        from: 0.9,
        to: last * 1.1,
        is_logarithmic: true,
        title: "callers that make one call after the other",
        marks,
    };
    let step = distance(most);
    let marks = (0..=(most / step) as u32)
        .map(|mark| (f64::from(mark) * step, count(f64::from(mark) * step)));
    let vertical = Axis {
        from: 0.0,
        to: most * 1.35,
        is_logarithmic: false,
        title: "calls per second",
        marks: marks.collect(),
    };
    let place = (WIDTH / 2.0, ABOVE + HEIGHT);
    panel(out, place, WIDTH / 2.0, "Throughput", [&horizontal, &vertical], &all);
}

/// Returns a number with a unit.
pub(super) fn count(number: f64) -> String {
    match number {
        ..1e3 => format!("{number:.0}"),
        ..1e4 => format!("{:.1}k", number / 1e3),
        ..1e6 => format!("{:.0}k", number / 1e3),
        _ => format!("{:.2}M", number / 1e6),
    }
}

/// Draws a load.
pub(super) fn svg(load: &Load, title: &str) -> String {
    let height = ABOVE + 2.0 * HEIGHT;
    let (service, most) = (time(load.service.mean_ns), count(load.capacity_per_s));
    let title = format!("{title}: {service} for a call, {most} calls per second at most");
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" role=\"img\">\n\
         <title>{title}</title>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"16\" y=\"26\" font-size=\"16\" font-weight=\"600\" fill=\"#1a202c\">{title}</text>\n",
        title = escaped(&title),
    );
    levels(&mut out, load);
    match load.callers {
        1 => distribution(&mut out, load, WIDTH),
        _ => {
            distribution(&mut out, load, WIDTH / 2.0);
            throughput(&mut out, load);
        }
    }
    out + "</svg>\n"
}
