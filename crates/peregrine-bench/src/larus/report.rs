//! Makes Tables 1 to 11. Each table has our figures, and then the paper's figures.

use super::calls::{CALLS, Carrier, Test};
use super::profile::Profile;
use super::{Measured, Study, paper};
use crate::network::link::Link;
use crate::tables::{Cell, Column, Grid, digits, label, ours, render, theirs};

/// Returns all tables in Markdown.
pub(super) fn text(study: &Study) -> String {
    let tables = tables(study);
    tables.iter().map(|(name, grid)| format!("**{name}.** {}", render::part(grid))).collect()
}

/// Returns all tables with their names. Tables that the paper does not have are named like the table that they
/// resemble, with a letter.
pub(crate) fn tables(study: &Study) -> Vec<(&'static str, Grid)> {
    let mut tables = Vec::new();
    let carriers = [
        ("Table 1", Carrier::Courier),
        ("Table 2", Carrier::Packet),
        ("Table 2a", Carrier::Exchange),
        ("Table 2b", Carrier::Peregrine),
    ];
    tables.extend(carriers.map(|(name, carrier)| (name, elapsed(study, carrier))));
    tables.extend([("Table 3", 0), ("Table 4", 1)].map(|(name, at)| (name, per_call(study, at))));
    let profiles = [
        ("Table 5", Carrier::Courier, 0),
        ("Table 6", Carrier::Courier, 1),
        ("Table 7", Carrier::Packet, 0),
        ("Table 8", Carrier::Packet, 1),
        ("Table 8a", Carrier::Peregrine, 0),
        ("Table 8b", Carrier::Peregrine, 1),
    ];
    tables.extend(profiles.map(|(name, carrier, at)| (name, profile(study, carrier, at))));
    tables.extend([("Table 9", 0), ("Table 9a", 1)].map(|(name, at)| (name, ratios(study, at))));
    tables.extend([("Table 10", networks(study)), ("Table 11", cpu_ratios(study))]);
    tables
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

fn number_or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), digits)
}

/// Returns a table whose rows are the tests.
fn begin(what: &str, columns: Vec<Column>) -> Grid {
    let mut all = vec![label("bytes"), label("result")];
    all.extend(columns);
    Grid::new(what, all)
}

fn line(grid: &mut Grid, test: Test, cells: Vec<Cell>) {
    let mut row = vec![
        Cell::Text(test.bytes().to_string()),
        if test.has_result { "yes" } else { "no" }.into(),
    ];
    row.extend(cells);
    grid.row(row);
}

/// Returns the mean of the elapsed times of a kind of call in milliseconds.
fn mean_ms(study: &Study, carrier: Carrier, link: Link, test: Test) -> Option<f64> {
    study.of(carrier, link, test).map(|one| mean(&one.elapsed_ms))
}

/// Returns the text of figures of the paper.
fn joined<const N: usize>(figures: [Option<f64>; N]) -> Cell {
    Cell::Text(figures.map(number_or_dash).join(", "))
}

/// Returns a table of elapsed times, such as Table 1 or 2.
fn elapsed(study: &Study, carrier: Carrier) -> Grid {
    let what = format!("{}: milliseconds for {CALLS} calls", carrier.name());
    let of_link = |link: Link| {
        let name = link.name();
        [ours(&format!("{name} min."), ""), ours("max.", ""), ours("avg. ± dev.", "")]
    };
    let mut columns: Vec<Column> = LINKS.into_iter().flat_map(of_link).collect();
    columns.push(theirs("s", ""));
    let mut grid = begin(&what, columns);
    for (place, test) in Test::ALL.into_iter().enumerate() {
        let mut cells = Vec::new();
        for link in LINKS {
            match study.of(carrier, link, test) {
                None => cells.extend([Cell::Missing, Cell::Missing, Cell::Missing]),
                Some(Measured { elapsed_ms, .. }) => cells.extend([
                    Some(elapsed_ms.iter().copied().fold(f64::INFINITY, f64::min)).into(),
                    Some(elapsed_ms.iter().copied().fold(0.0, f64::max)).into(),
                    Cell::Text(format!(
                        "{} ± {}",
                        digits(mean(elapsed_ms)),
                        digits(deviation(elapsed_ms))
                    )),
                ]),
            }
        }
        let paper = match carrier {
            Carrier::Courier => paper::COURIER_S.get(place),
            Carrier::Packet => paper::PACKET_S.get(place),
            _ => None,
        };
        cells.push(paper.map_or(Cell::Missing, |both| joined(both.map(Some))));
        line(&mut grid, test, cells);
    }
    grid
}

/// Returns Table 3 or 4.
fn per_call(study: &Study, at: usize) -> Grid {
    let link = LINKS[at];
    let what = format!("{}: microseconds of a call, and calls in a second", link.name());
    let of_carrier = |one: &Carrier| [ours(one.name(), ""), ours("/s", "")];
    let mut columns: Vec<_> = Carrier::COMPARED.iter().flat_map(of_carrier).collect();
    columns.push(theirs("ms", ""));
    let mut grid = begin(&what, columns);
    for (place, test) in Test::ALL.into_iter().enumerate() {
        let mut cells = Vec::new();
        for carrier in Carrier::COMPARED {
            let us = mean_ms(study, carrier, link, test).map(|ms| ms * 1e3 / f64::from(CALLS));
            cells.extend([us.into(), us.map(|us| 1e6 / us).into()]);
        }
        cells.push(joined(paper::CALL_MS[at][place]));
        line(&mut grid, test, cells);
    }
    grid
}

/// Returns a table of profiles, such as one of Tables 5 to 8.
fn profile(study: &Study, carrier: Carrier, at: usize) -> Grid {
    let link = LINKS[at];
    let what = format!(
        "{}, {}: processor time of the client for {CALLS} calls",
        carrier.name(),
        link.name()
    );
    let mut columns = vec![ours("total", "ms")];
    columns.extend(["sending", "receiving", "swapping"].map(|name| ours(name, "")));
    columns.push(theirs("s: parts", ""));
    let mut grid = begin(&what, columns);
    let percent = |profile: Option<Profile>, part: fn(&Profile) -> u32| match profile {
        Some(profile) => Cell::Text(format!("{:.1} %", profile.percent(part(&profile)))),
        None => Cell::Missing,
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
        let swapping = 100.0 * one.swapping_ms / mean(&one.cpu_ms);
        let cells = vec![
            Some(mean(&one.cpu_ms)).into(),
            percent(one.profile, |profile| profile.sending),
            percent(one.profile, |profile| profile.receiving),
            Cell::Text(format!("{swapping:.1} %")),
            paper.map_or(Cell::Missing, Cell::Text),
        ];
        line(&mut grid, test, cells);
    }
    grid
}

/// Returns the half of Table 9 that belongs to the link `LINKS[at]`.
fn ratios(study: &Study, at: usize) -> Grid {
    let link = LINKS[at];
    let what = format!("{}: the time of Courier divided by the time of others", link.name());
    let others = [Carrier::Packet, Carrier::Exchange, Carrier::Peregrine];
    let mut columns = others.map(|other| ours(other.name(), "")).to_vec();
    columns.push(theirs("ratios", ""));
    let mut grid = begin(&what, columns);
    let mut sums = others.map(|_| Vec::new());
    for (place, test) in Test::ALL.into_iter().enumerate() {
        let courier = mean_ms(study, Carrier::Courier, link, test);
        let ratio = |(other, all): (&Carrier, &mut Vec<f64>)| {
            let ratio = courier.zip(mean_ms(study, *other, link, test)).map(|(a, b)| a / b);
            all.extend(ratio);
            Cell::from(ratio)
        };
        let mut cells: Vec<_> = others.iter().zip(&mut sums).map(ratio).collect();
        let paper = paper::RATIOS.get(place).map(|both| joined(both[at].map(Some)));
        cells.push(paper.unwrap_or(Cell::Missing));
        line(&mut grid, test, cells);
    }
    let mut row = vec!["avg.".into(), "".into()];
    row.extend(
        sums.map(|all| Cell::Text(format!("{} ± {}", digits(mean(&all)), digits(deviation(&all))))),
    );
    row.push(paper::RATIOS_AVERAGE[at].into());
    grid.row(row);
    grid
}

/// Returns Table 10.
fn networks(study: &Study) -> Grid {
    let [first, second] = LINKS.map(Link::name);
    let what = format!("the time over {second} divided by the time over {first}");
    let mut columns = Carrier::COMPARED.map(|carrier| ours(carrier.name(), "")).to_vec();
    columns.push(theirs("ratios", ""));
    let mut grid = begin(&what, columns);
    for (place, test) in Test::ALL.into_iter().enumerate() {
        let ratio = |carrier| {
            let [fast, slow] = LINKS.map(|link| mean_ms(study, carrier, link, test));
            Cell::from(slow.zip(fast).map(|(slow, fast)| slow / fast))
        };
        let mut cells = Carrier::COMPARED.map(ratio).to_vec();
        cells.push(joined(paper::NETWORKS[place]));
        line(&mut grid, test, cells);
    }
    grid
}

/// Returns Table 11.
fn cpu_ratios(study: &Study) -> Grid {
    let link = LINKS[0];
    let what = format!(
        "{}: the client's processor time with Courier divided by that with packet Courier",
        link.name()
    );
    let mut columns = ["total", "sending", "receiving"].map(|name| ours(name, "")).to_vec();
    columns.push(theirs("ratios", ""));
    let mut grid = begin(&what, columns);
    for (place, test) in Test::ALL.into_iter().enumerate() {
        let both = [Carrier::Courier, Carrier::Packet].map(|carrier| study.of(carrier, link, test));
        let [Some(courier), Some(packet)] = both else { continue };
        let ratio = |part: fn(&Measured) -> Option<f64>| {
            Cell::from(part(courier).zip(part(packet)).map(|(a, b)| a / b))
        };
        let paper = paper::CPU_RATIOS
            .get(place)
            .map(|(total, sends, receives)| joined([Some(*total), Some(*sends), *receives]));
        let cells = vec![
            ratio(|one| Some(mean(&one.cpu_ms))),
            ratio(|one| part_ms(one, |profile| profile.sending)),
            ratio(|one| part_ms(one, |profile| profile.receiving)),
            paper.unwrap_or(Cell::Missing),
        ];
        line(&mut grid, test, cells);
    }
    grid
}

/// Returns the processor time of one part of the profile (sending or receiving), in milliseconds.
fn part_ms(one: &Measured, part: fn(&Profile) -> u32) -> Option<f64> {
    let profile = one.profile?;
    Some(mean(&one.cpu_ms) * profile.percent(part(&profile)) / 100.0)
}

#[cfg(test)]
pub(crate) fn synthetic() -> Study {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_a_row_for_each_test() {
        let text = text(&synthetic());
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
        assert!(text.contains("| avg. |  | 1.33 ± 0 |"), "{text}");
    }

    #[test]
    fn missing_measurements_are_dashes() {
        let text = text(&Study::default());
        assert!(text.contains("| 0 | yes | - | - | - | - | - | - | 193, 129 |"), "{text}");
    }

    #[test]
    fn deviation_is_that_of_samples() {
        assert_eq!(deviation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]), (32.0_f64 / 7.0).sqrt());
        assert_eq!(deviation(&[1.0]), 0.0);
        assert!(mean(&[]) == 0.0);
    }
}
