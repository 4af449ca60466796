//! Tests the access control of exports by user and group. Also checks that unbound connections of one user do
//! not keep out other users.
//!
//! Only root can change its user. So these tests are skipped if another user runs them.

mod attack;
mod support;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use attack::vitals::Vitals;
use attack::wire::{self, Line, Session, word};
use attack::{eventually, no_longer_than};
use peregrine::{Capture, Executed, ExportOptions, Kind, Server, interface, limits};
use rustix::fs::{FallocateFlags, fallocate};
use support::{Process, alone, become_user, role};

const LIMIT: Duration = Duration::from_secs(10);

#[interface]
trait Who {
    /// Returns the user and the group of the caller, as the server knows them.
    fn am_i(&self) -> peregrine::Result<(u32, u32)>;
}

struct Door;

impl Who for Door {
    fn am_i(&self) -> peregrine::Result<(u32, u32)> {
        let caller = peregrine::caller().expect("inside a call");
        Ok((caller.user(), caller.group()))
    }
}

/// Reports which threads run calls, and can occupy these threads.
#[interface]
trait Threads {
    /// Returns the number of the thread that runs this call.
    fn thread(&self) -> peregrine::Result<i32>;
    /// Waits until the procedure `release` is called.
    fn hold(&self) -> peregrine::Result<()>;
    /// Ends all calls of `hold` that wait now. Later calls of `hold` return at once.
    fn release(&self) -> peregrine::Result<()>;
}

#[derive(Default)]
struct Workshop {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Threads for Workshop {
    fn thread(&self) -> peregrine::Result<i32> {
        Ok(rustix::thread::gettid().as_raw_nonzero().get())
    }

    fn hold(&self) -> peregrine::Result<()> {
        let open = self.open.lock().unwrap();
        drop(self.opened.wait_while(open, |open| !*open).unwrap());
        Ok(())
    }

    fn release(&self) -> peregrine::Result<()> {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
        Ok(())
    }
}

/// The number of threads of the server that exports `workshop`.
const WORKERS: usize = 8;

const USER: u32 = 61_001;
const GROUP: u32 = 62_001;
const OTHER: u32 = 61_999;

/// The names of the exports. Each name says which users may bind to the export.
const NAMES: [&str; 5] = ["private", "public", "users", "groups", "both"];

/// Does the work of a child process that has a role. In the test run itself, this function does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    no_longer_than(Duration::from_secs(60));
    let directory = support::directory();
    let words: Vec<&str> = role.split(' ').collect();
    match words[0] {
        "server" => server(),
        "locks" => {
            become_user(OTHER, OTHER, &[]);
            locks(&directory);
        }
        "lists" => {
            become_user(OTHER, OTHER, &[]);
            lists();
        }
        "guests" => {
            become_user(OTHER, OTHER, &[]);
            guests(&directory);
        }
        "knocks" => {
            become_user(OTHER, OTHER, &[]);
            let error = WhoClient::bind("private").map(drop).unwrap_err();
            println!("\nready\n{:?} {}", error.kind(), error.detail());
        }
        "workshop" => workshop(),
        "calls" => {
            become_user(OTHER, OTHER, &[]);
            calls(&directory);
        }
        "punches" => {
            become_user(OTHER, OTHER, &[]);
            punches(&directory);
        }
        "holds" => {
            become_user(OTHER, OTHER, &[]);
            holds();
        }
        // Exports and binds in a process whose environment names no runtime directory.
        "alone" => {
            become_user(OTHER, OTHER, &[]);
            let exported = Server::new().export("alone", WhoServer::new(Door));
            println!("\nready");
            match exported.and_then(Server::spawn) {
                Ok(_running) => {
                    let told = WhoClient::bind("alone").and_then(|alone| alone.am_i());
                    println!("told {told:?}");
                }
                Err(error) => println!("told {error}"),
            }
        }
        "regions" => {
            become_user(OTHER, OTHER, &[]);
            regions(&directory);
        }
        _ => {
            let numbers: Vec<u32> = words.iter().map(|word| word.parse().unwrap()).collect();
            become_user(numbers[0], numbers[1], &numbers[2..]);
            println!("\nready");
            println!("{}", outcomes(numbers[0], numbers[1]));
        }
    }
}

fn server() {
    let plain = ExportOptions::default;
    let options = [
        plain(),
        plain().public(),
        plain().users([USER]),
        plain().groups([GROUP]),
        plain().users([USER]).groups([GROUP]),
    ];
    let server = NAMES.iter().zip(options).fold(Server::new(), |server, (name, options)| {
        server.export_with(name, WhoServer::new(Door), options).unwrap()
    });
    let running = server.spawn().unwrap();
    println!("\nready");
    running.wait();
}

/// Returns, for each export, whether this user may bind to it. The binds share one session. Each of them is
/// checked nevertheless, because an existing session grants no access.
fn outcomes(user: u32, group: u32) -> String {
    let mut bound = Vec::new();
    let outcomes = NAMES.map(|name| match WhoClient::bind(name) {
        Ok(client) => {
            assert_eq!(client.am_i().unwrap(), (user, group), "{name}");
            bound.push(client);
            "yes"
        }
        Err(error) => {
            let outcome = (error.kind(), error.executed());
            assert_eq!(outcome, (Kind::Denied, Executed::No), "{name}: {error}");
            let text = error.to_string();
            assert!(text.contains(&format!("`{name}`")), "{text}");
            // The server's error names the refused user, unless the mode of the file already denies access.
            let told = text.contains(&format!("user {user} ")) || name == "private";
            assert!(told, "{text}");
            "no"
        }
    });
    outcomes.join(" ")
}

/// Returns a directory that every user may enter, or `None` if this process cannot change its user.
fn open_directory() -> Option<tempfile::TempDir> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can change its user");
        return None;
    }
    let directory = support::own_directory();
    let everybody = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), everybody).unwrap();
    Some(directory)
}

#[test]
fn exports_are_open_to_their_users_and_groups() {
    let _alone = alone();
    let Some(directory) = open_directory() else { return };
    let _server = Process::start("child", "server", directory.path());
    // These are more groups than the server gets with its first query to the kernel.
    let many: Vec<String> = (0..100).map(|i| (63_000 + i).to_string()).collect();
    let many = many.join(" ");
    for (who, may) in [
        (format!("{USER} {OTHER}"), "no yes yes no yes"),
        (format!("{OTHER} {GROUP}"), "no yes no yes yes"),
        (format!("{OTHER} {OTHER} {GROUP}"), "no yes no yes yes"),
        (format!("{OTHER} {OTHER} {many} {GROUP}"), "no yes no yes yes"),
        (format!("{USER} {GROUP}"), "no yes yes yes yes"),
        // A group ID does not count as a user ID, and a user ID does not count as a group ID.
        (format!("{GROUP} {USER} {USER}"), "no yes no no no"),
        (format!("{OTHER} {OTHER} {many}"), "no yes no no no"),
        ("0 0".to_owned(), "yes yes yes yes yes"),
    ] {
        let mut client = Process::start("child", &who, directory.path());
        assert_eq!(client.line(), may, "user, group, other groups: {who}");
    }
}

/// The mode of a private export's socket keeps other users out. The server must check the user of a client
/// nevertheless, because the mode may have been changed.
#[test]
fn private_export_checks_the_user_of_each_client() {
    let _alone = alone();
    let Some(directory) = open_directory() else { return };
    let _server = Process::start("child", "server", directory.path());
    let socket = directory.path().join("private");
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).unwrap();
    let mut client = Process::start("child", "knocks", directory.path());
    let said = client.line();
    let why = format!("`private` is private to user 0, and the client is user {OTHER}");
    assert!(said.starts_with("Denied ") && said.contains(&why), "{said}");
}

/// Opens more connections than the server allows, and sends nothing on them.
fn guests(directory: &Path) {
    // The attempt is repeated if the first connections were closed before the last ones were open.
    let stay = || {
        let begun = Instant::now();
        let connect = || Line::connect(directory, "public").unwrap();
        let guests: Vec<Line> = (0..400).map(|_| connect()).collect();
        let refused = || guests.iter().filter(|guest| !guest.is_open()).count();
        assert!(eventually(LIMIT, || refused() > 0), "no connection is refused");
        // The server refuses further connections until the time limit of the open ones ends.
        let (said, _) = connect().answer();
        let stay = guests.len() - refused();
        let late = begun.elapsed() >= limits::UNBOUND_TIME;
        let full = word(&said, 0) == wire::REFUSED && word(&said, 4) == Kind::Exhausted as u32;
        assert!(full || late, "{said:?}");
        (!late).then_some((stay, guests))
    };
    let (stay, _guests) =
        (0..5).find_map(|_| stay()).expect("too slow to open the connections in time");
    println!("\nready\n{stay}");
    let back = eventually(LIMIT, || WhoClient::bind("public").is_ok());
    println!("{back}");
}

#[test]
fn unbound_connections_of_one_user_keep_no_other_user_out() {
    let _alone = alone();
    let Some(directory) = open_directory() else { return };
    let server = Process::start("child", "server", directory.path());
    let before = Vitals::of(server.id());
    let mut hostile = Process::start("child", "guests", directory.path());
    let stay: usize = hostile.line().parse().unwrap();
    assert!((1..=limits::UNBOUND_PER_USER).contains(&stay), "{stay} connections remain");
    let who = WhoClient::bind("public").expect("another user can bind");
    assert_eq!(who.am_i().unwrap(), (0, 0));
    // When the time limit of the unbound connections has ended, the user that opened them can bind again.
    assert_eq!(hostile.line(), "true");
    drop((hostile, who));
    let mut after = before;
    let back = eventually(LIMIT, || {
        after = Vitals::of(server.id());
        after.is_back_to(before, 2, 8 << 10)
    });
    assert!(back, "{before:?} became {after:?}");
}

/// Takes the lock of every name whose lock file this user may open, and holds these locks.
fn locks(directory: &Path) {
    let locks = NAMES.map(|name| {
        let file = std::fs::File::open(directory.join(format!(".{name}.lock"))).ok()?;
        // If the server holds the lock, this thread waits until the server dies.
        Some(std::thread::spawn(move || {
            file.lock_shared().expect("the lock");
            file
        }))
    });
    println!("\nready\n{}", locks.iter().flatten().count());
    std::thread::park_timeout(Duration::from_secs(50));
}

/// For each line of input, prints for each export whether a listing reports the export as alive.
fn lists() {
    println!("\nready");
    for line in std::io::stdin().lines() {
        if line.is_ok_and(|line| line == "capture") {
            let error = Capture::open("public").unwrap_err();
            println!("{:?} {}", error.kind(), error.detail());
            continue;
        }
        let list = peregrine::directory::list();
        let state = |name: &str| {
            let entry = list.iter().find(|entry| entry.name == name);
            entry.map_or("missing".to_owned(), |entry| format!("{:?}", entry.alive))
        };
        println!("{}", NAMES.map(state).join(" "));
    }
}

#[test]
fn another_user_cannot_hold_the_name_of_a_killed_server() {
    let _alone = alone();
    let Some(directory) = open_directory() else { return };
    let mut server = Process::start("child", "server", directory.path());
    let mut hostile = Process::start("child", "locks", directory.path());
    assert_eq!(hostile.line(), "0", "another user can open some of the locks");
    server.kill();
    // The server reports that it is ready only after it has taken the locks of all its names.
    let mut again = Process::start("child", "server", directory.path());
    // An earlier release of the library made lock files that every user may open. The next server must
    // replace such a file.
    again.kill();
    let old = directory.path().join(".public.lock");
    std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o644)).unwrap();
    let _third = Process::start("child", "server", directory.path());
    let mode = std::fs::metadata(&old).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
}

#[test]
fn another_user_cannot_capture_calls() {
    let _alone = alone();
    let Some(directory) = open_directory() else { return };
    let _server = Process::start("child", "server", directory.path());
    let mut other = Process::start("child", "lists", directory.path());
    other.write_line("capture");
    assert_eq!(other.line(), "Denied only user 0 and root may capture calls of this server");
}

#[test]
fn listing_by_another_user_distinguishes_dead_from_unknown() {
    let _alone = alone();
    let Some(directory) = open_directory() else { return };
    let mut server = Process::start("child", "server", directory.path());
    let mut other = Process::start("child", "lists", directory.path());
    other.write_line("list");
    assert_eq!(other.line(), "None Some(true) Some(true) Some(true) Some(true)");
    server.kill();
    other.write_line("list");
    assert_eq!(other.line(), "None Some(false) Some(false) Some(false) Some(false)");
}

/// Uses a copy of this program with the set-user-ID bit. The copy runs as root, whichever user starts it.
#[test]
fn set_user_id_program_ignores_the_environment_of_its_user() {
    use std::os::unix::process::CommandExt as _;
    let _alone = alone();
    let Some(directory) = open_directory() else { return };
    let copy = directory.path().join("copy");
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let run = |mode: u32| {
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(mode)).unwrap();
        let mut command = std::process::Command::new(&copy);
        command.args(["environment", "--exact", "--nocapture", "--test-threads=1"]);
        command.env("PEREGRINE_TEST_ROLE", "environment");
        for name in ["PEREGRINE_DIR", "XDG_RUNTIME_DIR", "PEREGRINE_HOSTS", "XDG_CONFIG_HOME"] {
            command.env(name, "/chosen");
        }
        let output = command.env("HOME", "/chosen").uid(USER).gid(USER).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(
        run(0o755).contains("/chosen"),
        "a program without set-user-id should use its environment"
    );
    let said = run(0o4755);
    let effective = said.lines().find_map(|line| line.strip_prefix("user ")).unwrap();
    if effective != "0" {
        println!("skipped: the file system ignores set-user-id programs");
        return;
    }
    assert!(said.contains("/run/peregrine") && said.contains("/etc/peregrine"), "{said}");
    assert!(!said.contains("/chosen"), "{said}");
}

/// Prints the directories that the library derives from the environment of this process.
#[test]
fn environment() {
    let Some(_) = role() else { return };
    println!("\nuser {}", rustix::process::geteuid().as_raw());
    println!("{:?}", peregrine::directory::search_path());
    println!("{:?}", peregrine::directory::Hosts::of_environment());
}

/// Makes sessions with the largest allowed number of A-stacks until the server refuses one.
fn regions(directory: &Path) {
    let (mut sessions, mut bytes) = (Vec::new(), 0);
    println!("\nready");
    // If the server has no bound, the test still ends, at twice the allowed number of bytes.
    while bytes < 2 * limits::REGION_BYTES_PER_USER {
        let line = Line::connect(directory, "public").unwrap();
        let (answer, files) = line.ask(&wire::bind(limits::ASTACKS_MAX, 4096, &[]));
        if word(&answer, 0) == wire::REFUSED {
            println!("refused {}", word(&answer, 4));
            break;
        }
        let session = Session::of_answer(line, &answer, &files).expect("a session");
        bytes += session.region.memory.len();
        sessions.push(session);
    }
    let most = sessions.iter().map(|session| session.region.count).max().unwrap_or(0);
    println!("sessions {}\nbytes {bytes}\nastacks {most}", sessions.len());
    std::thread::sleep(Duration::from_secs(40));
}

#[test]
fn regions_of_another_user_are_bounded() {
    let _alone = alone();
    let Some(directory) = open_directory() else { return };
    let _server = Process::start("child", "server", directory.path());
    let mut hostile = Process::start("child", "regions", directory.path());
    let refused: u32 = hostile.until("refused ").parse().unwrap();
    assert_eq!(refused, Kind::Exhausted as u32);
    let [sessions, bytes, astacks] = ["sessions ", "bytes ", "astacks "]
        .map(|what| hostile.until(what).parse::<usize>().expect("a number"));
    println!("{sessions} sessions, {bytes} bytes");
    assert!(sessions > 100 && bytes <= limits::REGION_BYTES_PER_USER);
    assert!(astacks <= limits::ASTACKS_OF_OTHERS as usize, "{astacks} A-stacks");
    let who = WhoClient::bind("public").expect("another user can bind");
    assert_eq!(who.am_i().unwrap(), (0, 0));
}

fn workshop() {
    let server = Server::new().threads(WORKERS);
    let export = ThreadsServer::new(Workshop::default());
    let server = server.export_with("workshop", export, ExportOptions::default().public());
    let running = server.unwrap().spawn().unwrap();
    println!("\nready");
    running.wait();
}

/// Makes calls repeatedly. At the end, prints which threads of the server ran the calls.
fn calls(directory: &Path) {
    let client = ThreadsClient::bind("workshop").unwrap();
    let mut threads = BTreeSet::from([client.thread().unwrap()]);
    println!("\nready");
    while !attack::stopped(directory) {
        threads.extend((0..1000).map(|_| client.thread().unwrap()));
    }
    println!("threads {threads:?}");
}

#[test]
fn calls_of_two_users_share_no_thread() {
    let _alone = alone();
    let Some(directory) = open_directory() else { return };
    let _server = Process::start("child", "workshop", directory.path());
    let client = ThreadsClient::bind("workshop").unwrap();
    let mut own = BTreeSet::from([client.thread().unwrap()]);
    let mut other = Process::start("child", "calls", directory.path());
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        own.extend((0..1000).map(|_| client.thread().unwrap()));
    }
    attack::stop(directory.path());
    let theirs = other.until("threads ");
    let theirs = theirs.trim_matches(['{', '}']).split(", ");
    let theirs: BTreeSet<i32> = theirs.map(|thread| thread.parse().unwrap()).collect();
    let both: Vec<_> = own.intersection(&theirs).collect();
    assert!(both.is_empty(), "threads {both:?} ran calls of both users");
}

/// Makes more blocking calls than the server has threads.
fn holds() {
    let client = ThreadsClient::bind("workshop").unwrap();
    let held = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..2 * WORKERS).map(|_| scope.spawn(|| client.hold())).collect();
        println!("\nready");
        calls.into_iter().map(|call| call.join().unwrap()).filter(Result::is_ok).count()
    });
    println!("held {held}");
}

#[test]
fn blocking_calls_of_one_user_leave_threads_to_others() {
    let _alone = alone();
    let Some(directory) = open_directory() else { return };
    let server = Process::start("child", "workshop", directory.path());
    let mut other = Process::start("child", "holds", directory.path());
    let workers = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
        let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
        names
            .filter(|name| name.as_ref().is_ok_and(|name| name.starts_with("peregrine-work")))
            .count()
    };
    assert!(eventually(LIMIT, || workers() >= WORKERS - WORKERS / 4), "{} threads", workers());
    // During this pause, the other user could occupy more threads if the server allowed that.
    std::thread::sleep(Duration::from_millis(200));
    let client = ThreadsClient::bind("workshop").unwrap();
    client.with_timeout(LIMIT).release().expect("a thread for the server's own user");
    assert_eq!(other.until("held "), (2 * WORKERS).to_string());
}

/// Repeatedly frees the memory of this client's region. The server reads that memory each time the client
/// rings (sends `RING`).
fn punches(directory: &Path) {
    /// The number of bytes that are freed. The more memory is freed, the longer the server's read takes.
    const FILLED: u64 = 128 << 20;
    let line = Line::connect(directory, "workshop").unwrap();
    let (answer, files) = line.ask(&wire::bind(16, 1 << 20, &[]));
    let file = files[0].try_clone().unwrap();
    let session = Session::of_answer(line, &answer, &files).expect("a session");
    let filled = FILLED.min(session.region.memory.len() as u64);
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    println!("\nready");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !attack::stopped(directory) {
                fallocate(&file, FallocateFlags::KEEP_SIZE, 0, filled).unwrap();
                fallocate(&file, hole, 0, filled).unwrap();
            }
        });
        while !attack::stopped(directory) {
            for astack in 0..session.region.count {
                let _ = session.line.send(&wire::request(wire::RING, astack));
            }
        }
    });
}

/// Returns whether a thread waits in the kernel for memory. `thread` is the thread's directory in `/proc`.
fn waits_for_memory(thread: &Path) -> bool {
    let stat = std::fs::read_to_string(thread.join("stat")).unwrap();
    stat.rsplit(") ").next().unwrap().starts_with('D')
}

#[test]
fn freed_region_memory_costs_the_keeper_little_time() {
    let _alone = alone();
    let Some(directory) = open_directory() else { return };
    let server = Process::start("child", "workshop", directory.path());
    let keeper = || {
        let mut tasks = std::fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
        tasks.find_map(|task| {
            let task = task.ok()?.path();
            let name = std::fs::read_to_string(task.join("comm")).ok()?;
            name.starts_with("peregrine-keep").then_some(task)
        })
    };
    // A thread sets its name only when it begins to run, so the name may appear late.
    let limit = Instant::now() + Duration::from_secs(20);
    let keeper = loop {
        match keeper() {
            Some(keeper) => break keeper,
            None => assert!(Instant::now() < limit, "the server has no keeper"),
        }
    };
    let _other = Process::start("child", "punches", directory.path());
    let (begun, mut waits, mut looks) = (Instant::now(), 0, 0);
    while begun.elapsed() < Duration::from_secs(3) {
        looks += 1;
        waits += u32::from(waits_for_memory(&keeper));
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("the keeper waited for memory in {waits} of {looks} samples");
    let client = ThreadsClient::bind("workshop").expect("a keeper that listens");
    client.with_timeout(LIMIT).thread().expect("a thread");
    attack::stop(directory.path());
    assert!(waits < looks / 8, "{waits} of {looks}");
}

#[test]
fn freed_region_memory_slows_no_call_of_another_user() {
    const TIME: Duration = Duration::from_secs(3);
    let _alone = alone();
    let Some(directory) = open_directory() else { return };
    let server = Process::start("child", "workshop", directory.path());
    let client = ThreadsClient::bind("workshop").unwrap();
    let tasks = Path::new("/proc").join(server.id().to_string()).join("task");
    let worker = AtomicI32::new(client.thread().unwrap());
    let _other = Process::start("child", "punches", directory.path());
    let (begun, mut longest, mut calls) = (Instant::now(), Duration::ZERO, 0);
    let (waits, looks) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let (mut waits, mut looks) = (0, 0);
            while begun.elapsed() < TIME {
                let worker = tasks.join(worker.load(Ordering::Relaxed).to_string());
                looks += 1;
                waits += u32::from(waits_for_memory(&worker));
                std::thread::sleep(Duration::from_millis(1));
            }
            (waits, looks)
        });
        while begun.elapsed() < TIME {
            let called = Instant::now();
            worker.store(client.with_timeout(LIMIT).thread().unwrap(), Ordering::Relaxed);
            longest = longest.max(called.elapsed());
            calls += 1;
        }
        watch.join().unwrap()
    });
    attack::stop(directory.path());
    println!(
        "{calls} calls, the longest {longest:?}; their thread waited in {waits} of {looks} samples"
    );
    assert!(longest < Duration::from_secs(1), "{longest:?}");
    assert!(waits <= looks / 100, "{waits} of {looks}");
}

/// Containers, cron jobs and `su` can run programs of a user without `XDG_RUNTIME_DIR`.
#[test]
fn user_without_a_runtime_directory_gets_a_private_one() {
    let _alone = alone();
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can change its user");
        return;
    }
    let own = Path::new("/tmp").join(format!("peregrine-{OTHER}"));
    let _ = std::fs::remove_dir_all(&own);
    let told = || {
        let mut child = Process::launch_alone("child", "alone");
        child.until("told ")
    };
    assert_eq!(told(), format!("Ok(({OTHER}, {OTHER}))"));
    let mode = std::fs::metadata(&own).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    // In this case, another user has already created the directory.
    std::fs::remove_dir_all(&own).unwrap();
    std::fs::create_dir(&own).unwrap();
    let told = told();
    std::fs::remove_dir_all(&own).unwrap();
    for part in ["permission denied", "belongs to user 0", "set PEREGRINE_DIR"] {
        assert!(told.contains(part), "{told}");
    }
}
