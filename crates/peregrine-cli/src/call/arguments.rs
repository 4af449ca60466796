//! Converts the command-line words that follow the procedure name to the arguments of the call.

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

use super::streams::Input as StreamInput;
use crate::args::Call;
use crate::output::{Failure, OrFail as _, near, read_or_suggest};

/// The total capacity, in bytes, of all returned buffers for which the command line gives no size.
const CAPACITY_BYTES: usize = limits::MESSAGE_BYTES_ASKED / 4 * 3;
/// The bytes that a message contains in addition to its arguments, as `Described::message_bytes` counts them.
const HEAD_BYTES: usize = 64;
/// The maximum number of bytes that an argument takes in addition to its content: a length and padding.
const ARGUMENT_BYTES: usize = 32;
/// The number of bytes that a stream or a callback takes in the message of the call. The items of a
/// stream are in other messages.
const STREAM_BYTES: usize = 32;
/// The number of bytes by which the message size is increased if the size of a value is only estimated.
const ESTIMATE_BYTES: usize = 64 << 10;

/// A call that is ready to be made.
pub(super) struct PreparedCall {
    /// The number of the procedure.
    pub(super) number: u32,
    /// One argument per parameter.
    pub(super) slots: Vec<Slot>,
    /// The files for returned buffers. They are created before the call. If a file cannot be created, no call
    /// is made.
    pub(super) files: Vec<Target>,
    /// Messages about the defaults that were used for missing arguments.
    pub(super) notes: Vec<String>,
    /// The message size to ask for; 0 if the default is enough.
    pub(super) message_bytes: usize,
}

/// A file for a returned buffer.
pub(super) struct Target {
    /// The name of the parameter.
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// The temporary file, which is renamed to `path` when it is complete. `None` for standard output and for
    /// special files.
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
            Some(made.or_fail(format!("cannot create {}", path.display()))?)
        };
        Ok(Self { name: name.to_owned(), path, made })
    }

    /// Returns whether the target is standard output.
    pub(super) fn is_piped(&self) -> bool {
        self.path.as_os_str() == "-"
    }

    /// Writes the buffer to the file. A regular file gets its name only when it is complete.
    pub(super) fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let Some(mut made) = self.made.take() else { return std::fs::write(&self.path, bytes) };
        made.write_all(bytes)?;
        let readable = std::fs::Permissions::from_mode(0o644);
        made.as_file().set_permissions(readable)?;
        made.persist(&self.path).map(drop).map_err(|error| error.error)
    }
}

/// An argument, in the form that the direction and the type of its parameter require.
pub(super) enum Slot {
    In(Dynamic),
    Bytes(Vec<u8>),
    InOut(Dynamic),
    Out(Vec<u8>),
    Sink,
    Callback,
    /// The items of a source. The call takes them, and leaves `None`.
    Source(Option<StreamInput>),
}

/// A value from the command line, before conversion to its type.
enum Input {
    Json(Value),
    /// The text after `name=`. The type of the parameter determines how this text is parsed.
    Word(String),
    /// The content of a file.
    Raw(Vec<u8>),
    /// A file whose lines are the items of a source.
    Lines(StreamInput),
}

impl PreparedCall {
    /// Reads the arguments for the procedure that the command line names.
    pub(super) fn read(described: &Described, call: &Call) -> Result<Self, Failure> {
        let (number, procedure) = procedure(described, &call.procedure)?;
        let mut written: Vec<Option<Input>> = procedure.parameters.iter().map(|_| None).collect();
        let mut taken = false;
        for word in &call.arguments {
            read_word(procedure, word, &mut written, &mut taken)?;
        }
        let mut given = Self {
            number,
            slots: Vec::new(),
            files: Vec::new(),
            notes: Vec::new(),
            message_bytes: 0,
        };
        for one in &call.out {
            let (name, path) = split(one, "--out", "NAME=FILE")?;
            let parameter = &procedure.parameters[find(procedure, name)?];
            if !is_buffer_back(described, parameter) {
                return Err(usage(format!("`{name}` is not a returned buffer")));
            }
            given.files.push(Target::new(name, path)?);
        }
        let outs =
            procedure.parameters.iter().filter(|one| one.direction == Direction::Out).count();
        let mut missing = Vec::new();
        let mut needed = Needed::new();
        for (parameter, written) in procedure.parameters.iter().zip(written) {
            if parameter.direction == Direction::Out {
                let room = capacity(described, parameter, written, CAPACITY_BYTES / outs)?;
                needed.add(parameter.direction, room);
                given.slots.push(Slot::Out(vec![0; room]));
                continue;
            }
            if let Some((what, slot)) = printed(parameter.direction) {
                if written.is_some() {
                    let name = &parameter.name;
                    return Err(usage(format!("`{name}` is {what} are printed")));
                }
                needed.add(parameter.direction, STREAM_BYTES);
                given.slots.push(slot);
                continue;
            }
            let Some(written) = written else {
                match described.default_argument(parameter) {
                    Some(value) => {
                        let name = &parameter.name;
                        given.notes.push(match value {
                            Dynamic::Option(None) => format!("`{name}` is missing: using None"),
                            _ => format!("`{name}` is missing: using its default"),
                        });
                        given.slots.push(slot(parameter, value));
                    }
                    None => missing.push(format!("`{}`", declared(described, parameter))),
                }
                continue;
            };
            if parameter.direction == Direction::Source {
                needed.add(parameter.direction, STREAM_BYTES);
                let items = source(described, parameter, written)?;
                given.slots.push(Slot::Source(Some(items)));
                continue;
            }
            let (place, size) = value(described, parameter, written)?;
            needed.add(parameter.direction, size.bytes);
            needed.is_estimated |= size.is_estimated;
            given.slots.push(place);
        }
        if !missing.is_empty() {
            let what = format!("missing arguments of `{}`: {}", procedure.name, missing.join(", "));
            return Err(with_signature(described, procedure, what));
        }
        given.message_bytes = needed.message_bytes(described, procedure);
        Ok(given)
    }
}

/// If the command takes no argument for a parameter of this direction, returns a text and the slot of the
/// parameter. The text names the parameter's kind, and what the command prints.
fn printed(direction: Direction) -> Option<(&'static str, Slot)> {
    match direction {
        Direction::Sink => Some(("a sink: its items", Slot::Sink)),
        Direction::Callback => Some(("a callback: its calls", Slot::Callback)),
        _ => None,
    }
}

/// Returns whether an argument can be given for a parameter that is sent in this direction.
pub(crate) fn is_given(direction: Direction) -> bool {
    printed(direction).is_none()
}

/// The message sizes that a call needs, in bytes.
struct Needed {
    call: usize,
    reply: usize,
    /// Whether the size of an argument is only estimated.
    is_estimated: bool,
}

impl Needed {
    const fn new() -> Self {
        Self { call: HEAD_BYTES, reply: HEAD_BYTES, is_estimated: false }
    }

    /// Adds the size of an argument to the sizes of the messages that contain the argument.
    const fn add(&mut self, direction: Direction, bytes: usize) {
        let bytes = bytes.saturating_add(ARGUMENT_BYTES);
        if !matches!(direction, Direction::Out) {
            self.call = self.call.saturating_add(bytes);
        }
        if matches!(direction, Direction::Out | Direction::InOut) {
            self.reply = self.reply.saturating_add(bytes);
        }
    }

    /// Returns the message size to request when binding. Returns 0 if every binding allows messages of the
    /// needed size.
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
            advice: format!("its procedures are {}", first_names(names())),
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

/// Returns whether the call returns the parameter as a buffer of bytes, which can be written to a file.
pub(crate) fn is_buffer_back(described: &Described, parameter: &DescribedParameter) -> bool {
    matches!(parameter.direction, Direction::Out | Direction::InOut)
        && parameter.shape == Shape::Buffer
        && described.plain_bytes(&parameter.ty).is_some()
}

/// Joins names with commas. If there are more than 32 names, shows only the first ones.
fn first_names(names: impl Iterator<Item = String>) -> String {
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
            "write an argument as NAME=VALUE, NAME:=JSON, NAME=@FILE, a JSON object or array, @FILE or @-"
                .to_owned(),
        suggestions: Vec::new(),
    }
}

fn with_signature(described: &Described, procedure: &DescribedProcedure, what: String) -> Failure {
    let signature = described.procedure_text(procedure);
    Failure::Usage {
        what,
        causes: Vec::new(),
        advice: format!("its signature is {signature}"),
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
            true => "the procedure has no parameters".to_owned(),
            false => format!("its parameters are {}", first_names(names())),
        },
        suggestions: near(name, names()),
    })
}

fn split<'a>(word: &'a str, what: &str, form: &str) -> Result<(&'a str, &'a str), Failure> {
    word.split_once('=').ok_or_else(|| usage(format!("invalid `{what} {word}`: expected {form}")))
}

/// Reads one word of the command line.
fn read_word(
    procedure: &DescribedProcedure,
    word: &str,
    written: &mut [Option<Input>],
    taken: &mut bool,
) -> Result<(), Failure> {
    let mut put = |place: usize, value: Input| match written[place].replace(value) {
        None => Ok(()),
        Some(_) => Err(usage(format!("duplicate argument `{}`", procedure.parameters[place].name))),
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
            usage(format!("cannot parse {from} as JSON: {error}"))
        })?;
        return match json {
            Value::Object(all) => read_object(procedure, all, &mut put),
            Value::Array(all) => read_array(procedure, all, &mut put),
            _ => Err(usage("expected a JSON object with names, or an array in order".into())),
        };
    }
    let Some((name, value)) = word.split_once('=') else {
        return Err(usage(format!("invalid argument `{word}`")));
    };
    if let Some(name) = name.strip_suffix(':') {
        let json = serde_json::from_str(value).map_err(|error| {
            usage(format!("cannot parse the value of `{name}` as JSON: {error}"))
        })?;
        return put(find(procedure, name)?, Input::Json(json));
    }
    let place = find(procedure, name)?;
    let is_source = procedure.parameters[place].direction == Direction::Source;
    match value.strip_prefix('@') {
        Some("-") if is_source => {
            take_input(taken)?;
            put(place, Input::Lines(StreamInput::lines(std::io::stdin())))
        }
        Some(path) if is_source => put(place, Input::Lines(StreamInput::lines(open_file(path)?))),
        Some("-") => put(place, Input::Raw(read_input(taken)?)),
        Some(path) => put(place, Input::Raw(read_file(path)?)),
        None => put(place, Input::Word(value.to_owned())),
    }
}

fn read_object(
    procedure: &DescribedProcedure,
    all: Map<String, Value>,
    put: &mut impl FnMut(usize, Input) -> Result<(), Failure>,
) -> Result<(), Failure> {
    all.into_iter().try_for_each(|(name, value)| put(find(procedure, &name)?, Input::Json(value)))
}

/// Reads a JSON array of arguments: one for each parameter that is sent with the call, in order.
fn read_array(
    procedure: &DescribedProcedure,
    all: Vec<Value>,
    put: &mut impl FnMut(usize, Input) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let parameters = procedure.parameters.iter().enumerate();
    let places: Vec<usize> = parameters
        .filter(|(_, one)| one.direction != Direction::Out && is_given(one.direction))
        .map(|(place, _)| place)
        .collect();
    if all.len() > places.len() {
        let (name, wanted, got) = (&procedure.name, places.len(), all.len());
        return Err(usage(format!("`{name}` takes {wanted} arguments, but {got} were given")));
    }
    let mut both = places.into_iter().zip(all);
    both.try_for_each(|(place, value)| put(place, Input::Json(value)))
}

/// Records that standard input is used. Fails if another argument has used it already.
fn take_input(taken: &mut bool) -> Result<(), Failure> {
    match core::mem::replace(taken, true) {
        true => Err(usage("standard input is used twice: it can be read only once".into())),
        false => Ok(()),
    }
}

fn read_input(taken: &mut bool) -> Result<Vec<u8>, Failure> {
    take_input(taken)?;
    let mut bytes = Vec::new();
    let most = limits::MESSAGE_BYTES_MAX as u64 + 1;
    std::io::stdin().take(most).read_to_end(&mut bytes).or_fail("cannot read standard input")?;
    Ok(bytes)
}

fn read_file(path: &str) -> Result<Vec<u8>, Failure> {
    with_file(path, |path| std::fs::read(path))
}

fn open_file(path: &str) -> Result<std::fs::File, Failure> {
    with_file(path, |path| std::fs::File::open(path))
}

fn with_file<T>(path: &str, read: impl FnOnce(&Path) -> std::io::Result<T>) -> Result<T, Failure> {
    let path = Path::new(path);
    read_or_suggest(path, format_args!("cannot read {}", path.display()), read)
}

/// Returns the items of a source.
fn source(
    described: &Described,
    parameter: &DescribedParameter,
    written: Input,
) -> Result<StreamInput, Failure> {
    let name = &parameter.name;
    let wrong = || {
        usage(format!("{name}: expected a JSON array of items, or @FILE with one item per line"))
    };
    let json = match written {
        Input::Lines(lines) => return Ok(lines),
        Input::Json(json) => json,
        Input::Word(word) => serde_json::from_str(&word).map_err(|_| wrong())?,
        Input::Raw(_) => return Err(wrong()),
    };
    let Value::Array(items) = json else { return Err(wrong()) };
    let item = |(number, json)| {
        described
            .argument_from_json(parameter, json)
            .map_err(|unfit| usage(format!("item {number} of `{name}`: {unfit}")))
    };
    Ok(StreamInput::Items((1u64..).zip(&items).map(item).collect::<Result<_, _>>()?))
}

fn slot(parameter: &DescribedParameter, value: Dynamic) -> Slot {
    match parameter.direction {
        Direction::InOut => Slot::InOut(value),
        _ => Slot::In(value),
    }
}

/// The size of an argument in a message, in bytes.
struct Size {
    bytes: usize,
    is_estimated: bool,
}

impl Size {
    const fn exact(bytes: usize) -> Self {
        Self { bytes, is_estimated: false }
    }
}

/// Returns the argument for a parameter, and the size of the argument.
fn value(
    described: &Described,
    parameter: &DescribedParameter,
    written: Input,
) -> Result<(Slot, Size), Failure> {
    let is_bytes = parameter.shape == Shape::Buffer && parameter.ty == DescribedType::U8;
    let json = match written {
        Input::Json(json) => json,
        Input::Raw(bytes) if is_bytes => {
            let size = Size::exact(bytes.len());
            return Ok(match parameter.direction {
                Direction::InOut => (Slot::InOut(Dynamic::Plain(bytes)), size),
                _ => (Slot::Bytes(bytes), size),
            });
        }
        Input::Raw(bytes) if is_text(described, parameter) => {
            let name = &parameter.name;
            let text = String::from_utf8(bytes)
                .map_err(|_| usage(format!("{name}: expected text, got invalid UTF-8")))?;
            Value::String(text)
        }
        Input::Raw(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
            usage(format!("{}: cannot parse the file as JSON: {error}", parameter.name))
        })?,
        Input::Lines(_) => return Err(usage(format!("`{}` is not a source", parameter.name))),
        // A number stays text, because the conversion to a JSON number can lose digits.
        Input::Word(word) if is_bytes || is_text(described, parameter) || is_number(parameter) => {
            Value::String(word)
        }
        // A word that is not valid JSON is used as text.
        Input::Word(word) => serde_json::from_str(&word).unwrap_or(Value::String(word)),
    };
    let value = described.argument_from_json(parameter, &json).map_err(|unfit| mismatch(&unfit))?;
    let size = match &value {
        Dynamic::Plain(bytes) => Size::exact(bytes.len()),
        Dynamic::Text(text) => Size::exact(text.len()),
        // The JSON text of a structured value is about as long as the representation of the value in a
        // message, so its length is the estimate.
        _ => match described.bytes_max(&parameter.ty) {
            Some(bytes) if parameter.shape == Shape::One => Size::exact(bytes),
            _ => Size { bytes: json.to_string().len(), is_estimated: true },
        },
    };
    Ok((slot(parameter, value), size))
}

fn mismatch(unfit: &Unfit) -> Failure {
    usage(unfit.to_string())
}

/// Returns whether a word for this parameter is used as text, and is not parsed as JSON.
pub(super) fn is_text(described: &Described, parameter: &DescribedParameter) -> bool {
    match (parameter.shape, &parameter.ty) {
        (Shape::Text, _) | (Shape::One, DescribedType::Text | DescribedType::Char) => true,
        (Shape::One, DescribedType::Named(number)) => {
            let body = described.types.get(*number).map(|one| &one.body);
            matches!(body, Some(DescribedBody::PlainEnum { .. }))
        }
        _ => false,
    }
}

pub(super) fn is_number(parameter: &DescribedParameter) -> bool {
    use DescribedType::{F32, F64, I8, I16, I32, I64, I128, U8, U16, U32, U64, U128};
    parameter.shape == Shape::One
        && matches!(
            parameter.ty,
            U8 | U16 | U32 | U64 | U128 | I8 | I16 | I32 | I64 | I128 | F32 | F64
        )
}

/// Returns the name and the type of a parameter, without its direction.
fn declared(described: &Described, parameter: &DescribedParameter) -> String {
    let text = described.parameter_text(parameter);
    match text.find(&format!("{}: ", parameter.name)) {
        Some(at) => text[at..].to_owned(),
        None => text,
    }
}

/// Returns the capacity of a returned buffer in bytes.
fn capacity(
    described: &Described,
    parameter: &DescribedParameter,
    written: Option<Input>,
    share: usize,
) -> Result<usize, Failure> {
    let one = described.plain_bytes(&parameter.ty).and_then(|one| usize::try_from(one).ok());
    let one = one.unwrap_or(1).max(1);
    let name = &parameter.name;
    let count = match written {
        None => (share / one).max(1).min(parameter.max_len.map_or(usize::MAX, |max| max as usize)),
        Some(Input::Word(word)) => crate::args::bytes(&word)
            .ok()
            .and_then(|count| usize::try_from(count).ok())
            .ok_or_else(|| usage(format!("{name}: expected the maximum number of elements")))?,
        Some(Input::Json(Value::Number(count))) if count.is_u64() => {
            count.as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX)
        }
        Some(_) => {
            let what =
                format!("{name}: expected the maximum number of elements of the returned buffer");
            return Err(usage(what));
        }
    };
    let bytes = count.checked_mul(one).filter(|bytes| *bytes <= limits::MESSAGE_BYTES_MAX);
    bytes.ok_or_else(|| {
        let most = limits::MESSAGE_BYTES_MAX / one;
        usage(format!("{name}: the maximum is {most} elements"))
    })
}
