//! A hostile client and a hostile server of the local path. They write random bytes (*noise*) to the region
//! (the shared memory of a session), and send noise over the socket. A region consists of A-stacks, the
//! frames of single calls. The call word of an A-stack posts a call, and a message called a *ring* asks the
//! server to look for a call.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use peregrine::sys;

use super::noise::Noise;
use super::wire::{
    self, BIND, DESCRIBE, Line, MAGIC, PING, RING, Region, Session, UNBIND, VERSION, bind, bound,
    describe, region_bytes, request, word, words,
};

/// Valid call words, and invalid ones that resemble them.
const KINDS: [u32; 8] = [0, 2, 3, 4, 5, 6, 7, 1];

/// Writes one value at a random offset of the region. Offsets at which a wrong value can do harm are chosen
/// more often.
fn scribble(region: &Region, noise: &mut Noise, about: u32) {
    let astack = noise.below(region.count.into()) as u32;
    let place = match noise.below(9) {
        0 => region.call(astack),
        1 => region.reply(astack),
        2 => region.taken(astack),
        8 => noise.one_of(&region.progress(astack)),
        // An offset in the header, or in the first values of the message.
        3 | 4 => region.call(astack) + 4 + 4 * noise.below(24) as usize,
        5 => region.reply(astack) + 4 + 4 * noise.below(24) as usize,
        6 => 4 * noise.below(1024) as usize,
        _ => 4 * noise.below(region.memory.len() as u64 / 4) as usize,
    };
    let now = region.word(place).load(Ordering::Relaxed);
    let value = match noise.below(4) {
        0 => noise.one_of(&KINDS),
        // The word by which an honest peer posts the next message.
        1 => now.wrapping_add(8) & !7 | 1,
        2 => noise.word(about),
        _ => noise.word(now),
    };
    region.word(place).store(value, Ordering::Release);
}

/// Overwrites a random range of at most 4 MiB of a region with noise.
fn smear(region: &Region, noise: &mut Noise) {
    let bytes = region.memory.len() as u64;
    let length = noise.below(bytes.min(4 << 20)) as usize;
    let at = noise.below(bytes - length as u64 + 1) as usize;
    // One page of noise is repeated, because generating more noise would take too long.
    let page = noise.bytes(4096);
    let space = &region.memory;
    for (at, end) in (at..at + length).step_by(page.len()).map(|one| (one, at + length)) {
        let _ = space.write(at, &page[..page.len().min(end - at)]);
    }
}

/// Posts a nearly valid call with random lengths.
fn post(session: &Session, noise: &mut Noise) {
    let region = &session.region;
    let astack = noise.below(region.count.into()) as u32;
    let call = region.call(astack);
    let procedure = if noise.once_in(8) { noise.word(PING) } else { noise.below(6) as u32 };
    let binding = if noise.once_in(8) { noise.word(session.binding) } else { session.binding };
    let head = noise.below(96) as u32;
    let mut lengths = [head, head + noise.below(256) as u32, head + noise.below(512) as u32];
    if noise.once_in(3) {
        let at = noise.below(3) as usize;
        lengths[at] = noise.word(region.bytes as u32);
    }
    let cpu = noise.below(3) as u32;
    // In some calls, the message never arrives completely, or the extensions or offsets are invalid.
    let manner = match noise.below(8) {
        0 => 1 << 15,
        1 => 1 << 15 | noise.word(32),
        2 => noise.word(32),
        _ => 0,
    };
    let header = words(&[binding, procedure, lengths[0], lengths[1], lengths[2], cpu, manner]);
    let space = &region.memory;
    let _ = space.write(call + 4, &header);
    for at in 0..24 {
        let value = noise.word(lengths[2]);
        let _ = space.write(call + 32 + 4 * at, &value.to_ne_bytes());
    }
    let word = region.word(call);
    let message = word.load(Ordering::Relaxed).wrapping_add(8) & !7 | 1;
    if word.swap(message, Ordering::AcqRel) != 0 {
        sys::futex_wake(word);
    } else {
        let _ = session.line.send(&request(RING, astack));
    }
    if noise.once_in(4) {
        // The server may read the call while this loop changes the call.
        (0..64).for_each(|_| scribble(region, noise, lengths[2]));
    }
}

/// Sends a message that is not always a valid request. Returns false if the message ends the session.
fn talk(session: &Session, directory: &Path, noise: &mut Noise) -> bool {
    let count = session.region.count;
    match noise.below(16) {
        0..6 => drop(session.line.send(&request(RING, noise.below(count.into()) as u32))),
        6 => drop(session.line.send(&request(RING, noise.word(count)))),
        7 | 8 => drop(session.line.send(&request(UNBIND, noise.word(session.binding)))),
        9 | 10 => {
            let _ = session.line.send(&describe());
            let _ = session.line.receive();
        }
        // Makes one more binding in the same session, over another connection.
        11 => {
            if let Ok(line) = Line::connect(directory, "vault") {
                let tokens = [session.token, noise_token(noise)];
                let _ = line.send(&bind(noise.word(8), noise.below(1 << 21), &tokens));
                let _ = line.answer_within(Duration::from_millis(50));
            }
        }
        12 => {
            // Sends noise over an unbound connection.
            if let Ok(line) = Line::connect(directory, "vault") {
                let length = noise.below(300) as usize;
                let _ = line.send(&noise.bytes(length));
            }
        }
        13 if noise.once_in(8) => {
            let other = noise.word(4);
            let kind = noise.one_of(&[BIND, DESCRIBE, RING, UNBIND, other]);
            let mut message = words(&[MAGIC, VERSION, kind]);
            let length = noise.below(64) as usize;
            message.extend(noise.bytes(length));
            let _ = session.line.send(&message);
            return false;
        }
        _ => {}
    }
    true
}

fn noise_token(noise: &mut Noise) -> wire::Token {
    noise.bytes(16).try_into().expect("sixteen")
}

/// Attacks the export `vault` as a client until the time `until`. Returns the number of calls posted.
pub(crate) fn client(directory: &Path, seed: u64, until: Instant) -> u64 {
    let mut noise = Noise::new(seed);
    let (mut sessions, mut posted) = (Vec::<Session>::new(), 0);
    while Instant::now() < until {
        if sessions.len() < 3 {
            let count = noise.one_of(&[1, 4, 64, 1024]);
            match Session::new(directory, "vault", count) {
                Ok(session) => sessions.push(session),
                // The server refused this client because of its earlier messages. The client connects again.
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
            continue;
        }
        let at = noise.below(sessions.len() as u64) as usize;
        let session = &sessions[at];
        let mut stays = true;
        for _ in 0..32 {
            match noise.below(8) {
                0 | 1 => {
                    post(session, &mut noise);
                    posted += 1;
                }
                2 => stays &= talk(session, directory, &mut noise),
                3 => {
                    let astack = noise.below(session.region.count.into()) as u32;
                    sys::futex_wake(session.region.word(session.region.call(astack)));
                }
                4 if noise.once_in(64) => smear(&session.region, &mut noise),
                _ => {
                    let about = session.region.bytes as u32;
                    (0..16).for_each(|_| scribble(&session.region, &mut noise, about));
                }
            }
        }
        if !stays || noise.once_in(200) {
            sessions.swap_remove(at);
        }
    }
    posted
}

/// What the hostile server keeps for one of its clients.
struct Victim {
    line: Line,
    region: Region,
    /// For each A-stack, the call word that the server answered last.
    seen: Vec<u32>,
}

/// Runs the server of the export `trap` until the time `until`. The server sends noise to its clients.
pub(crate) fn server(listener: &Line, seed: u64, until: Instant) {
    let mut noise = Noise::new(seed);
    let (mut unbound, mut victims) = (Vec::<Line>::new(), Vec::<Victim>::new());
    let mut idle = 0;
    while Instant::now() < until {
        idle += 1;
        while let Ok(line) = listener.accept() {
            unbound.push(line);
        }
        unbound.retain(|_| !noise.once_in(5000));
        for at in (0..unbound.len()).rev() {
            match unbound[at].receive() {
                Ok((message, _)) if message.is_empty() => drop(unbound.swap_remove(at)),
                Ok((message, _)) => {
                    victims.extend(welcome(unbound.swap_remove(at), &message, &mut noise));
                }
                Err(_) => {}
            }
        }
        for at in (0..victims.len()).rev() {
            let victim = &mut victims[at];
            if attack(victim, &mut noise) {
                idle = 0;
            }
            let gone = loop {
                match victim.line.receive() {
                    Ok((message, _)) if message.is_empty() => break true,
                    // The server reads rings and requests of the client, because unread messages would block
                    // the client's sends.
                    Ok(_) => {}
                    Err(error) => break error.kind() != std::io::ErrorKind::WouldBlock,
                }
            };
            if gone || !send_unsolicited(victim, &mut noise) {
                drop(victims.swap_remove(at));
            }
        }
        if idle > 64 {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Answers the first message of a client, mostly correctly, so that the client continues.
fn welcome(line: Line, message: &[u8], noise: &mut Noise) -> Option<Victim> {
    if word(message, 8) != BIND || noise.once_in(10) {
        let length = noise.below(200) as usize;
        let garbage = noise.bytes(length);
        let answer = if noise.once_in(2) { words(&[noise.word(101), 2, 3]) } else { garbage };
        let _ = line.send(&answer);
        return None;
    }
    let count = noise.one_of(&[1, 2, 8]);
    let bytes = 1 << 20;
    let (region, file) = Region::new(count, bytes);
    let grant = match noise.below(16) {
        0 => bound([1; 16], 1, noise.word(count), bytes as u64),
        1 => bound([1; 16], 1, count, u64::from(noise.word(bytes as u32)) << noise.below(33)),
        _ => bound(noise_token(noise), noise.word(1), count, bytes as u64),
    };
    assert_eq!(region.memory.len(), region_bytes(count, bytes));
    line.send_with(&grant, &[file.as_fd()]).ok()?;
    Some(Victim { line, region, seen: vec![0; count as usize] })
}

/// Writes into a client's region, and answers the client's calls. Returns whether there was a call.
fn attack(victim: &mut Victim, noise: &mut Noise) -> bool {
    let Victim { region, seen, .. } = victim;
    let mut called = false;
    for astack in 0..region.count {
        let posted = region.word(region.call(astack)).load(Ordering::Acquire);
        if posted & 7 == 1 && posted != seen[astack as usize] {
            seen[astack as usize] = posted;
            called = true;
            answer(region, astack, posted, noise);
        }
    }
    if called || noise.once_in(16) {
        let about = region.bytes as u32;
        (0..noise.below(16)).for_each(|_| scribble(region, noise, about));
    }
    if called && noise.once_in(256) {
        smear(region, noise);
    }
    called
}

fn answer(region: &Region, astack: u32, posted: u32, noise: &mut Noise) {
    let reply = region.reply(astack);
    let space = &region.memory;
    if noise.once_in(2) {
        let taken = if noise.once_in(2) { posted } else { noise.word(posted) };
        region.word(region.taken(astack)).store(taken, Ordering::Relaxed);
    }
    let most = region.bytes as u32;
    let progress = region.word(region.progress(astack)[1]);
    if region.word(region.call(astack) + 28).load(Ordering::Relaxed) >> 24 != 0 {
        // While the server writes a reply, it announces how many bytes it has written. The client reads these
        // bytes before the server posts the reply.
        for _ in 0..noise.below(64) {
            progress.store(noise.word(most), Ordering::Release);
            std::hint::spin_loop();
        }
    }
    let at = if noise.once_in(3) { noise.word(most) } else { 4 * noise.below(4) as u32 };
    let length = if noise.once_in(3) { noise.word(most) } else { noise.below(64) as u32 };
    let kind = if noise.once_in(8) { noise.word(3) } else { noise.below(4) as u32 };
    let _ = space.write(reply + 4, &words(&[kind, noise.below(3) as u32, at, length]));
    for at in 0..24 {
        let _ = space.write(reply + 32 + 4 * at, &noise.word(64).to_ne_bytes());
    }
    let word = match noise.below(16) {
        // The server posts no reply, so the client waits until its deadline.
        0 => return,
        1 => noise.word(posted),
        2 => noise.one_of(&KINDS),
        _ => posted,
    };
    region.word(reply).swap(word, Ordering::AcqRel);
    sys::futex_wake(region.word(reply));
}

/// Sends an unsolicited message now and then. Returns false if the connection is to be closed.
fn send_unsolicited(victim: &Victim, noise: &mut Noise) -> bool {
    if !noise.once_in(2000) {
        return true;
    }
    match noise.below(6) {
        0 => drop(victim.line.send(&words(&[wire::GOODBYE]))),
        1 | 2 => drop(victim.line.send(&words(&[wire::REVOKED, noise.word(1)]))),
        3 => {
            let length = noise.below(100) as usize;
            let _ = victim.line.send(&noise.bytes(length));
        }
        4 => return false,
        _ => {
            // Sends more messages than any client expects.
            for _ in 0..100 {
                let _ = victim.line.send(&words(&[wire::REVOKED, noise.word(1)]));
            }
        }
    }
    true
}
