//! Tables 1 to 6 of the study of stubs.

use super::measured::Measured;
use super::table::{
    Cell, Column, Grid, Paper, Picture, Table, exact, exact_or_missing, label, ours, theirs,
};
use crate::cost::{Control, Copying, Design, Parameters, Symbol};
use crate::stubs::{self, Data, Study, control, copying, excess, model, paper};

/// The names of the data types in columns.
const TYPES: [&str; 3] = ["(I)", "(A)", "(S)"];

fn table(name: &'static str, title: &str, grids: Vec<Grid>) -> Table {
    Table {
        paper: Paper::Stubs,
        name,
        title: title.to_owned(),
        grids,
        minimum: None,
        how: String::new(),
        changed: String::new(),
        picture: None,
    }
}

/// Returns the time of a design in nanoseconds.
fn ns(study: Option<&Study>, design: Design, data: Data, marshals: bool) -> Option<f64> {
    study?.cell(design, data, marshals).map(|cell| cell.ns[1])
}

/// Returns the milliseconds of the paper, or `None` if they are missing in our copy.
fn paper_ms(design: Design, data: Data) -> Option<f64> {
    let place = Design::ALL.iter().position(|one| *one == design)?;
    Some(paper::MEASURED_MS[place][data as usize]).filter(|ms| ms.is_finite())
}

pub(super) fn table_1(measured: &Measured) -> Table {
    let study = measured.stubs.as_ref();
    let ways = ["inline", "procedural", "call"];
    let mut columns = vec![label("copying")];
    columns.extend(ways.map(|way| theirs(way, "")));
    columns.extend(ways.map(|way| ours(way, "")));
    let mut grid = Grid::new("", columns);
    let compiled = |copying| Design { control: Control::Compiled, copying };
    for (name, inline, procedural) in [
        ("byte copy", Copying::InlineByte, Copying::ProceduralByte),
        ("item copy", Copying::InlineItem, Copying::ProceduralItem),
    ] {
        let both = [inline, procedural].map(compiled);
        let there = both.map(|design| paper_ms(design, Data::One).map(|ms| ms * 1e3));
        let here = both.map(|design| ns(study, design, Data::One, true));
        let mut row = vec![name.into()];
        for [inline, procedural] in [there, here] {
            let call = inline.zip(procedural).map(|(inline, procedural)| procedural - inline);
            row.extend([inline, procedural, call].map(|time| match time {
                // The paper's numbers are whole microseconds.
                Some(us) if inline == there[0] => exact(us.round()),
                time => time.into(),
            }));
        }
        grid.row(row);
    }
    let mut table = table(
        "Table 1",
        "Marshalling one integer by compiled stubs: the paper's times in microseconds, ours in nanoseconds.",
        vec![grid],
    );
    table.how =
        "An excerpt of Table 2. The column *call* is calculated as the difference, as in the \
        paper. Our times include the call of the stub."
            .into();
    table.changed = "A procedure call took two thirds of the time. It is still most of what can be saved. An item \
        that is moved inline takes no measurable time, byte by byte or at once: the processor moves it while \
        the stub returns."
        .into();
    table
}

/// Returns the time of one design divided by that of another, in words.
fn times(study: Option<&Study>, slow: Design, fast: Design, data: Data) -> String {
    let both = ns(study, slow, data, true).zip(ns(study, fast, data, true));
    both.map_or_else(
        || "an unknown number of".to_owned(),
        |(slow, fast)| super::digits(slow / fast),
    )
}

pub(super) fn table_2(measured: &Measured) -> Table {
    let study = measured.stubs.as_ref();
    let mut columns = vec![label("stub"), label("copying")];
    columns.extend(["(I) ms", "(A) ms", "(S) ms"].map(|name| theirs(name, "")));
    columns.extend(["(I) ns", "(A) ns", "(S) ns"].map(|name| ours(name, "")));
    let grid = |caption: &str, marshals| {
        let mut grid = Grid::new(caption, columns.clone());
        for design in Design::ALL {
            let mut row: Vec<Cell> =
                vec![control(design.control).into(), copying(design.copying).into()];
            row.extend(Data::ALL.map(|data| exact_or_missing(paper_ms(design, data))));
            row.extend(Data::ALL.map(|data| Cell::from(ns(study, design, data, marshals))));
            grid.row(row);
        }
        grid
    };
    let grids =
        vec![grid("To the message", true), grid("From the message (the paper's are to it)", false)];
    let mut table = table("Table 2", "The time of ten designs of stubs for three types.", grids);
    let doubts = paper::DOUBTFUL.map(|(row, column, why)| {
        let design = Design::ALL[row];
        format!(
            "{}, {}, {}: {why}.",
            control(design.control),
            copying(design.copying),
            TYPES[column]
        )
    });
    table.how = format!("Doubtful figures of the paper: {}", doubts.join(" "));
    let design = |control, copying| Design { control, copying };
    let (compiled, interpreted) = (Control::Compiled, Control::Interpreted);
    table.changed = match study {
        None => "This study was not measured.".into(),
        Some(_) => format!(
            "Blocks gain more today: (A) item by item takes {} times as long as one block (7.3 in the paper). \
            A procedure for each item makes (A) take {} times as long (3.0 in the paper). Byte copy takes {} \
            times as long as item copy (1.4 in the paper). Interpretation makes (S) take {} times as long item \
            by item (2.0 in the paper), and {} times with blocks (3.8 in the paper).",
            times(
                study,
                design(compiled, Copying::InlineItem),
                design(compiled, Copying::Block),
                Data::Array
            ),
            times(
                study,
                design(compiled, Copying::ProceduralItem),
                design(compiled, Copying::InlineItem),
                Data::Array
            ),
            times(
                study,
                design(compiled, Copying::InlineByte),
                design(compiled, Copying::InlineItem),
                Data::Array
            ),
            times(
                study,
                design(interpreted, Copying::InlineItem),
                design(compiled, Copying::InlineItem),
                Data::Structure
            ),
            times(
                study,
                design(interpreted, Copying::Block),
                design(compiled, Copying::Block),
                Data::Structure
            ),
        ),
    };
    if let Some(study) = study {
        table.picture = Some(Picture {
            file: "stubs.svg",
            title: "Each design over the fastest one, here and in the paper".into(),
            svg: stubs::svg(study),
        });
    }
    table
}

fn share_columns(first: &[&str]) -> Vec<Column> {
    let mut columns: Vec<_> = first.iter().map(|name| label(name)).collect();
    columns.extend(TYPES.map(|name| theirs(name, "%")));
    columns.extend(TYPES.map(|name| ours(name, "%")));
    columns
}

/// Returns the shares of the time of `with` that `without` does not need, in per cent.
fn shares(study: Option<&Study>, with: Design, without: Design) -> [Cell; 3] {
    Data::ALL.map(|data| {
        let both = ns(study, with, data, true).zip(ns(study, without, data, true));
        both.map(|(with, without)| 100.0 * excess(with, without)).into()
    })
}

pub(super) fn table_3(measured: &Measured) -> Table {
    let study = measured.stubs.as_ref();
    let mut grid = Grid::new("", share_columns(&["copying"]));
    for (way, there) in Copying::ALL.into_iter().zip(paper::INTERPRETATION) {
        let of = |control| Design { control, copying: way };
        let mut row: Vec<Cell> = vec![copying(way).into()];
        row.extend(there.map(|percent| exact(percent.into())));
        row.extend(shares(study, of(Control::Interpreted), of(Control::Compiled)));
        grid.row(row);
    }
    let title = "The percentage of the marshalling time that is due to interpretation.";
    let mut table = table("Table 3", title, vec![grid]);
    table.how = "Ours is calculated: the difference to the compiled stub with the same copying. The paper divides \
        the interpretation time of its model by the measured time."
        .into();
    table.changed = "Arrays hide interpretation, unless they are moved as one block. Structures do not: moving data has \
        become faster by more than finding out what to move. Therefore Peregrine's interpreter flattens a \
        description once, when a client binds."
        .into();
    table
}

pub(super) fn table_4(measured: &Measured) -> Table {
    let study = measured.stubs.as_ref();
    let mut grid = Grid::new("", share_columns(&["stub", "copying"]));
    for (kind, there) in [Control::Interpreted, Control::Compiled].into_iter().zip(paper::CALLS) {
        let of = |copying| Design { control: kind, copying };
        let ways = [
            ("byte", Copying::ProceduralByte, Copying::InlineByte),
            ("item", Copying::ProceduralItem, Copying::InlineItem),
        ];
        for ((name, with, without), there) in ways.into_iter().zip(there) {
            let mut row: Vec<Cell> = vec![control(kind).into(), name.into()];
            row.extend(there.map(|percent| exact(percent.into())));
            row.extend(shares(study, of(with), of(without)));
            grid.row(row);
        }
    }
    let title = "The percentage of the marshalling time that is due to procedure calls.";
    let mut table = table("Table 4", title, vec![grid]);
    table.how = "Calculated: the difference to the same stub without procedures.".into();
    table.changed = "The share has hardly changed in thirty-five years: an indirect call still takes about as long \
        as a few moves. So compilers of stubs should emit moves, and not calls."
        .into();
    table
}

/// The paper's equations of `(A[256] I)`, in the order of its table.
const EQUATIONS: [(&str, &str); 5] = [
    ("inline, byte", "L_b + 256 × (L_b + f)"),
    ("inline, item", "L_i + 256 × (L_i + f)"),
    ("procedural, byte", "L_b + p + 256 × (L_b + p + f)"),
    ("procedural, item", "L_i + p + 256 × (L_i + p + f)"),
    ("block", "L_i + b(1024) + α"),
];

pub(super) fn table_5(measured: &Measured) -> Table {
    let study = measured.stubs.as_ref();
    let columns = vec![
        label("compiled stub"),
        theirs("equation", ""),
        label("ours, derived"),
        ours("measured", "ns"),
        ours("sum off by", "%"),
        ours("overlap off by", "%"),
    ];
    let mut grid = Grid::new("", columns);
    for (way, (name, equation)) in Copying::ALL.into_iter().zip(EQUATIONS) {
        let design = Design { control: Control::Compiled, copying: way };
        let cell = study.and_then(|study| study.cell(design, Data::Array, true));
        let derived = model::equation(design, Data::Array).to_string();
        let same = if derived == equation { "the same".to_owned() } else { derived };
        let off = |of: fn(&model::Prediction) -> f64| {
            Cell::from(cell.map(|cell| 100.0 * cell.off(of(&cell.prediction))))
        };
        grid.row(vec![
            name.into(),
            equation.into(),
            same.into(),
            cell.map(|cell| cell.ns[1]).into(),
            off(|prediction| prediction.sum),
            off(|prediction| prediction.overlap),
        ]);
    }
    let title = "The cost model for (A[256] I). Interpreted stubs add B + A + e to each.";
    let mut table = table("Table 5", title, vec![grid]);
    table.how = "The equations are derived from the description of the interface, for any interface \
        (`peregrine-bench cost`). *Sum* is the paper's model with the parameters of Table 6, which are measured \
        alone. *Overlap* is the same, but moves of items overlap with everything else."
        .into();
    table.changed = "A MicroVAX ended one instruction before it began the next, so its times add up. A processor of \
        today has dozens of instructions in progress, and a sum of times measured alone is too large for \
        loops. The equations are right, but their symbols are no longer constants."
        .into();
    table
}

pub(super) fn table_6(measured: &Measured) -> Table {
    let parameters = measured.stubs.as_ref().map(|study| &study.parameters);
    let columns = vec![
        label("symbol"),
        label("meaning"),
        theirs("value", "us"),
        ours("to the message", "ns"),
        ours("from it", "ns"),
    ];
    let mut grid = Grid::new("", columns);
    let there = Parameters::MICROVAX;
    for (at, symbol) in Symbol::ALL.into_iter().enumerate() {
        let own = [0, 1].map(|way| parameters.map(|both| both[way].symbols[at]));
        grid.row(vec![
            symbol.name().into(),
            symbol.meaning().into(),
            exact(there.of(symbol)),
            own[0].into(),
            own[1].into(),
        ]);
    }
    let blocks = parameters.map_or(0, |both| both[0].blocks.len());
    for at in 0..blocks {
        let own = [0, 1].map(|way| parameters.map(|both| both[way].blocks[at]));
        let bytes = own[0].map_or(0, |block| block.0);
        grid.row(vec![
            format!("b({bytes})").into(),
            "move this number of bytes as a block".into(),
            if bytes == 1024 { exact(there.block(1024.0)) } else { Cell::Missing },
            own[0].map(|block| block.1).into(),
            own[1].map(|block| block.1).into(),
        ]);
    }
    let title = "The values of the parameters, each measured by its own small program.";
    let mut table = table("Table 6", title, vec![grid]);
    table.how = "No parameter is fitted to the times of stubs.".into();
    let gains = Symbol::ALL.into_iter().enumerate().filter_map(|(at, symbol)| {
        let ns = parameters?[0].symbols[at];
        (ns > 0.0).then(|| (there.of(symbol) * 1e3 / ns, symbol.name()))
    });
    let mut gains: Vec<_> = gains.collect();
    gains.sort_by(|one, other| one.0.total_cmp(&other.0));
    table.changed = match (gains.first(), gains.last()) {
        (Some(least), Some(most)) => format!(
            "All parameters have become smaller, but not by the same factor: {} by {:.0}, and {} by {:.0}. So the \
            designs are in another order today.",
            least.1, least.0, most.1, most.0
        ),
        _ => "This study was not measured.".into(),
    };
    table
}
