//! Puts the tables together to the document `docs/TABLES.md`.

use serde_json::Value;

use super::render::wrapped;
use super::table::Paper;

/// The beginning of the document.
const PREFACE: &str = include_str!("preface.md");

/// Returns the title of a paper, and what its tables are about.
const fn introduction(paper: Paper) -> (&'static str, &'static str) {
    match paper {
        Paper::Peregrine => (
            "Peregrine",
            "Johnson and Zwaenepoel, *The Peregrine High-Performance RPC System* (1991): SUN-3/60 \
            workstations with a processor of 20 MHz, and an Ethernet of 10 Mbit/s.",
        ),
        Paper::Lrpc => (
            "LRPC",
            "Bershad, Anderson, Lazowska and Levy, *Lightweight Remote Procedure Call* (1989): calls \
            between protection domains of one machine, a Firefly with C-VAX processors.",
        ),
        Paper::Firefly => (
            "Firefly RPC",
            "Schroeder and Burrows, *Performance of Firefly RPC* (1989): two Fireflies with five MicroVAX II \
            processors each, and an Ethernet of 10 Mbit/s. Ours are two network namespaces with a pair of \
            virtual Ethernet devices (veth), and both sides sleep while they wait, unless a table says \
            something else.",
        ),
        Paper::Lampson => (
            "Lampson's handout",
            "Lampson, *Performance* (handout 10 of a course, 2002). Its tables have no numbers. They are \
            numbered here in their order.",
        ),
        Paper::Stubs => (
            "The stub study",
            "Chung, Lazowska, Notkin and Zahorjan, *Performance Implications of Design Alternatives for Remote \
            Procedure Call Stubs*: ten designs of stubs on a MicroVAX-II, and three data types. (I) is an \
            integer, (A) an array of 256 integers, and (S) a structure. How the stubs are measured, why the \
            model is wrong where it is, and what Peregrine's own stubs cost: [the detailed \
            results](../crates/peregrine-bench/results/stubs.md). `peregrine-bench stubs` measures this part \
            alone.",
        ),
        Paper::Courier => (
            "The study of Courier",
            "Larus, *On the Performance of Courier Remote Procedure Calls Under 4.1c BSD* (1983): Cooper's \
            Courier over TCP, and PCourier over datagrams, between VAXes and a Sun. *courier* is Cooper's \
            form over TCP, *packet* is packet Courier over UDP, *exchange* is Courier's messages over \
            Peregrine's packet exchange, and *peregrine* is Peregrine's own call over UDP. The paper's two \
            networks are loopback and veth here. [The method and detailed \
            results](../crates/peregrine-bench/results/courier.md). `peregrine-bench courier` measures this \
            part alone.",
        ),
    }
}

/// Returns the document. `sections` are the sections of all tables, with their papers.
pub(crate) fn whole(machine: &Value, quick: bool, sections: &[(Paper, String)]) -> String {
    let of = |name: &str| machine[name].as_str().unwrap_or("unknown").to_owned();
    let run = format!(
        "The last run was made {} on {} with {} processors, Linux {}{}. A table that a run could not \
        measure keeps the figures of an earlier run.",
        of("date").split('T').next().unwrap_or_default(),
        of("cpu"),
        machine["cpus"],
        of("kernel"),
        if quick { ", with few rounds (`--quick`)" } else { "" },
    );
    let mut text = PREFACE.replace("{run}\n", &format!("{}\n", wrapped(&run)));
    for paper in Paper::ALL {
        let (title, about) = introduction(paper);
        text += &format!("\n# {title}\n\n{}\n\n", wrapped(about));
        let own = sections.iter().filter(|(of, _)| *of == paper);
        text +=
            own.map(|(_, section)| section.trim_end()).collect::<Vec<_>>().join("\n\n").as_str();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::render::COLUMNS;
    use super::*;

    #[test]
    fn document_has_a_part_for_each_paper() {
        let section = |paper| (paper, format!("## {paper:?}, Table 1\n\n|a|\n|---|\n\n"));
        let text = whole(&serde_json::json!({ "cpus": 2 }), true, &Paper::ALL.map(section));
        assert_eq!(text.matches("\n# ").count(), Paper::ALL.len());
        assert_eq!(
            text.matches("\n## ").count() - PREFACE.matches("\n## ").count(),
            Paper::ALL.len()
        );
        assert!(!text.contains("{run}") && text.contains("with 2 processors"), "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= COLUMNS || line.starts_with("    "), "{line}");
        }
    }
}
