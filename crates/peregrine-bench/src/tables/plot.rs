//! Draws lines and bars as SVG pictures, in the manner of the picture of the stub study.

use std::fmt::Write;

use super::table::digits;
use crate::stubs::{FAINT, HERE, INK, THERE};

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
/// The width of the names to the right of lines.
const NAMES: f64 = 230.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 60.0;

/// The colours of lines, one after the other.
const COLOURS: [&str; 6] = [THERE, "#8c6bb1", HERE, "#2a9d5c", "#c0392b", INK];

/// A line of a picture.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

fn begin(title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"{INK}\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n\
         <text x=\"16\" y=\"24\" font-size=\"15\" font-weight=\"bold\">{title}</text>\n"
    )
}

/// Returns a round number that is at least `value`, for the end of an axis, and the distance of its ticks.
fn axis(value: f64) -> (f64, f64) {
    let size = 10_f64.powf(value.max(1e-9).log10().floor());
    let step =
        [0.2, 0.5, 1.0, 2.0].map(|part| part * size).into_iter().find(|step| value / step <= 6.0);
    let step = step.unwrap_or(2.0 * size);
    ((value / step).ceil().max(1.0) * step, step)
}

fn text(svg: &mut String, x: f64, y: f64, extra: &str, text: &str) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {extra}>{text}</text>");
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), extra: &str) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(
        svg,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {extra}/>"
    );
}

/// Draws the vertical axis, and returns its end. `right` is the space to the right of the picture's lines.
fn vertical(svg: &mut String, most: f64, right: f64, name: &str) -> f64 {
    let (end, step) = axis(most);
    let count = (end / step).round() as u32;
    for tick in 0..=count {
        let value = f64::from(tick) * step;
        let y = HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / end;
        line(svg, (LEFT, y), (WIDTH - right, y), &format!("stroke=\"{FAINT}\""));
        // A tick is a round number, so trailing zeros say nothing.
        let shown = digits(value);
        let shown = if shown.contains('.') {
            shown.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            shown
        };
        text(svg, LEFT - 8.0, y + 4.0, "text-anchor=\"end\"", &shown);
    }
    let middle = TOP + (HEIGHT - BOTTOM - TOP) / 2.0;
    let turned = format!("text-anchor=\"middle\" transform=\"rotate(-90 20 {middle})\"");
    text(svg, 20.0, middle, &turned, name);
    end
}

/// Returns a picture of lines. The horizontal axis begins at 1, and has whole numbers.
pub(crate) fn lines(title: &str, across: &str, up: &str, series: &[Series]) -> String {
    let mut svg = begin(title);
    let points = || series.iter().flat_map(|one| one.points.iter());
    let most = points().map(|point| point.1).fold(0.0, f64::max);
    let last = points().map(|point| point.0).fold(2.0, f64::max);
    let right = RIGHT + NAMES;
    let end = vertical(&mut svg, most, right, up);
    let x = |value: f64| LEFT + 20.0 + (WIDTH - right - LEFT - 40.0) * (value - 1.0) / (last - 1.0);
    let y = |value: f64| HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / end;
    for tick in 1..=last as u32 {
        let at = x(f64::from(tick));
        text(&mut svg, at, HEIGHT - BOTTOM + 18.0, "text-anchor=\"middle\"", &tick.to_string());
    }
    let middle = LEFT + (WIDTH - right - LEFT) / 2.0;
    text(&mut svg, middle, HEIGHT - 16.0, "text-anchor=\"middle\"", across);
    for (number, one) in series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let places: Vec<_> = one.points.iter().map(|point| (x(point.0), y(point.1))).collect();
        for pair in places.windows(2) {
            line(&mut svg, pair[0], pair[1], &format!("stroke=\"{colour}\" stroke-width=\"2\""));
        }
        for (x, y) in places {
            let _ =
                writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>");
        }
        let top = TOP + 14.0 + 17.0 * number as f64;
        text(
            &mut svg,
            WIDTH - NAMES,
            top,
            &format!("fill=\"{colour}\""),
            &format!("&#9632; {}", one.name),
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// Returns a picture of bars with their names.
pub(crate) fn bars(title: &str, up: &str, bars: &[(String, f64)]) -> String {
    let mut svg = begin(title);
    let most = bars.iter().map(|bar| bar.1).fold(1.0, f64::max);
    let end = vertical(&mut svg, most, RIGHT, up);
    let width = (WIDTH - RIGHT - LEFT) / bars.len().max(1) as f64;
    for (number, (name, value)) in bars.iter().enumerate() {
        let left = LEFT + width * number as f64;
        let height = (HEIGHT - BOTTOM - TOP) * value / end;
        let top = HEIGHT - BOTTOM - height;
        let _ = writeln!(
            svg,
            "<rect x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"{HERE}\"/>",
            left + 4.0,
            width - 8.0
        );
        let middle = left + width / 2.0;
        text(
            &mut svg,
            middle,
            top - 4.0,
            "text-anchor=\"middle\" font-size=\"11\"",
            &digits(*value),
        );
        text(
            &mut svg,
            middle,
            HEIGHT - BOTTOM + 18.0,
            "text-anchor=\"middle\" font-size=\"10\"",
            name,
        );
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        assert_eq!(axis(4.6), (5.0, 1.0));
        assert_eq!(axis(23.0), (25.0, 5.0));
        assert_eq!(axis(950.0), (1000.0, 200.0));
        for value in [0.001, 0.7, 1.0, 3.3, 61.0, 99.0, 12_345.0] {
            let (end, step) = axis(value);
            assert!(end >= value && (end / step).round() <= 7.0, "{value}: {end} {step}");
        }
    }

    #[test]
    fn pictures_have_every_series_and_every_bar() {
        let points = vec![(1.0, 1.0), (2.0, 1.9)];
        let series =
            ["one", "two"].map(|name| Series { name: name.into(), points: points.clone() });
        let svg = lines("Calls", "processors", "times", &series);
        assert_eq!(svg.matches("<circle").count(), 4);
        assert!(svg.contains("two") && svg.ends_with("</svg>\n"));
        let svg = bars("Sizes", "per cent", &[("small".into(), 60.0), ("large".into(), 40.0)]);
        assert_eq!(svg.matches("<rect").count(), 3, "the background, and two bars");
        // Nothing was measured.
        assert!(!lines("", "", "", &[]).contains("NaN"));
        assert!(!bars("", "", &[]).contains("NaN"));
    }
}
