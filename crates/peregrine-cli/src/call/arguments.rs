//! What stands behind the procedure on the command line, as the arguments of its call.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use peregrine::interface::{
    Described, DescribedBody, DescribedParameter, DescribedProcedure, DescribedType, Direction,
    Shape,
};
use peregrine::stub::Unfit;
use peregrine::{Dynamic, limits};
use serde_json::{Map, Value};
use tempfile::NamedTempFile;

use crate::args::Call;
use crate::output::{During as _, Failure, near, near_files};

/// Room for what comes back, in bytes, of all buffers whose size nothing says.
const ROOM_BYTES: usize = limits::MESSAGE_BYTES_ASKED / 4 * 3;
/// Bytes that every message has beside its arguments, as `Described::message_bytes` counts them.
const HEAD_BYTES: usize = 64;
/// Bytes that an argument takes at most beside its own, for its length and its alignment.
const ARGUMENT_BYTES: usize = 32;
/// Bytes allowed for values whose size is only estimated.
const ESTIMATE_BYTES: usize = 64 << 10;

/// All that a call needs.
pub(super) struct Given {
    /// The procedure's number.
    pub(super) number: u32,
    /// An argument for each parameter.
    pub(super) places: Vec<Place>,
    /// Into which files buffers go: made before the call, so that it is not made in vain.
    pub(super) files: Vec<Target>,
    /// What was decided for the caller.
    pub(super) notes: Vec<String>,
    /// Bytes that messages must have.
    pub(super) message_bytes: usize,
}

/// A file for what comes back.
pub(super) struct Target {
    /// The parameter.
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// Beside it until it is whole; `None` if it is standard output, or no file.
    made: Option<NamedTempFile>,
}

impl Target {
    fn new(name: &str, path: &str) -> Result<Self, Failure> {
        let path = PathBuf::from(path);
        let regular = std::fs::symlink_metadata(&path).map_or(true, |known| known.is_file());
        let made = if path.as_os_str() == "-" || !regular {
            None
        } else {
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let made = NamedTempFile::new_in(directory.unwrap_or(Path::new(".")));
            Some(made.during(format!("making {}", path.display()))?)
        };
        Ok(Self { name: name.to_owned(), path, made })
    }

    /// Whether it is standard output.
    pub(super) fn is_piped(&self) -> bool {
        self.path.as_os_str() == "-"
    }

    /// Writes all of it: a file has its name when it is whole.
    pub(super) fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let Some(mut made) = self.made.take() else { return std::fs::write(&self.path, bytes) };
        made.write_all(bytes)?;
        let readable = std::fs::Permissions::from_mode(0o644);
        made.as_file().set_permissions(readable)?;
        made.persist(&self.path).map(drop).map_err(|error| error.error)
    }
}

/// An argument.
pub(super) enum Place {
    In(Dynamic),
    Bytes(Vec<u8>),
    InOut(Dynamic),
    Out(Vec<u8>),
}

/// A value as it was written.
enum Written {
    Json(Value),
    /// Behind `name=`: what it is depends on the type.
    Word(String),
    /// Bytes of a file.
    Raw(Vec<u8>),
}

impl Given {
    /// Reads the command line as arguments of the procedure that it names.
    pub(super) fn read(described: &Described, call: &Call) -> Result<Self, Failure> {
        let (number, procedure) = procedure(described, &call.procedure)?;
        let mut written: Vec<Option<Written>> = procedure.parameters.iter().map(|_| None).collect();
        let mut taken = false;
        for word in &call.arguments {
            read_word(procedure, word, &mut written, &mut taken)?;
        }
        let mut given = Self {
            number,
            places: Vec::new(),
            files: Vec::new(),
            notes: Vec::new(),
            message_bytes: 0,
        };
        for one in &call.out {
            let (name, path) = split(one, "--out", "NAME=FILE")?;
            let parameter = &procedure.parameters[find(procedure, name)?];
            if !is_buffer_back(described, parameter) {
                return Err(usage(format!("`{name}` is no buffer that comes back")));
            }
            given.files.push(Target::new(name, path)?);
        }
        let outs =
            procedure.parameters.iter().filter(|one| one.direction == Direction::Out).count();
        let mut missing = Vec::new();
        let mut needed = Needed::new();
        for (parameter, written) in procedure.parameters.iter().zip(written) {
            if parameter.direction == Direction::Out {
                let room = room(described, parameter, written, ROOM_BYTES / outs)?;
                needed.add(parameter.direction, room);
                given.places.push(Place::Out(vec![0; room]));
                continue;
            }
            let Some(written) = written else {
                match left_out(parameter) {
                    Some(value) => {
                        given.notes.push(format!("`{}` was left out: none", parameter.name));
                        given.places.push(placed(parameter, value));
                    }
                    None => missing.push(format!("`{}`", declared(described, parameter))),
                }
                continue;
            };
            let (place, size) = value(described, parameter, written)?;
            needed.add(parameter.direction, size.bytes);
            needed.is_estimated |= size.is_estimated;
            given.places.push(place);
        }
        if !missing.is_empty() {
            let what = format!("`{}` needs {}", procedure.name, missing.join(", "));
            return Err(with_signature(described, procedure, what));
        }
        given.message_bytes = needed.message_bytes(described, procedure);
        Ok(given)
    }
}

/// How large the messages of a call are.
struct Needed {
    call: usize,
    reply: usize,
    /// Whether an argument may be larger than it was counted.
    is_estimated: bool,
}

impl Needed {
    const fn new() -> Self {
        Self { call: HEAD_BYTES, reply: HEAD_BYTES, is_estimated: false }
    }

    /// Counts an argument in the messages that carry it.
    const fn add(&mut self, direction: Direction, bytes: usize) {
        let bytes = bytes.saturating_add(ARGUMENT_BYTES);
        if !matches!(direction, Direction::Out) {
            self.call = self.call.saturating_add(bytes);
        }
        if matches!(direction, Direction::Out | Direction::InOut) {
            self.reply = self.reply.saturating_add(bytes);
        }
    }

    /// The message size to ask for; 0 if every binding to the interface allows for it.
    fn message_bytes(&self, described: &Described, procedure: &DescribedProcedure) -> usize {
        let result = described.bytes_max(&procedure.result);
        let bytes = self.call.max(self.reply.saturating_add(result.unwrap_or(0)));
        if bytes <= described.message_bytes().max(limits::MESSAGE_BYTES) {
            return 0;
        }
        match self.is_estimated || result.is_none() {
            true => bytes.saturating_add(ESTIMATE_BYTES),
            false => bytes,
        }
    }
}

fn procedure<'a>(
    described: &'a Described,
    name: &str,
) -> Result<(u32, &'a DescribedProcedure), Failure> {
    find_procedure(described, name).ok_or_else(|| {
        let names = || described.procedures.iter().map(|one| one.name.clone());
        Failure::Usage {
            what: format!("`{}` has no procedure `{name}`", described.name),
            causes: Vec::new(),
            advice: format!("it has {}", some(names())),
            suggestions: near(name, names()),
        }
    })
}

/// Finds a procedure by its name, or by `Interface.procedure`.
pub(crate) fn find_procedure<'a>(
    described: &'a Described,
    name: &str,
) -> Option<(u32, &'a DescribedProcedure)> {
    let own = name.strip_prefix(&*described.name).and_then(|rest| rest.strip_prefix('.'));
    described.procedure(name).or_else(|| described.procedure(own?))
}

/// Whether the bytes of a parameter come back, so that they can go to a file.
pub(crate) fn is_buffer_back(described: &Described, parameter: &DescribedParameter) -> bool {
    matches!(parameter.direction, Direction::Out | Direction::InOut)
        && parameter.shape == Shape::Buffer
        && described.plain_bytes(&parameter.ty).is_some()
}

/// The first of many names.
fn some(names: impl Iterator<Item = String>) -> String {
    const MOST: usize = 32;
    let mut all: Vec<String> = names.take(MOST + 1).collect();
    if all.len() > MOST {
        all[MOST] = "and others".to_owned();
    }
    all.join(", ")
}

fn usage(what: String) -> Failure {
    Failure::Usage {
        what,
        causes: Vec::new(),
        advice:
            "arguments are NAME=VALUE, NAME:=JSON, NAME=@FILE, a JSON object or array, @FILE or @-"
                .to_owned(),
        suggestions: Vec::new(),
    }
}

fn with_signature(described: &Described, procedure: &DescribedProcedure, what: String) -> Failure {
    let signature = described.procedure_text(procedure);
    Failure::Usage {
        what,
        causes: Vec::new(),
        advice: format!("it is {signature}"),
        suggestions: Vec::new(),
    }
}

fn find(procedure: &DescribedProcedure, name: &str) -> Result<usize, Failure> {
    let names = || procedure.parameters.iter().map(|one| one.name.clone());
    let found = procedure.parameters.iter().position(|one| one.name == name);
    found.ok_or_else(|| Failure::Usage {
        what: format!("`{}` has no parameter `{name}`", procedure.name),
        causes: Vec::new(),
        advice: match procedure.parameters.is_empty() {
            true => "it has none".to_owned(),
            false => format!("it has {}", some(names())),
        },
        suggestions: near(name, names()),
    })
}

fn split<'a>(word: &'a str, what: &str, form: &str) -> Result<(&'a str, &'a str), Failure> {
    word.split_once('=').ok_or_else(|| usage(format!("`{what} {word}` should be {form}")))
}

/// One word of the command line.
fn read_word(
    procedure: &DescribedProcedure,
    word: &str,
    written: &mut [Option<Written>],
    taken: &mut bool,
) -> Result<(), Failure> {
    let mut put = |place: usize, value: Written| match written[place].replace(value) {
        None => Ok(()),
        Some(_) => Err(usage(format!("`{}` is given twice", procedure.parameters[place].name))),
    };
    let whole = match word {
        "@-" => Some((Path::new("standard input"), read_input(taken)?)),
        word if word.starts_with('@') => Some((Path::new(&word[1..]), read_file(&word[1..])?)),
        word if word.starts_with(['{', '[']) => Some((Path::new(""), word.as_bytes().to_vec())),
        _ => None,
    };
    if let Some((from, text)) = whole {
        let json = serde_json::from_slice(&text).map_err(|error| {
            let from = if from.as_os_str().is_empty() {
                "the arguments".to_owned()
            } else {
                from.display().to_string()
            };
            usage(format!("{from} are no JSON: {error}"))
        })?;
        return match json {
            Value::Object(all) => read_object(procedure, all, &mut put),
            Value::Array(all) => read_array(procedure, all, &mut put),
            _ => {
                Err(usage("arguments in JSON are an object by names, or an array in order".into()))
            }
        };
    }
    let Some((name, value)) = word.split_once('=') else {
        return Err(usage(format!("`{word}` is no argument")));
    };
    if let Some(name) = name.strip_suffix(':') {
        let json = serde_json::from_str(value)
            .map_err(|error| usage(format!("what stands behind `{name}:=` is no JSON: {error}")))?;
        return put(find(procedure, name)?, Written::Json(json));
    }
    let place = find(procedure, name)?;
    match value.strip_prefix('@') {
        Some("-") => put(place, Written::Raw(read_input(taken)?)),
        Some(path) => put(place, Written::Raw(read_file(path)?)),
        None => put(place, Written::Word(value.to_owned())),
    }
}

fn read_object(
    procedure: &DescribedProcedure,
    all: Map<String, Value>,
    put: &mut impl FnMut(usize, Written) -> Result<(), Failure>,
) -> Result<(), Failure> {
    all.into_iter().try_for_each(|(name, value)| put(find(procedure, &name)?, Written::Json(value)))
}

/// In the order of what travels with the call.
fn read_array(
    procedure: &DescribedProcedure,
    all: Vec<Value>,
    put: &mut impl FnMut(usize, Written) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let parameters = procedure.parameters.iter().enumerate();
    let places: Vec<usize> = parameters
        .filter(|(_, one)| one.direction != Direction::Out)
        .map(|(place, _)| place)
        .collect();
    if all.len() > places.len() {
        let (name, wanted, got) = (&procedure.name, places.len(), all.len());
        return Err(usage(format!("`{name}` takes {wanted} arguments, and {got} are given")));
    }
    let mut both = places.into_iter().zip(all);
    both.try_for_each(|(place, value)| put(place, Written::Json(value)))
}

fn read_input(taken: &mut bool) -> Result<Vec<u8>, Failure> {
    if core::mem::replace(taken, true) {
        return Err(usage("standard input can be read once".into()));
    }
    let mut bytes = Vec::new();
    let most = limits::MESSAGE_BYTES_MAX as u64 + 1;
    std::io::stdin().take(most).read_to_end(&mut bytes).during("reading standard input")?;
    Ok(bytes)
}

fn read_file(path: &str) -> Result<Vec<u8>, Failure> {
    let path = Path::new(path);
    let read = std::fs::read(path).during(format!("reading {}", path.display()));
    read.map_err(|failure| if path.exists() { failure } else { failure.or_meant(near_files(path)) })
}

fn placed(parameter: &DescribedParameter, value: Dynamic) -> Place {
    match parameter.direction {
        Direction::InOut => Place::InOut(value),
        _ => Place::In(value),
    }
}

/// How many bytes an argument takes in a message.
struct Size {
    bytes: usize,
    is_estimated: bool,
}

impl Size {
    const fn exact(bytes: usize) -> Self {
        Self { bytes, is_estimated: false }
    }
}

/// Returns the argument for a parameter, and its size.
fn value(
    described: &Described,
    parameter: &DescribedParameter,
    written: Written,
) -> Result<(Place, Size), Failure> {
    let is_bytes = parameter.shape == Shape::Buffer && parameter.ty == DescribedType::U8;
    let json = match written {
        Written::Json(json) => json,
        Written::Raw(bytes) if is_bytes => {
            let size = Size::exact(bytes.len());
            return Ok(match parameter.direction {
                Direction::InOut => (Place::InOut(Dynamic::Plain(bytes)), size),
                _ => (Place::Bytes(bytes), size),
            });
        }
        Written::Raw(bytes) if is_text(described, parameter) => {
            let name = &parameter.name;
            let text = String::from_utf8(bytes)
                .map_err(|_| usage(format!("{name}: expected text, got bytes that are none")))?;
            Value::String(text)
        }
        Written::Raw(bytes) => serde_json::from_slice(&bytes)
            .map_err(|error| usage(format!("{}: the file is no JSON: {error}", parameter.name)))?,
        // Numbers, too: as a number in JSON a long one would lose digits.
        Written::Word(word)
            if is_bytes || is_text(described, parameter) || is_number(parameter) =>
        {
            Value::String(word)
        }
        // Whatever is no JSON is a word.
        Written::Word(word) => serde_json::from_str(&word).unwrap_or(Value::String(word)),
    };
    let value =
        described.argument_from_json(parameter, &json).map_err(|unfit| unfitting(&unfit))?;
    let size = match &value {
        Dynamic::Plain(bytes) => Size::exact(bytes.len()),
        Dynamic::Text(text) => Size::exact(text.len()),
        // The text of a structured value is about as long as its representation.
        _ => match described.bytes_max(&parameter.ty) {
            Some(bytes) if parameter.shape == Shape::One => Size::exact(bytes),
            _ => Size { bytes: json.to_string().len(), is_estimated: true },
        },
    };
    Ok((placed(parameter, value), size))
}

fn unfitting(unfit: &Unfit) -> Failure {
    usage(unfit.to_string())
}

/// Whether a word stands for itself.
fn is_text(described: &Described, parameter: &DescribedParameter) -> bool {
    match (parameter.shape, &parameter.ty) {
        (Shape::Text, _) | (Shape::One, DescribedType::Text | DescribedType::Char) => true,
        (Shape::One, DescribedType::Named(number)) => {
            let body = described.types.get(*number).map(|one| &one.body);
            matches!(body, Some(DescribedBody::PlainEnum { .. }))
        }
        _ => false,
    }
}

fn is_number(parameter: &DescribedParameter) -> bool {
    use DescribedType::{F32, F64, I8, I16, I32, I64, I128, U8, U16, U32, U64, U128};
    parameter.shape == Shape::One
        && matches!(
            parameter.ty,
            U8 | U16 | U32 | U64 | U128 | I8 | I16 | I32 | I64 | I128 | F32 | F64
        )
}

/// A parameter's name and type, without its direction.
fn declared(described: &Described, parameter: &DescribedParameter) -> String {
    let text = described.parameter_text(parameter);
    match text.find(&format!("{}: ", parameter.name)) {
        Some(at) => text[at..].to_owned(),
        None => text,
    }
}

/// The value of a parameter that is left out: an option is none, and everything else is required.
fn left_out(parameter: &DescribedParameter) -> Option<Dynamic> {
    let is_option =
        parameter.shape == Shape::One && matches!(parameter.ty, DescribedType::Option(_));
    is_option.then_some(Dynamic::Option(None))
}

/// Bytes of room for what comes back in a buffer.
fn room(
    described: &Described,
    parameter: &DescribedParameter,
    written: Option<Written>,
    share: usize,
) -> Result<usize, Failure> {
    let one = described.plain_bytes(&parameter.ty).and_then(|one| usize::try_from(one).ok());
    let one = one.unwrap_or(1).max(1);
    let name = &parameter.name;
    let count = match written {
        None => (share / one).max(1).min(parameter.max_len.map_or(usize::MAX, |max| max as usize)),
        Some(Written::Word(word)) => crate::args::bytes(&word)
            .ok()
            .and_then(|count| usize::try_from(count).ok())
            .ok_or_else(|| {
                usage(format!("{name}: expected how many elements there is room for"))
            })?,
        Some(Written::Json(Value::Number(count))) if count.is_u64() => {
            count.as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX)
        }
        Some(_) => {
            let what =
                format!("{name}: it comes back; expected how many elements there is room for");
            return Err(usage(what));
        }
    };
    let bytes = count.checked_mul(one).filter(|bytes| *bytes <= limits::MESSAGE_BYTES_MAX);
    bytes.ok_or_else(|| {
        let most = limits::MESSAGE_BYTES_MAX / one;
        usage(format!("{name}: there is room for {most} elements at most"))
    })
}
