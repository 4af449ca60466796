//! Writes Tables 1 to 11 in Markdown. Each table shows our figures, and then the paper's figures.

use std::fmt::Write as _;

use super::calls::{CALLS, Carrier, Test};
use super::profile::Profile;
use super::{Measured, Study, paper};
use crate::network::link::Link;

/// Returns all tables.
pub(super) fn tables(study: &Study) -> String {
    let mut text = String::new();
    let carriers = [
        ("Table 1", Carrier::Courier),
        ("Table 2", Carrier::Packet),
        ("Table 2a", Carrier::Exchange),
        ("Table 2b", Carrier::Peregrine),
    ];
    for (title, carrier) in carriers {
        elapsed(&mut text, study, title, carrier);
    }
    for (title, at) in [("Table 3", 0), ("Table 4", 1)] {
        per_call(&mut text, study, title, at);
    }
    let profiles = [
        ("Table 5", Carrier::Courier, 0),
        ("Table 6", Carrier::Courier, 1),
        ("Table 7", Carrier::Packet, 0),
        ("Table 8", Carrier::Packet, 1),
        ("Table 8a", Carrier::Peregrine, 0),
        ("Table 8b", Carrier::Peregrine, 1),
    ];
    for (title, carrier, at) in profiles {
        profile(&mut text, study, title, carrier, at);
    }
    for (title, at) in [("Table 9", 0), ("Table 9, second half", 1)] {
        ratios(&mut text, study, title, at);
    }
    networks(&mut text, study);
    cpu_ratios(&mut text, study);
    text
}

/// Our links, in the place of the paper's two networks. In the paper, the first network connects a VAX with a
/// VAX, and the second network connects a VAX with a Sun.
const LINKS: [Link; 2] = Link::ALL;

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Returns the standard deviation of samples.
fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / values.len().saturating_sub(1).max(1) as f64).sqrt()
}

/// Returns a number with about three digits.
fn number(value: f64) -> String {
    match value {
        _ if !value.is_finite() => "-".to_owned(),
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn number_or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), number)
}

fn begin(text: &mut String, title: &str, what: &str, columns: &[&str]) {
    let rule = "|---".repeat(columns.len() + 2);
    let _ = writeln!(text, "**{title}.** {what}\n");
    let _ = writeln!(text, "| bytes | result | {} |\n{rule}|", columns.join(" | "));
}

fn line(text: &mut String, test: Test, cells: &[String]) {
    let _ = writeln!(text, "| {test} | {} |", cells.join(" | "));
}

/// Returns the mean of the elapsed times of a kind of call in milliseconds.
fn mean_ms(study: &Study, carrier: Carrier, link: Link, test: Test) -> Option<f64> {
    study.of(carrier, link, test).map(|one| mean(&one.elapsed_ms))
}

/// Writes a table of elapsed times, such as Table 1 or 2.
fn elapsed(text: &mut String, study: &Study, title: &str, carrier: Carrier) {
    let what = format!("{}: milliseconds for {CALLS} calls", carrier.name());
    let mut columns: Vec<String> = Vec::new();
    for link in LINKS {
        let name = link.name();
        columns.extend([format!("{name} min."), "max.".to_owned(), "avg. ± dev.".to_owned()]);
    }
    columns.push("paper, s".to_owned());
    begin(text, title, &what, &columns.iter().map(String::as_str).collect::<Vec<_>>());
    for (place, test) in Test::ALL.into_iter().enumerate() {
        let mut cells = Vec::new();
        for link in LINKS {
            match study.of(carrier, link, test) {
                None => cells.extend(["-", "-", "-"].map(str::to_owned)),
                Some(Measured { elapsed_ms, .. }) => cells.extend([
                    number(elapsed_ms.iter().copied().fold(f64::INFINITY, f64::min)),
                    number(elapsed_ms.iter().copied().fold(0.0, f64::max)),
                    format!("{} ± {}", number(mean(elapsed_ms)), number(deviation(elapsed_ms))),
                ]),
            }
        }
        let paper = match carrier {
            Carrier::Courier => paper::COURIER_S.get(place),
            Carrier::Packet => paper::PACKET_S.get(place),
            _ => None,
        };
        let paper = paper.map(|[first, second]| format!("{}, {}", number(*first), number(*second)));
        cells.push(paper.unwrap_or_else(|| "-".to_owned()));
        line(text, test, &cells);
    }
    text.push('\n');
}

/// Writes Table 3 or 4.
fn per_call(text: &mut String, study: &Study, title: &str, at: usize) {
    let link = LINKS[at];
    let what = format!("{}: microseconds of a call, and calls of a second", link.name());
    let mut columns: Vec<_> = Carrier::COMPARED.iter().flat_map(|one| [one.name(), "/s"]).collect();
    columns.push("paper, ms");
    begin(text, title, &what, &columns);
    for (place, test) in Test::ALL.into_iter().enumerate() {
        let mut cells = Vec::new();
        for carrier in Carrier::COMPARED {
            let us = mean_ms(study, carrier, link, test).map(|ms| ms * 1e3 / f64::from(CALLS));
            cells.push(number_or_dash(us));
            cells.push(number_or_dash(us.map(|us| 1e6 / us)));
        }
        cells.push(paper::CALL_MS[at][place].map(number_or_dash).join(", "));
        line(text, test, &cells);
    }
    text.push('\n');
}

/// Writes a table of profiles, such as one of Tables 5 to 8.
fn profile(text: &mut String, study: &Study, title: &str, carrier: Carrier, at: usize) {
    let link = LINKS[at];
    let what = format!(
        "{}, {}: processor time of the client for {CALLS} calls",
        carrier.name(),
        link.name()
    );
    let columns = ["total, ms", "sending", "receiving", "swapping", "paper, s: parts"];
    begin(text, title, &what, &columns);
    let percent = |profile: Option<Profile>, part: fn(&Profile) -> u32| match profile {
        Some(profile) => format!("{:.1} %", profile.percent(part(&profile))),
        None => "-".to_owned(),
    };
    for (place, test) in Test::ALL.into_iter().enumerate() {
        let Some(one) = study.of(carrier, link, test) else { continue };
        let paper = match carrier {
            Carrier::Courier => paper::COURIER_CPU[at].get(place),
            Carrier::Packet => paper::PACKET_CPU[at].get(place),
            _ => None,
        };
        let paper = paper.map(|(total, sends, receives, swaps)| {
            let swaps = swaps.map_or_else(|| "-".to_owned(), |swaps| format!("{swaps} %"));
            format!("{total}: {sends} %, {receives} %, {swaps}")
        });
        line(
            text,
            test,
            &[
                number(mean(&one.cpu_ms)),
                percent(one.profile, |profile| profile.sending),
                percent(one.profile, |profile| profile.receiving),
                format!("{:.1} %", 100.0 * one.swapping_ms / mean(&one.cpu_ms)),
                paper.unwrap_or_else(|| "-".to_owned()),
            ],
        );
    }
    text.push('\n');
}

/// Writes the half of Table 9 that belongs to the link `LINKS[at]`.
fn ratios(text: &mut String, study: &Study, title: &str, at: usize) {
    let link = LINKS[at];
    let what = format!("{}: the time of Courier divided by the time of others", link.name());
    let others = [Carrier::Packet, Carrier::Exchange, Carrier::Peregrine];
    let mut columns = others.map(Carrier::name).to_vec();
    columns.push("paper");
    begin(text, title, &what, &columns);
    let mut sums = others.map(|_| Vec::new());
    for (place, test) in Test::ALL.into_iter().enumerate() {
        let courier = mean_ms(study, Carrier::Courier, link, test);
        let mut cells: Vec<_> = others
            .iter()
            .zip(&mut sums)
            .map(|(other, all)| {
                let ratio = courier.zip(mean_ms(study, *other, link, test)).map(|(a, b)| a / b);
                all.extend(ratio);
                number_or_dash(ratio)
            })
            .collect();
        let paper = paper::RATIOS.get(place).map(|both| both[at].map(number).join(", "));
        cells.push(paper.unwrap_or_else(|| "-".to_owned()));
        line(text, test, &cells);
    }
    let averages = sums.map(|all| format!("{} ± {}", number(mean(&all)), number(deviation(&all))));
    let paper = ["2.49 ± 1.3, 4.05 ± 1.06", "2.9 ± 0.96, 3.0 ± 0.83"][at];
    let _ = writeln!(text, "| avg. | | {} | {paper} |\n", averages.join(" | "));
}

/// Writes Table 10.
fn networks(text: &mut String, study: &Study) {
    let what =
        format!("The time over {} divided by the time over {}", LINKS[1].name(), LINKS[0].name());
    let mut columns = Carrier::COMPARED.map(Carrier::name).to_vec();
    columns.push("paper");
    begin(text, "Table 10", &what, &columns);
    for (place, test) in Test::ALL.into_iter().enumerate() {
        let ratio = |carrier| {
            let [fast, slow] = LINKS.map(|link| mean_ms(study, carrier, link, test));
            number_or_dash(slow.zip(fast).map(|(slow, fast)| slow / fast))
        };
        let mut cells = Carrier::COMPARED.map(ratio).to_vec();
        cells.push(paper::NETWORKS[place].map(number_or_dash).join(", "));
        line(text, test, &cells);
    }
    text.push('\n');
}

/// Writes Table 11.
fn cpu_ratios(text: &mut String, study: &Study) {
    let link = LINKS[0];
    let what = format!(
        "{}: the client's processor time with Courier divided by that with packet Courier",
        link.name()
    );
    let columns = ["total", "sending", "receiving", "paper"];
    begin(text, "Table 11", &what, &columns);
    for (place, test) in Test::ALL.into_iter().enumerate() {
        let both = [Carrier::Courier, Carrier::Packet].map(|carrier| study.of(carrier, link, test));
        let [Some(courier), Some(packet)] = both else { continue };
        let ratio = |part: fn(&Measured) -> Option<f64>| {
            let ratio = part(courier).zip(part(packet)).map(|(a, b)| a / b);
            number_or_dash(ratio)
        };
        let paper = paper::CPU_RATIOS.get(place).map(|(total, sends, receives)| {
            format!("{total}, {sends}, {}", number_or_dash(*receives))
        });
        line(
            text,
            test,
            &[
                ratio(|one| Some(mean(&one.cpu_ms))),
                ratio(|one| part_ms(one, |profile| profile.sending)),
                ratio(|one| part_ms(one, |profile| profile.receiving)),
                paper.unwrap_or_else(|| "-".to_owned()),
            ],
        );
    }
    text.push('\n');
}

/// Returns the processor time of one part of the profile (sending or receiving), in milliseconds.
fn part_ms(one: &Measured, part: fn(&Profile) -> u32) -> Option<f64> {
    let profile = one.profile?;
    Some(mean(&one.cpu_ms) * profile.percent(part(&profile)) / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn study() -> Study {
        let mut study = Study::default();
        for link in LINKS {
            for test in Test::ALL {
                for (place, carrier) in Carrier::COMPARED.into_iter().enumerate() {
                    let ms = (40 - 10 * place) as f64;
                    let profile = Profile { samples: 100, sending: 50, receiving: 25 };
                    study.0.push(Measured {
                        carrier,
                        link,
                        test,
                        elapsed_ms: vec![ms - 1.0, ms + 1.0],
                        cpu_ms: vec![ms / 2.0],
                        profile: Some(profile),
                        swapping_ms: ms / 40.0,
                    });
                }
            }
        }
        study
    }

    #[test]
    fn tables_have_a_row_for_each_test() {
        let text = tables(&study());
        for table in 1..=11 {
            assert!(text.contains(&format!("**Table {table}.**")), "{table}\n{text}");
        }
        let rows = text.lines().filter(|line| line.starts_with("| 4000 | yes |")).count();
        assert_eq!(rows, 16, "{text}");
        assert!(text.contains(
            "| 0 | no | 39.0 | 41.0 | 40.0 ± 1.41 | 39.0 | 41.0 | 40.0 ± 1.41 | 26.2, 33.4 |"
        ));
        assert!(
            text.contains("| 0 | no | 20.0 | 50.0 % | 25.0 % | 5.0 % | 13.7: 93 %, 0.2 %, - |")
        );
        assert!(text.contains("| 0 | no | 1.33 | 2.00 | 4.00 | 3.10, 3.10 |"), "{text}");
        assert!(text.contains("| avg. | | 1.33 ± 0.00 |"), "{text}");
    }

    #[test]
    fn missing_measurements_are_dashes() {
        let text = tables(&Study::default());
        assert!(text.contains("| 0 | yes | - | - | - | - | - | - | 193, 129 |"), "{text}");
    }

    #[test]
    fn deviation_is_that_of_samples() {
        assert_eq!(deviation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]), (32.0_f64 / 7.0).sqrt());
        assert_eq!(deviation(&[1.0]), 0.0);
        assert!(mean(&[]) == 0.0);
    }
}
