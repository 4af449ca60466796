//! Tests who may call what: exports and procedures that only some identities may use.

mod support;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::Duration;

use peregrine::interface::Described;
use peregrine::secure::{Identity, Trust, TrustedKey};
use peregrine::{
    Argument, BindOptions, CallError, Callback, CallerIdentity, Dynamic, Executed, ExportOptions,
    GenericClient, GenericParameter, GenericServer, Kind, PathKind, Running, Security, Server,
    Sink, Source, interface,
};

const LIMIT: Duration = Duration::from_secs(10);

static ADA: LazyLock<Identity> = LazyLock::new(|| Identity::generate().unwrap());
static EVE: LazyLock<Identity> = LazyLock::new(|| Identity::generate().unwrap());
static BOB: LazyLock<Identity> = LazyLock::new(|| Identity::generate().unwrap());

fn home() -> (MutexGuard<'static, ()>, tempfile::TempDir) {
    (support::alone(), support::own_directory())
}

fn key(name: &str, peer: &Identity) -> TrustedKey {
    TrustedKey::new(name, peer.public_key(), "").unwrap()
}

/// Ada and Eve are both trusted. What they may do differs.
fn both() -> Trust {
    Trust::of_keys([key("ada", &ADA), key("eve", &EVE)]).unwrap()
}

fn of_bob() -> Security {
    (BOB.clone(), both()).into()
}

fn of(client: &Identity) -> BindOptions {
    let trust = Trust::of_keys([key("bob", &BOB)]).unwrap();
    BindOptions::default().secure(client.clone(), trust)
}

#[interface]
trait Listener {
    fn hears(&self, text: &str) -> peregrine::Result<()>;
}

#[interface]
trait Vault {
    /// Returns who the caller is.
    fn who(&self) -> peregrine::Result<Option<String>>;
    #[callers("ada")]
    fn take(&self, count: u32) -> peregrine::Result<u32>;
    #[oneway]
    #[callers("ada")]
    fn drop_in(&self, count: u32) -> peregrine::Result<()>;
    #[callers("ada")]
    fn list(&self, items: Sink<'_, u32>) -> peregrine::Result<()>;
    #[callers("ada")]
    fn fill(&self, items: Source<'_, u32>) -> peregrine::Result<u32>;
    #[callers("ada")]
    fn tell(&self, listener: Callback<'_, dyn Listener>) -> peregrine::Result<()>;
}

/// Counts the procedures that ran, except `who`.
#[derive(Clone, Default)]
struct Room {
    ran: Arc<AtomicU32>,
}

impl Room {
    fn runs(&self) -> u32 {
        self.ran.load(Ordering::SeqCst)
    }
    fn run(&self) {
        self.ran.fetch_add(1, Ordering::SeqCst);
    }
}

fn own_name() -> Option<String> {
    peregrine::caller().unwrap().identity().map(|identity| identity.to_string())
}

impl Vault for Room {
    fn who(&self) -> peregrine::Result<Option<String>> {
        Ok(own_name())
    }
    fn take(&self, count: u32) -> peregrine::Result<u32> {
        self.run();
        Ok(count)
    }
    fn drop_in(&self, _: u32) -> peregrine::Result<()> {
        self.run();
        Ok(())
    }
    fn list(&self, mut items: Sink<'_, u32>) -> peregrine::Result<()> {
        self.run();
        items.send(7)
    }
    fn fill(&self, mut items: Source<'_, u32>) -> peregrine::Result<u32> {
        self.run();
        Ok(items.next()?.unwrap_or(0))
    }
    fn tell(&self, listener: Callback<'_, dyn Listener>) -> peregrine::Result<()> {
        self.run();
        listener.hears("news")
    }
}

impl VaultAsync for Room {
    async fn who(&self) -> peregrine::Result<Option<String>> {
        Ok(own_name())
    }
    async fn take(&self, count: u32) -> peregrine::Result<u32> {
        self.run();
        Ok(count)
    }
    async fn drop_in(&self, _: u32) -> peregrine::Result<()> {
        self.run();
        Ok(())
    }
    async fn list(&self, mut items: Sink<'_, u32>) -> peregrine::Result<()> {
        self.run();
        items.send_async(7).await
    }
    async fn fill(&self, mut items: Source<'_, u32>) -> peregrine::Result<u32> {
        self.run();
        Ok(items.next_async().await?.unwrap_or(0))
    }
    async fn tell(&self, listener: Callback<'_, dyn Listener>) -> peregrine::Result<()> {
        self.run();
        listener.async_client()?.hears("news").await
    }
}

/// What a server reported of a caller that it refused: the export, the procedure, and who it was.
type Report = (String, Option<String>, Option<String>);

/// Starts a server at a secure port and at plain ports. Returns it, the addresses of the export `vault`, and
/// what the server reports.
fn serve(server: Server) -> (Running, [String; 3], Receiver<Report>) {
    let (sender, reports) = channel();
    let sender = Mutex::new(sender);
    let server = server.on_denied(move |denied| {
        let identity = denied.identity().map(ToString::to_string);
        let procedure = denied.procedure().map(str::to_owned);
        let report = (denied.export().to_owned(), procedure, identity);
        sender.lock().unwrap().send(report).expect("the test listens");
    });
    let server = server.listen_beyond_this_machine("tcp:127.0.0.1:0", of_bob()).unwrap();
    let server = server.listen("tcp:127.0.0.1:0").unwrap().listen("udp:127.0.0.1:0").unwrap();
    let running = server.spawn().unwrap();
    let addresses = [0, 1, 2].map(|index| format!("{}/vault", running.addresses()[index]));
    (running, addresses, reports)
}

fn next(reports: &Receiver<Report>) -> Report {
    reports.recv_timeout(LIMIT).expect("the server reports the refusal")
}

fn denied<T: core::fmt::Debug>(outcome: Result<T, CallError>) -> String {
    let error = outcome.expect_err("the call is refused");
    assert_eq!((error.kind(), error.executed()), (Kind::Denied, Executed::No), "{error}");
    error.to_string()
}

struct Ears(AtomicU32);

impl Listener for Ears {
    fn hears(&self, _: &str) -> peregrine::Result<()> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// Makes a call of each limited procedure. Checks that all of them run.
fn is_allowed(vault: &VaultClient, room: &Room) {
    let before = room.runs();
    assert_eq!(vault.take(3).unwrap(), 3);
    vault.drop_in(1).unwrap();
    vault.flush().unwrap();
    let mut items = Vec::new();
    vault.list(Sink::from(&mut items)).unwrap();
    assert_eq!(items, [7]);
    assert_eq!(vault.fill(Source::new([5, 6])).unwrap(), 5);
    let ears = Ears(AtomicU32::new(0));
    vault.tell(Callback::new(&ears)).unwrap();
    assert_eq!((ears.0.load(Ordering::SeqCst), room.runs()), (1, before + 5));
}

/// Makes a call of each limited procedure. Checks that none of them runs, and what the server reports.
fn is_refused(vault: &VaultClient, room: &Room, who: Option<&str>, reports: &Receiver<Report>) {
    let before = room.runs();
    let reported = |procedure: &str| {
        let expected = ("vault".to_owned(), Some(procedure.to_owned()), who.map(str::to_owned));
        assert_eq!(next(reports), expected);
    };
    let name =
        who.map_or("a caller whose identity is not proven".to_owned(), |who| format!("`{who}`"));
    let text = denied(vault.take(3));
    assert!(text.contains(&format!("{name} may not call `take` of `vault`")), "{text}");
    reported("take");
    vault.drop_in(1).unwrap();
    let error = vault.flush().unwrap_err();
    assert_eq!((error.kind(), error.oneway_not_run()), (Kind::OneWay, 1), "{error}");
    assert!(error.to_string().contains(&format!("{name} may not call `drop_in`")), "{error}");
    reported("drop_in");
    let mut items = Vec::new();
    denied(vault.list(Sink::from(&mut items)));
    reported("list");
    denied(vault.fill(Source::new(0..1000)));
    reported("fill");
    let ears = Ears(AtomicU32::new(0));
    denied(vault.tell(Callback::new(&ears)));
    reported("tell");
    assert_eq!((items.len(), ears.0.load(Ordering::SeqCst), room.runs()), (0, 0, before));
    // The binding is as good as before.
    assert_eq!(vault.who().unwrap().as_deref(), who);
}

#[test]
fn identity_is_one_type_on_every_path() {
    let _home = home();
    let vault = VaultServer::new(Room::default());
    let (_running, [sealed, tcp, udp], _) = serve(Server::new().export("vault", vault).unwrap());
    let own = format!("uid:{}", rustix::process::geteuid().as_raw());
    let known =
        |address: &str, options| VaultClient::bind_with(address, &options).unwrap().who().unwrap();
    assert_eq!(known(&sealed, of(&ADA)).as_deref(), Some("ada"));
    assert_eq!(known("vault", of(&ADA)), Some(own.clone()));
    assert_eq!(VaultClient::in_process(Room::default()).who().unwrap(), Some(own));
    for plain in [tcp, udp] {
        assert_eq!(known(&plain, BindOptions::default()), None);
    }
}

#[test]
fn procedures_run_only_for_those_who_may_call_them() {
    let _home = home();
    let room = Room::default();
    for is_async in [false, true] {
        let server = match is_async {
            false => Server::new().export("vault", VaultServer::new(room.clone())),
            true => Server::new().export("vault", VaultAsyncServer::new(room.clone())),
        };
        let (running, [sealed, tcp, udp], reports) = serve(server.unwrap());
        is_allowed(&VaultClient::bind_with(&sealed, &of(&ADA)).unwrap(), &room);
        // The server's own user may call everything.
        is_allowed(&VaultClient::bind("vault").unwrap(), &room);
        assert_eq!(running.denied(), 0);
        let eve = VaultClient::bind_with(&sealed, &of(&EVE)).unwrap();
        is_refused(&eve, &room, Some("eve"), &reports);
        for plain in [tcp, udp] {
            let nobody = VaultClient::bind(&plain).unwrap();
            is_refused(&nobody, &room, None, &reports);
        }
        assert_eq!(running.denied(), 15);
        let stat = peregrine::stat("vault").unwrap();
        assert_eq!(stat.server.denied, Some(15));
        assert!(stat.to_prometheus().contains("\nperegrine_denied_total 15\n"));
        drop(running);
    }
}

/// Many calls of an async client arrive together, in batches.
#[test]
fn each_call_of_a_batch_is_checked() {
    let _home = home();
    let room = Room::default();
    for (client, may) in [(&*ADA, true), (&*EVE, false)] {
        let vault = VaultAsyncServer::new(room.clone());
        let (_running, [sealed, ..], _reports) =
            serve(Server::new().export("vault", vault).unwrap());
        let options = of(client);
        let vault = VaultAsyncClient::bind_with(&sealed, &options);
        let vault = support::futures::block_on(vault).unwrap();
        let before = room.runs();
        let calls: Vec<_> = (0..200)
            .map(|number| {
                let vault = vault.clone();
                async move {
                    if number % 2 == 0 {
                        vault.who().await.map(|_| number)
                    } else {
                        vault.take(number).await
                    }
                }
            })
            .collect();
        let outcomes = support::futures::join_all(calls);
        for (number, outcome) in (0..).zip(outcomes) {
            match may || number % 2 == 0 {
                true => assert_eq!(outcome.unwrap(), number),
                false => drop(denied(outcome)),
            }
        }
        assert_eq!(room.runs() - before, if may { 100 } else { 0 });
        let failed = support::futures::block_on(async {
            let mut failed = Vec::new();
            for number in 0..200 {
                failed.extend(vault.drop_in(number).await.err());
            }
            failed.extend(vault.flush().await.err());
            failed
        });
        assert_eq!(failed.is_empty(), may, "{failed:?}");
        assert!(failed.iter().all(|error| error.kind() == Kind::OneWay), "{failed:?}");
        assert_eq!(room.runs() - before, if may { 300 } else { 0 });
    }
}

#[test]
fn limited_export_is_offered_only_to_those_who_prove_who_they_are() {
    let _home = home();
    let options = ExportOptions::default().identities(["ada"]);
    let server = Server::new().export_with("vault", VaultServer::new(Room::default()), options);
    let (running, [sealed, tcp, udp], reports) = serve(server.unwrap());
    VaultClient::bind_with(&sealed, &of(&ADA)).unwrap().who().unwrap();
    VaultClient::bind("vault").unwrap().who().unwrap();
    assert_eq!(running.denied(), 0);
    let text = denied(VaultClient::bind_with(&sealed, &of(&EVE)));
    assert!(text.contains("`vault` is limited to identities that do not include `eve`"), "{text}");
    assert_eq!(next(&reports), ("vault".to_owned(), None, Some("eve".to_owned())));
    for plain in [&tcp, &udp] {
        let text = denied(VaultClient::bind(plain));
        assert!(text.contains("without encryption nothing proves who calls"), "{text}");
        assert_eq!(next(&reports), ("vault".to_owned(), None, None));
        denied(peregrine::describe(plain));
    }
    assert!(running.denied() >= 3);
}

#[test]
fn patterns_of_all_kinds_are_understood() {
    let _home = home();
    let ada = ADA.fingerprint().to_string();
    let lists: [&[&str]; 4] = [&["*"], &[&ada], &["bob", "ada", "eve"], &["ops/*", "uid:1", "ada"]];
    for (list, admits_eve) in lists.into_iter().zip([true, false, true, false]) {
        let options = ExportOptions::default().identities(list);
        let server = Server::new().export_with("vault", VaultServer::new(Room::default()), options);
        let (_running, [sealed, ..], _reports) = serve(server.unwrap());
        VaultClient::bind_with(&sealed, &of(&ADA)).unwrap();
        assert_eq!(VaultClient::bind_with(&sealed, &of(&EVE)).is_ok(), admits_eve, "{list:?}");
    }
}

#[test]
fn options_replace_the_attribute_and_an_empty_list_admits_nobody() {
    let _home = home();
    let room = Room::default();
    let options = ExportOptions::default()
        .allow("take", ["eve"])
        .allow("who", [""; 0])
        .allow("drop_in", ["uid:7"])
        .allow("drop_in", ["eve"]);
    let server = Server::new().export_with("vault", VaultServer::new(room.clone()), options);
    let (_running, [sealed, ..], _reports) = serve(server.unwrap());
    let [ada, eve] =
        [&*ADA, &*EVE].map(|client| VaultClient::bind_with(&sealed, &of(client)).unwrap());
    denied(ada.take(1));
    assert_eq!(eve.take(1).unwrap(), 1);
    eve.drop_in(1).unwrap();
    eve.flush().unwrap();
    denied(ada.who());
    denied(eve.who());
    // Procedures of which the options say nothing are as the interface says.
    assert_eq!(ada.fill(Source::new([1])).unwrap(), 1);
    denied(eve.fill(Source::new([1])));
    VaultClient::bind("vault").unwrap().who().unwrap();
}

#[test]
fn wrong_patterns_and_procedures_are_reported_when_exporting() {
    let _home = home();
    let options = ExportOptions::default;
    for (options, expected) in [
        (options().identities(["ops/"]), "`ops/`"),
        (options().identities(["uid:root"]), "`uid:root` does not end with a number"),
        (options().identities(["uid:4294967295"]), "`uid:4294967295`"),
        (options().identities(["gid:+5"]), "`gid:+5`"),
        (options().allow("take", ["a b"]), "`a b`"),
        (options().allow("steal", ["ada"]), "the interface has no procedure `steal`"),
    ] {
        let vault = VaultServer::new(Room::default());
        let error = Server::new().export_with("vault", vault, options).unwrap_err();
        assert_eq!(error.kind(), Kind::BadName, "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    let running = Server::new().spawn().unwrap();
    let vault = VaultServer::new(Room::default());
    running.export_with("vault", vault, options().allow("steal", ["ada"])).unwrap_err();
    assert!(running.names().is_empty());
}

#[test]
fn generic_server_refuses_what_the_options_say() {
    let _home = home();
    #[interface]
    trait Sums {
        fn double(&self, x: u32) -> peregrine::Result<u32>;
        fn half(&self, x: u32) -> peregrine::Result<u32>;
    }
    let described = Described::parse(&SumsClient::INTERFACE.canonical_text()).unwrap();
    let sums = GenericServer::new(described, |call| {
        let [GenericParameter::In(Dynamic::U32(x))] = call.parameters() else {
            unreachable!("it is as the interface says");
        };
        Ok(Ok(Dynamic::U32(*x * 2)))
    });
    let options = ExportOptions::default().allow("double", ["ada"]);
    let server = Server::new().export_with("vault", sums, options).unwrap();
    let (running, [sealed, tcp, _], _reports) = serve(server);
    let call = |address: &str, options: &BindOptions, procedure: &str| {
        let client = GenericClient::bind_with(address, options).unwrap();
        client.call(procedure, &mut [Argument::In(&Dynamic::U32(4))])
    };
    assert_eq!(call(&sealed, &of(&ADA), "double").unwrap(), Ok(Dynamic::U32(8)));
    denied(call(&sealed, &of(&EVE), "double"));
    denied(call(&tcp, &BindOptions::default(), "double"));
    assert_eq!(call(&tcp, &BindOptions::default(), "half").unwrap(), Ok(Dynamic::U32(8)));
    assert_eq!(running.denied(), 2);
}

/// The same interface as in a client that knows nothing of patterns.
mod plain {
    use super::*;

    #[interface]
    pub(crate) trait Till {
        fn total(&self) -> peregrine::Result<u64>;
    }
}

mod limited {
    use super::*;

    #[interface]
    pub(crate) trait Till {
        #[callers("ada", "ops/*")]
        fn total(&self) -> peregrine::Result<u64>;
    }
}

#[test]
fn patterns_are_no_part_of_the_interface() {
    let [plain, limited] = [plain::TillClient::INTERFACE, limited::TillClient::INTERFACE];
    assert_eq!(plain.digest(), limited.digest());
    assert_eq!(plain.canonical_text(), limited.canonical_text());
}

#[test]
fn change_of_names_ends_bindings_and_decides_anew() {
    let _home = home();
    let room = Room::default();
    let trust = both();
    let server = Server::new().export("vault", VaultServer::new(room.clone())).unwrap();
    let by = (BOB.clone(), trust.clone());
    let server = server.listen_beyond_this_machine("tcp:127.0.0.1:0", by).unwrap();
    let running = server.spawn().unwrap();
    let address = format!("{}/vault", running.addresses()[0]);
    let [ada, eve] =
        [&*ADA, &*EVE].map(|client| VaultClient::bind_with(&address, &of(client)).unwrap());
    assert_eq!(ada.take(1).unwrap(), 1);
    denied(eve.take(1));
    // They change places: the key that was called `ada` is now called `eve`.
    trust.set_keys([key("eve", &ADA), key("ada", &EVE)]).unwrap();
    support::until("both connections end", || !ada.is_alive() && !eve.is_alive());
    denied(ada.take(2));
    assert_eq!(eve.take(2).unwrap(), 2);
    assert_eq!(eve.who().unwrap().as_deref(), Some("ada"));
    assert_eq!((room.runs(), running.denied()), (2, 2));
}

#[interface(onc(program = 0x2000_0077, version = 1), courier(program = 0x2000_0077, version = 1))]
trait Shop {
    #[onc(1)]
    #[courier(1)]
    fn look(&self) -> peregrine::Result<u32>;
    #[onc(7)]
    #[courier(7)]
    #[callers("ada")]
    fn buy(&self, count: u32) -> peregrine::Result<u32>;
}

impl Shop for Room {
    fn look(&self) -> peregrine::Result<u32> {
        Ok(3)
    }
    fn buy(&self, count: u32) -> peregrine::Result<u32> {
        self.run();
        Ok(count)
    }
}

#[test]
fn clients_of_other_systems_prove_nothing() {
    let _home = home();
    let room = Room::default();
    for scheme in ["onc+tcp", "onc+udp", "courier+tcp", "courier+udp", "courier+exchange"] {
        let shop = || ShopServer::new(room.clone());
        let limited = ExportOptions::default().identities(["ada"]);
        let serve = |server: Server, at: &str| server.listen(at).unwrap().spawn().unwrap();
        let at = format!("{scheme}:127.0.0.1:0");
        let running = serve(Server::new().export("vault", shop()).unwrap(), &at);
        let at = running.addresses()[0].to_string();
        let place = at.rsplit_once(':').unwrap().1.parse::<u16>().unwrap();
        let address = format!("{scheme}:127.0.0.1:{place}");
        let client = ShopClient::bind(&address).unwrap();
        assert_eq!(client.look().unwrap(), 3);
        let error = client.buy(1).unwrap_err();
        let kind = match scheme {
            // Courier has no rejection with this meaning.
            "courier+tcp" | "courier+udp" => Kind::NoSuchProcedure,
            _ => Kind::Denied,
        };
        assert_eq!((error.kind(), error.executed()), (kind, Executed::No), "{scheme}: {error}");
        assert_eq!(running.denied(), 1, "{scheme}");
        drop(running);
        let server = Server::new().export_with("vault", shop(), limited).unwrap();
        let _running = serve(server, &address);
        // The server does not have the program.
        let outcome = ShopClient::bind(&address).and_then(|shop| shop.look());
        assert!(outcome.is_err(), "{scheme}");
    }
    assert_eq!(room.runs(), 0);
}

const USER: u32 = 61_001;
const GROUP: u32 = 62_001;
const OTHER: u32 = 61_999;

#[interface]
trait Desk {
    fn read(&self) -> peregrine::Result<String>;
    #[callers("ada", "uid:61001", "gid:62001")]
    fn write(&self) -> peregrine::Result<()>;
}

impl Desk for Room {
    fn read(&self) -> peregrine::Result<String> {
        Ok(own_name().unwrap_or_default())
    }
    fn write(&self) -> peregrine::Result<()> {
        self.run();
        Ok(())
    }
}

/// Does the work of a child process that has a role: it binds as another user, and calls. In the test run
/// itself, this function does nothing.
#[test]
fn child() {
    let Some(role) = support::role() else { return };
    let numbers: Vec<u32> = role.split(' ').map(|word| word.parse().unwrap()).collect();
    support::become_user(numbers[0], numbers[1], &numbers[2..]);
    println!("\nready");
    let outcomes = ["open", "desk"].map(|name| match DeskClient::bind(name) {
        Ok(desk) => {
            assert_eq!(desk.read().unwrap(), format!("uid:{}", numbers[0]));
            match desk.write() {
                Ok(()) => "writes".to_owned(),
                Err(error) => {
                    assert_eq!((error.kind(), error.executed()), (Kind::Denied, Executed::No));
                    "reads".to_owned()
                }
            }
        }
        Err(error) => {
            assert_eq!((error.kind(), error.executed()), (Kind::Denied, Executed::No), "{error}");
            "nothing".to_owned()
        }
    });
    println!("{}", outcomes.join(" "));
}

/// The server runs as root. Its own user is thus allowed everything.
#[test]
fn users_of_this_machine_match_by_number_of_user_and_group() {
    let (_alone, directory) = home();
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can change its user");
        return;
    }
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory.path(), everybody).unwrap();
    let room = Room::default();
    let public = ExportOptions::default().public();
    // Eve has no business on this machine.
    let limited = ExportOptions::default().identities(["eve", "uid:61001", "gid:62001"]);
    let private = ExportOptions::default().identities(["ada", "*"]);
    let server = Server::new()
        .export_with("open", DeskServer::new(room.clone()), public)
        .and_then(|server| server.export_with("desk", DeskServer::new(room.clone()), limited))
        .and_then(|server| server.export_with("vault", VaultServer::new(room.clone()), private));
    let (running, _, _reports) = serve(server.unwrap());
    for (who, may) in [
        (format!("{USER} {OTHER}"), "writes writes"),
        (format!("{OTHER} {GROUP}"), "writes writes"),
        (format!("{OTHER} {OTHER} 7 {GROUP}"), "writes writes"),
        // The number of a group is not that of a user.
        (format!("{GROUP} {USER} {USER}"), "reads nothing"),
        (format!("{OTHER} {OTHER}"), "reads nothing"),
        ("0 0".to_owned(), "writes writes"),
    ] {
        let mut child = support::Process::start("child", &who, directory.path());
        assert_eq!(child.line(), may, "{who}");
    }
    assert_eq!((room.runs(), running.denied()), (8, 4));
}

#[test]
fn identity_has_its_parts() {
    let _home = home();
    #[interface]
    trait Parts {
        fn check(&self) -> peregrine::Result<bool>;
    }
    struct Checks;
    impl Parts for Checks {
        fn check(&self) -> peregrine::Result<bool> {
            let caller = peregrine::caller().unwrap();
            Ok(match (caller.path(), caller.identity().unwrap()) {
                (PathKind::Tcp, CallerIdentity::Peer(peer)) => {
                    peer.name() == Some("ada") && peer.fingerprint() == ADA.fingerprint()
                }
                (PathKind::Local, CallerIdentity::Local { user, group, process, .. }) => {
                    (user, group, process) == (caller.user(), caller.group(), caller.process())
                }
                _ => false,
            })
        }
    }
    let server = Server::new().export("vault", PartsServer::new(Checks)).unwrap();
    let (_running, [sealed, ..], _) = serve(server);
    for address in [&*sealed, "vault"] {
        assert!(PartsClient::bind_with(address, &of(&ADA)).unwrap().check().unwrap());
    }
}
