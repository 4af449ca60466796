//! `keys`: makes and shows the key of this user, and says which keys of others are trusted.

pub(crate) mod args;

use std::io::{self, Read as _};

use peregrine::limits;
use peregrine::secure::{Identity, KeyDirectory, KeyError, Overwrite, TrustedKey};
use serde_json::{Value, json};

use self::args::{Action, Keys, Line};
use crate::args::Format;
use crate::output::{self, BOLD, DIM, Failure, GOOD};

/// Runs `keys`.
pub(crate) fn run(keys: &Keys, format: Format) -> Result<(), Failure> {
    let directory = match &keys.dir {
        Some(dir) => KeyDirectory::at(dir),
        None => KeyDirectory::of_environment()
            .map_err(|error| failed("no directory for keys is known", &error, "use --dir"))?,
    };
    match &keys.action {
        Action::New { force, line } => make(&directory, *force, line, format),
        Action::Show { trusted: true, .. } => show_trusted(&directory, format),
        Action::Show { line, .. } => show(&directory, line, format),
        Action::Trust { line, also } => trust(&directory, line, *also, format),
        Action::Untrust { which } => untrust(&directory, which, format),
    }
}

fn failed(what: &str, error: &KeyError, advice: &'static str) -> Failure {
    let (causes, what) = (vec![error.to_string()], what.to_owned());
    Failure::Local { what, causes, advice, suggestions: Vec::new() }
}

fn make(directory: &KeyDirectory, force: bool, line: &Line, format: Format) -> Result<(), Failure> {
    let identity = Identity::generate();
    let identity = identity
        .map_err(|error| failed("cannot make a key", &error, "see the cause; no key was made"))?;
    let line = line.with(&identity)?;
    let overwrite = if force { Overwrite::Yes } else { Overwrite::No };
    directory.save(&identity, overwrite).map_err(|error| match error {
        KeyError::Exists { .. } => failed(
            "cannot save the key",
            &error,
            "`peregrine keys show` shows the key that exists; --force replaces it",
        ),
        error => failed(
            "cannot save the key",
            &error,
            "see the cause; `peregrine keys show` says whether there is a usable key",
        ),
    })?;
    if format.is_json() {
        return output::print(to_json(directory, &identity, &line));
    }
    output::note(format_args!(
        "{GOOD}made a key{GOOD:#} in {BOLD}{}{BOLD:#}; {} is private, so it never leaves this machine",
        directory.path().display(),
        directory.key_file().file_name().unwrap_or_default().display()
    ));
    hand_over(&identity, &line)
}

/// Prints the line to hand over, and says what it is for.
fn hand_over(identity: &Identity, line: &TrustedKey) -> Result<(), Failure> {
    let algorithm = identity.public_key().algorithm();
    output::note(format_args!(
        "fingerprint {BOLD}{}{BOLD:#} {DIM}({algorithm}){DIM:#}",
        identity.fingerprint()
    ));
    let names = identity.spiffe().map(|id| id.to_string()).into_iter().chain(identity.dns_names());
    let names: Vec<_> = names.collect();
    if !names.is_empty() {
        output::note(format_args!("certificate for {BOLD}{}{BOLD:#}", names.join(", ")));
    }
    output::note("peers trust it with `peregrine keys trust` and this line:");
    // Not folded, so that it can be copied, and passed on by a pipe.
    output::print(line)
}

fn show(directory: &KeyDirectory, line: &Line, format: Format) -> Result<(), Failure> {
    let advice = "see the cause; nothing was changed";
    let identity =
        directory.identity().map_err(|error| failed("cannot read the key", &error, advice))?;
    let line = line.with(&identity)?;
    let trusted = trusted(directory)?;
    if format.is_json() {
        let mut whole = to_json(directory, &identity, &line);
        whole["trusted"] = trusted.iter().map(key_to_json).collect();
        return output::print(whole);
    }
    hand_over(&identity, &line)?;
    let names: Vec<_> = trusted.iter().map(TrustedKey::name).collect();
    match names.is_empty() {
        true => output::note("no key of a peer is trusted yet"),
        false => output::note(format_args!(
            "{} trusted: {} {DIM}(--trusted shows their keys){DIM:#}",
            if names.len() == 1 {
                "1 key is".to_owned()
            } else {
                format!("{} keys are", names.len())
            },
            names.join(", ")
        )),
    }
    Ok(())
}

fn show_trusted(directory: &KeyDirectory, format: Format) -> Result<(), Failure> {
    let trusted = trusted(directory)?;
    if format.is_json() {
        let all = trusted.iter().map(key_to_json).collect();
        let whole = json!({ "directory": directory.path().display().to_string() });
        return output::print_all(format, "trusted", all, whole);
    }
    if trusted.is_empty() {
        output::note(format_args!(
            "no key is trusted in {}: `peregrine keys trust` adds one",
            directory.trusted_file().display()
        ));
        return Ok(());
    }
    let row = |key: &TrustedKey| {
        let (fingerprint, algorithm) = (key.fingerprint().to_string(), key.key().algorithm());
        vec![key.name().to_owned(), fingerprint, algorithm.to_owned(), key.comment().to_owned()]
    };
    let header = ["NAME", "FINGERPRINT", "ALGORITHM", "COMMENT"];
    output::say(output::table(&header, &[], trusted.iter().map(row).collect()))
}

fn trusted(directory: &KeyDirectory) -> Result<Vec<TrustedKey>, Failure> {
    let advice = "mend the file with an editor; nothing was changed";
    directory.trusted().map_err(|error| failed("cannot read the trusted keys", &error, advice))
}

fn trust(
    directory: &KeyDirectory,
    words: &[String],
    also: bool,
    format: Format,
) -> Result<(), Failure> {
    let advice = "use the line that `peregrine keys show` prints on the peer's machine";
    let read = |line: &str| {
        let read = line.parse::<TrustedKey>();
        read.map_err(|error| failed("cannot read the line of the key", &error, advice))
    };
    let keys: Vec<TrustedKey> = match words {
        [one] if one == "-" => {
            let (mut text, most) = (String::new(), limits::TRUSTED_BYTES_MAX as u64);
            let input = io::stdin().take(most + 1).read_to_string(&mut text);
            input.map_err(|error| {
                Failure::local(format!("cannot read standard input: {error}"), "pass lines as text")
            })?;
            if text.len() as u64 > most {
                let why = format!("standard input has more than {most} bytes");
                return Err(Failure::local(why, "pass fewer keys at once"));
            }
            let lines = text.lines().map(str::trim);
            lines
                .filter(|line| !line.is_empty() && !line.starts_with('#'))
                .map(read)
                .collect::<Result<_, _>>()?
        }
        words => vec![read(&words.join(" "))?],
    };
    if keys.is_empty() {
        return Err(Failure::local("standard input contains no line with a key", advice));
    }
    // All lines are checked before the first one is trusted.
    let known = trusted(directory)?;
    let other = |(at, key): &(usize, &TrustedKey)| {
        let mut earlier = known.iter().chain(&keys[..*at]);
        earlier.any(|one| one.name() == key.name() && one.key() != key.key())
            && !known.iter().any(|known| known.key() == key.key())
    };
    if let Some((_, key)) = keys.iter().enumerate().find(other).filter(|_| !also) {
        return Err(Failure::local(
            format!("`{}` is the name of another key that is trusted", key.name()),
            "use another name, `peregrine keys untrust` first, or --also if both keys are right",
        ));
    }
    let mut added = Vec::new();
    for key in &keys {
        let is_new = directory.add(key);
        let advice = "see the cause; the key is not trusted";
        let is_new =
            is_new.map_err(|error| failed("cannot save the trusted key", &error, advice))?;
        let name = known.iter().find(|known| known.key() == key.key()).map(TrustedKey::name);
        added.push((key, is_new, name.unwrap_or(key.name())));
    }
    if format.is_json() {
        let all = added.iter().map(|(key, is_new, name)| {
            let mut one = key_to_json(key);
            (one["name"], one["added"]) = (json!(name), json!(is_new));
            one
        });
        let whole = json!({ "directory": directory.path().display().to_string() });
        return output::print_all(format, "keys", all.collect(), whole);
    }
    for (key, is_new, name) in added {
        let (verdict, print) = (if is_new { "now" } else { "already" }, key.fingerprint());
        output::say(format_args!("{BOLD}{name}{BOLD:#} is {verdict} trusted: {print}"))?;
    }
    output::note("compare the fingerprint with the one that the peer sees");
    Ok(())
}

fn untrust(directory: &KeyDirectory, which: &str, format: Format) -> Result<(), Failure> {
    let advice = "see the cause; nothing was changed";
    let removed = directory.remove(which);
    let removed =
        removed.map_err(|error| failed("cannot change the trusted keys", &error, advice))?;
    if removed.is_empty() {
        let names = trusted(directory)?.into_iter().map(|key| key.name().to_owned());
        let what = format!("no trusted key has the name, the fingerprint or the text `{which}`");
        let advice = "`peregrine keys show --trusted` lists them";
        return Err(Failure::local(what, advice).suggest(output::near(which, names)));
    }
    if format.is_json() {
        let all = removed.iter().map(key_to_json).collect();
        let whole = json!({ "directory": directory.path().display().to_string() });
        return output::print_all(format, "removed", all, whole);
    }
    for key in removed {
        let (name, fingerprint) = (key.name(), key.fingerprint());
        output::say(format_args!("{BOLD}{name}{BOLD:#} is no longer trusted: {fingerprint}"))?;
    }
    Ok(())
}

impl Line {
    /// Returns the line to hand over.
    fn with(&self, identity: &Identity) -> Result<TrustedKey, Failure> {
        let user = user();
        let name = self.name.clone().unwrap_or_else(|| named(&user));
        let comment = self.comment.clone().unwrap_or_else(|| {
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            format!("{user}@{host}")
                .chars()
                .filter(|letter| !letter.is_control())
                .take(256)
                .collect()
        });
        TrustedKey::new(&name, identity.public_key(), &comment).map_err(|error| {
            failed("cannot write the line of the key", &error, "use --name and --comment")
        })
    }
}

fn user() -> String {
    let set = |name| std::env::var(name).ok().filter(|user: &String| !user.is_empty());
    let number = || format!("user{}", rustix::process::geteuid().as_raw());
    set("USER").or_else(|| set("LOGNAME")).unwrap_or_else(number)
}

/// Returns the letters of a user's name that the name of a key can have.
fn named(user: &str) -> String {
    let letter = |c: &char| c.is_ascii_alphanumeric() || ".-_".contains(*c);
    let name: String = user.chars().filter(letter).take(64).collect();
    let name = name.trim_start_matches(['-', '.']);
    if name.is_empty() { "peer".to_owned() } else { name.to_owned() }
}

fn key_to_json(key: &TrustedKey) -> Value {
    json!({
        "name": key.name(),
        "fingerprint": key.fingerprint().to_string(),
        "algorithm": key.key().algorithm(),
        "key": key.key().to_string(),
        "comment": key.comment(),
    })
}

fn to_json(directory: &KeyDirectory, identity: &Identity, line: &TrustedKey) -> Value {
    json!({
        "directory": directory.path().display().to_string(),
        "fingerprint": identity.fingerprint().to_string(),
        "algorithm": identity.public_key().algorithm(),
        "key": identity.public_key().to_string(),
        "spiffe": identity.spiffe().map(|id| id.to_string()),
        "dns_names": identity.dns_names(),
        "line": line.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_users_name_becomes_the_name_of_a_key() {
        let all = ["ada", "Ada Lovelace", "ада", "-x", "..", "a/b@c"].map(named);
        assert_eq!(all, ["ada", "AdaLovelace", "peer", "x", "peer", "abc"]);
    }
}
