//! Draws the study as a picture. The picture shows how much slower each design is than the fastest design, on
//! this machine and in the paper.

use std::fmt::Write;

use crate::cost::{Control, Design};

use super::paper;
use super::report::{control, copying};
use super::study::Study;
use super::user::Data;

/// The space to the left of the origin. The longest names need this space.
const MARGIN: f64 = 30.0;
const WIDTH: f64 = 980.0 + MARGIN;
/// The horizontal position at which the names of designs end and the bars begin.
const LEFT: f64 = 190.0;
/// The largest width of the bars in a panel.
const PANEL: f64 = 230.0;
const GAP: f64 = 30.0;
const TOP: f64 = 84.0;
/// The height of a design's two bars.
const ROW: f64 = 34.0;
/// The largest ratio that a panel shows, at its right end. A ratio is the time of a design divided by the
/// time of the fastest design.
const MOST: f64 = 120.0;

pub(crate) const HERE: &str = "#1b6ca8";
pub(crate) const THERE: &str = "#d9a441";
pub(crate) const INK: &str = "#222222";
pub(crate) const FAINT: &str = "#cccccc";

/// Returns the horizontal position of a ratio. The scale is logarithmic.
fn across(ratio: f64) -> f64 {
    PANEL * ratio.clamp(1.0, MOST).ln() / MOST.ln()
}

/// Returns the smallest finite value.
fn least(values: impl Iterator<Item = f64>) -> f64 {
    values.filter(|value| value.is_finite()).fold(f64::INFINITY, f64::min)
}

/// Returns the picture as SVG.
pub(crate) fn svg(study: &Study) -> String {
    let height = TOP + ROW * Design::ALL.len() as f64 + 56.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"-{MARGIN} 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"{INK}\">\n\
         <rect x=\"-{MARGIN}\" width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    let mut add_text = |x: f64, y: f64, extra: &str, text: &str| {
        let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {extra}>{text}</text>");
    };
    add_text(
        16.0,
        24.0,
        "font-size=\"15\" font-weight=\"bold\"",
        "Marshalling time, relative to the fastest design for the same type",
    );
    add_text(16.0, 46.0, &format!("fill=\"{HERE}\""), "&#9632; here");
    add_text(80.0, 46.0, &format!("fill=\"{THERE}\""), "&#9632; the paper's MicroVAX-II");
    add_text(250.0, 46.0, "", "bar: the model's sum &#160; dots: its sum if instructions overlap");
    for (row, design) in Design::ALL.into_iter().enumerate() {
        let y = TOP + ROW * row as f64 + ROW / 2.0 + 2.0;
        let name = format!("{}, {}", control(design.control), copying(design.copying));
        let dim = if design.control == Control::Interpreted { "" } else { "font-weight=\"bold\"" };
        add_text(LEFT - 10.0, y, &format!("text-anchor=\"end\" {dim}"), &name);
    }
    for (panel, data) in Data::ALL.into_iter().enumerate() {
        one_type(&mut svg, study, data, LEFT + panel as f64 * (PANEL + GAP));
    }
    svg.push_str("</svg>\n");
    svg
}

fn one_type(svg: &mut String, study: &Study, data: Data, left: f64) {
    let bottom = TOP + ROW * Design::ALL.len() as f64;
    let mut line = |text: String| {
        svg.push_str(&text);
        svg.push('\n');
    };
    line(format!(
        "<text x=\"{left:.1}\" y=\"{:.1}\" font-weight=\"bold\">{}</text>",
        TOP - 10.0,
        data.name()
    ));
    for tick in [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0] {
        let x = left + across(tick);
        line(format!(
            "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"{FAINT}\"/>"
        ));
        line(format!(
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{tick}</text>",
            bottom + 18.0
        ));
    }
    let cells: Vec<_> =
        Design::ALL.into_iter().filter_map(|design| study.cell(design, data, true)).collect();
    let here = least(cells.iter().map(|cell| cell.ns[1]));
    let there = least(paper::MEASURED_MS.iter().map(|row| row[data as usize]));
    for (row, cell) in cells.iter().enumerate() {
        let top = TOP + ROW * row as f64 + 5.0;
        let mut bar = |y: f64, ratio: f64, colour: &str| {
            // The bar of the fastest design must be visible, too.
            let width = across(ratio).max(1.5);
            line(format!(
                "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"11\" fill=\"{colour}\"/>"
            ));
        };
        bar(top, cell.ns[1] / here, HERE);
        let ms = paper::MEASURED_MS[row][data as usize];
        if ms.is_finite() {
            bar(top + 12.0, ms / there, THERE);
        }
        for (predicted, dashes) in
            [(cell.prediction.sum, ""), (cell.prediction.overlap, "stroke-dasharray=\"2 2\"")]
        {
            let x = left + across(predicted / here);
            line(format!(
                "<line x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"{INK}\" stroke-width=\"1.6\" {dashes}/>",
                top - 2.0,
                top + 13.0
            ));
        }
    }
}
