//! `unseal`: opens the sealed packets of a capture, with the keys that were logged, so that Wireshark shows the
//! calls.

pub(crate) mod args;
mod capture;
mod frame;

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read as _, Write as _};
use std::path::Path;

use peregrine::secure::Unsealer;
use serde_json::json;

use crate::args::Format;
use crate::output::{self, Failure, OrFail as _};
use args::Unseal;
use capture::{Reader, Writer};

/// The maximum size in bytes of a key log.
const KEYS_BYTES_MAX: u64 = 64 << 20;

/// The numbers of frames and packets in a capture.
#[derive(Default)]
struct Count {
    frames: u64,
    opened: u64,
    closed: u64,
    handshake: u64,
    clear: u64,
}

/// Writes a copy of a capture in which the sealed packets are opened.
pub(crate) fn run(unseal: &Unseal, format: Format) -> Result<(), Failure> {
    let mut unsealer = unsealer(&unseal.keys)?;
    let shown = unseal.input.display().to_string();
    let file = File::open(&unseal.input).or_fail(format_args!("cannot open {shown}"))?;
    let mut reader =
        Reader::new(BufReader::new(file)).map_err(|error| unreadable(&shown, error))?;
    // Only the owner can read the new file. It appears when it is complete.
    let name = unseal.output.file_name();
    let parent = unseal.output.parent().filter(|parent| !parent.as_os_str().is_empty());
    let written = unseal.output.display();
    let unwritten = format!("cannot write {written}");
    if name.is_none() {
        let what = format!("{unwritten}: it is not the name of a file");
        return Err(Failure::local(what, "name the file to write last"));
    }
    // The new file replaces what has its name. That must not be a device, a pipe or a link to one.
    if unseal.output.symlink_metadata().is_ok_and(|found| !found.is_file()) {
        let what = format!("{unwritten}: it exists and is no regular file");
        return Err(Failure::local(what, "name a file that is new, or that may be replaced"));
    }
    let draft = tempfile::NamedTempFile::new_in(parent.unwrap_or(Path::new(".")));
    let draft = draft.or_fail(&unwritten)?;
    let mut writer = Writer::new(BufWriter::new(draft.as_file()));
    let mut count = Count::default();
    let (mut bytes, mut payload) = (Vec::new(), Vec::new());
    while let Some(frame) = reader.next(&mut bytes).map_err(|error| unreadable(&shown, error))? {
        let before = bytes.len();
        count.frames += 1;
        if let Some(place) = frame::find(frame.link, &bytes) {
            let found = unsealer.unseal(&bytes[place.payload()], &mut payload);
            count.opened += found.opened;
            count.closed += found.closed;
            count.handshake += found.handshake;
            count.clear += found.clear;
            if found.opened > 0 {
                place.replace(&mut bytes, &payload);
            }
        }
        let removed = before - bytes.len();
        writer.write(&frame, removed, &bytes).map_err(|error| match error {
            capture::Unwritten::Links(what) => {
                Failure::local(format!("cannot convert {shown}: {what}"), LINKS)
            }
            capture::Unwritten::Io(error) => failed(&unwritten, &error),
        })?;
    }
    let mut file = writer.finish(reader.link()).or_fail(&unwritten)?;
    file.flush().or_fail(&unwritten)?;
    drop(file);
    draft.persist(&unseal.output).map_err(|error| failed(&unwritten, &error.error))?;
    if reader.is_cut() {
        output::note(format_args!("{shown} ends within a frame, which is left out"));
    }
    report(unseal, &count, unsealer.connections(), format)
}

const LINKS: &str =
    "convert each interface alone: `editcap` and `tshark -Y frame.interface_id==0` divide captures";

fn report(
    unseal: &Unseal,
    count: &Count,
    connections: usize,
    format: Format,
) -> Result<(), Failure> {
    let Count { frames, opened, closed, handshake, clear } = *count;
    if format.is_json() {
        let result = json!({
            "written": unseal.output.display().to_string(),
            "frames": frames,
            "opened": opened,
            "closed": closed,
            "handshake": handshake,
            "clear": clear,
            "connections": connections,
        });
        return output::print(result);
    }
    if closed > 0 {
        output::note(format_args!(
            "sealed packets that stay as they are: {closed}. {} does not have their keys, or they are damaged",
            unseal.keys.display()
        ));
    }
    output::say(format_args!("frames: {frames}, opened packets: {opened}"))?;
    if opened > 0 {
        let written = unseal.output.display();
        output::note(format_args!("anyone with {written} can read the calls"));
    }
    Ok(())
}

fn failed(what: &str, error: &io::Error) -> Failure {
    let what = what.to_owned();
    let (causes, suggestions) = (vec![error.to_string()], Vec::new());
    Failure::Local { what, causes, advice: "see the cause; nothing was executed", suggestions }
}

fn unreadable(path: &str, error: capture::Unreadable) -> Failure {
    let what = format!("cannot read {path}");
    match error {
        capture::Unreadable::Io(error) => failed(&what, &error),
        capture::Unreadable::Invalid(why) => Failure::local(
            format!("{what}: {why}"),
            "`tshark -r FILE -w NEW` repairs or converts many captures",
        ),
    }
}

/// Reads the secrets of a key log.
fn unsealer(path: &Path) -> Result<Unsealer, Failure> {
    let what = format!("cannot read the keys in {}", path.display());
    let mut keys = Vec::new();
    let file = File::open(path).or_fail(&what)?;
    file.take(KEYS_BYTES_MAX + 1).read_to_end(&mut keys).or_fail(&what)?;
    let advice = "keep only the lines of the connections that were captured";
    if keys.len() as u64 > KEYS_BYTES_MAX {
        return Err(Failure::local(format!("{what}: it has more than 64 MiB"), advice));
    }
    let unsealer = Unsealer::new(&keys);
    unsealer.map_err(|error| Failure::local(format!("{what}: {error}"), advice))
}
