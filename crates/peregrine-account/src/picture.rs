//! An account as a picture: each part is a bar that begins where the part before it ends.

use core::fmt::Write as _;

use crate::{Account, Part, Side};

/// The width of the picture and of the column of names, in pixels.
const WIDTH: f64 = 960.0;
const NAMES: f64 = 236.0;
/// The space to the right of the last bar, for its time.
const MARGIN: f64 = 96.0;
/// The height of a row, and of the spaces above and below all rows.
const ROW: f64 = 26.0;
const ABOVE: f64 = 64.0;
const BELOW: f64 = 58.0;
/// The largest number of marks on the axis.
const MARKS_MAX: f64 = 8.0;

/// A bar.
struct Bar {
    name: &'static str,
    side: Side,
    /// Where it begins, and how long it is, in nanoseconds.
    from: f64,
    ns: f64,
}

/// Returns the bars of an account. The transfer has two bars of the same length, because only both directions
/// together were measured.
fn bars(account: &Account) -> Vec<Bar> {
    let is_client = |part: &&Part| part.side == Side::Client;
    let split = account.parts.iter().position(|part| part.side != Side::Client);
    let (before, others) = account.parts.split_at(split.unwrap_or(account.parts.len()));
    let whole = |part: &Part| (part.name, part.side, part.ns);
    let half = |name| {
        let between = others.iter().filter(|part| part.side == Side::Between);
        between.map(move |part| (name, part.side, part.ns / 2.0))
    };
    let server = others.iter().filter(|part| part.side == Side::Server).map(whole);
    let after = others.iter().filter(is_client).map(whole);
    let rows = before.iter().map(whole).chain(half("transfer, there"));
    let rows = rows.chain(server).chain(half("transfer, back")).chain(after);
    let mut at = 0.0;
    let place = |(name, side, ns): (_, _, f64)| {
        let (from, ns) = (at, ns.max(0.0));
        at += ns;
        Bar { name, side, from, ns }
    };
    rows.map(place).collect()
}

/// Returns a round distance between marks, so that there are few of them.
pub(crate) fn distance(all: f64) -> f64 {
    let least = (all / MARKS_MAX).max(1.0);
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|times| times * power)
        .into_iter()
        .find(|one| *one >= least)
        .unwrap_or(least)
}

/// Returns a time with three digits and a unit.
pub(crate) fn time(ns: f64) -> String {
    let (value, unit) = match ns.abs() {
        ..1e3 => return format!("{ns:.0} ns"),
        ..1e6 => (ns / 1e3, "us"),
        _ => (ns / 1e6, "ms"),
    };
    match value.abs() {
        ..10.0 => format!("{value:.2} {unit}"),
        ..100.0 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

const fn colour(side: Side) -> &'static str {
    match side {
        Side::Client => "#2b6cb0",
        Side::Server => "#2f855a",
        Side::Between => "#a0aec0",
    }
}

/// Escapes text for XML.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Draws an account.
pub(crate) fn svg(account: &Account, title: &str) -> String {
    let bars = bars(account);
    let all = bars.last().map_or(1.0, |bar| bar.from + bar.ns).max(account.whole_ns).max(1.0);
    let x = |ns: f64| NAMES + ns / all * (WIDTH - NAMES - MARGIN);
    let rows = bars.len() as f64 * ROW;
    let height = ABOVE + rows + BELOW;
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\" role=\"img\">\n\
         <title>{title}</title>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"16\" y=\"26\" font-size=\"16\" font-weight=\"600\" fill=\"#1a202c\">{title}</text>\n",
        title = escaped(title),
    );
    let mut at = 16.0;
    for (side, what) in
        [(Side::Client, "client"), (Side::Between, "between"), (Side::Server, "server")]
    {
        let _ = writeln!(
            out,
            "<rect x=\"{at}\" y=\"38\" width=\"12\" height=\"12\" fill=\"{}\"/>\
             <text x=\"{}\" y=\"49\" fill=\"#4a5568\">{what}</text>",
            colour(side),
            at + 18.0,
        );
        at += 92.0;
    }
    let step = distance(all);
    for mark in 0..=(all / step) as u32 {
        let ns = f64::from(mark) * step;
        let _ = writeln!(
            out,
            "<line x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{ABOVE}\" y2=\"{1}\" stroke=\"#e2e8f0\"/>\
             <text x=\"{0:.1}\" y=\"{2}\" text-anchor=\"middle\" fill=\"#718096\">{3}</text>",
            x(ns),
            ABOVE + rows,
            ABOVE + rows + 18.0,
            time(ns),
        );
    }
    for (bar, row) in bars.iter().zip(0_u32..) {
        let y = ABOVE + f64::from(row) * ROW;
        let (from, width) = (x(bar.from), (x(bar.from + bar.ns) - x(bar.from)).max(1.0));
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#2d3748\">{}</text>\
             <rect x=\"{from:.1}\" y=\"{}\" width=\"{width:.1}\" height=\"{}\" fill=\"{}\"/>\
             <text x=\"{:.1}\" y=\"{}\" fill=\"#4a5568\">{}</text>",
            NAMES - 10.0,
            y + 18.0,
            escaped(bar.name),
            y + 4.0,
            ROW - 8.0,
            colour(bar.side),
            from + width + 6.0,
            y + 18.0,
            time(bar.ns),
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"16\" y=\"{}\" fill=\"#4a5568\">sum {}, whole {}, rest {:+.1} %; the transfer was \
         measured in both directions together</text>\n</svg>",
        height - 14.0,
        time(account.sum_ns()),
        time(account.whole_ns),
        100.0 * account.rest_ratio(),
    );
    out
}

/// Returns a page with the picture and the table.
pub(crate) fn html(account: &Account, title: &str) -> String {
    let row = |side: &str, name: &str, ns: f64, spread: &str| {
        let share = 100.0 * ns / account.whole_ns;
        format!(
            "<tr><td>{side}</td><td>{name}</td><td>{}</td><td>{spread}</td><td>{share:.1} %</td></tr>\n",
            time(ns)
        )
    };
    let parts = account
        .parts
        .iter()
        .map(|part| row(&part.side.to_string(), part.name, part.ns, &time(part.spread_ns)));
    let sums = [
        ("sum", account.sum_ns()),
        ("whole, without stamps", account.whole_ns),
        ("the same call outside of the account", account.plain_ns),
    ];
    let rows: String = parts.chain(sums.map(|(name, ns)| row("", name, ns, ""))).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n<style>\n\
         body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; \
         padding: 0 1rem; color: #1a202c; }}\n\
         svg {{ width: 100%; height: auto; border: 1px solid #e2e8f0; border-radius: 6px; }}\n\
         table {{ border-collapse: collapse; margin-top: 1.5rem; width: 100%; }}\n\
         td, th {{ padding: .3rem .6rem; border-bottom: 1px solid #e2e8f0; text-align: left; }}\n\
         td:nth-child(n+3), th:nth-child(n+3) {{ text-align: right; \
         font-variant-numeric: tabular-nums; }}\n\
         </style>\n</head>\n<body>\n{svg}\n<table>\n\
         <tr><th>side</th><th>part</th><th>time</th><th>spread</th><th>of the whole</th></tr>\n\
         {rows}</table>\n</body>\n</html>\n",
        title = escaped(title),
        svg = svg(account, title),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> Account {
        let part = |name, side, ns| Part { name, side, ns, spread_ns: 1.0 };
        Account {
            parts: vec![
                part("begins", Side::Client, 10.0),
                part("sends", Side::Client, 30.0),
                part("transfer", Side::Between, 600.0),
                part("runs", Side::Server, 300.0),
                part("ends", Side::Client, 60.0),
            ],
            whole_ns: 1010.0,
            plain_ns: 990.0,
            stamp_ns: [17.0, 18.0],
            rounds: 3,
        }
    }

    #[test]
    fn bars_follow_each_other_and_the_transfer_is_halved() {
        let bars = bars(&account());
        let placed: Vec<_> = bars.iter().map(|bar| (bar.name, bar.from, bar.ns)).collect();
        let expected = [
            ("begins", 0.0, 10.0),
            ("sends", 10.0, 30.0),
            ("transfer, there", 40.0, 300.0),
            ("runs", 340.0, 300.0),
            ("transfer, back", 640.0, 300.0),
            ("ends", 940.0, 60.0),
        ];
        assert_eq!(placed, expected);
    }

    #[test]
    fn axis_has_few_marks_at_round_times() {
        for (all, expected) in [(1000.0, 200.0), (390.0, 50.0), (81.0, 20.0), (16_000.0, 2000.0)] {
            assert_eq!(distance(all), expected, "{all}");
            assert!(all / distance(all) <= MARKS_MAX);
        }
        assert_eq!(
            [time(7.4), time(1234.0), time(56_780.0), time(9e6)],
            ["7 ns", "1.23 us", "56.8 us", "9.00 ms"]
        );
    }

    #[test]
    fn picture_is_balanced_and_shows_all_parts() {
        let picture = svg(&account(), "a <call> & more");
        assert!(picture.contains("a &lt;call&gt; &amp; more") && !picture.contains("<call>"));
        for tag in ["svg", "text", "title"] {
            let count = |what: String| picture.matches(&what).count();
            assert_eq!(count(format!("<{tag}")), count(format!("</{tag}>")), "{tag}");
        }
        for bar in bars(&account()) {
            assert!(picture.contains(bar.name), "{}", bar.name);
        }
        let page = html(&account(), "a call");
        assert!(page.contains("<svg") && page.matches("<tr>").count() == 9, "{page}");
    }
}
